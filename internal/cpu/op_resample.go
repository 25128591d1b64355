package cpu

import "github.com/optimem/optimem/layers"

var resampleKernels = map[layers.Kind]kernel{}
