package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// gemmFamily writes the tiles of products of matrices, dot products, and what packs for them.
func gemmFamily() {
	for _, s := range sets {
		for rows := 1; rows <= s.rows; rows++ {
			s.gemm(rows, f32)
		}
		for rows := 1; rows <= 4; rows++ {
			s.dot(rows, 4)
			s.dot(rows, 1)
		}
		s.panelWiden(f32)
		for rows := 1; rows <= fewRows; rows++ {
			s.few(rows, f32)
		}
		for rows := 1; rows <= s.acrossRows(); rows++ {
			s.across(rows, f32)
		}
	}
	transpose8(f32)
	fetchRows()
}

// An element is what the right factor of a product holds; the left one, sums and results are float32.
type element struct {
	name  string
	bytes int
}

// The elements of pairs are bfloat16: each two rows of a factor lie as one, element by element side by side, as matrix
// units take them.
var (
	f32, i8          = element{"", 4}, element{"i8", 1}
	bf16, f16, pairs = element{"bf16", 2}, element{"f16", 2}, element{"pairs", 2}
)

// streamedRows is the number of rows up to which a right factor is read faster than the cache ahead of the processor
// fetches it by itself.
const streamedRows = 4

// load reads a vector of elements as float32.
func (s set) load(e element, from Mem, to reg.VecPhysical) {
	switch e {
	case bf16:
		VPMOVZXWD(from, to)
		VPSLLD(Imm(16), to, to)
	case f16:
		VCVTPH2PS(from, to)
	case i8:
		VPMOVSXBD(from, to)
		VCVTDQ2PS(to, to)
	default:
		VMOVUPS(from, to)
	}
}

// loadPair reads one of each pair of rows as float32.
func (s set) loadPair(odd int, from Mem, to reg.VecPhysical) {
	VMOVUPS(from, to)
	if odd == 1 {
		VPSRLD(Imm(16), to, to)
	}
	VPSLLD(Imm(16), to, to)
}

// gemm writes the kernel of a tile: rows of a by two vectors of columns of b.
//
//	c[r][j] = Σ_k a[r][k]·b[k][j] (+ c[r][j], + bias[r] or + bias[j]) for j < 2·lanes
//
// a is row-major with rows lda bytes apart; rows of b, or pairs of them, lie ldb bytes apart. While it computes, memory that is needed later
// is fetched into the cache: a run of bytes from ahead on; after each 16 of k, jump bytes are left out, or if that is less
// than 0, fetched once more.
func (s set) gemm(rows int, e element) {
	name := fmt.Sprintf("gemm%s%sx%d", s.name, e.name, rows)
	label := func(l string) string { return l + "_" + name }
	TEXT(name, NOSPLIT, "func(depth int, a *float32, lda int, b *byte, ldb int, c *float32, ldc int, mode int, "+
		"bias *float32, ahead uintptr, jump int)")
	Doc(fmt.Sprintf("%s computes %d rows of %d columns; see gemm.", name, rows, 2*s.lanes))
	Pragma("noescape")
	depth := Load(Param("depth"), GP64())
	a0 := Load(Param("a"), GP64())
	lda := Load(Param("lda"), GP64())
	b := Load(Param("b"), GP64())
	ldb := Load(Param("ldb"), GP64())
	ahead := Load(Param("ahead"), GP64())
	jump := Load(Param("jump"), GP64())
	acc := func(r, n int) reg.VecPhysical { return s.vector(2*r + n) }
	for i := range 2 * rows {
		s.zero(s.vector(i))
	}
	// Rows in threes: one base each, and the row size as index.
	bases := []reg.GPVirtual{a0.(reg.GPVirtual)}
	for r := 3; r < rows; r += 3 {
		next := GP64()
		LEAQ(Mem{Base: bases[len(bases)-1], Index: lda, Scale: 2}, next)
		ADDQ(lda, next)
		bases = append(bases, next)
	}
	at := func(r, k int) Mem {
		m := Mem{Base: bases[r/3], Disp: 4 * k}
		if r%3 > 0 {
			m.Index, m.Scale = lda, uint8(r%3)
		}
		return m
	}
	// A panel of vectors of 16 fills a first cache of 32 KiB by itself: its rows come from the second one each time, and are
	// fetched as many rows ahead as the loop computes at once. spare is where those begin, and used otherwise after them.
	near := s.lanes == 16 && e == f32 && rows > streamedRows
	spare := GP64()
	b0, b1 := s.vector(s.registers-4), s.vector(s.registers-3)
	one := [2]reg.VecPhysical{s.vector(s.registers - 2), s.vector(s.registers - 1)}
	step := func(k int, from Mem) {
		if e == pairs {
			s.loadPair(k%2, from, b0)
			from.Disp += s.lanes * 4
			s.loadPair(k%2, from, b1)
		} else {
			s.load(e, from, b0)
			from.Disp += s.lanes * e.bytes
			s.load(e, from, b1)
		}
		for r := range rows {
			x := one[r%2]
			VBROADCASTSS(at(r, k), x)
			VFMADD231PS(b0, x, acc(r, 0))
			VFMADD231PS(b1, x, acc(r, 1))
		}
	}
	// With few rows the right factor streams by: all of it is fetched ahead.
	fetches := s.lanes * e.bytes / 16
	if rows <= streamedRows {
		fetches = s.lanes * e.bytes / 8
	}
	fetches = max(fetches, 1)
	three := GP64()
	LEAQ(Mem{Base: ldb, Index: ldb, Scale: 2}, three)
	SUBQ(Imm(4), depth)
	JL(LabelRef(label("rest")))
	Label(label("loop"))
	if near {
		LEAQ(Mem{Base: b, Index: ldb, Scale: 4}, spare)
	}
	for k := range 4 {
		for f := range fetches {
			if f%4 == k {
				if rows <= 4 {
					PREFETCHT0(Mem{Base: ahead, Disp: 64 * f})
				} else {
					PREFETCHT1(Mem{Base: ahead, Disp: 64 * f})
				}
			}
		}
		from := Mem{Base: b}
		row := k
		if e == pairs {
			row = k / 2
		}
		switch row {
		case 1, 2:
			from.Index, from.Scale = ldb, uint8(row)
		case 3:
			from.Index, from.Scale = three, 1
		}
		step(k, from)
		if near {
			from.Base = spare
			PREFETCHT0(from)
			from.Disp = 64
			PREFETCHT0(from)
		}
	}
	for _, base := range bases {
		ADDQ(Imm(16), base)
	}
	switch {
	case near:
		MOVQ(spare, b)
	case e == pairs:
		LEAQ(Mem{Base: b, Index: ldb, Scale: 2}, b.(reg.GPVirtual))
	default:
		LEAQ(Mem{Base: b, Index: ldb, Scale: 4}, b.(reg.GPVirtual))
	}
	ADDQ(U32(uint32(64*fetches)), ahead)
	LEAQ(Mem{Base: ahead, Index: jump, Scale: 1}, spare)
	TESTQ(U32(15), depth)
	CMOVQEQ(spare, ahead)
	SUBQ(Imm(4), depth)
	JGE(LabelRef(label("loop")))
	Label(label("rest"))
	ADDQ(Imm(4), depth)
	for k := range 3 {
		SUBQ(Imm(1), depth)
		JL(LabelRef(label("done")))
		step(k, Mem{Base: b})
		if e != pairs || k == 1 {
			ADDQ(ldb, b)
		}
	}
	Label(label("done"))
	s.store(rows, label, acc, b0)
	s.end()
}

// store writes the sums, to which mode says what is added: 0 nothing, 1 what is there, 2 a number for each row, 3 one for
// each column.
func (s set) store(rows int, label func(string) string, acc func(r, n int) reg.VecPhysical, spare reg.VecPhysical) {
	mode := Load(Param("mode"), GP64())
	c := Load(Param("c"), GP64())
	ldc := Load(Param("ldc"), GP64())
	bias := Load(Param("bias"), GP64())
	CMPQ(mode, Imm(1))
	JB(LabelRef(label("store")))
	JE(LabelRef(label("add")))
	CMPQ(mode, Imm(2))
	JE(LabelRef(label("rows")))
	for n := range 2 {
		VMOVUPS(Mem{Base: bias, Disp: n * 4 * s.lanes}, spare)
		for r := range rows {
			VADDPS(spare, acc(r, n), acc(r, n))
		}
	}
	JMP(LabelRef(label("store")))
	Label(label("rows"))
	for r := range rows {
		VBROADCASTSS(Mem{Base: bias, Disp: 4 * r}, spare)
		VADDPS(spare, acc(r, 0), acc(r, 0))
		VADDPS(spare, acc(r, 1), acc(r, 1))
	}
	Label(label("store"))
	for r := range rows {
		VMOVUPS(acc(r, 0), Mem{Base: c})
		VMOVUPS(acc(r, 1), Mem{Base: c, Disp: 4 * s.lanes})
		if r < rows-1 {
			ADDQ(ldc, c)
		}
	}
	s.end()
	Label(label("add"))
	for r := range rows {
		VADDPS(Mem{Base: c}, acc(r, 0), acc(r, 0))
		VADDPS(Mem{Base: c, Disp: 4 * s.lanes}, acc(r, 1), acc(r, 1))
		VMOVUPS(acc(r, 0), Mem{Base: c})
		VMOVUPS(acc(r, 1), Mem{Base: c, Disp: 4 * s.lanes})
		if r < rows-1 {
			ADDQ(ldc, c)
		}
	}
}

// dot writes the kernel of a few rows by a few columns that both lie along k:
//
//	sums[r·columns+j] = Σ_k a[r][k]·b[j][k] for k < depth, a multiple of lanes
//
// Each sum is that of lanes partial sums, added up in halves.
func (s set) dot(rows, columns int) {
	TEXT(fmt.Sprintf("dot%sx%dx%d", s.name, rows, columns), NOSPLIT,
		"func(depth int, a *float32, lda int, b *float32, ldb int, sums *float32)")
	Doc(fmt.Sprintf("dot%sx%dx%d computes %d rows by %d columns; see dot.", s.name, rows, columns, rows, columns))
	Pragma("noescape")
	depth := Load(Param("depth"), GP64())
	a := Load(Param("a"), GP64())
	lda := Load(Param("lda"), GP64())
	b := Load(Param("b"), GP64())
	ldb := Load(Param("ldb"), GP64())
	three := GP64()
	at := func(base, step reg.Register, n int) Mem {
		switch n {
		case 0:
			return Mem{Base: base}
		case 3:
			return Mem{Base: base, Index: three, Scale: 1}
		}
		return Mem{Base: base, Index: step, Scale: uint8(n)}
	}
	// With AVX2 there are 16 registers: sums for 4 by 4 would take all of them, so that rows are done in pairs there.
	if s.lanes == 8 && rows*columns > 8 {
		s.dotPairs(rows, columns, depth, a, lda, b, ldb)
		return
	}
	acc := func(r, j int) reg.VecPhysical { return s.vector(r*columns + j) }
	for i := range rows * columns {
		s.zero(s.vector(i))
	}
	loop, done := fmt.Sprintf("dot_%s_%d_%d", s.name, rows, columns), fmt.Sprintf("dotend_%s_%d_%d", s.name, rows, columns)
	var threeB reg.GPVirtual
	if columns == 4 {
		threeB = GP64()
		LEAQ(Mem{Base: ldb, Index: ldb, Scale: 2}, threeB)
	}
	if rows == 4 {
		LEAQ(Mem{Base: lda, Index: lda, Scale: 2}, three)
	}
	Label(loop)
	CMPQ(depth, Imm(0))
	JE(LabelRef(done))
	x := s.vector(s.registers - 1)
	y := s.vector(s.registers - 2)
	for j := range columns {
		from := Mem{Base: b}
		switch j {
		case 1, 2:
			from = Mem{Base: b, Index: ldb, Scale: uint8(j)}
		case 3:
			from = Mem{Base: b, Index: threeB, Scale: 1}
		}
		VMOVUPS(from, y)
		for r := range rows {
			VMOVUPS(at(a, lda, r), x)
			VFMADD231PS(x, y, acc(r, j))
		}
	}
	ADDQ(Imm(uint64(4*s.lanes)), a)
	ADDQ(Imm(uint64(4*s.lanes)), b)
	SUBQ(Imm(uint64(s.lanes)), depth)
	JMP(LabelRef(loop))
	Label(done)
	sums := Load(Param("sums"), GP64())
	for i := range rows * columns {
		s.reduce(s.vector(i), s.vector(s.registers-1), Mem{Base: sums, Disp: 4 * i})
	}
	s.end()
}

// dotPairs is dot for two rows at a time.
func (s set) dotPairs(rows, columns int, depth, a, lda, b, ldb reg.Register) {
	sums := Load(Param("sums"), GP64())
	threeB := GP64()
	LEAQ(Mem{Base: ldb, Index: ldb, Scale: 2}, threeB)
	for first := 0; first < rows; first += 2 {
		n := min(2, rows-first)
		left, at, bt := GP64(), GP64(), GP64()
		MOVQ(depth, left)
		MOVQ(a, at)
		MOVQ(b, bt)
		for i := range n * columns {
			s.zero(s.vector(i))
		}
		loop := fmt.Sprintf("dot_%s_%d_%d_%d", s.name, rows, columns, first)
		done := fmt.Sprintf("dotend_%s_%d_%d_%d", s.name, rows, columns, first)
		Label(loop)
		CMPQ(left, Imm(0))
		JE(LabelRef(done))
		for j := range columns {
			from := Mem{Base: bt}
			switch j {
			case 1, 2:
				from = Mem{Base: bt, Index: ldb, Scale: uint8(j)}
			case 3:
				from = Mem{Base: bt, Index: threeB, Scale: 1}
			}
			VMOVUPS(from, s.vector(14))
			for r := range n {
				row := Mem{Base: at}
				if r == 1 {
					row = Mem{Base: at, Index: lda, Scale: 1}
				}
				VMOVUPS(row, s.vector(15))
				VFMADD231PS(s.vector(15), s.vector(14), s.vector(r*columns+j))
			}
		}
		ADDQ(Imm(uint64(4*s.lanes)), at)
		ADDQ(Imm(uint64(4*s.lanes)), bt)
		SUBQ(Imm(uint64(s.lanes)), left)
		JMP(LabelRef(loop))
		Label(done)
		for i := range n * columns {
			s.reduce(s.vector(i), s.vector(15), Mem{Base: sums, Disp: 4 * (first*columns + i)})
		}
		if first+2 < rows {
			LEAQ(Mem{Base: a, Index: lda, Scale: 2}, a.(reg.GPVirtual))
		}
	}
	s.end()
}

// transpose8 writes the transposition of 8 by 8 elements: dst[k·ldd + r] = src[r·lds + k], for both sets.
func transpose8(e element) {
	name := "transpose8" + e.name
	TEXT(name, NOSPLIT, "func(count int, src *byte, lds int, dst *float32, ldd int)")
	Doc(name + " writes count blocks of 8 columns of 8 rows of src, one behind the other, as rows of dst.")
	Pragma("noescape")
	count := Load(Param("count"), GP64())
	src := Load(Param("src"), GP64())
	lds := Load(Param("lds"), GP64())
	dst := Load(Param("dst"), GP64())
	ldd := Load(Param("ldd"), GP64())
	half := GP64() // the fifth row
	LEAQ(Mem{Base: src, Index: lds, Scale: 4}, half)
	threeS, threeD := GP64(), GP64()
	LEAQ(Mem{Base: lds, Index: lds, Scale: 2}, threeS)
	LEAQ(Mem{Base: ldd, Index: ldd, Scale: 2}, threeD)
	y := []reg.VecPhysical{
		reg.Y0, reg.Y1, reg.Y2, reg.Y3, reg.Y4, reg.Y5, reg.Y6, reg.Y7,
		reg.Y8, reg.Y9, reg.Y10, reg.Y11, reg.Y12, reg.Y13, reg.Y14, reg.Y15,
	}
	Label(name + "_loop")
	CMPQ(count, Imm(0))
	JE(LabelRef(name + "_done"))
	for r := range 8 {
		base := src
		if r >= 4 {
			base = half
		}
		m := Mem{Base: base}
		switch r % 4 {
		case 1, 2:
			m.Index, m.Scale = lds, uint8(r%4)
		case 3:
			m.Index, m.Scale = threeS, 1
		}
		sets[1].load(e, m, y[r])
	}
	for i := 0; i < 8; i += 2 {
		VUNPCKLPS(y[i+1], y[i], y[8+i])
		VUNPCKHPS(y[i+1], y[i], y[8+i+1])
	}
	for i := 0; i < 8; i += 4 {
		VSHUFPS(Imm(0x44), y[8+i+2], y[8+i], y[i])
		VSHUFPS(Imm(0xee), y[8+i+2], y[8+i], y[i+1])
		VSHUFPS(Imm(0x44), y[8+i+3], y[8+i+1], y[i+2])
		VSHUFPS(Imm(0xee), y[8+i+3], y[8+i+1], y[i+3])
	}
	for i := range 4 {
		VPERM2F128(Imm(0x20), y[4+i], y[i], y[8+i])
		VPERM2F128(Imm(0x31), y[4+i], y[i], y[12+i])
	}
	low, high := GP64(), GP64()
	MOVQ(dst, low)
	LEAQ(Mem{Base: dst, Index: ldd, Scale: 4}, high)
	for k := range 8 {
		base := low
		if k >= 4 {
			base = high
		}
		m := Mem{Base: base}
		switch k % 4 {
		case 1, 2:
			m.Index, m.Scale = ldd, uint8(k%4)
		case 3:
			m.Index, m.Scale = threeD, 1
		}
		VMOVUPS(y[8+k], m)
	}
	LEAQ(Mem{Base: high, Index: ldd, Scale: 4}, dst.(reg.GPVirtual))
	ADDQ(Imm(uint64(8*e.bytes)), src)
	ADDQ(Imm(uint64(8*e.bytes)), half)
	DECQ(count)
	JMP(LabelRef(name + "_loop"))
	Label(name + "_done")
	VZEROUPPER()
	RET()
}

// panelWiden writes the copy of rows of two vectors of elements, lds bytes apart, to one behind the other as float32.
func (s set) panelWiden(e element) {
	name := "panelWiden" + s.name + e.name
	TEXT(name, NOSPLIT, "func(rows int, src *byte, lds int, dst *float32)")
	Doc(fmt.Sprintf("%s copies rows of %d elements.", name, 2*s.lanes))
	Pragma("noescape")
	rows := Load(Param("rows"), GP64())
	src := Load(Param("src"), GP64())
	lds := Load(Param("lds"), GP64())
	dst := Load(Param("dst"), GP64())
	Label(name + "_loop")
	SUBQ(Imm(1), rows)
	JL(LabelRef(name + "_done"))
	for n := range 2 {
		s.load(e, Mem{Base: src, Disp: n * s.lanes * e.bytes}, s.vector(n))
		VMOVUPS(s.vector(n), Mem{Base: dst, Disp: n * s.lanes * 4})
	}
	ADDQ(lds, src)
	ADDQ(U32(uint32(8*s.lanes)), dst)
	JMP(LabelRef(name + "_loop"))
	Label(name + "_done")
	s.end()
}
