package aten

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/tensor"
)

// maxRank is far more dimensions than a program's tensors have. What is done for each of them, for each operand, takes time and
// memory that no file pays for.
const maxRank = 64

// CheckRank returns an error for more dimensions than that.
func CheckRank(n int) error {
	if n > maxRank {
		return fmt.Errorf("a tensor of %d dimensions; at most %d can be", n, maxRank)
	}
	return nil
}

// Reshape returns r with another shape: a view where strides can express it, else a copy.
func (b *Builder) Reshape(r *Ref, shape tensor.Shape) (*Ref, error) {
	if NumElements(r.shape()) != NumElements(shape) {
		return nil, fmt.Errorf("shape %v has other elements than %v", shape, r.shape())
	}
	if l, ok := r.layout.ViewAs(shape); ok {
		return b.view(r, l), nil
	}
	c, err := b.copy(r)
	if err != nil {
		return nil, err
	}
	l, _ := c.layout.ViewAs(shape)
	return b.view(c, l), nil
}

// inferShape replaces a single −1 by what the number of elements leaves for it.
func inferShape(dims []int, elements int64) (tensor.Shape, error) {
	shape := slices.Clone(tensor.Shape(dims))
	known, hole := int64(1), -1
	for i, d := range shape {
		switch {
		case d == -1 && hole < 0:
			hole = i
		case d < 0:
			return nil, fmt.Errorf("shape %v", shape)
		default:
			var ok bool
			if known, ok = tensor.MulBytes(known, int64(d)); !ok {
				return nil, fmt.Errorf("shape %v has too many elements", shape)
			}
		}
	}
	if hole >= 0 {
		if known == 0 || elements%known != 0 {
			return nil, fmt.Errorf("shape %v does not take %d elements", shape, elements)
		}
		shape[hole] = int(elements / known)
		known = elements
	}
	if known != elements {
		return nil, fmt.Errorf("shape %v does not take %d elements", shape, elements)
	}
	return shape, nil
}

// permuted returns the layout with its dimensions in another order.
func permuted(l tensor.Layout, order []int) tensor.Layout {
	out := tensor.Layout{Shape: make(tensor.Shape, len(order)), Strides: make([]int, len(order)), Offset: l.Offset}
	for i, d := range order {
		out.Shape[i], out.Strides[i] = l.Shape[d], l.Strides[d]
	}
	return out
}

// permute returns r with its dimensions in another order.
func (b *Builder) permute(r *Ref, order ...int) *Ref { return b.view(r, permuted(r.layout, order)) }

// transpose returns r with two dimensions exchanged.
func (b *Builder) transpose(r *Ref, d, e int) *Ref {
	order := make([]int, r.rank())
	for i := range order {
		order[i] = i
	}
	if len(order) > 0 {
		order[d], order[e] = order[e], order[d]
	}
	return b.permute(r, order...)
}

// unsqueeze returns r with a dimension of size one inserted before dimension d.
func (b *Builder) unsqueeze(r *Ref, d int) *Ref {
	l := tensor.Layout{
		Shape:   slices.Insert(slices.Clone(r.layout.Shape), d, 1),
		Strides: slices.Insert(slices.Clone(r.layout.Strides), d, 1),
		Offset:  r.layout.Offset,
	}
	if d < r.rank() {
		l.Strides[d] = r.layout.Shape[d] * r.layout.Strides[d]
	}
	return b.view(r, l)
}

// squeeze returns r without the given dimensions, which have size one.
func (b *Builder) squeeze(r *Ref, drop func(d int) bool) *Ref {
	l := tensor.Layout{Shape: tensor.Shape{}, Strides: []int{}, Offset: r.layout.Offset}
	for i, d := range r.layout.Shape {
		if d == 1 && drop(i) {
			continue
		}
		l.Shape, l.Strides = append(l.Shape, d), append(l.Strides, r.layout.Strides[i])
	}
	return b.view(r, l)
}

// selectAt returns r without dimension d, at one index of it.
func (b *Builder) selectAt(r *Ref, d, index int) *Ref {
	return b.view(r, tensor.Layout{
		Shape:   slices.Delete(slices.Clone(r.layout.Shape), d, d+1),
		Strides: slices.Delete(slices.Clone(r.layout.Strides), d, d+1),
		Offset:  r.layout.Offset + index*r.layout.Strides[d],
	})
}

// slice returns the indices start, start+step, … below end of dimension d. Start and end are within the dimension.
func (b *Builder) slice(r *Ref, d, start, end, step int) *Ref {
	l := tensor.Layout{
		Shape:   slices.Clone(r.layout.Shape),
		Strides: slices.Clone(r.layout.Strides),
		Offset:  r.layout.Offset,
	}
	l.Shape[d] = max(0, (end-start+step-1)/step)
	if l.Shape[d] > 0 {
		l.Offset += start * l.Strides[d]
	}
	l.Strides[d] *= step
	return b.view(r, l)
}
