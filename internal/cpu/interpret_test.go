package cpu

import (
	"slices"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// TestInterpretHonoursGuards runs a graph in which one of two ops computes what is chosen.
func TestInterpretHonoursGuards(t *testing.T) {
	runs := 0
	registry, err := graph.Standard().With(graph.OpDef{
		Kind:  "test::negate",
		Shape: func(in []graph.Spec, _ graph.Attrs) ([]graph.Spec, error) { return in, nil },
		Reference: func(in, out []*tensor.Tensor, _ graph.Attrs) error {
			runs++
			out[0].Data[0] = -in[0].Data[0]
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	g := &graph.Graph{}
	x := g.Whole(g.AddInput("x", tensor.UInt8, tensor.Shape{1}))
	flags := g.AddInput("flags", tensor.Bool, tensor.Shape{2})
	second := graph.Operand{Value: flags, Layout: tensor.Layout{Shape: tensor.Shape{}, Strides: []int{}, Offset: 1}}
	emit := func(op graph.Op) graph.Operand {
		t.Helper()
		out, err := g.Emit(registry, op)
		if err != nil {
			t.Fatal(err)
		}
		return g.Whole(out[0])
	}
	guarded := func(want bool, in graph.Operand) graph.Operand {
		return emit(graph.Op{
			Kind: "test::negate", In: []graph.Operand{in}, Guard: []graph.Guard{{Predicate: second, Want: want}},
		})
	}
	yes, no := guarded(true, x), guarded(false, x)
	twice := guarded(false, no)
	y := emit(graph.Op{Kind: "choose", In: []graph.Operand{second, yes, twice}})
	g.Outputs = []graph.Output{{Name: "y", Operand: y}}
	pool := ops.NewPool(1)
	defer pool.Close()
	for flag, want := range []struct {
		runs int
		y    byte
	}{{2, 7}, {1, 249}} {
		runs = 0
		in := map[string]*tensor.Tensor{
			"x":     {DType: tensor.UInt8, Layout: tensor.Contiguous(1), Data: []byte{7}},
			"flags": {DType: tensor.Bool, Layout: tensor.Contiguous(2), Data: []byte{1 - byte(flag), byte(flag)}},
		}
		out, err := Interpret(t.Context(), pool, registry, g, nil, in)
		if err != nil {
			t.Fatal(err)
		}
		if runs != want.runs || !slices.Equal(out["y"].Data, []byte{want.y}) {
			t.Errorf("flag %d: %d ops ran and gave %v, want %d and %d", flag, runs, out["y"].Data, want.runs, want.y)
		}
	}
}
