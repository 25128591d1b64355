// Package blocked computes convolutions, pools and the ops between them over activations in blocks of sixteen channels:
// a value of N images with C channels, H rows and W columns is the float32 array [N, ⌈C/16⌉, H, W, 16]. Sixteen
// channels of a pixel are a cache line and one AVX-512 register (two of AVX2), so kernels read and write whole lines at
// any stride of a convolution. Lanes beyond C, the padding of the last block, are zero in every value: functions here
// require that and preserve it.
//
// It knows memory, geometry and the kernels of package kernel. It does not know ops, graphs, plans or devices; the
// caller chooses where the layout begins and ends (see [To] and [From]).
//
//	conv := blocked.New(blocked.Geometry{
//		Batch: 1, In: 64, Out: 256, Groups: 1, Height: 56, Width: 56, OutHeight: 56, OutWidth: 56,
//		KernelH: 1, KernelW: 1, StrideH: 1, StrideW: 1, DilationH: 1, DilationW: 1,
//	})
//	packed := make([]float32, conv.PackedBytes()/4)
//	conv.Pack(pool, weight, packed) // once
//	work := make([]float32, conv.WorkBytes(pool.Threads(), true)/4)
//	err := conv.Run(ctx, pool, blocked.Args{X: x, Y: y, Packed: packed, Work: work})
package blocked

import "github.com/optimem/optimem/internal/cpu/tasks"

// Lanes is the number of channels in a block.
const Lanes = 16

// Blocks returns the number of blocks that channels take.
func Blocks(channels int) int { return (channels + Lanes - 1) / Lanes }

// Elements returns the number of floats in a value of n images.
func Elements(n, channels, height, width int) int {
	return n * Blocks(channels) * height * width * Lanes
}

// A Pool runs parts of work in parallel.
type Pool interface {
	tasks.Pool
	// Threads returns how many parts run at the same time at most.
	Threads() int
}
