package aten

import (
	"fmt"
	"math"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// quantileTargets are ops made of sorting and searching.
var quantileTargets = []atenOp{
	op("aten::quantile.scalar(Tensor self, float q, int? dim=None, bool keepdim=False, *, str interpolation=\"linear\")"+
		" -> Tensor", quantile),
	op("aten::isin.Tensor_Tensor(Tensor elements, Tensor test_elements, *, bool assume_unique=False, bool invert=False)"+
		" -> Tensor", isIn("elements", "test_elements")),
	op("aten::isin.Tensor_Scalar(Tensor elements, Scalar test_element, *, bool assume_unique=False, bool invert=False)"+
		" -> Tensor", isIn("elements", "test_element")),
	op("aten::isin.Scalar_Tensor(Scalar element, Tensor test_elements, *, bool assume_unique=False, bool invert=False)"+
		" -> Tensor", isIn("element", "test_elements")),
	op("aten::renorm(Tensor self, Scalar p, int dim, Scalar maxnorm) -> Tensor", renorm),
	op("aten::trapezoid.x(Tensor y, Tensor x, *, int dim=-1) -> Tensor", trapezoid),
	op("aten::trapezoid.dx(Tensor y, *, Scalar dx=1, int dim=-1) -> Tensor", trapezoid),
	op("aten::trapz.x(Tensor y, Tensor x, *, int dim=-1) -> Tensor", trapezoid),
	op("aten::trapz.dx(Tensor y, *, float dx=1., int dim=-1) -> Tensor", trapezoid),
}

// quantile goes from the element below the place q × (n − 1) of the sorted ones to the one above; NaN makes NaN.
func quantile(c *call) (*Ref, error) {
	r, q, keep, how := c.tensor("self"), c.float("q"), c.bool("keepdim"), c.str("interpolation")
	if c.err != nil {
		return nil, c.err
	}
	rank, d := r.rank(), 0
	if c.has("dim") {
		d = c.dim("dim", rank)
	}
	shape := tensor.Shape{}
	for i, n := range r.shape() {
		switch {
		case c.has("dim") && i != d:
			shape = append(shape, n)
		case keep:
			shape = append(shape, 1)
		}
	}
	var err error
	if !c.has("dim") || rank == 0 {
		if r, err = c.flat(r); err != nil {
			return nil, err
		}
	}
	if c.err != nil || !(q >= 0 && q <= 1) || r.shape()[d] == 0 ||
		r.dtype != tensor.Float32 && r.dtype != tensor.Float64 {
		return nil, fmt.Errorf("quantile %v of %v %v", q, r.dtype, r.shape())
	}
	sorted, err := c.Emit("sort", graph.Attrs{"dim": d}, c.Read(r))
	if err != nil {
		return nil, err
	}
	n := r.shape()[d]
	place := q * float64(n-1)
	if r.dtype == tensor.Float32 {
		place = float64(float32(q) * float32(n-1))
	}
	weight := place - math.Floor(place)
	low, high := int(place), int(math.Ceil(place))
	switch how {
	case "linear":
	case "lower":
		high, weight = low, 0
	case "higher":
		low, weight = high, 0
	case "nearest":
		low = int(math.RoundToEven(place))
		high, weight = low, 0
	case "midpoint":
		weight = 0.5
	default:
		return nil, fmt.Errorf("interpolation %q", how)
	}
	at := func(i int) *Ref { return c.selectAt(sorted[0], d, i) }
	out := at(low)
	if high != low {
		w, err := c.full(weight, r.dtype, out.shape())
		if err != nil {
			return nil, err
		}
		if out, err = c.apply("lerp", nil, out, at(high), w); err != nil {
			return nil, err
		}
	}
	last := at(n - 1)
	number, err := c.apply("eq", nil, last, last)
	if err != nil {
		return nil, err
	}
	if out, err = c.apply("where", nil, number, out, last); err != nil {
		return nil, err
	}
	return c.Reshape(out, shape)
}

// isIn looks up each element in the sorted others.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func isIn(elements, among string) meaning {
	return func(c *call) (*Ref, error) {
		operands := c.operands(elements, among)
		if c.err != nil {
			return nil, c.err
		}
		d, err := resultType(operands...)
		if err != nil {
			return nil, err
		}
		if d == tensor.Bool {
			d = tensor.UInt8
		}
		x, err := c.as(operands[0], d)
		if err != nil {
			return nil, err
		}
		list, err := c.as(operands[1], d)
		if err != nil {
			return nil, err
		}
		if list, err = c.flat(list); err != nil {
			return nil, err
		}
		n := list.shape()[0]
		if n == 0 {
			return c.full(c.bool("invert"), tensor.Bool, x.shape())
		}
		sorted, err := c.Emit("sort", graph.Attrs{"dim": 0}, c.Read(list))
		if err != nil {
			return nil, err
		}
		at, err := c.Emit1("searchsorted", nil, c.Read(sorted[0]), c.Read(x))
		if err != nil {
			return nil, err
		}
		if at, err = c.combine("minimum", nil, at, n-1); err != nil {
			return nil, err
		}
		found, err := c.Emit1("index", graph.Attrs{"dim": 0}, c.Read(sorted[0]), c.Read(at))
		if err != nil {
			return nil, err
		}
		if c.bool("invert") {
			return c.apply("ne", nil, found, x)
		}
		return c.apply("eq", nil, found, x)
	}
}

// renorm scales the slices along a dimension whose norm is too large.
func renorm(c *call) (*Ref, error) {
	r, p, limit := c.tensor("self"), c.float("p"), c.float("maxnorm")
	d := c.dim("dim", r.rank())
	if c.err != nil || r.rank() < 2 {
		return nil, fmt.Errorf("renorm of %v", r.shape())
	}
	length, err := c.normExcept(r, p, d)
	if err != nil {
		return nil, err
	}
	long, err := c.combineCompare("gt", length, limit)
	if err != nil {
		return nil, err
	}
	padded, err := c.combine("add", nil, length, 1e-7)
	if err != nil {
		return nil, err
	}
	scale, err := c.combine("div", nil, limit, padded)
	if err != nil {
		return nil, err
	}
	one, err := c.full(1, scale.dtype, scale.shape())
	if err != nil {
		return nil, err
	}
	if scale, err = c.apply("where", nil, long, scale, one); err != nil {
		return nil, err
	}
	return c.combine("mul", nil, r, scale)
}

// combineCompare compares a tensor with a number.
func (b *Builder) combineCompare(kind graph.Kind, r *Ref, n number) (*Ref, error) {
	other, err := b.full(n, r.dtype, r.shape())
	if err != nil {
		return nil, err
	}
	return b.apply(kind, nil, r, other)
}

// trapezoid: Σ (y[i] + y[i+1]) × (x[i+1] − x[i]) ÷ 2.
func trapezoid(c *call) (*Ref, error) {
	y := c.tensor("y")
	d := c.dim("dim", y.rank())
	if c.err != nil || y.rank() == 0 {
		return nil, fmt.Errorf("integral of %v", y.shape())
	}
	neighbours := func(r *Ref, d int) (before, after *Ref) {
		n := r.shape()[d]
		return c.slice(r, d, 0, max(n-1, 0), 1), c.slice(r, d, min(1, n), n, 1)
	}
	before, after := neighbours(y, d)
	sum, err := c.combine("add", nil, before, after)
	if err != nil {
		return nil, err
	}
	if !c.schema.has("x") {
		if sum, err = c.fold("sum", sum, []int{d}, false, graph.Attrs{"dtype": wide(sum.dtype)}); err != nil {
			return nil, err
		}
		return c.combine("mul", nil, sum, c.float("dx")/2)
	}
	x := c.tensor("x")
	if c.err != nil || x.rank() == 0 {
		return nil, fmt.Errorf("integral along %v", x.shape())
	}
	if x.rank() == 1 {
		if x.shape()[0] != y.shape()[d] {
			return nil, fmt.Errorf("%v along %v", y.shape(), x.shape())
		}
		for range y.rank() - 1 - d {
			x = c.unsqueeze(x, x.rank())
		}
	}
	along := d - (y.rank() - x.rank())
	if along < 0 || along >= x.rank() {
		return nil, fmt.Errorf("%v along %v", y.shape(), x.shape())
	}
	before, after = neighbours(x, along)
	step, err := c.combine("sub", nil, after, before)
	if err != nil {
		return nil, err
	}
	area, err := c.combine("mul", nil, sum, step)
	if err != nil {
		return nil, err
	}
	if area, err = c.fold("sum", area, []int{d}, false, graph.Attrs{"dtype": wide(area.dtype)}); err != nil {
		return nil, err
	}
	return c.combine("mul", nil, area, 0.5)
}
