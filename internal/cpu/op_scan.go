package cpu

import (
	"math"

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
		x, out := c.in[0], c.out[0]
		a := alongDim(x.layout, c.attrs.Int("dim"))
		a.each(c.pool, func(line, first int) {
			if isReal(x.dtype) {
				scan(x, out, a, line, first, start, floatStep, loadReal[float64], storeFloats)
			} else {
				scan(x, out, a, line, first, int64(start), intStep, loadInts, storeInts)
			}
		})
		return nil
	}
}

func scan[T any](
	x, out view, a along, line, first int, acc T, step func(a, b T) T,
	load func([]T, view, int, int), store func(view, int, int, []T),
) {
	var buf [chunk]T
	to := a.first(line, a.n)
	for k := 0; k < a.n; k += chunk {
		part := buf[:min(chunk, a.n-k)]
		load(part, x, first+k*a.stride, a.stride)
		for i, v := range part {
			acc = step(acc, v)
			part[i] = acc
		}
		store(out, to+k*a.inner, a.inner, part)
	}
}

// runCumulativeExtreme: y[i] is the extreme of x[0…i] and its last index; from the first NaN on it is NaN.
func runCumulativeExtreme(wantLargest bool) func(c *call) error {
	return func(c *call) error {
		x := c.in[0]
		a := alongDim(x.layout, c.attrs.Int("dim"))
		a.each(c.pool, func(line, first int) {
			if isReal(x.dtype) {
				cumulativeExtreme(c, a, line, first, loadReal[float64], storeFloat, wantLargest)
			} else {
				cumulativeExtreme(c, a, line, first, loadInts, storeInt, wantLargest)
			}
		})
		return nil
	}
}

func cumulativeExtreme[T float64 | int64](
	c *call, a along, line, first int, load func([]T, view, int, int), store func(view, int, T), wantLargest bool,
) {
	var buf [chunk]T
	var best T
	at := -1
	to, indices := a.first(line, a.n), elements[int64](c.out[1])
	for k := 0; k < a.n; k += chunk {
		part := buf[:min(chunk, a.n-k)]
		load(part, c.in[0], first+k*a.stride, a.stride)
		for i, v := range part {
			if at < 0 || v != v || best == best && (wantLargest && v >= best || !wantLargest && v <= best) {
				best, at = v, k+i
			}
			store(c.out[0], to+(k+i)*a.inner, best)
			indices[to+(k+i)*a.inner] = int64(at)
		}
	}
}

// runHistogram: out[i] = |{x: min + i·w ≤ x < min + (i+1)·w}| for w = (max − min) ÷ bins, the last bin with its upper
// end, torch.histc.
func runHistogram(c *call) error {
	x, bins := c.in[0], c.attrs.Int("bins")
	low, high := c.attrs.Float("min"), c.attrs.Float("max")
	load := loadReal[float64]
	if !isReal(x.dtype) {
		load = func(dst []float64, v view, at, stride int) {
			var buf [chunk]int64
			loadInts(buf[:len(dst)], v, at, stride)
			for i := range dst {
				dst[i] = float64(buf[i])
			}
		}
	}
	var buf [chunk]float64
	visit := func(body func(v float64)) {
		lines(x.layout, func(_, first, stride, n int) {
			for k := 0; k < n; k += chunk {
				part := buf[:min(chunk, n-k)]
				load(part, x, first+k*stride, stride)
				for _, v := range part {
					body(v)
				}
			}
		})
	}
	if low == high && x.size() > 0 {
		low, high = math.Inf(1), math.Inf(-1)
		visit(func(v float64) { low, high = min(low, v), max(high, v) })
	}
	if low == high {
		low, high = low-1, high+1
	}
	if math.IsInf(low, 0) || math.IsInf(high, 0) || low != low || high != high {
		return errHistogramRange
	}
	counts := elements[int64](view{data: c.work})[:bins]
	clear(counts)
	visit(func(v float64) {
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
	rowStride, columnStride := x.layout.Strides[rank-2], y.layout.Strides[rank-2]
	c.pool.For(volume(xs.Shape)*m, max(1, grain/max(1, n*k)), func(from, to int) {
		var a, b [chunk]float64
		for row := from; row < to; row++ {
			xAt := offsetOf(xs, row/m) + row%m*rowStride
			yAt := offsetOf(ys, row/m)
			for j := range n {
				var acc float64
				for at := 0; at < k; at += chunk {
					size := min(chunk, k-at)
					loadReal(a[:size], x, xAt+at*x.layout.Strides[rank-1], x.layout.Strides[rank-1])
					loadReal(b[:size], y, yAt+j*columnStride+at*y.layout.Strides[rank-1], y.layout.Strides[rank-1])
					acc = addDistance(acc, a[:size], b[:size], p)
				}
				switch p {
				case 0, 1, math.Inf(1):
				case 2:
					acc = math.Sqrt(acc)
				default:
					acc = math.Pow(acc, 1/p)
				}
				storeFloat(c.out[0], row*n+j, acc)
			}
		}
	})
	return nil
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
