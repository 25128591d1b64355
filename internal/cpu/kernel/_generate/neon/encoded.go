package main

import "fmt"

// turnedLines is how many lines of codes become columns.
const turnedLines = 16

// encodedFamily writes products of few rows by columns of codes, which become numbers in registers.
func encodedFamily(f *file) {
	turnWords(f)
	expandNibbles(f)
	expandQ6K(f)
	for rows := 1; rows <= fewRows; rows++ {
		for _, round := range []element{f32, f16, bf16} {
			codes(f, rows, round)
		}
	}
}

// turnWords writes the copy of words of four bytes of 16 lines side by side.
func turnWords(f *file) {
	k := f.kernel("turnWords128", "steps, pieces int, src *byte, stride, gap int, dst *byte, ldd int",
		"writes words of 16 lines side by side; see Words.")
	steps, pieces, src, stride := k.arg("steps"), k.arg("pieces"), k.arg("src"), k.arg("stride")
	gap, dst, ldd := k.arg("gap"), k.arg("dst"), k.arg("ldd")
	left, line, to := k.gp(), k.gp(), k.gp()
	k.label("step")
	k.p("SUBS $1, %v, %v", steps, steps)
	k.p("BLT done")
	k.p("MOVD %v, %v", pieces, left)
	k.label("piece")
	k.p("MOVD %v, %v", src, line)
	for group := range turnedLines / 4 {
		var lines [4]V
		for i := range lines {
			lines[i] = V(i)
			k.loadQ(lines[i], line, 0)
			k.advance(stride, line)
		}
		k.p("MOVD %v, %v", dst, to)
		for i, v := range turn4(k, lines, [4]V{4, 5, 6, 7}) {
			k.storeQ(v, to, 16*group)
			if i < 3 {
				k.advance(ldd, to)
			}
		}
	}
	k.p("ADD %v, %v, %v", ldd, to, dst)
	k.next(src, 16)
	k.p("SUBS $1, %v, %v", left, left)
	k.p("BNE piece")
	k.advance(gap, src)
	k.p("B step")
	k.label("done")
	k.ret()
	k.end()
}

// expandNibbles writes the numbers that half bytes stand for as bytes.
func expandNibbles(f *file) {
	k := f.kernel("expandNibbles128", "lines, steps, pieces int, src *byte, stride, gap int, table, dst *byte",
		"writes what half bytes of lines stand for as bytes, low ones of a step before high ones; see Nibbles.")
	lines, steps, pieces, src := k.arg("lines"), k.arg("steps"), k.arg("pieces"), k.arg("src")
	stride, gap, table, dst := k.arg("stride"), k.arg("gap"), k.arg("table"), k.arg("dst")
	from, low, high, step, left, half := k.gp(), k.gp(), k.gp(), k.gp(), k.gp(), k.gp()
	k.loadQ(0, table, 0)
	k.p("VMOVI $15, V1.B16")
	k.p("LSL $4, %v, %v", pieces, half)
	k.label("line")
	k.p("SUBS $1, %v, %v", lines, lines)
	k.p("BLT done")
	k.p("MOVD %v, %v", src, from)
	k.p("MOVD %v, %v", dst, low)
	k.p("MOVD %v, %v", steps, step)
	k.label("step")
	k.p("MOVD %v, %v", pieces, left)
	k.p("ADD %v, %v, %v", half, low, high)
	k.label("piece")
	k.halves(from, low, high)
	k.p("SUBS $1, %v, %v", left, left)
	k.p("BNE piece")
	k.p("MOVD %v, %v", high, low)
	k.advance(gap, from)
	k.p("SUBS $1, %v, %v", step, step)
	k.p("BNE step")
	k.advance(stride, src)
	k.next(dst, 256)
	k.p("B line")
	k.label("done")
	k.ret()
	k.end()
}

// expandQ6K writes the codes of blocks of Q6_K, less 32: of each 128 numbers four bits are in half bytes, low ones
// before high ones, and two in a quarter of a byte.
func expandQ6K(f *file) {
	k := f.kernel("expandQ6K128", "lines int, src *byte, stride int, dst *byte",
		"writes the codes of blocks of Q6_K, less 32; see ExpandQ6K.")
	lines, src, stride, dst := k.arg("lines"), k.arg("src"), k.arg("stride"), k.arg("dst")
	k.p("VMOVI $15, V16.B16")
	k.p("VMOVI $48, V17.B16")
	k.p("VMOVI $32, V18.B16")
	k.label("line")
	k.p("SUBS $1, %v, %v", lines, lines)
	k.p("BLT done")
	for part := range 2 {
		for run := range 2 {
			k.loadQ(0, src, 64*part+16*run)     // first half bytes
			k.loadQ(1, src, 64*part+32+16*run)  // second ones
			k.loadQ(2, src, 128+32*part+16*run) // upper bits
			k.p("VSHL $4, V2.B16, V3.B16")      // of the first 32
			k.p("VSHL $2, V2.B16, V4.B16")      // of the second
			k.p("VUSHR $2, V2.B16, V5.B16")     // of the fourth; the third ones are in their place
			k.and(0, 16, 6)
			k.and(1, 16, 7)
			k.p("VUSHR $4, V0.B16, V19.B16")
			k.p("VUSHR $4, V1.B16, V20.B16")
			for i, pair := range [4][2]V{{3, 6}, {4, 7}, {2, 19}, {5, 20}} {
				k.and(pair[0], 17, pair[0])
				k.p("VORR %v.B16, %v.B16, %v.B16", pair[0], pair[1], pair[1])
				k.p("VSUB V18.B16, %v.B16, %v.B16", pair[1], pair[1])
				k.storeQ(pair[1], dst, 128*part+32*i+16*run)
			}
		}
	}
	k.advance(stride, src)
	k.next(dst, 256)
	k.p("B line")
	k.label("done")
	k.ret()
	k.end()
}

// codes writes the kernel of few rows by sixteen columns of codes, as words: those of a row of words lie side by side, a
// code of each column in each byte.
//
//	c[r][j] = Σ_k a[r][k]·number[k][j] (+ c[r][j], + bias[r] or + bias[j]) for j < 16
//
// For each word that is read what lies ahead, jump bytes further each time, is fetched into the cache. A number is
// scale · code + minimum, of which the product is exact, so that both are one operation; or it is rounded to a half, and
// (code − minimum) · scale.
func codes(f *file, rows int, round element) {
	k := f.kernel(fmt.Sprintf("codes128%sx%d", map[element]string{f32: "min", f16: "f16", bf16: "bf16"}[round], rows),
		"steps, words int, src *byte, scales, scales1, minima, minima1 *float32, other int, table *byte, "+
			"a *float32, lda int, c *float32, ldc int, mode int, bias *float32, ahead uintptr, jump int",
		fmt.Sprintf("computes %d rows of 16 columns; see Codes.", rows))
	steps, words, src := k.arg("steps"), k.arg("words"), k.arg("src")
	scales, minima := k.arg("scales"), k.arg("minima")
	ahead, jump := k.arg("ahead"), k.arg("jump")
	a := k.rowPointers("a", "lda", rows)
	left := k.gp()
	acc := func(r, q int) V { return V(quads*r + q) }
	for i := range quads * rows {
		k.zero(V(i))
	}
	const firstScale, firstMinimum, firstInput, word, code, number = V(16), V(20), V(24), V(28), V(29), V(30)
	if round == bf16 { // 0x7fff
		k.p("VMOVI $255, V31.B16")
		k.do(ushrS(31, 31, 17))
	}
	k.label("step")
	k.p("SUBS $1, %v, %v", steps, steps)
	k.p("BLT done")
	for q := V(0); q < quads; q += 2 {
		k.loadQQ(firstScale+q, firstScale+q+1, scales, 16*int(q))
		k.loadQQ(firstMinimum+q, firstMinimum+q+1, minima, 16*int(q))
	}
	k.next(scales, 4*turnedLines)
	k.next(minima, 4*turnedLines)
	k.p("MOVD %v, %v", words, left)
	k.label("word")
	k.fetch(2, ahead, 0)
	k.advance(jump, ahead)
	for r, row := range a {
		k.loadQ(firstInput+V(r), row, 0)
		k.next(row, 16)
	}
	for q := range quads {
		k.loadQ(word, src, 16*q)
		for i := range 4 {
			i8.part(k, i, word, code, 0)
			if round == f32 {
				k.move(firstMinimum+V(q), number)
				k.do(fmlaS(number, code, firstScale+V(q)))
			} else {
				k.do(fsubS(code, code, firstMinimum+V(q)))
				k.do(fmulS(number, code, firstScale+V(q)))
				round.round(k, number, code, 31)
			}
			for r := range rows {
				k.do(fmlaLane(acc(r, q), number, firstInput+V(r), i))
			}
		}
	}
	k.next(src, 64)
	k.p("SUBS $1, %v, %v", left, left)
	k.p("BNE word")
	k.p("B step")
	k.label("done")
	k.release(a...)
	store(k, rows, quads, acc, 31)
	k.end()
}

// round rounds numbers to halves, to the nearest and of two to the even one. Of bfloat16 it takes a spare register and one
// with 0x7fff.
func (e element) round(k *kernel, number, spare, most V) {
	if e == f16 {
		k.do(fcvtnS(number, number))
		k.do(fcvtlH(number, number))
		return
	}
	k.do(ushrS(spare, number, 16))
	k.do(shlS(spare, spare, 31))
	k.do(ushrS(spare, spare, 31)) // whether the half below is odd
	k.addInt(number, most, number)
	k.addInt(number, spare, number)
	k.do(ushrS(number, number, 16))
	k.do(shlS(number, number, 16))
}
