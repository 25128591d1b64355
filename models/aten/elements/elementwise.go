package elements

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// ElementwiseTargets are the ops that compute each element of the result from the elements at the same place.
var ElementwiseTargets = slices.Concat(
	arithmeticTargets(), functionTargets(), activationTargets(), comparisonTargets(), selectionTargets(),
	specialTargets(),
)

func arithmeticTargets() []call.Overload {
	add := func(c *call.Call) (*cells.Ref, error) {
		return c.Sum("add", c.Operand("self"), c.Operand("other"), c.Number("alpha"))
	}
	sub := func(c *call.Call) (*cells.Ref, error) {
		return c.Sum("sub", c.Operand("self"), c.Operand("other"), c.Number("alpha"))
	}
	rsub := func(c *call.Call) (*cells.Ref, error) {
		return c.Sum("sub", c.Operand("other"), c.Operand("self"), c.Number("alpha"))
	}
	mul := func(c *call.Call) (*cells.Ref, error) {
		x, y := c.Operand("self"), c.Operand("other")
		d, err := cells.ResultType(x, y)
		if err != nil {
			return nil, err
		}
		return c.Arithmetic("mul", nil, d, x, y)
	}
	const (
		withScalar = "(Tensor self, Scalar other) -> Tensor"
		withTensor = "(Tensor self, Tensor other) -> Tensor"
		mode       = ", *, str? rounding_mode) -> Tensor"
	)
	var all []call.Overload
	for _, name := range []string{"add", "sub", "subtract"} {
		f := add
		if name != "add" {
			f = sub
		}
		all = append(all, call.Twins("aten::"+name+".Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", f)...)
		all = append(all, call.Twins("aten::"+name+".Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor", f)...)
	}
	all = append(all,
		call.One("aten::rsub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", rsub),
		call.One("aten::rsub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor", rsub),
	)
	for name, f := range map[string]call.Meaning{
		"mul": mul, "multiply": mul, "div": divide, "divide": divide, "true_divide": divide,
		"remainder": call.Binary("remainder"), "fmod": call.Binary("fmod"), "copysign": call.FloatBinary("copysign"),
	} {
		all = append(all, call.Twins("aten::"+name+".Tensor"+withTensor, f)...)
		all = append(all, call.Twins("aten::"+name+".Scalar"+withScalar, f)...)
	}
	for _, name := range []string{"div", "divide"} {
		all = append(all, call.Twins("aten::"+name+".Tensor_mode(Tensor self, Tensor other"+mode, divide)...)
		all = append(all, call.Twins("aten::"+name+".Scalar_mode(Tensor self, Scalar other"+mode, divide)...)
	}
	floorDivide := division("div_floor")
	all = append(all,
		call.One("aten::floor_divide"+withTensor, floorDivide), call.One("aten::floor_divide.Scalar"+withScalar, floorDivide),
		call.InPlace("aten::floor_divide_.Tensor"+withTensor, floorDivide),
		call.InPlace("aten::floor_divide_.Scalar"+withScalar, floorDivide),
		call.One("aten::remainder.Scalar_Tensor(Scalar self, Tensor other) -> Tensor", call.Binary("remainder")),
	)
	for name, f := range map[string]call.Meaning{
		"atan2": call.FloatBinary("atan2"), "arctan2": call.FloatBinary("atan2"), "hypot": call.Binary("hypot"),
		"nextafter": call.FloatBinary("nextafter"), "gcd": call.Binary("gcd"), "lcm": call.Binary("lcm"),
	} {
		all = append(all, call.Twins("aten::"+name+withTensor, f)...)
	}
	for name, kind := range map[string]graph.Kind{
		"maximum": "maximum", "max.other": "maximum", "minimum": "minimum", "min.other": "minimum",
		"fmax": "fmax", "fmin": "fmin", "logaddexp": "logaddexp", "logaddexp2": "logaddexp2",
	} {
		all = append(all, call.One("aten::"+name+withTensor, call.Binary(kind)))
	}
	all = append(all, call.Twins("aten::heaviside(Tensor self, Tensor values) -> Tensor", func(c *call.Call) (*cells.Ref, error) {
		return c.Combine("heaviside", nil, c.Operands("self", "values")...)
	})...)
	xlogy := call.FloatBinary("xlogy")
	all = append(all, call.Twins("aten::xlogy.Tensor"+withTensor, xlogy)...)
	all = append(all, call.Twins("aten::xlogy.Scalar_Other"+withScalar, xlogy)...)
	all = append(all,
		call.One("aten::xlogy.Scalar_Self(Scalar self, Tensor other) -> Tensor", xlogy),
		call.One("aten::special_xlogy"+withTensor, xlogy), call.One("aten::special_xlogy.other_scalar"+withScalar, xlogy),
		call.One("aten::special_xlogy.self_scalar(Scalar self, Tensor other) -> Tensor", xlogy),
		call.One("aten::ldexp.Tensor"+withTensor, ldexp), call.InPlace("aten::ldexp_"+withTensor, ldexp),
	)
	return append(all, powerTargets()...)
}

// division is the meaning of a kind that divides and rounds.
func division(kind graph.Kind) call.Meaning {
	return func(c *call.Call) (*cells.Ref, error) {
		x, y := c.Operand("self"), c.Operand("other")
		d, err := cells.ResultType(x, y)
		if err != nil {
			return nil, err
		}
		return c.Arithmetic(kind, nil, d, x, y)
	}
}

// divide is true division, whose result is a float, or division rounded to an integer where "rounding_mode" says so.
func divide(c *call.Call) (*cells.Ref, error) {
	x, y := c.Operand("self"), c.Operand("other")
	switch mode := c.Text("rounding_mode"); mode {
	case "floor":
		return division("div_floor")(c)
	case "trunc":
		return division("div_trunc")(c)
	case "":
	default:
		return nil, fmt.Errorf("rounding mode %q", mode)
	}
	d, err := cells.ResultType(x, y)
	if err != nil {
		return nil, err
	}
	return c.Arithmetic("div", nil, cells.FloatResult(d), x, y)
}

// ldexp: self × 2^other.
func ldexp(c *call.Call) (*cells.Ref, error) {
	x, y := c.Operand("self"), c.Operand("other")
	p, err := c.Combine("pow", nil, 2.0, y)
	if err != nil {
		return nil, err
	}
	return c.Combine("mul", nil, x, p)
}

func powerTargets() []call.Overload {
	pow := func(c *call.Call) (*cells.Ref, error) {
		return power(c.Builder, c.Operand("self"), c.Operand("exponent"))
	}
	floatPow := func(c *call.Call) (*cells.Ref, error) {
		refs, err := c.Together(tensor.Float64, c.Operand("self"), c.Operand("exponent"))
		if err != nil {
			return nil, err
		}
		return c.Apply("pow", nil, refs...)
	}
	var all []call.Overload
	for name, f := range map[string]call.Meaning{"pow": pow, "float_power": floatPow} {
		all = append(all,
			call.One("aten::"+name+".Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor", f),
			call.One("aten::"+name+".Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor", f),
			call.One("aten::"+name+".Scalar(Scalar self, Tensor exponent) -> Tensor", f),
			call.InPlace("aten::"+name+"_.Tensor(Tensor self, Tensor exponent) -> Tensor", f),
			call.InPlace("aten::"+name+"_.Scalar(Tensor self, Scalar exponent) -> Tensor", f),
		)
	}
	return all
}

// power builds x^y. Exponents that are functions of their own are built as those, as PyTorch computes them.
func power(b *cells.Builder, x, y cells.Argument) (*cells.Ref, error) {
	d, err := cells.ResultType(x, y)
	if err != nil {
		return nil, err
	}
	self, isTensor := x.(*cells.Ref)
	_, hasTensorExponent := y.(*cells.Ref)
	if !isTensor || hasTensorExponent {
		return b.Combine("pow", nil, x, y)
	}
	exponent := cells.FloatOfNumber(y)
	if cells.IsIntegral(d) && exponent < 0 {
		return nil, fmt.Errorf("integers to the power of %v", y)
	}
	if self, err = b.Cast(self, d); err != nil {
		return nil, err
	}
	switch exponent {
	case 0:
		return b.Filled(1, d, self.Shape())
	case 1:
		return b.Copy(self)
	case 2:
		return b.Apply("square", nil, self)
	case 3:
		if d == tensor.BFloat16 { // rounded twice
			squared, err := b.Apply("square", nil, self)
			if err != nil {
				return nil, err
			}
			return b.Apply("mul", nil, squared, self)
		}
	}
	if d == tensor.Float16 { // not by functions of their own, which give other results for −∞
		return b.Combine("pow", nil, self, y)
	}
	switch exponent {
	case 0.5:
		return b.Apply("sqrt", nil, self)
	case -0.5:
		return b.Apply("rsqrt", nil, self)
	case -1:
		return b.Apply("reciprocal", nil, self)
	}
	return b.Combine("pow", nil, self, y)
}
