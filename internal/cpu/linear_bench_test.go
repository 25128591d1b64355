package cpu

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/optimem/optimem/graph"
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/ops"
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
	pool := ops.NewPool(0)
	defer pool.Close()
	rng := rand.New(rand.NewPCG(1, 2))
	x, out := emptyView(tensor.Float32, m, k), emptyView(tensor.Float32, m, n)
	for i, row := 0, ops.Elements[float32](x); i < len(row); i++ {
		row[i] = rng.Float32() - 0.5
	}
	scales := emptyView(tensor.Float32, n)
	in := []ops.View{x, {}, {}}
	if d == tensor.Int8 {
		in = append(in, ops.View{}, scales)
	}
	kernel := kernels["linear"]
	var weights []ops.View
	for range of {
		w := emptyView(d, n, k)
		for i := range w.Data { // floats near 1/4
			w.Data[i] = byte(i)
			if d != tensor.Int8 && i%d.Size() == d.Size()-1 {
				w.Data[i] = 0x3e
			}
		}
		if form == "k×n" {
			w.Layout.Strides = []int{1, n}
		}
		in[1] = w
		if packs := kernel.Packs(specsOfViews(in), []graph.Spec{specOf(out)}, nil); form == "packed" && len(packs) > 0 {
			dst := make([]byte, packs[0].Bytes)
			if err := kernel.Pack(pool, nil, packs[0], w, dst); err != nil {
				b.Fatal(err)
			}
			w.Data, w.Packed = dst, true
		}
		weights = append(weights, w)
	}
	in[1] = weights[0]
	c := &ops.Call{Ctx: b.Context(), In: in, Out: []ops.View{out}, Pool: pool}
	c.Work = make([]byte, kernel.ThreadsWorkBytes(pool.Threads(), specsOfViews(in), []graph.Spec{specOf(out)}, nil))
	at := 0
	for b.Loop() {
		in[1] = weights[at%of]
		at++
		if err := kernel.Run(c); err != nil {
			b.Fatal(err)
		}
	}
	each := b.Elapsed().Seconds() / float64(b.N)
	b.ReportMetric(float64(n*k*d.Size())/each/1e9, "GB/s")
	b.ReportMetric(2*float64(m)*float64(n)*float64(k)/each/1e9, "GFLOP/s")
}

func specsOfViews(in []ops.View) []graph.Spec {
	specs := make([]graph.Spec, len(in))
	for i, v := range in {
		specs[i] = specOf(v)
	}
	return specs
}

// BenchmarkRowsAlone computes one and many rows of linear layers whose weights come from memory, in turns as graphs with caches
// do and as others do, and reports the least time of each.
func BenchmarkRowsAlone(b *testing.B) {
	for _, d := range []struct {
		name  string
		x, of tensor.DType
	}{
		{"float32", tensor.Float32, tensor.Float32}, {"bfloat16", tensor.BFloat16, tensor.BFloat16},
		{"bfloat16-weights", tensor.Float32, tensor.BFloat16}, {"float16-weights", tensor.Float32, tensor.Float16},
		{"int8-weights", tensor.Float32, tensor.Int8},
	} {
		for _, m := range []int{1, 4, 5, 64} {
			n, k, of := 4096, 2048, 8
			if m > 5 { // what computes needs no memory far away, but many turns
				n, k, of = 1024, 1024, 2
			}
			b.Run(fmt.Sprintf("%s/%d", d.name, m), func(b *testing.B) { benchmarkRows(b, d.x, d.of, m, n, k, of) })
		}
	}
}

func benchmarkRows(b *testing.B, x, w tensor.DType, m, n, k, of int) {
	pool := ops.NewPool(1)
	defer pool.Close()
	kernel := kernels["linear"]
	in := []ops.View{emptyView(x, m, k), {}, {}}
	if w == tensor.Int8 {
		in = append(in, ops.View{}, emptyView(tensor.Float32, n))
	}
	out := emptyView(x, m, n)
	weights := make([]ops.View, of)
	for i := range weights {
		weights[i] = emptyView(w, n, k)
	}
	in[1] = weights[0]
	manners := []graph.Attrs{nil, {graph.RowsAlone: true}}
	var calls [2]*ops.Call
	least := [2]float64{math.Inf(1), math.Inf(1)}
	for i, attrs := range manners {
		calls[i] = &ops.Call{
			Ctx: b.Context(), Attrs: attrs, Pool: pool, In: in, Out: []ops.View{out},
			Work: make([]byte, kernel.WorkOn(pool.Threads(), specsOfViews(in), []graph.Spec{specOf(out)}, attrs)),
		}
	}
	for i := 0; b.Loop(); i++ {
		for turn, c := range calls {
			in[1] = weights[(2*i+turn)%of]
			begin := time.Now()
			if err := kernel.Run(c); err != nil {
				b.Fatal(err)
			}
			least[turn] = min(least[turn], time.Since(begin).Seconds())
		}
	}
	b.ReportMetric(1e3*least[0], "ms-any")
	b.ReportMetric(1e3*least[1], "ms-alone")
}

// BenchmarkRoundedRows computes one row, and few, of linear layers whose weights of bfloat16 lie packed and come from
// memory, as they are and with rounded factors, in turns, and reports the least time of each.
func BenchmarkRoundedRows(b *testing.B) {
	for _, size := range [][2]int{{576, 576}, {1536, 576}, {576, 1536}, {4096, 2048}} {
		for _, m := range []int{1, 8} {
			b.Run(fmt.Sprintf("%dx%d/%d", size[0], size[1], m), func(b *testing.B) { benchmarkRounded(b, m, size[0], size[1]) })
		}
	}
}

func benchmarkRounded(b *testing.B, m, n, k int) {
	pool := ops.NewPool(1)
	defer pool.Close()
	kernel := kernels["linear"]
	in := []ops.View{emptyView(tensor.Float32, m, k), emptyView(tensor.BFloat16, n, k), {}}
	out := emptyView(tensor.Float32, m, n)
	manners := []graph.Attrs{{graph.RowsAlone: true}, {graph.RowsAlone: true, "precision": "bf16"}}
	if precisionSupports(specsOfViews(in), manners[1]) != nil {
		b.Skip("no unit")
	}
	weights, calls := make([][]ops.View, len(manners)), make([]*ops.Call, len(manners))
	least := []float64{math.Inf(1), math.Inf(1)}
	for i, attrs := range manners {
		pack := kernel.Packs(specsOfViews(in), nil, attrs)[0]
		for range max((64<<20)/int(pack.Bytes), 1) {
			v := in[1]
			v.Data, v.Packed = bytes.Repeat([]byte{1}, int(pack.Bytes)), true // pages that are memory
			weights[i] = append(weights[i], v)
		}
		calls[i] = &ops.Call{
			Ctx: b.Context(), Attrs: attrs, Pool: pool, In: slices.Clone(in), Out: []ops.View{out},
			Work: make([]byte, kernel.WorkOn(pool.Threads(), specsOfViews(in), []graph.Spec{specOf(out)}, attrs)),
		}
	}
	for i := 0; b.Loop(); i++ {
		for turn, c := range calls {
			c.In[1] = weights[turn][i%len(weights[turn])]
			begin := time.Now()
			if err := kernel.Run(c); err != nil {
				b.Fatal(err)
			}
			least[turn] = min(least[turn], time.Since(begin).Seconds())
		}
	}
	b.ReportMetric(1e6*least[0], "µs-as-they-are")
	b.ReportMetric(1e6*least[1], "µs-rounded")
}
