package call

import (
	"slices"

	"github.com/optimem/optimem/loader/exported"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// Results are row-major here. PyTorch keeps many in the order of their operands, and so decides whether a reshape is a view
// or a copy by strides of its own. Exported programs have them recorded; it shows only where a program writes in place.

// RecordedStrides returns the strides that PyTorch's tensor has. A dimension of size one has ours, since any will do.
func (c *Call) RecordedStrides(r *cells.Ref) ([]int, bool) {
	strides, ok := c.exactStrides(r)
	for i := range strides {
		if r.Shape()[i] == 1 {
			strides[i] = r.Layout().Strides[i]
		}
	}
	return strides, ok
}

// exactStrides returns all strides that PyTorch's tensor has.
func (c *Call) exactStrides(r *cells.Ref) ([]int, bool) {
	meta := c.Meta[c.Names[r]]
	if meta == nil || len(meta.Strides) != r.Rank() {
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

// ReshapeRecorded is reshape with PyTorch's choice of view or copy. Of what is a view there and none here, there is a copy
// that is linked to its origin.
func (c *Call) ReshapeRecorded(r *cells.Ref, shape tensor.Shape) (*cells.Ref, error) {
	strides, ok := c.RecordedStrides(r)
	if !c.InPlace || !ok || slices.Equal(strides, r.Layout().Strides) {
		return c.Reshape(r, shape)
	}
	if _, ok := (tensor.Layout{Shape: r.Shape(), Strides: strides}).ViewAs(shape); !ok {
		copied, err := c.Builder.Copy(r)
		if err != nil {
			return nil, err
		}
		return c.Reshape(copied, shape)
	}
	out, err := c.Reshape(r, shape)
	return c.Linked(r, out), err
}

// Contiguous is Tensor.contiguous: x itself where PyTorch's tensor is in order already. It may be in another than ours; then it
// is a copy that is linked to x.
func Contiguous(c *Call) (*cells.Ref, error) {
	x := c.Tensor("self")
	strides, ok := c.RecordedStrides(x)
	if !c.InPlace || !ok {
		return c.Contiguous(x)
	}
	l := tensor.Layout{Shape: x.Shape(), Strides: strides}
	inOrder := l.IsContiguous()
	switch format := c.Args["memory_format"]; {
	case format == exported.ChannelsLast && x.Rank() == 4, format == exported.ChannelsLast3d && x.Rank() == 5:
		inOrder = ChannelsLast(l)
	}
	if inOrder {
		out, err := c.Contiguous(x)
		return c.Linked(x, out), err
	}
	return c.Builder.Copy(x)
}

// ChannelsLast reports whether images or volumes lie in order if the channels are taken as the last dimension.
func ChannelsLast(l tensor.Layout) bool {
	return cells.Permuted(l, append(slices.Delete(cells.AllDims(len(l.Shape)), 1, 2), 1)).IsContiguous()
}

// InFormat is Tensor.to with nothing but a memory format: x itself where PyTorch's tensor looks like one of that format.
func (c *Call) InFormat(x *cells.Ref) (*cells.Ref, error) {
	strides, ok := c.exactStrides(x)
	var want bool
	switch format := c.Args["memory_format"]; {
	case !c.InPlace || !ok:
		return x, nil
	case format == exported.ChannelsLast && x.Rank() == 4, format == exported.ChannelsLast3d && x.Rank() == 5:
		want = true
	case format != exported.ContiguousFormat:
		return x, nil
	}
	if likeChannelsLast(x.Shape(), strides) == want {
		return x, nil
	}
	return c.Builder.Copy(x)
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

// InPyTorchsOrder returns r, or a tensor like it in memory of the order that PyTorch's has, which is linked to r's memory.
func (c *Call) InPyTorchsOrder(r *cells.Ref) (*cells.Ref, error) {
	strides, ok := c.RecordedStrides(r)
	if !ok {
		return r, nil
	}
	all, order := c.wholeMemory(r)
	if all == nil {
		if !slices.Equal(strides, r.Layout().Strides) {
			return nil, c.Unsupported("a view of memory of which the program does not record the order")
		}
		return r, nil
	}
	recorded, _ := c.RecordedStrides(all)
	if slices.Equal(recorded, all.Layout().Strides) {
		return r, nil
	}
	there := slices.Clone(order)
	slices.SortStableFunc(there, func(d, e int) int { return recorded[e] - recorded[d] })
	origin := c.Permute(all, there...)
	if l := cells.Permuted(tensor.Layout{Shape: all.Shape(), Strides: recorded}, there); !l.IsContiguous() {
		return nil, c.Unsupported("a view of memory with gaps")
	}
	copied, err := c.Builder.Copy(origin)
	if err != nil {
		return nil, err
	}
	c.Linked(origin, copied)
	// Where the first element of r is, dimension by dimension of all.
	l := tensor.Layout{Shape: r.Shape(), Strides: strides}
	for rest, i := r.Layout().Offset, 0; i < len(order); i++ {
		if s := all.Layout().Strides[order[i]]; all.Shape()[order[i]] > 1 && s > 0 {
			l.Offset += rest / s * recorded[order[i]]
			rest %= s
		}
	}
	return c.View(copied, l), nil
}

// wholeMemory returns a tensor that is all of the memory that r is a view of, of which the program records the order: r
// itself, or another; and its dimensions in the order of the memory.
func (c *Call) wholeMemory(r *cells.Ref) (*cells.Ref, []int) {
	if order, ok := c.Covers(r); ok {
		return r, order
	}
	var all *cells.Ref
	var dims []int
	for other, name := range c.Names {
		if other.Memory() != r.Memory() || other.DType() != r.DType() || c.Meta[name] == nil ||
			all != nil && c.Names[all] < name {
			continue
		}
		if order, ok := c.Covers(other); ok {
			all, dims = other, order // the same one each time: the first by name
		}
	}
	return all, dims
}
