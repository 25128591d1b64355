package runtime_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/optimem/optimem/internal/sysmem"
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

// TestOptionsAreChecked: what no run could do is said at the start, and a session that plans does not run.
func TestOptionsAreChecked(t *testing.T) {
	model := build(t, digitsModel, nil)
	if _, err := optimem.Page(t.Context(), nil, optimem.Options{}); err == nil {
		t.Error("a session needs no model")
	}
	if s, err := optimem.Page(t.Context(), model, optimem.Options{Precision: "fp99"}); err == nil {
		t.Error("there is a precision fp99:", s.Close())
	}
	s, err := optimem.Page(t.Context(), model, optimem.Options{PlanOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	in := digitsInput(pictures(2))
	if _, err := s.Run(t.Context(), in); !errors.Is(err, optimem.ErrPlanOnly) {
		t.Errorf("a session that only plans runs: %v", err)
	}
	if err := s.RunInto(t.Context(), in, nil); !errors.Is(err, optimem.ErrPlanOnly) {
		t.Errorf("a session that only plans runs: %v", err)
	}
	if _, err := s.RunBatch(t.Context(), in); !errors.Is(err, optimem.ErrPlanOnly) {
		t.Errorf("a session that only plans runs batches: %v", err)
	}
}

// TestShapesAreTheCallers: what a caller does with shapes that were planned for changes no plan.
func TestShapesAreTheCallers(t *testing.T) {
	s, err := optimem.Page(t.Context(), build(t, digitsModel, nil), optimem.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	shape := tensor.Shape{2, 1, 8, 8}
	if _, err := s.Plan(t.Context(), map[string]tensor.Shape{"input": shape}); err != nil {
		t.Fatal(err)
	}
	shape[0] = 5
	out, err := s.Run(t.Context(), digitsInput(pictures(5)))
	if err != nil {
		t.Fatal(err)
	}
	for name, y := range out {
		if y.Layout.Shape[0] != 5 {
			t.Errorf("of 5 rows %s has %v", name, y.Layout.Shape)
		}
	}
}

// TestResizeReachesAll: a new budget is that of a program, too, which is not among those kept any more.
func TestResizeReachesAll(t *testing.T) {
	const rows = 40
	model := build(t, digitsModel, nil)
	probe, err := optimem.Auto(t.Context(), model, optimem.Options{PlanOnly: true, Memory: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer probe.Close()
	_, err = probe.Plan(t.Context(), map[string]tensor.Shape{"input": {rows, 1, 8, 8}})
	var capacity *plan.CapacityError
	if !errors.As(err, &capacity) {
		t.Fatal(err)
	}
	s, err := optimem.Auto(t.Context(), model, optimem.Options{Memory: capacity.MinBytes + 30_000})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	run := func() int64 {
		before := s.Metrics().MovedBytes
		if _, err := s.Run(t.Context(), digitsInput(pictures(rows))); err != nil {
			t.Fatal(err)
		}
		return s.Metrics().MovedBytes - before
	}
	if run() == 0 {
		t.Fatal("nothing is paged")
	}
	for n := 1; n < rows; n++ { // more than are kept
		if _, err := s.Plan(t.Context(), map[string]tensor.Shape{"input": {n, 1, 8, 8}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Resize(t.Context(), 64<<20); err != nil {
		t.Fatal(err)
	}
	run()
	if moved := run(); moved != 0 {
		t.Errorf("%d bytes are brought in each pass within 64 MiB", moved)
	}
}

// TestAutoHasABudget: a session that nobody gives a budget takes what the host has left, and says what does not fit.
func TestAutoHasABudget(t *testing.T) {
	info := sysmem.Read()
	free, ok := info.FreeBytes()
	if !ok {
		t.Skip("nothing is known of the host's memory")
	}
	s, err := optimem.Auto(t.Context(), build(t, "../examples/digits/digits_script.pt", nil), optimem.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rows := int(free / 256) // each takes 256 bytes to go in alone
	var capacity *optimem.CapacityError
	if _, err := s.Plan(t.Context(), map[string]tensor.Shape{"input": {1, 1, 8, 8}}); err != nil {
		t.Error(err)
	}
	if p, err := s.Plan(t.Context(), map[string]tensor.Shape{"input": {rows, 1, 8, 8}}); !errors.As(err, &capacity) {
		t.Errorf("%d rows with %d bytes left: %v %v", rows, free, p, err)
	}
}

// TestAutoStaysWithinIt: what plans before took gives way where a session has such a budget, too.
func TestAutoStaysWithinIt(t *testing.T) {
	model := build(t, digitsModel, nil)
	probe, err := optimem.Auto(t.Context(), model, optimem.Options{PlanOnly: true, Memory: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer probe.Close()
	const rows = 20
	_, err = probe.Plan(t.Context(), map[string]tensor.Shape{"input": {rows, 1, 8, 8}})
	var capacity *optimem.CapacityError
	if !errors.As(err, &capacity) {
		t.Fatal(err)
	}
	budget := capacity.MinBytes + 55_000
	defer optimem.OnHost(budget)()
	s, err := optimem.Auto(t.Context(), model, optimem.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, n := range []int{11, 3, 19, 8} {
		if _, err := s.Run(t.Context(), digitsInput(pictures(n))); err != nil {
			t.Fatal(err)
		}
		m := s.Metrics()
		if held := m.WeightBytes + m.RingBytes + m.ActivationBytes + m.WorkBytes; held > budget {
			t.Errorf("after %d rows %d bytes are held, of %d", n, held, budget)
		}
	}
}
