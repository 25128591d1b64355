package aten

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/models/aten/elements"
)

// selected returns one of the selections among the arguments, nil where none is one.
func selected(c *call.Call) *cells.Selection {
	for _, p := range c.Schema.Params {
		if s, ok := c.Args[p.Name].(*cells.Selection); ok {
			return s
		}
	}
	return nil
}

// elementwise are the overloads that compute each element from those at the same place.
var elementwise = func() map[string]bool {
	all := make(map[string]bool)
	for _, op := range elements.ElementwiseTargets {
		s := call.ParseSchema(op.Schema)
		all[s.Target] = !slices.Contains([]string{"glu", "prelu", "_prelu_kernel"}, call.BaseName(s.Target))
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
func (t Target) ofSelected(c *call.Call, s *cells.Selection) error {
	name := call.BaseName(t.schema.Target)
	if values, ok := c.Args["values"].(*cells.Selection); ok && !values.IsMade() &&
		strings.Contains(name, "index_put") {
		return t.putSelected(c, values, strings.HasSuffix(name, "_"))
	}
	own, isOwn := c.Args["self"].(*cells.Selection)
	inPlace := strings.HasSuffix(name, "_") && !strings.HasSuffix(name, "__")
	if !elementwise[t.schema.Target] || hasCounted(c) || hasMade(c) || inPlace && !isOwn {
		return t.ofMade(c)
	}
	whole := make(map[*cells.Cell]*cells.Selection)
	full := maps.Clone(c.Args)
	for _, p := range t.schema.Params {
		switch v := c.Args[p.Name].(type) {
		case *cells.Selection:
			if !s.SameMask(v.Mask, v.Lead) || v.Rest() != s.Rest() {
				return t.ofMade(c)
			}
			full[p.Name] = v.Full
			whole[v.Full.Memory()] = v
		case *cells.Ref:
			r, ok := c.Aligned(v, s.Lead, s.Mask.Rank(), s.Rest())
			if !ok {
				return t.ofMade(c)
			}
			full[p.Name] = r
		}
	}
	before, divides := len(c.Graph.Ops), cells.IsSelection(c.Args["other"])
	c.Args = full
	if err := t.run(c); err != nil {
		return err
	}
	if divides {
		if err := refuseFailing(c, before); err != nil {
			return err
		}
	}
	if inPlace {
		c.Results = []any{own}
		return nil
	}
	for i, v := range c.Results {
		r, ok := v.(*cells.Ref)
		if !ok {
			continue
		}
		at := r.Rank() - s.Rest() - s.Mask.Rank()
		if at != s.Lead || !r.Shape()[at:at+s.Mask.Rank()].Equal(s.Mask.Shape()) {
			return c.Unsupported("%v of what a mask selects: %s", r.Shape(), cells.SizeOfData)
		}
		if c.Results[i] = whole[r.Memory()]; whole[r.Memory()] == nil {
			c.Results[i] = &cells.Selection{Full: r, Mask: s.Mask, Lead: s.Lead}
		}
	}
	return nil
}

// hasMade reports whether an argument is a selection that became a tensor.
func hasMade(c *call.Call) bool {
	for _, v := range c.Args {
		if s, ok := v.(*cells.Selection); ok && s.IsMade() {
			return true
		}
	}
	return false
}

// ofMade builds a call with tensors in the place of selections.
func (t Target) ofMade(c *call.Call) error {
	for name, v := range c.Args {
		if s, ok := v.(*cells.Selection); ok {
			made, err := s.Made(c.Builder)
			if err != nil {
				return err
			}
			c.Args[name] = made
		}
	}
	return t.run(c)
}

// putSelected is x[mask] = values where the same mask selected the values.
func (t Target) putSelected(c *call.Call, values *cells.Selection, inPlace bool) error {
	r, indices := c.Tensor("self"), c.Tensors("indices")
	if c.Err != nil {
		return c.Err
	}
	mask, lead, ok, err := c.MaskOf(r, indices)
	if err != nil {
		return err
	}
	if !ok || !values.SameMask(mask, lead) || values.Full.Rank() != r.Rank() {
		return t.ofMade(c)
	}
	if values.Full.DType() != r.DType() {
		return fmt.Errorf("values of %v into %v", values.Full.DType(), r.DType())
	}
	out, err := c.PutWhere(r, mask, lead, values.Full)
	if err == nil && inPlace {
		err = c.Write(r, out)
		out = r
	}
	return c.GiveRef(out, err)
}
