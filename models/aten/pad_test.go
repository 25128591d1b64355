package aten_test

import (
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten"
	"github.com/optimem/optimem/tensor"
)

// TestPaddingByNothing: a padding that adds nothing is no op, as long as it is one of a mode that there is.
func TestPaddingByNothing(t *testing.T) {
	x := aten.Given{Name: "x", DType: tensor.Float32, Layout: tensor.Contiguous(2, 3), Elements: 6}
	for _, c := range []struct {
		pad  []int
		mode string
		ops  int // −1: refused
	}{
		{[]int{0, 0, 0, 0}, "constant", 0},
		{[]int{0, 0, 0, 1}, "constant", 1},
		{[]int{0, 0}, "mirror", -1},
	} {
		g, err := aten.BuildCall(graph.Standard(), "torch.ops.aten.pad.default", map[string]any{
			"self": x, "pad": c.pad, "mode": c.mode,
		})
		switch {
		case c.ops < 0:
			if err == nil {
				t.Errorf("padding by %v in mode %s is taken", c.pad, c.mode)
			}
		case err != nil:
			t.Errorf("padding by %v: %v", c.pad, err)
		case len(g.Ops) != c.ops:
			t.Errorf("padding by %v is %d ops, want %d", c.pad, len(g.Ops), c.ops)
		}
	}
}
