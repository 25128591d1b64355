package cpu

import (
	"fmt"

	"github.com/optimem/optimem/tensor"
)

// An integer is a type whose sums and products wrap, as PyTorch's do.
type integer interface {
	int8 | int16 | int32 | int64 | uint8
}

// integerLinear is runLinear for integers.
func integerLinear(c *call) error {
	x, w := c.in[0], c.in[1]
	m := volume(x.shape()[:len(x.shape())-1])
	n, k := w.shape()[0], w.shape()[1]
	rows := x.layout.Leading(1)
	var bias view
	if len(c.in) > 2 {
		bias = c.in[2]
	}
	p := integerProduct{
		out: c.out[0], x: x, y: w, add: bias, m: m, n: n, k: k, alpha: 1, beta: 1,
		xAt: func(i int) int { return offsetOf(rows, i) }, xStep: lastStride(x.layout),
		yAt: func(_, j int) int { return w.layout.Offset + j*w.layout.Strides[0] }, yStep: w.layout.Strides[1],
		addAt: func(_, j int) int { return bias.layout.Offset + j*bias.layout.Strides[0] },
	}
	return p.run(c.pool)
}

// integerMatmul is runMatmul for integers.
func integerMatmul(c *call) error {
	x, y := c.in[0], c.in[1]
	s := sizesOfMatmul(x.shape(), y.shape())
	rank := len(x.shape())
	rows, matrices := x.layout.Leading(1), y.layout.Leading(2)
	p := integerProduct{
		out: c.out[0], x: x, y: y, m: s.batch * s.m, n: s.n, k: s.k,
		alpha: int64(c.attrs.Float("alpha")), beta: int64(c.attrs.Float("beta")),
		xAt: func(i int) int { return offsetOf(rows, i) }, xStep: lastStride(x.layout),
		yAt:   func(i, j int) int { return offsetOf(matrices, i/s.m) + j*y.layout.Strides[rank-1] },
		yStep: y.layout.Strides[rank-2],
	}
	if len(c.in) > 2 && p.beta != 0 {
		p.add = c.in[2]
		addRows := p.add.layout.Leading(1)
		p.addAt = func(i, j int) int { return offsetOf(addRows, i) + j*lastStride(p.add.layout) }
	}
	return p.run(c.pool)
}

// An integerProduct is a product whose factors and addend are found by index: row i of the result, column j.
type integerProduct struct {
	out, x, y, add view
	m, n, k        int
	alpha, beta    int64
	xAt            func(i int) int
	yAt, addAt     func(i, j int) int
	xStep, yStep   int
}

func (p *integerProduct) run(pool *Pool) error {
	switch d := p.out.dtype; d {
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

func multiplyIntegers[T integer](pool *Pool, p *integerProduct) {
	out, x, y, add := row[T](p.out), elements[T](p.x), elements[T](p.y), elements[T](p.add)
	alpha, beta := T(p.alpha), T(p.beta)
	pool.For(p.m, 1+grain/(1+p.n*p.k), func(from, to int) {
		for i := from; i < to; i++ {
			xAt := p.xAt(i)
			for j := range p.n {
				yAt := p.yAt(i, j)
				var sum T
				for k := range p.k {
					sum += x[xAt+k*p.xStep] * y[yAt+k*p.yStep]
				}
				if sum *= alpha; !p.add.absent() {
					sum += beta * add[p.addAt(i, j)]
				}
				out[i*p.n+j] = sum
			}
		}
	})
}

// runCross: out = a₁b₂ − a₂b₁, a₂b₀ − a₀b₂, a₀b₁ − a₁b₀ along the dimension of size 3: torch.linalg.cross.
func runCross(c *call) error {
	switch c.in[0].dtype {
	case tensor.Float32:
		cross(c, plain[float32], plain[float32])
	case tensor.Float64:
		cross(c, plain[float64], plain[float64])
	case tensor.Float16:
		cross(c, tensor.Float16ToFloat32, tensor.Float16FromFloat32)
	case tensor.BFloat16:
		cross(c, tensor.BFloat16ToFloat32, tensor.BFloat16FromFloat32)
	case tensor.Int8:
		cross(c, plain[int8], plain[int8])
	case tensor.Int16:
		cross(c, plain[int16], plain[int16])
	case tensor.Int32:
		cross(c, plain[int32], plain[int32])
	case tensor.Int64:
		cross(c, plain[int64], plain[int64])
	case tensor.UInt8:
		cross(c, plain[uint8], plain[uint8])
	}
	return nil
}

func plain[T any](x T) T { return x }

// cross computes in T for elements that lie in memory as E.
func cross[E any, T real | integer](c *call, load func(E) T, store func(T) E) {
	x, y := elements[E](c.in[0]), elements[E](c.in[1])
	out := elements[E](c.out[0])
	d := c.attrs.Int("dim")
	without := func(l tensor.Layout) tensor.Layout {
		l.Shape = append(append(tensor.Shape{}, l.Shape[:d]...), l.Shape[d+1:]...)
		l.Strides = append(append([]int{}, l.Strides[:d]...), l.Strides[d+1:]...)
		return l
	}
	lx, ly, lo := without(c.in[0].layout), without(c.in[1].layout), without(c.out[0].layout)
	sx, sy, so := c.in[0].layout.Strides[d], c.in[1].layout.Strides[d], c.out[0].layout.Strides[d]
	c.pool.For(volume(lo.Shape), grain, func(from, to int) {
		for i := from; i < to; i++ {
			ax, ay, ao := offsetOf(lx, i), offsetOf(ly, i), offsetOf(lo, i)
			for e := range 3 {
				f, g := (e+1)%3, (e+2)%3
				out[ao+e*so] = store(T(load(x[ax+f*sx])*load(y[ay+g*sy])) - T(load(x[ax+g*sx])*load(y[ay+f*sy])))
			}
		}
	})
}
