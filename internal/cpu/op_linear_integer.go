package cpu

import (
	"fmt"

	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// integerLinear is runLinear for integers.
func integerLinear(c *ops.Call) error {
	x, w, bias := c.In[0], c.In[1], c.Operand(2)
	p := integerProduct{
		out: c.Out[0], x: x, y: w, add: bias, n: w.Shape()[0], k: w.Shape()[1], alpha: 1, beta: 1,
		rows: x.Layout.Leading(1), matrices: tensor.Layout{Offset: w.Layout.Offset}, each: 1,
		yLine: w.Layout.Strides[0], yStep: w.Layout.Strides[1],
	}
	p.m = ops.Volume(p.rows.Shape)
	if !bias.Absent() {
		p.addRows, p.addStep = tensor.Layout{Offset: bias.Layout.Offset}, bias.Layout.Strides[0]
	}
	return p.run(c.Pool)
}

// integerMatmul is runMatmul for integers.
func integerMatmul(c *ops.Call) error {
	x, y := c.In[0], c.In[1]
	s := sizesOfMatmul(x.Shape(), y.Shape())
	rank := len(x.Shape())
	p := integerProduct{
		out: c.Out[0], x: x, y: y, m: s.batch * s.m, n: s.n, k: s.k,
		alpha: int64(c.Attrs.Float("alpha")), beta: int64(c.Attrs.Float("beta")),
		rows: x.Layout.Leading(1), matrices: y.Layout.Leading(2), each: s.m,
		yLine: y.Layout.Strides[rank-1], yStep: y.Layout.Strides[rank-2],
	}
	if p.beta != 0 {
		p.add = c.Operand(2)
	}
	if !p.add.Absent() {
		p.addRows, p.addStep = p.add.Layout.Leading(1), ops.LastStride(p.add.Layout)
	}
	return p.run(c.Pool)
}

// An integerProduct is a product of the rows of x by the matrices of y, each of which is for as many rows as each says. Lines
// of y, which are columns of the result, lie yLine apart and their elements yStep.
type integerProduct struct {
	out, x, y, add          ops.View
	m, n, k                 int
	alpha, beta             int64
	rows, matrices, addRows tensor.Layout
	each                    int
	yLine, yStep, addStep   int
}

func (p *integerProduct) run(pool *ops.Pool) error {
	switch d := p.out.DType; d {
	case tensor.Int8:
		multiplyIntegers[int8](pool, p)
	case tensor.Int16:
		multiplyIntegers[int16](pool, p)
	case tensor.Int32:
		multiplyIntegers[int32](pool, p)
	case tensor.Int64:
		multiplyIntegers[int64](pool, p)
	case tensor.UInt8:
		multiplyIntegers[uint8](pool, p)
	default:
		return fmt.Errorf("no product of %v", d)
	}
	return nil
}

func multiplyIntegers[T ops.Integer](pool *ops.Pool, p *integerProduct) {
	tasks.Do(pool, p.m, 1+ops.Grain/(1+p.n*p.k), integerRows[T]{*p})
}

// integerRows is the task of multiplyIntegers: a part is some rows.
type integerRows[T ops.Integer] struct{ integerProduct }

// Run implements Task.
func (p *integerRows[T]) Run(from, to int) {
	out, x, y, add := ops.Row[T](p.out), ops.Elements[T](p.x), ops.Elements[T](p.y), ops.Elements[T](p.add)
	alpha, beta, hasAdd := T(p.alpha), T(p.beta), !p.add.Absent()
	n, depth, xStep, yStep := p.n, p.k, ops.LastStride(p.x.Layout), p.yStep
	for i := from; i < to; i++ {
		xAt, matrix, addAt := p.rows.OffsetOf(i), p.matrices.OffsetOf(i/p.each), p.addRows.OffsetOf(i)
		for j := range n {
			sum := alpha * dotIntegers(x, y, xAt, xStep, matrix+j*p.yLine, yStep, depth)
			if hasAdd {
				sum += beta * add[addAt+j*p.addStep]
			}
			out[i*n+j] = sum
		}
	}
}

// dotIntegers returns the sum of the products of n elements from xAt and yAt on, the steps apart. It is not put into its
// callers, whose variables would take the loop's registers.
//
//go:noinline
func dotIntegers[T ops.Integer](x, y []T, xAt, xStep, yAt, yStep, n int) T {
	var sum T
	for range n {
		sum += x[xAt] * y[yAt]
		xAt, yAt = xAt+xStep, yAt+yStep
	}
	return sum
}
