package layers

import (
	"slices"

	"github.com/optimem/optimem/tensor"
)

// FoldCasts returns the graph with linears that read half floats where they read a weight that the program widens to
// float32 first. The results are the same to the bit: a kernel that widens in registers reads half the bytes. [Prune]
// leaves out the casts that nobody reads any more.
func FoldCasts(g *Graph) *Graph {
	casts := make(map[ValueID]Operand) // what is widened, by the result
	for _, op := range g.Ops {
		if op.Kind != "cast" || len(op.Guard) > 0 || g.Values[op.Out[0]].DType != tensor.Float32 {
			continue
		}
		if from := g.Values[op.In[0].Value]; isHalf(from.DType) && from.Role == Weight {
			casts[op.Out[0]] = op.In[0]
		}
	}
	if len(casts) == 0 {
		return g
	}
	h := *g
	h.Ops = slices.Clone(g.Ops)
	for i := range h.Ops {
		op := &h.Ops[i]
		if op.Kind != "linear" || g.Spec(op.In[0]).DType != tensor.Float32 {
			continue
		}
		for k := 1; k < len(op.In); k++ {
			from, ok := casts[op.In[k].Value]
			if !ok || k == linearResidual {
				continue
			}
			layout, ok := through(op.In[k].Layout, from.Layout)
			if !ok {
				continue
			}
			op.In = slices.Clone(op.In)
			op.In[k] = Operand{Value: from.Value, Layout: layout}
		}
	}
	return &h
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
