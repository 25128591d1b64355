// Package index has the kernels that read and write at places that other operands tell, those that pad, and the
// factorisation of matrices, which moves rows.
//
// It knows operands and threads (package ops). It does not know devices or images.
//
//	for _, kernels := range index.Kernels { // by kind: "gather", "scatter", "pad", "lu_factor" …
//		maps.Copy(all, kernels)
//	}
package index

import (
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
)

// Kernels are the kernels of the package, by kind.
var Kernels = []map[graph.Kind]ops.Kernel{
	indexKernels, padKernels, factorKernels,
}
