package main

// halfFamily writes what computes with factors of bfloat16 and float16.
func halfFamily(f *file) {
	for _, e := range []element{pairs, f16} {
		for rows := 1; rows <= tileRows; rows++ {
			gemm(f, rows, e)
		}
		for rows := 1; rows <= fewRows; rows++ {
			few(f, rows, e)
		}
	}
	for rows := 1; rows <= fewRows; rows++ {
		across(f, rows, pairs)
	}
	for _, e := range []element{bf16, f16} {
		panelWiden(f, e)
		narrow(f, "panelNarrow128"+e.name, "vectors int, src *float32, dst *uint16", "rounds vectors of 8 floats.", e)
		transpose8(f, e)
	}
	panelWiden(f, pairs)
	pairUp(f)
	transpose8Words(f)
}

// A rounding has what rounding to bfloat16 takes in registers.
type rounding struct{ one, half, quiet V }

func newRounding(k *kernel) rounding {
	r := rounding{29, 30, 31}
	g := k.gp()
	for _, c := range []struct {
		bits uint32
		to   V
	}{{1, r.one}, {0x7fff, r.half}, {0x7fc00000, r.quiet}} {
		k.p("MOVD $%d, %v", c.bits, g)
		k.p("VDUP %v, %v.S4", g, c.to)
	}
	k.release(g)
	return r
}

// bits writes the rounding of floats x to the upper halves of to: bits + 0x7fff + the lowest bit that stays; NaN stays
// one. What is below the upper halves means nothing.
func (r rounding) bits(k *kernel, x, to, spare V) {
	k.do(ushrS(to, x, 16))
	k.and(to, r.one, to)
	k.addInt(to, x, to)
	k.addInt(to, r.half, to)
	k.do(fcmeqS(spare, x, x))
	k.p("VBIF %v.B16, %v.B16, %v.B16", spare, r.quiet, to)
}

// narrow writes the rounding of floats to elements, to nearest with ties to even: of vectors of eight, or of as many
// floats as n says, a multiple of eight.
func narrow(f *file, name, signature, doc string, e element) {
	k := f.kernel(name, signature, doc)
	var count, src, dst R
	each := 1
	if _, ok := k.params["vectors"]; ok {
		count, src, dst = k.arg("vectors"), k.arg("src"), k.arg("dst")
	} else {
		count, src, dst, each = k.arg("n"), k.arg("x"), k.arg("to"), 8
	}
	var round rounding
	if e == bf16 {
		round = newRounding(k)
	}
	k.label("loop")
	k.p("SUBS $%d, %v, %v", each, count, count)
	k.p("BLT done")
	k.loadQQ(0, 1, src, 0)
	if e == f16 {
		k.do(fcvtnS(2, 0))
		k.do(fcvtn2S(2, 1))
	} else {
		round.bits(k, 0, 3, 5)
		round.bits(k, 1, 4, 6)
		k.do(shrn(2, 3))
		k.do(shrn2(2, 4))
	}
	k.storeQ(2, dst, 0)
	k.next(src, 32)
	k.next(dst, 16)
	k.p("B loop")
	k.label("done")
	k.ret()
	k.end()
}

// pairUp writes the rounding of pairs of rows of sixteen floats to bfloat16, element by element side by side.
func pairUp(f *file) {
	k := f.kernel("pairUp128", "rows int, src *float32, dst *uint32", "rounds pairs of rows of 16 elements.")
	rows, src, dst := k.arg("rows"), k.arg("src"), k.arg("dst")
	round := newRounding(k)
	mask := V(28)
	k.do(upperHalves(mask))
	k.label("loop")
	k.p("SUBS $2, %v, %v", rows, rows)
	k.p("BLT done")
	for q := range quads {
		k.loadQ(0, src, 16*q)
		k.loadQ(1, src, 64+16*q)
		round.bits(k, 0, 2, 4)
		round.bits(k, 1, 3, 5)
		k.do(ushrS(2, 2, 16))
		k.and(3, mask, 3)
		k.p("VORR V2.B16, V3.B16, V2.B16")
		k.storeQ(2, dst, 16*q)
	}
	k.next(src, 128)
	k.next(dst, 64)
	k.p("B loop")
	k.label("done")
	k.ret()
	k.end()
}

// transpose8Words writes the transposition of 8 by 8 elements of 16 bits.
func transpose8Words(f *file) {
	k := f.kernel("transpose8words", "count int, src *uint16, lds int, dst *uint16, ldd int",
		"writes count blocks of 8 columns of 8 rows of src, one behind the other, as rows of dst.")
	count := k.arg("count")
	src := k.rowPointers("src", "lds", 8)
	dst, ldd := k.arg("dst"), k.arg("ldd")
	k.label("loop")
	for r, row := range src {
		k.loadQ(V(r), row, 0)
		k.next(row, 16)
	}
	// Squares of 2 by 2 are exchanged, then such squares, then squares of them.
	from := V(0)
	for level, lanes := range []string{"H8", "S4", "D2"} {
		to := 16 - from
		apart := V(1) << level
		for i := range V(8) {
			if i&apart == 0 {
				k.trn1(lanes, from+i, from+i+apart, to+i)
				k.trn2(lanes, from+i, from+i+apart, to+i+apart)
			}
		}
		from = to
	}
	for n := range V(8) {
		k.storeQ(from+n, dst, 0)
		k.advance(ldd, dst)
	}
	k.p("SUBS $1, %v, %v", count, count)
	k.p("BGT loop")
	k.ret()
	k.end()
}
