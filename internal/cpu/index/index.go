package index

import (
	"fmt"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// indexKernels move elements to or from places that indices name. All indices are checked before an element is moved.
var indexKernels = map[graph.Kind]ops.Kernel{
	// out[b…, i…] = w[index[b…], i…], torch.nn.functional.embedding.
	"embedding": {Run: func(c *ops.Call) error { return runIndex(c, 0, false) }, Work: indexWork(1)},
	// out[b…, i…] = w[index[b…] − low, i…] where there is such a row, else in[2][b…, i…]: a part of an embedding.
	"embedding_rows": {Run: runEmbeddingRows},
	// out[a…, b…, i…] = x[a…, index0[b…], index1[b…], …, i…], x[index0, index1].
	"index": {
		Run:  func(c *ops.Call) error { return runIndex(c, c.Attrs.Int("dim"), c.Attrs.Bool("wrap")) },
		Work: indexWork(1),
	},
	// out = x, then out[a…, index0[b…], …, i…] = or += values[a…, b…, i…], torch.Tensor.index_put.
	"index_put": {Run: runIndexPut, Work: indexWork(2), Supports: onlyMerged, InPlace: ops.OverFirst},
	// out[i, j] = x[i, index[i, j]], torch.gather.
	"gather": {Run: runGather},
	// out = x, then out[i, index[i, j]] = or combined with src[i, j], torch.Tensor.scatter_reduce.
	"scatter": {Run: runScatter, Work: scatterWork, Supports: onlyMerged},
	// out = x, where mask is true the next element of source, torch.Tensor.masked_scatter.
	"masked_scatter": {Run: func(c *ops.Call) error { return moverOf(c.In[0].DType).maskedScatter(c) }},
	// out[b] = Σ w[index[i]] × scale[i] over the i of bag b, their mean or largest, torch.nn.functional.embedding_bag.
	"embedding_bag": {Run: runEmbeddingBag},
	// out[i] = |{k: sorted[k] < x[i]}|, with "right" ≤, torch.searchsorted.
	"searchsorted": {Run: runSearch, Supports: ops.NoUnsigned64},
	// Index i, repeats[i] times, torch.repeat_interleave.
	"repeat_indices": {Run: runRepeatIndices},
	// The indices of what is not zero, torch.nonzero_static.
	"nonzero": {Run: runNonzero},
	// torch.cat.
	"cat": {Run: runCat},
	// out[i] = x[n − 1 − i], torch.flip.
	"flip": {Run: runFlip},
	// out[i] = x[(i − shift) mod n], torch.roll.
	"roll": {Run: func(c *ops.Call) error { return moverOf(c.Out[0].DType).roll(c) }},
}

// indexWork is room for an offset in memory for each position of the index tensors, the first of which is operand i.
func indexWork(i int) func(in, _ []graph.Spec, _ graph.Attrs) int64 {
	return func(in, _ []graph.Spec, _ graph.Attrs) int64 { return int64(ops.Volume(in[i].Shape)) * 8 }
}

// wrapIndex returns an index of a dimension of n elements.
func wrapIndex(i int64, n int, wrap bool) (int, error) {
	at := i
	if wrap && at < 0 {
		at += int64(n)
	}
	if at < 0 || at >= int64(n) {
		return 0, &graph.IndexError{Index: i, Size: int64(n)}
	}
	return int(at), nil
}

// visitIndices gives body each index of a tensor with its position, and returns the first error.
func visitIndices(v ops.View, body func(at int, i int64) error) error {
	var err error
	var buf [ops.Chunk]int64
	ops.Lines(v.Layout, func(to, first, stride, n int) {
		for j := 0; j < n && err == nil; j += ops.Chunk {
			part := buf[:min(ops.Chunk, n-j)]
			ops.LoadInts(part, v, first+j*stride, stride)
			for m, x := range part {
				if err = body(to+j+m, x); err != nil {
					return
				}
			}
		}
	})
	return err
}

// An indexing is where "index" reads and "index_put" writes: blocks of the dimensions after the indexed ones, for each
// position of those before them and each position of the index.
type indexing struct {
	outer tensor.Layout
	inner ops.Walk
	// at are the offsets of the indices.
	at []int
}

func indexingOf(l tensor.Layout, d int, index []ops.View, wrap bool, work []byte) (indexing, error) {
	x := indexing{
		outer: tensor.Layout{Shape: l.Shape[:d], Strides: l.Strides[:d], Offset: l.Offset},
		inner: ops.WalkOf(tensor.Layout{Shape: l.Shape[d+len(index):], Strides: l.Strides[d+len(index):]}),
		at:    ops.Elements[int](ops.View{Data: work})[:index[0].Size()],
	}
	clear(x.at)
	for k, v := range index {
		if err := addOffsets(x.at, v, l.Shape[d+k], l.Strides[d+k], wrap); err != nil {
			return indexing{}, err
		}
	}
	return x, nil
}

// addOffsets adds stride times each index into a dimension of a size to where the indices lead.
func addOffsets(at []int, index ops.View, size, stride int, wrap bool) error {
	var err error
	var buf [ops.Chunk]int64
	ops.Lines(index.Layout, func(to, first, step, n int) {
		for j := 0; j < n && err == nil; j += ops.Chunk {
			part := buf[:min(ops.Chunk, n-j)]
			ops.LoadInts(part, index, first+j*step, step)
			sums := at[to+j:][:len(part)]
			for m, i := range part {
				if uint64(i) >= uint64(size) { // negative, or too large
					var k int
					if k, err = wrapIndex(i, size, wrap); err != nil {
						return
					}
					i = int64(k)
				}
				sums[m] += int(i) * stride
			}
		}
	})
	return err
}

func runIndex(c *ops.Call, d int, wrap bool) error {
	x, err := indexingOf(c.In[0].Layout, d, c.In[1:], wrap, c.Work)
	if err != nil {
		return err
	}
	moverOf(c.In[0].DType).index(c, x)
	return nil
}

func runEmbeddingRows(c *ops.Call) error {
	table, out := c.In[0], c.Out[0]
	if len(c.In) > 2 && !c.In[2].Absent() {
		ops.Gather(c.Pool, out.Data, c.In[2])
	} else {
		clear(out.Data)
	}
	row := ops.View{Data: table.Data, DType: table.DType, Layout: tensor.Layout{
		Shape: table.Layout.Shape[1:], Strides: table.Layout.Strides[1:],
	}}
	rowBytes := row.Size() * row.DType.Size()
	low, size := c.Attrs.Int("low"), c.Attrs.Int("size")
	return visitIndices(c.In[1], func(at int, i int64) error {
		k, err := wrapIndex(i, size, false)
		if k -= low; err != nil || k < 0 || k >= table.Layout.Shape[0] {
			return err
		}
		row.Layout.Offset = table.Layout.Offset + k*table.Layout.Strides[0]
		ops.Gather(c.Pool, out.Data[at*rowBytes:][:rowBytes], row)
		return nil
	})
}

func runIndexPut(c *ops.Call) error {
	ops.Gather(c.Pool, c.Out[0].Data, c.In[0])
	x, err := indexingOf(c.Out[0].Layout, c.Attrs.Int("dim"), c.In[2:], c.Attrs.Bool("wrap"), c.Work)
	if err != nil {
		return err
	}
	reduce := ""
	if c.Attrs.Bool("accumulate") {
		reduce = "sum"
	}
	mergerOf(c.Out[0].DType, reduce).put(c, x)
	return nil
}

// checkIndices returns an error for the first index outside dimension d of x.
func checkIndices(index ops.View, x tensor.Shape, d int) error {
	n := 1
	if len(x) > 0 {
		n = x[d]
	}
	return visitIndices(index, func(_ int, i int64) error {
		_, err := wrapIndex(i, n, false)
		return err
	})
}

func runGather(c *ops.Call) error {
	d := c.Attrs.Int("dim")
	if err := checkIndices(c.In[1], c.In[0].Shape(), d); err != nil {
		return err
	}
	moverOf(c.In[0].DType).gather(c, d)
	return nil
}

func runScatter(c *ops.Call) error {
	ops.Gather(c.Pool, c.Out[0].Data, c.In[0])
	d := c.Attrs.Int("dim")
	if err := checkIndices(c.In[1], c.In[0].Shape(), d); err != nil {
		return err
	}
	mergerOf(c.Out[0].DType, c.Attrs.String("reduce")).scatter(c, d)
	return nil
}

// scatterWork is room to count what each element was combined from, where that matters.
func scatterWork(in, _ []graph.Spec, a graph.Attrs) int64 {
	if reduce := a.String("reduce"); reduce == "mean" || reduce != "" && !a.Bool("include_self") {
		return int64(ops.Volume(in[0].Shape)) * 4
	}
	return 0
}

func runRepeatIndices(c *ops.Call) error {
	out := ops.Elements[int64](c.Out[0])
	err := visitIndices(c.In[0], func(at int, times int64) error {
		if times < 0 || times > int64(len(out)) {
			return fmt.Errorf("repeats[%d] = %d makes other than the %d elements promised", at, times, c.Out[0].Size())
		}
		for i := range times {
			out[i] = int64(at)
		}
		out = out[times:]
		return nil
	})
	if err == nil && len(out) > 0 {
		return fmt.Errorf("repeats make %d elements fewer than the %d promised", len(out), c.Out[0].Size())
	}
	return err
}

func runNonzero(c *ops.Call) error {
	x, out := c.In[0], ops.Elements[int64](c.Out[0])
	shape := x.Shape()
	var ints [ops.Chunk]int64
	var reals [ops.Chunk]float64
	ops.Lines(x.Layout, func(at, first, stride, n int) {
		for k := 0; k < n; k += ops.Chunk {
			size := min(ops.Chunk, n-k)
			if ops.IsReal(x.DType) {
				ops.LoadReal(reals[:size], x, first+k*stride, stride)
				for i, v := range reals[:size] {
					ints[i] = 0
					if v != 0 {
						ints[i] = 1
					}
				}
			} else {
				ops.LoadInts(ints[:size], x, first+k*stride, stride)
			}
			for i, v := range ints[:size] {
				if v == 0 || len(out) < max(len(shape), 1) {
					continue
				}
				rest := at + k + i
				for d := len(shape) - 1; d >= 0; d-- {
					out[d] = int64(rest % shape[d])
					rest /= shape[d]
				}
				out = out[len(shape):]
			}
		}
	})
	for i := range out {
		out[i] = int64(c.Attrs.Int("fill"))
	}
	return nil
}

func runFlip(c *ops.Call) error {
	v := c.In[0]
	if v.Size() == 0 {
		return nil
	}
	room := tasks.Take[[ops.MostDims]int]()
	l := tensor.Layout{Shape: v.Shape(), Strides: append(room[:0], v.Layout.Strides...), Offset: v.Layout.Offset}
	for _, d := range c.Attrs.Ints("dims") {
		l.Offset += (l.Shape[d] - 1) * l.Strides[d]
		l.Strides[d] = -l.Strides[d]
	}
	v.Layout = l
	ops.Gather(c.Pool, c.Out[0].Data, v)
	tasks.Give(room)
	return nil
}

// runSearch finds each place by halving.
func runSearch(c *ops.Call) error {
	sorted, x := c.In[0], c.In[1]
	rank := len(sorted.Shape())
	n := sorted.Shape()[rank-1]
	var order ops.View
	if len(c.In) > 2 && !c.In[2].Absent() {
		order = c.In[2]
		if err := visitIndices(order, func(_ int, i int64) error {
			_, err := wrapIndex(i, n, false)
			return err
		}); err != nil {
			return err
		}
	}
	row := x.Size()
	if rank > 1 {
		row = x.Shape()[rank-1]
	}
	tasks.Do(c.Pool, x.Size(), ops.Grain/8, searching{
		sorted: sorted, order: order, x: x, out: c.Out[0], n: n, row: row, right: c.Attrs.Bool("right"),
	})
	return nil
}

// searching is the task of runSearch: a part is some elements of x, of which row are searched in a line.
type searching struct {
	sorted, order, x, out ops.View
	n, row                int
	right                 bool
}

// Run implements Task.
func (t *searching) Run(from, to int) {
	buffer := ops.NewBlockBuffer()
	ops.LinesOf(t.x.Layout, from, to, func(at, first, stride, count int) {
		for i := range count {
			line := 0
			if len(t.sorted.Shape()) > 1 {
				line = (at + i) / t.row
			}
			s := t.sorted.Layout.Leading(1).OffsetOf(line)
			o := -1
			if !t.order.Absent() {
				o = t.order.Layout.Leading(1).OffsetOf(line)
			}
			var place int
			if ops.IsReal(t.x.DType) {
				place = searchPlace(t, s, o, first+i*stride, ops.BlockOf[float64](buffer), ops.LoadReal[float64])
			} else {
				place = searchPlace(t, s, o, first+i*stride, ops.BlockOf[int64](buffer), ops.LoadInts)
			}
			ops.StoreInt(t.out, at+i, int64(place))
		}
	})
	ops.BlockBuffers.Put(buffer)
}

// searchPlace returns where the element of x goes among those of the line of sorted from s, in the order from o, if that is
// not −1.
func searchPlace[T float64 | int64](t *searching, s, o, at int, room []T, load func([]T, ops.View, int, int)) int {
	value, middle, sorted, step, right := room[:1], room[1:2], t.sorted, ops.LastStride(t.sorted.Layout), t.right
	load(value, t.x, at, 1)
	low, high := 0, t.n
	for low < high {
		mid := low + (high-low)/2
		k := mid
		if o >= 0 {
			k = int(ops.Elements[int64](t.order)[o+mid*ops.LastStride(t.order.Layout)])
		}
		load(middle, sorted, s+k*step, 1)
		if right && !(middle[0] > value[0]) || !right && !(middle[0] >= value[0]) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}
