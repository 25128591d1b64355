package aten

import (
	"fmt"
	"math"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// specialTargets are functions of torch.special that few networks use.
func specialTargets() []atenOp {
	const self = "(Tensor self) -> Tensor"
	var all []atenOp
	for _, name := range []string{
		"entr", "erfcx", "log_ndtr", "ndtri", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "i0", "i0e", "i1",
		"i1e",
	} {
		all = append(all, op("aten::special_"+name+self, floatUnary(graph.Kind(name))))
	}
	for name, kind := range map[string]graph.Kind{"modified_bessel_i0": "i0", "modified_bessel_i1": "i1"} {
		all = append(all, op("aten::special_"+name+self, floatUnary(kind)))
	}
	all = append(all, twins("aten::i0"+self, floatUnary("i0"))...)
	all = append(all, op("aten::special_spherical_bessel_j0(Tensor x) -> Tensor", func(c *call) (*Ref, error) {
		return c.applyFloat("spherical_bessel_j0", nil, c.tensor("x"))
	}))
	for name, kind := range map[string]graph.Kind{"xlog1py": "xlog1py", "zeta": "zeta"} {
		f := floatBinary(kind)
		all = append(all,
			op("aten::special_"+name+"(Tensor self, Tensor other) -> Tensor", f),
			op("aten::special_"+name+".other_scalar(Tensor self, Scalar other) -> Tensor", f),
			op("aten::special_"+name+".self_scalar(Scalar self, Tensor other) -> Tensor", f),
		)
	}
	all = append(all, twins("aten::mvlgamma(Tensor self, int p) -> Tensor", multigammaln)...)
	return append(all,
		op("aten::special_multigammaln(Tensor self, int p) -> Tensor", multigammaln),
		op("aten::polygamma(int n, Tensor self) -> Tensor", polygamma),
		op("aten::special_polygamma(int n, Tensor self) -> Tensor", polygamma),
		inPlace("aten::polygamma_(Tensor self, int n) -> Tensor", polygamma),
	)
}

// maxOrder bounds the order of the multivariate gamma function: it has as many terms.
const maxOrder = 1 << 10

// multigammaln: Σ lgamma(x − j/2) over j < p, and p(p−1)/4 log π.
func multigammaln(c *call) (*Ref, error) {
	x, p := c.tensor("self"), c.int("p")
	if c.err != nil {
		return nil, c.err
	}
	if p < 1 {
		return nil, fmt.Errorf("order %d", p)
	}
	if p > maxOrder {
		return nil, c.Unsupported("order %d: at most %d", p, maxOrder)
	}
	d := floatResult(x.dtype)
	sum, err := c.Scalar(float64(p)*float64(p-1)/4*math.Log(math.Pi), d)
	if err != nil {
		return nil, err
	}
	for j := range p {
		term, err := c.combineFloat("sub", nil, x, float64(j)/2)
		if err != nil {
			return nil, err
		}
		if term, err = c.applyFloat("lgamma", nil, term); err != nil {
			return nil, err
		}
		if sum, err = c.combine("add", nil, term, sum); err != nil {
			return nil, err
		}
	}
	return sum, nil
}

// polygamma is the n-th derivative of digamma: (−1)^(n+1) n! zeta(n + 1, x).
func polygamma(c *call) (*Ref, error) {
	x, n := c.tensor("self"), c.int("n")
	if c.err != nil {
		return nil, c.err
	}
	switch {
	case n < 0:
		return nil, fmt.Errorf("derivative %d", n)
	case n == 0:
		return c.applyFloat("digamma", nil, x)
	case n == 1:
		return c.applyFloat("trigamma", nil, x)
	}
	d := floatResult(x.dtype)
	if d.IsHalf() {
		return nil, c.Unsupported("polygamma of %v", d)
	}
	order, err := c.full(float64(n)+1, d, tensor.Shape{})
	if err != nil {
		return nil, err
	}
	z, err := c.combineFloat("zeta", nil, order, x)
	if err != nil {
		return nil, err
	}
	factor := math.Gamma(float64(n) + 1)
	if n%2 == 0 {
		factor = -factor
	}
	return c.arithmetic("mul", nil, d, z, factor)
}
