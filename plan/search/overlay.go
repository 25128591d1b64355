package search

import (
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
)

// writeOver has results take the places of operands that are not needed any more, where the op's step says that it may
// write over them. It reports whether there are any. Whoever else reads an operand must have done so: a value that goes
// out, that becomes a state or that goes to host memory after its group is left as it is, and so is one of which the op
// has another view. Inputs are left as they are, too: they may be the caller's memory one day.
func writeOver(p *plan.Plan) bool {
	l := p.Lowered
	g := l.Graph
	kept := make([]bool, len(g.Values))
	for id := range g.Values {
		kept[id] = g.Values[id].Role != graph.Computed
	}
	for _, o := range g.Outputs {
		kept[o.Operand.Value] = true
	}
	for _, u := range g.Updates {
		kept[u.Operand.Value] = true
	}
	for i := range p.Groups {
		for _, s := range p.Groups[i].SwapOut {
			kept[s.Value] = true
		}
	}
	found := false
	for i := range g.Ops {
		op, step := &g.Ops[i], &l.Steps[i]
		for _, in := range step.InPlace {
			if in >= len(op.In) || op.In[in].Value == graph.NoValue {
				continue
			}
			id := op.In[in].Value
			if kept[id] || p.Places[id].Last != i || !g.CanOverlay(op, in) || !onlyOverlays(g, step, op, id) {
				continue
			}
			place := &p.Places[op.Out[0]]
			place.Over, place.Operand, found = true, id, true
			break
		}
	}
	return found
}

// onlyOverlays reports whether an op may write over all of its operands that are a value.
func onlyOverlays(g *graph.Graph, step *graph.Step, op *graph.Op, id graph.ValueID) bool {
	for in, o := range op.In {
		if o.Value == id && (!slices.Contains(step.InPlace, in) || !g.CanOverlay(op, in)) {
			return false
		}
	}
	return true
}
