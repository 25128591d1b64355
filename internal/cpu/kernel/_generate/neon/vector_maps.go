package main

import (
	"fmt"

	"github.com/optimem/optimem/internal/cpu/kernel/_generate/bodies"
)

// A function is what a kernel computes of the elements at the same place of at most three rows.
type function struct {
	name     string
	operands int
	// unroll is how many times eight elements there are in a turn of the loop.
	unroll int
	// body computes to from x; it may write to x.
	body func(v *vec, x []pair, to pair)
}

var mappings = []function{
	{"Exp", 1, 1, func(v *vec, x []pair, to pair) { bodies.Exp(arithmetic{v}, x[0], to, 89) }},
	{"Tanh", 1, 1, func(v *vec, x []pair, to pair) { bodies.Tanh(arithmetic{v}, x[0], to) }},
	{"Sigmoid", 1, 1, func(v *vec, x []pair, to pair) { bodies.Sigmoid(arithmetic{v}, x[0], to) }},
	{"Silu", 1, 1, func(v *vec, x []pair, to pair) {
		bodies.Sigmoid(arithmetic{v}, x[0], to)
		v.mul(to, to, x[0])
	}},
	{"Gelu", 1, 1, (*vec).gelu},
	{"GeluTanh", 1, 1, func(v *vec, x []pair, to pair) { bodies.GeluTanh(arithmetic{v}, x[0], to) }},
	{"Erf", 1, 1, (*vec).erf},
	{"Mish", 1, 1, func(v *vec, x []pair, to pair) { bodies.Mish(arithmetic{v}, x[0], to) }},
	{"Elu", 1, 1, func(v *vec, x []pair, to pair) { bodies.Elu(arithmetic{v}, x[0], to) }},
	{"HardSwish", 1, 2, func(v *vec, x []pair, to pair) {
		bodies.Gate(arithmetic{v}, x[0], to)
		v.mul(to, to, x[0])
		v.mul(to, to, v.c(1.0/6))
	}},
	{"HardSigmoid", 1, 2, func(v *vec, x []pair, to pair) {
		bodies.Gate(arithmetic{v}, x[0], to)
		v.mul(to, to, v.c(1.0/6))
	}},
	{"Relu", 1, 4, func(v *vec, x []pair, to pair) { v.max(to, x[0], v.c(0)) }},
	{"Clamp", 1, 4, func(v *vec, x []pair, to pair) {
		v.max(to, x[0], v.param("p0"))
		v.min(to, to, v.param("p1"))
	}},
	{"LeakyRelu", 1, 2, func(v *vec, x []pair, to pair) {
		v.mul(to, x[0], v.param("p0"))
		v.choose(x[0], v.c(0), x[0], to, to)
	}},
	{"Neg", 1, 4, func(v *vec, x []pair, to pair) { v.two(fnegS, to, x[0]) }},
	{"Abs", 1, 4, func(v *vec, x []pair, to pair) { v.two(fabsS, to, x[0]) }},
	{"Sqrt", 1, 1, func(v *vec, x []pair, to pair) { v.two(fsqrtS, to, x[0]) }},
	{"Rsqrt", 1, 1, func(v *vec, x []pair, to pair) {
		v.two(fsqrtS, to, x[0])
		v.div(to, v.c(1), to)
	}},
	{"Reciprocal", 1, 1, func(v *vec, x []pair, to pair) { v.div(to, v.c(1), x[0]) }},
	{"Square", 1, 4, func(v *vec, x []pair, to pair) { v.mul(to, x[0], x[0]) }},
	{"Cube", 1, 4, func(v *vec, x []pair, to pair) {
		v.mul(to, x[0], x[0])
		v.mul(to, to, x[0])
	}},
	{"Floor", 1, 4, func(v *vec, x []pair, to pair) { v.two(frintmS, to, x[0]) }},
	{"Ceil", 1, 4, func(v *vec, x []pair, to pair) { v.two(frintpS, to, x[0]) }},
	{"Round", 1, 4, func(v *vec, x []pair, to pair) { v.two(frintnS, to, x[0]) }},
	{"Trunc", 1, 4, func(v *vec, x []pair, to pair) { v.two(frintzS, to, x[0]) }},
	{"Log", 1, 1, (*vec).log},
	{"Sin", 1, 1, func(v *vec, x []pair, to pair) { v.circular(0, x[0], to) }},
	{"Cos", 1, 1, func(v *vec, x []pair, to pair) { v.circular(1, x[0], to) }},
	{"Affine", 1, 2, func(v *vec, x []pair, to pair) {
		v.sub(x[0], x[0], v.param("p0"))
		v.set(to, v.param("p2"))
		v.mla(to, x[0], v.param("p1"))
	}},
	{"Add", 2, 4, func(v *vec, x []pair, to pair) { v.add(to, x[0], x[1]) }},
	{"Sub", 2, 4, func(v *vec, x []pair, to pair) { v.sub(to, x[0], x[1]) }},
	{"Mul", 2, 4, func(v *vec, x []pair, to pair) { v.mul(to, x[0], x[1]) }},
	{"Div", 2, 1, func(v *vec, x []pair, to pair) { v.div(to, x[0], x[1]) }},
	{"AddScaled", 2, 2, func(v *vec, x []pair, to pair) {
		v.set(to, x[0])
		v.mla(to, x[1], v.param("p0"))
	}},
	{"Maximum", 2, 2, func(v *vec, x []pair, to pair) { v.max(to, x[0], x[1]) }},
	{"Minimum", 2, 2, func(v *vec, x []pair, to pair) { v.min(to, x[0], x[1]) }},
	{"Prelu", 2, 2, func(v *vec, x []pair, to pair) {
		v.mul(to, x[0], x[1])
		v.choose(x[0], v.c(0), x[0], to, to)
	}},
	{"Glu", 2, 1, func(v *vec, x []pair, to pair) {
		bodies.Sigmoid(arithmetic{v}, x[1], to)
		v.mul(to, to, x[0])
	}},
	{"AddProduct", 3, 2, func(v *vec, x []pair, to pair) {
		v.mul(to, x[1], v.param("p0"))
		v.mul(to, to, x[2])
		v.add(to, x[0], to)
	}},
	{"Normalize", 3, 2, func(v *vec, x []pair, to pair) {
		v.sub(to, x[0], v.param("p0"))
		v.mul(to, to, v.param("p1"))
		v.mla(x[2], to, x[1])
		v.set(to, x[2])
	}},
	{"Where", 3, 2, func(v *vec, x []pair, to pair) {
		v.three(fcmeqS, to, x[0], v.c(0))
		v.goes("VBSL", "B16", to, x[2], x[1])
	}},
}

// mapping writes the kernel of a function. An operand whose step is 0 is one number. The last elements, if they are fewer
// than eight, are computed in the frame.
func mapping(f *file, m function) {
	k := f.kernel("map"+m.name+"128",
		"n int, to, x0 *float32, step0 int, x1 *float32, step1 int, x2 *float32, step2 int, p0, p1, p2 float32",
		"computes a row; see mapping.")
	n, dst := k.arg("n"), k.arg("to")
	from, step, rooms := make([]R, m.operands), make([]R, m.operands), make([]string, m.operands)
	for i := range from {
		from[i], step[i] = k.arg(fmt.Sprintf("x%d", i)), k.arg(fmt.Sprintf("step%d", i))
		rooms[i] = k.room(32)
		row := fmt.Sprintf("row%d", i)
		k.p("CBNZ %v, %s", step[i], row)
		k.loadAll(0, from[i])
		k.p("MOVD %s, %v", rooms[i], from[i])
		k.storeQQ(0, 0, from[i], 0)
		k.label(row)
	}
	v := newVec(k)
	one := func() {
		was := v.temps
		x := make([]pair, m.operands)
		for i := range x {
			x[i] = v.t()
			v.load(x[i], from[i])
			k.advance(step[i], from[i])
		}
		to := v.t()
		m.body(v, x, to)
		v.store(to, dst)
		k.next(dst, 32)
		v.temps = was
	}
	last := v.newTail()
	if m.unroll > 1 {
		k.label("many")
		k.p("SUBS $%d, %v, %v", 8*m.unroll, n, n)
		k.p("BLT few")
		for range m.unroll {
			one()
		}
		k.p("B many")
		k.label("few")
		k.next(n, 8*m.unroll)
	}
	k.label("loop")
	k.p("SUBS $8, %v, %v", n, n)
	k.p("BLT rest")
	one()
	k.p("B loop")
	k.label("rest")
	k.p("ADDS $8, %v, %v", n, n)
	k.p("BEQ done")
	k.p("MOVD %v, %v", n, last.count)
	for i := range from {
		last.take(from[i], rooms[i], step[i])
	}
	last.begin(dst)
	k.p("MOVD $8, %v", n)
	k.p("B loop")
	k.label("done")
	last.end()
	k.ret()
	v.finish()
}

// A tail is the last elements of a row, fewer than eight: they are copied to the frame, computed there as eight, and
// copied back.
type tail struct {
	v                     *vec
	room                  string
	count, to, left, word R
	source                R
}

// newTail reserves what a tail takes; there is none yet.
func (v *vec) newTail() *tail {
	t := &tail{v: v, room: v.room(32), count: v.gp(), to: v.gp(), left: v.gp(), word: v.gp(), source: v.gp()}
	v.p("MOVD $0, %v", t.count)
	return t
}

// take copies count elements of an operand to a room, and lets the operand point there, if its step is not 0.
func (t *tail) take(from R, room string, step R) {
	v, skip := t.v, t.v.unique("whole")
	v.p("CBZ %v, %s", step, skip)
	v.p("MOVD %v, %v", from, t.source)
	v.p("MOVD %s, %v", room, from)
	t.copy(t.source, from)
	v.p("MOVD %s, %v", room, from)
	v.label(skip)
}

// copy copies count elements; it changes both pointers.
func (t *tail) copy(from, to R) {
	v, loop := t.v, t.v.unique("copy")
	v.p("MOVD %v, %v", t.count, t.left)
	v.label(loop)
	v.p("MOVWU.P 4(%v), %v", from, t.word)
	v.p("MOVW.P %v, 4(%v)", t.word, to)
	v.p("SUBS $1, %v, %v", t.left, t.left)
	v.p("BNE %s", loop)
}

// begin lets the result go to the frame.
func (t *tail) begin(dst R) {
	t.v.p("MOVD %v, %v", dst, t.to)
	t.v.p("MOVD %s, %v", t.room, dst)
}

// end copies the results, if there is a tail.
func (t *tail) end() {
	v := t.v
	v.p("CBZ %v, whole", t.count)
	v.p("MOVD %s, %v", t.room, t.source)
	t.copy(t.source, t.to)
	v.label("whole")
}
