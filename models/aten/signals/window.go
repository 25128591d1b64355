package signals

import (
	"fmt"
	"math"

	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
)

// windowTargets are the windows of signals.
var windowTargets = func() []call.Overload {
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
	var all []call.Overload
	for name, at := range map[string]func(x float64) float64{
		"hann": cosines(0.5, -0.5), "hamming": cosines(0.54, -0.46), "blackman": cosines(0.42, -0.5, 0.08),
		"bartlett": func(x float64) float64 { return 1 - math.Abs(2*x-1) }, "kaiser": kaiser(12),
	} {
		all = append(all,
			call.One(
				"aten::"+name+"_window(int window_length"+made,
				func(c *call.Call) (*cells.Ref, error) { return window(c, true, at) },
			),
			call.One("aten::"+name+"_window.periodic(int window_length, bool periodic"+made,
				func(c *call.Call) (*cells.Ref, error) {
					return window(c, c.Bool("periodic"), at)
				}))
	}
	return append(all,
		call.One("aten::hamming_window.periodic_alpha(int window_length, bool periodic, float alpha"+made,
			func(c *call.Call) (*cells.Ref, error) {
				return window(c, c.Bool("periodic"), cosines(c.Float("alpha"), -0.46))
			}),
		call.One("aten::hamming_window.periodic_alpha_beta(int window_length, bool periodic, float alpha, float beta"+made,
			func(c *call.Call) (*cells.Ref, error) {
				return window(c, c.Bool("periodic"), cosines(c.Float("alpha"), -c.Float("beta")))
			}),
		call.One("aten::kaiser_window.beta(int window_length, bool periodic, float beta"+made,
			func(c *call.Call) (*cells.Ref, error) {
				return window(c, c.Bool("periodic"), kaiser(c.Float("beta")))
			}),
	)
}()

// window returns a window of "window_length" numbers: a period of it, or, where it is not periodic, up to its end.
func window(c *call.Call, periodic bool, at func(x float64) float64) (*cells.Ref, error) {
	n := c.Int("window_length")
	if c.Err != nil || n < 1 || n > maxFourier {
		return nil, fmt.Errorf("a window of %d", n)
	}
	steps := n - 1
	if periodic {
		steps = n
	}
	d := c.DType("dtype", cells.DefaultFloat)
	if !cells.IsFloat(d) {
		return nil, fmt.Errorf("a window of %v", d)
	}
	if err := c.Charge(n, d); err != nil {
		return nil, err
	}
	values := make([]float64, n)
	for i := range values {
		values[i] = 1
		if n > 1 {
			values[i] = at(float64(i) / float64(steps))
		}
	}
	return c.Constants(values, d, n)
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
