package runtime_test

import (
	"cmp"
	"errors"
	"math"
	"testing"

	"github.com/optimem/optimem/internal/sysmem"
	"github.com/optimem/optimem/plan"
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

// TestBudgets: what the user said of memory, or did not, is the same number of bytes in every mode.
func TestBudgets(t *testing.T) {
	const free = 8 << 27 // less 128 MiB is more than five eighths of it
	defer optimem.OnHost(free / 8 * 5)()
	model := build(t, digitsModel, nil)
	const emulated = "emu:memory=1MiB,bandwidth=1GB/s"
	for _, c := range []struct {
		opts         optimem.Options
		device, host int64
	}{
		{optimem.Options{}, free - 128<<20, 0},
		{optimem.Options{Reserve: 100 << 20}, free - 228<<20, 0},
		{optimem.Options{Reserve: 4 << 30}, 1, 0},
		{optimem.Options{Memory: 1 << 20}, 1 << 20, 0},
		{optimem.Options{Memory: 1 << 20, Reserve: 100 << 20}, 1 << 20, 0},
		{optimem.Options{MemoryShare: 0.25}, free / 4, 0},
		{optimem.Options{Device: emulated}, 1 << 20, free / 5 * 4},
		{optimem.Options{Device: emulated, Memory: 1 << 19}, 1 << 19, free / 5 * 4},
		{optimem.Options{Device: emulated, Memory: 1 << 30, HostMemory: 5}, 1 << 20, 5},
		{optimem.Options{Device: emulated, MemoryShare: 0.75}, 3 << 18, free / 5 * 4},
	} {
		for _, start := range []starter{optimem.Resident, optimem.Page, optimem.Chunk, optimem.Auto} {
			s, err := start(t.Context(), model, c.opts)
			if err != nil {
				t.Fatal(err)
			}
			device, host := s.Budget()
			if device != c.device || host/16 != c.host/16 {
				t.Errorf("%+v: %d and %d bytes, want %d and %d", c.opts, device, host, c.device, c.host)
			}
			if err := s.Resize(t.Context(), 1<<19); err != nil {
				t.Error(err)
			}
			if device, _ := s.Budget(); device != 1<<19 {
				t.Errorf("%+v: after a resize %d bytes", c.opts, device)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	for _, opts := range []optimem.Options{
		{MemoryShare: -0.5}, {MemoryShare: 1.5}, {MemoryShare: math.NaN()}, {MemoryShare: 0.5, Memory: 1}, {Reserve: -1},
	} {
		var option *optimem.OptionError
		if _, err := optimem.Page(t.Context(), model, opts); !errors.As(err, &option) {
			t.Errorf("%+v: %v", opts, err)
		}
	}
}

// TestStart: a session has the mode that its options name, the functions of a mode have theirs and refuse others.
func TestStart(t *testing.T) {
	model := build(t, digitsModel, nil)
	for _, mode := range []plan.Mode{"", plan.Auto, plan.Resident, plan.Page, plan.Chunk} {
		s, err := optimem.Start(t.Context(), model, optimem.Options{Mode: mode})
		if err != nil {
			t.Fatal(err)
		}
		p, err := s.Plan(t.Context(), pictureShapes(1))
		if err != nil || p.Mode != cmp.Or(mode, plan.Auto) {
			t.Errorf("mode %q: a plan in the mode %q, %v", mode, p.Mode, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	var option *optimem.OptionError
	if _, err := optimem.Start(t.Context(), model, optimem.Options{Mode: "pages"}); !errors.As(err, &option) {
		t.Errorf("a mode that there is not: %v", err)
	}
	if _, err := optimem.Page(t.Context(), model, optimem.Options{Mode: plan.Chunk}); !errors.As(err, &option) {
		t.Errorf("Page in the mode of Chunk: %v", err)
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
