package graph

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/optimem/optimem/tensor"
)

// TestCanOverlay compares with the elements one by one: each of the result takes the bytes of the operand's element of the
// same number, and no byte of the operand is left.
func TestCanOverlay(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	dtypes := []tensor.DType{tensor.Float32, tensor.Int32, tensor.BFloat16, tensor.Float64}
	yes := 0
	for range 20000 {
		g := &Graph{}
		pick := func() tensor.DType { return dtypes[r.IntN(len(dtypes))] }
		size := func() int { return 1 + r.IntN(3) }
		from := g.AddInput("x", pick(), tensor.Shape{size(), size(), size()})
		o := g.Whole(from)
		o.Layout.Shape = slices.Clone(o.Layout.Shape)
		for d := range o.Layout.Shape {
			switch r.IntN(12) {
			case 0:
				o.Layout.Shape[d] = size()
			case 1:
				o.Layout.Strides[d] = r.IntN(3)
			case 2:
				e := r.IntN(3)
				l := &o.Layout
				l.Shape[d], l.Shape[e] = l.Shape[e], l.Shape[d]
				l.Strides[d], l.Strides[e] = l.Strides[e], l.Strides[d]
			}
		}
		if r.IntN(12) == 0 {
			o.Layout.Offset = r.IntN(3)
		}
		n, _ := o.Layout.NumElements()
		switch r.IntN(6) {
		case 0:
			n = int64(1 + r.IntN(20))
		case 1:
			n, _ = g.Values[from].Shape.NumElements()
		}
		to := g.AddValue(Value{DType: pick(), Shape: tensor.Shape{int(n)}})
		op := &Op{Kind: "my::op", In: []Operand{o, Absent}, Out: []ValueID{to}}
		a, b := g.Values[from], g.Values[to]
		all, _ := a.Shape.NumElements()
		shown, _ := o.Layout.NumElements()
		want := a.DType.Size() == b.DType.Size() && shown == n && all == n
		for i := range int(shown) {
			rest, at := i, o.Layout.Offset
			for d := 2; d >= 0; d-- {
				at += rest % o.Layout.Shape[d] * o.Layout.Strides[d]
				rest /= o.Layout.Shape[d]
			}
			want = want && at == i
		}
		if got := g.CanOverlay(op, 0); got != want {
			t.Fatalf("%v %v over %v %v of %v: %t, want %t", b.DType, b.Shape, a.DType, o.Layout, a.Shape, got, want)
		}
		if want {
			yes++
		}
		if g.CanOverlay(op, 1) || g.CanOverlay(op, 2) {
			t.Fatal("an operand that is not there can be overlaid")
		}
	}
	if yes < 500 {
		t.Errorf("%d operands can be overlaid: the test looks at nothing", yes)
	}
}
