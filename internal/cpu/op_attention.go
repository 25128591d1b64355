package cpu

import (
	"math"

	"github.com/optimem/optimem/graph"
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// attentionKernels let positions look at each other.
var attentionKernels = map[graph.Kind]ops.Kernel{
	"scaled_dot_product_attention": {Run: runAttention, Work: attentionWork, Supports: ops.OnlyReal},
}

// runAttention: out[i] = Σ_j p[i, j]·v[j] with p[i] = softmax_j(scale·q[i]·k[j] + mask[i, j]), zero where no key is
// seen: torch.nn.functional.scaled_dot_product_attention. Half floats are computed in float32 and rounded once.
func runAttention(c *ops.Call) error {
	if c.Pool.Set != nil && flashTakes(c.In[0].DType, c.Attrs) {
		runFlash(c)
		return c.Ctx.Err()
	}
	if c.In[0].DType == tensor.Float64 {
		attend[float64](c)
	} else {
		attend[float32](c)
	}
	return c.Ctx.Err()
}

// attentionSizes are how a call is cut: queries are taken in blocks of rows, and blocks are spread over parts, each with
// scratch of its own.
type attentionSizes struct {
	batch, queries, keys, width, valueWidth int
	rows, blocks, parts                     int
}

func sizesOfAttention(q, k, v tensor.Shape) attentionSizes {
	// A block's scores should stay in a core's cache.
	const scores, leastRows, mostRows, mostParts = 1 << 17, 8, 64, 32
	r := len(q)
	s := attentionSizes{
		batch: ops.Volume(q[:r-2]), queries: q[r-2], keys: k[r-2], width: q[r-1], valueWidth: v[r-1],
	}
	s.rows = min(max(scores/max(s.keys, 1), leastRows), mostRows)
	s.blocks = (s.queries + s.rows - 1) / s.rows
	s.parts = min(s.batch*s.blocks, mostParts)
	return s
}

// partBytes returns the scratch of one part.
func (s attentionSizes) partBytes(d tensor.DType) int64 {
	size := ops.RealBytes(d)
	products := max(gemmWork(s.rows, s.keys, s.width, size), gemmWork(s.rows, s.valueWidth, s.keys, size))
	bytes := ops.ScratchBytes(size, s.rows*s.keys, s.keys) + int64(ops.RoundUp(int(products), 8))
	if ops.IsHalf(d) {
		bytes += ops.ScratchBytes(size, s.rows*s.valueWidth)
	}
	return bytes
}

func attentionWork(in, _ []graph.Spec, a graph.Attrs) int64 {
	if simd.Best() != nil && flashTakes(in[0].DType, a) {
		s := flashSizesOf(in[0].Shape, in[1].Shape, in[2].Shape)
		return int64(s.parts) * 4 * int64(s.workFloats())
	}
	s := sizesOfAttention(in[0].Shape, in[1].Shape, in[2].Shape)
	return int64(s.parts) * s.partBytes(in[0].DType)
}

// An attention is a call being computed in T, a task whose parts are those of its sizes.
type attention[T ops.Real] struct {
	attentionSizes
	c                        *ops.Call
	q, k, v, mask, out, also ops.View
	scale                    T
	causal                   bool
	weights, unseenNaN       bool
}

func attend[T ops.Real](c *ops.Call) {
	a := attention[T]{
		attentionSizes: sizesOfAttention(c.In[0].Shape(), c.In[1].Shape(), c.In[2].Shape()), c: c,
		q: c.In[0], k: c.In[1], v: c.In[2], mask: c.Operand(3), out: c.Out[0],
		scale: T(c.Attrs.Float("scale")), causal: c.Attrs.Bool("is_causal"),
		weights: c.Attrs.String("also") == "weights", unseenNaN: c.Attrs.Bool("unseen_nan"),
	}
	if len(c.Out) > 1 {
		a.also = c.Out[1]
	}
	tasks.Do(c.Pool, a.parts, 1, a)
}

// Run implements Task.
func (a *attention[T]) Run(part, _ int) {
	units, bytes := a.batch*a.blocks, int(a.partBytes(a.q.DType))
	work := ops.Scratch(a.c.Work[part*bytes:][:bytes])
	f := tasks.Take[attentionFactors[T]]()
	for unit := part * units / a.parts; unit < (part+1)*units/a.parts && a.c.Ctx.Err() == nil; unit++ {
		from := unit % a.blocks * a.rows
		a.block(f, unit/a.blocks, from, min(from+a.rows, a.queries), work)
	}
	*f = attentionFactors[T]{}
	tasks.Give(f)
}

// attentionFactors are the factors of an attention's products.
type attentionFactors[T ops.Real] struct{ q, k, weights, v matrix[T] }

// block computes the queries [from, to) of one matrix of the batch.
func (a *attention[T]) block(f *attentionFactors[T], batch, from, to int, work ops.Scratch) {
	rows := to - from
	keys := a.keys
	if a.causal {
		keys = min(keys, to) // nobody sees those after the last query
	}
	f.q, f.k, f.v = a.matrix(a.q, batch, false), a.matrix(a.k, batch, false), a.matrix(a.v, batch, true)
	f.q.offset += from * f.q.line
	scores := ops.TakeReal[T](&work, a.rows*a.keys)[:rows*keys]
	mask := ops.TakeReal[T](&work, a.keys)[:keys]
	out := a.out
	var sums []T
	at := (batch*a.queries + from) * a.valueWidth
	if ops.IsHalf(out.DType) {
		sums = ops.TakeReal[T](&work, a.rows*a.valueWidth)[:rows*a.valueWidth]
	} else {
		sums = ops.Elements[T](out)[at:][:rows*a.valueWidth]
	}
	gemm(nil, rows, keys, a.width, &f.q, &f.k, scores, keys, gemmOptions[T]{}, work)
	for i := range rows {
		line := scores[i*keys : (i+1)*keys]
		for j := range line {
			line[j] *= a.scale
		}
		if !a.mask.Absent() {
			a.addMask(line, mask, batch, from+i)
		}
		seen := keys
		if a.causal {
			seen = min(keys, from+i+1)
		}
		largest, sum := weigh(line, seen)
		if sum == 0 && a.unseenNaN {
			for j := range line[:seen] {
				line[j] = T(math.NaN())
			}
		}
		a.giveAlso(line, largest, sum, batch, from+i)
	}
	if keys == 0 {
		clear(sums)
	} else {
		f.weights = matrix[T]{data: ops.MemoryOf(scores), dtype: ops.RealDType[T](), line: keys, step: 1}
		gemm(nil, rows, a.valueWidth, keys, &f.weights, &f.v, sums, a.valueWidth, gemmOptions[T]{}, work)
	}
	if ops.IsHalf(out.DType) {
		ops.StoreReal(out, at, sums)
	}
}

// matrix returns one matrix of a batch as a factor: its lines are its rows, or its columns.
func (a *attention[T]) matrix(v ops.View, batch int, columns bool) matrix[T] {
	l := v.Layout
	r := len(l.Shape)
	m := matrix[T]{
		data: v.Data, dtype: v.DType, offset: l.Leading(2).OffsetOf(batch),
		line: l.Strides[r-2], step: l.Strides[r-1],
	}
	if columns {
		m.line, m.step = m.step, m.line
	}
	return m
}

// addMask adds the mask's line of one query to its scores; values is scratch for it.
func (a *attention[T]) addMask(line, values []T, batch, query int) {
	l := a.mask.Layout
	r := len(l.Shape)
	at, stride := l.Leading(2).OffsetOf(batch)+query*l.Strides[r-2], l.Strides[r-1]
	if a.mask.DType == tensor.Bool {
		seen := ops.Elements[uint8](a.mask)
		for j := range line {
			if seen[at+j*stride] == 0 {
				line[j] = T(math.Inf(-1))
			}
		}
		return
	}
	ops.LoadReal(values, a.mask, at, stride)
	for j := range line {
		line[j] += values[j]
	}
}

// weigh makes the first seen numbers of a line the exponentials of themselves over the sum of all, and the others
// zero. Where all are −∞ it makes them zero, and the sum that it returns is.
func weigh[T ops.Real](line []T, seen int) (largest, sum T) {
	clear(line[seen:])
	line = line[:seen]
	largest = T(math.Inf(-1))
	for _, x := range line {
		largest = max(largest, x)
	}
	if math.IsInf(float64(largest), -1) {
		clear(line)
		return largest, 0
	}
	// Four sums, so that long lines lose less.
	var sums [4]T
	for j, x := range line {
		e := T(math.Exp(float64(x - largest)))
		line[j] = e
		sums[j&3] += e
	}
	sum = (sums[0] + sums[1]) + (sums[2] + sums[3])
	inverse := 1 / sum
	for j := range line {
		line[j] *= inverse
	}
	return largest, sum
}

// giveAlso writes what the call gives besides the attention, for one query.
func (a *attention[T]) giveAlso(line []T, largest, sum T, batch, query int) {
	switch at := batch*a.queries + query; {
	case a.also.Absent():
	case a.weights:
		ops.StoreReal(a.also, at*a.keys, line)
		if rest := a.keys - len(line); rest > 0 {
			size := a.also.DType.Size()
			clear(a.also.Data[(at*a.keys+len(line))*size:][:rest*size])
		}
	default:
		var logSum [1]T
		if sum != 0 {
			logSum[0] = largest + T(math.Log(float64(sum)))
		}
		ops.StoreReal(a.also, at, logSum[:])
	}
}
