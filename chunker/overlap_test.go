package chunker

import (
	"bytes"
	"context"
	"errors"
	"math"
	"testing"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/pager"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
)

// overlapping plans a prefix on a device and the rest on the host, with rates that make the two take the given times for a
// micro-batch, roughly.
func overlapping(t *testing.T, l *graph.Lowered, host *cpu.Device, pinned, instances int, flops, hostFLOPs float64) (
	*plan.Plan, search.Options,
) {
	t.Helper()
	const width = 200
	o := search.Options{
		Mode: plan.Chunk, Target: plan.Target{Name: "emu", AlignBytes: 256}, Instances: instances,
		Capacity: plan.Limit{N: int64(pinned*width*width) + 1, Unit: plan.Params}, Lower: host.Lower, HostLower: host.Lower,
		Rates:     cost.Rates{FLOPs: flops, MemoryBytes: 1e15, OpSeconds: 1e-9, CopyBytes: 1e9, CopySeconds: 1e-6},
		HostRates: cost.Rates{FLOPs: hostFLOPs, MemoryBytes: 1e15, OpSeconds: 1e-9},
	}
	p, err := search.Plan(l, o)
	if err != nil {
		t.Fatal(err)
	}
	return p, o
}

// TestBothSidesAtOnce reads the clock of an emulated device: with several micro-batches a pass takes the first one's way
// through both sides, and for each of the others what the slower side takes. The plan says so.
func TestBothSidesAtOnce(t *testing.T) {
	const depth, instances = 6, 5
	host := cpu.New(2, graph.Standard())
	defer host.Close()
	l := network(t, host, 200, depth)
	for name, c := range map[string]struct {
		pinned           int
		flops, hostFLOPs float64
	}{
		"alike":            {3, 10e9, 10e9},
		"the device waits": {2, 100e9, 1e9},
		"the host waits":   {4, 1e9, 4e9},
	} {
		t.Run(name, func(t *testing.T) {
			p, o := overlapping(t, l, host, c.pinned, instances, c.flops, c.hostFLOPs)
			if p.Sides == nil || !p.Sides.Overlaps {
				t.Fatalf("the sides do not compute at the same time\n%v", p)
			}
			var device, onHost float64
			for _, g := range p.Groups {
				if g.OnHost {
					onHost += g.Seconds
				} else {
					device += g.Seconds
				}
			}
			want := device + onHost + (instances-1)*max(device, onHost)
			if got := p.Forecast.Seconds; math.Abs(got/want-1) > 1e-9 {
				t.Errorf("%g s are expected, and the sides take %g and %g", got, device, onHost)
			}
			took, got := follow(t, host, l, p, o)
			const nanoseconds = 1e-9 * 100 // each op's time is a whole number of them
			if math.Abs(took-want) > nanoseconds {
				t.Errorf("a pass took %g s, not %g", took, want)
			}
			if one := instances * (device + onHost); took > 0.99*one {
				t.Errorf("a pass took %g s, as one after the other does (%g)", took, one)
			}
			compareAlone(t, host, l, got)
		})
	}
}

// compareAlone compares outputs with those that the host gives alone.
func compareAlone(t *testing.T, host *cpu.Device, l *graph.Lowered, got *transfer) {
	t.Helper()
	want := newTransfer(l.Graph, len(got.out))
	p, err := search.Plan(l, search.Options{Mode: plan.Resident, Instances: len(got.out)})
	if err != nil {
		t.Fatal(err)
	}
	alone, err := pager.New(host, pager.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(alone.Pass(t.Context(), p, want), alone.Close()); err != nil {
		t.Fatal(err)
	}
	for i := range want.out {
		for k := range 2 {
			if !bytes.Equal(got.out[i][k], want.out[i][k]) {
				t.Fatalf("instance %d, output %d: other bits", i, k)
			}
		}
	}
}

// A stopping IO is that of instances of several callers, of which one stops wanting its result, or all fail.
type stopping struct {
	*transfer
	cancel context.CancelFunc
	leaver int
	left   []int
}

func (x *stopping) Instances() int    { return len(x.in) }
func (x *stopping) Wanted(i int) bool { return i != x.leaver }
func (x *stopping) Left(i int, _ error) bool {
	x.left = append(x.left, i)
	return true
}

func (x *stopping) Output(instance, output int, made bool) []byte {
	if x.cancel != nil && instance == 1 && output == 1 {
		x.cancel()
	}
	return x.transfer.Output(instance, output, made)
}

// TestLeavingWhileBothCompute: an instance that is not wanted leaves once on the first side and never reaches the second;
// a pass that is cancelled in its middle ends with that, and the next one is whole.
func TestLeavingWhileBothCompute(t *testing.T) {
	const instances = 4
	host := cpu.New(2, graph.Standard())
	defer host.Close()
	l := network(t, host, 200, 6)
	p, _ := overlapping(t, l, host, 3, instances, 10e9, 10e9)
	device := emulated.New(emulated.Options{MemoryBytes: p.PeakBytes(), CheckOrder: true})
	c, err := New(device, host, Options{})
	if err != nil {
		t.Fatal(err)
	}
	x := &stopping{transfer: newTransfer(l.Graph, instances), leaver: 2}
	if err := c.Pass(t.Context(), p, x); err != nil || len(x.left) != 1 || x.left[0] != 2 {
		t.Fatalf("%v, %v left", err, x.left)
	}
	ctx, cancel := context.WithCancel(t.Context())
	x = &stopping{transfer: newTransfer(l.Graph, instances), leaver: -1, cancel: cancel}
	if err := c.Pass(ctx, p, x); !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled: %v", err)
	}
	got := newTransfer(l.Graph, instances)
	if err := c.Pass(t.Context(), p, got); err != nil {
		t.Fatal(err)
	}
	compareAlone(t, host, l, got)
	if err := errors.Join(c.Close(), device.Close()); err != nil {
		t.Error(err)
	}
}
