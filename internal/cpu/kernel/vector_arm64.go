//go:build arm64 && !noasm

package kernel

//go:generate sh -c "cd _generate && go run ./neon -family vector -out ../vector_arm64.s -stubs ../gen_vector_arm64.go -pkg kernel"

// Pause waits for n hints to yield.
func Pause(n int) { pause(n) }

// FetchRows fetches bytes of rows, from an address on and pitch bytes apart, into the second cache. They need not be anyone's.
func FetchRows(rows int, at uintptr, pitch, bytes int) { fetchRows(rows, at, pitch, bytes) }

var vectors128 = vectors{
	maps: [maps]mapFunc{
		MapExp: mapExp128, MapTanh: mapTanh128, MapSigmoid: mapSigmoid128, MapSilu: mapSilu128, MapGelu: mapGelu128,
		MapGeluTanh: mapGeluTanh128, MapErf: mapErf128, MapMish: mapMish128, MapElu: mapElu128,
		MapHardSwish: mapHardSwish128, MapHardSigmoid: mapHardSigmoid128, MapRelu: mapRelu128, MapClamp: mapClamp128,
		MapLeakyRelu: mapLeakyRelu128, MapNeg: mapNeg128, MapAbs: mapAbs128, MapSqrt: mapSqrt128,
		MapRsqrt: mapRsqrt128, MapReciprocal: mapReciprocal128, MapSquare: mapSquare128, MapCube: mapCube128,
		MapFloor: mapFloor128, MapCeil: mapCeil128, MapRound: mapRound128, MapTrunc: mapTrunc128,
		MapLog: mapLog128, MapSin: mapSin128, MapCos: mapCos128,
		MapAffine: mapAffine128, MapAdd: mapAdd128, MapSub: mapSub128, MapMul: mapMul128, MapDiv: mapDiv128,
		MapAddScaled: mapAddScaled128, MapMaximum: mapMaximum128, MapMinimum: mapMinimum128, MapPrelu: mapPrelu128,
		MapGlu: mapGlu128, MapAddProduct: mapAddProduct128, MapNormalize: mapNormalize128, MapWhere: mapWhere128,
	},
	sum: sum128, squares: squares128, max: max128, min: min128, expSum: expSum128, accumulate: accumulate128,
	widenHalf:  [elements]func(int, *float32, *uint16){nil, widenBFloat16128, widenFloat16128},
	narrowHalf: [elements]func(int, *uint16, *float32){nil, narrowBFloat16128, narrowFloat16128},
	weighted:   weighted4x128, weightedOne: weighted1x128, addRows: addRows128,
}
