//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/cuda/sim"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/tensor"
)

// openBLAS returns a simulated GPU whose products are the simulated cuBLASLt's.
func openBLAS(t *testing.T, settings string) (*cuda.Device, *sim.Library) {
	t.Helper()
	lib := sim.New(t, settings)
	dev, err := cuda.New(cuda.Options{Library: lib.Path, CUBLASLt: lib.Path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
		lib.Check(t)
	})
	return dev, lib
}

// isProduct reports whether a graph has products.
func isProduct(g *graph.Graph) bool {
	for _, op := range g.Ops {
		if op.Kind == "linear" || op.Kind == "matmul" {
			return true
		}
	}
	return false
}

// TestProductsByCUBLASLt runs the products that PyTorch was recorded with, of which most are to be cuBLASLt's.
func TestProductsByCUBLASLt(t *testing.T) {
	dev, lib := openBLAS(t, "order=lazy:1 memory=1G")
	calls := 0
	comply(t, dev, func(g *graph.Graph) bool {
		if isProduct(g) {
			calls++
			return true
		}
		return false
	})
	if n := lib.Report().Products; n < calls/2 || calls == 0 {
		t.Errorf("cuBLASLt computed %d products of %d calls", n, calls)
	}
}

// TestCUBLASLtLies computes products whose factors lie in all ways, with all that a product ends with, beside the kernels.
func TestCUBLASLtLies(t *testing.T) {
	type make = func(w *written, a graph.Attrs) graph.Operand
	turned := func(o graph.Operand) graph.Operand {
		s, d := o.Layout.Shape, len(o.Layout.Shape)
		o.Layout.Shape, o.Layout.Strides = append(tensor.Shape{}, s...), append([]int{}, o.Layout.Strides...)
		for _, list := range [][]int{o.Layout.Shape, o.Layout.Strides} {
			list[d-2], list[d-1] = list[d-1], list[d-2]
		}
		return o
	}
	for name, c := range map[string]struct {
		make     make
		products int
	}{
		"linear": {func(w *written, a graph.Attrs) graph.Operand {
			return w.op("linear", a, w.constant(false, 2, 7, 40), w.constant(false, 12, 40), w.constant(false, 12))
		}, 1},
		"linear, clipped": {func(w *written, a graph.Attrs) graph.Operand {
			a["act"] = "relu"
			return w.op("linear", a, w.constant(false, 7, 40), w.constant(false, 12, 40), w.constant(false, 12))
		}, 1},
		"linear, added": {func(w *written, a graph.Attrs) graph.Operand {
			return w.op("linear", a, w.constant(false, 7, 40), w.constant(false, 12, 40), w.constant(false, 12), w.constant(false, 7, 12))
		}, 1},
		"linear, ended by a kernel": {func(w *written, a graph.Attrs) graph.Operand {
			a["act"] = "gelu"
			return w.op("linear", a, w.constant(false, 7, 40), w.constant(false, 12, 40), w.constant(false, 12), w.constant(false, 7, 12))
		}, 1},
		"linear, factors turned": {func(w *written, a graph.Attrs) graph.Operand {
			return w.op("linear", a, turned(w.constant(false, 40, 7)), turned(w.constant(false, 40, 12)))
		}, 1},
		"linear, not aligned": {func(w *written, a graph.Attrs) graph.Operand {
			x := w.constant(false, 7, 41)
			x.Layout = tensor.Layout{Shape: tensor.Shape{7, 40}, Strides: []int{41, 1}, Offset: 1}
			return w.op("linear", a, x, w.constant(false, 12, 40))
		}, 1},
		"linear, bias not aligned": {func(w *written, a graph.Attrs) graph.Operand {
			bias := w.constant(false, 13)
			bias.Layout = tensor.Layout{Shape: tensor.Shape{12}, Strides: []int{1}, Offset: 1}
			return w.op("linear", a, w.constant(false, 7, 40), w.constant(false, 12, 40), bias)
		}, 1},
		"linear, terms apart": {func(w *written, a graph.Attrs) graph.Operand {
			x := w.constant(false, 7, 80)
			x.Layout = tensor.Layout{Shape: tensor.Shape{7, 40}, Strides: []int{80, 2}}
			return w.op("linear", a, x, w.constant(false, 12, 40))
		}, 0},
		"batches": {func(w *written, a graph.Attrs) graph.Operand {
			a["alpha"] = 0.5
			return w.op("matmul", a, w.constant(false, 2, 3, 5, 36), w.constant(false, 2, 3, 36, 8))
		}, 1},
		"batches, turned": {func(w *written, a graph.Attrs) graph.Operand {
			return w.op("matmul", a, turned(w.constant(false, 6, 36, 5)), turned(w.constant(false, 6, 8, 36)))
		}, 1},
		"batches, added": {func(w *written, a graph.Attrs) graph.Operand {
			a["alpha"], a["beta"] = 0.5, 2.0
			return w.op("matmul", a, w.constant(false, 2, 3, 5, 36), w.constant(false, 2, 3, 36, 8), w.constant(false, 2, 3, 5, 8))
		}, 1},
		"one row each": {func(w *written, a graph.Attrs) graph.Operand {
			return w.op("matmul", a, w.constant(false, 6, 1, 36), w.constant(false, 6, 36, 8))
		}, 1},
		"heads between rows": {func(w *written, a graph.Attrs) graph.Operand {
			x, y := w.constant(false, 5, 3, 36), w.constant(false, 8, 3, 36)
			x.Layout = tensor.Layout{Shape: tensor.Shape{3, 5, 36}, Strides: []int{36, 108, 1}}
			y.Layout = tensor.Layout{Shape: tensor.Shape{3, 36, 8}, Strides: []int{36, 1, 108}}
			return w.op("matmul", a, x, y)
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var want *tensor.Tensor
			t.Run("kernels", func(t *testing.T) {
				dev, _ := openSimulated(t, "order=lazy:4 memory=64M")
				want = productResult(t, dev, c.make)
			})
			dev, lib := openBLAS(t, "order=lazy:4 memory=64M")
			got := productResult(t, dev, c.make)
			if err := devicetest.Compare(got, want, 1e-6); err != nil {
				t.Error(err)
			}
			if n := lib.Report().Products; n != c.products {
				t.Errorf("cuBLASLt computed %d products, not %d", n, c.products)
			}
		})
	}
}

// productResult computes what is written by a device's own lowering.
func productResult(t *testing.T, dev *cuda.Device, write func(w *written, a graph.Attrs) graph.Operand) *tensor.Tensor {
	t.Helper()
	w := &written{&graph.Graph{Modules: make(map[string]graph.Operand)}, t}
	w.Outputs = []graph.Output{{Name: "y", Operand: write(w, make(graph.Attrs))}}
	l, err := dev.Lower(w.Graph)
	if err != nil {
		t.Fatal(err)
	}
	out, err := interpret(t.Context(), dev, l, nil)
	if err != nil {
		t.Fatal(err)
	}
	return out["y"]
}

// TestCUBLASLtPages: by cuBLASLt, too, paging gives the bits of staying, and kept passes are those of the first ones.
func TestCUBLASLtPages(t *testing.T) {
	g := network(t, 5, widths...)
	dev, lib := openBLAS(t, "memory=64M order=lazy:3")
	l, err := dev.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	resident, _, err := passes(t.Context(), dev, planned(t, l, search.Options{Mode: plan.Resident}), 4)
	if err != nil {
		t.Fatal(err)
	}
	if err := devicetest.Compare(float32s(resident), float32s(onCPU(t, g)), 1e-6); err != nil {
		t.Errorf("not as the CPU: %v", err)
	}
	for name, p := range pagedPlans(t, l) {
		got, _, err := passes(t.Context(), dev, p, 4)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !bytes.Equal(got, resident) {
			t.Errorf("%s: other bits than resident", name)
		}
	}
	if r := lib.Report(); r.Products == 0 || r.GraphLaunches == 0 {
		t.Errorf("%+v", r)
	}
}

// TestCUBLASLtFails: where the library is not there New says so, products that it knows no way for are the kernels', and
// what fails is an error.
func TestCUBLASLtFails(t *testing.T) {
	lib := sim.New(t, "")
	var absent *cuda.UnavailableError
	_, err := cuda.New(cuda.Options{Library: lib.Path, CUBLASLt: t.TempDir() + "/libcublasLt.so"})
	if !errors.As(err, &absent) || !strings.Contains(err.Error(), "cuBLASLt") {
		t.Errorf("%v", err)
	}
	if _, err := cuda.New(cuda.Options{Library: lib.Path, CUBLASLt: "libc.so.6"}); err == nil ||
		!strings.Contains(err.Error(), "lacks cublasLt") {
		t.Errorf("%v", err)
	}
	lib.Check(t)

	g := network(t, 5, widths...)
	for fault, want := range map[string]string{
		"cublasLtMatmulAlgoGetHeuristic:1:15:+": "",
		"cublasLtMatmul:3:13":                   "cublasLtMatmul: status 13",
		"late:cublasLtMatmul:3:719":             "the GPU is lost",
	} {
		t.Run(fault, func(t *testing.T) {
			dev, lib := openBLAS(t, "memory=64M fault="+fault)
			l, err := dev.Lower(g)
			if err != nil {
				t.Fatal(err)
			}
			out, _, err := passes(t.Context(), dev, planned(t, l, search.Options{Mode: plan.Page}), 4)
			if want != "" {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil || lib.Report().Products != 0 {
				t.Fatalf("%d products: %v", lib.Report().Products, err)
			}
			if err := devicetest.Compare(float32s(out), float32s(onCPU(t, g)), 1e-6); err != nil {
				t.Error(err)
			}
		})
	}
}
