package models_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/models/internal/zoo"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// TestAdaptersOfQuantizedFolders: an adapter of quantised weights, DoRA too, computes to the bit what it does with their numbers.
func TestAdaptersOfQuantizedFolders(t *testing.T) {
	scale, one := json.Number("0.5"), json.Number("1")
	const module = "base_model.model.model.layers.0.self_attn.q_proj.lora_"
	weights, err := zoo.Weights(map[string]zoo.Filled{
		module + "A.weight":         {DType: "float32", Shape: []int{2, 64}, Scale: &scale},
		module + "B.weight":         {DType: "float32", Shape: []int{64, 2}, Scale: &scale},
		module + "magnitude_vector": {DType: "float32", Shape: []int{64}, Offset: &one, Scale: &scale},
	})
	if err != nil {
		t.Fatal(err)
	}
	adapter := func(entries string) models.Adapter {
		list := weights
		if entries == "" {
			list = weights[:2]
		}
		ckpt, err := loader.NewCheckpoint("small", list, nil)
		if err != nil {
			t.Fatal(err)
		}
		ckpt.Config = []byte(`{"peft_type": "LORA", "r": 2, "target_modules": ["q_proj"]` + entries + `}`)
		return models.Adapter{Name: "small", Checkpoint: ckpt}
	}
	ids := optimem.Values{"input_ids": tensor.Of([]int64{3, 1, 4, 1, 5, 9, 2, 6}, 1, 8)}
	for name := range quantForms {
		t.Run(name, func(t *testing.T) {
			config, tensors := quantFolder(name)
			folder := writeFolder(t, config, tensors)
			base := openFolder(t, folder)
			delete(config, "quantization_config")
			plain := make(map[string]heldTensor)
			for _, w := range base.Weights() {
				raw := make([]byte, w.Bytes())
				if err := w.Span().ReadAt(t.Context(), raw, 0); err != nil {
					t.Fatal(err)
				}
				dtype := map[tensor.DType]string{tensor.Float32: "F32", tensor.Float16: "F16", tensor.BFloat16: "BF16"}[w.DType]
				plain[w.Name] = heldTensor{dtype, w.Layout.Shape, raw}
			}
			numbers := writeFolder(t, config, plain)
			for _, entries := range []string{"", `, "use_dora": true`} {
				var logits [2]*tensor.Tensor
				for i, path := range []string{folder, numbers} {
					ckpt, err := loader.Open(path)
					if err != nil {
						t.Fatal(err)
					}
					defer ckpt.Close()
					model, err := models.Build(ckpt, models.Options{Adapters: []models.Adapter{adapter(entries)}, Adapter: "small"})
					if err != nil {
						t.Fatal(err)
					}
					logits[i] = ggufLogits(t, model, ids, i == 0)
				}
				if !bytes.Equal(logits[0].Data, logits[1].Data) {
					t.Errorf("other bits than with the numbers%s", entries)
				}
				if bytes.Equal(logits[0].Data, ggufLogits(t, base, ids, false).Data) {
					t.Errorf("the adapter changes nothing%s", entries)
				}
			}
		})
	}
}
