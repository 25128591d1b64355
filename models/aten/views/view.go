package views

import (
	"fmt"
	"math"
	"slices"

	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// ViewTargets are the ops that move no element: they give another view of the same memory, or write through one.
var ViewTargets = []call.Overload{
	call.Several("aten::alias(Tensor(a) self) -> Tensor(a)", SameView),
	call.Several("aten::detach(Tensor(a) self) -> Tensor(a)", SameView),
	call.Several("aten::detach_(Tensor(a!) self) -> Tensor(a!)", SameView),
	call.Several("aten::lift_fresh(Tensor(a) self) -> Tensor(a)", SameView),
	call.Several("aten::positive(Tensor(a) self) -> Tensor(a)", SameView),
	call.Several("aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)", viewSize("size")),
	call.Several("aten::_unsafe_view(Tensor self, SymInt[] size) -> Tensor", viewSize("size")),
	call.Several("aten::reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)", viewSize("shape")),
	call.Several("aten::_reshape_alias(Tensor(a) self, SymInt[] size, SymInt[] stride) -> Tensor(a)", viewSize("size")),
	call.Several("aten::view_as(Tensor(a) self, Tensor other) -> Tensor(a)", viewOther),
	call.Several("aten::reshape_as(Tensor(a) self, Tensor other) -> Tensor(a)", viewOther),
	call.Several("aten::ravel(Tensor(a) self) -> Tensor(a)",
		func(c *call.Call) error { return giveShape(c, tensor.Shape{-1}) }),
	call.Several("aten::flatten.using_ints(Tensor(a) self, int start_dim=0, int end_dim=-1) -> Tensor(a)", flatten),
	call.Several("aten::unflatten.int(Tensor(a) self, int dim, SymInt[] sizes) -> Tensor(a)", unflatten),
	call.Several("aten::squeeze(Tensor(a) self) -> Tensor(a)", squeezeAll),
	call.Several("aten::squeeze.dim(Tensor(a) self, int dim) -> Tensor(a)", squeezeDims),
	call.Several("aten::squeeze.dims(Tensor(a) self, int[] dim) -> Tensor(a)", squeezeDims),
	call.Several("aten::squeeze_(Tensor(a!) self) -> Tensor(a!)", inPlaceView(squeezeAll)),
	call.Several("aten::squeeze_.dim(Tensor(a!) self, int dim) -> Tensor(a!)", inPlaceView(squeezeDims)),
	call.Several("aten::unsqueeze(Tensor(a) self, int dim) -> Tensor(a)", unsqueeze),
	call.Several("aten::unsqueeze_(Tensor(a!) self, int dim) -> Tensor(a!)", inPlaceView(unsqueeze)),
	call.Several("aten::transpose.int(Tensor(a) self, int dim0, int dim1) -> Tensor(a)",
		transposeNamed("dim0", "dim1")),
	call.Several(
		"aten::transpose_(Tensor(a!) self, int dim0, int dim1) -> Tensor(a!)",
		inPlaceView(transposeNamed("dim0", "dim1")),
	),
	call.Several("aten::swapaxes(Tensor(a) self, int axis0, int axis1) -> Tensor(a)", transposeNamed("axis0", "axis1")),
	call.Several("aten::swapdims(Tensor(a) self, int dim0, int dim1) -> Tensor(a)", transposeNamed("dim0", "dim1")),
	call.Several("aten::t(Tensor(a) self) -> Tensor(a)", transposeMatrix),
	call.Several("aten::t_(Tensor(a!) self) -> Tensor(a!)", inPlaceView(transposeMatrix)),
	call.Several("aten::numpy_T(Tensor(a) self) -> Tensor(a)", reverseDims),
	call.Several("aten::mT(Tensor(a) self) -> Tensor(a)", transposeLast),
	call.Several("aten::mH(Tensor(a) self) -> Tensor(a)", transposeLast),
	call.Several("aten::adjoint(Tensor(a) self) -> Tensor(a)", transposeLast),
	call.Several("aten::permute(Tensor(a) self, int[] dims) -> Tensor(a)", permuteDims),
	call.Several("aten::movedim.intlist(Tensor(a) self, int[] source, int[] destination) -> Tensor(a)", moveDims),
	call.Several("aten::movedim.int(Tensor(a) self, int source, int destination) -> Tensor(a)", moveDims),
	call.Several("aten::moveaxis.intlist(Tensor(a) self, int[] source, int[] destination) -> Tensor(a)", moveDims),
	call.Several("aten::moveaxis.int(Tensor(a) self, int source, int destination) -> Tensor(a)", moveDims),
	call.Several("aten::expand(Tensor(a) self, SymInt[] size, *, bool implicit=False) -> Tensor(a)", expandSize),
	call.Several("aten::broadcast_to(Tensor(a) self, SymInt[] size) -> Tensor(a)", expandSize),
	call.Several("aten::expand_as(Tensor(a) self, Tensor other) -> Tensor(a)", func(c *call.Call) error {
		return c.GiveRef(c.Expand(c.Tensor("self"), c.Tensor("other").Shape()))
	}),
	call.Several("aten::select.int(Tensor(a) self, int dim, SymInt index) -> Tensor(a)", selectIndex),
	call.Several("aten::slice.Tensor(Tensor(a) self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor(a)",
		func(c *call.Call) error { return c.GiveRef(sliced(c, c.Tensor("self"))) }),
	call.Several("aten::narrow(Tensor(a) self, int dim, SymInt start, SymInt length) -> Tensor(a)", narrow),
	call.Several("aten::diagonal(Tensor(a) self, int offset=0, int dim1=0, int dim2=1) -> Tensor(a)",
		func(c *call.Call) error {
			return c.GiveRef(diagonal(c, c.Tensor("self")))
		}),
	call.Several("aten::unfold(Tensor(a) self, int dimension, int size, int step) -> Tensor(a)", unfold),
	call.Several("aten::as_strided(Tensor(a) self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor(a)",
		func(c *call.Call) error {
			r, err := c.InPyTorchsOrder(c.Tensor("self"))
			if err != nil {
				return err
			}
			return c.GiveRef(asStrided(c, r))
		}),
	call.Several("aten::unbind.int(Tensor(a -> *) self, int dim=0) -> Tensor(a)[]", unbind),
	call.Several("aten::split.Tensor(Tensor(a -> *) self, SymInt split_size, int dim=0) -> Tensor(a)[]", splitEven),
	call.Several("aten::split.sizes(Tensor(a -> *) self, SymInt[] split_size, int dim=0) -> Tensor(a)[]",
		splitSizes("split_size")),
	call.Several("aten::split_with_sizes(Tensor(a -> *) self, SymInt[] split_sizes, int dim=0) -> Tensor(a)[]",
		splitSizes("split_sizes")),
	call.Several("aten::chunk(Tensor(a -> *) self, int chunks, int dim=0) -> Tensor(a)[]", chunk),
	call.Several("aten::unsafe_chunk(Tensor self, int chunks, int dim=0) -> Tensor[]", chunk),
	call.Several("aten::tensor_split.sections(Tensor(a -> *) self, SymInt sections, int dim=0) -> Tensor(a)[]",
		splitSections),
	call.Several("aten::tensor_split.indices(Tensor(a -> *) self, SymInt[] indices, int dim=0) -> Tensor(a)[]",
		splitIndices),
	call.Several("aten::broadcast_tensors(Tensor[] tensors) -> Tensor[]", func(c *call.Call) error {
		all := c.Tensors("tensors")
		if c.Err != nil || slices.Contains(all, nil) {
			return fmt.Errorf("a list of tensors, some of which are None")
		}
		wide, err := c.Broadcast(all...)
		if err != nil {
			return err
		}
		c.Set(wide)
		return nil
	}),
	call.Several("aten::meshgrid(Tensor[] tensors) -> Tensor[]", meshgrid),
	call.Several("aten::meshgrid.indexing(Tensor[] tensors, *, str indexing) -> Tensor[]", meshgrid),
	call.Several("aten::atleast_1d(Tensor self) -> Tensor", func(c *call.Call) error {
		if r := c.Tensor("self"); r.Rank() > 0 {
			return c.GiveRef(r, nil)
		}
		return c.GiveRef(c.Unsqueeze(c.Tensor("self"), 0), nil)
	}),
	call.Several("aten::repeat(Tensor self, SymInt[] repeats) -> Tensor", func(c *call.Call) error {
		return repeat(c, c.Tensor("self"), c.Ints("repeats"))
	}),
	call.Several("aten::tile(Tensor self, SymInt[] dims) -> Tensor", func(c *call.Call) error {
		r, times := c.Tensor("self"), c.Ints("dims")
		for len(times) < r.Rank() {
			times = slices.Insert(slices.Clone(times), 0, 1)
		}
		return repeat(c, r, times)
	}),
	call.Several("aten::copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)",
		func(c *call.Call) error {
			dst := c.Tensor("self")
			if err := c.Write(dst, c.Tensor("src")); err != nil {
				return err
			}
			return c.GiveRef(dst, nil)
		}),
	call.Several("aten::copy(Tensor self, Tensor src, bool non_blocking=False) -> Tensor", func(c *call.Call) error {
		self := c.Tensor("self")
		src, err := c.Cast(c.Tensor("src"), self.DType())
		if err != nil {
			return err
		}
		if src, err = c.Expand(src, self.Shape()); err != nil {
			return err
		}
		return c.GiveRef(c.Builder.Copy(src))
	}),
}

// SameView gives "self" itself.
func SameView(c *call.Call) error {
	r := c.Tensor("self")
	return c.GiveRef(c.View(r, r.Layout()), nil)
}

// giveShape makes the result the tensor "self" with another shape, in which one size may be −1.
func giveShape(c *call.Call, dims []int) error {
	r := c.Tensor("self")
	shape, err := cells.InferShape(dims, cells.NumElements(r.Shape()))
	if err != nil {
		return err
	}
	return c.GiveRef(c.ReshapeRecorded(r, shape))
}

// viewSize reads the sizes from an argument. A view that PyTorch could take of its own strides may be none of ours,
// which are always row-major; the copy then has the same elements.
func viewSize(name string) func(c *call.Call) error {
	return func(c *call.Call) error { return giveShape(c, c.Ints(name)) }
}

func viewOther(c *call.Call) error { return giveShape(c, c.Tensor("other").Shape()) }

func flatten(c *call.Call) error {
	r := c.Tensor("self")
	from, to := c.Dim("start_dim", r.Rank()), c.Dim("end_dim", r.Rank())
	if r.Rank() == 0 {
		return giveShape(c, []int{1})
	}
	if from > to {
		return fmt.Errorf("flatten from dimension %d to %d", from, to)
	}
	n := 1
	for _, d := range r.Shape()[from : to+1] {
		n *= d
	}
	return giveShape(c, slices.Replace(slices.Clone(r.Shape()), from, to+1, n))
}

func unflatten(c *call.Call) error {
	r := c.Tensor("self")
	d := c.Dim("dim", r.Rank())
	if r.Rank() == 0 {
		return fmt.Errorf("unflatten of a scalar")
	}
	sizes, err := cells.InferShape(c.Ints("sizes"), int64(r.Shape()[d]))
	if err != nil {
		return err
	}
	return giveShape(c, slices.Replace(slices.Clone(r.Shape()), d, d+1, sizes...))
}

func squeezeAll(c *call.Call) error {
	return c.GiveRef(c.Squeeze(c.Tensor("self"), func(int) bool { return true }), nil)
}

func squeezeDims(c *call.Call) error {
	r := c.Tensor("self")
	drop := make(map[int]bool)
	for _, d := range c.Ints("dim") {
		drop[c.WrapDim(d, r.Rank())] = true
	}
	return c.GiveRef(c.Squeeze(r, func(d int) bool { return drop[d] }), nil)
}

func unsqueeze(c *call.Call) error {
	r := c.Tensor("self")
	d := c.WrapDim(c.Int("dim"), r.Rank()+1)
	return c.GiveRef(c.Builder.Unsqueeze(r, d), nil)
}

// inPlaceView changes the tensor itself: it keeps its memory and gets the layout that the view would have.
func inPlaceView(build func(c *call.Call) error) func(c *call.Call) error {
	return func(c *call.Call) error {
		if err := build(c); err != nil {
			return err
		}
		r, ok := c.Results[0].(*cells.Ref)
		self := c.Tensor("self")
		if !ok || r.Memory() != self.Memory() {
			return fmt.Errorf("cannot be done in place")
		}
		self.SetLayout(r.Layout())
		c.Results = []any{self}
		return nil
	}
}

func transposeNamed(first, second string) func(c *call.Call) error {
	return func(c *call.Call) error {
		r := c.Tensor("self")
		d, e := c.Dim(first, r.Rank()), c.Dim(second, r.Rank())
		if c.Err != nil {
			return c.Err
		}
		return c.GiveRef(c.Builder.Transpose(r, d, e), nil)
	}
}

func transposeMatrix(c *call.Call) error {
	r := c.Tensor("self")
	switch {
	case r.Rank() < 2:
		return SameView(c)
	case r.Rank() > 2:
		return fmt.Errorf("t of a tensor of rank %d", r.Rank())
	}
	return c.GiveRef(c.Builder.Transpose(r, 0, 1), nil)
}

func transposeLast(c *call.Call) error {
	r := c.Tensor("self")
	if r.Rank() < 2 {
		return fmt.Errorf("transpose of a tensor of rank %d", r.Rank())
	}
	return c.GiveRef(c.Builder.Transpose(r, r.Rank()-2, r.Rank()-1), nil)
}

func reverseDims(c *call.Call) error {
	r := c.Tensor("self")
	order := make([]int, r.Rank())
	for i := range order {
		order[i] = r.Rank() - 1 - i
	}
	return c.GiveRef(c.Permute(r, order...), nil)
}

func permuteDims(c *call.Call) error {
	r := c.Tensor("self")
	order, err := order(c, c.Ints("dims"), r.Rank())
	if err != nil {
		return err
	}
	return c.GiveRef(c.Permute(r, order...), nil)
}

// order returns dims counted from the front, which must name every dimension once.
func order(c *call.Call, dims []int, rank int) ([]int, error) {
	order := make([]int, len(dims))
	seen := make([]bool, rank)
	for i, d := range dims {
		d = c.WrapDim(d, rank)
		if d >= rank || seen[d] {
			return nil, fmt.Errorf("dimensions %v of a tensor of rank %d", dims, rank)
		}
		order[i], seen[d] = d, true
	}
	if len(order) != rank {
		return nil, fmt.Errorf("dimensions %v of a tensor of rank %d", dims, rank)
	}
	return order, c.Err
}

func moveDims(c *call.Call) error {
	r := c.Tensor("self")
	from, to := c.Ints("source"), c.Ints("destination")
	if len(from) != len(to) {
		return fmt.Errorf("dimensions %v to %v", from, to)
	}
	order := make([]int, r.Rank())
	for i := range order {
		order[i] = -1
	}
	taken := make([]bool, r.Rank())
	for i := range from {
		f, t := c.WrapDim(from[i], r.Rank()), c.WrapDim(to[i], r.Rank())
		if c.Err != nil || t >= len(order) || order[t] >= 0 || taken[f] {
			return fmt.Errorf("dimensions %v to %v of a tensor of rank %d", from, to, r.Rank())
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
	return c.GiveRef(c.Permute(r, order...), nil)
}

func expandSize(c *call.Call) error {
	r := c.Tensor("self")
	shape := slices.Clone(tensor.Shape(c.Ints("size")))
	lead := len(shape) - r.Rank()
	for i, d := range shape {
		if d == -1 && i >= lead && lead >= 0 {
			shape[i] = r.Shape()[i-lead]
		}
	}
	if _, err := shape.NumElements(); err != nil {
		return err
	}
	return c.GiveRef(c.Expand(r, shape))
}

func selectIndex(c *call.Call) error {
	r := c.Tensor("self")
	d, i := c.Dim("dim", r.Rank()), c.Int("index")
	if c.Err != nil {
		return c.Err
	}
	if r.Rank() == 0 {
		return fmt.Errorf("select of a scalar")
	}
	n := r.Shape()[d]
	if i < -n || i >= n {
		return fmt.Errorf("index %d of dimension %d of %v", i, d, r.Shape())
	}
	if i < 0 {
		i += n
	}
	return c.GiveRef(c.SelectAt(r, d, i), nil)
}

// sliced returns the slice of r that the arguments dim, start, end and step describe.
func sliced(c *call.Call, r *cells.Ref) (*cells.Ref, error) {
	d := c.Dim("dim", r.Rank())
	if c.Err != nil {
		return nil, c.Err
	}
	if r.Rank() == 0 {
		return nil, fmt.Errorf("slice of a scalar")
	}
	n, step := r.Shape()[d], c.Int("step")
	if step <= 0 {
		return nil, fmt.Errorf("slice step %d", step)
	}
	clamp := func(i int) int {
		if i < 0 {
			i += n
		}
		return min(max(i, 0), n)
	}
	start := clamp(c.OptInt("start", 0))
	end := max(start, clamp(c.OptInt("end", math.MaxInt)))
	return c.Slice(r, d, start, end, step), c.Err
}

func narrow(c *call.Call) error {
	r := c.Tensor("self")
	d, start, n := c.Dim("dim", r.Rank()), c.Int("start"), c.Int("length")
	if c.Err != nil {
		return c.Err
	}
	if r.Rank() == 0 || n < 0 {
		return fmt.Errorf("narrow of %v to %d", r.Shape(), n)
	}
	size := r.Shape()[d]
	if start < 0 {
		start += size
	}
	if start < 0 || start > size-n {
		return fmt.Errorf("elements %d to %d of dimension %d of %v", start, start+n, d, r.Shape())
	}
	return c.GiveRef(c.Slice(r, d, start, start+n, 1), nil)
}

// diagonal returns the diagonal that the arguments offset, dim1 and dim2 describe, as the last dimension.
func diagonal(c *call.Call, r *cells.Ref) (*cells.Ref, error) {
	d, e, offset := c.Dim("dim1", r.Rank()), c.Dim("dim2", r.Rank()), c.Int("offset")
	if c.Err != nil {
		return nil, c.Err
	}
	return c.DiagonalOf(r, offset, d, e)
}

func unfold(c *call.Call) error {
	r := c.Tensor("self")
	d, size, step := c.Dim("dimension", r.Rank()), c.Int("size"), c.Int("step")
	if c.Err != nil {
		return c.Err
	}
	if r.Rank() == 0 {
		r = c.Builder.Unsqueeze(r, 0)
	}
	n := r.Shape()[d]
	if size < 0 || size > n || step <= 0 {
		return fmt.Errorf("windows of %d by %d of dimension %d of %v", size, step, d, r.Shape())
	}
	l := tensor.Layout{
		Shape:   append(slices.Clone(r.Layout().Shape), size),
		Strides: append(slices.Clone(r.Layout().Strides), r.Layout().Strides[d]),
		Offset:  r.Layout().Offset,
	}
	l.Shape[d] = (n-size)/step + 1
	l.Strides[d] *= step
	return c.GiveRef(c.View(r, l), nil)
}

// asStrided returns any view of the memory that r is a view of.
func asStrided(c *call.Call, r *cells.Ref) (*cells.Ref, error) {
	l := tensor.Layout{Shape: tensor.Shape(c.Ints("size")), Strides: c.Ints("stride")}
	l.Offset = c.OptInt("storage_offset", r.Layout().Offset)
	if c.Err == nil && l.Offset < 0 {
		c.Fail("storage offset %d", l.Offset)
	}
	if c.Err != nil {
		return nil, c.Err
	}
	if l.Shape == nil {
		l.Shape, l.Strides = tensor.Shape{}, []int{}
	}
	_, end, err := l.Span()
	if err != nil {
		return nil, err
	}
	if n := c.MemoryElements(r.Memory()); end > n {
		return nil, fmt.Errorf("view %v, strides %v at %d of %d elements", l.Shape, l.Strides, l.Offset, n)
	}
	return c.View(r, l), nil
}

// repeat returns r repeated along each dimension, PyTorch's Tensor.repeat.
func repeat(c *call.Call, r *cells.Ref, times []int) error {
	if len(times) < r.Rank() {
		return fmt.Errorf("%d repeats for shape %v", len(times), r.Shape())
	}
	for len(times) > r.Rank() {
		r = c.Builder.Unsqueeze(r, 0)
	}
	// Every dimension becomes two, of which the first is expanded.
	l := tensor.Layout{Offset: r.Layout().Offset}
	result := make(tensor.Shape, len(times))
	for i, n := range times {
		if n < 0 {
			return fmt.Errorf("%d repeats", n)
		}
		l.Shape = append(l.Shape, n, r.Shape()[i])
		l.Strides = append(l.Strides, 0, r.Layout().Strides[i])
		result[i] = n * r.Shape()[i]
	}
	if _, err := l.Shape.NumElements(); err != nil {
		return err
	}
	wide, err := c.Builder.Copy(c.View(r, l))
	if err != nil {
		return err
	}
	return c.GiveRef(c.Builder.Reshape(wide, result))
}
