package views

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// joinTargets are the ops that put tensors side by side, or elements in another order.
var joinTargets = []call.Overload{
	call.One("aten::cat(Tensor[] tensors, int dim=0) -> Tensor", catenate),
	call.One("aten::concat(Tensor[] tensors, int dim=0) -> Tensor", catenate),
	call.One("aten::concatenate(Tensor[] tensors, int dim=0) -> Tensor", catenate),
	call.One("aten::stack(Tensor[] tensors, int dim=0) -> Tensor", stack),
	call.One("aten::hstack(Tensor[] tensors) -> Tensor",
		func(c *call.Call) (*cells.Ref, error) { return joined(c, 1, 1, 0) }),
	call.One("aten::vstack(Tensor[] tensors) -> Tensor",
		func(c *call.Call) (*cells.Ref, error) { return joined(c, 2, 0, 0) }),
	call.One("aten::dstack(Tensor[] tensors) -> Tensor",
		func(c *call.Call) (*cells.Ref, error) { return joined(c, 3, 2, 2) }),
	call.One("aten::column_stack(Tensor[] tensors) -> Tensor", columnStack),
	call.One("aten::block_diag(Tensor[] tensors) -> Tensor", blockDiagonal),
	call.One("aten::cartesian_prod(Tensor[] tensors) -> Tensor", cartesianProduct),
	call.One("aten::combinations(Tensor self, int r=2, bool with_replacement=False) -> Tensor", combinations),
	call.One("aten::diag_embed(Tensor self, int offset=0, int dim1=-2, int dim2=-1) -> Tensor",
		func(c *call.Call) (*cells.Ref, error) {
			r := c.Tensor("self")
			return embedded(c,
				r, c.Int("offset"), c.WrapDim(c.Int("dim1"), r.Rank()+1), c.WrapDim(c.Int("dim2"), r.Rank()+1),
			)
		}),
	call.One("aten::diag(Tensor self, int diagonal=0) -> Tensor", func(c *call.Call) (*cells.Ref, error) {
		r, offset := c.Tensor("self"), c.Int("diagonal")
		switch r.Rank() {
		case 1:
			return embedded(c, r, offset, 0, 1)
		case 2:
			view, err := c.DiagonalOf(r, offset, 0, 1)
			if err != nil {
				return nil, err
			}
			return c.Copy(view)
		}
		return nil, fmt.Errorf("the diagonal of a tensor of rank %d", r.Rank())
	}),
	call.InPlace("aten::fill_diagonal_(Tensor self, Scalar fill_value, bool wrap=False) -> Tensor", fillDiagonal),
	call.One("aten::flip(Tensor self, int[] dims) -> Tensor", func(c *call.Call) (*cells.Ref, error) {
		r := c.Tensor("self")
		return flip(c, r, c.WrapDims(r, c.Ints("dims")))
	}),
	call.One("aten::fliplr(Tensor self) -> Tensor", flipOne(1)),
	call.One("aten::flipud(Tensor self) -> Tensor", flipOne(0)),
	call.One("aten::rot90(Tensor self, int k=1, int[] dims=[0, 1]) -> Tensor", rotate),
	call.One("aten::roll(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> Tensor", roll),
}

// CatDim returns a dimension of the first tensor that counts.
func CatDim(c *call.Call, parts []*cells.Ref) int {
	rank := 1
	for _, r := range parts {
		if r != nil && !(r.Rank() == 1 && r.Shape()[0] == 0) {
			rank = r.Rank()
			break
		}
	}
	return c.Dim("dim", rank)
}

func catenate(c *call.Call) (*cells.Ref, error) {
	parts := c.Tensors("tensors")
	if c.Err != nil || len(parts) == 0 {
		return nil, fmt.Errorf("no tensors to join")
	}
	d := CatDim(c, parts)
	if c.Err != nil {
		return nil, c.Err
	}
	return c.Cat(parts, d)
}

func stack(c *call.Call) (*cells.Ref, error) {
	parts := slices.Clone(c.Tensors("tensors"))
	if c.Err != nil || len(parts) == 0 || parts[0] == nil {
		return nil, fmt.Errorf("no tensors to join")
	}
	d := c.WrapDim(c.Int("dim"), parts[0].Rank()+1)
	if c.Err != nil {
		return nil, c.Err
	}
	for i, r := range parts {
		if r == nil || !r.Shape().Equal(parts[0].Shape()) {
			return nil, fmt.Errorf("tensor %d does not have the shape of the first", i)
		}
	}
	for i, r := range parts {
		parts[i] = c.Unsqueeze(r, d)
	}
	return c.Cat(parts, d)
}

// joined joins tensors of at least a number of dimensions along one of them, lists along another.
func joined(c *call.Call, least, along, alongLists int) (*cells.Ref, error) {
	parts := slices.Clone(c.Tensors("tensors"))
	if c.Err != nil || len(parts) == 0 {
		return nil, fmt.Errorf("no tensors to join")
	}
	d := along
	for i, r := range parts {
		if r == nil {
			return nil, fmt.Errorf("tensor %d is None", i)
		}
		if r.Rank() < least {
			r = atLeast(c.Builder, r, least)
		}
		if r.Rank() == 1 {
			d = alongLists
		}
		parts[i] = r
	}
	return c.Cat(parts, d)
}

// atLeast returns a view of r with a number of dimensions: a list is a row.
func atLeast(b *cells.Builder, r *cells.Ref, rank int) *cells.Ref {
	for r.Rank() < rank {
		if r.Rank() == 2 {
			r = b.Unsqueeze(r, 2)
		} else {
			r = b.Unsqueeze(r, 0)
		}
	}
	return r
}

func columnStack(c *call.Call) (*cells.Ref, error) {
	parts := slices.Clone(c.Tensors("tensors"))
	if c.Err != nil || len(parts) == 0 {
		return nil, fmt.Errorf("no tensors to join")
	}
	for i, r := range parts {
		if r == nil {
			return nil, fmt.Errorf("tensor %d is None", i)
		}
		for r.Rank() < 2 {
			r = c.Unsqueeze(r, r.Rank())
		}
		parts[i] = r
	}
	return c.Cat(parts, 1)
}

func flip(c *call.Call, r *cells.Ref, dims []int) (*cells.Ref, error) {
	if c.Err != nil {
		return nil, c.Err
	}
	return c.Emit1("flip", graph.Attrs{"dims": dims}, c.Read(r))
}

func flipOne(d int) call.Meaning {
	return func(c *call.Call) (*cells.Ref, error) { return flip(c, c.Tensor("self"), []int{d}) }
}

// rotate turns two dimensions by quarters.
func rotate(c *call.Call) (*cells.Ref, error) {
	r, k, dims := c.Tensor("self"), c.Int("k"), c.IntsOf("dims", 2)
	if c.Err != nil {
		return nil, c.Err
	}
	d, e := c.WrapDim(dims[0], r.Rank()), c.WrapDim(dims[1], r.Rank())
	if c.Err != nil || d == e || r.Rank() < 2 {
		return nil, fmt.Errorf("rotation of %v in dimensions %v", r.Shape(), dims)
	}
	switch k & 3 {
	case 1:
		out, err := flip(c, r, []int{e})
		if err != nil {
			return nil, err
		}
		return c.Copy(c.Transpose(out, d, e))
	case 2:
		return flip(c, r, []int{min(d, e), max(d, e)})
	case 3:
		out, err := flip(c, r, []int{d})
		if err != nil {
			return nil, err
		}
		return c.Copy(c.Transpose(out, d, e))
	}
	return c.Copy(r)
}

// roll turns dimensions; without dimensions it turns the elements in order.
func roll(c *call.Call) (*cells.Ref, error) {
	r, shifts, dims := c.Tensor("self"), c.Ints("shifts"), c.Ints("dims")
	if c.Err != nil {
		return nil, c.Err
	}
	shape := r.Shape()
	var err error
	if len(dims) == 0 && len(shifts) == 1 {
		if r, err = c.Flat(r); err != nil {
			return nil, err
		}
		dims = []int{0}
	}
	if len(dims) != len(shifts) {
		return nil, fmt.Errorf("shifts %v of dimensions %v", shifts, dims)
	}
	// A dimension may be turned several times.
	turns := make([]int, r.Rank())
	for i, d := range dims {
		if d = c.WrapDim(d, r.Rank()); r.Rank() > 0 && r.Shape()[d] > 0 {
			turns[d] = (turns[d] + shifts[i]%r.Shape()[d]) % r.Shape()[d]
		}
	}
	if c.Err != nil {
		return nil, c.Err
	}
	out, err := c.Emit1("roll", graph.Attrs{"dims": cells.AllDims(r.Rank()), "shifts": turns}, c.Read(r))
	if err != nil {
		return nil, err
	}
	return c.Reshape(out, shape)
}

// blockDiagonal puts matrices along the diagonal of zeros.
func blockDiagonal(c *call.Call) (*cells.Ref, error) {
	parts := slices.Clone(c.Tensors("tensors"))
	if c.Err != nil {
		return nil, c.Err
	}
	if len(parts) == 0 {
		return c.Full(0.0, cells.DefaultFloat, tensor.Shape{1, 0})
	}
	operands := make([]cells.Argument, len(parts))
	var shape tensor.Shape = []int{0, 0}
	for i, r := range parts {
		if r == nil || r.Rank() > 2 {
			return nil, fmt.Errorf("tensor %d is not a matrix", i)
		}
		operands[i] = r
		parts[i] = atLeast(c.Builder, r, 2)
		shape[0], shape[1] = shape[0]+parts[i].Shape()[0], shape[1]+parts[i].Shape()[1]
	}
	d, err := cells.ResultType(operands...)
	if err != nil {
		return nil, err
	}
	if _, err := shape.NumElements(); err != nil {
		return nil, err
	}
	zeros, err := c.Full(0, d, shape)
	if err != nil {
		return nil, err
	}
	out, err := c.Copy(zeros)
	if err != nil {
		return nil, err
	}
	row, column := 0, 0
	for _, r := range parts {
		to := c.Slice(out, 0, row, row+r.Shape()[0], 1)
		to = c.Slice(to, 1, column, column+r.Shape()[1], 1)
		row, column = row+r.Shape()[0], column+r.Shape()[1]
		if err := c.Write(to, r); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// cartesianProduct gives all tuples of elements of lists, the last varying fastest.
func cartesianProduct(c *call.Call) (*cells.Ref, error) {
	parts := slices.Clone(c.Tensors("tensors"))
	if c.Err != nil || len(parts) == 0 {
		return nil, fmt.Errorf("no lists to combine")
	}
	if err := cells.CheckRank(len(parts)); err != nil {
		return nil, err
	}
	var shape tensor.Shape
	for i, r := range parts {
		if r == nil || r.Rank() != 1 {
			return nil, fmt.Errorf("tensor %d is not a list", i)
		}
		shape = append(shape, r.Shape()[0])
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
				r = c.Unsqueeze(r, d)
			}
		}
		if r, err = c.Expand(r, shape); err != nil {
			return nil, err
		}
		if r, err = c.Reshape(r, tensor.Shape{int(n)}); err != nil {
			return nil, err
		}
		parts[i] = c.Unsqueeze(r, 1)
	}
	return c.Cat(parts, 1)
}

// maxCombinations bounds the tables of indices that combinations puts into the graph, maxChosen the elements of one
// choice.
const (
	maxCombinations = 1 << 20
	maxChosen       = 1 << 10
)

// combinations gives all choices of r elements of a list, in order.
func combinations(c *call.Call) (*cells.Ref, error) {
	list, size, again := c.Tensor("self"), c.Int("r"), c.Bool("with_replacement")
	if c.Err != nil {
		return nil, c.Err
	}
	if list.Rank() != 1 || size < 1 || size > maxChosen {
		return nil, fmt.Errorf("combinations of %d of %v", size, list.Shape())
	}
	n := list.Shape()[0]
	var table []int64
	choice := make([]int, 0, size)
	var choose func(from int) bool
	choose = func(from int) bool {
		if len(choice) == size {
			for _, i := range choice {
				table = append(table, int64(i))
			}
			return c.TableElements+len(table) <= maxCombinations
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
		return nil, fmt.Errorf("more than %d combinations of %d of %d", (maxCombinations-c.TableElements)/size, size, n)
	}
	c.TableElements += len(table)
	index := c.Own(c.Graph.AddConst(tensor.Of(table, len(table)/size, size)))
	return c.Emit1("index", graph.Attrs{"dim": 0}, c.Read(list), c.Read(index))
}

// embedded returns matrices in dimensions d and e whose diagonals are the lines of r, and whose other elements are
// zero.
func embedded(c *call.Call, r *cells.Ref, offset, d, e int) (*cells.Ref, error) {
	if c.Err != nil {
		return nil, c.Err
	}
	if r.Rank() == 0 || d == e {
		return nil, fmt.Errorf("matrices in dimensions %d and %d of diagonals %v", d, e, r.Shape())
	}
	if offset > maxOffset || offset < -maxOffset {
		return nil, fmt.Errorf("diagonal %d", offset)
	}
	n := r.Shape()[r.Rank()-1] + max(offset, -offset)
	shape := slices.Clone(r.Shape()[:r.Rank()-1])
	shape = slices.Insert(shape, min(d, e), n)
	shape = slices.Insert(shape, max(d, e), n)
	out, err := c.Filled(0, r.DType(), shape)
	if err != nil {
		return nil, err
	}
	view, err := c.DiagonalOf(out, offset, d, e)
	if err != nil {
		return nil, err
	}
	return out, c.Write(view, r)
}

// maxOffset bounds the offset of a diagonal, so that sizes do not overflow.
const maxOffset = 1 << 30

// fillDiagonal writes a number where all indices are equal; with "wrap" again below a tall matrix's last diagonal.
func fillDiagonal(c *call.Call) (*cells.Ref, error) {
	r := c.Tensor("self")
	value, err := c.Scalar(c.Number("fill_value"), r.DType())
	if err != nil || c.Err != nil {
		return nil, err
	}
	if r.Rank() < 2 {
		return nil, fmt.Errorf("diagonal of %v", r.Shape())
	}
	n, step := r.Shape()[0], 0
	for _, d := range r.Shape() {
		n = min(n, d)
		if r.Rank() > 2 && d != r.Shape()[0] {
			return nil, fmt.Errorf("diagonal of %v", r.Shape())
		}
	}
	out, err := c.Copy(r)
	if err != nil {
		return nil, err
	}
	for _, s := range out.Layout().Strides {
		step += s
	}
	diagonal := tensor.Layout{Shape: tensor.Shape{n}, Strides: []int{step}}
	if columns := r.Shape()[1]; r.Rank() == 2 && c.Bool("wrap") && r.Shape()[0] > columns+1 {
		diagonal.Shape[0] = (r.Shape()[0]*columns + columns) / (columns + 1)
	}
	return out, c.Write(c.View(out, diagonal), value)
}
