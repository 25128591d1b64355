package runtime

import (
	"context"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/recent"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
)

// What [Session.SizeCaches] will ask for can be planned while passes run that come before it. A session of its own finds the
// plans, which shares programs with this one and runs nothing.

// A foresight is plans for another number of blocks.
type foresight struct {
	// from is how many there were when it began, to how many it is for, within given limits.
	from, to      search.CacheBlocks
	limits, given limits
	// planner finds the plans of what was planned before; done is closed when it has, or err says why not.
	planner *Session
	of      map[*program]*program
	done    chan struct{}
	err     error
	cancel  context.CancelFunc
}

// ForeseeCaches begins to plan for what [Session.SizeCaches] is about to ask for, which then need not: passes go on meanwhile.
// It waits for a pass that runs, and for nothing else. Nothing is begun twice.
func (s *Session) ForeseeCaches(ctx context.Context, blocks, now int) error {
	if err := s.wait(ctx, "foresee caches"); err != nil {
		return err
	}
	defer s.release()
	to := search.CacheBlocks{Of: blocks, Now: now}
	if to == s.cacheBlocks || s.foreseen != nil && s.foreseen.to == to && s.holds(s.foreseen) {
		return nil
	}
	s.dropForesight()
	f := &foresight{
		from: s.cacheBlocks, to: to, limits: s.limits, given: s.given, of: make(map[*program]*program),
		done: make(chan struct{}),
		planner: &Session{
			model: s.model, mode: s.mode, opts: s.opts, machine: s.machine, pooled: s.pooled, behind: s.behind,
			limits: s.limits, given: s.given,
			mix: s.mix, cacheBlocks: to, within: s.giving(to), read: s.meter.Rates(),
			programs: recent.New[*graph.Graph, *program](maxPrograms), batches: recent.New[string, *division](1),
		},
	}
	var order []*program
	for i := range s.mix { // which say what stays
		p, err := s.mixedKind(ctx, i)
		if err != nil {
			return err
		}
		order = append(order, f.share(p))
	}
	f.planner.mixed = slices.Clone(order)
	if s.recent != nil && s.recent.plans[1] != nil { // without a mix what ran last says that
		order = append(order, f.share(s.recent))
	}
	for _, p := range s.programs.All() {
		if p.plans[1] != nil {
			order = append(order, f.share(p))
		}
	}
	var planning context.Context
	planning, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.foreseen = f
	go f.plan(planning, order)
	return nil
}

// share returns a program of the planner with the same graph.
func (f *foresight) share(p *program) *program {
	q := f.of[p]
	if q == nil {
		q = new(*p)
		q.plans, q.joint = make(map[int]*plan.Plan), 0
		f.of[p] = q
	}
	return q
}

// plan plans for programs in an order.
func (f *foresight) plan(ctx context.Context, order []*program) {
	defer close(f.done)
	for _, p := range order {
		pl, err := f.planner.plan(ctx, p, 1)
		if err != nil {
			f.err = err
			return
		}
		if len(f.planner.mix) == 0 && f.planner.ran == nil {
			f.planner.ran = pl
		}
	}
}

// holds reports whether a foresight is about the session as it is.
func (s *Session) holds(f *foresight) bool {
	return f.from == s.cacheBlocks && f.limits == s.limits && f.given == s.given
}

// giving is the plan whose weights give way where there are to be so many blocks: which are read for that is to be few. Nil is
// that weights get memory.
func (s *Session) giving(to search.CacheBlocks) *plan.Plan {
	switch {
	case s.cacheBlocks.Of == to.Of && to.Now < s.cacheBlocks.Now:
		return nil
	case s.stays != nil:
		return s.stays
	}
	return s.ran
}

// foretold has the session go on with the plans of a foresight for so many blocks, if there is one.
func (s *Session) foretold(ctx context.Context, f *foresight) error {
	if f == nil {
		return nil
	}
	select {
	case <-f.done:
	case <-ctx.Done():
		return waitError(ctx, "size caches")
	}
	if f.err != nil {
		return nil // who runs a pass finds out
	}
	x := f.planner
	s.chosen, s.stays, s.lends, s.apart, s.kinds = x.chosen, x.stays, x.lends, x.apart, nil
	for p, q := range f.of {
		if pl := q.plans[1]; pl != nil {
			p.plans[1] = pl
		}
	}
	for _, q := range x.kinds {
		for p, shared := range f.of {
			if shared == q {
				s.kinds = append(s.kinds, p)
			}
		}
	}
	return nil
}

// dropForesight ends what plans ahead, which is not wanted any more.
func (s *Session) dropForesight() {
	if f := s.foreseen; f != nil {
		f.cancel()
		<-f.done
		s.foreseen = nil
	}
}
