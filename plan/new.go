package plan

import (
	"fmt"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// New plans a pass over a graph. It fails with a [*CapacityError] where the budget is too small.
func New(l *graph.Lowered, o Options) (p *Plan, err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case stopped:
			p, err = nil, v.err
		default:
			panic(v)
		}
	}()
	o = o.filled()
	o.ask()
	if o.Instances > 1 && len(l.Graph.Updates) > 0 {
		return nil, fmt.Errorf("a program that changes buffers takes its inputs one after the other, not %d at once", o.Instances)
	}
	if err := check(l.Graph); err != nil {
		return nil, err
	}
	d := newDraft(l, cut(l.Graph, o.MaxGroup), o, nil).coarse()
	if p = d.like(); p == nil {
		if p, err = d.make(); err != nil {
			return nil, err
		}
		packBoth(p, o)
	}
	if p.Sides == nil {
		packedSeconds(p, o.Rates, o.Ops)
	}
	p.Early = gainsEarly(p, o.Rates)
	if n := p.HostBytes(); o.HostBytes > 0 && n > o.HostBytes {
		return nil, &CapacityError{NeedBytes: n, HaveBytes: o.HostBytes, MinBytes: p.MinBytes, Host: true}
	}
	return p, nil
}

// stopped is what a search that is to end panics with, and New recovers: most of what a search does has no error to
// return.
type stopped struct{ err error }

// ask ends the search where Options.Stop says so.
func (o *Options) ask() {
	if o.Stop == nil {
		return
	}
	if err := o.Stop(); err != nil {
		panic(stopped{err})
	}
}

// packBoth packs weights that stay, on both sides where there are two.
func packBoth(p *Plan, o Options) {
	s := p.Sides
	if s == nil {
		packFixed(p, o.MemoryBytes, nil)
		return
	}
	if s.Peer != "" {
		return // no device that has peers packs
	}
	packFixed(s.Device, o.MemoryBytes, nil)
	p.Fixed = s.Device.Fixed
	budget := int64(0)
	if o.HostBytes > 0 {
		budget = max(o.HostBytes-p.HostBytes()+s.Host.PeakBytes(), 1)
	}
	packFixed(s.Host, budget, nil)
}

// make plans in the mode asked for.
func (d *draft) make() (*Plan, error) {
	if len(d.o.Peers) > 0 {
		return d.spread()
	}
	switch d.o.Mode {
	case Resident:
		return d.resident()
	case Page:
		return d.page()
	case Chunk:
		return d.chunk()
	case Auto, "":
		return d.auto()
	}
	return nil, fmt.Errorf("no mode is called %q", d.o.Mode)
}

// check returns an error for a graph whose bytes cannot be counted.
func check(g *graph.Graph) error {
	var sum int64
	for i := range g.Values {
		v := &g.Values[i]
		n, err := v.Shape.NumElements()
		if err != nil {
			return fmt.Errorf("value %s: %w", v.Name, err)
		}
		bytes, ok := tensor.MulBytes(n, int64(v.DType.Size()))
		if sum += bytes; !ok || sum < 0 || sum > 1<<60 {
			return fmt.Errorf("value %s: %v of %v takes more bytes than can be", v.Name, v.Shape, v.DType)
		}
	}
	return nil
}

// gainsEarly reports whether a first pass gains by computing while the weights that stay come.
func gainsEarly(p *Plan, r cost.Rates) bool {
	load := float64(SpanBytes(p.Fixed.Spans)) / r.DiskBytes
	return min(load, p.Forecast.ComputeSeconds) > cost.QueueCloseSeconds
}
