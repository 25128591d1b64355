package cpu

import "github.com/optimem/optimem/layers"

var sortKernels = map[layers.Kind]kernel{}
