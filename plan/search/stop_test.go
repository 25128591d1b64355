package search

import (
	"errors"
	"github.com/optimem/optimem/plan"
	"testing"
)

// TestStop: at whichever question a search is told to stop, New ends with that error and asks no more; a search that is
// never told to makes the plan that it makes without.
func TestStop(t *testing.T) {
	l := stack(t, 64, 256, 256, 256, 256, 256, 256)
	for name, o := range map[string]Options{
		"resident": {Mode: plan.Resident}, "page": {Mode: plan.Page},
		"chunk": {Mode: plan.Chunk, Capacity: plan.Limit{N: 500_000, Unit: plan.Bytes}},
		"auto":  {Mode: plan.Auto, MemoryBytes: 1 << 20},
	} {
		want := mustPlan(t, l, o)
		most, stop := 0, errors.New("stop")
		o.Stop = func() error { most++; return nil }
		if p := mustPlan(t, l, o); p.String() != want.String() {
			t.Errorf("%s: another plan where somebody is asked", name)
		}
		all := most
		if all < 2 {
			t.Errorf("%s: the search asks %d times", name, all)
		}
		for last := 1; last <= all; last += max(all/50, 1) {
			asked := 0
			o.Stop = func() error {
				if asked++; asked >= last {
					return stop
				}
				return nil
			}
			if p, err := Plan(l, o); p != nil || !errors.Is(err, stop) || asked != last {
				t.Fatalf("%s: told to stop at question %d of %d: %v after %d", name, last, all, err, asked)
			}
		}
	}
}
