package runtime_test

import (
	"errors"
	"testing"

	"github.com/optimem/optimem/internal/sysmem"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

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
