package rewrite

import (
	"maps"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// epilogues makes batch norms, additions and activations the ends of convolutions and linear layers of float32 that
// nobody else reads. Half precision stays as it is: PyTorch rounds between the ops.
func (w *rewriting) epilogues() {
	for i := range w.g.Ops {
		if w.gone[i] || len(w.g.Ops[i].Out) != 1 || w.g.Values[w.g.Ops[i].Out[0]].DType != tensor.Float32 {
			continue
		}
		op := &w.g.Ops[i]
		switch op.Kind {
		case "batch_norm":
			w.intoNorm(i)
		case "add":
			w.intoSum(i)
		default:
			if act, ok := graph.ActivationOf(op); ok && len(op.In) == 1 {
				w.intoActivation(i, act)
			}
		}
	}
}

// extended returns a conv or linear with room for all operands and with attributes of its own.
func extended(p *graph.Op, operands int) graph.Op {
	op := *p
	op.In = slices.Clone(p.In)
	for len(op.In) < operands {
		op.In = append(op.In, graph.Absent)
	}
	op.Attrs = maps.Clone(p.Attrs)
	if op.Attrs == nil {
		op.Attrs = make(graph.Attrs)
	}
	return op
}

// operandAt returns operand i of an op, which may be left out.
func operandAt(op *graph.Op, i int) graph.Operand {
	if i >= len(op.In) {
		return graph.Absent
	}
	return op.In[i]
}

// intoNorm makes the batch norm i the end of the convolution before it.
func (w *rewriting) intoNorm(i int) {
	norm := &w.g.Ops[i]
	p, _ := w.only(norm.In[0], norm.Guard)
	if p == nil || p.Kind != "conv" || operandAt(p, graph.ConvNorm).Value != graph.NoValue ||
		operandAt(p, graph.ConvResidual).Value != graph.NoValue || p.Attrs.String("act") != "" {
		return
	}
	shape := w.g.Values[p.Out[0]].Shape
	if !norm.In[0].Layout.Shape.Equal(shape) {
		return
	}
	for _, o := range norm.In[1:5] {
		if !w.isFloat32(o) {
			return
		}
	}
	op := extended(p, graph.ConvResidual)
	copy(op.In[graph.ConvNorm:], norm.In[1:5])
	op.Attrs["eps"] = norm.Attrs.Float("eps")
	w.replace(i, op, shape)
}

// intoSum makes the addition i the end of the later of the products that it adds.
func (w *rewriting) intoSum(i int) {
	sum := &w.g.Ops[i]
	if alpha, given := sum.Attrs["alpha"]; given && alpha != 1.0 && alpha != 1 {
		return
	}
	best, at := -1, -1
	for k, o := range sum.In {
		p, j := w.only(o, sum.Guard)
		if p == nil || j <= at || p.Kind != "conv" && p.Kind != "linear" || !w.isFloat32(sum.In[1-k]) {
			continue
		}
		switch {
		case p.Kind == "conv" &&
			(operandAt(p, graph.ConvResidual).Value != graph.NoValue || p.Attrs.String("act") != ""),
			p.Kind == "linear" && operandAt(p, graph.LinearResidual).Value != graph.NoValue:
			continue
		}
		if _, ok := w.residual(sum.In[1-k], p); ok {
			best, at = k, j
		}
	}
	if best < 0 {
		return
	}
	p := &w.g.Ops[at]
	place := graph.LinearResidual
	if p.Kind == "conv" {
		place = graph.ConvResidual
	}
	op := extended(p, place+1)
	op.In[place], _ = w.residual(sum.In[1-best], p)
	w.replace(i, op, w.g.Values[p.Out[0]].Shape)
}

// residual returns an operand as what a conv or linear adds, false where it is not all of an input or a result: kernels
// read it line by line beside what they write.
func (w *rewriting) residual(o graph.Operand, p *graph.Op) (graph.Operand, bool) {
	v := &w.g.Values[o.Value]
	if v.Role != graph.Computed && v.Role != graph.Input || !w.whole(o) {
		return o, false
	}
	o.Layout = tensor.Contiguous(w.g.Values[p.Out[0]].Shape...)
	n, _ := o.Layout.NumElements()
	return o, n == graph.Elements(v.Shape)
}

// intoActivation makes the activation i the end of the product before it.
func (w *rewriting) intoActivation(i int, act graph.Attrs) {
	p, _ := w.only(w.g.Ops[i].In[0], w.g.Ops[i].Guard)
	if p == nil || p.Attrs.String("act") != "" ||
		p.Kind != "conv" && (p.Kind != "linear" || operandAt(p, graph.LinearResidual).Value != graph.NoValue) {
		return
	}
	op := extended(p, len(p.In))
	maps.Copy(op.Attrs, act)
	w.replace(i, op, w.g.Values[p.Out[0]].Shape)
}
