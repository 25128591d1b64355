package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// encodedTwiceFamily writes products of one row by columns of codes of two blocks of the depth, for the set of 16 lanes.
func encodedTwiceFamily() {
	for _, k := range []twice{{twiceNibbles, true}, {twiceBytes, true}, {twiceBytes, false}, {twiceFives, false}} {
		sets[0].codesTwice(k)
	}
}

// A twiceKind is a kind of codes: half bytes that stand for what a table has, bytes with a sign and without minima, or bytes
// of which the low five bits stand for what a table has.
type twiceKind int

const (
	twiceNibbles twiceKind = iota
	twiceBytes
	twiceFives
)

// A twice is a kind of codes and whether they are lines, or words that were written of lines.
type twice struct {
	twiceKind
	lines bool
}

// rowBytes is how many bytes a row of words takes: those of both blocks, or of one.
func (k twice) rowBytes() int {
	switch {
	case k.lines && k.twiceKind == twiceNibbles: // those of high half bytes follow
		return 512
	case k.lines:
		return 256
	}
	return 128
}

// codesTwice writes the kernel of one row by two vectors of columns of codes of two blocks of the depth. A sum waits for
// itself, so that those of one block are too few to keep a processor busy; those of both are added in their order.
//
// Lines are turned to words a step at a time, 32 lines of both blocks, the second one of which is block bytes further.
// Words of half bytes that lie some bytes on have the code that follows in their low bits, so that a table's numbers are
// found without shifts. Words that were written are as those of codes, and the second block's lie 256·32 bytes behind.
// Scales and minima are apart bytes behind those of the vector of columns before, of both blocks.
//
// Bytes need no minima: the sum of 3·2²² and a code is made in one operation, as a float, and of a scale times that the scale
// times 3·2²² is taken off. That is exact where scales have 22 bits and are no infinity; where one is, nothing is written.
func (s set) codesTwice(k twice) {
	const blockWords, blockDepth = 256 * 32, 4 * 256 // in bytes
	name := "codes" + s.name + "twice" + []string{"n", "", "five"}[k.twiceKind] + map[bool]string{true: "lines"}[k.lines]
	label := func(l string) string { return l + "_" + name }
	TEXT(name, NOSPLIT, "func(steps, pieces int, src *byte, stride, gap, block int, room *byte, scales, minima *float32, "+
		"apart, minimaApart, other int, table *byte, a, c *float32, mode int, bias *float32, ahead uintptr, jump int) bool")
	Doc(fmt.Sprintf("%s computes a row of %d columns; see CodesTwice.", name, 2*s.lanes))
	Pragma("noescape")
	load := func(name string) reg.GPVirtual { return Load(Param(name), GP64()).(reg.GPVirtual) }
	steps, src, scales, a, ahead := load("steps"), load("src"), load("scales"), load("a"), load("ahead")
	at, count := GP64(), GP64()
	// Vectors 0 to 3 are numbers, then sums, scales and minima, for each vector of columns of the first block, then of the
	// second. From 24 on they turn lines.
	number, acc, scale, minimum := s.from(0), s.from(4), s.from(8), s.from(12)
	table, byteAt, largest, middle, less := s.from(16), s.from(16), s.vector(20), s.vector(21), s.vector(22)
	var minima, stride, three reg.GPVirtual
	if k.lines {
		stride, three = load("stride"), GP64()
		LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, three)
	}
	// add adds a parameter.
	add := func(param string, to reg.Register) {
		m, err := Param(param).Resolve()
		if err != nil {
			panic(err)
		}
		ADDQ(m.Addr, to)
	}
	for v := range 4 {
		s.zero(acc(v))
	}
	fetched := 3
	if k.twiceKind == twiceBytes {
		for i := range 4 {
			bitsOf(1<<(8*i), byteAt(i))
		}
		bitsOf(0x4b400000, middle)
		bitsOf(0xcb400000, less)
		s.zero(largest)
		if k.lines {
			fetched = 5
		}
	} else {
		minima = load("minima")
		from := load("table")
		for n := range map[twiceKind]int{twiceNibbles: 1, twiceFives: 2}[k.twiceKind] {
			VPMOVSXBD(Mem{Base: from, Disp: 16 * n}, table(n))
			VCVTDQ2PS(table(n), table(n))
		}
	}
	// turn writes the words of a step of lines.
	turn := func() {
		Load(Param("pieces"), count)
		Load(Param("room"), at)
		Label(label("turn"))
		for block := range 2 {
			from := GP64()
			MOVQ(src, from)
			if block == 1 {
				add("block", from)
			}
			for n := range 2 {
				s.turned(from, stride, three, 0, s.from(24), number)
				for j := range 4 {
					to := Mem{Base: at, Disp: j*k.rowBytes() + (2*block+n)*4*s.lanes}
					VMOVUPS(s.vector(24+j), to)
					if k.twiceKind == twiceNibbles {
						VPSRLD(Imm(4), s.vector(24+j), s.vector(24+j))
						to.Disp += 16 * s.lanes
						VMOVUPS(s.vector(24+j), to)
					}
				}
				if n == 0 {
					LEAQ(Mem{Base: from, Index: stride, Scale: 8}, from)
					LEAQ(Mem{Base: from, Index: stride, Scale: 8}, from)
				}
			}
		}
		ADDQ(U32(uint32(4*k.rowBytes())), at)
		ADDQ(Imm(16), src)
		SUBQ(Imm(1), count)
		JG(LabelRef(label("turn")))
		add("gap", src)
	}
	pass := func(upper int) {
		pass := label(fmt.Sprintf("pass%d", upper))
		between, three := GP64(), GP64()
		all := func(param string, from reg.Register, to func(int) reg.VecPhysical) {
			Load(Param(param), between)
			LEAQ(Mem{Base: between, Index: between, Scale: 2}, three)
			for v := range 4 {
				VMOVUPS(far(from, between, three, v), to(v))
			}
		}
		all("apart", scales, scale)
		if k.twiceKind == twiceBytes {
			const largerWithoutSign = 0xb
			for v := range 4 {
				VMULPS(less, scale(v), minimum(v))
				VRANGEPS(Imm(largerWithoutSign), scale(v), largest, largest)
			}
		} else {
			all("minimaApart", minima, minimum)
		}
		Load(Param("pieces"), count)
		SHLQ(Imm(2), count)
		from := reg.Register(src)
		if k.lines {
			Load(Param("room"), at)
			from = at
		}
		Label(pass)
		for n := range fetched {
			PREFETCHT1(Mem{Base: ahead, Disp: 64 * n})
		}
		add("jump", ahead)
		for i := range 4 {
			for v := range 4 {
				word, x := Mem{Base: from, Disp: v * 4 * s.lanes}, number(v)
				if !k.lines {
					word.Disp = v/2*blockWords + v%2*4*s.lanes
				}
				switch k.twiceKind {
				case twiceNibbles:
					word.Disp += i + upper*16*s.lanes
					VMOVDQU32(word, x)
					VPERMPS(table(0), x, x)
				case twiceFives:
					word.Disp += i
					VMOVDQU32(word, x)
					VPERMI2PS(table(1), table(0), x)
				case twiceBytes:
					VMOVDQA32(middle, x)
					addProducts(word, byteAt(i), x)
				}
				VFMADD213PS(minimum(v), scale(v), x)
			}
			for v := range 4 {
				VFMADD231PS_BCST(Mem{Base: a, Disp: 4*i + v/2*blockDepth}, number(v), acc(v))
			}
		}
		ADDQ(U32(uint32(k.rowBytes())), from)
		ADDQ(Imm(16), a)
		SUBQ(Imm(1), count)
		JG(LabelRef(pass))
	}
	Label(label("step"))
	SUBQ(Imm(1), steps)
	JL(LabelRef(label("done")))
	if k.lines {
		turn()
	}
	pass(0)
	if k.twiceKind == twiceNibbles {
		add("other", scales)
		add("other", minima)
		pass(1)
	}
	ADDQ(Imm(4*turnedLines), scales)
	if k.twiceKind != twiceBytes {
		ADDQ(Imm(4*turnedLines), minima)
	}
	JMP(LabelRef(label("step")))
	Label(label("done"))
	good := GP8()
	if k.twiceKind == twiceBytes {
		bitsOf(0x7f800000, less)
		VPCMPEQD(less, largest, reg.K1)
		KORTESTW(reg.K1, reg.K1)
		SETEQ(good)
		JNE(LabelRef(label("end")))
	} else {
		MOVB(Imm(1), good)
	}
	s.storeTwice(label, acc, number(0))
	Label(label("end"))
	Store(good, ReturnIndex(0))
	s.end()
}

// addProducts writes VPDPBUSD, which adds the products of the bytes with a sign of each word and those without to a sum.
func addProducts(signed Mem, unsigned, sum reg.VecPhysical) {
	Instruction(&ir.Instruction{
		Opcode: "VPDPBUSD", Operands: []Op{signed, unsigned, sum}, Inputs: []Op{signed, unsigned, sum}, Outputs: []Op{sum},
	})
}

// storeTwice stores a row of the sums of two blocks, as storeMany does those of the first and then adds the second.
func (s set) storeTwice(label func(string) string, acc func(n int) reg.VecPhysical, spare reg.VecPhysical) {
	mode, c, bias := Load(Param("mode"), GP64()), Load(Param("c"), GP64()), Load(Param("bias"), GP64())
	at := func(base reg.Register, n int) Mem { return Mem{Base: base, Disp: n * 4 * s.lanes} }
	CMPQ(mode, Imm(1))
	JB(LabelRef(label("store")))
	JE(LabelRef(label("add")))
	CMPQ(mode, Imm(2))
	JE(LabelRef(label("rows")))
	for n := range 2 {
		VADDPS(at(bias, n), acc(n), acc(n))
	}
	JMP(LabelRef(label("store")))
	Label(label("rows"))
	VBROADCASTSS(Mem{Base: bias}, spare)
	for n := range 2 {
		VADDPS(spare, acc(n), acc(n))
	}
	JMP(LabelRef(label("store")))
	Label(label("add"))
	for n := range 2 {
		VADDPS(at(c, n), acc(n), acc(n))
	}
	Label(label("store"))
	for n := range 2 {
		VADDPS(acc(n), acc(2+n), acc(2+n))
		VMOVUPS(acc(2+n), at(c, n))
	}
}
