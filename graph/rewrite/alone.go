package rewrite

import (
	"maps"
	"slices"

	"github.com/optimem/optimem/graph"
)

// KeepRowsAlone returns the graph with [graph.RowsAlone] at its products, where it has caches: there a row stands for a token,
// which is to have the same bits whatever goes through the pass with it. A device whose products sum in the same order for any
// number of rows need not look at the attribute.
func KeepRowsAlone(g *graph.Graph) *graph.Graph {
	if !g.HasCaches() {
		return g
	}
	h := *g
	h.Ops = slices.Clone(g.Ops)
	for i := range h.Ops {
		op := &h.Ops[i]
		switch op.Kind {
		case "linear", "matmul", "grouped_matmul":
			op.Attrs = maps.Clone(op.Attrs)
			if op.Attrs == nil {
				op.Attrs = make(graph.Attrs)
			}
			op.Attrs[graph.RowsAlone] = true
		}
	}
	return &h
}
