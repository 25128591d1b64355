package views

import (
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// CastTargets are the ops that change a tensor's dtype, or would change its device or memory format: there is one
// device here, and values lie in row-major order.
var CastTargets = func() []call.Overload {
	const (
		options = "bool non_blocking=False, bool copy=False, MemoryFormat? memory_format=None) -> Tensor(a)"
		factory = "ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, "
	)
	keep := func(c *call.Call) (*cells.Ref, error) { return c.Tensor("self"), nil }
	fresh := func(c *call.Call) (*cells.Ref, error) { return c.Copy(c.Tensor("self")) }
	resolved := func(c *call.Call) (*cells.Ref, error) {
		if x := c.Tensor("self"); c.IsTurned(x) {
			return c.Copy(x)
		}
		return c.Tensor("self"), nil
	}
	return []call.Overload{
		call.One("aten::to.dtype(Tensor(a) self, ScalarType dtype, "+options, convert),
		call.One("aten::to.device(Tensor(a) self, Device device, ScalarType dtype, "+options, convert),
		call.One("aten::to.dtype_layout(Tensor(a) self, *, "+factory+options, convert),
		call.One("aten::to.other(Tensor(a) self, Tensor other, "+options, func(c *call.Call) (*cells.Ref, error) {
			return convertTo(c.Builder, c.Tensor("self"), c.Tensor("other").DType(), c.Bool("copy"))
		}),
		call.One("aten::type_as(Tensor self, Tensor other) -> Tensor", func(c *call.Call) (*cells.Ref, error) {
			return c.Cast(c.Tensor("self"), c.Tensor("other").DType())
		}),
		call.One("aten::_to_copy(Tensor self, *, "+factory+
			"bool non_blocking=False, MemoryFormat? memory_format=None) -> Tensor",
			func(c *call.Call) (*cells.Ref, error) {
				x := c.Tensor("self")
				return convertTo(c.Builder, x, c.DType("dtype", x.DType()), true)
			}),
		call.One("aten::contiguous(Tensor(a) self, *, MemoryFormat memory_format=0) -> Tensor(a)",
			call.Contiguous),
		call.One("aten::clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor", fresh),
		call.One("aten::lift_fresh_copy(Tensor self) -> Tensor", fresh),
		call.One("aten::lift(Tensor self) -> Tensor", keep),
		call.One("aten::to_dense(Tensor self, ScalarType? dtype=None, *, bool? masked_grad=None) -> Tensor",
			func(c *call.Call) (*cells.Ref, error) {
				x := c.Tensor("self")
				return c.Cast(x, c.DType("dtype", x.DType()))
			}),
		call.One("aten::resolve_conj(Tensor(a) self) -> Tensor(a)", resolved),
		call.One("aten::resolve_neg(Tensor(a) self) -> Tensor(a)", resolved),
		call.One("aten::pin_memory(Tensor(a) self, Device? device=None) -> Tensor(a)", keep),
	}
}()

// convert is Tensor.to with the dtype that the call has.
func convert(c *call.Call) (*cells.Ref, error) {
	x := c.Tensor("self")
	d := c.DType("dtype", x.DType())
	if d == x.DType() && !c.Bool("copy") {
		return c.InFormat(x)
	}
	return convertTo(c.Builder, x, d, c.Bool("copy"))
}

// convertTo returns x in a dtype: x itself where it has it, unless a copy is asked for.
func convertTo(b *cells.Builder, x *cells.Ref, d tensor.DType, copied bool) (*cells.Ref, error) {
	if x.DType() == d && copied {
		return b.Copy(x)
	}
	return b.Cast(x, d)
}
