package pager

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
)

// takeAway has a cache in the file, where it begins as zeros.
func (g *Pager) takeAway(want *plan.Cache, value *graph.Value) error {
	all, size := g.opts.Caches, value.Bytes()
	if x := all.of[want.Name]; x != nil {
		switch {
		case x.size != size:
			return fmt.Errorf("%d bytes in one program of a session, %d in another", x.size, size)
		case x.file == nil:
			return fmt.Errorf("BUG: it is in memory in one program of a session, and in a file in another")
		}
		return nil
	}
	at := int64(0)
	if all.file == nil {
		file, err := g.opts.newScratch(g.opts.SwapFolder, size)
		if err != nil {
			return err
		}
		all.file = file
	} else {
		at = all.file.Bytes()
		if err := all.file.Grow(at + size); err != nil {
			return err
		}
	}
	all.of[want.Name] = &cache{owner: g, value: *value, size: size, file: all.file, at: at}
	return nil
}

// transferBytes is how many bytes one reader or writer has at a time at most.
const transferBytes = 1 << 20

// moveBlocks moves runs of places of an op's caches behind what was to be moved before, and counts them.
func (g *Pager) moveBlocks(x *movedOp, part *movedPart, runs []placeRun, move func(scratch, []byte, int64) error,
	count *int64) *blockTransfer {
	type piece struct {
		of    *movedCache
		bytes []byte
		at    int64
	}
	host, err := g.hostVisible()
	if err != nil {
		panic("BUG: caches wait in a file beside memory that the host does not see")
	}
	var pieces []piece
	_ = g.eachRun(x, part, runs, count, func(c *movedCache, slot device.Region, at int64) error {
		bytes := host.HostBytes(slot)
		for low := int64(0); low < slot.Bytes; low += transferBytes {
			pieces = append(pieces, piece{c, bytes[low:min(low+transferBytes, slot.Bytes)], c.of.at + at + low})
		}
		return nil
	})
	before, t := g.away.last, &blockTransfer{done: make(chan struct{})}
	g.away.last = t
	readers := min(g.opts.Readers, len(pieces))
	go func() {
		defer close(t.done)
		if before != nil {
			if <-before.done; before.err != nil {
				t.err = before.err
				return
			}
		}
		var next atomic.Int64
		var all sync.WaitGroup
		errs := make([]error, readers)
		for i := range readers {
			all.Go(func() {
				for {
					k := int(next.Add(1)) - 1
					if k >= len(pieces) {
						return
					}
					if p := &pieces[k]; errs[i] == nil {
						if err := move(p.of.of.file, p.bytes, p.at); err != nil {
							errs[i] = fmt.Errorf("cache %s: %w", p.of.name, err)
						}
					}
				}
			})
		}
		all.Wait()
		if k := slices.IndexFunc(errs, func(err error) bool { return err != nil }); k >= 0 {
			t.err = errs[k]
		}
	}()
	return t
}

// awaitTransfer waits for blocks that come, or has the ops wait.
func (g *Pager) awaitTransfer(ctx context.Context, t *blockTransfer) error {
	if t.event != nil {
		g.stream.Wait(t.event)
		return nil
	}
	begin := time.Now()
	defer func() { g.stats.SwapStall += time.Since(begin) }()
	select {
	case <-t.done:
		return t.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// settleAway waits for all transfers, however they end, and returns the error of the first that failed. Those to come do
// not know of it.
func (g *Pager) settleAway() error {
	clear(g.away.known)
	if err := g.settleLink(); err != nil {
		return err
	}
	last := g.away.last
	if last == nil {
		return nil
	}
	begin := time.Now()
	<-last.done
	g.stats.SwapStall += time.Since(begin)
	g.away.last = nil
	return last.err
}
