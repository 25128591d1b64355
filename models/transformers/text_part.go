package transformers

import (
	"maps"
	"strings"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
	"github.com/optimem/optimem/models/transformers/pictures"
)

// textParts are the model types that see pictures or hear and have a decoder for their text in text_config.
var textParts = map[string]textPart{
	"gemma3": {kind: "gemma3_text", ties: true}, "gemma3n": {kind: "gemma3n_text", ties: true}, "gemma4": {kind: "gemma4_text", ties: true},
	"mistral3": {kind: "mistral"}, "llava": {kind: "llama"}, "llava_next": {kind: "llama"}, "kimi_k25": {kind: "deepseek_v3"},
	"qwen2_vl": {kind: "qwen2"}, "qwen2_5_vl": {kind: "qwen2"}, "qwen3_vl": {kind: "qwen3"},
	"qwen3_vl_moe": {kind: "qwen3_moe", outer: true, fixed: map[string]any{"norm_topk_prob": true}},
	"llama4":       {kind: "llama4_text"}, "qwen3_5": {kind: "qwen3_5_text"}, "qwen3_5_moe": {kind: "qwen3_5_moe_text"},
}

// A textPart says what such a decoder is.
type textPart struct {
	// kind is the model_type where the file does not say it; ties the default of tie_word_embeddings, which is the
	// whole model's, and outer that no other decides.
	kind        string
	ties, outer bool
	// fixed are entries that such a model has whatever the file says.
	fixed map[string]any
}

// takeTextPart makes the configuration that of the text part, where it is one of a model that has one.
func takeTextPart(c *family.Config) {
	outer, _ := c.Fields["model_type"].(string)
	part, ok := textParts[outer]
	inner, isObject := c.Fields["text_config"].(map[string]any)
	if !ok {
		return
	}
	if !isObject { // older files have the text part's entries beside the others
		if inner = maps.Clone(c.Fields); c.Fields["vision_config"] == nil {
			return
		}
		delete(inner, "model_type")
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
	if c.Fields["quantization_config"] != nil {
		fields["quantization_config"] = c.Fields["quantization_config"]
	}
	if tied, given := c.Fields["tie_word_embeddings"].(bool); given || part.ties {
		fields["tie_word_embeddings"] = tied || !given || !part.ties && !part.outer && inner["tie_word_embeddings"] == true
	}
	maps.Copy(fields, part.fixed)
	for _, h := range f.Heads {
		if h.Context != nil {
			fields["architectures"] = []any{h.Class}
		}
	}
	c.Part = outer
	if class := c.Architecture(); class != "" {
		c.Part += " (" + class + ")"
	}
	c.Fields = fields
}

// textNames are the beginnings of names in models that have a text part, and what they are in the part alone.
var textNames = [][2]string{
	{"model.language_model.", "model."}, {"language_model.model.", "model."}, {"language_model.lm_head.", "lm_head."},
	{"lm_head.", "lm_head."}, {"model.layers.", "model.layers."}, {"model.embed_tokens.", "model.embed_tokens."},
	{"model.norm.", "model.norm."},
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

// parseConfig reads the text of a config.json, of a model that sees the part of its text.
func parseConfig(text []byte, dict layers.StateDict) (*family.Config, error) {
	c, err := parseWhole(text, dict)
	if err == nil {
		takeTextPart(c)
	}
	return c, err
}

// Seeing returns the class of the model that a config.json describes as a whole, and how pictures come into its texts,
// where its folder is taken for its text part unless that class is named ([Named]); "" and nil of all others.
func Seeing(text []byte) (class string, places *layers.Pictures) {
	c, err := parseWhole(text, nil)
	if err != nil {
		return "", nil
	}
	h := pictures.Llava.Heads[0]
	if class = c.Architecture(); !seeing(class) || c.Fields["model_type"] != pictures.Llava.Model {
		return "", nil
	}
	if places = h.Pictures(c); c.Err != nil {
		return "", nil
	}
	return class, places
}

// seeing reports whether a class is that of a model that sees as a whole, not of its text part.
func seeing(class string) bool { return class != "" && class == pictures.Llava.Heads[0].Class }

// parseWhole is parseConfig for all of a model.
func parseWhole(text []byte, dict layers.StateDict) (*family.Config, error) {
	c, err := family.Parse(text, dict)
	if err == nil {
		c.Named = familyNamed
	}
	return c, err
}
