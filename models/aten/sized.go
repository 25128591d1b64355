package aten

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// sizedTargets are the ops whose results have sizes that depend on data. What bounds the size is the size of an operand.
var sizedTargets = []atenOp{
	op("aten::nonzero(Tensor self) -> Tensor", nonzero),
	op("aten::argwhere(Tensor self) -> Tensor", nonzero),
	{"aten::nonzero_numpy(Tensor self) -> Tensor[]", nonzeroLists},
	{"aten::where(Tensor condition) -> Tensor[]", nonzeroLists},
	op("aten::masked_select(Tensor self, Tensor mask) -> Tensor", func(c *call) (*Ref, error) {
		r, mask := c.tensor("self"), c.tensor("mask")
		if c.err != nil {
			return nil, c.err
		}
		both, err := c.broadcast(r, mask)
		if err != nil {
			return nil, err
		}
		if mask, err = c.Cast(both[1], tensor.Bool); err != nil {
			return nil, err
		}
		if r, err = c.flat(both[0]); err != nil {
			return nil, err
		}
		if mask, err = c.flat(mask); err != nil {
			return nil, err
		}
		return c.picked(r, mask, 0)
	}),
	{"aten::_unique2(Tensor self, bool sorted=True, bool return_inverse=False, bool return_counts=False)" +
		" -> (Tensor, Tensor, Tensor)", func(c *call) error { return c.unique(true, "") }},
	{"aten::unique_consecutive(Tensor self, bool return_inverse=False, bool return_counts=False, int? dim=None)" +
		" -> (Tensor, Tensor, Tensor)", func(c *call) error { return c.unique(false, "dim") }},
	{"aten::unique_dim(Tensor self, int dim, bool sorted=True, bool return_inverse=False, bool return_counts=False)" +
		" -> (Tensor, Tensor, Tensor)", func(c *call) error { return c.unique(true, "dim") }},
	op("aten::bincount(Tensor self, Tensor? weights=None, SymInt minlength=0) -> Tensor", binCount),
	{"torchvision::nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor", suppress},
}

// nonzero gives the places of what is not zero, one to a row.
func nonzero(c *call) (*Ref, error) {
	r := c.tensor("self")
	if c.err != nil {
		return nil, c.err
	}
	return c.nonzero(r)
}

func (b *Builder) nonzero(r *Ref) (*Ref, error) {
	if IsComplex(r.dtype) {
		return nil, b.Unsupported("complex numbers that are not zero: %s", SizeOfData)
	}
	p, err := b.where(r)
	if err != nil {
		return nil, err
	}
	if r.rank() == 1 {
		return p.of(b.unsqueeze(p.flat, 1), 0), nil
	}
	if r, err = b.filledBehind(r, 0); err != nil {
		return nil, err
	}
	list, err := b.Emit1("nonzero", graph.Attrs{"size": p.most, "fill": 0}, b.Read(r))
	if err != nil {
		return nil, err
	}
	return p.of(list, 0), nil
}

// nonzeroLists gives the same places as one list for each dimension. A scalar counts as a list of one.
func nonzeroLists(c *call) error {
	name := "self"
	if !c.schema.has(name) {
		name = "condition"
	}
	r := c.tensor(name)
	if c.err != nil {
		return c.err
	}
	if r.rank() == 0 {
		r = c.Builder.unsqueeze(r, 0)
	}
	list, err := c.nonzero(r)
	if err != nil {
		return err
	}
	lists := make([]*Ref, r.rank())
	for d := range lists {
		lists[d] = list.counted.of(c.selectAt(bare(list), 1, d), 0)
	}
	c.set(lists)
	return nil
}

// unique gives what differs from the one before, of a list in its order or sorted first; and with that, where asked for, which of
// them each element is, and how often it is there.
func (c *call) unique(sorted bool, along string) error {
	r := c.tensor("self")
	inverse, counts := c.bool("return_inverse"), c.bool("return_counts")
	if c.err != nil {
		return c.err
	}
	if along != "" && c.has(along) && r.rank() != 1 {
		return c.Unsupported("of more than one dimension, along one: %s", SizeOfData)
	}
	if r.IsCounted() && r.rank() != 1 || IsComplex(r.dtype) {
		return c.Unsupported("%s", SizeOfData)
	}
	list, err := c.flat(bare(r))
	if err != nil {
		return err
	}
	n := list.shape()[0]
	total, err := c.Scalar(n, tensor.Int64)
	if err != nil {
		return err
	}
	if r.IsCounted() {
		list, total = r.counted.of(list, 0), r.counted.value
	}
	var order *Ref
	if sorted {
		list, order, err = c.inOrder(list)
		if err != nil {
			return err
		}
	}
	first, err := c.firsts(list)
	if err != nil {
		return err
	}
	values, err := c.picked(list, first, 0)
	if err != nil {
		return err
	}
	c.set(values, nil, nil)
	if inverse {
		if c.results[1], err = c.inverseOf(first, order, r); err != nil {
			return err
		}
	}
	if counts {
		c.results[2], err = c.lengths(first, total)
	}
	return err
}

// inOrder returns a list sorted, the rows that count first, and from where each came.
func (c *call) inOrder(list *Ref) (sorted, order *Ref, err error) {
	whole, err := c.sortedLast(list, false)
	if err != nil {
		return nil, nil, err
	}
	if list.dtype == tensor.Bool { // which have an order, too
		if whole, err = c.Cast(whole, tensor.UInt8); err != nil {
			return nil, nil, err
		}
	}
	refs, err := c.Emit("sort", graph.Attrs{"dim": 0}, c.Read(whole))
	if err != nil {
		return nil, nil, err
	}
	if sorted, err = c.Cast(refs[0], list.dtype); err != nil {
		return nil, nil, err
	}
	if list.IsCounted() {
		sorted = list.counted.of(sorted, 0)
	}
	return sorted, refs[1], nil
}

// firsts returns where an element of a list is the first, or differs from the one before.
func (c *call) firsts(list *Ref) (*Ref, error) {
	n, whole := list.shape()[0], bare(list)
	first, err := c.full(true, tensor.Bool, tensor.Shape{min(n, 1)})
	if err != nil {
		return nil, err
	}
	if n > 1 {
		differs, err := c.apply("ne", nil, c.slice(whole, 0, 1, n, 1), c.slice(whole, 0, 0, n-1, 1))
		if err != nil {
			return nil, err
		}
		if first, err = c.cat([]*Ref{first, differs}, 0); err != nil {
			return nil, err
		}
	}
	if list.IsCounted() {
		first = list.counted.of(first, 0)
	}
	return first, nil
}

// inverseOf returns how many firsts there are up to each element, in the shape of r; order says where each came from, nil for in
// its place.
func (c *call) inverseOf(first, order, r *Ref) (*Ref, error) {
	up, err := c.Cast(bare(first), tensor.Int64)
	if err != nil {
		return nil, err
	}
	if up, err = c.Emit1("cumsum", graph.Attrs{"dim": 0}, c.Read(up)); err != nil {
		return nil, err
	}
	if up, err = c.combine("sub", nil, up, 1); err != nil {
		return nil, err
	}
	if order != nil {
		if up, err = c.scatter(up, 0, order, up, "", true); err != nil {
			return nil, err
		}
	}
	if up, err = c.Reshape(up, r.shape()); err != nil || !r.IsCounted() {
		return up, err
	}
	return r.counted.of(up, 0), nil
}

// lengths returns how far it is from each first to the next, and to the end from the last.
func (c *call) lengths(first, total *Ref) (*Ref, error) {
	p, err := c.where(first)
	if err != nil || p.most == 0 {
		return p.flat, err
	}
	zero, err := c.full(0, tensor.Int64, tensor.Shape{1})
	if err != nil {
		return nil, err
	}
	next, err := c.cat([]*Ref{c.slice(p.flat, 0, 1, p.most, 1), zero}, 0)
	if err != nil {
		return nil, err
	}
	behind, err := c.combine("sub", nil, p.value, 1)
	if err != nil {
		return nil, err
	}
	within, err := c.among(&Count{value: behind, most: p.most}, p.most)
	if err != nil {
		return nil, err
	}
	if next, err = c.choose(within, tensor.Int64, next, total); err != nil {
		return nil, err
	}
	lengths, err := c.combine("sub", nil, next, p.flat)
	if err != nil {
		return nil, err
	}
	return p.of(lengths, 0), nil
}

// binCount counts how often each number is there, or adds the weights where it is. Nothing but the program bounds how large the
// numbers are: one beyond fails while running.
func binCount(c *call) (*Ref, error) {
	r, weights, least := c.tensor("self"), c.optTensor("weights"), c.int("minlength")
	if c.err != nil {
		return nil, c.err
	}
	if r.rank() != 1 || !isIntegral(r.dtype) || least < 0 ||
		weights != nil && !slices.Equal(weights.shape(), r.shape()) {
		return nil, fmt.Errorf("bincount of %v %v with at least %d", r.dtype, r.shape(), least)
	}
	if c.Most == 0 {
		return nil, &UnsupportedError{
			What: "the size of its result depends on data, and nothing bounds it",
			Hint: "export it with torch._check(result.shape[0] <= N), or use torch.zeros(N).scatter_add_",
		}
	}
	d := tensor.DType(tensor.Int64)
	if weights != nil && weights.dtype == tensor.Float32 {
		d = tensor.Float32
	} else if weights != nil {
		d = tensor.Float64
	}
	index, err := c.Cast(r, tensor.Int64)
	if err != nil {
		return nil, err
	}
	one, err := c.full(1, d, r.shape())
	if weights != nil {
		one, err = c.Cast(weights, d)
	}
	if err != nil {
		return nil, err
	}
	zeros, err := c.full(0, d, tensor.Shape{c.Most})
	if err != nil {
		return nil, err
	}
	out, err := c.scatter(zeros, 0, index, one, "sum", true)
	if err != nil {
		return nil, err
	}
	size, err := c.Scalar(least, tensor.Int64)
	if err == nil && r.shape()[0] > 0 {
		var largest *Ref
		if largest, err = c.fold("amax", index, []int{0}, false, nil); err != nil {
			return nil, err
		}
		if largest, err = c.combine("add", nil, largest, 1); err != nil {
			return nil, err
		}
		size, err = c.combine("maximum", nil, largest, size)
	}
	return (&Count{value: size, most: c.Most}).of(out, 0), err
}

// suppress is torchvision's nms: as many boxes may stay as there are.
func suppress(c *call) error {
	boxes, scores, threshold := c.tensor("dets"), c.tensor("scores"), c.float("iou_threshold")
	if c.err != nil {
		return c.err
	}
	in := []graph.Operand{c.Read(bare(boxes)), c.Read(bare(scores))}
	if boxes.IsCounted() || scores.IsCounted() {
		k, alike := countOf([]*Ref{boxes, scores})
		if !alike || k.dim != 0 {
			return c.Unsupported("of rows that are counted by themselves: %s", SizeOfData)
		}
		in = append(in, c.Read(k.value))
	}
	refs, err := c.Emit("nms", graph.Attrs{"threshold": threshold}, in...)
	if err != nil {
		return err
	}
	stay := &Count{value: refs[1], most: boxes.shape()[0]}
	if boxes.IsCounted() {
		stay.within = boxes.counted.Count
	}
	return c.giveRef(stay.of(refs[0], 0), nil)
}
