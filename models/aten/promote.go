package aten

import (
	"fmt"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// PyTorch's type promotion. Operands fall into three groups: tensors with dimensions, 0-dimensional tensors and Python
// numbers. A later group changes the dtype of an earlier one only by a higher category: bool, integer, float, complex.

// defaultFloat is PyTorch's default dtype, which floating Python numbers and quotients of integers have.
const defaultFloat = tensor.Float32

// An operandArg is a *ref or a number.
type operandArg = any

// operand returns an argument that is a tensor or, also where the schema says Tensor, a Python number.
func (c *call) operand(name string) operandArg {
	switch v := c.args[name].(type) {
	case *Ref, int, float64, bool, complex128:
		return v
	}
	c.fail("argument %s is not a tensor or a number", name)
	return 0
}

// optOperand returns an operand that may be None, which is nil.
func (c *call) optOperand(name string) operandArg {
	if !c.has(name) {
		return nil
	}
	return c.operand(name)
}

// operands returns several of them.
func (c *call) operands(names ...string) []operandArg {
	list := make([]operandArg, len(names))
	for i, name := range names {
		list[i] = c.operand(name)
	}
	return list
}

// resultType returns the dtype in which PyTorch computes an op of the given operands: torch.result_type.
func resultType(operands ...operandArg) (tensor.DType, error) {
	var dims, zeros, numbers tensor.DType // Invalid where there is none
	var err error
	join := func(group *tensor.DType, d tensor.DType) {
		if *group == tensor.Invalid {
			*group = d
		} else if joined, ok := promoteTypes(*group, d); ok {
			*group = joined
		} else if err == nil {
			err = fmt.Errorf("PyTorch does not promote %v and %v", *group, d)
		}
	}
	for _, o := range operands {
		switch o := o.(type) {
		case *Ref:
			if o.rank() > 0 {
				join(&dims, o.dtype)
			} else {
				join(&zeros, o.dtype)
			}
		case nil:
		default:
			join(&numbers, NumberDType(o))
		}
	}
	result := combineGroups(dims, combineGroups(zeros, numbers))
	if result == tensor.Invalid && err == nil {
		err = fmt.Errorf("the operands have no common dtype")
	}
	return result, err
}

// combineGroups returns the dtype of a group and a weaker one together.
func combineGroups(strong, weak tensor.DType) tensor.DType {
	switch {
	case strong == tensor.Invalid:
		return weak
	case weak == tensor.Invalid || IsComplex(strong):
		return strong
	case IsFloat(strong):
		if IsComplex(weak) {
			return complexOf(strong)
		}
		return strong
	case strong == tensor.Bool || IsFloat(weak) || IsComplex(weak):
		d, _ := promoteTypes(strong, weak)
		return d
	}
	return strong
}

// promoteTypes returns torch.promote_types, and false where PyTorch has none.
func promoteTypes(a, b tensor.DType) (tensor.DType, bool) {
	if a == b {
		return a, true
	}
	if category(a) < category(b) {
		a, b = b, a
	}
	switch {
	case isFloat8(a) || isFloat8(b):
		return tensor.Invalid, false
	case isWideUnsigned(b) && !IsFloat(a) || isWideUnsigned(a):
		return tensor.Invalid, false
	case category(a) != category(b):
		if IsComplex(a) && IsFloat(b) {
			return promoteComplex(a, complexOf(b)), true
		}
		return a, true
	case IsComplex(a):
		return promoteComplex(a, b), true
	case IsFloat(a):
		if a == tensor.Float64 || b == tensor.Float64 {
			return tensor.Float64, true
		}
		return tensor.Float32, true // also of the two half precisions
	case a.Size() == b.Size(): // uint8 and int8
		return tensor.Int16, true
	case a.Size() > b.Size():
		return a, true
	}
	return b, true
}

func promoteComplex(a, b tensor.DType) tensor.DType {
	if a.Size() < b.Size() {
		return b
	}
	return a
}

// category orders the kinds of numbers.
func category(d tensor.DType) int {
	switch {
	case IsComplex(d):
		return 3
	case IsFloat(d):
		return 2
	case d == tensor.Bool:
		return 0
	}
	return 1
}

func IsComplex(d tensor.DType) bool {
	return d == tensor.Complex32 || d == tensor.Complex64 || d == tensor.Complex128
}

func isFloat8(d tensor.DType) bool {
	return d >= tensor.Float8E4M3FN && d <= tensor.Float8E8M0FNU
}

// isWideUnsigned reports whether a dtype is one of the unsigned integers that PyTorch promotes with floats only.
func isWideUnsigned(d tensor.DType) bool {
	return d == tensor.UInt16 || d == tensor.UInt32 || d == tensor.UInt64
}

func IsFloat(d tensor.DType) bool {
	return d == tensor.Float32 || d == tensor.Float64 || d.IsHalf() || isFloat8(d)
}

// isIntegral reports whether a dtype is bool or an integer.
func isIntegral(d tensor.DType) bool { return category(d) < 2 }

// complexOf returns the complex dtype whose parts have a float dtype.
func complexOf(d tensor.DType) tensor.DType {
	switch d {
	case tensor.Float16:
		return tensor.Complex32
	case tensor.Float64:
		return tensor.Complex128
	}
	return tensor.Complex64
}

// as returns an operand as a tensor of a dtype.
func (b *Builder) as(o operandArg, d tensor.DType) (*Ref, error) {
	if r, ok := o.(*Ref); ok {
		return b.Cast(r, d)
	}
	return b.Scalar(o, d)
}

// together returns operands as tensors of dtype d, all expanded to the shape that they broadcast to.
func (b *Builder) together(d tensor.DType, operands ...operandArg) ([]*Ref, error) {
	refs := make([]*Ref, len(operands))
	for i, o := range operands {
		var err error
		if refs[i], err = b.as(o, d); err != nil {
			return nil, err
		}
	}
	return b.broadcast(refs...)
}

// broadcast returns tensors expanded to the shape that they broadcast to.
func (b *Builder) broadcast(refs ...*Ref) ([]*Ref, error) {
	shapes := make([]tensor.Shape, len(refs))
	for i, r := range refs {
		shapes[i] = r.shape()
	}
	shape, err := broadcast(shapes...)
	if err != nil {
		return nil, err
	}
	out := make([]*Ref, len(refs))
	for i, r := range refs {
		if out[i], err = b.expand(r, shape); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// promote returns operands as tensors of the dtype that PyTorch computes in, all expanded to one shape.
func (b *Builder) promote(operands ...operandArg) ([]*Ref, error) {
	d, err := resultType(operands...)
	if err != nil {
		return nil, err
	}
	return b.together(d, operands...)
}

// promoteFloat is promote for ops that compute integers and bools in the default float dtype.
func (b *Builder) promoteFloat(operands ...operandArg) ([]*Ref, error) {
	d, err := resultType(operands...)
	if err != nil {
		return nil, err
	}
	return b.together(floatResult(d), operands...)
}

// floatResult returns the dtype in which PyTorch computes a function of real numbers over a dtype.
func floatResult(d tensor.DType) tensor.DType {
	if isIntegral(d) {
		return defaultFloat
	}
	return d
}

// apply emits an op of one result over operands that are alike already.
func (b *Builder) apply(kind graph.Kind, attrs graph.Attrs, refs ...*Ref) (*Ref, error) {
	in := make([]graph.Operand, len(refs))
	for i, r := range refs {
		in[i] = b.Read(r)
	}
	return b.Emit1(kind, attrs, in...)
}

// combine emits an op over operands that it promotes and broadcasts first.
func (b *Builder) combine(kind graph.Kind, attrs graph.Attrs, operands ...operandArg) (*Ref, error) {
	refs, err := b.promote(operands...)
	if err != nil {
		return nil, err
	}
	return b.apply(kind, attrs, refs...)
}
