package generate

import (
	"context"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
)

// Keys and values grow with texts, and shrink with them: at first there is memory for some of the blocks, and weights stay in
// what is left of the budget. When a pass needs a block beyond those, there come more, and weights give way. That they can was
// found out when the engine was made, by planning for all blocks, so that a request that was admitted does not fail for it
// later. When passes have needed fewer for a while, weights get the memory back.
//
// Blocks are taken where there is memory, and texts that are over are forgotten for that, before there comes more. Plans for
// the next step are made while passes run that come before it.

const (
	// growSteps is how many times keys and values grow at most until all blocks are there.
	growSteps = 8
	// calmPasses is how many passes in a row have to do with fewer blocks before the memory of others is given back.
	calmPasses = 64
)

// growing is how many blocks there are of how many.
type growing struct {
	// blocks are all, now those that there is memory for; both are 0 where all are there from the beginning.
	blocks, now int
	// calm counts the passes in a row that had to do with fewer, enough is how many would have done for all of these, and asked
	// for how many plans are made meanwhile.
	calm, enough, asked int
}

// beginSmall has keys and values begin small, if weights have to be brought otherwise. full is the plan of a pass with all blocks.
func (e *Engine) beginSmall(ctx context.Context, full *plan.Plan) error {
	if !e.opts.Grow || e.remote != nil || !e.session.CachesGrow() || full.MovedBytes+full.Routed.MostBytes == 0 || full.Mode != plan.Auto || e.othersAlike() {
		return nil
	}
	g := growing{blocks: len(e.blocks.of)}
	g.now = e.least()
	if g.now >= g.blocks {
		return nil
	}
	if err := e.session.SizeCaches(ctx, g.blocks, g.now); err != nil {
		return err
	}
	e.growing = g
	e.blocks.within(g.now)
	_, err := e.largest(ctx, e.session)
	return err
}

// othersAlike reports whether other caches have as many blocks: which of them a plan is to make smaller is not known then.
func (e *Engine) othersAlike() bool {
	n := len(e.blocks.of)
	return e.blocks.windows != nil && len(e.blocks.windows.of) == n || graph.Blocks(e.source)*e.opts.Sequences == n
}

// least is how many blocks there are at first: a part of all, and as many as branches and a pass need.
func (e *Engine) least() int {
	n := len(e.blocks.of)
	return min(max((n+growSteps-1)/growSteps, e.opts.spareBlocks()+graph.Blocks(e.rows)+1), n)
}

// stepped is how many blocks there are to be where so many are needed.
func (e *Engine) stepped(most int) int {
	step := e.growing.step()
	return min((most+step-1)/step*step, e.growing.blocks)
}

func (g *growing) step() int { return (g.blocks + growSteps - 1) / growSteps }

// BeginningPass returns the plan of a pass, as [Engine.ForecastPass] does, while texts are short: with memory for the blocks that
// keys and values have at first if they grow. It is for engines that only plan; nil is that all blocks are there at once.
func (e *Engine) BeginningPass(ctx context.Context, tokens, wanted int) (_ *plan.Plan, err error) {
	n, least := len(e.blocks.of), e.least()
	if !e.session.CachesGrow() || least >= n || e.othersAlike() {
		return nil, nil
	}
	if err := e.session.SizeCaches(ctx, n, least); err != nil {
		return nil, err
	}
	p, err := e.ForecastPass(ctx, tokens, wanted)
	if back := e.session.SizeCaches(ctx, n, n); err == nil {
		err = back
	}
	return p, err
}

// grow has there be memory for the blocks that sequences have, those of the next pass among them, and no more for long.
func (e *Engine) grow(ctx context.Context) error {
	g := &e.growing
	if g.blocks == 0 {
		return nil
	}
	most := e.blocks.highest()
	if err := e.growTo(ctx, most); err != nil {
		return err
	}
	if err := e.shrink(ctx, most); err != nil {
		return err
	}
	if soon := max(g.step()/2, graph.Blocks(e.rows)+1); g.calm == 0 && g.now < g.blocks && most+soon > g.now {
		return e.session.ForeseeCaches(ctx, g.blocks, e.stepped(g.now+1))
	}
	return nil
}

// growTo has there be memory for so many blocks.
func (e *Engine) growTo(ctx context.Context, most int) error {
	if most <= e.growing.now {
		return nil
	}
	if err := e.resize(ctx, e.stepped(most)); err != nil {
		return err
	}
	e.mu.Lock()
	e.stats.Grown++
	e.mu.Unlock()
	return nil
}

// shrink gives memory back where fewer blocks have done for a while: so many for now.
func (e *Engine) shrink(ctx context.Context, most int) error {
	g := &e.growing
	want := max(e.stepped(most), e.least())
	if want >= g.now {
		g.calm, g.enough, g.asked = 0, 0, 0
		return nil
	}
	g.calm, g.enough = g.calm+1, max(g.enough, want)
	switch {
	case g.calm >= calmPasses/2 && g.asked != g.enough:
		g.calm, g.asked = calmPasses/2, g.enough
		return e.session.ForeseeCaches(ctx, g.blocks, g.enough)
	case g.calm < calmPasses:
		return nil
	}
	if err := e.resize(ctx, g.enough); err != nil {
		return err
	}
	e.mu.Lock()
	e.stats.Shrunk++
	e.mu.Unlock()
	return nil
}

// resize has there be memory for so many blocks, between passes.
func (e *Engine) resize(ctx context.Context, now int) error {
	g := &e.growing
	if err := e.session.SizeCaches(ctx, g.blocks, now); err != nil {
		return err
	}
	e.blocks.within(now)
	g.now, g.calm, g.enough, g.asked = now, 0, 0, 0
	return nil
}
