package cpu

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// TestCopies compares copies with copies of one element after another.
func TestCopies(t *testing.T) {
	for _, p := range append(poolsOf(t), poolInGo(t)) {
		rng := rand.New(rand.NewPCG(41, 42))
		for round := range 200 {
			d := []tensor.DType{tensor.Float32, tensor.Float16, tensor.Bool, tensor.Int64, tensor.Complex128}[round%5]
			shape := randomShape(rng)
			x := randomView(rng, tensor.Float32, shape)
			x.DType = d
			x.Data = make([]byte, len(x.Data)/4*d.Size())
			for i := range x.Data {
				x.Data[i] = byte(rng.Uint32())
			}
			v := ops.View{Data: x.Data, DType: d, Layout: x.Layout}
			want := make([]byte, ops.Volume(shape)*d.Size())
			ops.CopyMany(want, tensor.Contiguous(shape...), v)
			got := make([]byte, len(want))
			ops.Gather(p, got, v)
			if !bytes.Equal(got, want) {
				t.Fatalf("a copy of %v of %v differs", x.Layout, d)
			}
			if d != tensor.Float32 {
				continue
			}
			dim := rng.IntN(len(shape))
			out, err := Compute(t.Context(), p, graph.Standard(), "cat", graph.Attrs{"dim": dim}, x, x)
			if err != nil {
				t.Fatal(err)
			}
			half := out[0].Layout
			half.Shape = shape
			for range 2 {
				ops.CopyMany(got, tensor.Contiguous(shape...), ops.View{Data: out[0].Data, DType: d, Layout: half})
				if !bytes.Equal(got, want) {
					t.Fatalf("a part of %v along dimension %d differs", out[0].Layout, dim)
				}
				half.Offset += shape[dim] * half.Strides[dim]
			}
		}
	}
}

// TestTurnedToTheEnd turns matrices whose last column is the last of the memory, with whole groups of columns.
func TestTurnedToTheEnd(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	for _, s := range [][]int{{64, 64}, {3, 64, 128}, {2, 16, 8}, {5, 40, 72}, {64, 7}} {
		n := len(s)
		x := noise(r, s...)
		l := tensor.Layout{Shape: append([]int(nil), s...), Strides: append([]int(nil), x.Layout.Strides...)}
		l.Shape[n-1], l.Shape[n-2] = l.Shape[n-2], l.Shape[n-1]
		l.Strides[n-1], l.Strides[n-2] = l.Strides[n-2], l.Strides[n-1]
		got := single(t, "copy", nil, &tensor.Tensor{DType: x.DType, Layout: l, Data: x.Data})
		rows, columns := s[n-2], s[n-1]
		from, to := numbersOf(x), numbersOf(got)
		for i := range to {
			plane, at := i/(rows*columns)*rows*columns, i%(rows*columns)
			if want := from[plane+at%rows*columns+at/rows]; to[i] != want {
				t.Fatalf("%v: element %d is %v, not %v", s, i, to[i], want)
			}
		}
	}
}

// TestCopiesAllocate: copies allocate nothing.
func TestCopiesAllocate(t *testing.T) {
	p := ops.NewPool(2)
	defer p.Close()
	x := tensor.Of(make([]float32, 4*70*90), 4, 70, 90)
	turned := &tensor.Tensor{DType: x.DType, Data: x.Data, Layout: tensor.Layout{
		Shape: tensor.Shape{4, 90, 70}, Strides: []int{6300, 1, 90},
	}}
	if n := allocates(t, p, "copy", nil, turned); n != 0 {
		t.Errorf("a copy allocates %v objects", n)
	}
	if n := allocates(t, p, "cat", graph.Attrs{"dim": 1}, x, x); n != 0 {
		t.Errorf("cat allocates %v objects", n)
	}
}
