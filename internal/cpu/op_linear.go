package cpu

import "github.com/optimem/optimem/layers"

var linearKernels = map[layers.Kind]kernel{}
