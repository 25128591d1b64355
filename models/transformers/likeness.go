package transformers

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
)

// takeAs makes the configuration one of a family that the caller names, whatever its own model_type.
func takeAs(c *family.Config, f *family.Family) (*family.Head, error) {
	c.As = f.Model
	c.Read = make(map[string]bool)
	for i := range f.Heads {
		if f.Heads[i].Context != nil {
			return &f.Heads[i], nil
		}
	}
	return nil, &family.UnsupportedError{Type: f.Model, Feature: "running models of another type as that"}
}

// harmless are entries that say nothing of what a decoder computes.
var harmless = strings.Fields(`architectures model_type torch_dtype dtype transformers_version bos_token_id eos_token_id pad_token_id
	sep_token_id initializer_range use_cache attention_dropout hidden_dropout resid_pdrop embd_pdrop residual_dropout
	embedding_dropout classifier_dropout auto_map _name_or_path id2label label2id attn_implementation _attn_implementation
	tokenizer_class max_window_layers gradient_checkpointing num_labels task_specific_params unsloth_version problem_type
	return_dict output_hidden_states output_attentions chunk_size_feed_forward is_encoder_decoder tie_word_embeddings`)

// unexplained lists the entries that the family did not look at and that are not what a model without them has.
func unexplained(c *family.Config) []string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(c.Fields)) {
		v := c.Fields[key]
		if !c.Read[key] && !slices.Contains(harmless, key) && !neutral(v) {
			list = append(list, key+" = "+family.Short(v))
		}
	}
	return list
}

// neutral reports whether a value says that there is nothing of a kind: no bias, a factor of one, layers that all see everything.
func neutral(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case bool:
		return !v
	case string:
		return v == ""
	case json.Number:
		x, err := v.Float64()
		return err == nil && (x == 0 || x == 1)
	case map[string]any:
		return len(v) == 0
	case []any:
		return !slices.ContainsFunc(v, func(x any) bool { return x != fullAttention })
	}
	return false
}

// likeable are the families that models of unknown types are compared with.
var likeable = []string{"llama", "qwen2", "qwen3"}

// like returns the family that a checkpoint of an unknown type is by its weights and its configuration, "" where there is none.
func like(text []byte, dict layers.StateDict) string {
	for _, name := range likeable {
		if _, err := Named(name, text, dict); err == nil {
			return name
		}
	}
	return ""
}

// remoteCode returns the class whose code a folder brings, and the class of transformers that loads it; "" where there is none.
func remoteCode(c *family.Config) (class, loader string) {
	list, _ := c.Fields["auto_map"].(map[string]any)
	const causal = "AutoModelForCausalLM"
	if class, ok := list[causal].(string); ok {
		return class, causal
	}
	for _, loader := range slices.Sorted(maps.Keys(list)) {
		if class, ok := list[loader].(string); ok && strings.HasPrefix(loader, "AutoModel") {
			return class, loader
		}
	}
	return "", ""
}

// explain adds to the error of an unknown type what the folder tells: that it has code of its own, and what the model is like.
func explain(err error, text []byte, dict layers.StateDict) error {
	var unknown *family.UnsupportedError
	c, parsed := parseConfig(text, dict)
	if !errors.As(err, &unknown) || unknown.Feature != "" || len(unknown.Known) > 0 || parsed != nil {
		return err
	}
	more := *unknown
	more.Code, more.Loader = remoteCode(c)
	more.Like = like(text, dict)
	return &more
}

// asNote says what a model was taken for.
func asNote(c *family.Config, h *family.Head) string {
	switch {
	case c.As != "" && c.As != c.Fields["model_type"]:
		return fmt.Sprintf("config.json says the model type %s; taken for %s (%s) as asked: all weights and all entries "+
			"have a place in it", family.Short(c.Fields["model_type"]), c.As, h.Class)
	case c.Part != "":
		more := ""
		if _, class, _ := strings.Cut(strings.TrimSuffix(c.Part, ")"), "("); seeing(class) {
			more = " (--arch " + class + " takes them, and --image of generate and chat)"
		}
		return fmt.Sprintf("the text part of %s: pictures are no input%s", c.Part, more)
	}
	return ""
}
