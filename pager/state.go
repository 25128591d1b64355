package pager

import (
	"context"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// States are the buffers that passes have changed, by their storage: which pagers have what the last pass made of one on
// their device. Pagers whose plans have parts of one program share them, for from one plan to the next a buffer may be read
// on another device. Like its pagers it must not be used by two goroutines at once.
type States struct {
	// begun counts what pagers have begun: none begins before all that run one pass have ended it.
	begun int64
	of    map[storage.Extent]*state
}

// NewStates returns the states of programs that have changed none.
func NewStates() *States { return &States{of: make(map[storage.Extent]*state)} }

// A state is a buffer that a pass has changed.
type state struct {
	// changed is when it was changed last, by States.begun.
	changed int64
	// holders have it on their devices; where none does it is kept as bytes, else these are nil. Bytes may be those of a program
	// that passed it: they are copied to a device before the program passes it again.
	holders []*Pager
	bytes   []byte
}

// held calls f for the buffers that a plan keeps on the device and that were changed.
func (s *States) held(p *plan.Plan, f func(part plan.Part, weight *tensor.Weight, x *state) error) error {
	if len(s.of) == 0 {
		return nil
	}
	for _, part := range p.Fixed.Parts {
		v := &p.Lowered.Graph.Values[part.Value]
		if v.Role != graph.State {
			continue
		}
		if x := s.of[v.Weight.Extent]; x != nil {
			if err := f(part, &v.Weight, x); err != nil {
				return err
			}
		}
	}
	return nil
}

// save keeps aside what no other pager has of the buffers on the device, before that memory is given up.
func (g *Pager) save(ctx context.Context) error {
	if g.held == nil {
		return nil
	}
	saved := make(map[*state][]byte)
	err := g.opts.States.held(g.held, func(part plan.Part, weight *tensor.Weight, x *state) error {
		if len(x.holders) != 1 || x.holders[0] != g {
			return nil
		}
		bytes := make([]byte, part.High-part.Low)
		saved[x] = bytes
		return located(g.stream.CopyOut(bytes, g.fixedRegion(part)), module(weight.Name), "save")
	})
	if err == nil {
		err = g.stream.Sync(ctx)
	}
	if err != nil {
		g.quiesce() // bytes may still be copied to
		return err
	}
	return g.opts.States.held(g.held, func(_ plan.Part, _ *tensor.Weight, x *state) error {
		if bytes, ok := saved[x]; ok {
			x.bytes = bytes
		}
		x.holders = slices.DeleteFunc(x.holders, func(h *Pager) bool { return h == g })
		return nil
	})
}

// refresh brings what passes have made of the buffers that the plan has on the device.
func (g *Pager) refresh(ctx context.Context) error {
	copied := false
	err := g.opts.States.held(g.held, func(part plan.Part, weight *tensor.Weight, x *state) error {
		if slices.Contains(x.holders, g) {
			return nil
		}
		bytes := x.bytes
		if len(x.holders) > 0 {
			var err error
			if bytes, err = x.holders[0].fetch(ctx, weight.Extent); err != nil {
				return located(err, module(weight.Name), "load")
			}
		}
		copied = true
		return located(g.stream.CopyIn(g.fixedRegion(part), bytes), module(weight.Name), "load")
	})
	if err != nil || !copied {
		return err
	}
	if err := g.stream.Sync(ctx); err != nil {
		return located(err, "", "load")
	}
	return g.opts.States.held(g.held, func(_ plan.Part, _ *tensor.Weight, x *state) error {
		if !slices.Contains(x.holders, g) {
			x.holders, x.bytes = append(x.holders, g), nil
		}
		return nil
	})
}

// fetch copies a buffer from the device.
func (g *Pager) fetch(ctx context.Context, of storage.Extent) (bytes []byte, err error) {
	err = g.opts.States.held(g.held, func(part plan.Part, weight *tensor.Weight, _ *state) error {
		if weight.Extent != of {
			return nil
		}
		bytes = make([]byte, part.High-part.Low)
		return g.stream.CopyOut(bytes, g.fixedRegion(part))
	})
	if err == nil {
		err = g.stream.Sync(ctx)
	}
	if err != nil {
		g.quiesce() // the pass that fails is another pager's
		return nil, err
	}
	return bytes, nil
}

// changed says that the pass that ends has made something else of a buffer, which is now as bytes says. Where another part of
// the pass has said so before, it is the same.
func (s *States) changed(of storage.Extent, bytes []byte) {
	x := s.of[of]
	if x == nil {
		x = new(state)
		s.of[of] = x
	}
	if x.changed != s.begun {
		x.changed, x.holders, x.bytes = s.begun, x.holders[:0], bytes
	}
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
		if p.Lowered.Graph.Values[id].Role == graph.Input && p.Places[id].First < 0 {
			copy(g.current.updates[i], io.Input(0, id))
		} else if err := g.stream.CopyOut(g.current.updates[i], g.region(id, 0)); err != nil {
			return err
		}
	}
	return g.stream.Sync(ctx)
}

// commitUpdates makes the states what was read.
func (g *Pager) commitUpdates() {
	graph := g.current.plan.Lowered.Graph
	for i, u := range graph.Updates {
		g.opts.States.changed(graph.Values[u.State].Weight.Extent, g.current.updates[i])
	}
}
