package elements

import (
	"fmt"
	"math"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// unary is the meaning of a kind over "self" as it is.
func unary(kind graph.Kind) call.Meaning {
	return func(c *call.Call) (*cells.Ref, error) { return c.Apply(kind, nil, c.Tensor("self")) }
}

// floatUnary is unary for kinds over floats: integers become float32.
func floatUnary(kind graph.Kind) call.Meaning {
	return func(c *call.Call) (*cells.Ref, error) { return c.ApplyFloat(kind, nil, c.Tensor("self")) }
}

// rounding is the meaning of a kind that leaves integers as they are.
func rounding(kind graph.Kind) call.Meaning {
	return func(c *call.Call) (*cells.Ref, error) {
		x := c.Tensor("self")
		if cells.IsIntegral(x.DType()) {
			return c.Copy(x)
		}
		return c.Apply(kind, nil, x)
	}
}

// scaled is the meaning of a product with a number.
func scaled(factor float64) call.Meaning {
	return func(c *call.Call) (*cells.Ref, error) {
		x := c.Tensor("self")
		return c.Arithmetic("mul", nil, cells.FloatResult(x.DType()), x, factor)
	}
}

func functionTargets() []call.Overload {
	const self = "(Tensor self) -> Tensor"
	var all []call.Overload
	for _, name := range []string{
		"acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "digamma", "erf", "erfc", "erfinv", "exp",
		"exp2", "expm1", "lgamma", "log", "log10", "log1p", "log2", "reciprocal", "rsqrt", "sigmoid", "sin", "sinc",
		"sinh", "sqrt", "tan", "tanh",
	} {
		all = append(all, call.Twins("aten::"+name+self, floatUnary(graph.Kind(name)))...)
	}
	for name, kind := range map[string]graph.Kind{
		"arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan",
		"arctanh": "atanh",
	} {
		all = append(all, call.Twins("aten::"+name+self, floatUnary(kind))...)
	}
	for name, kind := range map[string]graph.Kind{
		"erf": "erf", "erfc": "erfc", "erfinv": "erfinv", "exp2": "exp2", "expm1": "expm1", "log1p": "log1p",
		"expit": "sigmoid", "sinc": "sinc", "ndtr": "ndtr", "gammaln": "lgamma", "psi": "digamma", "digamma": "digamma",
	} {
		all = append(all, call.One("aten::special_"+name+self, floatUnary(kind)))
	}
	for name, kind := range map[string]graph.Kind{"neg": "neg", "negative": "neg", "frac": "frac"} {
		all = append(all, call.Twins("aten::"+name+self, unary(kind))...)
	}
	all = append(
		all, call.Twins("aten::square"+self, func(c *call.Call) (*cells.Ref,
			error) {
			return power(c.Builder, c.Tensor("self"), 2)
		})...,
	)
	for name, kind := range map[string]graph.Kind{
		"ceil": "ceil", "floor": "floor", "round": "round", "trunc": "trunc", "fix": "trunc",
	} {
		all = append(all, call.Twins("aten::"+name+self, rounding(kind))...)
	}
	for name, kind := range map[string]graph.Kind{"abs": "abs", "absolute": "abs", "sign": "sign", "sgn": "sign"} {
		all = append(all, call.Twins("aten::"+name+self, func(c *call.Call) (*cells.Ref, error) {
			x := c.Tensor("self")
			if x.DType() == tensor.Bool {
				return c.Copy(x)
			}
			return c.Apply(kind, nil, x)
		})...)
	}
	all = append(all, call.Twins("aten::deg2rad"+self, scaled(math.Pi/180))...)
	all = append(all, call.Twins("aten::rad2deg"+self, scaled(180/math.Pi))...)
	all = append(all, call.Twins("aten::round.decimals(Tensor self, *, int decimals) -> Tensor", roundDecimals)...)
	all = append(all, call.One("aten::special_round(Tensor self, *, int decimals=0) -> Tensor", roundDecimals))
	logit := func(c *call.Call) (*cells.Ref, error) {
		return c.ApplyFloat("logit", graph.Attrs{"eps": c.OptFloat("eps", math.NaN())}, c.Tensor("self"))
	}
	all = append(all, call.Twins("aten::logit(Tensor self, float? eps=None) -> Tensor", logit)...)
	all = append(all, call.One("aten::special_logit(Tensor self, float? eps=None) -> Tensor", logit))
	all = append(all, call.Twins(
		"aten::nan_to_num(Tensor self, float? nan=None, float? posinf=None, float? neginf=None) -> Tensor",
		nanToNum)...)
	all = append(all, call.Twins("aten::bitwise_not"+self, unary("bitwise_not"))...)
	return append(all, call.Twins("aten::logical_not"+self, func(c *call.Call) (*cells.Ref, error) {
		x, err := c.Cast(c.Tensor("self"), tensor.Bool)
		if err != nil {
			return nil, err
		}
		return c.Apply("bitwise_not", nil, x)
	})...)
}

// roundDecimals rounds to a number of decimal places: the number is scaled, rounded and scaled back, as PyTorch does.
func roundDecimals(c *call.Call) (*cells.Ref, error) {
	x, decimals := c.Tensor("self"), c.Int("decimals")
	switch {
	case cells.IsIntegral(x.DType()) && decimals >= 0:
		return c.Copy(x)
	case cells.IsIntegral(x.DType()):
		return nil, fmt.Errorf("integers rounded to %d decimals", decimals)
	case decimals == 0:
		return c.Apply("round", nil, x)
	}
	up, down := graph.Kind("mul"), graph.Kind("div")
	if decimals < 0 {
		up, down, decimals = down, up, -decimals
	}
	d := x.DType()
	if d.IsHalf() { // scaled without rounding to half precision
		var err error
		if x, err = c.Cast(x, tensor.Float32); err != nil {
			return nil, err
		}
	}
	factor := math.Pow(10, float64(decimals))
	r, err := c.Arithmetic(up, nil, x.DType(), x, factor)
	if err != nil {
		return nil, err
	}
	if r, err = c.Apply("round", nil, r); err != nil {
		return nil, err
	}
	if r, err = c.Arithmetic(down, nil, x.DType(), r, factor); err != nil {
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

func nanToNum(c *call.Call) (*cells.Ref, error) {
	x := c.Tensor("self")
	if cells.IsIntegral(x.DType()) {
		return c.Copy(x)
	}
	largest := largestFinite(x.DType())
	return c.Apply("nan_to_num", graph.Attrs{
		"nan": c.OptFloat("nan", 0), "posinf": c.OptFloat("posinf", largest), "neginf": c.OptFloat("neginf", -largest),
	}, x)
}
