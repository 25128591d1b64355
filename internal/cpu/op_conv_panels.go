package cpu

import (
	"slices"

	"github.com/optimem/optimem/internal/cpu/index"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// convWeight returns the weight of one group as the left factor of a product: a row for each output channel or, for a
// transposed convolution, for each output channel and tap.
func convWeight[T ops.Real](f *convFactors[T], g *convolution, w ops.View, group int) panelSource[T] {
	l := w.Layout
	kernel := tensor.Layout{Shape: l.Shape[1:], Strides: l.Strides[1:]}
	inOrder := kernel.IsContiguous()
	if g.transposed {
		offset := l.Offset + group*g.inputs*l.Strides[0]
		if inOrder {
			f.weight = matrix[T]{data: w.Data, dtype: w.DType, offset: offset, line: 1, step: l.Strides[0]}
			return &f.weight
		}
		f.weightGrid = grid[T]{
			v: w, offset: offset, channels: [1]int{g.inputs}, lineShape: kernel.Shape, lineStrides: kernel.Strides,
			depthStrides: l.Strides[:1],
		}
		f.weightGrid.depthShape = f.weightGrid.channels[:]
		return &f.weightGrid
	}
	offset := l.Offset + group*g.outputs*l.Strides[0]
	if inOrder {
		f.weight = matrix[T]{data: w.Data, dtype: w.DType, offset: offset, line: l.Strides[0], step: 1}
		return &f.weight
	}
	f.weightGrid = grid[T]{
		v: w, offset: offset, channels: [1]int{g.outputs}, lineStrides: l.Strides[:1],
		depthShape: kernel.Shape, depthStrides: kernel.Strides,
	}
	f.weightGrid.lineShape = f.weightGrid.channels[:]
	return &f.weightGrid
}

// convBias returns the bias of a group's outputs, nil where there is none. Strided or half biases are copied to work.
func convBias[T ops.Real](g *convolution, bias ops.View, group int, work *ops.Scratch) []T {
	if bias.Absent() {
		return nil
	}
	at, stride := bias.Layout.Offset+group*g.outputs*bias.Layout.Strides[0], bias.Layout.Strides[0]
	if stride == 1 && !ops.IsHalf(bias.DType) {
		return ops.Elements[T](bias)[at:][:g.outputs]
	}
	b := ops.TakeReal[T](work, g.outputs)
	ops.LoadReal(b, bias, at, stride)
	return b
}

// convPixels returns the pixels of an image from pixel from on as columns of a right factor whose depth is the
// channels.
func convPixels[T ops.Real](f *convFactors[T], g *convolution, x ops.View, first, from int) panelSource[T] {
	space := tensor.Layout{Shape: x.Layout.Shape[2:], Strides: x.Layout.Strides[2:]}
	var room [2][3]int
	if strides := space.JoinedIn(room[0][:], room[1][:]).Strides; len(strides) == 1 {
		f.pixels = matrix[T]{
			data: x.Data, dtype: x.DType, offset: first + from*strides[0], line: strides[0], step: x.Layout.Strides[1],
		}
		return &f.pixels
	}
	f.pixelGrid = grid[T]{
		v: x, offset: first, channels: [1]int{g.inputs}, lineShape: space.Shape, lineStrides: space.Strides, line0: from,
		depthStrides: x.Layout.Strides[1:2],
	}
	f.pixelGrid.depthShape = f.pixelGrid.channels[:]
	return &f.pixelGrid
}

// convWindows returns the windows of the output pixels from pixel from on as columns of a right factor whose depth is
// channels × taps. The windows of kernels of size one are the input itself.
func convWindows[T ops.Real](f *convFactors[T], g *convolution, x ops.View, first, from int) panelSource[T] {
	if g.taps() == 1 && g.stride == [3]int{1, 1, 1} && g.in == g.out && g.padding == [3]int{} {
		return convPixels(f, g, x, first, from)
	}
	f.windows = windows[T]{g: g, v: x, first: first, strides: ops.Threes(x.Layout.Strides[2:], 0), pixel0: from}
	return &f.windows
}

// A grid is a panelSource over a tensor of any strides: lines and depth are each a walk in row-major order over some of
// its dimensions.
type grid[T ops.Real] struct {
	v                        ops.View
	offset, line0            int
	lineShape, lineStrides   []int
	depthShape, depthStrides []int
	// channels is memory for the shape of one dimension.
	channels [1]int
}

// pack implements panelSource.
//
//lint:ignore U1000 called through the interface, which the checker does not see for generic types
func (s *grid[T]) pack(dst []T, width, from, to, k0, k1 int) {
	n := k1 - k0
	size := ops.RoundUp(n, unroll) * width
	line := tensor.Layout{Shape: s.lineShape, Strides: s.lineStrides}
	depth := tensor.Layout{Shape: s.depthShape, Strides: s.depthStrides}
	for l := from; l < to; l += width {
		group := dst[(l-from)/width*size:][:size]
		lines := min(width, to-l)
		clearTail(group, width, lines, n)
		for r := range lines {
			base := s.offset + line.OffsetOf(s.line0+l+r)
			ops.LinesOf(depth, k0, k1, func(at, first, stride, m int) {
				for i := range m {
					var v [1]T
					ops.LoadReal(v[:], s.v, base+first+i*stride, 1)
					group[(at-k0+i)*width+r] = v[0]
				}
			})
		}
	}
}

// windows is the panelSource of a convolution's windows, known as im2col: column p holds, for each channel and tap, the
// input element that the tap reads for output pixel p, or zero in the padding.
type windows[T ops.Real] struct {
	g       *convolution
	v       ops.View
	first   int
	strides [3]int
	pixel0  int
}

// A pixelRun is a part of a row of the result.
type pixelRun struct {
	// at is the first of the n pixels, counted from the start of the panel.
	at, n int
	// z, y and x are where in the input the first pixel's window begins.
	z, y, x int
}

// pack implements panelSource. Panels have at most 32 lines.
//
//lint:ignore U1000 called through the interface, which the checker does not see for generic types
func (s *windows[T]) pack(dst []T, width, from, to, k0, k1 int) {
	const most = 32
	if to-from > most {
		panic("BUG: panel of windows")
	}
	g := s.g
	var room [most]pixelRun
	runs := room[:0]
	for p := from; p < to; {
		at := s.pixel0 + p
		ox, oy, oz := at%g.out[2], at/g.out[2]%g.out[1], at/g.out[2]/g.out[1]
		n := min(g.out[2]-ox, to-p)
		runs = append(runs, pixelRun{
			at: p - from, n: n,
			z: oz*g.stride[0] - g.padding[0], y: oy*g.stride[1] - g.padding[1], x: ox*g.stride[2] - g.padding[2],
		})
		p += n
	}
	depth := ops.RoundUp(k1-k0, unroll)
	dst = dst[:ops.RoundUp(to-from, width)*depth]
	clear(dst)
	taps := g.taps()
	channel, t := k0/taps, k0%taps
	tap := [3]int{t / g.kernel[2] / g.kernel[1], t / g.kernel[2] % g.kernel[1], t % g.kernel[2]}
	var buffer [most]T
	half := ops.IsHalf(s.v.DType)
	var src []T
	if !half {
		src = ops.Elements[T](s.v)
	}
	for k := range k1 - k0 {
		base := s.first + channel*s.v.Layout.Strides[1]
		for i := range runs {
			r := &runs[i]
			z, y := r.z+tap[0]*g.dilation[0], r.y+tap[1]*g.dilation[1]
			if uint(z) >= uint(g.in[0]) || uint(y) >= uint(g.in[1]) {
				continue
			}
			x := r.x + tap[2]*g.dilation[2]
			lo, hi := 0, r.n
			if x < 0 || x+(r.n-1)*g.stride[2] >= g.in[2] {
				lo, hi = ops.Inside(x, g.stride[2], r.n, g.in[2])
			}
			if lo == hi {
				continue
			}
			at := base + z*s.strides[0] + y*s.strides[1] + (x+lo*g.stride[2])*s.strides[2]
			step := g.stride[2] * s.strides[2]
			if half {
				ops.LoadReal(buffer[:hi-lo], s.v, at, step)
				spread(dst, buffer[:], width, r.at+lo, r.at+hi, 0, 1, k, depth)
			} else {
				spread(dst, src, width, r.at+lo, r.at+hi, at, step, k, depth)
			}
		}
		for d := 2; d >= 0; d-- {
			if tap[d]++; tap[d] < g.kernel[d] {
				break
			}
			tap[d] = 0
			if d == 0 {
				channel++
			}
		}
	}
}

// spread writes src[at], src[at+step], … to the lines [from, to) of packed panels of the given width, at depth k.
func spread[T ops.Real](dst, src []T, width, from, to, at, step, k, depth int) {
	for l := from; l < to; {
		n := min(width-l%width, to-l)
		line := dst[(l/width*depth+k)*width+l%width:][:n]
		if step == 1 {
			copy(line, src[at:at+n])
		} else {
			for i := range line {
				line[i] = src[at+i*step]
			}
		}
		at += n * step
		l += n
	}
}

// convDepthwise computes convolutions whose outputs read one channel each, row by row. An output's sum runs over the
// taps in order.
func convDepthwise[T ops.Real](c *ops.Call, g *convolution, last epilogue, ends bool) {
	pixels, outputs := g.pixels(), g.groups*g.outputs
	tasks.Do(c.Pool, g.batch*outputs, max(1, ops.Grain/(pixels*g.taps())), depthwisePlanes[T]{
		g: g, x: c.In[0], w: c.In[1], bias: c.In[2], out: c.Out[0], last: last, ends: ends,
	})
}

// depthwisePlanes is the task of convDepthwise: a part is some planes of the result.
type depthwisePlanes[T ops.Real] struct {
	g               *convolution
	x, w, bias, out ops.View
	last            epilogue
	ends            bool
}

// Run implements Task.
func (t *depthwisePlanes[T]) Run(from, to int) {
	g, x, w, bias, out := t.g, t.x, t.w, t.bias, t.out
	xs, ws := ops.Threes(x.Layout.Strides[2:], 0), ops.Threes(w.Layout.Strides[2:], 0)
	src, weight, dst := ops.Elements[T](x), ops.Elements[T](w), ops.Elements[T](out)
	pixels, outputs := g.pixels(), g.groups*g.outputs
	taps := tasks.Take[[]T]()
	*taps = slices.Grow((*taps)[:0], g.kernel[2])[:g.kernel[2]]
	for item := from; item < to; item++ {
		image, o := item/outputs, item%outputs
		plane := x.Layout.Offset + image*x.Layout.Strides[0] + o/g.outputs*x.Layout.Strides[1]
		var b T
		if !bias.Absent() {
			b = ops.Elements[T](bias)[bias.Layout.Offset+o*bias.Layout.Strides[0]]
		}
		for oz := range g.out[0] {
			for oy := range g.out[1] {
				row := dst[out.Layout.Offset+item*pixels+(oz*g.out[1]+oy)*g.out[2]:][:g.out[2]]
				for i := range row {
					row[i] = b
				}
				for kz := range g.kernel[0] {
					z := oz*g.stride[0] - g.padding[0] + kz*g.dilation[0]
					for ky := range g.kernel[1] {
						y := oy*g.stride[1] - g.padding[1] + ky*g.dilation[1]
						if uint(z) >= uint(g.in[0]) || uint(y) >= uint(g.in[1]) {
							continue
						}
						index.CopyStrided(*taps, weight, w.Layout.Offset+o*w.Layout.Strides[0]+kz*ws[0]+ky*ws[1], ws[2])
						addRow(g, row, src, plane+z*xs[0]+y*xs[1], xs[2], *taps)
					}
				}
			}
		}
		if t.ends {
			t.last.planes(nil, out, image, o, 1, pixels)
		}
	}
	tasks.Give(taps)
}

// addRow adds Σ taps[k]·src[at + (i·stride − padding + k·dilation)·step] to each row[i], leaving out what lies outside
// of the input's row.
func addRow[T ops.Real](g *convolution, row, src []T, at, step int, taps []T) {
	k := 0
	for ; k+3 <= len(taps); k += 3 {
		first := k*g.dilation[2] - g.padding[2]
		lo, _ := ops.Inside(first, g.stride[2], len(row), g.in[2])
		_, hi := ops.Inside(first+2*g.dilation[2], g.stride[2], len(row), g.in[2])
		if first < 0 && lo == 0 || lo >= hi {
			lo, hi = len(row), len(row)
		}
		addEdge(g, row, src, at, step, taps, k, 0, lo)
		addThree(row[lo:hi], src, at+(first+lo*g.stride[2])*step, g.stride[2]*step, g.dilation[2]*step,
			taps[k], taps[k+1], taps[k+2])
		addEdge(g, row, src, at, step, taps, k, hi, len(row))
	}
	for ; k < len(taps); k++ {
		first := k*g.dilation[2] - g.padding[2]
		lo, hi := ops.Inside(first, g.stride[2], len(row), g.in[2])
		from := at + (first+lo*g.stride[2])*step
		w := taps[k]
		for i := range row[lo:hi] {
			row[lo+i] += T(w * src[from+i*g.stride[2]*step])
		}
	}
}

// addEdge adds the taps k to k+2 to row[from:to], where some of them lie outside of the input.
func addEdge[T ops.Real](g *convolution, row, src []T, at, step int, taps []T, k, from, to int) {
	for i := from; i < to; i++ {
		for t := k; t < k+3; t++ {
			if x := i*g.stride[2] - g.padding[2] + t*g.dilation[2]; uint(x) < uint(g.in[2]) {
				row[i] += T(taps[t] * src[at+x*step])
			}
		}
	}
}

// addThree adds three taps to elements whose inputs are all there.
func addThree[T ops.Real](row, src []T, at, step, apart int, w0, w1, w2 T) {
	if len(row) == 0 {
		return
	}
	if step == 1 {
		n := len(row)
		s0, s1, s2 := src[at:][:n], src[at+apart:][:n], src[at+2*apart:][:n]
		for i := range row {
			row[i] = row[i] + T(w0*s0[i]) + T(w1*s1[i]) + T(w2*s2[i])
		}
		return
	}
	for i := range row {
		row[i] = row[i] + T(w0*src[at]) + T(w1*src[at+apart]) + T(w2*src[at+2*apart])
		at += step
	}
}

// convIntegers computes convolutions of integers, which wrap around as PyTorch's do.
func convIntegers[T int8 | uint8 | int16 | int32 | int64](c *ops.Call, g *convolution) {
	tasks.Do(c.Pool, g.batch*g.groups*g.outputs, 1, integerPlanes[T]{
		g: g, x: c.In[0], w: c.In[1], bias: c.In[2], out: c.Out[0],
	})
}

// integerPlanes is the task of convIntegers: a part is a plane of the result.
type integerPlanes[T int8 | uint8 | int16 | int32 | int64] struct {
	g               *convolution
	x, w, bias, out ops.View
}

// position returns where tap k of the window of output o reads along dimension d.
func (g *convolution) position(d, o, k int) (int, bool) {
	if g.transposed {
		at := o + g.padding[d] - k*g.dilation[d]
		return at / g.stride[d], at >= 0 && at%g.stride[d] == 0 && at/g.stride[d] < g.in[d]
	}
	at := o*g.stride[d] - g.padding[d] + k*g.dilation[d]
	return at, at >= 0 && at < g.in[d]
}

// Run implements Task.
func (t *integerPlanes[T]) Run(item, _ int) {
	g, x, w, bias, out := t.g, t.x, t.w, t.bias, t.out
	xs, ws := ops.Threes(x.Layout.Strides[2:], 0), ops.Threes(w.Layout.Strides[2:], 0)
	src, weight, dst := ops.Elements[T](x), ops.Elements[T](w), ops.Elements[T](out)
	pixels, outputs := g.pixels(), g.groups*g.outputs
	image, o := item/outputs, item%outputs
	group := o / g.outputs
	input := x.Layout.Offset + image*x.Layout.Strides[0] + group*g.inputs*x.Layout.Strides[1]
	taps, channel := w.Layout.Offset+o*w.Layout.Strides[0], w.Layout.Strides[1]
	if g.transposed {
		taps = w.Layout.Offset + group*g.inputs*w.Layout.Strides[0] + o%g.outputs*w.Layout.Strides[1]
		channel = w.Layout.Strides[0]
	}
	for p := range pixels {
		var sum T
		if !bias.Absent() {
			sum = ops.Elements[T](bias)[bias.Layout.Offset+o*bias.Layout.Strides[0]]
		}
		for tap := range g.taps() {
			kx, ky, kz := tap%g.kernel[2], tap/g.kernel[2]%g.kernel[1], tap/g.kernel[2]/g.kernel[1]
			ix, okX := g.position(2, p%g.out[2], kx)
			iy, okY := g.position(1, p/g.out[2]%g.out[1], ky)
			iz, okZ := g.position(0, p/g.out[2]/g.out[1], kz)
			if !okX || !okY || !okZ {
				continue
			}
			at, wt := input+iz*xs[0]+iy*xs[1]+ix*xs[2], taps+kz*ws[0]+ky*ws[1]+kx*ws[2]
			for ch := range g.inputs {
				sum += src[at+ch*x.Layout.Strides[1]] * weight[wt+ch*channel]
			}
		}
		dst[out.Layout.Offset+item*pixels+p] = sum
	}
}
