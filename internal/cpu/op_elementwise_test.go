package cpu

import (
	"bytes"
	"errors"
	"fmt"

	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/elementwise"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// ramp returns n numbers from low to high.
func ramp(n int, low, high float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(low + (high-low)*float64(i)/float64(n-1))
	}
	return x
}

// TestElementwiseThreads: the same bits for any number of threads, over more elements than one part has.
func TestElementwiseThreads(t *testing.T) {
	const rows, columns = 301, 257
	wide := tensor.Of(ramp(rows*columns, -5, 5), rows, columns)
	turned := tensor.Of(ramp(rows*columns, -3, 3), columns, rows)
	turned.Layout = tensor.Layout{Shape: tensor.Shape{rows, columns}, Strides: []int{1, rows}}
	column := tensor.Of(ramp(rows, 1, 2), rows, 1)
	column.Layout = tensor.Layout{Shape: tensor.Shape{rows, columns}, Strides: []int{1, 0}}
	for _, c := range []struct {
		kind graph.Kind
		in   []*tensor.Tensor
	}{
		{"gelu", []*tensor.Tensor{turned}},
		{"add", []*tensor.Tensor{wide, turned}},
		{"mul", []*tensor.Tensor{turned, column}},
		{"lt", []*tensor.Tensor{column, wide}},
	} {
		var want []byte
		for _, threads := range []int{1, 2, 5} {
			pool := ops.NewPool(threads)
			out, err := Compute(t.Context(), pool, graph.Standard(), c.kind, nil, c.in...)
			pool.Close()
			if err != nil {
				t.Fatal(err)
			}
			if want == nil {
				want = out[0].Data
			}
			if !bytes.Equal(out[0].Data, want) {
				t.Errorf("%s: other bits with %d threads", c.kind, threads)
			}
		}
	}
}

func TestIntegerDivisionByZero(t *testing.T) {
	pool := ops.NewPool(1)
	defer pool.Close()
	for _, kind := range []graph.Kind{"div_floor", "div_trunc", "remainder", "fmod"} {
		a, b := tensor.Of([]int64{1, 2}, 2), tensor.Of([]int64{1, 0}, 2)
		_, err := Compute(t.Context(), pool, graph.Standard(), kind, nil, a, b)
		if !errors.Is(err, elementwise.ErrDivisor) {
			t.Errorf("%s by zero: %v", kind, err)
		}
	}
}

// TestElementwiseRules: operands that do not go together are an error that names both.
func TestElementwiseRules(t *testing.T) {
	pool := ops.NewPool(1)
	defer pool.Close()
	f, d := tensor.Of([]float32{1, 2}, 2), tensor.Of([]float64{1, 2}, 2)
	flags := tensor.Of([]bool{true, false}, 2)
	for _, c := range []struct {
		kind graph.Kind
		in   []*tensor.Tensor
	}{
		{"add", []*tensor.Tensor{f, d}},
		{"add", []*tensor.Tensor{f, tensor.Of([]float32{1}, 1)}},
		{"add", []*tensor.Tensor{f}},
		{"add", []*tensor.Tensor{flags, flags}},
		{"exp", []*tensor.Tensor{tensor.Of([]int64{1}, 1)}},
		{"div", []*tensor.Tensor{tensor.Of([]int64{1}, 1), tensor.Of([]int64{1}, 1)}},
		{"bitwise_and", []*tensor.Tensor{f, f}},
		{"where", []*tensor.Tensor{f, f, f}},
		{"where", []*tensor.Tensor{flags, f, d}},
		{"eq", []*tensor.Tensor{f, flags}},
	} {
		if _, err := Compute(t.Context(), pool, graph.Standard(), c.kind, nil, c.in...); err == nil {
			t.Errorf("%s of %d operands did not fail", c.kind, len(c.in))
		}
	}
}

func BenchmarkElementwise(b *testing.B) {
	const n = 1 << 20
	x := tensor.Of(ramp(n, -6, 6), 1024, 1024)
	y := tensor.Of(ramp(n, 1, 2), 1024, 1024)
	row := tensor.Of(ramp(1024, 1, 2), 1024)
	row.Layout = tensor.Layout{Shape: tensor.Shape{1024, 1024}, Strides: []int{0, 1}}
	one := tensor.Of([]float32{1.5})
	one.Layout = tensor.Layout{Shape: tensor.Shape{1024, 1024}, Strides: []int{0, 0}}
	turned := tensor.Of(ramp(n, -6, 6), 1024, 1024)
	turned.Layout.Strides = []int{1, 1024}
	half := tensor.Tensor{DType: tensor.BFloat16, Layout: tensor.Contiguous(1024, 1024), Data: make([]byte, 2*n)}
	for _, c := range []struct {
		name  string
		kind  graph.Kind
		attrs graph.Attrs
		in    []*tensor.Tensor
	}{
		{"relu", "relu", nil, []*tensor.Tensor{x}},
		{"exp", "exp", nil, []*tensor.Tensor{x}},
		{"sigmoid", "sigmoid", nil, []*tensor.Tensor{x}},
		{"tanh", "tanh", nil, []*tensor.Tensor{x}},
		{"gelu", "gelu", nil, []*tensor.Tensor{x}},
		{"gelu by tanh", "gelu", graph.Attrs{"approximate": "tanh"}, []*tensor.Tensor{x}},
		{"silu", "silu", nil, []*tensor.Tensor{x}},
		{"sin", "sin", nil, []*tensor.Tensor{x}},
		{"add", "add", nil, []*tensor.Tensor{x, y}},
		{"add row", "add", nil, []*tensor.Tensor{x, row}},
		{"mul number", "mul", nil, []*tensor.Tensor{x, one}},
		{"add transposed", "add", nil, []*tensor.Tensor{x, turned}},
		{"mul bfloat16", "mul", nil, []*tensor.Tensor{&half, &half}},
		{"cast to bfloat16", "cast", graph.Attrs{"dtype": tensor.BFloat16}, []*tensor.Tensor{x}},
		{"cast to float16", "cast", graph.Attrs{"dtype": tensor.Float16}, []*tensor.Tensor{x}},
		{"cast to int64", "cast", graph.Attrs{"dtype": tensor.Int64}, []*tensor.Tensor{x}},
		{"lt", "lt", nil, []*tensor.Tensor{x, y}},
	} {
		b.Run(fmt.Sprint(c.name), func(b *testing.B) {
			pool := ops.NewPool(1)
			defer pool.Close()
			for b.Loop() {
				if _, err := Compute(b.Context(), pool, graph.Standard(), c.kind, c.attrs, c.in...); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/element")
		})
	}
}
