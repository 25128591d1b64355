package cpu

import "github.com/optimem/optimem/layers"

var convKernels = map[layers.Kind]kernel{}
