package elements

import (
	"fmt"
	"math"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// reductionTargets are the ops that combine elements along dimensions.
var reductionTargets = slices.Concat(foldTargets, varianceTargets, vectorNormTargets(), scanTargets, distanceTargets,
	sortTargets, quantileTargets)

var foldTargets = []call.Overload{
	call.One("aten::sum(Tensor self, *, ScalarType? dtype=None) -> Tensor", sumOf("sum")),
	call.One("aten::sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
		sumOf("sum")),
	call.One("aten::nansum(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
		sumOf("nansum")),
	call.One("aten::prod(Tensor self, *, ScalarType? dtype=None) -> Tensor", sumOf("prod")),
	call.One(
		"aten::prod.dim_int(Tensor self, int dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
		sumOf("prod"),
	),
	call.One("aten::mean(Tensor self, *, ScalarType? dtype=None) -> Tensor", meanOf),
	call.One("aten::mean.dim(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor", meanOf),
	call.One(
		"aten::nanmean(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
		nanMean,
	),
	call.One("aten::mse_loss(Tensor self, Tensor target, int reduction=1) -> Tensor",
		loss(func(c *call.Call, d *cells.Ref) (*cells.Ref, error) {
			return c.Combine("mul", nil, d, d)
		})),
	call.One("aten::l1_loss(Tensor self, Tensor target, int reduction=1) -> Tensor",
		loss(func(c *call.Call, d *cells.Ref) (*cells.Ref, error) {
			return c.Apply("abs", nil, d)
		})),
	call.One("aten::_is_all_true(Tensor self) -> Tensor", foldOf("all")),
	call.One("aten::_is_any_true(Tensor self) -> Tensor", foldOf("any")),
	call.One("aten::amax(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor", foldOf("amax")),
	call.One("aten::amin(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor", foldOf("amin")),
	call.One("aten::max(Tensor self) -> Tensor", foldOf("amax")),
	call.One("aten::min(Tensor self) -> Tensor", foldOf("amin")),
	call.Several("aten::max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
		extremeAndIndex("amax", "argmax")),
	call.Several("aten::min.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
		extremeAndIndex("amin", "argmin")),
	call.Several("aten::aminmax(Tensor self, *, int? dim=None, bool keepdim=False) -> (Tensor min, Tensor max)",
		extremeAndIndex("amin", "amax")),
	call.One("aten::argmax(Tensor self, int? dim=None, bool keepdim=False) -> Tensor", argOf("argmax")),
	call.One("aten::argmin(Tensor self, int? dim=None, bool keepdim=False) -> Tensor", argOf("argmin")),
	call.One("aten::any(Tensor self) -> Tensor", foldOf("any")),
	call.One("aten::any.dim(Tensor self, int dim, bool keepdim=False) -> Tensor", foldOf("any")),
	call.One("aten::any.dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor", foldOf("any")),
	call.One("aten::all(Tensor self) -> Tensor", foldOf("all")),
	call.One("aten::all.dim(Tensor self, int dim, bool keepdim=False) -> Tensor", foldOf("all")),
	call.One("aten::all.dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor", foldOf("all")),
	call.One("aten::count_nonzero(Tensor self, int? dim=None) -> Tensor", foldOf("count_nonzero")),
	call.One("aten::count_nonzero.dim_IntList(Tensor self, int[] dim) -> Tensor", foldOf("count_nonzero")),
	call.One("aten::logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor", logSumExp),
	call.One("aten::special_logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor", logSumExp),
	call.One("aten::trace(Tensor self) -> Tensor", trace),
	call.One("aten::histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor", histc),
}

var varianceTargets = []call.Overload{
	call.One("aten::var(Tensor self, bool unbiased=True) -> Tensor", variance("var")),
	call.One("aten::var.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> Tensor",
		variance("var")),
	call.One("aten::var.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor",
		variance("var")),
	call.One("aten::std(Tensor self, bool unbiased=True) -> Tensor", variance("std")),
	call.One("aten::std.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> Tensor",
		variance("std")),
	call.One("aten::std.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor",
		variance("std")),
	call.Several("aten::var_mean(Tensor self, bool unbiased=True) -> (Tensor, Tensor)", varianceAndMean("var")),
	call.Several("aten::var_mean.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> (Tensor, Tensor)",
		varianceAndMean("var")),
	call.Several("aten::var_mean.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False)"+
		" -> (Tensor, Tensor)", varianceAndMean("var")),
	call.Several("aten::std_mean(Tensor self, bool unbiased=True) -> (Tensor, Tensor)", varianceAndMean("std")),
	call.Several("aten::std_mean.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> (Tensor, Tensor)",
		varianceAndMean("std")),
	call.Several("aten::std_mean.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False)"+
		" -> (Tensor, Tensor)", varianceAndMean("std")),
}

// foldOf is the meaning of a reduction that keeps the dtype or has its own.
func foldOf(kind graph.Kind) call.Meaning {
	return func(c *call.Call) (*cells.Ref, error) {
		r := c.Tensor("self")
		dims, keep := c.ReductionDims(r), c.Bool("keepdim")
		if c.Err != nil {
			return nil, c.Err
		}
		return c.Fold(kind, r, dims, keep, nil)
	}
}

func sumOf(kind graph.Kind) call.Meaning {
	return func(c *call.Call) (*cells.Ref, error) {
		r := c.Tensor("self")
		d := c.DType("dtype", cells.SumDType(r.DType()))
		dims, keep := c.ReductionDims(r), c.Bool("keepdim")
		if c.Err != nil {
			return nil, c.Err
		}
		r, err := c.Converted(r, d)
		if err != nil {
			return nil, err
		}
		return c.Fold(kind, r, dims, keep, graph.Attrs{"dtype": d})
	}
}

func meanOf(c *call.Call) (*cells.Ref, error) {
	r := c.Tensor("self")
	d := c.DType("dtype", r.DType())
	dims, keep := c.ReductionDims(r), c.Bool("keepdim")
	if c.Err != nil {
		return nil, c.Err
	}
	r, err := c.Converted(r, d)
	if err != nil {
		return nil, err
	}
	return c.Fold("mean", r, dims, keep, graph.Attrs{"dtype": d})
}

// loss is the meaning of a function of the differences between "self" and "target", of which "reduction" makes the mean
// (1), the sum (2) or nothing.
func loss(f func(c *call.Call, difference *cells.Ref) (*cells.Ref, error)) call.Meaning {
	return func(c *call.Call) (*cells.Ref, error) {
		d, err := c.Combine("sub", nil, c.Tensor("self"), c.Tensor("target"))
		if err != nil {
			return nil, err
		}
		if d, err = f(c, d); err != nil {
			return nil, err
		}
		kind, ok := map[int]graph.Kind{1: "mean", 2: "sum"}[c.Int("reduction")]
		if !ok || c.Err != nil {
			return d, c.Err
		}
		return c.Fold(kind, d, cells.AllDims(d.Rank()), false, graph.Attrs{"dtype": d.DType()})
	}
}

// nanMean is the sum of what is not NaN over its number.
func nanMean(c *call.Call) (*cells.Ref, error) {
	total, err := sumOf("nansum")(c)
	if err != nil {
		return nil, err
	}
	r := c.Tensor("self")
	present, err := c.Apply("eq", nil, r, r)
	if err != nil {
		return nil, err
	}
	n, err := c.Fold("sum", present, c.ReductionDims(r), c.Bool("keepdim"), graph.Attrs{"dtype": tensor.Int64})
	if err != nil {
		return nil, err
	}
	if n, err = c.Cast(n, total.DType()); err != nil {
		return nil, err
	}
	return c.Apply("div", nil, total, n)
}

// extremeAndIndex gives the results of two reductions.
func extremeAndIndex(first, second graph.Kind) func(c *call.Call) error {
	return func(c *call.Call) error {
		x, err := foldOf(first)(c)
		if err != nil {
			return err
		}
		y, err := foldOf(second)(c)
		if err != nil {
			return err
		}
		c.Set(x, y)
		return nil
	}
}

func argOf(kind graph.Kind) call.Meaning {
	return func(c *call.Call) (*cells.Ref, error) {
		if c.Has("dim") {
			return foldOf(kind)(c)
		}
		r := c.Tensor("self")
		if c.Err != nil {
			return nil, c.Err
		}
		flat, err := c.Reshape(r, tensor.Shape{int(cells.NumElements(r.Shape()))})
		if err != nil {
			return nil, err
		}
		at, err := c.Fold(kind, flat, []int{0}, false, nil)
		if err != nil || !c.Bool("keepdim") {
			return at, err
		}
		return c.Reshape(at, slices.Repeat(tensor.Shape{1}, r.Rank()))
	}
}

// asFloat returns r as a float tensor, of the default dtype where it is integral.
func asFloat(b *cells.Builder, r *cells.Ref) (*cells.Ref, error) {
	return b.Cast(r, cells.FloatResult(r.DType()))
}

func logSumExp(c *call.Call) (*cells.Ref, error) {
	r, err := asFloat(c.Builder, c.Tensor("self"))
	if err != nil {
		return nil, err
	}
	dims, keep := c.ReductionDims(r), c.Bool("keepdim")
	if c.Err != nil {
		return nil, c.Err
	}
	return c.Fold("logsumexp", r, dims, keep, nil)
}

func trace(c *call.Call) (*cells.Ref, error) {
	r := c.Tensor("self")
	if c.Err != nil {
		return nil, c.Err
	}
	if r.Rank() != 2 {
		return nil, fmt.Errorf("trace of %v", r.Shape())
	}
	l := tensor.Layout{
		Shape:   tensor.Shape{min(r.Shape()[0], r.Shape()[1])},
		Strides: []int{r.Layout().Strides[0] + r.Layout().Strides[1]},
		Offset:  r.Layout().Offset,
	}
	return c.Fold("sum", c.View(r, l), []int{0}, false, graph.Attrs{"dtype": cells.SumDType(r.DType())})
}

func histc(c *call.Call) (*cells.Ref, error) {
	r := c.Tensor("self")
	attrs := graph.Attrs{"bins": c.Int("bins"), "min": c.Float("min"), "max": c.Float("max")}
	if c.Err != nil {
		return nil, c.Err
	}
	return c.Emit1("histc", attrs, c.Read(r))
}

// correction returns what is taken from the number of elements: an argument of its own, or one unless "unbiased" is
// false.
func correction(c *call.Call) float64 {
	if c.Schema.Has("correction") {
		return c.OptFloat("correction", 1)
	}
	if c.Bool("unbiased") {
		return 1
	}
	return 0
}

func variance(kind graph.Kind) call.Meaning {
	return func(c *call.Call) (*cells.Ref, error) {
		r := c.Tensor("self")
		dims, keep, correction := c.ReductionDims(r), c.Bool("keepdim"), correction(c)
		if c.Err != nil {
			return nil, c.Err
		}
		return c.Fold(kind, r, dims, keep, graph.Attrs{"correction": correction})
	}
}

func varianceAndMean(kind graph.Kind) func(c *call.Call) error {
	return func(c *call.Call) error {
		v, err := variance(kind)(c)
		if err != nil {
			return err
		}
		m, err := c.Fold("mean", c.Tensor("self"), c.ReductionDims(c.Tensor("self")), c.Bool("keepdim"),
			graph.Attrs{"dtype": c.Tensor("self").DType()})
		if err != nil {
			return err
		}
		c.Set(v, m)
		return nil
	}
}

func vectorNormTargets() []call.Overload {
	const rest = ", int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor"
	return []call.Overload{
		call.One("aten::linalg_vector_norm(Tensor self, Scalar ord=2"+rest, vectorNorm("ord")),
		call.One("aten::norm.Scalar(Tensor self, Scalar p=2) -> Tensor", vectorNorm("p")),
		call.One(
			"aten::norm.ScalarOpt_dim(Tensor self, Scalar? p, int[1] dim, bool keepdim=False) -> Tensor",
			vectorNorm("p"),
		),
		call.One("aten::norm.ScalarOpt_dim_dtype(Tensor self, Scalar? p, int[1] dim, bool keepdim, *, ScalarType dtype) -> Tensor",
			vectorNorm("p")),
		call.One("aten::norm.ScalarOpt_dtype(Tensor self, Scalar? p, *, ScalarType dtype) -> Tensor", vectorNorm("p")),
		call.One("aten::frobenius_norm.dim(Tensor self, int[1] dim, bool keepdim=False) -> Tensor", vectorNorm("")),
		call.One("aten::linalg_norm(Tensor self, Scalar? ord=None"+rest, linalgNorm),
		call.One("aten::linalg_norm.ord_str(Tensor self, str ord"+rest, matrixNorm),
		call.One("aten::linalg_matrix_norm(Tensor self, Scalar ord, int[] dim=[-2, -1], bool keepdim=False, *,"+
			" ScalarType? dtype=None) -> Tensor", matrixNorm),
		call.One("aten::linalg_matrix_norm.str_ord(Tensor self, str ord=\"fro\", int[] dim=[-2, -1], bool keepdim=False, *,"+
			" ScalarType? dtype=None) -> Tensor", matrixNorm),
	}
}

// vectorNorm takes the order from an argument; two where there is none.
func vectorNorm(order string) call.Meaning {
	return func(c *call.Call) (*cells.Ref, error) {
		ord := 2.0
		if order != "" {
			ord = c.OptFloat(order, 2)
		}
		r := c.Tensor("self")
		dims, keep := c.ReductionDims(r), c.Bool("keepdim")
		return vectorNormOf(c, r, ord, dims, keep)
	}
}

// vectorNormOf computes in argument "dtype", else in the tensor's.
func vectorNormOf(c *call.Call, r *cells.Ref, ord float64, dims []int, keep bool) (*cells.Ref, error) {
	d := c.DType("dtype", r.DType())
	if c.Err != nil {
		return nil, c.Err
	}
	r, err := c.Converted(r, d)
	if err != nil {
		return nil, err
	}
	return norm(c.Builder, r, ord, dims, keep, d)
}

// norm emits a vector norm.
func norm(b *cells.Builder, r *cells.Ref, ord float64, dims []int, keep bool, d tensor.DType) (*cells.Ref, error) {
	if math.IsInf(ord, 0) || ord < 0 {
		for _, k := range dims {
			if r.Shape()[k] == 0 {
				return nil, fmt.Errorf("a norm of order %v of nothing: %v", ord, r.Shape())
			}
		}
	}
	return b.Fold("norm", r, dims, keep, graph.Attrs{"ord": ord, "dtype": d})
}

func linalgNorm(c *call.Call) (*cells.Ref, error) {
	r := c.Tensor("self")
	switch {
	case !c.Has("ord"):
		return vectorNorm("")(c)
	case c.Has("dim") && len(c.Ints("dim")) == 2 || !c.Has("dim") && r.Rank() == 2:
		return matrixNorm(c)
	}
	return vectorNorm("ord")(c)
}

// matrixNorm knows the norms that need no singular values.
func matrixNorm(c *call.Call) (*cells.Ref, error) {
	r := c.Tensor("self")
	dims := c.Ints("dim")
	if len(dims) == 0 {
		dims = []int{-2, -1}
	}
	if c.Err != nil || len(dims) != 2 || r.Rank() < 2 {
		return nil, fmt.Errorf("a matrix norm of %v over %v", r.Shape(), dims)
	}
	rows, columns, keep := c.WrapDim(dims[0], r.Rank()), c.WrapDim(dims[1], r.Rank()), c.Bool("keepdim")
	ord, number := 0.0, true
	if name, ok := c.Args["ord"].(string); ok {
		if name == "fro" {
			return vectorNormOf(c, r, 2, c.WrapDims(r, dims), keep)
		}
		number = false
	} else {
		ord = c.Float("ord")
	}
	along, across := rows, columns
	switch math.Abs(ord) {
	case 1:
	case math.Inf(1):
		along, across = columns, rows
	default:
		number = false
	}
	if !number {
		return nil, &cells.UnsupportedError{
			What: fmt.Sprintf("the matrix norm %v, which needs singular values", c.Args["ord"]),
		}
	}
	sums, err := vectorNormOf(c, r, 1, []int{along}, true)
	if err != nil {
		return nil, err
	}
	kind := graph.Kind("amax")
	if ord < 0 {
		kind = "amin"
	}
	out, err := c.Fold(kind, sums, []int{across}, true, nil)
	if err != nil || keep {
		return out, err
	}
	return c.Squeeze(out, func(d int) bool { return d == rows || d == columns }), nil
}
