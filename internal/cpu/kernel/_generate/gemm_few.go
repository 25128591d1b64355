package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// fewRows is the number of rows up to which the right factor of a product is what takes time: it streams by once.
const fewRows = 4

// acrossRows is the number of rows that across computes at most: sums, the square that is turned, and two more are in
// registers.
func (s set) acrossRows() int {
	if s.registers == 32 {
		return 8
	}
	return fewRows
}

// fewPanels returns how many panels are read side by side for a number of rows: several streams are read faster than one.
func (s set) fewPanels(rows int) int {
	for _, n := range []int{4, 2} {
		if 2*n*rows+rows+1 <= s.registers {
			return n
		}
	}
	return 1
}

// few writes the kernel of few rows by some panels of two vectors of columns.
//
//	c[r][j] = Σ_k a[r][k]·b[k][j] (+ c[r][j], + bias[r] or + bias[j]) for j < 2·lanes·panels
//
// Panels of b lie next bytes apart, their rows, or pairs of them, ldb; of each panel what lies ahead bytes further is
// fetched into the cache.
func (s set) few(rows int, e element) {
	panels := s.fewPanels(rows)
	name := fmt.Sprintf("few%s%sx%d", s.name, e.name, rows)
	label := func(l string) string { return l + "_" + name }
	TEXT(name, NOSPLIT, "func(depth int, a *float32, lda int, b *byte, ldb, next int, c *float32, ldc int, mode int, "+
		"bias *float32, ahead int)")
	Doc(fmt.Sprintf("%s computes %d rows of %d panels; see few.", name, rows, panels))
	Pragma("noescape")
	depth := Load(Param("depth"), GP64())
	a := Load(Param("a"), GP64())
	lda := Load(Param("lda"), GP64())
	b := Load(Param("b"), GP64())
	ldb := Load(Param("ldb"), GP64())
	next := Load(Param("next"), GP64())
	ahead := Load(Param("ahead"), GP64())
	ADDQ(b, ahead)
	acc := func(r, n int) reg.VecPhysical { return s.vector(2*panels*r + n) }
	for i := range 2 * panels * rows {
		s.zero(s.vector(i))
	}
	x := func(r int) reg.VecPhysical { return s.vector(2*panels*rows + r) }
	y := s.vector(2*panels*rows + rows)
	var three reg.GPVirtual
	if panels == 4 {
		three = GP64()
		LEAQ(Mem{Base: next, Index: next, Scale: 2}, three)
	}
	row := linesAt(a, lda, rows)
	step := func(k int) {
		for r := range rows {
			m := row(r)
			m.Disp = 4 * k
			VBROADCASTSS(m, x(r))
		}
		for n := range 2 * panels {
			from := far(b, next, three, n/2)
			switch e {
			case pairs:
				from.Disp = n % 2 * s.lanes * 4
				s.loadPair(k%2, from, y)
			default:
				from.Disp = n % 2 * s.lanes * e.bytes
				if e == f32 && rows == 1 {
					VFMADD231PS(from, x(0), acc(0, n))
					continue
				}
				s.load(e, from, y)
			}
			for r := range rows {
				VFMADD231PS(y, x(r), acc(r, n))
			}
		}
	}
	// fetch fetches what a step, or two of pairs, reads.
	fetch := func() {
		bytes := 2 * s.lanes * e.bytes
		if e == pairs {
			bytes *= 2
		}
		for n := range panels {
			for at := 0; at < bytes; at += 64 {
				from := far(ahead, next, three, n)
				from.Disp = at
				PREFETCHT1(from)
			}
		}
		ADDQ(ldb, ahead)
	}
	each := 1
	if e == pairs {
		each = 2
	}
	SUBQ(Imm(uint64(each)), depth)
	JL(LabelRef(label("rest")))
	Label(label("loop"))
	fetch()
	for k := range each {
		step(k)
	}
	ADDQ(Imm(uint64(4*each)), a)
	ADDQ(ldb, b)
	SUBQ(Imm(uint64(each)), depth)
	JGE(LabelRef(label("loop")))
	Label(label("rest"))
	if each == 2 {
		ADDQ(Imm(1), depth)
		JL(LabelRef(label("done")))
		step(0)
		Label(label("done"))
	}
	s.storeMany(rows, 2*panels, label, acc, y)
	s.end()
}

// far returns where element n of some that lie step apart is; three is three times step.
func far(base, step, three reg.Register, n int) Mem {
	switch n {
	case 0:
		return Mem{Base: base}
	case 3:
		return Mem{Base: base, Index: three, Scale: 1}
	}
	return Mem{Base: base, Index: step, Scale: uint8(n)}
}

// linesAt returns where each of up to eight rows is, lda bytes apart.
func linesAt(a, lda reg.Register, rows int) func(r int) Mem {
	odd := make(map[int]reg.GPVirtual) // multiples of lda that addresses cannot say
	for _, by := range []struct{ times, scale int }{{3, 2}, {5, 4}} {
		if rows > by.times {
			odd[by.times] = GP64()
			LEAQ(Mem{Base: lda, Index: lda, Scale: uint8(by.scale)}, odd[by.times])
		}
	}
	if rows > 7 {
		odd[7] = GP64()
		LEAQ(Mem{Base: odd[3], Index: lda, Scale: 4}, odd[7])
	}
	return func(r int) Mem {
		switch r {
		case 0:
			return Mem{Base: a}
		case 6:
			return Mem{Base: a, Index: odd[3], Scale: 2}
		case 3, 5, 7:
			return Mem{Base: a, Index: odd[r], Scale: 1}
		}
		return Mem{Base: a, Index: lda, Scale: uint8(r)}
	}
}

// storeMany is store for a number of vectors a row.
func (s set) storeMany(
	rows, vectors int, label func(string) string, acc func(r, n int) reg.VecPhysical, spare reg.VecPhysical,
) {
	mode := Load(Param("mode"), GP64())
	c := Load(Param("c"), GP64())
	ldc := Load(Param("ldc"), GP64())
	bias := Load(Param("bias"), GP64())
	CMPQ(mode, Imm(1))
	JB(LabelRef(label("store")))
	JE(LabelRef(label("add")))
	CMPQ(mode, Imm(2))
	JE(LabelRef(label("rows")))
	for n := range vectors {
		VMOVUPS(Mem{Base: bias, Disp: n * 4 * s.lanes}, spare)
		for r := range rows {
			VADDPS(spare, acc(r, n), acc(r, n))
		}
	}
	JMP(LabelRef(label("store")))
	Label(label("rows"))
	for r := range rows {
		VBROADCASTSS(Mem{Base: bias, Disp: 4 * r}, spare)
		for n := range vectors {
			VADDPS(spare, acc(r, n), acc(r, n))
		}
	}
	Label(label("store"))
	each := func(write func(r, n int, m Mem)) {
		for r := range rows {
			for n := range vectors {
				write(r, n, Mem{Base: c, Disp: 4 * n * s.lanes})
			}
			if r < rows-1 {
				ADDQ(ldc, c)
			}
		}
	}
	each(func(r, n int, m Mem) { VMOVUPS(acc(r, n), m) })
	s.end()
	Label(label("add"))
	each(func(r, n int, m Mem) {
		VADDPS(m, acc(r, n), acc(r, n))
		VMOVUPS(acc(r, n), m)
	})
}

// acrossVectors is how many vectors of columns are computed with: each sum waits for itself, so that with int8, of which
// there are many in a vector, those of one row are too few.
func acrossVectors(rows int, e element) int {
	if e == i8 && rows <= 2 {
		return 2
	}
	return 1
}

// across writes the kernel of few rows by a vector or two of columns whose elements lie along k:
//
//	c[r][j] = Σ_k a[r][k]·b[j][k] (+ c[r][j], + bias[r] or + bias[j]) for j < lanes·vectors
//
// b is turned in registers, lanes elements of each column at a time, or pairs of elements of bfloat16, or fours of int8;
// depth is a multiple of what that is. Columns lie ldb bytes apart; of each what lies ahead bytes further is fetched into the cache.
func (s set) across(rows int, e element) {
	name := fmt.Sprintf("across%s%sx%d", s.name, e.name, rows)
	vectors := acrossVectors(rows, e)
	label := func(l string) string { return l + "_" + name }
	TEXT(name, NOSPLIT, "func(depth int, a *float32, lda int, b *byte, ldb int, c *float32, ldc int, mode int, "+
		"bias *float32, ahead int)")
	Doc(fmt.Sprintf("%s computes %d rows of %d columns; see across.", name, rows, s.lanes*vectors))
	Pragma("noescape")
	depth := Load(Param("depth"), GP64())
	a := Load(Param("a"), GP64())
	lda := Load(Param("lda"), GP64())
	b := Load(Param("b"), GP64())
	ldb := Load(Param("ldb"), GP64())
	ahead := Load(Param("ahead"), GP64())
	acc := func(r, n int) reg.VecPhysical { return s.vector(vectors*r + n) }
	for i := range vectors * rows {
		s.zero(s.vector(i))
	}
	free := make([]reg.VecPhysical, 0, s.registers)
	for i := vectors * rows; i < s.registers; i++ {
		free = append(free, s.vector(i))
	}
	take := func() reg.VecPhysical {
		v := free[len(free)-1]
		free = free[:len(free)-1]
		return v
	}
	spare := take()
	row := linesAt(a, lda, rows)
	three, at, soon := GP64(), GP64(), GP64()
	LEAQ(Mem{Base: ldb, Index: ldb, Scale: 2}, three)
	elements := 4 / e.bytes * s.lanes
	SUBQ(U32(uint32(elements)), depth)
	JL(LabelRef(label("done")))
	Label(label("loop"))
	was := len(free)
	t := make([]reg.VecPhysical, s.lanes)
	// both replaces x and y by two shuffles of them.
	both := func(shuffle func(x, y, low, high reg.VecPhysical), x, y *reg.VecPhysical) {
		low := take()
		shuffle(*x, *y, low, *y)
		free = append(free, *x)
		*x = low
	}
	MOVQ(b, at)
	LEAQ(Mem{Base: b, Index: ahead, Scale: 1}, soon)
	for n := range vectors {
		for i := range t {
			t[i] = take()
			VMOVUPS(far(at, ldb, three, i%4), t[i])
			PREFETCHT1(far(soon, ldb, three, i%4))
			if i%4 == 3 && (i < s.lanes-1 || n < vectors-1) {
				LEAQ(Mem{Base: at, Index: ldb, Scale: 4}, at)
				LEAQ(Mem{Base: soon, Index: ldb, Scale: 4}, soon)
			}
		}
		s.turn(t, both)
		for k, y := range t {
			s.acrossSteps(e, k, y, take, func(v reg.VecPhysical) { free = append(free, v) }, func(k int, y reg.VecPhysical) {
				for r := range rows {
					m := row(r)
					m.Disp = 4 * k
					if s.lanes == 16 {
						VFMADD231PS_BCST(m, y, acc(r, n))
					} else {
						VBROADCASTSS(m, spare)
						VFMADD231PS(y, spare, acc(r, n))
					}
				}
			})
		}
		free = append(free, t...)
	}
	if len(free) != was {
		panic("registers are lost")
	}
	ADDQ(Imm(uint64(4*s.lanes)), b)
	ADDQ(U32(uint32(4*elements)), a)
	SUBQ(U32(uint32(elements)), depth)
	JGE(LabelRef(label("loop")))
	Label(label("done"))
	s.storeMany(rows, vectors, label, acc, spare)
	s.end()
}

// acrossSteps multiplies by what vector k of some that were turned holds: one element of each column, or several.
func (s set) acrossSteps(
	e element, k int, y reg.VecPhysical, take func() reg.VecPhysical, give func(v reg.VecPhysical),
	multiply func(k int, y reg.VecPhysical),
) {
	if e == f32 {
		multiply(k, y)
		return
	}
	other := take()
	if e == i8 {
		for i := range 3 {
			VPSLLD(Imm(uint64(24-8*i)), y, other)
			VPSRAD(Imm(24), other, other)
			VCVTDQ2PS(other, other)
			multiply(4*k+i, other)
		}
		VPSRAD(Imm(24), y, y)
		VCVTDQ2PS(y, y)
		multiply(4*k+3, y)
	} else {
		VPSLLD(Imm(16), y, other)
		multiply(2*k, other)
		VPSRLD(Imm(16), y, y)
		VPSLLD(Imm(16), y, y)
		multiply(2*k+1, y)
	}
	give(other)
}

// turn exchanges rows and columns of a square of vectors.
func (s set) turn(t []reg.VecPhysical, both func(shuffle func(x, y, low, high reg.VecPhysical), x, y *reg.VecPhysical)) {
	for i := 0; i < len(t); i += 2 {
		both(func(x, y, low, high reg.VecPhysical) {
			VUNPCKLPS(y, x, low)
			VUNPCKHPS(y, x, high)
		}, &t[i], &t[i+1])
	}
	for i := 0; i < len(t); i += 4 {
		for k := range 2 {
			both(func(x, y, low, high reg.VecPhysical) {
				VUNPCKLPD(y, x, low)
				VUNPCKHPD(y, x, high)
			}, &t[i+k], &t[i+k+2])
		}
		// The vectors of k and k+1 stand where those of the even and odd rows were.
		t[i+1], t[i+2] = t[i+2], t[i+1]
	}
	if s.lanes == 8 {
		for i := range 4 {
			both(func(x, y, low, high reg.VecPhysical) {
				VPERM2F128(Imm(0x20), y, x, low)
				VPERM2F128(Imm(0x31), y, x, high)
			}, &t[i], &t[i+4])
		}
		return
	}
	lanes := func(x, y, low, high reg.VecPhysical) {
		VSHUFF32X4(Imm(0x88), y, x, low)
		VSHUFF32X4(Imm(0xdd), y, x, high)
	}
	for i := range 4 {
		both(lanes, &t[i], &t[i+4])
		both(lanes, &t[i+8], &t[i+12])
		both(lanes, &t[i], &t[i+8])
		both(lanes, &t[i+4], &t[i+12])
	}
}

// fetchRows writes the fetching of some bytes of rows into the second cache.
func fetchRows() {
	TEXT("fetchRows", NOSPLIT, "func(rows int, at uintptr, pitch, bytes int)")
	Doc("fetchRows fetches bytes of each row.")
	rows, at := Load(Param("rows"), GP64()), Load(Param("at"), GP64())
	pitch, bytes := Load(Param("pitch"), GP64()), Load(Param("bytes"), GP64())
	DECQ(bytes)
	Label("row")
	DECQ(rows)
	JL(LabelRef("done"))
	i := GP64()
	XORQ(i, i)
	Label("line")
	PREFETCHT1(Mem{Base: at, Index: i, Scale: 1})
	ADDQ(Imm(64), i)
	CMPQ(i, bytes)
	JL(LabelRef("line"))
	PREFETCHT1(Mem{Base: at, Index: bytes, Scale: 1})
	ADDQ(pitch, at)
	JMP(LabelRef("row"))
	Label("done")
	RET()
}
