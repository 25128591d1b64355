package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// turnedLines is how many lines of codes are turned into columns together.
const turnedLines = 16

// An ending is what becomes of a code.
type ending int

const (
	// scale · code
	scaledOnly ending = iota
	// scale · code + minimum
	withMinimum
	// (code − zero) · scale, rounded to float16 or bfloat16
	roundedF16
	roundedBF16
)

// encodedFamily writes what makes panels of blocks of codes.
func encodedFamily() {
	for _, s := range sets {
		for _, ends := range []ending{scaledOnly, withMinimum} {
			s.turnCodes(true, ends)
			s.turnCodes(false, ends)
		}
		s.turnCodes(true, roundedF16)
		s.turnCodes(true, roundedBF16)
	}
	heads()
	scalesK()
	expandQ5K()
	expandQ6K()
	expandQ50()
}

// ymm returns registers of 256 bits.
func ymm(n int) reg.VecPhysical { return set{lanes: 8}.vector(n) }

// turnCodes writes the copy of codes of 16 lines to 16 columns of rows, as floats.
func (s set) turnCodes(nibbles bool, ends ending) {
	minima := ends != scaledOnly
	name, params := "turnBytes"+s.name, "steps, pieces int, src *byte, stride, gap int, scales *float32"
	if nibbles {
		name, params = "turnNibbles"+s.name, params+", other int, table *byte"
	}
	if minima {
		name, params = name+[]string{"", "min", "f16", "bf16"}[ends], params+", minima *float32"
	}
	params += ", dst *float32, ldd int"
	if nibbles {
		params += ", apart int"
	}
	TEXT(name, NOSPLIT, "func("+params+")")
	Doc(fmt.Sprintf("%s writes the codes of %d lines as columns of dst; see Turn.", name, turnedLines))
	Pragma("noescape")
	steps := Load(Param("steps"), GP64())
	src := Load(Param("src"), GP64())
	stride := Load(Param("stride"), GP64())
	scales := Load(Param("scales"), GP64())
	var least reg.Register
	if minima {
		least = Load(Param("minima"), GP64())
	}
	dst := Load(Param("dst"), GP64())
	ldd := Load(Param("ldd"), GP64())
	piece, at, other, high := GP64(), GP64(), GP64(), GP64()
	if nibbles {
		Load(Param("other"), other)
	}
	Label(name + "_step")
	SUBQ(Imm(1), steps)
	JL(LabelRef(name + "_done"))
	if nibbles {
		Load(Param("apart"), high)
		ADDQ(dst, high)
	}
	if s.lanes == 16 {
		VMOVUPS(Mem{Base: scales}, reg.Z16)
		if minima {
			VMOVUPS(Mem{Base: least}, reg.Z18)
		}
		if nibbles {
			VMOVUPS(Mem{Base: scales, Index: other, Scale: 1}, reg.Z17)
			if minima {
				VMOVUPS(Mem{Base: least, Index: other, Scale: 1}, reg.Z19)
			}
		}
	}
	Load(Param("pieces"), piece)
	Label(name + "_piece")
	MOVQ(src, at)
	for r := range 8 {
		VMOVDQU(Mem{Base: at}, low(ymm(r)))
		ADDQ(stride, at)
	}
	for r := range 8 {
		VINSERTI128(Imm(1), Mem{Base: at}, ymm(r), ymm(r))
		ADDQ(stride, at)
	}
	interleave(0, 8, 4)
	interleave(8, 0, 2)
	interleave(0, 8, 1)
	table, mask := ymm(0), ymm(1)
	if nibbles {
		Load(Param("table"), at)
		VBROADCASTI128(Mem{Base: at}, table)
		VBROADCASTI128(Mem{Base: at, Disp: 16}, mask)
	}
	if ends == roundedBF16 {
		bitsOf(1, s.vector(6))
		bitsOf(0x7fff, s.vector(7))
	}
	emit := func(codes reg.VecPhysical, to reg.GPVirtual, upper bool) {
		for row := range 2 {
			s.scaled(codes, row, scales, least, other, upper, ends)
			if s.lanes == 16 {
				VMOVUPS(reg.Z4, Mem{Base: to})
			} else {
				VMOVUPS(reg.Y4, Mem{Base: to})
				VMOVUPS(reg.Y5, Mem{Base: to, Disp: 32})
			}
			ADDQ(ldd, to)
		}
	}
	for p := range 8 {
		pair := ymm(8 + p)
		VPERMQ(Imm(0xd8), pair, pair)
		if !nibbles {
			emit(pair, dst.(reg.GPVirtual), false)
			continue
		}
		VPAND(mask, pair, reg.Y2)
		VPSHUFB(reg.Y2, table, reg.Y2)
		emit(reg.Y2, dst.(reg.GPVirtual), false)
		VPSRLW(Imm(4), pair, reg.Y2)
		VPAND(mask, reg.Y2, reg.Y2)
		VPSHUFB(reg.Y2, table, reg.Y2)
		emit(reg.Y2, high, true)
	}
	ADDQ(Imm(16), src)
	SUBQ(Imm(1), piece)
	JG(LabelRef(name + "_piece"))
	gap := Load(Param("gap"), GP64())
	ADDQ(gap, src)
	ADDQ(Imm(4*turnedLines), scales)
	if minima {
		ADDQ(Imm(4*turnedLines), least)
	}
	if nibbles {
		ADDQ(other, scales)
		if minima {
			ADDQ(other, least)
		}
		MOVQ(high, dst)
	}
	JMP(LabelRef(name + "_step"))
	Label(name + "_done")
	s.end()
}

// interleave writes the bytes of registers that lie apart by turns: those of from … from+7, in groups of twice apart, to to ….
func interleave(from, to, apart int) {
	for group := 0; group < 8; group += 2 * apart {
		for i := range apart {
			a, b := ymm(from+group+i), ymm(from+group+apart+i)
			VPUNPCKLBW(b, a, ymm(to+group+i))
			VPUNPCKHBW(b, a, ymm(to+group+apart+i))
		}
	}
}

// scaled makes floats of one row of two, times their scales, plus minima: in Z4, or in Y4 and Y5.
func (s set) scaled(codes reg.VecPhysical, row int, scales, least, other reg.Register, upper bool, ends ending) {
	from := low(codes)
	if row == 1 {
		VEXTRACTI128(Imm(1), codes, reg.X3)
		from = reg.X3
	}
	if s.lanes == 16 {
		scale, minimum := reg.Z16, reg.Z18
		if upper {
			scale, minimum = reg.Z17, reg.Z19
		}
		VPMOVSXBD(from, reg.Z4)
		VCVTDQ2PS(reg.Z4, reg.Z4)
		s.numbers(reg.Z4, scale, minimum, ends)
		return
	}
	VPMOVSXBD(from, reg.Y4)
	VPSRLDQ(Imm(8), from, reg.X5)
	VPMOVSXBD(reg.X5, reg.Y5)
	for half, y := range []reg.VecPhysical{reg.Y4, reg.Y5} {
		VCVTDQ2PS(y, y)
		at := func(base reg.Register) Mem {
			m := Mem{Base: base, Disp: 32 * half}
			if upper {
				m.Index, m.Scale = other, 1
			}
			return m
		}
		s.numbers(y, at(scales), at(least), ends)
	}
}

// numbers makes a number of a code.
func (s set) numbers(x reg.VecPhysical, scale, minimum Op, ends ending) {
	if ends == roundedF16 || ends == roundedBF16 {
		VSUBPS(minimum, x, x)
	}
	VMULPS(scale, x, x)
	switch ends {
	case withMinimum:
		VADDPS(minimum, x, x)
	case roundedF16:
		half := low(x)
		if s.lanes == 16 {
			half = x.AsY().(reg.VecPhysical)
		}
		VCVTPS2PH(Imm(0), x, half)
		VCVTPH2PS(half, x)
	case roundedBF16:
		spare := s.vector(3)
		VPSRLD(Imm(16), x, spare)
		if s.lanes == 16 {
			VPANDD(s.vector(6), spare, spare)
		} else {
			VPAND(s.vector(6), spare, spare)
		}
		VPADDD(s.vector(7), spare, spare)
		VPADDD(spare, x, x)
		VPSRLD(Imm(16), x, x)
		VPSLLD(Imm(16), x, x)
	}
}

// bitsOf fills a register with 32 bits.
func bitsOf(bits uint32, x reg.VecPhysical) {
	g := GP32()
	MOVL(U32(bits), g)
	VMOVD(g, low(x))
	VPBROADCASTD(low(x), x)
}

// heads writes the widening of two halves that lie side by side in each of 16 lines. They are collected first and
// widened then: what was just written in pieces is not read as one at once.
func heads() {
	const name = "turnHeads"
	TEXT(name, NOSPLIT, "func(steps int, src *byte, stride, step int, room *byte, dst *float32, apart int)")
	Doc(fmt.Sprintf("%s writes two halves of each of %d lines as floats; see Heads.", name, turnedLines))
	Pragma("noescape")
	steps := Load(Param("steps"), GP64())
	src := Load(Param("src"), GP64())
	stride := Load(Param("stride"), GP64())
	step := Load(Param("step"), GP64())
	room := Load(Param("room"), GP64())
	dst := Load(Param("dst"), GP64())
	apart := Load(Param("apart"), GP64())
	at, to, left, three := GP64(), GP64(), GP64(), GP64()
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, three)
	MOVQ(steps, left)
	MOVQ(room, to)
	Label(name + "_line")
	MOVQ(src, at)
	for i := range turnedLines {
		head := GP32()
		MOVL(far(at, stride, three, i%4), head)
		MOVL(head, Mem{Base: to, Disp: 4 * i})
		if i%4 == 3 && i < turnedLines-1 {
			LEAQ(Mem{Base: at, Index: stride, Scale: 4}, at)
		}
	}
	ADDQ(step, src)
	ADDQ(Imm(4*turnedLines), to)
	SUBQ(Imm(1), left)
	JG(LabelRef(name + "_line"))
	bitsOf(0xffff, reg.Y4)
	Label(name + "_step")
	VMOVDQU(Mem{Base: room}, reg.Y0)
	VMOVDQU(Mem{Base: room, Disp: 32}, reg.Y1)
	for part := range 2 {
		x, y := reg.Y2, reg.Y3
		if part == 0 {
			VPAND(reg.Y4, reg.Y0, x)
			VPAND(reg.Y4, reg.Y1, y)
		} else {
			VPSRLD(Imm(16), reg.Y0, x)
			VPSRLD(Imm(16), reg.Y1, y)
		}
		VPACKUSDW(y, x, x)
		VPERMQ(Imm(0xd8), x, x)
		VEXTRACTI128(Imm(1), x, reg.X3)
		VCVTPH2PS(reg.X2, reg.Y2)
		VCVTPH2PS(reg.X3, reg.Y3)
		m := Mem{Base: dst}
		if part == 1 {
			m.Index, m.Scale = apart, 1
		}
		VMOVUPS(reg.Y2, m)
		m.Disp = 32
		VMOVUPS(reg.Y3, m)
	}
	ADDQ(Imm(4*turnedLines), room)
	ADDQ(Imm(4*turnedLines), dst)
	SUBQ(Imm(1), steps)
	JG(LabelRef(name + "_step"))
	VZEROUPPER()
	RET()
}

// scalesK writes scales and minima of the eight groups of 16 blocks of Q4_K or Q5_K, whose first words lie side by
// side.
func scalesK() {
	const name = "turnScalesK"
	TEXT(name, NOSPLIT, "func(words *byte, scales, minima *float32)")
	Doc(name + " writes scales and minima of groups; see ScalesK.")
	Pragma("noescape")
	words := Load(Param("words"), GP64())
	scales := Load(Param("scales"), GP64())
	minima := Load(Param("minima"), GP64())
	bitsOf(0x3f, reg.Y13)
	bitsOf(0x0f, reg.Y14)
	bitsOf(0x30, reg.Y15)
	bitsOf(1<<31, reg.Y12)
	bitsOf(0xffff, reg.Y11)
	for lines := 0; lines < turnedLines; lines += 8 {
		word := func(n int) Mem { return Mem{Base: words, Disp: 4*turnedLines*n + 4*lines} }
		for n := range 4 {
			VMOVDQU(word(n), ymm(n))
		}
		d, least := reg.Y4, reg.Y5
		VPSRLD(Imm(16), reg.Y0, reg.Y5)
		VPAND(reg.Y11, reg.Y0, reg.Y4)
		for _, y := range []reg.VecPhysical{d, least} {
			VPACKUSDW(y, y, y)
			VPERMQ(Imm(0x08), y, y)
			VCVTPH2PS(low(y), y)
		}
		VXORPS(reg.Y12, least, least)
		// field moves bits of a word to where they are wanted.
		field := func(shift int, from, mask, to reg.VecPhysical) {
			if shift > 0 {
				VPSRLD(Imm(uint64(shift)), from, to)
				from = to
			}
			VPAND(mask, from, to)
		}
		for g := range 8 {
			for part, to := range []reg.Register{scales, minima} {
				j := g % 4
				if g < 4 {
					field(8*j, ymm(1+part), reg.Y13, reg.Y6)
				} else {
					field(8*j+4*part, reg.Y3, reg.Y14, reg.Y6)
					field(8*j+2, ymm(1+part), reg.Y15, reg.Y7)
					VPOR(reg.Y7, reg.Y6, reg.Y6)
				}
				VCVTDQ2PS(reg.Y6, reg.Y6)
				VMULPS(ymm(4+part), reg.Y6, reg.Y6)
				VMOVUPS(reg.Y6, Mem{Base: to, Disp: 4*turnedLines*g + 4*lines})
			}
		}
	}
	VZEROUPPER()
	RET()
}

// bytesOf fills a register with a byte.
func bytesOf(b uint32, y reg.VecPhysical) {
	g := GP32()
	MOVL(U32(b), g)
	VMOVD(g, low(y))
	VPBROADCASTB(low(y), y)
}

// eachLine ends a kernel that makes 256 bytes of each line: the body makes those of one.
func eachLine(name string, lines, src, stride, dst reg.Register, body func()) {
	Label(name + "_line")
	SUBQ(Imm(1), lines)
	JL(LabelRef(name + "_done"))
	body()
	ADDQ(stride, src)
	ADDQ(U32(256), dst)
	JMP(LabelRef(name + "_line"))
	Label(name + "_done")
	VZEROUPPER()
	RET()
}

// expanding begins a kernel that makes bytes of the codes of blocks of 256.
func expanding(name, what string, body func(src, dst reg.Register)) {
	TEXT(name, NOSPLIT, "func(lines int, src *byte, stride int, dst *byte)")
	Doc(fmt.Sprintf("%s writes the 256 codes of a block of %s of each line as bytes, lines one behind the other.", name, what))
	Pragma("noescape")
	lines := Load(Param("lines"), GP64())
	src := Load(Param("src"), GP64())
	stride := Load(Param("stride"), GP64())
	dst := Load(Param("dst"), GP64())
	bytesOf(0x0f, ymm(15))
	bytesOf(0x10, ymm(14))
	bytesOf(0x30, ymm(13))
	bytesOf(32, ymm(12))
	eachLine(name, lines, src, stride, dst, func() { body(src, dst) })
}

// nibblesOf leaves the low or the high half of bytes.
func nibblesOf(upper bool, from, to reg.VecPhysical) {
	if upper {
		VPSRLW(Imm(4), from, to)
		from = to
	}
	VPAND(ymm(15), from, to)
}

// expandQ5K joins half bytes and fifth bits, of which a byte has those of eight groups.
func expandQ5K() {
	expanding("expandQ5K", "Q5_K", func(src, dst reg.Register) {
		VMOVDQU(Mem{Base: src, Disp: 16}, reg.Y0)
		for g := range 8 {
			if g%2 == 0 {
				VMOVDQU(Mem{Base: src, Disp: 48 + g/2*32}, reg.Y1)
			}
			nibblesOf(g%2 == 1, reg.Y1, reg.Y2)
			switch {
			case g < 4:
				VPSLLW(Imm(uint64(4-g)), reg.Y0, reg.Y3)
			default:
				VPSRLW(Imm(uint64(g-4)), reg.Y0, reg.Y3)
			}
			VPAND(reg.Y14, reg.Y3, reg.Y3)
			VPOR(reg.Y3, reg.Y2, reg.Y2)
			VMOVDQU(reg.Y2, Mem{Base: dst, Disp: 32 * g})
		}
	})
}

// expandQ6K joins low and high bits and takes 32 off.
func expandQ6K() {
	expanding("expandQ6K", "Q6_K", func(src, dst reg.Register) {
		for part := range 2 {
			VMOVDQU(Mem{Base: src, Disp: 128 + 32*part}, reg.Y0)
			VMOVDQU(Mem{Base: src, Disp: 64 * part}, reg.Y4)
			VMOVDQU(Mem{Base: src, Disp: 64*part + 32}, reg.Y5)
			for run := range 4 {
				nibblesOf(run >= 2, ymm(4+run%2), reg.Y2)
				switch run {
				case 0, 1:
					VPSLLW(Imm(uint64(4-2*run)), reg.Y0, reg.Y3)
				case 3:
					VPSRLW(Imm(2), reg.Y0, reg.Y3)
				default:
					VMOVDQA(reg.Y0, reg.Y3)
				}
				VPAND(reg.Y13, reg.Y3, reg.Y3)
				VPOR(reg.Y3, reg.Y2, reg.Y2)
				VPSUBB(reg.Y12, reg.Y2, reg.Y2)
				VMOVDQU(reg.Y2, Mem{Base: dst, Disp: 128*part + 32*run})
			}
		}
	})
}

// quads fills a register with four words of 64 bits.
func quads(y reg.VecPhysical, words ...uint64) {
	g := GP64()
	x := []reg.VecPhysical{low(y), reg.X14, reg.X13, reg.X12}
	for i, w := range words {
		MOVQ(U64(w), g)
		VMOVQ(g, x[i])
	}
	VPUNPCKLQDQ(x[1], x[0], x[0])
	VPUNPCKLQDQ(x[3], x[2], x[2])
	VINSERTI128(Imm(1), x[2], y, y)
}

// expandQ50 joins half bytes and fifth bits, which are together before them, and takes a number off.
func expandQ50() {
	const name = "expandQ50"
	TEXT(name, NOSPLIT, "func(lines, blocks int, src *byte, stride, size, zero int, dst *byte)")
	Doc(name + " writes the codes of blocks of Q5_0 or Q5_1 of each line as bytes; see ExpandQ50.")
	Pragma("noescape")
	lines := Load(Param("lines"), GP64())
	src := Load(Param("src"), GP64())
	stride := Load(Param("stride"), GP64())
	size := Load(Param("size"), GP64())
	zero := Load(Param("zero"), GP64())
	dst := Load(Param("dst"), GP64())
	quads(reg.Y8, 0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303)
	quads(reg.Y9, 0x8040201008040201, 0x8040201008040201, 0x8040201008040201, 0x8040201008040201)
	quads(reg.Y10, 0, 0, 4<<32|4, 4<<32|4)
	VMOVD(zero.(reg.GPVirtual).As32(), reg.X11)
	VPBROADCASTB(reg.X11, reg.Y11)
	bytesOf(0x0f, reg.Y12)
	bytesOf(0x10, reg.Y13)
	from, to, blocks := GP64(), GP64(), GP64()
	eachLine(name, lines, src, stride, dst, func() {
		MOVQ(src, from)
		MOVQ(dst, to)
		Load(Param("blocks"), blocks)
		Label(name + "_block")
		VPBROADCASTD(Mem{Base: from}, reg.Y0)
		VBROADCASTI128(Mem{Base: from, Disp: 4}, reg.Y1)
		VPSHUFB(reg.Y8, reg.Y0, reg.Y0)
		VPAND(reg.Y9, reg.Y0, reg.Y0)
		VPCMPEQB(reg.Y9, reg.Y0, reg.Y0)
		VPAND(reg.Y13, reg.Y0, reg.Y0)
		VPSRLVD(reg.Y10, reg.Y1, reg.Y1)
		VPAND(reg.Y12, reg.Y1, reg.Y1)
		VPOR(reg.Y0, reg.Y1, reg.Y1)
		VPSUBB(reg.Y11, reg.Y1, reg.Y1)
		VMOVDQU(reg.Y1, Mem{Base: to})
		ADDQ(size, from)
		ADDQ(Imm(32), to)
		SUBQ(Imm(1), blocks)
		JG(LabelRef(name + "_block"))
	})
}
