package cpu

import "github.com/optimem/optimem/layers"

var indexKernels = map[layers.Kind]kernel{}
