package graph

import (
	"errors"
	"fmt"
)

// ErrUnsupported is wrapped where a device cannot compute an op, or not for the operands given.
var ErrUnsupported = errors.New("not supported by the device")

// An IndexError says that an op was given an index which its operand does not have.
type IndexError struct {
	// Index is what was given, Size what the dimension has; a Size of zero says that the device does not tell which it was.
	Index, Size int64
	// Operand is the number of the operand that held it, 0 where that is not said.
	Operand int
}

// Error has PyTorch's words.
func (e *IndexError) Error() string {
	if e.Size == 0 {
		return "index out of range"
	}
	return fmt.Sprintf("index %d is out of bounds for a dimension of size %d", e.Index, e.Size)
}

// ErrDType is wrapped where the rule of an op does not take a dtype that PyTorch's op may take.
var ErrDType = errors.New("dtype not supported")

// A Lowered graph is a graph with a device's decisions: how each op is computed and what memory that takes. Lowering
// needs no device to be present and reads no weight.
type Lowered struct {
	Graph *Graph
	// Steps has one entry for each op of the graph.
	Steps []Step
}

// A Step is how one op is computed.
type Step struct {
	// Kernel names the implementation, for reports: "conv_im2col".
	Kernel string
	// WorkBytes is the scratch memory that the op needs while it runs.
	WorkBytes int64
	// Cost is what the op does. The zero Cost stands for what the registry says of the op.
	Cost Cost
	// Product is the op as a product of matrices, for kinds of the device's own that are one. Of kinds that the registry has
	// it is zero: whoever asks can tell from the op.
	Product Product
	// Packs are the operands that the op also takes in a form of the device's own.
	Packs []Pack
	// InPlace are the operands over which the op may write its first result, byte for byte: where one is as
	// [Graph.CanOverlay] demands, result and operand may be the same memory, and every bit of the result is what it is
	// otherwise. The device's kernel says so; nobody guesses. What it says holds for several operands that are one value.
	InPlace []int
}

// CanOverlay reports whether the first result of an op can have the bytes of an operand: the operand is all of a value, in
// order, and its elements are as many as the result's and of their size. So each element of the result takes the place of
// the element of the operand with the same number.
func (g *Graph) CanOverlay(op *Op, in int) bool {
	if in >= len(op.In) || len(op.Out) == 0 || op.In[in].Value == NoValue {
		return false
	}
	o := op.In[in]
	from, to := &g.Values[o.Value], &g.Values[op.Out[0]]
	n, err := o.Layout.NumElements()
	return err == nil && from.DType.Size() == to.DType.Size() && o.Layout.Offset == 0 && o.Layout.IsContiguous() &&
		n*int64(from.DType.Size()) == from.Bytes() && from.Bytes() == to.Bytes()
}

// A Pack is a form of a weight that a device computes with faster than with the checkpoint's: the same elements, in the
// order in which a kernel reads them. Whether an operand is packed never changes the result. A device that has packs
// makes them of raw weights (device.Packer); a plan packs weights that stay, once, and leaves those that are paged as they
// are.
type Pack struct {
	// In is the index of the operand.
	In int
	// Bytes is the size of the packed operand.
	Bytes int64
	// Form says how it is packed: the same view of a weight in forms of the same name has the same bytes, so that ops can
	// share it.
	Form string
	// Where Step is not 0, the packed operand is pieces of equal size in order, one for each Step indices of the operand
	// along dimension Dim, the last of which is padded. What packs it may then do so a few pieces at a time: it gives the
	// device those indices as the raw operand and their bytes as the size, so that little of a large weight is in memory
	// twice.
	Dim, Step int
	// Copy says that the form is worth its bytes even where something else reads the raw ones, which then stay too: each
	// pass would otherwise make it anew, at a cost.
	Copy bool
}

// PackOf returns how the step takes an operand packed, and whether it does.
func (s *Step) PackOf(in int) (Pack, bool) {
	for _, p := range s.Packs {
		if p.In == in && p.Bytes > 0 {
			return p, true
		}
	}
	return Pack{}, false
}
