//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/tensor"
)

// TestArrangedGraphs arranges random networks, outputs and states among them, and has the CPU compute them both ways: where
// values are channels-last, whoever reads them reads the same numbers.
func TestArrangedGraphs(t *testing.T) {
	pool := cpu.NewPool(1)
	defer pool.Close()
	last := 0
	rapid.Check(t, func(r *rapid.T) {
		n := &layered{&written{&graph.Graph{Modules: make(map[string]graph.Operand)}, t}, tensor.Float16}
		values := []graph.Operand{n.conv(n.constant(2, 8, 4, 6), 16, 3, 1, 1)}
		pick := func(what string) graph.Operand { return rapid.SampledFrom(values).Draw(r, what) }
		alike := func(x graph.Operand) graph.Operand {
			var list []graph.Operand
			for _, y := range values {
				if slices.Equal(x.Layout.Shape, y.Layout.Shape) {
					list = append(list, y)
				}
			}
			return rapid.SampledFrom(list).Draw(r, "as large")
		}
		for range rapid.IntRange(2, 7).Draw(r, "ops") {
			x := pick("operand")
			s := x.Layout.Shape
			switch rapid.SampledFrom([]string{"conv", "each", "relu", "add", "norm", "pool", "cat", "some", "rows"}).Draw(r, "op") {
			case "conv":
				if s[1]%8 == 0 {
					values = append(values, n.conv(x, 16, rapid.SampledFrom([]int{1, 3}).Draw(r, "kernel"), 1, 1))
				}
			case "each":
				if s[1]%4 == 0 {
					values = append(values, n.conv(x, s[1], 3, 1, s[1]))
				}
			case "relu":
				values = append(values, n.relu(x))
			case "add":
				values = append(values, n.op("add", graph.Attrs{"alpha": 0.5}, x, alike(x)))
			case "norm":
				values = append(values, n.norm(x))
			case "pool":
				a := graph.Attrs{"kernel": []int{3, 1}, "stride": []int{1, 1}, "padding": []int{1, 0}, "dilation": []int{1, 1}}
				values = append(values, n.op("max_pool", a, x))
			case "cat":
				values = append(values, n.op("cat", graph.Attrs{"dim": rapid.IntRange(0, 3).Draw(r, "dim")}, x, alike(x)))
			case "some": // of the channels, of the pixels, or of both
				l := tensor.Layout{Shape: slices.Clone(s), Strides: slices.Clone(x.Layout.Strides), Offset: x.Layout.Offset}
				for d := 1; d < 4; d++ {
					if l.Shape[d] > 2 && rapid.Bool().Draw(r, "cut") {
						from := rapid.IntRange(0, 2).Draw(r, "from")
						l.Shape[d], l.Offset = l.Shape[d]-from, l.Offset+from*l.Strides[d]
					}
				}
				values = append(values, graph.Operand{Value: x.Value, Layout: l})
			case "rows":
				values = append(values, viewed(n.op("softmax", graph.Attrs{"dim": 3}, viewed(x, 0, 2, 3, 1)), 0, 3, 1, 2))
			}
		}
		for i := range rapid.IntRange(1, 2).Draw(r, "outputs") {
			n.Outputs = append(n.Outputs, graph.Output{Name: fmt.Sprint("y", i), Operand: pick("output")})
		}
		state := pick("what a state becomes")
		n.Updates = []graph.StateUpdate{{Operand: n.Whole(n.relu(state).Value)}}
		run := func(g *graph.Graph) map[string]*tensor.Tensor {
			h := *g
			h.Outputs = append(slices.Clone(g.Outputs), graph.Output{Name: "state", Operand: g.Updates[0].Operand})
			out, err := cpu.Interpret(t.Context(), pool, graph.Standard(), &h, nil, nil)
			if err != nil {
				r.Fatal(err)
			}
			return out
		}
		want := run(n.Graph)
		for how, g := range map[string]*graph.Graph{"what pays": cuda.Arrange(n.Graph), "all": cuda.ArrangeAll(n.Graph)} {
			makes, _ := lastConvs(g)
			last += makes
			got := run(g)
			for name := range want {
				if err := devicetest.Compare(got[name], want[name], 1e-2); err != nil {
					r.Fatalf("%s, %s: %v", how, name, err)
				}
			}
		}
	})
	if last == 0 {
		t.Error("no convolution made channels-last values")
	}
}
