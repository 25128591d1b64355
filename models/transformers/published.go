package transformers

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/optimem/optimem/layers"
)

// published are the configurations of models of well-known sizes, so that sizes can be tried with no download. What is
// left out is the default of the configuration's class.
var published = []struct{ name, config string }{
	{"bert-base", `{"model_type": "bert", "architectures": ["BertModel"]}`},
	{"bert-large", `{"model_type": "bert", "architectures": ["BertModel"], "hidden_size": 1024,
		"num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}`},
	{"gpt2", `{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}`},
	{"gpt2-medium", `{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 1024, "n_layer": 24, "n_head": 16}`},
	{"gpt2-large", `{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 1280, "n_layer": 36, "n_head": 20}`},
	{"gpt2-xl", `{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 1600, "n_layer": 48, "n_head": 25}`},
	{"tinyllama-1.1b", `{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 2048,
		"intermediate_size": 5632, "num_hidden_layers": 22, "num_attention_heads": 32, "num_key_value_heads": 4,
		"vocab_size": 32000, "rms_norm_eps": 1e-5}`},
	{"llama-2-7b", `{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096,
		"intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
		"vocab_size": 32000, "rms_norm_eps": 1e-5}`},
	{"llama-3.1-8b", `{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096,
		"intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
		"vocab_size": 128256, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "max_position_embeddings": 131072,
		"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
		"original_max_position_embeddings": 8192}}`},
	{"llama-3.2-1b", `{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 2048,
		"intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
		"head_dim": 64, "vocab_size": 128256, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
		"max_position_embeddings": 131072, "tie_word_embeddings": true,
		"rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
		"original_max_position_embeddings": 8192}}`},
}

// Names lists the models of well-known sizes.
func Names() []string {
	var names []string
	for _, p := range published {
		names = append(names, p.name)
	}
	return names
}

// New returns a model of a well-known size. Tied weights are listed in its Weights.
func New(name string) (*layers.Architecture, error) {
	text, err := configOf(name)
	if err != nil {
		return nil, err
	}
	c, err := parseConfig(text, nil)
	if err != nil {
		return nil, err
	}
	c.Whole = true
	f, h, err := choose(c, "")
	if err != nil {
		return nil, err
	}
	a, err := architecture(f, h, c)
	if err != nil {
		return nil, err
	}
	a.Name, a.Weights = name, make(map[string]string)
	wanted := make(map[string]bool)
	for _, e := range a.Root.StateDict() {
		wanted[e.Name] = true
	}
	if c.Flag("tie_word_embeddings", f.Ties) || f.AlwaysTied {
		for _, pair := range f.Tied {
			if wanted[pair[0]] && wanted[pair[1]] {
				a.Weights[pair[0]] = pair[1]
			}
		}
	}
	return a, c.Err
}

// Bound returns a model of a well-known size for the weights of a state dict, in which the base model's prefix and tied
// weights may be missing.
func Bound(name string, dict layers.StateDict) (*layers.Architecture, error) {
	text, err := configOf(name)
	if err != nil {
		return nil, err
	}
	a, err := FromConfig(text, dict)
	if err != nil {
		return nil, err
	}
	a.Name = name
	return a, nil
}

// configOf returns the configuration of a published model.
func configOf(name string) ([]byte, error) {
	i := slices.IndexFunc(published, func(p struct{ name, config string }) bool { return p.name == name })
	if i < 0 {
		return nil, fmt.Errorf("no architecture is called %q", name)
	}
	return []byte(published[i].config), nil
}

// tables are the ends of the names of embeddings, one of which every model of well-known size has.
var tables = []string{"word_embeddings.weight", "wte.weight", "embed_tokens.weight"}

// Recognise returns the model of well-known size that a state dict has exactly the names and shapes of. Where there is none,
// nearest is the [*layers.MismatchError] of the one that comes closest, nil where nothing does. Folders say in their configuration
// what they are; this is for a state dict alone.
func Recognise(dict layers.StateDict) (found []*layers.Architecture, nearest error) {
	if !slices.ContainsFunc(dict, func(e layers.Entry) bool {
		return slices.ContainsFunc(tables, func(t string) bool { return strings.HasSuffix(e.Name, t) })
	}) {
		return nil, nil
	}
	most := len(dict) / 2 // differences; further off it is something else
	for _, p := range published {
		a, err := Bound(p.name, dict)
		if err == nil {
			found = append(found, a)
			continue
		}
		var mismatch *layers.MismatchError
		if errors.As(err, &mismatch) && mismatch.Count() <= most {
			near := *mismatch
			near.Arch = p.name
			most, nearest = mismatch.Count()-1, &near
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	return nil, nearest
}
