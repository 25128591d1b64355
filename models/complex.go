package models

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// Complex numbers are pairs of real ones: the memory of a complex tensor is a value of floats, and the tensor's layout
// counts pairs of them. So views of it are views of pairs, graphs have no complex values, and a device computes what it
// would for torch.view_as_real. Only inputs and outputs are complex values; a "bitcast" stands between them and the rest.

// partOf returns the dtype of the parts of a complex one.
func partOf(d tensor.DType) tensor.DType {
	switch d {
	case tensor.Complex32:
		return tensor.Float16
	case tensor.Complex128:
		return tensor.Float64
	}
	return tensor.Float32
}

// pairLayout returns the layout, in parts, of a layout that counts pairs.
func pairLayout(l tensor.Layout) tensor.Layout {
	out := tensor.Layout{
		Shape: append(slices.Clone(l.Shape), 2), Strides: make([]int, len(l.Strides), len(l.Strides)+1), Offset: 2 * l.Offset,
	}
	for i, s := range l.Strides {
		out.Strides[i] = 2 * s
	}
	out.Strides = append(out.Strides, 1)
	return out
}

// input adds an input to the graph.
func (b *builder) input(name string, d tensor.DType, shape tensor.Shape) (*ref, error) {
	id := b.graph.AddInput(name, d, shape)
	if !isComplex(d) {
		return b.own(id), nil
	}
	whole := b.graph.Whole(id)
	whole.Layout = tensor.Contiguous(slices.Concat(shape, []int{1})...)
	pairs, err := b.emit1("bitcast", graph.Attrs{"dtype": partOf(d)}, whole)
	if err != nil {
		return nil, err
	}
	return b.ofPairs(pairs)
}

// complexResult returns the operand that a caller gets of a complex tensor.
func (b *builder) complexResult(r *ref) (graph.Operand, error) {
	ids, err := b.graph.Emit(b.ops, graph.Op{
		Kind: "bitcast", Path: b.path, Source: b.source, Attrs: graph.Attrs{"dtype": r.dtype},
		In: []graph.Operand{b.read(r)}, Guard: b.guard,
	})
	if err != nil {
		return graph.Absent, err
	}
	return graph.Operand{Value: ids[0], Layout: tensor.Contiguous(r.shape()...)}, nil
}

// pairs returns a complex tensor as torch.view_as_real does: another view of its memory, with a last dimension of two.
func (b *builder) pairs(r *ref) *ref {
	return &ref{cell: r.cell, layout: pairLayout(r.layout), dtype: partOf(r.dtype)}
}

// ofPairs is the reverse of pairs, torch.view_as_complex: a copy where the parts do not lie side by side.
func (b *builder) ofPairs(r *ref) (*ref, error) {
	n := r.rank() - 1
	if n < 0 || r.shape()[n] != 2 || !isFloat(r.dtype) {
		return nil, fmt.Errorf("%v %v is not pairs of floats", r.dtype, r.shape())
	}
	side := r.layout.Strides[n] == 1 && r.layout.Offset%2 == 0
	l := tensor.Layout{Shape: slices.Clone(r.layout.Shape[:n]), Strides: make([]int, n), Offset: r.layout.Offset / 2}
	for i, s := range r.layout.Strides[:n] {
		side = side && (s%2 == 0 || l.Shape[i] == 1)
		l.Strides[i] = s / 2
	}
	if !side {
		copied, err := b.copy(r)
		if err != nil {
			return nil, err
		}
		return b.ofPairs(copied)
	}
	return &ref{cell: r.cell, layout: l, dtype: complexOf(r.dtype)}, nil
}

// part returns a view of the real parts of a complex tensor, number 0, or of the imaginary ones, number 1.
func (b *builder) part(r *ref, number int) *ref {
	return b.selectAt(b.pairs(r), r.rank(), number)
}

// ofParts returns the complex tensor with the given parts, which are alike.
func (b *builder) ofParts(re, im *ref) (*ref, error) {
	joined, err := b.cat([]*ref{b.unsqueeze(re, re.rank()), b.unsqueeze(im, im.rank())}, re.rank())
	if err != nil {
		return nil, err
	}
	return b.ofPairs(joined)
}

// joinAlong puts two tensors of one dtype, which may be complex, one after the other.
func (b *builder) joinAlong(d int, first, second *ref) (*ref, error) {
	if !isComplex(first.dtype) {
		return b.cat([]*ref{first, second}, d)
	}
	all, err := b.cat([]*ref{b.pairs(first), b.pairs(second)}, d)
	if err != nil {
		return nil, err
	}
	return b.ofPairs(all)
}

// polar returns the complex numbers of the given magnitudes and angles.
func (b *builder) polar(magnitude, angle *ref) (*ref, error) {
	parts := make([]*ref, 2)
	for i, kind := range []graph.Kind{"cos", "sin"} {
		r, err := b.applyFloat(kind, nil, angle)
		if err != nil {
			return nil, err
		}
		if parts[i], err = b.combine("mul", nil, r, magnitude); err != nil {
			return nil, err
		}
	}
	return b.ofParts(parts[0], parts[1])
}

// castComplex is cast from or to a complex dtype. The imaginary parts are lost where the result is real.
func (b *builder) castComplex(r *ref, d tensor.DType) (*ref, error) {
	switch {
	case !isComplex(d):
		re := b.part(r, 0)
		if re.dtype == d { // not a view, as torch.real is
			return b.copy(re)
		}
		return b.cast(re, d)
	case isComplex(r.dtype):
		wide, err := b.cast(b.pairs(r), partOf(d))
		if err != nil {
			return nil, err
		}
		return b.ofPairs(wide)
	}
	re, err := b.cast(r, partOf(d))
	if err != nil {
		return nil, err
	}
	im, err := b.full(0, partOf(d), r.shape())
	if err != nil {
		return nil, err
	}
	return b.ofParts(re, im)
}

// complexConstant returns a 0-dimensional complex tensor that holds a number.
func (b *builder) complexConstant(n number, d tensor.DType) (*ref, error) {
	var data []byte
	for _, x := range []float64{realOf(n), imagOf(n)} {
		p, err := encodeNumber(x, partOf(d))
		if err != nil {
			return nil, b.unsupported("%v", err)
		}
		data = append(data, p...)
	}
	id := b.graph.AddConst(&tensor.Tensor{DType: partOf(d), Layout: tensor.Contiguous(2), Data: data})
	return b.ofPairs(b.own(id))
}

// realOf and imagOf return the parts of a number.
func realOf(n number) float64 {
	if z, ok := n.(complex128); ok {
		return real(z)
	}
	return floatOfNumber(n)
}

func imagOf(n number) float64 {
	if z, ok := n.(complex128); ok {
		return imag(z)
	}
	return 0
}
