package call

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// MaskOf returns the mask that a list of indices is, and how many dimensions stand before it.
func (c *Call) MaskOf(r *cells.Ref, indices []*cells.Ref) (mask *cells.Ref, lead int, ok bool, err error) {
	for len(indices) > 0 && indices[len(indices)-1] == nil {
		indices = indices[:len(indices)-1]
	}
	lead = len(indices) - 1
	if lead < 0 || slices.ContainsFunc(indices[:lead], func(r *cells.Ref) bool { return r != nil }) {
		return nil, 0, false, nil
	}
	mask = indices[lead]
	if mask.DType() != tensor.Bool && mask.DType() != tensor.UInt8 || mask.Rank() == 0 {
		return nil, 0, false, nil
	}
	if lead+mask.Rank() > r.Rank() || !mask.Shape().Equal(r.Shape()[lead:lead+mask.Rank()]) {
		return nil, 0, false, fmt.Errorf("mask %v at dimension %d of %v", mask.Shape(), lead, r.Shape())
	}
	mask, err = c.Cast(mask, tensor.Bool)
	return mask, lead, true, err
}

// SelectMasked returns x[mask].
func (c *Call) SelectMasked(r, mask *cells.Ref, lead int) (*cells.Selection, error) {
	if cells.IsComplex(r.DType()) {
		return nil, c.Unsupported("what a mask selects of complex numbers: %s", cells.SizeOfData)
	}
	return &cells.Selection{Full: cells.Snapshot(r), Mask: cells.Snapshot(mask), Lead: lead}, nil
}

// Aligned returns an operand that stands beside x[mask] as one that stands beside x. ok is unset where it isn't the
// same for all rows, or has more dimensions.
func (c *Call) Aligned(r *cells.Ref, lead, maskRank, rest int) (beside *cells.Ref, ok bool) {
	row := r.Rank() - 1 - rest
	if row < 0 {
		return r, true
	}
	if row > lead || r.Shape()[row] != 1 {
		return nil, false
	}
	for range maskRank - 1 {
		r = c.Unsqueeze(r, row)
	}
	return r, true
}

// PutWhere returns r with values, or with "accumulate" their sum with what is there, where a mask of the dimensions
// from lead on is true.
func (c *Call) PutWhere(r, mask *cells.Ref, lead int, values *cells.Ref) (*cells.Ref, error) {
	values, err := c.Expand(values, r.Shape())
	if err != nil {
		return nil, err
	}
	if c.Bool("accumulate") {
		if r.DType() == tensor.Bool {
			return nil, c.Unsupported("sums of bools where a mask is true")
		}
		if values, err = c.Apply("add", nil, r, values); err != nil {
			return nil, err
		}
	}
	for mask.Rank() < r.Rank()-lead {
		mask = c.Unsqueeze(mask, mask.Rank())
	}
	if mask, err = c.Expand(mask, r.Shape()); err != nil {
		return nil, err
	}
	return c.Apply("where", nil, mask, values, r)
}
