// Package axes has the kernels that walk the dimensions of a value: reductions, running sums, softmax, norms,
// sorting and products of vectors of three.
//
// It knows operands and threads (package ops). It does not know devices, matrices or images.
//
//	for _, kernels := range axes.Kernels { // by kind: "sum", "softmax", "layer_norm" …
//		maps.Copy(all, kernels)
//	}
package axes

import (
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
)

// Kernels are the kernels of the package, by kind.
var Kernels = []map[graph.Kind]ops.Kernel{
	reductionKernels, softmaxKernels, normKernels, sortKernels, crossKernels,
}
