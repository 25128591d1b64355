package pager

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/pager/fetch"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

// HostVisible is a device whose memory the host can write to, so that files are read straight into it.
type HostVisible interface {
	// HostBytes returns the bytes of a region of the device's memory.
	HostBytes(r device.Region) []byte
}

// newFetcher returns what reads ahead for a plan.
func (g *Pager) newFetcher(p *plan.Plan) (fetch.Fetcher, error) {
	if p.Target.Direct {
		d, err := g.newDirect(p, nil)
		if err != nil {
			return nil, err
		}
		return d, nil
	}
	s, err := g.newStaged(p)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// newDirect returns what reads ahead straight into the device's memory: what a plan pages, and where stays is not nil
// the weights that stay, by the group that needs them first.
func (g *Pager) newDirect(p *plan.Plan, stays [][]plan.Span) (*fetch.Direct, error) {
	host, err := g.hostVisible()
	if err != nil {
		return nil, err
	}
	to := fetch.DeviceMemory{Slot: func(group *plan.Group) []byte {
		return host.HostBytes(device.Region{Memory: g.ring, Offset: group.SlotOffset, Bytes: group.SlotBytes})
	}}
	to.Decoded = func(group *plan.Group) []plan.Span { return g.decodedSpans(p, group) }
	if stays != nil {
		to.Fixed = host.HostBytes(device.Region{Memory: g.fixed, Bytes: p.Fixed.Bytes})
	}
	return fetch.NewDirect(p, to, stays, g.fetching()), nil
}

// fetching says how a pager's fetchers read.
func (g *Pager) fetching() fetch.Options {
	return fetch.Options{
		Readers: g.opts.Readers, Read: &g.stats.readBytes, Loads: g.loads, Meter: g.opts.Meter,
		PieceBytes: g.opts.pieceBytes, QueuesPay: g.opts.queuesPay, Copiers: g.opts.copiers,
	}
}

// fetched returns an error of a fetcher as one of the pager's.
func fetched(err error) error {
	if err == nil {
		return nil
	}
	var at *fetch.Error // on the heap: no group that arrives pays for it
	if errors.As(err, &at) {
		return &GroupError{at.Path, "load", at.Err}
	}
	return err
}

// hostVisible returns the device of a plan that reads straight into it.
func (g *Pager) hostVisible() (HostVisible, error) {
	host, ok := g.dev.(HostVisible)
	if !ok {
		return nil, fmt.Errorf("BUG: the plan reads straight into %s, which the host cannot write to", g.dev.Name())
	}
	return host, nil
}

// bringFixed brings the weights that stay and returns how many bytes were read.
func (g *Pager) bringFixed(ctx context.Context, p *plan.Plan) (int64, error) {
	read, err := g.readFixed(ctx, p)
	if err == nil {
		var more int64
		more, err = g.readStored(ctx, p.Fixed.Stored)
		read += more
	}
	if err == nil {
		var more int64
		more, err = g.packFixed(ctx, p, p.Fixed.Packings)
		read += more
	}
	return read, unchanged(p.Fixed.Spans, p.Fixed.Packings, p.Fixed.Stored, err)
}

// unchanged asks the sources of what was read whether they have changed, and returns that with err.
func unchanged(list []plan.Span, packings []plan.Packing, stored []plan.Stored, err error) error {
	all := slices.Clip(list)
	for _, s := range stored {
		all = append(all, plan.Span{Extent: s.Extent})
	}
	for k := range packings {
		all = append(all, packings[k].Spans...)
	}
	for _, s := range fetch.Guarded(nil, all) {
		if changed := s.Unchanged(); changed != nil {
			return errors.Join(changed, err)
		}
	}
	return err
}

func (g *Pager) readFixed(ctx context.Context, p *plan.Plan) (int64, error) {
	if !p.Target.Direct {
		return g.stageFixed(ctx, p)
	}
	host, err := g.hostVisible()
	if err != nil {
		return 0, err
	}
	requests, read := requestsOf(host, g.fixed, p.Fixed.Spans)
	return read, storage.Read(ctx, g.opts.Readers, requests...)
}
