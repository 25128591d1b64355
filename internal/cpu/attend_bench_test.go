package cpu

import (
	"fmt"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// BenchmarkAttend has rows of one sequence look at what is before them, as a token that is written does and as a prompt does.
func BenchmarkAttend(b *testing.B) {
	const heads, groups, width = 32, 8, 128
	for _, d := range []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float16} {
		for _, rows := range []int{1, 64} {
			for _, before := range []int{256, 4096} {
				b.Run(fmt.Sprintf("%v/%d/%d", d, rows, before), func(b *testing.B) {
					pool := ops.NewPool(1)
					defer pool.Close()
					blocks := (before + rows) / graph.BlockRows
					at, tables := emptyView(tensor.Int64, rows), emptyView(tensor.Int64, rows, blocks)
					for r := range rows {
						ops.Elements[int64](at)[r] = int64(before + r - 1)
						for k := range blocks {
							ops.Elements[int64](tables)[r*blocks+k] = int64(k)
						}
					}
					x := func(heads int) ops.View { return emptyView(tensor.Float32, rows, heads, width) }
					cache := func() ops.View { return emptyView(d, (blocks+1)*graph.BlockRows, groups, width) }
					c := &ops.Call{
						Ctx: b.Context(), Attrs: graph.Attrs{"scale": 0.1}, Pool: pool,
						In: []ops.View{x(heads), x(groups), x(groups), cache(), cache(), at, tables}, Out: []ops.View{x(heads)},
					}
					c.Work = make([]byte, attendWork(1, specsOfViews(c.In), nil, c.Attrs))
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
