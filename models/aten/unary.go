package aten

import (
	"fmt"
	"math"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// unary is the meaning of a kind over "self" as it is.
func unary(kind graph.Kind) meaning {
	return func(c *call) (*Ref, error) { return c.apply(kind, nil, c.tensor("self")) }
}

// floatUnary is unary for kinds over floats: integers become float32.
func floatUnary(kind graph.Kind) meaning {
	return func(c *call) (*Ref, error) { return c.applyFloat(kind, nil, c.tensor("self")) }
}

// applyFloat emits a kind over floats for a tensor of any real dtype.
func (b *Builder) applyFloat(kind graph.Kind, attrs graph.Attrs, r *Ref) (*Ref, error) {
	r, err := b.Cast(r, floatResult(r.dtype))
	if err != nil {
		return nil, err
	}
	return b.apply(kind, attrs, r)
}

// rounding is the meaning of a kind that leaves integers as they are.
func rounding(kind graph.Kind) meaning {
	return func(c *call) (*Ref, error) {
		x := c.tensor("self")
		if isIntegral(x.dtype) {
			return c.copy(x)
		}
		return c.apply(kind, nil, x)
	}
}

// scaled is the meaning of a product with a number.
func scaled(factor float64) meaning {
	return func(c *call) (*Ref, error) {
		x := c.tensor("self")
		return c.arithmetic("mul", nil, floatResult(x.dtype), x, factor)
	}
}

func functionTargets() []atenOp {
	const self = "(Tensor self) -> Tensor"
	var all []atenOp
	for _, name := range []string{
		"acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "digamma", "erf", "erfc", "erfinv", "exp",
		"exp2", "expm1", "lgamma", "log", "log10", "log1p", "log2", "reciprocal", "rsqrt", "sigmoid", "sin", "sinc",
		"sinh", "sqrt", "tan", "tanh",
	} {
		all = append(all, twins("aten::"+name+self, floatUnary(graph.Kind(name)))...)
	}
	for name, kind := range map[string]graph.Kind{
		"arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan",
		"arctanh": "atanh",
	} {
		all = append(all, twins("aten::"+name+self, floatUnary(kind))...)
	}
	for name, kind := range map[string]graph.Kind{
		"erf": "erf", "erfc": "erfc", "erfinv": "erfinv", "exp2": "exp2", "expm1": "expm1", "log1p": "log1p",
		"expit": "sigmoid", "sinc": "sinc", "ndtr": "ndtr", "gammaln": "lgamma", "psi": "digamma", "digamma": "digamma",
	} {
		all = append(all, op("aten::special_"+name+self, floatUnary(kind)))
	}
	for name, kind := range map[string]graph.Kind{"neg": "neg", "negative": "neg", "frac": "frac"} {
		all = append(all, twins("aten::"+name+self, unary(kind))...)
	}
	all = append(
		all, twins("aten::square"+self, func(c *call) (*Ref, error) { return c.power(c.tensor("self"), 2) })...,
	)
	for name, kind := range map[string]graph.Kind{
		"ceil": "ceil", "floor": "floor", "round": "round", "trunc": "trunc", "fix": "trunc",
	} {
		all = append(all, twins("aten::"+name+self, rounding(kind))...)
	}
	for name, kind := range map[string]graph.Kind{"abs": "abs", "absolute": "abs", "sign": "sign", "sgn": "sign"} {
		all = append(all, twins("aten::"+name+self, func(c *call) (*Ref, error) {
			x := c.tensor("self")
			if x.dtype == tensor.Bool {
				return c.copy(x)
			}
			return c.apply(kind, nil, x)
		})...)
	}
	all = append(all, twins("aten::deg2rad"+self, scaled(math.Pi/180))...)
	all = append(all, twins("aten::rad2deg"+self, scaled(180/math.Pi))...)
	all = append(all, twins("aten::round.decimals(Tensor self, *, int decimals) -> Tensor", roundDecimals)...)
	all = append(all, op("aten::special_round(Tensor self, *, int decimals=0) -> Tensor", roundDecimals))
	logit := func(c *call) (*Ref, error) {
		return c.applyFloat("logit", graph.Attrs{"eps": c.optFloat("eps", math.NaN())}, c.tensor("self"))
	}
	all = append(all, twins("aten::logit(Tensor self, float? eps=None) -> Tensor", logit)...)
	all = append(all, op("aten::special_logit(Tensor self, float? eps=None) -> Tensor", logit))
	all = append(all, twins(
		"aten::nan_to_num(Tensor self, float? nan=None, float? posinf=None, float? neginf=None) -> Tensor",
		nanToNum)...)
	all = append(all, twins("aten::bitwise_not"+self, unary("bitwise_not"))...)
	return append(all, twins("aten::logical_not"+self, func(c *call) (*Ref, error) {
		x, err := c.Cast(c.tensor("self"), tensor.Bool)
		if err != nil {
			return nil, err
		}
		return c.apply("bitwise_not", nil, x)
	})...)
}

// roundDecimals rounds to a number of decimal places: the number is scaled, rounded and scaled back, as PyTorch does.
func roundDecimals(c *call) (*Ref, error) {
	x, decimals := c.tensor("self"), c.int("decimals")
	switch {
	case isIntegral(x.dtype) && decimals >= 0:
		return c.copy(x)
	case isIntegral(x.dtype):
		return nil, fmt.Errorf("integers rounded to %d decimals", decimals)
	case decimals == 0:
		return c.apply("round", nil, x)
	}
	up, down := graph.Kind("mul"), graph.Kind("div")
	if decimals < 0 {
		up, down, decimals = down, up, -decimals
	}
	d := x.dtype
	if d.IsHalf() { // scaled without rounding to half precision
		var err error
		if x, err = c.Cast(x, tensor.Float32); err != nil {
			return nil, err
		}
	}
	factor := math.Pow(10, float64(decimals))
	r, err := c.arithmetic(up, nil, x.dtype, x, factor)
	if err != nil {
		return nil, err
	}
	if r, err = c.apply("round", nil, r); err != nil {
		return nil, err
	}
	if r, err = c.arithmetic(down, nil, x.dtype, r, factor); err != nil {
		return nil, err
	}
	return c.Cast(r, d)
}

// largestFinite returns the largest number of a float dtype.
func largestFinite(d tensor.DType) float64 {
	switch d {
	case tensor.Float16:
		return 65504
	case tensor.BFloat16:
		return 0x1.fep127
	case tensor.Float32:
		return math.MaxFloat32
	}
	return math.MaxFloat64
}

func nanToNum(c *call) (*Ref, error) {
	x := c.tensor("self")
	if isIntegral(x.dtype) {
		return c.copy(x)
	}
	largest := largestFinite(x.dtype)
	return c.apply("nan_to_num", graph.Attrs{
		"nan": c.optFloat("nan", 0), "posinf": c.optFloat("posinf", largest), "neginf": c.optFloat("neginf", -largest),
	}, x)
}
