package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// gemmFamily writes the tiles of products of matrices, dot products, and the transposition that packs for them.
func gemmFamily() {
	for _, s := range sets {
		for rows := 1; rows <= s.rows; rows++ {
			s.gemm(rows)
		}
		for rows := 1; rows <= 4; rows++ {
			s.dot(rows, 4)
			s.dot(rows, 1)
		}
	}
	transpose8()
}

// gemm writes the kernel of a tile: rows of a by two vectors of columns of b.
//
//	c[r][j] = Σ_k a[r][k]·b[k][j] (+ c[r][j], + bias[r] or + bias[j]) for j < 2·lanes
//
// a is row-major with rows lda bytes apart, b packed: all columns of k, then those of k+1. depth is a multiple of 4.
func (s set) gemm(rows int) {
	TEXT(fmt.Sprintf("gemm%sx%d", s.name, rows), NOSPLIT,
		"func(depth int, a *float32, lda int, b, c *float32, ldc int, mode int, bias *float32)")
	Doc(fmt.Sprintf("gemm%sx%d computes %d rows of %d columns; see gemm.", s.name, rows, rows, 2*s.lanes))
	Pragma("noescape")
	depth := Load(Param("depth"), GP64())
	a0 := Load(Param("a"), GP64())
	lda := Load(Param("lda"), GP64())
	b := Load(Param("b"), GP64())
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
	bytes := 8 * s.lanes // of two vectors
	b0, b1 := s.vector(s.registers-4), s.vector(s.registers-3)
	one := [2]reg.VecPhysical{s.vector(s.registers - 2), s.vector(s.registers - 1)}
	loop, done := fmt.Sprintf("loop_%s_%d", s.name, rows), fmt.Sprintf("done_%s_%d", s.name, rows)
	Label(loop)
	CMPQ(depth, Imm(0))
	JE(LabelRef(done))
	for k := range 4 {
		VMOVUPS(Mem{Base: b, Disp: k * bytes}, b0)
		VMOVUPS(Mem{Base: b, Disp: k*bytes + bytes/2}, b1)
		for r := range rows {
			x := one[r%2]
			VBROADCASTSS(at(r, k), x)
			VFMADD231PS(b0, x, acc(r, 0))
			VFMADD231PS(b1, x, acc(r, 1))
		}
	}
	for _, base := range bases {
		ADDQ(Imm(16), base)
	}
	ADDQ(U32(uint32(4*bytes)), b)
	SUBQ(U8(4), depth)
	JMP(LabelRef(loop))
	Label(done)
	s.store(rows, acc, b0)
	s.end()
}

// store writes the sums, to which mode says what is added: 0 nothing, 1 what is there, 2 a number for each row, 3 one for
// each column.
func (s set) store(rows int, acc func(r, n int) reg.VecPhysical, spare reg.VecPhysical) {
	mode := Load(Param("mode"), GP64())
	c := Load(Param("c"), GP64())
	ldc := Load(Param("ldc"), GP64())
	bias := Load(Param("bias"), GP64())
	label := func(name string) string { return fmt.Sprintf("%s_%s_%d", name, s.name, rows) }
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
func transpose8() {
	TEXT("transpose8", NOSPLIT, "func(count int, src *float32, lds int, dst *float32, ldd int)")
	Doc("transpose8 writes count blocks of 8 columns of 8 rows of src, one behind the other, as rows of dst.")
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
	Label("transpose_loop")
	CMPQ(count, Imm(0))
	JE(LabelRef("transpose_done"))
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
		VMOVUPS(m, y[r])
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
	ADDQ(Imm(32), src)
	ADDQ(Imm(32), half)
	DECQ(count)
	JMP(LabelRef("transpose_loop"))
	Label("transpose_done")
	VZEROUPPER()
	RET()
}
