package pager

import (
	"context"

	"github.com/optimem/optimem/device"
)

// mostKept bounds the ops that are given out at once, so that who cancels a pass need not wait for all of it.
const mostKept = 64

// A stretch is ops of a program, one behind the other, between which nothing but ops is given to the stream.
type stretch struct {
	end int
	// ran counts, by instance, the times that its ops ran one by one, up to when they are kept.
	ran []uint8
	// kept has, by instance, what the stream kept of them, nil before.
	kept []device.Kept
}

// stretches finds those of a plan that are worth keeping, by their first op.
func (p *program) stretches() map[int]*stretch {
	all := make(map[int]*stretch)
	groups := p.plan.Groups
	first := 0
	for k := range groups {
		group := &groups[k]
		// Other instances run a group before the first goes on to the next.
		joined := k > 0 && p.plan.Instances == 1 && !group.Paged() && !groups[k-1].Paged() &&
			len(group.Inputs)+len(group.SwapIn)+len(groups[k-1].Outputs)+len(groups[k-1].SwapOut) == 0
		if !joined {
			first = group.First
		}
		for i := group.First; i < group.End; i++ {
			if op := &p.ops[i]; len(op.launch.Op.Guard) > 0 || op.gather != nil || op.moved != nil {
				first = i + 1
				continue
			}
			if i-first >= mostKept {
				first = i
			}
			if n := p.plan.Instances; i > first {
				all[first] = &stretch{end: i + 1, ran: make([]uint8, n), kept: make([]device.Kept, n)}
			}
		}
	}
	return all
}

// kept runs the ops from one on that the stream kept, or keeps them now, and returns how many that are; 0 says that the op
// is to be run by itself. Ops are kept at their third run: the first may take memory and load kernels, and many plans see
// no third.
func (g *Pager) kept(ctx context.Context, first, instance int) (int, error) {
	s := g.current.kept[first]
	if s == nil || g.keeper == nil || s.end > g.until {
		return 0, nil
	}
	if s.kept[instance] == nil {
		if s.ran[instance]++; s.ran[instance] <= 2 {
			return 0, nil
		}
		k, err := g.keep(ctx, first, s.end, instance)
		if k == nil {
			return 0, err
		}
		s.kept[instance] = k
	}
	return s.end - first, g.keeper.RunKept(ctx, s.kept[instance])
}

// keep has the stream keep ops. Where it cannot, it is not asked again, and nothing is lost but time.
func (g *Pager) keep(ctx context.Context, first, end, instance int) (k device.Kept, err error) {
	if g.keeper.BeginKeeping() != nil {
		g.keeper = nil
		return nil, nil
	}
	for i := first; i < end && err == nil; i++ {
		p := &g.current.ops[i]
		p.turn(instance)
		if err = g.stream.Run(ctx, p.launch); err != nil {
			err = opError(&p.launch.Op, err)
		}
	}
	k, failed := g.keeper.EndKeeping()
	switch {
	case failed != nil:
		g.keeper = nil
		return nil, nil
	case err != nil:
		_ = k.Free() // the error is that of the op
		return nil, err
	}
	return k, nil
}

// drop gives back what the stream kept of a program.
func (p *program) drop() []error {
	var errs []error
	for _, s := range p.kept {
		for _, k := range s.kept {
			if k != nil {
				errs = append(errs, k.Free())
			}
		}
	}
	p.kept = nil
	return errs
}
