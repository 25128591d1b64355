package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// turnedLines is how many lines of codes are turned into columns together.
const turnedLines = 16

// encodedFamily writes what makes panels of blocks of codes.
func encodedFamily() {
	for _, s := range sets {
		for _, minima := range []bool{false, true} {
			s.turnCodes(true, minima)
			s.turnCodes(false, minima)
		}
	}
	halves()
	expandQ5K()
	expandQ6K()
}

// ymm returns registers of 256 bits.
func ymm(n int) reg.VecPhysical { return set{lanes: 8}.vector(n) }

// turnCodes writes the copy of codes of 16 lines to 16 columns of rows, as floats.
func (s set) turnCodes(nibbles, minima bool) {
	name, params := "turnBytes"+s.name, "steps, pieces int, src *byte, stride, gap int, scales *float32"
	if nibbles {
		name, params = "turnNibbles"+s.name, params+", other int, table *byte"
	}
	if minima {
		name, params = name+"min", params+", minima *float32"
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
	emit := func(codes reg.VecPhysical, to reg.GPVirtual, upper bool) {
		for row := range 2 {
			s.scaled(codes, row, scales, least, other, upper)
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
func (s set) scaled(codes reg.VecPhysical, row int, scales, least, other reg.Register, upper bool) {
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
		VMULPS(scale, reg.Z4, reg.Z4)
		if least != nil {
			VADDPS(minimum, reg.Z4, reg.Z4)
		}
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
		VMULPS(at(scales), y, y)
		if least != nil {
			VADDPS(at(least), y, y)
		}
	}
}

// halves writes the widening of halves of 16 lines.
func halves() {
	const name = "turnHalves"
	TEXT(name, NOSPLIT, "func(steps int, src *byte, stride, step int, dst *float32)")
	Doc(fmt.Sprintf("%s writes a half of each of %d lines as floats, one behind the other; see Halves.", name, turnedLines))
	Pragma("noescape")
	steps := Load(Param("steps"), GP64())
	src := Load(Param("src"), GP64())
	stride := Load(Param("stride"), GP64())
	step := Load(Param("step"), GP64())
	dst := Load(Param("dst"), GP64())
	at := GP64()
	Label(name + "_step")
	SUBQ(Imm(1), steps)
	JL(LabelRef(name + "_done"))
	MOVQ(src, at)
	for half, x := range []reg.VecPhysical{reg.X0, reg.X1} {
		VPXOR(x, x, x)
		for i := range 8 {
			VPINSRW(Imm(uint64(i)), Mem{Base: at}, x, x)
			ADDQ(stride, at)
		}
		VCVTPH2PS(x, reg.Y2)
		VMOVUPS(reg.Y2, Mem{Base: dst, Disp: 32 * half})
	}
	ADDQ(step, src)
	ADDQ(Imm(4*turnedLines), dst)
	JMP(LabelRef(name + "_step"))
	Label(name + "_done")
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
	Label(name + "_line")
	SUBQ(Imm(1), lines)
	JL(LabelRef(name + "_done"))
	body(src, dst)
	ADDQ(stride, src)
	ADDQ(U32(256), dst)
	JMP(LabelRef(name + "_line"))
	Label(name + "_done")
	VZEROUPPER()
	RET()
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
