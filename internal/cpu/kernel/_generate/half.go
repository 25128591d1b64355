package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// halfRows is the number of rows of the largest tile that widens the right factor in registers: with more it is cheaper
// to widen it once in memory.
const halfRows = 8

// halfFamily writes what computes with factors of bfloat16 and float16.
func halfFamily() {
	for _, e := range []element{bf16, f16} {
		for _, s := range sets {
			s.panelWiden(e)
			s.panelNarrow(e)
		}
		transpose8(e)
	}
	for _, s := range sets {
		for _, e := range []element{pairs, f16} {
			for rows := 1; rows <= min(halfRows, s.rows); rows++ {
				s.gemm(rows, e)
			}
		}
		for rows := 1; rows <= fewRows; rows++ {
			s.few(rows, pairs)
			s.few(rows, f16)
		}
		for rows := 1; rows <= s.acrossRows(); rows++ {
			s.across(rows, pairs)
		}
		s.widenPairs()
		s.pairUp()
	}
	transpose8Words()
}

// widenPairs writes the copy of pairs of rows of two vectors, one behind the other, to rows of float32.
func (s set) widenPairs() {
	name := "panelWiden" + s.name + "pairs"
	TEXT(name, NOSPLIT, "func(rows int, src *byte, lds int, dst *float32)")
	Doc(fmt.Sprintf("%s copies pairs of rows of %d elements; rows is their number.", name, 2*s.lanes))
	Pragma("noescape")
	rows := Load(Param("rows"), GP64())
	src := Load(Param("src"), GP64())
	lds := Load(Param("lds"), GP64())
	dst := Load(Param("dst"), GP64())
	Label(name + "_loop")
	for k := range 2 {
		SUBQ(Imm(1), rows)
		JL(LabelRef(name + "_done"))
		for n := range 2 {
			s.loadPair(k, Mem{Base: src, Disp: n * s.lanes * 4}, s.vector(n))
			VMOVUPS(s.vector(n), Mem{Base: dst, Disp: n * s.lanes * 4})
		}
		ADDQ(U32(uint32(8*s.lanes)), dst)
	}
	ADDQ(lds, src)
	JMP(LabelRef(name + "_loop"))
	Label(name + "_done")
	s.end()
}

// panelNarrow writes the rounding of vectors of float32 to elements, to nearest with ties to even.
func (s set) panelNarrow(e element) {
	name := "panelNarrow" + s.name + e.name
	TEXT(name, NOSPLIT, "func(vectors int, src *float32, dst *uint16)")
	Doc(fmt.Sprintf("%s rounds vectors of %d floats.", name, s.lanes))
	Pragma("noescape")
	vectors := Load(Param("vectors"), GP64())
	src := Load(Param("src"), GP64())
	dst := Load(Param("dst"), GP64())
	x, y, z := s.vector(0), s.vector(1), s.vector(2)
	var round rounding
	if e == bf16 {
		round = s.rounding()
	}
	Label(name + "_loop")
	SUBQ(Imm(1), vectors)
	JL(LabelRef(name + "_done"))
	VMOVUPS(Mem{Base: src}, x)
	switch {
	case e == f16 && s.lanes == 16:
		VCVTPS2PH(Imm(0), x, Mem{Base: dst})
	case e == f16:
		VCVTPS2PH(Imm(0), x, Mem{Base: dst})
	case s.lanes == 16:
		round.bits(x, y, z)
		VPMOVDW(y, Mem{Base: dst})
	default:
		round.bits(x, y, z)
		VEXTRACTI128(Imm(1), y, low(z))
		VPACKUSDW(low(z), low(y), low(y))
		VMOVDQU(low(y), Mem{Base: dst})
	}
	ADDQ(U32(uint32(4*s.lanes)), src)
	ADDQ(Imm(uint64(2*s.lanes)), dst)
	JMP(LabelRef(name + "_loop"))
	Label(name + "_done")
	s.end()
}

// A rounding has what rounding to bfloat16 takes in registers.
type rounding struct {
	s                set
	one, half, quiet reg.VecPhysical
}

func (s set) rounding() rounding {
	r := rounding{s, s.vector(3), s.vector(4), s.vector(5)}
	for _, c := range []struct {
		bits uint32
		to   reg.VecPhysical
	}{{1, r.one}, {0x7fff, r.half}, {0x7fc0, r.quiet}} {
		g := GP32()
		MOVL(U32(c.bits), g)
		VMOVD(g, low(c.to))
		VPBROADCASTD(low(c.to), c.to)
	}
	return r
}

// bits writes the rounding of floats x to the low halves of y: bits + 0x7fff + the lowest bit that stays; NaN stays one.
func (r rounding) bits(x, y, spare reg.VecPhysical) {
	VPSRLD(Imm(16), x, y)
	if r.s.lanes == 16 {
		VPANDD(r.one, y, y)
	} else {
		VPAND(r.one, y, y)
	}
	VPADDD(x, y, y)
	VPADDD(r.half, y, y)
	VPSRLD(Imm(16), y, y)
	if r.s.lanes == 16 {
		VCMPPS(Imm(3), x, x, reg.K1)
		VMOVDQA32(r.quiet, reg.K1, y)
		return
	}
	VCMPPS(Imm(3), x, x, spare)
	VBLENDVPS(spare, r.quiet, y, y)
}

// pairUp writes the rounding of pairs of rows of two vectors to bfloat16, element by element side by side.
func (s set) pairUp() {
	name := "pairUp" + s.name
	TEXT(name, NOSPLIT, "func(rows int, src *float32, dst *uint32)")
	Doc(fmt.Sprintf("%s rounds pairs of rows of %d elements.", name, 2*s.lanes))
	Pragma("noescape")
	rows := Load(Param("rows"), GP64())
	src := Load(Param("src"), GP64())
	dst := Load(Param("dst"), GP64())
	round := s.rounding()
	x, even, odd, spare := s.vector(0), s.vector(1), s.vector(2), s.vector(6)
	row := 8 * s.lanes
	Label(name + "_loop")
	SUBQ(Imm(2), rows)
	JL(LabelRef(name + "_done"))
	for n := range 2 {
		at := n * row / 2
		VMOVUPS(Mem{Base: src, Disp: at}, x)
		round.bits(x, even, spare)
		VMOVUPS(Mem{Base: src, Disp: row + at}, x)
		round.bits(x, odd, spare)
		VPSLLD(Imm(16), odd, odd)
		if s.lanes == 16 {
			VPORD(odd, even, even)
		} else {
			VPOR(odd, even, even)
		}
		VMOVUPS(even, Mem{Base: dst, Disp: at})
	}
	ADDQ(U32(uint32(2*row)), src)
	ADDQ(U32(uint32(row)), dst)
	JMP(LabelRef(name + "_loop"))
	Label(name + "_done")
	s.end()
}

// transpose8Words writes the transposition of 8 by 8 elements of 16 bits.
func transpose8Words() {
	const name = "transpose8words"
	TEXT(name, NOSPLIT, "func(count int, src *uint16, lds int, dst *uint16, ldd int)")
	Doc(name + " writes count blocks of 8 columns of 8 rows of src, one behind the other, as rows of dst.")
	Pragma("noescape")
	count := Load(Param("count"), GP64())
	src := Load(Param("src"), GP64())
	lds := Load(Param("lds"), GP64())
	dst := Load(Param("dst"), GP64())
	ldd := Load(Param("ldd"), GP64())
	x := []reg.VecPhysical{
		reg.X0, reg.X1, reg.X2, reg.X3, reg.X4, reg.X5, reg.X6, reg.X7,
		reg.X8, reg.X9, reg.X10, reg.X11, reg.X12, reg.X13, reg.X14, reg.X15,
	}
	at := GP64()
	Label(name + "_loop")
	SUBQ(Imm(1), count)
	JL(LabelRef(name + "_done"))
	MOVQ(src, at)
	for r := range 8 {
		VMOVDQU(Mem{Base: at}, x[r])
		ADDQ(lds, at)
	}
	for i := range 4 { // words of rows 2i and 2i+1
		VPUNPCKLWD(x[2*i+1], x[2*i], x[8+2*i])
		VPUNPCKHWD(x[2*i+1], x[2*i], x[8+2*i+1])
	}
	for i := range 2 { // of four rows
		for h := range 2 {
			VPUNPCKLDQ(x[8+4*i+2+h], x[8+4*i+h], x[4*i+2*h])
			VPUNPCKHDQ(x[8+4*i+2+h], x[8+4*i+h], x[4*i+2*h+1])
		}
	}
	for i := range 4 { // of eight
		VPUNPCKLQDQ(x[4+i], x[i], x[8+2*i])
		VPUNPCKHQDQ(x[4+i], x[i], x[8+2*i+1])
	}
	for k := range 8 {
		VMOVDQU(x[8+k], Mem{Base: dst})
		ADDQ(ldd, dst)
	}
	ADDQ(Imm(16), src)
	JMP(LabelRef(name + "_loop"))
	Label(name + "_done")
	RET()
}
