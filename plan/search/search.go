// Package search finds a plan: which weights are resident, which stream through a ring buffer, what is split and what
// is merged, and which side computes what, such that a pass keeps the budget and is expected to take the least time.
//
// It knows graphs, bytes and rates: a schedule is costed by simulation. It does not know devices, clocks, goroutines or
// particular disks; package cost has what is the same on every host. It is a pure function: the same question gives the
// same plan everywhere.
//
//	p, err := search.Plan(lowered, search.Options{Mode: plan.Page, MemoryBytes: 2 << 30, Target: plan.CPU})
//	fmt.Print(p)
//
// # How a plan is made
//
// The ops are cut into groups (group.go), and a draft is made of them (draft.go) with all that does not depend on which
// weights are resident: lifetimes and offsets of activations (activation.go, overlay.go), fixed allocations, and each
// group's reads and slot (span.go). Other drafts of the same ops merge small groups (merge.go), split large weights by
// rows (split.go, carve.go), read single rows of embeddings (gather.go), or swap activations to host memory (swap.go).
// A decision completes a draft: which groups are resident, and how the others share a ring (ring.go, rings.go), or
// where they were in a plan for other shapes (like.go). The modes (modes.go, auto.go) try decisions on drafts by
// simulation and complete the best. If two sides compute, each has its own plan (sides.go: the CPU, host.go: whether
// its help pays, peers.go: further devices). Last, resident weights are packed while there is room (pack.go).
package search

import (
	"errors"
	"fmt"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/tensor"
)

// Plan finds a plan for passes over a graph. It fails with a [*plan.CapacityError] where the budget is too small.
func Plan(l *graph.Lowered, o Options) (*plan.Plan, error) {
	decode := decodeBytes(l.Graph)
	sources := decode + l.Graph.SourceBytes
	if sources == 0 {
		return find(l, o)
	}
	o = o.filled()
	budget := &o.MemoryBytes // of which reads of packed files, and what computes weights, take their part
	if !o.Target.Direct {
		budget = &o.HostBytes
	}
	given := *budget
	if given > 0 {
		*budget = max(*budget-sources, 1)
	}
	p, err := findUnpacked(l, o)
	var full *plan.CapacityError
	if errors.As(err, &full) && full.Host != o.Target.Direct {
		more := *full
		if more.NeedBytes, more.HaveBytes = full.NeedBytes+sources, min(full.HaveBytes+sources, given); o.Target.Direct && full.MinBytes > 0 {
			more.MinBytes = full.MinBytes + sources
		}
		return nil, &more
	}
	if err != nil {
		return nil, err
	}
	p.DecodeBytes, p.SourceBytes = decode, l.Graph.SourceBytes
	if o.Target.Direct {
		p.MinBytes += sources
	}
	return p, nil
}

// find is Plan, with what is left of the budget.
func find(l *graph.Lowered, o Options) (p *plan.Plan, err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case stopped:
			p, err = nil, v.err
		default:
			panic(v)
		}
	}()
	o = o.filled().onDisks(l.Graph)
	o.ask()
	if o.Instances > 1 && len(l.Graph.Updates) > 0 {
		return nil, fmt.Errorf("a program that changes buffers takes its inputs one after the other, not %d at once", o.Instances)
	}
	if o.Instances > 1 && l.Graph.HasCaches() {
		return nil, fmt.Errorf("a program with caches takes its inputs one after the other, not %d at once", o.Instances)
	}
	if err := check(l.Graph); err != nil {
		return nil, err
	}
	d := newDraft(l, cut(l.Graph, o.MaxGroup), o, nil).coarse()
	if p = d.likeOther(); p == nil {
		if p, err = d.make(); err != nil {
			return nil, err
		}
		packBoth(p, o)
	}
	if p.Sides == nil {
		packedSeconds(p, o.Rates, o.Ops)
	}
	addCaches(p, &o)
	p.Early = gainsEarly(p, o.Rates)
	p.TransferBytes = transferBytes(p, o)
	if n := p.HostBytes(); o.HostBytes > 0 && n > o.HostBytes {
		return nil, &plan.CapacityError{NeedBytes: n, HaveBytes: o.HostBytes, MinBytes: p.MinBytes, Host: true}
	}
	return p, nil
}

// stopped is what a search that is to end panics with, and Plan recovers: most of what a search does has no error to
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
func packBoth(p *plan.Plan, o Options) {
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
func (d *draft) make() (*plan.Plan, error) {
	if len(d.o.Peers) > 0 {
		return d.spread()
	}
	switch d.o.Mode {
	case plan.Resident:
		return d.resident()
	case plan.Page:
		return d.orLent((*draft).page)
	case plan.Chunk:
		return d.chunk()
	case plan.Auto, "":
		if d.o.HostOps == nil {
			return d.orLent((*draft).auto)
		}
		return d.auto()
	}
	return nil, fmt.Errorf("no mode is called %q", d.o.Mode)
}

// check returns an error for a graph whose bytes cannot be counted.
func check(g *graph.Graph) error {
	var sum int64
	caches := make(map[string]int64)
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
		if v.Role != graph.Cache {
			continue
		}
		if before, known := caches[v.Name]; known && before != bytes {
			return fmt.Errorf("two caches %s, of %d and %d bytes", v.Name, before, bytes)
		}
		caches[v.Name] = bytes
	}
	return nil
}

// gainsEarly reports whether a first pass gains by computing while the weights that stay come.
func gainsEarly(p *plan.Plan, r cost.Rates) bool {
	load := 0.0
	if p.Disks == nil {
		plain, stored, _ := packedBytes(p.Fixed.Spans)
		load = float64(plain+stored) / r.DiskBytes
	} else {
		load, _ = reading(r, p.Disks, p.Fixed.Spans)
	}
	return min(load, p.Forecast.ComputeSeconds) > cost.QueueCloseSeconds
}
