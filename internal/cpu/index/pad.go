package index

import (
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// padKernels make tensors larger or cut them, for every dtype.
var padKernels = map[graph.Kind]ops.Kernel{
	"pad": {Run: runPad},
}

// runPad: out[i] = in[i − before], and outside of the input the value of in[1], or the element that the mode leads to.
// PyTorch's constant_pad_nd, reflection_pad1d to 3d, replication_pad1d to 3d and pad.
func runPad(c *ops.Call) error {
	switch c.In[0].DType.Size() {
	case 1:
		pad[uint8](c)
	case 2:
		pad[uint16](c)
	case 4:
		pad[uint32](c)
	case 8:
		pad[uint64](c)
	case 16:
		pad[[2]uint64](c)
	}
	return nil
}

func pad[T any](c *ops.Call) {
	x, shape := c.In[0], c.Out[0].Shape()
	rank := len(shape)
	src, dst := ops.Elements[T](x), ops.Elements[T](c.Out[0])
	if rank == 0 {
		dst[0] = src[x.Layout.Offset]
		return
	}
	var value T
	if !c.In[1].Absent() {
		value = ops.Elements[T](c.In[1])[c.In[1].Layout.Offset]
	}
	width := shape[rank-1]
	if width == 0 {
		return
	}
	tasks.Do(c.Pool, ops.Volume(shape[:rank-1]), max(1, ops.Grain/width), padding[T]{
		layout: x.Layout, shape: shape, src: src, dst: dst, value: value,
		mode: c.Attrs.String("mode"), before: c.Attrs.Ints("before"),
	})
}

// padding is the task of a pad: a part is some rows.
type padding[T any] struct {
	layout   tensor.Layout
	shape    []int
	src, dst []T
	value    T
	mode     string
	before   []int
}

// Run implements Task.
func (p *padding[T]) Run(from, to int) {
	src, mode, value, d := p.src, p.mode, p.value, len(p.shape)-1
	width, inner, last, left := p.shape[d], p.layout.Shape[d], p.layout.Strides[d], p.before[d]
	for r := from; r < to; r++ {
		row := p.dst[r*width:][:width]
		at, ok := padRow(p.layout, p.shape, p.before, mode, r)
		// The part [lo, hi) of the row is the input's.
		lo, hi := min(max(left, 0), width), max(min(left+inner, width), 0)
		if !ok || lo >= hi {
			lo, hi = width, width
		}
		for j := range lo {
			row[j] = value
			if k, inside := padIndex(mode, j-left, inner); ok && inside {
				row[j] = src[at+k*last]
			}
		}
		first := at + (lo-left)*last
		if last == 1 && lo < hi {
			copy(row[lo:hi], src[first:])
		} else {
			for j := range row[lo:hi] {
				row[lo+j] = src[first+j*last]
			}
		}
		for j := hi; j < width; j++ {
			row[j] = value
			if k, inside := padIndex(mode, j-left, inner); ok && inside {
				row[j] = src[at+k*last]
			}
		}
	}
}

// padRow returns where the input's row lies that row r of the result is made of; ok is false for a row of padding
// alone.
func padRow(l tensor.Layout, shape, before []int, mode string, r int) (at int, ok bool) {
	at = l.Offset
	for d := len(shape) - 2; d >= 0; d-- {
		k, inside := padIndex(mode, r%shape[d]-before[d], l.Shape[d])
		if !inside {
			return 0, false
		}
		at += k * l.Strides[d]
		r /= shape[d]
	}
	return at, true
}

// padIndex returns which of n elements stands at index i, which may lie outside; ok is false where none does.
func padIndex(mode string, i, n int) (k int, ok bool) {
	if i >= 0 && i < n {
		return i, true
	}
	switch mode {
	case "reflect":
		if i < 0 {
			return -i, true
		}
		return 2*(n-1) - i, true
	case "replicate":
		return min(max(i, 0), n-1), n > 0
	case "circular":
		if i < 0 {
			return i + n, true
		}
		return i - n, true
	}
	return 0, false
}
