package rewrite

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// attention makes one op of softmax(q · kᵀ × scale + mask) · v, where op i is the product with v. Two masks are added
// to each other instead.
func (w *rewriting) attention(i int) {
	op := &w.g.Ops[i]
	if !plainProduct(op) {
		return
	}
	weights, _ := w.only(op.In[0], op.Guard)
	rank := len(op.In[0].Layout.Shape)
	if weights == nil || weights.Kind != "softmax" || rank < 3 ||
		weights.Attrs.Int("dim") != len(weights.In[0].Layout.Shape)-1 ||
		weights.In[0].Layout.Shape[len(weights.In[0].Layout.Shape)-1] != op.In[0].Layout.Shape[rank-1] {
		return
	}
	a := w.scoresOf(weights.In[0], op)
	if a == nil {
		return
	}
	scores, scale, masks, product := a.shape, a.scale, a.masks, a.product
	rank = len(scores)
	q, k, v := product.In[0], turnedMatrix(product.In[1]), op.In[1]
	if p, _ := w.only(q, op.Guard); p != nil && p.Kind == "mul" { // q was scaled before
		if n, ok := w.number(p.In[1]); ok {
			if r, ok := reshaped(p.In[0], q.Layout.Shape); ok {
				q, scale = r, scale*n
			}
		}
	}
	leading := scores[:rank-2]
	for k, m := range masks {
		var ok bool
		if masks[k], ok = reshaped(m, scores); !ok {
			return
		}
	}
	for _, o := range []*graph.Operand{&q, &k, &v} {
		s := o.Layout.Shape
		r, ok := reshaped(*o, append(slices.Clone(leading), s[len(s)-2:]...))
		if !ok || !w.isFloat32(r) {
			return
		}
		*o = r
	}
	if q.Layout.Shape[rank-2] != scores[rank-2] || k.Layout.Shape[rank-2] != scores[rank-1] ||
		math.IsNaN(scale) || math.IsInf(scale, 0) {
		return
	}
	attrs := graph.Attrs{"scale": scale, "is_causal": false, "also": ""}
	in := []graph.Operand{q, k, v}
	// Two masks of the least finite number add up to −∞.
	unsure := len(masks) > 1 || slices.ContainsFunc(masks, func(o graph.Operand) bool { return !w.finite(o) })
	if unsure && !weights.Attrs.Bool("safe") {
		attrs["unseen_nan"] = true
	}
	whole := graph.Op{Kind: "scaled_dot_product_attention", Path: product.Path, Source: product.Source, Attrs: attrs}
	shape := append(slices.Clone(scores[:rank-1]), v.Layout.Shape[rank-1])
	if len(masks) < 2 {
		whole.In = append(in, masks...)
		w.replace(i, whole, shape)
		return
	}
	add := w.g.Ops[a.sum]
	whole.In = append(in, graph.Operand{Value: add.Out[0], Layout: tensor.Contiguous(scores...)})
	w.replace(i, whole, shape) // first: what only the sum reads would be gone
	w.replace(a.sum, graph.Op{Kind: "add", Path: add.Path, Source: add.Source, In: masks}, scores)
}

// scores are what softmax is of: a product × scale + masks.
type scores struct {
	product *graph.Op
	scale   float64
	masks   []graph.Operand
	sum     int // the op that adds the second mask
	// shape is that of the product, or of a mask that repeats in part of a dimension, which it shows as two.
	shape tensor.Shape
}

// scoresOf finds the product, the scale and the masks that an operand of the softmax before op is made of; nil where it
// is made of others.
func (w *rewriting) scoresOf(at graph.Operand, op *graph.Op) *scores {
	s := &scores{scale: 1, sum: -1, shape: op.In[0].Layout.Shape}
	for s.product == nil {
		p, k := w.only(at, op.Guard)
		switch {
		case p == nil:
			return nil
		case p.Kind == "matmul" && plainProduct(p):
			s.product = p
		case p.Kind == "add" && s.scale == 1 && len(s.masks) < 2 &&
			(p.Attrs["alpha"] == nil || p.Attrs["alpha"] == 1.0):
			in, mask := p.In[0], p.In[1]
			if q, _ := w.only(in, op.Guard); q == nil ||
				!slices.Contains([]graph.Kind{"matmul", "mul", "div", "add"}, q.Kind) {
				in, mask = mask, in
			}
			if !w.isFloat32(mask) {
				return nil
			}
			if len(mask.Layout.Shape) > len(s.shape) {
				s.shape = mask.Layout.Shape
			}
			s.masks, at = append(s.masks, mask), in
			if s.sum < 0 {
				s.sum = k
			}
		case p.Kind == "mul":
			n, ok := w.number(p.In[1])
			at = p.In[0]
			if !ok {
				n, ok = w.number(p.In[0])
				at = p.In[1]
			}
			if s.scale *= n; !ok {
				return nil
			}
		case p.Kind == "div":
			n, ok := w.number(p.In[1])
			if s.scale /= n; !ok {
				return nil
			}
			at = p.In[0]
		default:
			return nil
		}
	}
	return s
}

// plainProduct reports whether a matmul is the product of two matrices of float32 and nothing else.
func plainProduct(op *graph.Op) bool {
	return operandAt(op, 2).Value == graph.NoValue && op.Attrs.Float("alpha") == 1
}

// turnedMatrix swaps the last two dimensions of an operand.
func turnedMatrix(o graph.Operand) graph.Operand {
	n := len(o.Layout.Shape)
	l := tensor.Layout{
		Shape: slices.Clone(o.Layout.Shape), Strides: slices.Clone(o.Layout.Strides), Offset: o.Layout.Offset,
	}
	l.Shape[n-2], l.Shape[n-1] = l.Shape[n-1], l.Shape[n-2]
	l.Strides[n-2], l.Strides[n-1] = l.Strides[n-1], l.Strides[n-2]
	return graph.Operand{Value: o.Value, Layout: l}
}

// finite reports whether a mask is known not to make all scores of a query −∞: it is a choice between finite constants.
func (w *rewriting) finite(o graph.Operand) bool {
	v := &w.g.Values[o.Value]
	if v.Role == graph.Const {
		for at := 0; at+4 <= len(v.Const); at += 4 {
			x := float64(math.Float32frombits(binary.LittleEndian.Uint32(v.Const[at:])))
			if math.IsInf(x, 0) || math.IsNaN(x) {
				return false
			}
		}
		return true
	}
	k := w.from[o.Value]
	return k >= 0 && w.g.Ops[k].Kind == "where" && w.finite(w.g.Ops[k].In[1]) && w.finite(w.g.Ops[k].In[2])
}

// repeatedKeys makes attention i read keys and values that are repeated for groups of queries where they lie, and not
// from copies.
func (w *rewriting) repeatedKeys(i int) {
	op := &w.g.Ops[i]
	if len(op.Out) != 1 {
		return
	}
	p, _ := w.only(op.In[1], op.Guard)
	if p == nil || p.Kind != "copy" {
		return
	}
	shape := p.In[0].Layout.Shape
	rank := len(shape)
	old := op.In[1].Layout.Shape
	if rank <= len(old) || shape[rank-1] != old[len(old)-1] || shape[rank-2] != old[len(old)-2] {
		return
	}
	leading := shape[:rank-2]
	in := slices.Clone(op.In)
	for n, o := range op.In {
		if o.Value == graph.NoValue {
			continue
		}
		s := o.Layout.Shape
		want := append(slices.Clone(leading), s[len(s)-2:]...)
		if c, _ := w.only(o, op.Guard); (n == 1 || n == 2) && c != nil && c.Kind == "copy" &&
			c.In[0].Layout.Shape.Equal(want) {
			in[n] = c.In[0]
			continue
		}
		r, ok := reshaped(o, want)
		if !ok {
			return
		}
		in[n] = r
	}
	whole := *op
	whole.In = in
	v := in[2].Layout.Shape
	w.replace(i, whole, append(slices.Clone(in[0].Layout.Shape[:rank-1]), v[rank-1]))
}
