package products

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// A labelled tensor has a label for each dimension, all different. Dimensions of two tensors with one label are the same
// index of a sum of products.
type labelled struct {
	*cells.Ref
	labels []int
}

// size returns the size of the dimension with a label, −1 where there is none.
func (t labelled) size(label int) int {
	if d := slices.Index(t.labels, label); d >= 0 {
		return t.Shape()[d]
	}
	return -1
}

// arranged returns t with its dimensions in the order of the labels, each group of them made one dimension.
func arranged(b *cells.Builder, t labelled, each []int, groups ...[]int) (*cells.Ref, error) {
	var order []int
	shape := tensor.Shape{}
	for _, l := range each {
		order = append(order, slices.Index(t.labels, l))
		shape = append(shape, t.size(l))
	}
	for _, g := range groups {
		size := 1
		for _, l := range g {
			order = append(order, slices.Index(t.labels, l))
			size *= t.size(l)
		}
		shape = append(shape, size)
	}
	return b.Reshape(b.Permute(t.Ref, order...), shape)
}

// without returns t summed over the dimensions whose labels are not kept.
func without(b *cells.Builder, t labelled, kept func(label int) bool) (labelled, error) {
	var dims, labels []int
	for d, l := range t.labels {
		if kept(l) {
			labels = append(labels, l)
		} else {
			dims = append(dims, d)
		}
	}
	if len(dims) == 0 {
		return t, nil
	}
	r, err := total(b, t.Ref, dims)
	return labelled{r, labels}, err
}

// total returns r summed over dimensions.
func total(b *cells.Builder, r *cells.Ref, dims []int) (*cells.Ref, error) {
	if r.DType() == tensor.Bool {
		return nil, fmt.Errorf("a sum of products of bools")
	}
	return b.Emit1("sum", graph.Attrs{"dims": dims, "keepdim": false, "dtype": r.DType()}, b.Read(r))
}

// contract returns the sum of the products of x and y over the labels that are not kept. A dimension of size one counts
// as one of any size.
func contract(b *cells.Builder, x, y labelled, kept func(label int) bool) (labelled, error) {
	var err error
	if x, y, err = matched(b, x, y); err != nil {
		return x, err
	}
	// What only one of the two has is summed first, where it is not kept.
	if x, err = without(b, x, func(l int) bool { return kept(l) || y.size(l) >= 0 }); err != nil {
		return x, err
	}
	if y, err = without(b, y, func(l int) bool { return kept(l) || x.size(l) >= 0 }); err != nil {
		return y, err
	}
	var batch, left, inner, right []int
	for _, l := range x.labels {
		switch {
		case y.size(l) < 0:
			left = append(left, l)
		case kept(l):
			batch = append(batch, l)
		default:
			inner = append(inner, l)
		}
	}
	for _, l := range y.labels {
		if x.size(l) < 0 {
			right = append(right, l)
		}
	}
	if len(batch) == 0 && isWeight(b, x.Ref) && !isWeight(b, y.Ref) { // weights go right, as in a linear layer
		x, y, left, right = y, x, right, left
	}
	out := labelled{labels: slices.Concat(batch, left, right)}
	shape := tensor.Shape{}
	for _, l := range out.labels {
		shape = append(shape, max(x.size(l), y.size(l)))
	}
	if len(inner) == 0 {
		out.Ref, err = outerProduct(b, x, y, out.labels)
		return out, err
	}
	rows, err := arranged(b, x, batch, left, inner)
	if err != nil {
		return out, err
	}
	columns, err := arranged(b, y, batch, inner, right)
	if err != nil {
		return out, err
	}
	if len(batch) == 0 {
		out.Ref, err = productOf(b, rows, columns)
	} else {
		out.Ref, err = multiply(b, rows, columns)
	}
	if err != nil {
		return out, err
	}
	out.Ref, err = b.Reshape(out.Ref, shape)
	return out, err
}

// matched checks that dimensions with one label have one size, and drops those of size one beside larger ones.
func matched(b *cells.Builder, x, y labelled) (labelled, labelled, error) {
	narrow := func(t, other labelled) labelled {
		drop := func(d int) bool {
			return t.Shape()[d] == 1 && other.size(t.labels[d]) >= 0 && other.size(t.labels[d]) != 1
		}
		out := labelled{Ref: b.Squeeze(t.Ref, drop)}
		for d, l := range t.labels {
			if !drop(d) {
				out.labels = append(out.labels, l)
			}
		}
		return out
	}
	x, y = narrow(x, y), narrow(y, x)
	for _, l := range x.labels {
		if n := y.size(l); n >= 0 && n != x.size(l) {
			return x, y, fmt.Errorf(
				"tensors %v and %v: sizes %d and %d of one index", x.Shape(), y.Shape(), x.size(l), n,
			)
		}
	}
	return x, y, nil
}

// outerProduct returns the products of the elements of x and y, with dimensions in the order of the labels.
func outerProduct(b *cells.Builder, x, y labelled, labels []int) (*cells.Ref, error) {
	spread := func(t labelled) *cells.Ref {
		l := tensor.Layout{Offset: t.Layout().Offset}
		for _, label := range labels {
			size, stride := 1, 0
			if d := slices.Index(t.labels, label); d >= 0 {
				size, stride = t.Layout().Shape[d], t.Layout().Strides[d]
			}
			l.Shape, l.Strides = append(l.Shape, size), append(l.Strides, stride)
		}
		return b.View(t.Ref, l)
	}
	d, err := cells.ResultType(x.Ref, y.Ref)
	if err != nil {
		return nil, err
	}
	return b.Arithmetic("mul", nil, d, spread(x), spread(y))
}
