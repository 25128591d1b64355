package aten

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// factorTargets are inverses, determinants and solutions of systems, by the factors L and U of matrices. The factors that
// some overloads give beside their result are for its derivative: PyTorch itself gives those of the matrix or of its
// transpose, as the memory happens to lie.
var factorTargets = []atenOp{
	op("aten::linalg_inv(Tensor A) -> Tensor", func(c *call) (*Ref, error) { return c.first(c.inverted("A", true)) }),
	op(
		"aten::inverse(Tensor self) -> Tensor",
		func(c *call) (*Ref, error) { return c.first(c.inverted("self", true)) },
	),
	{"aten::linalg_inv_ex(Tensor A, *, bool check_errors=False) -> (Tensor inverse, Tensor info)", func(c *call) error {
		return c.giveRefs(c.inverted("A", c.bool("check_errors")))
	}},
	op("aten::linalg_solve(Tensor A, Tensor B, *, bool left=True) -> Tensor", func(c *call) (*Ref, error) {
		return c.first(c.solve(true))
	}),
	{"aten::linalg_solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False)" +
		" -> (Tensor result, Tensor info)", func(c *call) error { return c.giveRefs(c.solve(c.bool("check_errors"))) }},
	{"aten::_linalg_solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False)" +
		" -> (Tensor result, Tensor LU, Tensor pivots, Tensor info)", func(c *call) error {
		out, err := c.solve(c.bool("check_errors"))
		if err != nil {
			return err
		}
		c.set(out[0], nil, nil, out[1])
		return nil
	}},
	op("aten::linalg_det(Tensor A) -> Tensor", func(c *call) (*Ref, error) { return c.determinant("A") }),
	op("aten::det(Tensor self) -> Tensor", func(c *call) (*Ref, error) { return c.determinant("self") }),
	{"aten::_linalg_det(Tensor A) -> (Tensor result, Tensor LU, Tensor pivots)", func(c *call) error {
		r, err := c.determinant("A")
		c.set(r, nil, nil)
		return err
	}},
	{"aten::linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet)", func(c *call) error {
		return c.giveRefs(c.signAndLog("A"))
	}},
	{"aten::slogdet(Tensor self) -> (Tensor sign, Tensor logabsdet)", func(c *call) error {
		return c.giveRefs(c.signAndLog("self"))
	}},
	{"aten::_linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet, Tensor LU, Tensor pivots)", func(c *call) error {
		out, err := c.signAndLog("A")
		if err != nil {
			return err
		}
		c.set(out[0], out[1], nil, nil)
		return nil
	}},
	op("aten::logdet(Tensor self) -> Tensor", logDeterminant),
	{"aten::linalg_lu_factor(Tensor A, *, bool pivot=True) -> (Tensor LU, Tensor pivots)", func(c *call) error {
		out, err := c.pivoted(true)
		if err != nil {
			return err
		}
		return c.giveRefs(out[:2], nil)
	}},
	{"aten::linalg_lu_factor_ex(Tensor A, *, bool pivot=True, bool check_errors=False)" +
		" -> (Tensor LU, Tensor pivots, Tensor info)", func(c *call) error {
		return c.giveRefs(c.pivoted(c.bool("check_errors")))
	}},
	op("aten::linalg_lu_solve(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, bool adjoint=False) -> Tensor",
		solveFactored),
}

// giveRefs makes several tensors the results of the call.
func (c *call) giveRefs(list []*Ref, err error) error {
	if c.err != nil {
		return c.err
	}
	for _, r := range list {
		c.results = append(c.results, r)
	}
	return err
}

// first returns the first of several results.
func (c *call) first(list []*Ref, err error) (*Ref, error) {
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

// factored returns L and U, the pivots, and which pivot is zero, of square matrices. With strict none may be.
func (c *call) factored(r *Ref, strict bool) ([]*Ref, error) {
	if c.err != nil {
		return nil, c.err
	}
	if r.rank() < 2 || r.shape()[r.rank()-1] != r.shape()[r.rank()-2] {
		return nil, fmt.Errorf("%v are not square matrices", r.shape())
	}
	if IsComplex(r.dtype) {
		return nil, c.Unsupported("factors of matrices of %v", r.dtype)
	}
	return c.Emit("lu_factor", graph.Attrs{"strict": strict}, c.Read(r))
}

// pivoted is linalg_lu_factor_ex.
func (c *call) pivoted(strict bool) ([]*Ref, error) {
	if !c.bool("pivot") {
		return nil, c.Unsupported("factors of matrices without pivots")
	}
	return c.factored(c.tensor("A"), strict)
}

// inverted returns the inverses of the matrices that an argument names, and which pivot is zero.
func (c *call) inverted(name string, strict bool) ([]*Ref, error) {
	r := c.tensor(name)
	lu, err := c.factored(r, strict)
	if err != nil {
		return nil, err
	}
	one, err := c.Emit1("eye", graph.Attrs{
		"rows": r.shape()[r.rank()-1], "columns": r.shape()[r.rank()-1], "dtype": r.dtype,
	})
	if err != nil {
		return nil, err
	}
	if one, err = c.expand(one, r.shape()); err != nil {
		return nil, err
	}
	out, err := c.Emit1("lu_solve", nil, c.Read(lu[0]), c.Read(lu[1]), c.Read(one))
	return []*Ref{out, lu[2]}, err
}

// solve returns X where A X = B, or X A = B without "left", and which pivot of A is zero.
func (c *call) solve(strict bool) ([]*Ref, error) {
	a, b, left := c.tensor("A"), c.tensor("B"), c.bool("left")
	if c.err != nil {
		return nil, c.err
	}
	n := a.rank()
	if n < 2 || b.rank() < 1 || b.dtype != a.dtype {
		return nil, fmt.Errorf("a system of %v %v and %v %v", a.dtype, a.shape(), b.dtype, b.shape())
	}
	vector := b.rank() == 1 || b.rank() == n-1 && b.shape().Equal(a.shape()[:n-1])
	if vector {
		if !left {
			return nil, fmt.Errorf("%v times %v is no vector", b.shape(), a.shape())
		}
		b = c.unsqueeze(b, b.rank())
	}
	if !left { // Aᵀ Xᵀ = Bᵀ
		a, b = c.transpose(a, n-2, n-1), c.transpose(b, b.rank()-2, b.rank()-1)
	}
	stack, err := broadcast(a.shape()[:n-2], b.shape()[:b.rank()-2])
	if err != nil {
		return nil, err
	}
	lu, err := c.factored(a, strict) // each matrix once, however many systems it has
	if err != nil {
		return nil, err
	}
	x, err := c.solveStacks(stack, lu[0], lu[1], b)
	switch {
	case err != nil:
		return nil, err
	case vector:
		x = c.selectAt(x, x.rank()-1, 0)
	case !left:
		x = c.transpose(x, x.rank()-2, x.rank()-1)
	}
	return []*Ref{x, lu[2]}, nil
}

func solveFactored(c *call) (*Ref, error) {
	lu, pivots, b := c.tensor("LU"), c.tensor("pivots"), c.tensor("B")
	switch {
	case c.err != nil:
		return nil, c.err
	case !c.bool("left") || c.bool("adjoint") || IsComplex(lu.dtype) || IsComplex(b.dtype):
		return nil, c.Unsupported("a system of transposed or complex factors")
	case lu.rank() < 2 || b.rank() < 2 || pivots.rank() < 1:
		return nil, fmt.Errorf("factors %v and pivots %v of a system with %v", lu.shape(), pivots.shape(), b.shape())
	}
	stack, err := broadcast(lu.shape()[:lu.rank()-2], pivots.shape()[:pivots.rank()-1], b.shape()[:b.rank()-2])
	if err != nil {
		return nil, err
	}
	return c.solveStacks(stack, lu, pivots, b)
}

// solveStacks solves systems whose leading dimensions expand to those of a stack.
func (c *call) solveStacks(stack tensor.Shape, lu, pivots, b *Ref) (*Ref, error) {
	var operands []graph.Operand
	for _, x := range []struct {
		*Ref
		own int // how many dimensions are not the stack's
	}{{lu, 2}, {pivots, 1}, {b, 2}} {
		r, err := c.expand(x.Ref, slices.Concat(stack, x.shape()[x.rank()-x.own:]))
		if err != nil {
			return nil, err
		}
		operands = append(operands, c.Read(r))
	}
	return c.Emit1("lu_solve", nil, operands...)
}

// swaps returns the sign of the permutation that pivots stand for: −1 to the power of how many are not their own row's.
func (c *call) swaps(lu, pivots *Ref) (*Ref, error) {
	n := pivots.shape()[pivots.rank()-1]
	rows, err := c.Emit1("arange", graph.Attrs{"start": 1, "step": 1, "size": n, "dtype": tensor.Int32})
	if err != nil {
		return nil, err
	}
	own, err := c.combine("ne", nil, pivots, rows)
	if err != nil {
		return nil, err
	}
	count, err := c.fold("sum", own, []int{own.rank() - 1}, false, graph.Attrs{"dtype": tensor.Int64})
	if err != nil {
		return nil, err
	}
	odd, err := c.combine("bitwise_and", nil, count, 1)
	if err != nil {
		return nil, err
	}
	if odd, err = c.Cast(odd, lu.dtype); err != nil {
		return nil, err
	}
	if odd, err = c.combine("mul", nil, odd, -2); err != nil {
		return nil, err
	}
	return c.combine("add", nil, odd, 1)
}

// diagonalOfU returns the pivots' values, and the sign of the rows' permutation.
func (c *call) diagonalOfU(name string) (values, sign *Ref, err error) {
	lu, err := c.factored(c.tensor(name), false)
	if err != nil {
		return nil, nil, err
	}
	n := lu[0].rank()
	if values, err = c.diagonalOf(lu[0], 0, n-2, n-1); err != nil {
		return nil, nil, err
	}
	sign, err = c.swaps(lu[0], lu[1])
	return values, sign, err
}

func (c *call) determinant(name string) (*Ref, error) {
	values, sign, err := c.diagonalOfU(name)
	if err != nil {
		return nil, err
	}
	product, err := c.fold("prod", values, []int{values.rank() - 1}, false, graph.Attrs{"dtype": values.dtype})
	if err != nil {
		return nil, err
	}
	return c.combine("mul", nil, product, sign)
}

// signAndLog returns the sign of determinants and the logarithm of their magnitude.
func (c *call) signAndLog(name string) ([]*Ref, error) {
	values, sign, err := c.diagonalOfU(name)
	if err != nil {
		return nil, err
	}
	last := graph.Attrs{"dtype": values.dtype}
	signs, err := c.apply("sign", nil, values)
	if err != nil {
		return nil, err
	}
	if signs, err = c.fold("prod", signs, []int{values.rank() - 1}, false, last); err != nil {
		return nil, err
	}
	if sign, err = c.combine("mul", nil, sign, signs); err != nil {
		return nil, err
	}
	logs, err := c.apply("abs", nil, values)
	if err != nil {
		return nil, err
	}
	if logs, err = c.apply("log", nil, logs); err != nil {
		return nil, err
	}
	logs, err = c.fold("sum", logs, []int{values.rank() - 1}, false, last)
	return []*Ref{sign, logs}, err
}

// logDeterminant is NaN where the determinant is negative.
func logDeterminant(c *call) (*Ref, error) {
	both, err := c.signAndLog("self")
	if err != nil {
		return nil, err
	}
	log, err := c.apply("log", nil, both[0])
	if err != nil {
		return nil, err
	}
	return c.combine("add", nil, both[1], log)
}
