package main

// codesFamily writes what multiplies codes by codes.
func codesFamily(f *file) {
	dotCodes(f)
	nibbles(f)
}

// dotCodes writes the product of blocks of 32 codes, four at a time. Two products of codes, and the sum of two, fit into
// 16 bits.
func dotCodes(f *file) {
	k := f.kernel("dotCodes128", "blocks int, w *int8, ws, wm *float32, x *int8, xs, xt, sums *float32", "adds the products of blocks of codes; see DotCodes.")
	blocks, w, ws, wm := k.arg("blocks"), k.arg("w"), k.arg("ws"), k.arg("wm")
	x, xs, xt, sums := k.arg("x"), k.arg("xs"), k.arg("xt"), k.arg("sums")
	const lanes, rest = V(16), V(17)
	k.zero(lanes)
	k.zero(rest)
	k.label("loop")
	k.p("SUBS $4, %v, %v", blocks, blocks)
	k.p("BLT done")
	for i := range 4 {
		sum := V(20 + i)
		k.loadQQ(0, 1, w, 32*i)
		k.loadQQ(2, 3, x, 32*i)
		k.do(smull(4, 0, 2))
		k.do(smull2(5, 0, 2))
		k.do(smull(6, 1, 3))
		k.do(smull2(7, 1, 3))
		k.do(addpH(4, 4, 5))
		k.do(addpH(6, 6, 7))
		k.do(saddlp(4, 4))
		k.do(saddlp(6, 6))
		k.addPairs(4, 6, sum)
	}
	k.loadQ(8, ws, 0)
	k.loadQ(9, xs, 0)
	k.loadQ(10, wm, 0)
	k.loadQ(11, xt, 0)
	k.addPairs(20, 21, 20)
	k.addPairs(22, 23, 22)
	k.addPairs(20, 22, 20)
	k.do(scvtfS(20, 20))
	k.do(fmulS(8, 8, 9))
	k.do(fmulS(10, 10, 11))
	k.do(fmulS(20, 20, 8))
	k.do(faddS(rest, rest, 10))
	k.do(faddS(lanes, lanes, 20))
	for _, r := range []R{w, x} {
		k.next(r, 128)
	}
	for _, r := range []R{ws, wm, xs, xt} {
		k.next(r, 16)
	}
	k.p("B loop")
	k.label("done")
	k.storeQQ(lanes, rest, sums, 0)
	k.ret()
	k.end()
}

// nibbles writes the look-up of codes of half a byte.
func nibbles(f *file) {
	k := f.kernel("nibbles128", "groups, pieces int, src *byte, stride int, table *int8, dst *int8", "looks codes of half a byte up; see Nibbles.")
	groups, pieces, src, stride := k.arg("groups"), k.arg("pieces"), k.arg("src"), k.arg("stride")
	table, dst := k.arg("table"), k.arg("dst")
	from, left, half, upper := k.gp(), k.gp(), k.gp(), k.gp()
	k.loadQ(0, table, 0)
	k.p("VMOVI $15, V1.B16")
	k.p("LSL $4, %v, %v", pieces, half)
	k.label("group")
	k.p("SUBS $1, %v, %v", groups, groups)
	k.p("BLT done")
	k.p("MOVD %v, %v", src, from)
	k.p("MOVD %v, %v", pieces, left)
	k.p("ADD %v, %v, %v", half, dst, upper)
	k.label("piece")
	k.halves(from, dst, upper)
	k.p("SUBS $1, %v, %v", left, left)
	k.p("BNE piece")
	k.p("MOVD %v, %v", upper, dst)
	k.advance(stride, src)
	k.p("B group")
	k.label("done")
	k.ret()
	k.end()
}

// halves writes what 16 bytes' low and high half bytes stand for, by the table in V0, with a mask in V1, and goes on.
func (k *kernel) halves(from, low, high R) {
	k.loadQ(2, from, 0)
	k.and(2, 1, 3)
	k.p("VUSHR $4, V2.B16, V4.B16")
	k.p("VTBL V3.B16, [V0.B16], V3.B16")
	k.p("VTBL V4.B16, [V0.B16], V4.B16")
	k.storeQ(3, low, 0)
	k.storeQ(4, high, 0)
	for _, r := range []R{from, low, high} {
		k.next(r, 16)
	}
}
