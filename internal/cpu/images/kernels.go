// Package images has the kernels over planes of pixels: pooling, resampling, and what detection models do with regions.
//
// It knows operands and threads (package ops). It does not know devices; convolutions are products and belong to
// package cpu.
//
//	for _, kernels := range images.Kernels { // by kind: "max_pool", "resample", "roi_align" …
//		maps.Copy(all, kernels)
//	}
package images

import (
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
)

// Kernels are the kernels of the package, by kind.
var Kernels = []map[graph.Kind]ops.Kernel{
	poolKernels, resampleKernels, regionKernels,
}
