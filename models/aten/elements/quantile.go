package elements

import (
	"fmt"
	"math"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// quantileTargets are ops made of sorting and searching.
var quantileTargets = []call.Overload{
	call.One("aten::quantile.scalar(Tensor self, float q, int? dim=None, bool keepdim=False, *, str interpolation=\"linear\")"+
		" -> Tensor", quantile),
	call.One("aten::isin.Tensor_Tensor(Tensor elements, Tensor test_elements, *, bool assume_unique=False, bool invert=False)"+
		" -> Tensor", isIn("elements", "test_elements")),
	call.One("aten::isin.Tensor_Scalar(Tensor elements, Scalar test_element, *, bool assume_unique=False, bool invert=False)"+
		" -> Tensor", isIn("elements", "test_element")),
	call.One("aten::isin.Scalar_Tensor(Scalar element, Tensor test_elements, *, bool assume_unique=False, bool invert=False)"+
		" -> Tensor", isIn("element", "test_elements")),
	call.One("aten::renorm(Tensor self, Scalar p, int dim, Scalar maxnorm) -> Tensor", renorm),
	call.One("aten::trapezoid.x(Tensor y, Tensor x, *, int dim=-1) -> Tensor", trapezoid),
	call.One("aten::trapezoid.dx(Tensor y, *, Scalar dx=1, int dim=-1) -> Tensor", trapezoid),
	call.One("aten::trapz.x(Tensor y, Tensor x, *, int dim=-1) -> Tensor", trapezoid),
	call.One("aten::trapz.dx(Tensor y, *, float dx=1., int dim=-1) -> Tensor", trapezoid),
}

// quantile goes from the element below the place q × (n − 1) of the sorted ones to the one above; NaN makes NaN.
func quantile(c *call.Call) (*cells.Ref, error) {
	r, q, keep, how := c.Tensor("self"), c.Float("q"), c.Bool("keepdim"), c.Text("interpolation")
	if c.Err != nil {
		return nil, c.Err
	}
	rank, d := r.Rank(), 0
	if c.Has("dim") {
		d = c.Dim("dim", rank)
	}
	shape := tensor.Shape{}
	for i, n := range r.Shape() {
		switch {
		case c.Has("dim") && i != d:
			shape = append(shape, n)
		case keep:
			shape = append(shape, 1)
		}
	}
	var err error
	if !c.Has("dim") || rank == 0 {
		if r, err = c.Flat(r); err != nil {
			return nil, err
		}
	}
	if c.Err != nil || !(q >= 0 && q <= 1) || r.Shape()[d] == 0 ||
		r.DType() != tensor.Float32 && r.DType() != tensor.Float64 {
		return nil, fmt.Errorf("quantile %v of %v %v", q, r.DType(), r.Shape())
	}
	sorted, err := c.Emit("sort", graph.Attrs{"dim": d}, c.Read(r))
	if err != nil {
		return nil, err
	}
	n := r.Shape()[d]
	place := q * float64(n-1)
	if r.DType() == tensor.Float32 {
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
	at := func(i int) *cells.Ref { return c.SelectAt(sorted[0], d, i) }
	out := at(low)
	if high != low {
		w, err := c.Full(weight, r.DType(), out.Shape())
		if err != nil {
			return nil, err
		}
		if out, err = c.Apply("lerp", nil, out, at(high), w); err != nil {
			return nil, err
		}
	}
	last := at(n - 1)
	number, err := c.Apply("eq", nil, last, last)
	if err != nil {
		return nil, err
	}
	if out, err = c.Apply("where", nil, number, out, last); err != nil {
		return nil, err
	}
	return c.Reshape(out, shape)
}

// isIn looks up each element in the sorted others.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func isIn(elements, among string) call.Meaning {
	return func(c *call.Call) (*cells.Ref, error) {
		operands := c.Operands(elements, among)
		if c.Err != nil {
			return nil, c.Err
		}
		d, err := cells.ResultType(operands...)
		if err != nil {
			return nil, err
		}
		if d == tensor.Bool {
			d = tensor.UInt8
		}
		x, err := c.As(operands[0], d)
		if err != nil {
			return nil, err
		}
		list, err := c.As(operands[1], d)
		if err != nil {
			return nil, err
		}
		if list, err = c.Flat(list); err != nil {
			return nil, err
		}
		n := list.Shape()[0]
		if n == 0 {
			return c.Full(c.Bool("invert"), tensor.Bool, x.Shape())
		}
		sorted, err := c.Emit("sort", graph.Attrs{"dim": 0}, c.Read(list))
		if err != nil {
			return nil, err
		}
		at, err := c.Emit1("searchsorted", nil, c.Read(sorted[0]), c.Read(x))
		if err != nil {
			return nil, err
		}
		if at, err = c.Combine("minimum", nil, at, n-1); err != nil {
			return nil, err
		}
		found, err := c.Emit1("index", graph.Attrs{"dim": 0}, c.Read(sorted[0]), c.Read(at))
		if err != nil {
			return nil, err
		}
		if c.Bool("invert") {
			return c.Apply("ne", nil, found, x)
		}
		return c.Apply("eq", nil, found, x)
	}
}

// renorm scales the slices along a dimension whose norm is too large.
func renorm(c *call.Call) (*cells.Ref, error) {
	r, p, limit := c.Tensor("self"), c.Float("p"), c.Float("maxnorm")
	d := c.Dim("dim", r.Rank())
	if c.Err != nil || r.Rank() < 2 {
		return nil, fmt.Errorf("renorm of %v", r.Shape())
	}
	length, err := normExcept(c, r, p, d)
	if err != nil {
		return nil, err
	}
	long, err := combineCompare(c.Builder, "gt", length, limit)
	if err != nil {
		return nil, err
	}
	padded, err := c.Combine("add", nil, length, 1e-7)
	if err != nil {
		return nil, err
	}
	scale, err := c.Combine("div", nil, limit, padded)
	if err != nil {
		return nil, err
	}
	one, err := c.Full(1, scale.DType(), scale.Shape())
	if err != nil {
		return nil, err
	}
	if scale, err = c.Apply("where", nil, long, scale, one); err != nil {
		return nil, err
	}
	return c.Combine("mul", nil, r, scale)
}

// combineCompare compares a tensor with a number.
func combineCompare(b *cells.Builder, kind graph.Kind, r *cells.Ref, n cells.Number) (*cells.Ref, error) {
	other, err := b.Full(n, r.DType(), r.Shape())
	if err != nil {
		return nil, err
	}
	return b.Apply(kind, nil, r, other)
}

// trapezoid: Σ (y[i] + y[i+1]) × (x[i+1] − x[i]) ÷ 2.
func trapezoid(c *call.Call) (*cells.Ref, error) {
	y := c.Tensor("y")
	d := c.Dim("dim", y.Rank())
	if c.Err != nil || y.Rank() == 0 {
		return nil, fmt.Errorf("integral of %v", y.Shape())
	}
	neighbours := func(r *cells.Ref, d int) (before, after *cells.Ref) {
		n := r.Shape()[d]
		return c.Slice(r, d, 0, max(n-1, 0), 1), c.Slice(r, d, min(1, n), n, 1)
	}
	before, after := neighbours(y, d)
	sum, err := c.Combine("add", nil, before, after)
	if err != nil {
		return nil, err
	}
	if !c.Schema.Has("x") {
		if sum, err = c.Fold("sum", sum, []int{d}, false,
			graph.Attrs{"dtype": cells.SumDType(sum.DType())}); err != nil {
			return nil, err
		}
		return c.Combine("mul", nil, sum, c.Float("dx")/2)
	}
	x := c.Tensor("x")
	if c.Err != nil || x.Rank() == 0 {
		return nil, fmt.Errorf("integral along %v", x.Shape())
	}
	if x.Rank() == 1 {
		if x.Shape()[0] != y.Shape()[d] {
			return nil, fmt.Errorf("%v along %v", y.Shape(), x.Shape())
		}
		for range y.Rank() - 1 - d {
			x = c.Unsqueeze(x, x.Rank())
		}
	}
	along := d - (y.Rank() - x.Rank())
	if along < 0 || along >= x.Rank() {
		return nil, fmt.Errorf("%v along %v", y.Shape(), x.Shape())
	}
	before, after = neighbours(x, along)
	step, err := c.Combine("sub", nil, after, before)
	if err != nil {
		return nil, err
	}
	area, err := c.Combine("mul", nil, sum, step)
	if err != nil {
		return nil, err
	}
	if area, err = c.Fold("sum", area, []int{d}, false,
		graph.Attrs{"dtype": cells.SumDType(area.DType())}); err != nil {
		return nil, err
	}
	return c.Combine("mul", nil, area, 0.5)
}
