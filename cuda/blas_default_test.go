//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/cuda/sim"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/tensor"
)

// A multiplied is a linear of m rows.
type multiplied struct {
	dtype     tensor.DType
	precision string
	m, n, k   int
	// alone says that a row's bits are to depend on no other row.
	alone bool
	act   string
}

// graph returns the linear's graph, of inputs or of constants.
func (c *multiplied) graph(t *testing.T, constants bool) *graph.Graph {
	t.Helper()
	g := &graph.Graph{Modules: make(map[string]graph.Operand)}
	factor := func(name string, shape ...int) graph.Operand {
		if !constants {
			return g.Whole(g.AddInput(name, c.dtype, shape))
		}
		return g.Whole(g.AddConst(numbers(c.dtype, shape...)))
	}
	attrs := graph.Attrs{}
	for name, text := range map[string]string{"precision": c.precision, "act": c.act} {
		if text != "" {
			attrs[name] = text
		}
	}
	if c.alone {
		attrs[graph.RowsAlone] = true
	}
	op := graph.Op{Kind: "linear", Attrs: attrs, In: []graph.Operand{factor("x", c.m, c.k), factor("w", c.n, c.k)}}
	if constants {
		op.In = append(op.In, factor("bias", c.n), factor("added", c.m, c.n))
	}
	out, err := g.Emit(graph.Standard(), op)
	if err != nil {
		t.Fatal(err)
	}
	g.Outputs = []graph.Output{{Name: "y", Operand: g.Whole(out[0])}}
	return g
}

// TestCUBLASLtChosen: without being asked cuBLASLt gets large products on tensor cores on GPUs whose fastest ones our kernels do not
// use, and no others, and its workspace is in the plan. The choice follows from the sizes and the GPU.
func TestCUBLASLtChosen(t *testing.T) {
	const half, brain, float = tensor.Float16, tensor.BFloat16, tensor.Float32
	large := multiplied{half, "", 2048, 1024, 1024, false, ""}
	with := func(change func(c *multiplied)) multiplied {
		c := large
		change(&c)
		return c
	}
	for name, c := range map[string]struct {
		gpu, path string
		of        multiplied
		chosen    bool
	}{
		"halves on 9.0":         {"90", "", large, true},
		"brain halves on 10.0":  {"100", "", with(func(c *multiplied) { c.dtype = brain }), true},
		"rounded on 11.0":       {"110", "", with(func(c *multiplied) { c.dtype, c.precision = float, "tf32" }), true},
		"rounded to halves":     {"90", "", with(func(c *multiplied) { c.dtype, c.precision = float, "bf16" }), true},
		"exact":                 {"90", "", with(func(c *multiplied) { c.dtype = float }), true},
		"exact on 10.0":         {"100", "", with(func(c *multiplied) { c.dtype = float }), false},
		"on 8.0":                {"80", "", large, false},
		"on 8.9":                {"89", "", large, false},
		"on 12.0":               {"120", "", large, false},
		"not wanted":            {"90", "none", large, false},
		"small":                 {"90", "", with(func(c *multiplied) { c.m = 63 }), false},
		"few rows":              {"90", "", with(func(c *multiplied) { c.m, c.n = 15, 1<<14 }), false},
		"few columns":           {"90", "", with(func(c *multiplied) { c.m, c.n = 1<<14, 15 }), false},
		"smaller":               {"90", "", with(func(c *multiplied) { c.m = 64 }), true},
		"small on 10.0":         {"100", "", with(func(c *multiplied) { c.m = 2047 }), false},
		"few rows on 10.0":      {"100", "", with(func(c *multiplied) { c.m, c.n = 128, 1<<14 }), false},
		"few columns on 10.0":   {"100", "", with(func(c *multiplied) { c.m, c.n = 1<<14, 128 }), false},
		"lines not at sixteens": {"90", "", with(func(c *multiplied) { c.k = 1028 }), false},
		"of a text":             {"90", "", with(func(c *multiplied) { c.alone = true }), false},
	} {
		t.Run(name, func(t *testing.T) {
			lib := sim.New(t, "cc="+c.gpu)
			dev, err := cuda.New(cuda.Options{Library: lib.Path, CUBLASLt: c.path})
			if err != nil {
				t.Fatal(err)
			}
			if lib.Report().Left["blas"] > 0 {
				t.Error("the library is opened before there is a product for it")
			}
			g := c.of.graph(t, false)
			for range 2 {
				l, err := dev.Lower(g)
				if err != nil {
					t.Fatal(err)
				}
				step := l.Steps[0]
				if got := step.Kernel == "cublaslt"; got != c.chosen || got && step.WorkBytes < 32<<20 {
					t.Errorf("kernel %q, %d bytes", step.Kernel, step.WorkBytes)
				}
			}
			divided, _ := rewrite.SplitRowsAt(g, func(int) []int { return []int{0, 8, max(c.of.n/2, 9), c.of.n} })
			l, err := dev.Lower(divided)
			if err != nil {
				t.Fatal(err)
			}
			for _, step := range l.Steps[:3] {
				if got := step.Kernel == "cublaslt"; got != c.chosen {
					t.Errorf("of a part kernel %q", step.Kernel)
				}
			}
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
			lib.Check(t)
		})
	}
}

// TestCUBLASLtColumns: a product that paging divides has the bits of the whole one by cuBLASLt, too, though the way that it knows for
// as many columns is another.
func TestCUBLASLtColumns(t *testing.T) {
	for name, c := range map[string]multiplied{
		"halves":            {tensor.Float16, "", 20, 88, 64, false, ""},
		"brain halves":      {tensor.BFloat16, "", 20, 88, 64, false, ""},
		"floats":            {tensor.Float32, "", 20, 88, 64, false, ""},
		"ended by a kernel": {tensor.Float32, "tf32", 20, 88, 64, false, "gelu"},
		"one row":           {tensor.Float16, "", 1, 88, 64, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dev, lib := openBLAS(t, "order=lazy:5 memory=128M cc=90")
			g := c.graph(t, true)
			divided, _ := rewrite.SplitRowsAt(g, func(int) []int { return []int{0, 8, 32, 48, c.n} })
			var results [][]byte
			for i, g := range []*graph.Graph{g, divided, g} {
				l, err := dev.Lower(g)
				if err != nil {
					t.Fatal(err)
				}
				before := lib.Report().Products
				got, err := interpret(t.Context(), dev, l, nil)
				if err != nil {
					t.Fatal(err)
				}
				if n := lib.Report().Products - before; n != []int{1, 4, 1}[i] {
					t.Errorf("%d products", n)
				}
				results = append(results, got["y"].Data)
			}
			if !bytes.Equal(results[0], results[1]) || !bytes.Equal(results[0], results[2]) {
				t.Error("other bits")
			}
		})
	}
}

// TestCUBLASLtUnasked: where the library fails and nobody asked for it the kernels compute, and the context comes back with it.
func TestCUBLASLtUnasked(t *testing.T) {
	defer cuda.BLASFrom(1<<10, 8)()
	c := multiplied{tensor.Float16, "", 20, 88, 64, false, ""}
	results := make(map[string][]byte)
	for name, settings := range map[string]string{
		"computes": "", "cannot be opened": " fault=cublasLtCreate:1:1:+", "knows no way": " fault=cublasLtMatmulAlgoGetHeuristic:1:15:+",
		"does not come back": " fault=cublasLtCreate:2:1:+", "is asked while away": "",
	} {
		t.Run(name, func(t *testing.T) {
			dev, lib := openSimulated(t, "order=lazy:5 memory=128M cc=90"+settings)
			if name == "is asked while away" {
				if err := dev.Rest(); err != nil {
					t.Fatal(err)
				}
			}
			l, err := dev.Lower(c.graph(t, true))
			if err != nil {
				t.Fatal(err)
			}
			if name == "is asked while away" && !dev.Resting() {
				t.Error("the context is taken for a plan")
			}
			for range 2 {
				out, err := interpret(t.Context(), dev, l, nil)
				if err != nil {
					t.Fatal(err)
				}
				results[name] = append(results[name], out["y"].Data...)
				if err := dev.Rest(); err != nil {
					t.Fatal(err)
				}
			}
			want := map[string]int{"computes": 2, "is asked while away": 2, "does not come back": 1}[name]
			if n := lib.Report().Products; n != want {
				t.Errorf("%d products, want %d", n, want)
			}
		})
	}
	for _, name := range slices.Sorted(maps.Keys(results)) {
		if n := len(results[name]); n != 2*20*88*2 {
			t.Errorf("%s: %d bytes", name, n)
		}
	}
	if !bytes.Equal(results["computes"], results["is asked while away"]) {
		t.Error("other bits")
	}
}

// TestCUBLASLtRefusesAPart: where the library does not take the way of a whole product for a part, the kernels compute that.
func TestCUBLASLtRefusesAPart(t *testing.T) {
	dev, lib := openBLAS(t, "order=lazy:5 memory=128M fault=cublasLtMatmulAlgoCheck:1:15:+")
	c := multiplied{tensor.Float32, "", 20, 88, 64, false, ""}
	divided, _ := rewrite.SplitRowsAt(c.graph(t, true), func(int) []int { return []int{0, 8, 32, 48, c.n} })
	l, err := dev.Lower(divided)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := interpret(t.Context(), dev, l, nil); err != nil || lib.Report().Products != 0 {
		t.Errorf("%d products: %v", lib.Report().Products, err)
	}
}
