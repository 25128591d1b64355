package pager

import (
	"context"
	"time"

	"github.com/optimem/optimem/pager/fetch"
)

// arriveObserved returns once the weights of a group lie on the device, and not only once the stream knows what it has to
// wait for, so that what it waits is counted as a stall and not with the group's first op.
func (g *Pager) arriveObserved(ctx context.Context, k int) (time.Duration, error) {
	if err := g.stream.Sync(ctx); err != nil {
		return 0, err
	}
	begin := g.opts.Clock()
	if err := g.current.fetcher.Ready(ctx, k); err != nil {
		return 0, fetched(err)
	}
	err := g.stream.Sync(ctx)
	return g.opts.Clock() - begin, err
}

// runObserved runs an op, waits for it, and returns how long it took.
func (g *Pager) runObserved(ctx context.Context, p *prepared, instance int, io IO) (time.Duration, error) {
	begin := g.opts.Clock()
	if err := g.runOp(ctx, p, instance, io); err != nil {
		return 0, err
	}
	if err := g.stream.Sync(ctx); err != nil {
		return 0, opError(&p.launch.Op, err)
	}
	return g.opts.Clock() - begin, nil
}

// tellLoads tells the observer what was brought since it was told last.
func (g *Pager) tellLoads() {
	g.loads.Tell(func(x fetch.Load) {
		g.opts.Observe(Event{
			Kind: LoadDone, Group: x.Group, Path: x.Path, LoadedBytes: x.Bytes,
			Begin: x.Begin, End: x.End, CopyBegin: x.CopyBegin, CopyEnd: x.CopyEnd,
		})
	})
}
