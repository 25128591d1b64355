package pager

import (
	"slices"
	"testing"

	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
)

// BenchmarkGroupOverhead runs a thousand groups whose ops and weights are next to nothing. What a group takes is what the
// pager and the device's calls cost; the resident mode has the same ops and nothing to bring.
func BenchmarkGroupOverhead(b *testing.B) {
	const groups = 1000
	host := newCPU(b)
	l, _ := network(b, host, 1, slices.Repeat([]int{8}, groups+1)...)
	x := newTransfer(l.Graph, 1)
	for _, c := range []struct {
		name string
		o    search.Options
	}{
		{"resident", search.Options{Mode: plan.Resident}},
		{"page", search.Options{Mode: plan.Page}},
		{"page_emu", search.Options{Mode: plan.Page, Target: plan.Target{Name: "emu", AlignBytes: 256}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			c.o.MaxGroup = plan.Limit{Unit: plan.Params} // a group for each layer
			made := mustPlan(b, l, c.o)
			if len(made.Groups) != groups {
				b.Fatalf("%d groups", len(made.Groups))
			}
			p := newPager(b, host, Options{})
			if !made.Target.Direct {
				p = newPager(b, emulated.New(emulated.Options{}), Options{})
			}
			if err := p.Pass(b.Context(), made, x); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if err := p.Pass(b.Context(), made, x); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/groups, "µs/group")
		})
	}
}
