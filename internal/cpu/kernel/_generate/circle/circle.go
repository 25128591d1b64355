// Package circle has the numbers that sines and cosines are computed with, by all processors alike.
package circle

import "math"

// HalfPi is π/2 in pieces. The first two have ten bits, so that products with whole numbers below 2¹⁴ are exact, and so is
// what is left of an angle after each.
var HalfPi = func() (pieces [4]float64) {
	rest := math.Pi / 2
	for i, bits := range [2]int{9, 21} {
		pieces[i] = math.Floor(math.Ldexp(rest, bits)) * math.Ldexp(1, -bits)
		rest -= pieces[i]
	}
	pieces[2] = float64(float32(rest))
	// What float64 has not of π/2 is 6.1e-17.
	pieces[3] = rest - pieces[2] + 6.123233995736766e-17
	return pieces
}()

// The sine is r + r³·p(r²) and the cosine 1 − r²/2 + r⁴·q(r²) for r up to π/4: minimax polynomials.
var (
	SinP = []float64{-1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4}
	CosQ = []float64{1, -0.5, 4.166664568298827e-2, -1.388731625493765e-3, 2.443315711809948e-5}
)
