package graph

import (
	"fmt"

	"github.com/optimem/optimem/tensor"
)

// createOps make tensors from nothing, or keep a part of one.
var createOps = []OpDef{
	// arange: "start" + i × "step" for i < "size", in "dtype". The numbers are int for integers, else float64.
	{Kind: "arange", Shape: arangeShape, Axes: mixes},
	// linspace: "steps" numbers from "start" to "end", in "dtype".
	{Kind: "linspace", Shape: linspaceShape, Axes: mixes},
	// eye: one on the diagonal of "rows" × "columns" zeros, in "dtype".
	{Kind: "eye", Shape: eyeShape, FLOPs: noFLOPs, Axes: mixes},
	// tril and triu: In[0] with zeros above or below the diagonal number "diagonal" of its last two dimensions.
	{Kind: "tril", Shape: triangleShape, FLOPs: noFLOPs, Axes: stacks},
	{Kind: "triu", Shape: triangleShape, FLOPs: noFLOPs, Axes: stacks},
	// triangle_indices: the rows, then the columns, of the "size" places that "rows" × "columns" has on and below diagonal
	// "offset", or with "upper" on and above it; of "dtype" int64 or int32.
	{Kind: "triangle_indices", Shape: triangleIndicesShape, FLOPs: noFLOPs, Axes: mixes},
}

func noOperands(in []Spec) error {
	if len(in) != 0 {
		return fmt.Errorf("%d operands, not none", len(in))
	}
	return nil
}

// numberDType returns attribute "dtype" if numbers of it can be made.
func numberDType(a Attrs) (tensor.DType, error) {
	d := a.DType("dtype")
	if !isFloat(d) && !isInteger(d) {
		return d, fmt.Errorf("%w: %v", ErrDType, d)
	}
	return d, nil
}

func arangeShape(in []Spec, a Attrs) ([]Spec, error) {
	d, err := numberDType(a)
	if err != nil {
		return nil, err
	}
	if a.Int("size") < 0 {
		return nil, fmt.Errorf("%d elements", a.Int("size"))
	}
	return []Spec{{DType: d, Shape: tensor.Shape{a.Int("size")}}}, noOperands(in)
}

func linspaceShape(in []Spec, a Attrs) ([]Spec, error) {
	d, err := numberDType(a)
	if err != nil {
		return nil, err
	}
	if a.Int("steps") < 0 {
		return nil, fmt.Errorf("%d steps", a.Int("steps"))
	}
	return []Spec{{DType: d, Shape: tensor.Shape{a.Int("steps")}}}, noOperands(in)
}

func eyeShape(in []Spec, a Attrs) ([]Spec, error) {
	shape := tensor.Shape{a.Int("rows"), a.Int("columns")}
	if _, err := shape.NumElements(); err != nil {
		return nil, err
	}
	if d := a.DType("dtype"); isBool(d) {
		return []Spec{{DType: d, Shape: shape}}, noOperands(in)
	}
	d, err := numberDType(a)
	if err != nil {
		return nil, err
	}
	return []Spec{{DType: d, Shape: shape}}, noOperands(in)
}

func triangleShape(in []Spec, _ Attrs) ([]Spec, error) {
	if len(in) != 1 || len(in[0].Shape) < 2 {
		return nil, fmt.Errorf("%v: not a matrix", in)
	}
	return in, nil
}

func triangleIndicesShape(in []Spec, a Attrs) ([]Spec, error) {
	d := a.DType("dtype")
	if d != tensor.Int64 && d != tensor.Int32 {
		return nil, fmt.Errorf("%w: %v", ErrDType, d)
	}
	size, err := triangleSize(a.Int("rows"), a.Int("columns"), a.Int("offset"), a.Bool("upper"))
	if err != nil {
		return nil, err
	}
	return []Spec{{DType: d, Shape: tensor.Shape{2, size}}}, noOperands(in)
}

// triangleSize returns how many places a matrix has on and below a diagonal, or with upper on and above it.
func triangleSize(rows, columns, diagonal int, upper bool) (int, error) {
	all, err := tensor.Shape{rows, columns}.NumElements()
	if err != nil {
		return 0, err
	}
	diagonal = min(max(diagonal, -rows-1), columns+1)
	if upper {
		below, err := triangleSize(rows, columns, diagonal-1, false)
		return int(all) - below, err
	}
	// Row i keeps min(i + diagonal + 1, columns) places, if that is positive: first a ramp, then full rows.
	first := max(-diagonal, 0)
	full := min(max(columns-diagonal-1, first), rows)
	ramp := max(full-first, 0)
	low := first + diagonal + 1
	return ramp*low + ramp*(ramp-1)/2 + max(rows-max(full, first), 0)*columns, nil
}
