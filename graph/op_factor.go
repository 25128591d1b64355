package graph

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/tensor"
)

// factorOps take square matrices apart, of float32 or float64, in stacks.
var factorOps = []OpDef{
	// lu_factor: In[0] [… N N] as a permutation times L, whose diagonal is ones, times U: L without its diagonal and U in one
	// matrix; int32 pivots [… N], counted from one, with which each row in turn is swapped; and int32 [] the number of the
	// first pivot that is zero, counted from one, 0 where none is. With "strict" such a matrix is a [SingularError].
	{Kind: "lu_factor", Shape: luFactorShape, FLOPs: luFactorFLOPs, Axes: stacks},
	// lu_solve: X [… N K] where A X = In[2] [… N K] for the A [… N N] of which In[0] and In[1] [… N] are the factors and pivots.
	{Kind: "lu_solve", Shape: luSolveShape, FLOPs: luSolveFLOPs, Axes: luSolveAxes},
}

// A SingularError says that a matrix has no inverse.
type SingularError struct {
	// Matrix counts the matrices of the operand, Pivot the rows of one, from zero.
	Matrix, Pivot int
}

// Error says where the zero is.
func (e *SingularError) Error() string {
	return fmt.Sprintf("matrix %d is singular: pivot %d is zero", e.Matrix, e.Pivot)
}

// wantSquares returns an error unless an operand is a stack of square matrices of a dtype that is factored.
func wantSquares(in []Spec, k int) error {
	if s, n := in[k].Shape, len(in[k].Shape); n < 2 || s[n-1] != s[n-2] {
		return fmt.Errorf("%v are not square matrices", s)
	}
	return wantClass(in[k], func(d tensor.DType) bool { return d == tensor.Float32 || d == tensor.Float64 })
}

func luFactorShape(in []Spec, _ Attrs) ([]Spec, error) {
	if err := wantOperands(in, 1, 1); err != nil {
		return nil, err
	}
	if err := wantSquares(in, 0); err != nil {
		return nil, err
	}
	s := in[0].Shape
	return []Spec{
		in[0], {DType: tensor.Int32, Shape: s[:len(s)-1]}, {DType: tensor.Int32, Shape: s[:len(s)-2]},
	}, nil
}

// luFactorFLOPs: 2/3 N³ for each matrix.
func luFactorFLOPs(in, _ []Spec, _ Attrs) int64 {
	s := in[0].Shape
	return product(2, Elements(s), int64(s[len(s)-1])) / 3
}

func luSolveShape(in []Spec, _ Attrs) ([]Spec, error) {
	if err := wantOperands(in, 3, 3); err != nil {
		return nil, err
	}
	if err := wantSquares(in, 0); err != nil {
		return nil, err
	}
	s, b := in[0].Shape, in[2].Shape
	n := len(s)
	if in[1].DType != tensor.Int32 || in[2].DType != in[0].DType || len(b) != n ||
		!in[1].Shape.Equal(s[:n-1]) || !slices.Equal(s[:n-1], b[:n-1]) {
		return nil, mismatch(in)
	}
	return []Spec{in[2]}, nil
}

// luSolveFLOPs: 2 N² for each column.
func luSolveFLOPs(in, out []Spec, _ Attrs) int64 {
	return product(2, Elements(out[0].Shape), int64(in[0].Shape[len(in[0].Shape)-1]))
}

// luSolveAxes: the stacks, and the columns that are solved for.
func luSolveAxes(in, _ []Spec, _ Attrs) [][]int {
	axes := axesOf(in)
	n := len(in[0].Shape)
	for _, d := range axes {
		keep(d, 0, n-2, 0)
	}
	axes[2][n-1] = n - 1
	return axes
}
