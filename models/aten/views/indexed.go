package views

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// indexedTargets are x[i, j, …] and writing to it.
var indexedTargets = []call.Overload{
	call.Several("aten::index.Tensor(Tensor self, Tensor?[] indices) -> Tensor", indexOrSelect),
	call.Several("aten::_unsafe_index.Tensor(Tensor self, Tensor?[] indices) -> Tensor", indexOrSelect),
	call.One("aten::_unsafe_masked_index(Tensor self, Tensor mask, Tensor?[] indices, Scalar fill) -> Tensor",
		maskedIndex),
	call.One("aten::index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor",
		indexPut),
	call.InPlace(
		"aten::index_put_(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor", indexPut,
	),
	call.One("aten::_unsafe_index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor",
		indexPut),
	call.One("aten::_index_put_impl(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False, bool unsafe=False)"+
		" -> Tensor", indexPut),
	call.InPlace("aten::_index_put_impl_(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False,"+
		" bool unsafe=False) -> Tensor", indexPut),
}

// An IndexPlan is PyTorch's reading of a list of indices: which dimensions of self stand in which order, where the
// dimensions of the indices go, and the indices broadcast together.
type IndexPlan struct {
	// Order brings the indexed dimensions together, at dimension At, where those of Index go.
	Order []int
	At    int
	Index []*cells.Ref
}

// PlanIndex follows PyTorch's rule: the indices' dimensions take the place of the indexed ones where these are
// neighbours, else they come first.
func PlanIndex(c *call.Call, r *cells.Ref, indices []*cells.Ref) (*IndexPlan, error) {
	if len(indices) > r.Rank() {
		return nil, fmt.Errorf("%d indices for %v", len(indices), r.Shape())
	}
	var dims, rest []int
	p := &IndexPlan{}
	for d := range r.Rank() {
		if d >= len(indices) || indices[d] == nil {
			rest = append(rest, d)
			continue
		}
		if err := MayIndex(indices[d].DType()); err != nil {
			return nil, err
		}
		dims = append(dims, d)
		p.Index = append(p.Index, indices[d])
	}
	if len(dims) == 0 {
		return nil, fmt.Errorf("no indices")
	}
	var err error
	if p.Index, err = c.Broadcast(p.Index...); err != nil {
		return nil, err
	}
	if dims[len(dims)-1]-dims[0] == len(dims)-1 {
		p.At = dims[0]
	}
	p.Order = slices.Concat(rest[:p.At], dims, rest[p.At:])
	return p, nil
}

// MayIndex refuses what is no list of places.
func MayIndex(d tensor.DType) error {
	switch d {
	case tensor.Bool, tensor.UInt8:
		return &cells.UnsupportedError{What: "indexing with a mask: " + cells.SizeOfData,
			Hint: "use torch.where or masked_fill"}
	case tensor.Int64, tensor.Int32:
		return nil
	}
	return fmt.Errorf("an index of %v", d)
}

// indexOrSelect gives a selection where the index is a mask to programs that go on with one, and to others a tensor
// whose rows are counted.
func indexOrSelect(c *call.Call) error {
	r, indices := c.Tensor("self"), c.Tensors("indices")
	if c.Err == nil {
		mask, lead, ok, err := c.MaskOf(r, indices)
		switch {
		case err != nil:
			return err
		case ok && c.Selects:
			s, err := c.SelectMasked(r, mask, lead)
			c.Set(s)
			return err
		case ok:
			return c.GiveRef(c.Picked(r, mask, lead))
		}
	}
	return c.GiveRef(index(c))
}

func index(c *call.Call) (*cells.Ref, error) {
	r, indices := c.Tensor("self"), c.Tensors("indices")
	if c.Err != nil {
		return nil, c.Err
	}
	p, err := PlanIndex(c, r, indices)
	if err != nil {
		return nil, err
	}
	operands := append([]*cells.Ref{c.Permute(r, p.Order...)}, p.Index...)
	return c.Apply("index", graph.Attrs{"dim": p.At, "wrap": true}, operands...)
}

// maskedIndex gives fill where the mask is false; indices may lie outside there.
func maskedIndex(c *call.Call) (*cells.Ref, error) {
	r, mask, indices := c.Tensor("self"), c.Tensor("mask"), slices.Clone(c.Tensors("indices"))
	if c.Err != nil {
		return nil, c.Err
	}
	if len(indices) > r.Rank() || cells.NumElements(r.Shape()) == 0 {
		return nil, fmt.Errorf("%d indices of %v", len(indices), r.Shape())
	}
	for d, i := range indices {
		if i == nil {
			continue
		}
		i, err := c.Combine("maximum", nil, i, 0)
		if err != nil {
			return nil, err
		}
		if indices[d], err = c.Combine("minimum", nil, i, r.Shape()[d]-1); err != nil {
			return nil, err
		}
	}
	p, err := PlanIndex(c, r, indices)
	if err != nil {
		return nil, err
	}
	found, err := c.Apply("index", graph.Attrs{"dim": p.At},
		append([]*cells.Ref{c.Permute(r, p.Order...)}, p.Index...)...)
	if err != nil {
		return nil, err
	}
	fill, err := c.Scalar(c.Number("fill"), r.DType())
	if err != nil {
		return nil, err
	}
	all, err := c.Broadcast(mask, found, fill)
	if err != nil {
		return nil, err
	}
	return c.Apply("where", nil, all...)
}

func indexPut(c *call.Call) (*cells.Ref, error) {
	r, indices, values := c.Tensor("self"), c.Tensors("indices"), c.Tensor("values")
	if c.Err != nil {
		return nil, c.Err
	}
	if out, done, err := maskPut(c, r, indices, values); done || err != nil {
		return out, err
	}
	p, err := PlanIndex(c, r, indices)
	if err != nil {
		return nil, err
	}
	if values.DType() != r.DType() {
		return nil, fmt.Errorf("values of %v into %v", values.DType(), r.DType())
	}
	self := c.Permute(r, p.Order...)
	want := slices.Concat(self.Shape()[:p.At], p.Index[0].Shape(), self.Shape()[p.At+len(p.Index):])
	if values, err = c.Expand(values, want); err != nil {
		return nil, err
	}
	attrs := graph.Attrs{"dim": p.At, "wrap": true, "accumulate": c.Bool("accumulate")}
	out, err := c.Apply("index_put", attrs, append([]*cells.Ref{self, values}, p.Index...)...)
	if err != nil {
		return nil, err
	}
	back := make([]int, len(p.Order))
	for i, d := range p.Order {
		back[d] = i
	}
	return c.Permute(out, back...), nil
}

// maskPut is x[mask] = values for values that are the same wherever the mask is true: no size depends on data there.
func maskPut(c *call.Call, r *cells.Ref, indices []*cells.Ref,
	values *cells.Ref) (out *cells.Ref, done bool, err error) {
	mask, lead, ok, err := c.MaskOf(r, indices)
	if err != nil || !ok {
		return nil, err != nil, err
	}
	rest := r.Rank() - lead - mask.Rank()
	for values.Rank() > lead+1+rest {
		if values.Shape()[0] != 1 {
			return nil, true, fmt.Errorf(
				"values %v where a mask %v of %v is true", values.Shape(), mask.Shape(), r.Shape(),
			)
		}
		values = c.SelectAt(values, 0, 0)
	}
	beside, ok := c.Aligned(values, lead, mask.Rank(), rest)
	if !ok {
		return nil, true, c.Unsupported("%v beside what a mask selects: %s", values.Shape(), cells.SizeOfData)
	}
	if values, err = c.Cast(beside, r.DType()); err != nil {
		return nil, true, err
	}
	out, err = c.PutWhere(r, mask, lead, values)
	return out, true, err
}
