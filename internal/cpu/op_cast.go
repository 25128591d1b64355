package cpu

import "github.com/optimem/optimem/layers"

// castKernels convert between dtypes.
var castKernels = map[layers.Kind]kernel{}
