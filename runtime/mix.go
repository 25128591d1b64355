package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/tensor"
)

// A PassKind is passes with inputs of some shapes, and how many of them there are among others.
type PassKind struct {
	Shapes map[string]tensor.Shape
	Weight float64
}

// PlanMix is [Session.Plan] for several kinds of passes that are to come, mixed. It chooses the weights that stay for
// all of them together, so that the mix takes the least time, as the plans foresee it: the same ones for all kinds, or
// for each what suits it, where reading what the one before it did not keep takes less. Passes of other shapes keep the
// same weights as long as they fit. With another budget ([Session.Resize], or less than was given) the choice is made
// again for the same mix.
//
// The plans are those of the kinds, in order.
func (s *Session) PlanMix(ctx context.Context, mix ...PassKind) ([]*plan.Plan, error) {
	if err := s.wait(ctx, "plan"); err != nil {
		return nil, err
	}
	defer s.release()
	s.mix, s.chosen, s.stays, s.apart, s.kinds = nil, false, nil, nil, nil
	for _, k := range mix { // what ran may keep something else
		p, err := s.kind(ctx, k)
		if err != nil {
			return nil, fmt.Errorf("plan: %w", err)
		}
		p.forget()
	}
	s.mix = mix
	plans := make([]*plan.Plan, len(mix))
	for i, k := range mix {
		p, err := s.kind(ctx, k)
		if err != nil {
			return nil, fmt.Errorf("plan: %w", err)
		}
		if plans[i], err = s.plan(ctx, p, 1); err != nil {
			return nil, fmt.Errorf("plan: %w", err)
		}
	}
	return plans, nil
}

// kind returns the program of a kind of passes.
func (s *Session) kind(ctx context.Context, k PassKind) (*program, error) {
	g, err := s.model.GraphOf(ctx, models.Call{Inputs: k.Shapes, After: s.after})
	if err != nil {
		return nil, err
	}
	return s.program(ctx, g)
}

// mixedKind returns the program of a kind of the mix.
func (s *Session) mixedKind(ctx context.Context, i int) (*program, error) {
	if s.mixed != nil {
		return s.mixed[i], nil
	}
	return s.kind(ctx, s.mix[i])
}

// anchor returns the plan whose weights stay, nil where nothing says which.
func (s *Session) anchor(ctx context.Context, budgetBytes int64) (*plan.Plan, error) {
	if len(s.mix) > 0 && !s.chosen {
		s.apart, s.kinds = nil, nil
		stays, err := s.chooseStays(ctx, budgetBytes)
		if err != nil && ctx.Err() != nil {
			return nil, err // else each kind says for itself what it lacks
		}
		s.chosen, s.stays = true, stays
	}
	switch {
	case s.stays != nil:
		return s.stays, nil
	case s.ran != nil:
		return s.ran, nil
	}
	return s.lends, nil // what passes of few rows and of many need of experts is to lie in the same slots
}

// likeApart returns a plan that keeps the weights which one of the kinds of the mix keeps, where each keeps its own:
// those of the one that keeps most, if they fit. Nil is that none do, or that the program is one of the kinds.
func (s *Session) likeApart(ctx context.Context, p *program, instances int, budgetBytes int64) (*plan.Plan, error) {
	if slices.Contains(s.kinds, p) {
		return nil, nil
	}
	for _, like := range s.apart {
		pl, err := s.newPlanLike(ctx, p, instances, budgetBytes, like)
		if err != nil {
			return nil, err
		}
		if plan.SameFixed(pl, like) {
			return pl, nil
		}
	}
	return nil, nil
}

// A chooser compares plans by what the mix takes if all its passes keep the weights that they keep.
type chooser struct {
	s        *Session
	ctx      context.Context
	budget   int64
	programs []*program
	// best is the best one so far, nil where each kind keeps what suits it, and seconds what the mix takes.
	best    *plan.Plan
	seconds float64
}

// chooseStays returns the plan whose weights stay for the session's mix of passes; nil where each kind is to keep what
// suits it alone, because nothing suits all, or because reading what the others lack takes less than passes lose
// otherwise.
func (s *Session) chooseStays(ctx context.Context, budgetBytes int64) (*plan.Plan, error) {
	c := &chooser{s: s, ctx: ctx, budget: budgetBytes}
	own := make([]*plan.Plan, len(s.mix))
	for i := range s.mix {
		p, err := s.mixedKind(ctx, i)
		if err != nil {
			return nil, err
		}
		c.programs = append(c.programs, p)
		if own[i], err = s.newPlanLike(ctx, p, 1, budgetBytes, nil); err != nil {
			return nil, err
		}
		if own[i].Sides != nil { // whose pagers see for themselves what stays
			return nil, nil
		}
	}
	for i, p := range own {
		if len(p.Experts) > 0 { // what lies in slots would be lost with each change
			c.seconds = math.Inf(1)
		}
		c.seconds += s.mix[i].Weight*p.Forecast.Seconds + s.changeSeconds(own[(i+len(own)-1)%len(own)], p)
	}
	for i, p := range own {
		if err := c.consider(p); err != nil {
			return nil, err
		}
		for _, less := range spared(own, i) {
			if budgetBytes-less <= 0 || budgetBytes == 0 {
				continue
			}
			q, err := s.newPlanLike(ctx, c.programs[i], 1, budgetBytes-less, nil)
			var full *plan.CapacityError
			if errors.As(err, &full) {
				continue
			}
			if err != nil {
				return nil, err
			}
			if err := c.consider(q); err != nil {
				return nil, err
			}
		}
	}
	if err := c.staysWithin(); err != nil {
		return nil, err
	}
	if c.best == nil && !math.IsInf(c.seconds, 1) {
		slices.SortStableFunc(own, func(a, b *plan.Plan) int { return cmp.Compare(b.Fixed.Bytes, a.Fixed.Bytes) })
		s.apart, s.kinds = own, c.programs
	}
	return c.best, nil
}

// worthReading is by how much longer the mix may take so that no weight has to be read for staying that did not stay before.
const worthReading = 1.05

// staysWithin takes, where weights have to give way, a plan that keeps some of those that stay and no others, if the mix does not
// take much longer with that.
func (c *chooser) staysWithin() error {
	if c.s.within == nil {
		return nil
	}
	best, seconds := c.best, c.seconds
	c.seconds *= worthReading
	found := false
	for _, p := range c.programs {
		q, err := c.s.newPlanWithin(c.ctx, p, c.budget)
		var full *plan.CapacityError
		if errors.As(err, &full) {
			continue
		}
		if err != nil {
			return err
		}
		before := c.best
		if err := c.consider(q); err != nil {
			return err
		}
		found = found || c.best != before
	}
	if !found {
		c.best, c.seconds = best, seconds
	}
	return nil
}

// changeSeconds is what it takes until the weights of a plan stay where those of another one did.
func (s *Session) changeSeconds(from, to *plan.Plan) float64 {
	if plan.SameFixed(from, to) {
		return 0
	}
	rates := s.machine.Device().Rates.WithGuesses()
	if !to.Target.Direct || !hostmem.CanResize {
		return rates.Reading(to.Fixed.WeightBytes, max(len(to.Fixed.Spans), 1))
	}
	keep := to.Keeps(from)
	return rates.Reading(keep.MissingBytes, len(keep.Missing)) + float64(keep.Bytes)/cost.TouchedBytes
}

// spared returns by how much less than the budget a plan of one kind might keep weights so that the other kinds have
// room beside these.
func spared(own []*plan.Plan, i int) []int64 {
	beside := func(p *plan.Plan) int64 { return p.PeakBytes() - p.Fixed.Bytes - p.RingBytes }
	var most, ring int64
	for _, p := range own {
		most, ring = max(most, beside(p)-beside(own[i])), max(ring, p.RingBytes)
	}
	if most <= 0 {
		return nil
	}
	return []int64{most, most + ring/2}
}

// consider compares a plan with the best one so far.
func (c *chooser) consider(like *plan.Plan) error {
	seconds := 0.0
	for i, p := range c.programs {
		pl, err := c.s.newPlanLike(c.ctx, p, 1, c.budget, like)
		if err != nil {
			return err
		}
		if !plan.SameFixed(pl, like) {
			return nil
		}
		seconds += c.s.mix[i].Weight * pl.Forecast.Seconds
	}
	if seconds < c.seconds {
		c.best, c.seconds = like, seconds
	}
	return nil
}
