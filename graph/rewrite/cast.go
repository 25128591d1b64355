package rewrite

import (
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// FoldCasts returns the graph with linears that read half floats where they read a weight that the program widens to
// float32 first, and with embeddings whose rows are widened instead of the table. The results are the same to the bit: a
// kernel that widens in registers reads half the bytes. [Prune] leaves out the casts that nobody reads any more.
func FoldCasts(g *graph.Graph) *graph.Graph {
	casts := make(map[graph.ValueID]graph.Operand) // what is widened, by the result
	for _, op := range g.Ops {
		if op.Kind != "cast" || len(op.Guard) > 0 || g.Values[op.Out[0]].DType != tensor.Float32 {
			continue
		}
		if from := g.Values[op.In[0].Value]; from.DType.IsHalf() && from.Role == graph.Weight {
			casts[op.Out[0]] = op.In[0]
		}
	}
	if len(casts) == 0 {
		return g
	}
	h := *g
	h.Values, h.Ops = slices.Clip(g.Values), make([]graph.Op, 0, len(g.Ops))
	for _, op := range g.Ops {
		switch {
		case op.Kind == "linear" && g.Spec(op.In[0]).DType == tensor.Float32:
			op.In = slices.Clone(op.In)
			for k := 1; k < len(op.In); k++ {
				if half, ok := unwidened(casts, op.In[k]); ok && k != graph.LinearResidual {
					op.In[k] = half
				}
			}
		case op.Kind == "experts":
			op.In = slices.Clone(op.In)
			for k := graph.ExpertsFirst; k < len(op.In); k++ {
				if half, ok := unwidened(casts, op.In[k]); ok {
					op.In[k] = half
				}
			}
		case op.Kind == "embedding":
			half, ok := unwidened(casts, op.In[0])
			if !ok {
				break
			}
			rows, widen := op, op
			rows.In = slices.Clone(op.In)
			rows.In[0] = half
			v := h.Values[op.Out[0]]
			v.DType = h.Values[half.Value].DType
			rows.Out = []graph.ValueID{h.AddValue(v)}
			widen.Kind, widen.In, widen.Attrs = "cast", []graph.Operand{h.Whole(rows.Out[0])},
				graph.Attrs{"dtype": tensor.Float32}
			h.Ops = append(h.Ops, rows)
			op = widen
		}
		h.Ops = append(h.Ops, op)
	}
	return &h
}

// unwidened returns an operand over what was widened where it shows the result of one of casts.
func unwidened(casts map[graph.ValueID]graph.Operand, o graph.Operand) (graph.Operand, bool) {
	from, ok := casts[o.Value]
	if !ok {
		return graph.Operand{}, false
	}
	layout, ok := through(o.Layout, from.Layout)
	return graph.Operand{Value: from.Value, Layout: layout}, ok
}

// through returns the layout of a view of a copy over the memory that was copied.
func through(view, copied tensor.Layout) (tensor.Layout, bool) {
	switch {
	case copied.IsContiguous():
		view.Offset += copied.Offset
		return view, true
	case view.IsContiguous() && view.Offset == 0 && view.Shape.Equal(copied.Shape):
		return copied, true
	}
	return tensor.Layout{}, false
}
