package plan_test

import (
	"slices"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
)

// TestBytes: what a plan takes is the sum of its arenas, or what packing takes before the first pass, and of several
// devices the most of any.
func TestBytes(t *testing.T) {
	p := plan.Plan{
		Fixed: plan.Fixed{Bytes: 1000, PackingBytes: 50}, ConstBytes: 1, RingBytes: 20, ActivationBytes: 300, WorkBytes: 4000,
		CacheBytes:   70000,
		StagingBytes: 5, HostCopyBytes: 60, SwapBytes: 700, GatherBytes: 8000,
	}
	if p.PassBytes() != 75321 || p.PeakBytes() != 75321 || p.HostBytes() != 8765 {
		t.Errorf("a pass takes %d bytes, at the peak %d, of the host %d", p.PassBytes(), p.PeakBytes(), p.HostBytes())
	}
	inAFile := p
	inAFile.Target = plan.CPU
	if inAFile.HostBytes() != 8065 {
		t.Errorf("where activations wait in a file the host's memory takes %d bytes", inAFile.HostBytes())
	}
	packs := p
	packs.Fixed.PackingBytes = 9000
	if packs.PassBytes() != 75321 || packs.PeakBytes() != 80000 {
		t.Errorf("a pass takes %d bytes, packing %d", packs.PassBytes(), packs.PeakBytes())
	}
	device := p
	beside := p
	beside.Sides = &plan.Sides{Device: &device, Host: &packs, CrossingBytes: 30}
	if beside.PeakBytes() != 75321 || beside.HostBytes() != 8765+80000+30 {
		t.Errorf("beside the host's processor: %d, %d of the host's", beside.PeakBytes(), beside.HostBytes())
	}
	beside.Sides = &plan.Sides{Device: &device, Host: &packs, CrossingBytes: 30, Peer: "the other"}
	each := beside.DeviceBytes()
	if beside.PeakBytes() != 80000 || beside.HostBytes() != 2*8765+30 || !slices.Equal(each, []int64{75321, 80000}) {
		t.Errorf("on two devices: %d, %d of the host's, each %v", beside.PeakBytes(), beside.HostBytes(), each)
	}
}

// TestDivided: both sides can compute at the same time where the device has one run of groups, before the host's, and
// neither side brings anything.
func TestDivided(t *testing.T) {
	stays := plan.Plan{Groups: []plan.Group{{}}}
	brings := plan.Plan{Groups: []plan.Group{{Parts: []plan.Part{{High: 4}}}}}
	first, second := plan.Segment{End: 1}, plan.Segment{OnHost: true, End: 1}
	rows := []plan.Gather{{}}
	for name, c := range map[string]struct {
		device, host plan.Plan
		segments     []plan.Segment
		want         bool
	}{
		"both stay":       {stays, stays, []plan.Segment{first, second}, true},
		"device brings":   {brings, stays, []plan.Segment{first, second}, false},
		"host brings":     {stays, brings, []plan.Segment{first, second}, false},
		"host first":      {plan.Plan{}, plan.Plan{}, []plan.Segment{second, first}, false},
		"three turns":     {plan.Plan{}, plan.Plan{}, []plan.Segment{first, second, first}, false},
		"device's rows":   {plan.Plan{Gathers: rows}, plan.Plan{}, []plan.Segment{first, second}, false},
		"rows read there": {plan.Plan{Gathers: rows, Target: plan.CPU}, plan.Plan{}, []plan.Segment{first, second}, true},
	} {
		p := plan.Plan{Sides: &plan.Sides{Device: &c.device, Host: &c.host, Segments: c.segments}}
		if p.Divided() != c.want {
			t.Errorf("%s: divided is %v", name, !c.want)
		}
	}
	if (&plan.Plan{}).Divided() {
		t.Error("a plan without sides is divided")
	}
}

// TestTakenBy: an op reads a weight in the form that its step takes, of the operand for which it takes it.
func TestTakenBy(t *testing.T) {
	strips := plan.Packed{Pack: graph.Pack{In: 1, Bytes: 64, Form: "strips"}}
	step := graph.Step{Packs: []graph.Pack{
		{In: 1, Bytes: 64, Form: "strips"}, {In: 2, Bytes: 64, Form: "tiles"}, {In: 3, Form: "strips"},
	}}
	for in, want := range []bool{false, true, false, false} {
		if strips.TakenBy(&step, in) != want {
			t.Errorf("operand %d: taken is %v", in, !want)
		}
	}
}
