package transformers_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/tensor"
)

// BenchmarkFolder opens a folder of 50 shards with 1,000 weights, builds its model and its graph.
func BenchmarkFolder(b *testing.B) {
	folder := b.TempDir()
	writeShards(b, folder, 50, 111)
	for b.Loop() {
		ckpt, err := loader.Open(folder)
		if err != nil {
			b.Fatal(err)
		}
		model, err := models.Build(ckpt, models.Options{})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := model.Graph(map[string]tensor.Shape{"input_ids": {1, 32}}); err != nil {
			b.Fatal(err)
		}
		if err := ckpt.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// writeShards writes a small Llama of many layers in many files.
func writeShards(b *testing.B, folder string, shards, depth int) {
	b.Helper()
	config := fmt.Sprintf(`{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 32, "hidden_size": 16,
		"intermediate_size": 24, "num_hidden_layers": %d, "num_attention_heads": 2, "tie_word_embeddings": true}`, depth)
	shapes := map[string][]int{"model.embed_tokens.weight": {32, 16}, "model.norm.weight": {16}}
	for i := range depth {
		for name, shape := range map[string][]int{
			"self_attn.q_proj": {16, 16}, "self_attn.k_proj": {16, 16}, "self_attn.v_proj": {16, 16}, "self_attn.o_proj": {16, 16},
			"mlp.gate_proj": {24, 16}, "mlp.up_proj": {24, 16}, "mlp.down_proj": {16, 24}, "input_layernorm": {16},
			"post_attention_layernorm": {16},
		} {
			shapes[fmt.Sprintf("model.layers.%d.%s.weight", i, name)] = shape
		}
	}
	files := make([][]loader.TensorData, shards)
	index := make(map[string]string)
	for i, name := range slices.Sorted(maps.Keys(shapes)) {
		n := 1
		for _, d := range shapes[name] {
			n *= d
		}
		x := tensor.Of(make([]float32, n), shapes[name]...)
		k := i * shards / len(shapes)
		files[k] = append(files[k], loader.TensorData{
			Name: name, DType: x.DType, Shape: x.Layout.Shape, ReadAt: (&inMemory{x.Data}).ReadAt,
		})
		index[name] = fmt.Sprintf("model-%05d-of-%05d.safetensors", k+1, shards)
	}
	for k, list := range files {
		file, err := os.Create(filepath.Join(folder, fmt.Sprintf("model-%05d-of-%05d.safetensors", k+1, shards)))
		if err != nil {
			b.Fatal(err)
		}
		if err := loader.WriteSafetensors(b.Context(), file, list, nil); err != nil {
			b.Fatal(err)
		}
		if err := file.Close(); err != nil {
			b.Fatal(err)
		}
	}
	text, err := json.Marshal(map[string]any{"weight_map": index})
	if err != nil {
		b.Fatal(err)
	}
	for name, text := range map[string][]byte{"config.json": []byte(config), "model.safetensors.index.json": text} {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			b.Fatal(err)
		}
	}
}
