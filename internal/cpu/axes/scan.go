package axes

import (
	"math"

	"github.com/optimem/optimem/internal/cpu/ops"
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
func runScan(start float64, floatStep func(a, b float64) float64, intStep func(a, b int64) int64) func(c *ops.Call) error {
	return func(c *ops.Call) error {
		a := ops.AlongDim(c.In[0].Layout, c.Attrs.Int("dim"))
		ops.DoLines(c.Pool, &a, scanning{
			Along: a, x: c.In[0], out: c.Out[0], start: start, floatStep: floatStep, intStep: intStep,
		})
		return nil
	}
}

// scanning is the task of runScan: a part is some lines.
type scanning struct {
	ops.Along
	x, out    ops.View
	start     float64
	floatStep func(a, b float64) float64
	intStep   func(a, b int64) int64
}

// Run implements Task.
func (t *scanning) Run(from, to int) {
	buffer := ops.NewBlockBuffer()
	t.Each(from, to, func(line, first int) {
		if ops.IsReal(t.x.DType) {
			scan(t, line, first, ops.BlockOf[float64](buffer), t.start, t.floatStep, ops.LoadReal[float64], ops.StoreFloats)
		} else {
			scan(t, line, first, ops.BlockOf[int64](buffer), int64(t.start), t.intStep, ops.LoadInts, ops.StoreInts)
		}
	})
	ops.BlockBuffers.Put(buffer)
}

func scan[T any](
	t *scanning, line, first int, room []T, acc T, step func(a, b T) T, load func([]T, ops.View, int, int),
	store func(ops.View, int, int, []T),
) {
	a := &t.Along
	to := a.First(line, a.N)
	for k := 0; k < a.N; k += len(room) {
		part := room[:min(len(room), a.N-k)]
		load(part, t.x, first+k*a.Stride, a.Stride)
		for i, v := range part {
			acc = step(acc, v)
			part[i] = acc
		}
		store(t.out, to+k*a.Inner, a.Inner, part)
	}
}

// runCumulativeExtreme: y[i] is the extreme of x[0…i] and its last index; from the first NaN on it is NaN.
func runCumulativeExtreme(wantLargest bool) func(c *ops.Call) error {
	return func(c *ops.Call) error {
		a := ops.AlongDim(c.In[0].Layout, c.Attrs.Int("dim"))
		ops.DoLines(c.Pool, &a, extremesSoFar{
			Along: a, x: c.In[0], out: c.Out[0], indices: ops.Elements[int64](c.Out[1]), largest: wantLargest,
		})
		return nil
	}
}

// extremesSoFar is the task of runCumulativeExtreme: a part is some lines.
type extremesSoFar struct {
	ops.Along
	x, out  ops.View
	indices []int64
	largest bool
}

// Run implements Task.
func (t *extremesSoFar) Run(from, to int) {
	buffer := ops.NewBlockBuffer()
	t.Each(from, to, func(line, first int) {
		if ops.IsReal(t.x.DType) {
			cumulativeExtreme(t, line, first, ops.BlockOf[float64](buffer), ops.LoadReal[float64], ops.StoreFloat)
		} else {
			cumulativeExtreme(t, line, first, ops.BlockOf[int64](buffer), ops.LoadInts, ops.StoreInt)
		}
	})
	ops.BlockBuffers.Put(buffer)
}

func cumulativeExtreme[T float64 | int64](
	t *extremesSoFar, line, first int, room []T, load func([]T, ops.View, int, int), store func(ops.View, int, T),
) {
	a, at, out, indices, largest := &t.Along, -1, t.out, t.indices, t.largest
	to := a.First(line, a.N)
	var best T
	for k := 0; k < a.N; k += len(room) {
		part := room[:min(len(room), a.N-k)]
		load(part, t.x, first+k*a.Stride, a.Stride)
		for i, v := range part {
			if at < 0 || v != v || best == best && (largest && v >= best || !largest && v <= best) {
				best, at = v, k+i
			}
			store(out, to+(k+i)*a.Inner, best)
			indices[to+(k+i)*a.Inner] = int64(at)
		}
	}
}

// runHistogram: out[i] = |{x: min + i·w ≤ x < min + (i+1)·w}| for w = (max − min) ÷ bins, the last bin with its upper
// end, torch.histc.
func runHistogram(c *ops.Call) error {
	x, bins := c.In[0], c.Attrs.Int("bins")
	low, high := c.Attrs.Float("min"), c.Attrs.Float("max")
	if low == high && x.Size() > 0 {
		low, high = math.Inf(1), math.Inf(-1)
		visitNumbers(x, func(v float64) { low, high = min(low, v), max(high, v) })
	}
	if low == high {
		low, high = low-1, high+1
	}
	if width := high - low; math.IsInf(width, 0) || width != width || x.DType == tensor.Float32 && width > math.MaxFloat32 {
		return errHistogramRange // no bin of such a range has a number
	}
	counts := ops.Elements[int64](ops.View{Data: c.Work})[:bins]
	clear(counts)
	visitNumbers(x, func(v float64) {
		if v >= low && v <= high {
			// In the operand's precision, which decides at the edges.
			at := int(binOf(v, low, high, bins, x.DType))
			counts[min(at, bins-1)]++
		}
	})
	for i, n := range counts {
		if ops.IsReal(x.DType) {
			ops.StoreFloat(c.Out[0], i, float64(n))
		} else {
			ops.StoreInt(c.Out[0], i, n)
		}
	}
	return nil
}

// visitNumbers gives body each element of a view.
func visitNumbers(x ops.View, body func(v float64)) {
	var floats [ops.Chunk]float64
	var ints [ops.Chunk]int64
	ops.Lines(x.Layout, func(_, first, stride, n int) {
		for k := 0; k < n; k += ops.Chunk {
			part := floats[:min(ops.Chunk, n-k)]
			if ops.IsReal(x.DType) {
				ops.LoadReal(part, x, first+k*stride, stride)
			} else {
				ops.LoadInts(ints[:len(part)], x, first+k*stride, stride)
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
func runDistances(c *ops.Call) error {
	x, y, p := c.In[0], c.In[1], c.Attrs.Float("p")
	rank := len(x.Shape())
	m, n, k := x.Shape()[rank-2], y.Shape()[rank-2], x.Shape()[rank-1]
	if x.Size() == 0 && k > 0 || y.Size() == 0 && k > 0 {
		return nil
	}
	xs, ys := x.Layout.Leading(2), y.Layout.Leading(2)
	tasks.Do(c.Pool, ops.Volume(xs.Shape)*m, max(1, ops.Grain/max(1, n*k)), distances{
		x: x, y: y, out: c.Out[0], xs: xs, ys: ys, m: m, n: n, k: k, p: p,
	})
	return nil
}

// distances is the task of runDistances: a part is some rows of x. xs and ys are where matrices begin.
type distances struct {
	x, y, out ops.View
	xs, ys    tensor.Layout
	m, n, k   int
	p         float64
}

// Run implements Task.
func (t *distances) Run(from, to int) {
	var a, b [ops.Chunk]float64
	x, y, p, rank := t.x, t.y, t.p, len(t.x.Shape())
	xStep, yStep := x.Layout.Strides[rank-1], y.Layout.Strides[rank-1]
	for row := from; row < to; row++ {
		xAt := t.xs.OffsetOf(row/t.m) + row%t.m*x.Layout.Strides[rank-2]
		yAt := t.ys.OffsetOf(row / t.m)
		for j := range t.n {
			var acc float64
			for at := 0; at < t.k; at += ops.Chunk {
				size := min(ops.Chunk, t.k-at)
				ops.LoadReal(a[:size], x, xAt+at*xStep, xStep)
				ops.LoadReal(b[:size], y, yAt+j*y.Layout.Strides[rank-2]+at*yStep, yStep)
				acc = addDistance(acc, a[:size], b[:size], p)
			}
			switch p {
			case 0, 1, math.Inf(1):
			case 2:
				acc = math.Sqrt(acc)
			default:
				acc = math.Pow(acc, 1/p)
			}
			ops.StoreFloat(t.out, row*t.n+j, acc)
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
