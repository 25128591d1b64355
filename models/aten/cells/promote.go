package cells

import (
	"fmt"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// PyTorch's type promotion. Operands fall into three groups: tensors with dimensions, 0-dimensional tensors and Python
// numbers. A later group changes the dtype of an earlier one only by a higher category: bool, integer, float, complex.

// DefaultFloat is PyTorch's default dtype, which floating Python numbers and quotients of integers have.
const DefaultFloat = tensor.Float32

// An Argument is a *ref or a number.
type Argument = any

// ResultType returns the dtype in which PyTorch computes an op of the given operands: torch.result_type.
func ResultType(operands ...Argument) (tensor.DType, error) {
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
			if o.Rank() > 0 {
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
			return ComplexOf(strong)
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
			return promoteComplex(a, ComplexOf(b)), true
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
//
//go:noinline
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

// IsComplex reports whether a dtype is one of complex numbers.
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

// IsFloat reports whether a dtype is one of floats, of 8 bits too.
func IsFloat(d tensor.DType) bool {
	return d == tensor.Float32 || d == tensor.Float64 || d.IsHalf() || isFloat8(d)
}

// IsIntegral reports whether a dtype is bool or an integer.
//
//go:noinline
func IsIntegral(d tensor.DType) bool { return category(d) < 2 }

// ComplexOf returns the complex dtype whose parts have a float dtype.
func ComplexOf(d tensor.DType) tensor.DType {
	switch d {
	case tensor.Float16:
		return tensor.Complex32
	case tensor.Float64:
		return tensor.Complex128
	}
	return tensor.Complex64
}

// As returns an operand as a tensor of a dtype.
func (b *Builder) As(o Argument, d tensor.DType) (*Ref, error) {
	if r, ok := o.(*Ref); ok {
		return b.Cast(r, d)
	}
	return b.Scalar(o, d)
}

// Together returns operands as tensors of dtype d, all expanded to the shape that they broadcast to.
func (b *Builder) Together(d tensor.DType, operands ...Argument) ([]*Ref, error) {
	refs := make([]*Ref, len(operands))
	for i, o := range operands {
		var err error
		if refs[i], err = b.As(o, d); err != nil {
			return nil, err
		}
	}
	return b.Broadcast(refs...)
}

// Broadcast returns tensors expanded to the shape that they broadcast to.
func (b *Builder) Broadcast(refs ...*Ref) ([]*Ref, error) {
	shapes := make([]tensor.Shape, len(refs))
	for i, r := range refs {
		shapes[i] = r.Shape()
	}
	shape, err := Broadcast(shapes...)
	if err != nil {
		return nil, err
	}
	out := make([]*Ref, len(refs))
	for i, r := range refs {
		if out[i], err = b.Expand(r, shape); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Promote returns operands as tensors of the dtype that PyTorch computes in, all expanded to one shape.
func (b *Builder) Promote(operands ...Argument) ([]*Ref, error) {
	d, err := ResultType(operands...)
	if err != nil {
		return nil, err
	}
	return b.Together(d, operands...)
}

// promoteFloat is promote for ops that compute integers and bools in the default float dtype.
func (b *Builder) promoteFloat(operands ...Argument) ([]*Ref, error) {
	d, err := ResultType(operands...)
	if err != nil {
		return nil, err
	}
	return b.Together(FloatResult(d), operands...)
}

// FloatResult returns the dtype in which PyTorch computes a function of real numbers over a dtype.
func FloatResult(d tensor.DType) tensor.DType {
	if IsIntegral(d) {
		return DefaultFloat
	}
	return d
}

// Apply emits an op of one result over operands that are alike already.
func (b *Builder) Apply(kind graph.Kind, attrs graph.Attrs, refs ...*Ref) (*Ref, error) {
	in := make([]graph.Operand, len(refs))
	for i, r := range refs {
		in[i] = b.Read(r)
	}
	return b.Emit1(kind, attrs, in...)
}

// Combine emits an op over operands that it promotes and broadcasts first.
func (b *Builder) Combine(kind graph.Kind, attrs graph.Attrs, operands ...Argument) (*Ref, error) {
	refs, err := b.Promote(operands...)
	if err != nil {
		return nil, err
	}
	return b.Apply(kind, attrs, refs...)
}

// A Number is a Python number in a call: an int, float64, bool or complex128, which decides type promotion.
type Number = any

// NumberDType returns the dtype that PyTorch gives a bare Python number.
func NumberDType(n Number) tensor.DType {
	switch n.(type) {
	case bool:
		return tensor.Bool
	case int:
		return tensor.Int64
	case complex128:
		return tensor.Complex64
	}
	return tensor.Float32
}
