//go:build !race

package pager

import (
	"testing"

	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/tensor"
)

// TestRowsAllocateNothing asserts it for passes after the first. The race detector drops some of what a sync.Pool keeps, so
// that allocations mean nothing there.
func TestRowsAllocateNothing(t *testing.T) {
	l, _ := sentence(t, tensor.Int64)
	x, rows := spoken(l, 1), search.Options{Mode: plan.Page, MemoryBytes: 1 << 20}
	count := func(o search.Options) float64 {
		p, made := newPager(t, newCPU(t), Options{}), mustPlan(t, l, o)
		return testing.AllocsPerRun(20, func() {
			if err := p.Pass(t.Context(), made, x); err != nil {
				t.Fatal(err)
			}
		})
	}
	if n, whole := count(rows), count(search.Options{Mode: plan.Resident}); n > whole {
		t.Errorf("a pass with rows allocates %v times, one with the table %v", n, whole)
	}
}
