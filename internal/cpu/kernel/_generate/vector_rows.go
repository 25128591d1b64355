package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/optimem/optimem/internal/cpu/kernel/_generate/bodies"
)

// text begins a kernel.
func (s set) text(name, signature, doc string) {
	TEXT(name+s.name, NOSPLIT, signature)
	Doc(name + s.name + " " + doc)
	Pragma("noescape")
}

// wide loads n-th half of a vector's floats as float64.
func (s set) wide(base reg.Register, n int, to reg.VecPhysical) {
	VCVTPS2PD(Mem{Base: base, Disp: n * 2 * s.lanes}, to)
}

// foldWide adds up four vectors of float64 into the first number of the first.
func (s set) foldWide(v [4]reg.VecPhysical) {
	VADDPD(v[1], v[0], v[0])
	VADDPD(v[3], v[2], v[2])
	VADDPD(v[2], v[0], v[0])
	if s.lanes == 16 {
		VEXTRACTF64X4(Imm(1), v[0], v[1].AsY())
		VADDPD(v[1].AsY(), v[0].AsY(), v[0].AsY())
	}
	VEXTRACTF128(Imm(1), v[0].AsY(), low(v[1]))
	VADDPD(low(v[1]), low(v[0]), low(v[0]))
	VUNPCKHPD(low(v[0]), low(v[0]), low(v[1]))
	VADDSD(low(v[1]), low(v[0]), low(v[0]))
}

// reduceWide adds up four vectors of float64 and stores the sum.
func (s set) reduceWide(v [4]reg.VecPhysical, to Mem) {
	s.foldWide(v)
	VMOVSD(low(v[0]), to)
}

// folds writes the loops over n floats from x: two vectors a turn, then one.
func (s set) folds(n, x reg.Register, body func(half int)) {
	Label("many")
	CMPQ(n, Imm(uint64(2*s.lanes)))
	JL(LabelRef("few"))
	for half := range 4 {
		body(half)
	}
	ADDQ(U32(uint32(8*s.lanes)), x)
	SUBQ(Imm(uint64(2*s.lanes)), n)
	JMP(LabelRef("many"))
	Label("few")
	CMPQ(n, Imm(0))
	JE(LabelRef("done"))
	body(0)
	body(1)
	Label("done")
}

func (s set) sum() {
	s.text("sum", "func(n int, x *float32) float64", "computes Σ x[i] in float64; n is a multiple of the lanes.")
	n, x := Load(Param("n"), GP64()), Load(Param("x"), GP64())
	acc := [4]reg.VecPhysical{s.vector(0), s.vector(1), s.vector(2), s.vector(3)}
	for _, a := range acc {
		s.zero(a)
	}
	s.folds(n, x, func(half int) {
		w := s.vector(4 + half)
		s.wide(x, half, w)
		VADDPD(w, acc[half], acc[half])
	})
	s.reduceWide(acc, address(ReturnIndex(0)))
	s.end()
}

func (s set) squares() {
	s.text("squares", "func(n int, x *float32, shift float64) float64",
		"computes Σ (x[i] − shift)² in float64; n is a multiple of the lanes.")
	n, x := Load(Param("n"), GP64()), Load(Param("x"), GP64())
	acc := [4]reg.VecPhysical{s.vector(0), s.vector(1), s.vector(2), s.vector(3)}
	for _, a := range acc {
		s.zero(a)
	}
	by := s.vector(8)
	VBROADCASTSD(address(Param("shift")), by)
	s.folds(n, x, func(half int) {
		w := s.vector(4 + half)
		s.wide(x, half, w)
		VSUBPD(by, w, w)
		VFMADD231PD(w, w, acc[half])
	})
	s.reduceWide(acc, address(ReturnIndex(0)))
	s.end()
}

// extreme writes the largest or smallest of a row, NaN where there is one.
func (s set) extreme(name string, start float64) {
	s.text(name, "func(n int, x *float32) float32",
		"finds the "+name+"imum of x[i], NaN if one is; n is a multiple of the lanes and not 0.")
	pick := func(b Op, a, to reg.VecPhysical) {
		if name == "max" {
			VMAXPS(b, a, to)
		} else {
			VMINPS(b, a, to)
		}
	}
	n, x := Load(Param("n"), GP64()), Load(Param("x"), GP64())
	best, nans := [2]reg.VecPhysical{s.vector(0), s.vector(1)}, s.vector(2)
	VBROADCASTSS(constants.at(math.Float32bits(float32(start))), best[0])
	VMOVUPS(best[0], best[1])
	s.zero(nans)
	one := func(i int) {
		w := s.vector(3 + i)
		VMOVUPS(Mem{Base: x, Disp: 4 * s.lanes * i}, w)
		pick(best[i], w, best[i])
		if s.lanes == 16 {
			VCMPPS(Imm(unordered), w, w, reg.K1)
			VMOVAPS(w, reg.K1, nans)
		} else {
			u := s.vector(5 + i)
			VCMPPS(Imm(unordered), w, w, u)
			VORPS(u, nans, nans)
		}
	}
	s.folds(n, x, func(half int) {
		if half%2 == 0 {
			one(half / 2)
		}
	})
	pick(best[1], best[0], best[0])
	spare := s.vector(3)
	s.fold(best[0], spare, pick)
	s.fold(nans, spare, func(b Op, a, to reg.VecPhysical) { VORPS(b, a, to) }) // anything that is not zero
	any := GP32()
	VMOVD(low(nans), any)
	CMPL(any, Imm(0))
	JE(LabelRef("store"))
	VBROADCASTSS(constants.at(0x7fc00000), low(best[0]))
	Label("store")
	VMOVSS(low(best[0]), address(ReturnIndex(0)))
	s.end()
}

// addExp writes exp(x·scale − top), 0 where that is below e^−87, of a vector, and adds it to sum.
func (v *vec) addExp(x, to Mem, scale, top, sum reg.VecPhysical) {
	was := v.temps
	z, e := v.t(), v.t()
	v.load(x, z)
	VFMSUB213PS(top, scale, z)
	// Numbers that have not all their bits are slow, and too small to count.
	tiny := v.t()
	VMAXPS(z, v.r(-87), tiny)
	bodies.Exp(on(v), tiny, e, 89)
	v.choose(below, z, v.r(-87), v.r(0), e, e)
	v.store(e, to)
	switch {
	case v.mask == nil:
		VADDPS(e, sum, sum)
	case v.lanes == 16:
		VADDPS(e, sum, v.mask, sum)
	default:
		VANDPS(v.mask, e, e)
		VADDPS(e, sum, sum)
	}
	v.temps = was
}

// expSum writes exponentials of a row and their sum.
func (s set) expSum() {
	s.text("expSum", "func(n int, to, x *float32, p0, p1 float32) float32",
		"computes to[i] = exp(x[i]·p0 − p1) and gives Σ to[i], in as many sums as there are lanes.")
	v := &vec{set: s, keep: 11}
	n, dst, x := Load(Param("n"), GP64()), Load(Param("to"), GP64()), Load(Param("x"), GP64())
	sum := v.t()
	s.zero(sum)
	v.start()
	one := func() { v.addExp(Mem{Base: x}, Mem{Base: dst}, v.param(0), v.param(1), sum) }
	Label("loop")
	CMPQ(n, Imm(uint64(s.lanes)))
	JL(LabelRef("rest"))
	one()
	ADDQ(Imm(uint64(4*s.lanes)), dst)
	ADDQ(Imm(uint64(4*s.lanes)), x)
	SUBQ(Imm(uint64(s.lanes)), n)
	JMP(LabelRef("loop"))
	Label("rest")
	CMPQ(n, Imm(0))
	JE(LabelRef("done"))
	v.masks(n)
	one()
	Label("done")
	s.reduce(sum, s.vector(s.registers-1), address(ReturnIndex(0)))
	s.end()
	v.finish()
}

// accumulate adds floats to sums of float64.
func (s set) accumulate() {
	s.text("accumulate", "func(n int, sums *float64, x *float32)", "computes sums[i] += x[i]; n is a multiple of the lanes.")
	n, sums, x := Load(Param("n"), GP64()), Load(Param("sums"), GP64()), Load(Param("x"), GP64())
	Label("loop")
	CMPQ(n, Imm(0))
	JE(LabelRef("done"))
	for half := range 2 {
		w := s.vector(half)
		s.wide(x, half, w)
		at := Mem{Base: sums, Disp: half * 4 * s.lanes}
		VADDPD(at, w, w)
		VMOVUPD(w, at)
	}
	ADDQ(Imm(uint64(4*s.lanes)), x)
	ADDQ(U32(uint32(8*s.lanes)), sums)
	SUBQ(Imm(uint64(s.lanes)), n)
	JMP(LabelRef("loop"))
	Label("done")
	s.end()
}

// A pitched is rows that lie apart: where the one that is computed begins, and the bytes to the next.
type pitched struct{ at, step reg.Register }

// rowsAt loads the parameters of rows that lie apart: x and the bytes from one to the next, ldx.
func rowsAt(name string) pitched {
	return pitched{Load(Param(name), GP64()), Load(Param("ld"+name), GP64())}
}

// vector is the one at a byte of the row that is computed.
func (p pitched) vector(i reg.Register) Mem { return Mem{Base: p.at, Index: i, Scale: 1} }

// eachRow writes the loop over rows of as many columns, whose numbers are parameters. body computes the vector at a byte of
// the rows, of which lanes behind their end are masked; first and last do what comes before and after a row's vectors.
func (v *vec) eachRow(operands []pitched, first func(), body func(i reg.Register), last func()) {
	rows, rest := Load(Param("rows"), GP64()), Load(Param("columns"), GP64())
	whole, n, i := GP64(), GP64(), GP64()
	MOVQ(rest, whole)
	ANDQ(Imm(uint64(v.lanes-1)), rest)
	SUBQ(rest, whole)
	SHLQ(Imm(2), whole)
	MOVQ(rest, n)
	v.masks(n)
	mask := v.mask
	v.start()
	Label("row")
	DECQ(rows)
	JL(LabelRef("done"))
	first()
	XORQ(i, i)
	Label("vector")
	CMPQ(i, whole)
	JGE(LabelRef("rest"))
	v.mask = nil
	body(i)
	ADDQ(Imm(uint64(4*v.lanes)), i)
	JMP(LabelRef("vector"))
	Label("rest")
	CMPQ(rest, Imm(0))
	JE(LabelRef("next"))
	v.mask = mask
	body(i)
	Label("next")
	last()
	for _, p := range operands {
		ADDQ(p.step, p.at)
	}
	JMP(LabelRef("row"))
	Label("done")
	v.end()
	v.finish()
}

// nothing is what comes before or after most rows.
func nothing() {}

// addRows writes the sum of rows that lie apart: one call for many short ones.
func (s set) addRows() {
	s.text("addRows", "func(rows, columns int, to *float32, ldto int, x *float32, ldx int, y *float32, ldy int)",
		"computes to[r][i] = x[r][i] + y[r][i].")
	v := &vec{set: s, keep: 4}
	a, b := v.t(), v.t()
	to, x, y := rowsAt("to"), rowsAt("x"), rowsAt("y")
	v.eachRow([]pitched{to, x, y}, nothing, func(i reg.Register) {
		v.load(x.vector(i), a)
		v.load(y.vector(i), b)
		VADDPS(b, a, a)
		v.store(a, to.vector(i))
	}, nothing)
}

// scaleRows writes rows that lie apart, each times a number of its own.
func (s set) scaleRows() {
	s.text("scaleRows", "func(rows, columns int, to *float32, ldto int, x *float32, ldx int, by *float32)",
		"computes to[r][i] = x[r][i]·by[r].")
	v := &vec{set: s, keep: 4}
	a, factor := v.t(), v.t()
	to, x, by := rowsAt("to"), rowsAt("x"), Load(Param("by"), GP64())
	v.eachRow([]pitched{to, x}, func() {
		VBROADCASTSS(Mem{Base: by}, factor)
		ADDQ(Imm(4), by)
	}, func(i reg.Register) {
		v.load(x.vector(i), a)
		VMULPS(factor, a, a)
		v.store(a, to.vector(i))
	}, nothing)
}

// maxRows writes the largest of each of rows that lie apart, as many as there are; a row without any but NaN has −∞. With
// add, rows are scaled before, and others added to them.
func (s set) maxRows(add bool) {
	const result = "top[r] = max x[r][i], −∞ if all are NaN."
	v := &vec{set: s, keep: 8}
	var y pitched
	if add {
		s.text("addMaxRows", "func(rows, columns int, x *float32, ldx int, y *float32, ldy int, p0 float32, top *float32)",
			"computes x[r][i] = p0·x[r][i] + y[r][i] and "+result)
		y = rowsAt("y")
	} else {
		s.text("maxRows", "func(rows, columns int, x *float32, ldx int, top *float32)", "computes "+result)
	}
	x, top := rowsAt("x"), Load(Param("top"), GP64())
	a, b, best, spare := v.t(), v.t(), v.t(), v.t()
	largest := func(x Op, best, to reg.VecPhysical) { VMAXPS(best, x.(reg.VecPhysical), to) } // best where x is NaN
	operands := []pitched{x}
	if add {
		operands = append(operands, y)
	}
	lowest := v.r(math.Inf(-1))
	v.eachRow(operands, func() { VMOVAPS(lowest, best) }, func(i reg.Register) {
		v.load(x.vector(i), a)
		if add {
			v.load(y.vector(i), b)
			VFMADD213PS(b, v.param(0), a)
			v.store(a, x.vector(i))
		}
		switch {
		case v.mask == nil:
		case v.lanes == 16:
			VBLENDMPS(a, lowest, v.mask, a)
		default:
			VBLENDVPS(v.mask, a, lowest, a)
		}
		largest(a, best, best)
	}, func() {
		s.fold(best, spare, func(b Op, a, to reg.VecPhysical) { VMAXPS(b, a, to) })
		VMOVSS(low(best), Mem{Base: top})
		ADDQ(Imm(4), top)
	})
}

// expSumRows writes exponentials of rows that lie apart, in place, and their sums.
func (s set) expSumRows() {
	s.text("expSumRows", "func(rows, columns int, x *float32, ldx int, p0 float32, top, sum *float32)",
		"computes x[r][i] = exp(x[r][i]·p0 − top[r]) and sum[r] = Σ x[r][i], in as many sums as there are lanes.")
	v := &vec{set: s, keep: 12}
	x := rowsAt("x")
	top, to := Load(Param("top"), GP64()), Load(Param("sum"), GP64())
	sum, level := v.t(), v.t()
	v.eachRow([]pitched{x}, func() {
		s.zero(sum)
		VBROADCASTSS(Mem{Base: top}, level)
		ADDQ(Imm(4), top)
	}, func(i reg.Register) {
		v.addExp(x.vector(i), x.vector(i), v.param(0), level, sum)
	}, func() {
		s.reduce(sum, s.vector(v.keep), Mem{Base: to})
		ADDQ(Imm(4), to)
	})
}

// normRows writes rows that lie apart, normalised: sums are those of sum and squares, in their order.
func (s set) normRows() {
	s.text("normRows", "func(rows, columns int, to *float32, ldto int, x *float32, ldx int, w, b *float32, stepb int, eps float64, "+
		"centred int)", "computes to[r][i] = (x[r][i] − mean)·scale·w[i] + b[i], where scale is 1 ÷ √(mean of (x[r][i] − mean)² + eps), "+
		"and mean is 0 if not centred. columns is a multiple of the lanes, stepb the bytes between vectors of b.")
	rows, columns := Load(Param("rows"), GP64()), Load(Param("columns"), GP64())
	to, x := rowsAt("to"), rowsAt("x")
	w, b, stepb := Load(Param("w"), GP64()), Load(Param("b"), GP64()), Load(Param("stepb"), GP64())
	centred := Load(Param("centred"), GP64())
	acc := [4]reg.VecPhysical{s.vector(0), s.vector(1), s.vector(2), s.vector(3)}
	wide, mean, shift, scale, y := s.vector(4), s.vector(5), s.vector(6), s.vector(7), s.vector(4)
	count, eps, one := s.vector(8), s.vector(9), s.vector(10)
	VXORPS(low(count), low(count), low(count))
	VCVTSI2SDQ(columns, low(count), low(count))
	VMOVSD(address(Param("eps")), low(eps))
	VBROADCASTSS(constants.at(math.Float32bits(1)), low(one))
	VCVTSS2SD(low(one), low(one), low(one))
	i, two, atb := GP64(), GP64(), GP64()
	SHLQ(Imm(2), columns)
	// pass adds up body of all vectors of a row, and gives the mean of them.
	pass := func(name string, body func(w, acc reg.VecPhysical)) {
		for _, a := range acc {
			s.zero(a)
		}
		one := func(disp, half int) {
			VCVTPS2PD(Mem{Base: x.at, Index: i, Scale: 1, Disp: disp}, wide)
			body(wide, acc[half])
		}
		XORQ(i, i)
		LEAQ(Mem{Base: columns, Disp: -8 * s.lanes}, two)
		Label(name + "Many")
		CMPQ(i, two)
		JG(LabelRef(name + "Few"))
		for half := range 4 {
			one(half*2*s.lanes, half)
		}
		ADDQ(U32(uint32(8*s.lanes)), i)
		JMP(LabelRef(name + "Many"))
		Label(name + "Few")
		CMPQ(i, columns)
		JGE(LabelRef(name + "Done"))
		one(0, 0)
		one(2*s.lanes, 1)
		Label(name + "Done")
		s.foldWide(acc)
		VDIVSD(low(count), low(acc[0]), low(acc[0]))
	}
	Label("row")
	DECQ(rows)
	JL(LabelRef("done"))
	s.zero(mean)
	CMPQ(centred, Imm(0))
	JE(LabelRef("squares"))
	pass("sum", func(w, acc reg.VecPhysical) { VADDPD(w, acc, acc) })
	VBROADCASTSD(low(acc[0]), mean)
	Label("squares")
	pass("square", func(w, acc reg.VecPhysical) {
		VSUBPD(mean, w, w)
		VFMADD231PD(w, w, acc)
	})
	VADDSD(low(eps), low(acc[0]), low(acc[0]))
	VSQRTSD(low(acc[0]), low(acc[0]), low(acc[0]))
	VDIVSD(low(acc[0]), low(one), low(acc[0]))
	VCVTSD2SS(low(acc[0]), low(acc[0]), low(scale))
	VBROADCASTSS(low(scale), scale)
	VCVTSD2SS(low(mean), low(mean), low(shift))
	VBROADCASTSS(low(shift), shift)
	XORQ(i, i)
	MOVQ(b, atb)
	Label("normalize")
	VMOVUPS(x.vector(i), y)
	VSUBPS(shift, y, y)
	VMULPS(scale, y, y)
	VMOVUPS(Mem{Base: w, Index: i, Scale: 1}, acc[0])
	VFMADD213PS(Mem{Base: atb}, acc[0], y)
	VMOVUPS(y, to.vector(i))
	ADDQ(stepb, atb)
	ADDQ(Imm(uint64(4*s.lanes)), i)
	CMPQ(i, columns)
	JL(LabelRef("normalize"))
	ADDQ(to.step, to.at)
	ADDQ(x.step, x.at)
	JMP(LabelRef("row"))
	Label("done")
	s.end()
}

// half is the lower half of a register.
func (s set) half(v reg.VecPhysical) reg.Register {
	if s.lanes == 16 {
		return v.AsY()
	}
	return v.AsX()
}

// widen writes the conversion of half floats.
func (s set) widen(kind string) {
	s.text("widen"+kind, "func(n int, to *float32, x *uint16)", "converts to float32; n is a multiple of the lanes.")
	n, to, x := Load(Param("n"), GP64()), Load(Param("to"), GP64()), Load(Param("x"), GP64())
	Label("loop")
	CMPQ(n, Imm(0))
	JE(LabelRef("done"))
	w := s.vector(0)
	if kind == "Float16" {
		VCVTPH2PS(Mem{Base: x}, w)
	} else {
		VPMOVZXWD(Mem{Base: x}, w)
		VPSLLD(Imm(16), w, w)
	}
	VMOVUPS(w, Mem{Base: to})
	ADDQ(Imm(uint64(2*s.lanes)), x)
	ADDQ(Imm(uint64(4*s.lanes)), to)
	SUBQ(Imm(uint64(s.lanes)), n)
	JMP(LabelRef("loop"))
	Label("done")
	s.end()
}

// narrow writes the conversion to half floats: rounded to nearest, ties to even.
func (s set) narrow(kind string) {
	s.text("narrow"+kind, "func(n int, to *uint16, x *float32)", "converts from float32; n is a multiple of the lanes.")
	v := &vec{set: s, keep: 11}
	n, to, x := Load(Param("n"), GP64()), Load(Param("to"), GP64()), Load(Param("x"), GP64())
	v.start()
	Label("loop")
	CMPQ(n, Imm(0))
	JE(LabelRef("done"))
	w, r := v.t(), v.t()
	VMOVUPS(Mem{Base: x}, w)
	if kind == "Float16" {
		VCVTPS2PH(Imm(0), w, Mem{Base: to})
	} else {
		VPSRLD(Imm(16), w, r)
		if s.lanes == 16 {
			VPANDD(v.bits(1), r, r)
		} else {
			VPAND(v.bits(1), r, r)
		}
		VPADDD(v.bits(0x7fff), r, r)
		VPADDD(w, r, r)
		VPSRLD(Imm(16), r, r)
		nan := v.t()
		VMOVUPS(v.bits(0x7fc0), nan)
		v.choose(unordered, w, w, nan, r, r)
		if s.lanes == 16 {
			VPMOVDW(r, Mem{Base: to})
		} else {
			VPACKUSDW(r, r, r)
			VPERMQ(Imm(8), r, r)
			VMOVUPS(r.AsX(), Mem{Base: to})
		}
	}
	ADDQ(Imm(uint64(4*s.lanes)), x)
	ADDQ(Imm(uint64(2*s.lanes)), to)
	SUBQ(Imm(uint64(s.lanes)), n)
	JMP(LabelRef("loop"))
	Label("done")
	s.end()
	v.finish()
}

// weighted writes sums of rows with weights: of four vectors of columns, and of the columns of one or of a part of it.
func (s set) weighted() {
	for _, vectors := range []int{4, 1} {
		s.text(fmt.Sprintf("weighted%dx", vectors), "func(n int, w, rows *float32, ldr int, sums *float32, columns int)",
			"computes sums[j] += Σ_i w[i]·rows[i][j]; see weighted.")
		v := &vec{set: s, keep: 13}
		n, w, rows := Load(Param("n"), GP64()), Load(Param("w"), GP64()), Load(Param("rows"), GP64())
		ldr, sums := Load(Param("ldr"), GP64()), Load(Param("sums"), GP64())
		if vectors == 1 {
			v.masks(Load(Param("columns"), GP64()))
		}
		acc := make([]reg.VecPhysical, vectors)
		for i := range acc {
			acc[i] = v.t()
			v.load(Mem{Base: sums, Disp: 4 * s.lanes * i}, acc[i])
		}
		one, row := v.t(), v.t()
		Label("loop")
		CMPQ(n, Imm(0))
		JE(LabelRef("done"))
		VBROADCASTSS(Mem{Base: w}, one)
		for i := range acc {
			at := Mem{Base: rows, Disp: 4 * s.lanes * i}
			if vectors == 1 {
				v.load(at, row)
				VFMADD231PS(row, one, acc[i])
			} else {
				VFMADD231PS(at, one, acc[i])
			}
		}
		ADDQ(Imm(4), w)
		ADDQ(ldr, rows)
		DECQ(n)
		JMP(LabelRef("loop"))
		Label("done")
		for i := range acc {
			v.store(acc[i], Mem{Base: sums, Disp: 4 * s.lanes * i})
		}
		s.end()
	}
}
