package aten

import (
	"fmt"
	"math"
	"slices"

	"github.com/optimem/optimem/tensor"
)

// viewTargets are the ops that move no element: they give another view of the same memory, or write through one.
var viewTargets = []atenOp{
	{"aten::alias(Tensor(a) self) -> Tensor(a)", sameView},
	{"aten::detach(Tensor(a) self) -> Tensor(a)", sameView},
	{"aten::detach_(Tensor(a!) self) -> Tensor(a!)", sameView},
	{"aten::lift_fresh(Tensor(a) self) -> Tensor(a)", sameView},
	{"aten::positive(Tensor(a) self) -> Tensor(a)", sameView},
	{"aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)", viewSize("size")},
	{"aten::_unsafe_view(Tensor self, SymInt[] size) -> Tensor", viewSize("size")},
	{"aten::reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)", viewSize("shape")},
	{"aten::_reshape_alias(Tensor(a) self, SymInt[] size, SymInt[] stride) -> Tensor(a)", viewSize("size")},
	{"aten::view_as(Tensor(a) self, Tensor other) -> Tensor(a)", viewOther},
	{"aten::reshape_as(Tensor(a) self, Tensor other) -> Tensor(a)", viewOther},
	{"aten::ravel(Tensor(a) self) -> Tensor(a)", func(c *call) error { return c.giveShape(tensor.Shape{-1}) }},
	{"aten::flatten.using_ints(Tensor(a) self, int start_dim=0, int end_dim=-1) -> Tensor(a)", flatten},
	{"aten::unflatten.int(Tensor(a) self, int dim, SymInt[] sizes) -> Tensor(a)", unflatten},
	{"aten::squeeze(Tensor(a) self) -> Tensor(a)", squeezeAll},
	{"aten::squeeze.dim(Tensor(a) self, int dim) -> Tensor(a)", squeezeDims},
	{"aten::squeeze.dims(Tensor(a) self, int[] dim) -> Tensor(a)", squeezeDims},
	{"aten::squeeze_(Tensor(a!) self) -> Tensor(a!)", inPlaceView(squeezeAll)},
	{"aten::squeeze_.dim(Tensor(a!) self, int dim) -> Tensor(a!)", inPlaceView(squeezeDims)},
	{"aten::unsqueeze(Tensor(a) self, int dim) -> Tensor(a)", unsqueeze},
	{"aten::unsqueeze_(Tensor(a!) self, int dim) -> Tensor(a!)", inPlaceView(unsqueeze)},
	{"aten::transpose.int(Tensor(a) self, int dim0, int dim1) -> Tensor(a)", transposeNamed("dim0", "dim1")},
	{
		"aten::transpose_(Tensor(a!) self, int dim0, int dim1) -> Tensor(a!)",
		inPlaceView(transposeNamed("dim0", "dim1")),
	},
	{"aten::swapaxes(Tensor(a) self, int axis0, int axis1) -> Tensor(a)", transposeNamed("axis0", "axis1")},
	{"aten::swapdims(Tensor(a) self, int dim0, int dim1) -> Tensor(a)", transposeNamed("dim0", "dim1")},
	{"aten::t(Tensor(a) self) -> Tensor(a)", transposeMatrix},
	{"aten::t_(Tensor(a!) self) -> Tensor(a!)", inPlaceView(transposeMatrix)},
	{"aten::numpy_T(Tensor(a) self) -> Tensor(a)", reverseDims},
	{"aten::mT(Tensor(a) self) -> Tensor(a)", transposeLast},
	{"aten::mH(Tensor(a) self) -> Tensor(a)", transposeLast},
	{"aten::adjoint(Tensor(a) self) -> Tensor(a)", transposeLast},
	{"aten::permute(Tensor(a) self, int[] dims) -> Tensor(a)", permuteDims},
	{"aten::movedim.intlist(Tensor(a) self, int[] source, int[] destination) -> Tensor(a)", moveDims},
	{"aten::movedim.int(Tensor(a) self, int source, int destination) -> Tensor(a)", moveDims},
	{"aten::moveaxis.intlist(Tensor(a) self, int[] source, int[] destination) -> Tensor(a)", moveDims},
	{"aten::moveaxis.int(Tensor(a) self, int source, int destination) -> Tensor(a)", moveDims},
	{"aten::expand(Tensor(a) self, SymInt[] size, *, bool implicit=False) -> Tensor(a)", expandSize},
	{"aten::broadcast_to(Tensor(a) self, SymInt[] size) -> Tensor(a)", expandSize},
	{"aten::expand_as(Tensor(a) self, Tensor other) -> Tensor(a)", func(c *call) error {
		return c.giveRef(c.expand(c.tensor("self"), c.tensor("other").shape()))
	}},
	{"aten::select.int(Tensor(a) self, int dim, SymInt index) -> Tensor(a)", selectIndex},
	{"aten::slice.Tensor(Tensor(a) self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor(a)",
		func(c *call) error { return c.giveRef(c.sliced(c.tensor("self"))) }},
	{"aten::narrow(Tensor(a) self, int dim, SymInt start, SymInt length) -> Tensor(a)", narrow},
	{"aten::diagonal(Tensor(a) self, int offset=0, int dim1=0, int dim2=1) -> Tensor(a)", func(c *call) error {
		return c.giveRef(c.diagonal(c.tensor("self")))
	}},
	{"aten::unfold(Tensor(a) self, int dimension, int size, int step) -> Tensor(a)", unfold},
	{"aten::as_strided(Tensor(a) self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor(a)",
		func(c *call) error {
			r, err := c.inPyTorchsOrder(c.tensor("self"))
			if err != nil {
				return err
			}
			return c.giveRef(c.asStrided(r))
		}},
	{"aten::unbind.int(Tensor(a -> *) self, int dim=0) -> Tensor(a)[]", unbind},
	{"aten::split.Tensor(Tensor(a -> *) self, SymInt split_size, int dim=0) -> Tensor(a)[]", splitEven},
	{"aten::split.sizes(Tensor(a -> *) self, SymInt[] split_size, int dim=0) -> Tensor(a)[]", splitSizes("split_size")},
	{"aten::split_with_sizes(Tensor(a -> *) self, SymInt[] split_sizes, int dim=0) -> Tensor(a)[]",
		splitSizes("split_sizes")},
	{"aten::chunk(Tensor(a -> *) self, int chunks, int dim=0) -> Tensor(a)[]", chunk},
	{"aten::unsafe_chunk(Tensor self, int chunks, int dim=0) -> Tensor[]", chunk},
	{"aten::tensor_split.sections(Tensor(a -> *) self, SymInt sections, int dim=0) -> Tensor(a)[]", splitSections},
	{"aten::tensor_split.indices(Tensor(a -> *) self, SymInt[] indices, int dim=0) -> Tensor(a)[]", splitIndices},
	{"aten::broadcast_tensors(Tensor[] tensors) -> Tensor[]", func(c *call) error {
		all := c.tensors("tensors")
		if c.err != nil || slices.Contains(all, nil) {
			return fmt.Errorf("a list of tensors, some of which are None")
		}
		wide, err := c.broadcast(all...)
		if err != nil {
			return err
		}
		c.set(wide)
		return nil
	}},
	{"aten::meshgrid(Tensor[] tensors) -> Tensor[]", meshgrid},
	{"aten::meshgrid.indexing(Tensor[] tensors, *, str indexing) -> Tensor[]", meshgrid},
	{"aten::atleast_1d(Tensor self) -> Tensor", func(c *call) error {
		if r := c.tensor("self"); r.rank() > 0 {
			return c.giveRef(r, nil)
		}
		return c.giveRef(c.unsqueeze(c.tensor("self"), 0), nil)
	}},
	{"aten::repeat(Tensor self, SymInt[] repeats) -> Tensor", func(c *call) error {
		return c.repeat(c.tensor("self"), c.ints("repeats"))
	}},
	{"aten::tile(Tensor self, SymInt[] dims) -> Tensor", func(c *call) error {
		r, times := c.tensor("self"), c.ints("dims")
		for len(times) < r.rank() {
			times = slices.Insert(slices.Clone(times), 0, 1)
		}
		return c.repeat(r, times)
	}},
	{"aten::copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)", func(c *call) error {
		dst := c.tensor("self")
		if err := c.Write(dst, c.tensor("src")); err != nil {
			return err
		}
		return c.giveRef(dst, nil)
	}},
	{"aten::copy(Tensor self, Tensor src, bool non_blocking=False) -> Tensor", func(c *call) error {
		self := c.tensor("self")
		src, err := c.Cast(c.tensor("src"), self.dtype)
		if err != nil {
			return err
		}
		if src, err = c.expand(src, self.shape()); err != nil {
			return err
		}
		return c.giveRef(c.Builder.copy(src))
	}},
}

func sameView(c *call) error {
	r := c.tensor("self")
	return c.giveRef(c.view(r, r.layout), nil)
}

// giveShape makes the result the tensor "self" with another shape, in which one size may be −1.
func (c *call) giveShape(dims []int) error {
	r := c.tensor("self")
	shape, err := inferShape(dims, NumElements(r.shape()))
	if err != nil {
		return err
	}
	return c.giveRef(c.reshapeRecorded(r, shape))
}

// viewSize reads the sizes from an argument. A view that PyTorch could take of its own strides may be none of ours,
// which are always row-major; the copy then has the same elements.
func viewSize(name string) func(c *call) error {
	return func(c *call) error { return c.giveShape(c.ints(name)) }
}

func viewOther(c *call) error { return c.giveShape(c.tensor("other").shape()) }

func flatten(c *call) error {
	r := c.tensor("self")
	from, to := c.dim("start_dim", r.rank()), c.dim("end_dim", r.rank())
	if r.rank() == 0 {
		return c.giveShape([]int{1})
	}
	if from > to {
		return fmt.Errorf("flatten from dimension %d to %d", from, to)
	}
	n := 1
	for _, d := range r.shape()[from : to+1] {
		n *= d
	}
	return c.giveShape(slices.Replace(slices.Clone(r.shape()), from, to+1, n))
}

func unflatten(c *call) error {
	r := c.tensor("self")
	d := c.dim("dim", r.rank())
	if r.rank() == 0 {
		return fmt.Errorf("unflatten of a scalar")
	}
	sizes, err := inferShape(c.ints("sizes"), int64(r.shape()[d]))
	if err != nil {
		return err
	}
	return c.giveShape(slices.Replace(slices.Clone(r.shape()), d, d+1, sizes...))
}

func squeezeAll(c *call) error {
	return c.giveRef(c.squeeze(c.tensor("self"), func(int) bool { return true }), nil)
}

func squeezeDims(c *call) error {
	r := c.tensor("self")
	drop := make(map[int]bool)
	for _, d := range c.ints("dim") {
		drop[c.wrapDim(d, r.rank())] = true
	}
	return c.giveRef(c.squeeze(r, func(d int) bool { return drop[d] }), nil)
}

func unsqueeze(c *call) error {
	r := c.tensor("self")
	d := c.wrapDim(c.int("dim"), r.rank()+1)
	return c.giveRef(c.Builder.unsqueeze(r, d), nil)
}

// inPlaceView changes the tensor itself: it keeps its memory and gets the layout that the view would have.
func inPlaceView(build func(c *call) error) func(c *call) error {
	return func(c *call) error {
		if err := build(c); err != nil {
			return err
		}
		r, ok := c.results[0].(*Ref)
		self := c.tensor("self")
		if !ok || r.cell != self.cell {
			return fmt.Errorf("cannot be done in place")
		}
		self.layout = r.layout
		c.results = []any{self}
		return nil
	}
}

func transposeNamed(first, second string) func(c *call) error {
	return func(c *call) error {
		r := c.tensor("self")
		d, e := c.dim(first, r.rank()), c.dim(second, r.rank())
		if c.err != nil {
			return c.err
		}
		return c.giveRef(c.Builder.transpose(r, d, e), nil)
	}
}

func transposeMatrix(c *call) error {
	r := c.tensor("self")
	switch {
	case r.rank() < 2:
		return sameView(c)
	case r.rank() > 2:
		return fmt.Errorf("t of a tensor of rank %d", r.rank())
	}
	return c.giveRef(c.Builder.transpose(r, 0, 1), nil)
}

func transposeLast(c *call) error {
	r := c.tensor("self")
	if r.rank() < 2 {
		return fmt.Errorf("transpose of a tensor of rank %d", r.rank())
	}
	return c.giveRef(c.Builder.transpose(r, r.rank()-2, r.rank()-1), nil)
}

func reverseDims(c *call) error {
	r := c.tensor("self")
	order := make([]int, r.rank())
	for i := range order {
		order[i] = r.rank() - 1 - i
	}
	return c.giveRef(c.permute(r, order...), nil)
}

func permuteDims(c *call) error {
	r := c.tensor("self")
	order, err := c.order(c.ints("dims"), r.rank())
	if err != nil {
		return err
	}
	return c.giveRef(c.permute(r, order...), nil)
}

// order returns dims counted from the front, which must name every dimension once.
func (c *call) order(dims []int, rank int) ([]int, error) {
	order := make([]int, len(dims))
	seen := make([]bool, rank)
	for i, d := range dims {
		d = c.wrapDim(d, rank)
		if d >= rank || seen[d] {
			return nil, fmt.Errorf("dimensions %v of a tensor of rank %d", dims, rank)
		}
		order[i], seen[d] = d, true
	}
	if len(order) != rank {
		return nil, fmt.Errorf("dimensions %v of a tensor of rank %d", dims, rank)
	}
	return order, c.err
}

func moveDims(c *call) error {
	r := c.tensor("self")
	from, to := c.ints("source"), c.ints("destination")
	if len(from) != len(to) {
		return fmt.Errorf("dimensions %v to %v", from, to)
	}
	order := make([]int, r.rank())
	for i := range order {
		order[i] = -1
	}
	taken := make([]bool, r.rank())
	for i := range from {
		f, t := c.wrapDim(from[i], r.rank()), c.wrapDim(to[i], r.rank())
		if c.err != nil || t >= len(order) || order[t] >= 0 || taken[f] {
			return fmt.Errorf("dimensions %v to %v of a tensor of rank %d", from, to, r.rank())
		}
		order[t], taken[f] = f, true
	}
	next := 0
	for i := range order {
		if order[i] >= 0 {
			continue
		}
		for taken[next] {
			next++
		}
		order[i] = next
		next++
	}
	return c.giveRef(c.permute(r, order...), nil)
}

func expandSize(c *call) error {
	r := c.tensor("self")
	shape := slices.Clone(tensor.Shape(c.ints("size")))
	lead := len(shape) - r.rank()
	for i, d := range shape {
		if d == -1 && i >= lead && lead >= 0 {
			shape[i] = r.shape()[i-lead]
		}
	}
	if _, err := shape.NumElements(); err != nil {
		return err
	}
	return c.giveRef(c.expand(r, shape))
}

func selectIndex(c *call) error {
	r := c.tensor("self")
	d, i := c.dim("dim", r.rank()), c.int("index")
	if c.err != nil {
		return c.err
	}
	if r.rank() == 0 {
		return fmt.Errorf("select of a scalar")
	}
	n := r.shape()[d]
	if i < -n || i >= n {
		return fmt.Errorf("index %d of dimension %d of %v", i, d, r.shape())
	}
	if i < 0 {
		i += n
	}
	return c.giveRef(c.selectAt(r, d, i), nil)
}

// sliced returns the slice of r that the arguments dim, start, end and step describe.
func (c *call) sliced(r *Ref) (*Ref, error) {
	d := c.dim("dim", r.rank())
	if c.err != nil {
		return nil, c.err
	}
	if r.rank() == 0 {
		return nil, fmt.Errorf("slice of a scalar")
	}
	n, step := r.shape()[d], c.int("step")
	if step <= 0 {
		return nil, fmt.Errorf("slice step %d", step)
	}
	clamp := func(i int) int {
		if i < 0 {
			i += n
		}
		return min(max(i, 0), n)
	}
	start := clamp(c.optInt("start", 0))
	end := max(start, clamp(c.optInt("end", math.MaxInt)))
	return c.slice(r, d, start, end, step), c.err
}

func narrow(c *call) error {
	r := c.tensor("self")
	d, start, n := c.dim("dim", r.rank()), c.int("start"), c.int("length")
	if c.err != nil {
		return c.err
	}
	if r.rank() == 0 || n < 0 {
		return fmt.Errorf("narrow of %v to %d", r.shape(), n)
	}
	size := r.shape()[d]
	if start < 0 {
		start += size
	}
	if start < 0 || start > size-n {
		return fmt.Errorf("elements %d to %d of dimension %d of %v", start, start+n, d, r.shape())
	}
	return c.giveRef(c.slice(r, d, start, start+n, 1), nil)
}

// diagonal returns the diagonal that the arguments offset, dim1 and dim2 describe, as the last dimension.
func (c *call) diagonal(r *Ref) (*Ref, error) {
	d, e, offset := c.dim("dim1", r.rank()), c.dim("dim2", r.rank()), c.int("offset")
	if c.err != nil {
		return nil, c.err
	}
	return c.diagonalOf(r, offset, d, e)
}

// diagonalOf returns a diagonal of dimensions d and e, as the last dimension.
func (b *Builder) diagonalOf(r *Ref, offset, d, e int) (*Ref, error) {
	if d == e || r.rank() < 2 {
		return nil, fmt.Errorf("diagonal of dimensions %d and %d of %v", d, e, r.shape())
	}
	rows, cols := r.shape()[d], r.shape()[e]
	l := tensor.Layout{Shape: tensor.Shape{}, Strides: []int{}, Offset: r.layout.Offset}
	for i := range r.shape() {
		if i != d && i != e {
			l.Shape, l.Strides = append(l.Shape, r.shape()[i]), append(l.Strides, r.layout.Strides[i])
		}
	}
	n := min(rows, cols-offset)
	if offset < 0 {
		n = min(rows+offset, cols)
	}
	n = max(n, 0)
	if n > 0 {
		l.Offset += max(offset, 0)*r.layout.Strides[e] + max(-offset, 0)*r.layout.Strides[d]
	}
	l.Shape, l.Strides = append(l.Shape, n), append(l.Strides, r.layout.Strides[d]+r.layout.Strides[e])
	return b.view(r, l), nil
}

func unfold(c *call) error {
	r := c.tensor("self")
	d, size, step := c.dim("dimension", r.rank()), c.int("size"), c.int("step")
	if c.err != nil {
		return c.err
	}
	if r.rank() == 0 {
		r = c.Builder.unsqueeze(r, 0)
	}
	n := r.shape()[d]
	if size < 0 || size > n || step <= 0 {
		return fmt.Errorf("windows of %d by %d of dimension %d of %v", size, step, d, r.shape())
	}
	l := tensor.Layout{
		Shape:   append(slices.Clone(r.layout.Shape), size),
		Strides: append(slices.Clone(r.layout.Strides), r.layout.Strides[d]),
		Offset:  r.layout.Offset,
	}
	l.Shape[d] = (n-size)/step + 1
	l.Strides[d] *= step
	return c.giveRef(c.view(r, l), nil)
}

// asStrided returns any view of the memory that r is a view of.
func (c *call) asStrided(r *Ref) (*Ref, error) {
	l := tensor.Layout{Shape: tensor.Shape(c.ints("size")), Strides: c.ints("stride")}
	l.Offset = c.optInt("storage_offset", r.layout.Offset)
	if c.err == nil && l.Offset < 0 {
		c.fail("storage offset %d", l.Offset)
	}
	if c.err != nil {
		return nil, c.err
	}
	if l.Shape == nil {
		l.Shape, l.Strides = tensor.Shape{}, []int{}
	}
	_, end, err := l.Span()
	if err != nil {
		return nil, err
	}
	if n := c.elements(r.cell); end > n {
		return nil, fmt.Errorf("view %v, strides %v at %d of %d elements", l.Shape, l.Strides, l.Offset, n)
	}
	return c.view(r, l), nil
}

// repeat returns r repeated along each dimension, PyTorch's Tensor.repeat.
func (c *call) repeat(r *Ref, times []int) error {
	if len(times) < r.rank() {
		return fmt.Errorf("%d repeats for shape %v", len(times), r.shape())
	}
	for len(times) > r.rank() {
		r = c.Builder.unsqueeze(r, 0)
	}
	// Every dimension becomes two, of which the first is expanded.
	l := tensor.Layout{Offset: r.layout.Offset}
	result := make(tensor.Shape, len(times))
	for i, n := range times {
		if n < 0 {
			return fmt.Errorf("%d repeats", n)
		}
		l.Shape = append(l.Shape, n, r.shape()[i])
		l.Strides = append(l.Strides, 0, r.layout.Strides[i])
		result[i] = n * r.shape()[i]
	}
	if _, err := l.Shape.NumElements(); err != nil {
		return err
	}
	wide, err := c.Builder.copy(c.view(r, l))
	if err != nil {
		return err
	}
	return c.giveRef(c.Builder.Reshape(wide, result))
}
