package elementwise

import (
	"math"
	"testing"
)

// between returns n numbers from low to high.
func between(n int, low, high float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(low + (high-low)*float64(i)/float64(n-1))
	}
	return x
}

// TestFastFunctions holds the functions of float32 against package math: they are rounded once.
func TestFastFunctions(t *testing.T) {
	for _, f := range []struct {
		name string
		fast func(float32) float32
		want func(float64) float64
		low  float64
		high float64
	}{
		{"exp", exp32, math.Exp, -90, 90},
		{"sigmoid", sigmoid32, sigmoid64, -80, 80},
		{"tanh", tanh32, math.Tanh, -12, 12},
		{"tanh near 0", tanh32, math.Tanh, -0.2, 0.2},
		{"erf", erf32, math.Erf, -7, 7},
		{"erf near 0", erf32, math.Erf, -0.2, 0.2},
		{"silu", silu32, silu64, -80, 80},
		{"mish", mish32, mish64, -80, 80},
	} {
		for _, x := range between(100_003, f.low, f.high) {
			got, want := f.fast(x), f.want(float64(x))
			ulp := math.Abs(float64(math.Nextafter32(float32(want), float32(math.Inf(1))) - float32(want)))
			if math.Abs(float64(got)-want) > 0.75*ulp {
				t.Errorf("%s(%v) is %v, not %v", f.name, x, got, want)
				break
			}
		}
	}
	// Negative tails lose digits to 1 + erf, as in PyTorch.
	for _, x := range between(100_003, -10, 10) {
		if d := math.Abs(float64(gelu32(x)) - gelu64(float64(x))); d > 1e-7*max(1, math.Abs(float64(x))) {
			t.Errorf("gelu(%v) is off by %v", x, d)
			break
		}
		if d := math.Abs(float64(tanhGelu32(x)) - tanhGelu(float64(x))); d > 1e-7*max(1, math.Abs(float64(x))) {
			t.Errorf("gelu(%v) by tanh is off by %v", x, d)
			break
		}
	}
}
