package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/optimem/optimem/internal/cpu/kernel/_generate/bodies"
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
	{"Exp", 1, 1, func(v *vec, x vecs, to reg.VecPhysical) { bodies.Exp(on(v), x[0], to, 89) }},
	{"Tanh", 1, 1, func(v *vec, x vecs, to reg.VecPhysical) { bodies.Tanh(on(v), x[0], to) }},
	{"Sigmoid", 1, 1, func(v *vec, x vecs, to reg.VecPhysical) { bodies.Sigmoid(on(v), x[0], to) }},
	{"Silu", 1, 1, func(v *vec, x vecs, to reg.VecPhysical) {
		bodies.Sigmoid(on(v), x[0], to)
		VMULPS(x[0], to, to)
	}},
	{"Gelu", 1, 1, (*vec).gelu},
	{"GeluTanh", 1, 1, func(v *vec, x vecs, to reg.VecPhysical) { bodies.GeluTanh(on(v), x[0], to) }},
	{"Erf", 1, 1, (*vec).erf},
	{"Mish", 1, 1, func(v *vec, x vecs, to reg.VecPhysical) { bodies.Mish(on(v), x[0], to) }},
	{"Elu", 1, 1, func(v *vec, x vecs, to reg.VecPhysical) { bodies.Elu(on(v), x[0], to) }},
	{"HardSwish", 1, 4, func(v *vec, x vecs, to reg.VecPhysical) {
		bodies.Gate(on(v), x[0], to)
		VMULPS(x[0], to, to)
		VMULPS(v.c(1.0/6), to, to)
	}},
	{"HardSigmoid", 1, 4, func(v *vec, x vecs, to reg.VecPhysical) {
		bodies.Gate(on(v), x[0], to)
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
		bodies.Sigmoid(on(v), x[1], to)
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

// expParts gives n and e^r − 1 for x, which it changes.
func (v *vec) expParts(x reg.VecPhysical) (n, e reg.VecPhysical) {
	n, e = v.t(), v.t()
	VMULPS(v.c(math.Log2E), x, n)
	v.round(0, n, n)
	VFNMADD231PS(v.c(bodies.Ln2High), n, x)
	VFNMADD231PS(v.c(bodies.Ln2Low), n, x)
	v.horner(x, e, bodies.ExpQ...)
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

// erfParts gives erf t where t is small, and 1 − erf t where it is not, for t that is not negative.
func (v *vec) erfParts(t, small, large reg.VecPhysical) {
	was := v.temps
	s := v.t()
	VMINPS(t, v.r(bodies.ErfLarge), small)
	v.horner(small, large, bodies.ErfG...)
	VMULPS(t, t, s)
	VSUBPS(s, large, small)
	bodies.Exp(on(v), small, large, 0)
	v.horner(s, small, bodies.ErfP...)
	VFMADD213PS(t, t, small)
	v.temps = was
}

func (v *vec) erf(x vecs, to reg.VecPhysical) {
	t, small, large := v.t(), v.t(), v.t()
	v.absolute(x[0], t)
	v.erfParts(t, small, large)
	VSUBPS(large, v.r(1), large)
	v.choose(above, t, v.r(bodies.ErfSmall), large, small, to)
	v.sign(x[0], to)
}

// gelu: x times the normal distribution's share below x, which is that beyond |x|, or the rest.
func (v *vec) gelu(x vecs, to reg.VecPhysical) {
	t, s, p := v.t(), v.t(), v.t()
	v.absolute(x[0], t)
	end, zero := v.r(bodies.GeluEnd), v.r(0)
	VMINPS(t, end, s)
	VFMADD213PS(v.c(-1), v.r(2/bodies.GeluEnd), s)
	v.horner(s, p, bodies.GeluQ...)
	v.choose(above, t, end, zero, p, p)
	VSUBPS(p, v.r(1), s)
	v.choose(below, x[0], zero, p, s, p)
	VMULPS(x[0], p, to)
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
