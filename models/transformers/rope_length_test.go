package transformers_test

import (
	"cmp"
	"encoding/json"
	"slices"
	"testing"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

func decoderNamed(t *testing.T, name string) *decoderRecord {
	t.Helper()
	list := recordedDecoders(t)
	i := slices.IndexFunc(list, func(r decoderRecord) bool { return r.Name == name })
	if i < 0 {
		t.Fatalf("no recorded %s", name)
	}
	return &list[i]
}

// TestOlderKeys: configurations that say the same of rotary embeddings in the words of older files give the same bits.
func TestOlderKeys(t *testing.T) {
	type object = map[string]any
	factors := object{
		"short_factor": []float64{1, 1.1, 1.3, 1.6}, "long_factor": []float64{1.5, 2.5, 4, 6},
	}
	with := func(more object) object {
		all := object{}
		for _, m := range []object{factors, more} {
			for k, v := range m {
				all[k] = v
			}
		}
		return all
	}
	for _, c := range []struct {
		name  string
		older object
	}{
		{"llama_dynamic", object{"rope_theta": 10000.0, "rope_scaling": object{"type": "dynamic", "factor": 8.0}}},
		{"llama_dynamic", object{"rope_scaling": object{"rope_type": "dynamic", "factor": 8.0}}},
		{"phi3_longrope", object{"rope_scaling": with(object{"type": "su"})}},
		{"phi3_longrope", object{"rope_theta": 10000, "rope_scaling": with(object{"type": "longrope"})}},
		{"gpt_neox", object{"rotary_pct": 0.25, "rotary_emb_base": 10000}},
		{"gpt_neox_serial", object{"rotary_pct": 1.0, "rotary_emb_base": 5000}},
		{"glm", object{"partial_rotary_factor": 0.5, "rope_theta": 10000.0}},
		{"glm", object{}},
		{"phi_normed", object{"partial_rotary_factor": 0.25}},
		{"stablelm_parallel", object{"partial_rotary_factor": 0.5, "rope_theta": 10000}},
		{"gemma3", object{"rope_theta": 1e6, "rope_local_base_freq": 10000, "sliding_window_pattern": 6, "layer_types": nil}},
		{"gemma3_linear", object{"rope_theta": 1e6, "rope_scaling": object{"rope_type": "linear", "factor": 8.0}}},
		{"exaone4_full", object{"rope_theta": 10000, "rope_scaling": object{
			"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}}},
		{"hunyuan_v1_dense", object{"rope_theta": 10000.0, "rope_scaling": object{"type": "dynamic", "alpha": 1000.0, "factor": 1.0}}},
		{"cohere2", object{"sliding_window_pattern": 4, "layer_types": nil, "rope_theta": 10000}},
		{"falcon", object{"rope_theta": 10000.0, "hidden_size": nil, "n_embed": 32}},
	} {
		r := decoderNamed(t, c.name)
		tokens := int64s(r.Runs[1].Prompt)
		in := optimem.Values{"input_ids": tensor.Of(tokens, 1, len(tokens))}
		logits := func(config string) []float32 {
			r.Config = config
			model, err := models.Build(r.folder(t), models.Options{})
			if err != nil {
				t.Fatalf("%s, %v: %v", c.name, c.older, err)
			}
			return wholeLogits(t, model, in)
		}
		want := logits(r.Config)
		var fields object
		if err := json.Unmarshal([]byte(r.Config), &fields); err != nil {
			t.Fatal(err)
		}
		delete(fields, "rope_parameters")
		for k, v := range c.older {
			if fields[k] = v; v == nil {
				delete(fields, k)
			}
		}
		text, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(logits(string(text)), want) {
			t.Errorf("%s: %v computes something else", c.name, c.older)
		}
	}
}

// TestLongSequencesShareNothing: keys that were turned for a long text are not those of a short one with the same beginning, nor
// the other way round.
func TestLongSequencesShareNothing(t *testing.T) {
	for _, name := range []string{"phi3_longrope", "llama_dynamic"} {
		r := decoderNamed(t, name)
		model, err := models.Build(r.folder(t), models.Options{})
		if err != nil {
			t.Fatal(err)
		}
		long := r.Runs[1].Prompt
		requests := []generate.Request{
			{Prompt: long[:20], MaxTokens: 6}, {Prompt: long, MaxTokens: 6}, {Prompt: long[:25], MaxTokens: 40},
			{Prompt: long[:20], MaxTokens: 6}, {Prompt: long, MaxTokens: 6},
		}
		open := func() *generate.Engine {
			e, err := generate.New(t.Context(), model, generate.Options{
				Session: optimem.Options{Mode: plan.Resident, Threads: 1}, Context: 128, Sequences: 3, Rows: 16,
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { e.Close() })
			return e
		}
		all := open()
		for i, request := range requests {
			got, err := all.Generate(t.Context(), request, nil)
			if err != nil {
				t.Fatal(err)
			}
			want, err := open().Generate(t.Context(), request, nil)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.Tokens, want.Tokens) {
				t.Errorf("%s: request %d after others: %s", name, i, firstOther(got.Tokens, want.Tokens))
			}
		}
	}
}

// TestLongBranches: of every kind of scaling that rotary embeddings have, a model is recorded whose texts are longer than its
// original context, so that what is only done there is compared with transformers. A kind that comes has to have one, too.
func TestLongBranches(t *testing.T) {
	longer := make(map[string]bool)
	for _, r := range recordedDecoders(t) {
		type parameters struct {
			Type    string `json:"rope_type"`
			Context int    `json:"original_max_position_embeddings"`
		}
		var config struct {
			Scaling   parameters `json:"rope_parameters"`
			Context   int        `json:"original_max_position_embeddings"`
			Positions int        `json:"max_position_embeddings"`
		}
		if err := json.Unmarshal([]byte(r.Config), &config); err != nil {
			t.Fatal(err)
		}
		context := cmp.Or(config.Scaling.Context, config.Context, config.Positions)
		text := 0
		for _, run := range r.Runs {
			text = max(text, len(run.Prompt)+len(run.Tokens))
		}
		longer[config.Scaling.Type] = longer[config.Scaling.Type] || context < text
	}
	for _, kind := range []string{"dynamic", "llama3", "longrope", "yarn"} {
		if _, known := longer[kind]; !known {
			t.Errorf("no model with %s", kind)
		}
	}
	delete(longer, "")
	delete(longer, "default")
	for kind, is := range longer {
		if !is {
			t.Errorf("no text of a model with %s is longer than its original context", kind)
		}
	}
}
