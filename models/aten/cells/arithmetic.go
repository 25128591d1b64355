package cells

import (
	"fmt"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// CombineFloat is combine for kinds over floats.
func (b *Builder) CombineFloat(kind graph.Kind, attrs graph.Attrs, operands ...Argument) (*Ref, error) {
	refs, err := b.promoteFloat(operands...)
	if err != nil {
		return nil, err
	}
	return b.Apply(kind, attrs, refs...)
}

// Arithmetic emits add, sub, mul or a division in dtype d. A factor or divisor that is a number or a 0-dimensional
// tensor is not rounded to half precision: PyTorch's kernels take it as float32.
func (b *Builder) Arithmetic(kind graph.Kind, attrs graph.Attrs, d tensor.DType, x, y Argument) (*Ref, error) {
	if d == tensor.Bool {
		switch kind {
		case "add":
			kind = "bitwise_or"
		case "mul":
			kind = "bitwise_and"
		}
		attrs = nil
	}
	first, err := b.As(x, d)
	if err != nil {
		return nil, err
	}
	if r, ok := y.(*Ref); d.IsHalf() && kind != "add" && kind != "sub" && (!ok || r.Rank() == 0) {
		d = tensor.Float32
	}
	second, err := b.As(y, d)
	if err != nil {
		return nil, err
	}
	refs, err := b.Broadcast(first, second)
	if err != nil {
		return nil, err
	}
	return b.Apply(kind, attrs, refs...)
}

// Sum builds x + alpha × y, or x − alpha × y for kind "sub".
func (b *Builder) Sum(kind graph.Kind, x, y Argument, alpha Number) (*Ref, error) {
	d, err := ResultType(x, y)
	if err != nil {
		return nil, err
	}
	if kind == "sub" && d == tensor.Bool {
		return nil, fmt.Errorf("PyTorch does not subtract bools")
	}
	if IsIntegral(d) {
		if _, ok := alpha.(float64); ok {
			return nil, fmt.Errorf("alpha is a float and the operands are %v", d)
		}
		if alpha != 1 && alpha != true {
			if y, err = b.Arithmetic("mul", nil, d, y, alpha); err != nil {
				return nil, err
			}
		}
		return b.Arithmetic(kind, nil, d, x, y)
	}
	var attrs graph.Attrs
	if f := FloatOfNumber(alpha); f != 1 {
		attrs = graph.Attrs{"alpha": RoundedTo(f, d)}
	}
	return b.Arithmetic(kind, attrs, d, x, y)
}

// RoundedTo returns a number as a dtype holds it.
func RoundedTo(x float64, d tensor.DType) float64 {
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

// FloatOfNumber returns a number as a float.
func FloatOfNumber(n Number) float64 {
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

// ApplyFloat emits a kind over floats for a tensor of any real dtype.
func (b *Builder) ApplyFloat(kind graph.Kind, attrs graph.Attrs, r *Ref) (*Ref, error) {
	r, err := b.Cast(r, FloatResult(r.dtype))
	if err != nil {
		return nil, err
	}
	return b.Apply(kind, attrs, r)
}

// Choose emits where over operands converted to dtype d.
func (b *Builder) Choose(condition *Ref, d tensor.DType, x, y Argument) (*Ref, error) {
	if condition.dtype != tensor.Bool && condition.dtype != tensor.UInt8 {
		return nil, fmt.Errorf("a condition of %v", condition.dtype)
	}
	is, err := b.Cast(condition, tensor.Bool)
	if err != nil {
		return nil, err
	}
	yes, err := b.As(x, d)
	if err != nil {
		return nil, err
	}
	no, err := b.As(y, d)
	if err != nil {
		return nil, err
	}
	refs, err := b.Broadcast(is, yes, no)
	if err != nil {
		return nil, err
	}
	return b.Apply("where", nil, refs...)
}
