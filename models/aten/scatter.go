package aten

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// scatterTargets are the ops that write to places that indices name.
var scatterTargets = slices.Concat(
	twins("aten::scatter.src(Tensor self, int dim, Tensor index, Tensor src) -> Tensor", scatterOf("src", "")),
	twins("aten::scatter.value(Tensor self, int dim, Tensor index, Scalar value) -> Tensor", scatterOf("value", "")),
	twins("aten::scatter.reduce(Tensor self, int dim, Tensor index, Tensor src, *, str reduce) -> Tensor",
		scatterOf("src", "named")),
	twins("aten::scatter.value_reduce(Tensor self, int dim, Tensor index, Scalar value, *, str reduce) -> Tensor",
		scatterOf("value", "named")),
	twins("aten::scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor", scatterOf("src", "sum")),
	twins("aten::scatter_reduce.two(Tensor self, int dim, Tensor index, Tensor src, str reduce, *,"+
		" bool include_self=True) -> Tensor", scatterOf("src", "named")),
	twins("aten::index_reduce(Tensor self, int dim, Tensor index, Tensor source, str reduce, *,"+
		" bool include_self=True) -> Tensor", indexReduce),
	twins("aten::index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor", indexAdd),
	twins("aten::index_copy(Tensor self, int dim, Tensor index, Tensor source) -> Tensor", indexCopy),
	twins("aten::index_fill.int_Tensor(Tensor self, int dim, Tensor index, Tensor value) -> Tensor", indexFill),
	twins("aten::index_fill.int_Scalar(Tensor self, int dim, Tensor index, Scalar value) -> Tensor", indexFill),
	twins("aten::put(Tensor self, Tensor index, Tensor source, bool accumulate=False) -> Tensor", put),
	twins("aten::masked_scatter(Tensor self, Tensor mask, Tensor source) -> Tensor", maskedScatter),
	[]atenOp{
		op("aten::select_scatter(Tensor self, Tensor src, int dim, SymInt index) -> Tensor", intoView(
			func(c *call, r *Ref) (*Ref, error) {
				d, i := c.dim("dim", r.rank()), c.int("index")
				if c.err != nil {
					return nil, c.err
				}
				if r.rank() == 0 || i < -r.shape()[d] || i >= r.shape()[d] {
					return nil, fmt.Errorf("index %d of dimension %d of %v", i, d, r.shape())
				}
				if i < 0 {
					i += r.shape()[d]
				}
				return c.selectAt(r, d, i), nil
			})),
		op("aten::slice_scatter(Tensor self, Tensor src, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1)"+
			" -> Tensor", intoView(func(c *call, r *Ref) (*Ref, error) { return c.sliced(r) })),
		op("aten::diagonal_scatter(Tensor self, Tensor src, int offset=0, int dim1=0, int dim2=1) -> Tensor",
			intoView(func(c *call, r *Ref) (*Ref, error) { return c.diagonal(r) })),
		op("aten::as_strided_scatter(Tensor self, Tensor src, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None)"+
			" -> Tensor", intoMemory),
	},
)

// scatter emits the op; source may be larger than the index.
func (c *call) scatter(r *Ref, d int, index, source *Ref, reduce string, includeSelf bool) (*Ref, error) {
	if c.err != nil {
		return nil, c.err
	}
	if source.rank() != index.rank() {
		if source.rank()+index.rank() > 1 {
			return nil, fmt.Errorf("%v at indices %v", source.shape(), index.shape())
		}
		// Scalars count as lists of one.
		var err error
		if index, err = c.Reshape(index, r.shape()); err != nil {
			return nil, err
		}
		if source, err = c.Reshape(source, r.shape()); err != nil {
			return nil, err
		}
	}
	if NumElements(index.shape()) == 0 {
		return c.copy(r)
	}
	for i, n := range index.shape() {
		if n > source.shape()[i] {
			return nil, fmt.Errorf("%v at indices %v", source.shape(), index.shape())
		}
		source = c.slice(source, i, 0, n, 1)
	}
	attrs := graph.Attrs{"dim": d, "reduce": reduce, "include_self": includeSelf}
	return c.apply("scatter", attrs, r, index, source)
}

// scatterOf takes what is scattered from an argument; "named" means the reduction of argument "reduce".
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func scatterOf(name, reduce string) meaning {
	return func(c *call) (*Ref, error) {
		r, index := c.tensor("self"), c.tensor("index")
		how := reduce
		if how == "named" {
			how = reduction(c.str("reduce"))
		}
		d := c.dim("dim", r.rank())
		source, err := c.as(c.operand(name), r.dtype)
		if err != nil {
			return nil, err
		}
		if s := c.optTensor(name); name == "src" && s != nil && s.dtype != r.dtype {
			return nil, fmt.Errorf("%v into %v", s.dtype, r.dtype)
		}
		if name == "value" {
			if source, err = c.expand(source, index.shape()); err != nil {
				return nil, err
			}
		}
		return c.scatter(r, d, index, source, how, !c.has("include_self") || c.bool("include_self"))
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
func indexReduce(c *call) (*Ref, error) {
	r, index, source := c.tensor("self"), c.tensor("index"), c.tensor("source")
	d := c.dim("dim", r.rank())
	if c.err != nil {
		return nil, c.err
	}
	index, err := c.alongLines(index, source, d)
	if err != nil {
		return nil, err
	}
	return c.scatter(r, d, index, source, reduction(c.str("reduce")), c.bool("include_self"))
}

// alongLines expands a list of indices along dimension d to the shape of source.
func (c *call) alongLines(index, source *Ref, d int) (*Ref, error) {
	if source.rank() == 0 {
		return c.Reshape(index, tensor.Shape{})
	}
	if index.rank() == 0 {
		index = c.unsqueeze(index, 0)
	}
	if index.rank() != 1 || d >= source.rank() || source.shape()[d] != index.shape()[0] {
		return nil, fmt.Errorf("%v at indices %v of dimension %d", source.shape(), index.shape(), d)
	}
	for i := range source.rank() {
		if i != d {
			index = c.unsqueeze(index, i)
		}
	}
	return c.expand(index, source.shape())
}

// putAlong emits index_put along dimension d of r, where source has an entry for each index.
func (c *call) putAlong(r *Ref, d int, index, source *Ref, wrap, accumulate bool) (*Ref, error) {
	if c.err != nil {
		return nil, c.err
	}
	shape := r.shape()
	if r.rank() == 0 {
		r = c.unsqueeze(r, 0)
	}
	if index.rank() == 0 {
		index = c.unsqueeze(index, 0)
	}
	if source.rank() == 0 {
		source = c.unsqueeze(source, 0)
	}
	if index.rank() != 1 {
		return nil, fmt.Errorf("indices %v are not a list", index.shape())
	}
	want := slices.Clone(r.shape())
	want[d] = index.shape()[0]
	if !source.shape().Equal(want) || source.dtype != r.dtype {
		return nil, fmt.Errorf("%v %v at %d indices of dimension %d of %v %v",
			source.dtype, source.shape(), want[d], d, r.dtype, r.shape())
	}
	out, err := c.apply("index_put", graph.Attrs{"dim": d, "wrap": wrap, "accumulate": accumulate}, r, source, index)
	if err != nil {
		return nil, err
	}
	return c.Reshape(out, shape)
}

func indexAdd(c *call) (*Ref, error) {
	r, source, alpha := c.tensor("self"), c.tensor("source"), c.number("alpha")
	if c.err != nil {
		return nil, c.err
	}
	if alpha != number(1) {
		scale, err := c.Scalar(alpha, source.dtype)
		if err != nil {
			return nil, err
		}
		if scale, err = c.expand(scale, source.shape()); err != nil {
			return nil, err
		}
		if source, err = c.apply("mul", nil, source, scale); err != nil {
			return nil, err
		}
	}
	return c.putAlong(r, c.dim("dim", r.rank()), c.tensor("index"), source, false, true)
}

func indexCopy(c *call) (*Ref, error) {
	r := c.tensor("self")
	return c.putAlong(r, c.dim("dim", r.rank()), c.tensor("index"), c.tensor("source"), false, false)
}

func indexFill(c *call) (*Ref, error) {
	r, index := c.tensor("self"), c.tensor("index")
	d := c.dim("dim", r.rank())
	value, err := c.as(c.operand("value"), r.dtype)
	if err != nil || c.err != nil {
		return nil, err
	}
	if value.rank() > 0 {
		return nil, fmt.Errorf("a value of shape %v", value.shape())
	}
	shape := slices.Clone(r.shape())
	if len(shape) == 0 {
		shape = tensor.Shape{1}
	}
	shape[d] = int(NumElements(index.shape()))
	if value, err = c.expand(value, shape); err != nil {
		return nil, err
	}
	return c.putAlong(r, d, index, value, true, false)
}

// put writes to the elements of r counted in order.
func put(c *call) (*Ref, error) {
	r, index, source := c.tensor("self"), c.tensor("index"), c.tensor("source")
	if c.err != nil {
		return nil, c.err
	}
	flat, err := c.flat(r)
	if err != nil {
		return nil, err
	}
	if index, err = c.flat(index); err != nil {
		return nil, err
	}
	if source, err = c.flat(source); err != nil {
		return nil, err
	}
	out, err := c.putAlong(flat, 0, index, source, true, c.bool("accumulate"))
	if err != nil {
		return nil, err
	}
	return c.Reshape(out, r.shape())
}

func maskedScatter(c *call) (*Ref, error) {
	r, mask, source := c.tensor("self"), c.tensor("mask"), c.tensor("source")
	if c.err != nil {
		return nil, c.err
	}
	both, err := c.broadcast(r, mask)
	if err != nil {
		return nil, err
	}
	return c.apply("masked_scatter", nil, both[0], both[1], source)
}

// intoMemory is as_strided_scatter: a copy of all the memory that "self" is a view of, with "src" written to any view of it.
func intoMemory(c *call) (*Ref, error) {
	r, err := c.inPyTorchsOrder(c.tensor("self"))
	if err != nil {
		return nil, err
	}
	memory := *r.cell
	out := &Ref{cell: &memory, layout: r.layout, dtype: r.dtype}
	to, err := c.asStrided(out)
	if err != nil {
		return nil, err
	}
	return out, c.writeAll(to, c.tensor("src"))
}

// intoView copies self and writes "src" to a view of the copy.
func intoView(view func(c *call, r *Ref) (*Ref, error)) meaning {
	return func(c *call) (*Ref, error) {
		r, src := c.tensor("self"), c.tensor("src")
		if c.err != nil {
			return nil, c.err
		}
		out, err := c.Builder.copy(r)
		if err != nil {
			return nil, err
		}
		to, err := view(c, out)
		if err != nil || c.err != nil {
			return nil, err
		}
		return out, c.writeAll(to, src)
	}
}

// writeAll is write of as many elements as there are.
func (c *call) writeAll(to, src *Ref) error {
	switch {
	case c.err != nil:
		return c.err
	case !to.shape().Equal(src.shape()):
		return fmt.Errorf("%v into a view of %v", src.shape(), to.shape())
	}
	return c.Write(to, src)
}
