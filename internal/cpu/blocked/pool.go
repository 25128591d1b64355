package blocked

import (
	"math"
	"slices"
	"unsafe"

	"github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/tasks"
)

// A Window is the geometry of a pool over values in blocks.
type Window struct {
	Batch, Channels, Height, Width, OutHeight, OutWidth                       int
	KernelH, KernelW, StrideH, StrideW, PadTop, PadLeft, DilationH, DilationW int
	// Adaptive says that output o of n reads the inputs from ⌊o·size/n⌋ to ⌈(o+1)·size/n⌉; the kernel, stride, padding and
	// dilation do not count.
	Adaptive bool
	// PadBottom and PadRight are the padding that a mean counts behind the last row and column, IncludePad whether it
	// counts padding at all, Divisor what it divides by instead where that is not 0.
	PadBottom, PadRight int
	IncludePad          bool
	Divisor             int
}

// A windowSide is how a window lies along one dimension of the input and the output.
type windowSide struct{ size, out, kernel, stride, pad, padEnd, dilation int }

// span returns the inputs from, from+dilation, … below to that output o reads along a dimension, and how many elements
// a mean that counts padding divides by.
func (e windowSide) span(o int, adaptive bool) (from, to, step, count int) {
	if adaptive {
		from, to = o*e.size/e.out, ((o+1)*e.size+e.out-1)/e.out
		return from, to, 1, to - from
	}
	from = o*e.stride - e.pad
	to = from + (e.kernel-1)*e.dilation + 1
	count = min(to, e.size+e.padEnd) - from
	to = min(to, e.size)
	if from < 0 {
		from += (-from + e.dilation - 1) / e.dilation * e.dilation
	}
	return from, to, e.dilation, count
}

func (w *Window) rows(o int) (from, to, step, count int) {
	e := windowSide{w.Height, w.OutHeight, w.KernelH, w.StrideH, w.PadTop, w.PadBottom, w.DilationH}
	return e.span(o, w.Adaptive)
}

func (w *Window) columns(o int) (from, to, step, count int) {
	e := windowSide{w.Width, w.OutWidth, w.KernelW, w.StrideW, w.PadLeft, w.PadRight, w.DilationW}
	return e.span(o, w.Adaptive)
}

// MaxPool writes the largest element of each window, NaN where one is.
func MaxPool(pool Pool, w Window, x, y []float32) { maxPool(pool, best(), w, x, y) }

func maxPool(pool Pool, set *kernel.ConvSet, w Window, x, y []float32) {
	poolRows{Window: w, set: set, x: x, y: y, largest: true}.do(pool)
}

// AvgPool writes the mean of each window. An adaptive one with an output of 1×1 is the global mean.
func AvgPool(pool Pool, w Window, x, y []float32) { avgPool(pool, best(), w, x, y) }

// wideWindow is the number of elements from which on sums are taken in float64.
const wideWindow = 32

func avgPool(pool Pool, set *kernel.ConvSet, w Window, x, y []float32) {
	wide := w.Adaptive || w.KernelH*w.KernelW >= wideWindow
	poolRows{Window: w, set: set, x: x, y: y, wide: wide}.do(pool)
}

// poolRows computes every row of the output of every block: the largest elements of windows, or means, with sums in float64
// where windows are wide.
type poolRows struct {
	Window
	set           *kernel.ConvSet
	x, y          []float32
	largest, wide bool
}

func (t poolRows) do(pool Pool) {
	check(&t.Window, t.x, t.y)
	rows := t.OutHeight * Blocks(t.Channels) * t.Batch
	tasks.Do(pool, rows, max(1, 512/max(1, t.OutWidth*t.taps())), t)
}

// taps is the most elements that a window has.
func (w *Window) taps() int {
	if w.Adaptive {
		return (w.Height/w.OutHeight + 2) * (w.Width/w.OutWidth + 2)
	}
	return w.KernelH * w.KernelW
}

// Run implements tasks.Task.
func (t *poolRows) Run(from, to int) {
	if t.wide {
		for i := from; i < to; i++ {
			t.wideMeans(t.set, i/t.OutHeight, i%t.OutHeight, t.x, t.y)
		}
		return
	}
	offsets := takeOffsets(t.taps())
	for i := from; i < to; i++ {
		t.row(i/t.OutHeight, i%t.OutHeight, *offsets)
	}
	tasks.Give(offsets)
}

// takeOffsets returns room for so many offsets, which tasks.Give takes back.
func takeOffsets(n int) *[]int {
	offsets := tasks.Take[[]int]()
	*offsets = slices.Grow((*offsets)[:0], n)
	return offsets
}

// divisor returns what a mean over a number of elements divides by: rows and columns are with padding.
func (w *Window) divisor(rows, columns, elements int) int {
	switch {
	case w.Divisor != 0:
		return w.Divisor
	case w.IncludePad:
		return rows * columns
	}
	return elements
}

// wideMeans computes a row of means with sums in float64.
func (w *Window) wideMeans(set *kernel.ConvSet, plane, oy int, x, y []float32) {
	y0, y1, dy, rows := w.rows(oy)
	for ox := range w.OutWidth {
		x0, x1, dx, columns := w.columns(ox)
		var sum [Lanes]float64
		count := ceil(max(0, y1-y0), dy) * ceil(max(0, x1-x0), dx)
		switch {
		case count == 0:
		case dx == 1 && dy == 1 && x1-x0 == w.Width:
			at := (plane*w.Height + y0) * w.Width * Lanes
			set.SumWide(x[at:at+count*Lanes], &sum)
		default:
			for iy := y0; iy < y1; iy += dy {
				at := (plane*w.Height + iy) * w.Width
				if dx == 1 {
					set.SumWide(x[(at+x0)*Lanes:(at+x1)*Lanes], &sum)
					continue
				}
				for ix := x0; ix < x1; ix += dx {
					set.SumWide(x[(at+ix)*Lanes:(at+ix+1)*Lanes], &sum)
				}
			}
		}
		divisor := float64(w.divisor(rows, columns, count))
		out := y[((plane*w.OutHeight+oy)*w.OutWidth+ox)*Lanes:][:Lanes]
		for i := range out {
			out[i] = float32(sum[i] / divisor)
		}
	}
}

// A segment is outputs [first, end) of a row whose windows have the same form.
type segment struct {
	plane, row, first, end int
	// x is the index of the first window's corner, without padding; offsets are in bytes from there.
	x       int
	offsets []int
}

// row computes a row of the output, one segment after another. offsets is room for those of a window.
func (t *poolRows) row(plane, oy int, offsets []int) {
	w := &t.Window
	y0, y1, dy, _ := w.rows(oy)
	// Windows from inner to outer do not touch padding.
	inner, outer := 0, 0
	if !w.Adaptive {
		inner = ceil(w.PadLeft, w.StrideW)
		if last := w.Width - 1 - (w.KernelW-1)*w.DilationW + w.PadLeft; last >= 0 {
			outer = min(w.OutWidth, last/w.StrideW+1)
		}
	}
	for ox := 0; ox < w.OutWidth; {
		s := segment{plane: plane, row: oy, first: ox, end: ox + 1, offsets: offsets[:0]}
		if ox >= inner && ox < outer {
			s.end = outer
		}
		x0, x1, dx, _ := w.columns(ox)
		s.x = (plane*w.Height+y0)*w.Width + x0
		for iy := y0; iy < y1; iy += dy {
			for ix := x0; ix < x1; ix += dx {
				s.offsets = append(s.offsets, 4*((iy-y0)*w.Width+ix-x0)*Lanes)
			}
		}
		t.segment(&s)
		ox = s.end
	}
}

// tile returns the operands of a segment.
func (s *segment) tile(w *Window, x, y []float32) kernel.ConvTile {
	t := kernel.ConvTile{
		Steps: len(s.offsets), XPixel: 4 * Lanes * w.StrideW, YPixel: 4 * Lanes, Rows: 1,
		Y: address(y, ((s.plane*w.OutHeight+s.row)*w.OutWidth+s.first)*Lanes),
	}
	if t.Steps > 0 {
		t.X, t.Offsets = address(x, s.x*Lanes), &s.offsets[0]
	}
	return t
}

// segment computes a segment in tiles of two sizes that differ by one. The result of a window within padding is empty.
func (p *poolRows) segment(s *segment) {
	w := &p.Window
	t := s.tile(w, p.x, p.y)
	empty := float32(math.Inf(-1))
	if p.largest {
		t.Low = empty
	} else {
		_, _, _, rows := w.rows(s.row)
		_, _, _, columns := w.columns(s.first)
		t.High = float32(w.divisor(rows, columns, len(s.offsets)))
		empty = 0 / t.High
	}
	count := s.end - s.first
	if t.Steps == 0 { // the window lies in padding
		out := unsafe.Slice(t.Y, count*Lanes)
		for i := range out {
			if out[i] = empty; i%Lanes >= w.Channels-s.plane%Blocks(w.Channels)*Lanes {
				out[i] = 0
			}
		}
		return
	}
	tiles := ceil(count, p.set.PoolPixels())
	size, larger := count/tiles, count%tiles
	x, y := unsafe.Pointer(t.X), unsafe.Pointer(t.Y)
	done := 0
	for _, run := range [2][2]int{{larger, size + 1}, {tiles - larger, size}} {
		if run[0] == 0 {
			continue
		}
		t.Tiles = run[0]
		t.X, t.Y = (*float32)(unsafe.Add(x, done*t.XPixel)), (*float32)(unsafe.Add(y, done*t.YPixel))
		if p.largest {
			p.set.MaxPool(run[1], &t)
		} else {
			p.set.MeanPool(run[1], &t)
		}
		done += run[0] * run[1]
	}
}

// check panics unless the operands are as large as the window says: the kernels do not look.
func check(w *Window, x, y []float32) {
	if len(x) < Elements(w.Batch, w.Channels, w.Height, w.Width) ||
		len(y) < Elements(w.Batch, w.Channels, w.OutHeight, w.OutWidth) {
		panic("BUG: blocked: an operand is smaller than its window")
	}
}
