package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// BenchmarkConv is the rate of the largest tile with all operands in the first cache: what a core can do.
func BenchmarkConv(b *testing.B) {
	for _, s := range ConvSets() {
		b.Run(s.Name, func(b *testing.B) {
			const steps = 8
			x, w, y := make([]float32, steps*16*s.Pixels), make([]float32, steps*16*s.Columns), make([]float32, s.Pixels*32)
			offsets := make([]int, steps)
			for i := range offsets {
				offsets[i] = 64 * i * s.Pixels
			}
			scale := make([]float32, 32)
			t := ConvTile{
				X: &x[0], W: &w[0], Y: &y[0], Offsets: &offsets[0], Steps: steps, Quads: 4, XPixel: 64, YPixel: 64,
				YBlock: 64 * s.Pixels, Scale: &scale[0], Shift: &scale[0],
			}
			for b.Loop() {
				s.Conv(s.Pixels, false, &t)
			}
			b.ReportMetric(2*float64(steps*16*s.Pixels*s.Columns)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}

// Every set's transforms are those in Go.
func TestWinograd(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, s := range ConvSets() {
		for _, m := range []int{2, 4} {
			for kind, transform := range []func(*ConvSet, *WinogradTile){
				func(s *ConvSet, t *WinogradTile) { s.WinogradIn(m, t) },
				func(s *ConvSet, t *WinogradTile) { s.WinogradOut(m, t) },
				func(s *ConvSet, t *WinogradTile) { s.WinogradWeights(m, t) },
			} {
				const count = 3
				size := m + 2
				in := random(rng, (size*size+count*m)*16)
				scratch := make([]float32, 36*16)
				scale, shift := random(rng, 16), random(rng, 16)
				residual := random(rng, size*size*count*16)
				run := func(s *ConvSet) []float32 {
					out := make([]float32, size*size*count*16)
					tile := WinogradTile{
						In: &in[0], InRow: 64 * size, InStep: 64, Out: &out[0], OutRow: 64 * size * count, OutStep: 64 * count,
						InNext: 64, OutNext: 64, Count: count, Scratch: &scratch[0], Scale: &scale[0], Shift: &shift[0],
						Residual: &residual[0], Flags: ConvFinish | ConvResidual | ConvLimit, Low: -1, High: 2,
					}
					transform(s, &tile)
					return out
				}
				got, want := run(s), run(convGo)
				for i := range got {
					if d := math.Abs(float64(got[i] - want[i])); !(d <= 1e-5) {
						t.Fatalf("%s: F(%d), transform %d: element %d is %v, want %v", s.Name, m, kind, i, got[i], want[i])
					}
				}
			}
		}
	}
}

func TestSiLU(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, set := range ConvSets() {
		if set.silu == nil {
			continue
		}
		for _, count := range []int{16, 32, 112, 160, 16 * 23, 1<<15 + 16*9} {
			x := numbers(rng, count)
			y := slices.Clone(x)
			set.SiLU(y)
			for i := range x {
				v := math.Max(float64(x[i]), -87)
				want := v / (1 + math.Exp(-v))
				if x[i] != x[i] {
					want = math.NaN()
				}
				got := float64(y[i])
				if !(math.Abs(got-want) <= 3e-7*math.Max(0.1, math.Abs(want))) && got != want && (got == got || want == want) {
					t.Fatalf("%s, %d: silu(%g) is %g, want %g", set.Name, count, x[i], got, want)
				}
				alone := make([]float32, 16)
				alone[i%16] = x[i]
				set.SiLU(alone)
				if math.Float32bits(alone[i%16]) != math.Float32bits(y[i]) {
					t.Fatalf("%s, %d: silu(%g) is %g in one place and %g in another", set.Name, count, x[i], y[i], alone[i%16])
				}
			}
		}
	}
}

// Hard swish that ends sums is that of each number, of infinities and NaN too.
func TestHardSwish(t *testing.T) {
	inf := float32(math.Inf(1))
	numbers := []float32{0, 1, -1, 2.9999, 3, -2.9999, -3, -3.0001, 100, -100, 1e-30, inf, -inf, float32(math.NaN()), 6, -1.5}
	ones := make([]float32, 32)
	for i := range ones {
		ones[i] = 1
	}
	for _, s := range ConvSets() {
		if !s.HasHardSwish() {
			continue
		}
		for pixels := 1; pixels <= s.DepthwisePixels(); pixels++ {
			x := slices.Repeat(numbers, pixels)
			y := make([]float32, len(x))
			tile := ConvTile{
				X: &x[0], W: &ones[0], Y: &y[0], Offsets: new(int), Steps: 1, XPixel: 64, YPixel: 64, Tiles: 1, Rows: 1,
				Flags: ConvFinish | ConvHardSwish, Scale: &ones[0], Shift: &make([]float32, 32)[0],
			}
			s.Depthwise(pixels, &tile)
			for i, v := range x {
				want := float64(v) * math.Min(math.Max(float64(v)+3, 0), 6) / 6
				if got := float64(y[i]); !(math.Abs(got-want) <= 3e-7*math.Max(1, math.Abs(want))) && got != want &&
					(got == got || want == want) {
					t.Fatalf("%s, %d pixels: hard swish of %g is %g, want %g", s.Name, pixels, v, got, want)
				}
			}
		}
	}
}

// Sums of any number of vectors add to what is there.
func TestSumWide(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, s := range ConvSets() {
		for count := 1; count <= 6000; count++ {
			if count == 41 { // more than a call adds
				count = 6000
			}
			x := random(rng, 16*count)
			var got, want [16]float64
			for i := range got {
				got[i], want[i] = float64(i), float64(i)
			}
			for i, v := range x {
				want[i%16] += float64(v)
			}
			s.SumWide(x, &got)
			for i := range got {
				if !(math.Abs(got[i]-want[i]) <= 1e-7*float64(count+16)) {
					t.Fatalf("%s: sum %d of %d is %v, want %v", s.Name, i, count, got[i], want[i])
				}
			}
		}
	}
}

// Halves with inputs of their own are summed, for any number of pixels, over what is there, and come out in order.
func TestPairs(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, s := range ConvSets() {
		if !s.HasPairs() {
			continue
		}
		for pixels := 1; pixels <= s.Pixels; pixels++ {
			const steps = 3
			plain := random(rng, steps*pixels*16)
			x := make([]float32, len(plain))
			s.PairHalves(x, plain)
			w, y, numbers := random(rng, steps*8*16), random(rng, pixels*16), random(rng, 32)
			want := make([]float64, len(y))
			for p := range pixels {
				for o := range 16 {
					sum := float64(y[16*p+o])
					for step := range steps {
						for k := range 8 {
							sum += float64(plain[16*(step*pixels+p)+o/8*8+k]) * float64(w[16*(8*step+k)+o%8*2+o/8])
						}
					}
					want[16*p+o] = sum*float64(numbers[o]) + float64(numbers[16+o])
				}
			}
			s.Pairs(pixels, &ConvTile{
				X: &x[0], W: &w[0], Y: &y[0], Offsets: &[]int{0, 64 * pixels, 128 * pixels}[0], Steps: steps, Quads: 2,
				XPixel: 64, YPixel: 64, YBlock: 64 * pixels, Flags: ConvAdd | ConvFinish, Scale: &numbers[0], Shift: &numbers[16],
			})
			for i := range y {
				if d := math.Abs(float64(y[i]) - want[i]); !(d <= 1e-5) {
					t.Fatalf("%s, %d pixels: number %d is %v, want %v", s.Name, pixels, i, y[i], want[i])
				}
			}
		}
	}
}
