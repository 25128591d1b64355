//go:build arm64 && !noasm

package kernel

//go:generate sh -c "cd _generate && go run ./neon -family gemm -out ../gemm_arm64.s -stubs ../gen_gemm_arm64.go -pkg kernel"
//go:generate sh -c "cd _generate && go run ./neon -family half -out ../half_arm64.s -stubs ../gen_half_arm64.go -pkg kernel"
//go:generate sh -c "cd _generate && go run ./neon -family bytes -out ../bytes_arm64.s -stubs ../gen_bytes_arm64.go -pkg kernel"
//go:generate sh -c "cd _generate && go run ./neon -family codes -out ../codes_arm64.s -stubs ../gen_codes_arm64.go -pkg kernel"
//go:generate sh -c "cd _generate && go run ./neon -family encoded -out ../encoded_arm64.s -stubs ../gen_encoded_arm64.go -pkg kernel"

// All returns the one set there is: every such processor has NEON.
func All() []*Set { return []*Set{neon} }

var neon = &Set{
	Name: "neon", Rows: 6, Columns: 16, Lanes: 8,
	products: products{
		gemm: [elements][]gemmFunc{
			{gemm128x1, gemm128x2, gemm128x3, gemm128x4, gemm128x5, gemm128x6},
			nil,
			{gemm128f16x1, gemm128f16x2, gemm128f16x3, gemm128f16x4, gemm128f16x5, gemm128f16x6},
			{gemm128pairsx1, gemm128pairsx2, gemm128pairsx3, gemm128pairsx4, gemm128pairsx5, gemm128pairsx6},
			{gemm128i8x1, gemm128i8x2, gemm128i8x3, gemm128i8x4, gemm128i8x5, gemm128i8x6},
		},
		widen: [elements]func(int, *byte, int, *float32){
			panelWiden128, panelWiden128bf16, panelWiden128f16, panelWiden128pairs, panelWiden128i8,
		},
		narrow: [elements]func(int, *float32, *uint16){nil, panelNarrow128bf16, panelNarrow128f16, nil, nil},
		few: [elements][]fewFunc{
			{few128x1, few128x2, few128x3, few128x4}, nil,
			{few128f16x1, few128f16x2, few128f16x3, few128f16x4},
			{few128pairsx1, few128pairsx2, few128pairsx3, few128pairsx4},
			{few128i8x1, few128i8x2, few128i8x3, few128i8x4},
		},
		across: [elements][]acrossFunc{
			{across128x1, across128x2, across128x3, across128x4}, nil, nil,
			{across128pairsx1, across128pairsx2, across128pairsx3, across128pairsx4},
			{across128i8x1, across128i8x2, across128i8x3, across128i8x4},
		},
		pairUp: pairUp128,
	},
	vectors: vectors128,
	codes:   codesFuncs{dot: dotCodes128, nibbles: nibbles128},
	dot4:    []dotFunc{dot128x1x4, dot128x2x4, dot128x3x4, dot128x4x4},
	dot1:    []dotFunc{dot128x1x1, dot128x2x1, dot128x3x1, dot128x4x1},
}
