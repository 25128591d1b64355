package runtime_test

import (
	"testing"

	optimem "github.com/optimem/optimem/runtime"
)

// A run computes the branches that the data asks for and no other: the gate is in the first branch of the outer
// conditional and in the first of the one inside its second branch.
func TestBranches(t *testing.T) {
	passed := 0
	g := &gate{pass: func() { passed++ }}
	ops := g.registry(t)
	model := build(t, "testdata/cond.pt2", ops)
	s := start(t, model, optimem.ResidentOptions{Ops: ops})
	runs := recorded(t, "cond")
	for i, want := range []int{1, 1, 0, 1} {
		passed = 0
		got, err := s.Run(t.Context(), runs[i].input())
		if err != nil {
			t.Fatal(err)
		}
		if passed != want {
			t.Errorf("run %d passed the gate %d times, want %d", i, passed, want)
		}
		compare(t, got, runs[i])
	}
}

// What the branches need is planned whether it is taken or not: a first run of one shape reads all weights.
func TestBranchesArePlanned(t *testing.T) {
	g := &gate{}
	ops := g.registry(t)
	s := start(t, build(t, "testdata/cond.pt2", ops), optimem.ResidentOptions{Ops: ops})
	var before optimem.Metrics
	for i, run := range recorded(t, "cond")[:2] { // one row each, by different branches
		if _, err := s.Run(t.Context(), run.input()); err != nil {
			t.Fatal(err)
		}
		m := s.Metrics()
		m.Runs, m.Calls, m.Passing, m.Compute = 0, 0, 0, 0 // not what is held
		if i > 0 && m != before {
			t.Errorf("the other branch changed what is held: %+v, before %+v", m, before)
		}
		before = m
	}
}
