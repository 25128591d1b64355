package aten

import (
	"fmt"
	"slices"
	"strings"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// elementwiseTargets are the ops that compute each element of the result from the elements at the same place.
var elementwiseTargets = slices.Concat(
	arithmeticTargets(), functionTargets(), activationTargets(), comparisonTargets(), selectionTargets(),
	specialTargets(),
)

// A meaning builds the one result of an overload.
type meaning func(c *call) (*Ref, error)

// op returns an overload with one result.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func op(schema string, f meaning) atenOp {
	return atenOp{schema, func(c *call) error { return c.giveRef(f(c)) }}
}

// twins returns an overload and its in-place twin, which PyTorch names with an underscore after.
func twins(schema string, f meaning) []atenOp {
	name, rest, _ := strings.Cut(schema, "(")
	base, overload, ok := strings.Cut(name, ".")
	if ok {
		overload = "." + overload
	}
	return []atenOp{op(schema, f), inPlace(base+"_"+overload+"("+rest, f)}
}

// inPlace returns the overload that writes the result to self, from the schema of one that does not.
func inPlace(schema string, f meaning) atenOp {
	schema = strings.Replace(schema, "(Tensor self", "(Tensor(a!) self", 1)
	schema = strings.TrimSuffix(schema, "-> Tensor") + "-> Tensor(a!)"
	return atenOp{schema, func(c *call) error {
		self := c.tensor("self")
		r, err := f(c)
		if err != nil || c.err != nil {
			return c.giveRef(nil, err)
		}
		return c.giveRef(self, c.Write(self, r))
	}}
}

// binary is the meaning of a kind over "self" and "other" with PyTorch's promotion.
func binary(kind graph.Kind) meaning {
	return func(c *call) (*Ref, error) { return c.combine(kind, nil, c.operands("self", "other")...) }
}

// floatBinary is binary for kinds over floats: integers become float32.
func floatBinary(kind graph.Kind) meaning {
	return func(c *call) (*Ref, error) { return c.combineFloat(kind, nil, c.operands("self", "other")...) }
}

// combineFloat is combine for kinds over floats.
func (b *Builder) combineFloat(kind graph.Kind, attrs graph.Attrs, operands ...operandArg) (*Ref, error) {
	refs, err := b.promoteFloat(operands...)
	if err != nil {
		return nil, err
	}
	return b.apply(kind, attrs, refs...)
}

// arithmetic emits add, sub, mul or a division in dtype d. A factor or divisor that is a number or a 0-dimensional
// tensor is not rounded to half precision: PyTorch's kernels take it as float32.
func (b *Builder) arithmetic(kind graph.Kind, attrs graph.Attrs, d tensor.DType, x, y operandArg) (*Ref, error) {
	if d == tensor.Bool {
		switch kind {
		case "add":
			kind = "bitwise_or"
		case "mul":
			kind = "bitwise_and"
		}
		attrs = nil
	}
	first, err := b.as(x, d)
	if err != nil {
		return nil, err
	}
	if r, ok := y.(*Ref); d.IsHalf() && kind != "add" && kind != "sub" && (!ok || r.rank() == 0) {
		d = tensor.Float32
	}
	second, err := b.as(y, d)
	if err != nil {
		return nil, err
	}
	refs, err := b.broadcast(first, second)
	if err != nil {
		return nil, err
	}
	return b.apply(kind, attrs, refs...)
}

// sum builds x + alpha × y, or x − alpha × y for kind "sub".
func (b *Builder) sum(kind graph.Kind, x, y operandArg, alpha number) (*Ref, error) {
	d, err := resultType(x, y)
	if err != nil {
		return nil, err
	}
	if kind == "sub" && d == tensor.Bool {
		return nil, fmt.Errorf("PyTorch does not subtract bools")
	}
	if isIntegral(d) {
		if _, ok := alpha.(float64); ok {
			return nil, fmt.Errorf("alpha is a float and the operands are %v", d)
		}
		if alpha != 1 && alpha != true {
			if y, err = b.arithmetic("mul", nil, d, y, alpha); err != nil {
				return nil, err
			}
		}
		return b.arithmetic(kind, nil, d, x, y)
	}
	var attrs graph.Attrs
	if f := floatOfNumber(alpha); f != 1 {
		attrs = graph.Attrs{"alpha": roundedTo(f, d)}
	}
	return b.arithmetic(kind, attrs, d, x, y)
}

// roundedTo returns a number as a dtype holds it.
func roundedTo(x float64, d tensor.DType) float64 {
	switch d {
	case tensor.Float16:
		return float64(tensor.Float16ToFloat32(tensor.Float16FromFloat32(float32(x))))
	case tensor.BFloat16:
		return float64(tensor.BFloat16ToFloat32(tensor.BFloat16FromFloat32(float32(x))))
	case tensor.Float32:
		return float64(float32(x))
	}
	return x
}

// floatOfNumber returns a number as a float.
func floatOfNumber(n number) float64 {
	switch n := n.(type) {
	case float64:
		return n
	case int:
		return float64(n)
	case bool:
		if n {
			return 1
		}
	}
	return 0
}

func arithmeticTargets() []atenOp {
	add := func(c *call) (*Ref, error) {
		return c.sum("add", c.operand("self"), c.operand("other"), c.number("alpha"))
	}
	sub := func(c *call) (*Ref, error) {
		return c.sum("sub", c.operand("self"), c.operand("other"), c.number("alpha"))
	}
	rsub := func(c *call) (*Ref, error) {
		return c.sum("sub", c.operand("other"), c.operand("self"), c.number("alpha"))
	}
	mul := func(c *call) (*Ref, error) {
		x, y := c.operand("self"), c.operand("other")
		d, err := resultType(x, y)
		if err != nil {
			return nil, err
		}
		return c.arithmetic("mul", nil, d, x, y)
	}
	const (
		withScalar = "(Tensor self, Scalar other) -> Tensor"
		withTensor = "(Tensor self, Tensor other) -> Tensor"
		mode       = ", *, str? rounding_mode) -> Tensor"
	)
	var all []atenOp
	for _, name := range []string{"add", "sub", "subtract"} {
		f := add
		if name != "add" {
			f = sub
		}
		all = append(all, twins("aten::"+name+".Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", f)...)
		all = append(all, twins("aten::"+name+".Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor", f)...)
	}
	all = append(all,
		op("aten::rsub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", rsub),
		op("aten::rsub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor", rsub),
	)
	for name, f := range map[string]meaning{
		"mul": mul, "multiply": mul, "div": divide, "divide": divide, "true_divide": divide,
		"remainder": binary("remainder"), "fmod": binary("fmod"), "copysign": floatBinary("copysign"),
	} {
		all = append(all, twins("aten::"+name+".Tensor"+withTensor, f)...)
		all = append(all, twins("aten::"+name+".Scalar"+withScalar, f)...)
	}
	for _, name := range []string{"div", "divide"} {
		all = append(all, twins("aten::"+name+".Tensor_mode(Tensor self, Tensor other"+mode, divide)...)
		all = append(all, twins("aten::"+name+".Scalar_mode(Tensor self, Scalar other"+mode, divide)...)
	}
	floorDivide := division("div_floor")
	all = append(all,
		op("aten::floor_divide"+withTensor, floorDivide), op("aten::floor_divide.Scalar"+withScalar, floorDivide),
		inPlace("aten::floor_divide_.Tensor"+withTensor, floorDivide),
		inPlace("aten::floor_divide_.Scalar"+withScalar, floorDivide),
		op("aten::remainder.Scalar_Tensor(Scalar self, Tensor other) -> Tensor", binary("remainder")),
	)
	for name, f := range map[string]meaning{
		"atan2": floatBinary("atan2"), "arctan2": floatBinary("atan2"), "hypot": binary("hypot"),
		"nextafter": floatBinary("nextafter"), "gcd": binary("gcd"), "lcm": binary("lcm"),
	} {
		all = append(all, twins("aten::"+name+withTensor, f)...)
	}
	for name, kind := range map[string]graph.Kind{
		"maximum": "maximum", "max.other": "maximum", "minimum": "minimum", "min.other": "minimum",
		"fmax": "fmax", "fmin": "fmin", "logaddexp": "logaddexp", "logaddexp2": "logaddexp2",
	} {
		all = append(all, op("aten::"+name+withTensor, binary(kind)))
	}
	all = append(all, twins("aten::heaviside(Tensor self, Tensor values) -> Tensor", func(c *call) (*Ref, error) {
		return c.combine("heaviside", nil, c.operands("self", "values")...)
	})...)
	xlogy := floatBinary("xlogy")
	all = append(all, twins("aten::xlogy.Tensor"+withTensor, xlogy)...)
	all = append(all, twins("aten::xlogy.Scalar_Other"+withScalar, xlogy)...)
	all = append(all,
		op("aten::xlogy.Scalar_Self(Scalar self, Tensor other) -> Tensor", xlogy),
		op("aten::special_xlogy"+withTensor, xlogy), op("aten::special_xlogy.other_scalar"+withScalar, xlogy),
		op("aten::special_xlogy.self_scalar(Scalar self, Tensor other) -> Tensor", xlogy),
		op("aten::ldexp.Tensor"+withTensor, ldexp), inPlace("aten::ldexp_"+withTensor, ldexp),
	)
	return append(all, powerTargets()...)
}

// division is the meaning of a kind that divides and rounds.
func division(kind graph.Kind) meaning {
	return func(c *call) (*Ref, error) {
		x, y := c.operand("self"), c.operand("other")
		d, err := resultType(x, y)
		if err != nil {
			return nil, err
		}
		return c.arithmetic(kind, nil, d, x, y)
	}
}

// divide is true division, whose result is a float, or division rounded to an integer where "rounding_mode" says so.
func divide(c *call) (*Ref, error) {
	x, y := c.operand("self"), c.operand("other")
	switch mode := c.str("rounding_mode"); mode {
	case "floor":
		return division("div_floor")(c)
	case "trunc":
		return division("div_trunc")(c)
	case "":
	default:
		return nil, fmt.Errorf("rounding mode %q", mode)
	}
	d, err := resultType(x, y)
	if err != nil {
		return nil, err
	}
	return c.arithmetic("div", nil, floatResult(d), x, y)
}

// ldexp: self × 2^other.
func ldexp(c *call) (*Ref, error) {
	x, y := c.operand("self"), c.operand("other")
	p, err := c.combine("pow", nil, 2.0, y)
	if err != nil {
		return nil, err
	}
	return c.combine("mul", nil, x, p)
}

func powerTargets() []atenOp {
	pow := func(c *call) (*Ref, error) { return c.power(c.operand("self"), c.operand("exponent")) }
	floatPow := func(c *call) (*Ref, error) {
		refs, err := c.together(tensor.Float64, c.operand("self"), c.operand("exponent"))
		if err != nil {
			return nil, err
		}
		return c.apply("pow", nil, refs...)
	}
	var all []atenOp
	for name, f := range map[string]meaning{"pow": pow, "float_power": floatPow} {
		all = append(all,
			op("aten::"+name+".Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor", f),
			op("aten::"+name+".Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor", f),
			op("aten::"+name+".Scalar(Scalar self, Tensor exponent) -> Tensor", f),
			inPlace("aten::"+name+"_.Tensor(Tensor self, Tensor exponent) -> Tensor", f),
			inPlace("aten::"+name+"_.Scalar(Tensor self, Scalar exponent) -> Tensor", f),
		)
	}
	return all
}

// power builds x^y. Exponents that are functions of their own are built as those, as PyTorch computes them.
func (b *Builder) power(x, y operandArg) (*Ref, error) {
	d, err := resultType(x, y)
	if err != nil {
		return nil, err
	}
	self, isTensor := x.(*Ref)
	_, hasTensorExponent := y.(*Ref)
	if !isTensor || hasTensorExponent {
		return b.combine("pow", nil, x, y)
	}
	exponent := floatOfNumber(y)
	if isIntegral(d) && exponent < 0 {
		return nil, fmt.Errorf("integers to the power of %v", y)
	}
	if self, err = b.Cast(self, d); err != nil {
		return nil, err
	}
	switch exponent {
	case 0:
		return b.filled(1, d, self.shape())
	case 1:
		return b.copy(self)
	case 2:
		return b.apply("square", nil, self)
	case 3:
		if d == tensor.BFloat16 { // rounded twice
			squared, err := b.apply("square", nil, self)
			if err != nil {
				return nil, err
			}
			return b.apply("mul", nil, squared, self)
		}
	}
	if d == tensor.Float16 { // not by functions of their own, which give other results for −∞
		return b.combine("pow", nil, self, y)
	}
	switch exponent {
	case 0.5:
		return b.apply("sqrt", nil, self)
	case -0.5:
		return b.apply("rsqrt", nil, self)
	case -1:
		return b.apply("reciprocal", nil, self)
	}
	return b.combine("pow", nil, self, y)
}
