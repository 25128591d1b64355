package cost

import (
	"math"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// A Point is how fast ops of one size were measured to be.
type Point struct {
	// M, N and K are the sizes of the product of matrices that the op is; see [ProductOf].
	M, N, K int64
	FLOPs   float64
}

// ConvActivation is the activation that convolutions have where their rates are measured.
const ConvActivation graph.Kind = "relu"

// PackedClass is the class of a product whose weight lies packed.
func PackedClass(class string) string { return class + " packed" }

// ProductOf returns an op as a product, false where it is none. Linear layers have their rows in M and their outputs in N;
// convolutions the output channels of a group in M, and the pixels of the batch in N; attention has the queries in M and
// the keys in N. made is what a lowered step says of a kind of the device's own, and zero where there is no step.
func ProductOf(made graph.Product, kind graph.Kind, in, out []graph.Spec, a graph.Attrs) (graph.Product, bool) {
	if made.Class != "" {
		return made, true
	}
	switch kind {
	case "linear":
		k := last(in[0].Shape) // of the weight there may be blocks
		return product("linear", elements(in[0].Shape)/max(k, 1), int64(in[1].Shape[0]), k), true
	case "matmul":
		x, y := in[0].Shape, in[1].Shape
		return product("matmul", int64(x[len(x)-2]), last(y), last(x)), true
	case "scaled_dot_product_attention":
		q, k := in[0].Shape, in[1].Shape
		return product("attention", int64(q[len(q)-2]), int64(k[len(k)-2]), last(q)), true
	case "conv":
		w := in[1].Shape
		pixels := elements(out[0].Shape) / int64(max(graph.ConvOutputs(w, a), 1))
		return graph.ConvProduct("conv", w, pixels, a), true
	}
	return graph.Product{}, false
}

func product(class string, m, n, k int64) graph.Product {
	return graph.Product{Class: class, M: m, N: n, K: k}
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
func (r Rates) productFLOPs(p graph.Product) float64 {
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

// rawFLOPs returns how fast a product is expected to be whose weight lies as it is: as fast as with a packed one but for
// the time that turning the weight into that form takes, which does not depend on how many rows are multiplied with it.
// Sizes of the class say it only where that is not known, or there are so few rows that the weight is not turned: with
// other numbers of rows turning is another part of the time.
func (r Rates) rawFLOPs(p graph.Product) float64 {
	packed := r.productFLOPs(product(PackedClass(p.Class), p.M, p.N, p.K))
	turning, ok := r.turning(p)
	if !ok || packed == 0 {
		return r.productFLOPs(p)
	}
	return 1 / (1/packed + turning/(2*float64(rowsOf(p))))
}

// turnedRows is from how many rows on weights are turned before they are multiplied with.
const turnedRows = 16

// turning returns what turning an element of a product's weight takes, from what products of its class took both ways:
// each counts the more the nearer the shape of its weight is, and the fewer rows it has, since turning then is more of
// what was measured. It returns false where no product was measured both ways, or the product's rows are few.
func (r Rates) turning(p graph.Product) (seconds float64, ok bool) {
	if rowsOf(p) < turnedRows {
		return 0, false
	}
	var sum, weights float64
	for _, raw := range r.Points[p.Class] {
		q := product(p.Class, raw.M, raw.N, raw.K)
		rows := float64(rowsOf(q))
		if rows < turnedRows {
			continue
		}
		for _, packed := range r.Points[PackedClass(p.Class)] {
			if packed.M != q.M || packed.N != q.N || packed.K != q.K {
				continue
			}
			d := square(ratio(p.K, q.K)) + square(ratio(columnsOf(p), columnsOf(q)))
			w := math.Pow(d+1, -2) / square(rows)
			sum += w * 2 * rows * (1/raw.FLOPs - 1/packed.FLOPs)
			weights += w
		}
	}
	return max(sum/max(weights, math.SmallestNonzeroFloat64), 0), weights > 0
}

// rowsOf returns how many rows of a product are multiplied with each element of its weight: of a convolution, pixels.
func rowsOf(p graph.Product) int64 {
	if hasRowsFirst(p.Class) {
		return max(p.M, 1)
	}
	return max(p.N, 1)
}

// columnsOf returns how many columns the weight of a product has.
func columnsOf(p graph.Product) int64 {
	if hasRowsFirst(p.Class) {
		return p.N
	}
	return p.M
}

// hasRowsFirst reports whether products of a class have rows in M, as those of matrices do.
func hasRowsFirst(class string) bool { return class == "linear" || class == "matmul" }

func square(x float64) float64 { return x * x }

// ratio is by how many doublings two sizes differ.
func ratio(a, b int64) float64 { return math.Log2(float64(max(a, 1)) / float64(max(b, 1))) }
