package rewrite

import (
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

func TestNarrowMarksProductsOfFloat32(t *testing.T) {
	value := func(d tensor.DType, shape ...int) graph.Value { return graph.Value{DType: d, Shape: shape} }
	whole := func(id graph.ValueID, shape ...int) graph.Operand {
		return graph.Operand{Value: id, Layout: tensor.Contiguous(shape...)}
	}
	g := &graph.Graph{
		Values: []graph.Value{
			value(tensor.Float32, 2, 3), value(tensor.Float32, 4, 3), value(tensor.Float32, 2, 4),
			value(tensor.BFloat16, 2, 3), value(tensor.BFloat16, 4, 3), value(tensor.BFloat16, 2, 4), value(tensor.Float32, 2, 4),
		},
		Ops: []graph.Op{
			{Kind: "linear", In: []graph.Operand{whole(0, 2, 3), whole(1, 4, 3)}, Out: []graph.ValueID{2}},
			{Kind: "linear", In: []graph.Operand{whole(3, 2, 3), whole(4, 4, 3)}, Out: []graph.ValueID{5}, Attrs: graph.Attrs{"act": "relu"}},
			{Kind: "linear", In: []graph.Operand{whole(0, 2, 3), whole(1, 4, 3)}, Out: []graph.ValueID{2}, Attrs: graph.Attrs{"exact": true}},
			{Kind: "relu", In: []graph.Operand{whole(2, 2, 4)}, Out: []graph.ValueID{6}},
			{Kind: "conv", In: []graph.Operand{whole(6, 1, 2, 4), whole(1, 3, 2, 2)}, Out: []graph.ValueID{6}, Attrs: graph.Attrs{"groups": 1}},
		},
	}
	h := Narrow(g, "bf16")
	for i, want := range []string{"bf16", "", "", "", "bf16"} {
		if got := h.Ops[i].Attrs.String("precision"); got != want {
			t.Errorf("op %d has precision %q, want %q", i, got, want)
		}
		if g.Ops[i].Attrs.String("precision") != "" {
			t.Errorf("op %d of the graph given has changed", i)
		}
	}
}
