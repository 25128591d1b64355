package cpu

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// BenchmarkVector measures the ops that are not products, in shapes of transformers and convolutional networks, on one
// thread and on two.
func BenchmarkVector(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	floats := func(shape ...int) *tensor.Tensor {
		x := make([]float32, ops.Volume(shape))
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		return tensor.Of(x, shape...)
	}
	turned := floats(16, 196, 768)
	turned.Layout = tensor.Layout{Shape: tensor.Shape{16, 768, 196}, Strides: []int{196 * 768, 1, 768}}
	row := floats(768)
	row.Layout = tensor.Layout{Shape: tensor.Shape{512, 768}, Strides: []int{0, 1}}
	heads := func(rows int) *tensor.Tensor {
		x := floats(1, rows, 12, 64)
		x.Layout = tensor.Layout{Shape: tensor.Shape{1, 12, rows, 64}, Strides: []int{rows * 768, 64, 768, 1}}
		return x
	}
	type item struct {
		name  string
		kind  graph.Kind
		attrs graph.Attrs
		in    []*tensor.Tensor
	}
	items := []item{
		{"exp 512x3072", "exp", nil, []*tensor.Tensor{floats(512, 3072)}},
		{"tanh 512x3072", "tanh", nil, []*tensor.Tensor{floats(512, 3072)}},
		{"silu 512x3072", "silu", nil, []*tensor.Tensor{floats(512, 3072)}},
		{"gelu 512x3072", "gelu", nil, []*tensor.Tensor{floats(512, 3072)}},
		{"gelu tanh 512x3072", "gelu", graph.Attrs{"approximate": "tanh"}, []*tensor.Tensor{floats(512, 3072)}},
		{"add 512x768", "add", nil, []*tensor.Tensor{floats(512, 768), floats(512, 768)}},
		{"add row 512x768", "add", nil, []*tensor.Tensor{floats(512, 768), row}},
		{"layer_norm 2048x768", "layer_norm", graph.Attrs{"dims": 1, "eps": 1e-5},
			[]*tensor.Tensor{floats(2048, 768), floats(768), floats(768)}},
		{"rms_norm 2048x768", "rms_norm", graph.Attrs{"dims": 1, "eps": 1e-5}, []*tensor.Tensor{floats(2048, 768), floats(768)}},
		{"softmax 1536x1024", "softmax", graph.Attrs{"dim": 1}, []*tensor.Tensor{floats(1536, 1024)}},
		{"mean 2048x768", "mean", graph.Attrs{"dims": []int{1}, "dtype": tensor.Float32}, []*tensor.Tensor{floats(2048, 768)}},
		{"transposed copy 16x768x196", "copy", nil, []*tensor.Tensor{turned}},
		{"cast to bfloat16 512x3072", "cast", graph.Attrs{"dtype": tensor.BFloat16}, []*tensor.Tensor{floats(512, 3072)}},
		{"max_pool 3x3 s2 64x112x112", "max_pool", graph.Attrs{"kernel": []int{3, 3}, "stride": []int{2, 2},
			"padding": []int{1, 1}, "dilation": []int{1, 1}}, []*tensor.Tensor{floats(1, 64, 112, 112)}},
	}
	for _, n := range []int{128, 197, 512, 1024, 2048} {
		items = append(items, item{fmt.Sprintf("attention H12 d64 T%d", n), "scaled_dot_product_attention",
			graph.Attrs{"scale": 0.125}, []*tensor.Tensor{heads(n), heads(n), heads(n)}})
	}
	items = append(items, item{"attention H12 d64 T1024 causal", "scaled_dot_product_attention",
		graph.Attrs{"scale": 0.125, "is_causal": true}, []*tensor.Tensor{heads(1024), heads(1024), heads(1024)}})
	items = append(items, item{"attention H12 d64 1x1024", "scaled_dot_product_attention",
		graph.Attrs{"scale": 0.125}, []*tensor.Tensor{heads(1), heads(1024), heads(1024)}})
	for threads := 1; threads <= 2; threads++ {
		pool := ops.NewPool(threads)
		defer pool.Close()
		for _, it := range items {
			b.Run(fmt.Sprintf("%s/%d", it.name, threads), func(b *testing.B) {
				k, err := lookup(graph.Standard(), it.kind)
				if err != nil {
					b.Fatal(err)
				}
				def, _ := graph.Standard().Lookup(it.kind)
				c := &ops.Call{Ctx: context.Background(), Attrs: it.attrs, Pool: pool}
				var specs []graph.Spec
				for _, x := range it.in {
					specs = append(specs, graph.Spec{DType: x.DType, Shape: x.Layout.Shape})
					c.In = append(c.In, ops.View{Data: x.Data, DType: x.DType, Layout: x.Layout})
				}
				outs, err := def.Shape(specs, it.attrs)
				if err != nil {
					b.Fatal(err)
				}
				for _, s := range outs {
					c.Out = append(c.Out, ops.View{
						Data: make([]byte, ops.Volume(s.Shape)*s.DType.Size()), DType: s.DType, Layout: tensor.Contiguous(s.Shape...),
					})
				}
				c.Work = make([]byte, k.WorkBytes(specs, outs, it.attrs))
				b.ReportAllocs()
				for b.Loop() {
					if err := k.Run(c); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
