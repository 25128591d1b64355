package models

import (
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// TestGraphsAreKept: a graph is built once for the shapes and dtypes of all inputs, and what the caller does to the shapes that
// it gave changes none.
func TestGraphsAreKept(t *testing.T) {
	m := sketched(map[string]string{"x": "s0 3", "y": "s0 3"}, []string{"x", "y"},
		func(g *graph.Graph, in []graph.Operand, _ emitter) { yields(g, in[0]) })
	m.inputs[1].Assumed = true
	g := func(x, y tensor.Shape) *graph.Graph {
		t.Helper()
		g, err := m.Graph(map[string]tensor.Shape{"x": x, "y": y})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	input := func(g *graph.Graph, i int) graph.Value { return g.Values[g.Inputs[i]] }
	x := tensor.Shape{2, 3}
	first := g(x, tensor.Shape{2, 3})
	if g(tensor.Shape{2, 3}, tensor.Shape{2, 3}) != first {
		t.Error("a graph was built twice")
	}
	if other := g(tensor.Shape{2, 3}, tensor.Shape{5, 3}); other == first || input(other, 1).Shape[0] != 5 {
		t.Error("another shape of the second input has the graph of the first")
	}
	x[0] = 7
	if shape := input(first, 0).Shape; !shape.Equal(tensor.Shape{2, 3}) {
		t.Errorf("the graph's input became %v when the caller changed its own shape", shape)
	}
	if g := g(x, tensor.Shape{2, 3}); !input(g, 0).Shape.Equal(tensor.Shape{7, 3}) {
		t.Errorf("a graph for %v has an input %v", x, input(g, 0).Shape)
	}
	if m.SetDType("x", tensor.Int64) {
		t.Error("an input whose dtype is known took another")
	}
	if !m.SetDType("y", tensor.Int64) || input(g(tensor.Shape{2, 3}, tensor.Shape{2, 3}), 1).DType != tensor.Int64 {
		t.Error("a graph of the dtype before was kept")
	}
}
