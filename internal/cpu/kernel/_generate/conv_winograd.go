package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
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

// A transform is one dimension of a Winograd transform: in vectors become out.
type transform struct {
	in, out   int
	constants []float32
	// steps computes out[i] from in, which it may overwrite, with constants in registers and spares.
	steps func(in, out, constants []reg.VecPhysical)
}

// winograd has the transforms of the input, of the output and of weights for tiles of m×m pixels and kernels of 3×3. The
// points are 0, ±1 and ∞ for m = 2, and 0, ±√½, ±√2 and ∞ for m = 4: with these, errors are a fourth of those with the
// usual 0, ±1, ±2 and ∞ at most, and half in the mean.
var winograd = map[int][3]transform{
	2: {
		{4, 4, nil, func(d, o, _ []reg.VecPhysical) {
			VSUBPS(d[2], d[0], o[0])
			VADDPS(d[2], d[1], o[1])
			VSUBPS(d[1], d[2], o[2])
			VSUBPS(d[3], d[1], o[3])
		}},
		{4, 2, nil, func(m, o, _ []reg.VecPhysical) {
			VADDPS(m[2], m[1], o[0])
			VADDPS(m[0], o[0], o[0])
			VSUBPS(m[2], m[1], o[1])
			VSUBPS(m[3], o[1], o[1])
		}},
		{3, 4, []float32{1. / 2}, func(g, o, c []reg.VecPhysical) {
			VMOVAPS(g[0], o[0])
			VMOVAPS(g[2], o[3])
			VADDPS(g[2], g[0], g[0])
			VMULPS(c[0], g[0], g[0])
			VMULPS(c[0], g[1], g[1])
			VADDPS(g[1], g[0], o[1])
			VSUBPS(g[1], g[0], o[2])
		}},
	},
	4: {
		{6, 6, []float32{2.5, 2, 0.5, math.Sqrt2 / 2}, func(d, o, c []reg.VecPhysical) {
			half, two, sum, a := c[2], c[1], c[0], c[3]
			VADDPS(d[4], d[0], o[0])
			VFNMADD231PS(sum, d[2], o[0]) // d0 − 5/2·d2 + d4
			VADDPS(d[1], d[5], o[5])
			VFNMADD231PS(sum, d[3], o[5]) // d1 − 5/2·d3 + d5
			VMOVAPS(d[4], d[0])
			VFNMADD231PS(two, d[2], d[0])  // d4 − 2·d2
			VFNMADD231PS(half, d[2], d[4]) // d4 − d2/2
			VMOVAPS(d[3], d[2])
			VFNMADD231PS(two, d[1], d[2])  // d3 − 2·d1
			VFNMADD231PS(half, d[1], d[3]) // d3 − d1/2
			VADDPS(d[3], d[3], d[3])
			VMOVAPS(d[0], o[1])
			VFMADD231PS(a, d[2], o[1])
			VMOVAPS(d[0], o[2])
			VFNMADD231PS(a, d[2], o[2])
			VMOVAPS(d[4], o[3])
			VFMADD231PS(a, d[3], o[3])
			VMOVAPS(d[4], o[4])
			VFNMADD231PS(a, d[3], o[4])
		}},
		{6, 4, []float32{2, 0.5, 4, math.Sqrt2 / 2}, func(m, o, c []reg.VecPhysical) {
			two, half, four, a := c[0], c[1], c[2], c[3]
			VADDPS(m[2], m[1], o[2]) // s1
			VSUBPS(m[2], m[1], o[1]) // d1
			VADDPS(m[4], m[3], m[1]) // s2
			VSUBPS(m[4], m[3], m[2]) // d2
			VADDPS(o[2], m[0], o[0])
			VADDPS(m[1], o[0], o[0])
			VMULPS(four, m[2], m[3])
			VFMADD231PS(half, o[1], m[3])
			VMOVAPS(m[5], o[3])
			VFMADD231PS(a, m[3], o[3]) // m5 + a·(d1/2 + 4·d2)
			VFMADD231PS(two, m[2], o[1])
			VMULPS(a, o[1], o[1]) // a·(d1 + 2·d2)
			VMULPS(half, o[2], o[2])
			VFMADD231PS(two, m[1], o[2]) // s1/2 + 2·s2
		}},
		{3, 6, []float32{-2. / 3, -1. / 3, 1. / 6, math.Sqrt2 / 6}, func(g, o, c []reg.VecPhysical) {
			VMOVAPS(g[0], o[0])
			VMOVAPS(g[2], o[5])
			VMULPS(c[3], g[1], g[1]) // a/3·g1
			VMULPS(c[2], g[0], o[3])
			VFNMADD231PS(c[1], g[2], o[3]) // g0/6 + g2/3
			VSUBPS(g[1], o[3], o[4])
			VADDPS(g[1], o[3], o[3])
			VADDPS(g[1], g[1], g[1])
			VMULPS(c[0], g[0], o[2])
			VFMADD231PS(c[1], g[2], o[2]) // −2/3·g0 − 1/3·g2
			VSUBPS(g[1], o[2], o[1])
			VADDPS(g[1], o[2], o[2])
		}},
	},
}

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
func (s set) constants(t transform, name string) []reg.VecPhysical {
	if len(t.constants) == 0 {
		return nil
	}
	data := GLOBL(name+"_constants", RODATA|NOPTR)
	var regs []reg.VecPhysical
	for i, c := range t.constants {
		DATA(4*i, U32(math.Float32bits(c))) // a float is printed without its point
		r := s.vector(12 + i)
		VBROADCASTSS(data.Offset(4*i), r)
		regs = append(regs, r)
	}
	return regs
}

// square does a transform in both dimensions for count tiles: columns to scratch, then rows, which end does the rest of.
func (s set) square(t transform, name string, ends func(half int, field func(int) Mem, row int, out []reg.VecPhysical, to func(j int) Mem)) {
	TEXT(name, NOSPLIT, "func(t *byte)")
	Doc(name + " transforms tiles; see WinogradTile.")
	Pragma("noescape")
	tile := Load(Param("t"), GP64())
	// What moves from tile to tile lies on the stack.
	outAt, residualAt := AllocLocal(8), AllocLocal(8)
	field := func(offset int) Mem {
		switch offset {
		case winoOut:
			return outAt
		case winoResidual:
			return residualAt
		}
		return Mem{Base: tile, Disp: offset}
	}
	c := s.constants(t, name)
	in, row, step, scratch, left := GP64(), GP64(), GP64(), GP64(), GP64()
	from, to, outRow, outStep := GP64(), GP64(), GP64(), GP64()
	MOVQ(field(winoIn), in)
	MOVQ(field(winoInRow), row)
	MOVQ(field(winoInStep), step)
	MOVQ(field(winoScratch), scratch)
	MOVQ(field(winoOutRow), outRow)
	MOVQ(field(winoOutStep), outStep)
	MOVQ(field(winoCount), left)
	for _, cursor := range []int{winoOut, winoResidual} {
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
		for j := range t.in {
			MOVQ(column, from)
			for i := range t.in {
				VMOVUPS(Mem{Base: from, Disp: 4 * half}, d[i])
				if i < t.in-1 {
					ADDQ(row, from)
				}
			}
			t.steps(d[:t.in], o[:t.out], c)
			for i := range t.out {
				VMOVUPS(o[i], Mem{Base: scratch, Disp: 64 * (i*t.in + j)})
			}
			if j < t.in-1 {
				ADDQ(step, column)
			}
		}
		out := GP64()
		MOVQ(field(winoOut), out)
		for i := range t.out {
			for j := range t.in {
				VMOVUPS(Mem{Base: scratch, Disp: 64 * (i*t.in + j)}, d[j])
			}
			t.steps(d[:t.in], o[:t.out], c)
			MOVQ(out, to)
			ends(half, field, i, o[:t.out], func(j int) Mem {
				if j > 0 {
					ADDQ(outStep, to)
				}
				return Mem{Base: to, Disp: 4 * half}
			})
			if i < t.out-1 {
				ADDQ(outRow, out)
			}
		}
	}
	ADDQ(field(winoInNext), in)
	next := GP64()
	MOVQ(field(winoOutNext), next)
	ADDQ(next, field(winoOut))
	ADDQ(next, field(winoResidual))
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
	c := s.constants(t, name)
	in, step, next, left := GP64(), GP64(), GP64(), GP64()
	out, outStep, outNext, to := GP64(), GP64(), GP64(), GP64()
	MOVQ(field(winoIn), in)
	MOVQ(field(winoInStep), step)
	MOVQ(field(winoInNext), next)
	MOVQ(field(winoOut), out)
	MOVQ(field(winoOutStep), outStep)
	MOVQ(field(winoOutNext), outNext)
	MOVQ(field(winoCount), left)
	var d, o []reg.VecPhysical
	for i := range 6 {
		d, o = append(d, s.vector(i)), append(o, s.vector(6+i))
	}
	Label("line_" + name)
	for half := 0; half < 16; half += s.lanes {
		VMOVUPS(Mem{Base: in, Disp: 4 * half}, d[0])
		VMOVUPS(Mem{Base: in, Index: step, Scale: 1, Disp: 4 * half}, d[1])
		VMOVUPS(Mem{Base: in, Index: step, Scale: 2, Disp: 4 * half}, d[2])
		t.steps(d[:t.in], o[:t.out], c)
		MOVQ(out, to)
		for i := range t.out {
			VMOVUPS(o[i], Mem{Base: to, Disp: 4 * half})
			if i < t.out-1 {
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
			MOVQ(field(winoFlags), flags)
			MOVQ(field(winoScale), pointer)
			VMOVUPS(Mem{Base: pointer, Disp: 4 * half}, spare[0])
			MOVQ(field(winoShift), pointer)
			VMOVUPS(Mem{Base: pointer, Disp: 4 * half}, spare[1])
			for _, o := range out {
				VFMADD213PS(spare[1], spare[0], o)
			}
			TESTQ(U32(tileAddResidual), flags)
			JE(LabelRef(label("limit")))
			MOVQ(field(winoResidual), pointer)
			MOVQ(field(winoOutRow), step)
			for range row {
				ADDQ(step, pointer)
			}
			MOVQ(field(winoOutStep), step)
			for _, o := range out {
				VADDPS(Mem{Base: pointer, Disp: 4 * half}, o, o)
				ADDQ(step, pointer)
			}
			Label(label("limit"))
			TESTQ(U32(tileLimit), flags)
			JE(LabelRef(label("clear")))
			VBROADCASTSS(field(winoLow), spare[0])
			VBROADCASTSS(field(winoHigh), spare[1])
			for _, o := range out {
				VMAXPS(o, spare[0], o)
				VMINPS(o, spare[1], o)
			}
			Label(label("clear"))
			TESTQ(U32(tileClear), flags)
			JE(LabelRef(label("store")))
			MOVQ(field(winoMask), pointer)
			for _, o := range out {
				VANDPS(Mem{Base: pointer, Disp: 4 * half}, o, o)
			}
			Label(label("store"))
			for j, o := range out {
				VMOVUPS(o, to(j))
			}
		})
}
