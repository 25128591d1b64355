package cells

import (
	"slices"

	"github.com/optimem/optimem/tensor"
)

// A Selection is x[mask]: as many rows as the mask has trues, which only data says. Elementwise ops treat each element
// by itself, so they are done with all of x, and when the result is written to where the mask is true, as in x[mask] +=
// 1, no size was ever needed. For all else it becomes a tensor with a count of its rows.
type Selection struct {
	// Full is all of x, in memory of its own, as x[mask] is in PyTorch.
	Full *Ref
	// Mask stands for the dimensions of full from lead on. It is what it was when x[mask] was taken.
	Mask *Ref
	Lead int
	// made is x[mask] once something needed it as a tensor, which it is from then on.
	made *Ref
}

// IsSelection reports whether an argument is what a mask selects.
func IsSelection(arg any) bool {
	_, ok := arg.(*Selection)
	return ok
}

// Rest is how many dimensions come after the mask's.
func (s *Selection) Rest() int { return s.Full.Rank() - s.Lead - s.Mask.Rank() }

// Shape is that of x[mask], −1 where the mask says the size.
func (s *Selection) Shape() tensor.Shape {
	full := s.Full.Shape()
	return slices.Concat(full[:s.Lead], tensor.Shape{-1}, full[s.Lead+s.Mask.Rank():])
}

// DType is that of x[mask].
func (s *Selection) DType() tensor.DType { return s.Full.dtype }

// RowDim returns the dimension that has as much as the mask selects.
func (s *Selection) RowDim() int { return s.Lead }

// OfData reports whether a dimension, which may be counted from the end, has a size that the mask says.
func (s *Selection) OfData(dim int) bool {
	sizes := s.Shape()
	if dim < 0 {
		dim += len(sizes)
	}
	return dim >= 0 && dim < len(sizes) && sizes[dim] < 0
}

// Snapshot returns a tensor with memory of its own and the same contents.
func Snapshot(r *Ref) *Ref {
	memory := *r.cell
	return &Ref{cell: &memory, layout: r.layout, dtype: r.dtype}
}

// SameMask reports whether a mask is the one that made a selection.
func (s *Selection) SameMask(mask *Ref, lead int) bool {
	return s.Lead == lead && s.Mask.cell.value == mask.cell.value && s.Mask.cell.uniform == mask.cell.uniform &&
		s.Mask.layout.Offset == mask.layout.Offset && s.Mask.Shape().Equal(mask.Shape()) &&
		slices.Equal(s.Mask.layout.Strides, mask.layout.Strides)
}

// IsMade reports whether something needed x[mask] as a tensor already.
func (s *Selection) IsMade() bool { return s.made != nil }

// Made returns x[mask] as a tensor with a count of its rows.
func (s *Selection) Made(b *Builder) (*Ref, error) {
	if s.made != nil {
		return s.made, nil
	}
	made, err := b.Picked(s.Full, s.Mask, s.Lead)
	s.made = made
	return made, err
}

// Count returns how many rows the mask selects.
func (s *Selection) Count(b *Builder) (*Count, error) {
	if s.made != nil {
		return s.made.counted.Count, nil
	}
	p, err := b.Where(s.Mask)
	if err != nil {
		return nil, err
	}
	return p.Count, nil
}
