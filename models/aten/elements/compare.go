package elements

import (
	"math"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// comparisonTargets are comparisons, logic and operations on bits.
func comparisonTargets() []call.Overload {
	const (
		self       = "(Tensor self) -> Tensor"
		withTensor = "(Tensor self, Tensor other) -> Tensor"
		withScalar = "(Tensor self, Scalar other) -> Tensor"
		fromScalar = "(Scalar self, Tensor other) -> Tensor"
	)
	var all []call.Overload
	for name, kind := range map[string]graph.Kind{
		"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "not_equal": "ne", "less": "lt",
		"less_equal": "le", "greater": "gt", "greater_equal": "ge",
	} {
		all = append(all, call.Twins("aten::"+name+".Tensor"+withTensor, call.Binary(kind))...)
		all = append(all, call.Twins("aten::"+name+".Scalar"+withScalar, call.Binary(kind))...)
	}
	for _, name := range []string{"and", "or", "xor"} {
		kind := graph.Kind("bitwise_" + name)
		all = append(all, call.Twins("aten::logical_"+name+withTensor, func(c *call.Call) (*cells.Ref, error) {
			refs, err := c.Together(tensor.Bool, c.Operands("self", "other")...)
			if err != nil {
				return nil, err
			}
			return c.Apply(kind, nil, refs...)
		})...)
		all = append(all, call.Twins("aten::bitwise_"+name+".Tensor"+withTensor, call.Binary(kind))...)
		all = append(all, call.Twins("aten::bitwise_"+name+".Scalar"+withScalar, call.Binary(kind))...)
		all = append(all, call.One("aten::bitwise_"+name+".Scalar_Tensor"+fromScalar, call.Binary(kind)))
		all = append(all, operators(name, call.Binary(kind))...)
	}
	for name, long := range map[string]string{"lshift": "left", "rshift": "right"} {
		f := call.Binary(graph.Kind("shift_" + long))
		all = append(all, call.Twins("aten::bitwise_"+long+"_shift.Tensor"+withTensor, f)...)
		all = append(all, call.Twins("aten::bitwise_"+long+"_shift.Tensor_Scalar"+withScalar, f)...)
		all = append(all, call.One("aten::bitwise_"+long+"_shift.Scalar_Tensor"+fromScalar, f))
		all = append(all, operators(name, f)...)
	}
	return append(all,
		call.One("aten::isnan"+self, func(c *call.Call) (*cells.Ref, error) {
			x := c.Tensor("self")
			return floatTest(c.Builder, "ne", x, x, false)
		}),
		call.One("aten::isinf"+self, func(c *call.Call) (*cells.Ref, error) { return magnitudeTest(c, "eq", false) }),
		call.One("aten::isfinite"+self, func(c *call.Call) (*cells.Ref, error) { return magnitudeTest(c, "lt", true) }),
		call.One("aten::isposinf"+self, func(c *call.Call) (*cells.Ref, error) {
			return floatTest(c.Builder, "eq", c.Tensor("self"), math.Inf(1), false)
		}),
		call.One("aten::isneginf"+self, func(c *call.Call) (*cells.Ref, error) {
			return floatTest(c.Builder, "eq", c.Tensor("self"), math.Inf(-1), false)
		}),
		call.One("aten::isreal"+self, func(c *call.Call) (*cells.Ref, error) {
			return c.Filled(true, tensor.Bool, c.Tensor("self").Shape())
		}),
		call.One("aten::signbit"+self, unary("signbit")),
		call.One("aten::isclose(Tensor self, Tensor other, float rtol=1.0000000000000001e-05, float atol=1e-08, "+
			"bool equal_nan=False) -> Tensor", isClose),
	)
}

// operators returns the overloads that Python's operators have: __and__, and __iand__ in place.
func operators(name string, f call.Meaning) []call.Overload {
	return []call.Overload{
		call.One("aten::__"+name+"__.Tensor(Tensor self, Tensor other) -> Tensor", f),
		call.One("aten::__"+name+"__.Scalar(Tensor self, Scalar other) -> Tensor", f),
		call.InPlace("aten::__i"+name+"__.Tensor(Tensor self, Tensor other) -> Tensor", f),
		call.InPlace("aten::__i"+name+"__.Scalar(Tensor self, Scalar other) -> Tensor", f),
	}
}

// floatTest compares floats; integers all give the same answer.
func floatTest(b *cells.Builder, kind graph.Kind, x *cells.Ref, y cells.Argument, ofIntegers bool) (*cells.Ref, error) {
	if cells.IsIntegral(x.DType()) {
		return b.Filled(ofIntegers, tensor.Bool, x.Shape())
	}
	return b.Combine(kind, nil, x, y)
}

// magnitudeTest compares |self| with infinity.
func magnitudeTest(c *call.Call, kind graph.Kind, ofIntegers bool) (*cells.Ref, error) {
	x := c.Tensor("self")
	if !cells.IsIntegral(x.DType()) {
		var err error
		if x, err = c.Apply("abs", nil, x); err != nil {
			return nil, err
		}
	}
	return floatTest(c.Builder, kind, x, math.Inf(1), ofIntegers)
}

// isClose: self = other, or |self − other| is finite and at most atol + |rtol × other|.
func isClose(c *call.Call) (*cells.Ref, error) {
	refs, err := c.Broadcast(c.Tensor("self"), c.Tensor("other"))
	if err != nil {
		return nil, err
	}
	rtol, atol := c.Float("rtol"), c.Float("atol")
	x, y := refs[0], refs[1]
	// Every step is one op; the first error ends them.
	do := func(kind graph.Kind, operands ...cells.Argument) *cells.Ref {
		if err != nil {
			return x
		}
		var r *cells.Ref
		if r, err = c.Combine(kind, nil, operands...); err != nil {
			return x
		}
		return r
	}
	near := do("eq", x, y)
	if c.Bool("equal_nan") && !cells.IsIntegral(x.DType()) {
		near = do("bitwise_or", near, do("bitwise_and", do("ne", x, x), do("ne", y, y)))
	}
	if rtol == 0 && atol == 0 {
		return near, err
	}
	if cells.IsIntegral(x.DType()) && err == nil {
		if x, err = c.Cast(x, cells.DefaultFloat); err == nil {
			y, err = c.Cast(y, cells.DefaultFloat)
		}
	}
	allowed := do("add", do("abs", do("mul", y, rtol)), atol)
	actual := do("abs", do("sub", x, y))
	within := do("bitwise_and", do("lt", actual, math.Inf(1)), do("le", actual, allowed))
	return do("bitwise_or", near, within), err
}
