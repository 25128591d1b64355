package elementwise

import "math"

// Functions of float32 that networks spend their time in. They compute in float64, whose precision is to spare, and
// round once: the error is that of the rounding. Products are converted where they are added to, so that no compiler
// fuses the two and results are the same on every processor.

// exp2Table holds 2^(i/64).
var exp2Table = func() (t [64]float64) {
	for i := range t {
		t[i] = math.Exp2(float64(i) / 64)
	}
	return t
}()

const (
	// roundBias makes a float64 an integer in its low bits when it is added.
	roundBias = 3 << 51
	perLn2    = 64 / math.Ln2
	ln2Part   = math.Ln2 / 64
)

// expWide returns e^x with a relative error below 1e-10, and 0 or infinity for |x| > 700. x must not be NaN.
func expWide(x float64) float64 {
	if x > 700 {
		return math.Inf(1)
	}
	if x < -700 {
		return 0
	}
	// x = k × ln2/64 + r with |r| ≤ ln2/128, so e^x = 2^(k/64) × e^r.
	shifted := float64(x*perLn2) + roundBias
	k := int64(math.Float64bits(shifted)) << 13 >> 13 // the low 51 bits as a signed integer
	r := x - float64((shifted-roundBias)*ln2Part)
	e := 1 + float64(r*(1+float64(r*(0.5+float64(r*(1.0/6))))))
	scale := math.Float64frombits(uint64(k>>6+1023) << 52)
	return exp2Table[k&63] * e * scale
}

// exp32 returns e^x.
func exp32(x float32) float32 {
	if x != x {
		return x
	}
	return float32(expWide(float64(x)))
}

// sigmoid32 returns 1 / (1 + e^-x).
func sigmoid32(x float32) float32 {
	if x != x {
		return x
	}
	return float32(1 / (1 + expWide(-float64(x))))
}

// tanhWide returns tanh x with a relative error below 1e-8. x must not be NaN.
func tanhWide(x float64) float64 {
	if x < 0.1 && x > -0.1 {
		s := x * x
		return x * (1 + float64(s*(-1.0/3+float64(s*(2.0/15-float64(s*(17.0/315)))))))
	}
	return 1 - 2/(1+expWide(2*x))
}

// tanh32 returns tanh x.
func tanh32(x float32) float32 {
	if x != x {
		return x
	}
	return float32(tanhWide(float64(x)))
}

// erf is a polynomial of degree 5 in each of erfParts equal parts of [0, erfEnd): Taylor's, around the middle. From
// erfEnd on, erf is 1 to float64's precision.
const (
	erfEnd   = 6
	erfParts = 16 * erfEnd
)

var erfTable = func() (t [erfParts][6]float64) {
	for i := range t {
		x := (float64(i) + 0.5) * erfEnd / erfParts
		// The derivatives of erf are its first times Hermite polynomials.
		d := 2 / math.SqrtPi * math.Exp(-x*x)
		t[i] = [6]float64{
			math.Erf(x), d, d * -x, d * (2*x*x - 1) / 3, d * (3*x - 2*x*x*x) / 6, d * (4*x*x*x*x - 12*x*x + 3) / 30,
		}
	}
	return t
}()

// erfWide returns erf x with an absolute error below 1e-9, and a relative one below 1e-8 near zero. x must not be NaN.
func erfWide(x float64) float64 {
	a := math.Abs(x)
	if a < 0.1 {
		s := x * x
		return 2 / math.SqrtPi * x * (1 + float64(s*(-1.0/3+float64(s*(0.1-float64(s*(1.0/42)))))))
	}
	if a >= erfEnd {
		return math.Copysign(1, x)
	}
	i := int(a * (erfParts / erfEnd))
	t := &erfTable[i]
	h := a - (float64(i)+0.5)*(1.0*erfEnd/erfParts)
	y := t[0] + float64(h*(t[1]+float64(h*(t[2]+float64(h*(t[3]+float64(h*(t[4]+float64(h*t[5])))))))))
	return math.Copysign(y, x)
}

// erf32 returns the error function of x.
func erf32(x float32) float32 {
	if x != x {
		return x
	}
	return float32(erfWide(float64(x)))
}

// gelu32 returns x × Φ(x), Φ the distribution function of the normal distribution.
func gelu32(x float32) float32 {
	if x != x {
		return x
	}
	w := float64(x)
	return float32(w * 0.5 * (1 + erfWide(w*(math.Sqrt2/2))))
}

// tanhGelu is gelu with Φ(x) approximated by a hyperbolic tangent.
func tanhGelu(x float64) float64 {
	return 0.5 * x * (1 + math.Tanh(geluInner(x)))
}

// geluInner returns √(2/π) × (x + 0.044715 x³).
func geluInner(x float64) float64 {
	const scale = math.Sqrt2 / math.SqrtPi
	return scale * (x + float64(0.044715*x*x*x))
}

func tanhGelu32(x float32) float32 {
	if x != x {
		return x
	}
	w := float64(x)
	return float32(0.5 * w * (1 + tanhWide(geluInner(w))))
}

// silu32 returns x × sigmoid(x).
func silu32(x float32) float32 {
	if x != x {
		return x
	}
	w := float64(x)
	return float32(w / (1 + expWide(-w)))
}

// mish32 returns x × tanh(log(1 + e^x)).
func mish32(x float32) float32 {
	if x != x {
		return x
	}
	// tanh(log(1 + u)) is (u² + 2u) / (u² + 2u + 2).
	w := float64(x)
	if w > 40 {
		return x
	}
	u := expWide(w)
	n := u * (u + 2)
	return float32(w * n / (n + 2))
}

func sigmoid64(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

func silu64(x float64) float64 { return x / (1 + math.Exp(-x)) }

func gelu64(x float64) float64 { return x * 0.5 * (1 + math.Erf(x*(math.Sqrt2/2))) }

func mish64(x float64) float64 { return x * math.Tanh(math.Log1p(math.Exp(x))) }

// sinc returns sin(πx) / πx. The product is rounded to T: at integers the result is what the rounding leaves.
func sinc[T floatNumber](x T) T {
	if x == 0 {
		return 1
	}
	p := T(math.Pi) * x
	return T(math.Sin(float64(p)) / float64(p))
}

// digamma returns the derivative of log Γ, as PyTorch defines it at the poles: ±∞ at ±0, NaN at negative integers.
func digamma(x float64) float64 {
	if x == 0 {
		return math.Copysign(math.Inf(1), -x)
	}
	result := 0.0
	if x < 0 {
		if x == math.Trunc(x) {
			return math.NaN()
		}
		_, frac := math.Modf(x)
		result = -math.Pi / math.Tan(math.Pi*frac)
		x = 1 - x
	}
	for x < 10 {
		result -= 1 / x
		x++
	}
	if x == 10 {
		return result + 2.25175258906672110764
	}
	y := 0.0
	if x < 1e17 {
		z := 1 / (x * x)
		y = z * (1.0/12 - z*(1.0/120-z*(1.0/252-z*(1.0/240-z*(1.0/132-z*(691.0/32760-z/12))))))
	}
	return result + math.Log(x) - 0.5/x - y
}

func lgamma(x float64) float64 {
	if math.IsInf(x, -1) {
		return math.Inf(1)
	}
	y, _ := math.Lgamma(x)
	return y
}

// normalCDF returns Φ(x).
func normalCDF(x float64) float64 { return 0.5 * math.Erfc(-x*(math.Sqrt2/2)) }
