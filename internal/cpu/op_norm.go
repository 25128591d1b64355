package cpu

import "github.com/optimem/optimem/layers"

var normKernels = map[layers.Kind]kernel{}
