package cpu

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// TestMaxPoolRows compares pools by rows with pools in Go, NaN and infinities included.
func TestMaxPoolRows(t *testing.T) {
	inGo := poolInGo(t)
	for _, p := range poolsOf(t) {
		rng := rand.New(rand.NewPCG(61, 62))
		for range 60 {
			x := randomView(rng, tensor.Float32, tensor.Shape{1 + rng.IntN(2), 1 + rng.IntN(4), 5 + rng.IntN(30), 5 + rng.IntN(40)})
			for range 5 {
				odd := []float32{float32(math.NaN()), float32(math.Inf(-1)), float32(math.Inf(1))}[rng.IntN(3)]
				data := ops.Elements[float32](ops.View{Data: x.Data})
				data[rng.IntN(len(data))] = odd
			}
			k := 1 + rng.IntN(4)
			attrs := graph.Attrs{
				"kernel": []int{k, 1 + rng.IntN(4)}, "stride": []int{1 + rng.IntN(3), 1 + rng.IntN(3)},
				"padding": []int{rng.IntN(k/2 + 1), 0}, "dilation": []int{1, 1},
			}
			agreeWith(t, p, inGo, "max_pool", attrs, 0, x)
		}
	}
}
