package runtime_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// opsOf returns an observer that keeps what it is told of ops.
func opsOf(events *[]optimem.Event) func(optimem.Event) {
	return func(e optimem.Event) {
		if e.Kind == optimem.OpDone {
			*events = append(*events, e)
		}
	}
}

// checkOps demands one event for each op of a plan and instance, by what the plan says of the op.
func checkOps(t *testing.T, p *plan.Plan, events []optimem.Event, instances int) {
	t.Helper()
	ops := p.Lowered.Graph.Ops
	told := make(map[[2]int]bool)
	for _, e := range events {
		if e.Op < 0 || e.Op >= len(ops) || e.Path != ops[e.Op].Path || e.OpKind != ops[e.Op].Kind || e.Took < 0 ||
			e.Group < 0 || e.Op < p.Groups[e.Group].First || e.Op >= p.Groups[e.Group].End || told[[2]int{e.Op, e.Instance}] {
			t.Fatalf("%+v", e)
		}
		told[[2]int{e.Op, e.Instance}] = true
	}
	if len(events) != len(ops)*instances {
		t.Errorf("%d events for %d ops and %d instances", len(events), len(ops), instances)
	}
}

// TestObservedOps: in every mode an observer that asks for it is told once of each op in each pass, also once ops would be
// given out together, and the bits are those of a session that nobody watches.
func TestObservedOps(t *testing.T) {
	model := build(t, digitsModel, nil)
	want := runDigits(t, start(t, model, optimem.Options{}), pictures(2))
	for _, m := range smallModes() {
		t.Run(m.name+" on "+m.opts.Device, func(t *testing.T) {
			var events, all []optimem.Event
			m.opts.Observe = optimem.TeeObserver(opsOf(&events), func(e optimem.Event) { all = append(all, e) })
			m.opts.ObserveOps = true
			s := open(t, m, model)
			p, err := s.Plan(t.Context(), map[string]tensor.Shape{"input": {2, 1, 8, 8}})
			if err != nil {
				t.Fatal(err)
			}
			for range 4 {
				events, all = nil, nil
				if !bytes.Equal(runDigits(t, s, pictures(2)), want) {
					t.Error("other bits")
				}
				checkOps(t, p, events, 1)
				at := 0
				for i := range events { // in their order, each before its group's end
					if events[i].Op != i {
						t.Fatalf("event %d is %+v", i, events[i])
					}
				}
				for _, e := range all {
					switch e.Kind {
					case optimem.OpDone:
						at = e.Group
					case optimem.GroupDone:
						if e.Group != at {
							t.Errorf("group %d ends behind an op of group %d", e.Group, at)
						}
					}
				}
			}
			var unwatched []optimem.Event
			m.opts.Observe, m.opts.ObserveOps = opsOf(&unwatched), false
			if runDigits(t, open(t, m, model), pictures(2)); len(unwatched) > 0 {
				t.Errorf("told of %d ops that nobody asked for", len(unwatched))
			}
			m.opts.Observe, m.opts.ObserveOps = nil, true // nobody to tell
			runDigits(t, open(t, m, model), pictures(2))
		})
	}
}

// TestObservedBatch: every micro-batch has its events, also where both sides would compute at the same time, which they do
// not under an observer of ops; the bits stay.
func TestObservedBatch(t *testing.T) {
	const rows = 64
	model := build(t, digitsModel, nil)
	rates := cost.Rates{FLOPs: 1e9, MemoryBytes: 1e12, OpSeconds: 1e-7}
	o := optimem.Options{Capacity: plan.Limit{N: 5000, Unit: plan.Params}, Rates: rates, HostRates: rates}
	e := emulated.Options{MemoryBytes: 64 << 20, CopyBytes: 12e9}
	run := func(s *optimem.Session) []byte {
		t.Helper()
		out, err := s.RunBatch(t.Context(), digitsInput(pictures(rows)))
		if err != nil {
			t.Fatal(err)
		}
		return out[model.Outputs()[0]].Data
	}
	plain, _ := emulate(t, model, plan.Chunk, o, e)
	want := run(plain)
	var events []optimem.Event
	o.Observe, o.ObserveOps = opsOf(&events), true
	watched, _ := emulate(t, model, plan.Chunk, o, e)
	b, err := watched.PlanBatch(t.Context(), map[string]tensor.Shape{"input": {rows, 1, 8, 8}})
	if err != nil {
		t.Fatal(err)
	}
	if b.Plan.Sides == nil || !b.Plan.Sides.Overlaps || b.Passes != 1 {
		t.Fatalf("nothing overlaps\n%v", b.Plan)
	}
	if !bytes.Equal(run(watched), want) {
		t.Error("other bits")
	}
	checkOps(t, b.Plan, events, rows/b.MicroRows)
}

// TestObservedClock: on a simulated device ops take by its clock what the plan expects, and what is waited for is a stall:
// together they are what the pass takes.
func TestObservedClock(t *testing.T) {
	model := build(t, digitsModel, nil)
	rates := cost.Rates{FLOPs: 1e9, MemoryBytes: 1e12, OpSeconds: 1e-6}
	var ops, stall time.Duration
	s, dev := emulate(t, model, plan.Page, optimem.Options{Rates: rates, ObserveOps: true, Observe: func(e optimem.Event) {
		switch e.Kind {
		case optimem.OpDone:
			ops += e.Took
		case optimem.GroupDone:
			stall += e.Stall
		}
	}}, emulated.Options{MemoryBytes: 64 << 20, CopyBytes: 1e8})
	for range 3 {
		ops, stall = 0, 0
		begin := dev.Elapsed()
		runDigits(t, s, pictures(1))
		took := dev.Elapsed() - begin
		if ops <= 0 || stall <= 0 || ops+stall > took || ops+stall < took*9/10 {
			t.Errorf("ops took %v and waited %v of %v", ops, stall, took)
		}
	}
}

// TestObservedBranches: an op whose branch does not run is not told of, and one that fails is the last that is not.
func TestObservedBranches(t *testing.T) {
	cause := errors.New("thrown")
	var fails bool
	g := &gate{pass: func() {
		if fails {
			panic(cause)
		}
	}}
	ops := g.registry(t)
	var events []optimem.Event
	s := start(t, build(t, "testdata/cond.pt2", ops), optimem.Options{Ops: ops, ObserveOps: true, Observe: opsOf(&events)})
	runs := recorded(t, "cond")
	for i, want := range []int{1, 1, 0, 1} {
		for _, fails = range []bool{false, want > 0} {
			events = nil
			got, err := s.Run(t.Context(), runs[i].input())
			gates := 0
			for _, e := range events {
				if e.OpKind == "test::gate" {
					gates++
				}
			}
			if fails {
				if !errors.Is(err, cause) || gates > 0 {
					t.Errorf("run %d: %v, and %d events", i, err, gates)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			compare(t, got, runs[i])
			if gates != want {
				t.Errorf("run %d tells of the gate %d times, want %d", i, gates, want)
			}
		}
	}
}
