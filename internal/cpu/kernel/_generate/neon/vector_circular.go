package main

import (
	"math"

	"github.com/optimem/optimem/internal/cpu/kernel/_generate/circle"
)

// circular: to = sin(x + turns·π/2), for x up to 20000.
func (v *vec) circular(turns float64, x, to pair) {
	n, r, h, s, p, q := v.t(), v.t(), v.t(), v.t(), v.t(), v.t()
	v.mul(n, x, v.c(2/math.Pi))
	v.two(frintnS, n, n)
	v.set(r, x)
	for _, piece := range circle.HalfPi {
		was := v.temps
		v.mls(r, n, v.c(piece))
		v.temps = was
	}
	if turns > 0 {
		v.add(n, n, v.c(turns))
	}
	// The quarters modulo 2 say which function it is, in n, and half of them which sign, in h.
	modulo := func(n, half pair) {
		v.mul(half, n, v.c(0.5))
		v.two(frintmS, half, half)
		v.mls(n, half, v.c(2))
	}
	modulo(n, h)
	modulo(h, s)
	v.mul(s, r, r)
	v.horner(s, q, circle.SinP...)
	v.mul(q, q, s)
	v.set(p, r)
	v.mla(p, q, r)
	v.horner(s, q, circle.CosQ...)
	v.choose(n, v.c(0.5), q, p, to)
	v.set(p, v.c(1))
	v.mls(p, h, v.c(2))
	v.mul(to, to, p)
}

// The logarithm of 1 + f is f − f²/2 + f³·p(f) for f from √½−1 to √2−1: a minimax polynomial.
var logP = []float64{
	3.3333331174e-1, -2.4999993993e-1, 2.0000714765e-1, -1.6668057665e-1, 1.4249322787e-1, -1.2420140846e-1,
	1.1676998740e-1, -1.1514610310e-1, 7.0376836292e-2,
}

const (
	leastNormal = 0x1p-126
	rootHalf    = 0x3f3504f3 // the bits of √½
	// Multiples of logHigh by exponents are exact.
	logHigh = 0.693359375
	logLow  = math.Ln2 - logHigh
)

// log: x is 2^e·(1 + f).
func (v *vec) log(x []pair, to pair) {
	f, e, p, z := v.t(), v.t(), v.t(), v.t()
	step := func(body func()) { // what constants take beyond the registers that stay is free again
		was := v.temps
		body()
		v.temps = was
	}
	// Numbers without all their bits are multiplied by 2²³.
	step(func() { v.mul(f, x[0], v.c(1<<23)) })
	step(func() { v.choose(v.c(leastNormal), x[0], f, x[0], f) })
	step(func() { v.choose(v.c(leastNormal), x[0], v.c(23), v.c(0), z) })
	step(func() { v.goes("VSUB", "S4", e, f, v.bits(rootHalf)) })
	v.shift(sshrS, e, e, 23)
	v.shift(shlS, p, e, 23)
	v.goes("VSUB", "S4", f, f, p)
	v.two(scvtfS, e, e)
	v.sub(e, e, z)
	step(func() { v.sub(f, f, v.c(1)) })
	v.mul(z, f, f)
	v.horner(f, p, logP...)
	v.mul(p, p, z)
	v.mul(p, p, f)
	step(func() { v.mla(p, e, v.c(logLow)) })
	step(func() { v.mls(p, z, v.c(0.5)) })
	v.add(p, p, f)
	step(func() { v.mla(p, e, v.c(logHigh)) })
	// −∞ of zero, NaN of what is less and of NaN, ∞ of ∞.
	step(func() { v.choose(v.c(0), x[0], v.c(math.NaN()), v.c(math.Inf(-1)), f) })
	step(func() { v.choose(x[0], v.c(0), p, f, to) })
	v.sub(z, x[0], x[0])
	v.add(to, to, z)
	step(func() { v.choose(x[0], v.c(math.MaxFloat32), x[0], to, to) })
}
