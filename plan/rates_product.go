package plan

import (
	"math"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// A Point is how fast ops of one size were measured to be.
type Point struct {
	// M, N and K are the sizes of the product of matrices that the op is; see [ProductOf].
	M, N, K int64
	FLOPs   float64
}

// A Product is an op as a product of matrices of M×K and K×N. Ops of one class and about one size are about as fast.
type Product struct {
	Class   string
	M, N, K int64
}

// ProductOf returns an op as a product, false where it is none. Linear layers have their rows in M and their outputs in N;
// convolutions the output channels of a group in M, and the pixels of the batch in N; attention has the queries in M and
// the keys in N.
func ProductOf(kind layers.Kind, in, out []layers.Spec, a layers.Attrs) (Product, bool) {
	switch kind {
	case "linear":
		k := last(in[1].Shape)
		return Product{"linear", elements(in[0].Shape) / max(k, 1), int64(in[1].Shape[0]), k}, true
	case "matmul":
		x, y := in[0].Shape, in[1].Shape
		return Product{"matmul", int64(x[len(x)-2]), last(y), last(x)}, true
	case "scaled_dot_product_attention":
		q, k := in[0].Shape, in[1].Shape
		return Product{"attention", int64(q[len(q)-2]), int64(k[len(k)-2]), last(q)}, true
	case "conv":
		w := in[1].Shape
		groups := max(a.Int("groups"), 1)
		taps := elements(w[2:])
		p := Product{"conv", int64(out[0].Shape[1] / groups), 0, elements(w[1:])}
		p.N = elements(out[0].Shape) / max(int64(out[0].Shape[1]), 1)
		switch {
		case a.Bool("transposed"):
			p.Class = "conv transposed"
			p.K = int64(w[0] / groups)
		case groups > 1 && w[1] == 1:
			p.Class = "conv depthwise"
			p.M = int64(out[0].Shape[1])
		case groups > 1:
			p.Class = "conv grouped"
		case taps == 1:
			p.Class = "conv 1"
		}
		return p, true
	}
	return Product{}, false
}

func elements(s tensor.Shape) int64 {
	n, err := s.NumElements()
	if err != nil {
		return 0
	}
	return n
}

func last(s tensor.Shape) int64 { return int64(s[len(s)-1]) }

// productFLOPs returns how fast a product is expected to be, from those that were measured: each counts the more the
// nearer its sizes are, as ratios. It returns 0 where none of the class was.
func (r Rates) productFLOPs(p Product) float64 {
	var sum, weights float64
	for _, q := range r.Points[p.Class] {
		d := square(ratio(p.M, q.M)) + square(ratio(p.N, q.N)) + square(ratio(p.K, q.K))
		// The power makes the nearest ones count nearly alone; what is added keeps an equal one from counting infinitely.
		w := math.Pow(d+0.01, -2)
		sum += w * math.Log(q.FLOPs)
		weights += w
	}
	if weights == 0 {
		return 0
	}
	return math.Exp(sum / weights)
}

func square(x float64) float64 { return x * x }

// ratio is by how many doublings two sizes differ.
func ratio(a, b int64) float64 { return math.Log2(float64(max(a, 1)) / float64(max(b, 1))) }
