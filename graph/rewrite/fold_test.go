package rewrite

import (
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// TestFoldsLittle: what takes long is left for the run, which can be interrupted, though neither its operands nor its results
// have many bytes.
func TestFoldsLittle(t *testing.T) {
	for _, c := range []struct {
		kind    graph.Kind
		attrs   graph.Attrs
		repeats [][]int
		// folded says that the op becomes a constant.
		folded bool
	}{
		{"embedding_bag", graph.Attrs{"padding": -1}, [][]int{{4, 4}, {1 << 10}, {1}}, true},
		{"embedding_bag", graph.Attrs{"padding": -1}, [][]int{{4, 4}, {1 << 60}, {1}}, false},
		{"embedding_bag", graph.Attrs{"padding": -1}, [][]int{{4, 1 << 18}, {1 << 20}, {1}}, false},
		{"searchsorted", nil, [][]int{{1 << 10}, {1}}, true},
		{"searchsorted", nil, [][]int{{1 << 60}, {1}}, false},
	} {
		g := &graph.Graph{Modules: make(map[string]graph.Operand)}
		one := g.AddConst(tensor.Of([]float32{0}))
		index := g.AddConst(tensor.Of([]int64{0}))
		op := graph.Op{Kind: c.kind, Attrs: c.attrs}
		for i, shape := range c.repeats {
			o := graph.Operand{Value: one, Layout: tensor.Layout{Shape: shape, Strides: make([]int, len(shape))}}
			if c.kind == "embedding_bag" && i > 0 {
				o.Value = index
			}
			op.In = append(op.In, o)
		}
		out, err := g.Emit(graph.Standard(), op)
		if err != nil {
			t.Fatal(err)
		}
		g.Outputs = []graph.Output{{Name: "y", Operand: g.Whole(out[0])}}
		h := Optimise(g, graph.Standard(), 0, func(part *graph.Graph) ([][]byte, error) {
			results := make([][]byte, len(part.Outputs))
			for i, o := range part.Outputs {
				results[i] = make([]byte, part.Values[o.Operand.Value].Bytes())
			}
			return results, nil
		})
		if got := len(h.Ops) == 0; got != c.folded {
			t.Errorf("%s of %v: folded %t, want %t", c.kind, c.repeats, got, c.folded)
		}
	}
}
