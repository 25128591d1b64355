package search

import (
	"testing"

	"github.com/optimem/optimem/plan"
)

// TestWithin: a plan within another one that had more memory keeps some of what stays there, and nothing has to be read for it.
func TestWithin(t *testing.T) {
	l := stack(t, 1, 512, 300, 512, 700, 256, 512, 900, 512)
	all := mustPlan(t, l, Options{Mode: plan.Resident, Target: plan.CPU}).PeakBytes()
	kept := 0
	for more := all / 2; more < all; more += all / 11 {
		large := mustPlan(t, l, Options{Mode: plan.Auto, Target: plan.CPU, MemoryBytes: more})
		for less := more / 2; less < more; less += more / 7 {
			o := Options{Mode: plan.Auto, Target: plan.CPU, MemoryBytes: less}
			if less < large.MinBytes {
				continue
			}
			o.Within = large
			p := mustPlan(t, l, o)
			held := heldBy(large)
			for _, part := range p.Fixed.Parts {
				low, high := part.Low, part.High
				for _, q := range held[l.Graph.Values[part.Value].Weight.Extent] {
					if q.Low <= low && high <= q.High {
						low = high
					}
				}
				if low < high {
					t.Errorf("%d of %d bytes: a part of %d stays that did not", less, more, high-low)
				}
			}
			if p.PeakBytes() > less {
				t.Errorf("%d bytes are taken of %d", p.PeakBytes(), less)
			}
			if p.Fixed.WeightBytes > 0 {
				kept++
			}
		}
	}
	if kept == 0 {
		t.Error("nothing stays in any plan")
	}
}
