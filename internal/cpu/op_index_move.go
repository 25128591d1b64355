package cpu

import (
	"fmt"
	"math"

	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// A mover moves elements without looking at them.
type mover interface {
	index(c *call, x indexing)
	gather(c *call, d int)
	maskedScatter(c *call) error
	roll(c *call) error
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

func (moves[T]) index(c *call, x indexing) {
	size := x.inner.size
	if size == 0 {
		return
	}
	tasks.Do(c.pool, volume(x.outer.Shape)*len(x.at), max(1, grain/size), indexMove[T]{
		indexing: x, src: elements[T](c.in[0]), dst: elements[T](c.out[0]),
	})
}

// An indexMove is the task of an indexing that reads: a part is some blocks.
type indexMove[T any] struct {
	indexing
	src, dst []T
}

// Run implements Task.
func (m *indexMove[T]) Run(from, to int) {
	src, size, inner := m.src, m.inner.size, &m.inner
	if inner.rank == 0 && inner.stride == 1 {
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
	var room [mostDims]int
	index := intsIn(room[:], inner.rank)
	for i := from; i < to; i++ {
		out := m.dst[i*size : (i+1)*size]
		inner.lines(m.outer.OffsetOf(i/len(m.at))+m.at[i%len(m.at)], index, func(first int) {
			if inner.stride == 1 {
				copy(out, src[first:first+inner.n])
			} else {
				for k := range inner.n {
					out[k] = src[first+k*inner.stride]
				}
			}
			out = out[inner.n:]
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

func (moves[T]) gather(c *call, d int) {
	x, index := c.in[0], c.in[1]
	a := alongDim(index.layout, d)
	doLines(c.pool, &a, gathering[T]{
		along: a, from: startsOf(x.layout, index.shape(), d), stride: strideOf(x.layout, d), index: index,
		src: elements[T](x), dst: elements[T](c.out[0]),
	})
}

// gathering is the task of a gather: a part is some lines of the index. from is where lines of the source begin.
type gathering[T any] struct {
	along
	from     starts
	stride   int
	index    view
	src, dst []T
}

// Run implements Task.
func (t *gathering[T]) Run(from, to int) {
	starts := t.from.layout()
	t.each(from, to, func(line, first int) {
		var buf [chunk]int64
		base, to := starts.OffsetOf(line), t.first(line, t.n)
		for k := 0; k < t.n; k += chunk {
			part := buf[:min(chunk, t.n-k)]
			loadInts(part, t.index, first+k*t.along.stride, t.along.stride)
			for i, v := range part {
				t.dst[to+(k+i)*t.inner] = t.src[base+int(v)*t.stride]
			}
		}
	})
}

func (moves[T]) maskedScatter(c *call) error {
	gather(c.pool, c.out[0].data, c.in[0])
	mask, source := elements[uint8](c.in[1]), elements[T](c.in[2])
	from, dst := c.in[2], elements[T](c.out[0])
	n, used, direct := from.size(), 0, from.contiguous()
	var err error
	lines(c.in[1].layout, func(at, first, stride, count int) {
		for i := range count {
			if mask[first+i*stride] == 0 {
				continue
			}
			if used >= n {
				err = fmt.Errorf("the mask takes more than the %d elements of the source", n)
				return
			}
			place := from.layout.Offset + used
			if !direct {
				place = from.layout.OffsetOf(used)
			}
			dst[at+i] = source[place]
			used++
		}
	})
	return err
}

// runCat: out is the operands one behind the other along a dimension: torch.cat.
func runCat(c *call) error {
	out, d := c.out[0], c.attrs.Int("dim")
	to := tensor.Layout{Strides: out.layout.Strides, Offset: out.layout.Offset}
	for _, v := range c.in {
		copyView(c.pool, out.data, to, v)
		to.Offset += v.shape()[d] * out.layout.Strides[d]
	}
	return nil
}

func (moves[T]) roll(c *call) error {
	x := c.in[0]
	if x.size() == 0 {
		return nil
	}
	rank := len(x.shape())
	if rank == 0 {
		gather(c.pool, c.out[0].data, x)
		return nil
	}
	t := rolling[T]{layout: x.layout, src: elements[T](x), dst: elements[T](c.out[0])}
	if rank > mostDims {
		t.many = make([]int, rank)
	}
	shift, shifts := t.shifts(), c.attrs.Ints("shifts")
	for i, d := range c.attrs.Ints("dims") {
		n := x.shape()[d]
		shift[d] = ((shift[d]+shifts[i])%n + n) % n
	}
	n := x.shape()[rank-1]
	tasks.Do(c.pool, x.size()/n, max(1, grain/n), t)
	return nil
}

// rolling is the task of a roll: a part is some rows. room has by how much each dimension is shifted, many where there are
// more than mostDims.
type rolling[T any] struct {
	layout   tensor.Layout
	src, dst []T
	room     [mostDims]int
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
		copyStrided(out[turn:], t.src, first, stride)
		copyStrided(out[:turn], t.src, first+(n-turn)*stride, stride)
	}
}

// copyStrided fills dst from elements of src stride apart.
func copyStrided[T any](dst, src []T, first, stride int) {
	if stride == 1 {
		copy(dst, src[first:first+len(dst)])
		return
	}
	for i := range dst {
		dst[i] = src[first+i*stride]
	}
}

func runEmbeddingBag(c *call) error {
	weight, index := c.in[0], c.in[1]
	width, bags := weight.shape()[1], c.out[0].shape()[0]
	padding, mode := c.attrs.Int("padding"), c.attrs.Int("mode")
	if err := checkIndices(index, weight.shape(), 0); err != nil {
		return err
	}
	last := int64(0)
	if err := visitIndices(c.in[2], func(at int, i int64) error {
		if at == 0 && i != 0 || i < last || i > int64(index.size()) {
			return fmt.Errorf("offsets[%d] is %d after %d, of %d indices", at, i, last, index.size())
		}
		last = i
		return nil
	}); err != nil {
		return err
	}
	tasks.Do(c.pool, bags, max(1, grain/max(width, 1)/8), bagging{
		weight: weight, index: index, offsets: c.in[2], scale: c.operand(3), out: c.out[0], padding: padding, mode: mode,
	})
	return nil
}

// bagging is the task of runEmbeddingBag: a part is some bags.
type bagging struct {
	weight, index, offsets, scale, out view
	padding, mode                      int
}

// Run implements Task.
func (t *bagging) Run(from, to int) {
	weight, index, scale := t.weight, t.index, t.scale
	width, step := weight.shape()[1], weight.layout.Strides[1]
	var acc, row [chunk]float64
	for bag := from; bag < to; bag++ {
		begin, end := integerAt(t.offsets, bag), int64(index.size())
		if bag+1 < t.offsets.shape()[0] {
			end = integerAt(t.offsets, bag+1)
		}
		for k := 0; k < width; k += chunk {
			size := min(chunk, width-k)
			count := 0
			clear(acc[:])
			for i := begin; i < end; i++ {
				at := int(integerAt(index, int(i)))
				if at == t.padding {
					continue
				}
				loadReal(row[:size], weight, weight.layout.Offset+at*weight.layout.Strides[0]+k*step, step)
				factor := [1]float64{1}
				if !scale.absent() {
					loadReal(factor[:], scale, scale.layout.Offset+int(i)*scale.layout.Strides[0], 1)
				}
				addToBag(acc[:size], row[:size], factor[0], t.mode == 2 && count > 0, t.mode == 2)
				count++
			}
			if t.mode == 1 && count > 0 {
				for i := range acc[:size] {
					acc[i] /= float64(count)
				}
			}
			storeReal(t.out, bag*width+k, acc[:size])
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
