//go:build arm64 && !noasm

package kernel

//go:generate sh -c "cd _generate && go run ./neon -family conv -out ../conv_arm64.s -stubs ../gen_conv_arm64.go -pkg kernel"

// fastConvSets returns the sets in assembly.
func fastConvSets() []*ConvSet { return []*ConvSet{conv128} }

var (
	tiles128 = []convFunc{conv128x1, conv128x2, conv128x3, conv128x4, conv128x5, conv128x6}
	conv128  = &ConvSet{
		Name: "neon", Pixels: 6, Columns: 16, Vectors: neon, wide: tiles128, narrow: tiles128,
		depthwise: []convFunc{
			depthwise128x1, depthwise128x2, depthwise128x3, depthwise128x4, depthwise128x5, depthwise128x6,
		},
		largest: []convFunc{max128x1, max128x2, max128x3, max128x4, max128x5, max128x6},
		mean:    []convFunc{mean128x1, mean128x2, mean128x3, mean128x4, mean128x5, mean128x6},
		sumWide: sumWide128, norm: norm128,
		scales:          scales128,
		silu:            silu128,
		scaleLanes:      2,
		winogradIn:      [2]convFunc{winograd128In2, winograd128In4},
		winogradOut:     [2]convFunc{winograd128Out2, winograd128Out4},
		winogradWeights: [2]convFunc{winograd128Weights2, winograd128Weights4},
		winogradLine:    [2]convFunc{winograd128Line2, winograd128Line4},
	}
)
