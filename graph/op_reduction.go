package graph

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/tensor"
)

// Reductions combine the elements along the dimensions of attribute "dims", which are counted from the front, different
// and ascending; with "keepdim" these dimensions stay with size one. An empty list combines nothing: each element is a
// result of its own.
var reductionOps = []OpDef{
	// sum, prod: in dtype "dtype". nansum: without the elements that are NaN.
	{Kind: "sum", Shape: sumShape, FLOPs: reductionFLOPs(1), Axes: reducedAxes},
	{Kind: "nansum", Shape: sumShape, FLOPs: reductionFLOPs(1), Axes: reducedAxes},
	{Kind: "prod", Shape: sumShape, FLOPs: reductionFLOPs(1), Axes: reducedAxes},
	// mean: floats only, in dtype "dtype".
	{Kind: "mean", Shape: meanShape, FLOPs: reductionFLOPs(1), Axes: reducedAxes},
	// amax, amin: the largest and smallest, NaN where there is a NaN.
	{Kind: "amax", Shape: extremeShape, FLOPs: reductionFLOPs(1), Axes: reducedAxes},
	{Kind: "amin", Shape: extremeShape, FLOPs: reductionFLOPs(1), Axes: reducedAxes},
	// any, all: whether an element, or each, is not zero; bool, and uint8 for uint8. count_nonzero: how many are not.
	{Kind: "any", Shape: truthShape, FLOPs: reductionFLOPs(1), Axes: reducedAxes},
	{Kind: "all", Shape: truthShape, FLOPs: reductionFLOPs(1), Axes: reducedAxes},
	{Kind: "count_nonzero", Shape: countShape, FLOPs: reductionFLOPs(1), Axes: reducedAxes},
	// norm: the vector norm of order "ord", which may be 0, negative and infinite, in dtype "dtype".
	{Kind: "norm", Shape: meanShape, FLOPs: reductionFLOPs(2), Axes: reducedAxes},
	// var, std: sum of (x − mean)² ÷ max(n − "correction", 0), and its root.
	{Kind: "var", Shape: floatReductionShape, FLOPs: reductionFLOPs(4), Axes: reducedAxes},
	{Kind: "std", Shape: floatReductionShape, FLOPs: reductionFLOPs(4), Axes: reducedAxes},
	// logsumexp: log of the sum of exponentials, without overflow.
	{Kind: "logsumexp", Shape: floatReductionShape, FLOPs: reductionFLOPs(12), Axes: reducedAxes},
	// argmax, argmin: the int64 index along the one dimension of the largest or smallest, the first of equals; NaN is
	// both.
	{Kind: "argmax", Shape: argShape, FLOPs: reductionFLOPs(1), Axes: reducedAxes},
	{Kind: "argmin", Shape: argShape, FLOPs: reductionFLOPs(1), Axes: reducedAxes},
	// cumsum, cumprod, logcumsumexp: of the elements up to each, along dimension "dim".
	{Kind: "cumsum", Shape: scanShape(isFloat, isInteger), Axes: otherDims},
	{Kind: "cumprod", Shape: scanShape(isFloat, isInteger), Axes: otherDims},
	{Kind: "logcumsumexp", Shape: scanShape(isFloat), Axes: otherDims},
	// cummax, cummin: the extreme up to each element and its int64 index, the last of equals.
	{Kind: "cummax", Shape: cumulativeExtremeShape, Axes: otherDims},
	{Kind: "cummin", Shape: cumulativeExtremeShape, Axes: otherDims},
	// softmax: exp(x) ÷ sum of exp(x) along dimension "dim"; with "safe", zero where all are −inf. log_softmax: its log.
	{Kind: "softmax", Shape: softmaxShape, FLOPs: reductionFLOPs(14), Axes: otherDims},
	{Kind: "log_softmax", Shape: softmaxShape, FLOPs: reductionFLOPs(14), Axes: otherDims},
	// histc: how many elements fall into each of "bins" equal parts of "min" to "max" (both equal: of the elements'
	// range).
	{Kind: "histc", Shape: histcShape, FLOPs: reductionFLOPs(3), Axes: mixes},
	// cdist: the distance of order "p" between each row of In[0] [… M K] and each of In[1] [… N K].
	{Kind: "cdist", Shape: cdistShape, FLOPs: cdistFLOPs, Axes: cdistAxes},
}

// reductionFLOPs counts n operations for each element of the first operand.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func reductionFLOPs(n int64) func(in, out []Spec, a Attrs) int64 {
	return func(in, _ []Spec, _ Attrs) int64 { return product(n, Elements(in[0].Shape)) }
}

// reduced returns the shape that is left of a shape.
func reduced(s tensor.Shape, a Attrs) (tensor.Shape, error) {
	dims, keep := a.Ints("dims"), a.Bool("keepdim")
	for i, d := range dims {
		if d < 0 || d >= len(s) || i > 0 && d <= dims[i-1] {
			return nil, fmt.Errorf("dimensions %v of %v", dims, s)
		}
	}
	out := tensor.Shape{}
	for d, n := range s {
		switch {
		case !slices.Contains(dims, d):
			out = append(out, n)
		case keep:
			out = append(out, 1)
		}
	}
	return out, nil
}

// reductionShape returns the result of a reduction of one operand of the given classes.
func reductionShape(in []Spec, a Attrs, d tensor.DType, classes ...func(tensor.DType) bool) ([]Spec, error) {
	if err := wantOperands(in, 1, 1); err != nil {
		return nil, err
	}
	if err := wantClass(in[0], classes...); err != nil {
		return nil, err
	}
	s, err := reduced(in[0].Shape, a)
	if err != nil {
		return nil, err
	}
	return []Spec{{DType: d, Shape: s}}, nil
}

// wantClass returns an error unless the dtype is of one of the classes.
func wantClass(s Spec, classes ...func(tensor.DType) bool) error {
	for _, is := range classes {
		if is(s.DType) {
			return nil
		}
	}
	return fmt.Errorf("%w: %v %v", ErrDType, s.DType, s.Shape)
}

// sumShape: floats give floats; integers and bool give integers.
func sumShape(in []Spec, a Attrs) ([]Spec, error) {
	d := a.DType("dtype")
	out, err := reductionShape(in, a, d, isFloat, isInteger, isBool)
	if err == nil && (isFloat(in[0].DType) != isFloat(d) || !isFloat(d) && !isInteger(d)) {
		return nil, fmt.Errorf("a sum of %v in %v", in[0].DType, d)
	}
	return out, err
}

func meanShape(in []Spec, a Attrs) ([]Spec, error) {
	d := a.DType("dtype")
	if !isFloat(d) {
		return nil, fmt.Errorf("a mean in %v", d)
	}
	return reductionShape(in, a, d, isFloat)
}

func extremeShape(in []Spec, a Attrs) ([]Spec, error) {
	if err := wantOperands(in, 1, 1); err != nil {
		return nil, err
	}
	if err := wantElements(in[0].Shape, a.Ints("dims")); err != nil {
		return nil, err
	}
	return reductionShape(in, a, in[0].DType, isFloat, isInteger, isBool)
}

// wantElements returns an error for a reduction over nothing that has no neutral element, as PyTorch does.
func wantElements(s tensor.Shape, dims []int) error {
	if !slices.Contains(s, 0) {
		return nil
	}
	for _, d := range dims {
		if d >= 0 && d < len(s) && s[d] == 0 {
			return fmt.Errorf("nothing to choose from along dimension %d of %v", d, s)
		}
	}
	return nil
}

func truthShape(in []Spec, a Attrs) ([]Spec, error) {
	if err := wantOperands(in, 1, 1); err != nil {
		return nil, err
	}
	d := tensor.Bool
	if in[0].DType == tensor.UInt8 {
		d = tensor.UInt8
	}
	return reductionShape(in, a, d, isFloat, isInteger, isBool)
}

func countShape(in []Spec, a Attrs) ([]Spec, error) {
	return reductionShape(in, a, tensor.Int64, isFloat, isInteger, isBool)
}

func floatReductionShape(in []Spec, a Attrs) ([]Spec, error) {
	if err := wantOperands(in, 1, 1); err != nil {
		return nil, err
	}
	return reductionShape(in, a, in[0].DType, isFloat)
}

func argShape(in []Spec, a Attrs) ([]Spec, error) {
	if err := wantOperands(in, 1, 1); err != nil {
		return nil, err
	}
	dims := a.Ints("dims")
	if len(dims) > 1 || len(dims) == 0 && len(in[0].Shape) > 0 {
		return nil, fmt.Errorf("index along dimensions %v of %v", dims, in[0].Shape)
	}
	if err := wantElements(in[0].Shape, dims); err != nil {
		return nil, err
	}
	return reductionShape(in, a, tensor.Int64, isFloat, isInteger, isBool)
}

// alongShape checks the attribute "dim" of ops that work along one dimension; a scalar counts as having one.
func alongShape(in []Spec, a Attrs, classes ...func(tensor.DType) bool) error {
	if err := wantOperands(in, 1, 1); err != nil {
		return err
	}
	if d := a.Int("dim"); d < 0 || d >= max(len(in[0].Shape), 1) {
		return fmt.Errorf("dimension %d of %v", d, in[0].Shape)
	}
	return wantClass(in[0], classes...)
}

func scanShape(classes ...func(tensor.DType) bool) func(in []Spec, a Attrs) ([]Spec, error) {
	return func(in []Spec, a Attrs) ([]Spec, error) {
		if err := alongShape(in, a, classes...); err != nil {
			return nil, err
		}
		return []Spec{in[0]}, nil
	}
}

func cumulativeExtremeShape(in []Spec, a Attrs) ([]Spec, error) {
	if err := alongShape(in, a, isFloat, isInteger, isBool); err != nil {
		return nil, err
	}
	return []Spec{in[0], {DType: tensor.Int64, Shape: in[0].Shape}}, nil
}

func softmaxShape(in []Spec, a Attrs) ([]Spec, error) {
	if err := alongShape(in, a, isFloat); err != nil {
		return nil, err
	}
	return []Spec{in[0]}, nil
}

func histcShape(in []Spec, a Attrs) ([]Spec, error) {
	if err := wantOperands(in, 1, 1); err != nil {
		return nil, err
	}
	low, high := a.Float("min"), a.Float("max")
	if a.Int("bins") < 1 || !(low <= high) {
		return nil, fmt.Errorf("%d bins from %v to %v", a.Int("bins"), low, high)
	}
	return []Spec{{DType: in[0].DType, Shape: tensor.Shape{a.Int("bins")}}}, wantClass(in[0], isFloat, isInteger)
}

func cdistShape(in []Spec, a Attrs) ([]Spec, error) {
	if err := wantOperands(in, 2, 2); err != nil {
		return nil, err
	}
	x, y := in[0].Shape, in[1].Shape
	n := len(x)
	if in[0].DType != in[1].DType || n < 2 || len(y) != n || !slices.Equal(x[:n-2], y[:n-2]) || x[n-1] != y[n-1] {
		return nil, mismatch(in)
	}
	if !(a.Float("p") >= 0) {
		return nil, fmt.Errorf("a distance of order %v", a.Float("p"))
	}
	out := slices.Clone(x)
	out[n-1] = y[n-2]
	return []Spec{{DType: in[0].DType, Shape: out}}, wantClass(in[0], isFloat)
}

func cdistFLOPs(in, out []Spec, _ Attrs) int64 {
	return product(3, Elements(out[0].Shape), int64(in[0].Shape[len(in[0].Shape)-1]))
}
