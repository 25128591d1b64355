package runtime

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/internal/panicked"
	"github.com/optimem/optimem/plan"
)

// run runs the members of io, at most so many in a pass, in as many passes as the device admits. rows says that the
// caller can make its members smaller: where the device refuses memory to a single one, the error is then the device's.
func (s *Session) run(ctx context.Context, p *program, io *passIO, instances int, rows bool) (err error) {
	members, calls := io.members, io.calls
	defer func() {
		io.members, io.calls = members, calls
		if v := recover(); v != nil { // an observer's: the pager tells of others
			err = panicked.By(v)
		}
	}()
	io.yielding = &s.yielding
	for at := 0; at < len(members); {
		if s.yielding.Load() {
			io.members = members[at:]
			if calls != nil {
				io.calls = calls[at:]
			}
			if err := s.stand(ctx, io); err != nil || io.answered() {
				return err
			}
		}
		pl, err := s.ready(ctx, p, instances)
		if err != nil {
			return err
		}
		n := min(len(members)-at, pl.Instances)
		io.members = members[at : at+n]
		if calls != nil {
			io.calls = calls[at : at+n]
		}
		io.stopped.Store(false)
		s.passes = pl
		begin := time.Now()
		err = s.machine.Pass(ctx, pl, io)
		end := time.Now()
		took := end.Sub(begin)
		s.count(pl, took, err)
		if err != nil {
			if io.stopped.Load() && ctx.Err() == nil {
				continue
			}
			if io.answered() { // all of these calls left, and others may be behind them
				at += n
				continue
			}
			if err = s.replan(ctx, p, pl, err, rows); err != nil {
				return p.blame(err)
			}
			continue
		}
		s.recent, s.ran, s.after = p, pl, p.leaves
		if !p.told {
			s.tell(p)
		}
		if s.opts.Observe != nil {
			s.opts.Observe(Event{
				Kind: PassDone, Group: -1, Took: took, Instances: n, Begin: begin, End: end, Plan: pl,
				Calls: unanswered(io.calls),
			})
		}
		s.answer(io.calls)
		at += n
	}
	return nil
}

// ready returns the plan for so many instances. A call by itself goes through the plan that others shared last: with
// another one, what was brought ahead would be brought again.
func (s *Session) ready(ctx context.Context, p *program, instances int) (*plan.Plan, error) {
	instances = s.limits.within(instances)
	if instances == 1 && s.ran != nil && p.joint > 1 && s.ran == p.plans[p.joint] {
		return s.ran, nil
	}
	s.notePlan(p, instances)
	return s.plan(ctx, p, instances)
}

// notePlan counts a plan that a pass waits for, if there is none.
func (s *Session) notePlan(p *program, instances int) {
	if p.plans[instances] == nil {
		s.mu.Lock()
		s.metrics.PassPlans++
		s.mu.Unlock()
	}
}

// limits are what a session plans with; 0 is no limit.
type limits struct {
	// memory is the budget in bytes, instances how many micro-batches go through a pass, rows how many rows a micro-batch
	// has, slots and capacity are those of search.Options.
	memory                 int64
	instances, rows, slots int
	capacity               plan.Limit
}

func (l *limits) within(instances int) int {
	if l.instances > 0 {
		return min(instances, l.instances)
	}
	return instances
}

// replan makes the session plan for less where a pass failed because the device refused memory, or returns the error.
func (s *Session) replan(ctx context.Context, p *program, pl *plan.Plan, cause error, rows bool) error {
	var full *device.OutOfMemoryError
	if !errors.As(cause, &full) {
		return cause
	}
	before := s.limits
	s.forget()
	clear(p.plans)
	if rows && pl.Instances == 1 {
		return cause
	}
	for {
		s.shrink(pl)
		s.stays, s.chosen = nil, false
		smaller, err := s.planWithin(ctx, p, s.limits.within(pl.Instances), s.limits.memory)
		if err != nil {
			s.limits = before
			clear(p.plans)
			return fmt.Errorf("%w, and no smaller plan: %w", cause, err)
		}
		// A plan with fewer slots may be as large, and the device has refused that.
		if smaller.PeakBytes() < pl.PeakBytes() {
			s.replanned(smaller, cause)
			return nil
		}
		pl = smaller
		clear(p.plans)
	}
}

// forget drops what was planned with other limits.
func (p *program) forget() {
	clear(p.plans)
	p.joint = 0
}

// forget drops what was planned with other limits.
func (s *Session) forget() {
	for _, p := range s.programs.All() {
		p.forget()
	}
	if s.recent != nil { // which may be none of these any more
		s.recent.forget()
	}
	s.batches.Clear()
	s.ran, s.lends, s.stays, s.chosen = nil, nil, nil, false
}

// replanned tells of a smaller plan.
func (s *Session) replanned(pl *plan.Plan, cause error) {
	s.mu.Lock()
	s.metrics.Replans++
	s.mu.Unlock()
	if s.opts.Observe == nil {
		return
	}
	e := Event{Kind: Replanned, Group: -1, Err: cause}
	if pl != nil {
		e.PeakBytes, e.Instances = pl.PeakBytes(), pl.Instances
	}
	s.opts.Observe(e)
}

// shrink lowers the limits below what a plan took: fewer instances, then fewer slots, then less memory, which leaves
// fewer weights where they are.
func (s *Session) shrink(pl *plan.Plan) {
	const slots = 4 // what a plan has without a limit
	l := &s.limits
	switch {
	case pl.Instances > 1:
		l.instances = pl.Instances / 2
		return
	case pl.RingBytes > 0 && (l.slots == 0 || l.slots > 1):
		if l.slots == 0 {
			l.slots = slots
		}
		l.slots /= 2
		return
	}
	most := pl.PeakBytes()
	l.memory = max(most/5*4, 1)
	if pl.MinBytes < most { // what works at least is not to be missed
		l.memory = max(l.memory, pl.MinBytes)
	}
	if free, ok := s.room(); ok && free < most && free > 0 {
		l.memory = free
	}
	if s.mode == plan.Chunk {
		l.capacity = plan.Limit{N: pl.Fixed.WeightBytes / 5 * 4, Unit: plan.Bytes}
	}
}
