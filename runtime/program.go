package runtime

import (
	"context"
	"fmt"
	"slices"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/tensor"
)

// A program is a graph planned for the session.
type program struct {
	graph *layers.Graph
	plan  *plan.Plan
	// whole has, for each output, whether its elements lie in order without gaps, so that they can be copied out as they
	// are.
	whole []bool
}

// maxPrograms bounds the plans kept, one for each set of input shapes.
const maxPrograms = 16

// program returns the graph planned. Weights that stay do so where the plan for the shapes before had them, if the
// budget allows it.
func (s *Session) program(g *layers.Graph) (*program, error) {
	if p, ok := s.programs[g]; ok {
		return p, nil
	}
	dumped, err := withDumps(g, s.opts.Dump)
	if err != nil {
		return nil, err
	}
	p := &program{graph: layers.Prune(dumped)}
	lowered, err := s.machine.lower(p.graph)
	if err != nil {
		return nil, err
	}
	o := s.planOptions()
	if s.current != nil {
		o.Like = s.current.plan
	}
	if p.plan, err = plan.New(lowered, o); err != nil {
		return nil, err
	}
	for _, out := range p.graph.Outputs {
		p.whole = append(p.whole, out.Operand.Layout.IsContiguous())
	}
	for old := range s.programs { // any: a service has few shapes
		if len(s.programs) < maxPrograms {
			break
		}
		delete(s.programs, old)
	}
	s.programs[g] = p
	return p, nil
}

func (s *Session) planOptions() plan.Options {
	return plan.Options{
		Mode: s.mode, Target: s.machine.target, MemoryBytes: s.opts.Memory, HostBytes: s.opts.HostMemory,
		MaxGroup: s.opts.MaxGroup, Capacity: s.opts.Capacity,
		Ops: s.opts.Ops, Rates: s.machine.rates, HostRates: s.opts.HostRates,
		Lower: s.machine.lower, HostLower: s.machine.hostLower,
	}
}

// withDumps returns the graph with the outputs of modules among its outputs.
func withDumps(g *layers.Graph, paths []string) (*layers.Graph, error) {
	if len(paths) == 0 {
		return g, nil
	}
	dumped := *g
	dumped.Values, dumped.Ops, dumped.Outputs = slices.Clip(g.Values), slices.Clip(g.Ops), slices.Clip(g.Outputs)
	for _, path := range paths {
		o, ok := g.Modules[path]
		if !ok {
			return nil, &InputError{"dump", fmt.Sprintf("no module %q gives a tensor", path)}
		}
		n, err := o.Layout.NumElements()
		if held, _ := g.Values[o.Value].Shape.NumElements(); err != nil || n > held {
			// A view of some elements many times: what a plan counts is the memory of a copy.
			out, err := dumped.Emit(layers.Standard(), layers.Op{
				Kind: "copy", Path: path, In: []layers.Operand{o}, Guard: guardOf(g, o.Value),
			})
			if err != nil {
				return nil, fmt.Errorf("dump: %s: %w", path, err)
			}
			o = dumped.Whole(out[0])
		}
		dumped.Outputs = append(dumped.Outputs, layers.Output{Name: "dump:" + path, Operand: o})
	}
	return &dumped, nil
}

// guardOf returns the guard of the op that computes a value.
func guardOf(g *layers.Graph, id layers.ValueID) []layers.Guard {
	for _, op := range g.Ops {
		if slices.Contains(op.Out, id) {
			return op.Guard
		}
	}
	return nil
}

// Plan returns what a pass for inputs of the given shapes would do. Nothing is read or allocated for it.
func (s *Session) Plan(ctx context.Context, shapes map[string]tensor.Shape) (*plan.Plan, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	defer s.release()
	if s.closed {
		return nil, ErrClosed
	}
	g, err := s.model.Graph(shapes)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	p, err := s.program(g)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	return p.plan, nil
}
