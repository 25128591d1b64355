package pager

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

// readStored brings blocks of packed files to where they stay, and returns how many bytes that are.
func (g *Pager) readStored(ctx context.Context, list []plan.Stored) (read int64, err error) {
	if len(list) == 0 {
		return 0, nil
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(g.opts.Readers)
	for _, s := range list {
		read += s.Bytes
		into, err := g.storedBytes(s)
		if err != nil {
			return 0, err
		}
		group.Go(func() error {
			if err := s.Extent.Source.(storage.KeepingSource).ReadStored(ctx, into, s.Extent.Offset, s.Extent.Bytes); err != nil {
				return &storage.ReadError{Extent: s.Extent, Err: err}
			}
			return nil
		})
	}
	return read, group.Wait()
}

// storedBytes is where blocks stay.
func (g *Pager) storedBytes(s plan.Stored) ([]byte, error) {
	host, err := g.hostVisible()
	if err != nil {
		return nil, err
	}
	return host.HostBytes(device.Region{Memory: g.fixed, Offset: s.Offset, Bytes: s.Bytes}), nil
}

// decodedSpans are the reads of a group of sources that decode the blocks that stay.
func (g *Pager) decodedSpans(p *plan.Plan, group *plan.Group) []plan.Span {
	list := make([]plan.Span, len(group.Spans))
	for i, s := range group.Spans {
		stored, ok := p.Fixed.StoredOf(s.Extent)
		bytes, err := g.storedBytes(stored)
		if !ok || err != nil {
			panic("BUG: the blocks of a group that is decoded do not stay")
		}
		s.Extent.Source = s.Extent.Source.(storage.KeepingSource).Kept(bytes, stored.Extent.Offset, stored.Extent.Bytes)
		list[i] = s
	}
	return list
}
