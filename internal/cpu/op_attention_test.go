package cpu

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// widened returns a tensor's elements in float64, in order.
func widened(x *tensor.Tensor) *tensor.Tensor {
	if x == nil || x.DType == tensor.Bool {
		return x
	}
	n := ops.Volume(x.Layout.Shape)
	values := make([]float64, n)
	ops.LoadAll(values, ops.View{Data: x.Data, DType: x.DType, Layout: x.Layout})
	return tensor.Of(values, x.Layout.Shape...)
}

// heads returns queries, keys or values as models have them: rows of all heads one behind the other, shared by groups
// of heads, or any other strides.
func heads(rng *rand.Rand, d tensor.DType, batch, count, group, rows, width int) *tensor.Tensor {
	shape := tensor.Shape{batch, count, rows, width}
	if rng.IntN(4) == 0 {
		return randomView(rng, d, shape)
	}
	own := count / group
	x := &tensor.Tensor{DType: d, Layout: tensor.Layout{
		Shape: shape, Strides: []int{rows * own * width, width, own * width, 1}, Offset: 1,
	}}
	if group > 1 { // of one head to all
		x.Layout.Strides[1] = 0
		x.Layout.Strides[2] = own * width
	}
	x.Data = make([]byte, (batch*rows*own*width+1)*d.Size())
	for i := range len(x.Data) / d.Size() {
		ops.StoreFloat(ops.View{Data: x.Data, DType: d}, i, rng.NormFloat64()*1.5)
	}
	return x
}

// TestFlash compares attention by blocks with attention in float64.
func TestFlash(t *testing.T) {
	for _, p := range poolsOf(t) {
		rng := rand.New(rand.NewPCG(31, 32))
		for round := range trials(120) {
			d := []tensor.DType{tensor.Float32, tensor.Float32, tensor.BFloat16, tensor.Float16}[round%4]
			batch, count := 1+rng.IntN(2), 1+rng.IntN(3)
			queries := []int{1, 2, 4, 5, 1 + rng.IntN(40), 197, 230}[rng.IntN(7)]
			keys := []int{1, queries, 1 + rng.IntN(50), 255 + rng.IntN(300)}[rng.IntN(4)]
			width, valueWidth := 1+rng.IntN(70), 1+rng.IntN(70)
			if rng.IntN(2) == 0 {
				width, valueWidth = 64, 64
			}
			if round%17 == 0 {
				width = 300
			}
			group := 1
			if rng.IntN(3) == 0 {
				group = count
			}
			in := []*tensor.Tensor{
				heads(rng, d, batch, count, 1, queries, width),
				heads(rng, d, batch, count, group, keys, width),
				heads(rng, d, batch, count, group, keys, valueWidth),
			}
			attrs := graph.Attrs{"scale": 0.2, "is_causal": rng.IntN(3) == 0}
			if round%13 == 0 {
				attrs["scale"] = -0.1
			}
			if attrs["is_causal"] == false {
				switch rng.IntN(3) {
				case 0:
					in = append(in, randomView(rng, tensor.Bool, tensor.Shape{batch, count, queries, keys}))
				case 1:
					in = append(in, randomView(rng, d, tensor.Shape{batch, count, queries, keys}))
				}
			}
			got, err := Compute(t.Context(), p, graph.Standard(), "scaled_dot_product_attention", attrs, in...)
			if err != nil {
				t.Fatal(err)
			}
			wide := make([]*tensor.Tensor, len(in))
			for i := range in {
				wide[i] = widened(in[i])
			}
			want, err := Compute(t.Context(), p, graph.Standard(), "scaled_dot_product_attention", attrs, wide...)
			if err != nil {
				t.Fatal(err)
			}
			x, y := widened(got[0]), ops.Elements[float64](ops.View{Data: want[0].Data})
			bound := 1.2e-5
			switch d {
			case tensor.BFloat16:
				bound = 4.5e-3
			case tensor.Float16:
				bound = 6e-4
			}
			for i, v := range ops.Elements[float64](ops.View{Data: x.Data}) {
				if !(math.Abs(v-y[i]) <= bound*max(1, math.Abs(y[i]))) {
					t.Fatalf("%s, %v: %d queries, %d keys, widths %d and %d, %v: element %d is %v, want %v",
						p.Set.Name, d, queries, keys, width, valueWidth, attrs, i, v, y[i])
				}
			}
		}
	}
}

// TestFlashAllocates: attention allocates nothing.
func TestFlashAllocates(t *testing.T) {
	rng := rand.New(rand.NewPCG(33, 34))
	for _, p := range poolsOf(t) {
		for _, queries := range []int{1, 70} {
			for _, d := range []tensor.DType{tensor.Float32, tensor.BFloat16} {
				q := heads(rng, d, 1, 4, 1, queries, 64)
				k, v := heads(rng, d, 1, 4, 1, 300, 64), heads(rng, d, 1, 4, 1, 300, 64)
				attrs := graph.Attrs{"scale": 0.125}
				if n := allocates(t, p, "scaled_dot_product_attention", attrs, q, k, v); n != 0 {
					t.Errorf("attention of %d queries allocates %v objects", queries, n)
				}
			}
		}
	}
}
