package lora_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/lora"
	"github.com/optimem/optimem/tensor"
)

// FuzzRead: whatever an adapter says, it is taken or an error of one of two types.
func FuzzRead(f *testing.F) {
	f.Add(`{"peft_type": "LORA", "r": 2, "target_modules": ["0"], "modules_to_save": ["1"]}`, "0.lora_A.weight 0.lora_B.weight 1.weight", 2, 4)
	f.Add(`{"peft_type": "LORA", "target_modules": "all-linear", "bias": "all"}`, "base_model.model.x.0.lora_A.weight 1.bias", 2, 4)
	f.Add(`{"peft_type": "LORA", "target_modules": "(0|2)", "rank_pattern": {"0": 1}}`, "2.lora_embedding_A 2.lora_embedding_B", 8, 9)
	f.Add(`{"peft_type": "LORA", "target_modules": ["0"], "layers_to_transform": 1, "layers_pattern": ["a"]}`, ".lora_A.weight . ", 1, 1)
	f.Add(`{"peft_type": "LORA", "use_dora": true, "lora_bias": true}`, "0.lora_magnitude_vector.weight 0.base_layer.bias", 4, 0)
	for _, r := range recordedAdapters(f) {
		f.Add(r.AdapterConfig, "base_model.model.0.lora_A.weight", 4, 48)
	}
	a := &layers.Architecture{Name: "small", Classes: layers.NN(), Root: layers.Sequential(
		layers.Linear(4, 4), layers.LayerNorm(4), layers.Embedding(9, 4), layers.Sequential(layers.Linear(4, 4), layers.ReLU()),
	)}
	f.Fuzz(func(t *testing.T, config, names string, n, m int) {
		var dict layers.StateDict
		for i, name := range strings.Split(names, " ") {
			shape := tensor.Shape{n, m}
			if i%2 == 1 {
				shape = tensor.Shape{m, n}
			}
			dict = append(dict, layers.Entry{Name: name, DType: tensor.Float32, Shape: shape})
		}
		got, err := lora.Read("small", []byte(config), dict, a)
		var wrong *lora.Error
		var unsupported *lora.UnsupportedError
		if (got == nil) != (err != nil) || err != nil && !errors.As(err, &wrong) && !errors.As(err, &unsupported) {
			t.Errorf("got %v, %v", got, err)
		}
	})
}
