package main

import (
	"fmt"
	"math"

	"github.com/optimem/optimem/internal/cpu/kernel/_generate/bodies"
)

// winograd has the transforms of the input, of the output and of weights.
var winograd = bodies.Winograd(bodies.Transform[pair]{
	In: 3, Out: 6,
	Steps: func(a bodies.Assembler[pair], g, o []pair) {
		third, r := a.Constant(1./3), a.Constant(math.Sqrt2/6)
		a.Move(o[0], g[0])
		a.Move(o[5], g[2])
		a.Mul(g[1], g[1], r) // r/3·g1
		a.Mul(o[3], g[0], a.Constant(1./6))
		a.MulAdd(o[3], g[2], third) // g0/6 + g2/3
		a.Sub(o[4], o[3], g[1])
		a.Add(o[3], o[3], g[1])
		a.Add(g[1], g[1], g[1])
		a.Mul(o[2], g[0], a.Constant(-2./3))
		a.MulSub(o[2], g[2], third) // −2/3·g0 − 1/3·g2
		a.Sub(o[1], o[2], g[1])
		a.Add(o[2], o[2], g[1])
	},
})

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
func newSquare(f *file, t bodies.Transform[pair], name string, ends func(s *square, o []pair, to R)) {
	k := f.kernel(name, "t *byte", "transforms tiles; see WinogradTile.")
	tl := tile{kernel: k, t: k.arg("t")}
	v := newVec(k)
	in, row, step, scratch := tl.field(bodies.WinogradIn), tl.field(bodies.WinogradInRow), tl.field(bodies.WinogradInStep), tl.field(bodies.WinogradScratch)
	left, from, to, column, out := tl.field(bodies.WinogradCount), k.gp(), k.gp(), k.gp(), k.gp()
	s := &square{
		v: v, tile: tl, out: tl.field(bodies.WinogradOut), residual: tl.field(bodies.WinogradResidual),
		outRow: tl.field(bodies.WinogradOutRow), outStep: tl.field(bodies.WinogradOutStep),
	}
	d, o := tileRegisters()
	k.label("tile")
	for _, s.half = range []int{0, 32} {
		k.p("MOVD %v, %v", in, column)
		for j := range t.In {
			k.p("MOVD %v, %v", column, from)
			for i := range t.In {
				k.loadQQ(d[i][0], d[i][1], from, s.half)
				if i < t.In-1 {
					k.advance(row, from)
				}
			}
			t.Steps(arithmetic{v}, d[:t.In], o[:t.Out])
			for i := range t.Out {
				at := 64*(i*t.In+j) + s.half
				k.storeQ(o[i][0], scratch, at)
				k.storeQ(o[i][1], scratch, at+16)
			}
			if j < t.In-1 {
				k.advance(step, column)
			}
		}
		k.p("MOVD %v, %v", s.out, out)
		for i := range t.Out {
			for j := range t.In {
				at := 64*(i*t.In+j) + s.half
				k.loadQ(d[j][0], scratch, at)
				k.loadQ(d[j][1], scratch, at+16)
			}
			t.Steps(arithmetic{v}, d[:t.In], o[:t.Out])
			k.p("MOVD %v, %v", out, to)
			s.row = i
			ends(s, o[:t.Out], to)
			if i < t.Out-1 {
				k.advance(s.outRow, out)
			}
		}
	}
	nextIn, nextOut := tl.field(bodies.WinogradInNext), tl.field(bodies.WinogradOutNext)
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
	in, step, next := tl.field(bodies.WinogradIn), tl.field(bodies.WinogradInStep), tl.field(bodies.WinogradInNext)
	out, outStep, outNext := tl.field(bodies.WinogradOut), tl.field(bodies.WinogradOutStep), tl.field(bodies.WinogradOutNext)
	left, at := tl.field(bodies.WinogradCount), k.gp()
	d, o := tileRegisters()
	k.label("line")
	for _, half := range []int{0, 32} {
		k.p("MOVD %v, %v", in, at)
		for i := range t.In {
			k.loadQQ(d[i][0], d[i][1], at, half)
			if i < t.In-1 {
				k.advance(step, at)
			}
		}
		t.Steps(arithmetic{v}, d[:t.In], o[:t.Out])
		k.p("MOVD %v, %v", out, at)
		for i := range t.Out {
			k.storeQQ(o[i][0], o[i][1], at, half)
			if i < t.Out-1 {
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
		flags, pointer := t.field(bodies.WinogradFlags), v.gp()
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
		load(bodies.WinogradScale, spare)
		load(bodies.WinogradShift, other)
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
		t.all(bodies.WinogradLow, spare[0])
		t.all(bodies.WinogradHigh, spare[1])
		for _, x := range o {
			v.max(x, x, pair{spare[0], spare[0]})
			v.min(x, x, pair{spare[1], spare[1]})
		}
		v.label(clear)
		store := unless(bitClear, "store")
		load(bodies.WinogradMask, spare)
		for _, x := range o {
			v.mask(x, x, spare)
		}
		v.label(store)
		v.release(flags, pointer)
		s.keep(o, to)
	})
}
