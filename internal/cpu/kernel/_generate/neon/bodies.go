package main

import (
	"fmt"

	"github.com/optimem/optimem/internal/cpu/kernel/_generate/bodies"
)

var _ bodies.Functions[pair] = arithmetic{}

// arithmetic writes what package bodies computes, with instructions for pairs of registers.
type arithmetic struct{ *vec }

func (w arithmetic) Move(to, from pair)   { w.set(to, from) }
func (w arithmetic) Add(to, a, b pair)    { w.add(to, a, b) }
func (w arithmetic) Sub(to, a, b pair)    { w.sub(to, a, b) }
func (w arithmetic) Mul(to, a, b pair)    { w.mul(to, a, b) }
func (w arithmetic) MulAdd(to, a, b pair) { w.mla(to, a, b) }
func (w arithmetic) MulSub(to, a, b pair) { w.mls(to, a, b) }

func (w arithmetic) Constant(x float64) pair { return w.c(x) }

func (w arithmetic) Temporary() pair  { return w.t() }
func (w arithmetic) Mark() int        { return w.temps }
func (w arithmetic) Release(mark int) { w.temps = mark }

func (w arithmetic) AddConstant(to, a pair, x float64) { w.add(to, a, w.c(x)) }
func (w arithmetic) MinConstant(to, a pair, x float64) { w.min(to, a, w.c(x)) }
func (w arithmetic) MaxConstant(to, a pair, x float64) { w.max(to, a, w.c(x)) }

func (w arithmetic) MulParameter(to, a pair, parameter int) {
	w.mul(to, a, w.param(fmt.Sprint("p", parameter)))
}

func (w arithmetic) Absolute(to, x pair) { w.two(fabsS, to, x) }

func (w arithmetic) NegativeAbsolute(to, x pair) {
	w.two(fabsS, to, x)
	w.two(fnegS, to, to)
}

func (w arithmetic) CopySign(to, x pair)    { w.sign(x, to) }
func (w arithmetic) Quotient(to, a, b pair) { w.div(to, a, b) }

func (w arithmetic) Polynomial(to, x pair, c ...float64) { w.horner(x, to, c...) }

func (w arithmetic) PositiveOr(to, x, yes, no pair) { w.choose(x, w.c(0), yes, no, to) }

func (w arithmetic) NegativeOr(to, x, yes pair, no float64) {
	w.choose(w.c(0), x, yes, w.c(no), to)
}

func (w arithmetic) ExpParts(x pair) (n, e pair) { return w.expParts(x) }
func (w arithmetic) Scale(to, p, n pair)         { w.scale(n, p, to) }
func (w arithmetic) ExpM1(to, x pair)            { w.expm1(x, to) }
