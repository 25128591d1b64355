package cpu

import "github.com/optimem/optimem/layers"

var attentionKernels = map[layers.Kind]kernel{}
