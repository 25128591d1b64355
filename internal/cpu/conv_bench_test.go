package cpu

import (
	"context"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// BenchmarkConv runs layers of well-known networks.
func BenchmarkConv(b *testing.B) {
	pool := ops.NewPool(0)
	defer pool.Close()
	for _, s := range []struct {
		name                                                 string
		channels, size, outputs, kernel, stride, pad, groups int
		transposed                                           bool
	}{
		{"stem7x7s2", 3, 512, 64, 7, 2, 3, 1, false},
		{"3x3/64", 64, 128, 64, 3, 1, 1, 1, false},
		{"3x3/256", 256, 32, 256, 3, 1, 1, 1, false},
		{"3x3s2/256", 256, 64, 256, 3, 2, 1, 1, false},
		{"1x1/256-64", 256, 128, 64, 1, 1, 0, 1, false},
		{"1x1/512-2048", 512, 16, 2048, 1, 1, 0, 1, false},
		{"3x3/groups32", 128, 56, 128, 3, 1, 1, 32, false},
		{"depthwise3x3", 128, 56, 128, 3, 1, 1, 128, false},
		{"depthwise3x3s2", 128, 56, 128, 3, 2, 1, 128, false},
		{"depthwise7x7", 128, 56, 128, 7, 1, 3, 128, false},
		{"transposed4x4s2", 128, 32, 64, 4, 2, 1, 1, true},
	} {
		b.Run(s.name, func(b *testing.B) {
			attrs := graph.Attrs{
				"stride": []int{s.stride, s.stride}, "padding": []int{s.pad, s.pad}, "dilation": []int{1, 1},
				"groups": s.groups, "transposed": s.transposed, "output_padding": []int{0, 0},
			}
			shape := []int{s.outputs, s.channels / s.groups, s.kernel, s.kernel}
			if s.transposed {
				shape[0], shape[1] = s.channels, s.outputs/s.groups
			}
			x := benchTensor(1, s.channels, s.size, s.size)
			w := benchTensor(shape...)
			in := []graph.Spec{{DType: x.DType, Shape: x.Layout.Shape}, {DType: w.DType, Shape: w.Layout.Shape}, {}}
			def, _ := graph.Standard().Lookup("conv")
			out, err := def.Shape(in, attrs)
			if err != nil {
				b.Fatal(err)
			}
			c := &ops.Call{Ctx: context.Background(), Attrs: attrs, Pool: pool, Work: make([]byte, convWork(in, out, attrs))}
			y := benchTensor(out[0].Shape...)
			c.In = []ops.View{
				{Data: x.Data, DType: x.DType, Layout: x.Layout}, {Data: w.Data, DType: w.DType, Layout: w.Layout}, {},
			}
			c.Out = []ops.View{{Data: y.Data, DType: y.DType, Layout: y.Layout}}
			for b.Loop() {
				if err := runConv(c); err != nil {
					b.Fatal(err)
				}
			}
			flops := float64(def.FLOPs(in, out, attrs)) * float64(b.N)
			b.ReportMetric(flops/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}

func benchTensor(dims ...int) *tensor.Tensor {
	return tensor.Of(make([]float32, ops.Volume(dims)), dims...)
}
