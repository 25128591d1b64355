// Package elementwise has the kernels of which each element of the result depends on the elements at its place, one by
// one or in chains, and those that make, convert and copy values.
//
// It knows operands and threads (package ops). It does not know devices, matrices or images.
//
//	for _, kernels := range elementwise.Kernels { // by kind: "add", "gelu", "chain", "cast" …
//		maps.Copy(all, kernels)
//	}
package elementwise

import (
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
)

// Kernels are the kernels of the package, by kind.
var Kernels = []map[graph.Kind]ops.Kernel{
	elementwiseKernels, chainKernels, rotaryKernels, castKernels, decodeKernels, createKernels, copyKernels,
}
