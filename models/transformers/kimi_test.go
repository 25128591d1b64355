package transformers_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/tensor"
)

// TestPublishedKimi: the folders that were published have a convolution each for queries, keys and values, other names
// of modules, and lists of the layers of each kind.
func TestPublishedKimi(t *testing.T) {
	r := decoderNamed(t, "kimi_linear")
	ckpt := r.folder(t)
	want := stepped(t, ckpt)
	var list []tensor.Weight
	for _, w := range ckpt.Weights {
		w.Name = strings.NewReplacer(".forget_gate.", ".").Replace(w.Name)
		if strings.Contains(w.Name, ".mlp.gate.") || strings.Contains(w.Name, ".experts.") || strings.Contains(w.Name, ".shared_experts.") {
			w.Name = strings.Replace(w.Name, ".mlp.", ".block_sparse_moe.", 1)
		}
		base, conv := strings.CutSuffix(w.Name, ".conv1d.weight")
		if !conv {
			list = append(list, w)
			continue
		}
		s := w.Layout.Shape
		for i, name := range []string{"q", "k", "v"} {
			one := w
			one.Name = base + "." + name + "_conv1d.weight"
			one.Layout = tensor.Contiguous(s[0]/3, s[1], s[2])
			one.Extent.Bytes /= 3
			one.Extent.Offset += int64(i) * one.Extent.Bytes
			list = append(list, one)
		}
	}
	published, err := loader.NewCheckpoint("published", list, nil)
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := json.Unmarshal(ckpt.Config, &config); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"layer_types", "mlp_layer_types", "linear_head_dim", "linear_num_heads", "linear_conv_kernel_dim"} {
		delete(config, key)
	}
	config["first_k_dense_replace"] = 1
	config["linear_attn_config"] = map[string]any{
		"full_attn_layers": []int{2}, "kda_layers": []int{1, 3}, "head_dim": 32, "num_heads": 2, "short_conv_kernel_size": 4,
	}
	if published.Config, err = json.Marshal(config); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(stepped(t, published), want) {
		t.Error("other bits from a published folder")
	}
}
