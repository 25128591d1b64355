package transformers

import (
	"strings"
	"testing"

	"github.com/optimem/optimem/layers"
)

// TestDinov3OlderNames: files that were published have layers without the encoder's name, and weights that only
// training reads.
func TestDinov3OlderNames(t *testing.T) {
	text := []byte(`{"model_type": "dinov3_vit", "num_hidden_layers": 2, "num_register_tokens": 0}`)
	dict := dictOf(t, text)
	for i, e := range dict {
		dict[i].Name = strings.TrimPrefix(e.Name, "model.")
	}
	dict = append(dict, layers.Entry{Name: "embeddings.mask_token"}, layers.Entry{Name: "embeddings.register_tokens"})
	a, err := FromConfig(text, dict)
	if err != nil {
		t.Fatal(err)
	}
	if got := a.Weights["model.layer.1.norm1.weight"]; got != "layer.1.norm1.weight" {
		t.Errorf("the weight of a layer is taken of %q", got)
	}
}
