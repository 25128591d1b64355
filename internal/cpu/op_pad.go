package cpu

import "github.com/optimem/optimem/layers"

var padKernels = map[layers.Kind]kernel{}
