package axes

import (
	"errors"
	"math"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

var (
	errHistogramRange = errors.New("histc: the range of the elements is not finite")
)

// reductionKernels combine elements. Floats are combined in float64 and integers in int64, each result in an order that
// depends on the shape and strides alone.
var reductionKernels = map[graph.Kind]ops.Kernel{
	// Σ x, torch.sum; torch.nansum; Π x, torch.prod; Σ x ÷ n, torch.mean.
	"sum":    {Run: rowsFirst(sumOfRow, reduction(sums))},
	"nansum": {Run: reduction(sumsPresent)},
	"prod":   {Run: reduction(products)},
	"mean":   {Run: rowsFirst(meanOfRow, runMean)},
	// max x and min x, torch.amax and amin.
	"amax": {Run: rowsFirst(maxOfRow, reduction(largest)), Supports: ops.NoUnsigned64},
	"amin": {Run: rowsFirst(minOfRow, reduction(smallest)), Supports: ops.NoUnsigned64},
	// |{x ≠ 0}|, torch.count_nonzero; > 0, torch.any; = n, torch.all.
	"count_nonzero": {Run: reduction(counts)},
	"any":           {Run: runAny},
	"all":           {Run: runAll},
	// (Σ |x|^ord)^(1/ord), torch.linalg.vector_norm.
	"norm": {Run: runNorm},
	// Σ (x − Σx/n)² ÷ max(n − correction, 0), torch.var; torch.std.
	"var": {Run: runVariance(false)},
	"std": {Run: runVariance(true)},
	// log Σ exp x, torch.logsumexp.
	"logsumexp": {Run: rowsFirst(logSumExpOfRow, runLogSumExp)},
	// The first index of the largest or smallest element, torch.argmax and argmin.
	"argmax": {Run: runArgExtreme(true), Supports: ops.NoUnsigned64},
	"argmin": {Run: runArgExtreme(false), Supports: ops.NoUnsigned64},
	// y[i] = y[i−1] + x[i], torch.cumsum; y[i−1] × x[i], torch.cumprod; log(exp y[i−1] + exp x[i]), torch.logcumsumexp.
	"cumsum":       {Run: runScan(0, addFloat, addInt)},
	"cumprod":      {Run: runScan(1, mulFloat, mulInt)},
	"logcumsumexp": {Run: runScan(math.Inf(-1), logSumOfTwo, addInt)},
	// The extreme so far and its last index, torch.cummax and cummin.
	"cummax": {Run: runCumulativeExtreme(true), Supports: ops.NoUnsigned64},
	"cummin": {Run: runCumulativeExtreme(false), Supports: ops.NoUnsigned64},
	"histc": {Run: runHistogram, Supports: ops.NoUnsigned64, Work: func(_, out []graph.Spec, _ graph.Attrs) int64 {
		return int64(out[0].Shape[0]) * 8
	}},
	"cdist": {Run: runDistances},
}

// A pass goes over the elements once and accumulates into T.
type pass[T any] struct {
	start T
	// fold adds the elements of a line to one accumulator; at is what the pass before gave for this result.
	fold func(acc T, x []T, at T) T
	// zip adds x[i] to acc[i] for results side by side.
	zip func(acc, x, at []T)
}

// A reducer computes results of T in some passes. Its functions capture nothing, so that they are not made for each call:
// they are given the reducer, with the numbers that they depend on.
type reducer[T any] struct {
	passes [2]pass[T]
	count  int // of the passes
	given  T   // what the first pass is told
	// between turns what a pass gave into what the next is told; nil leaves it.
	between func(r *reducer[T], acc T) T
	// finish turns the last pass's accumulator into the result; nil leaves it.
	finish func(r *reducer[T], acc, at T) T
	load   func(dst []T, v ops.View, at, stride int)
	store  func(v ops.View, at int, x T)
	// n is how many elements make a result. done makes the result of a combination, see reduceBy.
	n       int
	divisor float64
	done    func(acc, n int64) int64
}

// told returns what the next pass is told after one that gave acc, result what the last one gives.
func (r *reducer[T]) told(acc T) T {
	if r.between == nil {
		return acc
	}
	return r.between(r, acc)
}

func (r *reducer[T]) result(acc, at T) T {
	if r.finish == nil {
		return acc
	}
	return r.finish(r, acc, at)
}

// reduce computes all results. Where neighbouring results lie next to each other in memory and the elements of one do
// not, a run of results is accumulated together.
func reduce[T any](c *ops.Call, r reducer[T]) {
	x := c.In[0]
	t := tasks.Take[reducing[T]]()
	*t = reducing[T]{reducer: r, x: x, out: c.Out[0]}
	kept, gone := x.Layout.SplitIn(c.Attrs.Ints("dims"), tensor.Layout{Shape: t.room[0][:], Strides: t.room[1][:]},
		tensor.Layout{Shape: t.room[2][:], Strides: t.room[3][:]})
	t.kept, t.walk = kept, ops.WalkOf(gone)
	var joined [2][ops.MostDims]int
	strides := kept.JoinedIn(joined[0][:], joined[1][:]).Strides
	t.columns = strides[len(strides)-1] == 1 && t.walk.Stride != 1 && t.walk.Size > 1
	least := 1
	if t.columns {
		least = 64
	}
	c.Pool.Do(ops.Volume(kept.Shape), max(least, ops.Grain/max(t.walk.Size, 1)), t)
	*t = reducing[T]{}
	tasks.Give(t)
}

// reducing is the task of reduce: a part is some results.
type reducing[T any] struct {
	reducer[T]
	x, out ops.View
	// kept is where results begin; walk visits the elements of one. room is memory for the dimensions of both.
	kept    tensor.Layout
	room    [4][ops.MostDims]int
	walk    ops.Walk
	columns bool
}

// Run implements Task.
func (t *reducing[T]) Run(from, to int) {
	var room [ops.MostDims]int
	index := ops.IntsIn(room[:], t.walk.Rank)
	s := tasks.Take[reduceRoom[T]]()
	ops.LinesOf(t.kept, from, to, func(at, first, stride, n int) {
		if t.columns {
			for k := 0; k < n; k += ops.Chunk {
				t.column(s, index, at+k, first+k, min(ops.Chunk, n-k))
			}
			return
		}
		for i := range n {
			t.row(s, index, at+i, first+i*stride)
		}
	})
	tasks.Give(s)
}

// A reduceRoom is memory for elements, and what is accumulated.
type reduceRoom[T any] struct{ elements, ats, accs [ops.Chunk]T }

// row computes the result at index to from the elements that the walk visits from first.
func (t *reducing[T]) row(s *reduceRoom[T], index []int, to, first int) {
	w := &t.walk
	at, acc := t.given, *new(T)
	for i := range t.count {
		p := &t.passes[i]
		if i > 0 {
			at = t.told(acc)
		}
		acc = p.start
		w.Lines(first, index, func(first int) {
			for k := 0; k < w.N; k += ops.Chunk {
				part := s.elements[:min(ops.Chunk, w.N-k)]
				t.load(part, t.x, first+k*w.Stride, w.Stride)
				acc = p.fold(acc, part, at)
			}
		})
	}
	t.store(t.out, to, t.result(acc, at))
}

// column computes n results from index to on, whose elements lie side by side.
func (t *reducing[T]) column(s *reduceRoom[T], index []int, to, first, n int) {
	w := &t.walk
	part, at, acc := s.elements[:n], s.ats[:n], s.accs[:n]
	for k := range at {
		at[k] = t.given
	}
	for i := range t.count {
		p := &t.passes[i]
		for k := range acc {
			if i > 0 {
				at[k] = t.told(acc[k])
			}
			acc[k] = p.start
		}
		w.Lines(first, index, func(first int) {
			for k := range w.N {
				t.load(part, t.x, first+k*w.Stride, 1)
				p.zip(acc, part, at)
			}
		})
	}
	for k := range acc {
		t.store(t.out, to+k, t.result(acc[k], at[k]))
	}
}

// floats returns a reducer of float64 passes, two at most.
func floats(passes ...pass[float64]) reducer[float64] {
	r := reducer[float64]{load: ops.LoadReal[float64], store: ops.StoreFloat}
	r.count = copy(r.passes[:], passes)
	return r
}

// A combination is a reduction of one pass, for floats and for integers.
type combination struct {
	floats pass[float64]
	ints   pass[int64]
}

// reduction runs a combination in the operand's kind of numbers.
func reduction(with combination) func(c *ops.Call) error {
	return func(c *ops.Call) error {
		reduceBy(c, with, nil)
		return nil
	}
}

// reduceBy runs a combination; done, if not nil, makes the result of it and of how many elements there are, else the result
// is the combination's. Of counts that are made of floats it makes one, too.
func reduceBy(c *ops.Call, with combination, done func(acc, n int64) int64) {
	n := reducedSize(c)
	if !ops.IsReal(c.In[0].DType) {
		r := reducer[int64]{count: 1, load: ops.LoadInts, store: ops.StoreInt, n: n, done: done}
		r.passes[0] = with.ints
		if done != nil {
			r.finish = finishInts
		}
		reduce(c, r)
		return
	}
	r := floats(with.floats)
	if !ops.IsReal(c.Out[0].DType) { // a count
		r.store, r.n, r.done = storeCount, n, done
		if done != nil {
			r.finish = finishCount
		}
	}
	reduce(c, r)
}

func finishInts(r *reducer[int64], acc, _ int64) int64 { return r.done(acc, int64(r.n)) }

func finishCount(r *reducer[float64], acc, _ float64) float64 {
	return float64(r.done(int64(acc), int64(r.n)))
}

func storeCount(v ops.View, at int, x float64) { ops.StoreInt(v, at, int64(x)) }

func runMean(c *ops.Call) error {
	r := floats(sums.floats)
	r.n = reducedSize(c)
	r.finish = func(r *reducer[float64], acc, _ float64) float64 { return acc / float64(r.n) }
	reduce(c, r)
	return nil
}

// reducedSize returns the number of elements that make one result.
func reducedSize(c *ops.Call) int {
	n := 1
	for _, d := range c.Attrs.Ints("dims") {
		n *= c.In[0].Shape()[d]
	}
	return n
}

func runAny(c *ops.Call) error {
	reduceBy(c, counts, func(acc, _ int64) int64 { return min(acc, 1) })
	return nil
}

func runAll(c *ops.Call) error {
	reduceBy(c, counts, func(acc, n int64) int64 { return 1 - min(n-acc, 1) })
	return nil
}

func runNorm(c *ops.Call) error {
	ord := c.Attrs.Float("ord")
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
		r.finish = func(_ *reducer[float64], acc, _ float64) float64 { return math.Sqrt(acc) }
	case math.IsInf(ord, 1):
		r = floats(largestMagnitude)
	case math.IsInf(ord, -1):
		r = floats(smallestMagnitude)
	default:
		r = floats(powers)
		r.given = ord
		r.finish = func(_ *reducer[float64], acc, ord float64) float64 { return math.Pow(acc, 1/ord) }
	}
	reduce(c, r)
	return nil
}

func runVariance(root bool) func(c *ops.Call) error {
	return func(c *ops.Call) error {
		n := reducedSize(c)
		divisor := max(float64(n)-c.Attrs.Float("correction"), 0)
		if varianceRows(c, divisor, root) {
			return nil
		}
		r := floats(sums.floats, deviations)
		r.n, r.divisor = n, divisor
		r.between = func(r *reducer[float64], acc float64) float64 { return acc / float64(r.n) }
		r.finish = func(r *reducer[float64], acc, _ float64) float64 { return acc / r.divisor }
		if root {
			r.finish = func(r *reducer[float64], acc, _ float64) float64 { return math.Sqrt(acc / r.divisor) }
		}
		reduce(c, r)
		return nil
	}
}

func runLogSumExp(c *ops.Call) error {
	r := floats(largest.floats, exponentials)
	r.between = func(_ *reducer[float64], acc float64) float64 {
		if math.IsInf(acc, 0) {
			return 0
		}
		return acc
	}
	r.finish = func(_ *reducer[float64], acc, at float64) float64 { return math.Log(acc) + at }
	reduce(c, r)
	return nil
}

func runArgExtreme(wantLargest bool) func(c *ops.Call) error {
	return func(c *ops.Call) error {
		x, out := c.In[0], ops.Elements[int64](c.Out[0])
		d := 0
		if dims := c.Attrs.Ints("dims"); len(dims) > 0 {
			d = dims[0]
		}
		a := ops.AlongDim(x.Layout, d)
		ops.DoLines(c.Pool, &a, extremes{Along: a, x: x, out: out, largest: wantLargest})
		return nil
	}
}

// extremes is the task of runArgExtreme: a part is some lines.
type extremes struct {
	ops.Along
	x       ops.View
	out     []int64
	largest bool
}

// Run implements Task.
func (t *extremes) Run(from, to int) {
	buffer := ops.NewBlockBuffer()
	t.Each(from, to, func(line, first int) {
		if ops.IsReal(t.x.DType) {
			t.out[line] = argExtreme(t, first, ops.BlockOf[float64](buffer), ops.LoadReal[float64])
		} else {
			t.out[line] = argExtreme(t, first, ops.BlockOf[int64](buffer), ops.LoadInts)
		}
	})
	ops.BlockBuffers.Put(buffer)
}

// argExtreme returns the first index of the extreme of a line; NaN comes before all.
func argExtreme[T float64 | int64](t *extremes, first int, room []T, load func([]T, ops.View, int, int)) int64 {
	var best T
	at := -1
	for k := 0; k < t.N; k += len(room) {
		part := room[:min(len(room), t.N-k)]
		load(part, t.x, first+k*t.Stride, t.Stride)
		for i, v := range part {
			if v != v {
				return int64(k + i)
			}
			if at < 0 || t.largest && v > best || !t.largest && v < best {
				best, at = v, k+i
			}
		}
	}
	return int64(at)
}
