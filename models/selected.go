package models

import (
	"fmt"
	"slices"
	"strings"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// A selection is x[mask]: as many rows as the mask has trues, which only data says. Elementwise ops treat each element by
// itself, so they are done with all of x, and when the result is written to where the mask is true, as in x[mask] += 1, no size
// was ever needed. Nothing else takes a selection.
type selection struct {
	// full is all of x, in memory of its own, as x[mask] is in PyTorch.
	full *ref
	// mask stands for the dimensions of full from lead on. It is what it was when x[mask] was taken.
	mask *ref
	lead int
}

// isSelection reports whether an argument is what a mask selects.
func isSelection(arg any) bool {
	_, ok := arg.(*selection)
	return ok
}

// rest is how many dimensions come after the mask's.
func (s *selection) rest() int { return s.full.rank() - s.lead - s.mask.rank() }

// shape is that of x[mask], −1 where the mask says the size.
func (s *selection) shape() tensor.Shape {
	full := s.full.shape()
	return slices.Concat(full[:s.lead], tensor.Shape{-1}, full[s.lead+s.mask.rank():])
}

// dtype is that of x[mask].
func (s *selection) dtype() tensor.DType { return s.full.dtype }

// ofData reports whether a dimension, which may be counted from the end, has a size that the mask says.
func (s *selection) ofData(dim int) bool {
	sizes := s.shape()
	if dim < 0 {
		dim += len(sizes)
	}
	return dim >= 0 && dim < len(sizes) && sizes[dim] < 0
}

// maskOf returns the mask that a list of indices is, and how many dimensions stand before it.
func (c *call) maskOf(r *ref, indices []*ref) (mask *ref, lead int, ok bool, err error) {
	for len(indices) > 0 && indices[len(indices)-1] == nil {
		indices = indices[:len(indices)-1]
	}
	lead = len(indices) - 1
	if lead < 0 || slices.ContainsFunc(indices[:lead], func(r *ref) bool { return r != nil }) {
		return nil, 0, false, nil
	}
	mask = indices[lead]
	if mask.dtype != tensor.Bool && mask.dtype != tensor.UInt8 || mask.rank() == 0 {
		return nil, 0, false, nil
	}
	if lead+mask.rank() > r.rank() || !mask.shape().Equal(r.shape()[lead:lead+mask.rank()]) {
		return nil, 0, false, fmt.Errorf("mask %v at dimension %d of %v", mask.shape(), lead, r.shape())
	}
	mask, err = c.cast(mask, tensor.Bool)
	return mask, lead, true, err
}

// selectMasked returns x[mask].
func (c *call) selectMasked(r, mask *ref, lead int) (*selection, error) {
	if isComplex(r.dtype) {
		return nil, c.unsupported("what a mask selects of complex numbers: %s", sizeOfData)
	}
	return &selection{full: ofOwn(r), mask: ofOwn(mask), lead: lead}, nil
}

// ofOwn returns a tensor with memory of its own and the same contents.
func ofOwn(r *ref) *ref {
	memory := *r.cell
	return &ref{cell: &memory, layout: r.layout, dtype: r.dtype}
}

// sameMask reports whether a mask is the one that made a selection.
func (s *selection) sameMask(mask *ref, lead int) bool {
	return s.lead == lead && s.mask.cell.value == mask.cell.value && s.mask.cell.uniform == mask.cell.uniform &&
		s.mask.layout.Offset == mask.layout.Offset && s.mask.shape().Equal(mask.shape()) &&
		slices.Equal(s.mask.layout.Strides, mask.layout.Strides)
}

// aligned returns an operand that stands beside x[mask] as one that stands beside x. It must be the same for all rows.
func (c *call) aligned(r *ref, lead, maskRank, rest int) (*ref, error) {
	row := r.rank() - 1 - rest
	if row < 0 {
		return r, nil
	}
	if row > lead || r.shape()[row] != 1 {
		return nil, c.unsupported("%v beside what a mask selects: %s", r.shape(), sizeOfData)
	}
	for range maskRank - 1 {
		r = c.unsqueeze(r, row)
	}
	return r, nil
}

// selected returns one of the selections among the arguments, nil where none is one.
func (c *call) selected() *selection {
	for _, p := range c.schema.params {
		if s, ok := c.args[p.name].(*selection); ok {
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
		"clone.default", "contiguous.default", "detach.default", "detach_.default", "alias.default", "lift_fresh_copy.default",
		"to.dtype", "to.dtype_layout", "to.device", "_to_copy.default",
	} {
		all["torch.ops.aten."+name] = true
	}
	return all
}()

// failing are the kinds that fail because of an element, which may be one that the mask leaves out.
var failing = map[graph.Kind]bool{"div_floor": true, "div_trunc": true, "remainder": true, "fmod": true}

// ofSelected builds a call that has s among its arguments.
func (t target) ofSelected(c *call, s *selection) error {
	name := baseName(t.schema.target)
	if values, ok := c.args["values"].(*selection); ok && strings.Contains(name, "index_put") {
		return c.putSelected(values, strings.HasSuffix(name, "_"))
	}
	own, isOwn := c.args["self"].(*selection)
	inPlace := strings.HasSuffix(name, "_") && !strings.HasSuffix(name, "__")
	if !elementwise[t.schema.target] || inPlace && !isOwn {
		return c.unsupported("of what a mask selects: %s", sizeOfData)
	}
	for _, p := range t.schema.params {
		switch v := c.args[p.name].(type) {
		case *selection:
			if !s.sameMask(v.mask, v.lead) || v.rest() != s.rest() {
				return c.unsupported("of what two masks select: %s", sizeOfData)
			}
			c.args[p.name] = v.full
		case *ref:
			r, err := c.aligned(v, s.lead, s.mask.rank(), s.rest())
			if err != nil {
				return err
			}
			c.args[p.name] = r
		}
	}
	before := len(c.graph.Ops)
	if err := t.run(c); err != nil {
		return err
	}
	for _, op := range c.graph.Ops[before:] {
		if failing[op.Kind] && isIntegral(c.graph.Values[op.Out[0]].DType) {
			return c.unsupported("a division of integers that a mask selects: %s", sizeOfData)
		}
	}
	if inPlace {
		c.results = []any{own}
		return nil
	}
	for i, v := range c.results {
		r, ok := v.(*ref)
		if !ok {
			continue
		}
		at := r.rank() - s.rest() - s.mask.rank()
		if at != s.lead || !r.shape()[at:at+s.mask.rank()].Equal(s.mask.shape()) {
			return c.unsupported("%v of what a mask selects: %s", r.shape(), sizeOfData)
		}
		c.results[i] = &selection{full: r, mask: s.mask, lead: s.lead}
	}
	return nil
}

// putSelected is x[mask] = values where the same mask selected the values.
func (c *call) putSelected(values *selection, inPlace bool) error {
	r, indices := c.tensor("self"), c.tensors("indices")
	if c.err != nil {
		return c.err
	}
	mask, lead, ok, err := c.maskOf(r, indices)
	if err != nil {
		return err
	}
	if !ok || !values.sameMask(mask, lead) || values.full.rank() != r.rank() {
		return c.unsupported("what a mask selects, put elsewhere: %s", sizeOfData)
	}
	if values.full.dtype != r.dtype {
		return fmt.Errorf("values of %v into %v", values.full.dtype, r.dtype)
	}
	out, err := c.putWhere(r, mask, lead, values.full)
	if err == nil && inPlace {
		err = c.write(r, out)
		out = r
	}
	return c.giveRef(out, err)
}

// putWhere returns r with values, or with "accumulate" their sum with what is there, where a mask of the dimensions from lead on
// is true.
func (c *call) putWhere(r, mask *ref, lead int, values *ref) (*ref, error) {
	values, err := c.expand(values, r.shape())
	if err != nil {
		return nil, err
	}
	if c.bool("accumulate") {
		if r.dtype == tensor.Bool {
			return nil, c.unsupported("sums of bools where a mask is true")
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
