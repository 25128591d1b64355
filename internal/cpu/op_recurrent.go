package cpu

import "github.com/optimem/optimem/layers"

var recurrentKernels = map[layers.Kind]kernel{}
