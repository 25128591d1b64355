package chunker

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/pager"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
)

// TestHostHelps: behind a slow bus, groups with few rows are computed where their weights are and groups with many are
// moved; a pass takes what was forecast, which is less than without help, and gives the same bits.
func TestHostHelps(t *testing.T) {
	host := cpu.New(2, graph.Standard())
	defer host.Close()
	const width, depth = 256, 12
	l := network(t, host, width, depth)
	for _, c := range []struct {
		name      string
		instances int
		bus       float64
		helps     bool
	}{
		{"decode", 1, 1e9, true},
		{"decode three", 3, 0.3e9, true},
		{"batch", 64, 1e9, false},
		{"fast bus", 1, 100e9, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := search.Options{
				Mode: plan.Auto, Target: plan.Target{Name: "emu", AlignBytes: 256}, Instances: c.instances, Lower: host.Lower,
				Rates:     cost.Rates{FLOPs: 1e12, MemoryBytes: 100e9, OpSeconds: 1e-6, CopyBytes: c.bus, CopySeconds: 1e-6},
				HostRates: cost.Rates{FLOPs: 10e9, MemoryBytes: 10e9, OpSeconds: 1e-6},
			}
			free, err := search.Plan(l, o)
			if err != nil {
				t.Fatal(err)
			}
			o.MemoryBytes = free.PeakBytes() - free.Fixed.Bytes/2
			alone, err := search.Plan(l, o)
			if err != nil {
				t.Fatal(err)
			}
			o.HostLower = host.Lower
			made, err := search.Plan(l, o)
			if err != nil {
				t.Fatal(err)
			}
			onHost := 0
			for _, g := range made.Groups {
				if g.OnHost {
					onHost++
				}
			}
			if c.helps != (onHost > 0) || made.MinBytes != alone.MinBytes {
				t.Fatalf("%d groups on the host\n%v", onHost, made)
			}
			if c.helps && made.Forecast.Seconds > 0.8*alone.Forecast.Seconds {
				t.Errorf("%g s, and %g without help", made.Forecast.Seconds, alone.Forecast.Seconds)
			}
			took, got := follow(t, host, l, made, o)
			if e := math.Abs(made.Forecast.Seconds/took - 1); e > 0.01 {
				t.Errorf("%g s were expected, and it took %g\n%v", made.Forecast.Seconds, took, made)
			}
			_, want := follow(t, host, l, alone, o)
			for i := range want.out {
				if !bytes.Equal(got.out[i][1], want.out[i][1]) || bytes.Equal(got.out[i][1], make([]byte, len(got.out[i][1]))) {
					t.Fatalf("instance %d: other bits\n%v", i, made)
				}
			}
		})
	}
}

// follow runs a plan on an emulated device with the rates that it was made for, and returns what a pass took.
func follow(t *testing.T, host *cpu.Device, l *graph.Lowered, made *plan.Plan, o search.Options) (float64, *transfer) {
	t.Helper()
	dev := emulated.New(emulated.Options{
		MemoryBytes: made.PeakBytes(), CopyBytes: o.Rates.CopyBytes, CheckOrder: true,
		CopyLatency: time.Duration(o.Rates.CopySeconds * float64(time.Second)),
		Cost: func(step *graph.Step, op *graph.Op, in, out []graph.Spec) time.Duration {
			return time.Duration(o.Rates.StepSeconds(graph.Standard(), step, op, in, out) * float64(time.Second))
		},
	})
	c, err := New(dev, host, Options{Device: pager.Options{}, HostRan: func(w HostWork) {
		t := time.Duration(w.Seconds() * float64(time.Second))
		if w.After == nil {
			dev.Spend(t)
			return
		}
		dev.SpendAfter(w.After, t)
		if w.Last {
			dev.Spend(0)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	got := newTransfer(l.Graph, made.Instances)
	var took time.Duration
	for range 4 {
		begin := dev.Elapsed()
		if err := c.Pass(t.Context(), made, got); err != nil {
			t.Fatal(fmt.Errorf("%w\n%v", err, made))
		}
		took = dev.Elapsed() - begin
	}
	if err := errors.Join(c.Close(), dev.Close()); err != nil {
		t.Fatal(err)
	}
	return took.Seconds(), got
}
