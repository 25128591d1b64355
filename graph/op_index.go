package graph

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/tensor"
)

// Index ops choose elements by int32 or int64 indices. An index outside its dimension fails while running; negative
// ones count from the end only where the op says so.
var indexOps = []OpDef{
	// embedding: the rows of In[0] [N …] that In[1] names.
	{Kind: "embedding", Shape: embeddingShape, FLOPs: noFLOPs, Bytes: pickedBytes, Axes: embeddingAxes},
	// embedding_rows: the rows that In[1] names, where they are among the rows In[0] from "low" on of a table of "size"
	// rows; In[2], which may be absent, elsewhere. What is elsewhere without In[2] is zero.
	{Kind: "embedding_rows", Shape: embeddingRowsShape, FLOPs: noFLOPs, Bytes: pickedBytes, Axes: embeddingRowsAxes},
	// index: In[0] with its dimensions from "dim" on, one for each further operand, replaced by the dimensions that these
	// index tensors share. With "wrap", negative indices count from the end.
	{Kind: "index", Shape: indexShape, FLOPs: noFLOPs, Bytes: pickedBytes, Axes: indexAxes},
	// index_put: In[0] where the elements that "index" would give are replaced by those of In[1], or increased with
	// "accumulate"; of several values for one element the last counts.
	{Kind: "index_put", Shape: indexPutShape, Axes: indexPutAxes},
	// gather: out[i, j, …] = In[0][i, In[1][i, j, …], …] where the index stands at dimension "dim".
	{Kind: "gather", Shape: gatherShape, FLOPs: noFLOPs, Bytes: pickedBytes, Axes: gatherAxes},
	// scatter: In[0] with elements combined with those of In[2] at the places where gather would find them. Attribute
	// "reduce": "" replaces, else "sum", "prod", "mean", "amax" or "amin"; without "include_self" what In[0] held does not
	// count where something comes.
	{Kind: "scatter", Shape: scatterShape, Axes: scatterAxes},
	// masked_scatter: In[0] with the elements where In[1] is true replaced by those of In[2], in order.
	{Kind: "masked_scatter", Shape: maskedScatterShape, FLOPs: noFLOPs, Axes: mixes},
	// embedding_bag: sums (means, largest: "mode" 0, 1, 2) of rows of In[0] [N D] named by In[1] [K] and weighted by In[3]
	// [K], in bags that begin at In[2]; with "include_last_offset" In[2] says where the last ends too. Index "padding"
	// does not count.
	{Kind: "embedding_bag", Shape: embeddingBagShape, FLOPs: embeddingBagFLOPs, Axes: embeddingBagAxes},
	// searchsorted: where each element of In[1] goes in the last dimension of In[0], which is sorted, or sorted when taken
	// in the order of In[2]: before equal ones, with "right" after them. int64, with "int32" int32.
	{Kind: "searchsorted", Shape: searchShape, Axes: searchAxes},
	// repeat_indices: index i as often as In[0] [N] says, "size" int64 in all.
	{Kind: "repeat_indices", Shape: repeatIndicesShape, FLOPs: noFLOPs, Axes: mixes},
	// nonzero: the int64 indices of the first "size" elements that are not zero, one per row; the rest is "fill".
	{Kind: "nonzero", Shape: nonzeroShape, FLOPs: noFLOPs, Axes: mixes},
	// cat: the operands one after the other along dimension "dim".
	{Kind: "cat", Shape: catShape, FLOPs: noFLOPs, Axes: samePlace},
	// flip: dimensions "dims" backwards. roll: dimensions "dims" turned by "shifts", from the end to the front.
	{Kind: "flip", Shape: flipShape, FLOPs: noFLOPs, Axes: flipAxes},
	{Kind: "roll", Shape: rollShape, FLOPs: noFLOPs, Axes: rollAxes},
}

// pickedBytes counts of a table, which is the first operand, what is picked from it.
func pickedBytes(in, out []Spec) int64 {
	if len(in) == 0 {
		return 0
	}
	return movedBytes(in[1:]) + 2*movedBytes(out)
}

func isIndex(d tensor.DType) bool { return d == tensor.Int64 || d == tensor.Int32 }

func embeddingShape(in []Spec, _ Attrs) ([]Spec, error) {
	if err := wantOperands(in, 2, 2); err != nil {
		return nil, err
	}
	if len(in[0].Shape) < 1 || !isIndex(in[1].DType) {
		return nil, mismatch(in)
	}
	return []Spec{{DType: in[0].DType, Shape: slices.Concat(in[1].Shape, in[0].Shape[1:])}}, nil
}

func embeddingRowsShape(in []Spec, a Attrs) ([]Spec, error) {
	if err := wantOperands(in, 2, 3); err != nil {
		return nil, err
	}
	out, err := embeddingShape(in[:2], a)
	if err != nil {
		return nil, err
	}
	if low, size := a.Int("low"), a.Int("size"); low < 0 || in[0].Shape[0] > size-low {
		return nil, fmt.Errorf("%d rows from %d on of a table of %d", in[0].Shape[0], low, size)
	}
	if given(in, 2) && (in[2].DType != out[0].DType || !in[2].Shape.Equal(out[0].Shape)) {
		return nil, mismatch(in)
	}
	return out, nil
}

// indexed returns the shape that indexing with index tensors gives.
func indexed(x Spec, index []Spec, d int) (tensor.Shape, error) {
	if len(index) == 0 || d < 0 || d > len(x.Shape)-len(index) {
		return nil, fmt.Errorf("%d indices from dimension %d of %v", len(index), d, x.Shape)
	}
	for _, s := range index {
		if !isIndex(s.DType) || !s.Shape.Equal(index[0].Shape) {
			return nil, mismatch(index)
		}
	}
	return slices.Concat(x.Shape[:d], index[0].Shape, x.Shape[d+len(index):]), nil
}

func indexShape(in []Spec, a Attrs) ([]Spec, error) {
	if err := wantOperands(in, 2, max(len(in), 2)); err != nil {
		return nil, err
	}
	s, err := indexed(in[0], in[1:], a.Int("dim"))
	return []Spec{{DType: in[0].DType, Shape: s}}, err
}

func indexPutShape(in []Spec, a Attrs) ([]Spec, error) {
	if err := wantOperands(in, 3, max(len(in), 3)); err != nil {
		return nil, err
	}
	s, err := indexed(in[0], in[2:], a.Int("dim"))
	if err != nil {
		return nil, err
	}
	if in[0].DType != in[1].DType || !s.Equal(in[1].Shape) {
		return nil, mismatch(in)
	}
	if a.Bool("accumulate") {
		if err := wantClass(in[0], isFloat, isInteger, isBool); err != nil {
			return nil, err
		}
	}
	return in[:1], nil
}

// wantInside returns an error unless index, and what is scattered, reaches nowhere beyond x but along dimension d.
func wantInside(in []Spec, d int) error {
	x, index := in[0].Shape, in[1].Shape
	if !isIndex(in[1].DType) || len(x) != len(index) || d < 0 || d >= max(len(x), 1) {
		return mismatch(in)
	}
	for i, n := range index {
		if i != d && n > x[i] && !slices.Contains(index, 0) {
			return mismatch(in)
		}
	}
	return nil
}

func gatherShape(in []Spec, a Attrs) ([]Spec, error) {
	if err := wantOperands(in, 2, 2); err != nil {
		return nil, err
	}
	return []Spec{{DType: in[0].DType, Shape: in[1].Shape}}, wantInside(in, a.Int("dim"))
}

func scatterShape(in []Spec, a Attrs) ([]Spec, error) {
	if err := wantOperands(in, 3, 3); err != nil {
		return nil, err
	}
	if err := wantInside(in, a.Int("dim")); err != nil {
		return nil, err
	}
	if in[0].DType != in[2].DType || !in[1].Shape.Equal(in[2].Shape) {
		return nil, mismatch(in)
	}
	switch a.String("reduce") {
	case "":
		return in[:1], nil
	case "sum", "prod", "mean", "amax", "amin":
		return in[:1], wantClass(in[0], isFloat, isInteger, isBool)
	}
	return nil, fmt.Errorf("reduce %q", a.String("reduce"))
}

func maskedScatterShape(in []Spec, _ Attrs) ([]Spec, error) {
	if err := wantOperands(in, 3, 3); err != nil {
		return nil, err
	}
	if in[0].DType != in[2].DType || !isBool(in[1].DType) || !in[0].Shape.Equal(in[1].Shape) {
		return nil, mismatch(in)
	}
	return in[:1], nil
}

func embeddingBagShape(in []Spec, a Attrs) ([]Spec, error) {
	if err := wantOperands(in, 3, 4); err != nil {
		return nil, err
	}
	weight, index, offsets := in[0], in[1], in[2]
	mode := a.Int("mode")
	bags := 0
	if len(offsets.Shape) == 1 {
		bags = offsets.Shape[0]
		if a.Bool("include_last_offset") {
			bags--
		}
	}
	switch {
	case len(weight.Shape) != 2 || len(index.Shape) != 1 || len(offsets.Shape) != 1 || bags < 0 ||
		!isIndex(index.DType) || !isIndex(offsets.DType):
		return nil, mismatch(in)
	case mode < 0 || mode > 2 || mode != 0 && given(in, 3):
		return nil, fmt.Errorf("mode %d, weighted: %v", mode, given(in, 3))
	case given(in, 3) && (in[3].DType != weight.DType || !in[3].Shape.Equal(index.Shape)):
		return nil, mismatch(in)
	}
	return []Spec{{DType: weight.DType, Shape: tensor.Shape{bags, weight.Shape[1]}}}, wantClass(weight, isFloat)
}

func embeddingBagFLOPs(in, out []Spec, _ Attrs) int64 {
	return product(2, Elements(in[1].Shape), int64(out[0].Shape[1]))
}

func searchShape(in []Spec, a Attrs) ([]Spec, error) {
	if err := wantOperands(in, 2, 3); err != nil {
		return nil, err
	}
	sorted, x := in[0].Shape, in[1].Shape
	n := len(sorted) - 1
	switch {
	case n < 0 || in[0].DType != in[1].DType:
		return nil, mismatch(in)
	case n > 0 && (len(x) != len(sorted) || !slices.Equal(x[:n], sorted[:n])):
		return nil, mismatch(in)
	case given(in, 2) && (in[2].DType != tensor.Int64 || !in[2].Shape.Equal(sorted)):
		return nil, mismatch(in)
	}
	d := tensor.Int64
	if a.Bool("int32") {
		d = tensor.Int32
	}
	return []Spec{{DType: d, Shape: x}}, wantClass(in[0], isFloat, isInteger)
}

func repeatIndicesShape(in []Spec, a Attrs) ([]Spec, error) {
	if err := wantOperands(in, 1, 1); err != nil {
		return nil, err
	}
	if len(in[0].Shape) != 1 || !isIndex(in[0].DType) {
		return nil, mismatch(in)
	}
	return []Spec{{DType: tensor.Int64, Shape: tensor.Shape{a.Int("size")}}}, nil
}

func nonzeroShape(in []Spec, a Attrs) ([]Spec, error) {
	if err := wantOperands(in, 1, 1); err != nil {
		return nil, err
	}
	s := tensor.Shape{a.Int("size"), len(in[0].Shape)}
	return []Spec{{DType: tensor.Int64, Shape: s}}, wantClass(in[0], isFloat, isInteger, isBool)
}

func catShape(in []Spec, a Attrs) ([]Spec, error) {
	if err := wantOperands(in, 1, max(len(in), 1)); err != nil {
		return nil, err
	}
	d := a.Int("dim")
	if d < 0 || d >= len(in[0].Shape) {
		return nil, fmt.Errorf("dimension %d of %v", d, in[0].Shape)
	}
	out := slices.Clone(in[0].Shape)
	out[d] = 0
	for _, s := range in {
		if s.DType != in[0].DType || len(s.Shape) != len(out) {
			return nil, mismatch(in)
		}
		for i, n := range s.Shape {
			if i != d && n != out[i] {
				return nil, mismatch(in)
			}
		}
		if out[d] += s.Shape[d]; out[d] < 0 {
			return nil, fmt.Errorf("dimension %d is too large", d)
		}
	}
	return []Spec{{DType: in[0].DType, Shape: out}}, nil
}

func flipShape(in []Spec, a Attrs) ([]Spec, error) {
	if err := wantOperands(in, 1, 1); err != nil {
		return nil, err
	}
	seen := make(map[int]bool)
	for _, d := range a.Ints("dims") {
		if d < 0 || d >= len(in[0].Shape) || seen[d] {
			return nil, fmt.Errorf("dimensions %v of %v", a.Ints("dims"), in[0].Shape)
		}
		seen[d] = true
	}
	return in, nil
}

func rollShape(in []Spec, a Attrs) ([]Spec, error) {
	if len(a.Ints("dims")) != len(a.Ints("shifts")) {
		return nil, fmt.Errorf("shifts %v of dimensions %v", a.Ints("shifts"), a.Ints("dims"))
	}
	return flipShape(in, a)
}
