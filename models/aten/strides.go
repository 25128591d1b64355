package aten

import (
	"slices"

	"github.com/optimem/optimem/loader/exported"
	"github.com/optimem/optimem/tensor"
)

// Results are row-major here. PyTorch keeps many in the order of their operands, and so decides whether a reshape is a view
// or a copy by strides of its own. Exported programs have them recorded; it shows only where a program writes in place.

// recordedStrides returns the strides that PyTorch's tensor has. A dimension of size one has ours, since any will do.
func (c *call) recordedStrides(r *Ref) ([]int, bool) {
	strides, ok := c.exactStrides(r)
	for i := range strides {
		if r.shape()[i] == 1 {
			strides[i] = r.layout.Strides[i]
		}
	}
	return strides, ok
}

// exactStrides returns all strides that PyTorch's tensor has.
func (c *call) exactStrides(r *Ref) ([]int, bool) {
	meta := c.Meta[c.Names[r]]
	if meta == nil || len(meta.Strides) != r.rank() {
		return nil, false
	}
	strides := make([]int, len(meta.Strides))
	for i, s := range meta.Strides {
		n := s.Int
		if s.Expr != nil {
			var err error
			if n, err = s.Expr.Eval(c.Symbols); err != nil {
				return nil, false
			}
		}
		strides[i] = int(n)
	}
	return strides, true
}

// reshapeRecorded is reshape with PyTorch's choice of view or copy. Of what is a view there and none here, there is a copy
// that is linked to its origin.
func (c *call) reshapeRecorded(r *Ref, shape tensor.Shape) (*Ref, error) {
	strides, ok := c.recordedStrides(r)
	if !c.InPlace || !ok || slices.Equal(strides, r.layout.Strides) {
		return c.Reshape(r, shape)
	}
	if _, ok := (tensor.Layout{Shape: r.shape(), Strides: strides}).ViewAs(shape); !ok {
		copied, err := c.Builder.copy(r)
		if err != nil {
			return nil, err
		}
		return c.Reshape(copied, shape)
	}
	out, err := c.Reshape(r, shape)
	return c.linked(r, out), err
}

// contiguous is Tensor.contiguous: x itself where PyTorch's tensor is in order already. It may be in another than ours; then it
// is a copy that is linked to x.
func contiguous(c *call) (*Ref, error) {
	x := c.tensor("self")
	strides, ok := c.recordedStrides(x)
	if !c.InPlace || !ok {
		return c.contiguous(x)
	}
	l := tensor.Layout{Shape: x.shape(), Strides: strides}
	inOrder := l.IsContiguous()
	switch format := c.args["memory_format"]; {
	case format == exported.ChannelsLast && x.rank() == 4, format == exported.ChannelsLast3d && x.rank() == 5:
		inOrder = channelsLast(l)
	}
	if inOrder {
		out, err := c.contiguous(x)
		return c.linked(x, out), err
	}
	return c.Builder.copy(x)
}

// channelsLast reports whether images or volumes lie in order if the channels are taken as the last dimension.
func channelsLast(l tensor.Layout) bool {
	return permuted(l, append(slices.Delete(allDims(len(l.Shape)), 1, 2), 1)).IsContiguous()
}

// inFormat is Tensor.to with nothing but a memory format: x itself where PyTorch's tensor looks like one of that format.
func (c *call) inFormat(x *Ref) (*Ref, error) {
	strides, ok := c.exactStrides(x)
	var want bool
	switch format := c.args["memory_format"]; {
	case !c.InPlace || !ok:
		return x, nil
	case format == exported.ChannelsLast && x.rank() == 4, format == exported.ChannelsLast3d && x.rank() == 5:
		want = true
	case format != exported.ContiguousFormat:
		return x, nil
	}
	if likeChannelsLast(x.shape(), strides) == want {
		return x, nil
	}
	return c.Builder.copy(x)
}

// likeChannelsLast is is_channels_last_strides_2d and 3d of c10/core/MemoryFormat.h.
func likeChannelsLast(shape tensor.Shape, strides []int) bool {
	if len(shape) < 4 || len(shape) > 5 || strides[1] == 0 {
		return false
	}
	least := 0
	for k := range shape {
		d := len(shape) - k // channels, then from the last dimension to the first
		switch d {
		case len(shape):
			d = 1
		case 1:
			d = 0
		}
		if shape[d] == 0 || strides[d] < least || d == 0 && least == strides[1] {
			return false
		}
		least = strides[d] * max(shape[d], 1)
	}
	return true
}

// inPyTorchsOrder returns r, or a tensor like it in memory of the order that PyTorch's has, which is linked to r's memory.
func (c *call) inPyTorchsOrder(r *Ref) (*Ref, error) {
	strides, ok := c.recordedStrides(r)
	if !ok {
		return r, nil
	}
	all, order := c.wholeMemory(r)
	if all == nil {
		if !slices.Equal(strides, r.layout.Strides) {
			return nil, c.Unsupported("a view of memory of which the program does not record the order")
		}
		return r, nil
	}
	recorded, _ := c.recordedStrides(all)
	if slices.Equal(recorded, all.layout.Strides) {
		return r, nil
	}
	there := slices.Clone(order)
	slices.SortStableFunc(there, func(d, e int) int { return recorded[e] - recorded[d] })
	origin := c.permute(all, there...)
	if l := permuted(tensor.Layout{Shape: all.shape(), Strides: recorded}, there); !l.IsContiguous() {
		return nil, c.Unsupported("a view of memory with gaps")
	}
	copied, err := c.Builder.copy(origin)
	if err != nil {
		return nil, err
	}
	c.linked(origin, copied)
	// Where the first element of r is, dimension by dimension of all.
	l := tensor.Layout{Shape: r.shape(), Strides: strides}
	for rest, i := r.layout.Offset, 0; i < len(order); i++ {
		if s := all.layout.Strides[order[i]]; all.shape()[order[i]] > 1 && s > 0 {
			l.Offset += rest / s * recorded[order[i]]
			rest %= s
		}
	}
	return c.view(copied, l), nil
}

// wholeMemory returns a tensor that is all of the memory that r is a view of, of which the program records the order: r
// itself, or another; and its dimensions in the order of the memory.
func (c *call) wholeMemory(r *Ref) (*Ref, []int) {
	if order, ok := c.covers(r); ok {
		return r, order
	}
	var all *Ref
	var dims []int
	for other, name := range c.Names {
		if other.cell != r.cell || other.dtype != r.dtype || c.Meta[name] == nil || all != nil && c.Names[all] < name {
			continue
		}
		if order, ok := c.covers(other); ok {
			all, dims = other, order // the same one each time: the first by name
		}
	}
	return all, dims
}
