package cpu

import (
	"fmt"
	"strconv"

	"github.com/optimem/optimem/graph"
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
)

// linearKernels are products of matrices. Half floats are computed in float32 and rounded once.
var linearKernels = map[graph.Kind]kernel{
	"linear": {
		run: runLinear, workOn: linearWork, supports: linearSupports, packs: linearPacks, pack: packLinear,
		label: productLabel("linear"),
	},
	"matmul": {
		run: runMatmul, workOn: matmulWork, supports: matmulSupports, packs: matmulPacks, pack: packMatmul,
		label: productLabel("matmul"),
	},
	"grouped_matmul": {run: runGroupedMatmul, workOn: groupedMatmulWork, supports: onlyReal},
	"cross":          {run: runCross, supports: onlyNumbers},
}

// onlyNumbers is the support of kernels that compute in floats and integers.
func onlyNumbers(in, _ []graph.Spec, _ graph.Attrs) error {
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
func linearSupports(in, out []graph.Spec, a graph.Attrs) error {
	if err := epilogueSupports(in, out, a); err != nil {
		return err
	}
	if byCodes(a) {
		return codesSupports(in, a)
	}
	return matmulSupports(in, out, a)
}

// matmulSupports takes floats and integers, in a precision that the processor has.
func matmulSupports(in, out []graph.Spec, a graph.Attrs) error {
	if err := precisionSupports(in, a); err != nil {
		return err
	}
	return onlyNumbers(in, out, a)
}

// A manner is how a product is to be computed.
type manner struct {
	// round says that factors may be rounded to bfloat16.
	round bool
	// alone says that the bits of a row are not to depend on how many rows there are: a matrix unit, which sums in an order of
	// its own and is of use to many rows only, computes none.
	alone bool
}

func mannerOf(a graph.Attrs) manner { return manner{round: rounds(a), alone: a.Bool(graph.RowsAlone)} }

// productWork returns the scratch that product takes on a number of threads.
func productWork(threads, m, n, k int, d tensor.DType, how manner) int64 {
	if !isReal(d) {
		return 0
	}
	if how.round && !how.alone && m >= unitLeastRows {
		return unitWork(m, n, k, threads, true)
	}
	bytes := gemmWorkOn(threads, m, n, k, realBytes(d), isHalf(d))
	if d == tensor.BFloat16 && !how.alone {
		bytes = max(bytes, unitWork(m, n, k, threads, false))
	}
	return bytes
}

// A factor is a matrix in the memory of a view; see [matrix].
type factor struct {
	v                  view
	offset, line, step int
	rows               tensor.Layout
	// encoding is that of the blocks in v, nil for numbers.
	encoding *encoded.Encoding
}

// rowsOf returns all but the last dimension of a view as the lines of a left factor.
func rowsOf(v view) factor {
	f := factor{v: v, offset: v.layout.Offset, step: lastStride(v.layout)}
	lead := v.layout.Leading(1)
	stride, even := evenly(lead)
	if !even {
		f.rows = lead
	}
	f.line = stride
	return f
}

// evenly returns how far apart the elements of a layout lie in row-major order, false where that differs.
func evenly(l tensor.Layout) (stride int, even bool) {
	last := -1
	for d := len(l.Shape) - 1; d >= 0; d-- {
		if l.Shape[d] == 1 {
			continue
		}
		if last >= 0 && l.Strides[d] != l.Strides[last]*l.Shape[last] {
			return 0, false
		}
		if last < 0 {
			stride = l.Strides[d]
		}
		last = d
	}
	return stride, true
}

// A product is m rows of out, n wide, from element at of out's memory on: out = a·b for factors of depth k, plus bias
// for each column unless it is nil, and what the ending says.
type product[T real] struct {
	m, n, k int
	a, b    factor
	out     view
	at      int
	bias    []T
	end     ending[T]
	how     manner
	work    []byte
}

func (x *product[T]) run(p *Pool, set *simd.Set) {
	if x.m == 0 || x.n == 0 {
		return
	}
	g := takeGemm[T]()
	a, b := &x.a, &x.b
	g.left = matrix[T]{data: a.v.data, dtype: a.v.dtype, offset: a.offset, line: a.line, step: a.step, rows: a.rows}
	g.right = matrix[T]{
		data: b.v.data, dtype: b.v.dtype, offset: b.offset, line: b.line, step: b.step, packed: b.v.packed, encoding: b.encoding,
	}
	g.a, g.b = &g.left, &g.right
	g.m, g.n, g.k, g.work, g.set = x.m, x.n, x.k, x.work, set
	g.o = gemmOptions[T]{columnBias: x.bias, ending: x.end}
	if isHalf(x.out.dtype) {
		g.o.half, g.o.halfAt = x.out, x.at
	} else {
		g.c, g.ldc = elements[T](x.out)[x.at:], x.n
	}
	g.round = x.how.round
	switch {
	case !x.how.alone && g.byUnit():
		g.runUnit(p)
	case x.how.round && set != nil:
		g.roundFew()
		g.run(p)
	default:
		g.run(p)
	}
	g.release()
}

// runLinear: out[r, j] = Σ_k in[0][r, k]·in[1][j, k] + in[2][j]: torch.nn.functional.linear.
func runLinear(c *call) error {
	switch c.in[0].dtype {
	case tensor.Float64:
		linear[float64](c)
	case tensor.Float32, tensor.Float16, tensor.BFloat16:
		if byCodes(c.attrs) {
			linearByCodes(c)
			return nil
		}
		linear[float32](c)
	default:
		return integerLinear(c)
	}
	return nil
}

func linearWork(threads int, in, out []graph.Spec, a graph.Attrs) int64 {
	n, k := in[1].Shape[0], in[0].Shape[len(in[0].Shape)-1]
	m := volume(in[0].Shape[:len(in[0].Shape)-1])
	if byCodes(a) {
		return scratchBytes(4, n) + codesWork(threads, m, n, k)
	}
	rows := []int{n}
	if graph.HasScales(in) {
		rows = append(rows, n)
	}
	return scratchBytes(realBytes(in[0].DType), rows...) + productWork(threads, m, n, k, out[0].DType, mannerOf(a))
}

// linearPacks offers the weight in panels.
func linearPacks(in, _ []graph.Spec, a graph.Attrs) []graph.Pack {
	if !isReal(in[0].DType) || graph.IsEncoded(a) {
		return nil
	}
	return panelPacks(in[1].Shape[0], in[1].Shape[1], 0, in[1].DType, rounds(a))
}

// panelPacks offers operand 1, a right factor n×k, in panels, rounded to bfloat16 or as it is; its columns are
// dimension dim.
func panelPacks(n, k, dim int, d tensor.DType, round bool) []graph.Pack {
	set := simd.Best()
	if _, ok := elementOf(d); !ok || set == nil || n == 0 || k == 0 {
		return nil
	}
	form := "panels of " + strconv.Itoa(set.Columns)
	copied := round && d == tensor.Float32
	if round {
		d, form = tensor.BFloat16, form+", bfloat16"
	}
	return []graph.Pack{{In: 1, Bytes: panelBytes(n, k, d), Form: form, Dim: dim, Step: stripColumns, Copy: copied}}
}

func packLinear(pool *Pool, a graph.Attrs, _ graph.Pack, raw view, dst []byte) error {
	l := raw.layout
	packPanels(pool, matrix[float32]{
		data: raw.data, dtype: raw.dtype, offset: l.Offset, line: l.Strides[0], step: l.Strides[1],
	}, l.Shape[0], l.Shape[1], rounds(a), dst)
	return nil
}

func linear[T real](c *call) {
	x, w, out := c.in[0], c.in[1], c.out[0]
	n, k := w.shape()[0], x.shape()[len(x.shape())-1]
	work := scratch(c.work)
	bias := rowIn(c.operand(2), takeReal[T](&work, n))
	right := factor{v: w, offset: w.layout.Offset, line: w.layout.Strides[0], step: w.layout.Strides[1]}
	right.encoding = graph.EncodingOf(c.attrs)
	end := ending[T]{residual: c.operand(3), act: activationOf(c.attrs)}
	if s := c.operand(4); !s.absent() {
		end.scales, end.bias, bias = rowIn(s, takeReal[T](&work, n)), bias, nil
	}
	m := volume(x.shape()[:len(x.shape())-1])
	made := product[T]{
		m: m, n: n, k: k, a: rowsOf(x), b: right, out: out, at: out.layout.Offset, bias: bias, end: end, how: mannerOf(c.attrs),
		work: work,
	}
	made.run(c.pool, c.pool.set)
}

// rowIn returns the elements of a vector, in room if they do not lie in a row as T; nil for one that is absent.
func rowIn[T real](v view, room []T) []T {
	if v.absent() {
		return nil
	}
	if v.dtype == realDType[T]() && v.layout.Strides[0] == 1 {
		return elements[T](v)[v.layout.Offset:][:len(room)]
	}
	loadReal(room, v, v.layout.Offset, v.layout.Strides[0])
	return room
}

func lastStride(l tensor.Layout) int { return l.Strides[len(l.Strides)-1] }

// runGroupedMatmul: out[r] = in[0][r]·in[1][g] for rows r in [in[2][g−1], in[2][g]), zero after the last group:
// torch.nn.functional.grouped_mm.
func runGroupedMatmul(c *call) error {
	if c.in[0].dtype == tensor.Float64 {
		return groupedMatmul[float64](c)
	}
	return groupedMatmul[float32](c)
}

func groupedMatmulWork(threads int, in, out []graph.Spec, a graph.Attrs) int64 {
	return productWork(threads, in[0].Shape[0], in[1].Shape[2], in[1].Shape[1], out[0].DType, mannerOf(a))
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
		left := factor{
			v: x, offset: x.layout.Offset + start*x.layout.Strides[0], line: x.layout.Strides[0], step: x.layout.Strides[1],
		}
		right := factor{
			v: w, offset: w.layout.Offset + g*w.layout.Strides[0], line: w.layout.Strides[2], step: w.layout.Strides[1],
		}
		group := product[T]{
			m: end - start, n: n, k: k, a: left, b: right, out: out, at: start * n, how: mannerOf(c.attrs), work: c.work,
		}
		group.run(c.pool, c.pool.set)
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
