package views

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// scatterTargets are the ops that write to places that indices name.
var scatterTargets = slices.Concat(
	call.Twins("aten::scatter.src(Tensor self, int dim, Tensor index, Tensor src) -> Tensor", scatterOf("src", "")),
	call.Twins("aten::scatter.value(Tensor self, int dim, Tensor index, Scalar value) -> Tensor",
		scatterOf("value", "")),
	call.Twins("aten::scatter.reduce(Tensor self, int dim, Tensor index, Tensor src, *, str reduce) -> Tensor",
		scatterOf("src", "named")),
	call.Twins("aten::scatter.value_reduce(Tensor self, int dim, Tensor index, Scalar value, *, str reduce) -> Tensor",
		scatterOf("value", "named")),
	call.Twins("aten::scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor", scatterOf("src", "sum")),
	call.Twins("aten::scatter_reduce.two(Tensor self, int dim, Tensor index, Tensor src, str reduce, *,"+
		" bool include_self=True) -> Tensor", scatterOf("src", "named")),
	call.Twins("aten::index_reduce(Tensor self, int dim, Tensor index, Tensor source, str reduce, *,"+
		" bool include_self=True) -> Tensor", indexReduce),
	call.Twins("aten::index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor",
		indexAdd),
	call.Twins("aten::index_copy(Tensor self, int dim, Tensor index, Tensor source) -> Tensor", indexCopy),
	call.Twins("aten::index_fill.int_Tensor(Tensor self, int dim, Tensor index, Tensor value) -> Tensor", indexFill),
	call.Twins("aten::index_fill.int_Scalar(Tensor self, int dim, Tensor index, Scalar value) -> Tensor", indexFill),
	call.Twins("aten::put(Tensor self, Tensor index, Tensor source, bool accumulate=False) -> Tensor", put),
	call.Twins("aten::masked_scatter(Tensor self, Tensor mask, Tensor source) -> Tensor", maskedScatter),
	[]call.Overload{
		call.One("aten::select_scatter(Tensor self, Tensor src, int dim, SymInt index) -> Tensor", intoView(
			func(c *call.Call, r *cells.Ref) (*cells.Ref, error) {
				d, i := c.Dim("dim", r.Rank()), c.Int("index")
				if c.Err != nil {
					return nil, c.Err
				}
				if r.Rank() == 0 || i < -r.Shape()[d] || i >= r.Shape()[d] {
					return nil, fmt.Errorf("index %d of dimension %d of %v", i, d, r.Shape())
				}
				if i < 0 {
					i += r.Shape()[d]
				}
				return c.SelectAt(r, d, i), nil
			})),
		call.One("aten::slice_scatter(Tensor self, Tensor src, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1)"+
			" -> Tensor", intoView(func(c *call.Call, r *cells.Ref) (*cells.Ref, error) { return sliced(c, r) })),
		call.One("aten::diagonal_scatter(Tensor self, Tensor src, int offset=0, int dim1=0, int dim2=1) -> Tensor",
			intoView(func(c *call.Call, r *cells.Ref) (*cells.Ref, error) { return diagonal(c, r) })),
		call.One("aten::as_strided_scatter(Tensor self, Tensor src, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None)"+
			" -> Tensor", intoMemory),
	},
)

// Scatter emits the op; source may be larger than the index.
func Scatter(c *call.Call, r *cells.Ref, d int, index, source *cells.Ref, reduce string,
	includeSelf bool) (*cells.Ref, error) {
	if c.Err != nil {
		return nil, c.Err
	}
	if source.Rank() != index.Rank() {
		if source.Rank()+index.Rank() > 1 {
			return nil, fmt.Errorf("%v at indices %v", source.Shape(), index.Shape())
		}
		// Scalars count as lists of one.
		var err error
		if index, err = c.Reshape(index, r.Shape()); err != nil {
			return nil, err
		}
		if source, err = c.Reshape(source, r.Shape()); err != nil {
			return nil, err
		}
	}
	if cells.NumElements(index.Shape()) == 0 {
		return c.Copy(r)
	}
	for i, n := range index.Shape() {
		if n > source.Shape()[i] {
			return nil, fmt.Errorf("%v at indices %v", source.Shape(), index.Shape())
		}
		source = c.Slice(source, i, 0, n, 1)
	}
	attrs := graph.Attrs{"dim": d, "reduce": reduce, "include_self": includeSelf}
	return c.Apply("scatter", attrs, r, index, source)
}

// scatterOf takes what is scattered from an argument; "named" means the reduction of argument "reduce".
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func scatterOf(name, reduce string) call.Meaning {
	return func(c *call.Call) (*cells.Ref, error) {
		r, index := c.Tensor("self"), c.Tensor("index")
		how := reduce
		if how == "named" {
			how = reduction(c.Text("reduce"))
		}
		d := c.Dim("dim", r.Rank())
		source, err := c.As(c.Operand(name), r.DType())
		if err != nil {
			return nil, err
		}
		if s := c.OptTensor(name); name == "src" && s != nil && s.DType() != r.DType() {
			return nil, fmt.Errorf("%v into %v", s.DType(), r.DType())
		}
		if name == "value" {
			if source, err = c.Expand(source, index.Shape()); err != nil {
				return nil, err
			}
		}
		return Scatter(c, r, d, index, source, how, !c.Has("include_self") || c.Bool("include_self"))
	}
}

// reduction returns the op's name of a reduction.
func reduction(name string) string {
	switch name {
	case "add":
		return "sum"
	case "multiply":
		return "prod"
	case "":
		return "nothing"
	}
	return name
}

// indexReduce is scatter with one list of indices for all lines.
func indexReduce(c *call.Call) (*cells.Ref, error) {
	r, index, source := c.Tensor("self"), c.Tensor("index"), c.Tensor("source")
	d := c.Dim("dim", r.Rank())
	if c.Err != nil {
		return nil, c.Err
	}
	index, err := alongLines(c, index, source, d)
	if err != nil {
		return nil, err
	}
	return Scatter(c, r, d, index, source, reduction(c.Text("reduce")), c.Bool("include_self"))
}

// alongLines expands a list of indices along dimension d to the shape of source.
func alongLines(c *call.Call, index, source *cells.Ref, d int) (*cells.Ref, error) {
	if source.Rank() == 0 {
		return c.Reshape(index, tensor.Shape{})
	}
	if index.Rank() == 0 {
		index = c.Unsqueeze(index, 0)
	}
	if index.Rank() != 1 || d >= source.Rank() || source.Shape()[d] != index.Shape()[0] {
		return nil, fmt.Errorf("%v at indices %v of dimension %d", source.Shape(), index.Shape(), d)
	}
	for i := range source.Rank() {
		if i != d {
			index = c.Unsqueeze(index, i)
		}
	}
	return c.Expand(index, source.Shape())
}

// putAlong emits index_put along dimension d of r, where source has an entry for each index.
func putAlong(c *call.Call, r *cells.Ref, d int, index, source *cells.Ref, wrap, accumulate bool) (*cells.Ref, error) {
	if c.Err != nil {
		return nil, c.Err
	}
	shape := r.Shape()
	if r.Rank() == 0 {
		r = c.Unsqueeze(r, 0)
	}
	if index.Rank() == 0 {
		index = c.Unsqueeze(index, 0)
	}
	if source.Rank() == 0 {
		source = c.Unsqueeze(source, 0)
	}
	if index.Rank() != 1 {
		return nil, fmt.Errorf("indices %v are not a list", index.Shape())
	}
	want := slices.Clone(r.Shape())
	want[d] = index.Shape()[0]
	if !source.Shape().Equal(want) || source.DType() != r.DType() {
		return nil, fmt.Errorf("%v %v at %d indices of dimension %d of %v %v",
			source.DType(), source.Shape(), want[d], d, r.DType(), r.Shape())
	}
	out, err := c.Apply("index_put", graph.Attrs{"dim": d, "wrap": wrap, "accumulate": accumulate}, r, source, index)
	if err != nil {
		return nil, err
	}
	return c.Reshape(out, shape)
}

func indexAdd(c *call.Call) (*cells.Ref, error) {
	r, source, alpha := c.Tensor("self"), c.Tensor("source"), c.Number("alpha")
	if c.Err != nil {
		return nil, c.Err
	}
	if alpha != cells.Number(1) {
		scale, err := c.Scalar(alpha, source.DType())
		if err != nil {
			return nil, err
		}
		if scale, err = c.Expand(scale, source.Shape()); err != nil {
			return nil, err
		}
		if source, err = c.Apply("mul", nil, source, scale); err != nil {
			return nil, err
		}
	}
	return putAlong(c, r, c.Dim("dim", r.Rank()), c.Tensor("index"), source, false, true)
}

func indexCopy(c *call.Call) (*cells.Ref, error) {
	r := c.Tensor("self")
	return putAlong(c, r, c.Dim("dim", r.Rank()), c.Tensor("index"), c.Tensor("source"), false, false)
}

func indexFill(c *call.Call) (*cells.Ref, error) {
	r, index := c.Tensor("self"), c.Tensor("index")
	d := c.Dim("dim", r.Rank())
	value, err := c.As(c.Operand("value"), r.DType())
	if err != nil || c.Err != nil {
		return nil, err
	}
	if value.Rank() > 0 {
		return nil, fmt.Errorf("a value of shape %v", value.Shape())
	}
	shape := slices.Clone(r.Shape())
	if len(shape) == 0 {
		shape = tensor.Shape{1}
	}
	shape[d] = int(cells.NumElements(index.Shape()))
	if value, err = c.Expand(value, shape); err != nil {
		return nil, err
	}
	return putAlong(c, r, d, index, value, true, false)
}

// put writes to the elements of r counted in order.
func put(c *call.Call) (*cells.Ref, error) {
	r, index, source := c.Tensor("self"), c.Tensor("index"), c.Tensor("source")
	if c.Err != nil {
		return nil, c.Err
	}
	flat, err := c.Flat(r)
	if err != nil {
		return nil, err
	}
	if index, err = c.Flat(index); err != nil {
		return nil, err
	}
	if source, err = c.Flat(source); err != nil {
		return nil, err
	}
	out, err := putAlong(c, flat, 0, index, source, true, c.Bool("accumulate"))
	if err != nil {
		return nil, err
	}
	return c.Reshape(out, r.Shape())
}

func maskedScatter(c *call.Call) (*cells.Ref, error) {
	r, mask, source := c.Tensor("self"), c.Tensor("mask"), c.Tensor("source")
	if c.Err != nil {
		return nil, c.Err
	}
	both, err := c.Broadcast(r, mask)
	if err != nil {
		return nil, err
	}
	return c.Apply("masked_scatter", nil, both[0], both[1], source)
}

// intoMemory is as_strided_scatter: a copy of all the memory that "self" is a view of, with "src" written to any view
// of it.
func intoMemory(c *call.Call) (*cells.Ref, error) {
	r, err := c.InPyTorchsOrder(c.Tensor("self"))
	if err != nil {
		return nil, err
	}
	memory := *r.Memory()
	out := cells.NewRef(&memory, r.Layout(), r.DType())
	to, err := asStrided(c, out)
	if err != nil {
		return nil, err
	}
	return out, writeAll(c, to, c.Tensor("src"))
}

// intoView copies self and writes "src" to a view of the copy.
func intoView(view func(c *call.Call, r *cells.Ref) (*cells.Ref, error)) call.Meaning {
	return func(c *call.Call) (*cells.Ref, error) {
		r, src := c.Tensor("self"), c.Tensor("src")
		if c.Err != nil {
			return nil, c.Err
		}
		out, err := c.Builder.Copy(r)
		if err != nil {
			return nil, err
		}
		to, err := view(c, out)
		if err != nil || c.Err != nil {
			return nil, err
		}
		return out, writeAll(c, to, src)
	}
}

// writeAll is write of as many elements as there are.
func writeAll(c *call.Call, to, src *cells.Ref) error {
	switch {
	case c.Err != nil:
		return c.Err
	case !to.Shape().Equal(src.Shape()):
		return fmt.Errorf("%v into a view of %v", src.Shape(), to.Shape())
	}
	return c.Write(to, src)
}
