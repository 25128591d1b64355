package generate

import (
	"context"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
)

// Keys and values grow with texts: at first there is memory for some of the blocks, and weights stay in what is left of the
// budget. When a pass needs a block beyond those, there come more, and weights give way. That they can was found out when
// the engine was made, by planning for all blocks, so that a request that was admitted does not fail for it later.

// growSteps is how many times keys and values grow at most until all blocks are there.
const growSteps = 8

// growing is how many blocks there are of how many.
type growing struct {
	// blocks are all, now those that there is memory for; both are 0 where all are there from the beginning.
	blocks, now int
	// grown counts how often there came more.
	grown int
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

// grow has there be memory for the blocks that a pass names.
func (e *Engine) grow(ctx context.Context, p *pass) error {
	if e.growing.now == e.growing.blocks {
		return nil
	}
	most := 0
	for k := range p.parts {
		part := &p.parts[k]
		rows := part.s.cached + part.rows + len(part.guesses)
		for _, i := range part.s.table[:min(graph.Blocks(rows), len(part.s.table))] {
			most = max(most, i+1)
		}
		for j := range part.branches {
			for _, i := range part.branches[j].blocks {
				most = max(most, i+1)
			}
		}
	}
	return e.growTo(ctx, most)
}

// growTo has there be memory for so many blocks.
func (e *Engine) growTo(ctx context.Context, most int) error {
	g := &e.growing
	if most <= g.now {
		return nil
	}
	step := (g.blocks + growSteps - 1) / growSteps
	now := min((most+step-1)/step*step, g.blocks)
	if err := e.session.SizeCaches(ctx, g.blocks, now); err != nil {
		return err
	}
	g.now, g.grown = now, g.grown+1
	e.mu.Lock()
	e.stats.Grown++
	e.mu.Unlock()
	return nil
}
