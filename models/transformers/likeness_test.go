package transformers_test

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// foreign is a recorded Llama whose configuration is changed.
func foreign(t *testing.T, change map[string]any) *loader.Checkpoint {
	t.Helper()
	list := recordedTexts(t)
	i := slices.IndexFunc(list, func(r recordedText) bool { return r.Name == "llama" })
	ckpt := list[i].folder(t)
	var fields map[string]any
	if err := json.Unmarshal(ckpt.Config, &fields); err != nil {
		t.Fatal(err)
	}
	maps.Copy(fields, change)
	text, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	ckpt.Config = text
	return ckpt
}

// TestForeignModels: a folder of an unknown type is not taken for another one by itself, but the error says which one it is like;
// the caller may name it, and then the model says so and computes what that one computes.
func TestForeignModels(t *testing.T) {
	unknown := map[string]any{"model_type": "quokka", "architectures": []string{"QuokkaForCausalLM"}}
	var refused *models.UnsupportedError
	if _, err := models.Build(foreign(t, unknown), models.Options{}); !errors.As(err, &refused) ||
		!strings.Contains(err.Error(), "quokka (QuokkaForCausalLM)") || !strings.Contains(refused.Hint, "--arch llama") {
		t.Fatalf("an unknown type: %v (hint %+v)", err, refused)
	}
	model, err := models.Build(foreign(t, unknown), models.Options{Arch: "llama"})
	if err != nil {
		t.Fatal(err)
	}
	if notes := model.Notes(); len(notes) != 1 || !strings.Contains(notes[0], `model type "quokka"; taken for llama`) {
		t.Errorf("notes %q", notes)
	}
	own, err := models.Build(foreign(t, nil), models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	in := optimem.Values{"input_ids": tensor.Of([]int64{5, 9, 2, 77}, 1, 4)}
	if got, want := wholeLogits(t, model, in), wholeLogits(t, own, in); !slices.Equal(got, want) {
		t.Error("other logits than Llama's")
	}
}

// TestForeignConfigurations: a model that is told to be Llama and whose configuration says more than Llama's is refused, since its
// weights alone do not tell.
func TestForeignConfigurations(t *testing.T) {
	for want, change := range map[string]map[string]any{
		"embedding_multiplier = 12":  {"embedding_multiplier": 12},
		"sliding_window = 128":       {"sliding_window": 128},
		`layer_types = ["sliding`:    {"layer_types": []string{"sliding_attention", "full_attention", "full_attention"}},
		"logit_scale = 0.5":          {"logit_scale": 0.5},
		`norm_kind = "layer"`:        {"norm_kind": "layer"},
		"experts = {":                {"experts": map[string]int{"count": 4}},
		"model.layers.3.self_attn.q": {"num_hidden_layers": 4},
		"rotary embeddings of a part": {"rope_parameters": map[string]any{
			"rope_type": "default", "rope_theta": 10000, "partial_rotary_factor": 0.5}},
	} {
		change["model_type"] = "quokka"
		if _, err := models.Build(foreign(t, change), models.Options{Arch: "llama"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want …%s…, got %v", want, err)
		}
		var refused *models.UnsupportedError
		if _, err := models.Build(foreign(t, change), models.Options{}); !errors.As(err, &refused) || strings.Contains(refused.Hint, "--arch") {
			t.Errorf("%s: %v is like Llama", want, err)
		}
	}
	for _, change := range []map[string]any{
		{"embedding_multiplier": 1.0, "use_experts": false, "sliding_window": nil, "layer_types": []string{"full_attention"}},
		{"initializer_range": 0.5, "auto_map": map[string]string{"AutoModel": "modeling_quokka.QuokkaModel"}},
	} {
		change["model_type"] = "quokka"
		if _, err := models.Build(foreign(t, change), models.Options{Arch: "llama"}); err != nil {
			t.Errorf("%v: %v", change, err)
		}
	}
}

// TestRemoteCode: a folder that brings code is refused with the class's name and what exports it; one of a type that is known
// needs none of it.
func TestRemoteCode(t *testing.T) {
	code := map[string]any{
		"model_type": "quokka", "architectures": []string{"QuokkaForCausalLM"}, "hops": 3,
		"auto_map": map[string]string{
			"AutoConfig": "configuration_quokka.QuokkaConfig", "AutoModel": "modeling_quokka.QuokkaModel",
			"AutoModelForCausalLM": "modeling_quokka.QuokkaForCausalLM",
		},
	}
	var refused *models.UnsupportedError
	_, err := models.Build(foreign(t, code), models.Options{})
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "modeling_quokka.QuokkaForCausalLM") {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"transformers.AutoModelForCausalLM.from_pretrained", "trust_remote_code=True", "torch.export.save"} {
		if !strings.Contains(refused.Hint, want) {
			t.Errorf("the hint lacks %s: %s", want, refused.Hint)
		}
	}
	delete(code, "hops") // by its weights and its configuration it is Llama then, and its code may say otherwise
	if _, err := models.Build(foreign(t, code), models.Options{}); !errors.As(err, &refused) ||
		!strings.Contains(refused.Hint, "--arch llama") || !strings.Contains(refused.Hint, "trust_remote_code=True") {
		t.Errorf("like Llama, with code: %v", refused)
	}
	code["model_type"], code["architectures"] = "llama", []string{"LlamaForCausalLM"}
	if _, err := models.Build(foreign(t, code), models.Options{}); err != nil {
		t.Errorf("of a known type: %v", err)
	}
}

// TestTextParts: models that see have their text part run, under the names that files of this year and of last year have.
func TestTextParts(t *testing.T) {
	for _, r := range recordedDecoders(t) {
		if !strings.HasSuffix(r.Name, "_pictures") {
			continue
		}
		model, err := models.Build(r.folder(t), models.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if notes := model.Notes(); len(notes) != 1 || !strings.Contains(notes[0], "the text part of") {
			t.Errorf("%s: notes %q", r.Name, notes)
		}
		ckpt := r.folder(t)
		for i, w := range ckpt.Weights {
			if rest, ok := strings.CutPrefix(w.Name, "model.language_model."); ok {
				ckpt.Weights[i].Name = "language_model.model." + rest
			} else if strings.HasPrefix(w.Name, "lm_head.") {
				ckpt.Weights[i].Name = "language_model." + w.Name
			} else {
				ckpt.Weights[i].Name = strings.TrimPrefix(w.Name, "model.")
			}
		}
		renamed, err := loader.NewCheckpoint(r.Name, ckpt.Weights, nil)
		if err != nil {
			t.Fatal(err)
		}
		renamed.Config = ckpt.Config
		last, err := models.Build(renamed, models.Options{})
		if err != nil {
			t.Fatalf("%s: %v", r.Name, err)
		}
		in := optimem.Values{"input_ids": tensor.Of([]int64{5, 9, 2, 77}, 1, 4)}
		if got, want := wholeLogits(t, last, in), wholeLogits(t, model, in); !slices.Equal(got, want) {
			t.Errorf("%s: other logits under the names of last year", r.Name)
		}
	}
}
