package cpu

import (
	"maps"
	"testing"

	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/models/aten"
	"github.com/optimem/optimem/tensor"
)

// TestKernelsAllocateNothing runs every op that PyTorch was recorded with again and again: after the first call nothing is
// taken from Go's heap, with a thread or two.
func TestKernelsAllocateNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector drops what a sync.Pool keeps")
	}
	cases, err := devicetest.Cases()
	if err != nil {
		t.Fatal(err)
	}
	for _, threads := range []int{1, 2} {
		pool := ops.NewPool(threads)
		defer pool.Close()
		for _, c := range cases {
			g, err := aten.BuildCall(graph.Standard(), c.Target, c.Args)
			if err != nil {
				t.Fatal(err)
			}
			m, err := newInterpreter(pool, graph.Standard(), g, nil, c.Inputs)
			if err != nil {
				t.Fatal(err)
			}
			for i, op := range g.Ops {
				if !m.holds(op.Guard) {
					continue
				}
				in, out := m.operands(i)
				n := allocsOf(t, func() error { return m.run(t.Context(), i, in, out) })
				if n != 0 {
					specs, _ := g.Specs(&op, nil, nil)
					t.Errorf("%s, %d threads: %s of %v %v: %v allocations a call", c.Name, threads, op.Kind, specs, op.Attrs, n)
				}
			}
		}
	}
}

// allocsOf returns how often a call takes memory from Go's heap after the first.
func allocsOf(t *testing.T, run func() error) float64 {
	t.Helper()
	n := 0.0
	for range 4 { // what a sync.Pool keeps is lost where memory is collected in between
		n = testing.AllocsPerRun(4, func() {
			if err := run(); err != nil {
				t.Fatal(err)
			}
		})
		if n == 0 {
			break
		}
	}
	return n
}

// TestLargeKernelsAllocateNothing is the same for operands that are cut into parts, and for ops that no call is made of.
func TestLargeKernelsAllocateNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector drops what a sync.Pool keeps")
	}
	of := func(d tensor.DType, shape ...int) *tensor.Tensor { // floats, or numbers that are indices too
		if ops.IsReal(d) {
			return normal(71, d, shape...)
		}
		x := &tensor.Tensor{DType: d, Layout: tensor.Contiguous(shape...), Data: make([]byte, ops.Volume(shape)*d.Size())}
		for i := range ops.Volume(shape) {
			ops.StoreInt(ops.View{Data: x.Data, DType: d}, i, int64(1+i*31%99))
		}
		return x
	}
	turn := func(x *tensor.Tensor, a, b int) *tensor.Tensor {
		s, p := x.Layout.Shape, x.Layout.Strides
		s[a], s[b], p[a], p[b] = s[b], s[a], p[b], p[a]
		return x
	}
	const f32, f64, f16, i64, i32 = tensor.Float32, tensor.Float64, tensor.Float16, tensor.Int64, tensor.Int32
	index := of(i64, 300, 130)
	conv := func(more graph.Attrs) graph.Attrs {
		a := graph.Attrs{
			"groups": 1, "stride": []int{1, 1}, "padding": []int{1, 1}, "padding_end": []int{1, 1}, "dilation": []int{1, 1},
		}
		maps.Copy(a, more)
		return a
	}
	dim := func(d int) graph.Attrs { return graph.Attrs{"dim": d} }
	recurrent := func(gates int) []*tensor.Tensor {
		in := []*tensor.Tensor{of(f32, 20, 30, 17), nil, of(f32, 2, 30, 40), nil}
		if gates == 4 {
			in[3] = of(f32, 2, 30, 40)
		}
		for range 2 {
			in = append(in, of(f32, gates*40, 17), of(f32, gates*40, 40), of(f32, gates*40), of(f32, gates*40), nil)
		}
		return in
	}
	both := graph.Attrs{"bidirectional": true}
	attention := graph.Attrs{"scale": 0.5, "is_causal": true, "also": "weights"}
	unknown := graph.Program{
		{Kind: "hardshrink", Attrs: graph.Attrs{"lambda": 0.5}, Args: []int{0}},
		{Kind: "softplus", Attrs: graph.Attrs{"beta": 1.0, "threshold": 20.0}, Args: []int{2}},
		{Kind: "add", Args: []int{3, 1}},
	}
	for _, c := range []struct {
		kind  graph.Kind
		attrs graph.Attrs
		in    []*tensor.Tensor
	}{
		{"add", nil, []*tensor.Tensor{of(i64, 300, 130), of(i64, 300, 130)}},
		{"mul", nil, []*tensor.Tensor{of(f64, 300, 130), turn(of(f64, 130, 300), 0, 1)}},
		{"div_floor", nil, []*tensor.Tensor{of(i32, 300, 130), of(i32, 300, 130)}},
		{"clamp", graph.Attrs{"min": 0.0, "max": 1.0}, []*tensor.Tensor{of(f64, 300, 130)}},
		{"softplus", graph.Attrs{"beta": 1.0, "threshold": 20.0}, []*tensor.Tensor{of(f32, 300, 130)}},
		{"where", nil, []*tensor.Tensor{of(tensor.Bool, 300, 130), of(i64, 300, 130), of(i64, 300, 130)}},
		{"chain", graph.Attrs{"program": unknown}, []*tensor.Tensor{of(f32, 300, 130), of(f32, 300, 130)}},
		{"arange", graph.Attrs{"size": 1 << 16, "start": 0, "step": 1, "dtype": i64}, nil},
		{"triu", graph.Attrs{"diagonal": 1}, []*tensor.Tensor{of(f32, 300, 130)}},
		{"cast", graph.Attrs{"dtype": f32}, []*tensor.Tensor{of(i64, 300, 130)}},
		{"cast", graph.Attrs{"dtype": i64}, []*tensor.Tensor{of(f32, 300, 130)}},
		{"cumsum", dim(0), []*tensor.Tensor{of(f32, 300, 130)}},
		{"cumsum", dim(1), []*tensor.Tensor{of(i64, 300, 1300)}},
		{"cummax", dim(0), []*tensor.Tensor{of(f32, 300, 130)}},
		{"argmax", graph.Attrs{"dims": []int{0}}, []*tensor.Tensor{of(f32, 300, 130)}},
		{"sort", dim(0), []*tensor.Tensor{of(f32, 300, 130)}},
		{"topk", graph.Attrs{"dim": 1, "k": 9, "largest": true}, []*tensor.Tensor{of(f32, 300, 130)}},
		{"softmax", dim(0), []*tensor.Tensor{of(f32, 300, 130)}},
		{"log_softmax", dim(1), []*tensor.Tensor{of(f64, 300, 130)}},
		{"layer_norm", graph.Attrs{"dims": 1, "eps": 1e-5}, []*tensor.Tensor{of(f64, 300, 130), of(f64, 130), of(f64, 130)}},
		{"group_norm", graph.Attrs{"groups": 5, "eps": 1e-5},
			[]*tensor.Tensor{turn(of(f32, 3, 60, 70, 10), 1, 3), of(f32, 10), of(f32, 10)}},
		{"batch_norm", graph.Attrs{"eps": 1e-5},
			[]*tensor.Tensor{turn(of(f32, 3, 60, 70, 10), 1, 3), nil, nil, of(f32, 10), of(f32, 10)}},
		{"gather", dim(1), []*tensor.Tensor{of(f32, 300, 130), index}},
		{"scatter", graph.Attrs{"dim": 1, "reduce": "mean", "include_self": true},
			[]*tensor.Tensor{of(f32, 300, 130), index, of(f32, 300, 130)}},
		{"index_put", graph.Attrs{"dim": 0, "accumulate": true, "wrap": true},
			[]*tensor.Tensor{of(f32, 300, 130), of(f32, 300, 130, 130), index}},
		{"embedding_rows", graph.Attrs{"low": 20, "size": 100}, []*tensor.Tensor{of(f32, 50, 64), index}},
		{"searchsorted", nil, []*tensor.Tensor{of(f32, 1300), of(f32, 300, 130)}},
		{"flip", graph.Attrs{"dims": []int{0, 1}}, []*tensor.Tensor{of(f32, 300, 130)}},
		{"choose", nil, []*tensor.Tensor{of(tensor.Bool), of(f32, 300, 130), of(f32, 300, 130)}},
		{"cdist", graph.Attrs{"p": 2.0}, []*tensor.Tensor{of(f32, 300, 130), of(f32, 40, 130)}},
		{"cross", dim(0), []*tensor.Tensor{of(f32, 3, 300, 130), of(f32, 3, 300, 130)}},
		{"matmul", graph.Attrs{"alpha": 1.0, "beta": 0.0}, []*tensor.Tensor{of(i64, 300, 130), of(i64, 130, 50)}},
		{"linear", nil, []*tensor.Tensor{of(i32, 300, 130), of(i32, 50, 130), of(i32, 50)}},
		{"conv", conv(graph.Attrs{"groups": 5}), []*tensor.Tensor{of(f32, 2, 5, 60, 70), of(f32, 5, 1, 3, 3), of(f32, 5)}},
		{"conv", conv(graph.Attrs{"transposed": true, "output_padding": []int{0, 0}}),
			[]*tensor.Tensor{of(f32, 2, 5, 60, 70), of(f32, 5, 6, 3, 3), of(f32, 6)}},
		{"conv", conv(graph.Attrs{"channels_last": true}),
			[]*tensor.Tensor{of(f32, 2, 5, 60, 70), of(f32, 6, 5, 3, 3), of(f32, 6)}},
		{"conv", conv(nil), []*tensor.Tensor{of(i32, 2, 5, 60, 70), of(i32, 6, 5, 3, 3), of(i32, 6)}},
		{"conv", conv(nil), []*tensor.Tensor{of(f16, 2, 5, 60, 70), of(f16, 6, 5, 3, 3), of(f16, 6)}},
		{"conv", conv(nil), []*tensor.Tensor{of(f64, 2, 5, 60, 70), turn(of(f64, 6, 3, 3, 5), 1, 3), of(f64, 6)}},
		{"grid_sample", graph.Attrs{"mode": "linear", "padding_mode": "zeros", "align_corners": true},
			[]*tensor.Tensor{of(f32, 2, 5, 60, 70), of(f32, 2, 50, 60, 2)}},
		{"scaled_dot_product_attention", attention,
			[]*tensor.Tensor{of(f32, 2, 3, 150, 16), of(f32, 2, 3, 150, 16), of(f32, 2, 3, 150, 16), of(f32, 2, 3, 150, 150)}},
		{"lstm", both, recurrent(4)}, {"gru", both, recurrent(3)},
		{"rnn", graph.Attrs{"bidirectional": true, "nonlinearity": "tanh"}, recurrent(1)},
	} {
		for _, threads := range []int{1, 2} {
			p := ops.NewPool(threads)
			if n := allocates(t, p, c.kind, c.attrs, c.in...); n != 0 {
				t.Errorf("%s %v, %d threads: %v allocations a call", c.kind, c.attrs, threads, n)
			}
			p.Close()
		}
	}
}
