//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/models/aten"
	"github.com/optimem/optimem/tensor"
)

// emptied returns the arguments of a call with one dimension of a tensor of no elements, and that of others that have as
// many elements there, or not.
func emptied(args map[string]any, name string, dim int, others bool) map[string]any {
	size := args[name].(aten.Given).Layout.Shape[dim]
	all := maps.Clone(args)
	for other, v := range args {
		g, ok := v.(aten.Given)
		if !ok || other != name && (!others || len(g.Layout.Shape) <= dim || g.Layout.Shape[dim] != size) {
			continue
		}
		g.Layout = tensor.Layout{Shape: slices.Clone(g.Layout.Shape), Strides: g.Layout.Strides, Offset: g.Layout.Offset}
		g.Layout.Shape[dim] = 0
		all[other] = g
	}
	return all
}

// TestNoElements runs the recorded calls with each dimension of a tensor empty in turn: what the CPU computes of it, the GPU
// does, and no kernel is launched by no blocks.
func TestNoElements(t *testing.T) {
	dev, _ := open(t, "order=lazy:1 memory=1G")
	pool := cpu.NewPool(1)
	defer pool.Close()
	cases, err := devicetest.Cases()
	if err != nil {
		t.Fatal(err)
	}
	ran, seen := 0, make(map[string]int)
	for _, c := range cases {
		if seen[c.Target]++; testing.Short() && seen[c.Target] > 1 {
			continue // a call of each
		}
		for _, name := range slices.Sorted(maps.Keys(c.Args)) {
			given, ok := c.Args[name].(aten.Given)
			for dim := 0; ok && dim < len(given.Layout.Shape); dim++ {
				for _, others := range []bool{false, true} {
					g, err := aten.BuildCall(graph.Standard(), c.Target, emptied(c.Args, name, dim, others))
					if err != nil {
						continue // the op does not take it
					}
					l, err := dev.Lower(g)
					if err != nil {
						continue
					}
					want, err := cpu.Interpret(t.Context(), pool, graph.Standard(), g, nil, c.Inputs)
					if err != nil {
						continue
					}
					what := fmt.Sprintf("%s with dimension %d of %s empty, others %v", c.Name, dim, name, others)
					got, err := interpret(t.Context(), dev, l, c.Inputs)
					if err != nil {
						t.Fatalf("%s: %v", what, err)
					}
					ran++
					if len(got) != len(want) {
						t.Errorf("%s: %d results, the CPU gave %d", what, len(got), len(want))
					}
					for i := range want {
						if err := devicetest.Compare(got[i], want[i], max(c.Bound, 1e-5)); err != nil {
							t.Errorf("%s: result %s: %v", what, i, err)
						}
					}
				}
			}
		}
	}
	t.Logf("%d calls ran", ran)
	if ran < 100 {
		t.Error("few calls ran")
	}
}
