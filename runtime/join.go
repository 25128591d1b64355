package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/pager"
)

// A call is one of Run or RunInto.
type call struct {
	ctx      context.Context
	in, into Values
	x        exchange
	// done is closed once err and the outputs are there; nil for a call that runs its pass itself.
	done chan struct{}
	over bool
	err  error
	// since is when it counts as having come to a pool, and at the turn in which it waits there; the pool's mutex
	// guards at.
	since time.Time
	at    *turn
}

// end says that a call is over.
func (c *call) end(err error) {
	if c.over {
		return
	}
	c.over, c.err = true, err
	close(c.done)
}

// do runs a call when its turn has come, or has another take it along.
func (s *Session) do(c *call) error {
	if err := c.ctx.Err(); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	c.done = make(chan struct{})
	select {
	case <-s.turn:
		return s.first(c)
	default:
	}
	s.mu.Lock()
	s.waiting = append(s.waiting, c)
	s.mu.Unlock()
	select {
	case <-s.turn:
		if s.unqueue(c) {
			return s.first(c)
		}
		s.release() // the pass that took it along is over
	case <-c.done:
	case <-c.ctx.Done():
		if s.unqueue(c) {
			return waitError(c.ctx, "run")
		}
	}
	<-c.done // where it is in a pass, that lets go of it before the next group
	return c.err
}

// unqueue takes a call out of those that wait, and reports whether it was there.
func (s *Session) unqueue(c *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.waiting, c)
	if i < 0 {
		return false
	}
	s.waiting = slices.Delete(s.waiting, i, i+1)
	return true
}

// first runs a call whose turn it is, and passes the turn on.
func (s *Session) first(c *call) error {
	shared := false
	defer func() {
		if !shared { // also where something panics
			s.release()
		}
	}()
	err := s.lead(c, true)
	if shared = err == errShared; shared {
		<-c.done
		return c.err
	}
	return err
}

// errShared says that a call's pass is run by a goroutine of its own, which passes the turn on.
var errShared = errors.New("the pass is shared")

// lead runs the pass of a call whose turn it is, and of those that join it.
func (s *Session) lead(c *call, shares bool) error {
	if s.closed {
		return ErrClosed
	}
	if s.opts.PlanOnly {
		return ErrPlanOnly
	}
	if s.opts.Range != (graph.Range{}) {
		return ErrRange
	}
	p, err := s.planned(c.ctx, c.in)
	if err != nil {
		return err
	}
	if err := c.x.begin(p, c.in, c.into); err != nil {
		return err
	}
	if shares {
		if joined := s.joining(p, c); len(joined) > 1 {
			go s.share(p, joined)
			return errShared
		}
	}
	if err := s.alone(c.ctx, p, &c.x); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	s.mu.Lock()
	s.metrics.Calls++
	s.mu.Unlock()
	return nil
}

// joining returns a call and those waiting that go through the same pass.
func (s *Session) joining(p *program, first *call) []*call {
	s.mu.Lock()
	none := !slices.ContainsFunc(s.waiting, func(c *call) bool { return p.takes(c.in) })
	s.mu.Unlock()
	if none {
		return nil
	}
	most := s.joinable(first.ctx, p)
	if most < 2 {
		return nil
	}
	calls := []*call{first}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = slices.DeleteFunc(s.waiting, func(c *call) bool {
		if len(calls) == most || !p.takes(c.in) {
			return false
		}
		if err := c.x.begin(p, c.in, c.into); err != nil {
			c.end(err)
			return true
		}
		calls = append(calls, c)
		return true
	})
	return calls
}

// joinable returns how many calls may go through a pass together: at most Options.MaxJoin, and so many that the weights
// that stay do not give way to them. Where that leaves one alone, weights do give way if each call then still brings less
// than half of what it would by itself.
func (s *Session) joinable(ctx context.Context, p *program) int {
	if len(p.graph.Updates) > 0 || p.finds != p.leaves || p.graph.HasCaches() {
		return 1 // what one leaves, in states or caches, the next one finds
	}
	if p.joint == 0 {
		most := s.mostJoined(ctx, p)
		if ctx.Err() != nil {
			return 1 // some plans were not made
		}
		p.joint = most
	}
	return p.joint
}

// defaultJoin is how many calls share a pass that brings weights, or that a device and the CPU share, if nobody says otherwise.
const defaultJoin = 8

func (s *Session) mostJoined(ctx context.Context, p *program) int {
	alone, err := s.plan(ctx, p, 1)
	if err != nil {
		return 1
	}
	most := s.opts.MaxJoin
	if most == 0 && (alone.MovedBytes > 0 || alone.Divided()) {
		most = defaultJoin
	}
	most = s.limits.within(max(most, 1))
	for _, share := range []float64{1, float64(most) / 2} {
		for n := most; n > 1; n /= 2 {
			together, err := s.planWithin(ctx, p, n, s.limits.memory)
			if err == nil && float64(together.MovedBytes) <= float64(alone.MovedBytes)*min(share, float64(n)/2) {
				return n
			}
		}
	}
	return 1
}

// share runs a pass for several calls and passes the turn on.
func (s *Session) share(p *program, calls []*call) {
	defer s.release()
	s.pass(p, calls, s.joinable(context.Background(), p))
}

// pass runs passes for several calls, at most so many in each, and ends the calls.
func (s *Session) pass(p *program, calls []*call, instances int) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	io := &passIO{calls: calls}
	var wanted atomic.Int32
	wanted.Store(int32(len(calls)))
	for _, c := range calls {
		io.members = append(io.members, &c.x)
		stop := context.AfterFunc(c.ctx, func() {
			if wanted.Add(-1) == 0 {
				cancel()
			}
		})
		defer stop()
	}
	if err := s.run(ctx, p, io, instances, false); err != nil {
		for _, c := range calls { // but those that a pass before had answers for
			c.end(c.failed(err))
		}
	}
}

// answer ends the calls whose pass is over.
func (s *Session) answer(calls []*call) {
	var served int64
	for _, c := range calls {
		if !c.over {
			c.x.finish()
			served++
		}
	}
	s.mu.Lock()
	s.metrics.Calls += served
	s.metrics.Joined += max(served-1, 0)
	s.mu.Unlock()
	for _, c := range calls {
		c.end(nil)
	}
}

// failed returns the error of a call whose pass failed: that of its own context where that is done.
func (c *call) failed(err error) error {
	own := c.ctx.Err()
	if own == nil || errors.Is(err, own) {
		return fmt.Errorf("run: %w", c.x.p.blame(err))
	}
	var where *pager.GroupError
	if errors.As(err, &where) {
		return fmt.Errorf("run: %w", &pager.GroupError{Path: where.Path, Step: where.Step, Err: own})
	}
	return fmt.Errorf("run: %w", own)
}

// unanswered tells of the calls that have no answer yet.
func unanswered(calls []*call) *pager.Calls {
	if calls == nil {
		return nil
	}
	all := &pager.Calls{}
	for _, c := range calls {
		if !c.over {
			all.Contexts = append(all.Contexts, c.ctx)
		}
	}
	return all
}
