package index

import (
	"fmt"
	"math"

	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// A mover moves elements without looking at them.
type mover interface {
	index(c *ops.Call, x indexing)
	gather(c *ops.Call, d int)
	maskedScatter(c *ops.Call) error
	roll(c *ops.Call) error
}

// moves moves elements of the size of T.
type moves[T any] struct{}

func moverOf(d tensor.DType) mover {
	switch d.Size() {
	case 1:
		return moves[uint8]{}
	case 2:
		return moves[uint16]{}
	case 4:
		return moves[uint32]{}
	case 8:
		return moves[uint64]{}
	}
	return moves[[2]uint64]{}
}

func (moves[T]) index(c *ops.Call, x indexing) {
	size := x.inner.Size
	if size == 0 {
		return
	}
	tasks.Do(c.Pool, ops.Volume(x.outer.Shape)*len(x.at), max(1, ops.Grain/size), indexMove[T]{
		indexing: x, src: ops.Elements[T](c.In[0]), dst: ops.Elements[T](c.Out[0]),
	})
}

// An indexMove is the task of an indexing that reads: a part is some blocks.
type indexMove[T any] struct {
	indexing
	src, dst []T
}

// Run implements Task.
func (m *indexMove[T]) Run(from, to int) {
	src, size, inner := m.src, m.inner.Size, &m.inner
	if inner.Rank == 0 && inner.Stride == 1 {
		for i := from; i < to; {
			first, at := m.outer.OffsetOf(i/len(m.at)), m.at[i%len(m.at):]
			at = at[:min(len(at), to-i)]
			for k, a := range at {
				copy(m.dst[(i+k)*size:][:size], src[first+a:][:size])
			}
			i += len(at)
		}
		return
	}
	var room [ops.MostDims]int
	index := ops.IntsIn(room[:], inner.Rank)
	for i := from; i < to; i++ {
		out := m.dst[i*size : (i+1)*size]
		inner.Lines(m.outer.OffsetOf(i/len(m.at))+m.at[i%len(m.at)], index, func(first int) {
			if inner.Stride == 1 {
				copy(out, src[first:first+inner.N])
			} else {
				for k := range inner.N {
					out[k] = src[first+k*inner.Stride]
				}
			}
			out = out[inner.N:]
		})
	}
}

// strideOf returns the stride of a dimension, 1 for scalars.
func strideOf(l tensor.Layout, d int) int {
	if len(l.Strides) == 0 {
		return 1
	}
	return l.Strides[d]
}

func (moves[T]) gather(c *ops.Call, d int) {
	x, index := c.In[0], c.In[1]
	a := ops.AlongDim(index.Layout, d)
	ops.DoLines(c.Pool, &a, gathering[T]{
		Along: a, from: ops.StartsOf(x.Layout, index.Shape(), d), stride: strideOf(x.Layout, d), index: index,
		src: ops.Elements[T](x), dst: ops.Elements[T](c.Out[0]),
	})
}

// gathering is the task of a gather: a part is some lines of the index. from is where lines of the source begin.
type gathering[T any] struct {
	ops.Along
	from     ops.Starts
	stride   int
	index    ops.View
	src, dst []T
}

// Run implements Task.
func (t *gathering[T]) Run(from, to int) {
	starts := t.from.Layout()
	t.Each(from, to, func(line, first int) {
		var buf [ops.Chunk]int64
		base, to := starts.OffsetOf(line), t.First(line, t.N)
		for k := 0; k < t.N; k += ops.Chunk {
			part := buf[:min(ops.Chunk, t.N-k)]
			ops.LoadInts(part, t.index, first+k*t.Along.Stride, t.Along.Stride)
			for i, v := range part {
				t.dst[to+(k+i)*t.Inner] = t.src[base+int(v)*t.stride]
			}
		}
	})
}

func (moves[T]) maskedScatter(c *ops.Call) error {
	ops.Gather(c.Pool, c.Out[0].Data, c.In[0])
	mask, source := ops.Elements[uint8](c.In[1]), ops.Elements[T](c.In[2])
	from, dst := c.In[2], ops.Elements[T](c.Out[0])
	n, used, direct := from.Size(), 0, from.Contiguous()
	var err error
	ops.Lines(c.In[1].Layout, func(at, first, stride, count int) {
		for i := range count {
			if mask[first+i*stride] == 0 {
				continue
			}
			if used >= n {
				err = fmt.Errorf("the mask takes more than the %d elements of the source", n)
				return
			}
			place := from.Layout.Offset + used
			if !direct {
				place = from.Layout.OffsetOf(used)
			}
			dst[at+i] = source[place]
			used++
		}
	})
	return err
}

// runCat: out is the operands one behind the other along a dimension: torch.cat.
func runCat(c *ops.Call) error {
	out, d := c.Out[0], c.Attrs.Int("dim")
	to := tensor.Layout{Strides: out.Layout.Strides, Offset: out.Layout.Offset}
	for _, v := range c.In {
		ops.CopyView(c.Pool, out.Data, to, v)
		to.Offset += v.Shape()[d] * out.Layout.Strides[d]
	}
	return nil
}

func (moves[T]) roll(c *ops.Call) error {
	x := c.In[0]
	if x.Size() == 0 {
		return nil
	}
	rank := len(x.Shape())
	if rank == 0 {
		ops.Gather(c.Pool, c.Out[0].Data, x)
		return nil
	}
	t := rolling[T]{layout: x.Layout, src: ops.Elements[T](x), dst: ops.Elements[T](c.Out[0])}
	if rank > ops.MostDims {
		t.many = make([]int, rank)
	}
	shift, shifts := t.shifts(), c.Attrs.Ints("shifts")
	for i, d := range c.Attrs.Ints("dims") {
		n := x.Shape()[d]
		shift[d] = ((shift[d]+shifts[i])%n + n) % n
	}
	n := x.Shape()[rank-1]
	tasks.Do(c.Pool, x.Size()/n, max(1, ops.Grain/n), t)
	return nil
}

// rolling is the task of a roll: a part is some rows. room has by how much each dimension is shifted, many where there are
// more than mostDims.
type rolling[T any] struct {
	layout   tensor.Layout
	src, dst []T
	room     [ops.MostDims]int
	many     []int
}

func (t *rolling[T]) shifts() []int {
	if t.many != nil {
		return t.many
	}
	return t.room[:len(t.layout.Shape)]
}

// Run implements Task.
func (t *rolling[T]) Run(from, to int) {
	shape, strides, shift, last := t.layout.Shape, t.layout.Strides, t.shifts(), len(t.layout.Shape)-1
	n, stride, turn := shape[last], strides[last], shift[last]
	for row := from; row < to; row++ {
		first, rest := t.layout.Offset, row
		for d := last - 1; d >= 0; d-- {
			size := shape[d]
			first += (rest%size - shift[d] + size) % size * strides[d]
			rest /= size
		}
		out := t.dst[row*n : (row+1)*n]
		CopyStrided(out[turn:], t.src, first, stride)
		CopyStrided(out[:turn], t.src, first+(n-turn)*stride, stride)
	}
}

// CopyStrided fills dst from elements of src stride apart.
func CopyStrided[T any](dst, src []T, first, stride int) {
	if stride == 1 {
		copy(dst, src[first:first+len(dst)])
		return
	}
	for i := range dst {
		dst[i] = src[first+i*stride]
	}
}

func runEmbeddingBag(c *ops.Call) error {
	weight, index := c.In[0], c.In[1]
	width, bags := weight.Shape()[1], c.Out[0].Shape()[0]
	padding, mode := c.Attrs.Int("padding"), c.Attrs.Int("mode")
	if err := checkIndices(index, weight.Shape(), 0); err != nil {
		return err
	}
	last := int64(0)
	if err := visitIndices(c.In[2], func(at int, i int64) error {
		if at == 0 && i != 0 || i < last || i > int64(index.Size()) {
			return fmt.Errorf("offsets[%d] is %d after %d, of %d indices", at, i, last, index.Size())
		}
		last = i
		return nil
	}); err != nil {
		return err
	}
	tasks.Do(c.Pool, bags, max(1, ops.Grain/max(width, 1)/8), bagging{
		weight: weight, index: index, offsets: c.In[2], scale: c.Operand(3), out: c.Out[0], padding: padding, mode: mode,
	})
	return nil
}

// bagging is the task of runEmbeddingBag: a part is some bags.
type bagging struct {
	weight, index, offsets, scale, out ops.View
	padding, mode                      int
}

// Run implements Task.
func (t *bagging) Run(from, to int) {
	weight, index, scale := t.weight, t.index, t.scale
	width, step := weight.Shape()[1], weight.Layout.Strides[1]
	var acc, row [ops.Chunk]float64
	for bag := from; bag < to; bag++ {
		begin, end := ops.IntegerAt(t.offsets, bag), int64(index.Size())
		if bag+1 < t.offsets.Shape()[0] {
			end = ops.IntegerAt(t.offsets, bag+1)
		}
		for k := 0; k < width; k += ops.Chunk {
			size := min(ops.Chunk, width-k)
			count := 0
			clear(acc[:])
			for i := begin; i < end; i++ {
				at := int(ops.IntegerAt(index, int(i)))
				if at == t.padding {
					continue
				}
				ops.LoadReal(row[:size], weight, weight.Layout.Offset+at*weight.Layout.Strides[0]+k*step, step)
				factor := [1]float64{1}
				if !scale.Absent() {
					ops.LoadReal(factor[:], scale, scale.Layout.Offset+int(i)*scale.Layout.Strides[0], 1)
				}
				addToBag(acc[:size], row[:size], factor[0], t.mode == 2 && count > 0, t.mode == 2)
				count++
			}
			if t.mode == 1 && count > 0 {
				for i := range acc[:size] {
					acc[i] /= float64(count)
				}
			}
			ops.StoreReal(t.out, bag*width+k, acc[:size])
		}
	}
}

// addToBag adds factor × row to acc, or replaces acc by the larger ones, or by row.
func addToBag(acc, row []float64, factor float64, larger, replace bool) {
	for i, v := range row {
		switch {
		case larger:
			if v > acc[i] || math.IsNaN(v) {
				acc[i] = v
			}
		case replace:
			acc[i] = v
		default:
			acc[i] += factor * v
		}
	}
}
