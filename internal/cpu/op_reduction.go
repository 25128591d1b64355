package cpu

import "github.com/optimem/optimem/layers"

var reductionKernels = map[layers.Kind]kernel{}
