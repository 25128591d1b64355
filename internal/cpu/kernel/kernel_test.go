package kernel

import (
	"math"
	"math/rand/v2"
	"testing"
)

// random returns numbers between -1 and 1, and a guard behind them that must not change.
func random(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = rng.Float32()*2 - 1
	}
	return x
}

// widened returns what a half is as a float.
func widened(e Element, bits uint16) float32 {
	if e == BFloat16 {
		return math.Float32frombits(uint32(bits) << 16)
	}
	sign, exponent, fraction := 1-2*float64(bits>>15), int(bits>>10&31), float64(bits&1023)
	switch {
	case exponent == 31 && fraction != 0:
		return float32(math.NaN())
	case exponent == 31:
		return float32(sign * math.Inf(1))
	case exponent == 0:
		return float32(sign * math.Ldexp(fraction, -24))
	}
	return float32(sign * math.Ldexp(1024+fraction, exponent-25))
}

// near fails unless got is within rounding of want.
func near(t *testing.T, what string, got float32, want float64, terms int) {
	t.Helper()
	if d := math.Abs(float64(got) - want); !(d <= 1e-6*math.Sqrt(float64(terms))+1e-6) {
		t.Fatalf("%s is %v, want %v", what, got, want)
	}
}

func TestGemm(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, s := range All() {
		for rows := 1; rows <= s.Rows; rows++ {
			for _, depth := range []int{0, 4, 8, 60, 256} {
				for mode := Store; mode <= ColumnBias; mode++ {
					lda, ldc := depth+5, s.Columns+3
					a, b := random(rng, rows*lda+1), random(rng, depth*s.Columns+1)
					c, bias := random(rng, rows*ldc), random(rng, max(rows, s.Columns))
					before := append([]float32(nil), c...)
					if depth == 0 {
						continue
					}
					s.Gemm(rows, depth, a, lda, b, c, ldc, mode, bias)
					for r := range rows {
						for j := range ldc {
							if j >= s.Columns {
								if c[r*ldc+j] != before[r*ldc+j] {
									t.Fatal("wrote beside the tile")
								}
								continue
							}
							want := 0.0
							for k := range depth {
								want += float64(a[r*lda+k]) * float64(b[k*s.Columns+j])
							}
							switch mode {
							case Add:
								want += float64(before[r*ldc+j])
							case RowBias:
								want += float64(bias[r])
							case ColumnBias:
								want += float64(bias[j])
							}
							near(t, s.Name, c[r*ldc+j], want, depth)
						}
					}
				}
			}
		}
	}
}

func TestDot(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, s := range All() {
		for rows := 1; rows <= DotRows; rows++ {
			for _, depth := range []int{s.Lanes, 3 * s.Lanes, 20 * s.Lanes} {
				lda, ldb := depth+3, depth+1
				a, b := random(rng, DotRows*lda), random(rng, 4*ldb)
				sums := make([]float32, rows*4)
				s.Dot(rows, 4, depth, a, lda, b, ldb, sums)
				for r := range rows {
					for j := range 4 {
						want := 0.0
						for k := range depth {
							want += float64(a[r*lda+k]) * float64(b[j*ldb+k])
						}
						near(t, s.Name, sums[r*4+j], want, depth)
						var alone [DotRows]float32
						s.Dot(1, 1, depth, a[r*lda:], lda, b[j*ldb:], ldb, alone[:1])
						if alone[0] != sums[r*4+j] {
							t.Fatalf("%s: a sum is %v beside others and %v alone", s.Name, sums[r*4+j], alone[0])
						}
						s.Dot(rows, 1, depth, a, lda, b[j*ldb:], ldb, alone[:rows])
						if alone[r] != sums[r*4+j] {
							t.Fatalf("%s: a sum depends on the columns", s.Name)
						}
					}
				}
			}
		}
	}
}

func TestTranspose(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, s := range All() {
		const count, lds, ldd = 3, 29, 11
		src, dst := random(rng, 8*lds), make([]float32, 8*count*ldd)
		s.Transpose(count, src, lds, dst, ldd)
		for k := range 8 * count {
			for r := range ldd {
				want := float32(0)
				if r < 8 {
					want = src[r*lds+k]
				}
				if dst[k*ldd+r] != want {
					t.Fatalf("element %d of row %d is %v, want %v", r, k, dst[k*ldd+r], want)
				}
			}
		}
	}
}

func BenchmarkGemm(b *testing.B) {
	for _, s := range All() {
		b.Run(s.Name, func(b *testing.B) {
			const depth = 256
			x, y, c := make([]float32, s.Rows*272), make([]float32, depth*s.Columns), make([]float32, s.Rows*s.Columns)
			for b.Loop() {
				s.Gemm(s.Rows, depth, x, 272, y, c, s.Columns, Add, nil)
			}
			b.ReportMetric(2*float64(s.Rows*s.Columns*depth)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}
