package rewrite

import (
	"slices"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// caching returns a graph in which one cache is written thrice: twice by ops that are equal, and last by one whose result nobody
// reads. All operands but the caches are constants.
func caching(t *testing.T) *graph.Graph {
	g := &graph.Graph{}
	constant := func(d tensor.DType, shape ...int) graph.Operand {
		l := tensor.Contiguous(shape...)
		n, _ := l.NumElements()
		return g.Whole(g.AddConst(&tensor.Tensor{DType: d, Layout: l, Data: make([]byte, n*int64(d.Size()))}))
	}
	x := constant(tensor.Float32, 2, 1, 4)
	at, table := constant(tensor.Int64, 2), constant(tensor.Int64, 2, 1)
	keys := g.Whole(g.AddCache("keys", tensor.Float32, tensor.Shape{16, 1, 4}))
	values := g.Whole(g.AddCache("values", tensor.Float32, tensor.Shape{16, 1, 4}))
	emit := func(path string, kind graph.Kind, in ...graph.Operand) graph.Operand {
		out, err := g.Emit(graph.Standard(), graph.Op{Kind: kind, Path: path, In: in})
		if err != nil {
			t.Fatal(err)
		}
		return g.Whole(out[0])
	}
	first := emit("a", "attend", x, x, x, keys, values, at, table)
	second := emit("b", "attend", x, x, x, keys, values, at, table)
	sum := emit("c", "add", first, second)
	weight := g.Whole(g.AddInput("w", tensor.Float32, tensor.Shape{4, 4}))
	emit("d", "attend", x, x, emit("d", "linear", x, weight), keys, values, at, table)
	g.Outputs = []graph.Output{{Name: "y", Operand: sum}}
	return g
}

// TestCachesAreWrittenAsTheProgramSays: an op that writes to a cache is neither dead nor shared nor folded nor moved, and what it
// reads is there.
func TestCachesAreWrittenAsTheProgramSays(t *testing.T) {
	g := caching(t)
	compute := func(g *graph.Graph) ([][]byte, error) {
		if g.HasCaches() {
			t.Error("attention over caches is folded")
		}
		var all [][]byte
		for _, o := range g.Outputs {
			all = append(all, make([]byte, g.Values[o.Operand.Value].Bytes()))
		}
		return all, nil
	}
	h := Optimise(g, graph.Standard(), 0, compute)
	var paths []string
	for _, op := range h.Ops {
		if op.Kind == "attend" {
			paths = append(paths, op.Path)
			if in := h.Values[op.In[3].Value]; in.Role != graph.Cache || in.Name != "keys" {
				t.Errorf("%s: keys go to %v %s", op.Path, in.Role, in.Name)
			}
		}
	}
	if !slices.Equal(paths, []string{"a", "b", "d"}) {
		t.Errorf("the caches are written by %v", paths)
	}
	if !slices.ContainsFunc(h.Ops, func(op graph.Op) bool { return op.Kind == "linear" }) {
		t.Error("what is written last is not computed")
	}
}

// TestRowsAreKeptAlone where there are caches, and nowhere else; the graph given stays as it was.
func TestRowsAreKeptAlone(t *testing.T) {
	g := caching(t)
	w := g.Whole(g.Inputs[0])
	if _, err := g.Emit(graph.Standard(), graph.Op{Kind: "matmul", In: []graph.Operand{w, w}, Attrs: graph.Attrs{"alpha": 1.0}}); err != nil {
		t.Fatal(err)
	}
	h := KeepRowsAlone(g)
	for i, op := range h.Ops {
		if alone := op.Attrs.Bool(graph.RowsAlone); alone != (op.Kind == "linear" || op.Kind == "matmul") {
			t.Errorf("%s: alone %v", op.Kind, alone)
		}
		if g.Ops[i].Attrs.Bool(graph.RowsAlone) {
			t.Errorf("%s of the graph given is another now", op.Kind)
		}
	}
	plain := *g
	plain.Ops = slices.DeleteFunc(slices.Clone(g.Ops), func(op graph.Op) bool { return op.Kind == "attend" })
	if KeepRowsAlone(&plain) != &plain {
		t.Error("a graph without caches has become another")
	}
}
