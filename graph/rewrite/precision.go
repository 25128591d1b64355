package rewrite

import (
	"maps"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// Narrow returns the graph with its products of float32 allowed to round their factors to a narrower precision, "bf16":
// linears, products of matrices, attention and convolutions get it as attribute "precision". Sums stay float32; what a
// convolution or a linear makes may be rounded too, for those that read it, as may be attention's weights, and everything
// else stays float32, as do linears with the attribute "exact". A device that has no such products must refuse the attribute; one that has some need not have all.
func Narrow(g *graph.Graph, precision string) *graph.Graph {
	h := *g
	h.Ops = slices.Clone(g.Ops)
	for i := range h.Ops {
		op := &h.Ops[i]
		switch op.Kind {
		case "linear", "matmul", "conv", "scaled_dot_product_attention":
			if g.Spec(op.In[0]).DType == tensor.Float32 && !op.Attrs.Bool("exact") {
				op.Attrs = maps.Clone(op.Attrs)
				if op.Attrs == nil {
					op.Attrs = make(graph.Attrs)
				}
				op.Attrs["precision"] = precision
			}
		}
	}
	return &h
}

// NarrowEncoded returns the graph with its linears whose weights are blocks of codes allowed to round their inputs to
// codes, too, where takes says that the device multiplies those of an encoding: they get attribute "precision", and n
// is how many they are. Linears with the attribute "exact", and everything else, stay as they are.
func NarrowEncoded(g *graph.Graph, precision string, takes func(encoding string) bool) (narrow *graph.Graph, n int) {
	h := *g
	h.Ops = slices.Clone(g.Ops)
	for i := range h.Ops {
		op := &h.Ops[i]
		if op.Kind != "linear" || g.Spec(op.In[0]).DType != tensor.Float32 || op.Attrs.Bool("exact") ||
			!takes(op.Attrs.String(graph.EncodingAttr)) {
			continue
		}
		op.Attrs = maps.Clone(op.Attrs)
		op.Attrs["precision"] = precision
		n++
	}
	return &h, n
}
