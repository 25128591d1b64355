package cpu

import (
	"fmt"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// linearKernels are products of matrices. Half floats are computed in float32 and rounded once.
var linearKernels = map[layers.Kind]kernel{
	"linear":         {run: runLinear, work: linearWork, supports: linearSupports},
	"matmul":         {run: runMatmul, work: matmulWork, supports: onlyNumbers},
	"grouped_matmul": {run: runGroupedMatmul, work: groupedMatmulWork, supports: onlyReal},
	"cross":          {run: runCross, supports: onlyNumbers},
}

// onlyNumbers is the support of kernels that compute in floats and integers.
func onlyNumbers(in, _ []layers.Spec, _ layers.Attrs) error {
	switch d := in[0].DType; d {
	case tensor.Int8, tensor.Int16, tensor.Int32, tensor.Int64, tensor.UInt8:
		return nil
	default:
		if !isReal(d) {
			return fmt.Errorf("it takes floats and integers, not %v", d)
		}
		return nil
	}
}

// linearSupports takes floats and integers, and epilogues of float32.
func linearSupports(in, out []layers.Spec, a layers.Attrs) error {
	if err := epilogueSupports(in, out, a); err != nil {
		return err
	}
	return onlyNumbers(in, out, a)
}

// halfRows is how many rows of a product are computed in float32 at a time before they are rounded to a half float.
const halfRows = 256

// productWork returns the scratch that product takes.
func productWork(m, n, k int, d tensor.DType) int64 {
	if !isReal(d) {
		return 0
	}
	size := realBytes(d)
	bytes := int64(roundUp(int(gemmWork(m, n, k, size)), 8))
	if isHalf(d) {
		bytes += scratchBytes(size, min(m, halfRows)*n)
	}
	return bytes
}

// product computes rows of out, n wide, from element at of out's memory on: out = a·b for factors of depth k, plus bias
// for each column unless it is nil. finish, unless it is nil, changes the sums of each row before they are rounded.
func product[T real](
	p *Pool, m, n, k int, a, b *matrix[T], out view, at int, bias []T, finish func(i int, sums []T), work scratch,
) {
	o := gemmOptions[T]{columnBias: bias}
	each := func(from, rows int, sums []T, then func(i int, sums []T)) {
		part := *a
		part.offset += from * a.line
		gemm(p, rows, n, k, &part, b, sums, n, o, work)
		if then == nil {
			return
		}
		forEach(p, rows, func(i int) { then(from+i, sums[i*n:(i+1)*n]) })
	}
	if !isHalf(out.dtype) {
		each(0, m, elements[T](out)[at:], finish)
		return
	}
	sums := takeReal[T](&work, min(m, halfRows)*n)
	for from := 0; from < m; from += halfRows {
		each(from, min(halfRows, m-from), sums, func(i int, sums []T) {
			if finish != nil {
				finish(i, sums)
			}
			storeReal(out, at+i*n, sums)
		})
	}
}

// runLinear: out[r, j] = Σ_k in[0][r, k]·in[1][j, k] + in[2][j]: torch.nn.functional.linear.
func runLinear(c *call) error {
	switch c.in[0].dtype {
	case tensor.Float64:
		linear[float64](c)
	case tensor.Float32, tensor.Float16, tensor.BFloat16:
		linear[float32](c)
	default:
		return integerLinear(c)
	}
	return nil
}

func linearWork(in, out []layers.Spec, _ layers.Attrs) int64 {
	n, k := in[1].Shape[0], in[1].Shape[1]
	m := volume(in[0].Shape[:len(in[0].Shape)-1])
	return scratchBytes(realBytes(in[0].DType), n) + productWork(m, n, k, out[0].DType)
}

func linear[T real](c *call) {
	x, w, out := c.in[0], c.in[1], c.out[0]
	n, k := w.shape()[0], w.shape()[1]
	work := scratch(c.work)
	bias := takeReal[T](&work, n)
	if len(c.in) > 2 && !c.in[2].absent() {
		loadAll(bias, c.in[2])
	} else {
		bias = nil
	}
	right := &matrix[T]{
		data: w.data, dtype: w.dtype, offset: w.layout.Offset, line: w.layout.Strides[0], step: w.layout.Strides[1],
	}
	lines(leading(x.layout, 1), func(at, first, stride, rows int) {
		left := &matrix[T]{data: x.data, dtype: x.dtype, offset: first, line: stride, step: lastStride(x.layout)}
		product(c.pool, rows, n, k, left, right, out, at*n, bias, linearEpilogue[T](c, at), work)
	})
}

// linearEpilogue returns what finishes rows of sums, the first of which is row first of the result; nil for nothing.
func linearEpilogue[T real](c *call, first int) func(i int, sums []T) {
	e := epilogue{residual: c.operand(3), act: activationLoop(c.attrs)}
	if e.residual.absent() && e.act == nil {
		return nil
	}
	return func(i int, sums []T) {
		row := any(sums).([]float32)
		if e.act != nil {
			e.act(row, [][]float32{row})
		}
		e.add(row, (first+i)*len(row))
	}
}

func lastStride(l tensor.Layout) int { return l.Strides[len(l.Strides)-1] }

// runMatmul: out[…, i, j] = beta·in[2][…, i, j] + alpha·Σ_k in[0][…, i, k]·in[1][…, k, j]: torch.matmul, addmm, baddbmm.
func runMatmul(c *call) error {
	switch c.in[0].dtype {
	case tensor.Float64:
		matmul[float64](c)
	case tensor.Float32, tensor.Float16, tensor.BFloat16:
		matmul[float32](c)
	default:
		return integerMatmul(c)
	}
	return nil
}

// matmulSizes are those of a batch of products.
type matmulSizes struct{ batch, m, n, k int }

func sizesOfMatmul(x, y tensor.Shape) matmulSizes {
	r := len(x)
	return matmulSizes{batch: volume(x[:r-2]), m: x[r-2], n: y[r-1], k: x[r-1]}
}

// parts returns over how many parts, each with scratch of its own, the products of a batch are spread. Large products
// are done one after the other, each by all threads.
func (s matmulSizes) parts() int {
	const small, most = 1 << 19, 16
	if s.batch < 2 || int64(s.m)*int64(s.n)*int64(s.k) > small {
		return 1
	}
	return min(s.batch, most)
}

func matmulWork(in, out []layers.Spec, _ layers.Attrs) int64 {
	s := sizesOfMatmul(in[0].Shape, in[1].Shape)
	d := out[0].DType
	if !isReal(d) {
		return 0
	}
	return int64(s.parts()) * productWork(s.m, s.n, s.k, d)
}

func matmul[T real](c *call) {
	x, y, out := c.in[0], c.in[1], c.out[0]
	s := sizesOfMatmul(x.shape(), y.shape())
	alpha, beta := T(c.attrs.Float("alpha")), T(c.attrs.Float("beta"))
	var add view
	if len(c.in) > 2 && beta != 0 {
		add = c.in[2]
	}
	one := func(p *Pool, i int, work scratch) {
		rank := len(x.shape())
		left := &matrix[T]{
			data: x.data, dtype: x.dtype, offset: offsetOf(leading(x.layout, 2), i),
			line: x.layout.Strides[rank-2], step: x.layout.Strides[rank-1],
		}
		right := &matrix[T]{
			data: y.data, dtype: y.dtype, offset: offsetOf(leading(y.layout, 2), i),
			line: y.layout.Strides[rank-1], step: y.layout.Strides[rank-2],
		}
		var finish func(r int, sums []T)
		switch {
		case !add.absent():
			first := offsetOf(leading(add.layout, 2), i)
			finish = func(r int, sums []T) {
				at, stride := first+r*add.layout.Strides[rank-2], add.layout.Strides[rank-1]
				scaleAndAdd(sums, alpha, beta, add, at, stride)
			}
		case alpha != 1:
			finish = func(_ int, sums []T) {
				for j := range sums {
					sums[j] *= alpha
				}
			}
		}
		product(p, s.m, s.n, s.k, left, right, out, i*s.m*s.n, nil, finish, work)
	}
	parts := s.parts()
	if parts == 1 {
		for i := range s.batch {
			one(c.pool, i, c.work)
		}
		return
	}
	each := len(c.work) / parts &^ 7
	c.pool.For(parts, 1, func(part, _ int) {
		work := scratch(c.work[part*each:][:each])
		for i := part * s.batch / parts; i < (part+1)*s.batch/parts; i++ {
			one(nil, i, work)
		}
	})
}

// scaleAndAdd: sums = alpha·sums + beta·v, for elements of v that lie stride apart from index at on.
func scaleAndAdd[T real](sums []T, alpha, beta T, v view, at, stride int) {
	var chunk [64]T
	for from := 0; from < len(sums); from += len(chunk) {
		part := sums[from:min(from+len(chunk), len(sums))]
		loadReal(chunk[:len(part)], v, at+from*stride, stride)
		for j := range part {
			part[j] = T(alpha*part[j]) + T(beta*chunk[j])
		}
	}
}

// runGroupedMatmul: out[r] = in[0][r]·in[1][g] for rows r in [in[2][g−1], in[2][g]), zero after the last group:
// torch.nn.functional.grouped_mm.
func runGroupedMatmul(c *call) error {
	if c.in[0].dtype == tensor.Float64 {
		return groupedMatmul[float64](c)
	}
	return groupedMatmul[float32](c)
}

func groupedMatmulWork(in, out []layers.Spec, _ layers.Attrs) int64 {
	return productWork(in[0].Shape[0], in[1].Shape[2], in[1].Shape[1], out[0].DType)
}

func groupedMatmul[T real](c *call) error {
	x, w, out := c.in[0], c.in[1], c.out[0]
	rows, k, n := x.shape()[0], x.shape()[1], w.shape()[2]
	start := 0
	for g := range w.shape()[0] {
		end := int(integerAt(c.in[2], g))
		if end < start || end > rows {
			return fmt.Errorf("group %d of %d rows ends at %d, the one before at %d", g, rows, end, start)
		}
		left := &matrix[T]{
			data: x.data, dtype: x.dtype, offset: x.layout.Offset + start*x.layout.Strides[0],
			line: x.layout.Strides[0], step: x.layout.Strides[1],
		}
		right := &matrix[T]{
			data: w.data, dtype: w.dtype, offset: w.layout.Offset + g*w.layout.Strides[0],
			line: w.layout.Strides[2], step: w.layout.Strides[1],
		}
		product(c.pool, end-start, n, k, left, right, out, start*n, nil, nil, c.work)
		start = end
	}
	clear(out.data[start*n*out.dtype.Size():][:(rows-start)*n*out.dtype.Size()])
	return nil
}

// integerAt returns element i of a one-dimensional view of int32 or int64.
func integerAt(v view, i int) int64 {
	at := v.layout.Offset + i*v.layout.Strides[0]
	if v.dtype == tensor.Int32 {
		return int64(elements[int32](v)[at])
	}
	return elements[int64](v)[at]
}
