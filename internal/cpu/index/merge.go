package index

import (
	"fmt"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// A merger writes elements to places that indices name, combining them with what is there.
type merger interface {
	put(c *ops.Call, x indexing)
	scatter(c *ops.Call, d int)
}

// merges merges elements of type T.
type merges[T any] struct {
	// with combines an element with another.
	with func(a, b T) T
	// divide divides a sum by how many there were; nil unless the mean is wanted.
	divide func(sum T, n int32) T
}

// onlyMerged refuses dtypes that no merger combines.
func onlyMerged(in, _ []graph.Spec, a graph.Attrs) error {
	reduce := a.String("reduce")
	if a.Bool("accumulate") {
		reduce = "sum"
	}
	switch d := in[0].DType; d {
	case tensor.UInt16, tensor.UInt32, tensor.UInt64:
		if reduce != "" {
			return fmt.Errorf("no %s of %v", reduce, d)
		}
	}
	return nil
}

// mergerOf returns the merger for a dtype and "reduce" of the op scatter.
func mergerOf(d tensor.DType, reduce string) merger {
	return mergers.Get(mergerKey{d, reduce}, func() merger { return newMerger(d, reduce) })
}

// A mergerKey is what mergers depend on, mergers those that were made.
type mergerKey struct {
	dtype  tensor.DType
	reduce string
}

var mergers = ops.NewMemo[mergerKey, merger]()

func newMerger(d tensor.DType, reduce string) merger {
	if reduce == "" {
		return replacer(d)
	}
	switch d {
	case tensor.Float32:
		return mergeNumbers[float32](reduce)
	case tensor.Float64:
		return mergeNumbers[float64](reduce)
	case tensor.Float16:
		return mergeHalves(reduce, tensor.Float16ToFloat32, tensor.Float16FromFloat32)
	case tensor.BFloat16:
		return mergeHalves(reduce, tensor.BFloat16ToFloat32, tensor.BFloat16FromFloat32)
	case tensor.Int64:
		return mergeNumbers[int64](reduce)
	case tensor.Int32:
		return mergeNumbers[int32](reduce)
	case tensor.Int16:
		return mergeNumbers[int16](reduce)
	case tensor.Int8:
		return mergeNumbers[int8](reduce)
	case tensor.UInt8:
		return mergeNumbers[uint8](reduce)
	case tensor.Bool:
		return mergeBools(reduce)
	}
	panic("BUG: " + reduce + " of " + d.String())
}

func replacer(d tensor.DType) merger {
	switch d.Size() {
	case 1:
		return replaces[uint8]()
	case 2:
		return replaces[uint16]()
	case 4:
		return replaces[uint32]()
	case 8:
		return replaces[uint64]()
	}
	return replaces[[2]uint64]()
}

func replaces[T any]() merger { return merges[T]{with: func(_, b T) T { return b }} }

// mergeNumbers: NaN is both larger and smaller than all; means of integers are rounded down.
func mergeNumbers[T ops.Real | ops.Integer](reduce string) merges[T] {
	m := merges[T]{with: func(a, b T) T { return a + b }}
	switch reduce {
	case "prod":
		m.with = func(a, b T) T { return a * b }
	case "amax":
		m.with = func(a, b T) T {
			if b > a || b != b {
				return b
			}
			return a
		}
	case "amin":
		m.with = func(a, b T) T {
			if b < a || b != b {
				return b
			}
			return a
		}
	case "mean":
		m.divide = func(sum T, n int32) T {
			if T(1)/2 != 0 { // not integers
				return sum / T(n)
			}
			q := int64(sum) / int64(n)
			if sum < 0 && int64(sum)%int64(n) != 0 {
				q--
			}
			return T(q)
		}
	}
	return m
}

func mergeHalves(reduce string, load func(uint16) float32, store func(float32) uint16) merger {
	wide := mergeNumbers[float32](reduce)
	m := merges[uint16]{with: func(a, b uint16) uint16 { return store(wide.with(load(a), load(b))) }}
	if wide.divide != nil {
		m.divide = func(sum uint16, n int32) uint16 { return store(wide.divide(load(sum), n)) }
	}
	return m
}

func mergeBools(reduce string) merger {
	m := merges[uint8]{with: func(a, b uint8) uint8 { return a | b }}
	switch reduce {
	case "prod", "amin":
		m.with = func(a, b uint8) uint8 { return a & b }
	case "mean":
		m.divide = func(sum uint8, _ int32) uint8 { return sum }
	}
	return m
}

// put merges the values into the result, block after block: of several for one element the last comes last.
func (m merges[T]) put(c *ops.Call, x indexing) {
	values, size, n := c.In[1], x.inner.Size, len(x.at)
	if size == 0 || n == 0 {
		return
	}
	d := len(x.outer.Shape) + len(c.In[2].Shape())
	tasks.Do(c.Pool, ops.Volume(x.outer.Shape), max(1, ops.Grain/(n*size)), putting[T]{
		merges: m, indexing: x, src: ops.Elements[T](values), dst: ops.Elements[T](c.Out[0]),
		blocks: values.Layout.Leading(len(values.Shape()) - d),
		values: ops.WalkOf(tensor.Layout{Shape: values.Shape()[d:], Strides: values.Layout.Strides[d:]}),
	})
}

// putting is the task of put: a part is all indices for some positions of the dimensions before the indexed ones. blocks is
// where the values of an index begin, values visits them.
type putting[T any] struct {
	merges[T]
	indexing
	src, dst []T
	blocks   tensor.Layout
	values   ops.Walk
}

// Run implements Task.
func (t *putting[T]) Run(from, to int) {
	var room [ops.MostDims]int
	index, n, values, with, src := ops.IntsIn(room[:], t.values.Rank), len(t.at), &t.values, t.with, t.src
	for i := from * n; i < to*n; i++ {
		out := t.dst[t.outer.OffsetOf(i/n)+t.at[i%n]:][:t.inner.Size]
		values.Lines(t.blocks.OffsetOf(i), index, func(first int) {
			for k := range values.N {
				out[k] = with(out[k], src[first+k*values.Stride])
			}
			out = out[values.N:]
		})
	}
}

// scatter merges line by line along dimension d: lines share no element.
func (m merges[T]) scatter(c *ops.Call, d int) {
	out, index, source := c.Out[0], c.In[1], c.In[2]
	a := ops.AlongDim(index.Layout, d)
	t := scattering[T]{
		merges: m, Along: a, index: index, src: ops.Elements[T](source), dst: ops.Elements[T](out),
		to: ops.StartsOf(out.Layout, index.Shape(), d), toStep: strideOf(out.Layout, d),
		from: ops.StartsOf(source.Layout, index.Shape(), d), fromStep: strideOf(source.Layout, d),
	}
	if len(c.Work) > 0 {
		t.counts = ops.Elements[int32](ops.View{Data: c.Work})
		clear(t.counts)
		if c.Attrs.Bool("include_self") {
			for i := range t.counts {
				t.counts[i] = 1
			}
		}
	}
	ops.DoLines(c.Pool, &a, t)
	if m.divide != nil {
		tasks.Do(c.Pool, out.Size(), ops.Grain, dividing[T]{merges: m, dst: t.dst, counts: t.counts})
	}
}

// scattering is the task of scatter: a part is some lines of the index. to and from are where the lines of the result and
// of the source begin, whose elements lie the steps apart.
type scattering[T any] struct {
	merges[T]
	ops.Along
	index            ops.View
	src, dst         []T
	to, from         ops.Starts
	toStep, fromStep int
	counts           []int32
}

// Run implements Task.
func (t *scattering[T]) Run(from, to int) {
	results, values, with, dst, src, counts := t.to.Layout(), t.from.Layout(), t.with, t.dst, t.src, t.counts
	toStep, fromStep := t.toStep, t.fromStep
	t.Each(from, to, func(line, first int) {
		var buf [ops.Chunk]int64
		base, at := results.OffsetOf(line), values.OffsetOf(line)
		for k := 0; k < t.N; k += ops.Chunk {
			part := buf[:min(ops.Chunk, t.N-k)]
			ops.LoadInts(part, t.index, first+k*t.Stride, t.Stride)
			for i, v := range part {
				place, value := base+int(v)*toStep, src[at+(k+i)*fromStep]
				if counts != nil {
					counts[place]++
					if counts[place] == 1 {
						dst[place] = value
						continue
					}
				}
				dst[place] = with(dst[place], value)
			}
		}
	})
}

// dividing is the task of the means of scatter: a part is some results.
type dividing[T any] struct {
	merges[T]
	dst    []T
	counts []int32
}

// Run implements Task.
func (t *dividing[T]) Run(from, to int) {
	for i := from; i < to; i++ {
		if t.counts[i] > 1 {
			t.dst[i] = t.divide(t.dst[i], t.counts[i])
		}
	}
}
