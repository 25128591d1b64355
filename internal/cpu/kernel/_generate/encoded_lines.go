package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// encodedLinesFamily writes what reads blocks of codes of 16 lines in registers, for the set of 16 lanes.
func encodedLinesFamily() {
	s := sets[0]
	s.wordsQ6K()
	s.headsK()
	s.heads()
}

// turned loads 16 bytes of each of 16 lines and makes four vectors of them, which have four bytes of each line.
func (s set) turned(at, stride, three reg.Register, disp int, v, w func(n int) reg.VecPhysical) {
	from := GP64()
	MOVQ(at, from)
	for lane := range s.lanes / 4 {
		for j := range 4 {
			line := far(from, stride, three, j)
			line.Disp = disp
			if lane == 0 {
				VMOVDQU(line, low(w(j)))
			} else {
				VINSERTI32X4(Imm(uint64(lane)), line, w(j), w(j))
			}
		}
		if lane < s.lanes/4-1 {
			LEAQ(Mem{Base: from, Index: stride, Scale: 4}, from)
		}
	}
	VPUNPCKHDQ(w(1), w(0), v(1))
	VPUNPCKLDQ(w(1), w(0), w(0))
	VPUNPCKHDQ(w(3), w(2), v(3))
	VPUNPCKLDQ(w(3), w(2), w(2))
	VPUNPCKLQDQ(w(2), w(0), v(0))
	VPUNPCKLQDQ(v(3), v(1), v(2))
	VPUNPCKHQDQ(v(3), v(1), v(3))
	VPUNPCKHQDQ(w(2), w(0), v(1))
}

// from returns the registers of a set from one on.
func (s set) from(first int) func(n int) reg.VecPhysical {
	return func(n int) reg.VecPhysical { return s.vector(first + n) }
}

// wordsQ6K writes the codes of one block of Q6_K of 16 lines as words.
func (s set) wordsQ6K() {
	const name = "turnWordsQ6K512"
	TEXT(name, NOSPLIT, "func(src *byte, stride int, dst *byte, ldd int, ahead uintptr)")
	Doc(name + " writes the codes of a block of Q6_K of 16 lines as words; see Words.")
	Pragma("noescape")
	src := Load(Param("src"), GP64())
	stride := Load(Param("stride"), GP64())
	dst := Load(Param("dst"), GP64())
	ldd := Load(Param("ldd"), GP64())
	ahead := Load(Param("ahead"), GP64())
	three, threeWords, row, eight := GP64(), GP64(), GP64(), GP64()
	LEAQ(Mem{Base: ldd, Index: ldd, Scale: 2}, threeWords)
	MOVQ(ldd, eight)
	SHLQ(Imm(3), eight)
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, three)
	mask, six, zero, to := s.vector(31), s.vector(30), s.vector(29), s.vector(4)
	for i, b := range []uint32{0x0f0f0f0f, 0x3f3f3f3f, 0x20202020} {
		g := GP32()
		MOVL(U32(b), g)
		VPBROADCASTD(g, s.vector(31-i))
	}
	a, b, high := s.from(8), s.from(12), s.from(16)
	for part := range 2 {
		for piece := range 2 {
			for i, v := range []func(int) reg.VecPhysical{a, b, high} {
				fetch(ahead, fetchedEach*(6*part+3*piece+i))
				s.turned(src, stride, three, []int{64 * part, 64*part + 32, 128 + 32*part}[i]+16*piece, v, s.from(0))
			}
			for run := range 4 {
				if run == 0 {
					LEAQ(Mem{Base: dst}, row)
				} else {
					ADDQ(eight, row)
				}
				for n := range 4 {
					low := []func(int) reg.VecPhysical{a, b}[run%2](n)
					const lowOfOther, lowOfThis = 0xd8, 0xe4 // which of two has the four low bits
					switch run {
					case 0, 1:
						VPSLLD(Imm(uint64(4-2*run)), high(n), to)
						VPTERNLOGD(Imm(lowOfOther), mask, low, to)
					case 2:
						VPSRLD(Imm(4), low, to)
						VPTERNLOGD(Imm(lowOfThis), mask, high(n), to)
					case 3:
						VPSRLD(Imm(4), low, low)
						VPSRLD(Imm(2), high(n), to)
						VPTERNLOGD(Imm(lowOfOther), mask, low, to)
					}
					VPANDD(six, to, to)
					VPSUBB(zero, to, to)
					VMOVDQU32(to, far(row, ldd, threeWords, n))
				}
			}
			if piece == 0 {
				LEAQ(Mem{Base: dst, Index: ldd, Scale: 4}, dst) // the next four rows of each run
			} else if part == 0 {
				LEAQ(Mem{Base: row, Index: ldd, Scale: 4}, dst) // after those of the last run
			}
		}
	}
	s.end()
}

// headsK writes scales and minima of groups of a block of Q4_K or Q5_K of each of 16 lines.
func (s set) headsK() {
	const name = "turnHeadsK512"
	TEXT(name, NOSPLIT, "func(src *byte, stride int, scales, minima *float32)")
	Doc(name + " writes scales and minima of groups; see ScalesK.")
	Pragma("noescape")
	src := Load(Param("src"), GP64())
	stride := Load(Param("stride"), GP64())
	scales := Load(Param("scales"), GP64())
	minima := Load(Param("minima"), GP64())
	three := GP64()
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, three)
	word := s.from(4)
	s.turned(src, stride, three, 0, word, s.from(0))
	six, four, two, sign := s.vector(16), s.vector(17), s.vector(18), s.vector(19)
	for i, bits := range []uint32{0x3f, 0x0f, 0x30, 1 << 31} {
		g := GP32()
		MOVL(U32(bits), g)
		VPBROADCASTD(g, s.vector(16+i))
	}
	each := s.from(8) // d, and what is taken off
	VPSRLD(Imm(16), word(0), each(1))
	VPMOVDW(word(0), each(0).AsY())
	VPMOVDW(each(1), each(1).AsY())
	for part := range 2 {
		VCVTPH2PS(each(part).AsY(), each(part))
	}
	VPXORD(sign, each(1), each(1))
	// shifted is a word's bits from one on.
	shifted := func(by int, from, to reg.VecPhysical) reg.VecPhysical {
		if by == 0 {
			return from
		}
		VPSRLD(Imm(uint64(by)), from, to)
		return to
	}
	for g := range 8 {
		for part, to := range []reg.Register{scales, minima} {
			j, n, more := g%4, s.vector(10+2*part), s.vector(11+2*part)
			if g < 4 {
				VPANDD(six, shifted(8*j, word(1+part), n), n)
			} else {
				VPANDD(four, shifted(8*j+4*part, word(3), more), more)
				VPSRLD(Imm(uint64(8*j+2)), word(1+part), n)
				VPTERNLOGD(Imm(0xea), more, two, n) // both of the upper two bits, or the lower ones
			}
			VCVTDQ2PS(n, n)
			VMULPS(each(part), n, n)
			VMOVUPS(n, Mem{Base: to, Disp: 4 * turnedLines * g})
		}
	}
	s.end()
}

// heads writes turnHeads for vectors of 16 lanes.
func (s set) heads() {
	const name = "turnHeads512"
	TEXT(name, NOSPLIT, "func(steps int, src *byte, stride, step int, room *byte, dst *float32, apart int)")
	Doc(fmt.Sprintf("%s writes two halves of each of %d lines as floats; see Heads.", name, turnedLines))
	Pragma("noescape")
	steps := Load(Param("steps"), GP64())
	src := Load(Param("src"), GP64())
	step := Load(Param("step"), GP64())
	dst := Load(Param("dst"), GP64())
	apart := Load(Param("apart"), GP64())
	stride := Load(Param("stride"), GP64())
	three, from, word := GP64(), GP64(), s.from(0)
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, three)
	lanes := []reg.OpmaskPhysical{1: reg.K1, 2: reg.K2, 3: reg.K3}
	for lane := 1; lane < 4; lane++ { // the first word of each
		one := GP32()
		MOVL(U32(1<<(4*lane)), one)
		KMOVW(one, lanes[lane])
	}
	Label(name + "_step")
	MOVQ(src, from)
	for lane := range 4 {
		for j := range 4 {
			if line := far(from, stride, three, j); lane == 0 {
				VMOVD(line, low(word(j)))
			} else {
				VPBROADCASTD(line, lanes[lane], word(j))
			}
		}
		if lane < 3 {
			LEAQ(Mem{Base: from, Index: stride, Scale: 4}, from)
		}
	}
	x, y := word(0), word(1)
	VPUNPCKLDQ(word(1), word(0), x)
	VPUNPCKLDQ(word(3), word(2), word(2))
	VPUNPCKLQDQ(word(2), x, x)
	VPSRLD(Imm(16), x, y)
	for i, part := range []reg.VecPhysical{x, y} {
		half, m := part.AsY(), Mem{Base: dst}
		VPMOVDW(part, half)
		VCVTPH2PS(half, part)
		if i == 1 {
			m.Index, m.Scale = apart, 1
		}
		VMOVUPS(part, m)
	}
	ADDQ(step, src)
	ADDQ(Imm(4*turnedLines), dst)
	SUBQ(Imm(1), steps)
	JG(LabelRef(name + "_step"))
	s.end()
}
