package runtime_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/optimem/optimem/graph"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// TestExtend: a session computes the outputs of the graph that Extend returns, and no others; an error of it is the
// run's.
func TestExtend(t *testing.T) {
	model, in := build(t, digitsModel, nil), digitsInput(pictures(2))
	want, err := start(t, model, optimem.Options{}).Run(t.Context(), in)
	if err != nil || len(want) != 1 {
		t.Fatalf("%d outputs: %v", len(want), err)
	}
	extended := start(t, model, optimem.Options{Extend: func(g *graph.Graph) (*graph.Graph, error) {
		wide := *g
		wide.Values, wide.Ops = slices.Clip(g.Values), slices.Clip(g.Ops)
		out, err := wide.Emit(graph.Standard(), graph.Op{Kind: "neg", In: []graph.Operand{g.Outputs[0].Operand}})
		if err != nil {
			return nil, err
		}
		wide.Outputs = []graph.Output{{Name: "less", Operand: wide.Whole(out[0])}}
		return &wide, nil
	}})
	got, err := extended.Run(t.Context(), in)
	if err != nil || len(got) != 1 {
		t.Fatalf("%d outputs: %v", len(got), err)
	}
	for _, all := range want {
		a, _ := tensor.Slice[float32](all)
		b, _ := tensor.Slice[float32](got["less"])
		if len(a) == 0 || len(a) != len(b) {
			t.Fatalf("%d numbers, want %d", len(b), len(a))
		}
		for i := range a {
			if a[i] != -b[i] {
				t.Fatalf("number %d is %v, want %v", i, b[i], -a[i])
			}
		}
	}
	refused := errors.New("refused")
	bad := start(t, model, optimem.Options{Extend: func(*graph.Graph) (*graph.Graph, error) { return nil, refused }})
	if _, err := bad.Run(t.Context(), in); !errors.Is(err, refused) {
		t.Errorf("an error of Extend: %v", err)
	}
}
