//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/cuda/sim"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
)

// A deafDevice gives out streams of which one leaves out one wait.
type deafDevice struct {
	*cuda.Device
	// streams counts those given out; drop is the wait of the stream numbered deaf that is left out, from 1 on, hostDrop the
	// wait of the host for one of its events.
	streams, deaf, drop, hostDrop int
	hostWaits                     atomic.Int64
	dropped                       atomic.Bool
}

func (d *deafDevice) NewStream() (device.Stream, error) {
	s, err := d.Device.NewStream()
	d.streams++
	return &deafStream{Stream: s, d: d, number: d.streams - 1}, err
}

type deafStream struct {
	device.Stream
	d             *deafDevice
	number, waits int
}

// A deafEvent leaves out a wait of the host.
type deafEvent struct {
	device.Event
	d *deafDevice
}

func (e deafEvent) Sync(ctx context.Context) error {
	if e.d.hostWaits.Add(1) == int64(e.d.hostDrop) {
		e.d.dropped.Store(true)
		return ctx.Err()
	}
	return e.Event.Sync(ctx)
}

func (s *deafStream) Record() device.Event {
	if s.number == s.d.deaf {
		return deafEvent{s.Stream.Record(), s.d}
	}
	return s.Stream.Record()
}

func (s *deafStream) Wait(e device.Event) {
	if deaf, ok := e.(deafEvent); ok {
		e = deaf.Event
	}
	s.waits++
	if s.number == s.d.deaf && s.waits == s.d.drop {
		s.d.dropped.Store(true)
		return
	}
	s.Stream.Wait(e)
}

// TestEveryWaitIsNeeded leaves out each event wait of the pager in turn: those of the stream that computes and those of
// the stream that copies. Each time the simulated driver finds a race.
func TestEveryWaitIsNeeded(t *testing.T) {
	const groups, times = 5, 2
	l := lower(t, network(t, 2, 24, 40, 24, 56, 24, 10))
	p := planned(t, l, search.Options{Mode: plan.Page, Slots: 2})
	if len(p.Groups) != groups {
		t.Fatalf("%d groups", len(p.Groups))
	}
	run := func(deaf, drop int) (sim.Report, bool) {
		dev, lib := openAlone(t, "memory=8M order=lazy:3")
		d := &deafDevice{Device: dev, deaf: deaf, drop: drop}
		if _, _, err := passes(t.Context(), d, p, times); err != nil && drop == 0 {
			t.Fatal(err)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
		return lib.Report(), d.dropped.Load()
	}
	if r, _ := run(0, 0); r.Races != 0 {
		t.Fatalf("%d races: %s", r.Races, r.FirstRace)
	}
	// Ops wait for each group; copies wait where ops were given out since they waited last.
	for deaf, waits := range []int{groups * times, copyWaits(p, groups*times)} {
		for n := range waits {
			r, dropped := run(deaf, n+1)
			if !dropped {
				t.Errorf("stream %d has no wait %d", deaf, n+1)
			} else if r.Races == 0 {
				t.Errorf("nobody misses wait %d of stream %d", n+1, deaf)
			}
		}
	}
}

// TestHostWaitsForStaging leaves out each wait of the host for a copy whose memory it fills again: the copy, which runs
// late, then brings other weights.
func TestHostWaitsForStaging(t *testing.T) {
	const times = 2
	l := lower(t, network(t, 2, 40, 40, 40, 40, 40, 40))
	p := stagedPlan(t, l)
	run := func(drop, seed int) ([]byte, bool) {
		dev, _ := openAlone(t, fmt.Sprintf("memory=8M order=lazy:%d", seed))
		d := &deafDevice{Device: dev, deaf: 1, hostDrop: drop}
		out, _, err := passes(t.Context(), d, p, times)
		if err != nil && drop == 0 {
			t.Fatal(err)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
		return out, d.dropped.Load() // no output: the passes differ
	}
	want, _ := run(0, 0)
	// The staging memory has two places, which the first two visits need not wait for.
	for n := range len(p.Groups)*times - plan.StagingSlots {
		// A copy may have run by then all the same, in one order or another.
		missed := false
		for seed := 0; seed < 20 && !missed; seed++ {
			got, dropped := run(n+1, seed)
			if !dropped {
				t.Fatalf("the host waits %d times", n)
			}
			missed = !bytes.Equal(got, want)
		}
		if !missed {
			t.Errorf("nobody misses wait %d of the host", n+1)
		}
	}
}

// copyWaits counts for how many of so many visits the copies of a plan whose groups are all paged have to wait: each needs
// the ops of some visits before it, whose slot it takes or which used what it brings again.
func copyWaits(p *plan.Plan, visits int) int {
	waits, done := 0, 0
	for n := range visits {
		after := p.Groups[n%len(p.Groups)].After
		need := n - len(p.Groups) + 1
		if after > 0 {
			need = max(need, n-after+1)
		}
		if need > done && after > 0 {
			waits, done = waits+1, need
		}
	}
	return waits
}

// TestOverlap reads the driver's clock. Where copies take longer than kernels, a pass takes as long as the copies and what
// comes after the last one; where kernels do, as long as the first
// copies and the kernels. Nothing is waited for twice.
func TestOverlap(t *testing.T) {
	const n, side = 8, 64
	widths := make([]int, n+1)
	for i := range widths {
		widths[i] = side
	}
	l := lower(t, network(t, 1, widths...))
	p := planned(t, l, search.Options{Mode: plan.Page, Slots: 2})
	const group = (side*side + side) * 4 // a byte takes a nanosecond
	const output, input = side * 4, side * 4
	launches := 0
	for _, g := range p.Groups {
		launches += g.End - g.First
	}
	for name, c := range map[string]struct{ launch, want int64 }{
		"copies":  {1000, n*group + int64(launches/n)*1000 + output},
		"kernels": {50000, group + input + int64(launches)*50000 + output},
	} {
		t.Run(name, func(t *testing.T) {
			dev, lib, pg := openPager(t, fmt.Sprintf("copy=1e9 launch=%d", c.launch))
			if err := pg.Pass(t.Context(), p, newTransfer(l.Graph)); err != nil {
				t.Fatal(err)
			}
			got := lib.Report().SpanNanoseconds // what was brought ahead for the next pass does not count
			if err := errors.Join(pg.Close(), dev.Close()); err != nil {
				t.Error(err)
			}
			if got != c.want {
				t.Errorf("a pass takes %d ns on the driver's clock, %d with everything overlapped", got, c.want)
			}
		})
	}
}
