package aten

import (
	"fmt"
	"math"
)

// windowTargets are the windows of signals.
var windowTargets = func() []atenOp {
	const made = ", *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor"
	// Numbers run from 0 to 1 over a window.
	cosines := func(terms ...float64) func(x float64) float64 {
		return func(x float64) float64 {
			sum := 0.0
			for k, a := range terms {
				sum += a * math.Cos(2*math.Pi*float64(k)*x)
			}
			return sum
		}
	}
	kaiser := func(beta float64) func(x float64) float64 {
		return func(x float64) float64 { return bessel0(beta*math.Sqrt(max(1-(2*x-1)*(2*x-1), 0))) / bessel0(beta) }
	}
	var all []atenOp
	for name, at := range map[string]func(x float64) float64{
		"hann": cosines(0.5, -0.5), "hamming": cosines(0.54, -0.46), "blackman": cosines(0.42, -0.5, 0.08),
		"bartlett": func(x float64) float64 { return 1 - math.Abs(2*x-1) }, "kaiser": kaiser(12),
	} {
		all = append(all,
			op(
				"aten::"+name+"_window(int window_length"+made,
				func(c *call) (*Ref, error) { return c.window(true, at) },
			),
			op("aten::"+name+"_window.periodic(int window_length, bool periodic"+made, func(c *call) (*Ref, error) {
				return c.window(c.bool("periodic"), at)
			}))
	}
	return append(all,
		op("aten::hamming_window.periodic_alpha(int window_length, bool periodic, float alpha"+made,
			func(c *call) (*Ref, error) { return c.window(c.bool("periodic"), cosines(c.float("alpha"), -0.46)) }),
		op("aten::hamming_window.periodic_alpha_beta(int window_length, bool periodic, float alpha, float beta"+made,
			func(c *call) (*Ref, error) {
				return c.window(c.bool("periodic"), cosines(c.float("alpha"), -c.float("beta")))
			}),
		op("aten::kaiser_window.beta(int window_length, bool periodic, float beta"+made, func(c *call) (*Ref, error) {
			return c.window(c.bool("periodic"), kaiser(c.float("beta")))
		}),
	)
}()

// window returns a window of "window_length" numbers: a period of it, or, where it is not periodic, up to its end.
func (c *call) window(periodic bool, at func(x float64) float64) (*Ref, error) {
	n := c.int("window_length")
	if c.err != nil || n < 1 || n > maxFourier {
		return nil, fmt.Errorf("a window of %d", n)
	}
	steps := n - 1
	if periodic {
		steps = n
	}
	d := c.dtype("dtype", defaultFloat)
	if !IsFloat(d) {
		return nil, fmt.Errorf("a window of %v", d)
	}
	if err := c.charge(n, d); err != nil {
		return nil, err
	}
	values := make([]float64, n)
	for i := range values {
		values[i] = 1
		if n > 1 {
			values[i] = at(float64(i) / float64(steps))
		}
	}
	return c.constants(values, d, n)
}

// bessel0 is the modified Bessel function of the first kind of order 0, by its series.
func bessel0(x float64) float64 {
	sum, term := 1.0, 1.0
	for k := 1.0; term > sum*1e-17 && k < 1000; k++ {
		term *= x * x / (4 * k * k)
		sum += term
	}
	return sum
}
