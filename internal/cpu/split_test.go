package cpu

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// TestSplitRowsAlone: products of floats by weights of bfloat16, of rows that are to have the same bits however many there
// are, have them, packed or not, on any number of threads, and are as near to the exact ones as sums of float32 are.
func TestSplitRowsAlone(t *testing.T) {
	alone := graph.Attrs{graph.RowsAlone: true}
	threes := poolsOfSets(t, 3)
	for name, pool := range poolsOfSets(t, 1) {
		rng := rand.New(rand.NewPCG(33, 34))
		for _, shape := range [][2]int{{5, 3}, {83, 200}, {64, 576}, {33, 1030}, {130, 2100}} {
			const m = 71
			n, k := shape[0], shape[1]
			x, w, residual := strided(rng, tensor.Float32, m, k), strided(rng, tensor.BFloat16, n, k), strided(rng, tensor.Float32, m, n)
			bias := strided(rng, tensor.Float32, n)
			compute := func(p *ops.Pool, from, rows int, weight ops.View) []byte {
				in := []ops.View{x, weight, bias, residual}
				for _, i := range []int{0, 3} {
					in[i].Layout.Shape = tensor.Shape{rows, in[i].Shape()[1]}
					in[i].Layout.Offset += from * in[i].Layout.Strides[0]
				}
				return runKind(t, p, "linear", alone, emptyView(tensor.Float32, rows, n), in...).Data
			}
			all := ops.View{Data: compute(pool, 0, m, w), DType: tensor.Float32, Layout: tensor.Contiguous(m, n)}
			for i := range m {
				for j := range n {
					want := valueAt(bias, j) + valueAt(residual, i, j)
					size := math.Abs(valueAt(bias, j)) + math.Abs(valueAt(residual, i, j))
					for d := range k {
						term := valueAt(x, i, d) * valueAt(w, j, d)
						want, size = want+term, size+math.Abs(term)
					}
					if got := valueAt(all, i, j); math.Abs(got-want) > 4e-7*size {
						t.Fatalf("%s: %d×%d: [%d %d] is %v, want %v", name, n, k, i, j, got, want)
					}
				}
			}
			packed := packedView(t, pool, "linear", alone, emptyView(tensor.Float32, m, n), x, w, ops.View{})
			for _, weight := range []ops.View{w, packed} {
				for _, some := range []int{1, 2, 3, 4, 5, 16, 17, 33, m} {
					for _, from := range []int{0, (m - some) / 2} {
						for _, p := range []*ops.Pool{pool, threes[name]} {
							if got := compute(p, from, some, weight); !bytes.Equal(got, all.Data[4*n*from:][:4*n*some]) {
								t.Fatalf("%s: %d×%d: %d rows from %d on have other bits, packed %v", name, n, k, some, from, weight.Packed)
							}
						}
					}
				}
			}
		}
	}
}
