package elementwise

import (
	"math"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
)

// specialKernels are functions of torch.special that few networks use. They compute in float64.
var specialKernels = map[graph.Kind]ops.Kernel{
	// −x log x, 0 at 0 and −∞ below.
	"entr": fixed(real1(func(x float64) float64 {
		switch {
		case x == 0:
			return 0
		case x < 0:
			return math.Inf(-1)
		}
		return -x * math.Log(x)
	})),
	// e^(x²) × erfc x.
	"erfcx": fixed(real1(erfcx)),
	// log Φ(x) and the inverse of Φ, the distribution function of the normal distribution.
	"log_ndtr": fixed(real1(logNormalCDF)),
	"ndtri":    fixed(real1(normalQuantile)),
	// Bessel functions of the first and second kind; in terms of sin and cos for spherical_bessel_j0.
	"bessel_j0": fixed(real1(math.J0)), "bessel_j1": fixed(real1(math.J1)),
	"bessel_y0": fixed(real1(math.Y0)), "bessel_y1": fixed(real1(math.Y1)),
	"spherical_bessel_j0": fixed(real1(sphericalJ0)),
	// Modified Bessel functions of the first kind; i0e and i1e times e^−|x|.
	"i0": fixed(real1(func(x float64) float64 { return unscaled(x, besselI0e(x)) })), "i0e": fixed(real1(besselI0e)),
	"i1": fixed(real1(func(x float64) float64 { return unscaled(x, besselI1e(x)) })), "i1e": fixed(real1(besselI1e)),
	// Σ (q + k)^−s over all k ≥ 0, of In[0] = s and In[1] = q.
	"zeta": fixed(real2(zeta)),
	// The derivative of digamma.
	"trigamma": fixed(real1(trigamma)),
	// a × log(1 + b), 0 where a is 0 and b not NaN.
	"xlog1py": fixed(real2(func(a, b float64) float64 {
		if a == 0 && b == b {
			return 0
		}
		return a * math.Log1p(b)
	})),
}

func erfcx(x float64) float64 {
	if x < 25 {
		return math.Exp(x*x) * math.Erfc(x)
	}
	// The asymptotic series, of which the terms left out are below the precision.
	s := 1 / (2 * x * x)
	return 1 / (x * math.Sqrt(math.Pi)) * (1 - s*(1-s*(3-s*15)))
}

func logNormalCDF(x float64) float64 {
	t := x * (1 / math.Sqrt2)
	if x < -1 {
		return math.Log(erfcx(-t)/2) - t*t
	}
	return math.Log1p(-math.Erfc(t) / 2)
}

// normalQuantile solves log Φ(x) = log p by Newton's method, for the half below the median.
func normalQuantile(p float64) float64 {
	switch {
	case !(p >= 0 && p <= 1):
		return math.NaN()
	case p == 0 || p == 1:
		return math.Inf(int(2*p - 1))
	case p > 0.5:
		return -normalQuantile(1 - p)
	}
	goal := math.Log(p)
	x := -math.Sqrt(-2 * goal)
	if p > 1e-3 {
		x = math.Sqrt2 * math.Erfinv(2*p-1)
	}
	for range 12 {
		step := (logNormalCDF(x) - goal) * math.Sqrt(math.Pi/2) * erfcx(-x/math.Sqrt2)
		x -= step
		if math.Abs(step) <= 1e-16*math.Abs(x) {
			break
		}
	}
	return x
}

func sphericalJ0(x float64) float64 {
	if math.IsInf(x, 0) {
		return 0
	}
	if s := x * x; s < 0.25 {
		return 1 - s/6*(1-s/20*(1-s/42*(1-s/72*(1-s/110*(1-s/156)))))
	}
	return math.Sin(x) / x
}

// besselEnd is where the asymptotic series of the modified Bessel functions has the precision of float64.
const besselEnd = 30

// besselI0e: e^−|x| Σ (x²/4)^k / k!².
func besselI0e(x float64) float64 {
	x = math.Abs(x)
	if x > besselEnd {
		return besselTail(x, 0)
	}
	sum, term := 1.0, 1.0
	for k := 1.0; term > 1e-17*sum; k++ {
		term *= x * x / 4 / (k * k)
		sum += term
	}
	return sum * math.Exp(-x)
}

// besselI1e: e^−|x| Σ (x/2)^(2k+1) / (k! (k+1)!).
func besselI1e(x float64) float64 {
	a := math.Abs(x)
	if a > besselEnd {
		return math.Copysign(besselTail(a, 4), x)
	}
	sum, term := 1.0, 1.0
	for k := 1.0; term > 1e-17*sum; k++ {
		term *= a * a / 4 / (k * (k + 1))
		sum += term
	}
	return x / 2 * sum * math.Exp(-a)
}

// besselTail is the asymptotic series of e^−x I(x) for a large x, where mu is four times the order squared.
func besselTail(x, mu float64) float64 {
	if math.IsInf(x, 1) {
		return 0
	}
	sum, term := 1.0, 1.0
	for k := 1.0; k < 30; k++ {
		odd := 2*k - 1
		term *= (odd*odd - mu) / (8 * x * k)
		sum += term
	}
	return sum / math.Sqrt(2*math.Pi*x)
}

// unscaled returns y × e^|x|, whose factor alone may be too large.
func unscaled(x, y float64) float64 {
	if math.IsInf(x, 0) {
		return math.Copysign(math.Inf(1), y*x*x)
	}
	half := math.Exp(math.Abs(x) / 2)
	return y * half * half
}

// bernoulli holds B(2j) / (2j)!.
var bernoulli = [...]float64{
	1.0 / 12, -1.0 / 720, 1.0 / 30240, -1.0 / 1209600, 1.0 / 47900160, -691.0 / 1307674368000, 1.0 / 74724249600,
	-3617.0 / 10670622842880000,
}

// zeta sums ten terms and the rest by Euler and Maclaurin's formula. What is not defined is as PyTorch has it.
func zeta(s, q float64) float64 {
	switch {
	case s == 1:
		return math.Inf(1)
	case !(s > 1) || q != q:
		return math.NaN()
	case q <= 0 && q == math.Floor(q):
		return math.Inf(1)
	case q <= 0 && s != math.Floor(s):
		return math.NaN()
	case math.IsInf(q, 1):
		return 0
	}
	sum := 0.0
	for n := 0; n < 10 || q < 10; n++ {
		term := math.Pow(q, -s)
		sum += term
		if q > 0 && math.Abs(term) < 1e-17*math.Abs(sum) || math.IsInf(sum, 0) {
			return sum
		}
		if n > 1<<12 { // far below zero the terms before do not count
			q = math.Mod(q, 1) + 10
			break
		}
		q++
	}
	power := math.Pow(q, -s)
	sum += power*q/(s-1) + power/2
	factor := s * power / q
	for j, b := range bernoulli {
		sum += b * factor
		k := 2*float64(j) + 1
		factor *= (s + k) * (s + k + 1) / (q * q)
	}
	return sum
}

func trigamma(x float64) float64 {
	if x < 0.5 {
		// The reflection: π² / sin²(πx) less the function at 1 − x.
		s := math.Sin(math.Pi * x)
		return math.Pi*math.Pi/(s*s) - zeta(2, 1-x)
	}
	return zeta(2, x)
}
