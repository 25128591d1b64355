package cpu

import (
	"math"

	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

func addFloat(a, b float64) float64 { return a + b }
func mulFloat(a, b float64) float64 { return a * b }
func addInt(a, b int64) int64       { return a + b }
func mulInt(a, b int64) int64       { return a * b }

// logSumOfTwo returns log(exp a + exp b).
func logSumOfTwo(a, b float64) float64 {
	low, high := min(a, b), max(a, b)
	if low == high && math.IsInf(low, 0) {
		return low
	}
	return high + math.Log1p(math.Exp(low-high))
}

// runScan: y[i] = step(y[i−1], x[i]) along "dim", from start.
func runScan(start float64, floatStep func(a, b float64) float64, intStep func(a, b int64) int64) func(c *call) error {
	return func(c *call) error {
		a := alongDim(c.in[0].layout, c.attrs.Int("dim"))
		doLines(c.pool, &a, scanning{
			along: a, x: c.in[0], out: c.out[0], start: start, floatStep: floatStep, intStep: intStep,
		})
		return nil
	}
}

// scanning is the task of runScan: a part is some lines.
type scanning struct {
	along
	x, out    view
	start     float64
	floatStep func(a, b float64) float64
	intStep   func(a, b int64) int64
}

// Run implements Task.
func (t *scanning) Run(from, to int) {
	buffer := newBlockBuffer()
	t.each(from, to, func(line, first int) {
		if isReal(t.x.dtype) {
			scan(t, line, first, blockOf[float64](buffer), t.start, t.floatStep, loadReal[float64], storeFloats)
		} else {
			scan(t, line, first, blockOf[int64](buffer), int64(t.start), t.intStep, loadInts, storeInts)
		}
	})
	blockBuffers.Put(buffer)
}

func scan[T any](
	t *scanning, line, first int, room []T, acc T, step func(a, b T) T, load func([]T, view, int, int),
	store func(view, int, int, []T),
) {
	a := &t.along
	to := a.first(line, a.n)
	for k := 0; k < a.n; k += len(room) {
		part := room[:min(len(room), a.n-k)]
		load(part, t.x, first+k*a.stride, a.stride)
		for i, v := range part {
			acc = step(acc, v)
			part[i] = acc
		}
		store(t.out, to+k*a.inner, a.inner, part)
	}
}

// runCumulativeExtreme: y[i] is the extreme of x[0…i] and its last index; from the first NaN on it is NaN.
func runCumulativeExtreme(wantLargest bool) func(c *call) error {
	return func(c *call) error {
		a := alongDim(c.in[0].layout, c.attrs.Int("dim"))
		doLines(c.pool, &a, extremesSoFar{
			along: a, x: c.in[0], out: c.out[0], indices: elements[int64](c.out[1]), largest: wantLargest,
		})
		return nil
	}
}

// extremesSoFar is the task of runCumulativeExtreme: a part is some lines.
type extremesSoFar struct {
	along
	x, out  view
	indices []int64
	largest bool
}

// Run implements Task.
func (t *extremesSoFar) Run(from, to int) {
	buffer := newBlockBuffer()
	t.each(from, to, func(line, first int) {
		if isReal(t.x.dtype) {
			cumulativeExtreme(t, line, first, blockOf[float64](buffer), loadReal[float64], storeFloat)
		} else {
			cumulativeExtreme(t, line, first, blockOf[int64](buffer), loadInts, storeInt)
		}
	})
	blockBuffers.Put(buffer)
}

func cumulativeExtreme[T float64 | int64](
	t *extremesSoFar, line, first int, room []T, load func([]T, view, int, int), store func(view, int, T),
) {
	a, at, out, indices, largest := &t.along, -1, t.out, t.indices, t.largest
	to := a.first(line, a.n)
	var best T
	for k := 0; k < a.n; k += len(room) {
		part := room[:min(len(room), a.n-k)]
		load(part, t.x, first+k*a.stride, a.stride)
		for i, v := range part {
			if at < 0 || v != v || best == best && (largest && v >= best || !largest && v <= best) {
				best, at = v, k+i
			}
			store(out, to+(k+i)*a.inner, best)
			indices[to+(k+i)*a.inner] = int64(at)
		}
	}
}

// runHistogram: out[i] = |{x: min + i·w ≤ x < min + (i+1)·w}| for w = (max − min) ÷ bins, the last bin with its upper
// end, torch.histc.
func runHistogram(c *call) error {
	x, bins := c.in[0], c.attrs.Int("bins")
	low, high := c.attrs.Float("min"), c.attrs.Float("max")
	if low == high && x.size() > 0 {
		low, high = math.Inf(1), math.Inf(-1)
		visitNumbers(x, func(v float64) { low, high = min(low, v), max(high, v) })
	}
	if low == high {
		low, high = low-1, high+1
	}
	if width := high - low; math.IsInf(width, 0) || width != width || x.dtype == tensor.Float32 && width > math.MaxFloat32 {
		return errHistogramRange // no bin of such a range has a number
	}
	counts := elements[int64](view{data: c.work})[:bins]
	clear(counts)
	visitNumbers(x, func(v float64) {
		if v >= low && v <= high {
			// In the operand's precision, which decides at the edges.
			at := int(binOf(v, low, high, bins, x.dtype))
			counts[min(at, bins-1)]++
		}
	})
	for i, n := range counts {
		if isReal(x.dtype) {
			storeFloat(c.out[0], i, float64(n))
		} else {
			storeInt(c.out[0], i, n)
		}
	}
	return nil
}

// visitNumbers gives body each element of a view.
func visitNumbers(x view, body func(v float64)) {
	var floats [chunk]float64
	var ints [chunk]int64
	lines(x.layout, func(_, first, stride, n int) {
		for k := 0; k < n; k += chunk {
			part := floats[:min(chunk, n-k)]
			if isReal(x.dtype) {
				loadReal(part, x, first+k*stride, stride)
			} else {
				loadInts(ints[:len(part)], x, first+k*stride, stride)
				for i := range part {
					part[i] = float64(ints[i])
				}
			}
			for _, v := range part {
				body(v)
			}
		}
	})
}

func binOf(v, low, high float64, bins int, d tensor.DType) int64 {
	if d == tensor.Float32 {
		return int64((float32(v) - float32(low)) / (float32(high) - float32(low)) * float32(bins))
	}
	return int64((v - low) / (high - low) * float64(bins))
}

// runDistances: out[i, j] = (Σ |x[i, k] − y[j, k]|^p)^(1/p), torch.cdist.
func runDistances(c *call) error {
	x, y, p := c.in[0], c.in[1], c.attrs.Float("p")
	rank := len(x.shape())
	m, n, k := x.shape()[rank-2], y.shape()[rank-2], x.shape()[rank-1]
	if x.size() == 0 && k > 0 || y.size() == 0 && k > 0 {
		return nil
	}
	xs, ys := x.layout.Leading(2), y.layout.Leading(2)
	tasks.Do(c.pool, volume(xs.Shape)*m, max(1, grain/max(1, n*k)), distances{
		x: x, y: y, out: c.out[0], xs: xs, ys: ys, m: m, n: n, k: k, p: p,
	})
	return nil
}

// distances is the task of runDistances: a part is some rows of x. xs and ys are where matrices begin.
type distances struct {
	x, y, out view
	xs, ys    tensor.Layout
	m, n, k   int
	p         float64
}

// Run implements Task.
func (t *distances) Run(from, to int) {
	var a, b [chunk]float64
	x, y, p, rank := t.x, t.y, t.p, len(t.x.shape())
	xStep, yStep := x.layout.Strides[rank-1], y.layout.Strides[rank-1]
	for row := from; row < to; row++ {
		xAt := t.xs.OffsetOf(row/t.m) + row%t.m*x.layout.Strides[rank-2]
		yAt := t.ys.OffsetOf(row / t.m)
		for j := range t.n {
			var acc float64
			for at := 0; at < t.k; at += chunk {
				size := min(chunk, t.k-at)
				loadReal(a[:size], x, xAt+at*xStep, xStep)
				loadReal(b[:size], y, yAt+j*y.layout.Strides[rank-2]+at*yStep, yStep)
				acc = addDistance(acc, a[:size], b[:size], p)
			}
			switch p {
			case 0, 1, math.Inf(1):
			case 2:
				acc = math.Sqrt(acc)
			default:
				acc = math.Pow(acc, 1/p)
			}
			storeFloat(t.out, row*t.n+j, acc)
		}
	}
}

// addDistance adds the powers of the differences of two vectors to acc.
func addDistance(acc float64, a, b []float64, p float64) float64 {
	for i, v := range a {
		d := math.Abs(v - b[i])
		switch p {
		case 0:
			if d != 0 {
				acc++
			}
		case 1:
			acc += d
		case 2:
			acc += d * d
		case math.Inf(1):
			if d > acc || d != d {
				acc = d
			}
		default:
			acc += math.Pow(d, p)
		}
	}
	return acc
}
