package cpu

import "github.com/optimem/optimem/layers"

// createKernels make tensors from nothing, or keep a part of one.
var createKernels = map[layers.Kind]kernel{}
