package main

import "math"

// The exponential is 2^n·(1 + r + r²·q(r)) for x = n·ln 2 + r; q is a minimax polynomial.
var expQ = []float64{
	0.4999999701976776, 0.1666654348373413, 0.04166720062494278, 0.008366547524929047, 0.0013882514322176576,
}

// ln2High and ln2Low are ln 2 in two floats.
var (
	ln2High = float64(float32(math.Ln2))
	ln2Low  = math.Ln2 - ln2High
)

// expParts gives n and e^r − 1 for x, which it changes.
func (v *vec) expParts(x pair) (n, e pair) {
	n, e = v.t(), v.t()
	v.mul(n, x, v.c(math.Log2E))
	v.two(frintnS, n, n)
	v.mls(x, n, v.c(ln2High))
	v.mls(x, n, v.c(ln2Low))
	was := v.temps
	q := v.t()
	v.horner(x, q, expQ...)
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

// exp: to = e^x for x not above high, which is 0 if x is not positive.
func (v *vec) exp(x, to pair, high float64) {
	was := v.temps
	v.max(to, x, v.c(-104.5))
	if high != 0 {
		v.min(to, to, v.c(high))
	}
	n, e := v.expParts(to)
	v.add(e, e, v.c(1))
	v.scale(n, e, to)
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

// sigmoid: to = 1 ÷ (1 + e^−x), as e^x ÷ (1 + e^x) for negative x.
func (v *vec) sigmoid(x, to pair) {
	was := v.temps
	e, d := v.t(), v.t()
	v.two(fabsS, d, x)
	v.two(fnegS, d, d)
	v.exp(d, e, 0)
	v.add(d, e, v.c(1))
	v.choose(v.c(0), x, e, v.c(1), e)
	v.div(to, e, d)
	v.temps = was
}

func (v *vec) tanh(x []pair, to pair) {
	z := v.t()
	v.two(fabsS, z, x[0])
	v.add(z, z, z)
	v.min(z, z, v.c(20))
	e, d := v.t(), v.t()
	v.expm1(z, e)
	v.add(d, e, v.c(2))
	v.div(to, e, d)
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
	-0.002802574075758457, 0.00022584979988051748, -7.96445419837255e-06,
}

func (v *vec) erf(x []pair, to pair) {
	t, small, large, s := v.t(), v.t(), v.t(), v.t()
	v.two(fabsS, t, x[0])
	v.min(small, t, v.c(erfLarge))
	v.horner(small, large, erfG...)
	v.mul(s, t, t)
	v.sub(small, large, s)
	v.exp(small, large, 0)
	v.sub(large, v.c(1), large)
	q := v.t()
	v.horner(s, q, erfP...)
	v.set(small, t)
	v.mla(small, q, t)
	v.choose(t, v.c(erfSmall), large, small, to)
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
func (v *vec) gelu(x []pair, to pair) {
	t, s, p := v.t(), v.t(), v.t()
	v.two(fabsS, t, x[0])
	end, zero := v.c(geluEnd), v.c(0)
	v.min(to, t, end)
	v.set(s, v.c(-1))
	v.mla(s, to, v.c(2/geluEnd))
	v.horner(s, p, geluQ...)
	v.choose(t, end, zero, p, p)
	v.sub(s, v.c(1), p)
	v.choose(zero, x[0], p, s, p)
	v.mul(to, p, x[0])
}

// geluTanh: x/2·(1 + tanh(√(2/π)·(x + 0.044715x³))) as x times a sigmoid.
func (v *vec) geluTanh(x []pair, to pair) {
	const scale = 2 * math.Sqrt2 / math.SqrtPi
	z, w := v.t(), v.t()
	v.mul(z, x[0], x[0])
	v.horner(z, w, scale, 0.044715*scale)
	v.mul(w, w, x[0])
	v.sigmoid(w, to)
	v.mul(to, to, x[0])
}

// mish: x·tanh(log(1 + e^x)), which is x·n ÷ (n + 2) for n = e^x·(e^x + 2).
func (v *vec) mish(x []pair, to pair) {
	z, n := v.t(), v.t()
	v.min(z, x[0], v.c(20))
	v.exp(z, n, 20)
	v.add(z, n, v.c(2))
	v.mul(n, n, z)
	v.add(z, n, v.c(2))
	v.div(to, n, z)
	v.mul(to, to, x[0])
}

// elu: x·p1 for positive x, else p0·(e^(x·p2) − 1).
func (v *vec) elu(x []pair, to pair) {
	z, e := v.t(), v.t()
	v.mul(z, x[0], v.param("p2"))
	v.max(z, z, v.c(-80))
	v.min(z, z, v.c(88))
	v.expm1(z, e)
	v.mul(e, e, v.param("p0"))
	v.mul(z, x[0], v.param("p1"))
	v.choose(x[0], v.c(0), z, e, to)
}

// gate: to = min(max(x + 3, 0), 6).
func (v *vec) gate(x, to pair) {
	v.add(to, x, v.c(3))
	v.max(to, to, v.c(0))
	v.min(to, to, v.c(6))
}
