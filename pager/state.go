package pager

import (
	"context"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// save keeps the contents of the buffers that the program changes aside, by their storage, until they are on the device
// again.
func (g *Pager) save(ctx context.Context) error {
	if g.held == nil {
		return nil
	}
	saved := make(map[tensor.Extent][]byte)
	for _, part := range g.held.Fixed.Parts {
		v := &g.held.Lowered.Graph.Values[part.Value]
		if v.Role != layers.State {
			continue
		}
		bytes := make([]byte, part.High-part.Low)
		if err := g.stream.CopyOut(bytes, g.fixedRegion(part)); err != nil {
			return located(err, module(v.Weight.Name), "save")
		}
		saved[v.Weight.Extent] = bytes
	}
	if err := g.stream.Sync(ctx); err != nil {
		return err
	}
	g.saved = saved
	return nil
}

// readUpdates reads what the pass left of the states, all before one is written: a state may become what another was. What
// comes from outside and no op reads is not on the device.
func (g *Pager) readUpdates(ctx context.Context, io IO) error {
	p := g.current.plan
	updates := p.Lowered.Graph.Updates
	if len(updates) == 0 {
		return nil
	}
	for i, u := range updates {
		id := u.Operand.Value
		if p.Lowered.Graph.Values[id].Role == layers.Input && p.Places[id].First < 0 {
			copy(g.current.updates[i], io.Input(0, id))
		} else if err := g.stream.CopyOut(g.current.updates[i], g.region(id, 0)); err != nil {
			return err
		}
	}
	return g.stream.Sync(ctx)
}

// writeUpdates makes the states what was read.
func (g *Pager) writeUpdates() error {
	updates := g.current.plan.Lowered.Graph.Updates
	if len(updates) == 0 {
		return nil
	}
	for i, u := range updates {
		if err := g.stream.CopyIn(g.region(u.State, 0), g.current.updates[i]); err != nil {
			return err
		}
	}
	return g.stream.Sync(context.Background())
}
