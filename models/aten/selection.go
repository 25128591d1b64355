package aten

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// A Selection is x[mask]: as many rows as the mask has trues, which only data says. Elementwise ops treat each element by
// itself, so they are done with all of x, and when the result is written to where the mask is true, as in x[mask] += 1, no size
// was ever needed. For all else it becomes a tensor with a count of its rows.
type Selection struct {
	// full is all of x, in memory of its own, as x[mask] is in PyTorch.
	full *Ref
	// mask stands for the dimensions of full from lead on. It is what it was when x[mask] was taken.
	mask *Ref
	lead int
	// made is x[mask] once something needed it as a tensor, which it is from then on.
	made *Ref
}

// IsSelection reports whether an argument is what a mask selects.
func IsSelection(arg any) bool {
	_, ok := arg.(*Selection)
	return ok
}

// rest is how many dimensions come after the mask's.
func (s *Selection) rest() int { return s.full.rank() - s.lead - s.mask.rank() }

// Shape is that of x[mask], −1 where the mask says the size.
func (s *Selection) Shape() tensor.Shape {
	full := s.full.shape()
	return slices.Concat(full[:s.lead], tensor.Shape{-1}, full[s.lead+s.mask.rank():])
}

// dtype is that of x[mask].
func (s *Selection) DType() tensor.DType { return s.full.dtype }

// RowDim returns the dimension that has as much as the mask selects.
func (s *Selection) RowDim() int { return s.lead }

// OfData reports whether a dimension, which may be counted from the end, has a size that the mask says.
func (s *Selection) OfData(dim int) bool {
	sizes := s.Shape()
	if dim < 0 {
		dim += len(sizes)
	}
	return dim >= 0 && dim < len(sizes) && sizes[dim] < 0
}

// maskOf returns the mask that a list of indices is, and how many dimensions stand before it.
func (c *call) maskOf(r *Ref, indices []*Ref) (mask *Ref, lead int, ok bool, err error) {
	for len(indices) > 0 && indices[len(indices)-1] == nil {
		indices = indices[:len(indices)-1]
	}
	lead = len(indices) - 1
	if lead < 0 || slices.ContainsFunc(indices[:lead], func(r *Ref) bool { return r != nil }) {
		return nil, 0, false, nil
	}
	mask = indices[lead]
	if mask.dtype != tensor.Bool && mask.dtype != tensor.UInt8 || mask.rank() == 0 {
		return nil, 0, false, nil
	}
	if lead+mask.rank() > r.rank() || !mask.shape().Equal(r.shape()[lead:lead+mask.rank()]) {
		return nil, 0, false, fmt.Errorf("mask %v at dimension %d of %v", mask.shape(), lead, r.shape())
	}
	mask, err = c.Cast(mask, tensor.Bool)
	return mask, lead, true, err
}

// selectMasked returns x[mask].
func (c *call) selectMasked(r, mask *Ref, lead int) (*Selection, error) {
	if IsComplex(r.dtype) {
		return nil, c.Unsupported("what a mask selects of complex numbers: %s", SizeOfData)
	}
	return &Selection{full: ofOwn(r), mask: ofOwn(mask), lead: lead}, nil
}

// Snapshot returns a tensor that stays what r holds now.
func Snapshot(r *Ref) *Ref { return ofOwn(r) }

// ofOwn returns a tensor with memory of its own and the same contents.
func ofOwn(r *Ref) *Ref {
	memory := *r.cell
	return &Ref{cell: &memory, layout: r.layout, dtype: r.dtype}
}

// sameMask reports whether a mask is the one that made a selection.
func (s *Selection) sameMask(mask *Ref, lead int) bool {
	return s.lead == lead && s.mask.cell.value == mask.cell.value && s.mask.cell.uniform == mask.cell.uniform &&
		s.mask.layout.Offset == mask.layout.Offset && s.mask.shape().Equal(mask.shape()) &&
		slices.Equal(s.mask.layout.Strides, mask.layout.Strides)
}

// aligned returns an operand that stands beside x[mask] as one that stands beside x. ok is unset where it isn't the same for all
// rows, or has more dimensions.
func (c *call) aligned(r *Ref, lead, maskRank, rest int) (beside *Ref, ok bool) {
	row := r.rank() - 1 - rest
	if row < 0 {
		return r, true
	}
	if row > lead || r.shape()[row] != 1 {
		return nil, false
	}
	for range maskRank - 1 {
		r = c.unsqueeze(r, row)
	}
	return r, true
}

// Made returns x[mask] as a tensor with a count of its rows.
func (s *Selection) Made(b *Builder) (*Ref, error) {
	if s.made != nil {
		return s.made, nil
	}
	made, err := b.picked(s.full, s.mask, s.lead)
	s.made = made
	return made, err
}

// Count returns how many rows the mask selects.
func (s *Selection) Count(b *Builder) (*Count, error) {
	if s.made != nil {
		return s.made.counted.Count, nil
	}
	p, err := b.where(s.mask)
	if err != nil {
		return nil, err
	}
	return p.Count, nil
}

// selected returns one of the selections among the arguments, nil where none is one.
func (c *call) selected() *Selection {
	for _, p := range c.schema.params {
		if s, ok := c.args[p.name].(*Selection); ok {
			return s
		}
	}
	return nil
}

// elementwise are the overloads that compute each element from those at the same place.
var elementwise = func() map[string]bool {
	all := make(map[string]bool)
	for _, op := range elementwiseTargets {
		s := parseSchema(op.schema)
		all[s.target] = !slices.Contains([]string{"glu", "prelu", "_prelu_kernel"}, baseName(s.target))
	}
	for _, name := range []string{
		"clone.default", "contiguous.default", "detach.default", "detach_.default", "alias.default",
		"lift_fresh_copy.default",
		"to.dtype", "to.dtype_layout", "to.device", "_to_copy.default", "copy_.default",
	} {
		all["torch.ops.aten."+name] = true
	}
	return all
}()

// failing are the kinds that fail because of an element, which may be one that the mask leaves out.
var failing = map[graph.Kind]bool{"div_floor": true, "div_trunc": true, "remainder": true, "fmod": true}

// ofSelected builds a call that has s among its arguments.
func (t Target) ofSelected(c *call, s *Selection) error {
	name := baseName(t.schema.target)
	if values, ok := c.args["values"].(*Selection); ok && values.made == nil && strings.Contains(name, "index_put") {
		return t.putSelected(c, values, strings.HasSuffix(name, "_"))
	}
	own, isOwn := c.args["self"].(*Selection)
	inPlace := strings.HasSuffix(name, "_") && !strings.HasSuffix(name, "__")
	if !elementwise[t.schema.target] || c.hasCounted() || c.hasMade() || inPlace && !isOwn {
		return t.ofMade(c)
	}
	whole := make(map[*Cell]*Selection)
	full := maps.Clone(c.args)
	for _, p := range t.schema.params {
		switch v := c.args[p.name].(type) {
		case *Selection:
			if !s.sameMask(v.mask, v.lead) || v.rest() != s.rest() {
				return t.ofMade(c)
			}
			full[p.name] = v.full
			whole[v.full.cell] = v
		case *Ref:
			r, ok := c.aligned(v, s.lead, s.mask.rank(), s.rest())
			if !ok {
				return t.ofMade(c)
			}
			full[p.name] = r
		}
	}
	before, divides := len(c.Graph.Ops), IsSelection(c.args["other"])
	c.args = full
	if err := t.run(c); err != nil {
		return err
	}
	if divides {
		if err := c.refuseFailing(before); err != nil {
			return err
		}
	}
	if inPlace {
		c.results = []any{own}
		return nil
	}
	for i, v := range c.results {
		r, ok := v.(*Ref)
		if !ok {
			continue
		}
		at := r.rank() - s.rest() - s.mask.rank()
		if at != s.lead || !r.shape()[at:at+s.mask.rank()].Equal(s.mask.shape()) {
			return c.Unsupported("%v of what a mask selects: %s", r.shape(), SizeOfData)
		}
		if c.results[i] = whole[r.cell]; whole[r.cell] == nil {
			c.results[i] = &Selection{full: r, mask: s.mask, lead: s.lead}
		}
	}
	return nil
}

// hasMade reports whether an argument is a selection that became a tensor.
func (c *call) hasMade() bool {
	for _, v := range c.args {
		if s, ok := v.(*Selection); ok && s.made != nil {
			return true
		}
	}
	return false
}

// ofMade builds a call with tensors in the place of selections.
func (t Target) ofMade(c *call) error {
	for name, v := range c.args {
		if s, ok := v.(*Selection); ok {
			made, err := s.Made(c.Builder)
			if err != nil {
				return err
			}
			c.args[name] = made
		}
	}
	return t.run(c)
}

// putSelected is x[mask] = values where the same mask selected the values.
func (t Target) putSelected(c *call, values *Selection, inPlace bool) error {
	r, indices := c.tensor("self"), c.tensors("indices")
	if c.err != nil {
		return c.err
	}
	mask, lead, ok, err := c.maskOf(r, indices)
	if err != nil {
		return err
	}
	if !ok || !values.sameMask(mask, lead) || values.full.rank() != r.rank() {
		return t.ofMade(c)
	}
	if values.full.dtype != r.dtype {
		return fmt.Errorf("values of %v into %v", values.full.dtype, r.dtype)
	}
	out, err := c.putWhere(r, mask, lead, values.full)
	if err == nil && inPlace {
		err = c.Write(r, out)
		out = r
	}
	return c.giveRef(out, err)
}

// putWhere returns r with values, or with "accumulate" their sum with what is there, where a mask of the dimensions from lead on
// is true.
func (c *call) putWhere(r, mask *Ref, lead int, values *Ref) (*Ref, error) {
	values, err := c.expand(values, r.shape())
	if err != nil {
		return nil, err
	}
	if c.bool("accumulate") {
		if r.dtype == tensor.Bool {
			return nil, c.Unsupported("sums of bools where a mask is true")
		}
		if values, err = c.apply("add", nil, r, values); err != nil {
			return nil, err
		}
	}
	for mask.rank() < r.rank()-lead {
		mask = c.unsqueeze(mask, mask.rank())
	}
	if mask, err = c.expand(mask, r.shape()); err != nil {
		return nil, err
	}
	return c.apply("where", nil, mask, values, r)
}
