package graph

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/optimem/optimem/tensor"
)

// linearOps are products of matrices.
var linearOps = []OpDef{
	// linear: In[0] [… K] · In[1]ᵀ [N K] + In[2] [N], which may be absent; then its epilogue. In[1] and In[2] have In[0]'s
	// dtype, or may be half floats beside float32, which [FoldCasts] makes. With In[4] [N], the scales, In[1] is int8 and In[0]
	// no double: sums are taken times the scale of their row of In[1] before In[2] is added. Scales have In[2]'s choice of
	// dtypes. [ScaleSums] makes that. With attribute "encoding", which names one of package encoded, In[0] is float32 and In[1]
	// uint8: the blocks of its rows. [KeepEncoded] makes that.
	{Kind: "linear", Shape: linearShape, FLOPs: linearFLOPs, Axes: linearAxes},
	// matmul: beta × In[2] + alpha × In[0] · In[1] for matrices [… M K] and [… K N] with equal leading dimensions. In[2]
	// [… M N] may be absent; with beta 0 its elements do not count, not even NaN.
	{Kind: "matmul", Shape: matmulShape, FLOPs: matmulFLOPs, Axes: matmulAxes},
	// grouped_matmul: rows of In[0] [S K], in groups that end where In[2] [G] says, each group times its matrix of In[1]
	// [G K N]. Rows after the last group are zero.
	{Kind: "grouped_matmul", Shape: groupedMatmulShape, FLOPs: groupedMatmulFLOPs, Axes: groupedMatmulAxes},
	// cross: the vector product of In[0] and In[1] over dimension "dim", which has size 3.
	{Kind: "cross", Shape: crossShape, FLOPs: crossFLOPs, Axes: otherDims},
}

// wantOperands returns an error unless there are least to most operands, and the first least of them are given.
func wantOperands(in []Spec, least, most int) error {
	if len(in) < least || len(in) > most {
		return fmt.Errorf("%d operands", len(in))
	}
	for i, s := range in[:least] {
		if s.DType == tensor.Invalid {
			return fmt.Errorf("operand %d is absent", i)
		}
	}
	return nil
}

// sameDTypes returns an error unless all operands that are given have one dtype.
func sameDTypes(in []Spec) error {
	for _, s := range in {
		if s.DType != tensor.Invalid && s.DType != in[0].DType {
			return fmt.Errorf(
				"operands %v %v and %v %v have different dtypes", in[0].DType, in[0].Shape, s.DType, s.Shape,
			)
		}
	}
	return nil
}

// given reports whether there is an operand i.
func given(in []Spec, i int) bool { return i < len(in) && in[i].DType != tensor.Invalid }

// Elements returns a number of elements for estimates, the largest there is where it overflows.
func Elements(s tensor.Shape) int64 {
	n, err := s.NumElements()
	if err != nil {
		return math.MaxInt64
	}
	return n
}

// product multiplies sizes for estimates: too large is the largest.
func product(sizes ...int64) int64 {
	n := int64(1)
	for _, s := range sizes {
		var ok bool
		if n, ok = tensor.MulBytes(n, s); !ok {
			return math.MaxInt64
		}
	}
	return n
}

// sumOf adds sizes for estimates: too large is the largest.
func sumOf(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func linearShape(in []Spec, a Attrs) ([]Spec, error) {
	if err := wantOperands(in, 2, LinearScales+1); err != nil {
		return nil, err
	}
	scaled := given(in, LinearScales)
	if scaled && (!isFloat(in[0].DType) || in[0].DType == tensor.Float64 || in[1].DType != tensor.Int8) {
		return nil, fmt.Errorf("%w: %v × %v with scales", ErrDType, in[0].DType, in[1].DType)
	}
	for i, s := range in {
		half := s.DType.IsHalf() && i != LinearResidual && in[0].DType == tensor.Float32
		if given(in, i) && s.DType != in[0].DType && !half && !(scaled && i == 1) && !(i == 1 && IsEncoded(a)) {
			return nil, sameDTypes(in)
		}
	}
	x, w := in[0].Shape, in[1].Shape
	if IsEncoded(a) {
		numbers, err := encodedRows(in[1], a)
		if err != nil || in[0].DType != tensor.Float32 || scaled {
			return nil, fmt.Errorf("%v × %v: %w", in[0].DType, in[1].DType, cmp.Or(err, ErrDType))
		}
		w = numbers
	}
	if len(x) < 1 || len(w) != 2 || x[len(x)-1] != w[1] {
		return nil, fmt.Errorf("input %v does not fit weight %v", x, w)
	}
	if given(in, 2) && !in[2].Shape.Equal(tensor.Shape{w[0]}) {
		return nil, fmt.Errorf("bias %v does not fit weight %v", in[2].Shape, w)
	}
	if scaled && !in[LinearScales].Shape.Equal(tensor.Shape{w[0]}) {
		return nil, fmt.Errorf("scales %v do not fit weight %v", in[LinearScales].Shape, w)
	}
	out := slices.Clone(x)
	out[len(out)-1] = w[0]
	result := Spec{DType: in[0].DType, Shape: out}
	if err := wantEpilogue(in, a, result, LinearResidual); err != nil {
		return nil, err
	}
	return []Spec{result}, nil
}

func linearFLOPs(in, out []Spec, a Attrs) int64 {
	flops := product(2, Elements(out[0].Shape), int64(in[0].Shape[len(in[0].Shape)-1]))
	if IsEncoded(a) { // each number is a product of its own
		flops = sumOf(flops, product(2, int64(in[1].Shape[0]), int64(in[0].Shape[len(in[0].Shape)-1])))
	}
	return sumOf(flops, epilogueFLOPs(in, a, out[0], LinearResidual))
}

func matmulShape(in []Spec, _ Attrs) ([]Spec, error) {
	if err := wantOperands(in, 2, 3); err != nil {
		return nil, err
	}
	if err := sameDTypes(in); err != nil {
		return nil, err
	}
	x, y := in[0].Shape, in[1].Shape
	n := len(x)
	if n < 2 || len(y) != n || !x[:n-2].Equal(y[:n-2]) || x[n-1] != y[n-2] {
		return nil, fmt.Errorf("matrices %v and %v do not fit", x, y)
	}
	out := slices.Clone(x)
	out[n-1] = y[n-1]
	if given(in, 2) && !in[2].Shape.Equal(out) {
		return nil, fmt.Errorf("%v does not add to the product %v", in[2].Shape, out)
	}
	return []Spec{{DType: in[0].DType, Shape: out}}, nil
}

func matmulFLOPs(in, out []Spec, _ Attrs) int64 {
	return product(2, Elements(out[0].Shape), int64(in[0].Shape[len(in[0].Shape)-1]))
}

func groupedMatmulShape(in []Spec, _ Attrs) ([]Spec, error) {
	if err := wantOperands(in, 3, 3); err != nil {
		return nil, err
	}
	if err := sameDTypes(in[:2]); err != nil {
		return nil, err
	}
	x, w, ends := in[0].Shape, in[1].Shape, in[2]
	if len(x) != 2 || len(w) != 3 || x[1] != w[1] {
		return nil, fmt.Errorf("input %v does not fit the groups' matrices %v", x, w)
	}
	if !ends.Shape.Equal(tensor.Shape{w[0]}) || ends.DType != tensor.Int32 && ends.DType != tensor.Int64 {
		return nil, fmt.Errorf("ends of groups %v %v do not fit the matrices %v", ends.DType, ends.Shape, w)
	}
	return []Spec{{DType: in[0].DType, Shape: tensor.Shape{x[0], w[2]}}}, nil
}

func groupedMatmulFLOPs(in, out []Spec, _ Attrs) int64 {
	return product(2, Elements(out[0].Shape), int64(in[0].Shape[1]))
}

func crossShape(in []Spec, a Attrs) ([]Spec, error) {
	if err := wantOperands(in, 2, 2); err != nil {
		return nil, err
	}
	d := a.Int("dim")
	if d < 0 || d >= len(in[0].Shape) || in[0].Shape[d] != 3 {
		return nil, fmt.Errorf("dimension %d of %v does not have size 3", d, in[0].Shape)
	}
	return sameShapes(in, a)
}

func crossFLOPs(_, out []Spec, _ Attrs) int64 { return product(3, Elements(out[0].Shape)) }
