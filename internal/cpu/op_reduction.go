package cpu

import (
	"errors"
	"math"

	"github.com/optimem/optimem/layers"
)

var (
	errUnsigned64     = errors.New("not for uint64")
	errHistogramRange = errors.New("histc: the range of the elements is not finite")
)

// reductionKernels combine elements. Floats are combined in float64 and integers in int64, each result in an order that
// depends on the shape and strides alone.
var reductionKernels = map[layers.Kind]kernel{
	// Σ x, torch.sum; torch.nansum; Π x, torch.prod; Σ x ÷ n, torch.mean.
	"sum":    {run: rowsFirst(sumOfRow, reduction(sums))},
	"nansum": {run: reduction(sumsPresent)},
	"prod":   {run: reduction(products)},
	"mean":   {run: rowsFirst(meanOfRow, runMean)},
	// max x and min x, torch.amax and amin.
	"amax": {run: rowsFirst(maxOfRow, reduction(largest)), supports: noUnsigned64},
	"amin": {run: rowsFirst(minOfRow, reduction(smallest)), supports: noUnsigned64},
	// |{x ≠ 0}|, torch.count_nonzero; > 0, torch.any; = n, torch.all.
	"count_nonzero": {run: reduction(counts)},
	"any":           {run: runAny},
	"all":           {run: runAll},
	// (Σ |x|^ord)^(1/ord), torch.linalg.vector_norm.
	"norm": {run: runNorm},
	// Σ (x − Σx/n)² ÷ max(n − correction, 0), torch.var; torch.std.
	"var": {run: runVariance(false)},
	"std": {run: runVariance(true)},
	// log Σ exp x, torch.logsumexp.
	"logsumexp": {run: rowsFirst(logSumExpOfRow, runLogSumExp)},
	// The first index of the largest or smallest element, torch.argmax and argmin.
	"argmax": {run: runArgExtreme(true), supports: noUnsigned64},
	"argmin": {run: runArgExtreme(false), supports: noUnsigned64},
	// y[i] = y[i−1] + x[i], torch.cumsum; y[i−1] × x[i], torch.cumprod; log(exp y[i−1] + exp x[i]), torch.logcumsumexp.
	"cumsum":       {run: runScan(0, addFloat, addInt)},
	"cumprod":      {run: runScan(1, mulFloat, mulInt)},
	"logcumsumexp": {run: runScan(math.Inf(-1), logSumOfTwo, addInt)},
	// The extreme so far and its last index, torch.cummax and cummin.
	"cummax": {run: runCumulativeExtreme(true), supports: noUnsigned64},
	"cummin": {run: runCumulativeExtreme(false), supports: noUnsigned64},
	"histc": {run: runHistogram, supports: noUnsigned64, work: func(_, out []layers.Spec, _ layers.Attrs) int64 {
		return int64(out[0].Shape[0]) * 8
	}},
	"cdist": {run: runDistances},
}

// A pass goes over the elements once and accumulates into T.
type pass[T any] struct {
	start T
	// fold adds the elements of a line to one accumulator; at is what the pass before gave for this result.
	fold func(acc T, x []T, at T) T
	// zip adds x[i] to acc[i] for results side by side.
	zip func(acc, x, at []T)
}

// A reducer computes results of T in some passes.
type reducer[T any] struct {
	passes []pass[T]
	// between turns what a pass gave into what the next is told; nil leaves it.
	between func(acc T) T
	// finish turns the last pass's accumulator into the result; nil leaves it.
	finish func(acc, at T) T
	load   func(dst []T, v view, at, stride int)
	store  func(v view, at int, x T)
}

// reduce computes all results. Where neighbouring results lie next to each other in memory and the elements of one do
// not, a run of results is accumulated together.
func reduce[T any](c *call, r reducer[T]) {
	x, out := c.in[0], c.out[0]
	kept, gone := x.layout.Split(c.attrs.Ints("dims"))
	w := walkOf(gone)
	results := volume(kept.Shape)
	if r.between == nil {
		r.between = func(acc T) T { return acc }
	}
	if r.finish == nil {
		r.finish = func(acc, _ T) T { return acc }
	}
	strides := kept.Joined().Strides
	columns := strides[len(strides)-1] == 1 && w.stride != 1 && w.size > 1
	least := 1
	if columns {
		least = 64
	}
	c.pool.For(results, max(least, grain/max(w.size, 1)), func(from, to int) {
		var room [mostDims]int
		index := intsIn(room[:], w.rank)
		linesOf(kept, from, to, func(at, first, stride, n int) {
			if columns {
				for k := 0; k < n; k += chunk {
					reduceColumns(x, out, &w, &r, index, at+k, first+k, min(chunk, n-k))
				}
				return
			}
			for i := range n {
				reduceRow(x, out, &w, &r, index, at+i, first+i*stride)
			}
		})
	})
}

// reduceRow computes the result at index to from the elements that w walks from first.
func reduceRow[T any](x, out view, w *walk, r *reducer[T], index []int, to, first int) {
	var buf [chunk]T
	var at, acc T
	for i, p := range r.passes {
		if i > 0 {
			at = r.between(acc)
		}
		acc = p.start
		w.lines(first, index, func(first int) {
			for k := 0; k < w.n; k += chunk {
				part := buf[:min(chunk, w.n-k)]
				r.load(part, x, first+k*w.stride, w.stride)
				acc = p.fold(acc, part, at)
			}
		})
	}
	r.store(out, to, r.finish(acc, at))
}

// reduceColumns computes n results from index to on, whose elements lie side by side.
func reduceColumns[T any](x, out view, w *walk, r *reducer[T], index []int, to, first, n int) {
	var buf, ats, accs [chunk]T
	part, at, acc := buf[:n], ats[:n], accs[:n]
	for i, p := range r.passes {
		for k := range acc {
			if i > 0 {
				at[k] = r.between(acc[k])
			}
			acc[k] = p.start
		}
		w.lines(first, index, func(first int) {
			for k := range w.n {
				r.load(part, x, first+k*w.stride, 1)
				p.zip(acc, part, at)
			}
		})
	}
	for k := range acc {
		r.store(out, to+k, r.finish(acc[k], at[k]))
	}
}

// floats returns a reducer of float64 passes.
func floats(passes ...pass[float64]) reducer[float64] {
	return reducer[float64]{passes: passes, load: loadReal[float64], store: storeFloat}
}

// A combination is a reduction of one pass, for floats and for integers.
type combination struct {
	floats pass[float64]
	ints   pass[int64]
}

// reduction runs a combination in the operand's kind of numbers.
func reduction(with combination) func(c *call) error {
	return func(c *call) error {
		reduceBy(c, with, nil)
		return nil
	}
}

// reduceBy runs a combination; done, if not nil, makes the result of it, else the result is the combination's.
func reduceBy(c *call, with combination, done func(acc int64) int64) {
	finish := func(acc, _ int64) int64 {
		if done == nil {
			return acc
		}
		return done(acc)
	}
	if !isReal(c.in[0].dtype) {
		reduce(c, reducer[int64]{passes: []pass[int64]{with.ints}, finish: finish, load: loadInts, store: storeInt})
		return
	}
	r := floats(with.floats)
	if !isReal(c.out[0].dtype) { // a count
		r.store = func(v view, at int, x float64) { storeInt(v, at, finish(int64(x), 0)) }
	}
	reduce(c, r)
}

func runMean(c *call) error {
	r := floats(sums.floats)
	n := float64(reducedSize(c))
	r.finish = func(acc, _ float64) float64 { return acc / n }
	reduce(c, r)
	return nil
}

// reducedSize returns the number of elements that make one result.
func reducedSize(c *call) int {
	n := 1
	for _, d := range c.attrs.Ints("dims") {
		n *= c.in[0].shape()[d]
	}
	return n
}

func runAny(c *call) error {
	reduceBy(c, counts, func(acc int64) int64 { return min(acc, 1) })
	return nil
}

func runAll(c *call) error {
	n := int64(reducedSize(c))
	reduceBy(c, counts, func(acc int64) int64 { return 1 - min(n-acc, 1) })
	return nil
}

func runNorm(c *call) error {
	ord := c.attrs.Float("ord")
	if ord == 2 && reduceRows(c, lengthOfRow) {
		return nil
	}
	var r reducer[float64]
	switch {
	case ord == 0:
		r = floats(counts.floats)
	case ord == 1:
		r = floats(magnitudes)
	case ord == 2:
		r = floats(squares)
		r.finish = func(acc, _ float64) float64 { return math.Sqrt(acc) }
	case math.IsInf(ord, 1):
		r = floats(largestMagnitude)
	case math.IsInf(ord, -1):
		r = floats(smallestMagnitude)
	default:
		r = floats(powers(ord))
		r.finish = func(acc, _ float64) float64 { return math.Pow(acc, 1/ord) }
	}
	reduce(c, r)
	return nil
}

func runVariance(root bool) func(c *call) error {
	return func(c *call) error {
		n := float64(reducedSize(c))
		divisor := max(n-c.attrs.Float("correction"), 0)
		if varianceRows(c, divisor, root) {
			return nil
		}
		r := floats(sums.floats, deviations)
		r.between = func(acc float64) float64 { return acc / n }
		r.finish = func(acc, _ float64) float64 {
			if root {
				return math.Sqrt(acc / divisor)
			}
			return acc / divisor
		}
		reduce(c, r)
		return nil
	}
}

func runLogSumExp(c *call) error {
	r := floats(largest.floats, exponentials)
	r.between = func(acc float64) float64 {
		if math.IsInf(acc, 0) {
			return 0
		}
		return acc
	}
	r.finish = func(acc, at float64) float64 { return math.Log(acc) + at }
	reduce(c, r)
	return nil
}

func runArgExtreme(wantLargest bool) func(c *call) error {
	return func(c *call) error {
		x, out := c.in[0], elements[int64](c.out[0])
		d := 0
		if dims := c.attrs.Ints("dims"); len(dims) > 0 {
			d = dims[0]
		}
		a := alongDim(x.layout, d)
		a.each(c.pool, func(line, first int) {
			if isReal(x.dtype) {
				out[line] = argExtreme(x, a, first, loadReal[float64], wantLargest)
			} else {
				out[line] = argExtreme(x, a, first, loadInts, wantLargest)
			}
		})
		return nil
	}
}

// argExtreme returns the first index of the extreme of a line; NaN comes before all.
func argExtreme[T float64 | int64](x view, a along, first int, load func([]T, view, int, int), wantLargest bool) int64 {
	var buf [chunk]T
	var best T
	at := -1
	for k := 0; k < a.n; k += chunk {
		part := buf[:min(chunk, a.n-k)]
		load(part, x, first+k*a.stride, a.stride)
		for i, v := range part {
			if v != v {
				return int64(k + i)
			}
			if at < 0 || wantLargest && v > best || !wantLargest && v < best {
				best, at = v, k+i
			}
		}
	}
	return int64(at)
}
