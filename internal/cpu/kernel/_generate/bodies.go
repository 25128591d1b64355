package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/reg"

	"github.com/optimem/optimem/internal/cpu/kernel/_generate/bodies"
)

var _ bodies.Functions[reg.VecPhysical] = arithmetic{}

// arithmetic writes what package bodies computes, with instructions for a set's vectors. Operands are in the order of Intel's
// notation backwards: what is written to comes last, and of smaller and larger the one that counts where it is NaN first.
type arithmetic struct {
	*vec
	// held are the registers of constants for bodies that are given these before they begin.
	held map[float64]reg.VecPhysical
}

// on returns what writes bodies with a kernel's temporaries and constants.
func on(v *vec) arithmetic { return arithmetic{vec: v} }

func (arithmetic) Move(to, from reg.VecPhysical)   { VMOVAPS(from, to) }
func (arithmetic) Add(to, a, b reg.VecPhysical)    { VADDPS(b, a, to) }
func (arithmetic) Sub(to, a, b reg.VecPhysical)    { VSUBPS(b, a, to) }
func (arithmetic) Mul(to, a, b reg.VecPhysical)    { VMULPS(b, a, to) }
func (arithmetic) MulAdd(to, a, b reg.VecPhysical) { VFMADD231PS(b, a, to) }
func (arithmetic) MulSub(to, a, b reg.VecPhysical) { VFNMADD231PS(b, a, to) }

func (w arithmetic) Constant(x float64) reg.VecPhysical {
	if r, ok := w.held[x]; ok {
		return r
	}
	return w.r(x)
}

func (w arithmetic) Temporary() reg.VecPhysical { return w.t() }
func (w arithmetic) Mark() int                  { return w.temps }
func (w arithmetic) Release(mark int)           { w.temps = mark }

func (w arithmetic) AddConstant(to, a reg.VecPhysical, x float64) { VADDPS(w.c(x), a, to) }
func (w arithmetic) MinConstant(to, a reg.VecPhysical, x float64) { VMINPS(a, w.r(x), to) }
func (w arithmetic) MaxConstant(to, a reg.VecPhysical, x float64) { VMAXPS(a, w.r(x), to) }

func (w arithmetic) MulParameter(to, a reg.VecPhysical, parameter int) {
	VMULPS(w.param(parameter), a, to)
}

func (w arithmetic) Absolute(to, x reg.VecPhysical)         { w.absolute(x, to) }
func (w arithmetic) NegativeAbsolute(to, x reg.VecPhysical) { VORPS(w.bits(1<<31), x, to) }
func (w arithmetic) CopySign(to, x reg.VecPhysical)         { w.sign(x, to) }
func (w arithmetic) Quotient(to, a, b reg.VecPhysical)      { w.quotient(a, b, to) }

func (w arithmetic) Polynomial(to, x reg.VecPhysical, c ...float64) { w.horner(x, to, c...) }

func (w arithmetic) PositiveOr(to, x, yes, no reg.VecPhysical) {
	w.choose(above, x, w.r(0), yes, no, to)
}

func (w arithmetic) NegativeOr(to, x, yes reg.VecPhysical, no float64) {
	w.choose(below, x, w.r(0), yes, w.r(no), to)
}

func (w arithmetic) ExpParts(x reg.VecPhysical) (n, e reg.VecPhysical) { return w.expParts(x) }
func (w arithmetic) Scale(to, p, n reg.VecPhysical)                    { w.scale(n, p, to) }
func (w arithmetic) ExpM1(to, x reg.VecPhysical)                       { w.expm1(x, to) }
