package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// combinedRows are how many rows the kernels of combine take.
var combinedRows = []int{8, 1}

// combineFamily writes combinations of rows.
func combineFamily() {
	for _, s := range sets {
		for _, e := range []element{f32, bf16, f16, i8} {
			for _, rows := range combinedRows {
				s.combine(rows, e)
			}
		}
	}
}

// combine writes the kernel that adds multiples of some rows to sums, of two vectors at a time:
//
//	sums[j] += Σ_k a[k]·b[k][j], over k in order
//
// Rows of b lie ldb bytes apart. Each is read as a stream, of which what is a little ahead is fetched into the cache.
func (s set) combine(rows int, e element) {
	const ahead = 512 // bytes
	name := fmt.Sprintf("combine%s%sx%d", s.name, e.name, rows)
	TEXT(name, NOSPLIT, "func(pairs int, a *float32, b *byte, ldb int, sums *float32)")
	Doc(fmt.Sprintf("%s adds %d rows to pairs of vectors of %d sums; see combine.", name, rows, s.lanes))
	Pragma("noescape")
	pairs := Load(Param("pairs"), GP64())
	a := Load(Param("a"), GP64())
	b := Load(Param("b"), GP64())
	ldb := Load(Param("ldb"), GP64())
	sums := Load(Param("sums"), GP64())
	three, fifth := GP64(), GP64()
	if rows == 8 {
		LEAQ(Mem{Base: ldb, Index: ldb, Scale: 2}, three)
		LEAQ(Mem{Base: b, Index: ldb, Scale: 4}, fifth)
	}
	x := make([]reg.VecPhysical, rows)
	for k := range x {
		x[k] = s.vector(4 + k)
		VBROADCASTSS(Mem{Base: a, Disp: 4 * k}, x[k])
	}
	Label(name + "_loop")
	SUBQ(Imm(1), pairs)
	JL(LabelRef(name + "_done"))
	for n := range 2 {
		VMOVUPS(Mem{Base: sums, Disp: 4 * s.lanes * n}, s.vector(n))
	}
	for k := range rows {
		from := far(b, ldb, three, k)
		if k >= 4 {
			from = far(fifth, ldb, three, k-4)
		}
		for at := 0; at < 2*s.lanes*e.bytes; at += 64 {
			line := from
			line.Disp = ahead + at
			PREFETCHT0(line)
		}
		for n := range 2 {
			from.Disp = n * s.lanes * e.bytes
			if e == f32 {
				VFMADD231PS(from, x[k], s.vector(n))
				continue
			}
			s.load(e, from, s.vector(2+n))
			VFMADD231PS(s.vector(2+n), x[k], s.vector(n))
		}
	}
	for n := range 2 {
		VMOVUPS(s.vector(n), Mem{Base: sums, Disp: 4 * s.lanes * n})
	}
	ADDQ(U32(uint32(2*s.lanes*e.bytes)), b)
	if rows == 8 {
		ADDQ(U32(uint32(2*s.lanes*e.bytes)), fifth)
	}
	ADDQ(U32(uint32(8*s.lanes)), sums)
	JMP(LabelRef(name + "_loop"))
	Label(name + "_done")
	s.end()
}
