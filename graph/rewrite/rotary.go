package rewrite

import (
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// rotary makes one op of x × cos + cat(−second half of x, first half of x) × sin along the last dimension, where op i is the
// sum: rotary position embeddings as models write them. The bits stay the same.
func (w *rewriting) rotary(i int) {
	op := &w.g.Ops[i]
	if len(op.In) != 2 || alphaNotOne(op.Attrs) {
		return
	}
	shape := w.g.Values[op.Out[0]].Shape
	for k := range 2 {
		straight, _ := w.only(op.In[k], op.Guard)
		crossed, _ := w.only(op.In[1-k], op.Guard)
		if straight == nil || crossed == nil || straight.Kind != "mul" || crossed.Kind != "mul" {
			return
		}
		for n := range 2 {
			turned, ok := w.turnedHalves(crossed.In[n], op.Guard, shape)
			if !ok {
				continue
			}
			for m := range 2 {
				x, ok1 := reshaped(straight.In[m], shape)
				cos, ok2 := reshaped(straight.In[1-m], shape)
				sin, ok3 := reshaped(crossed.In[1-n], shape)
				if !ok1 || !ok2 || !ok3 || !w.are(w.g.Values[op.Out[0]].DType, x, cos, sin) {
					continue
				}
				first, second := halves(x)
				if sameOperand(first, turned[1]) && sameOperand(second, turned[0]) {
					w.replace(i, graph.Op{
						Kind: "rotary", Path: straight.Path, Source: straight.Source, In: []graph.Operand{x, cos, sin},
					}, shape)
					return
				}
			}
		}
	}
}

// alphaNotOne reports whether a sum multiplies its second operand.
func alphaNotOne(a graph.Attrs) bool { return a["alpha"] != nil && a["alpha"] != 1.0 }

// turnedHalves returns what an operand of a shape is put together of, where that is two halves along the last dimension, the
// first of them negated.
func (w *rewriting) turnedHalves(
	o graph.Operand, guards []graph.Guard, shape tensor.Shape,
) (parts [2]graph.Operand, ok bool) {
	cat, _ := w.only(o, guards)
	last := len(shape) - 1
	if cat == nil || cat.Kind != "cat" || len(cat.In) != 2 || last < 0 || shape[last]%2 != 0 {
		return parts, false
	}
	made := w.g.Values[cat.Out[0]].Shape
	if cat.Attrs.Int("dim") != len(made)-1 || made[len(made)-1] != shape[last] {
		return parts, false
	}
	neg, _ := w.only(cat.In[0], guards)
	if neg == nil || neg.Kind != "neg" {
		return parts, false
	}
	half := slices.Clone(shape)
	half[last] /= 2
	var ok1, ok2 bool
	parts[0], ok1 = reshaped(neg.In[0], half)
	parts[1], ok2 = reshaped(cat.In[1], half)
	return parts, ok1 && ok2
}

// halves returns the first and the second half of an operand along the last dimension.
func halves(o graph.Operand) (first, second graph.Operand) {
	last := len(o.Layout.Shape) - 1
	first = graph.Operand{Value: o.Value, Layout: tensor.Layout{
		Shape: slices.Clone(o.Layout.Shape), Strides: o.Layout.Strides, Offset: o.Layout.Offset,
	}}
	first.Layout.Shape[last] /= 2
	second = first
	second.Layout.Offset += first.Layout.Shape[last] * first.Layout.Strides[last]
	return first, second
}
