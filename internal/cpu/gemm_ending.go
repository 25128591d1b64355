package cpu

import (
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// An ending is what a product does to its sums once they are complete:
//
//	sum = residual[i, j] + act(alpha·sum + beta·addend[i, j])
//	sum = residual[i, j] + act(scales[j]·sum + bias[j])
//
// The rows of addend and residual are all their dimensions but the last.
type ending[T ops.Real] struct {
	// scales are those of columns, nil for none, and bias is what is added then, nil for nothing.
	scales, bias []T
	// scaled says that alpha counts; it does where there is an addend.
	scaled      bool
	alpha, beta T
	addend      ops.View
	act         *activation
	residual    ops.View
}

// any reports whether there is something to do.
func (e *ending[T]) any() bool {
	return e.scales != nil || e.scaled || !e.addend.Absent() || e.act != nil || !e.residual.Absent()
}

// actRows is of how many rows kernels compute activations before what comes after them: they stay in the nearest cache.
const actRows = 32

// completeSums are sums of a product to which nothing is added any more: those of some rows from row on and from column
// j on, width of each. Rows of c lie ldc apart.
type completeSums[T ops.Real] struct {
	row, rows, j, width int
	c                   []T
	ldc                 int
}

// finish does what the product's ending says to complete sums. Activations are computed of many rows at once, where
// room has space for them. Lanes call it side by side.
func (g *gemmCall[T]) finish(lane int, s completeSums[T], room []T) {
	if !g.o.ending.any() {
		return
	}
	each := s.rows
	switch act := g.o.ending.act; {
	case act == nil:
	case act.vector && g.set != nil:
		each = actRows
	default:
		each = max(1, len(room)/s.width)
	}
	for from := 0; from < s.rows; from += each {
		some := s
		some.row, some.rows, some.c = s.row+from, min(each, s.rows-from), s.c[from*s.ldc:]
		g.finishRows(lane, &some, room)
	}
}

// finishRows is finish for as many rows as room has space for.
func (g *gemmCall[T]) finishRows(lane int, s *completeSums[T], room []T) {
	e := &g.o.ending
	row, rows, j, width, c, ldc := s.row, s.rows, s.j, s.width, s.c, s.ldc
	switch {
	case e.scales != nil:
		for i := range rows {
			g.scaleColumns(j, c[i*ldc:][:width])
		}
	case e.scaled || !e.addend.Absent():
		for i := range rows {
			g.scaleSums(row+i, j, c[i*ldc:][:width])
		}
	}
	src, pitch := c, ldc
	switch {
	case e.act == nil:
	case e.act.vector && g.set != nil:
		op := &e.act.op
		g.set.MapRows(op.M, rows, width, singles(c), ldc, op.P0, op.P1, op.P2)
	default:
		if rows > 1 && ldc != width {
			for i := range rows {
				copy(room[i*width:][:width], c[i*ldc:])
			}
			src, pitch = room, width
		}
		in := &g.operands[lane]
		in[0] = singles(src[:rows*width])
		e.act.loop(in[0], in[:])
	}
	if e.residual.Absent() {
		if pitch != ldc {
			for i := range rows {
				copy(c[i*ldc:][:width], src[i*pitch:])
			}
		}
		return
	}
	lead := e.residual.Layout.Leading(1)
	stride, even := ops.Evenly(lead)
	if even && stride >= 0 && ops.LastStride(e.residual.Layout) == 1 && g.set != nil {
		from := ops.Elements[T](e.residual)[lead.Offset+row*stride+j:]
		g.set.AddRows(rows, width, singles(c), ldc, singles(src), pitch, singles(from), stride)
		return
	}
	for i := range rows {
		at := lead.Offset + (row+i)*stride
		if !even {
			at = lead.OffsetOf(row + i)
		}
		g.addResidual(at, j, c[i*ldc:][:width], src[i*pitch:][:width])
	}
}

// scaleColumns does to sums what comes before the activation where columns have scales.
func (g *gemmCall[T]) scaleColumns(j int, sums []T) {
	e := &g.o.ending
	scales := e.scales[j:][:len(sums)]
	var bias []T
	if e.bias != nil {
		bias = e.bias[j:][:len(sums)]
	}
	if g.set != nil {
		to := singles(sums)
		g.set.Map(simd.MapMul, to, to, singles(scales), nil, 0, 0, 0)
		if bias != nil {
			g.set.Map(simd.MapAdd, to, to, singles(bias), nil, 0, 0, 0)
		}
		return
	}
	for i := range sums {
		sums[i] *= scales[i]
	}
	for i, x := range bias {
		sums[i] += x
	}
}

// scaleSums does to sums what comes before the activation.
func (g *gemmCall[T]) scaleSums(row, j int, sums []T) {
	e := &g.o.ending
	if !e.addend.Absent() {
		at, stride := rowAt(e.addend.Layout, row, j)
		scaleAndAdd(sums, e.alpha, e.beta, e.addend, at, stride)
		return
	}
	for i := range sums {
		sums[i] *= e.alpha
	}
}

// addResidual adds elements of the residual from column j on, whose row begins at an element.
func (g *gemmCall[T]) addResidual(at, j int, to, sums []T) {
	stride := ops.LastStride(g.o.ending.residual.Layout)
	src := ops.Elements[T](g.o.ending.residual)[at+j*stride:]
	if stride == 1 && g.set != nil {
		g.set.Map(simd.MapAdd, singles(to), singles(sums), singles(src[:len(to)]), nil, 0, 0, 0)
		return
	}
	for i, x := range sums {
		to[i] = x + src[i*stride]
	}
}

// rowAt returns where element j of a row lies, and the elements to the next.
func rowAt(l tensor.Layout, row, j int) (at, stride int) {
	stride = ops.LastStride(l)
	return l.Leading(1).OffsetOf(row) + j*stride, stride
}
