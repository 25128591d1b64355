package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// encodedFewFamily writes products of few rows by columns of codes, which become numbers in registers.
func encodedFewFamily() {
	for _, s := range sets {
		s.turnWords()
		for rows := 1; rows <= fewRows; rows++ {
			s.codes(rows, false, withMinimum)
			if s.lanes == 16 { // a vector of 16 has a place for each half byte's number
				s.codes(rows, true, withMinimum)
				s.codes(rows, true, roundedF16)
				s.codes(rows, true, roundedBF16)
			}
		}
	}
	expandNibbles()
}

// turnWords writes the copy of words of four bytes of 16 lines side by side.
func (s set) turnWords() {
	name := "turnWords" + s.name
	params, fetches := "steps, pieces int, src *byte, stride, gap int, dst *byte, ldd int", s.lanes == 16
	if fetches {
		params += ", ahead uintptr"
	}
	TEXT(name, NOSPLIT, "func("+params+")")
	Doc(fmt.Sprintf("%s writes words of %d lines side by side; see Words.", name, turnedLines))
	Pragma("noescape")
	steps := Load(Param("steps"), GP64())
	src := Load(Param("src"), GP64())
	stride := Load(Param("stride"), GP64())
	dst := Load(Param("dst"), GP64())
	ldd := Load(Param("ldd"), GP64())
	var ahead reg.Register
	if fetches {
		ahead = Load(Param("ahead"), GP64())
	}
	three, threeWords, at, piece := GP64(), GP64(), GP64(), GP64()
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, three)
	LEAQ(Mem{Base: ldd, Index: ldd, Scale: 2}, threeWords)
	Label(name + "_step")
	SUBQ(Imm(1), steps)
	JL(LabelRef(name + "_done"))
	Load(Param("pieces"), piece)
	Label(name + "_piece")
	if fetches {
		fetch(ahead, 0)
		ADDQ(U32(fetchedEach), ahead)
	}
	MOVQ(src, at)
	// Register j has lines j, 4+j, …, so that its lanes of 128 bits are those of rows once it is turned.
	half := s.lanes / 4
	for from := 0; from < turnedLines; from += s.lanes {
		for lane := range half {
			for j := range 4 {
				line := far(at, stride, three, j)
				v := s.vector(from/2 + j)
				switch {
				case lane == 0:
					VMOVDQU(line, low(v))
				case s.lanes == 16:
					VINSERTI32X4(Imm(uint64(lane)), line, v, v)
				default:
					VINSERTI128(Imm(1), line, v, v)
				}
			}
			if lane < half-1 || from+s.lanes < turnedLines {
				LEAQ(Mem{Base: at, Index: stride, Scale: 4}, at)
			}
		}
		v := func(n int) reg.VecPhysical { return s.vector(from/2 + n) }
		w := func(n int) reg.VecPhysical { return s.vector(8 + n) }
		VPUNPCKLDQ(v(1), v(0), w(0))
		VPUNPCKHDQ(v(1), v(0), w(1))
		VPUNPCKLDQ(v(3), v(2), w(2))
		VPUNPCKHDQ(v(3), v(2), w(3))
		VPUNPCKLQDQ(w(2), w(0), v(0))
		VPUNPCKHQDQ(w(2), w(0), v(1))
		VPUNPCKLQDQ(w(3), w(1), v(2))
		VPUNPCKHQDQ(w(3), w(1), v(3))
		for n := range 4 {
			to := far(dst, ldd, threeWords, n)
			to.Disp = 4 * from
			VMOVUPS(v(n), to)
		}
	}
	LEAQ(Mem{Base: dst, Index: ldd, Scale: 4}, dst)
	ADDQ(Imm(16), src)
	SUBQ(Imm(1), piece)
	JG(LabelRef(name + "_piece"))
	gap := Load(Param("gap"), GP64())
	ADDQ(gap, src)
	JMP(LabelRef(name + "_step"))
	Label(name + "_done")
	s.end()
}

// fetchedEach is how many bytes are fetched into the second cache for each 16 bytes of 16 lines.
const fetchedEach = 128

// fetch fetches as many from some bytes ahead on.
func fetch(ahead reg.Register, from int) {
	for at := 0; at < fetchedEach; at += 64 {
		PREFETCHT1(Mem{Base: ahead, Disp: from + at})
	}
}

// codes writes the kernel of few rows by two vectors of columns of codes, as words: those of a row of words lie side by
// side, a code of each column in each byte, or two in half bytes.
//
//	c[r][j] = Σ_k a[r][k]·number[k][j] (+ c[r][j], + bias[r] or + bias[j]) for j < 2·lanes
//
// For each word that is read, or half word, what lies ahead, jump bytes further each time, is fetched into the cache.
// Numbers are those of turnCodes. A scale times a code is exact, so that a minimum is added to it in one operation.
func (s set) codes(rows int, nibbles bool, ends ending) {
	name := fmt.Sprintf("codes%s%s%sx%d", s.name, map[bool]string{true: "n"}[nibbles], []string{"", "min", "f16", "bf16"}[ends], rows)
	label := func(l string) string { return l + "_" + name }
	TEXT(name, NOSPLIT, "func(steps, words int, src *byte, scales, scales1, minima, minima1 *float32, other int, table *byte, "+
		"a *float32, lda int, c *float32, ldc int, mode int, bias *float32, ahead uintptr, jump int)")
	Doc(fmt.Sprintf("%s computes %d rows of %d columns; see Codes.", name, rows, 2*s.lanes))
	Pragma("noescape")
	x := &codesKernel{set: s, rows: rows, nibbles: nibbles, ends: ends, label: label}
	steps := Load(Param("steps"), GP64())
	x.src = Load(Param("src"), GP64())
	x.scales[0], x.scales[1] = Load(Param("scales"), GP64()), Load(Param("scales1"), GP64())
	x.minima[0], x.minima[1] = Load(Param("minima"), GP64()), Load(Param("minima1"), GP64())
	a := Load(Param("a"), GP64())
	lda := Load(Param("lda"), GP64())
	x.a, x.row = a, linesAt(a, lda, rows)
	x.ahead, x.jump = Load(Param("ahead"), GP64()), Load(Param("jump"), GP64())
	for i := range 2 * rows {
		s.zero(x.acc(i/2, i%2))
	}
	if ends == roundedBF16 {
		bitsOf(1, s.vector(6))
		bitsOf(0x7fff, s.vector(7))
	}
	var other, from reg.GPVirtual
	switch {
	case nibbles:
		table := Load(Param("table"), GP64())
		VPMOVSXBD(Mem{Base: table}, reg.Z16)
		VCVTDQ2PS(reg.Z16, reg.Z16)
		other, from = GP64(), GP64()
		Load(Param("other"), other)
	case s.lanes == 16:
		// A byte goes to the upper end of its word, which makes it as many times larger as its scale becomes smaller.
		for i := range 4 {
			bitsOf(uint32(i)<<24|0x808080, s.vector(24+i))
		}
		x.spread()
		bitsOf(0x33800000, reg.Z23)
	}
	Label(label("step"))
	SUBQ(Imm(1), steps)
	JL(LabelRef(label("done")))
	if nibbles {
		MOVQ(x.src, from)
	}
	// next goes to what is behind scales and minima.
	next := func(bytes Op) {
		for n := range 2 {
			ADDQ(bytes, x.scales[n])
			ADDQ(bytes, x.minima[n])
		}
	}
	x.pass(0)
	if nibbles {
		next(other)
		MOVQ(from, x.src)
		x.pass(1)
	}
	next(Imm(4 * turnedLines))
	JMP(LabelRef(label("step")))
	Label(label("done"))
	s.storeMany(rows, 2, label, x.acc, s.vector(0))
	s.end()
}

// A codesKernel is a kernel of codes being written. Vectors 0 and 1 are numbers, 2 and 3 spare, 6 and 7 what rounding
// takes, from 8 on sums; of the larger set 16 is the table, from 17 on scales, minima and words, 23 a power of two,
// from 24 on which bytes are taken.
type codesKernel struct {
	set
	rows    int
	nibbles bool
	ends    ending
	label   func(string) string

	src, a         reg.Register
	ahead, jump    reg.Register
	scales, minima [2]reg.Register
	row            func(r int) Mem
}

func (x *codesKernel) acc(r, n int) reg.VecPhysical { return x.vector(8 + 2*r + n) }

// scale and minimum return where those of a vector of columns are.
func (x *codesKernel) scale(n int) Op {
	if x.lanes == 16 {
		return x.vector(17 + n)
	}
	return Mem{Base: x.scales[n]}
}

func (x *codesKernel) minimum(n int) Op {
	if x.lanes == 16 {
		return x.vector(19 + n)
	}
	return Mem{Base: x.minima[n]}
}

// pass multiplies by the codes of a step, or by those in its low or high halves.
func (x *codesKernel) pass(half int) {
	label := x.label(fmt.Sprintf("pass%d", half))
	words := GP64()
	Load(Param("words"), words)
	if x.lanes == 16 {
		for n := range 2 {
			VMOVUPS(Mem{Base: x.scales[n]}, x.vector(17+n))
			if !x.nibbles {
				VMULPS(reg.Z23, x.vector(17+n), x.vector(17+n))
			}
			VMOVUPS(Mem{Base: x.minima[n]}, x.vector(19+n))
		}
	}
	Label(label)
	word := func(n int) Mem { return Mem{Base: x.src, Disp: 4 * x.lanes * n} }
	if x.lanes == 16 {
		for n := range 2 {
			VMOVDQU32(word(n), x.vector(21+n))
		}
	}
	PREFETCHT1(Mem{Base: x.ahead})
	if x.lanes == 16 {
		PREFETCHT1(Mem{Base: x.ahead, Disp: 64})
	}
	ADDQ(x.jump, x.ahead)
	for i := range 4 {
		for n := range 2 {
			x.number(x.vector(n), n, i, half, word(n))
		}
		one := x.vector(2)
		for r := range x.rows {
			m := x.row(r)
			m.Disp = 4 * i
			VBROADCASTSS(m, one)
			for n := range 2 {
				VFMADD231PS(x.vector(n), one, x.acc(r, n))
			}
		}
	}
	ADDQ(U32(uint32(8*x.lanes)), x.src)
	ADDQ(Imm(16), x.a)
	SUBQ(Imm(1), words)
	JG(LabelRef(label))
}

// number makes a number of code i of words.
func (x *codesKernel) number(to reg.VecPhysical, n, i, half int, word Mem) {
	switch {
	case x.nibbles:
		index := x.vector(21 + n)
		if shift := 8*i + 4*half; shift > 0 {
			VPSRLD(Imm(uint64(shift)), index, to)
			index = to
		}
		VPERMPS(reg.Z16, index, to)
	case x.lanes == 16:
		VPSHUFB(x.vector(24+i), x.vector(21+n), to)
		VCVTDQ2PS(to, to)
	default:
		VMOVDQU(word, to)
		if i < 3 {
			VPSLLD(Imm(uint64(24-8*i)), to, to)
		}
		VPSRAD(Imm(24), to, to)
		VCVTDQ2PS(to, to)
	}
	if x.ends == withMinimum {
		if x.lanes == 16 {
			VFMADD213PS(x.minimum(n), x.scale(n), to)
			return
		}
		VMOVUPS(x.scale(n), x.vector(3))
		VFMADD213PS(x.minimum(n), x.vector(3), to)
		return
	}
	x.numbers(to, x.scale(n), x.minimum(n), x.ends)
}

// spread adds to the places of bytes, which are those of the first word, where those of the other words of a lane are.
func (x *codesKernel) spread() {
	offsets := GP64()
	for i, word := range []uint64{0x0400000000000000, 0x0c00000008000000} {
		MOVQ(U64(word), offsets)
		VMOVQ(offsets, x.vector(3+i).AsX())
	}
	VPUNPCKLQDQ(reg.X4, reg.X3, reg.X3)
	VSHUFI32X4(Imm(0), reg.Z3, reg.Z3, reg.Z3)
	for i := range 4 {
		VPADDB(reg.Z3, x.vector(24+i), x.vector(24+i))
	}
}

// expandNibbles writes the numbers that half bytes stand for as bytes.
func expandNibbles() {
	const name = "expandNibbles"
	TEXT(name, NOSPLIT, "func(lines, steps, pieces int, src *byte, stride, gap int, table, dst *byte)")
	Doc(name + " writes what half bytes of lines stand for as bytes, low ones of a step before high ones; see Nibbles.")
	Pragma("noescape")
	lines := Load(Param("lines"), GP64())
	src := Load(Param("src"), GP64())
	dst := Load(Param("dst"), GP64())
	table := Load(Param("table"), GP64())
	stride := Load(Param("stride"), GP64())
	gap := Load(Param("gap"), GP64())
	all := Load(Param("pieces"), GP64())
	SHLQ(Imm(4), all)
	VMOVDQU(Mem{Base: table}, reg.X0)
	VMOVDQU(Mem{Base: table, Disp: 16}, reg.X1)
	from, to, steps, piece := GP64(), GP64(), GP64(), GP64()
	eachLine(name, lines, src, stride, dst, func() {
		MOVQ(src, from)
		MOVQ(dst, to)
		Load(Param("steps"), steps)
		Label(name + "_step")
		MOVQ(all, piece)
		Label(name + "_piece")
		VMOVDQU(Mem{Base: from}, reg.X2)
		VPSRLW(Imm(4), reg.X2, reg.X3)
		for half, x := range []reg.VecPhysical{reg.X2, reg.X3} {
			VPAND(reg.X1, x, x)
			VPSHUFB(x, reg.X0, x)
			m := Mem{Base: to}
			if half == 1 {
				m.Index, m.Scale = all, 1
			}
			VMOVDQU(x, m)
		}
		ADDQ(Imm(16), from)
		ADDQ(Imm(16), to)
		SUBQ(Imm(16), piece)
		JG(LabelRef(name + "_piece"))
		ADDQ(gap, from)
		ADDQ(all, to)
		SUBQ(Imm(1), steps)
		JG(LabelRef(name + "_step"))
	})
}
