package cpu

import "github.com/optimem/optimem/layers"

var poolKernels = map[layers.Kind]kernel{}
