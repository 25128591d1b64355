package aten

import (
	"fmt"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// selectionTargets are the ops that choose or limit elements, and those of three operands.
func selectionTargets() []atenOp {
	where := func(c *call) (*Ref, error) {
		x, y := c.operand("self"), c.operand("other")
		d, err := resultType(x, y)
		if err != nil {
			return nil, err
		}
		return c.choose(c.tensor("condition"), d, x, y)
	}
	clamp := func(c *call) (*Ref, error) {
		return c.clamp(c.tensor("self"), c.optOperand("min"), c.optOperand("max"))
	}
	clampMin := func(c *call) (*Ref, error) { return c.clamp(c.tensor("self"), c.operand("min"), nil) }
	clampMax := func(c *call) (*Ref, error) { return c.clamp(c.tensor("self"), nil, c.operand("max")) }
	all := []atenOp{
		op("aten::where.self(Tensor condition, Tensor self, Tensor other) -> Tensor", where),
		op("aten::where.ScalarOther(Tensor condition, Tensor self, Scalar other) -> Tensor", where),
		op("aten::where.ScalarSelf(Tensor condition, Scalar self, Tensor other) -> Tensor", where),
		op("aten::where.Scalar(Tensor condition, Scalar self, Scalar other) -> Tensor", where),
	}
	for _, list := range [][]atenOp{
		twins("aten::masked_fill.Scalar(Tensor self, Tensor mask, Scalar value) -> Tensor", maskedFill),
		twins("aten::masked_fill.Tensor(Tensor self, Tensor mask, Tensor value) -> Tensor", maskedFill),
		twins("aten::clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor", clamp),
		twins("aten::clamp.Tensor(Tensor self, Tensor? min=None, Tensor? max=None) -> Tensor", clamp),
		twins("aten::clip(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor", clamp),
		twins("aten::clip.Tensor(Tensor self, Tensor? min=None, Tensor? max=None) -> Tensor", clamp),
		twins("aten::clamp_min(Tensor self, Scalar min) -> Tensor", clampMin),
		twins("aten::clamp_min.Tensor(Tensor self, Tensor min) -> Tensor", clampMin),
		twins("aten::clamp_max(Tensor self, Scalar max) -> Tensor", clampMax),
		twins("aten::clamp_max.Tensor(Tensor self, Tensor max) -> Tensor", clampMax),
		twins("aten::addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor", addcmul),
		twins("aten::addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor", addcdiv),
		twins("aten::lerp.Scalar(Tensor self, Tensor end, Scalar weight) -> Tensor", lerp),
		twins("aten::lerp.Tensor(Tensor self, Tensor end, Tensor weight) -> Tensor", lerp),
	} {
		all = append(all, list...)
	}
	return all
}

// choose emits where over operands converted to dtype d.
func (b *Builder) choose(condition *Ref, d tensor.DType, x, y operandArg) (*Ref, error) {
	if condition.dtype != tensor.Bool && condition.dtype != tensor.UInt8 {
		return nil, fmt.Errorf("a condition of %v", condition.dtype)
	}
	is, err := b.Cast(condition, tensor.Bool)
	if err != nil {
		return nil, err
	}
	yes, err := b.as(x, d)
	if err != nil {
		return nil, err
	}
	no, err := b.as(y, d)
	if err != nil {
		return nil, err
	}
	refs, err := b.broadcast(is, yes, no)
	if err != nil {
		return nil, err
	}
	return b.apply("where", nil, refs...)
}

// maskedFill puts a value, converted to self's dtype, where the mask is true.
func maskedFill(c *call) (*Ref, error) {
	x := c.tensor("self")
	return c.choose(c.tensor("mask"), x.dtype, c.operand("value"), x)
}

func addcmul(c *call) (*Ref, error) {
	refs, err := c.promote(c.tensor("self"), c.tensor("tensor1"), c.tensor("tensor2"))
	if err != nil {
		return nil, err
	}
	if !isIntegral(refs[0].dtype) {
		return c.apply("addcmul", graph.Attrs{"value": c.float("value")}, refs...)
	}
	product, err := c.combine("mul", nil, refs[1], refs[2])
	if err != nil {
		return nil, err
	}
	return c.sum("add", refs[0], product, integerOf(c.number("value")))
}

func addcdiv(c *call) (*Ref, error) {
	refs, err := c.promote(c.tensor("self"), c.tensor("tensor1"), c.tensor("tensor2"))
	if err != nil {
		return nil, err
	}
	return c.apply("addcdiv", graph.Attrs{"value": c.float("value")}, refs...)
}

// lerp needs one dtype; a number as weight is not rounded to half precision.
func lerp(c *call) (*Ref, error) {
	x, end, w := c.tensor("self"), c.tensor("end"), c.operand("weight")
	if end.dtype != x.dtype {
		return nil, fmt.Errorf("from %v to %v", x.dtype, end.dtype)
	}
	d := x.dtype
	if _, ok := w.(*Ref); !ok && d.IsHalf() {
		d = tensor.Float32
	}
	weight, err := c.as(w, d)
	if err != nil {
		return nil, err
	}
	refs, err := c.broadcast(x, end, weight)
	if err != nil {
		return nil, err
	}
	return c.apply("lerp", nil, refs...)
}
