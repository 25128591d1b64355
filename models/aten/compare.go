package aten

import (
	"math"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// comparisonTargets are comparisons, logic and operations on bits.
func comparisonTargets() []atenOp {
	const (
		self       = "(Tensor self) -> Tensor"
		withTensor = "(Tensor self, Tensor other) -> Tensor"
		withScalar = "(Tensor self, Scalar other) -> Tensor"
		fromScalar = "(Scalar self, Tensor other) -> Tensor"
	)
	var all []atenOp
	for name, kind := range map[string]graph.Kind{
		"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "not_equal": "ne", "less": "lt",
		"less_equal": "le", "greater": "gt", "greater_equal": "ge",
	} {
		all = append(all, twins("aten::"+name+".Tensor"+withTensor, binary(kind))...)
		all = append(all, twins("aten::"+name+".Scalar"+withScalar, binary(kind))...)
	}
	for _, name := range []string{"and", "or", "xor"} {
		kind := graph.Kind("bitwise_" + name)
		all = append(all, twins("aten::logical_"+name+withTensor, func(c *call) (*Ref, error) {
			refs, err := c.together(tensor.Bool, c.operands("self", "other")...)
			if err != nil {
				return nil, err
			}
			return c.apply(kind, nil, refs...)
		})...)
		all = append(all, twins("aten::bitwise_"+name+".Tensor"+withTensor, binary(kind))...)
		all = append(all, twins("aten::bitwise_"+name+".Scalar"+withScalar, binary(kind))...)
		all = append(all, op("aten::bitwise_"+name+".Scalar_Tensor"+fromScalar, binary(kind)))
		all = append(all, operators(name, binary(kind))...)
	}
	for name, long := range map[string]string{"lshift": "left", "rshift": "right"} {
		f := binary(graph.Kind("shift_" + long))
		all = append(all, twins("aten::bitwise_"+long+"_shift.Tensor"+withTensor, f)...)
		all = append(all, twins("aten::bitwise_"+long+"_shift.Tensor_Scalar"+withScalar, f)...)
		all = append(all, op("aten::bitwise_"+long+"_shift.Scalar_Tensor"+fromScalar, f))
		all = append(all, operators(name, f)...)
	}
	return append(all,
		op("aten::isnan"+self, func(c *call) (*Ref, error) {
			x := c.tensor("self")
			return c.floatTest("ne", x, x, false)
		}),
		op("aten::isinf"+self, func(c *call) (*Ref, error) { return c.magnitudeTest("eq", false) }),
		op("aten::isfinite"+self, func(c *call) (*Ref, error) { return c.magnitudeTest("lt", true) }),
		op("aten::isposinf"+self, func(c *call) (*Ref, error) {
			return c.floatTest("eq", c.tensor("self"), math.Inf(1), false)
		}),
		op("aten::isneginf"+self, func(c *call) (*Ref, error) {
			return c.floatTest("eq", c.tensor("self"), math.Inf(-1), false)
		}),
		op("aten::isreal"+self, func(c *call) (*Ref, error) {
			return c.filled(true, tensor.Bool, c.tensor("self").shape())
		}),
		op("aten::signbit"+self, unary("signbit")),
		op("aten::isclose(Tensor self, Tensor other, float rtol=1.0000000000000001e-05, float atol=1e-08, "+
			"bool equal_nan=False) -> Tensor", isClose),
	)
}

// operators returns the overloads that Python's operators have: __and__, and __iand__ in place.
func operators(name string, f meaning) []atenOp {
	return []atenOp{
		op("aten::__"+name+"__.Tensor(Tensor self, Tensor other) -> Tensor", f),
		op("aten::__"+name+"__.Scalar(Tensor self, Scalar other) -> Tensor", f),
		inPlace("aten::__i"+name+"__.Tensor(Tensor self, Tensor other) -> Tensor", f),
		inPlace("aten::__i"+name+"__.Scalar(Tensor self, Scalar other) -> Tensor", f),
	}
}

// floatTest compares floats; integers all give the same answer.
func (b *Builder) floatTest(kind graph.Kind, x *Ref, y operandArg, ofIntegers bool) (*Ref, error) {
	if isIntegral(x.dtype) {
		return b.filled(ofIntegers, tensor.Bool, x.shape())
	}
	return b.combine(kind, nil, x, y)
}

// magnitudeTest compares |self| with infinity.
func (c *call) magnitudeTest(kind graph.Kind, ofIntegers bool) (*Ref, error) {
	x := c.tensor("self")
	if !isIntegral(x.dtype) {
		var err error
		if x, err = c.apply("abs", nil, x); err != nil {
			return nil, err
		}
	}
	return c.floatTest(kind, x, math.Inf(1), ofIntegers)
}

// isClose: self = other, or |self − other| is finite and at most atol + |rtol × other|.
func isClose(c *call) (*Ref, error) {
	refs, err := c.broadcast(c.tensor("self"), c.tensor("other"))
	if err != nil {
		return nil, err
	}
	rtol, atol := c.float("rtol"), c.float("atol")
	x, y := refs[0], refs[1]
	// Every step is one op; the first error ends them.
	do := func(kind graph.Kind, operands ...operandArg) *Ref {
		if err != nil {
			return x
		}
		var r *Ref
		if r, err = c.combine(kind, nil, operands...); err != nil {
			return x
		}
		return r
	}
	near := do("eq", x, y)
	if c.bool("equal_nan") && !isIntegral(x.dtype) {
		near = do("bitwise_or", near, do("bitwise_and", do("ne", x, x), do("ne", y, y)))
	}
	if rtol == 0 && atol == 0 {
		return near, err
	}
	if isIntegral(x.dtype) && err == nil {
		if x, err = c.Cast(x, defaultFloat); err == nil {
			y, err = c.Cast(y, defaultFloat)
		}
	}
	allowed := do("add", do("abs", do("mul", y, rtol)), atol)
	actual := do("abs", do("sub", x, y))
	within := do("bitwise_and", do("lt", actual, math.Inf(1)), do("le", actual, allowed))
	return do("bitwise_or", near, within), err
}
