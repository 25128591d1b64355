package cpu

import "github.com/optimem/optimem/layers"

var softmaxKernels = map[layers.Kind]kernel{}
