package transformers_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/models/transformers"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

const llavaArch = "LlavaForConditionalGeneration"

// values runs a model and returns an output.
func values(t *testing.T, ckpt *loader.Checkpoint, in optimem.Values, output string) []float32 {
	t.Helper()
	model, err := models.Build(ckpt, models.Options{Arch: llavaArch})
	if err != nil {
		t.Fatal(err)
	}
	session, err := optimem.Resident(t.Context(), model, optimem.ResidentOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	out, err := session.Run(t.Context(), in)
	if err != nil || out[output] == nil {
		t.Fatalf("%v: %v", out, err)
	}
	x, err := tensor.Slice[float32](out[output].Contiguous())
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestLlavaParts: pictures alone give their features, the same bits as beside a text; the folder is its text part
// unless the class is named, and says so; names of last year are taken, with the same bits.
func TestLlavaParts(t *testing.T) {
	r := named(t, "llava", "clip")
	inputs := r.Reference.Cases[0].Inputs
	both := make(optimem.Values)
	for name, f := range inputs {
		x, err := f.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		both[name] = x
	}
	want := values(t, r.folder(t), both, "image_features")
	got := values(t, r.folder(t), optimem.Values{"pixel_values": both["pixel_values"]}, "image_features")
	if !slices.Equal(got, want) {
		t.Error("pictures alone have other features")
	}
	older := r.folder(t)
	names := strings.NewReplacer("model.language_model.", "language_model.model.", "model.vision_tower.", "vision_tower.vision_model.",
		"model.multi_modal_projector.", "multi_modal_projector.", "lm_head.", "language_model.lm_head.")
	for i, w := range older.Weights {
		older.Weights[i].Name = names.Replace(w.Name)
	}
	renamed, err := loader.NewCheckpoint("older", older.Weights, nil)
	if err != nil {
		t.Fatal(err)
	}
	renamed.Config = older.Config
	if !slices.Equal(values(t, renamed, both, "logits"), values(t, r.folder(t), both, "logits")) {
		t.Error("other logits under the names of last year")
	}
	text, err := models.Build(r.folder(t), models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if notes := text.Notes(); len(notes) != 1 || !strings.Contains(notes[0], "--arch "+llavaArch) {
		t.Errorf("notes %q", notes)
	}
}

// TestLlavaTokens: a text that has another number of a picture's tokens than there are patches is an error.
func TestLlavaTokens(t *testing.T) {
	r := named(t, "llava", "clip")
	model, err := models.Build(r.folder(t), models.Options{Arch: llavaArch})
	if err != nil {
		t.Fatal(err)
	}
	session, err := optimem.Resident(t.Context(), model, optimem.ResidentOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	pixels, err := r.Reference.Cases[0].Inputs["pixel_values"].Tensor("pixel_values")
	if err != nil {
		t.Fatal(err)
	}
	ids := slices.Repeat([]int64{7}, 26)
	in := optimem.Values{"pixel_values": pixels, "input_ids": tensor.Of(ids, 1, len(ids))}
	if _, err := session.Run(t.Context(), in); err == nil {
		t.Error("26 tokens for 25 patches are no error")
	}
	if _, err := session.Run(t.Context(), optimem.Values{}); err == nil {
		t.Error("no input is no error")
	}
}

// TestLlavaRefused: what is not known of pictures or texts, and entries that do not fit, are typed errors.
func TestLlavaRefused(t *testing.T) {
	r := named(t, "llava", "clip")
	dict := stateDict(r.folder(t))
	for _, change := range []func(fields map[string]any){
		func(f map[string]any) { f["vision_config"].(map[string]any)["model_type"] = "pixtral" },
		func(f map[string]any) { f["text_config"].(map[string]any)["model_type"] = "gpt2" },
		func(f map[string]any) { f["text_config"].(map[string]any)["model_type"] = "none" },
		func(f map[string]any) { f["text_config"].(map[string]any)["hidden_size"] = -1 },
		func(f map[string]any) { f["vision_feature_layer"] = -5 },
		func(f map[string]any) { f["vision_feature_layer"] = []int{} },
		func(f map[string]any) { f["vision_feature_layer"] = "last" },
		func(f map[string]any) { f["vision_feature_select_strategy"] = "some" },
		func(f map[string]any) { f["vision_config"] = nil },
		func(f map[string]any) { f["vision_config"] = 3 },
		func(f map[string]any) { f["text_config"] = "text" },
		func(f map[string]any) { f["projector_hidden_act"] = "none" },
	} {
		var fields map[string]any
		if err := json.Unmarshal([]byte(r.Config), &fields); err != nil {
			t.Fatal(err)
		}
		change(fields)
		text, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		_, err = transformers.Named(llavaArch, text, dict)
		var config *transformers.ConfigError
		var unknown *transformers.UnsupportedError
		var mismatch interface{ Count() int }
		if !errors.As(err, &config) && !errors.As(err, &unknown) && !errors.As(err, &mismatch) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
