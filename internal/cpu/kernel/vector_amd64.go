//go:build amd64 && !noasm

package kernel

// Pause waits for n pause instructions.
func Pause(n int) { pause(n) }

var vectors512 = vectors{
	maps: [maps]mapFunc{
		MapExp: mapExp512, MapTanh: mapTanh512, MapSigmoid: mapSigmoid512, MapSilu: mapSilu512, MapGelu: mapGelu512,
		MapGeluTanh: mapGeluTanh512, MapErf: mapErf512, MapMish: mapMish512, MapElu: mapElu512,
		MapHardSwish: mapHardSwish512, MapHardSigmoid: mapHardSigmoid512, MapRelu: mapRelu512, MapClamp: mapClamp512,
		MapLeakyRelu: mapLeakyRelu512, MapNeg: mapNeg512, MapAbs: mapAbs512, MapSqrt: mapSqrt512,
		MapRsqrt: mapRsqrt512, MapReciprocal: mapReciprocal512, MapSquare: mapSquare512, MapCube: mapCube512,
		MapFloor: mapFloor512, MapCeil: mapCeil512, MapRound: mapRound512, MapTrunc: mapTrunc512,
		MapLog: mapLog512, MapSin: mapSin512, MapCos: mapCos512,
		MapAffine: mapAffine512, MapAdd: mapAdd512, MapSub: mapSub512, MapMul: mapMul512, MapDiv: mapDiv512,
		MapAddScaled: mapAddScaled512, MapMaximum: mapMaximum512, MapMinimum: mapMinimum512, MapPrelu: mapPrelu512,
		MapGlu: mapGlu512, MapAddProduct: mapAddProduct512, MapNormalize: mapNormalize512, MapWhere: mapWhere512,
	},
	sum: sum512, squares: squares512, max: max512, min: min512, expSum: expSum512, accumulate: accumulate512,
	widenHalf:  [elements]func(int, *float32, *uint16){nil, widenBFloat16512, widenFloat16512},
	narrowHalf: [elements]func(int, *uint16, *float32){nil, narrowBFloat16512, narrowFloat16512},
	weighted:   weighted4x512, weightedOne: weighted1x512, addRows: addRows512,
	mapRows: [maps]func(int, int, *float32, int, float32, float32, float32){
		MapTanh: mapTanhRows512, MapSigmoid: mapSigmoidRows512, MapSilu: mapSiluRows512, MapGelu: mapGeluRows512,
		MapGeluTanh: mapGeluTanhRows512, MapHardSwish: mapHardSwishRows512, MapRelu: mapReluRows512,
	},
	maxRows: maxRows512, addMaxRows: addMaxRows512, expSumRows: expSumRows512, scaleRows: scaleRows512,
	normRows: normRows512,
}

var vectors256 = vectors{
	maps: [maps]mapFunc{
		MapExp: mapExp256, MapTanh: mapTanh256, MapSigmoid: mapSigmoid256, MapSilu: mapSilu256, MapGelu: mapGelu256,
		MapGeluTanh: mapGeluTanh256, MapErf: mapErf256, MapMish: mapMish256, MapElu: mapElu256,
		MapHardSwish: mapHardSwish256, MapHardSigmoid: mapHardSigmoid256, MapRelu: mapRelu256, MapClamp: mapClamp256,
		MapLeakyRelu: mapLeakyRelu256, MapNeg: mapNeg256, MapAbs: mapAbs256, MapSqrt: mapSqrt256,
		MapRsqrt: mapRsqrt256, MapReciprocal: mapReciprocal256, MapSquare: mapSquare256, MapCube: mapCube256,
		MapFloor: mapFloor256, MapCeil: mapCeil256, MapRound: mapRound256, MapTrunc: mapTrunc256,
		MapLog: mapLog256, MapSin: mapSin256, MapCos: mapCos256,
		MapAffine: mapAffine256, MapAdd: mapAdd256, MapSub: mapSub256, MapMul: mapMul256, MapDiv: mapDiv256,
		MapAddScaled: mapAddScaled256, MapMaximum: mapMaximum256, MapMinimum: mapMinimum256, MapPrelu: mapPrelu256,
		MapGlu: mapGlu256, MapAddProduct: mapAddProduct256, MapNormalize: mapNormalize256, MapWhere: mapWhere256,
	},
	sum: sum256, squares: squares256, max: max256, min: min256, expSum: expSum256, accumulate: accumulate256,
	widenHalf:  [elements]func(int, *float32, *uint16){nil, widenBFloat16256, widenFloat16256},
	narrowHalf: [elements]func(int, *uint16, *float32){nil, narrowBFloat16256, narrowFloat16256},
	weighted:   weighted4x256, weightedOne: weighted1x256, addRows: addRows256,
	mapRows: [maps]func(int, int, *float32, int, float32, float32, float32){
		MapTanh: mapTanhRows256, MapSigmoid: mapSigmoidRows256, MapSilu: mapSiluRows256, MapGelu: mapGeluRows256,
		MapGeluTanh: mapGeluTanhRows256, MapHardSwish: mapHardSwishRows256, MapRelu: mapReluRows256,
	},
	maxRows: maxRows256, addMaxRows: addMaxRows256, expSumRows: expSumRows256, scaleRows: scaleRows256,
	normRows: normRows256,
}

// FetchRows fetches bytes of rows, from an address on and pitch bytes apart, into the second cache. They need not be anyone's.
func FetchRows(rows int, at uintptr, pitch, bytes int) { fetchRows(rows, at, pitch, bytes) }
