//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"strings"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/tensor"
)

// TestGemv compares linears of few rows, and of narrow weights, with the CPU's.
func TestGemv(t *testing.T) {
	dev, _ := open(t, "order=lazy:5 memory=64M")
	compareGemv(t, dev)
}

func compareGemv(t *testing.T, dev device.Device) {
	const f32, f16, bf16, i8, none = tensor.Float32, tensor.Float16, tensor.BFloat16, tensor.Int8, tensor.Invalid
	pool := cpu.NewPool(1)
	defer pool.Close()
	for name, c := range map[string]struct {
		rows, weight, scales, bias tensor.DType
		m, n, k                    int
		added, uneven              bool
		act                        string
	}{
		"one row":              {f32, f32, none, f32, 1, 10, 1032, true, false, "silu"},
		"three rows":           {f32, f32, none, none, 3, 9, 40, true, false, ""},
		"halves":               {f16, f16, none, none, 8, 7, 64, false, false, ""},
		"brain halves":         {bf16, bf16, none, bf16, 2, 12, 2056, false, false, ""},
		"not aligned":          {f16, f16, none, none, 5, 6, 45, false, false, ""},
		"uneven rows":          {f32, f32, none, f32, 6, 6, 16, true, true, ""},
		"half weight":          {f32, f16, none, f32, 1, 33, 72, false, false, ""},
		"brain weight":         {f32, bf16, none, bf16, 20, 6, 72, true, false, "relu"},
		"brain weight, many":   {f32, bf16, none, bf16, 40, 70, 50, true, false, "relu"},
		"int8, across":         {f32, i8, f32, f32, 3, 41, 37, false, false, ""},
		"half bias, many rows": {f32, f32, none, f16, 40, 9, 24, false, false, ""},
		"int8":                 {f32, i8, f32, f32, 1, 21, 520, false, false, ""},
		"int8, not aligned":    {f32, i8, f16, none, 9, 5, 41, false, false, "tanh"},
		"int8 of brain halves": {bf16, i8, bf16, bf16, 11, 8, 64, false, false, ""},
		"few lines":            {f32, f32, none, f32, 1, 6, 90120, true, false, "silu"},
		"few lines, rows":      {f16, f16, none, none, 3, 9, 120000, false, false, ""},
		"few lines, uneven":    {f16, i8, f16, none, 4, 12, 180000, false, true, ""},
		"few lines, across":    {bf16, i8, bf16, bf16, 2, 141, 15001, false, false, ""},
		"int8, many rows":      {f32, i8, f32, f16, 50, 66, 40, false, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && c.k > 100000 {
				t.Skip("a large weight")
			}
			g := &graph.Graph{Modules: make(map[string]graph.Operand)}
			add := func(d tensor.DType, shape ...int) graph.Operand {
				if d == none {
					return graph.Absent
				}
				x := numbers(d, shape...)
				if d == i8 {
					n, _ := x.Layout.NumElements()
					for i := range n {
						x.Data = append(x.Data, byte(31*i+7))
					}
				}
				return g.Whole(g.AddConst(x))
			}
			x := add(c.rows, c.m, c.k)
			if c.uneven { // rows of two halves of a larger matrix
				x = add(c.rows, 2, c.m, c.k)
				x.Layout.Shape = tensor.Shape{2, c.m / 2, c.k}
			}
			weight := add(c.weight, c.n, c.k)
			if strings.Contains(name, "across") {
				weight.Layout = tensor.Contiguous(c.k, c.n)
				weight = turned(weight)
			}
			op := graph.Op{Kind: "linear", Attrs: graph.Attrs{"act": c.act}, In: []graph.Operand{
				x, weight, add(c.bias, c.n), graph.Absent, add(c.scales, c.n),
			}}
			if c.added {
				op.In[3] = add(c.rows, append(append(tensor.Shape{}, x.Layout.Shape[:len(x.Layout.Shape)-1]...), c.n)...)
			}
			out, err := g.Emit(graph.Standard(), op)
			if err != nil {
				t.Fatal(err)
			}
			g.Outputs = []graph.Output{{Name: "y", Operand: g.Whole(out[0])}}
			l, err := cuda.Lower(g)
			if err != nil {
				t.Fatal(err)
			}
			got, err := interpret(t.Context(), dev, l, nil)
			if err != nil {
				t.Fatal(err)
			}
			want, err := cpu.Interpret(t.Context(), pool, graph.Standard(), g, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			bound := map[tensor.DType]float64{f32: 2e-6, f16: 2e-3, bf16: 1.6e-2}[c.rows]
			if err := devicetest.Compare(got["y"], want["y"], bound); err != nil {
				t.Error(err)
			}
		})
	}
}
