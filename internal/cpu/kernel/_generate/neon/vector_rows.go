package main

import (
	"fmt"
	"math"

	"github.com/optimem/optimem/internal/cpu/kernel/_generate/bodies"
)

// wide gives eight floats as float64, two to a register.
func wide(k *kernel, x pair, to [4]V) {
	for h := range x {
		k.do(fcvtlS(to[2*h], x[h]))
		k.do(fcvtl2S(to[2*h+1], x[h]))
	}
}

// fold writes the loop over n floats from x, eight a turn, and the sum of what body adds to four vectors of float64.
func fold(k *kernel, body func(acc, x [4]V)) {
	n, x := k.arg("n"), k.arg("x")
	acc := [4]V{0, 1, 2, 3}
	for _, a := range acc {
		k.zero(a)
	}
	k.label("loop")
	k.loadQQ(4, 5, x, 0)
	k.next(x, 32)
	w := [4]V{16, 17, 18, 19}
	wide(k, pair{4, 5}, w)
	body(acc, w)
	k.p("SUBS $8, %v, %v", n, n)
	k.p("BGT loop")
	k.do(faddD(0, 0, 1))
	k.do(faddD(2, 2, 3))
	k.do(faddD(0, 0, 2))
	k.do(faddpD(0, 0, 0))
	k.p("FMOVD F0, %s", k.place("ret"))
	k.ret()
	k.end()
}

func sum(f *file) {
	k := f.kernel("sum128", "n int, x *float32 -> float64", "computes Σ x[i] in float64; n is a multiple of eight and not 0.")
	fold(k, func(acc, x [4]V) {
		for i := range acc {
			k.do(faddD(acc[i], acc[i], x[i]))
		}
	})
}

func squares(f *file) {
	k := f.kernel("squares128", "n int, x *float32, shift float64 -> float64",
		"computes Σ (x[i] − shift)² in float64; n is a multiple of eight and not 0.")
	k.broadcast("shift", 31)
	fold(k, func(acc, x [4]V) {
		for i := range acc {
			k.do(fsubD(x[i], x[i], 31))
		}
		for i := range acc {
			k.do(fmlaD(acc[i], x[i], x[i]))
		}
	})
}

// extreme writes the largest or smallest of a row, NaN where there is one.
func extreme(f *file, name string, start float64) {
	k := f.kernel(name+"128", "n int, x *float32 -> float32",
		"finds the "+name+"imum of x[i], NaN if one is; n is a multiple of eight and not 0.")
	pick, pairwise := fmaxS, fmaxpS
	if name == "min" {
		pick, pairwise = fminS, fminpS
	}
	n, x, bits := k.arg("n"), k.arg("x"), k.gp()
	k.p("MOVD $%#x, %v", math.Float32bits(float32(start)), bits)
	for v := range V(2) {
		k.p("VDUP %v, %v.S4", bits, v)
	}
	k.label("loop")
	k.loadQQ(2, 3, x, 0)
	k.next(x, 32)
	k.do(pick(0, 0, 2))
	k.do(pick(1, 1, 3))
	k.p("SUBS $8, %v, %v", n, n)
	k.p("BGT loop")
	k.do(pick(0, 0, 1))
	k.do(pairwise(0, 0, 0))
	k.do(pairwise(0, 0, 0))
	k.p("FMOVS F0, %s", k.place("ret"))
	k.ret()
	k.end()
}

// expSum writes exponentials of a row and their sum.
func expSum(f *file) {
	k := f.kernel("expSum128", "n int, to, x *float32, p0, p1 float32 -> float32",
		"computes to[i] = exp(x[i]·p0 − p1) and gives Σ to[i], in eight sums.")
	n, dst, x := k.arg("n"), k.arg("to"), k.arg("x")
	room, whole := k.room(32), k.gp()
	v := newVec(k)
	sum := v.t()
	for _, s := range sum {
		k.zero(s)
	}
	one := func(masked bool) {
		was := v.temps
		z, e, tiny := v.t(), v.t(), v.t()
		v.load(tiny, x)
		v.set(z, v.negate("p1"))
		v.mla(z, tiny, v.param("p0"))
		// Numbers that have not all their bits are slow, and too small to count.
		v.max(tiny, z, v.c(-87))
		bodies.Exp(arithmetic{v}, tiny, e, 89)
		v.choose(v.c(-87), z, v.c(0), e, e)
		v.store(e, dst)
		if masked {
			mask := v.t()
			v.load(mask, whole)
			v.goes("VAND", "B16", e, e, mask)
		}
		v.add(sum, sum, e)
		v.temps = was
	}
	last := v.newTail()
	k.label("loop")
	k.p("SUBS $8, %v, %v", n, n)
	k.p("BLT rest")
	one(false)
	k.next(x, 32)
	k.next(dst, 32)
	k.p("B loop")
	k.label("rest")
	k.p("ADDS $8, %v, %v", n, n)
	k.p("BEQ done")
	k.p("MOVD %v, %v", n, last.count)
	k.p("MOVD $8, %v", whole)
	last.take(x, room, whole)
	last.begin(dst)
	// The mask of the first n of eight.
	k.p("MOVD $tailMasks<>+32(SB), %v", whole)
	k.p("SUB %v<<2, %v, %v", n, whole, whole)
	one(true)
	k.label("done")
	last.end()
	k.do(faddS(sum[0], sum[0], sum[1]))
	addUp(k, sum[0])
	k.p("FMOVS %s, %s", sum[0].f(), k.place("ret"))
	k.ret()
	f.masks = true
	v.finish()
}

// accumulate adds floats to sums of float64.
func accumulate(f *file) {
	k := f.kernel("accumulate128", "n int, sums *float64, x *float32",
		"computes sums[i] += x[i]; n is a multiple of eight and not 0.")
	n, sums, x := k.arg("n"), k.arg("sums"), k.arg("x")
	w := [4]V{4, 5, 6, 7}
	k.label("loop")
	k.loadQQ(0, 1, x, 0)
	wide(k, pair{0, 1}, w)
	k.loadQQ(16, 17, sums, 0)
	k.loadQQ(18, 19, sums, 32)
	for i, v := range w {
		k.do(faddD(v, v, V(16+i)))
	}
	k.storeQQ(w[0], w[1], sums, 0)
	k.storeQQ(w[2], w[3], sums, 32)
	k.next(x, 32)
	k.next(sums, 64)
	k.p("SUBS $8, %v, %v", n, n)
	k.p("BGT loop")
	k.ret()
	k.end()
}

// widen writes the conversion of half floats.
func widen(f *file, name string, e element) {
	k := f.kernel("widen"+name+"128", "n int, to *float32, x *uint16", "converts to float32; n is a multiple of eight and not 0.")
	n, to, x := k.arg("n"), k.arg("to"), k.arg("x")
	low, high := fcvtlH, fcvtl2H
	if e == bf16 {
		low, high = shll, shll2
	}
	k.label("loop")
	k.loadQ(0, x, 0)
	k.do(low(1, 0))
	k.do(high(2, 0))
	k.storeQQ(1, 2, to, 0)
	k.next(x, 16)
	k.next(to, 32)
	k.p("SUBS $8, %v, %v", n, n)
	k.p("BGT loop")
	k.ret()
	k.end()
}

// A width is a number of columns that are computed together.
type width int

// load and store move as many floats as a width has.
func (w width) load(k *kernel, to pair, from R) {
	switch w {
	case 8:
		k.loadQQ(to[0], to[1], from, 0)
	case 4:
		k.loadQ(to[0], from, 0)
	default:
		k.loadS(to[0], from, 0)
	}
}

func (w width) store(k *kernel, x pair, to R) {
	switch w {
	case 8:
		k.storeQQ(x[0], x[1], to, 0)
	case 4:
		k.storeQ(x[0], to, 0)
	default:
		k.storeS(x[0], to, 0)
	}
}

// registers is how many registers a width takes.
func (w width) registers() int { return (int(w) + 3) / 4 }

// widths writes body for as many columns as a register holds, and so on down to one, until none is left.
func widths(k *kernel, columns R, body func(w width, suffix string)) {
	for _, w := range []width{8, 4, 1} {
		suffix := fmt.Sprint(int(w))
		k.label("columns" + suffix)
		k.p("SUBS $%d, %v, %v", w, columns, columns)
		k.p("BLT fewer%s", suffix)
		body(w, suffix)
		k.p("B columns%s", suffix)
		k.label("fewer" + suffix)
		k.next(columns, int(w))
	}
}

// weighted writes sums of rows with weights: of 32 columns, and of at most eight.
func weighted(f *file) {
	const signature = "n int, w, rows *float32, ldr int, sums *float32, columns int"
	const doc = "computes sums[j] += Σ_i w[i]·rows[i][j]; see weighted."
	k := f.kernel("weighted4x128", signature, doc)
	n, w, rows, ldr, sums := k.arg("n"), k.arg("w"), k.arg("rows"), k.arg("ldr"), k.arg("sums")
	each := func(body func(v V, at int)) {
		for i := range 4 {
			body(V(2*i), 32*i)
		}
	}
	each(func(v V, at int) { k.loadQQ(v, v+1, sums, at) })
	k.label("loop")
	k.loadS(16, w, 0)
	each(func(v V, at int) { k.loadQQ(v+20, v+21, rows, at) })
	each(func(v V, _ int) {
		k.do(fmlaLane(v, v+20, 16, 0))
		k.do(fmlaLane(v+1, v+21, 16, 0))
	})
	k.next(w, 4)
	k.advance(ldr, rows)
	k.p("SUBS $1, %v, %v", n, n)
	k.p("BGT loop")
	each(func(v V, at int) { k.storeQQ(v, v+1, sums, at) })
	k.ret()
	k.end()

	k = f.kernel("weighted1x128", signature, doc)
	n, w, rows, ldr, sums = k.arg("n"), k.arg("w"), k.arg("rows"), k.arg("ldr"), k.arg("sums")
	columns, left, weight, row := k.arg("columns"), k.gp(), k.gp(), k.gp()
	widths(k, columns, func(wd width, suffix string) {
		wd.load(k, pair{0, 1}, sums)
		k.p("MOVD %v, %v", n, left)
		k.p("MOVD %v, %v", w, weight)
		k.p("MOVD %v, %v", rows, row)
		k.label("row" + suffix)
		k.loadS(16, weight, 0)
		wd.load(k, pair{2, 3}, row)
		for h := range wd.registers() {
			k.do(fmlaLane(V(h), V(2+h), 16, 0))
		}
		k.next(weight, 4)
		k.advance(ldr, row)
		k.p("SUBS $1, %v, %v", left, left)
		k.p("BGT row%s", suffix)
		wd.store(k, pair{0, 1}, sums)
		k.next(sums, 4*int(wd))
		k.next(rows, 4*int(wd))
	})
	k.ret()
	k.end()
}

// addRows writes the sum of rows that lie apart: one call for many short ones.
func addRows(f *file) {
	k := f.kernel("addRows128", "rows, columns int, to *float32, ldt int, x *float32, ldx int, y *float32, ldy int",
		"computes to[r][i] = x[r][i] + y[r][i].")
	rows, columns := k.arg("rows"), k.arg("columns")
	to, ldt, x, ldx, y, ldy := k.arg("to"), k.arg("ldt"), k.arg("x"), k.arg("ldx"), k.arg("y"), k.arg("ldy")
	left, at := k.gp(), []R{k.gp(), k.gp(), k.gp()}
	k.label("row")
	k.p("SUBS $1, %v, %v", rows, rows)
	k.p("BLT done")
	k.p("MOVD %v, %v", columns, left)
	for i, base := range []R{to, x, y} {
		k.p("MOVD %v, %v", base, at[i])
	}
	widths(k, left, func(w width, _ string) {
		w.load(k, pair{0, 1}, at[1])
		w.load(k, pair{2, 3}, at[2])
		for h := range V(w.registers()) {
			k.do(faddS(h, h, 2+h))
		}
		w.store(k, pair{0, 1}, at[0])
		for _, p := range at {
			k.next(p, 4*int(w))
		}
	})
	k.advance(ldt, to)
	k.advance(ldx, x)
	k.advance(ldy, y)
	k.p("B row")
	k.label("done")
	k.ret()
	k.end()
}
