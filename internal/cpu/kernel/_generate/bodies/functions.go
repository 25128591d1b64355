package bodies

import "math"

// Exp2 is a minimax polynomial of 2^f for f between 0 and 1, with a relative error of 2e-9.
var Exp2 = []float64{
	1, 0.6931470036506653, 0.24022983014583588, 0.055483341217041016, 0.009678840637207031, 0.0012439688434824347,
	0.00021702254889532924,
}

// ExpQ: the exponential is 2^n·(1 + r + r²·q(r)) for x = n·ln 2 + r, where q is this minimax polynomial.
var ExpQ = []float64{
	0.4999999701976776, 0.1666654348373413, 0.04166720062494278, 0.008366547524929047, 0.0013882514322176576,
}

// Ln2High and Ln2Low are ln 2 in two floats.
var (
	Ln2High = float64(float32(math.Ln2))
	Ln2Low  = math.Ln2 - Ln2High
)

// The error function is t + t·p(t²) for small t, and 1 − e^(g(t) − t²) for others: minimax polynomials.
const (
	ErfSmall = 0.85
	ErfLarge = 6 // where g ends; 1 − erf is below 1e-16
)

var (
	ErfP = []float64{
		0.12837916612625122, -0.3761257231235504, 0.11282717436552048, -0.02680254727602005, 0.005051094572991133,
		-0.0006315127247944474,
	}
	ErfG = []float64{
		-0.0013177795335650444, -1.1232751607894897, 0.35606181621551514, -0.09884492307901382, 0.02035551518201828,
		-0.002802574075758457, 0.00022584979988051748, -7.96445419837255e-06,
	}
)

// The normal distribution's share beyond t, for t up to GeluEnd, is a polynomial, GeluQ, of t scaled to between −1 and 1, with
// an error below 1.3e-7 ÷ max(1, 2t). Farther away less than 5e-9 is left.
const GeluEnd = 5.75

var GeluQ = []float64{
	0.0020201371517032385, -0.018395010381937027, 0.07602190971374512, -0.1840915083885193, 0.27570000290870667,
	-0.22789674997329712, 0.010038059204816818, 0.2149931788444519, -0.23137789964675903, 0.030407890677452087,
	0.14784380793571472, -0.1129532977938652, -0.02290484867990017, 0.059256717562675476, -0.01166217215359211,
	-0.01132128480821848, 0.00432105828076601,
}

// Exp: to = e^x for x not above high, which is 0 if x is not positive.
func Exp[R any](a Functions[R], x, to R, high float64) {
	mark := a.Mark()
	a.MaxConstant(to, x, -104.5)
	if high != 0 {
		a.MinConstant(to, to, high)
	}
	n, e := a.ExpParts(to)
	a.AddConstant(e, e, 1)
	a.Scale(to, e, n)
	a.Release(mark)
}

// Sigmoid: to = 1 ÷ (1 + e^−x), as e^x ÷ (1 + e^x) for negative x.
func Sigmoid[R any](a Functions[R], x, to R) {
	mark := a.Mark()
	e, d := a.Temporary(), a.Temporary()
	a.NegativeAbsolute(d, x)
	Exp(a, d, e, 0)
	a.AddConstant(d, e, 1)
	a.NegativeOr(e, x, e, 1)
	a.Quotient(to, e, d)
	a.Release(mark)
}

// Tanh is n ÷ (n + 2) for n = e^2|x| − 1, with the sign of x.
func Tanh[R any](a Functions[R], x, to R) {
	z := a.Temporary()
	a.Absolute(z, x)
	a.Add(z, z, z)
	a.MinConstant(z, z, 20)
	e, d := a.Temporary(), a.Temporary()
	a.ExpM1(e, z)
	a.AddConstant(d, e, 2)
	a.Quotient(to, e, d)
	a.CopySign(to, x)
}

// GeluTanh: x/2·(1 + tanh(√(2/π)·(x + 0.044715x³))) as x times a sigmoid.
func GeluTanh[R any](a Functions[R], x, to R) {
	const scale = 2 * math.Sqrt2 / math.SqrtPi
	z, w := a.Temporary(), a.Temporary()
	a.Mul(z, x, x)
	a.Polynomial(w, z, scale, 0.044715*scale)
	a.Mul(w, w, x)
	Sigmoid(a, w, to)
	a.Mul(to, to, x)
}

// Mish: x·tanh(log(1 + e^x)), which is x·n ÷ (n + 2) for n = e^x·(e^x + 2).
func Mish[R any](a Functions[R], x, to R) {
	z, n := a.Temporary(), a.Temporary()
	a.MinConstant(z, x, 20)
	Exp(a, z, n, 20)
	a.AddConstant(z, n, 2)
	a.Mul(n, n, z)
	a.AddConstant(z, n, 2)
	a.Quotient(to, n, z)
	a.Mul(to, to, x)
}

// Elu: x·p1 for positive x, else p0·(e^(x·p2) − 1).
func Elu[R any](a Functions[R], x, to R) {
	z, e := a.Temporary(), a.Temporary()
	a.MulParameter(z, x, 2)
	a.MaxConstant(z, z, -80)
	a.MinConstant(z, z, 88)
	a.ExpM1(e, z)
	a.MulParameter(e, e, 0)
	a.MulParameter(z, x, 1)
	a.PositiveOr(to, x, z, e)
}

// Gate: to = min(max(x + 3, 0), 6).
func Gate[R any](a Functions[R], x, to R) {
	a.AddConstant(to, x, 3)
	a.MaxConstant(to, to, 0)
	a.MinConstant(to, to, 6)
}
