package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/optimem/optimem/internal/cpu/kernel/_generate/bodies"
)

// silu writes x ÷ (1 + e^−x) in place: about two thirds of the instructions of the mapping of that name, with an error
// that is small beside 1 where x is negative, not beside the result. The power is 2^t for t = −x·log₂e, as the polynomial
// of what is above ⌊t⌋. The steps of one vector depend on one another; they are written for several side by side.
func (s set) silu() {
	name := "silu" + s.name
	TEXT(name, NOSPLIT, "func(count int, y *float32)")
	Doc(fmt.Sprintf("%s computes count vectors of %d floats, which lie one behind the other, in place.", name, s.lanes))
	Pragma("noescape")
	count, y := Load(Param("count"), GP64()), Load(Param("y"), GP64())
	held := func(i int, x float64) reg.VecPhysical {
		r := s.vector(s.registers - 1 - i)
		VBROADCASTSS(constants.at(math.Float32bits(float32(x))), r)
		return r
	}
	one, least, scale, low := held(0, 1), held(1, -87), held(2, -math.Log2E), held(3, -126)
	for _, n := range []int{(s.registers - 4) / 4, 1} {
		label := func(what string) string { return fmt.Sprintf("%s_%s_%d", what, name, n) }
		Label(label("more"))
		CMPQ(count, Imm(uint64(n)))
		JL(LabelRef(label("less")))
		s.siluSteps(n, y, one, least, scale, low)
		ADDQ(U32(uint32(4*s.lanes*n)), y)
		SUBQ(Imm(uint64(n)), count)
		JMP(LabelRef(label("more")))
		Label(label("less"))
	}
	s.end()
}

// siluSteps writes the steps for n vectors at y.
func (s set) siluSteps(n int, y reg.Register, one, least, scale, low reg.VecPhysical) {
	// Registers of a vector: x, t, f and the power.
	step := func(body func(x, t, f, e reg.VecPhysical)) {
		for i := range n {
			body(s.vector(4*i), s.vector(4*i+1), s.vector(4*i+2), s.vector(4*i+3))
		}
	}
	at := func(i int) Mem { return Mem{Base: y, Disp: 4 * s.lanes * i} }
	wide := s.lanes == 16
	constant := func(x float64) Mem { return constants.at(math.Float32bits(float32(x))) }
	for i := range n {
		VMAXPS(at(i), least, s.vector(4*i)) // x where it is NaN
	}
	step(func(x, t, _, _ reg.VecPhysical) { VMULPS(scale, x, t) })
	if wide {
		step(func(_, t, f, _ reg.VecPhysical) { VREDUCEPS(Imm(9), t, f) })
	} else {
		step(func(_, t, _, _ reg.VecPhysical) { VMAXPS(t, low, t) })
		step(func(_, t, f, e reg.VecPhysical) {
			VROUNDPS(Imm(9), t, e)
			VSUBPS(e, t, f)
			VCVTPS2DQ(e, t)
		})
	}
	last := len(bodies.Exp2) - 1
	step(func(_, _, _, e reg.VecPhysical) { VBROADCASTSS(constant(bodies.Exp2[last]), e) })
	for k := last - 1; k >= 0; k-- {
		step(func(_, _, f, e reg.VecPhysical) {
			if wide {
				VFMADD213PS_BCST(constant(bodies.Exp2[k]), f, e)
			} else {
				VFMADD213PS(constant(bodies.Exp2[k]), f, e)
			}
		})
	}
	if wide {
		step(func(_, t, _, e reg.VecPhysical) { VSCALEFPS(t, e, e) })
		step(func(_, _, _, e reg.VecPhysical) { VADDPS(one, e, e) })
		step(func(_, t, _, e reg.VecPhysical) { VRCP14PS(e, t) })
		step(func(_, t, f, e reg.VecPhysical) {
			VMOVAPS(one, f)
			VFNMADD231PS(t, e, f)
		})
		step(func(_, t, f, _ reg.VecPhysical) { VFMADD231PS(f, t, t) })
		step(func(x, t, _, _ reg.VecPhysical) { VMULPS(t, x, x) })
	} else {
		step(func(_, t, _, e reg.VecPhysical) {
			VPSLLD(Imm(23), t, t)
			VPADDD(t, e, e)
		})
		step(func(_, _, _, e reg.VecPhysical) { VADDPS(one, e, e) })
		step(func(x, _, _, e reg.VecPhysical) { VDIVPS(e, x, x) })
	}
	for i := range n {
		VMOVUPS(s.vector(4*i), at(i))
	}
}
