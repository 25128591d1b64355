package graph

import "github.com/optimem/optimem/tensor"

// A Product is an op as a product of matrices of M×K and K×N. Ops of one class and about one size are about as fast.
type Product struct {
	Class   string
	M, N, K int64
}

// ConvProduct returns a convolution as a product: the output channels of a group in M, the pixels of the batch in N. Its
// class is what kind says and what sort of convolution it is.
func ConvProduct(kind string, weight tensor.Shape, pixels int64, a Attrs) Product {
	groups, outputs := max(a.Int("groups"), 1), ConvOutputs(weight, a)
	p := Product{Class: kind, M: int64(outputs / groups), N: pixels, K: elementsOf(weight[1:])}
	switch {
	case a.Bool("transposed"):
		p.Class += " transposed"
		p.K = int64(weight[0] / groups)
	case groups > 1 && weight[1] == 1:
		p.Class += " depthwise"
		p.M = int64(outputs)
	case groups > 1:
		p.Class += " grouped"
	case elementsOf(weight[2:]) == 1:
		p.Class += " 1"
	}
	return p
}

// ConvOutputs returns how many output channels a convolution has.
func ConvOutputs(weight tensor.Shape, a Attrs) int {
	if a.Bool("transposed") {
		return weight[1] * max(a.Int("groups"), 1)
	}
	return weight[0]
}

// elementsOf returns the number of elements of a shape that was checked.
func elementsOf(s tensor.Shape) int64 {
	n, err := s.NumElements()
	if err != nil {
		return 0
	}
	return n
}
