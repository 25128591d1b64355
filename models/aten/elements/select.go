package elements

import (
	"fmt"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// selectionTargets are the ops that choose or limit elements, and those of three operands.
func selectionTargets() []call.Overload {
	where := func(c *call.Call) (*cells.Ref, error) {
		x, y := c.Operand("self"), c.Operand("other")
		d, err := cells.ResultType(x, y)
		if err != nil {
			return nil, err
		}
		return c.Choose(c.Tensor("condition"), d, x, y)
	}
	between := func(c *call.Call) (*cells.Ref, error) {
		return clamp(c.Builder, c.Tensor("self"), c.OptOperand("min"), c.OptOperand("max"))
	}
	atLeast := func(c *call.Call) (*cells.Ref, error) {
		return clamp(c.Builder, c.Tensor("self"), c.Operand("min"), nil)
	}
	atMost := func(c *call.Call) (*cells.Ref, error) {
		return clamp(c.Builder, c.Tensor("self"), nil, c.Operand("max"))
	}
	all := []call.Overload{
		call.One("aten::where.self(Tensor condition, Tensor self, Tensor other) -> Tensor", where),
		call.One("aten::where.ScalarOther(Tensor condition, Tensor self, Scalar other) -> Tensor", where),
		call.One("aten::where.ScalarSelf(Tensor condition, Scalar self, Tensor other) -> Tensor", where),
		call.One("aten::where.Scalar(Tensor condition, Scalar self, Scalar other) -> Tensor", where),
	}
	for _, list := range [][]call.Overload{
		call.Twins("aten::masked_fill.Scalar(Tensor self, Tensor mask, Scalar value) -> Tensor", maskedFill),
		call.Twins("aten::masked_fill.Tensor(Tensor self, Tensor mask, Tensor value) -> Tensor", maskedFill),
		call.Twins("aten::clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor", between),
		call.Twins("aten::clamp.Tensor(Tensor self, Tensor? min=None, Tensor? max=None) -> Tensor", between),
		call.Twins("aten::clip(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor", between),
		call.Twins("aten::clip.Tensor(Tensor self, Tensor? min=None, Tensor? max=None) -> Tensor", between),
		call.Twins("aten::clamp_min(Tensor self, Scalar min) -> Tensor", atLeast),
		call.Twins("aten::clamp_min.Tensor(Tensor self, Tensor min) -> Tensor", atLeast),
		call.Twins("aten::clamp_max(Tensor self, Scalar max) -> Tensor", atMost),
		call.Twins("aten::clamp_max.Tensor(Tensor self, Tensor max) -> Tensor", atMost),
		call.Twins("aten::addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor", addcmul),
		call.Twins("aten::addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor", addcdiv),
		call.Twins("aten::lerp.Scalar(Tensor self, Tensor end, Scalar weight) -> Tensor", lerp),
		call.Twins("aten::lerp.Tensor(Tensor self, Tensor end, Tensor weight) -> Tensor", lerp),
	} {
		all = append(all, list...)
	}
	return all
}

// maskedFill puts a value, converted to self's dtype, where the mask is true.
func maskedFill(c *call.Call) (*cells.Ref, error) {
	x := c.Tensor("self")
	return c.Choose(c.Tensor("mask"), x.DType(), c.Operand("value"), x)
}

func addcmul(c *call.Call) (*cells.Ref, error) {
	refs, err := c.Promote(c.Tensor("self"), c.Tensor("tensor1"), c.Tensor("tensor2"))
	if err != nil {
		return nil, err
	}
	if !cells.IsIntegral(refs[0].DType()) {
		return c.Apply("addcmul", graph.Attrs{"value": c.Float("value")}, refs...)
	}
	product, err := c.Combine("mul", nil, refs[1], refs[2])
	if err != nil {
		return nil, err
	}
	return c.Sum("add", refs[0], product, integerOf(c.Number("value")))
}

func addcdiv(c *call.Call) (*cells.Ref, error) {
	refs, err := c.Promote(c.Tensor("self"), c.Tensor("tensor1"), c.Tensor("tensor2"))
	if err != nil {
		return nil, err
	}
	return c.Apply("addcdiv", graph.Attrs{"value": c.Float("value")}, refs...)
}

// lerp needs one dtype; a number as weight is not rounded to half precision.
func lerp(c *call.Call) (*cells.Ref, error) {
	x, end, w := c.Tensor("self"), c.Tensor("end"), c.Operand("weight")
	if end.DType() != x.DType() {
		return nil, fmt.Errorf("from %v to %v", x.DType(), end.DType())
	}
	d := x.DType()
	if _, ok := w.(*cells.Ref); !ok && d.IsHalf() {
		d = tensor.Float32
	}
	weight, err := c.As(w, d)
	if err != nil {
		return nil, err
	}
	refs, err := c.Broadcast(x, end, weight)
	if err != nil {
		return nil, err
	}
	return c.Apply("lerp", nil, refs...)
}
