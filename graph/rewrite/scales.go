package rewrite

import (
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// scales makes linears of int8 weights and scales where a program widens such a weight and scales it, row by row, or scales
// what it multiplies by it:
//
//	linear(x, cast(w) × s)    linear(x, cast(w)) × s    and both with a product of matrices, and + bias behind the second
//
// The weight stays int8 in memory. Where the program has float32, each sum is another order of the same factors: with
// u = 2⁻²⁴ and K terms, an element differs from what the program says by at most 2·(K+2)·u·Σ|x·w·s|. Where it has half floats, the
// program also rounds scaled weights, or sums before they are scaled, and this does not.
func (w *rewriting) scales() {
	for i := range w.g.Ops {
		op := &w.g.Ops[i]
		if w.gone[i] || len(op.Out) != 1 {
			continue
		}
		if d := w.g.Values[op.Out[0]].DType; d != tensor.Float32 && !d.IsHalf() {
			continue
		}
		switch op.Kind {
		case "linear", "matmul":
			w.scaledWeight(i)
		case "mul":
			w.scaledSums(i)
		case "add":
			w.scaledBias(i)
		}
	}
}

// asLinear returns a product of two matrices as a linear layer of its weight, false where it is more than that. The result
// is a copy.
func (w *rewriting) asLinear(op *graph.Op) (graph.Op, bool) {
	linear := *op
	if op.Kind != "linear" && op.Kind != "matmul" {
		return linear, false
	}
	linear.In = []graph.Operand{op.In[0], op.In[1], graph.Absent, graph.Absent, graph.Absent}
	if op.Attrs.String("act") != "" || op.Attrs.String("precision") != "" || op.In[0].Value == graph.NoValue ||
		operandAt(op, graph.LinearResidual).Value != graph.NoValue ||
		operandAt(op, graph.LinearScales).Value != graph.NoValue {
		return linear, false
	}
	linear.Attrs = nil
	if op.Kind == "linear" {
		linear.In[2] = operandAt(op, 2)
		return linear, true
	}
	y := op.In[1].Layout
	for len(y.Shape) > 2 && (y.Shape[0] == 1 || y.Strides[0] == 0) { // the same for every matrix of the batch
		y = tensor.Layout{Shape: y.Shape[1:], Strides: y.Strides[1:], Offset: y.Offset}
	}
	if len(y.Shape) != 2 || operandAt(op, 2).Value != graph.NoValue || op.Attrs.Float("alpha") != 1 {
		return linear, false
	}
	linear.Kind = "linear"
	linear.In[1].Layout = turned(y)
	return linear, true
}

// turned returns a matrix's layout with its dimensions exchanged.
func turned(l tensor.Layout) tensor.Layout {
	return tensor.Layout{
		Shape: tensor.Shape{l.Shape[1], l.Shape[0]}, Strides: []int{l.Strides[1], l.Strides[0]}, Offset: l.Offset,
	}
}

// bytesOf returns what an operand shows of a weight of int8 that a cast made floats.
func (w *rewriting) bytesOf(o graph.Operand, guards []graph.Guard) (graph.Operand, bool) {
	if o.Value == graph.NoValue || w.from[o.Value] < 0 {
		return o, false
	}
	cast := &w.g.Ops[w.from[o.Value]]
	if cast.Kind != "cast" || len(cast.Guard) > 0 && !sameGuards(cast.Guard, guards) {
		return o, false
	}
	raw := cast.In[0]
	if v := &w.g.Values[raw.Value]; v.Role != graph.Weight || v.DType != tensor.Int8 {
		return o, false
	}
	layout, ok := through(o.Layout, raw.Layout)
	if !ok && len(o.Layout.Shape) == 2 { // both may be turned
		if layout, ok = through(turned(o.Layout), raw.Layout); ok {
			layout = turned(layout)
		}
	}
	return graph.Operand{Value: raw.Value, Layout: layout}, ok
}

// isScales reports whether an operand may be the scales of sums of a dtype.
func (w *rewriting) isScales(o graph.Operand, d tensor.DType) bool {
	return o.Value != graph.NoValue && w.g.Values[o.Value].DType == d
}

// scaledWeight makes the product i one of the bytes that its weight was made of, and of scales.
func (w *rewriting) scaledWeight(i int) {
	op, ok := w.asLinear(&w.g.Ops[i])
	if !ok || op.In[1].Value == graph.NoValue || w.from[op.In[1].Value] < 0 {
		return
	}
	wide := op.In[1]
	mul := &w.g.Ops[w.from[wide.Value]]
	if mul.Kind != "mul" || len(mul.Guard) > 0 && !sameGuards(mul.Guard, op.Guard) {
		return
	}
	// The weight is all of the product, as it lies or turned.
	shape, row := w.g.Values[wide.Value].Shape, 0
	if len(shape) != 2 || wide.Layout.Offset != 0 {
		return
	}
	if !wide.Layout.IsContiguous() || !wide.Layout.Shape.Equal(shape) {
		if back := turned(wide.Layout); !back.IsContiguous() || !back.Shape.Equal(shape) {
			return
		}
		row = 1
	}
	for k, o := range mul.In {
		weight, ok := w.bytesOf(o, op.Guard)
		if !ok || !weight.Layout.Shape.Equal(shape) {
			continue
		}
		scales, ok := rowOf(mul.In[1-k], row)
		if !ok || !w.isScales(scales, w.g.Values[op.Out[0]].DType) {
			continue
		}
		if row == 1 {
			weight.Layout = turned(weight.Layout)
		}
		op.In[1], op.In[graph.LinearScales] = weight, scales
		w.replace(i, op, w.g.Values[op.Out[0]].Shape)
		return
	}
}

// scaledSums makes the multiplication i the scales of the product before it.
func (w *rewriting) scaledSums(i int) {
	mul := &w.g.Ops[i]
	last := len(w.g.Values[mul.Out[0]].Shape) - 1
	for k, o := range mul.In {
		p, _ := w.only(o, mul.Guard)
		if p == nil {
			continue
		}
		op, ok := w.asLinear(p)
		if !ok || op.In[2].Value != graph.NoValue || last < 0 || o.Layout.Shape[last] != op.In[1].Layout.Shape[0] {
			continue
		}
		weight, ok := w.bytesOf(op.In[1], mul.Guard)
		if !ok {
			continue
		}
		scales, ok := rowOf(mul.In[1-k], last)
		if !ok || !w.isScales(scales, w.g.Values[mul.Out[0]].DType) {
			continue
		}
		op.In[1], op.In[graph.LinearScales] = weight, scales
		w.replace(i, op, w.g.Values[p.Out[0]].Shape)
		return
	}
}

// scaledBias makes the addition i of a row the bias of the scaled product before it.
func (w *rewriting) scaledBias(i int) {
	sum := &w.g.Ops[i]
	if alpha, given := sum.Attrs["alpha"]; given && alpha != 1.0 && alpha != 1 {
		return
	}
	last := len(w.g.Values[sum.Out[0]].Shape) - 1
	for k, o := range sum.In {
		p, _ := w.only(o, sum.Guard)
		if p == nil || p.Kind != "linear" || operandAt(p, graph.LinearScales).Value == graph.NoValue ||
			p.In[2].Value != graph.NoValue ||
			last < 0 || o.Layout.Shape[last] != p.In[1].Layout.Shape[0] {
			continue
		}
		bias, ok := rowOf(sum.In[1-k], last)
		if !ok || !w.isScales(bias, w.g.Values[sum.Out[0]].DType) || w.g.Values[bias.Value].Role == graph.Computed {
			continue
		}
		op := *p
		op.In = slices.Clone(p.In)
		op.In[2] = bias
		w.replace(i, op, w.g.Values[p.Out[0]].Shape)
		return
	}
}
