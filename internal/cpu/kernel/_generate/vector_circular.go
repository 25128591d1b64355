package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/optimem/optimem/internal/cpu/kernel/_generate/circle"
)

// circular: to = sin(x + turns·π/2), for x up to 20000.
func (v *vec) circular(turns float64, x, to reg.VecPhysical) {
	n, r, h, s, p, q := v.t(), v.t(), v.t(), v.t(), v.t(), v.t()
	VMULPS(v.c(2/math.Pi), x, n)
	v.round(0, n, n)
	VMOVAPS(x, r)
	for _, piece := range circle.HalfPi {
		VFNMADD231PS(v.c(piece), n, r)
	}
	if turns > 0 {
		VADDPS(v.c(turns), n, n)
	}
	// The quarters modulo 2 say which function it is, in n, and half of them which sign, in h.
	modulo := func(n, half reg.VecPhysical) {
		VMULPS(v.c(0.5), n, half)
		v.round(1, half, half)
		VFNMADD231PS(v.c(2), half, n)
	}
	modulo(n, h)
	modulo(h, s)
	VMULPS(r, r, s)
	v.horner(s, p, circle.SinP...)
	VMULPS(s, p, p)
	VFMADD213PS(r, r, p)
	v.horner(s, q, circle.CosQ...)
	v.choose(above, n, v.r(0.5), q, p, to)
	VMOVAPS(v.r(1), p)
	VFNMADD231PS(v.c(2), h, p)
	VMULPS(p, to, to)
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
func (v *vec) log(x vecs, to reg.VecPhysical) {
	f, e, p, z := v.t(), v.t(), v.t(), v.t()
	zero := v.r(0)
	// Numbers without all their bits are multiplied by 2²³.
	VMULPS(v.c(1<<23), x[0], f)
	v.choose(below, x[0], v.r(leastNormal), f, x[0], f)
	v.choose(below, x[0], v.r(leastNormal), v.r(23), zero, z)
	VPSUBD(v.bits(rootHalf), f, e)
	VPSRAD(Imm(23), e, e)
	VPSLLD(Imm(23), e, p)
	VPSUBD(p, f, f)
	VCVTDQ2PS(e, e)
	VSUBPS(z, e, e)
	VSUBPS(v.c(1), f, f)
	VMULPS(f, f, z)
	v.horner(f, p, logP...)
	VMULPS(z, p, p)
	VMULPS(f, p, p)
	VFMADD231PS(v.c(logLow), e, p)
	VFNMADD231PS(v.c(0.5), z, p)
	VADDPS(f, p, p)
	VFMADD231PS(v.c(logHigh), e, p)
	// −∞ of zero, NaN of what is less and of NaN, ∞ of ∞.
	v.choose(below, x[0], zero, v.r(math.NaN()), v.r(math.Inf(-1)), f)
	v.choose(above, x[0], zero, p, f, to)
	VSUBPS(x[0], x[0], z)
	VADDPS(z, to, to)
	v.choose(above, x[0], v.r(math.MaxFloat32), x[0], to, to)
}
