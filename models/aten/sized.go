package aten

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/models/aten/views"
	"github.com/optimem/optimem/tensor"
)

// sizedTargets are the ops whose results have sizes that depend on data. What bounds the size is the size of an operand.
var sizedTargets = []call.Overload{
	call.One("aten::nonzero(Tensor self) -> Tensor", nonzero),
	call.One("aten::argwhere(Tensor self) -> Tensor", nonzero),
	call.Several("aten::nonzero_numpy(Tensor self) -> Tensor[]", nonzeroLists),
	call.Several("aten::where(Tensor condition) -> Tensor[]", nonzeroLists),
	call.One("aten::masked_select(Tensor self, Tensor mask) -> Tensor", func(c *call.Call) (*cells.Ref, error) {
		r, mask := c.Tensor("self"), c.Tensor("mask")
		if c.Err != nil {
			return nil, c.Err
		}
		both, err := c.Broadcast(r, mask)
		if err != nil {
			return nil, err
		}
		if mask, err = c.Cast(both[1], tensor.Bool); err != nil {
			return nil, err
		}
		if r, err = c.Flat(both[0]); err != nil {
			return nil, err
		}
		if mask, err = c.Flat(mask); err != nil {
			return nil, err
		}
		return c.Picked(r, mask, 0)
	}),
	call.Several("aten::_unique2(Tensor self, bool sorted=True, bool return_inverse=False, bool return_counts=False)"+
		" -> (Tensor, Tensor, Tensor)", func(c *call.Call) error { return unique(c, true, "") }),
	call.Several("aten::unique_consecutive(Tensor self, bool return_inverse=False, bool return_counts=False, int? dim=None)"+
		" -> (Tensor, Tensor, Tensor)", func(c *call.Call) error { return unique(c, false, "dim") }),
	call.Several("aten::unique_dim(Tensor self, int dim, bool sorted=True, bool return_inverse=False, bool return_counts=False)"+
		" -> (Tensor, Tensor, Tensor)", func(c *call.Call) error { return unique(c, true, "dim") }),
	call.One("aten::bincount(Tensor self, Tensor? weights=None, SymInt minlength=0) -> Tensor", binCount),
	call.Several("torchvision::nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor", suppress),
}

// nonzero gives the places of what is not zero, one to a row.
func nonzero(c *call.Call) (*cells.Ref, error) {
	r := c.Tensor("self")
	if c.Err != nil {
		return nil, c.Err
	}
	return nonzeroOf(c.Builder, r)
}

func nonzeroOf(b *cells.Builder, r *cells.Ref) (*cells.Ref, error) {
	if cells.IsComplex(r.DType()) {
		return nil, b.Unsupported("complex numbers that are not zero: %s", cells.SizeOfData)
	}
	p, err := b.Where(r)
	if err != nil {
		return nil, err
	}
	if r.Rank() == 1 {
		return p.Of(b.Unsqueeze(p.Flat, 1), 0), nil
	}
	if r, err = b.FilledBehind(r, 0); err != nil {
		return nil, err
	}
	list, err := b.Emit1("nonzero", graph.Attrs{"size": p.Most, "fill": 0}, b.Read(r))
	if err != nil {
		return nil, err
	}
	return p.Of(list, 0), nil
}

// nonzeroLists gives the same places as one list for each dimension. A scalar counts as a list of one.
func nonzeroLists(c *call.Call) error {
	name := "self"
	if !c.Schema.Has(name) {
		name = "condition"
	}
	r := c.Tensor(name)
	if c.Err != nil {
		return c.Err
	}
	if r.Rank() == 0 {
		r = c.Builder.Unsqueeze(r, 0)
	}
	list, err := nonzeroOf(c.Builder, r)
	if err != nil {
		return err
	}
	lists := make([]*cells.Ref, r.Rank())
	for d := range lists {
		lists[d] = list.Rows().Of(c.SelectAt(cells.Bare(list), 1, d), 0)
	}
	c.Set(lists)
	return nil
}

// unique gives what differs from the one before, of a list in its order or sorted first; and with that, where asked for, which of
// them each element is, and how often it is there.
func unique(c *call.Call, sorted bool, along string) error {
	r := c.Tensor("self")
	inverse, counts := c.Bool("return_inverse"), c.Bool("return_counts")
	if c.Err != nil {
		return c.Err
	}
	if along != "" && c.Has(along) && r.Rank() != 1 {
		return c.Unsupported("of more than one dimension, along one: %s", cells.SizeOfData)
	}
	if r.IsCounted() && r.Rank() != 1 || cells.IsComplex(r.DType()) {
		return c.Unsupported("%s", cells.SizeOfData)
	}
	list, err := c.Flat(cells.Bare(r))
	if err != nil {
		return err
	}
	n := list.Shape()[0]
	total, err := c.Scalar(n, tensor.Int64)
	if err != nil {
		return err
	}
	if r.IsCounted() {
		list, total = r.Rows().Of(list, 0), r.Rows().Value
	}
	var order *cells.Ref
	if sorted {
		list, order, err = inOrder(c, list)
		if err != nil {
			return err
		}
	}
	first, err := firsts(c, list)
	if err != nil {
		return err
	}
	values, err := c.Picked(list, first, 0)
	if err != nil {
		return err
	}
	c.Set(values, nil, nil)
	if inverse {
		if c.Results[1], err = inverseOf(c, first, order, r); err != nil {
			return err
		}
	}
	if counts {
		c.Results[2], err = lengths(c, first, total)
	}
	return err
}

// inOrder returns a list sorted, the rows that count first, and from where each came.
func inOrder(c *call.Call, list *cells.Ref) (sorted, order *cells.Ref, err error) {
	whole, err := sortedLast(c, list, false)
	if err != nil {
		return nil, nil, err
	}
	if list.DType() == tensor.Bool { // which have an order, too
		if whole, err = c.Cast(whole, tensor.UInt8); err != nil {
			return nil, nil, err
		}
	}
	refs, err := c.Emit("sort", graph.Attrs{"dim": 0}, c.Read(whole))
	if err != nil {
		return nil, nil, err
	}
	if sorted, err = c.Cast(refs[0], list.DType()); err != nil {
		return nil, nil, err
	}
	if list.IsCounted() {
		sorted = list.Rows().Of(sorted, 0)
	}
	return sorted, refs[1], nil
}

// firsts returns where an element of a list is the first, or differs from the one before.
func firsts(c *call.Call, list *cells.Ref) (*cells.Ref, error) {
	n, whole := list.Shape()[0], cells.Bare(list)
	first, err := c.Full(true, tensor.Bool, tensor.Shape{min(n, 1)})
	if err != nil {
		return nil, err
	}
	if n > 1 {
		differs, err := c.Apply("ne", nil, c.Slice(whole, 0, 1, n, 1), c.Slice(whole, 0, 0, n-1, 1))
		if err != nil {
			return nil, err
		}
		if first, err = c.Cat([]*cells.Ref{first, differs}, 0); err != nil {
			return nil, err
		}
	}
	if list.IsCounted() {
		first = list.Rows().Of(first, 0)
	}
	return first, nil
}

// inverseOf returns how many firsts there are up to each element, in the shape of r; order says where each came from, nil for in
// its place.
func inverseOf(c *call.Call, first, order, r *cells.Ref) (*cells.Ref, error) {
	up, err := c.Cast(cells.Bare(first), tensor.Int64)
	if err != nil {
		return nil, err
	}
	if up, err = c.Emit1("cumsum", graph.Attrs{"dim": 0}, c.Read(up)); err != nil {
		return nil, err
	}
	if up, err = c.Combine("sub", nil, up, 1); err != nil {
		return nil, err
	}
	if order != nil {
		if up, err = views.Scatter(c, up, 0, order, up, "", true); err != nil {
			return nil, err
		}
	}
	if up, err = c.Reshape(up, r.Shape()); err != nil || !r.IsCounted() {
		return up, err
	}
	return r.Rows().Of(up, 0), nil
}

// lengths returns how far it is from each first to the next, and to the end from the last.
func lengths(c *call.Call, first, total *cells.Ref) (*cells.Ref, error) {
	p, err := c.Where(first)
	if err != nil || p.Most == 0 {
		return p.Flat, err
	}
	zero, err := c.Full(0, tensor.Int64, tensor.Shape{1})
	if err != nil {
		return nil, err
	}
	next, err := c.Cat([]*cells.Ref{c.Slice(p.Flat, 0, 1, p.Most, 1), zero}, 0)
	if err != nil {
		return nil, err
	}
	behind, err := c.Combine("sub", nil, p.Value, 1)
	if err != nil {
		return nil, err
	}
	within, err := c.Among(&cells.Count{Value: behind, Most: p.Most}, p.Most)
	if err != nil {
		return nil, err
	}
	if next, err = c.Choose(within, tensor.Int64, next, total); err != nil {
		return nil, err
	}
	lengths, err := c.Combine("sub", nil, next, p.Flat)
	if err != nil {
		return nil, err
	}
	return p.Of(lengths, 0), nil
}

// binCount counts how often each number is there, or adds the weights where it is. Nothing but the program bounds how large the
// numbers are: one beyond fails while running.
func binCount(c *call.Call) (*cells.Ref, error) {
	r, weights, least := c.Tensor("self"), c.OptTensor("weights"), c.Int("minlength")
	if c.Err != nil {
		return nil, c.Err
	}
	if r.Rank() != 1 || !cells.IsIntegral(r.DType()) || least < 0 ||
		weights != nil && !slices.Equal(weights.Shape(), r.Shape()) {
		return nil, fmt.Errorf("bincount of %v %v with at least %d", r.DType(), r.Shape(), least)
	}
	if c.Most == 0 {
		return nil, &cells.UnsupportedError{
			What: "the size of its result depends on data, and nothing bounds it",
			Hint: "export it with torch._check(result.shape[0] <= N), or use torch.zeros(N).scatter_add_",
		}
	}
	d := tensor.DType(tensor.Int64)
	if weights != nil && weights.DType() == tensor.Float32 {
		d = tensor.Float32
	} else if weights != nil {
		d = tensor.Float64
	}
	index, err := c.Cast(r, tensor.Int64)
	if err != nil {
		return nil, err
	}
	one, err := c.Full(1, d, r.Shape())
	if weights != nil {
		one, err = c.Cast(weights, d)
	}
	if err != nil {
		return nil, err
	}
	zeros, err := c.Full(0, d, tensor.Shape{c.Most})
	if err != nil {
		return nil, err
	}
	out, err := views.Scatter(c, zeros, 0, index, one, "sum", true)
	if err != nil {
		return nil, err
	}
	size, err := c.Scalar(least, tensor.Int64)
	if err == nil && r.Shape()[0] > 0 {
		var largest *cells.Ref
		if largest, err = c.Fold("amax", index, []int{0}, false, nil); err != nil {
			return nil, err
		}
		if largest, err = c.Combine("add", nil, largest, 1); err != nil {
			return nil, err
		}
		size, err = c.Combine("maximum", nil, largest, size)
	}
	return (&cells.Count{Value: size, Most: c.Most}).Of(out, 0), err
}

// suppress is torchvision's nms: as many boxes may stay as there are.
func suppress(c *call.Call) error {
	boxes, scores, threshold := c.Tensor("dets"), c.Tensor("scores"), c.Float("iou_threshold")
	if c.Err != nil {
		return c.Err
	}
	in := []graph.Operand{c.Read(cells.Bare(boxes)), c.Read(cells.Bare(scores))}
	if boxes.IsCounted() || scores.IsCounted() {
		k, alike := countOf([]*cells.Ref{boxes, scores})
		if !alike || k.Dim != 0 {
			return c.Unsupported("of rows that are counted by themselves: %s", cells.SizeOfData)
		}
		in = append(in, c.Read(k.Value))
	}
	refs, err := c.Emit("nms", graph.Attrs{"threshold": threshold}, in...)
	if err != nil {
		return err
	}
	stay := &cells.Count{Value: refs[1], Most: boxes.Shape()[0]}
	if boxes.IsCounted() {
		stay.Within = boxes.Rows().Count
	}
	return c.GiveRef(stay.Of(refs[0], 0), nil)
}
