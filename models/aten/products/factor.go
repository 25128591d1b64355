package products

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// factorTargets are inverses, determinants and solutions of systems, by the factors L and U of matrices. The factors
// that some overloads give beside their result are for its derivative: PyTorch itself gives those of the matrix or of
// its transpose, as the memory happens to lie.
var factorTargets = []call.Overload{
	call.One("aten::linalg_inv(Tensor A) -> Tensor",
		func(c *call.Call) (*cells.Ref, error) { return first(inverted(c, "A", true)) }),
	call.One(
		"aten::inverse(Tensor self) -> Tensor",
		func(c *call.Call) (*cells.Ref, error) { return first(inverted(c, "self", true)) },
	),
	call.Several("aten::linalg_inv_ex(Tensor A, *, bool check_errors=False) -> (Tensor inverse, Tensor info)",
		func(c *call.Call) error {
			return c.GiveRefs(inverted(c, "A", c.Bool("check_errors")))
		}),
	call.One("aten::linalg_solve(Tensor A, Tensor B, *, bool left=True) -> Tensor",
		func(c *call.Call) (*cells.Ref, error) {
			return first(solve(c, true))
		}),
	call.Several("aten::linalg_solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False)"+
		" -> (Tensor result, Tensor info)", func(c *call.Call) error { return c.GiveRefs(solve(c, c.Bool("check_errors"))) }),
	call.Several("aten::_linalg_solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False)"+
		" -> (Tensor result, Tensor LU, Tensor pivots, Tensor info)", func(c *call.Call) error {
		out, err := solve(c, c.Bool("check_errors"))
		if err != nil {
			return err
		}
		c.Set(out[0], nil, nil, out[1])
		return nil
	}),
	call.One("aten::linalg_det(Tensor A) -> Tensor",
		func(c *call.Call) (*cells.Ref, error) { return determinant(c, "A") }),
	call.One("aten::det(Tensor self) -> Tensor",
		func(c *call.Call) (*cells.Ref, error) { return determinant(c, "self") }),
	call.Several("aten::_linalg_det(Tensor A) -> (Tensor result, Tensor LU, Tensor pivots)", func(c *call.Call) error {
		r, err := determinant(c, "A")
		c.Set(r, nil, nil)
		return err
	}),
	call.Several("aten::linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet)", func(c *call.Call) error {
		return c.GiveRefs(signAndLog(c, "A"))
	}),
	call.Several("aten::slogdet(Tensor self) -> (Tensor sign, Tensor logabsdet)", func(c *call.Call) error {
		return c.GiveRefs(signAndLog(c, "self"))
	}),
	call.Several("aten::_linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet, Tensor LU, Tensor pivots)",
		func(c *call.Call) error {
			out, err := signAndLog(c, "A")
			if err != nil {
				return err
			}
			c.Set(out[0], out[1], nil, nil)
			return nil
		}),
	call.One("aten::logdet(Tensor self) -> Tensor", logDeterminant),
	call.Several("aten::linalg_lu_factor(Tensor A, *, bool pivot=True) -> (Tensor LU, Tensor pivots)",
		func(c *call.Call) error {
			out, err := pivoted(c, true)
			if err != nil {
				return err
			}
			return c.GiveRefs(out[:2], nil)
		}),
	call.Several("aten::linalg_lu_factor_ex(Tensor A, *, bool pivot=True, bool check_errors=False)"+
		" -> (Tensor LU, Tensor pivots, Tensor info)", func(c *call.Call) error {
		return c.GiveRefs(pivoted(c, c.Bool("check_errors")))
	}),
	call.One("aten::linalg_lu_solve(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, bool adjoint=False) -> Tensor",
		solveFactored),
}

// first returns the first of several results.
func first(list []*cells.Ref, err error) (*cells.Ref, error) {
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

// factored returns L and U, the pivots, and which pivot is zero, of square matrices. With strict none may be.
func factored(c *call.Call, r *cells.Ref, strict bool) ([]*cells.Ref, error) {
	if c.Err != nil {
		return nil, c.Err
	}
	if r.Rank() < 2 || r.Shape()[r.Rank()-1] != r.Shape()[r.Rank()-2] {
		return nil, fmt.Errorf("%v are not square matrices", r.Shape())
	}
	if cells.IsComplex(r.DType()) {
		return nil, c.Unsupported("factors of matrices of %v", r.DType())
	}
	return c.Emit("lu_factor", graph.Attrs{"strict": strict}, c.Read(r))
}

// pivoted is linalg_lu_factor_ex.
func pivoted(c *call.Call, strict bool) ([]*cells.Ref, error) {
	if !c.Bool("pivot") {
		return nil, c.Unsupported("factors of matrices without pivots")
	}
	return factored(c, c.Tensor("A"), strict)
}

// inverted returns the inverses of the matrices that an argument names, and which pivot is zero.
func inverted(c *call.Call, name string, strict bool) ([]*cells.Ref, error) {
	r := c.Tensor(name)
	lu, err := factored(c, r, strict)
	if err != nil {
		return nil, err
	}
	one, err := c.Emit1("eye", graph.Attrs{
		"rows": r.Shape()[r.Rank()-1], "columns": r.Shape()[r.Rank()-1], "dtype": r.DType(),
	})
	if err != nil {
		return nil, err
	}
	if one, err = c.Expand(one, r.Shape()); err != nil {
		return nil, err
	}
	out, err := c.Emit1("lu_solve", nil, c.Read(lu[0]), c.Read(lu[1]), c.Read(one))
	return []*cells.Ref{out, lu[2]}, err
}

// solve returns X where A X = B, or X A = B without "left", and which pivot of A is zero.
func solve(c *call.Call, strict bool) ([]*cells.Ref, error) {
	a, b, left := c.Tensor("A"), c.Tensor("B"), c.Bool("left")
	if c.Err != nil {
		return nil, c.Err
	}
	n := a.Rank()
	if n < 2 || b.Rank() < 1 || b.DType() != a.DType() {
		return nil, fmt.Errorf("a system of %v %v and %v %v", a.DType(), a.Shape(), b.DType(), b.Shape())
	}
	vector := b.Rank() == 1 || b.Rank() == n-1 && b.Shape().Equal(a.Shape()[:n-1])
	if vector {
		if !left {
			return nil, fmt.Errorf("%v times %v is no vector", b.Shape(), a.Shape())
		}
		b = c.Unsqueeze(b, b.Rank())
	}
	if !left { // Aᵀ Xᵀ = Bᵀ
		a, b = c.Transpose(a, n-2, n-1), c.Transpose(b, b.Rank()-2, b.Rank()-1)
	}
	stack, err := cells.Broadcast(a.Shape()[:n-2], b.Shape()[:b.Rank()-2])
	if err != nil {
		return nil, err
	}
	lu, err := factored(c, a, strict) // each matrix once, however many systems it has
	if err != nil {
		return nil, err
	}
	x, err := solveStacks(c, stack, lu[0], lu[1], b)
	switch {
	case err != nil:
		return nil, err
	case vector:
		x = c.SelectAt(x, x.Rank()-1, 0)
	case !left:
		x = c.Transpose(x, x.Rank()-2, x.Rank()-1)
	}
	return []*cells.Ref{x, lu[2]}, nil
}

func solveFactored(c *call.Call) (*cells.Ref, error) {
	lu, pivots, b := c.Tensor("LU"), c.Tensor("pivots"), c.Tensor("B")
	switch {
	case c.Err != nil:
		return nil, c.Err
	case !c.Bool("left") || c.Bool("adjoint") || cells.IsComplex(lu.DType()) || cells.IsComplex(b.DType()):
		return nil, c.Unsupported("a system of transposed or complex factors")
	case lu.Rank() < 2 || b.Rank() < 2 || pivots.Rank() < 1:
		return nil, fmt.Errorf("factors %v and pivots %v of a system with %v", lu.Shape(), pivots.Shape(), b.Shape())
	}
	stack, err := cells.Broadcast(lu.Shape()[:lu.Rank()-2], pivots.Shape()[:pivots.Rank()-1], b.Shape()[:b.Rank()-2])
	if err != nil {
		return nil, err
	}
	return solveStacks(c, stack, lu, pivots, b)
}

// solveStacks solves systems whose leading dimensions expand to those of a stack.
func solveStacks(c *call.Call, stack tensor.Shape, lu, pivots, b *cells.Ref) (*cells.Ref, error) {
	var operands []graph.Operand
	for _, x := range []struct {
		*cells.Ref
		own int // how many dimensions are not the stack's
	}{{lu, 2}, {pivots, 1}, {b, 2}} {
		r, err := c.Expand(x.Ref, slices.Concat(stack, x.Shape()[x.Rank()-x.own:]))
		if err != nil {
			return nil, err
		}
		operands = append(operands, c.Read(r))
	}
	return c.Emit1("lu_solve", nil, operands...)
}

// swaps returns the sign of the permutation that pivots stand for: −1 to the power of how many are not their own row's.
func swaps(c *call.Call, lu, pivots *cells.Ref) (*cells.Ref, error) {
	n := pivots.Shape()[pivots.Rank()-1]
	rows, err := c.Emit1("arange", graph.Attrs{"start": 1, "step": 1, "size": n, "dtype": tensor.Int32})
	if err != nil {
		return nil, err
	}
	own, err := c.Combine("ne", nil, pivots, rows)
	if err != nil {
		return nil, err
	}
	count, err := c.Fold("sum", own, []int{own.Rank() - 1}, false, graph.Attrs{"dtype": tensor.Int64})
	if err != nil {
		return nil, err
	}
	odd, err := c.Combine("bitwise_and", nil, count, 1)
	if err != nil {
		return nil, err
	}
	if odd, err = c.Cast(odd, lu.DType()); err != nil {
		return nil, err
	}
	if odd, err = c.Combine("mul", nil, odd, -2); err != nil {
		return nil, err
	}
	return c.Combine("add", nil, odd, 1)
}

// diagonalOfU returns the pivots' values, and the sign of the rows' permutation.
func diagonalOfU(c *call.Call, name string) (values, sign *cells.Ref, err error) {
	lu, err := factored(c, c.Tensor(name), false)
	if err != nil {
		return nil, nil, err
	}
	n := lu[0].Rank()
	if values, err = c.DiagonalOf(lu[0], 0, n-2, n-1); err != nil {
		return nil, nil, err
	}
	sign, err = swaps(c, lu[0], lu[1])
	return values, sign, err
}

func determinant(c *call.Call, name string) (*cells.Ref, error) {
	values, sign, err := diagonalOfU(c, name)
	if err != nil {
		return nil, err
	}
	product, err := c.Fold("prod", values, []int{values.Rank() - 1}, false, graph.Attrs{"dtype": values.DType()})
	if err != nil {
		return nil, err
	}
	return c.Combine("mul", nil, product, sign)
}

// signAndLog returns the sign of determinants and the logarithm of their magnitude.
func signAndLog(c *call.Call, name string) ([]*cells.Ref, error) {
	values, sign, err := diagonalOfU(c, name)
	if err != nil {
		return nil, err
	}
	last := graph.Attrs{"dtype": values.DType()}
	signs, err := c.Apply("sign", nil, values)
	if err != nil {
		return nil, err
	}
	if signs, err = c.Fold("prod", signs, []int{values.Rank() - 1}, false, last); err != nil {
		return nil, err
	}
	if sign, err = c.Combine("mul", nil, sign, signs); err != nil {
		return nil, err
	}
	logs, err := c.Apply("abs", nil, values)
	if err != nil {
		return nil, err
	}
	if logs, err = c.Apply("log", nil, logs); err != nil {
		return nil, err
	}
	logs, err = c.Fold("sum", logs, []int{values.Rank() - 1}, false, last)
	return []*cells.Ref{sign, logs}, err
}

// logDeterminant is NaN where the determinant is negative.
func logDeterminant(c *call.Call) (*cells.Ref, error) {
	both, err := signAndLog(c, "self")
	if err != nil {
		return nil, err
	}
	log, err := c.Apply("log", nil, both[0])
	if err != nil {
		return nil, err
	}
	return c.Combine("add", nil, both[1], log)
}
