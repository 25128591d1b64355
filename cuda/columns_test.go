//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"bytes"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/tensor"
)

// TestColumnsDoNotDependOnTheirNumber: a product that paging divides by the rows of its weight gives the bits of the whole
// one, also where as many columns as a part has would be summed in more parts of terms than the whole's.
func TestColumnsDoNotDependOnTheirNumber(t *testing.T) {
	const f32, f16, bf16, i8 = tensor.Float32, tensor.Float16, tensor.BFloat16, tensor.Int8
	dev, _ := open(t, "order=lazy:5 memory=256M")
	for name, c := range map[string]struct {
		kind         graph.Kind
		rows, weight tensor.DType
		precision    string
		m, n, k      int
	}{
		"floats":                {"linear", f32, f32, "", 16, 14000, 512},
		"a matrix":              {"matmul", f32, f32, "", 16, 14000, 512},
		"brain halves":          {"linear", bf16, bf16, "", 20, 14000, 512},
		"rounded":               {"linear", f32, f32, "tf32", 20, 14000, 512},
		"weights of halves":     {"linear", f32, f16, "bf16", 40, 14000, 512},
		"int8, exact":           {"linear", f32, i8, "", 40, 14000, 512},
		"one row":               {"linear", f32, f32, "", 1, 500, 6000},
		"one row of halves":     {"linear", f16, f16, "", 1, 500, 12000},
		"one row, int8":         {"linear", f32, i8, "", 1, 500, 24000},
		"two rows, not aligned": {"linear", f32, f32, "", 2, 500, 6001},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && c.n > 1000 && name != "floats" {
				t.Skip("a large weight")
			}
			g := &graph.Graph{Modules: make(map[string]graph.Operand)}
			constant := func(d tensor.DType, shape ...int) graph.Operand {
				x := numbers(d, shape...)
				if d == i8 {
					n, _ := x.Layout.NumElements()
					for i := range n {
						x.Data = append(x.Data, byte(31*i+i/7))
					}
				}
				return g.Whole(g.AddConst(x))
			}
			op := graph.Op{Kind: c.kind, Attrs: graph.Attrs{}}
			if c.precision != "" {
				op.Attrs["precision"] = c.precision
			}
			weight := constant(c.weight, c.n, c.k)
			if op.In = []graph.Operand{constant(c.rows, c.m, c.k), weight}; c.kind == "matmul" {
				op.In[1].Layout = tensor.Layout{Shape: tensor.Shape{c.k, c.n}, Strides: []int{1, c.k}}
				op.Attrs["alpha"], op.Attrs["beta"] = 1.0, 1.0
			} else if c.weight == i8 {
				op.In = append(op.In, graph.Absent, graph.Absent, constant(c.rows, c.n))
			}
			out, err := g.Emit(graph.Standard(), op)
			if err != nil {
				t.Fatal(err)
			}
			g.Outputs = []graph.Output{{Name: "y", Operand: g.Whole(out[0])}}
			divided, _ := rewrite.SplitRowsAt(g, func(int) []int { return []int{0, 104, 112, 400, c.n} })
			if len(divided.Ops) != 5 {
				t.Fatal("nothing is divided")
			}
			var results [2][]byte
			for i, g := range []*graph.Graph{g, divided} {
				l, err := cuda.Lower(g)
				if err != nil {
					t.Fatal(err)
				}
				got, err := interpret(t.Context(), dev, l, nil)
				if err != nil {
					t.Fatal(err)
				}
				results[i] = got["y"].Data
			}
			if !bytes.Equal(results[0], results[1]) {
				t.Error("other bits")
			}
		})
	}
}
