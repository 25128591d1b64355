package cpu

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// rowOps are the ops that work on rows: with attributes for an operand's shape, and how many parameters of which
// dimension follow.
var rowOps = []struct {
	kind       graph.Kind
	attrs      func(s tensor.Shape) graph.Attrs
	parameters int
	dim        int // −1 is the last
}{
	{"softmax", func(s tensor.Shape) graph.Attrs { return graph.Attrs{"dim": len(s) - 1} }, 0, 0},
	{"log_softmax", func(s tensor.Shape) graph.Attrs { return graph.Attrs{"dim": len(s) - 1} }, 0, 0},
	{"layer_norm", func(tensor.Shape) graph.Attrs { return graph.Attrs{"dims": 1, "eps": 1e-5} }, 2, -1},
	{"rms_norm", func(tensor.Shape) graph.Attrs { return graph.Attrs{"dims": 1, "eps": 1e-6} }, 1, -1},
	{"group_norm", func(tensor.Shape) graph.Attrs { return graph.Attrs{"groups": 2, "eps": 1e-5} }, 2, 1},
	{"batch_norm", func(tensor.Shape) graph.Attrs { return graph.Attrs{"eps": 1e-5} }, 4, 1},
	{"sum", reduced(tensor.Float32), 0, 0},
	{"mean", reduced(tensor.Float32), 0, 0},
	{"amax", reduced(0), 0, 0},
	{"amin", reduced(0), 0, 0},
	{"logsumexp", reduced(0), 0, 0},
	{"norm", func(s tensor.Shape) graph.Attrs {
		return graph.Attrs{"dims": []int{len(s) - 2, len(s) - 1}, "ord": 2.0, "dtype": tensor.Float32}
	}, 0, 0},
	{"var", func(s tensor.Shape) graph.Attrs { return graph.Attrs{"dims": []int{len(s) - 1}, "correction": 1.0} }, 0, 0},
	{"std", func(s tensor.Shape) graph.Attrs { return graph.Attrs{"dims": []int{len(s) - 1}, "correction": 0.0} }, 0, 0},
}

func reduced(d tensor.DType) func(s tensor.Shape) graph.Attrs {
	return func(s tensor.Shape) graph.Attrs {
		a := graph.Attrs{"dims": []int{len(s) - 1}}
		if d != 0 {
			a["dtype"] = d
		}
		return a
	}
}

// TestRowOps compares rows by kernels with rows in Go.
func TestRowOps(t *testing.T) {
	inGo := poolInGo(t)
	for _, p := range poolsOf(t) {
		for _, op := range rowOps {
			rng := rand.New(rand.NewPCG(21, 22))
			for round := range 30 {
				d := []tensor.DType{tensor.Float32, tensor.Float32, tensor.Float16, tensor.BFloat16}[round%4]
				shape := tensor.Shape{1 + rng.IntN(4), 2 * (1 + rng.IntN(4)), 2 + rng.IntN(300)}
				x := randomView(rng, d, shape)
				if round%3 > 0 {
					x.Layout.Strides = []int{shape[1]*shape[2] + 3, shape[2], 1}
					x.Data = make([]byte, (x.Layout.Offset+shape[0]*x.Layout.Strides[0])*d.Size())
					for i := range len(x.Data) / d.Size() {
						ops.StoreFloat(ops.View{Data: x.Data, DType: d}, i, rng.NormFloat64()*3)
					}
				}
				attrs := op.attrs(shape)
				if attrs["dtype"] != nil {
					attrs["dtype"] = d
				}
				in := []*tensor.Tensor{x}
				for k := range op.parameters {
					n := shape[len(shape)-1]
					if op.dim >= 0 {
						n = shape[op.dim]
					}
					w := randomView(rng, d, tensor.Shape{n})
					if op.kind == "batch_norm" && k == 3 { // variances
						for i := range n {
							ops.StoreFloat(ops.View{Data: w.Data, DType: d}, w.Layout.Offset+i*w.Layout.Strides[0], 0.5+rng.Float64())
						}
					}
					in = append(in, w)
				}
				agreeWith(t, p, inGo, op.kind, attrs, 2e-6, in...)
			}
		}
	}
}

// TestSoftmaxLimits: rows with infinities and NaN are what Go's path makes of them.
func TestSoftmaxLimits(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	inGo := poolInGo(t)
	for _, p := range poolsOf(t) {
		for _, special := range [][]float32{{-inf}, {inf}, {nan}, {-inf, nan}, {inf, -inf}, {3e38, -3e38}, {-100, 100}} {
			for _, safe := range []bool{false, true} {
				x := make([]float32, 37)
				for i := range x {
					x[i] = special[i%len(special)]
				}
				for _, kind := range []graph.Kind{"softmax", "log_softmax", "logsumexp"} {
					attrs := graph.Attrs{"dim": 0, "safe": safe}
					if kind == "logsumexp" {
						attrs = graph.Attrs{"dims": []int{0}}
					}
					agreeWith(t, p, inGo, kind, attrs, 1e-6, tensor.Of(x, 37))
					x[5] = 0
					agreeWith(t, p, inGo, kind, attrs, 1e-6, tensor.Of(x, 37))
				}
			}
		}
	}
}

// TestRowsAllocate: rows allocate nothing.
func TestRowsAllocate(t *testing.T) {
	rng := rand.New(rand.NewPCG(23, 24))
	for _, p := range poolsOf(t) {
		for _, op := range rowOps {
			shape := tensor.Shape{3, 64, 300}
			in := []*tensor.Tensor{tensor.Of(make([]float32, ops.Volume(shape)), shape...)}
			for range op.parameters {
				n := shape[len(shape)-1]
				if op.dim >= 0 {
					n = shape[op.dim]
				}
				w := randomView(rng, tensor.Float32, tensor.Shape{n})
				w.Layout = tensor.Contiguous(n)
				w.Data = make([]byte, 4*n)
				in = append(in, w)
			}
			if n := allocates(t, p, op.kind, op.attrs(shape), in...); n != 0 {
				t.Errorf("%s allocates %v objects", op.kind, n)
			}
		}
	}
}
