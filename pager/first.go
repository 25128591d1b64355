package pager

import (
	"errors"
	"time"

	"github.com/optimem/optimem/pager/fetch"
	"github.com/optimem/optimem/plan"
)

// A first is the fetcher of a pass that begins before the resident weights are loaded. With each group's own weights it
// loads those resident weights that no earlier group needed. If the pass fails, none of them count as loaded.
type first struct {
	*fetch.Direct
	// reads are those of what stays, by group.
	reads [][]plan.Span
	began time.Time
}

// newFirst returns the fetcher for a plan's first pass, nil where the weights that stay are brought before. What it
// reads has no place until the arenas are large enough.
func newFirst(p *plan.Plan, began time.Time) *first {
	if !p.Early {
		return nil
	}
	if reads := p.FirstReads(); reads != nil {
		return &first{reads: reads, began: began}
	}
	return nil
}

// layFirst finds the memory of what the first pass brings.
func (g *Pager) layFirst(p *plan.Plan) (err error) {
	g.first.Direct, err = g.newDirect(p, g.first.reads)
	return err
}

// fetcher is what brings weights for the pass that runs.
func (g *Pager) fetcher() fetch.Fetcher {
	if g.first != nil {
		return g.first
	}
	return g.current.fetcher
}

// brings reports whether a group of this pass has to be waited for.
func (g *Pager) brings(k int) bool {
	if g.first != nil {
		return g.first.Brings(k)
	}
	return g.current.plan.Groups[k].Paged()
}

// tick is the fetcher's.
func (g *Pager) tick() { g.fetcher().Tick() }

// endFirst ends the bringing of the weights that stay where all groups have run.
func (g *Pager) endFirst() error {
	f := g.first
	if f == nil {
		return nil
	}
	err := g.closeFirst()
	g.brought(g.current.plan.Fixed.WeightBytes, f.began)
	return err
}

func (g *Pager) closeFirst() error {
	f := g.first
	if g.first = nil; f == nil || f.Direct == nil {
		return nil
	}
	return f.Close()
}

// dropFirst drops the weights that stay where they are not all there, and returns the error for which they are not.
func (g *Pager) dropFirst(err error) error {
	if g.first == nil {
		return err
	}
	g.held = nil
	return errors.Join(err, g.closeFirst(), g.drop(), free(&g.fixed))
}
