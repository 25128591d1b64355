//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/tensor"
)

// A viewedCase is an op over views that kernels have a shorter way for when they lie otherwise.
type viewedCase struct {
	write func(w *written) graph.Operand
	bound float64
}

// of makes an operand of a dtype; laid is a view of it.
func (w *written) of(d tensor.DType, shape ...int) graph.Operand {
	return w.Whole(w.AddConst(numbers(d, shape...)))
}

func laid(o graph.Operand, offset int, shape tensor.Shape, strides ...int) graph.Operand {
	o.Layout = tensor.Layout{Shape: shape, Strides: strides, Offset: offset}
	return o
}

func viewedCases() map[string]viewedCase {
	const f32, f64, f16, bf16 = tensor.Float32, tensor.Float64, tensor.Float16, tensor.BFloat16
	gates := func(w *written, gates, input, width int) []graph.Operand {
		return []graph.Operand{
			w.of(f32, gates*width, input), w.of(f32, gates*width, width), w.of(f32, gates*width), w.of(f32, gates*width), graph.Absent,
		}
	}
	return map[string]viewedCase{
		"eight dimensions": {func(w *written) graph.Operand {
			x := w.of(f32, 2, 2, 2, 2, 2, 2, 2, 2)
			return w.op("neg", nil, laid(x, 0, x.Layout.Shape, 1, 2, 4, 8, 16, 32, 64, 128))
		}, 0},
		"lines of six": {func(w *written) graph.Operand {
			return w.op("neg", nil, laid(w.of(f32, 4, 8), 0, tensor.Shape{4, 6}, 8, 1))
		}, 0},
		"halves from the middle of a line": {func(w *written) graph.Operand {
			return w.op("exp", nil, laid(w.of(f16, 4, 8), 3, tensor.Shape{3, 4}, 8, 1))
		}, 1e-3},
		"doubles from the middle of a line": {func(w *written) graph.Operand {
			return w.op("exp", nil, laid(w.of(f64, 4, 8), 3, tensor.Shape{3, 4}, 8, 1))
		}, 1e-14},
		"every second bias": {func(w *written) graph.Operand {
			a := graph.Attrs{"stride": []int{1}, "padding": []int{1}, "dilation": []int{1}, "groups": 1}
			return w.op("conv", a, w.of(f32, 1, 3, 20), w.of(f32, 17, 3, 3), laid(w.of(f32, 34), 0, tensor.Shape{17}, 2))
		}, 2e-6},
		"columns apart are added": {func(w *written) graph.Operand {
			return w.op("linear", nil, w.of(f32, 40, 24), w.of(f32, 12, 24), w.of(f32, 12), laid(w.of(f32, 40, 24), 0, tensor.Shape{40, 12}, 24, 2))
		}, 2e-6},
		"one column is added to all": {func(w *written) graph.Operand {
			return w.op("linear", nil, w.of(f32, 40, 24), w.of(f32, 12, 24), graph.Absent, laid(w.of(f32, 40), 0, tensor.Shape{40, 12}, 1, 0))
		}, 2e-6},
		"nought times what is no number": {func(w *written) graph.Operand {
			added := numbers(f32, 40, 12)
			for _, i := range []int{0, 100, 479} {
				binary.LittleEndian.PutUint32(added.Data[4*i:], math.Float32bits(float32(math.NaN())))
			}
			return w.op("matmul", graph.Attrs{"alpha": 1.0, "beta": 0.0}, w.of(f32, 40, 24), w.of(f32, 24, 12), w.Whole(w.AddConst(added)))
		}, 2e-6},
		"nought times what is no number, doubles": {func(w *written) graph.Operand {
			added := numbers(f64, 4, 12)
			binary.LittleEndian.PutUint64(added.Data[8*5:], math.Float64bits(math.NaN()))
			return w.op("matmul", graph.Attrs{"alpha": 1.0, "beta": 0.0}, w.of(f64, 4, 24), w.of(f64, 24, 12), w.Whole(w.AddConst(added)))
		}, 1e-14},
		"part of a table": {func(w *written) graph.Operand {
			ids := w.Whole(w.AddConst(tensor.Of([]int64{3, 5, 2, 4}, 4)))
			return w.op("embedding_rows", graph.Attrs{"low": 2, "size": 9}, w.of(f32, 4, 6), ids)
		}, 0},
		"the rest of a table": {func(w *written) graph.Operand {
			ids := w.Whole(w.AddConst(tensor.Of([]int64{3, 0, 8, 5}, 4)))
			return w.op("embedding_rows", graph.Attrs{"low": 2, "size": 9}, w.of(f32, 4, 6), ids, w.constant(false, 4, 6))
		}, 0},
		"a mean with what is around": {func(w *written) graph.Operand {
			a := graph.Attrs{"kernel": []int{6, 6}, "stride": []int{8, 8}, "padding": []int{1, 2}, "count_include_pad": true}
			return w.op("avg_pool", a, w.of(f32, 2, 3, 6, 6))
		}, 1e-6},
		"a mean without what is around": {func(w *written) graph.Operand {
			a := graph.Attrs{"kernel": []int{6, 6}, "stride": []int{8, 8}, "padding": []int{1, 2}, "count_include_pad": false}
			return w.op("avg_pool", a, w.of(f32, 2, 3, 6, 6))
		}, 1e-6},
		"backwards": {func(w *written) graph.Operand {
			in := append([]graph.Operand{w.of(f32, 5, 3, 7), graph.Absent, w.of(f32, 1, 3, 8), graph.Absent}, gates(w, 3, 7, 8)...)
			return w.op("gru", graph.Attrs{"reverse": true}, in...)
		}, 2e-6},
		"backwards, with cells": {func(w *written) graph.Operand {
			in := append([]graph.Operand{w.of(f32, 5, 3, 7), graph.Absent, w.of(f32, 1, 3, 8), w.of(f32, 1, 3, 8)}, gates(w, 4, 7, 8)...)
			return w.op("lstm", graph.Attrs{"reverse": true}, in...)
		}, 2e-6},
		"the logarithm of a long sum": {func(w *written) graph.Operand {
			return w.op("logsumexp", graph.Attrs{"dims": []int{1}}, w.of(f32, 2, 12300))
		}, 1e-6},
		"the variance of many": {func(w *written) graph.Operand {
			return w.op("var", graph.Attrs{"dims": []int{1}, "correction": 1.0}, w.of(f32, 2, 12300))
		}, 1e-5},
		"groups whose channels end anywhere": {func(w *written) graph.Operand {
			return w.op("group_norm", graph.Attrs{"groups": 2, "eps": 1e-5}, w.of(f32, 2, 8, 3), w.of(f32, 8), w.constant(false, 8))
		}, 4e-6},
		"lines that just fit": {func(w *written) graph.Operand {
			return w.op("sort", graph.Attrs{"dim": 1, "descending": true}, w.of(f32, 3, 1000))
		}, 0},
		"lines that just do not fit": {func(w *written) graph.Operand {
			return w.op("sort", graph.Attrs{"dim": 0}, w.of(f32, 1025, 2))
		}, 0},
		"steps of floats": {func(w *written) graph.Operand {
			return w.op("linspace", graph.Attrs{"start": 0.0, "end": 1.0, "steps": 100, "dtype": f32})
		}, 0},
		"steps of halves": {func(w *written) graph.Operand {
			return w.op("linspace", graph.Attrs{"start": -3.0, "end": 7.3, "steps": 37, "dtype": bf16})
		}, 0},
	}
}

// TestViews compares ops over views with the CPU's.
func TestViews(t *testing.T) {
	dev, _ := open(t, "order=lazy:2 memory=64M")
	pool := cpu.NewPool(1)
	defer pool.Close()
	for name, c := range viewedCases() {
		t.Run(name, func(t *testing.T) {
			w := &written{&graph.Graph{Modules: make(map[string]graph.Operand)}, t}
			w.Outputs = []graph.Output{{Name: "y", Operand: c.write(w)}}
			want, err := cpu.Interpret(t.Context(), pool, graph.Standard(), w.Graph, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := devicetest.Compare(w.result(dev, w.Graph), want["y"], c.bound); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestViewsAreAligned runs, from the PTX, ops whose operands begin between the sixteen bytes that a kernel would like to copy at
// a time: the interpreter finds what a GPU would not read.
func TestViewsAreAligned(t *testing.T) {
	const f32, f16 = tensor.Float32, tensor.Float16
	dev, lib := openSimulated(t, "order=lazy:2 memory=64M cc=80")
	lib.Interpret(t)
	pool := cpu.NewPool(1)
	defer pool.Close()
	heads := func(w *written, d tensor.DType, gap, lines, columns int) graph.Operand { // matrices that begin anywhere
		return laid(w.of(d, 2*(lines*columns+gap)), 0, tensor.Shape{2, 1, lines, columns}, lines*columns+gap, lines*columns, columns, 1)
	}
	attention := graph.Attrs{"scale": 0.3, "is_causal": false}
	for name, c := range map[string]viewedCase{
		"rows of halves": {func(w *written) graph.Operand {
			return w.op("linear", nil, laid(w.of(f16, 40, 48), 1, tensor.Shape{34, 40}, 48, 1), w.of(f16, 12, 40))
		}, 2e-3},
		"a weight of halves": {func(w *written) graph.Operand {
			return w.op("linear", nil, w.of(f16, 34, 40), laid(w.of(f16, 13, 48), 2, tensor.Shape{12, 40}, 48, 1))
		}, 2e-3},
		"a weight by terms": {func(w *written) graph.Operand {
			return w.op("linear", nil, w.of(f32, 34, 24), laid(w.of(f32, 25, 24), 1, tensor.Shape{20, 24}, 1, 24))
		}, 2e-6},
		"keys": {func(w *written) graph.Operand {
			return w.op("scaled_dot_product_attention", attention, w.of(f32, 2, 1, 1, 8), heads(w, f32, 2, 130, 8), heads(w, f32, 0, 130, 8))
		}, 4e-6},
		"values": {func(w *written) graph.Operand {
			return w.op("scaled_dot_product_attention", attention, w.of(f32, 2, 1, 1, 8), heads(w, f32, 0, 130, 8), heads(w, f32, 1, 130, 8))
		}, 4e-6},
		"queries of halves": {func(w *written) graph.Operand {
			return w.op("scaled_dot_product_attention", attention, heads(w, f16, 4, 20, 16), w.of(f16, 2, 1, 18, 16), w.of(f16, 2, 1, 18, 16))
		}, 2e-3},
	} {
		t.Run(name, func(t *testing.T) {
			w := &written{&graph.Graph{Modules: make(map[string]graph.Operand)}, t}
			w.Outputs = []graph.Output{{Name: "y", Operand: c.write(w)}}
			want, err := cpu.Interpret(t.Context(), pool, graph.Standard(), w.Graph, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := devicetest.Compare(w.result(dev, w.Graph), want["y"], c.bound); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestWidenedOnOldGPUs: where there are no tensor cores a narrow weight of many rows is widened in memory, and a narrow bias
// beside it.
func TestWidenedOnOldGPUs(t *testing.T) {
	dev, _ := openSimulated(t, "order=lazy:2 memory=64M cc=70")
	pool := cpu.NewPool(1)
	defer pool.Close()
	w := &written{&graph.Graph{Modules: make(map[string]graph.Operand)}, t}
	y := w.op("linear", nil, w.of(tensor.Float32, 40, 24), w.of(tensor.BFloat16, 12, 24), w.of(tensor.BFloat16, 12))
	w.Outputs = []graph.Output{{Name: "y", Operand: y}}
	want, err := cpu.Interpret(t.Context(), pool, graph.Standard(), w.Graph, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := cuda.LowerFor(rewrite.Narrow(w.Graph, "bf16"), 70)
	if err != nil {
		t.Fatal(err)
	}
	got, err := interpret(t.Context(), dev, l, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := devicetest.Compare(got["y"], want["y"], 1.6e-2); err != nil {
		t.Error(err)
	}
}
