package transformers

import (
	"strings"

	"github.com/optimem/optimem/layers"
)

// textParts are the model types that see pictures or hear and have a decoder for their text in text_config, with the
// model_type that one has where the file does not say it, and the default of tie_word_embeddings, which is the whole model's.
var textParts = map[string]struct {
	kind string
	ties bool
}{
	"gemma3": {"gemma3_text", true}, "gemma3n": {"gemma3n_text", true}, "gemma4": {"gemma4_text", true}, "mistral3": {"mistral", true}, "llava": {"llama", false}, "llava_next": {"llama", false},
	"llama4": {"llama4_text", false}, "qwen3_5": {"qwen3_5_text", false}, "qwen3_5_moe": {"qwen3_5_moe_text", false},
}

// takeTextPart makes the configuration that of the text part, where it is one of a model that has one.
func (c *config) takeTextPart() {
	outer, _ := c.fields["model_type"].(string)
	part, ok := textParts[outer]
	inner, isObject := c.fields["text_config"].(map[string]any)
	if !ok || !isObject {
		return
	}
	kind, given := inner["model_type"].(string)
	if !given {
		kind = part.kind
	}
	f := familyNamed(kind)
	if f == nil {
		return // of which the error is to say the outer type
	}
	fields := map[string]any{"model_type": kind}
	for k, v := range inner {
		fields[k] = v
	}
	if c.fields["quantization_config"] != nil {
		fields["quantization_config"] = c.fields["quantization_config"]
	}
	if tied, given := c.fields["tie_word_embeddings"].(bool); given || part.ties {
		fields["tie_word_embeddings"] = tied || !given || !part.ties && inner["tie_word_embeddings"] == true
	}
	for _, h := range f.heads {
		if h.context != nil {
			fields["architectures"] = []any{h.class}
		}
	}
	c.part = outer
	if class := c.architecture(); class != "" {
		c.part += " (" + class + ")"
	}
	c.fields = fields
}

// textNames are the beginnings of names in models that have a text part, and what they are in the part alone.
var textNames = [][2]string{
	{"model.language_model.", "model."}, {"language_model.model.", "model."}, {"language_model.lm_head.", "lm_head."},
	{"lm_head.", "lm_head."},
}

// textDict returns the weights of the text part under its own names, and what those are called in the checkpoint.
func textDict(dict layers.StateDict) (part layers.StateDict, names map[string]string) {
	names = make(map[string]string)
	for _, e := range dict {
		for _, n := range textNames {
			rest, ok := strings.CutPrefix(e.Name, n[0])
			if name := n[1] + rest; ok && names[name] == "" {
				names[name] = e.Name
				e.Name = name
				part = append(part, e)
				break
			}
		}
	}
	return part, names
}
