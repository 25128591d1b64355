package blocked

// choose returns the algorithm for a geometry.
func choose(g Geometry) Algorithm {
	switch {
	case g.Planar:
		return Stem
	case g.KernelH == 1 && g.KernelW == 1 && g.StrideH == 1 && g.StrideW == 1 && g.Groups == 1:
		return Pointwise
	}
	return Direct
}
