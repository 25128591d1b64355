package blocked

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/optimem/optimem/internal/cpu/kernel"
)

// Every set normalises pixels as float64 does, each by itself, and touches nothing else.
func TestNorm(t *testing.T) {
	for _, set := range kernel.ConvSets() {
		for _, s := range []struct{ n, channels, pixels int }{{1, 16, 1}, {2, 48, 7}, {1, 96, 530}, {3, 1040, 18}} {
			t.Run(fmt.Sprint(set.Name, s), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(7, 8))
				x := random(rng, Elements(s.n, s.channels, 1, s.pixels))
				for i := range x {
					x[i] += 3
				}
				w, b := random(rng, s.channels), random(rng, s.channels)
				index := func(image, c, p int) int {
					return ((image*Blocks(s.channels)+c/Lanes)*s.pixels+p)*Lanes + c%Lanes
				}
				y := make([]float32, len(x))
				norm(threadCount(2), set, Normed{s.n, s.channels, s.pixels, x, y, w, b, 1e-3})
				for image := range s.n {
					for p := range s.pixels {
						var sum, squares float64
						for c := range s.channels {
							sum += float64(x[index(image, c, p)])
						}
						mean := sum / float64(s.channels)
						for c := range s.channels {
							squares += math.Pow(float64(x[index(image, c, p)])-mean, 2)
						}
						scale := 1 / math.Sqrt(squares/float64(s.channels)+1e-3)
						for c := range s.channels {
							at := index(image, c, p)
							want := (float64(x[at])-mean)*scale*float64(w[c]) + float64(b[c])
							if d := math.Abs(float64(y[at]) - want); !(d <= 4e-6) {
								t.Fatalf("image %d, channel %d, pixel %d: %v, want %v", image, c, p, y[at], want)
							}
						}
					}
				}
				alone := make([]float32, len(x))
				norm(threadCount(1), set, Normed{s.n, s.channels, s.pixels, x, alone, w, b, 1e-3})
				for i := range y {
					if y[i] != alone[i] {
						t.Fatalf("element %d is %v, and %v on one thread", i, y[i], alone[i])
					}
				}
			})
		}
	}
}
