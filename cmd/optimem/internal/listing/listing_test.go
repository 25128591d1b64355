package listing

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/tensor"
)

// A storage that tensors have parts of, as the legacy format has it, reaches from the first part to the end of the
// last.
func TestSharedStorageBytes(t *testing.T) {
	file := &unread{1 << 10}
	in := New(&loader.Checkpoint{Weights: []tensor.Weight{
		in(file, 8, 16, "middle", tensor.Float32, tensor.Contiguous(4)),
		in(file, 0, 12, "begin", tensor.Float32, tensor.Contiguous(3)),
		in(file, 20, 20, "end", tensor.Float32, tensor.Contiguous(5)),
		in(file, 100, 40, "alone", tensor.Float32, tensor.Contiguous(10)),
	}})
	groups := in.shared()
	if len(groups) != 1 || len(groups[0]) != 3 || in.storageBytes(groups[0]) != 40 {
		t.Errorf("groups %v", groups)
	}
}

// A scale that is no number has no place in JSON, and the rest of the answer is there all the same.
func TestInspectJSONOfOddScales(t *testing.T) {
	file := &unread{1 << 10}
	for _, scale := range []float64{0.5, math.NaN(), math.Inf(1), math.Inf(-1)} {
		w := in(file, 0, 4, "w", tensor.QInt8, tensor.Contiguous(4))
		w.Quant = &tensor.Quant{Scheme: "per_tensor_affine", Scale: scale, ZeroPoint: 3}
		var b strings.Builder
		if err := New(&loader.Checkpoint{Weights: []tensor.Weight{w}}).WriteJSON(&b); err != nil {
			t.Errorf("scale %v: %v", scale, err)
		}
		var got struct {
			Tensors []struct{ Quant map[string]any }
			Classes []string
		}
		if err := json.Unmarshal([]byte(b.String()), &got); err != nil || len(got.Tensors) != 1 || got.Classes == nil {
			t.Fatalf("scale %v: %v: %s", scale, err, b.String())
		}
		q := got.Tensors[0].Quant
		if _, ok := q["scale"]; ok != (scale == 0.5) || q["zero_point"] != 3. {
			t.Errorf("scale %v: %v", scale, q)
		}
	}
}
