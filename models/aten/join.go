package aten

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// joinTargets are the ops that put tensors side by side, or elements in another order.
var joinTargets = []atenOp{
	op("aten::cat(Tensor[] tensors, int dim=0) -> Tensor", catenate),
	op("aten::concat(Tensor[] tensors, int dim=0) -> Tensor", catenate),
	op("aten::concatenate(Tensor[] tensors, int dim=0) -> Tensor", catenate),
	op("aten::stack(Tensor[] tensors, int dim=0) -> Tensor", stack),
	op("aten::hstack(Tensor[] tensors) -> Tensor", func(c *call) (*Ref, error) { return c.joined(1, 1, 0) }),
	op("aten::vstack(Tensor[] tensors) -> Tensor", func(c *call) (*Ref, error) { return c.joined(2, 0, 0) }),
	op("aten::dstack(Tensor[] tensors) -> Tensor", func(c *call) (*Ref, error) { return c.joined(3, 2, 2) }),
	op("aten::column_stack(Tensor[] tensors) -> Tensor", columnStack),
	op("aten::block_diag(Tensor[] tensors) -> Tensor", blockDiagonal),
	op("aten::cartesian_prod(Tensor[] tensors) -> Tensor", cartesianProduct),
	op("aten::combinations(Tensor self, int r=2, bool with_replacement=False) -> Tensor", combinations),
	op("aten::diag_embed(Tensor self, int offset=0, int dim1=-2, int dim2=-1) -> Tensor", func(c *call) (*Ref, error) {
		r := c.tensor("self")
		return c.embedded(
			r, c.int("offset"), c.wrapDim(c.int("dim1"), r.rank()+1), c.wrapDim(c.int("dim2"), r.rank()+1),
		)
	}),
	op("aten::diag(Tensor self, int diagonal=0) -> Tensor", func(c *call) (*Ref, error) {
		r, offset := c.tensor("self"), c.int("diagonal")
		switch r.rank() {
		case 1:
			return c.embedded(r, offset, 0, 1)
		case 2:
			view, err := c.diagonalOf(r, offset, 0, 1)
			if err != nil {
				return nil, err
			}
			return c.copy(view)
		}
		return nil, fmt.Errorf("the diagonal of a tensor of rank %d", r.rank())
	}),
	inPlace("aten::fill_diagonal_(Tensor self, Scalar fill_value, bool wrap=False) -> Tensor", fillDiagonal),
	op("aten::flip(Tensor self, int[] dims) -> Tensor", func(c *call) (*Ref, error) {
		r := c.tensor("self")
		return c.flip(r, c.wrapDims(r, c.ints("dims")))
	}),
	op("aten::fliplr(Tensor self) -> Tensor", flipOne(1)),
	op("aten::flipud(Tensor self) -> Tensor", flipOne(0)),
	op("aten::rot90(Tensor self, int k=1, int[] dims=[0, 1]) -> Tensor", rotate),
	op("aten::roll(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> Tensor", roll),
}

// cat puts tensors one after the other along dimension d, in their common dtype. Lists of nothing do not count,
// whatever the others' shapes.
func (b *Builder) cat(parts []*Ref, d int) (*Ref, error) {
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
	var kept []*Ref
	for _, r := range parts {
		if r.rank() == 1 && r.shape()[0] == 0 {
			continue
		}
		if r, err = b.Cast(r, dtype); err != nil {
			return nil, err
		}
		kept = append(kept, r)
	}
	if len(kept) == 0 {
		return b.full(0, dtype, tensor.Shape{0})
	}
	if len(kept) == 1 { // such as a cache's first keys, put behind none
		return b.copy(kept[0])
	}
	return b.apply("cat", graph.Attrs{"dim": d}, kept...)
}

// catDim returns a dimension of the first tensor that counts.
func (c *call) catDim(parts []*Ref) int {
	rank := 1
	for _, r := range parts {
		if r != nil && !(r.rank() == 1 && r.shape()[0] == 0) {
			rank = r.rank()
			break
		}
	}
	return c.dim("dim", rank)
}

func catenate(c *call) (*Ref, error) {
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

func stack(c *call) (*Ref, error) {
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
func (c *call) joined(least, along, alongLists int) (*Ref, error) {
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
func (b *Builder) atLeast(r *Ref, rank int) *Ref {
	for r.rank() < rank {
		if r.rank() == 2 {
			r = b.unsqueeze(r, 2)
		} else {
			r = b.unsqueeze(r, 0)
		}
	}
	return r
}

func columnStack(c *call) (*Ref, error) {
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

func (c *call) flip(r *Ref, dims []int) (*Ref, error) {
	if c.err != nil {
		return nil, c.err
	}
	return c.Emit1("flip", graph.Attrs{"dims": dims}, c.Read(r))
}

func flipOne(d int) meaning {
	return func(c *call) (*Ref, error) { return c.flip(c.tensor("self"), []int{d}) }
}

// rotate turns two dimensions by quarters.
func rotate(c *call) (*Ref, error) {
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
func roll(c *call) (*Ref, error) {
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
	out, err := c.Emit1("roll", graph.Attrs{"dims": allDims(r.rank()), "shifts": turns}, c.Read(r))
	if err != nil {
		return nil, err
	}
	return c.Reshape(out, shape)
}

// blockDiagonal puts matrices along the diagonal of zeros.
func blockDiagonal(c *call) (*Ref, error) {
	parts := slices.Clone(c.tensors("tensors"))
	if c.err != nil {
		return nil, c.err
	}
	if len(parts) == 0 {
		return c.full(0.0, defaultFloat, tensor.Shape{1, 0})
	}
	operands := make([]operandArg, len(parts))
	var shape tensor.Shape = []int{0, 0}
	for i, r := range parts {
		if r == nil || r.rank() > 2 {
			return nil, fmt.Errorf("tensor %d is not a matrix", i)
		}
		operands[i] = r
		parts[i] = c.atLeast(r, 2)
		shape[0], shape[1] = shape[0]+parts[i].shape()[0], shape[1]+parts[i].shape()[1]
	}
	d, err := resultType(operands...)
	if err != nil {
		return nil, err
	}
	if _, err := shape.NumElements(); err != nil {
		return nil, err
	}
	zeros, err := c.full(0, d, shape)
	if err != nil {
		return nil, err
	}
	out, err := c.copy(zeros)
	if err != nil {
		return nil, err
	}
	row, column := 0, 0
	for _, r := range parts {
		to := c.slice(out, 0, row, row+r.shape()[0], 1)
		to = c.slice(to, 1, column, column+r.shape()[1], 1)
		row, column = row+r.shape()[0], column+r.shape()[1]
		if err := c.Write(to, r); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// cartesianProduct gives all tuples of elements of lists, the last varying fastest.
func cartesianProduct(c *call) (*Ref, error) {
	parts := slices.Clone(c.tensors("tensors"))
	if c.err != nil || len(parts) == 0 {
		return nil, fmt.Errorf("no lists to combine")
	}
	if err := CheckRank(len(parts)); err != nil {
		return nil, err
	}
	var shape tensor.Shape
	for i, r := range parts {
		if r == nil || r.rank() != 1 {
			return nil, fmt.Errorf("tensor %d is not a list", i)
		}
		shape = append(shape, r.shape()[0])
	}
	n, err := shape.NumElements()
	if err != nil {
		return nil, err
	}
	if len(parts) == 1 {
		return parts[0], nil
	}
	for i, r := range parts {
		for d := range shape {
			if d != i {
				r = c.unsqueeze(r, d)
			}
		}
		if r, err = c.expand(r, shape); err != nil {
			return nil, err
		}
		if r, err = c.Reshape(r, tensor.Shape{int(n)}); err != nil {
			return nil, err
		}
		parts[i] = c.unsqueeze(r, 1)
	}
	return c.cat(parts, 1)
}

// maxCombinations bounds the tables of indices that combinations puts into the graph, maxChosen the elements of one choice.
const (
	maxCombinations = 1 << 20
	maxChosen       = 1 << 10
)

// combinations gives all choices of r elements of a list, in order.
func combinations(c *call) (*Ref, error) {
	list, size, again := c.tensor("self"), c.int("r"), c.bool("with_replacement")
	if c.err != nil {
		return nil, c.err
	}
	if list.rank() != 1 || size < 1 || size > maxChosen {
		return nil, fmt.Errorf("combinations of %d of %v", size, list.shape())
	}
	n := list.shape()[0]
	var table []int64
	choice := make([]int, 0, size)
	var choose func(from int) bool
	choose = func(from int) bool {
		if len(choice) == size {
			for _, i := range choice {
				table = append(table, int64(i))
			}
			return c.tableElements+len(table) <= maxCombinations
		}
		last := n
		if !again {
			last -= size - len(choice) - 1 // enough must be left
		}
		for i := from; i < last; i++ {
			next := i + 1
			if again {
				next = i
			}
			choice = append(choice, i)
			if !choose(next) {
				return false
			}
			choice = choice[:len(choice)-1]
		}
		return true
	}
	if !choose(0) {
		return nil, fmt.Errorf("more than %d combinations of %d of %d", (maxCombinations-c.tableElements)/size, size, n)
	}
	c.tableElements += len(table)
	index := c.Own(c.Graph.AddConst(tensor.Of(table, len(table)/size, size)))
	return c.Emit1("index", graph.Attrs{"dim": 0}, c.Read(list), c.Read(index))
}

// embedded returns matrices in dimensions d and e whose diagonals are the lines of r, and whose other elements are zero.
func (c *call) embedded(r *Ref, offset, d, e int) (*Ref, error) {
	if c.err != nil {
		return nil, c.err
	}
	if r.rank() == 0 || d == e {
		return nil, fmt.Errorf("matrices in dimensions %d and %d of diagonals %v", d, e, r.shape())
	}
	if offset > maxOffset || offset < -maxOffset {
		return nil, fmt.Errorf("diagonal %d", offset)
	}
	n := r.shape()[r.rank()-1] + max(offset, -offset)
	shape := slices.Clone(r.shape()[:r.rank()-1])
	shape = slices.Insert(shape, min(d, e), n)
	shape = slices.Insert(shape, max(d, e), n)
	out, err := c.filled(0, r.dtype, shape)
	if err != nil {
		return nil, err
	}
	view, err := c.diagonalOf(out, offset, d, e)
	if err != nil {
		return nil, err
	}
	return out, c.Write(view, r)
}

// maxOffset bounds the offset of a diagonal, so that sizes do not overflow.
const maxOffset = 1 << 30

// fillDiagonal writes a number where all indices are equal; with "wrap" again below a tall matrix's last diagonal.
func fillDiagonal(c *call) (*Ref, error) {
	r := c.tensor("self")
	value, err := c.Scalar(c.number("fill_value"), r.dtype)
	if err != nil || c.err != nil {
		return nil, err
	}
	if r.rank() < 2 {
		return nil, fmt.Errorf("diagonal of %v", r.shape())
	}
	n, step := r.shape()[0], 0
	for _, d := range r.shape() {
		n = min(n, d)
		if r.rank() > 2 && d != r.shape()[0] {
			return nil, fmt.Errorf("diagonal of %v", r.shape())
		}
	}
	out, err := c.copy(r)
	if err != nil {
		return nil, err
	}
	for _, s := range out.layout.Strides {
		step += s
	}
	diagonal := tensor.Layout{Shape: tensor.Shape{n}, Strides: []int{step}}
	if columns := r.shape()[1]; r.rank() == 2 && c.bool("wrap") && r.shape()[0] > columns+1 {
		diagonal.Shape[0] = (r.shape()[0]*columns + columns) / (columns + 1)
	}
	return out, c.Write(c.view(out, diagonal), value)
}
