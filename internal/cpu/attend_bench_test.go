package cpu

import (
	"fmt"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// BenchmarkAttend has rows of one sequence look at what is before them, as a token that is written does and as a prompt does.
func BenchmarkAttend(b *testing.B) {
	const heads, groups, width = 32, 8, 128
	for _, d := range []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float16} {
		for _, rows := range []int{1, 64} {
			for _, before := range []int{256, 4096} {
				b.Run(fmt.Sprintf("%v/%d/%d", d, rows, before), func(b *testing.B) {
					pool := NewPool(1)
					defer pool.Close()
					blocks := (before + rows) / graph.BlockRows
					at, tables := emptyView(tensor.Int64, rows), emptyView(tensor.Int64, rows, blocks)
					for r := range rows {
						elements[int64](at)[r] = int64(before + r - 1)
						for k := range blocks {
							elements[int64](tables)[r*blocks+k] = int64(k)
						}
					}
					x := func(heads int) view { return emptyView(tensor.Float32, rows, heads, width) }
					cache := func() view { return emptyView(d, (blocks+1)*graph.BlockRows, groups, width) }
					c := &call{
						ctx: b.Context(), attrs: graph.Attrs{"scale": 0.1}, pool: pool,
						in: []view{x(heads), x(groups), x(groups), cache(), cache(), at, tables}, out: []view{x(heads)},
					}
					c.work = make([]byte, attendWork(1, specsOfViews(c.in), nil, c.attrs))
					for b.Loop() {
						if err := runAttend(c); err != nil {
							b.Fatal(err)
						}
					}
					each := b.Elapsed().Seconds() / float64(b.N)
					b.ReportMetric(float64(rows*before*groups*width*2*d.Size())/each/1e9, "GB/s")
					b.ReportMetric(float64(rows*before*heads*width*4)/each/1e9, "GFLOP/s")
				})
			}
		}
	}
}
