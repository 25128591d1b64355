package pager

import (
	"cmp"
	"context"
	"time"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/internal/panicked"
)

// RunInstance runs all groups of the pass that was begun for one instance, and returns an event after which what it gave
// is in the caller's memory, or nil where the instance left. It takes the place of [Pager.Run] where no group is paged, so
// that there is no reason to have all instances pass one group before the next: who waits for an instance has it sooner.
// After the last one [Pager.Settle] says whether all went well.
func (g *Pager) RunInstance(ctx context.Context, instance int, io IO) (_ device.Event, err error) {
	groups := g.current.plan.Groups
	defer func() {
		if v := recover(); v != nil { // a chunker calls this from a goroutine of its own, where it would end the process
			err = located(panicked.By(v), "", "run")
		}
	}()
	if len(g.spent) != len(groups) {
		g.spent = make([]spent, len(groups))
	}
	shared, several := io.(Shared)
	for k := range groups {
		if several && !shared.Wanted(instance) {
			return nil, g.leave(ctx, shared, instance, nil)
		}
		begin := time.Now()
		if err := g.instance(ctx, k, instance, io); err != nil {
			err = located(err, groups[k].Name(), "run")
			if several && ctx.Err() == nil {
				err = g.leave(ctx, shared, instance, err)
			}
			return nil, err
		}
		g.spent[k].add(begin, time.Now())
	}
	return g.stream.Record(), nil
}

// spent is what a group of one that goes by instances has taken so far, from its first instance to its last.
type spent struct {
	took       time.Duration
	begin, end time.Time
}

func (s *spent) add(begin, end time.Time) {
	if s.end.IsZero() {
		s.begin = begin
	}
	s.took, s.end = s.took+end.Sub(begin), end
}

// leave lets an instance go no further. It returns an error where nobody goes on.
func (g *Pager) leave(ctx context.Context, shared Shared, instance int, err error) error {
	if failed := g.stream.Sync(ctx); failed != nil {
		return failed
	}
	if !shared.Left(instance, err) {
		return cmp.Or(err, errLeft)
	}
	return nil
}

// Settle returns once all that [Pager.RunInstance] gave to the device is done, with the first error of it.
func (g *Pager) Settle(ctx context.Context) error {
	if err := g.stream.Sync(ctx); err != nil {
		return located(err, "", "run")
	}
	for k, spent := range g.spent {
		g.stats.Compute += spent.took
		if g.opts.Observe != nil {
			g.opts.Observe(Event{
				Group: k, Path: g.current.plan.Groups[k].Name(), Compute: spent.took,
				Begin: spent.begin, Arrived: spent.begin, End: spent.end,
			})
		}
	}
	g.spent = g.spent[:0]
	return nil
}
