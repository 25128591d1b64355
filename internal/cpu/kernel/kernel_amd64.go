//go:build amd64 && !noasm

package kernel

import "golang.org/x/sys/cpu"

// All returns the sets that the processor can run, the fastest first.
func All() []*Set {
	var sets []*Set
	if cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VL && cpu.X86.HasFMA {
		sets = append(sets, avx512)
	}
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA {
		sets = append(sets, avx2)
	}
	return sets
}

type (
	gemmFunc = func(depth int, a *float32, lda int, b, c *float32, ldc int, mode int, bias *float32)
	dotFunc  = func(depth int, a *float32, lda int, b *float32, ldb int, sums *float32)
)

var avx512 = &Set{
	Name: "avx512", Rows: 14, Columns: 32, Lanes: 16,
	gemm: []gemmFunc{
		gemm512x1, gemm512x2, gemm512x3, gemm512x4, gemm512x5, gemm512x6, gemm512x7, gemm512x8, gemm512x9, gemm512x10,
		gemm512x11, gemm512x12, gemm512x13, gemm512x14,
	},
	dot4: []dotFunc{dot512x1x4, dot512x2x4, dot512x3x4, dot512x4x4},
	dot1: []dotFunc{dot512x1x1, dot512x2x1, dot512x3x1, dot512x4x1},
}

var avx2 = &Set{
	Name: "avx2", Rows: 6, Columns: 16, Lanes: 8,
	gemm: []gemmFunc{gemm256x1, gemm256x2, gemm256x3, gemm256x4, gemm256x5, gemm256x6},
	dot4: []dotFunc{dot256x1x4, dot256x2x4, dot256x3x4, dot256x4x4},
	dot1: []dotFunc{dot256x1x1, dot256x2x1, dot256x3x1, dot256x4x1},
}
