package main

import (
	"math"
	"slices"
)

// vectorFamily writes functions of floats that lie in a row, reductions of a row, and conversions.
func vectorFamily(f *file) {
	for _, m := range mappings {
		mapping(f, m)
	}
	sum(f)
	squares(f)
	extreme(f, "max", math.Inf(-1))
	extreme(f, "min", math.Inf(1))
	expSum(f)
	accumulate(f)
	widen(f, "Float16", f16)
	widen(f, "BFloat16", bf16)
	const signature = "n int, to *uint16, x *float32"
	narrow(f, "narrowFloat16128", signature, "converts from float32; n is a multiple of eight.", f16)
	narrow(f, "narrowBFloat16128", signature, "converts from float32; n is a multiple of eight.", bf16)
	weighted(f)
	addRows(f)
	pause(f)
}

// pause writes a wait that tells the processor that it waits.
func pause(f *file) {
	k := f.kernel("pause", "n int", "waits for n hints to yield.")
	n := k.arg("n")
	k.label("loop")
	k.p("YIELD")
	k.p("SUBS $1, %v, %v", n, n)
	k.p("BGT loop")
	k.ret()
	k.end()
}

// A pair is eight floats: two registers, or the same one twice for a constant.
type pair [2]V

// A vec is a kernel over pairs being written: which registers hold what. Temporaries are taken from the first register
// up; constants and parameters that stay in registers from the last one down, loaded before the loop.
type vec struct {
	*kernel
	temps int // pairs in use for temporaries
	kept  []kept
	table R   // where the constants are
	begin int // the line before which they are loaded
}

// kept is what a register holds all the time: a constant, or a parameter, or that with the other sign.
type kept struct {
	bits    uint32
	param   string
	negated bool
}

// mostTemps is how many pairs of registers are for temporaries.
const mostTemps = 11

// newVec begins what follows the arguments of a kernel.
func newVec(k *kernel) *vec {
	v := &vec{kernel: k, table: k.gp()}
	v.begin = len(k.lines)
	return v
}

// finish loads what stays in registers.
func (v *vec) finish() {
	v.insert(v.begin, func() {
		v.p("MOVD $constants<>(SB), %v", v.table)
		for i, c := range v.kept {
			v.fill(c, V(31-i))
		}
	})
	v.end()
}

// fill loads a constant or a parameter.
func (v *vec) fill(c kept, to V) {
	if c.param == "" {
		v.loadQ(to, v.table, v.f.constant(c.bits))
		return
	}
	v.broadcast(c.param, to)
	if c.negated {
		v.do(fnegS(to, to))
	}
}

// t returns a new temporary.
func (v *vec) t() pair {
	v.temps++
	if v.temps > mostTemps {
		panic(v.name + ": out of registers")
	}
	first := V(2 * (v.temps - 1))
	return pair{first, first + 1}
}

// hold returns something in a register, a temporary if there is no room for it.
func (v *vec) hold(c kept) pair {
	i := slices.Index(v.kept, c)
	if i < 0 {
		if 31-len(v.kept) < 2*mostTemps {
			t := v.t()
			v.fill(c, t[0])
			return pair{t[0], t[0]}
		}
		i = len(v.kept)
		v.kept = append(v.kept, c)
	}
	return pair{V(31 - i), V(31 - i)}
}

// c returns a constant, bits one of bits, param a parameter of the kernel.
func (v *vec) c(x float64) pair         { return v.bits(math.Float32bits(float32(x))) }
func (v *vec) bits(b uint32) pair       { return v.hold(kept{bits: b}) }
func (v *vec) param(name string) pair   { return v.hold(kept{param: name}) }
func (v *vec) negate(param string) pair { return v.hold(kept{param: param, negated: true}) }

// three and two write an instruction for both halves.
func (v *vec) three(i func(d, n, m V) instruction, to, x, y pair) {
	for h := range to {
		v.do(i(to[h], x[h], y[h]))
	}
}

func (v *vec) two(i func(d, n V) instruction, to, x pair) {
	for h := range to {
		v.do(i(to[h], x[h]))
	}
}

func (v *vec) shift(i func(d, n V, bits int) instruction, to, x pair, bits int) {
	for h := range to {
		v.do(i(to[h], x[h], bits))
	}
}

// goes writes an instruction of Go's assembler for both halves: to = x op y.
func (v *vec) goes(op, lanes string, to, x, y pair) {
	for h := range to {
		v.p("%s %v.%s, %v.%s, %v.%s", op, y[h], lanes, x[h], lanes, to[h], lanes)
	}
}

func (v *vec) add(to, x, y pair)  { v.three(faddS, to, x, y) }
func (v *vec) sub(to, x, y pair)  { v.three(fsubS, to, x, y) }
func (v *vec) mul(to, x, y pair)  { v.three(fmulS, to, x, y) }
func (v *vec) div(to, x, y pair)  { v.three(fdivS, to, x, y) }
func (v *vec) max(to, x, y pair)  { v.three(fmaxS, to, x, y) }
func (v *vec) min(to, x, y pair)  { v.three(fminS, to, x, y) }
func (v *vec) mla(to, x, y pair)  { v.three(fmlaS, to, x, y) }
func (v *vec) mls(to, x, y pair)  { v.three(fmlsS, to, x, y) }
func (v *vec) mask(to, x, y pair) { v.goes("VAND", "B16", to, x, y) }

// set copies.
func (v *vec) set(to, from pair) {
	for h := range to {
		if to[h] != from[h] {
			v.move(from[h], to[h])
		}
	}
}

// load and store move eight floats.
func (v *vec) load(to pair, from R) { v.loadQQ(to[0], to[1], from, 0) }
func (v *vec) store(x pair, to R)   { v.storeQQ(x[0], x[1], to, 0) }

// choose: to = yes where a > b, else no.
func (v *vec) choose(a, b, yes, no, to pair) {
	was := v.temps
	m := v.t()
	v.three(fcmgtS, m, a, b)
	v.pick(m, yes, no, to)
	v.temps = was
}

// pick: to = yes where the bits of m are set, else no. It changes m.
func (v *vec) pick(m, yes, no, to pair) {
	switch to {
	case no:
		v.goes("VBIT", "B16", to, yes, m)
	case yes:
		v.goes("VBIF", "B16", to, no, m)
	default:
		v.goes("VBSL", "B16", m, yes, no)
		v.set(to, m)
	}
}

// sign: to = to with the sign of x; to is not negative.
func (v *vec) sign(x, to pair) {
	v.goes("VBIT", "B16", to, x, v.bits(1<<31))
}

// horner: to = ((c[n]·x + c[n−1])·x + …)·x + c[0].
func (v *vec) horner(x, to pair, c ...float64) {
	was := v.temps
	other := v.t()
	n := len(c) - 1
	// The result of the last step is in to.
	at, next := to, other
	if n%2 == 1 {
		at, next = other, to
	}
	load := func(x float64, to pair) {
		for _, h := range to {
			v.loadQ(h, v.table, v.f.constant(math.Float32bits(float32(x))))
		}
	}
	load(c[n], at)
	for i := n - 1; i >= 0; i-- {
		load(c[i], next)
		v.mla(next, at, x)
		at, next = next, at
	}
	v.temps = was
}
