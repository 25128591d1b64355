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
}
