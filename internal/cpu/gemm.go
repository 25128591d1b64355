package cpu

import (
	"unsafe"

	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/tensor"
)

// A real is a type that products of matrices are computed in.
type real interface{ float32 | float64 }

// The sizes of the blocks that gemm works through. A tile of tileRows × tileColumns is one part of parallel work. Sums
// over k run in order within a block of blockK and the blocks' sums are added in order, so results depend on nothing
// else: not on the threads, nor on where in the matrix a row or column stands.
const (
	kernelRows, kernelColumns = 2, 4
	unroll                    = 4

	blockK                  = 256
	blockRows, blockColumns = 2048, 1024
	tileRows, tileColumns   = 32, 128
)

// A panelSource gives one factor of a product in the order that gemm reads it. A line is a row of the left factor or a
// column of the right one.
type panelSource[T real] interface {
	// pack writes the elements [k0, k1) of the lines [from, to) to dst, in groups of width lines: element k of line l
	// goes to dst[(l-from)/width·depth·width + (k-k0)·width + (l-from)%width], where depth is k1-k0 rounded up to a
	// multiple of unroll. All other elements of the groups are set to zero. from is a multiple of width.
	pack(dst []T, width, from, to, k0, k1 int)
}

// A matrix is a strided panelSource over the memory of a tensor: element k of line l lies at offset + l·line + k·step.
// For a row-major left factor m×k, line is k and step is 1; for a row-major right factor k×n, line is 1 and step is n,
// and for a weight n×k that PyTorch's linear multiplies by, line is k and step is 1. Half floats become float32.
type matrix[T real] struct {
	data               []byte
	dtype              tensor.DType
	offset, line, step int
}

// gemm computes c = a·b, m×n with rows that lie ldc elements apart, for factors of depth k. T is float32, also for half
// floats, or float64.
//
//	a := &matrix[float32]{data: x.data, dtype: x.dtype, offset: x.layout.Offset, line: k, step: 1}
//	w := &matrix[float32]{data: y.data, dtype: y.dtype, offset: y.layout.Offset, line: k, step: 1}
//	gemm(c.pool, m, n, k, a, w, out, n, gemmOptions[float32]{columnBias: bias}, c.work[:gemmWork(m, n, k, 4)])
//
// work has the size that gemmWork gives and a multiple of 8 as address. With a nil pool the work is done by the
// caller's goroutine alone, with the same results.
func gemm[T real](p *Pool, m, n, k int, a, b panelSource[T], c []T, ldc int, o gemmOptions[T], work []byte) {
	if m == 0 || n == 0 {
		return
	}
	if k == 0 {
		for i := range m {
			for j := range n {
				c[i*ldc+j] = o.first(c, i, j, i*ldc+j)
			}
		}
		return
	}
	if set := simd.Best(); set != nil {
		if c, ok := any(c).([]float32); ok {
			gemmTiles(set, p, m, n, k, any(a).(panelSource[float32]), any(b).(panelSource[float32]), c, ldc,
				any(o).(gemmOptions[float32]), work)
			return
		}
	}
	if skinny(p, m, n, k, a, b, c, ldc, o) {
		return
	}
	scratch := elements[T](view{data: work})
	for j0 := 0; j0 < n; j0 += blockColumns {
		j1 := min(j0+blockColumns, n)
		for k0 := 0; k0 < k; k0 += blockK {
			k1 := min(k0+blockK, k)
			depth := roundUp(k1-k0, unroll)
			bSize := roundUp(j1-j0, kernelColumns) * depth
			right := scratch[:bSize]
			for i0 := 0; i0 < m; i0 += blockRows {
				i1 := min(i0+blockRows, m)
				left := scratch[bSize:][:roundUp(i1-i0, kernelRows)*depth]
				packBoth(p, left, right, a, b, i0, i1, j0, j1, k0, k1, i0 == 0)
				t := tiles[T]{
					left: left, right: right, c: c, ldc: ldc, o: o, depth: depth,
					i0: i0, i1: i1, j0: j0, j1: j1, first: k0 == 0,
				}
				t.run(p)
			}
		}
	}
}

// gemmOptions are what gemm adds to a product. At most one of them is set.
type gemmOptions[T real] struct {
	// rowBias and columnBias are added to the rows' or columns' elements.
	rowBias, columnBias []T
	// add adds to what c holds instead of replacing it.
	add bool
}

// first returns what the product is added to.
func (o *gemmOptions[T]) first(c []T, i, j, at int) T {
	switch {
	case o.add:
		return c[at]
	case o.rowBias != nil:
		return o.rowBias[i]
	case o.columnBias != nil:
		return o.columnBias[j]
	}
	return 0
}

// gemmWork returns the bytes of scratch memory for a product of elements of the given size.
func gemmWork(m, n, k, size int) int64 {
	depth := int64(min(roundUp(k, unroll), blockK))
	rows := int64(min(roundUp(m, kernelRows), blockRows))
	columns := int64(min(roundUp(n, widestTile), blockColumns))
	return (rows + columns) * depth * int64(size)
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }

// packBoth packs a block of each factor; withRight is false where the right one is packed already.
func packBoth[T real](
	p *Pool, left, right []T, a, b panelSource[T], i0, i1, j0, j1, k0, k1 int, withRight bool,
) {
	const linesEach = 32
	depth := roundUp(k1-k0, unroll)
	leftParts := (i1 - i0 + linesEach - 1) / linesEach
	parts := leftParts
	if withRight {
		parts += (j1 - j0 + linesEach - 1) / linesEach
	}
	forEach(p, parts, func(part int) {
		src, dst, width, from, to := a, left, kernelRows, i0, i1
		if part >= leftParts {
			part -= leftParts
			src, dst, width, from, to = b, right, kernelColumns, j0, j1
		}
		dst = dst[part*linesEach*depth:]
		src.pack(dst, width, from+part*linesEach, min(from+(part+1)*linesEach, to), k0, k1)
	})
}

// forEach runs body for [0, n), in parallel where there is a pool.
func forEach(p *Pool, n int, body func(i int)) {
	if p == nil {
		for i := range n {
			body(i)
		}
		return
	}
	p.For(n, 1, func(from, to int) {
		for i := from; i < to; i++ {
			body(i)
		}
	})
}

// tiles are the product of packed blocks: the rows [i0, i1) and columns [j0, j1) of c.
type tiles[T real] struct {
	left, right    []T
	c              []T
	ldc            int
	o              gemmOptions[T]
	depth          int
	i0, i1, j0, j1 int
	// first says that c holds no sum yet.
	first bool
}

func (t *tiles[T]) run(p *Pool) {
	down := (t.i1 - t.i0 + tileRows - 1) / tileRows
	across := (t.j1 - t.j0 + tileColumns - 1) / tileColumns
	forEach(p, down*across, func(n int) {
		i0, j0 := t.i0+n%down*tileRows, t.j0+n/down*tileColumns
		t.tile(i0, min(i0+tileRows, t.i1), j0, min(j0+tileColumns, t.j1))
	})
}

func (t *tiles[T]) tile(i0, i1, j0, j1 int) {
	var acc [kernelRows * kernelColumns]T
	for j := j0; j < j1; j += kernelColumns {
		right := t.right[(j-t.j0)*t.depth:][:kernelColumns*t.depth]
		for i := i0; i < i1; i += kernelRows {
			left := t.left[(i-t.i0)*t.depth:][:kernelRows*t.depth]
			multiplyPanels(left, right, &acc)
			rows, columns := min(kernelRows, i1-i), min(kernelColumns, j1-j)
			for r := range rows {
				at := (i+r)*t.ldc + j
				line := t.c[at : at+columns]
				sums := acc[r*kernelColumns:][:kernelColumns]
				if t.first && !t.o.add {
					for s := range line {
						line[s] = t.o.first(t.c, i+r, j+s, at+s) + sums[s]
					}
					continue
				}
				for s := range line {
					line[s] += sums[s]
				}
			}
		}
	}
}

// multiplyPanels computes acc[r][s] = Σ a[k][r]·b[k][s] for panels of 2 and 4 lines whose depth is a multiple of
// unroll. The conversions keep compilers from fusing, so that every machine computes the same bits.
func multiplyPanels[T real](a, b []T, acc *[kernelRows * kernelColumns]T) {
	var c00, c01, c02, c03, c10, c11, c12, c13 T
	for len(a) >= kernelRows*unroll && len(b) >= kernelColumns*unroll {
		x, y := (*[kernelRows * unroll]T)(a), (*[kernelColumns * unroll]T)(b)
		y0, y1, y2, y3 := y[0], y[1], y[2], y[3]
		x0, x1 := x[0], x[1]
		c00 += T(x0 * y0)
		c01 += T(x0 * y1)
		c02 += T(x0 * y2)
		c03 += T(x0 * y3)
		c10 += T(x1 * y0)
		c11 += T(x1 * y1)
		c12 += T(x1 * y2)
		c13 += T(x1 * y3)
		y0, y1, y2, y3 = y[4], y[5], y[6], y[7]
		x0, x1 = x[2], x[3]
		c00 += T(x0 * y0)
		c01 += T(x0 * y1)
		c02 += T(x0 * y2)
		c03 += T(x0 * y3)
		c10 += T(x1 * y0)
		c11 += T(x1 * y1)
		c12 += T(x1 * y2)
		c13 += T(x1 * y3)
		y0, y1, y2, y3 = y[8], y[9], y[10], y[11]
		x0, x1 = x[4], x[5]
		c00 += T(x0 * y0)
		c01 += T(x0 * y1)
		c02 += T(x0 * y2)
		c03 += T(x0 * y3)
		c10 += T(x1 * y0)
		c11 += T(x1 * y1)
		c12 += T(x1 * y2)
		c13 += T(x1 * y3)
		y0, y1, y2, y3 = y[12], y[13], y[14], y[15]
		x0, x1 = x[6], x[7]
		c00 += T(x0 * y0)
		c01 += T(x0 * y1)
		c02 += T(x0 * y2)
		c03 += T(x0 * y3)
		c10 += T(x1 * y0)
		c11 += T(x1 * y1)
		c12 += T(x1 * y2)
		c13 += T(x1 * y3)
		a, b = a[kernelRows*unroll:], b[kernelColumns*unroll:]
	}
	*acc = [kernelRows * kernelColumns]T{c00, c01, c02, c03, c10, c11, c12, c13}
}

// skinny computes products with few rows where both factors lie along k, without packing the right one, which would
// cost more than the product: the layers of a language model that reads one token. It sums in the order that gemm does.
func skinny[T real](p *Pool, m, n, k int, a, b panelSource[T], c []T, ldc int, o gemmOptions[T]) bool {
	x, ok := a.(*matrix[T])
	w, ok2 := b.(*matrix[T])
	if !ok || !ok2 || m > 4 {
		return false
	}
	left, right := x.direct(), w.direct()
	if left == nil || right == nil {
		return false
	}
	const each = 32
	columns := func(j0, j1 int) {
		for i := range m {
			row := left[x.offset+i*x.line:][:k]
			j := j0
			for ; j+4 <= j1; j += 4 {
				var s [4]T
				for r := range s {
					s[r] = o.first(c, i, j+r, i*ldc+j+r)
				}
				at := w.offset + j*w.line
				dot4(row, right[at:][:k], right[at+w.line:][:k], right[at+2*w.line:][:k], right[at+3*w.line:][:k], &s)
				copy(c[i*ldc+j:i*ldc+j+4], s[:])
			}
			for ; j < j1; j++ {
				c[i*ldc+j] = dot(row, right[w.offset+j*w.line:][:k], o.first(c, i, j, i*ldc+j))
			}
		}
	}
	if p == nil {
		columns(0, n)
	} else {
		p.For(n, each, columns)
	}
	return true
}

// direct returns the memory of a matrix that lies along k and is of T, nil for others.
func (m *matrix[T]) direct() []T {
	if m.step != 1 || (m.dtype != tensor.Float32 && m.dtype != tensor.Float64) {
		return nil
	}
	return elements[T](view{data: m.data})
}

// dot returns start + Σ a[k]·b[k], block by block as gemm sums.
func dot[T real](a, b []T, start T) T {
	for k0 := 0; k0 < len(a); k0 += blockK {
		x := a[k0:min(k0+blockK, len(a))]
		y := b[k0:][:len(x)]
		var s T
		for i := range x {
			s += T(x[i] * y[i])
		}
		start += s
	}
	return start
}

// dot4 is dot for four right-hand sides.
func dot4[T real](a, b0, b1, b2, b3 []T, start *[4]T) {
	for k0 := 0; k0 < len(a); k0 += blockK {
		x := a[k0:min(k0+blockK, len(a))]
		y0, y1, y2, y3 := b0[k0:][:len(x)], b1[k0:][:len(x)], b2[k0:][:len(x)], b3[k0:][:len(x)]
		var s0, s1, s2, s3 T
		for i, v := range x {
			s0 += T(v * y0[i])
			s1 += T(v * y1[i])
			s2 += T(v * y2[i])
			s3 += T(v * y3[i])
		}
		start[0] += s0
		start[1] += s1
		start[2] += s2
		start[3] += s3
	}
}

// pack implements panelSource.
//
//lint:ignore U1000 called through the interface, which the checker does not see for generic types
func (m *matrix[T]) pack(dst []T, width, from, to, k0, k1 int) {
	switch m.dtype {
	case tensor.Float16:
		packAs(m, elements[uint16](view{data: m.data}), tensor.Float16ToFloat32, dst, width, from, to, k0, k1)
	case tensor.BFloat16:
		packAs(m, elements[uint16](view{data: m.data}), tensor.BFloat16ToFloat32, dst, width, from, to, k0, k1)
	default:
		var zero T
		if int(unsafe.Sizeof(zero)) != m.dtype.Size() {
			panic("BUG: a matrix of " + m.dtype.String())
		}
		m.packDirect(elements[T](view{data: m.data}), dst, width, from, to, k0, k1)
	}
}

// clearTail sets to zero what pads a group of lines: the depth that is rounded up, and lines that do not exist.
func clearTail[T real](group []T, width, lines, n int) {
	clear(group[n*width:])
	if lines == width {
		return
	}
	for k := range n {
		clear(group[k*width+lines : (k+1)*width])
	}
}

func (m *matrix[T]) packDirect(src, dst []T, width, from, to, k0, k1 int) {
	n := k1 - k0
	depth := roundUp(n, unroll)
	for l := from; l < to; l += width {
		group := dst[(l-from)*depth:][:depth*width]
		lines := min(width, to-l)
		clearTail(group, width, lines, n)
		at := m.offset + l*m.line + k0*m.step
		switch {
		case width == 1 && m.step == 1:
			copy(group, src[at:at+n])
		case lines == width && m.line == 1:
			for k := range n {
				copy(group[width*k:][:width], src[at+k*m.step:])
			}
		case width > 4 && m.step == 1 && transposePanel(src, at, m.line, group, width, lines, n):
		case lines == 4 && width == 4 && m.line == 1:
			for k := range n {
				*(*[4]T)(group[4*k:]) = *(*[4]T)(src[at+k*m.step:])
			}
		case lines == 4 && width == 4 && m.step == 1:
			s0, s1, s2, s3 := src[at:][:n], src[at+m.line:][:n], src[at+2*m.line:][:n], src[at+3*m.line:][:n]
			for k := range s0 {
				*(*[4]T)(group[4*k:]) = [4]T{s0[k], s1[k], s2[k], s3[k]}
			}
		case lines == 2 && width == 2 && m.step == 1:
			s0, s1 := src[at:][:n], src[at+m.line:][:n]
			for k := range s0 {
				*(*[2]T)(group[2*k:]) = [2]T{s0[k], s1[k]}
			}
		default:
			for r := range lines {
				line := at + r*m.line
				for k := range n {
					group[k*width+r] = src[line+k*m.step]
				}
			}
		}
	}
}

// transposePanel packs lines that lie along k with the kernels of a processor; it reports whether it could.
func transposePanel[T real](src []T, at, line int, group []T, width, lines, n int) bool {
	from, ok := any(src).([]float32)
	set := simd.Best()
	if !ok || set == nil {
		return false
	}
	to := any(group).([]float32)
	r := 0
	for ; r+8 <= lines; r += 8 {
		set.Transpose(n/8, from[at+r*line:], line, to[r:], width)
		for k := n &^ 7; k < n; k++ {
			for i := range 8 {
				to[k*width+r+i] = from[at+(r+i)*line+k]
			}
		}
	}
	for ; r < lines; r++ {
		for k, x := range from[at+r*line:][:n] {
			to[k*width+r] = x
		}
	}
	return true
}

func packAs[T real](m *matrix[T], src []uint16, convert func(uint16) float32, dst []T, width, from, to, k0, k1 int) {
	n := k1 - k0
	depth := roundUp(n, unroll)
	for l := from; l < to; l += width {
		group := dst[(l-from)*depth:][:depth*width]
		lines := min(width, to-l)
		clearTail(group, width, lines, n)
		for r := range lines {
			at := m.offset + (l+r)*m.line + k0*m.step
			for k := range n {
				group[k*width+r] = T(convert(src[at+k*m.step]))
			}
		}
	}
}
