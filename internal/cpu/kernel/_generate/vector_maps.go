package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// A mapping is a function of elements at the same place of at most three rows.
type mapping struct {
	name     string
	operands int
	// unroll is how many vectors there are in a turn of the loop.
	unroll int
	// body computes to from x; it may write to x.
	body func(v *vec, x []reg.VecPhysical, to reg.VecPhysical)
}

type vecs = []reg.VecPhysical

var mappings = []mapping{
	{"Exp", 1, 1, func(v *vec, x vecs, to reg.VecPhysical) { v.exp(x[0], to, 89) }},
	{"Tanh", 1, 1, (*vec).tanh},
	{"Sigmoid", 1, 1, func(v *vec, x vecs, to reg.VecPhysical) { v.sigmoid(x[0], to) }},
	{"Silu", 1, 1, func(v *vec, x vecs, to reg.VecPhysical) {
		v.sigmoid(x[0], to)
		VMULPS(x[0], to, to)
	}},
	{"Gelu", 1, 1, (*vec).gelu},
	{"GeluTanh", 1, 1, (*vec).geluTanh},
	{"Erf", 1, 1, (*vec).erf},
	{"Mish", 1, 1, (*vec).mish},
	{"Elu", 1, 1, (*vec).elu},
	{"HardSwish", 1, 4, func(v *vec, x vecs, to reg.VecPhysical) {
		v.gate(x[0], to)
		VMULPS(x[0], to, to)
		VMULPS(v.c(1.0/6), to, to)
	}},
	{"HardSigmoid", 1, 4, func(v *vec, x vecs, to reg.VecPhysical) {
		v.gate(x[0], to)
		VMULPS(v.c(1.0/6), to, to)
	}},
	{"Relu", 1, 4, func(v *vec, x vecs, to reg.VecPhysical) { VMAXPS(x[0], v.r(0), to) }},
	{"Clamp", 1, 4, func(v *vec, x vecs, to reg.VecPhysical) {
		VMAXPS(x[0], v.param(0), to)
		VMINPS(to, v.param(1), to)
	}},
	{"LeakyRelu", 1, 4, func(v *vec, x vecs, to reg.VecPhysical) {
		VMULPS(v.param(0), x[0], to)
		v.choose(above, x[0], v.r(0), x[0], to, to)
	}},
	{"Neg", 1, 4, func(v *vec, x vecs, to reg.VecPhysical) { VXORPS(v.bits(1<<31), x[0], to) }},
	{"Abs", 1, 4, func(v *vec, x vecs, to reg.VecPhysical) { v.absolute(x[0], to) }},
	{"Sqrt", 1, 1, func(v *vec, x vecs, to reg.VecPhysical) { VSQRTPS(x[0], to) }},
	{"Rsqrt", 1, 1, func(v *vec, x vecs, to reg.VecPhysical) {
		VSQRTPS(x[0], to)
		VDIVPS(to, v.r(1), to)
	}},
	{"Reciprocal", 1, 1, func(v *vec, x vecs, to reg.VecPhysical) { VDIVPS(x[0], v.r(1), to) }},
	{"Square", 1, 4, func(v *vec, x vecs, to reg.VecPhysical) { VMULPS(x[0], x[0], to) }},
	{"Cube", 1, 4, func(v *vec, x vecs, to reg.VecPhysical) {
		VMULPS(x[0], x[0], to)
		VMULPS(x[0], to, to)
	}},
	{"Floor", 1, 4, func(v *vec, x vecs, to reg.VecPhysical) { v.round(1, x[0], to) }},
	{"Ceil", 1, 4, func(v *vec, x vecs, to reg.VecPhysical) { v.round(2, x[0], to) }},
	{"Round", 1, 4, func(v *vec, x vecs, to reg.VecPhysical) { v.round(0, x[0], to) }},
	{"Trunc", 1, 4, func(v *vec, x vecs, to reg.VecPhysical) { v.round(3, x[0], to) }},
	{"Log", 1, 1, (*vec).log},
	{"Sin", 1, 1, func(v *vec, x vecs, to reg.VecPhysical) { v.circular(0, x[0], to) }},
	{"Cos", 1, 1, func(v *vec, x vecs, to reg.VecPhysical) { v.circular(1, x[0], to) }},
	{"Affine", 1, 4, func(v *vec, x vecs, to reg.VecPhysical) {
		VSUBPS(v.param(0), x[0], to)
		VFMADD213PS(v.param(2), v.param(1), to)
	}},
	{"Add", 2, 4, func(v *vec, x vecs, to reg.VecPhysical) { VADDPS(x[1], x[0], to) }},
	{"Sub", 2, 4, func(v *vec, x vecs, to reg.VecPhysical) { VSUBPS(x[1], x[0], to) }},
	{"Mul", 2, 4, func(v *vec, x vecs, to reg.VecPhysical) { VMULPS(x[1], x[0], to) }},
	{"Div", 2, 1, func(v *vec, x vecs, to reg.VecPhysical) { VDIVPS(x[1], x[0], to) }},
	{"AddScaled", 2, 4, func(v *vec, x vecs, to reg.VecPhysical) {
		VMOVAPS(x[0], to)
		VFMADD231PS(v.param(0), x[1], to)
	}},
	{"Maximum", 2, 2, func(v *vec, x vecs, to reg.VecPhysical) {
		VMAXPS(x[0], x[1], to)
		v.choose(unordered, x[1], x[1], x[1], to, to)
	}},
	{"Minimum", 2, 2, func(v *vec, x vecs, to reg.VecPhysical) {
		VMINPS(x[0], x[1], to)
		v.choose(unordered, x[1], x[1], x[1], to, to)
	}},
	{"Prelu", 2, 2, func(v *vec, x vecs, to reg.VecPhysical) {
		VMULPS(x[1], x[0], to)
		v.choose(above, x[0], v.r(0), x[0], to, to)
	}},
	{"Glu", 2, 1, func(v *vec, x vecs, to reg.VecPhysical) {
		v.sigmoid(x[1], to)
		VMULPS(x[0], to, to)
	}},
	{"AddProduct", 3, 2, func(v *vec, x vecs, to reg.VecPhysical) {
		VMULPS(v.param(0), x[1], to)
		VMULPS(x[2], to, to)
		VADDPS(to, x[0], to)
	}},
	{"Normalize", 3, 2, func(v *vec, x vecs, to reg.VecPhysical) {
		VSUBPS(v.param(0), x[0], to)
		VMULPS(v.param(1), to, to)
		VFMADD213PS(x[2], x[1], to)
	}},
	{"Where", 3, 2, func(v *vec, x vecs, to reg.VecPhysical) {
		v.choose(unequal, x[0], v.r(0), x[1], x[2], to)
	}},
}

// inRows are the mappings that have a kernel of many rows, too: those that are activations behind products.
var inRows = []string{"Tanh", "Sigmoid", "Silu", "Gelu", "GeluTanh", "HardSwish", "Relu"}

// unequal is the predicate that is true with NaN.
const unequal = 4

// mapping writes the kernel of a mapping. An operand whose step is 0 is one number.
func (s set) mapping(m mapping) {
	TEXT(fmt.Sprintf("map%s%s", m.name, s.name), NOSPLIT,
		"func(n int, to, x0 *float32, step0 int, x1 *float32, step1 int, x2 *float32, step2 int, p0, p1, p2 float32)")
	Doc(fmt.Sprintf("map%s%s computes a row; see mapping.", m.name, s.name))
	Pragma("noescape")
	v := &vec{set: s, keep: 11}
	n, dst := Load(Param("n"), GP64()), Load(Param("to"), GP64())
	from, step := make([]reg.Register, m.operands), make([]reg.Register, m.operands)
	for i := range from {
		from[i] = Load(Param(fmt.Sprintf("x%d", i)), GP64())
		step[i] = Load(Param(fmt.Sprintf("step%d", i)), GP64())
		row := fmt.Sprintf("row%d", i)
		CMPQ(step[i], Imm(0))
		JNE(LabelRef(row))
		room := AllocLocal(4 * s.lanes)
		VBROADCASTSS(Mem{Base: from[i]}, s.vector(0))
		VMOVUPS(s.vector(0), room)
		LEAQ(room, from[i])
		Label(row)
	}
	v.start()
	one := func(disp int, next bool) {
		was := v.temps
		x := make(vecs, m.operands)
		for i := range x {
			x[i] = v.t()
			v.load(Mem{Base: from[i]}, x[i])
			if next {
				ADDQ(step[i], from[i])
			}
		}
		to := v.t()
		m.body(v, x, to)
		v.store(to, Mem{Base: dst, Disp: disp})
		v.temps = was
	}
	bytes := 4 * s.lanes
	if m.unroll > 1 {
		Label("many")
		CMPQ(n, Imm(uint64(m.unroll*s.lanes)))
		JL(LabelRef("few"))
		for u := range m.unroll {
			one(u*bytes, true)
		}
		ADDQ(U32(uint32(m.unroll*bytes)), dst)
		SUBQ(U32(uint32(m.unroll*s.lanes)), n)
		JMP(LabelRef("many"))
		Label("few")
	}
	Label("loop")
	CMPQ(n, Imm(uint64(s.lanes)))
	JL(LabelRef("rest"))
	one(0, true)
	ADDQ(Imm(uint64(bytes)), dst)
	SUBQ(Imm(uint64(s.lanes)), n)
	JMP(LabelRef("loop"))
	Label("rest")
	CMPQ(n, Imm(0))
	JE(LabelRef("done"))
	v.masks(n)
	one(0, false)
	Label("done")
	s.end()
	v.finish()
}

// The exponential is 2^n·(1 + r + r²·q(r)) for x = n·ln 2 + r; q is a minimax polynomial.
var expQ = []float64{
	0.4999999701976776, 0.1666654348373413, 0.04166720062494278, 0.008366547524929047, 0.0013882514322176576,
}

// ln2High and ln2Low are ln 2 in two floats.
var ln2High = float64(float32(math.Ln2))
var ln2Low = math.Ln2 - ln2High

// expParts gives n and e^r − 1 for x, which it changes.
func (v *vec) expParts(x reg.VecPhysical) (n, e reg.VecPhysical) {
	n, e = v.t(), v.t()
	VMULPS(v.c(math.Log2E), x, n)
	v.round(0, n, n)
	VFNMADD231PS(v.c(ln2High), n, x)
	VFNMADD231PS(v.c(ln2Low), n, x)
	v.horner(x, e, expQ...)
	VMULPS(x, e, e)
	VFMADD213PS(x, x, e)
	return n, e
}

// scale: to = p·2^n for whole n, rounded once where the result has not all its bits. It changes n.
func (v *vec) scale(n, p, to reg.VecPhysical) {
	if v.lanes == 16 {
		VSCALEFPS(n, p, to)
		return
	}
	half := v.t()
	VCVTPS2DQ(n, n)
	VPSRAD(Imm(1), n, half)
	VPSUBD(half, n, n)
	for _, x := range []reg.VecPhysical{n, half} {
		VPSLLD(Imm(23), x, x)
		VPADDD(v.c(1), x, x)
	}
	VMULPS(half, p, to)
	VMULPS(n, to, to)
	v.temps--
}

// exp: to = e^x for x not above high, which is 0 if x is not positive.
func (v *vec) exp(x, to reg.VecPhysical, high float64) {
	was := v.temps
	VMAXPS(x, v.r(-104.5), to)
	if high != 0 {
		VMINPS(to, v.r(high), to)
	}
	n, e := v.expParts(to)
	VADDPS(v.c(1), e, e)
	v.scale(n, e, to)
	v.temps = was
}

// expm1: to = e^x − 1 for x between −80 and 88. It changes x.
func (v *vec) expm1(x, to reg.VecPhysical) {
	was := v.temps
	n, e := v.expParts(x)
	if v.lanes == 16 {
		VSCALEFPS(n, v.r(1), n)
	} else {
		VCVTPS2DQ(n, n)
		VPSLLD(Imm(23), n, n)
		VPADDD(v.c(1), n, n)
	}
	VSUBPS(v.c(1), n, to)
	VFMADD231PS(n, e, to)
	v.temps = was
}

// quotient: to = a ÷ b for b between 1 and 1e30. Registers of 512 bits divide slowly; there an approximation is
// refined twice.
func (v *vec) quotient(a, b, to reg.VecPhysical) {
	if v.lanes == 8 {
		VDIVPS(b, a, to)
		return
	}
	was := v.temps
	y, e := v.t(), v.t()
	VRCP14PS(b, y)
	VMOVAPS(v.r(1), e)
	VFNMADD231PS(y, b, e)
	VFMADD231PS(e, y, y)
	VMULPS(a, y, e)
	q := v.t()
	VMOVAPS(a, q)
	VFNMADD231PS(e, b, q)
	VFMADD213PS(e, y, q)
	VMOVAPS(q, to)
	v.temps = was
}

// sigmoid: to = 1 ÷ (1 + e^−x), as e^x ÷ (1 + e^x) for negative x.
func (v *vec) sigmoid(x, to reg.VecPhysical) {
	was := v.temps
	e, d := v.t(), v.t()
	VORPS(v.bits(1<<31), x, d)
	v.exp(d, e, 0)
	VADDPS(v.c(1), e, d)
	v.choose(below, x, v.r(0), e, v.r(1), e)
	v.quotient(e, d, to)
	v.temps = was
}

func (v *vec) tanh(x vecs, to reg.VecPhysical) {
	z := v.t()
	v.absolute(x[0], z)
	VADDPS(z, z, z)
	VMINPS(z, v.r(20), z)
	e, d := v.t(), v.t()
	v.expm1(z, e)
	VADDPS(v.c(2), e, d)
	v.quotient(e, d, to)
	v.sign(x[0], to)
}

// The error function is t + t·p(t²) for small t, and 1 − e^(g(t) − t²) for others: minimax polynomials.
const (
	erfSmall = 0.85
	erfLarge = 6 // where g ends; 1 − erf is below 1e-16
)

var erfP = []float64{
	0.12837916612625122, -0.3761257231235504, 0.11282717436552048, -0.02680254727602005, 0.005051094572991133,
	-0.0006315127247944474,
}

var erfG = []float64{
	-0.0013177795335650444, -1.1232751607894897, 0.35606181621551514, -0.09884492307901382, 0.02035551518201828,
	-0.002802574075758457, 0.00022584979888051748, -7.96445419837255e-06,
}

// erfParts gives erf t where t is small, and 1 − erf t where it is not, for t that is not negative.
func (v *vec) erfParts(t, small, large reg.VecPhysical) {
	was := v.temps
	s := v.t()
	VMINPS(t, v.r(erfLarge), small)
	v.horner(small, large, erfG...)
	VMULPS(t, t, s)
	VSUBPS(s, large, small)
	v.exp(small, large, 0)
	v.horner(s, small, erfP...)
	VFMADD213PS(t, t, small)
	v.temps = was
}

func (v *vec) erf(x vecs, to reg.VecPhysical) {
	t, small, large := v.t(), v.t(), v.t()
	v.absolute(x[0], t)
	v.erfParts(t, small, large)
	VSUBPS(large, v.r(1), large)
	v.choose(above, t, v.r(erfSmall), large, small, to)
	v.sign(x[0], to)
}

// The normal distribution's share beyond t, for t up to geluEnd, is a polynomial of t scaled to between −1 and 1, with an
// error below 1.3e-7 ÷ max(1, 2t). Farther away less than 5e-9 is left.
const geluEnd = 5.75

var geluQ = []float64{
	0.0020201371517032385, -0.018395010381937027, 0.07602190971374512, -0.1840915083885193, 0.27570000290870667,
	-0.22789674997329712, 0.010038059204816818, 0.2149931788444519, -0.23137789964675903, 0.030407890677452087,
	0.14784380793571472, -0.1129532977938652, -0.02290484867990017, 0.059256717562675476, -0.01166217215359211,
	-0.01132128480821848, 0.00432105828076601,
}

// gelu: x times the normal distribution's share below x, which is that beyond |x|, or the rest.
func (v *vec) gelu(x vecs, to reg.VecPhysical) {
	t, s, p := v.t(), v.t(), v.t()
	v.absolute(x[0], t)
	end, zero := v.r(geluEnd), v.r(0)
	VMINPS(t, end, s)
	VFMADD213PS(v.c(-1), v.r(2/geluEnd), s)
	v.horner(s, p, geluQ...)
	v.choose(above, t, end, zero, p, p)
	VSUBPS(p, v.r(1), s)
	v.choose(below, x[0], zero, p, s, p)
	VMULPS(x[0], p, to)
}

// geluTanh: x/2·(1 + tanh(√(2/π)·(x + 0.044715x³))) as x times a sigmoid.
func (v *vec) geluTanh(x vecs, to reg.VecPhysical) {
	const scale = 2 * math.Sqrt2 / math.SqrtPi
	z := v.t()
	VMULPS(x[0], x[0], z)
	w := v.t()
	v.horner(z, w, scale, 0.044715*scale)
	VMULPS(x[0], w, w)
	v.sigmoid(w, to)
	VMULPS(x[0], to, to)
}

// mish: x·tanh(log(1 + e^x)), which is x·n ÷ (n + 2) for n = e^x·(e^x + 2).
func (v *vec) mish(x vecs, to reg.VecPhysical) {
	z, n := v.t(), v.t()
	VMINPS(x[0], v.r(20), z)
	v.exp(z, n, 20)
	VADDPS(v.c(2), n, z)
	VMULPS(z, n, n)
	VADDPS(v.c(2), n, z)
	v.quotient(n, z, to)
	VMULPS(x[0], to, to)
}

// elu: x·p1 for positive x, else p0·(e^(x·p2) − 1).
func (v *vec) elu(x vecs, to reg.VecPhysical) {
	z, e := v.t(), v.t()
	VMULPS(v.param(2), x[0], z)
	VMAXPS(z, v.r(-80), z)
	VMINPS(z, v.r(88), z)
	v.expm1(z, e)
	VMULPS(v.param(0), e, e)
	VMULPS(v.param(1), x[0], z)
	v.choose(above, x[0], v.r(0), z, e, to)
}

// mappingRows writes the kernel of a mapping of one operand over rows that lie apart, in place: one call for many short ones.
func (s set) mappingRows(m mapping) {
	s.text("map"+m.name+"Rows", "func(rows, columns int, x *float32, ldx int, p0, p1, p2 float32)", "computes rows; see mappingRows.")
	v := &vec{set: s, keep: 11}
	x := rowsAt("x")
	v.eachRow([]pitched{x}, nothing, func(i reg.Register) {
		was := v.temps
		from, to := v.t(), v.t()
		v.load(x.vector(i), from)
		m.body(v, vecs{from}, to)
		v.store(to, x.vector(i))
		v.temps = was
	}, nothing)
}

// gate: to = min(max(x + 3, 0), 6).
func (v *vec) gate(x, to reg.VecPhysical) {
	VADDPS(v.c(3), x, to)
	VMAXPS(to, v.r(0), to)
	VMINPS(to, v.r(6), to)
}
