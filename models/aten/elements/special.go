package elements

import (
	"fmt"
	"math"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// specialTargets are functions of torch.special that few networks use.
func specialTargets() []call.Overload {
	const self = "(Tensor self) -> Tensor"
	var all []call.Overload
	for _, name := range []string{
		"entr", "erfcx", "log_ndtr", "ndtri", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "i0", "i0e", "i1",
		"i1e",
	} {
		all = append(all, call.One("aten::special_"+name+self, floatUnary(graph.Kind(name))))
	}
	for name, kind := range map[string]graph.Kind{"modified_bessel_i0": "i0", "modified_bessel_i1": "i1"} {
		all = append(all, call.One("aten::special_"+name+self, floatUnary(kind)))
	}
	all = append(all, call.Twins("aten::i0"+self, floatUnary("i0"))...)
	all = append(all, call.One("aten::special_spherical_bessel_j0(Tensor x) -> Tensor",
		func(c *call.Call) (*cells.Ref, error) {
			return c.ApplyFloat("spherical_bessel_j0", nil, c.Tensor("x"))
		}))
	for name, kind := range map[string]graph.Kind{"xlog1py": "xlog1py", "zeta": "zeta"} {
		f := call.FloatBinary(kind)
		all = append(all,
			call.One("aten::special_"+name+"(Tensor self, Tensor other) -> Tensor", f),
			call.One("aten::special_"+name+".other_scalar(Tensor self, Scalar other) -> Tensor", f),
			call.One("aten::special_"+name+".self_scalar(Scalar self, Tensor other) -> Tensor", f),
		)
	}
	all = append(all, call.Twins("aten::mvlgamma(Tensor self, int p) -> Tensor", multigammaln)...)
	return append(all,
		call.One("aten::special_multigammaln(Tensor self, int p) -> Tensor", multigammaln),
		call.One("aten::polygamma(int n, Tensor self) -> Tensor", polygamma),
		call.One("aten::special_polygamma(int n, Tensor self) -> Tensor", polygamma),
		call.InPlace("aten::polygamma_(Tensor self, int n) -> Tensor", polygamma),
	)
}

// maxOrder bounds the order of the multivariate gamma function: it has as many terms.
const maxOrder = 1 << 10

// multigammaln: Σ lgamma(x − j/2) over j < p, and p(p−1)/4 log π.
func multigammaln(c *call.Call) (*cells.Ref, error) {
	x, p := c.Tensor("self"), c.Int("p")
	if c.Err != nil {
		return nil, c.Err
	}
	if p < 1 {
		return nil, fmt.Errorf("order %d", p)
	}
	if p > maxOrder {
		return nil, c.Unsupported("order %d: at most %d", p, maxOrder)
	}
	d := cells.FloatResult(x.DType())
	sum, err := c.Scalar(float64(p)*float64(p-1)/4*math.Log(math.Pi), d)
	if err != nil {
		return nil, err
	}
	for j := range p {
		term, err := c.CombineFloat("sub", nil, x, float64(j)/2)
		if err != nil {
			return nil, err
		}
		if term, err = c.ApplyFloat("lgamma", nil, term); err != nil {
			return nil, err
		}
		if sum, err = c.Combine("add", nil, term, sum); err != nil {
			return nil, err
		}
	}
	return sum, nil
}

// polygamma is the n-th derivative of digamma: (−1)^(n+1) n! zeta(n + 1, x).
func polygamma(c *call.Call) (*cells.Ref, error) {
	x, n := c.Tensor("self"), c.Int("n")
	if c.Err != nil {
		return nil, c.Err
	}
	switch {
	case n < 0:
		return nil, fmt.Errorf("derivative %d", n)
	case n == 0:
		return c.ApplyFloat("digamma", nil, x)
	case n == 1:
		return c.ApplyFloat("trigamma", nil, x)
	}
	d := cells.FloatResult(x.DType())
	if d.IsHalf() {
		return nil, c.Unsupported("polygamma of %v", d)
	}
	order, err := c.Full(float64(n)+1, d, tensor.Shape{})
	if err != nil {
		return nil, err
	}
	z, err := c.CombineFloat("zeta", nil, order, x)
	if err != nil {
		return nil, err
	}
	factor := math.Gamma(float64(n) + 1)
	if n%2 == 0 {
		factor = -factor
	}
	return c.Arithmetic("mul", nil, d, z, factor)
}
