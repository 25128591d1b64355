package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/optimem/optimem/internal/cpu/kernel/_generate/bodies"
)

// winograd has the transforms of the input, of the output and of weights. What is subtracted of the weights for m = 4 has
// constants below zero, so that two kinds of instructions do.
var winograd = bodies.Winograd(bodies.Transform[reg.VecPhysical]{
	In: 3, Out: 6, Constants: []float64{-2. / 3, -1. / 3, 1. / 6, math.Sqrt2 / 6},
	Steps: func(a bodies.Assembler[reg.VecPhysical], g, o []reg.VecPhysical) {
		twoThirds, third, sixth := a.Constant(-2./3), a.Constant(-1./3), a.Constant(1./6)
		a.Move(o[0], g[0])
		a.Move(o[5], g[2])
		a.Mul(g[1], g[1], a.Constant(math.Sqrt2/6)) // r/3·g1
		a.Mul(o[3], g[0], sixth)
		a.MulSub(o[3], g[2], third) // g0/6 + g2/3
		a.Sub(o[4], o[3], g[1])
		a.Add(o[3], o[3], g[1])
		a.Add(g[1], g[1], g[1])
		a.Mul(o[2], g[0], twoThirds)
		a.MulAdd(o[2], g[2], third) // −2/3·g0 − 1/3·g2
		a.Sub(o[1], o[2], g[1])
		a.Add(o[2], o[2], g[1])
	},
})

// winogradFamily writes the transforms of inputs, outputs and weights.
func (s set) winogradFamily() {
	for _, m := range []int{2, 4} {
		s.winogradStore(m, 0, "In")
		s.winogradOutput(m)
		s.winogradStore(m, 2, "Weights")
		s.winogradLine(m)
	}
}

// constants loads a transform's constants into registers from the thirteenth on.
func (s set) constants(t *bodies.Transform[reg.VecPhysical], name string) arithmetic {
	w := arithmetic{held: make(map[float64]reg.VecPhysical)}
	if len(t.Constants) == 0 {
		return w
	}
	data := GLOBL(name+"_constants", RODATA|NOPTR)
	for i, c := range t.Constants {
		DATA(4*i, U32(math.Float32bits(float32(c)))) // a float is printed without its point
		w.held[c] = s.vector(12 + i)
		VBROADCASTSS(data.Offset(4*i), w.held[c])
	}
	return w
}

// square does a transform in both dimensions for count tiles: columns to scratch, then rows, which end does the rest of.
func (s set) square(t bodies.Transform[reg.VecPhysical], name string, ends func(half int, field func(int) Mem, row int, out []reg.VecPhysical, to func(j int) Mem)) {
	TEXT(name, NOSPLIT, "func(t *byte)")
	Doc(name + " transforms tiles; see WinogradTile.")
	Pragma("noescape")
	tile := Load(Param("t"), GP64())
	// What moves from tile to tile lies on the stack.
	outAt, residualAt := AllocLocal(8), AllocLocal(8)
	field := func(offset int) Mem {
		switch offset {
		case bodies.WinogradOut:
			return outAt
		case bodies.WinogradResidual:
			return residualAt
		}
		return Mem{Base: tile, Disp: offset}
	}
	w := s.constants(&t, name)
	in, row, step, scratch, left := GP64(), GP64(), GP64(), GP64(), GP64()
	from, to, outRow, outStep := GP64(), GP64(), GP64(), GP64()
	MOVQ(field(bodies.WinogradIn), in)
	MOVQ(field(bodies.WinogradInRow), row)
	MOVQ(field(bodies.WinogradInStep), step)
	MOVQ(field(bodies.WinogradScratch), scratch)
	MOVQ(field(bodies.WinogradOutRow), outRow)
	MOVQ(field(bodies.WinogradOutStep), outStep)
	MOVQ(field(bodies.WinogradCount), left)
	for _, cursor := range []int{bodies.WinogradOut, bodies.WinogradResidual} {
		MOVQ(Mem{Base: tile, Disp: cursor}, from)
		MOVQ(from, field(cursor))
	}
	var d, o []reg.VecPhysical
	for i := range 6 {
		d, o = append(d, s.vector(i)), append(o, s.vector(6+i))
	}
	Label("tile_" + name)
	for half := 0; half < 16; half += s.lanes {
		column := GP64()
		MOVQ(in, column)
		for j := range t.In {
			MOVQ(column, from)
			for i := range t.In {
				VMOVUPS(Mem{Base: from, Disp: 4 * half}, d[i])
				if i < t.In-1 {
					ADDQ(row, from)
				}
			}
			t.Steps(w, d[:t.In], o[:t.Out])
			for i := range t.Out {
				VMOVUPS(o[i], Mem{Base: scratch, Disp: 64 * (i*t.In + j)})
			}
			if j < t.In-1 {
				ADDQ(step, column)
			}
		}
		out := GP64()
		MOVQ(field(bodies.WinogradOut), out)
		for i := range t.Out {
			for j := range t.In {
				VMOVUPS(Mem{Base: scratch, Disp: 64 * (i*t.In + j)}, d[j])
			}
			t.Steps(w, d[:t.In], o[:t.Out])
			MOVQ(out, to)
			ends(half, field, i, o[:t.Out], func(j int) Mem {
				if j > 0 {
					ADDQ(outStep, to)
				}
				return Mem{Base: to, Disp: 4 * half}
			})
			if i < t.Out-1 {
				ADDQ(outRow, out)
			}
		}
	}
	ADDQ(field(bodies.WinogradInNext), in)
	next := GP64()
	MOVQ(field(bodies.WinogradOutNext), next)
	ADDQ(next, field(bodies.WinogradOut))
	ADDQ(next, field(bodies.WinogradResidual))
	DECQ(left)
	JNE(LabelRef("tile_" + name))
	s.end()
}

// winogradLine writes the transform of weights in one dimension, for count vectors of sixteen.
func (s set) winogradLine(m int) {
	t := winograd[m][2]
	name := fmt.Sprintf("winograd%sLine%d", s.name, m)
	TEXT(name, NOSPLIT, "func(t *byte)")
	Doc(name + " transforms lines of weights; see WinogradTile.")
	Pragma("noescape")
	tile := Load(Param("t"), GP64())
	field := func(offset int) Mem { return Mem{Base: tile, Disp: offset} }
	w := s.constants(&t, name)
	in, step, next, left := GP64(), GP64(), GP64(), GP64()
	out, outStep, outNext, to := GP64(), GP64(), GP64(), GP64()
	MOVQ(field(bodies.WinogradIn), in)
	MOVQ(field(bodies.WinogradInStep), step)
	MOVQ(field(bodies.WinogradInNext), next)
	MOVQ(field(bodies.WinogradOut), out)
	MOVQ(field(bodies.WinogradOutStep), outStep)
	MOVQ(field(bodies.WinogradOutNext), outNext)
	MOVQ(field(bodies.WinogradCount), left)
	var d, o []reg.VecPhysical
	for i := range 6 {
		d, o = append(d, s.vector(i)), append(o, s.vector(6+i))
	}
	Label("line_" + name)
	for half := 0; half < 16; half += s.lanes {
		VMOVUPS(Mem{Base: in, Disp: 4 * half}, d[0])
		VMOVUPS(Mem{Base: in, Index: step, Scale: 1, Disp: 4 * half}, d[1])
		VMOVUPS(Mem{Base: in, Index: step, Scale: 2, Disp: 4 * half}, d[2])
		t.Steps(w, d[:t.In], o[:t.Out])
		MOVQ(out, to)
		for i := range t.Out {
			VMOVUPS(o[i], Mem{Base: to, Disp: 4 * half})
			if i < t.Out-1 {
				ADDQ(outStep, to)
			}
		}
	}
	ADDQ(next, in)
	ADDQ(outNext, out)
	DECQ(left)
	JNE(LabelRef("line_" + name))
	s.end()
}

// winogradStore writes the transform of an input, or of weights, whose results are stored as they are.
func (s set) winogradStore(m, which int, name string) {
	s.square(winograd[m][which], fmt.Sprintf("winograd%s%s%d", s.name, name, m),
		func(_ int, _ func(int) Mem, _ int, out []reg.VecPhysical, to func(int) Mem) {
			for j, o := range out {
				VMOVUPS(o, to(j))
			}
		})
}

// winogradOutput finishes the pixels of a row before it stores them. The residual lies like the output.
func (s set) winogradOutput(m int) {
	name := fmt.Sprintf("winograd%sOut%d", s.name, m)
	s.square(winograd[m][1], name,
		func(half int, field func(int) Mem, row int, out []reg.VecPhysical, to func(int) Mem) {
			label := func(what string) string { return fmt.Sprintf("%s_%d_%d_%s", what, row, half, name) }
			spare := [2]reg.VecPhysical{s.vector(0), s.vector(1)}
			pointer, flags, step := GP64(), GP64(), GP64()
			MOVQ(field(bodies.WinogradFlags), flags)
			MOVQ(field(bodies.WinogradScale), pointer)
			VMOVUPS(Mem{Base: pointer, Disp: 4 * half}, spare[0])
			MOVQ(field(bodies.WinogradShift), pointer)
			VMOVUPS(Mem{Base: pointer, Disp: 4 * half}, spare[1])
			for _, o := range out {
				VFMADD213PS(spare[1], spare[0], o)
			}
			TESTQ(U32(tileAddResidual), flags)
			JE(LabelRef(label("limit")))
			MOVQ(field(bodies.WinogradResidual), pointer)
			MOVQ(field(bodies.WinogradOutRow), step)
			for range row {
				ADDQ(step, pointer)
			}
			MOVQ(field(bodies.WinogradOutStep), step)
			for _, o := range out {
				VADDPS(Mem{Base: pointer, Disp: 4 * half}, o, o)
				ADDQ(step, pointer)
			}
			Label(label("limit"))
			TESTQ(U32(tileLimit), flags)
			JE(LabelRef(label("clear")))
			VBROADCASTSS(field(bodies.WinogradLow), spare[0])
			VBROADCASTSS(field(bodies.WinogradHigh), spare[1])
			for _, o := range out {
				VMAXPS(o, spare[0], o)
				VMINPS(o, spare[1], o)
			}
			Label(label("clear"))
			TESTQ(U32(tileClear), flags)
			JE(LabelRef(label("store")))
			MOVQ(field(bodies.WinogradMask), pointer)
			for _, o := range out {
				VANDPS(Mem{Base: pointer, Disp: 4 * half}, o, o)
			}
			Label(label("store"))
			for j, o := range out {
				VMOVUPS(o, to(j))
			}
		})
}
