//go:build amd64 && !noasm

package kernel

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

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

var avx512 = &Set{
	Name: "avx512", Rows: 14, Columns: 32, Lanes: 16,
	products: products{
		gemm: [elements][]gemmFunc{
			{
				gemm512x1, gemm512x2, gemm512x3, gemm512x4, gemm512x5, gemm512x6, gemm512x7, gemm512x8, gemm512x9,
				gemm512x10,
				gemm512x11, gemm512x12, gemm512x13, gemm512x14,
			},
			nil,
			{
				gemm512f16x1, gemm512f16x2, gemm512f16x3, gemm512f16x4, gemm512f16x5, gemm512f16x6, gemm512f16x7,
				gemm512f16x8,
			},
			{
				gemm512pairsx1, gemm512pairsx2, gemm512pairsx3, gemm512pairsx4, gemm512pairsx5, gemm512pairsx6,
				gemm512pairsx7,
				gemm512pairsx8,
			},
			{gemm512i8x1, gemm512i8x2, gemm512i8x3, gemm512i8x4, gemm512i8x5, gemm512i8x6, gemm512i8x7, gemm512i8x8},
		},
		widen: [elements]func(int, *byte, int, *float32){
			panelWiden512, panelWiden512bf16, panelWiden512f16, panelWiden512pairs, panelWiden512i8,
		},
		narrow: [elements]func(int, *float32, *uint16){nil, panelNarrow512bf16, panelNarrow512f16, nil, nil},
		few: [elements][]fewFunc{
			{few512x1, few512x2, few512x3, few512x4}, nil, {few512f16x1, few512f16x2, few512f16x3, few512f16x4},
			{few512pairsx1, few512pairsx2, few512pairsx3, few512pairsx4},
			{few512i8x1, few512i8x2, few512i8x3, few512i8x4},
		},
		across: [elements][]acrossFunc{
			{
				across512x1, across512x2, across512x3, across512x4,
				across512x5, across512x6, across512x7, across512x8,
			}, nil, nil,
			{
				across512pairsx1, across512pairsx2, across512pairsx3, across512pairsx4,
				across512pairsx5, across512pairsx6, across512pairsx7, across512pairsx8,
			},
			{
				across512i8x1, across512i8x2, across512i8x3, across512i8x4,
				across512i8x5, across512i8x6, across512i8x7, across512i8x8,
			},
		},
		combine: [elements][2]combineFunc{
			{combine512x8, combine512x1}, {combine512bf16x8, combine512bf16x1}, {combine512f16x8, combine512f16x1}, {},
			{combine512i8x8, combine512i8x1},
		},
		pairUp: pairUp512, unit: true,
	},
	encoded: encodedSet{
		bytes: turnBytes512, bytesMin: turnBytes512min, nibbles: turnNibbles512, nibblesMin: turnNibbles512min,
		nibblesF16: turnNibbles512f16, nibblesBF16: turnNibbles512bf16,
		heads: turnHeads512, headsK: turnHeadsK512, wordsQ6K: turnWordsQ6K512,
		expandQ5K: expandQ5K, expandQ6K: expandQ6K, expandQ50: expandQ50,
	},
	word: wordSet{
		words: func(steps, pieces int, src *byte, stride, gap int, dst *byte, ldd int) {
			turnWords512(steps, pieces, src, stride, gap, dst, ldd, uintptr(unsafe.Pointer(src)))
		},
		wordsAhead: turnWords512, expandNibbles: expandNibbles,
		twiceNibblesLines: codes512twicenlines, twiceFives: codes512twicefive,
		bytes:       []codesFunc{codes512minx1, codes512minx2, codes512minx3, codes512minx4},
		nibbles:     []codesFunc{codes512nminx1, codes512nminx2, codes512nminx3, codes512nminx4},
		nibblesF16:  []codesFunc{codes512nf16x1, codes512nf16x2, codes512nf16x3, codes512nf16x4},
		nibblesBF16: []codesFunc{codes512nbf16x1, codes512nbf16x2, codes512nbf16x3, codes512nbf16x4},
		pairNibbles: dotHalfBytes, pairBytes: dotBytes,
	},
	vectors: vectors512,
	dot4:    []dotFunc{dot512x1x4, dot512x2x4, dot512x3x4, dot512x4x4},
	dot1:    []dotFunc{dot512x1x1, dot512x2x1, dot512x3x1, dot512x4x1},

	turnPairs: turnPairs512, dotLines: dotLines512, weightedLines: weightedLines512,
}

//go:noescape
func turnPairs512(n int, x, cos, sin, to *float32, half int)

//go:noescape
func dotLines512(columns, depth int, a *float32, lda int, b *float32, ldb int, to *float32, at [DotRows]int)

//go:noescape
func weightedLines512(n int, w *float32, at [DotRows]int, rows *float32, ldr int, sums *float32, lds int)

var avx2 = &Set{
	Name: "avx2", Rows: 6, Columns: 16, Lanes: 8,
	products: products{
		gemm: [elements][]gemmFunc{
			{gemm256x1, gemm256x2, gemm256x3, gemm256x4, gemm256x5, gemm256x6},
			nil,
			{gemm256f16x1, gemm256f16x2, gemm256f16x3, gemm256f16x4, gemm256f16x5, gemm256f16x6},
			{gemm256pairsx1, gemm256pairsx2, gemm256pairsx3, gemm256pairsx4, gemm256pairsx5, gemm256pairsx6},
			{gemm256i8x1, gemm256i8x2, gemm256i8x3, gemm256i8x4, gemm256i8x5, gemm256i8x6},
		},
		widen: [elements]func(int, *byte, int, *float32){
			panelWiden256, panelWiden256bf16, panelWiden256f16, panelWiden256pairs, panelWiden256i8,
		},
		narrow: [elements]func(int, *float32, *uint16){nil, panelNarrow256bf16, panelNarrow256f16, nil, nil},
		few: [elements][]fewFunc{
			{few256x1, few256x2, few256x3, few256x4}, nil, {few256f16x1, few256f16x2, few256f16x3, few256f16x4},
			{few256pairsx1, few256pairsx2, few256pairsx3, few256pairsx4},
			{few256i8x1, few256i8x2, few256i8x3, few256i8x4},
		},
		across: [elements][]acrossFunc{
			{across256x1, across256x2, across256x3, across256x4}, nil, nil,
			{across256pairsx1, across256pairsx2, across256pairsx3, across256pairsx4},
			{across256i8x1, across256i8x2, across256i8x3, across256i8x4},
		},
		combine: [elements][2]combineFunc{
			{combine256x8, combine256x1}, {combine256bf16x8, combine256bf16x1}, {combine256f16x8, combine256f16x1}, {},
			{combine256i8x8, combine256i8x1},
		},
		pairUp: pairUp256,
	},
	encoded: encodedSet{
		bytes: turnBytes256, bytesMin: turnBytes256min, nibbles: turnNibbles256, nibblesMin: turnNibbles256min,
		nibblesF16: turnNibbles256f16, nibblesBF16: turnNibbles256bf16,
		heads: turnHeads, scalesK: turnScalesK,
		expandQ5K: expandQ5K, expandQ6K: expandQ6K, expandQ50: expandQ50,
	},
	word: wordSet{words: turnWords256, expandNibbles: expandNibbles,
		bytes: []codesFunc{codes256minx1, codes256minx2, codes256minx3, codes256minx4}},
	vectors: vectors256,
	dot4:    []dotFunc{dot256x1x4, dot256x2x4, dot256x3x4, dot256x4x4},
	dot1:    []dotFunc{dot256x1x1, dot256x2x1, dot256x3x1, dot256x4x1},
}
