package search

import (
	"errors"
	"testing"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/tensor"
)

// TestHelpWithinBudget: the host's processor helps where its part and what passes through host memory for the device's
// fit the budget together.
func TestHelpWithinBudget(t *testing.T) {
	o := Options{
		Mode: plan.Auto, Target: plan.Target{Name: "emu", AlignBytes: 256}, Lower: lower, HostLower: lower,
		Rates: cost.Rates{CopyBytes: 1e9}, HostRates: cost.Rates{MemoryBytes: 20e9, FLOPs: 20e9},
	}
	l := stack(t, 1, 256, 256, 256, 256, 256, 256)
	free := mustPlan(t, l, o)
	o.MemoryBytes = max(free.MinBytes, free.PeakBytes()-free.Fixed.Bytes/2)
	helped := mustPlan(t, l, o)
	if helped.Sides == nil || helped.HostBytes() == 0 {
		t.Fatalf("nothing is computed by the host:\n%v", helped)
	}
	o.HostBytes = helped.HostBytes()
	if p := mustPlan(t, l, o); p.Sides == nil || p.HostBytes() > o.HostBytes {
		t.Errorf("with %d bytes of host memory:\n%v", o.HostBytes, p)
	}
	for o.HostBytes > helped.Sides.Host.PeakBytes()/2 { // with less there is less help, and a plan without it in the end
		o.HostBytes -= 100 << 10
		if p := mustPlan(t, l, o); p.HostBytes() > o.HostBytes {
			t.Errorf("of %d bytes of host memory:\n%v", o.HostBytes, p)
		}
	}
}

// TestRowsWithinBudget: rows that pass through host memory count against its budget.
func TestRowsWithinBudget(t *testing.T) {
	b := newBuilder(t)
	ids := b.g.AddInput("ids", tensor.Int64, tensor.Shape{8})
	x := b.emit("words", "embedding", nil, b.weight("words", 50_000, 128), b.g.Whole(ids))
	b.g.Outputs = []graph.Output{{Name: "x", Operand: b.g.Whole(x)}}
	l, err := lower(b.g)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Mode: plan.Page, Target: plan.Target{Name: "emu", AlignBytes: 256}, Lower: lower}
	p := mustPlan(t, l, o)
	if p.GatherBytes == 0 || p.HostBytes() != p.GatherBytes {
		t.Fatalf("of %d bytes of the host %d are for rows", p.HostBytes(), p.GatherBytes)
	}
	o.HostBytes = p.HostBytes() - 1
	var c *plan.CapacityError
	if _, err := Plan(l, o); !errors.As(err, &c) || !c.Host || c.NeedBytes != p.HostBytes() || c.HaveBytes != o.HostBytes {
		t.Errorf("of %d bytes: %v", o.HostBytes, err)
	}
	o.HostBytes++
	mustPlan(t, l, o)
}
