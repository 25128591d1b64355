package layers

import (
	"slices"
	"testing"

	"github.com/optimem/optimem/tensor"
)

func sameView(a, b tensor.Layout) bool {
	return a.Shape.Equal(b.Shape) && slices.Equal(a.Strides, b.Strides) && a.Offset == b.Offset
}

// TestFoldCastsReadsHalves takes a weight in order, one that is turned round, and one that is an input.
func TestFoldCastsReadsHalves(t *testing.T) {
	ops := Standard()
	g := &Graph{}
	x := g.AddInput("x", tensor.Float32, tensor.Shape{2, 3})
	y := g.AddInput("y", tensor.BFloat16, tensor.Shape{4, 3})
	weight := func(d tensor.DType, n int) ValueID {
		return g.AddWeight(tensor.Weight{Name: "w", DType: d, Layout: tensor.Contiguous(n)}, Weight)
	}
	emit := func(op Op) ValueID {
		t.Helper()
		out, err := g.Emit(ops, op)
		if err != nil {
			t.Fatal(err)
		}
		return out[0]
	}
	widened := func(o Operand) ValueID {
		return emit(Op{Kind: "cast", In: []Operand{o}, Attrs: Attrs{"dtype": tensor.Float32}})
	}
	linear := func(w Operand) int {
		out := emit(Op{Kind: "linear", In: []Operand{g.Whole(x), w}})
		g.Outputs = append(g.Outputs, Output{Operand: g.Whole(out)})
		return len(g.Ops) - 1
	}
	some := tensor.Layout{Shape: tensor.Shape{4, 3}, Strides: []int{3, 1}, Offset: 6}
	turned := tensor.Layout{Shape: tensor.Shape{4, 3}, Strides: []int{1, 4}}
	first, second := weight(tensor.BFloat16, 20), weight(tensor.Float16, 12)
	inOrder := linear(g.Whole(widened(Operand{Value: first, Layout: some})))
	round := linear(g.Whole(widened(Operand{Value: second, Layout: turned})))
	view := linear(Operand{Value: widened(Operand{Value: first, Layout: some}), Layout: turned})
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
	for i, want := range map[int]Operand{
		inOrder: {Value: first, Layout: some}, view: {Value: first, Layout: turned},
		round: {Value: second, Layout: tensor.Layout{Shape: tensor.Shape{4, 3}, Strides: []int{1, 4}}},
		input: g.Ops[input].In[1],
	} {
		got := folded.Ops[i].In[1]
		if got.Value != want.Value || !sameView(got.Layout, want.Layout) {
			t.Errorf("linear %d reads value %d as %v, want %d as %v", i, got.Value, got.Layout, want.Value, want.Layout)
		}
		if _, err := linearShape([]Spec{folded.Spec(folded.Ops[i].In[0]), folded.Spec(got)}, nil); err != nil {
			t.Errorf("linear %d: %v", i, err)
		}
	}
}
