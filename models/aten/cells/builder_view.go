package cells

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// maxRank is far more dimensions than a program's tensors have. What is done for each of them, for each operand, takes
// time and memory that no file pays for.
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
	if NumElements(r.Shape()) != NumElements(shape) {
		return nil, fmt.Errorf("shape %v has other elements than %v", shape, r.Shape())
	}
	if l, ok := r.layout.ViewAs(shape); ok {
		return b.View(r, l), nil
	}
	c, err := b.Copy(r)
	if err != nil {
		return nil, err
	}
	l, _ := c.layout.ViewAs(shape)
	return b.View(c, l), nil
}

// InferShape replaces a single −1 by what the number of elements leaves for it.
func InferShape(dims []int, elements int64) (tensor.Shape, error) {
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

// Permuted returns the layout with its dimensions in another order.
func Permuted(l tensor.Layout, order []int) tensor.Layout {
	out := tensor.Layout{Shape: make(tensor.Shape, len(order)), Strides: make([]int, len(order)), Offset: l.Offset}
	for i, d := range order {
		out.Shape[i], out.Strides[i] = l.Shape[d], l.Strides[d]
	}
	return out
}

// Permute returns r with its dimensions in another order.
//
//go:noinline
func (b *Builder) Permute(r *Ref, order ...int) *Ref { return b.View(r, Permuted(r.layout, order)) }

// Transpose returns r with two dimensions exchanged.
func (b *Builder) Transpose(r *Ref, d, e int) *Ref {
	order := make([]int, r.Rank())
	for i := range order {
		order[i] = i
	}
	if len(order) > 0 {
		order[d], order[e] = order[e], order[d]
	}
	return b.Permute(r, order...)
}

// Unsqueeze returns r with a dimension of size one inserted before dimension d.
func (b *Builder) Unsqueeze(r *Ref, d int) *Ref {
	l := tensor.Layout{
		Shape:   slices.Insert(slices.Clone(r.layout.Shape), d, 1),
		Strides: slices.Insert(slices.Clone(r.layout.Strides), d, 1),
		Offset:  r.layout.Offset,
	}
	if d < r.Rank() {
		l.Strides[d] = r.layout.Shape[d] * r.layout.Strides[d]
	}
	return b.View(r, l)
}

// Squeeze returns r without the given dimensions, which have size one.
func (b *Builder) Squeeze(r *Ref, drop func(d int) bool) *Ref {
	l := tensor.Layout{Shape: tensor.Shape{}, Strides: []int{}, Offset: r.layout.Offset}
	for i, d := range r.layout.Shape {
		if d == 1 && drop(i) {
			continue
		}
		l.Shape, l.Strides = append(l.Shape, d), append(l.Strides, r.layout.Strides[i])
	}
	return b.View(r, l)
}

// SelectAt returns r without dimension d, at one index of it.
func (b *Builder) SelectAt(r *Ref, d, index int) *Ref {
	return b.View(r, tensor.Layout{
		Shape:   slices.Delete(slices.Clone(r.layout.Shape), d, d+1),
		Strides: slices.Delete(slices.Clone(r.layout.Strides), d, d+1),
		Offset:  r.layout.Offset + index*r.layout.Strides[d],
	})
}

// Slice returns the indices start, start+step, … below end of dimension d. Start and end are within the dimension.
func (b *Builder) Slice(r *Ref, d, start, end, step int) *Ref {
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
	return b.View(r, l)
}

// DiagonalOf returns a diagonal of dimensions d and e, as the last dimension.
func (b *Builder) DiagonalOf(r *Ref, offset, d, e int) (*Ref, error) {
	if d == e || r.Rank() < 2 {
		return nil, fmt.Errorf("diagonal of dimensions %d and %d of %v", d, e, r.Shape())
	}
	rows, cols := r.Shape()[d], r.Shape()[e]
	l := tensor.Layout{Shape: tensor.Shape{}, Strides: []int{}, Offset: r.layout.Offset}
	for i := range r.Shape() {
		if i != d && i != e {
			l.Shape, l.Strides = append(l.Shape, r.Shape()[i]), append(l.Strides, r.layout.Strides[i])
		}
	}
	n := min(rows, cols-offset)
	if offset < 0 {
		n = min(rows+offset, cols)
	}
	n = max(n, 0)
	if n > 0 {
		l.Offset += max(offset, 0)*r.layout.Strides[e] + max(-offset, 0)*r.layout.Strides[d]
	}
	l.Shape, l.Strides = append(l.Shape, n), append(l.Strides, r.layout.Strides[d]+r.layout.Strides[e])
	return b.View(r, l), nil
}

// Flat returns r with one dimension.
func (b *Builder) Flat(r *Ref) (*Ref, error) {
	return b.Reshape(r, tensor.Shape{int(NumElements(r.Shape()))})
}

// InRows returns x with rows that lie at one distance from each other: a copy where they do not.
func (b *Builder) InRows(x *Ref) (*Ref, error) {
	k := x.Shape()[x.Rank()-1]
	if k == 0 || NumElements(x.Shape()) == 0 {
		return x, nil
	}
	if _, ok := x.layout.ViewAs(tensor.Shape{int(NumElements(x.Shape())) / k, k}); ok {
		return x, nil
	}
	return b.Copy(x)
}

// Cat puts tensors one after the other along dimension d, in their common dtype. Lists of nothing do not count,
// whatever the others' shapes.
func (b *Builder) Cat(parts []*Ref, d int) (*Ref, error) {
	operands := make([]Argument, len(parts))
	for i, r := range parts {
		if r == nil {
			return nil, fmt.Errorf("tensor %d is None", i)
		}
		operands[i] = r
	}
	dtype, err := ResultType(operands...)
	if err != nil {
		return nil, err
	}
	var kept []*Ref
	for _, r := range parts {
		if r.Rank() == 1 && r.Shape()[0] == 0 {
			continue
		}
		if r, err = b.Cast(r, dtype); err != nil {
			return nil, err
		}
		kept = append(kept, r)
	}
	if len(kept) == 0 {
		return b.Full(0, dtype, tensor.Shape{0})
	}
	if len(kept) == 1 { // such as a cache's first keys, put behind none
		return b.Copy(kept[0])
	}
	return b.Apply("cat", graph.Attrs{"dim": d}, kept...)
}
