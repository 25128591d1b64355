package blocked

// fewTiles is how many tiles are too few for a transform of the weights to be worth reading.
const fewTiles = 12

// choose returns the algorithm for a geometry. It depends on nothing else, so that packed weights fit whoever packs them
// and results are the same everywhere.
func choose(g Geometry) Algorithm {
	tiles := func(m int) int { return g.Batch * ceil(g.OutHeight, m) * ceil(g.OutWidth, m) }
	switch {
	case g.Planar:
		return Stem
	case hasDepthwise(g):
		return Depthwise
	case hasWinograd(g) && !g.Exact && tiles(4) >= fewTiles:
		return Winograd4
	case hasWinograd(g) && !g.Exact && tiles(2) >= fewTiles:
		return Winograd2
	case g.KernelH == 1 && g.KernelW == 1 && g.StrideH == 1 && g.StrideW == 1 && g.Groups == 1:
		return Pointwise
	}
	return Direct
}

// hasWinograd reports whether Winograd's algorithms can compute a geometry.
func hasWinograd(g Geometry) bool {
	return !g.Planar && g.Groups == 1 && g.KernelH == 3 && g.KernelW == 3 && g.StrideH == 1 && g.StrideW == 1 &&
		g.DilationH == 1 && g.DilationW == 1
}
