package main

import (
	"fmt"
	"math"
)

// The byte offsets of the fields of kernel.WinogradTile.
const (
	winoIn       = 8 * iota // what is transformed
	winoInRow               // bytes from row to row of it
	winoInStep              // from column to column
	winoOut                 // where to
	winoOutRow              //
	winoOutStep             //
	winoInNext              // from tile to tile
	winoOutNext             //
	winoCount               // tiles
	winoScratch             // a square of vectors
	winoFlags               // of the output: as for tiles of convolutions
	winoScale               //
	winoShift               //
	winoMask                //
	winoResidual            // like out
	winoLow                 //
	winoHigh                //
)

// A transform is one dimension of a Winograd transform: in pairs become out.
type transform struct {
	in, out int
	// steps computes o from d, which it may overwrite.
	steps func(v *vec, d, o []pair)
}

// winograd has the transforms of the input, of the output and of weights for tiles of m×m pixels and kernels of 3×3. The
// points are 0, ±1 and ∞ for m = 2, and 0, ±√½, ±√2 and ∞ for m = 4.
var winograd = map[int][3]transform{
	2: {
		{4, 4, func(v *vec, d, o []pair) {
			v.sub(o[0], d[0], d[2])
			v.add(o[1], d[1], d[2])
			v.sub(o[2], d[2], d[1])
			v.sub(o[3], d[1], d[3])
		}},
		{4, 2, func(v *vec, m, o []pair) {
			v.add(o[0], m[1], m[2])
			v.add(o[0], o[0], m[0])
			v.sub(o[1], m[1], m[2])
			v.sub(o[1], o[1], m[3])
		}},
		{3, 4, func(v *vec, g, o []pair) {
			v.set(o[0], g[0])
			v.set(o[3], g[2])
			v.add(g[0], g[0], g[2])
			v.mul(g[0], g[0], v.c(0.5))
			v.mul(g[1], g[1], v.c(0.5))
			v.add(o[1], g[0], g[1])
			v.sub(o[2], g[0], g[1])
		}},
	},
	4: {
		{6, 6, func(v *vec, d, o []pair) {
			half, two, sum, a := v.c(0.5), v.c(2), v.c(2.5), v.c(math.Sqrt2/2)
			v.add(o[0], d[0], d[4])
			v.mls(o[0], d[2], sum) // d0 − 5/2·d2 + d4
			v.add(o[5], d[5], d[1])
			v.mls(o[5], d[3], sum) // d1 − 5/2·d3 + d5
			v.set(d[0], d[4])
			v.mls(d[0], d[2], two)  // d4 − 2·d2
			v.mls(d[4], d[2], half) // d4 − d2/2
			v.set(d[2], d[3])
			v.mls(d[2], d[1], two)  // d3 − 2·d1
			v.mls(d[3], d[1], half) // d3 − d1/2
			v.add(d[3], d[3], d[3])
			v.set(o[1], d[0])
			v.mla(o[1], d[2], a)
			v.set(o[2], d[0])
			v.mls(o[2], d[2], a)
			v.set(o[3], d[4])
			v.mla(o[3], d[3], a)
			v.set(o[4], d[4])
			v.mls(o[4], d[3], a)
		}},
		{6, 4, func(v *vec, m, o []pair) {
			two, half, four, a := v.c(2), v.c(0.5), v.c(4), v.c(math.Sqrt2/2)
			v.add(o[2], m[1], m[2]) // s1
			v.sub(o[1], m[1], m[2]) // d1
			v.add(m[1], m[3], m[4]) // s2
			v.sub(m[2], m[3], m[4]) // d2
			v.add(o[0], m[0], o[2])
			v.add(o[0], o[0], m[1])
			v.mul(m[3], m[2], four)
			v.mla(m[3], o[1], half)
			v.set(o[3], m[5])
			v.mla(o[3], m[3], a) // m5 + a·(d1/2 + 4·d2)
			v.mla(o[1], m[2], two)
			v.mul(o[1], o[1], a) // a·(d1 + 2·d2)
			v.mul(o[2], o[2], half)
			v.mla(o[2], m[1], two) // s1/2 + 2·s2
		}},
		{3, 6, func(v *vec, g, o []pair) {
			third, a := v.c(1./3), v.c(math.Sqrt2/6)
			v.set(o[0], g[0])
			v.set(o[5], g[2])
			v.mul(g[1], g[1], a) // a/3·g1
			v.mul(o[3], g[0], v.c(1./6))
			v.mla(o[3], g[2], third) // g0/6 + g2/3
			v.sub(o[4], o[3], g[1])
			v.add(o[3], o[3], g[1])
			v.add(g[1], g[1], g[1])
			v.mul(o[2], g[0], v.c(-2./3))
			v.mls(o[2], g[2], third) // −2/3·g0 − 1/3·g2
			v.sub(o[1], o[2], g[1])
			v.add(o[2], o[2], g[1])
		}},
	},
}

// A square is a kernel that does a transform in both dimensions: columns to scratch, then rows.
type square struct {
	v    *vec
	tile tile
	// Where the results of a tile lie, and its residual.
	out, residual, outRow, outStep R
	// half is the byte offset of the eight channels that are computed, row the row of results.
	half, row int
}

// tileRegisters are those for a row of a tile and for what becomes of it.
func tileRegisters() (d, o []pair) {
	for i := range V(6) {
		d, o = append(d, pair{2 * i, 2*i + 1}), append(o, pair{12 + 2*i, 13 + 2*i})
	}
	return d, o
}

// newSquare writes the kernel, but for what becomes of a row of results, which ends does.
func newSquare(f *file, t transform, name string, ends func(s *square, o []pair, to R)) {
	k := f.kernel(name, "t *byte", "transforms tiles; see WinogradTile.")
	tl := tile{kernel: k, t: k.arg("t")}
	v := newVec(k)
	in, row, step, scratch := tl.field(winoIn), tl.field(winoInRow), tl.field(winoInStep), tl.field(winoScratch)
	left, from, to, column, out := tl.field(winoCount), k.gp(), k.gp(), k.gp(), k.gp()
	s := &square{
		v: v, tile: tl, out: tl.field(winoOut), residual: tl.field(winoResidual),
		outRow: tl.field(winoOutRow), outStep: tl.field(winoOutStep),
	}
	d, o := tileRegisters()
	k.label("tile")
	for _, s.half = range []int{0, 32} {
		k.p("MOVD %v, %v", in, column)
		for j := range t.in {
			k.p("MOVD %v, %v", column, from)
			for i := range t.in {
				k.loadQQ(d[i][0], d[i][1], from, s.half)
				if i < t.in-1 {
					k.advance(row, from)
				}
			}
			t.steps(v, d[:t.in], o[:t.out])
			for i := range t.out {
				at := 64*(i*t.in+j) + s.half
				k.storeQ(o[i][0], scratch, at)
				k.storeQ(o[i][1], scratch, at+16)
			}
			if j < t.in-1 {
				k.advance(step, column)
			}
		}
		k.p("MOVD %v, %v", s.out, out)
		for i := range t.out {
			for j := range t.in {
				at := 64*(i*t.in+j) + s.half
				k.loadQ(d[j][0], scratch, at)
				k.loadQ(d[j][1], scratch, at+16)
			}
			t.steps(v, d[:t.in], o[:t.out])
			k.p("MOVD %v, %v", out, to)
			s.row = i
			ends(s, o[:t.out], to)
			if i < t.out-1 {
				k.advance(s.outRow, out)
			}
		}
	}
	nextIn, nextOut := tl.field(winoInNext), tl.field(winoOutNext)
	k.advance(nextIn, in)
	k.advance(nextOut, s.out)
	k.advance(nextOut, s.residual)
	k.p("SUBS $1, %v, %v", left, left)
	k.p("BNE tile")
	k.ret()
	v.finish()
}

// winogradLine writes the transform of weights in one dimension, for count vectors of sixteen.
func winogradLine(f *file, m int) {
	t := winograd[m][2]
	k := f.kernel(fmt.Sprintf("winograd128Line%d", m), "t *byte", "transforms lines of weights; see WinogradTile.")
	tl := tile{kernel: k, t: k.arg("t")}
	v := newVec(k)
	in, step, next := tl.field(winoIn), tl.field(winoInStep), tl.field(winoInNext)
	out, outStep, outNext := tl.field(winoOut), tl.field(winoOutStep), tl.field(winoOutNext)
	left, at := tl.field(winoCount), k.gp()
	d, o := tileRegisters()
	k.label("line")
	for _, half := range []int{0, 32} {
		k.p("MOVD %v, %v", in, at)
		for i := range t.in {
			k.loadQQ(d[i][0], d[i][1], at, half)
			if i < t.in-1 {
				k.advance(step, at)
			}
		}
		t.steps(v, d[:t.in], o[:t.out])
		k.p("MOVD %v, %v", out, at)
		for i := range t.out {
			k.storeQQ(o[i][0], o[i][1], at, half)
			if i < t.out-1 {
				k.advance(outStep, at)
			}
		}
	}
	k.advance(next, in)
	k.advance(outNext, out)
	k.p("SUBS $1, %v, %v", left, left)
	k.p("BNE line")
	k.ret()
	v.finish()
}

// keep stores a row of results.
func (s *square) keep(o []pair, to R) {
	for j, x := range o {
		if j > 0 {
			s.v.advance(s.outStep, to)
		}
		s.v.storeQQ(x[0], x[1], to, s.half)
	}
}

// winogradStore writes the transform of an input, or of weights, whose results are stored as they are.
func winogradStore(f *file, m, which int, name string) {
	newSquare(f, winograd[m][which], fmt.Sprintf("winograd128%s%d", name, m), (*square).keep)
}

// winogradOutput finishes the pixels of a row before it stores them. The residual lies like the output.
func winogradOutput(f *file, m int) {
	newSquare(f, winograd[m][1], fmt.Sprintf("winograd128Out%d", m), func(s *square, o []pair, to R) {
		v, t := s.v, s.tile
		flags, pointer := t.field(winoFlags), v.gp()
		spare, other := pair{24, 25}, pair{26, 27}
		unless := func(bit int, what string) string {
			label := v.unique(what)
			v.p("TBZ $%d, %v, %s", bit, flags, label)
			return label
		}
		load := func(field int, to pair) {
			v.p("MOVD %d(%v), %v", field, t.t, pointer)
			v.loadQQ(to[0], to[1], pointer, s.half)
		}
		load(winoScale, spare)
		load(winoShift, other)
		for _, x := range o {
			v.mul(x, x, spare)
			v.add(x, x, other)
		}
		limit := unless(bitResidual, "limit")
		v.p("MOVD %v, %v", s.residual, pointer)
		for range s.row {
			v.advance(s.outRow, pointer)
		}
		for _, x := range o {
			v.loadQQ(spare[0], spare[1], pointer, s.half)
			v.add(x, x, spare)
			v.advance(s.outStep, pointer)
		}
		v.label(limit)
		clear := unless(bitLimit, "clear")
		t.all(winoLow, spare[0])
		t.all(winoHigh, spare[1])
		for _, x := range o {
			v.max(x, x, pair{spare[0], spare[0]})
			v.min(x, x, pair{spare[1], spare[1]})
		}
		v.label(clear)
		store := unless(bitClear, "store")
		load(winoMask, spare)
		for _, x := range o {
			v.mask(x, x, spare)
		}
		v.label(store)
		v.release(flags, pointer)
		s.keep(o, to)
	})
}
