package blocked

import "math"

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

// span returns the inputs from, from+dilation, … below to that output o reads along a dimension, and how many elements
// a mean that counts padding divides by.
func (w *Window) span(o, size, out, kernel, stride, pad, padEnd, dilation int) (from, to, step, count int) {
	if w.Adaptive {
		from, to = o*size/out, ((o+1)*size+out-1)/out
		return from, to, 1, to - from
	}
	from = o*stride - pad
	to = from + (kernel-1)*dilation + 1
	count = min(to, size+padEnd) - from
	to = min(to, size)
	if from < 0 {
		from += (-from + dilation - 1) / dilation * dilation
	}
	return from, to, dilation, count
}

func (w *Window) rows(o int) (from, to, step, count int) {
	return w.span(o, w.Height, w.OutHeight, w.KernelH, w.StrideH, w.PadTop, w.PadBottom, w.DilationH)
}

func (w *Window) columns(o int) (from, to, step, count int) {
	return w.span(o, w.Width, w.OutWidth, w.KernelW, w.StrideW, w.PadLeft, w.PadRight, w.DilationW)
}

// each calls body for every row of the output of every block, with the block's index over all images.
func (w *Window) each(pool Pool, body func(plane, row int)) {
	rows := w.OutHeight * Blocks(w.Channels) * w.Batch
	cost := w.OutWidth * max(1, w.KernelH*w.KernelW)
	if w.Adaptive {
		cost = max(w.OutWidth, w.Height/w.OutHeight*w.Width)
	}
	pool.For(rows, max(1, 4096/max(1, cost)), func(from, to int) {
		for i := from; i < to; i++ {
			body(i/w.OutHeight, i%w.OutHeight)
		}
	})
}

// MaxPool writes the largest element of each window, NaN where one is.
func MaxPool(pool Pool, w Window, x, y []float32) {
	w.each(pool, func(plane, oy int) {
		y0, y1, dy, _ := w.rows(oy)
		for ox := range w.OutWidth {
			x0, x1, dx, _ := w.columns(ox)
			out := y[((plane*w.OutHeight+oy)*w.OutWidth+ox)*Lanes:][:Lanes]
			for i := range out {
				out[i] = float32(math.Inf(-1))
			}
			for iy := y0; iy < y1; iy += dy {
				for ix := x0; ix < x1; ix += dx {
					for i, v := range x[((plane*w.Height+iy)*w.Width+ix)*Lanes:][:Lanes] {
						if v > out[i] || v != v {
							out[i] = v
						}
					}
				}
			}
		}
	})
}

// AvgPool writes the mean of each window. An adaptive one with an output of 1×1 is the global mean.
func AvgPool(pool Pool, w Window, x, y []float32) {
	w.each(pool, func(plane, oy int) {
		y0, y1, dy, rows := w.rows(oy)
		for ox := range w.OutWidth {
			x0, x1, dx, columns := w.columns(ox)
			var sum [Lanes]float64
			count := 0
			for iy := y0; iy < y1; iy += dy {
				for ix := x0; ix < x1; ix += dx {
					for i, v := range x[((plane*w.Height+iy)*w.Width+ix)*Lanes:][:Lanes] {
						sum[i] += float64(v)
					}
					count++
				}
			}
			switch {
			case w.Divisor != 0:
				count = w.Divisor
			case w.IncludePad:
				count = rows * columns
			}
			out := y[((plane*w.OutHeight+oy)*w.OutWidth+ox)*Lanes:][:Lanes]
			for i := range out {
				out[i] = float32(sum[i] / float64(count))
			}
		}
	})
}
