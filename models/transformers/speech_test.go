package transformers

import (
	"strings"
	"testing"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
)

// dictOf is the state dict of a model, with its head, for a configuration.
func dictOf(t *testing.T, text []byte) layers.StateDict {
	t.Helper()
	c, err := parseConfig(text, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Whole = true
	_, h, err := choose(c, "")
	if err != nil {
		t.Fatal(err)
	}
	dict := h.Make(c).StateDict()
	if c.Err != nil {
		t.Fatal(c.Err)
	}
	return dict
}

// TestSpeechOlderNames: files that were published have the names of the older weight_norm, and weights that only
// training reads; the base model is made of those of a model with a head.
func TestSpeechOlderNames(t *testing.T) {
	text := []byte(`{"model_type": "wav2vec2", "architectures": ["Wav2Vec2ForCTC"], "num_hidden_layers": 1}`)
	dict := dictOf(t, text)
	older := strings.NewReplacer(".parametrizations.weight.original0", ".weight_g", ".parametrizations.weight.original1", ".weight_v")
	changed := 0
	for i, e := range dict {
		if dict[i].Name = older.Replace(e.Name); dict[i].Name != e.Name {
			changed++
		}
	}
	dict = append(dict, layers.Entry{Name: "wav2vec2.masked_spec_embed"}, layers.Entry{Name: "quantizer.codevectors"})
	const conv = "encoder.pos_conv_embed.conv."
	for class, before := range map[string]string{"": "wav2vec2.", "Wav2Vec2Model": ""} {
		a, err := Named(class, text, dict)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{"original0": "weight_g", "original1": "weight_v"} {
			if got := a.Weights[before+conv+"parametrizations.weight."+name]; got != "wav2vec2."+conv+want {
				t.Errorf("%s: %s is taken of %q", class, name, got)
			}
		}
	}
	if changed != 2 {
		t.Errorf("%d names are older", changed)
	}
}

// TestSpeechLists: lists of sizes that do not fit each other, or are none, are refused.
func TestSpeechLists(t *testing.T) {
	dict := dictOf(t, []byte(`{"model_type": "wavlm", "num_hidden_layers": 1}`))
	long := "[" + strings.Repeat("1,", family.MaxSizes) + "1]"
	for _, entries := range []string{
		`"conv_kernel": [10, 3]`, `"conv_stride": []`, `"conv_stride": "5"`, `"conv_dim": [512, 512, 512, 512, 512, 512, 0]`,
		`"conv_dim": ` + long + `, "conv_kernel": ` + long + `, "conv_stride": ` + long, `"conv_stride": [5, 2, 2, 2, 2, 2, 2097152]`,
		`"num_conv_pos_embedding_groups": 7`, `"feat_extract_norm": "batch"`, `"num_buckets": 3`, `"max_bucket_distance": 80`,
		`"num_conv_pos_embeddings": 1048577`,
	} {
		_, err := FromConfig([]byte(`{"model_type": "wavlm", "num_hidden_layers": 1, `+entries+`}`), dict)
		if _, ok := err.(*family.ConfigError); !ok {
			t.Errorf("%.60s: %v", entries, err)
		}
	}
	heads := []byte(`{"model_type": "wavlm", "architectures": ["WavLMForXVector"], "tdnn_dim": [4, 4], "tdnn_kernel": [1]}`)
	if _, err := FromConfig(heads, dict); err == nil || !strings.Contains(err.Error(), "tdnn_dim has 2 layers") {
		t.Errorf("windows that lack: %v", err)
	}
}
