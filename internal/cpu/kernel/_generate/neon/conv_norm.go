package main

// The byte offsets of the fields of kernel.NormTile.
const (
	normX = 8 * iota
	normY
	normPixels
	normBlocks
	normPlane
	normWeight
	normBias
	normInverse // one float
	normEps     = normInverse + 4
	normOne     = normInverse + 8
)

// norm writes the normalisation of pixels over all channels, one by one.
func norm(f *file) {
	k := f.kernel("norm128", "t *byte", "normalises pixels over their channels; see NormTile.")
	t := tile{kernel: k, t: k.arg("t")}
	x, y, pixels, plane := t.field(normX), t.field(normY), t.field(normPixels), t.field(normPlane)
	from, to, left, weight, bias := k.gp(), k.gp(), k.gp(), k.gp(), k.gp()
	inverse, eps, one, mean, scale := V(27), V(28), V(29), V(30), V(31)
	t.all(normInverse, inverse)
	t.all(normEps, eps)
	t.all(normOne, one)
	total, v := [quads]V{0, 1, 2, 3}, [quads]V{4, 5, 6, 7}
	w, b := [quads]V{8, 9, 10, 11}, [quads]V{12, 13, 14, 15}
	// each runs body for every block of a pixel, whose channels are in v.
	each := func(what string, body func()) {
		k.p("MOVD %v, %v", x, from)
		k.p("MOVD %d(%v), %v", normBlocks, t.t, left)
		k.label(what)
		f32.load(k, from, 0, v, 0)
		k.advance(plane, from)
		body()
		k.p("SUBS $1, %v, %v", left, left)
		k.p("BNE %s", what)
	}
	// share puts the sum of total divided by the number of channels into all lanes.
	share := func(to V) {
		k.do(faddS(0, 0, 1))
		k.do(faddS(2, 2, 3))
		k.do(faddS(to, 0, 2))
		addUp(k, to)
		k.do(fmulS(to, to, inverse))
	}
	clearTotal := func() {
		for _, s := range total {
			k.zero(s)
		}
	}
	k.label("pixel")
	clearTotal()
	each("sum", func() {
		for q := range quads {
			k.do(faddS(total[q], total[q], v[q]))
		}
	})
	share(mean)
	clearTotal()
	each("square", func() {
		for q := range quads {
			k.do(fsubS(v[q], v[q], mean))
		}
		for q := range quads {
			k.do(fmlaS(total[q], v[q], v[q]))
		}
	})
	share(scale)
	k.do(faddS(scale, scale, eps))
	k.do(fsqrtS(scale, scale))
	k.do(fdivS(scale, one, scale))
	k.p("MOVD %v, %v", y, to)
	k.p("MOVD %d(%v), %v", normWeight, t.t, weight)
	k.p("MOVD %d(%v), %v", normBias, t.t, bias)
	each("scale", func() {
		f32.load(k, weight, 0, w, 0)
		f32.load(k, bias, 0, b, 0)
		k.next(weight, 64)
		k.next(bias, 64)
		for q := range quads {
			k.do(fsubS(v[q], v[q], mean))
		}
		for q := range quads {
			k.do(fmulS(v[q], v[q], scale))
		}
		for q := range quads {
			k.do(fmlaS(b[q], v[q], w[q]))
		}
		k.storeQQ(b[0], b[1], to, 0)
		k.storeQQ(b[2], b[3], to, 32)
		k.advance(plane, to)
	})
	k.next(x, 64)
	k.next(y, 64)
	k.p("SUBS $1, %v, %v", pixels, pixels)
	k.p("BNE pixel")
	k.ret()
	k.end()
}

// scales writes what a batch norm does to each channel, computed in float64: scale = w ÷ √(variance + ε), shift = b −
// mean·scale.
func scales(f *file) {
	k := f.kernel("scales128", "count int, scale, shift, w, b, mean, variance *float32, eps float64", "computes count times 2 channels.")
	count, scale, shift := k.arg("count"), k.arg("scale"), k.arg("shift")
	operands := []R{k.arg("variance"), k.arg("w"), k.arg("b"), k.arg("mean")}
	eps, variance, w, b, mean := V(0), V(1), V(2), V(3), V(4)
	k.broadcast("eps", eps)
	k.label("more")
	for i, v := range []V{variance, w, b, mean} {
		k.loadD(v, operands[i], 0)
		k.next(operands[i], 8)
		k.do(fcvtlS(v, v))
	}
	k.do(faddD(variance, variance, eps))
	k.do(fsqrtD(variance, variance))
	k.do(fdivD(w, w, variance))
	k.do(fmulD(mean, mean, w))
	k.do(fsubD(b, b, mean))
	k.do(fcvtnD(w, w))
	k.do(fcvtnD(b, b))
	k.storeD(w, scale, 0)
	k.storeD(b, shift, 0)
	k.next(scale, 8)
	k.next(shift, 8)
	k.p("SUBS $1, %v, %v", count, count)
	k.p("BNE more")
	k.ret()
	k.end()
}
