package kernel

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestDotLines: products of four rows are those of Dot, bit for bit, and land where they should and nowhere else.
func TestDotLines(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 32))
	for _, s := range All() {
		if s.dotLines == nil {
			continue
		}
		for _, depth := range []int{s.Lanes, 4 * s.Lanes, 5 * s.Lanes} {
			for _, columns := range []int{4, 16, 20} {
				const lda, ldb, untouched = 131, 137, -7
				a, b := random(rng, DotRows*lda), random(rng, columns*ldb)
				at := [DotRows]int{3, 90, 41, 150}
				to := make([]float32, 200)
				for i := range to {
					to[i] = untouched
				}
				want := append([]float32(nil), to...)
				sums := make([]float32, 4*DotRows)
				for j := 0; j < columns; j += 4 {
					s.Dot(DotRows, 4, depth, a, lda, b[j*ldb:], ldb, sums)
					for r, first := range at {
						copy(want[first+j:], sums[4*r:][:4])
					}
				}
				if !s.DotLines(columns, depth, Lines{a, lda}, Lines{b, ldb}, to, at) {
					t.Fatalf("%s: no products of %d columns, %d deep", s.Name, columns, depth)
				}
				sameFloats(t, s.Name, to, want)
			}
		}
	}
}

// TestWeightedLines: weighted sums of four rows are those of Weighted, bit for bit.
func TestWeightedLines(t *testing.T) {
	rng := rand.New(rand.NewPCG(33, 34))
	for _, s := range All() {
		if s.weightedLines == nil {
			continue
		}
		for _, width := range []int{4 * s.Lanes, 12 * s.Lanes} {
			for _, n := range []int{1, 5, 16} {
				const ldr, lds = 203, 211
				w, rows := random(rng, 100), random(rng, n*ldr)
				at := [DotRows]int{2, 40, 21, 80}
				got := random(rng, DotRows*lds)
				want := append([]float32(nil), got...)
				for r, first := range at {
					s.Weighted(w[first:][:n], rows, ldr, want[r*lds:][:width])
				}
				if !s.WeightedLines(n, width, w, at, Lines{rows, ldr}, Lines{got, lds}) {
					t.Fatalf("%s: no sums of %d rows, %d wide", s.Name, n, width)
				}
				sameFloats(t, s.Name, got, want)
			}
		}
	}
}

// TestTurnPairs: pairs are turned as two products and a sum do, each rounded.
func TestTurnPairs(t *testing.T) {
	rng := rand.New(rand.NewPCG(35, 36))
	for _, s := range All() {
		if s.turnPairs == nil {
			continue
		}
		for _, half := range []int{s.Lanes, 3 * s.Lanes} {
			x, cos, sin := random(rng, 2*half+5), random(rng, 2*half+5), random(rng, 2*half+5)
			to, want := make([]float32, 2*half), make([]float32, 2*half)
			for k := range half {
				want[k] = float32(x[k]*cos[k]) - float32(x[half+k]*sin[k])
				want[half+k] = float32(x[half+k]*cos[half+k]) + float32(x[k]*sin[half+k])
			}
			if !s.TurnPairs(x, cos, sin, to) {
				t.Fatalf("%s: nothing turns %d pairs", s.Name, half)
			}
			sameFloats(t, s.Name, to, want)
			if s.TurnPairs(x, cos, sin, to[:2*half-2]) {
				t.Fatalf("%s: it turns %d pairs", s.Name, half-1)
			}
		}
	}
}

func sameFloats(t *testing.T, name string, got, want []float32) {
	t.Helper()
	for i := range got {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: element %d is %v, want %v", name, i, got[i], want[i])
		}
	}
}
