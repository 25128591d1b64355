package cpu

import (
	"unsafe"

	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// A product of few rows takes as long as reading its right factor once, which is fastest as several streams side by
// side: some panels, or as many columns as a vector has lanes, turned in registers. Its bits are those of tiles.

// fewWidth returns how many columns are computed with together where the rows are few, 0 where that is not done.
func (g *gemmCall[T]) fewWidth() int {
	if g.set == nil {
		return 0
	}
	if g.source != rightPacked {
		if g.m > simd.FewRows || !g.set.FewPays(g.element) {
			return 0
		}
		return g.columns * g.set.FewPanels(g.element, g.m)
	}
	m := &g.right
	if g.takesCodes() {
		return g.columns
	}
	e, ok := acrossElement(m.dtype)
	if !ok || m.rounded || g.b != panelSource[T](m) || m.step != 1 || m.line < 0 || len(m.rows.Shape) > 0 {
		return 0
	}
	if depth := g.set.AcrossDepth(e, g.m); depth == 0 || g.k%depth != 0 || blockK%depth != 0 {
		return 0
	}
	return g.set.AcrossColumns(e, g.m)
}

// again reports whether the last columns may be computed together with some that are there already, from any column on: what
// they are written over does not go into them, nor what they read.
func (g *gemmCall[T]) again() bool {
	return g.source == rightPacked && g.gemmCut.depth >= g.k && !g.o.add &&
		g.o.ending.residual.Absent() && g.o.ending.addend.Absent()
}

// acrossElement returns what a dtype is to kernels that turn columns in registers.
func acrossElement(d tensor.DType) (simd.Element, bool) {
	switch d {
	case tensor.Float32:
		return simd.Float32, true
	case tensor.BFloat16:
		return simd.Pairs, true
	case tensor.Int8:
		return simd.Int8, true
	}
	return 0, false
}

// few adds the products of all blocks of the depth to the columns [j0, j1), which are as many as fewWidth says.
func (p *gemmPart[T]) few() {
	if p.right.encoding != nil {
		p.fewCodes()
		return
	}
	for k0 := p.k0; k0 < p.k1; k0 += blockK {
		k1 := min(k0+blockK, p.k1)
		left, lda := p.leftTile(p.i0, k0)
		mode, bias := p.firstBias(k0)
		here := p.rightAt(p.j0, k0)
		ahead := 0 // where the next call reads
		switch {
		case k1 < p.k1:
			ahead = p.rightAt(p.j0, k1) - here
		case p.j1+p.j1-p.j0 <= p.n:
			ahead = p.rightAt(p.j1, p.k0) - here
		}
		m := &p.right
		if p.source == rightPacked {
			e, _ := acrossElement(m.dtype)
			p.set.Across(e, p.m, k1-k0, singles(left), lda, m.data[here:], m.line*e.Bytes(), singles(p.c), p.ldc, mode, bias, ahead)
			continue
		}
		b := simd.Panel{Data: m.data[here:], Stride: m.step * p.element.Bytes(), Element: p.element}
		if p.source == rightPanels {
			b.Stride = p.columns * p.element.Bytes()
		}
		if p.element == simd.Pairs {
			b.Stride *= 2
		}
		next := p.rightAt(p.j0+p.columns, k0) - here
		p.set.Few(p.m, k1-k0, singles(left), lda, &b, next, singles(p.c), p.ldc, mode, bias, ahead)
	}
}

// rightAt returns the byte of the right factor at which column j begins at depth k.
func (p *gemmPart[T]) rightAt(j, k int) int {
	if p.source == rightPanels {
		return p.panelAt(j, k)
	}
	m := &p.right
	return (m.offset + j*m.line + k*m.step) * m.dtype.Size()
}

// firstMode returns what is added to the sums of a block of the depth from k0 on, with the biases of all rows or columns.
func (p *gemmPart[T]) firstMode(k0 int) (simd.Mode, []float32) {
	switch {
	case k0 > 0 || p.o.add:
		return simd.Add, nil
	case p.o.rowBias != nil:
		return simd.RowBias, singles(p.o.rowBias)
	case p.o.columnBias != nil:
		return simd.ColumnBias, singles(p.o.columnBias)
	}
	return simd.Store, nil
}

// firstBias is firstMode with the biases of the part's rows or columns.
func (p *gemmPart[T]) firstBias(k0 int) (simd.Mode, []float32) {
	mode, bias := p.firstMode(k0)
	switch mode {
	case simd.RowBias:
		bias = bias[p.gemmCall.i0+p.i0:]
	case simd.ColumnBias:
		bias = bias[p.j0:]
	}
	return mode, bias
}

// fetchResidual fetches the residual of some rows of a tile, which is far away, before they are complete.
func (p *gemmPart[T]) fetchResidual(i, rows, j, columns int) {
	v := p.o.ending.residual
	lead := v.Layout.Leading(1)
	stride, even := ops.Evenly(lead)
	if !even || ops.LastStride(v.Layout) != 1 {
		return
	}
	size := v.DType.Size()
	at := uintptr(unsafe.Pointer(unsafe.SliceData(v.Data)))
	at += uintptr((lead.Offset + (p.gemmCall.i0+i)*stride + j) * size)
	simd.FetchRows(rows, at, stride*size, columns*size)
}
