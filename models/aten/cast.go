package aten

import "github.com/optimem/optimem/tensor"

// castTargets are the ops that change a tensor's dtype, or would change its device or memory format: there is one
// device here, and values lie in row-major order.
var castTargets = func() []atenOp {
	const (
		options = "bool non_blocking=False, bool copy=False, MemoryFormat? memory_format=None) -> Tensor(a)"
		factory = "ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, "
	)
	keep := func(c *call) (*Ref, error) { return c.tensor("self"), nil }
	fresh := func(c *call) (*Ref, error) { return c.copy(c.tensor("self")) }
	resolved := func(c *call) (*Ref, error) {
		if x := c.tensor("self"); c.isTurned(x) {
			return c.copy(x)
		}
		return c.tensor("self"), nil
	}
	return []atenOp{
		op("aten::to.dtype(Tensor(a) self, ScalarType dtype, "+options, convert),
		op("aten::to.device(Tensor(a) self, Device device, ScalarType dtype, "+options, convert),
		op("aten::to.dtype_layout(Tensor(a) self, *, "+factory+options, convert),
		op("aten::to.other(Tensor(a) self, Tensor other, "+options, func(c *call) (*Ref, error) {
			return c.convert(c.tensor("self"), c.tensor("other").dtype, c.bool("copy"))
		}),
		op("aten::type_as(Tensor self, Tensor other) -> Tensor", func(c *call) (*Ref, error) {
			return c.Cast(c.tensor("self"), c.tensor("other").dtype)
		}),
		op("aten::_to_copy(Tensor self, *, "+factory+"bool non_blocking=False, MemoryFormat? memory_format=None) -> Tensor",
			func(c *call) (*Ref, error) {
				x := c.tensor("self")
				return c.convert(x, c.dtype("dtype", x.dtype), true)
			}),
		op("aten::contiguous(Tensor(a) self, *, MemoryFormat memory_format=0) -> Tensor(a)",
			contiguous),
		op("aten::clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor", fresh),
		op("aten::lift_fresh_copy(Tensor self) -> Tensor", fresh),
		op("aten::lift(Tensor self) -> Tensor", keep),
		op("aten::to_dense(Tensor self, ScalarType? dtype=None, *, bool? masked_grad=None) -> Tensor",
			func(c *call) (*Ref, error) {
				x := c.tensor("self")
				return c.Cast(x, c.dtype("dtype", x.dtype))
			}),
		op("aten::resolve_conj(Tensor(a) self) -> Tensor(a)", resolved),
		op("aten::resolve_neg(Tensor(a) self) -> Tensor(a)", resolved),
		op("aten::pin_memory(Tensor(a) self, Device? device=None) -> Tensor(a)", keep),
	}
}()

// convert is Tensor.to with the dtype that the call has.
func convert(c *call) (*Ref, error) {
	x := c.tensor("self")
	d := c.dtype("dtype", x.dtype)
	if d == x.dtype && !c.bool("copy") {
		return c.inFormat(x)
	}
	return c.convert(x, d, c.bool("copy"))
}

// convert returns x in a dtype: x itself where it has it, unless a copy is asked for.
func (b *Builder) convert(x *Ref, d tensor.DType, copied bool) (*Ref, error) {
	if x.dtype == d && copied {
		return b.copy(x)
	}
	return b.Cast(x, d)
}
