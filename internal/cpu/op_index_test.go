package cpu_test

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/tensor"
)

// TestBadIndices: what lies outside is an error that says so, not a read of other memory.
func TestBadIndices(t *testing.T) {
	x := tensor.Of(make([]float32, 12), 3, 4)
	flat := tensor.Of(make([]float32, 4), 4)
	at := func(i ...int64) *tensor.Tensor { return tensor.Of(i, len(i)) }
	square := func(i ...int64) *tensor.Tensor { return tensor.Of(i, 2, len(i)/2) }
	values := tensor.Of(make([]float32, 8), 2, 4)
	wrap := graph.Attrs{"wrap": true}
	pool := cpu.NewPool(2)
	defer pool.Close()
	for _, c := range []struct {
		kind  graph.Kind
		attrs graph.Attrs
		in    []*tensor.Tensor
		want  string
	}{
		{"embedding", nil, []*tensor.Tensor{x, at(0, 3)}, "index 3"},
		{"embedding", nil, []*tensor.Tensor{x, at(-1)}, "index -1"},
		{"embedding", nil, []*tensor.Tensor{x, at(math.MaxInt64)}, "index 9223372036854775807"},
		{"index", wrap, []*tensor.Tensor{x, at(2, -4)}, "index -4"},
		{"index", wrap, []*tensor.Tensor{x, at(math.MinInt64)}, "index -9223372036854775808"},
		{"index", wrap, []*tensor.Tensor{x, at(0), at(4)}, "index 4"},
		{"index", nil, []*tensor.Tensor{x, at(-1)}, "index -1"},
		{"index_put", wrap, []*tensor.Tensor{x, values, at(0, 3)}, "index 3"},
		{"index_put", graph.Attrs{"accumulate": true}, []*tensor.Tensor{x, values, at(0, -1)}, "index -1"},
		{"gather", graph.Attrs{"dim": 1}, []*tensor.Tensor{x, square(0, 4)}, "index 4"},
		{"gather", graph.Attrs{"dim": 0}, []*tensor.Tensor{x, square(0, -1)}, "index -1"},
		{"scatter", graph.Attrs{"dim": 0}, []*tensor.Tensor{x, square(0, 1, 2, 3, 0, 0, 0, 0), values}, "index 3"},
		{"scatter", graph.Attrs{"dim": 0, "reduce": "sum"}, []*tensor.Tensor{x, square(0, 1, 2, -1, 0, 0, 0, 0), values},
			"index -1"},
		{"masked_scatter", nil, []*tensor.Tensor{flat, tensor.Of([]bool{true, true, false, true}, 4),
			tensor.Of([]float32{1, 2}, 2)}, "2 elements"},
		{"embedding_bag", graph.Attrs{"padding": -1}, []*tensor.Tensor{x, at(0, 3), at(0)}, "index 3"},
		{"embedding_bag", graph.Attrs{"padding": -1}, []*tensor.Tensor{x, at(0, 1), at(0, 3)}, "offsets[1] is 3"},
		{"embedding_bag", graph.Attrs{"padding": -1}, []*tensor.Tensor{x, at(0, 1), at(1, 0)}, "offsets[0] is 1"},
		{"embedding_bag", graph.Attrs{"padding": -1}, []*tensor.Tensor{x, at(0, 1), at(0, 2, 1)}, "offsets[2] is 1"},
		{"searchsorted", nil, []*tensor.Tensor{flat, flat, at(0, 1, 2, 4)}, "index 4"},
		{"repeat_indices", graph.Attrs{"size": 4}, []*tensor.Tensor{at(1, 2)}, "fewer"},
		{"repeat_indices", graph.Attrs{"size": 4}, []*tensor.Tensor{at(3, 2)}, "repeats[1] = 2"},
		{"repeat_indices", graph.Attrs{"size": 4}, []*tensor.Tensor{at(5, -1)}, "repeats[0] = 5"},
		{"repeat_indices", graph.Attrs{"size": 4}, []*tensor.Tensor{at(4, -1)}, "repeats[1] = -1"},
		{"max_unpool", graph.Attrs{"size": []int{2, 2}}, []*tensor.Tensor{tensor.Of(make([]float32, 2), 1, 2, 1, 1),
			tensor.Of([]int64{4, 0}, 1, 2, 1, 1)}, "index 4"},
		{"max_unpool", graph.Attrs{"size": []int{2, 2}}, []*tensor.Tensor{tensor.Of(make([]float32, 2), 1, 2, 1, 1),
			tensor.Of([]int64{3, -1}, 1, 2, 1, 1)}, "index -1"},
		{"histc", graph.Attrs{"bins": 3, "min": 0.0, "max": 0.0}, []*tensor.Tensor{tensor.Of([]float32{3e38, 0, -3e38}, 3)}, "range"},
		{"histc", graph.Attrs{"bins": 3, "min": -1e308, "max": 1e308}, []*tensor.Tensor{tensor.Of([]float64{0, 1}, 2)}, "range"},
	} {
		_, err := cpu.Compute(t.Context(), pool, graph.Standard(), c.kind, c.attrs, c.in...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s%v: %v, want an error with %q", c.kind, c.attrs, err, c.want)
		}
	}
}

// TestThreads: one thread and three give the same bits, as does a row alone and among others.
func TestThreads(t *testing.T) {
	const rows, width = 300, 130
	data := make([]float32, rows*width)
	for i := range data {
		data[i] = float32(i*7919%1009)/331 - 1.5
	}
	x, w := tensor.Of(data, rows, width), tensor.Of(data[:width], width)
	index := make([]int64, rows*width)
	for i := range index {
		index[i] = int64(i * 31 % width)
	}
	one, three := cpu.NewPool(1), cpu.NewPool(3)
	defer one.Close()
	defer three.Close()
	last := []int{1}
	for _, c := range []struct {
		kind  graph.Kind
		attrs graph.Attrs
		// more follow x; perRow of them, from the end, have a row for each of x's.
		more   []*tensor.Tensor
		perRow int
	}{
		{kind: "sum", attrs: graph.Attrs{"dims": last, "dtype": tensor.Float32}},
		{kind: "var", attrs: graph.Attrs{"dims": last, "correction": 1.0}},
		{kind: "logsumexp", attrs: graph.Attrs{"dims": last}},
		{kind: "cumsum", attrs: graph.Attrs{"dim": 1}},
		{kind: "softmax", attrs: graph.Attrs{"dim": 1}},
		{kind: "log_softmax", attrs: graph.Attrs{"dim": 1}},
		{kind: "layer_norm", attrs: graph.Attrs{"dims": 1, "eps": 1e-5}, more: []*tensor.Tensor{w, w}},
		{kind: "rms_norm", attrs: graph.Attrs{"dims": 1, "eps": 1e-5}, more: []*tensor.Tensor{w}},
		{kind: "group_norm", attrs: graph.Attrs{"groups": 10, "eps": 1e-5}, more: []*tensor.Tensor{w, w}},
		{kind: "topk", attrs: graph.Attrs{"dim": 1, "k": 9}},
		{kind: "sort", attrs: graph.Attrs{"dim": 1}},
		{kind: "cdist", attrs: graph.Attrs{"p": 2.0}, more: []*tensor.Tensor{tensor.Of(data[:5*width], 5, width)}},
		{kind: "scatter", attrs: graph.Attrs{"dim": 1, "reduce": "sum", "include_self": true},
			more: []*tensor.Tensor{tensor.Of(index, rows, width), x}, perRow: 2},
	} {
		in := append([]*tensor.Tensor{x}, c.more...)
		a, err := cpu.Compute(t.Context(), one, graph.Standard(), c.kind, c.attrs, in...)
		if err != nil {
			t.Fatalf("%s: %v", c.kind, err)
		}
		b, err := cpu.Compute(t.Context(), three, graph.Standard(), c.kind, c.attrs, in...)
		if err != nil {
			t.Fatal(err)
		}
		const row = 171
		for i := range in {
			if i == 0 || i > len(c.more)-c.perRow {
				l := tensor.Contiguous(1, width)
				l.Offset = row * width
				in[i] = &tensor.Tensor{DType: in[i].DType, Layout: l, Data: in[i].Data}
			}
		}
		alone, err := cpu.Compute(t.Context(), three, graph.Standard(), c.kind, c.attrs, in...)
		if err != nil {
			t.Fatal(err)
		}
		for i := range a {
			if !bytes.Equal(a[i].Data, b[i].Data) {
				t.Errorf("%s: result %d depends on the number of threads", c.kind, i)
			}
			if n := len(a[i].Data) / rows; !bytes.Equal(a[i].Data[row*n:(row+1)*n], alone[i].Data) {
				t.Errorf("%s: result %d depends on what is beside it", c.kind, i)
			}
		}
	}
}

// BenchmarkRows measures the ops over rows that transformers consist of, beside matrix products.
func BenchmarkRows(b *testing.B) {
	const rows, width = 512, 1024
	data := make([]float32, rows*width)
	for i := range data {
		data[i] = float32(i*7919%1009)/331 - 1.5
	}
	x, w := tensor.Of(data, rows, width), tensor.Of(data[:width], width)
	image := tensor.Of(data, 1, 32, 128, 128)
	c := tensor.Of(data[1000:1032], 32)
	one := tensor.Of(slices.Repeat([]float32{1}, 32), 32)
	ids := make([]int64, rows)
	for i := range ids {
		ids[i] = int64(i * 31 % rows)
	}
	pool := cpu.NewPool(0)
	defer pool.Close()
	for _, c := range []struct {
		kind  graph.Kind
		attrs graph.Attrs
		in    []*tensor.Tensor
	}{
		{"softmax", graph.Attrs{"dim": 1}, []*tensor.Tensor{x}},
		{"softmax", graph.Attrs{"dim": 0}, []*tensor.Tensor{x}},
		{"layer_norm", graph.Attrs{"dims": 1, "eps": 1e-5}, []*tensor.Tensor{x, w, w}},
		{"rms_norm", graph.Attrs{"dims": 1, "eps": 1e-5}, []*tensor.Tensor{x, w}},
		{"batch_norm", graph.Attrs{"eps": 1e-5}, []*tensor.Tensor{image, c, c, c, one}},
		{"group_norm", graph.Attrs{"groups": 8, "eps": 1e-5}, []*tensor.Tensor{image, c, c}},
		{"sum", graph.Attrs{"dims": []int{1}, "dtype": tensor.Float32}, []*tensor.Tensor{x}},
		{"sum", graph.Attrs{"dims": []int{0}, "dtype": tensor.Float32}, []*tensor.Tensor{x}},
		{"amax", graph.Attrs{"dims": []int{1}}, []*tensor.Tensor{x}},
		{"argmax", graph.Attrs{"dims": []int{1}}, []*tensor.Tensor{x}},
		{"cumsum", graph.Attrs{"dim": 1}, []*tensor.Tensor{x}},
		{"topk", graph.Attrs{"dim": 1, "k": 10}, []*tensor.Tensor{x}},
		{"sort", graph.Attrs{"dim": 1}, []*tensor.Tensor{x}},
		{"embedding", nil, []*tensor.Tensor{x, tensor.Of(ids, rows)}},
		{"cat", graph.Attrs{"dim": 1}, []*tensor.Tensor{x, x}},
		{"roll", graph.Attrs{"dims": []int{0, 1}, "shifts": []int{3, 5}}, []*tensor.Tensor{x}},
	} {
		b.Run(string(c.kind), func(b *testing.B) {
			b.SetBytes(rows * width * 4)
			for b.Loop() {
				if _, err := cpu.Compute(b.Context(), pool, graph.Standard(), c.kind, c.attrs, c.in...); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
