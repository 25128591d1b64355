package blocked

// Numbers of tiles: fewTiles are too few for transformed weights to be worth reading. Up to someTiles F(2×2) is as fast
// where F(4×4) would not save half as many products more, which is where the tiles reach over the edge; its weights are
// half as large, and its results more exact.
const (
	fewTiles  = 12
	someTiles = 32
)

// choose returns the algorithm for a geometry. It depends on nothing else, and not on how many images there are, so that
// packed weights fit whoever packs them, for batches of any size, and an image's results are the same in each.
func choose(g Geometry) Algorithm {
	tiles := func(m int) int { return ceil(g.OutHeight, m) * ceil(g.OutWidth, m) }
	switch {
	case g.Planar:
		return Stem
	case hasDepthwise(g):
		return Depthwise
	case hasWinograd(g) && !g.Exact && tiles(4) >= fewTiles &&
		(tiles(4) >= someTiles || 2*16*tiles(2) >= 3*36*tiles(4)):
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
