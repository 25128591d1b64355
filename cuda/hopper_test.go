//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/tensor"
)

// TestHopper computes linears of half floats on a GPU of 9.0 from the sources.
func TestHopper(t *testing.T) {
	dev, _ := open(t, "order=lazy:3 memory=64M cc=90")
	compareHopper(t, dev)
	compareHopperAlone(t, dev)
}

// hopperBound is what part of a result it may be off: what rounding it takes away, and a little of its sum.
var hopperBound = map[tensor.DType]float64{tensor.Float16: 1.0 / 2048, tensor.BFloat16: 1.0 / 256}

// valueOf is an element of a tensor of half floats.
func valueOf(x *tensor.Tensor, i int) float64 {
	bits := uint16(x.Data[2*i]) | uint16(x.Data[2*i+1])<<8
	if x.DType == tensor.BFloat16 {
		return float64(math.Float32frombits(uint32(bits) << 16))
	}
	return float64(tensor.Float16ToFloat32(bits))
}

// compareLinear compares a linear with all that it ends with to what it is in float64: relu(x · wᵀ + bias) + added.
func compareLinear(t *testing.T, got, x, w, bias, added *tensor.Tensor) {
	t.Helper()
	m, n, k := x.Layout.Shape[0], w.Layout.Shape[0], w.Layout.Shape[1]
	for r := range m {
		for c := range n {
			var sum float64
			for i := range k {
				sum += valueOf(x, r*k+i) * valueOf(w, c*k+i)
			}
			want, have := max(sum+valueOf(bias, c), 0)+valueOf(added, r*n+c), valueOf(got, r*n+c)
			if off := math.Abs(have - want); !(off <= math.Abs(want)*hopperBound[x.DType]+1e-4) {
				t.Fatalf("result %d of row %d is %v, not %v", c, r, have, want)
			}
		}
	}
}

// compareHopper computes linears whose sizes have tails in every dimension, by every size of blocks, in parts and whole, and compares
// with float64.
func compareHopper(t *testing.T, dev *cuda.Device) {
	defer cuda.HopperFrom(1, 1)()
	for block := range 2 {
		defer cuda.OnlyHopperBlocks(block)()
		for _, d := range []tensor.DType{tensor.BFloat16, tensor.Float16} {
			for _, c := range []struct{ m, n, k int }{{67, 261, 328}, {131, 130, 72}, {9, 258, 1096}, {64, 256, 64}} {
				t.Run(fmt.Sprint(block, d, c), func(t *testing.T) {
					x, w, bias, added := numbers(d, c.m, c.k), numbers(d, c.n, c.k), numbers(d, c.n), numbers(d, c.m, c.n)
					g := loweredOp(t, graph.Op{Kind: "linear", Attrs: graph.Attrs{"act": "relu"}}, []*tensor.Tensor{x, w, bias, added}).Graph
					compareLinear(t, byWGMMA(t, dev, g), x, w, bias, added)
				})
			}
		}
	}
}

// byWGMMA computes a graph of a linear, which is one of wgmma.
func byWGMMA(t *testing.T, dev *cuda.Device, g *graph.Graph) *tensor.Tensor {
	t.Helper()
	l, err := dev.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	if l.Steps[0].Kernel != cuda.HopperKernel {
		t.Fatalf("it is computed by %s", l.Steps[0].Kernel)
	}
	got, err := interpret(t.Context(), dev, l, nil)
	if err != nil {
		t.Fatal(err)
	}
	return got["y"]
}

// compareHopperAlone: a row that is alone has the same bits whatever rows are beside it, by either size of blocks, however they lie,
// and a part of the columns has those of the whole.
func compareHopperAlone(t *testing.T, dev *cuda.Device) {
	defer cuda.HopperFrom(1, 1)()
	const n, k = 260, 1096
	for _, d := range []tensor.DType{tensor.BFloat16, tensor.Float16} {
		var first []byte
		for i, m := range []int{1, 9, 70, 1, 70, 130, 3} {
			undo := func() {}
			if i < 5 {
				undo = cuda.OnlyHopperBlocks(i / 3)
			}
			x, w := numbers(d, m, k), numbers(d, n, k)
			op := graph.Op{Kind: "linear", Attrs: graph.Attrs{graph.RowsAlone: true}}
			got := byWGMMA(t, dev, loweredOp(t, op, []*tensor.Tensor{x, w}).Graph)
			undo()
			if first == nil {
				first = got.Data[:2*n]
			}
			if !bytes.Equal(got.Data[:2*n], first) {
				t.Errorf("%v: the first of %d rows, run %d, has other bits", d, m, i)
			}
		}
	}
	_ = rewrite.WholeColumns
}
