package images

import (
	"math"

	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// runGridSample: out[n,c,p] = in[n,c] at the point grid[n,p], whose coordinates from -1 to 1 span the image. PyTorch's
// grid_sampler, grid_sampler_2d and grid_sampler_3d. Coordinates of halves in two dimensions are rounded to halves at each step,
// as PyTorch does it on CPUs: which element is near depends on it.
func runGridSample(c *ops.Call) error {
	if c.In[0].DType == tensor.Float64 {
		gridSample[float64](c)
	} else {
		gridSample[float32](c)
	}
	return nil
}

// A sampler turns points into elements and weights.
type sampler[T ops.Real] struct {
	rank          int
	size, strides [3]int
	mode, padding string
	align         bool
	dtype         tensor.DType
	// offset, weight and there are the taps of the point at hand: where an element lies, and whether there is one.
	offset [16]int
	weight [16]T
	there  [16]bool
	taps   int
}

func gridSample[T ops.Real](c *ops.Call) {
	x, grid, out := c.In[0], c.In[1], c.Out[0]
	channels := x.Shape()[1]
	points := ops.Volume(out.Shape()[2:])
	if points == 0 {
		return
	}
	rank := len(x.Shape()) - 2
	tasks.Do(c.Pool, x.Shape()[0]*points, max(1, ops.Grain/16/max(channels, 1)), gridPoints[T]{
		x: x, grid: grid, out: out, points: points, sampler: sampler[T]{
			rank: rank, size: ops.Threes(x.Shape()[2:], 1), strides: ops.Threes(x.Layout.Strides[2:], 0),
			mode: c.Attrs.String("mode"), padding: c.Attrs.String("padding_mode"), align: c.Attrs.Bool("align_corners"),
			dtype: x.DType,
		},
	})
}

// gridPoints is the task of gridSample: a part is some points.
type gridPoints[T ops.Real] struct {
	x, grid, out ops.View
	points       int
	sampler      sampler[T]
}

// Run implements Task.
func (t *gridPoints[T]) Run(from, to int) {
	x, s, channels := t.x, t.sampler, t.x.Shape()[1]
	half := ops.IsHalf(x.DType)
	var src []T
	if !half {
		src = ops.Elements[T](x)
	}
	lines, step := t.grid.Layout.Leading(1), ops.LastStride(t.grid.Layout)
	for i := from; i < to; i++ {
		var point [3]T // x, y, z
		ops.LoadReal(point[:s.rank], t.grid, lines.OffsetOf(i), step)
		s.locate([3]T{point[2], point[1], point[0]})
		image, p := i/t.points, i%t.points
		for ch := range channels {
			at := x.Layout.Offset + image*x.Layout.Strides[0] + ch*x.Layout.Strides[1]
			var sum T
			for tap := range s.taps {
				var v [1]T
				if s.there[tap] {
					if half {
						ops.LoadReal(v[:], x, at+s.offset[tap], 1)
					} else {
						v[0] = src[at+s.offset[tap]]
					}
				}
				sum += s.weight[tap] * v[0]
			}
			putNumber(t.out, (image*channels+ch)*t.points+p, sum)
		}
	}
}

// locate sets the taps for a point, given as z, y, x.
func (s *sampler[T]) locate(point [3]T) {
	var at [3]T
	for d := 3 - s.rank; d < 3; d++ {
		at[d] = s.unnormalize(point[d], d)
		if s.mode != "cubic" {
			at[d] = s.fold(at[d], d)
		}
	}
	s.taps = 0
	switch s.mode {
	case "nearest":
		for d := range at {
			at[d] = T(math.RoundToEven(float64(at[d])))
		}
		s.tap(at, 1)
	case "linear":
		first, part := at, at
		for d := range at {
			first[d] = floor(at[d])
			part[d] = at[d] - first[d]
		}
		for corner := range 1 << s.rank {
			place, weight := first, T(1)
			for d := 3 - s.rank; d < 3; d++ {
				if corner>>(2-d)&1 == 1 {
					place[d]++
					weight = s.round(weight * part[d])
				} else {
					weight = s.round(weight * s.round(first[d]+1-at[d]))
				}
			}
			s.tap(place, weight)
		}
	case "cubic":
		var wy, wx [4]T
		y, x := floor(at[1]), floor(at[2])
		cubicWeights(&wy, at[1]-y)
		cubicWeights(&wx, at[2]-x)
		for j := range wy {
			for i := range wx {
				s.tap([3]T{0, s.fold(y+T(j)-1, 1), s.fold(x+T(i)-1, 2)}, T(wy[j]*wx[i]))
			}
		}
	}
}

// unnormalize turns a coordinate from -1 to 1 into one in elements.
func (s *sampler[T]) unnormalize(x T, d int) T {
	if s.align {
		return s.round(s.round(x+1) * s.round(T(s.size[d]-1)/2))
	}
	return s.round(s.round(T(s.round(x+1)*s.round(T(s.size[d])/2))) - 0.5)
}

// round returns a coordinate as precise as PyTorch has it.
func (s *sampler[T]) round(x T) T {
	if s.rank == 2 && ops.IsHalf(s.dtype) {
		return ops.Rounded(s.dtype, x)
	}
	return x
}

// fold brings a coordinate into the image as the padding mode has it. Of zeros it is left where it is.
func (s *sampler[T]) fold(x T, d int) T {
	last := s.round(T(s.size[d] - 1))
	switch s.padding {
	case "zeros":
		return x
	case "reflection":
		if s.align {
			x = s.reflect(x, s.round(2*T(s.size[d]-1)))
		} else {
			x = s.round(s.reflect(s.round(x+0.5), s.round(2*T(s.size[d]))) - 0.5)
		}
	}
	if !(x > 0) { // NaN too
		return 0
	}
	return min(x, last)
}

// reflect folds a coordinate into [0, period/2] by mirrors at both ends.
func (s *sampler[T]) reflect(x, period T) T {
	x = T(math.Abs(float64(x)))
	x = s.round(x - s.round(T(T(math.Trunc(float64(s.round(x/period))))*period)))
	return min(x, s.round(period-x))
}

// tap adds the element at whole coordinates, or a zero where there is none.
func (s *sampler[T]) tap(at [3]T, weight T) {
	offset, there := 0, true
	for d, x := range at {
		if !(x > -1 && x < T(s.size[d])) { // NaN too
			there = false
			break
		}
		offset += int(x) * s.strides[d]
	}
	s.offset[s.taps], s.weight[s.taps], s.there[s.taps] = offset, weight, there
	s.taps++
}

// runIm2col: out[n, (c, tap), p] = in[n, c, p·stride − padding + tap·dilation], zero outside. PyTorch's im2col, which
// unfold calls.
func runIm2col(c *ops.Call) error {
	switch c.In[0].DType.Size() {
	case 1:
		im2col[uint8](c)
	case 2:
		im2col[uint16](c)
	case 4:
		im2col[uint32](c)
	case 8:
		im2col[uint64](c)
	case 16:
		im2col[[2]uint64](c)
	}
	return nil
}

// An imageWindow is the geometry of im2col and col2im over images of height × width.
type imageWindow struct {
	kernel, stride, padding, dilation, size, count [2]int
}

func imageWindowOf(c *ops.Call, size []int) imageWindow {
	two := func(name string) [2]int { return [2]int(c.Attrs.Ints(name)) }
	w := imageWindow{
		kernel: two("kernel"), stride: two("stride"), padding: two("padding"), dilation: two("dilation"),
		size: [2]int(size),
	}
	for d := range w.count {
		w.count[d] = (w.size[d]+2*w.padding[d]-w.dilation[d]*(w.kernel[d]-1)-1)/w.stride[d] + 1
	}
	return w
}

// taps returns how many elements a window has.
func (w *imageWindow) taps() int { return w.kernel[0] * w.kernel[1] }

// reader returns which window reads element q by tap k along dimension d.
func (w *imageWindow) reader(d, q, k int) (int, bool) {
	p := q + w.padding[d] - k*w.dilation[d]
	return p / w.stride[d], p >= 0 && p%w.stride[d] == 0 && p/w.stride[d] < w.count[d]
}

func im2col[E any](c *ops.Call) {
	x := c.In[0]
	w := imageWindowOf(c, x.Shape()[2:])
	tasks.Do(c.Pool, x.Shape()[0]*x.Shape()[1]*w.taps(), max(1, ops.Grain/(w.count[0]*w.count[1])), windowsOut[E]{
		imageWindow: w, x: x, dst: ops.Elements[E](c.Out[0]),
	})
}

// windowsOut is the task of im2col: a part is one tap's elements of all windows, for some taps of some channels.
type windowsOut[E any] struct {
	imageWindow
	x   ops.View
	dst []E
}

// Run implements Task.
func (w *windowsOut[E]) Run(from, to int) {
	src, l, taps, columns := ops.Elements[E](w.x), w.x.Layout, w.taps(), w.count[0]*w.count[1]
	rows := l.Shape[1] * taps
	for i := from; i < to; i++ {
		row := i % rows
		plane := l.Offset + i/rows*l.Strides[0] + row/taps*l.Strides[1]
		ky, kx := row%taps/w.kernel[1], row%w.kernel[1]
		first := kx*w.dilation[1] - w.padding[1]
		lo, hi := ops.Inside(first, w.stride[1], w.count[1], w.size[1])
		for oy := range w.count[0] {
			line := w.dst[i*columns+oy*w.count[1]:][:w.count[1]]
			clear(line)
			y := oy*w.stride[0] - w.padding[0] + ky*w.dilation[0]
			if uint(y) >= uint(w.size[0]) {
				continue
			}
			for ox := lo; ox < hi; ox++ {
				line[ox] = src[plane+y*l.Strides[2]+(first+ox*w.stride[1])*l.Strides[3]]
			}
		}
	}
}

// runCol2im: out[n,c,q] = Σ in[n, (c, tap), p] over the taps and windows with p·stride − padding + tap·dilation = q.
// PyTorch's col2im, which fold calls.
func runCol2im(c *ops.Call) error {
	if c.In[0].DType == tensor.Float64 {
		col2im[float64](c)
	} else {
		col2im[float32](c)
	}
	return nil
}

func col2im[T ops.Real](c *ops.Call) {
	shape := c.Out[0].Shape()
	tasks.Do(c.Pool, shape[0]*shape[1]*shape[2], max(1, ops.Grain/8/shape[3]), windowsIn[T]{
		imageWindow: imageWindowOf(c, shape[2:]), x: c.In[0], out: c.Out[0],
	})
}

// windowsIn is the task of col2im: a part is some rows of the result.
type windowsIn[T ops.Real] struct {
	imageWindow
	x, out ops.View
}

// Run implements Task.
func (w *windowsIn[T]) Run(from, to int) {
	l, shape := w.x.Layout, w.out.Shape()
	rows := shape[1] * shape[2]
	for i := from; i < to; i++ {
		channel, y := i%rows/shape[2], i%shape[2]
		plane := l.Offset + i/rows*l.Strides[0] + channel*w.taps()*l.Strides[1]
		for q := range shape[3] {
			var sum T
			for ky := range w.kernel[0] {
				oy, ok := w.reader(0, y, ky)
				if !ok {
					continue
				}
				for kx := range w.kernel[1] {
					if ox, ok := w.reader(1, q, kx); ok {
						var v [1]T
						at := plane + (ky*w.kernel[1]+kx)*l.Strides[1] + (oy*w.count[1]+ox)*l.Strides[2]
						ops.LoadReal(v[:], w.x, at, 1)
						sum += v[0]
					}
				}
			}
			putNumber(w.out, i*shape[3]+q, sum)
		}
	}
}
