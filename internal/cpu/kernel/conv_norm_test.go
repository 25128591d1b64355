package kernel

import (
	"math/rand/v2"
	"testing"
)

// Scales of every set are those in Go, bit by bit.
func TestScales(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, s := range ConvSets() {
		for n := range 37 {
			w, b, mean, variance := random(rng, n), random(rng, n), random(rng, n), random(rng, n)
			for i := range variance {
				variance[i] = variance[i]*variance[i] + 1e-4
			}
			run := func(s *ConvSet) (scale, shift []float32) {
				scale, shift = make([]float32, n), make([]float32, n)
				s.Scales(scale, shift, w, b, mean, variance, 1e-3)
				return scale, shift
			}
			scale, shift := run(s)
			wantScale, wantShift := run(convGo)
			for i := range scale {
				if scale[i] != wantScale[i] || shift[i] != wantShift[i] {
					t.Fatalf("%s: channel %d of %d: %v, %v; want %v, %v", s.Name, i, n, scale[i], shift[i], wantScale[i], wantShift[i])
				}
			}
		}
	}
}
