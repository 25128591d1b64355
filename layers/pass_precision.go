package layers

import (
	"maps"
	"slices"

	"github.com/optimem/optimem/tensor"
)

// Narrow returns the graph with its products of float32 allowed to round their factors to a narrower precision, "bf16":
// linears and products of matrices get it as attribute "precision". Sums stay float32, and so does everything else. A
// device that has no such products must refuse the attribute.
func Narrow(g *Graph, precision string) *Graph {
	h := *g
	h.Ops = slices.Clone(g.Ops)
	for i := range h.Ops {
		op := &h.Ops[i]
		switch op.Kind {
		case "linear", "matmul":
			if g.Spec(op.In[0]).DType == tensor.Float32 {
				op.Attrs = maps.Clone(op.Attrs)
				if op.Attrs == nil {
					op.Attrs = make(Attrs)
				}
				op.Attrs["precision"] = precision
			}
		}
	}
	return &h
}
