package runtime_test

import (
	"slices"
	"testing"

	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// TestStatesChangeSides: what a program changes is what the last pass made of it, also where another budget, or inputs of
// other shapes, have another device compute with it.
func TestStatesChangeSides(t *testing.T) {
	start := func(memory int64) *optimem.Session {
		s, err := optimem.Chunk(t.Context(), build(t, "testdata/states.pt2", nil), optimem.Options{Device: "emu:memory=64MiB", Memory: memory})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	}
	t.Run("resized", func(t *testing.T) {
		s := start(1 << 20)
		sides := make(map[bool]int)
		for i, want := range recorded(t, "states") {
			p, err := s.Plan(t.Context(), map[string]tensor.Shape{"x": want.input()["x"].Layout.Shape})
			if err != nil {
				t.Fatal(err)
			}
			sides[slices.ContainsFunc(p.Groups, func(g plan.Group) bool { return g.OnHost })]++
			got, err := s.Run(t.Context(), want.input())
			if err != nil {
				t.Fatal(err)
			}
			compare(t, got, want)
			if err := s.Resize(t.Context(), []int64{1000, 1 << 20}[i%2]); err != nil {
				t.Fatal(err)
			}
		}
		if len(sides) != 2 {
			t.Errorf("plans with groups on the host, and without: %v", sides)
		}
	})
	t.Run("shapes", func(t *testing.T) {
		s := start(2000)
		sides := make(map[bool]int)
		for i := range 6 {
			rows := []int{1, 100}[i%2]
			p, err := s.Plan(t.Context(), map[string]tensor.Shape{"x": {rows, 2}})
			if err != nil {
				t.Fatal(err)
			}
			sides[slices.ContainsFunc(p.Groups, func(g plan.Group) bool { return g.OnHost })]++
			out, err := s.Run(t.Context(), optimem.Values{"x": tensor.Of(make([]float32, 2*rows), rows, 2)})
			if err != nil {
				t.Fatal(err)
			}
			if count := numbers(t, out["count"])[0]; count != float64(i+1) {
				t.Errorf("pass %d, of %d rows, is counted as %v", i+1, rows, count)
			}
		}
		if len(sides) != 2 {
			t.Errorf("plans with groups on the host, and without: %v", sides)
		}
	})
}
