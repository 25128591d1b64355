package pager

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
)

var errLost = errors.New("the device is lost")

// A fading device is one whose events fail once it is lost, as a GPU's do after a kernel's fault.
type fading struct {
	device.Device
	lost atomic.Bool
}

type fadingStream struct {
	device.Stream
	d *fading
}

type fadingEvent struct {
	device.Event
	d *fading
}

func (d *fading) NewStream() (device.Stream, error) {
	s, err := d.Device.NewStream()
	return &fadingStream{s, d}, err
}

func (s *fadingStream) Record() device.Event { return &fadingEvent{s.Stream.Record(), s.d} }
func (s *fadingStream) Wait(e device.Event)  { s.Stream.Wait(e.(*fadingEvent).Event) }

func (e *fadingEvent) Sync(ctx context.Context) error {
	if e.d.lost.Load() {
		return errLost
	}
	return e.Event.Sync(ctx)
}

// TestLost: where the host memory that weights pass through is waited for and the device is lost, the pass says so instead
// of waiting for what will not come.
func TestLost(t *testing.T) {
	host := newCPU(t)
	l, _ := network(t, host, 2, 64, 64, 64, 64, 64, 64, 64, 64, 64)
	dev := &fading{Device: emulated.New(emulated.Options{})}
	p := mustPlan(t, l, search.Options{Mode: plan.Page, HostBytes: 64 << 10, Target: plan.Target{Name: "emu", AlignBytes: 256}})
	g, err := New(dev, Options{})
	if err != nil {
		t.Fatal(err)
	}
	x := newTransfer(l.Graph, 1)
	if err := g.Pass(t.Context(), p, x); err != nil {
		t.Fatal(err)
	}
	dev.lost.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for err = nil; err == nil; { // what is on its way already arrives
		err = g.Pass(ctx, p, x)
	}
	var group *GroupError
	if !errors.Is(err, errLost) || !errors.As(err, &group) || group.Step != "load" {
		t.Errorf("the device is lost: %v", err)
	}
	dev.lost.Store(false)
	if err := g.Pass(t.Context(), p, x); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if err := errors.Join(g.Close(), dev.Close()); err != nil {
		t.Error(err)
	}
}
