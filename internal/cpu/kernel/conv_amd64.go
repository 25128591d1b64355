//go:build amd64 && !noasm

package kernel

// fastConvSets returns the sets in assembly that the processor can run.
func fastConvSets() []*ConvSet {
	var sets []*ConvSet
	for _, s := range All() {
		switch s {
		case avx512:
			sets = append(sets, conv512)
		case avx2:
			sets = append(sets, conv256)
		}
	}
	return sets
}

var conv512 = &ConvSet{
	Name: "avx512", Pixels: 14, Columns: 32, Vectors: avx512,
	wide: []convFunc{
		conv512x1x2, conv512x2x2, conv512x3x2, conv512x4x2, conv512x5x2, conv512x6x2, conv512x7x2, conv512x8x2,
		conv512x9x2, conv512x10x2, conv512x11x2, conv512x12x2, conv512x13x2, conv512x14x2,
	},
	narrow: []convFunc{
		conv512x1x1, conv512x2x1, conv512x3x1, conv512x4x1, conv512x5x1, conv512x6x1, conv512x7x1, conv512x8x1,
		conv512x9x1, conv512x10x1, conv512x11x1, conv512x12x1, conv512x13x1, conv512x14x1,
	},
	pairs: []convFunc{
		pairs512x1x1, pairs512x2x1, pairs512x3x1, pairs512x4x1, pairs512x5x1, pairs512x6x1, pairs512x7x1, pairs512x8x1,
		pairs512x9x1, pairs512x10x1, pairs512x11x1, pairs512x12x1, pairs512x13x1, pairs512x14x1,
	},
	pairHalves: pairHalves512,
	depthwise: []convFunc{
		depthwise512x1, depthwise512x2, depthwise512x3, depthwise512x4, depthwise512x5, depthwise512x6, depthwise512x7,
		depthwise512x8, depthwise512x9, depthwise512x10, depthwise512x11, depthwise512x12, depthwise512x13,
		depthwise512x14,
	},
	largest: []convFunc{max512x1, max512x2, max512x3, max512x4, max512x5, max512x6},
	mean:    []convFunc{mean512x1, mean512x2, mean512x3, mean512x4, mean512x5, mean512x6},
	sumWide: sumWide512, norm: norm512,
	scales:          scales512,
	silu:            silu512,
	hardSwish:       true,
	scaleLanes:      8,
	winogradIn:      [2]convFunc{winograd512In2, winograd512In4},
	winogradOut:     [2]convFunc{winograd512Out2, winograd512Out4},
	winogradWeights: [2]convFunc{winograd512Weights2, winograd512Weights4},
	winogradLine:    [2]convFunc{winograd512Line2, winograd512Line4},
}

var (
	tiles256 = []convFunc{
		conv256x1x2, conv256x2x2, conv256x3x2, conv256x4x2, conv256x5x2, conv256x6x2,
	}
	conv256 = &ConvSet{
		Name: "avx2", Pixels: 6, Columns: 16, Vectors: avx2, wide: tiles256, narrow: tiles256,
		pairs: []convFunc{
			pairs256x1x2, pairs256x2x2, pairs256x3x2, pairs256x4x2, pairs256x5x2, pairs256x6x2,
		},
		pairHalves: pairHalves256,
		depthwise: []convFunc{
			depthwise256x1, depthwise256x2, depthwise256x3, depthwise256x4, depthwise256x5, depthwise256x6,
		},
		largest: []convFunc{max256x1, max256x2, max256x3, max256x4, max256x5, max256x6},
		mean:    []convFunc{mean256x1, mean256x2, mean256x3, mean256x4, mean256x5, mean256x6},
		sumWide: sumWide256, norm: norm256,
		scales:          scales256,
		silu:            silu256,
		hardSwish:       true,
		scaleLanes:      4,
		winogradIn:      [2]convFunc{winograd256In2, winograd256In4},
		winogradOut:     [2]convFunc{winograd256Out2, winograd256Out4},
		winogradWeights: [2]convFunc{winograd256Weights2, winograd256Weights4},
		winogradLine:    [2]convFunc{winograd256Line2, winograd256Line4},
	}
)
