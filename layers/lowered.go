package layers

import "errors"

// ErrUnsupported is wrapped where a device cannot compute an op, or not for the operands given.
var ErrUnsupported = errors.New("not supported by the device")

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
	// Packs are the operands that the op also takes in a form of the device's own.
	Packs []Pack
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
}
