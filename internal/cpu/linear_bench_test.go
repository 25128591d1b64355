package cpu

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/optimem/optimem/graph"
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/tensor"
)

// BenchmarkWeights computes rows of linear layers whose weights come from memory, as they do in a pass through a large
// model: packed, and as they lie in a file, by output or by input.
func BenchmarkWeights(b *testing.B) {
	const n, k, of = 4096, 2048, 12
	for _, d := range []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Int8} {
		for _, m := range []int{1, 4, 8, 128} {
			for _, form := range []string{"packed", "n×k", "k×n"} {
				b.Run(fmt.Sprintf("%v/%d/%s", d, m, form), func(b *testing.B) { benchmarkWeight(b, d, m, n, k, of, form) })
			}
		}
	}
}

func benchmarkWeight(b *testing.B, d tensor.DType, m, n, k, of int, form string) {
	if simd.Best() == nil && m > 1 {
		b.Skip("slow")
	}
	pool := NewPool(0)
	defer pool.Close()
	rng := rand.New(rand.NewPCG(1, 2))
	x, out := emptyView(tensor.Float32, m, k), emptyView(tensor.Float32, m, n)
	for i, row := 0, elements[float32](x); i < len(row); i++ {
		row[i] = rng.Float32() - 0.5
	}
	scales := emptyView(tensor.Float32, n)
	in := []view{x, {}, {}}
	if d == tensor.Int8 {
		in = append(in, view{}, scales)
	}
	kernel := kernels["linear"]
	var weights []view
	for range of {
		w := emptyView(d, n, k)
		for i := range w.data { // floats near 1/4
			w.data[i] = byte(i)
			if d != tensor.Int8 && i%d.Size() == d.Size()-1 {
				w.data[i] = 0x3e
			}
		}
		if form == "k×n" {
			w.layout.Strides = []int{1, n}
		}
		in[1] = w
		if packs := kernel.packs(specsOfViews(in), []graph.Spec{specOf(out)}, nil); form == "packed" && len(packs) > 0 {
			dst := make([]byte, packs[0].Bytes)
			if err := kernel.pack(pool, nil, packs[0], w, dst); err != nil {
				b.Fatal(err)
			}
			w.data, w.packed = dst, true
		}
		weights = append(weights, w)
	}
	in[1] = weights[0]
	c := &call{ctx: b.Context(), in: in, out: []view{out}, pool: pool}
	c.work = make([]byte, kernel.threadsWorkBytes(pool.Threads(), specsOfViews(in), []graph.Spec{specOf(out)}, nil))
	at := 0
	for b.Loop() {
		in[1] = weights[at%of]
		at++
		if err := kernel.run(c); err != nil {
			b.Fatal(err)
		}
	}
	each := b.Elapsed().Seconds() / float64(b.N)
	b.ReportMetric(float64(n*k*d.Size())/each/1e9, "GB/s")
	b.ReportMetric(2*float64(m)*float64(n)*float64(k)/each/1e9, "GFLOP/s")
}

func specsOfViews(in []view) []graph.Spec {
	specs := make([]graph.Spec, len(in))
	for i, v := range in {
		specs[i] = specOf(v)
	}
	return specs
}
