package cells

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// Complex numbers are pairs of real ones: the memory of a complex tensor is a value of floats, and the tensor's layout
// counts pairs of them. So views of it are views of pairs, graphs have no complex values, and a device computes what it
// would for torch.view_as_real. Only inputs and outputs are complex values; a "bitcast" stands between them and the rest.

// PartOf returns the dtype of the parts of a complex one.
func PartOf(d tensor.DType) tensor.DType {
	switch d {
	case tensor.Complex32:
		return tensor.Float16
	case tensor.Complex128:
		return tensor.Float64
	}
	return tensor.Float32
}

// PairLayout returns the layout, in parts, of a layout that counts pairs.
func PairLayout(l tensor.Layout) tensor.Layout {
	out := tensor.Layout{
		Shape: append(slices.Clone(l.Shape), 2), Strides: make([]int, len(l.Strides), len(l.Strides)+1),
		Offset: 2 * l.Offset,
	}
	for i, s := range l.Strides {
		out.Strides[i] = 2 * s
	}
	out.Strides = append(out.Strides, 1)
	return out
}

// Input adds an input to the graph.
func (b *Builder) Input(name string, d tensor.DType, shape tensor.Shape) (*Ref, error) {
	id := b.Graph.AddInput(name, d, shape)
	if !IsComplex(d) {
		return b.Own(id), nil
	}
	whole := b.Graph.Whole(id)
	whole.Layout = tensor.Contiguous(slices.Concat(shape, []int{1})...)
	pairs, err := b.Emit1("bitcast", graph.Attrs{"dtype": PartOf(d)}, whole)
	if err != nil {
		return nil, err
	}
	return b.OfPairs(pairs)
}

// complexResult returns the operand that a caller gets of a complex tensor.
func (b *Builder) complexResult(r *Ref) (graph.Operand, error) {
	ids, err := b.Graph.Emit(b.Ops, graph.Op{
		Kind: "bitcast", Path: b.Path, Source: b.Source, Attrs: graph.Attrs{"dtype": r.dtype},
		In: []graph.Operand{b.Read(r)}, Guard: b.Guard,
	})
	if err != nil {
		return graph.Absent, err
	}
	return graph.Operand{Value: ids[0], Layout: tensor.Contiguous(r.Shape()...)}, nil
}

// Pairs returns a complex tensor as torch.view_as_real does: another view of its memory, with a last dimension of two.
func (b *Builder) Pairs(r *Ref) *Ref {
	return &Ref{cell: r.cell, layout: PairLayout(r.layout), dtype: PartOf(r.dtype)}
}

// OfPairs is the reverse of pairs, torch.view_as_complex: a copy where the parts do not lie side by side.
func (b *Builder) OfPairs(r *Ref) (*Ref, error) {
	n := r.Rank() - 1
	if n < 0 || r.Shape()[n] != 2 || !IsFloat(r.dtype) {
		return nil, fmt.Errorf("%v %v is not pairs of floats", r.dtype, r.Shape())
	}
	side := r.layout.Strides[n] == 1 && r.layout.Offset%2 == 0
	l := tensor.Layout{Shape: slices.Clone(r.layout.Shape[:n]), Strides: make([]int, n), Offset: r.layout.Offset / 2}
	for i, s := range r.layout.Strides[:n] {
		side = side && (s%2 == 0 || l.Shape[i] == 1)
		l.Strides[i] = s / 2
	}
	if !side {
		copied, err := b.Copy(r)
		if err != nil {
			return nil, err
		}
		return b.OfPairs(copied)
	}
	return &Ref{cell: r.cell, layout: l, dtype: ComplexOf(r.dtype)}, nil
}

// Part returns a view of the real parts of a complex tensor, number 0, or of the imaginary ones, number 1.
func (b *Builder) Part(r *Ref, number int) *Ref {
	return b.SelectAt(b.Pairs(r), r.Rank(), number)
}

// OfParts returns the complex tensor with the given parts, which are alike.
func (b *Builder) OfParts(re, im *Ref) (*Ref, error) {
	joined, err := b.Cat([]*Ref{b.Unsqueeze(re, re.Rank()), b.Unsqueeze(im, im.Rank())}, re.Rank())
	if err != nil {
		return nil, err
	}
	return b.OfPairs(joined)
}

// JoinAlong puts two tensors of one dtype, which may be complex, one after the other.
func (b *Builder) JoinAlong(d int, first, second *Ref) (*Ref, error) {
	if !IsComplex(first.dtype) {
		return b.Cat([]*Ref{first, second}, d)
	}
	all, err := b.Cat([]*Ref{b.Pairs(first), b.Pairs(second)}, d)
	if err != nil {
		return nil, err
	}
	return b.OfPairs(all)
}

// Polar returns the complex numbers of the given magnitudes and angles.
func (b *Builder) Polar(magnitude, angle *Ref) (*Ref, error) {
	parts := make([]*Ref, 2)
	for i, kind := range []graph.Kind{"cos", "sin"} {
		r, err := b.ApplyFloat(kind, nil, angle)
		if err != nil {
			return nil, err
		}
		if parts[i], err = b.Combine("mul", nil, r, magnitude); err != nil {
			return nil, err
		}
	}
	return b.OfParts(parts[0], parts[1])
}

// castComplex is cast from or to a complex dtype. The imaginary parts are lost where the result is real.
func (b *Builder) castComplex(r *Ref, d tensor.DType) (*Ref, error) {
	switch {
	case !IsComplex(d):
		re := b.Part(r, 0)
		if re.dtype == d { // not a view, as torch.real is
			return b.Copy(re)
		}
		return b.Cast(re, d)
	case IsComplex(r.dtype):
		wide, err := b.Cast(b.Pairs(r), PartOf(d))
		if err != nil {
			return nil, err
		}
		return b.OfPairs(wide)
	}
	re, err := b.Cast(r, PartOf(d))
	if err != nil {
		return nil, err
	}
	im, err := b.Full(0, PartOf(d), r.Shape())
	if err != nil {
		return nil, err
	}
	return b.OfParts(re, im)
}

// complexConstant returns a 0-dimensional complex tensor that holds a number.
func (b *Builder) complexConstant(n Number, d tensor.DType) (*Ref, error) {
	var data []byte
	for _, x := range []float64{realOf(n), imagOf(n)} {
		p, err := encodeNumber(x, PartOf(d))
		if err != nil {
			return nil, b.Unsupported("%v", err)
		}
		data = append(data, p...)
	}
	id := b.Graph.AddConst(&tensor.Tensor{DType: PartOf(d), Layout: tensor.Contiguous(2), Data: data})
	return b.OfPairs(b.Own(id))
}

// realOf and imagOf return the parts of a number.
func realOf(n Number) float64 {
	if z, ok := n.(complex128); ok {
		return real(z)
	}
	return FloatOfNumber(n)
}

func imagOf(n Number) float64 {
	if z, ok := n.(complex128); ok {
		return imag(z)
	}
	return 0
}
