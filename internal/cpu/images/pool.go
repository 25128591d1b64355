package images

import (
	"fmt"
	"math"

	"github.com/optimem/optimem/graph"
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// poolKernels reduce windows. Half floats are computed in float32.
var poolKernels = map[graph.Kind]ops.Kernel{
	"max_pool":          {Run: runMaxPool, Supports: ops.OnlyNumbers},
	"adaptive_max_pool": {Run: runMaxPool, Supports: ops.OnlyNumbers},
	"avg_pool":          {Run: runAvgPool, Supports: realOrInt64},
	"adaptive_avg_pool": {Run: runAvgPool, Supports: ops.OnlyReal},
	"max_unpool":        {Run: runMaxUnpool},
}

func realOrInt64(in, _ []graph.Spec, _ graph.Attrs) error {
	if d := in[0].DType; !ops.IsReal(d) && d != tensor.Int64 {
		return fmt.Errorf("it takes floats and int64, not %v", d)
	}
	return nil
}

// A pooling is the geometry of a pool, over three dimensions of which the first may have size one.
type pooling struct {
	x, out                            ops.View
	in, size, strides                 [3]int
	kernel, stride, padding, dilation [3]int
	adaptive                          bool
}

func poolingOf(c *ops.Call) pooling {
	x, out := c.In[0], c.Out[0]
	return pooling{
		x: x, out: out, in: ops.Threes(x.Shape()[2:], 1), size: ops.Threes(out.Shape()[2:], 1),
		strides: ops.Threes(x.Layout.Strides[2:], 0),
		kernel:  ops.Threes(c.Attrs.Ints("kernel"), 1), stride: ops.Threes(c.Attrs.Ints("stride"), 1),
		padding: ops.Threes(c.Attrs.Ints("padding"), 0), dilation: ops.Threes(c.Attrs.Ints("dilation"), 1),
		adaptive: c.Attrs.Ints("kernel") == nil,
	}
}

// window returns the elements from, from+dilation, … below to that output o reads along dimension d.
func (p *pooling) window(d, o int) (from, to int) {
	if p.adaptive {
		n := p.in[d]
		return o * n / p.size[d], ((o+1)*n + p.size[d] - 1) / p.size[d]
	}
	from = o*p.stride[d] - p.padding[d]
	to = min(from+(p.kernel[d]-1)*p.dilation[d]+1, p.in[d])
	if from < 0 {
		from += (-from + p.dilation[d] - 1) / p.dilation[d] * p.dilation[d]
	}
	return from, to
}

// grain is how many channels of images a part has, planes how many there are, 0 where they have no elements.
func (p *pooling) grain() int {
	return max(1, ops.Grain/max(ops.Volume(p.size[:]), ops.Volume(p.in[:]), 1))
}

func (p *pooling) planes() int {
	if ops.Volume(p.size[:]) == 0 {
		return 0
	}
	return p.out.Shape()[0] * p.out.Shape()[1]
}

// plane returns where a channel of an image begins in both memories.
func (p *pooling) plane(i int) (in, out int) {
	l, channels := p.x.Layout, p.out.Shape()[1]
	return l.Offset + i/channels*l.Strides[0] + i%channels*l.Strides[1], i * ops.Volume(p.size[:])
}

// segmentLength is the most elements of a window's row that are looked at together.
const segmentLength = 64

// segment returns n elements of a view that lie step apart: the memory itself where it can, else a copy in buffer.
func segment[T number](v ops.View, src []T, buffer *[segmentLength]T, at, step, n int) []T {
	if ops.IsHalf(v.DType) {
		ops.LoadReal(any(buffer).(*[segmentLength]float32)[:n], v, at, step)
		return buffer[:n]
	}
	if step == 1 || n == 1 {
		return src[at : at+n]
	}
	for i := range n {
		buffer[i] = src[at+i*step]
	}
	return buffer[:n]
}

// A number is a type that pools compare and count in.
type number interface {
	int8 | uint8 | int16 | int32 | int64 | float32 | float64
}

// runMaxPool: out[p] = max over the elements of the window at p, NaN where one of them is; and, with indices, where in
// its channel that is: the first of equals, the last NaN. PyTorch's max_pool1d to 3d and adaptive_max_pool1d to 3d.
func runMaxPool(c *ops.Call) error {
	switch c.In[0].DType {
	case tensor.Int8:
		maxPool[int8](c, math.MinInt8)
	case tensor.UInt8:
		maxPool[uint8](c, 0)
	case tensor.Int16:
		maxPool[int16](c, math.MinInt16)
	case tensor.Int32:
		maxPool[int32](c, math.MinInt32)
	case tensor.Int64:
		maxPool[int64](c, math.MinInt64)
	case tensor.Float64:
		maxPool(c, math.Inf(-1))
	default:
		maxPool(c, float32(math.Inf(-1)))
	}
	return nil
}

func maxPool[T number](c *ops.Call, least T) {
	p := poolingOf(c)
	if maxPoolRows(c, &p) {
		return
	}
	t := maxPlanes[T]{pooling: p, least: least}
	if !ops.IsHalf(p.x.DType) {
		t.src = ops.Elements[T](p.x)
	}
	if len(c.Out) == 2 {
		t.indices = ops.Elements[int64](c.Out[1])
	}
	tasks.Do(c.Pool, p.planes(), p.grain(), t)
}

// maxPlanes is the task of maxPool: a part is channels of images. indices is nil where they are not wanted.
type maxPlanes[T number] struct {
	pooling
	least   T
	src     []T
	indices []int64
}

// Run implements Task.
func (t *maxPlanes[T]) Run(from, to int) {
	p, src, indices := &t.pooling, t.src, t.indices
	for i := from; i < to; i++ {
		in, out := p.plane(i)
		var buffer [segmentLength]T
		for oz := range p.size[0] {
			z0, z1 := p.window(0, oz)
			for oy := range p.size[1] {
				y0, y1 := p.window(1, oy)
				for ox := range p.size[2] {
					x0, x1 := p.window(2, ox)
					most, where := t.least, (z0*p.in[1]+y0)*p.in[2]+x0
					for z := z0; z < z1; z += p.dilation[0] {
						for y := y0; y < y1; y += p.dilation[1] {
							row := in + z*p.strides[0] + y*p.strides[1]
							for x := x0; x < x1; {
								n := min((x1-x+p.dilation[2]-1)/p.dilation[2], segmentLength)
								part := segment(p.x, src, &buffer, row+x*p.strides[2], p.dilation[2]*p.strides[2], n)
								for k, v := range part {
									if v > most || v != v {
										most, where = v, (z*p.in[1]+y)*p.in[2]+x+k*p.dilation[2]
									}
								}
								x += n * p.dilation[2]
							}
						}
					}
					putNumber(p.out, out, most)
					if indices != nil {
						indices[out] = int64(where)
					}
					out++
				}
			}
		}
	}
}

// maxPoolRows is maxPool of float32 with the processor's kernels, for pictures whose rows lie in order and without indices:
// the rows of a window are combined first, as wide as they are, then the columns. It reports whether it could.
func maxPoolRows(c *ops.Call, p *pooling) bool {
	set := c.Pool.Set
	if set == nil || p.x.DType != tensor.Float32 || len(c.Out) == 2 || p.adaptive || p.in[0] != 1 || p.size[0] != 1 ||
		p.strides[2] != 1 || p.dilation[2] != 1 || p.in[2] > ops.BufferFloats {
		return false
	}
	tasks.Do(c.Pool, p.planes(), p.grain(), maxRows{pooling: *p, set: set})
	return true
}

// maxRows is the task of maxPoolRows: a part is channels of images.
type maxRows struct {
	pooling
	set *simd.Set
}

// Run implements Task.
func (t *maxRows) Run(from, to int) {
	p, set := &t.pooling, t.set
	src, dst := ops.Elements[float32](p.x), ops.Elements[float32](p.out)
	for i := from; i < to; i++ {
		in, out := p.plane(i)
		buffer := ops.NewBlockBuffer()
		most := ops.FloatsIn(buffer)[:p.in[2]]
		for oy := range p.size[1] {
			y0, y1 := p.window(1, oy)
			for i := range most {
				most[i] = float32(math.Inf(-1))
			}
			for y := y0; y < y1; y += p.dilation[1] {
				row := src[in+y*p.strides[1]:][:len(most)]
				set.Map(simd.MapMaximum, most, most, row, nil, 0, 0, 0)
			}
			for ox := range p.size[2] {
				x0, x1 := p.window(2, ox)
				x := float32(math.Inf(-1))
				for _, v := range most[x0:max(x0, x1)] {
					x = max(x, v)
				}
				dst[out+oy*p.size[2]+ox] = x
			}
		}
		ops.BlockBuffers.Put(buffer)
	}
}

// putNumber writes one element, rounded where the result is a half float.
func putNumber[T number](v ops.View, at int, x T) {
	switch v.DType {
	case tensor.Float16:
		ops.Elements[uint16](v)[at] = tensor.Float16FromFloat32(float32(x))
	case tensor.BFloat16:
		ops.Elements[uint16](v)[at] = tensor.BFloat16FromFloat32(float32(x))
	default:
		ops.Elements[T](v)[at] = x
	}
}

// runAvgPool: out[p] = Σ of the window at p ÷ how many elements it has. count_include_pad counts the padding too, but
// not what a ceil_mode window has beyond it; divisor replaces the count. PyTorch's avg_pool1d to 3d and
// adaptive_avg_pool1d to 3d.
func runAvgPool(c *ops.Call) error {
	switch c.In[0].DType {
	case tensor.Int64:
		avgPool(c, func(sum, n int64) int64 { return sum / n })
	case tensor.Float64:
		avgPool(c, func(sum float64, n int64) float64 { return sum / float64(n) })
	default:
		avgPool(c, func(sum float64, n int64) float32 { return float32(sum / float64(n)) })
	}
	return nil
}

// avgPool sums in S, which is wide enough that the order does not matter much.
func avgPool[T number, S int64 | float64](c *ops.Call, divide func(sum S, n int64) T) {
	p := poolingOf(c)
	t := meanPlanes[T, S]{
		pooling: p, divide: divide,
		withPadding: c.Attrs.Bool("count_include_pad"), divisor: int64(c.Attrs.Int("divisor")),
	}
	if !ops.IsHalf(p.x.DType) {
		t.src = ops.Elements[T](p.x)
	}
	tasks.Do(c.Pool, p.planes(), p.grain(), t)
}

// extent is the length of a window with the padding before and after the input.
func (p *pooling) extent(d, o int) int {
	from := o*p.stride[d] - p.padding[d]
	return min(from+p.kernel[d], p.in[d]+p.padding[d]) - from
}

// meanPlanes is the task of avgPool: a part is channels of images.
type meanPlanes[T number, S int64 | float64] struct {
	pooling
	divide      func(sum S, n int64) T
	withPadding bool
	divisor     int64
	src         []T
}

// Run implements Task.
func (t *meanPlanes[T, S]) Run(from, to int) {
	p, src := &t.pooling, t.src
	for i := from; i < to; i++ {
		in, out := p.plane(i)
		var buffer [segmentLength]T
		for oz := range p.size[0] {
			z0, z1 := p.window(0, oz)
			for oy := range p.size[1] {
				y0, y1 := p.window(1, oy)
				for ox := range p.size[2] {
					x0, x1 := p.window(2, ox)
					var sum S
					for z := z0; z < z1; z++ {
						for y := y0; y < y1; y++ {
							row := in + z*p.strides[0] + y*p.strides[1]
							for x := x0; x < x1; {
								n := min(x1-x, segmentLength)
								for _, v := range segment(p.x, src, &buffer, row+x*p.strides[2], p.strides[2], n) {
									sum += S(v)
								}
								x += n
							}
						}
					}
					count := int64(max(z1-z0, 0)) * int64(max(y1-y0, 0)) * int64(max(x1-x0, 0))
					var mean T
					if count > 0 {
						switch {
						case t.divisor != 0:
							count = t.divisor
						case t.withPadding:
							count = int64(p.extent(0, oz)) * int64(p.extent(1, oy)) * int64(p.extent(2, ox))
						}
						mean = t.divide(sum, count)
					}
					putNumber(p.out, out, mean)
					out++
				}
			}
		}
	}
}

// runMaxUnpool: out is zero but for out[n, c, indices[n,c,i]] = in[n,c,i]; of equal indices the last counts. PyTorch's
// max_unpool2d and max_unpool3d.
func runMaxUnpool(c *ops.Call) error {
	clear(c.Out[0].Data)
	x, where := c.In[0], ops.Elements[int64](c.In[1])
	shape := c.Out[0].Shape()
	pixels := ops.Volume(shape[2:])
	per := ops.Volume(x.Shape()[2:])
	size := x.DType.Size()
	channels := shape[1]
	index := c.In[1].Layout
	for i := range shape[0] * channels {
		for k := range per {
			at := where[index.OffsetOf(i*per+k)]
			if at < 0 || at >= int64(pixels) {
				return fmt.Errorf("index %d is not within the %d elements of a channel of %v", at, pixels, shape)
			}
			from := x.Layout.OffsetOf(i*per+k) * size
			copy(c.Out[0].Data[(i*pixels+int(at))*size:][:size], x.Data[from:from+size])
		}
	}
	return nil
}
