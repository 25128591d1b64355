package rewrite

import (
	"slices"

	"github.com/optimem/optimem/graph"
)

// Prune returns the graph without what its results do not need: ops of which no output, no update of a state and no
// other op that stays uses a result and that write to no cache, and the values that nobody is left to read. Inputs
// stay, because a caller gives them, and caches, which passes to come may read; a module's output alone keeps nothing,
// and is forgotten with its value. Values have new ids. The graph itself does not change.
func Prune(g *graph.Graph) *graph.Graph {
	needed := make([]bool, len(g.Values))
	need := func(o graph.Operand) {
		if o.Value != graph.NoValue {
			needed[o.Value] = true
		}
	}
	for _, id := range g.Inputs {
		needed[id] = true
	}
	for id := range g.Values { // other passes have need of it
		needed[id] = needed[id] || g.Values[id].Role == graph.Cache
	}
	for _, o := range g.Outputs {
		need(o.Operand)
	}
	for _, u := range g.Updates {
		needed[u.State] = true
		need(u.Operand)
	}
	stays := make([]bool, len(g.Ops))
	for i, op := range slices.Backward(g.Ops) {
		stays[i] = g.WritesCache(&op)
		for _, id := range op.Out {
			stays[i] = stays[i] || needed[id]
		}
		if !stays[i] {
			continue
		}
		for _, id := range op.Out { // all of them: the op writes them, whoever reads them
			needed[id] = true
		}
		for _, o := range op.In {
			need(o)
		}
		for _, c := range op.Guard {
			need(c.Predicate)
		}
	}
	ids := make([]graph.ValueID, len(g.Values))
	pruned := &graph.Graph{Modules: make(map[string]graph.Operand, len(g.Modules)), SourceBytes: g.SourceBytes}
	for id, v := range g.Values {
		ids[id] = graph.NoValue
		if needed[id] {
			ids[id] = pruned.AddValue(v)
		}
	}
	moved := func(o graph.Operand) graph.Operand {
		if o.Value != graph.NoValue {
			o.Value = ids[o.Value]
		}
		return o
	}
	for _, id := range g.Inputs {
		pruned.Inputs = append(pruned.Inputs, ids[id])
	}
	for i, op := range g.Ops {
		if stays[i] {
			pruned.Ops = append(pruned.Ops, renamed(op, ids, moved))
		}
	}
	for _, o := range g.Outputs {
		o.Operand = moved(o.Operand)
		pruned.Outputs = append(pruned.Outputs, o)
	}
	for _, u := range g.Updates {
		pruned.Updates = append(pruned.Updates, graph.StateUpdate{State: ids[u.State], Operand: moved(u.Operand)})
	}
	for path, o := range g.Modules {
		if o = moved(o); o.Value != graph.NoValue {
			pruned.Modules[path] = o
		}
	}
	return pruned
}

// renamed returns an op over values with new ids.
func renamed(op graph.Op, ids []graph.ValueID, moved func(graph.Operand) graph.Operand) graph.Op {
	op.In, op.Out, op.Guard = slices.Clone(op.In), slices.Clone(op.Out), slices.Clone(op.Guard)
	for i, o := range op.In {
		op.In[i] = moved(o)
	}
	for i, id := range op.Out {
		op.Out[i] = ids[id]
	}
	for i, c := range op.Guard {
		op.Guard[i].Predicate = moved(c.Predicate)
	}
	return op
}
