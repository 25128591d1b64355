package cells

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// A Cell is a tensor's memory while a graph is built: what PyTorch calls a storage. Its value is replaced by every
// in-place write, so that ops stay functional. Since values never change, cells may share one: a copy costs nothing
// until one of the two is written to.
type Cell struct {
	value graph.ValueID
	// uniform memory has count elements that are all the one element of value: zeros, without the memory for them.
	uniform bool
	count   int64
}

// NewCell returns memory that holds a value.
func NewCell(id graph.ValueID) *Cell { return &Cell{value: id} }

// Value returns the value that the memory holds now.
func (c *Cell) Value() graph.ValueID { return c.value }

// A Ref is a tensor of the program: a view of a cell. Two refs of one cell alias, as in PyTorch.
type Ref struct {
	cell   *Cell
	layout tensor.Layout
	dtype  tensor.DType
	// counted says that only data knows how much of a dimension there is. Other views of the memory do not have it.
	counted *Rows
}

// DType returns the tensor's dtype; with Shape it makes a ref what a trace sees as a tensor.
func (r *Ref) DType() tensor.DType { return r.dtype }

// Shape returns the tensor's dimensions, which the caller must not change.
func (r *Ref) Shape() tensor.Shape { return r.layout.Shape }

// Layout returns where the tensor's elements are in its memory.
func (r *Ref) Layout() tensor.Layout { return r.layout }

// SetLayout gives the tensor itself another view of its memory, as PyTorch's views in place do.
func (r *Ref) SetLayout(l tensor.Layout) { r.layout = l }

// Memory returns the memory that the tensor is a view of.
func (r *Ref) Memory() *Cell { return r.cell }

// Rank returns the number of dimensions.
func (r *Ref) Rank() int { return len(r.layout.Shape) }

// NewRef returns a tensor that is a view of memory.
func NewRef(c *Cell, layout tensor.Layout, dtype tensor.DType) *Ref {
	return &Ref{cell: c, layout: layout, dtype: dtype}
}

// Own returns a value as a tensor with a cell of its own.
func (b *Builder) Own(id graph.ValueID) *Ref {
	o := b.Graph.Whole(id)
	return &Ref{cell: &Cell{value: id}, layout: o.Layout, dtype: b.Graph.Values[id].DType}
}

// uniform returns a tensor with memory of its own whose elements are all the one element of a value.
func (b *Builder) uniform(id graph.ValueID, shape tensor.Shape) *Ref {
	c := &Cell{value: id, uniform: true, count: NumElements(shape)}
	return &Ref{cell: c, layout: tensor.Contiguous(shape...), dtype: b.Graph.Values[id].DType}
}

// MemoryElements returns the number of elements of a memory.
func (b *Builder) MemoryElements(c *Cell) int64 {
	if c.uniform {
		return c.count
	}
	return NumElements(b.Graph.Values[c.value].Shape)
}

// memory returns all of a cell's memory as an operand.
func (b *Builder) memory(c *Cell) graph.Operand {
	if c.uniform {
		return uniformOperand(c, tensor.Shape{int(c.count)})
	}
	return b.Graph.Whole(c.value)
}

// Stored returns what a memory holds now as an operand for a state to become: a value that a pass computes.
func (b *Builder) Stored(c *Cell) (graph.Operand, error) {
	o := b.memory(c)
	if role := b.Graph.Values[o.Value].Role; !c.uniform && (role == graph.Computed || role == graph.State) {
		return o, nil
	}
	whole, err := b.Emit1("copy", nil, o)
	return b.Read(whole), err
}

// element returns the element of a uniform memory.
func (b *Builder) element(c *Cell) graph.Operand { return uniformOperand(c, tensor.Shape{}) }

func uniformOperand(c *Cell, shape tensor.Shape) graph.Operand {
	return graph.Operand{Value: c.value, Layout: tensor.Layout{Shape: shape, Strides: make([]int, len(shape))}}
}

// Read returns the operand that a tensor is now; of a complex one, its pairs. A nil ref is absent.
func (b *Builder) Read(r *Ref) graph.Operand {
	switch {
	case r == nil:
		return graph.Absent
	case IsComplex(r.dtype):
		return b.Read(b.Pairs(r))
	case r.cell.uniform:
		return uniformOperand(r.cell, r.layout.Shape)
	}
	return graph.Operand{Value: r.cell.value, Layout: r.layout}
}

// Result returns the operand that a caller gets: one that has no more elements than its value, so that a plan knows the
// memory that it takes.
func (b *Builder) Result(r *Ref) (graph.Operand, error) {
	if IsComplex(r.dtype) {
		return b.complexResult(r)
	}
	o := b.Read(r)
	if NumElements(r.Shape()) <= NumElements(b.Graph.Values[o.Value].Shape) {
		return o, nil
	}
	whole, err := b.Emit1("copy", nil, o)
	if err != nil {
		return graph.Absent, err
	}
	return b.Read(whole), nil
}

// View returns another view of the same memory.
func (b *Builder) View(r *Ref, l tensor.Layout) *Ref {
	return &Ref{cell: r.cell, layout: l, dtype: r.dtype}
}

// whole reports whether a tensor is all of its memory, in order.
func (b *Builder) whole(r *Ref) bool {
	if IsComplex(r.dtype) {
		r = b.Pairs(r)
	}
	return r.layout.Offset == 0 && r.layout.IsContiguous() && NumElements(r.Shape()) == b.MemoryElements(r.cell)
}

// Covers reports whether a tensor is all of its memory, in any order, and returns its dimensions in the memory's order.
func (b *Builder) Covers(r *Ref) ([]int, bool) {
	order := AllDims(r.Rank())
	slices.SortStableFunc(order, func(d, e int) int { return r.layout.Strides[e] - r.layout.Strides[d] })
	return order, b.whole(b.Permute(r, order...))
}

// Write replaces what a tensor, and everything that aliases it, holds: PyTorch's copy_. src is expanded to the tensor's
// shape and cast to its dtype.
func (b *Builder) Write(dst, src *Ref) error {
	if err := b.put(dst, src); err != nil {
		return err
	}
	return b.follow(dst.cell, nil)
}

// put is write for a cell alone, without those that are linked to it.
func (b *Builder) put(dst, src *Ref) error {
	src, err := b.Cast(src, dst.dtype)
	if err != nil {
		return err
	}
	if src, err = b.Expand(src, dst.Shape()); err != nil {
		return err
	}
	if IsComplex(dst.dtype) {
		dst, src = b.Pairs(dst), b.Pairs(src)
	}
	// What covers all of the memory in another order is written in the memory's order.
	if order, ok := b.Covers(dst); ok {
		copied, err := b.Copy(b.Permute(src, order...))
		if err != nil {
			return err
		}
		// The memory keeps its shape: other views count elements, not dimensions.
		*dst.cell = *copied.cell
		return nil
	}
	out, err := b.Emit1("write_view", graph.Attrs{
		"shape": []int(dst.layout.Shape), "strides": dst.layout.Strides, "offset": dst.layout.Offset,
	}, b.memory(dst.cell), b.Read(src))
	if err != nil {
		return err
	}
	*dst.cell = *out.cell
	return nil
}

// A link says that a cell has the elements of a view of another memory, in their order. PyTorch has them in one memory.
type link struct {
	view *Ref
	cell *Cell
	// turn makes the elements of each from those of the other, which are conjugates or negatives; nil if they are the same.
	turn func(b *Builder, r *Ref) (*Ref, error)
}

// turned returns what the other side of a link has where one has r.
func (l link) turned(b *Builder, r *Ref) (*Ref, error) {
	if l.turn == nil {
		return r, nil
	}
	return l.turn(b, r)
}

// Linked returns out, which has the elements of r in their order and may be a copy here, but none in PyTorch.
func (b *Builder) Linked(r, out *Ref) *Ref {
	if out != nil {
		b.link(link{view: r, cell: out.cell})
	}
	return out
}

// SameMemory reports whether two memories are one, or kept equal by a link between them.
func (b *Builder) SameMemory(c, d *Cell) bool {
	same := c == d
	for _, l := range b.links[c] {
		same = same || l.cell == d || l.view.cell == d
	}
	return same
}

// link keeps a link between two cells.
//
//go:noinline
func (b *Builder) link(l link) {
	if l.cell == l.view.cell {
		return
	}
	if b.links == nil {
		b.links, b.turned = make(map[*Cell][]link), make(map[*Cell]bool)
	}
	b.turned[l.cell] = b.turned[l.view.cell] != (l.turn != nil)
	for _, c := range []*Cell{l.cell, l.view.cell} {
		b.links[c] = append(b.links[c], l)
	}
}

// TurnedView returns what PyTorch has as a view with a bit that says that its elements are conjugates or negatives.
func (b *Builder) TurnedView(r *Ref, turn func(b *Builder, r *Ref) (*Ref, error)) (*Ref, error) {
	out, err := turn(b, r)
	if err == nil {
		b.link(link{r, out.cell, turn})
	}
	return out, err
}

// IsTurned reports whether a tensor has PyTorch's conjugate bit; or its negative bit, as imaginary parts of conjugates do.
func (b *Builder) IsTurned(r *Ref) bool {
	return b.turned[r.cell] && (IsComplex(r.dtype) || r.layout.Offset%2 == 1)
}

// mostFollowed bounds what a program of many views and many writes makes of itself.
const mostFollowed = 1 << 14

// follow writes what was written to a cell to all that are linked to it, but for the one that it came from.
func (b *Builder) follow(c, from *Cell) error {
	for _, l := range b.links[c] {
		var other *Cell
		var err error
		switch {
		case l.cell == c && l.view.cell != from:
			other = l.view.cell
			var src *Ref
			src, err = l.turned(b, &Ref{cell: c, layout: tensor.Contiguous(l.view.Shape()...), dtype: l.view.dtype})
			if err == nil {
				err = b.put(l.view, src)
			}
		case l.view.cell == c && l.cell != from:
			var copied *Ref
			if copied, err = l.turned(b, l.view); err == nil {
				copied, err = b.Copy(copied)
			}
			if err == nil {
				other, *l.cell = l.cell, *copied.cell
			}
		default:
			continue
		}
		if err == nil && len(b.Guard) > 0 {
			err = b.Unsupported("a branch of a conditional that writes to what PyTorch keeps permuted or conjugated")
		}
		if b.Followed++; err == nil && b.Followed > mostFollowed {
			err = b.Unsupported("writes that reach more than %d views of other orders", mostFollowed)
		}
		if err == nil {
			err = b.follow(other, c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Copy returns a contiguous tensor with the same elements and memory of its own. Elements are moved only where they do
// not lie in order already.
func (b *Builder) Copy(r *Ref) (*Ref, error) {
	if _, err := r.Shape().NumElements(); err != nil {
		return nil, err
	}
	if IsComplex(r.dtype) {
		copied, err := b.Copy(b.Pairs(r))
		if err != nil {
			return nil, err
		}
		return b.OfPairs(copied)
	}
	if b.whole(r) {
		c := *r.cell
		return &Ref{cell: &c, layout: tensor.Contiguous(r.Shape()...), dtype: r.dtype}, nil
	}
	o := b.Read(r)
	if NumElements(b.Graph.Values[o.Value].Shape) == 1 {
		return b.uniform(o.Value, r.Shape()), nil
	}
	return b.Emit1("copy", nil, o)
}

// Contiguous returns r, or a copy where its elements do not lie in order.
func (b *Builder) Contiguous(r *Ref) (*Ref, error) {
	if r.layout.IsContiguous() {
		return r, nil
	}
	return b.Copy(r)
}

// Filled returns a tensor with memory of its own that holds one number throughout.
func (b *Builder) Filled(n Number, d tensor.DType, shape tensor.Shape) (*Ref, error) {
	elements, err := shape.NumElements()
	if err != nil {
		return nil, err
	}
	if _, ok := tensor.MulBytes(elements, int64(d.Size())); !ok {
		return nil, fmt.Errorf("%v of %v takes more than 2^63 bytes", shape, d)
	}
	one, err := b.Scalar(n, d)
	if err != nil {
		return nil, err
	}
	if IsComplex(d) {
		wide, err := b.Expand(one, shape)
		if err != nil {
			return nil, err
		}
		return b.Copy(wide)
	}
	return b.uniform(one.cell.value, shape), nil
}
