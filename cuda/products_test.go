//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"slices"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/tensor"
)

// TestProducts runs products and convolutions by blocks of every size, with and without parts.
func TestProducts(t *testing.T) {
	dev, _ := open(t, "order=lazy:3 memory=256M")
	compareProducts(t, dev)
}

// TestProductsOfOldGPUs runs them from the PTX for GPUs that cannot copy ahead.
func TestProductsOfOldGPUs(t *testing.T) {
	if testing.Short() {
		t.Skip("long under the race detector")
	}
	dev, lib := open(t, "order=lazy:3 memory=256M cc=70")
	lib.Interpret(t)
	compareProducts(t, dev)
}

// turned is an operand with its last two dimensions in each other's place.
func turned(o graph.Operand) graph.Operand {
	d := len(o.Layout.Shape)
	shape, strides := slices.Clone(o.Layout.Shape), slices.Clone(o.Layout.Strides)
	shape[d-2], shape[d-1] = shape[d-1], shape[d-2]
	strides[d-2], strides[d-1] = strides[d-1], strides[d-2]
	o.Layout = tensor.Layout{Shape: shape, Strides: strides, Offset: o.Layout.Offset}
	return o
}

// compareProducts compares products with those of the CPU.
func compareProducts(t *testing.T, dev device.Device) {
	pool := cpu.NewPool(1)
	defer pool.Close()
	cases := map[string]struct {
		write func(w *written) graph.Operand
		parts bool // there are parts
	}{
		"large blocks": {func(w *written) graph.Operand {
			return w.op("matmul", graph.Attrs{"alpha": 1.0}, w.constant(false, 82, 100, 37), w.constant(false, 82, 37, 100))
		}, false},
		"large blocks, bias and sum": {func(w *written) graph.Operand {
			a := graph.Attrs{"act": "relu"}
			return w.op("linear", a, w.constant(false, 130, 34), w.constant(false, 5300, 34), w.constant(false, 5300), w.constant(false, 130, 5300))
		}, false},
		"blocks between": {func(w *written) graph.Operand {
			a := graph.Attrs{"alpha": 0.5, "beta": 2.0}
			return w.op("matmul", a, w.constant(false, 3, 70, 20), turned(w.constant(false, 3, 300, 20)), w.constant(false, 3, 70, 300))
		}, false},
		"few rows": {func(w *written) graph.Operand {
			return w.op("linear", graph.Attrs{"act": "gelu"}, w.constant(false, 5, 30), w.constant(false, 200, 30), w.constant(false, 200))
		}, false},
		"a weight by terms": {func(w *written) graph.Operand { // as Conv1D of transformers has it
			return w.op("linear", nil, w.constant(false, 40, 33), turned(w.constant(false, 33, 260)), w.constant(false, 260))
		}, false},
		"a weight by terms, not aligned": {func(w *written) graph.Operand {
			return w.op("linear", nil, w.constant(false, 40, 33), turned(w.constant(false, 33, 131)))
		}, false},
		"turned both": {func(w *written) graph.Operand {
			return w.op("matmul", graph.Attrs{"alpha": 1.0}, turned(w.constant(false, 2, 37, 50)), turned(w.constant(false, 2, 60, 37)))
		}, false},
		"parts": {func(w *written) graph.Operand {
			a := graph.Attrs{"act": "silu"}
			return w.op("linear", a, w.constant(false, 2, 1100), w.constant(false, 30, 1100), w.constant(false, 30), w.constant(false, 2, 30))
		}, true},
		"parts of several": {func(w *written) graph.Operand {
			a := graph.Attrs{"alpha": 0.5, "beta": 2.0}
			return w.op("matmul", a, w.constant(false, 2, 3, 520), w.constant(false, 2, 520, 33), w.constant(false, 2, 3, 33))
		}, true},
	}
	type window struct{ stride, padding, dilation, groups int }
	conv := func(v window, act string, norm bool, x []int, w ...int) func(*written) graph.Operand {
		return func(g *written) graph.Operand {
			list := func(n int) (all []int) {
				for range x[2:] {
					all = append(all, n)
				}
				return all
			}
			a := graph.Attrs{"stride": list(v.stride), "padding": list(v.padding), "dilation": list(v.dilation), "groups": v.groups}
			in := []graph.Operand{g.constant(false, x...), g.constant(false, w...), g.constant(false, w[0])}
			if act != "" {
				a["act"] = act
			}
			if norm {
				a["eps"] = 1e-3
				in = append(in, g.constant(false, w[0]), g.constant(false, w[0]), g.constant(false, w[0]), g.constant(true, w[0]))
			}
			return g.op("conv", a, in...)
		}
	}
	convs := map[string]func(w *written) graph.Operand{
		"conv, large blocks":      conv(window{1, 1, 1, 1}, "relu", false, []int{1, 4, 100, 110}, 100, 4, 3, 3),
		"conv, blocks between":    conv(window{2, 1, 1, 1}, "silu", true, []int{1, 5, 127, 126}, 60, 5, 3, 3),
		"conv, few outputs":       conv(window{1, 2, 2, 1}, "", true, []int{1, 6, 9, 10}, 17, 6, 3, 3),
		"conv, even":              conv(window{2, 0, 1, 2}, "relu", true, []int{2, 8, 8, 8}, 48, 4, 2, 2),
		"conv, groups":            conv(window{1, 1, 1, 3}, "", false, []int{2, 12, 7, 5}, 60, 4, 3, 3),
		"conv of a line":          conv(window{1, 8, 1, 2}, "gelu", false, []int{2, 32, 19}, 40, 16, 16),
		"conv of a space":         conv(window{1, 1, 1, 1}, "", false, []int{1, 3, 4, 5, 6}, 20, 3, 3, 3, 3),
		"conv of patches":         conv(window{16, 0, 1, 1}, "", false, []int{1, 1, 32, 48}, 24, 1, 16, 16),
		"conv, channel by itself": conv(window{2, 1, 1, 10}, "hardswish", true, []int{2, 10, 9, 8}, 10, 1, 3, 3),
		"conv, small groups":      conv(window{1, 2, 1, 2}, "relu", true, []int{2, 6, 18, 18}, 14, 3, 5, 5),
		"conv to three channels":  conv(window{1, 1, 1, 1}, "sigmoid", false, []int{1, 9, 6, 7}, 3, 9, 3, 3),
	}
	for name, write := range convs {
		cases[name] = struct {
			write func(w *written) graph.Operand
			parts bool
		}{write, false}
	}
	cases["conv, parts"] = struct {
		write func(w *written) graph.Operand
		parts bool
	}{conv(window{1, 1, 1, 1}, "silu", true, []int{2, 60, 5, 4}, 33, 60, 3, 3), true}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := &written{&graph.Graph{Modules: make(map[string]graph.Operand)}, t}
			w.Outputs = []graph.Output{{Name: "y", Operand: c.write(w)}}
			l, err := cuda.Lower(w.Graph)
			if err != nil {
				t.Fatal(err)
			}
			if parts := l.Steps[0].WorkBytes > 0; parts != c.parts {
				t.Errorf("parts: %v", parts)
			}
			want, err := cpu.Interpret(t.Context(), pool, graph.Standard(), w.Graph, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := devicetest.Compare(w.result(dev, w.Graph), want["y"], 2e-6); err != nil {
				t.Error(err)
			}
		})
	}
}
