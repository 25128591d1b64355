package graph

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/tensor"
)

// Sorting ops order elements along dimension "dim" and give values and int64 indices. NaN is the largest, equal
// elements keep their order.
var sortOps = []OpDef{
	// sort: with "descending" the largest first.
	{Kind: "sort", Shape: sortShape, FLOPs: reductionFLOPs(10), Axes: otherDims},
	// topk: the first "k" of sort; with "largest" in descending order.
	{Kind: "topk", Shape: topkShape, FLOPs: reductionFLOPs(2), Axes: otherDims},
	// kthvalue: the "k"-th smallest, from one.
	{Kind: "kthvalue", Shape: kthShape, FLOPs: reductionFLOPs(10), Axes: chosenAxes},
	// median: the middle one, the lower of two. A NaN is the median, with "ignore_nan" only of nothing else.
	{Kind: "median", Shape: medianShape, FLOPs: reductionFLOPs(10), Axes: chosenAxes},
	// mode: the most frequent one, the smallest of several, and its last index.
	{Kind: "mode", Shape: medianShape, FLOPs: reductionFLOPs(10), Axes: chosenAxes},
}

func sortShape(in []Spec, a Attrs) ([]Spec, error) {
	if err := alongShape(in, a, isFloat, isInteger, isBool); err != nil {
		return nil, err
	}
	return []Spec{in[0], {DType: tensor.Int64, Shape: in[0].Shape}}, nil
}

func topkShape(in []Spec, a Attrs) ([]Spec, error) {
	out, err := sortShape(in, a)
	if err != nil {
		return nil, err
	}
	k, d := a.Int("k"), a.Int("dim")
	s := slices.Clone(in[0].Shape)
	if len(s) == 0 {
		if k < 0 || k > 1 {
			return nil, fmt.Errorf("%d of one element", k)
		}
		return out, nil
	}
	if k < 0 || k > s[d] {
		return nil, fmt.Errorf("%d of dimension %d of %v", k, d, s)
	}
	s[d] = k
	out[0].Shape, out[1].Shape = s, s
	return out, nil
}

func kthShape(in []Spec, a Attrs) ([]Spec, error) {
	out, err := medianShape(in, a)
	if err != nil {
		return nil, err
	}
	n, k := 1, a.Int("k")
	if len(in[0].Shape) > 0 {
		n = in[0].Shape[a.Int("dim")]
	}
	if k < 1 || k > n {
		return nil, fmt.Errorf("number %d of dimension %d of %v", k, a.Int("dim"), in[0].Shape)
	}
	return out, nil
}

func medianShape(in []Spec, a Attrs) ([]Spec, error) {
	out, err := sortShape(in, a)
	if err != nil || len(in[0].Shape) == 0 {
		return out, err
	}
	d := a.Int("dim")
	if err := wantElements(in[0].Shape, []int{d}); err != nil {
		return nil, err
	}
	s, err := reduced(in[0].Shape, Attrs{"dims": []int{d}, "keepdim": a.Bool("keepdim")})
	out[0].Shape, out[1].Shape = s, s
	return out, err
}
