package runtime_test

import (
	"fmt"
	"testing"

	"github.com/optimem/optimem/layers"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// mixOps is a registry with the op of testdata/mix.pt2, which only the CPU computes.
func mixOps(t *testing.T) *layers.Registry {
	t.Helper()
	ops, err := layers.Standard().With(layers.OpDef{
		Kind: "test::mix",
		Shape: func(in []layers.Spec, a layers.Attrs) ([]layers.Spec, error) {
			if n := a.Int("parts"); len(in) != n+2 || a.Int("arg1") != n || a.Int("arg2") != a.Int("times") || len(a) != 5 {
				return nil, fmt.Errorf("%d operands, attributes %v", len(in), a)
			}
			return in[1 : len(in)-1], nil
		},
		Reference: func(in, out []*tensor.Tensor, a layers.Attrs) error {
			all := make([][]float32, len(in))
			for i, x := range in {
				values, err := tensor.Slice[float32](x)
				if err != nil {
					return err
				}
				all[i] = values
			}
			scale := all[len(all)-1]
			for k := range out {
				y, err := tensor.Slice[float32](out[k])
				if err != nil {
					return err
				}
				for i := range y {
					y[i] = float32(a.Int("times"))*all[0][i] + all[1+k][i]*scale[i%len(scale)] + float32(a.Float("shift"))
				}
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return ops
}

// An op of an embedder's gets tensors in lists and by keyword as operands, and everything else as attributes.
func TestCustomOpArguments(t *testing.T) {
	ops := mixOps(t)
	s := start(t, build(t, "testdata/mix.pt2", ops), optimem.ResidentOptions{Ops: ops})
	want := recorded(t, "mix")[0]
	got, err := s.Run(t.Context(), want.input())
	if err != nil {
		t.Fatal(err)
	}
	compare(t, got, want)
}
