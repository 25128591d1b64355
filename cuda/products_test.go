//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"slices"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/layers"
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
func turned(o layers.Operand) layers.Operand {
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
		write func(w *written) layers.Operand
		parts bool // there are parts
	}{
		"large blocks": {func(w *written) layers.Operand {
			return w.op("matmul", layers.Attrs{"alpha": 1.0}, w.constant(false, 82, 100, 13), w.constant(false, 82, 13, 100))
		}, false},
		"large blocks, bias and sum": {func(w *written) layers.Operand {
			a := layers.Attrs{"act": "relu"}
			return w.op("linear", a, w.constant(false, 130, 3), w.constant(false, 8500, 3), w.constant(false, 8500), w.constant(false, 130, 8500))
		}, false},
		"blocks between": {func(w *written) layers.Operand {
			a := layers.Attrs{"alpha": 0.5, "beta": 2.0}
			return w.op("matmul", a, w.constant(false, 3, 70, 20), turned(w.constant(false, 3, 300, 20)), w.constant(false, 3, 70, 300))
		}, false},
		"few rows": {func(w *written) layers.Operand {
			return w.op("linear", layers.Attrs{"act": "gelu"}, w.constant(false, 5, 30), w.constant(false, 200, 30), w.constant(false, 200))
		}, false},
		"a weight by terms": {func(w *written) layers.Operand { // as Conv1D of transformers has it
			return w.op("linear", nil, w.constant(false, 40, 33), turned(w.constant(false, 33, 260)), w.constant(false, 260))
		}, false},
		"a weight by terms, not aligned": {func(w *written) layers.Operand {
			return w.op("linear", nil, w.constant(false, 40, 33), turned(w.constant(false, 33, 131)))
		}, false},
		"turned both": {func(w *written) layers.Operand {
			return w.op("matmul", layers.Attrs{"alpha": 1.0}, turned(w.constant(false, 2, 37, 50)), turned(w.constant(false, 2, 60, 37)))
		}, false},
		"parts": {func(w *written) layers.Operand {
			a := layers.Attrs{"act": "silu"}
			return w.op("linear", a, w.constant(false, 2, 1100), w.constant(false, 30, 1100), w.constant(false, 30), w.constant(false, 2, 30))
		}, true},
		"parts of several": {func(w *written) layers.Operand {
			a := layers.Attrs{"alpha": 0.5, "beta": 2.0}
			return w.op("matmul", a, w.constant(false, 2, 3, 520), w.constant(false, 2, 520, 33), w.constant(false, 2, 3, 33))
		}, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := &written{&layers.Graph{Modules: make(map[string]layers.Operand)}, t}
			w.Outputs = []layers.Output{{Name: "y", Operand: c.write(w)}}
			l, err := cuda.Lower(w.Graph)
			if err != nil {
				t.Fatal(err)
			}
			if parts := l.Steps[0].WorkBytes > 0; parts != c.parts {
				t.Errorf("parts: %v", parts)
			}
			want, err := cpu.Interpret(t.Context(), pool, layers.Standard(), w.Graph, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := devicetest.Compare(w.result(dev, w.Graph), want["y"], 2e-6); err != nil {
				t.Error(err)
			}
		})
	}
}
