package transformers_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// stepped are the logits of a few tokens that are read step by step.
func stepped(t *testing.T, ckpt *loader.Checkpoint) []float32 {
	t.Helper()
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return newStepper(t, model, 32, optimem.Options{Mode: plan.Resident, Threads: 1}).feed(t, []int64{3, 90, 17, 44, 95, 8, 8, 23})
}

// changedWeights is a checkpoint with the weights that change makes of another's.
func changedWeights(t *testing.T, ckpt *loader.Checkpoint, change func(w *tensor.Weight)) *loader.Checkpoint {
	t.Helper()
	list := slices.Clone(ckpt.Weights)
	for i := range list {
		change(&list[i])
	}
	made, err := loader.NewCheckpoint("changed", list, nil)
	if err != nil {
		t.Fatal(err)
	}
	made.Config = ckpt.Config
	return made
}

// TestOlderPictures: the first folders of Qwen2.5-VL have the entries of the text beside the others, another type of
// rotary embeddings and shorter names of weights.
func TestOlderPictures(t *testing.T) {
	r := decoderNamed(t, "qwen2_5_vl_pictures")
	want := stepped(t, r.folder(t))
	older := changedWeights(t, r.folder(t), func(w *tensor.Weight) {
		w.Name = strings.Replace(strings.Replace(w.Name, "model.language_model.", "model.", 1), "model.visual.", "visual.", 1)
	})
	var config, text map[string]any
	if err := json.Unmarshal(older.Config, &config); err != nil {
		t.Fatal(err)
	}
	text = config["text_config"].(map[string]any)
	delete(config, "text_config")
	for key, v := range text {
		if key != "model_type" && key != "rope_parameters" {
			config[key] = v
		}
	}
	config["rope_theta"], config["rope_scaling"] = 10000, map[string]any{"type": "mrope", "mrope_section": []int{1, 1, 2}}
	older.Config, _ = json.Marshal(config)
	if !slices.Equal(stepped(t, older), want) {
		t.Error("other bits from an older folder")
	}
}

// TestTurnedExperts: the folders of Qwen3-VL-MoE have the tensors of all experts turned.
func TestTurnedExperts(t *testing.T) {
	r := decoderNamed(t, "qwen3_vl_moe_pictures")
	want := stepped(t, r.folder(t))
	turned := changedWeights(t, r.folder(t), func(w *tensor.Weight) {
		if !strings.HasSuffix(w.Name, ".experts.gate_up_proj") && !strings.HasSuffix(w.Name, ".experts.down_proj") {
			return
		}
		s, data := w.Layout.Shape, make([]byte, w.Extent.Bytes)
		if err := w.Extent.ReadAt(t.Context(), data, 0); err != nil {
			t.Fatal(err)
		}
		out := make([]byte, len(data))
		for e := range s[0] {
			for i := range s[1] {
				for j := range s[2] {
					copy(out[4*((e*s[2]+j)*s[1]+i):][:4], data[4*((e*s[1]+i)*s[2]+j):])
				}
			}
		}
		*w = weight(w.Name, &tensor.Tensor{DType: w.DType, Layout: tensor.Contiguous(s[0], s[2], s[1]), Data: out})
	})
	if got := stepped(t, turned); !slices.Equal(got, want) {
		near(t, "turned experts", got, want)
	}
}
