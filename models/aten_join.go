package models

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// joinTargets are the ops that put tensors side by side, or elements in another order.
var joinTargets = []atenOp{
	op("aten::cat(Tensor[] tensors, int dim=0) -> Tensor", catenate),
	op("aten::concat(Tensor[] tensors, int dim=0) -> Tensor", catenate),
	op("aten::concatenate(Tensor[] tensors, int dim=0) -> Tensor", catenate),
	op("aten::stack(Tensor[] tensors, int dim=0) -> Tensor", stack),
	op("aten::hstack(Tensor[] tensors) -> Tensor", func(c *call) (*ref, error) { return c.joined(1, 1, 0) }),
	op("aten::vstack(Tensor[] tensors) -> Tensor", func(c *call) (*ref, error) { return c.joined(2, 0, 0) }),
	op("aten::dstack(Tensor[] tensors) -> Tensor", func(c *call) (*ref, error) { return c.joined(3, 2, 2) }),
	op("aten::column_stack(Tensor[] tensors) -> Tensor", columnStack),
	op("aten::flip(Tensor self, int[] dims) -> Tensor", func(c *call) (*ref, error) {
		r := c.tensor("self")
		return c.flip(r, c.wrapDims(r, c.ints("dims")))
	}),
	op("aten::fliplr(Tensor self) -> Tensor", func(c *call) (*ref, error) { return c.flip(c.tensor("self"), []int{1}) }),
	op("aten::flipud(Tensor self) -> Tensor", func(c *call) (*ref, error) { return c.flip(c.tensor("self"), []int{0}) }),
	op("aten::rot90(Tensor self, int k=1, int[] dims=[0, 1]) -> Tensor", rotate),
	op("aten::roll(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> Tensor", roll),
}

// cat puts tensors one after the other along dimension d, in the dtype that they have in common. Lists of nothing do not
// count, whatever the others' shapes.
func (b *builder) cat(parts []*ref, d int) (*ref, error) {
	operands := make([]operandArg, len(parts))
	for i, r := range parts {
		if r == nil {
			return nil, fmt.Errorf("tensor %d is None", i)
		}
		operands[i] = r
	}
	dtype, err := resultType(operands...)
	if err != nil {
		return nil, err
	}
	var kept []*ref
	for _, r := range parts {
		if r.rank() == 1 && r.shape()[0] == 0 {
			continue
		}
		if r, err = b.cast(r, dtype); err != nil {
			return nil, err
		}
		kept = append(kept, r)
	}
	if len(kept) == 0 {
		return b.full(0, dtype, tensor.Shape{0})
	}
	return b.apply("cat", layers.Attrs{"dim": d}, kept...)
}

// catDim returns a dimension of the first tensor that counts.
func (c *call) catDim(parts []*ref) int {
	rank := 1
	for _, r := range parts {
		if r != nil && !(r.rank() == 1 && r.shape()[0] == 0) {
			rank = r.rank()
			break
		}
	}
	return c.dim("dim", rank)
}

func catenate(c *call) (*ref, error) {
	parts := c.tensors("tensors")
	if c.err != nil || len(parts) == 0 {
		return nil, fmt.Errorf("no tensors to join")
	}
	d := c.catDim(parts)
	if c.err != nil {
		return nil, c.err
	}
	return c.cat(parts, d)
}

func stack(c *call) (*ref, error) {
	parts := slices.Clone(c.tensors("tensors"))
	if c.err != nil || len(parts) == 0 || parts[0] == nil {
		return nil, fmt.Errorf("no tensors to join")
	}
	d := c.wrapDim(c.int("dim"), parts[0].rank()+1)
	if c.err != nil {
		return nil, c.err
	}
	for i, r := range parts {
		if r == nil || !r.shape().Equal(parts[0].shape()) {
			return nil, fmt.Errorf("tensor %d does not have the shape of the first", i)
		}
	}
	for i, r := range parts {
		parts[i] = c.unsqueeze(r, d)
	}
	return c.cat(parts, d)
}

// joined joins tensors of at least a number of dimensions along one of them, lists along another.
func (c *call) joined(least, along, alongLists int) (*ref, error) {
	parts := slices.Clone(c.tensors("tensors"))
	if c.err != nil || len(parts) == 0 {
		return nil, fmt.Errorf("no tensors to join")
	}
	d := along
	for i, r := range parts {
		if r == nil {
			return nil, fmt.Errorf("tensor %d is None", i)
		}
		if r.rank() < least {
			r = c.atLeast(r, least)
		}
		if r.rank() == 1 {
			d = alongLists
		}
		parts[i] = r
	}
	return c.cat(parts, d)
}

// atLeast returns a view of r with a number of dimensions: a list is a row.
func (b *builder) atLeast(r *ref, rank int) *ref {
	for r.rank() < rank {
		if r.rank() == 2 {
			r = b.unsqueeze(r, 2)
		} else {
			r = b.unsqueeze(r, 0)
		}
	}
	return r
}

func columnStack(c *call) (*ref, error) {
	parts := slices.Clone(c.tensors("tensors"))
	if c.err != nil || len(parts) == 0 {
		return nil, fmt.Errorf("no tensors to join")
	}
	for i, r := range parts {
		if r == nil {
			return nil, fmt.Errorf("tensor %d is None", i)
		}
		for r.rank() < 2 {
			r = c.unsqueeze(r, r.rank())
		}
		parts[i] = r
	}
	return c.cat(parts, 1)
}

func (c *call) flip(r *ref, dims []int) (*ref, error) {
	if c.err != nil {
		return nil, c.err
	}
	return c.emit1("flip", layers.Attrs{"dims": dims}, c.read(r))
}

// rotate turns two dimensions by quarters.
func rotate(c *call) (*ref, error) {
	r, k, dims := c.tensor("self"), c.int("k"), c.intsOf("dims", 2)
	if c.err != nil {
		return nil, c.err
	}
	d, e := c.wrapDim(dims[0], r.rank()), c.wrapDim(dims[1], r.rank())
	if c.err != nil || d == e || r.rank() < 2 {
		return nil, fmt.Errorf("rotation of %v in dimensions %v", r.shape(), dims)
	}
	switch k & 3 {
	case 1:
		out, err := c.flip(r, []int{e})
		if err != nil {
			return nil, err
		}
		return c.copy(c.transpose(out, d, e))
	case 2:
		return c.flip(r, []int{min(d, e), max(d, e)})
	case 3:
		out, err := c.flip(r, []int{d})
		if err != nil {
			return nil, err
		}
		return c.copy(c.transpose(out, d, e))
	}
	return c.copy(r)
}

// roll turns dimensions; without dimensions it turns the elements in order.
func roll(c *call) (*ref, error) {
	r, shifts, dims := c.tensor("self"), c.ints("shifts"), c.ints("dims")
	if c.err != nil {
		return nil, c.err
	}
	shape := r.shape()
	var err error
	if len(dims) == 0 && len(shifts) == 1 {
		if r, err = c.flat(r); err != nil {
			return nil, err
		}
		dims = []int{0}
	}
	if len(dims) != len(shifts) {
		return nil, fmt.Errorf("shifts %v of dimensions %v", shifts, dims)
	}
	// A dimension may be turned several times.
	turns := make([]int, r.rank())
	for i, d := range dims {
		if d = c.wrapDim(d, r.rank()); r.rank() > 0 && r.shape()[d] > 0 {
			turns[d] = (turns[d] + shifts[i]%r.shape()[d]) % r.shape()[d]
		}
	}
	if c.err != nil {
		return nil, c.err
	}
	out, err := c.emit1("roll", layers.Attrs{"dims": allDims(r.rank()), "shifts": turns}, c.read(r))
	if err != nil {
		return nil, err
	}
	return c.reshape(out, shape)
}
