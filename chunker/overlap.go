package chunker

import (
	"context"
	"sync"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/plan"
)

// overlapped runs a pass whose first segment computes one instance while the second computes the one before it. A device
// is given its work by a goroutine of its own: what it is given waits in its stream, but no stream takes any number of ops.
func (c *Chunker) overlapped(ctx context.Context, s *plan.Sides) error {
	first, second := sideOf(s.Segments[0]), sideOf(s.Segments[1])
	instances := min(c.io[first].Instances(), c.current.Instances)
	ctx, cancel := context.WithCancel(ctx)
	// failed has the first error: that of the other side follows from it.
	var failed error
	var once sync.Once
	fail := func(err error) {
		once.Do(func() { failed = err })
		cancel()
	}
	made := make(chan device.Event, instances)
	var giving sync.WaitGroup
	defer giving.Wait() // where what follows panics, too
	defer cancel()
	giving.Go(func() {
		defer close(made)
		for i := range instances {
			e, err := c.sides[first].RunInstance(ctx, i, &c.io[first])
			if err != nil {
				fail(err)
				return
			}
			made <- e
		}
	})
	i := 0
	for e := range made {
		if err := c.follow(ctx, s, second, i, e, i == instances-1); err != nil {
			fail(err)
			break
		}
		i++
	}
	giving.Wait()
	if failed != nil {
		return failed
	}
	return c.Settle(ctx)
}

// follow computes an instance on the second side, once what it needs has crossed.
func (c *Chunker) follow(ctx context.Context, s *plan.Sides, side, instance int, e device.Event, last bool) error {
	if e == nil {
		return nil // it left
	}
	if err := e.Sync(ctx); err != nil {
		return err
	}
	if _, err := c.sides[side].RunInstance(ctx, instance, &c.io[side]); err != nil {
		return err
	}
	if c.opts.HostRan != nil && !c.peers {
		c.opts.HostRan(HostWork{Plan: s.Host, Segment: s.Segments[1], Instances: 1, After: e, Last: last})
	}
	return nil
}
