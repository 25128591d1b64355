package aten

import (
	"fmt"
	"math"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// reductionTargets are the ops that combine elements along dimensions.
var reductionTargets = slices.Concat(foldTargets, varianceTargets, vectorNormTargets(), scanTargets, distanceTargets,
	sortTargets, quantileTargets)

var foldTargets = []atenOp{
	op("aten::sum(Tensor self, *, ScalarType? dtype=None) -> Tensor", sumOf("sum")),
	op("aten::sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
		sumOf("sum")),
	op("aten::nansum(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
		sumOf("nansum")),
	op("aten::prod(Tensor self, *, ScalarType? dtype=None) -> Tensor", sumOf("prod")),
	op(
		"aten::prod.dim_int(Tensor self, int dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
		sumOf("prod"),
	),
	op("aten::mean(Tensor self, *, ScalarType? dtype=None) -> Tensor", meanOf),
	op("aten::mean.dim(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor", meanOf),
	op(
		"aten::nanmean(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
		nanMean,
	),
	op("aten::mse_loss(Tensor self, Tensor target, int reduction=1) -> Tensor", loss(func(c *call, d *Ref) (*Ref, error) {
		return c.combine("mul", nil, d, d)
	})),
	op("aten::l1_loss(Tensor self, Tensor target, int reduction=1) -> Tensor", loss(func(c *call, d *Ref) (*Ref, error) {
		return c.apply("abs", nil, d)
	})),
	op("aten::_is_all_true(Tensor self) -> Tensor", foldOf("all")),
	op("aten::_is_any_true(Tensor self) -> Tensor", foldOf("any")),
	op("aten::amax(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor", foldOf("amax")),
	op("aten::amin(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor", foldOf("amin")),
	op("aten::max(Tensor self) -> Tensor", foldOf("amax")),
	op("aten::min(Tensor self) -> Tensor", foldOf("amin")),
	{"aten::max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
		extremeAndIndex("amax", "argmax")},
	{"aten::min.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
		extremeAndIndex("amin", "argmin")},
	{"aten::aminmax(Tensor self, *, int? dim=None, bool keepdim=False) -> (Tensor min, Tensor max)",
		extremeAndIndex("amin", "amax")},
	op("aten::argmax(Tensor self, int? dim=None, bool keepdim=False) -> Tensor", argOf("argmax")),
	op("aten::argmin(Tensor self, int? dim=None, bool keepdim=False) -> Tensor", argOf("argmin")),
	op("aten::any(Tensor self) -> Tensor", foldOf("any")),
	op("aten::any.dim(Tensor self, int dim, bool keepdim=False) -> Tensor", foldOf("any")),
	op("aten::any.dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor", foldOf("any")),
	op("aten::all(Tensor self) -> Tensor", foldOf("all")),
	op("aten::all.dim(Tensor self, int dim, bool keepdim=False) -> Tensor", foldOf("all")),
	op("aten::all.dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor", foldOf("all")),
	op("aten::count_nonzero(Tensor self, int? dim=None) -> Tensor", foldOf("count_nonzero")),
	op("aten::count_nonzero.dim_IntList(Tensor self, int[] dim) -> Tensor", foldOf("count_nonzero")),
	op("aten::logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor", logSumExp),
	op("aten::special_logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor", logSumExp),
	op("aten::trace(Tensor self) -> Tensor", trace),
	op("aten::histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor", histc),
}

var varianceTargets = []atenOp{
	op("aten::var(Tensor self, bool unbiased=True) -> Tensor", variance("var")),
	op("aten::var.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> Tensor", variance("var")),
	op("aten::var.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor",
		variance("var")),
	op("aten::std(Tensor self, bool unbiased=True) -> Tensor", variance("std")),
	op("aten::std.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> Tensor", variance("std")),
	op("aten::std.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor",
		variance("std")),
	{"aten::var_mean(Tensor self, bool unbiased=True) -> (Tensor, Tensor)", varianceAndMean("var")},
	{"aten::var_mean.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> (Tensor, Tensor)",
		varianceAndMean("var")},
	{"aten::var_mean.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False)" +
		" -> (Tensor, Tensor)", varianceAndMean("var")},
	{"aten::std_mean(Tensor self, bool unbiased=True) -> (Tensor, Tensor)", varianceAndMean("std")},
	{"aten::std_mean.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> (Tensor, Tensor)",
		varianceAndMean("std")},
	{"aten::std_mean.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False)" +
		" -> (Tensor, Tensor)", varianceAndMean("std")},
}

// allDims returns the dimensions of a rank.
func allDims(rank int) []int {
	dims := make([]int, rank)
	for i := range dims {
		dims[i] = i
	}
	return dims
}

// wrapDims returns dimensions of r counted from the front, ascending.
func (c *call) wrapDims(r *Ref, dims []int) []int {
	out := make([]int, 0, len(dims))
	for _, d := range dims {
		out = append(out, c.wrapDim(d, r.rank()))
	}
	slices.Sort(out)
	if len(slices.Compact(slices.Clone(out))) < len(dims) {
		c.fail("dimensions %v twice", dims)
	}
	if r.rank() == 0 {
		return []int{}
	}
	return out
}

// reductionDims returns the dimensions in argument "dim"; none means all.
func (c *call) reductionDims(r *Ref) []int {
	if dims := c.ints("dim"); len(dims) > 0 {
		return c.wrapDims(r, dims)
	}
	return allDims(r.rank())
}

// fold emits a reduction along dims.
func (b *Builder) fold(kind graph.Kind, r *Ref, dims []int, keepdim bool, attrs graph.Attrs) (*Ref, error) {
	all := graph.Attrs{"dims": dims, "keepdim": keepdim}
	for name, v := range attrs {
		all[name] = v
	}
	return b.Emit1(kind, all, b.Read(r))
}

// foldOf is the meaning of a reduction that keeps the dtype or has its own.
func foldOf(kind graph.Kind) meaning {
	return func(c *call) (*Ref, error) {
		r := c.tensor("self")
		dims, keep := c.reductionDims(r), c.bool("keepdim")
		if c.err != nil {
			return nil, c.err
		}
		return c.fold(kind, r, dims, keep, nil)
	}
}

// converted returns r in the dtype that a reduction to dtype d starts from: what changes no element is left to the
// reduction.
func (b *Builder) converted(r *Ref, d tensor.DType) (*Ref, error) {
	switch {
	case isIntegral(r.dtype) && isIntegral(d), r.dtype.IsHalf() && (d == tensor.Float32 || d == tensor.Float64),
		r.dtype == tensor.Float32 && d == tensor.Float64:
		return r, nil
	}
	return b.Cast(r, d)
}

// wide returns the dtype that sums of a dtype have.
func wide(d tensor.DType) tensor.DType {
	if isIntegral(d) {
		return tensor.Int64
	}
	return d
}

func sumOf(kind graph.Kind) meaning {
	return func(c *call) (*Ref, error) {
		r := c.tensor("self")
		d := c.dtype("dtype", wide(r.dtype))
		dims, keep := c.reductionDims(r), c.bool("keepdim")
		if c.err != nil {
			return nil, c.err
		}
		r, err := c.converted(r, d)
		if err != nil {
			return nil, err
		}
		return c.fold(kind, r, dims, keep, graph.Attrs{"dtype": d})
	}
}

func meanOf(c *call) (*Ref, error) {
	r := c.tensor("self")
	d := c.dtype("dtype", r.dtype)
	dims, keep := c.reductionDims(r), c.bool("keepdim")
	if c.err != nil {
		return nil, c.err
	}
	r, err := c.converted(r, d)
	if err != nil {
		return nil, err
	}
	return c.fold("mean", r, dims, keep, graph.Attrs{"dtype": d})
}

// loss is the meaning of a function of the differences between "self" and "target", of which "reduction" makes the mean (1),
// the sum (2) or nothing.
func loss(f func(c *call, difference *Ref) (*Ref, error)) meaning {
	return func(c *call) (*Ref, error) {
		d, err := c.combine("sub", nil, c.tensor("self"), c.tensor("target"))
		if err != nil {
			return nil, err
		}
		if d, err = f(c, d); err != nil {
			return nil, err
		}
		kind, ok := map[int]graph.Kind{1: "mean", 2: "sum"}[c.int("reduction")]
		if !ok || c.err != nil {
			return d, c.err
		}
		return c.fold(kind, d, allDims(d.rank()), false, graph.Attrs{"dtype": d.dtype})
	}
}

// nanMean is the sum of what is not NaN over its number.
func nanMean(c *call) (*Ref, error) {
	total, err := sumOf("nansum")(c)
	if err != nil {
		return nil, err
	}
	r := c.tensor("self")
	present, err := c.apply("eq", nil, r, r)
	if err != nil {
		return nil, err
	}
	n, err := c.fold("sum", present, c.reductionDims(r), c.bool("keepdim"), graph.Attrs{"dtype": tensor.Int64})
	if err != nil {
		return nil, err
	}
	if n, err = c.Cast(n, total.dtype); err != nil {
		return nil, err
	}
	return c.apply("div", nil, total, n)
}

// extremeAndIndex gives the results of two reductions.
func extremeAndIndex(first, second graph.Kind) func(c *call) error {
	return func(c *call) error {
		x, err := foldOf(first)(c)
		if err != nil {
			return err
		}
		y, err := foldOf(second)(c)
		if err != nil {
			return err
		}
		c.set(x, y)
		return nil
	}
}

func argOf(kind graph.Kind) meaning {
	return func(c *call) (*Ref, error) {
		if c.has("dim") {
			return foldOf(kind)(c)
		}
		r := c.tensor("self")
		if c.err != nil {
			return nil, c.err
		}
		flat, err := c.Reshape(r, tensor.Shape{int(NumElements(r.shape()))})
		if err != nil {
			return nil, err
		}
		at, err := c.fold(kind, flat, []int{0}, false, nil)
		if err != nil || !c.bool("keepdim") {
			return at, err
		}
		return c.Reshape(at, slices.Repeat(tensor.Shape{1}, r.rank()))
	}
}

// asFloat returns r as a float tensor, of the default dtype where it is integral.
func (b *Builder) asFloat(r *Ref) (*Ref, error) { return b.Cast(r, floatResult(r.dtype)) }

func logSumExp(c *call) (*Ref, error) {
	r, err := c.asFloat(c.tensor("self"))
	if err != nil {
		return nil, err
	}
	dims, keep := c.reductionDims(r), c.bool("keepdim")
	if c.err != nil {
		return nil, c.err
	}
	return c.fold("logsumexp", r, dims, keep, nil)
}

func trace(c *call) (*Ref, error) {
	r := c.tensor("self")
	if c.err != nil {
		return nil, c.err
	}
	if r.rank() != 2 {
		return nil, fmt.Errorf("trace of %v", r.shape())
	}
	l := tensor.Layout{
		Shape:   tensor.Shape{min(r.shape()[0], r.shape()[1])},
		Strides: []int{r.layout.Strides[0] + r.layout.Strides[1]},
		Offset:  r.layout.Offset,
	}
	return c.fold("sum", c.view(r, l), []int{0}, false, graph.Attrs{"dtype": wide(r.dtype)})
}

func histc(c *call) (*Ref, error) {
	r := c.tensor("self")
	attrs := graph.Attrs{"bins": c.int("bins"), "min": c.float("min"), "max": c.float("max")}
	if c.err != nil {
		return nil, c.err
	}
	return c.Emit1("histc", attrs, c.Read(r))
}

// correction returns what is taken from the number of elements: an argument of its own, or one unless "unbiased" is
// false.
func (c *call) correction() float64 {
	if c.schema.has("correction") {
		return c.optFloat("correction", 1)
	}
	if c.bool("unbiased") {
		return 1
	}
	return 0
}

// has reports whether the schema has a parameter.
func (s schema) has(name string) bool {
	return slices.ContainsFunc(s.params, func(p param) bool { return p.name == name })
}

func variance(kind graph.Kind) meaning {
	return func(c *call) (*Ref, error) {
		r := c.tensor("self")
		dims, keep, correction := c.reductionDims(r), c.bool("keepdim"), c.correction()
		if c.err != nil {
			return nil, c.err
		}
		return c.fold(kind, r, dims, keep, graph.Attrs{"correction": correction})
	}
}

func varianceAndMean(kind graph.Kind) func(c *call) error {
	return func(c *call) error {
		v, err := variance(kind)(c)
		if err != nil {
			return err
		}
		m, err := c.fold("mean", c.tensor("self"), c.reductionDims(c.tensor("self")), c.bool("keepdim"),
			graph.Attrs{"dtype": c.tensor("self").dtype})
		if err != nil {
			return err
		}
		c.set(v, m)
		return nil
	}
}

func vectorNormTargets() []atenOp {
	const rest = ", int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor"
	return []atenOp{
		op("aten::linalg_vector_norm(Tensor self, Scalar ord=2"+rest, vectorNorm("ord")),
		op("aten::norm.Scalar(Tensor self, Scalar p=2) -> Tensor", vectorNorm("p")),
		op(
			"aten::norm.ScalarOpt_dim(Tensor self, Scalar? p, int[1] dim, bool keepdim=False) -> Tensor",
			vectorNorm("p"),
		),
		op("aten::norm.ScalarOpt_dim_dtype(Tensor self, Scalar? p, int[1] dim, bool keepdim, *, ScalarType dtype) -> Tensor",
			vectorNorm("p")),
		op("aten::norm.ScalarOpt_dtype(Tensor self, Scalar? p, *, ScalarType dtype) -> Tensor", vectorNorm("p")),
		op("aten::frobenius_norm.dim(Tensor self, int[1] dim, bool keepdim=False) -> Tensor", vectorNorm("")),
		op("aten::linalg_norm(Tensor self, Scalar? ord=None"+rest, linalgNorm),
		op("aten::linalg_norm.ord_str(Tensor self, str ord"+rest, matrixNorm),
		op("aten::linalg_matrix_norm(Tensor self, Scalar ord, int[] dim=[-2, -1], bool keepdim=False, *,"+
			" ScalarType? dtype=None) -> Tensor", matrixNorm),
		op("aten::linalg_matrix_norm.str_ord(Tensor self, str ord=\"fro\", int[] dim=[-2, -1], bool keepdim=False, *,"+
			" ScalarType? dtype=None) -> Tensor", matrixNorm),
	}
}

// vectorNorm takes the order from an argument; two where there is none.
func vectorNorm(order string) meaning {
	return func(c *call) (*Ref, error) {
		ord := 2.0
		if order != "" {
			ord = c.optFloat(order, 2)
		}
		r := c.tensor("self")
		dims, keep := c.reductionDims(r), c.bool("keepdim")
		return c.vectorNorm(r, ord, dims, keep)
	}
}

// vectorNorm computes in argument "dtype", else in the tensor's.
func (c *call) vectorNorm(r *Ref, ord float64, dims []int, keep bool) (*Ref, error) {
	d := c.dtype("dtype", r.dtype)
	if c.err != nil {
		return nil, c.err
	}
	r, err := c.converted(r, d)
	if err != nil {
		return nil, err
	}
	return c.norm(r, ord, dims, keep, d)
}

// norm emits a vector norm.
func (b *Builder) norm(r *Ref, ord float64, dims []int, keep bool, d tensor.DType) (*Ref, error) {
	if math.IsInf(ord, 0) || ord < 0 {
		for _, k := range dims {
			if r.shape()[k] == 0 {
				return nil, fmt.Errorf("a norm of order %v of nothing: %v", ord, r.shape())
			}
		}
	}
	return b.fold("norm", r, dims, keep, graph.Attrs{"ord": ord, "dtype": d})
}

func linalgNorm(c *call) (*Ref, error) {
	r := c.tensor("self")
	switch {
	case !c.has("ord"):
		return vectorNorm("")(c)
	case c.has("dim") && len(c.ints("dim")) == 2 || !c.has("dim") && r.rank() == 2:
		return matrixNorm(c)
	}
	return vectorNorm("ord")(c)
}

// matrixNorm knows the norms that need no singular values.
func matrixNorm(c *call) (*Ref, error) {
	r := c.tensor("self")
	dims := c.ints("dim")
	if len(dims) == 0 {
		dims = []int{-2, -1}
	}
	if c.err != nil || len(dims) != 2 || r.rank() < 2 {
		return nil, fmt.Errorf("a matrix norm of %v over %v", r.shape(), dims)
	}
	rows, columns, keep := c.wrapDim(dims[0], r.rank()), c.wrapDim(dims[1], r.rank()), c.bool("keepdim")
	ord, number := 0.0, true
	if name, ok := c.args["ord"].(string); ok {
		if name == "fro" {
			return c.vectorNorm(r, 2, c.wrapDims(r, dims), keep)
		}
		number = false
	} else {
		ord = c.float("ord")
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
		return nil, &UnsupportedError{
			What: fmt.Sprintf("the matrix norm %v, which needs singular values", c.args["ord"]),
		}
	}
	sums, err := c.vectorNorm(r, 1, []int{along}, true)
	if err != nil {
		return nil, err
	}
	kind := graph.Kind("amax")
	if ord < 0 {
		kind = "amin"
	}
	out, err := c.fold(kind, sums, []int{across}, true, nil)
	if err != nil || keep {
		return out, err
	}
	return c.squeeze(out, func(d int) bool { return d == rows || d == columns }), nil
}
