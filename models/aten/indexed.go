package aten

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// indexedTargets are x[i, j, …] and writing to it.
var indexedTargets = []atenOp{
	{"aten::index.Tensor(Tensor self, Tensor?[] indices) -> Tensor", indexOrSelect},
	{"aten::_unsafe_index.Tensor(Tensor self, Tensor?[] indices) -> Tensor", indexOrSelect},
	op("aten::_unsafe_masked_index(Tensor self, Tensor mask, Tensor?[] indices, Scalar fill) -> Tensor", maskedIndex),
	op("aten::index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor", indexPut),
	inPlace(
		"aten::index_put_(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor", indexPut,
	),
	op("aten::_unsafe_index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor",
		indexPut),
	op("aten::_index_put_impl(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False, bool unsafe=False)"+
		" -> Tensor", indexPut),
	inPlace("aten::_index_put_impl_(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False,"+
		" bool unsafe=False) -> Tensor", indexPut),
}

// An indexPlan is PyTorch's reading of a list of indices: which dimensions of self stand in which order, where the
// dimensions of the indices go, and the indices broadcast together.
type indexPlan struct {
	// order brings the indexed dimensions together, at dimension at.
	order []int
	at    int
	index []*Ref
}

// planIndex follows PyTorch's rule: the indices' dimensions take the place of the indexed ones where these are
// neighbours, else they come first.
func (c *call) planIndex(r *Ref, indices []*Ref) (*indexPlan, error) {
	if len(indices) > r.rank() {
		return nil, fmt.Errorf("%d indices for %v", len(indices), r.shape())
	}
	var dims, rest []int
	p := &indexPlan{}
	for d := range r.rank() {
		if d >= len(indices) || indices[d] == nil {
			rest = append(rest, d)
			continue
		}
		if err := mayIndex(indices[d].dtype); err != nil {
			return nil, err
		}
		dims = append(dims, d)
		p.index = append(p.index, indices[d])
	}
	if len(dims) == 0 {
		return nil, fmt.Errorf("no indices")
	}
	var err error
	if p.index, err = c.broadcast(p.index...); err != nil {
		return nil, err
	}
	if dims[len(dims)-1]-dims[0] == len(dims)-1 {
		p.at = dims[0]
	}
	p.order = slices.Concat(rest[:p.at], dims, rest[p.at:])
	return p, nil
}

// mayIndex refuses what is no list of places.
func mayIndex(d tensor.DType) error {
	switch d {
	case tensor.Bool, tensor.UInt8:
		return &UnsupportedError{What: "indexing with a mask: " + SizeOfData, Hint: "use torch.where or masked_fill"}
	case tensor.Int64, tensor.Int32:
		return nil
	}
	return fmt.Errorf("an index of %v", d)
}

// indexOrSelect gives a selection where the index is a mask to programs that go on with one, and to others a tensor whose rows are
// counted.
func indexOrSelect(c *call) error {
	r, indices := c.tensor("self"), c.tensors("indices")
	if c.err == nil {
		mask, lead, ok, err := c.maskOf(r, indices)
		switch {
		case err != nil:
			return err
		case ok && c.Selects:
			s, err := c.selectMasked(r, mask, lead)
			c.set(s)
			return err
		case ok:
			return c.giveRef(c.picked(r, mask, lead))
		}
	}
	return c.giveRef(index(c))
}

func index(c *call) (*Ref, error) {
	r, indices := c.tensor("self"), c.tensors("indices")
	if c.err != nil {
		return nil, c.err
	}
	p, err := c.planIndex(r, indices)
	if err != nil {
		return nil, err
	}
	operands := append([]*Ref{c.permute(r, p.order...)}, p.index...)
	return c.apply("index", graph.Attrs{"dim": p.at, "wrap": true}, operands...)
}

// maskedIndex gives fill where the mask is false; indices may lie outside there.
func maskedIndex(c *call) (*Ref, error) {
	r, mask, indices := c.tensor("self"), c.tensor("mask"), slices.Clone(c.tensors("indices"))
	if c.err != nil {
		return nil, c.err
	}
	if len(indices) > r.rank() || NumElements(r.shape()) == 0 {
		return nil, fmt.Errorf("%d indices of %v", len(indices), r.shape())
	}
	for d, i := range indices {
		if i == nil {
			continue
		}
		i, err := c.combine("maximum", nil, i, 0)
		if err != nil {
			return nil, err
		}
		if indices[d], err = c.combine("minimum", nil, i, r.shape()[d]-1); err != nil {
			return nil, err
		}
	}
	p, err := c.planIndex(r, indices)
	if err != nil {
		return nil, err
	}
	found, err := c.apply("index", graph.Attrs{"dim": p.at}, append([]*Ref{c.permute(r, p.order...)}, p.index...)...)
	if err != nil {
		return nil, err
	}
	fill, err := c.Scalar(c.number("fill"), r.dtype)
	if err != nil {
		return nil, err
	}
	all, err := c.broadcast(mask, found, fill)
	if err != nil {
		return nil, err
	}
	return c.apply("where", nil, all...)
}

func indexPut(c *call) (*Ref, error) {
	r, indices, values := c.tensor("self"), c.tensors("indices"), c.tensor("values")
	if c.err != nil {
		return nil, c.err
	}
	if out, done, err := c.maskPut(r, indices, values); done || err != nil {
		return out, err
	}
	p, err := c.planIndex(r, indices)
	if err != nil {
		return nil, err
	}
	if values.dtype != r.dtype {
		return nil, fmt.Errorf("values of %v into %v", values.dtype, r.dtype)
	}
	self := c.permute(r, p.order...)
	want := slices.Concat(self.shape()[:p.at], p.index[0].shape(), self.shape()[p.at+len(p.index):])
	if values, err = c.expand(values, want); err != nil {
		return nil, err
	}
	attrs := graph.Attrs{"dim": p.at, "wrap": true, "accumulate": c.bool("accumulate")}
	out, err := c.apply("index_put", attrs, append([]*Ref{self, values}, p.index...)...)
	if err != nil {
		return nil, err
	}
	back := make([]int, len(p.order))
	for i, d := range p.order {
		back[d] = i
	}
	return c.permute(out, back...), nil
}

// maskPut is x[mask] = values for values that are the same wherever the mask is true: no size depends on data there.
func (c *call) maskPut(r *Ref, indices []*Ref, values *Ref) (out *Ref, done bool, err error) {
	mask, lead, ok, err := c.maskOf(r, indices)
	if err != nil || !ok {
		return nil, err != nil, err
	}
	rest := r.rank() - lead - mask.rank()
	for values.rank() > lead+1+rest {
		if values.shape()[0] != 1 {
			return nil, true, fmt.Errorf(
				"values %v where a mask %v of %v is true", values.shape(), mask.shape(), r.shape(),
			)
		}
		values = c.selectAt(values, 0, 0)
	}
	beside, ok := c.aligned(values, lead, mask.rank(), rest)
	if !ok {
		return nil, true, c.Unsupported("%v beside what a mask selects: %s", values.shape(), SizeOfData)
	}
	if values, err = c.Cast(beside, r.dtype); err != nil {
		return nil, true, err
	}
	out, err = c.putWhere(r, mask, lead, values)
	return out, true, err
}
