package rewrite

import (
	"slices"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

func sameView(a, b tensor.Layout) bool {
	return a.Shape.Equal(b.Shape) && slices.Equal(a.Strides, b.Strides) && a.Offset == b.Offset
}

// TestFoldCastsReadsHalves takes a weight in order, one that is turned round, and one that is an input.
func TestFoldCastsReadsHalves(t *testing.T) {
	ops := graph.Standard()
	g := &graph.Graph{}
	x := g.AddInput("x", tensor.Float32, tensor.Shape{2, 3})
	y := g.AddInput("y", tensor.BFloat16, tensor.Shape{4, 3})
	weight := func(d tensor.DType, n int) graph.ValueID {
		return g.AddWeight(tensor.Weight{Name: "w", DType: d, Layout: tensor.Contiguous(n)}, graph.Weight)
	}
	emit := func(op graph.Op) graph.ValueID {
		t.Helper()
		out, err := g.Emit(ops, op)
		if err != nil {
			t.Fatal(err)
		}
		return out[0]
	}
	widened := func(o graph.Operand) graph.ValueID {
		return emit(graph.Op{Kind: "cast", In: []graph.Operand{o}, Attrs: graph.Attrs{"dtype": tensor.Float32}})
	}
	linear := func(w graph.Operand) int {
		out := emit(graph.Op{Kind: "linear", In: []graph.Operand{g.Whole(x), w}})
		g.Outputs = append(g.Outputs, graph.Output{Operand: g.Whole(out)})
		return len(g.Ops) - 1
	}
	some := tensor.Layout{Shape: tensor.Shape{4, 3}, Strides: []int{3, 1}, Offset: 6}
	turned := tensor.Layout{Shape: tensor.Shape{4, 3}, Strides: []int{1, 4}}
	first, second := weight(tensor.BFloat16, 20), weight(tensor.Float16, 12)
	inOrder := linear(g.Whole(widened(graph.Operand{Value: first, Layout: some})))
	round := linear(g.Whole(widened(graph.Operand{Value: second, Layout: turned})))
	view := linear(graph.Operand{Value: widened(graph.Operand{Value: first, Layout: some}), Layout: turned})
	input := linear(g.Whole(widened(g.Whole(y))))

	h := Prune(FoldCasts(g))
	left := 0
	for _, op := range h.Ops {
		if op.Kind == "cast" {
			left++
		}
	}
	if left != 1 {
		t.Errorf("%d casts are left, want that of the input", left)
	}
	folded := FoldCasts(g)
	turned.Offset = 6
	for i, want := range map[int]graph.Operand{
		inOrder: {Value: first, Layout: some}, view: {Value: first, Layout: turned},
		round: {Value: second, Layout: tensor.Layout{Shape: tensor.Shape{4, 3}, Strides: []int{1, 4}}},
		input: g.Ops[input].In[1],
	} {
		got := folded.Ops[i].In[1]
		if got.Value != want.Value || !sameView(got.Layout, want.Layout) {
			t.Errorf("linear %d reads value %d as %v, want %d as %v", i, got.Value, got.Layout, want.Value, want.Layout)
		}
		if _, err := shapeOf("linear")([]graph.Spec{folded.Spec(folded.Ops[i].In[0]), folded.Spec(got)}, nil); err != nil {
			t.Errorf("linear %d: %v", i, err)
		}
	}
}

// TestFoldCastsWidensRows: of a table of half floats the rows that are picked are widened, once for each embedding, and not
// the table; a table that is an input is left as it is.
func TestFoldCastsWidensRows(t *testing.T) {
	ops := graph.Standard()
	g := &graph.Graph{}
	ids := g.AddInput("ids", tensor.Int64, tensor.Shape{2, 3})
	given := g.AddInput("given", tensor.Float16, tensor.Shape{5, 4})
	w := g.AddWeight(tensor.Weight{Name: "w", DType: tensor.Float16, Layout: tensor.Contiguous(24),
		Extent: storage.Extent{Bytes: 48}}, graph.Weight)
	emit := func(op graph.Op) graph.ValueID {
		t.Helper()
		out, err := g.Emit(ops, op)
		if err != nil {
			t.Fatal(err)
		}
		return out[0]
	}
	widened := func(o graph.Operand) graph.Operand {
		return g.Whole(emit(graph.Op{Kind: "cast", In: []graph.Operand{o}, Attrs: graph.Attrs{"dtype": tensor.Float32}}))
	}
	some := tensor.Layout{Shape: tensor.Shape{5, 4}, Strides: []int{4, 1}, Offset: 4}
	table := widened(graph.Operand{Value: w, Layout: some})
	for _, from := range []graph.Operand{table, table, widened(g.Whole(given))} {
		rows := emit(graph.Op{Kind: "embedding", Path: "wte", In: []graph.Operand{from, g.Whole(ids)}})
		g.Outputs = append(g.Outputs, graph.Output{Operand: g.Whole(rows)})
	}
	before := len(g.Values)
	h := Prune(FoldCasts(g))
	if len(g.Values) != before {
		t.Error("the graph itself has changed")
	}
	var kinds []graph.Kind
	for i := range h.Ops {
		op := &h.Ops[i]
		kinds = append(kinds, op.Kind)
		in, out := h.Specs(op, nil, nil)
		if op.Kind == "embedding" {
			want, err := shapeOf("embedding")(in, op.Attrs)
			if err != nil || want[0].DType != out[0].DType || !want[0].Shape.Equal(out[0].Shape) || op.Path != "wte" {
				t.Errorf("embedding %d gives %v, want %v, %v", i, out, want, err)
			}
		}
		if read := op.In[0]; h.Values[read.Value].Role == graph.Weight && (op.Kind != "embedding" || !sameView(read.Layout, some)) {
			t.Errorf("%s reads the table as %v", op.Kind, read.Layout)
		}
	}
	slices.Sort(kinds)
	if want := []graph.Kind{"cast", "cast", "cast", "embedding", "embedding", "embedding"}; !slices.Equal(kinds, want) {
		t.Errorf("ops are %v, want %v", kinds, want)
	}
	for i, o := range h.Outputs {
		if s := h.Spec(o.Operand); s.DType != tensor.Float32 || !s.Shape.Equal(tensor.Shape{2, 3, 4}) {
			t.Errorf("output %d is %v %v", i, s.DType, s.Shape)
		}
	}
}

// shapeOf returns the shape rule of a standard kind.
func shapeOf(k graph.Kind) func([]graph.Spec, graph.Attrs) ([]graph.Spec, error) {
	def, _ := graph.Standard().Lookup(k)
	return def.Shape
}
