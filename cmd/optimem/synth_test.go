//go:build !files

package main

import (
	"math"
	"testing"

	"github.com/optimem/optimem/tensor"
)

// Weights are spread as torch.nn.init.kaiming_uniform_ spreads them, by what goes into a layer, biases as torch.nn.Linear does,
// and no two tensors hold the same numbers.
func TestSynthMLP(t *testing.T) {
	s := synth{layers: 3, width: 256, inFeatures: 16, outFeatures: 8, seed: 5}
	tensors, err := s.mlp(tensor.Float32)
	if err != nil {
		t.Fatal(err)
	}
	begin := make(map[float32]string)
	for i, bound := range []float64{
		math.Sqrt(6. / 16), math.Sqrt(1. / 16), math.Sqrt(6. / 256), math.Sqrt(1. / 256), math.Sqrt(6. / 256), math.Sqrt(1. / 256),
	} {
		d := tensors[i]
		n, err := d.Shape.NumElements()
		if err != nil {
			t.Fatal(err)
		}
		x := &tensor.Tensor{DType: d.DType, Layout: tensor.Contiguous(d.Shape...), Data: make([]byte, 4*n)}
		if err := d.ReadAt(t.Context(), x.Data, 0); err != nil {
			t.Fatal(err)
		}
		values, err := tensor.Slice[float32](x)
		if err != nil {
			t.Fatal(err)
		}
		most := 0.0
		for _, v := range values {
			most = max(most, math.Abs(float64(v)))
		}
		if most > bound*1.0001 || n > 100 && most < bound*0.9 {
			t.Errorf("%s: up to %v, want %v", d.Name, most, bound)
		}
		first := float32(math.Round(1e5 * float64(values[0]) / bound)) // of a stream, whatever the scale
		if other, ok := begin[first]; ok {
			t.Errorf("%s begins as %s does", d.Name, other)
		}
		begin[first] = d.Name
	}
}
