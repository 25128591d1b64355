package cpu

import (
	"fmt"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// indexKernels move elements to or from places that indices name. All indices are checked before an element is moved.
var indexKernels = map[graph.Kind]kernel{
	// out[b…, i…] = w[index[b…], i…], torch.nn.functional.embedding.
	"embedding": {run: func(c *call) error { return runIndex(c, 0, false) }, work: indexWork(1)},
	// out[b…, i…] = w[index[b…] − low, i…] where there is such a row, else in[2][b…, i…]: a part of an embedding.
	"embedding_rows": {run: runEmbeddingRows},
	// out[a…, b…, i…] = x[a…, index0[b…], index1[b…], …, i…], x[index0, index1].
	"index": {
		run:  func(c *call) error { return runIndex(c, c.attrs.Int("dim"), c.attrs.Bool("wrap")) },
		work: indexWork(1),
	},
	// out = x, then out[a…, index0[b…], …, i…] = or += values[a…, b…, i…], torch.Tensor.index_put.
	"index_put": {run: runIndexPut, work: indexWork(2), supports: onlyMerged, inPlace: overFirst},
	// out[i, j] = x[i, index[i, j]], torch.gather.
	"gather": {run: runGather},
	// out = x, then out[i, index[i, j]] = or combined with src[i, j], torch.Tensor.scatter_reduce.
	"scatter": {run: runScatter, work: scatterWork, supports: onlyMerged},
	// out = x, where mask is true the next element of source, torch.Tensor.masked_scatter.
	"masked_scatter": {run: func(c *call) error { return moverOf(c.in[0].dtype).maskedScatter(c) }},
	// out[b] = Σ w[index[i]] × scale[i] over the i of bag b, their mean or largest, torch.nn.functional.embedding_bag.
	"embedding_bag": {run: runEmbeddingBag},
	// out[i] = |{k: sorted[k] < x[i]}|, with "right" ≤, torch.searchsorted.
	"searchsorted": {run: runSearch, supports: noUnsigned64},
	// Index i, repeats[i] times, torch.repeat_interleave.
	"repeat_indices": {run: runRepeatIndices},
	// The indices of what is not zero, torch.nonzero_static.
	"nonzero": {run: runNonzero},
	// torch.cat.
	"cat": {run: runCat},
	// out[i] = x[n − 1 − i], torch.flip.
	"flip": {run: runFlip},
	// out[i] = x[(i − shift) mod n], torch.roll.
	"roll": {run: func(c *call) error { return moverOf(c.out[0].dtype).roll(c) }},
}

// indexWork is room for an offset in memory for each position of the index tensors, the first of which is operand i.
func indexWork(i int) func(in, _ []graph.Spec, _ graph.Attrs) int64 {
	return func(in, _ []graph.Spec, _ graph.Attrs) int64 { return int64(volume(in[i].Shape)) * 8 }
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
func visitIndices(v view, body func(at int, i int64) error) error {
	var err error
	var buf [chunk]int64
	lines(v.layout, func(to, first, stride, n int) {
		for j := 0; j < n && err == nil; j += chunk {
			part := buf[:min(chunk, n-j)]
			loadInts(part, v, first+j*stride, stride)
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
	inner walk
	// at are the offsets of the indices.
	at []int
}

func indexingOf(l tensor.Layout, d int, index []view, wrap bool, work []byte) (indexing, error) {
	x := indexing{
		outer: tensor.Layout{Shape: l.Shape[:d], Strides: l.Strides[:d], Offset: l.Offset},
		inner: walkOf(tensor.Layout{Shape: l.Shape[d+len(index):], Strides: l.Strides[d+len(index):]}),
		at:    elements[int](view{data: work})[:index[0].size()],
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
func addOffsets(at []int, index view, size, stride int, wrap bool) error {
	var err error
	var buf [chunk]int64
	lines(index.layout, func(to, first, step, n int) {
		for j := 0; j < n && err == nil; j += chunk {
			part := buf[:min(chunk, n-j)]
			loadInts(part, index, first+j*step, step)
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

func runIndex(c *call, d int, wrap bool) error {
	x, err := indexingOf(c.in[0].layout, d, c.in[1:], wrap, c.work)
	if err != nil {
		return err
	}
	moverOf(c.in[0].dtype).index(c, x)
	return nil
}

func runEmbeddingRows(c *call) error {
	table, out := c.in[0], c.out[0]
	if len(c.in) > 2 && !c.in[2].absent() {
		gather(c.pool, out.data, c.in[2])
	} else {
		clear(out.data)
	}
	row := view{data: table.data, dtype: table.dtype, layout: tensor.Layout{
		Shape: table.layout.Shape[1:], Strides: table.layout.Strides[1:],
	}}
	rowBytes := row.size() * row.dtype.Size()
	low, size := c.attrs.Int("low"), c.attrs.Int("size")
	return visitIndices(c.in[1], func(at int, i int64) error {
		k, err := wrapIndex(i, size, false)
		if k -= low; err != nil || k < 0 || k >= table.layout.Shape[0] {
			return err
		}
		row.layout.Offset = table.layout.Offset + k*table.layout.Strides[0]
		gather(c.pool, out.data[at*rowBytes:][:rowBytes], row)
		return nil
	})
}

func runIndexPut(c *call) error {
	gather(c.pool, c.out[0].data, c.in[0])
	x, err := indexingOf(c.out[0].layout, c.attrs.Int("dim"), c.in[2:], c.attrs.Bool("wrap"), c.work)
	if err != nil {
		return err
	}
	reduce := ""
	if c.attrs.Bool("accumulate") {
		reduce = "sum"
	}
	mergerOf(c.out[0].dtype, reduce).put(c, x)
	return nil
}

// checkIndices returns an error for the first index outside dimension d of x.
func checkIndices(index view, x tensor.Shape, d int) error {
	n := 1
	if len(x) > 0 {
		n = x[d]
	}
	return visitIndices(index, func(_ int, i int64) error {
		_, err := wrapIndex(i, n, false)
		return err
	})
}

func runGather(c *call) error {
	d := c.attrs.Int("dim")
	if err := checkIndices(c.in[1], c.in[0].shape(), d); err != nil {
		return err
	}
	moverOf(c.in[0].dtype).gather(c, d)
	return nil
}

func runScatter(c *call) error {
	gather(c.pool, c.out[0].data, c.in[0])
	d := c.attrs.Int("dim")
	if err := checkIndices(c.in[1], c.in[0].shape(), d); err != nil {
		return err
	}
	mergerOf(c.out[0].dtype, c.attrs.String("reduce")).scatter(c, d)
	return nil
}

// scatterWork is room to count what each element was combined from, where that matters.
func scatterWork(in, _ []graph.Spec, a graph.Attrs) int64 {
	if reduce := a.String("reduce"); reduce == "mean" || reduce != "" && !a.Bool("include_self") {
		return int64(volume(in[0].Shape)) * 4
	}
	return 0
}

func runRepeatIndices(c *call) error {
	out := elements[int64](c.out[0])
	err := visitIndices(c.in[0], func(at int, times int64) error {
		if times < 0 || times > int64(len(out)) {
			return fmt.Errorf("repeats[%d] = %d makes other than the %d elements promised", at, times, c.out[0].size())
		}
		for i := range times {
			out[i] = int64(at)
		}
		out = out[times:]
		return nil
	})
	if err == nil && len(out) > 0 {
		return fmt.Errorf("repeats make %d elements fewer than the %d promised", len(out), c.out[0].size())
	}
	return err
}

func runNonzero(c *call) error {
	x, out := c.in[0], elements[int64](c.out[0])
	shape := x.shape()
	var ints [chunk]int64
	var reals [chunk]float64
	lines(x.layout, func(at, first, stride, n int) {
		for k := 0; k < n; k += chunk {
			size := min(chunk, n-k)
			if isReal(x.dtype) {
				loadReal(reals[:size], x, first+k*stride, stride)
				for i, v := range reals[:size] {
					ints[i] = 0
					if v != 0 {
						ints[i] = 1
					}
				}
			} else {
				loadInts(ints[:size], x, first+k*stride, stride)
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
		out[i] = int64(c.attrs.Int("fill"))
	}
	return nil
}

func runFlip(c *call) error {
	v := c.in[0]
	if v.size() == 0 {
		return nil
	}
	room := tasks.Take[[mostDims]int]()
	l := tensor.Layout{Shape: v.shape(), Strides: append(room[:0], v.layout.Strides...), Offset: v.layout.Offset}
	for _, d := range c.attrs.Ints("dims") {
		l.Offset += (l.Shape[d] - 1) * l.Strides[d]
		l.Strides[d] = -l.Strides[d]
	}
	v.layout = l
	gather(c.pool, c.out[0].data, v)
	tasks.Give(room)
	return nil
}

// runSearch finds each place by halving.
func runSearch(c *call) error {
	sorted, x := c.in[0], c.in[1]
	rank := len(sorted.shape())
	n := sorted.shape()[rank-1]
	var order view
	if len(c.in) > 2 && !c.in[2].absent() {
		order = c.in[2]
		if err := visitIndices(order, func(_ int, i int64) error {
			_, err := wrapIndex(i, n, false)
			return err
		}); err != nil {
			return err
		}
	}
	row := x.size()
	if rank > 1 {
		row = x.shape()[rank-1]
	}
	tasks.Do(c.pool, x.size(), grain/8, searching{
		sorted: sorted, order: order, x: x, out: c.out[0], n: n, row: row, right: c.attrs.Bool("right"),
	})
	return nil
}

// searching is the task of runSearch: a part is some elements of x, of which row are searched in a line.
type searching struct {
	sorted, order, x, out view
	n, row                int
	right                 bool
}

// Run implements Task.
func (t *searching) Run(from, to int) {
	buffer := newBlockBuffer()
	linesOf(t.x.layout, from, to, func(at, first, stride, count int) {
		for i := range count {
			line := 0
			if len(t.sorted.shape()) > 1 {
				line = (at + i) / t.row
			}
			s := t.sorted.layout.Leading(1).OffsetOf(line)
			o := -1
			if !t.order.absent() {
				o = t.order.layout.Leading(1).OffsetOf(line)
			}
			var place int
			if isReal(t.x.dtype) {
				place = searchPlace(t, s, o, first+i*stride, blockOf[float64](buffer), loadReal[float64])
			} else {
				place = searchPlace(t, s, o, first+i*stride, blockOf[int64](buffer), loadInts)
			}
			storeInt(t.out, at+i, int64(place))
		}
	})
	blockBuffers.Put(buffer)
}

// searchPlace returns where the element of x goes among those of the line of sorted from s, in the order from o, if that is
// not −1.
func searchPlace[T float64 | int64](t *searching, s, o, at int, room []T, load func([]T, view, int, int)) int {
	value, middle, sorted, step, right := room[:1], room[1:2], t.sorted, lastStride(t.sorted.layout), t.right
	load(value, t.x, at, 1)
	low, high := 0, t.n
	for low < high {
		mid := low + (high-low)/2
		k := mid
		if o >= 0 {
			k = int(elements[int64](t.order)[o+mid*lastStride(t.order.layout)])
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
