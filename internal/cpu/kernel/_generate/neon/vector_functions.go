package main

import (
	"math"

	"github.com/optimem/optimem/internal/cpu/kernel/_generate/bodies"
)

// expParts gives n and e^r − 1 for x, which it changes.
func (v *vec) expParts(x pair) (n, e pair) {
	n, e = v.t(), v.t()
	v.mul(n, x, v.c(math.Log2E))
	v.two(frintnS, n, n)
	v.mls(x, n, v.c(bodies.Ln2High))
	v.mls(x, n, v.c(bodies.Ln2Low))
	was := v.temps
	q := v.t()
	v.horner(x, q, bodies.ExpQ...)
	v.mul(q, q, x)
	v.set(e, x)
	v.mla(e, q, x)
	v.temps = was
	return n, e
}

// power: to = 2^n for whole n, as bits of an exponent.
func (v *vec) power(n, to pair) {
	v.shift(shlS, to, n, 23)
	v.goes("VADD", "S4", to, to, v.c(1))
}

// scale: to = p·2^n for whole n, rounded once where the result has not all its bits. It changes n.
func (v *vec) scale(n, p, to pair) {
	was := v.temps
	half := v.t()
	v.two(fcvtnsS, n, n)
	v.shift(sshrS, half, n, 1)
	v.goes("VSUB", "S4", n, n, half)
	v.power(n, n)
	v.power(half, half)
	v.mul(to, p, half)
	v.mul(to, to, n)
	v.temps = was
}

// expm1: to = e^x − 1 for x between −80 and 88. It changes x.
func (v *vec) expm1(x, to pair) {
	was := v.temps
	n, e := v.expParts(x)
	v.two(fcvtnsS, n, n)
	v.power(n, n)
	v.sub(to, n, v.c(1))
	v.mla(to, e, n)
	v.temps = was
}

func (v *vec) erf(x []pair, to pair) {
	t, small, large, s := v.t(), v.t(), v.t(), v.t()
	v.two(fabsS, t, x[0])
	v.min(small, t, v.c(bodies.ErfLarge))
	v.horner(small, large, bodies.ErfG...)
	v.mul(s, t, t)
	v.sub(small, large, s)
	bodies.Exp(arithmetic{v}, small, large, 0)
	v.sub(large, v.c(1), large)
	q := v.t()
	v.horner(s, q, bodies.ErfP...)
	v.set(small, t)
	v.mla(small, q, t)
	v.choose(t, v.c(bodies.ErfSmall), large, small, to)
	v.sign(x[0], to)
}

// gelu: x times the normal distribution's share below x, which is that beyond |x|, or the rest.
func (v *vec) gelu(x []pair, to pair) {
	t, s, p := v.t(), v.t(), v.t()
	v.two(fabsS, t, x[0])
	end, zero := v.c(bodies.GeluEnd), v.c(0)
	v.min(to, t, end)
	v.set(s, v.c(-1))
	v.mla(s, to, v.c(2/bodies.GeluEnd))
	v.horner(s, p, bodies.GeluQ...)
	v.choose(t, end, zero, p, p)
	v.sub(s, v.c(1), p)
	v.choose(zero, x[0], p, s, p)
	v.mul(to, p, x[0])
}
