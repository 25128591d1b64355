package images

import (
	"math"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// regionKernels compute as torchvision's for the CPU do, step by step in the dtype of the operands: which pixels a region has
// depends on how its coordinates are rounded.
var regionKernels = map[graph.Kind]ops.Kernel{
	// torchvision.ops.roi_align and ps_roi_align.
	"roi_align": {Run: func(c *ops.Call) error { return runRegions(c, roiAlign[float32], roiAlign[float64]) }, Work: roiAlignWork},
	// torchvision.ops.roi_pool and ps_roi_pool.
	"roi_pool": {Run: func(c *ops.Call) error { return runRegions(c, roiPool[float32], roiPool[float64]) }},
	// out[n, c, k, o] = mask[n, g, k, o] × in[n, c] at the place of o and k, moved: torchvision.ops.deform_conv2d.
	"deform_columns": {Run: runDeform},
	// torchvision.ops.nms.
	"nms": {Run: func(c *ops.Call) error {
		if c.In[0].DType == tensor.Float64 {
			return suppress[float64](c)
		}
		return suppress[float32](c)
	}, Work: nmsWork},
	// The loop of torchvision's heatmaps_to_keypoints.
	"heatmap_peaks": {Run: runPeaks, Work: peaksWork},
}

// regionParts bounds how many parts have tables of samples at a time.
const regionParts = 8

// runRegions checks which images the regions are in before it computes.
func runRegions(c *ops.Call, single func(c *ops.Call), double func(c *ops.Call)) error {
	x, regions := c.In[0], c.In[1]
	images, step := x.Shape()[0], regions.Layout.Strides[0]
	var image [1]float64
	for k := range regions.Shape()[0] {
		ops.LoadReal(image[:], regions, regions.Layout.Offset+k*step, 1)
		if !(image[0] > -1 && image[0] < float64(images)) {
			return &graph.IndexError{Index: truncated(image[0]), Size: int64(images)}
		}
	}
	if c.Out[0].Size() == 0 {
		return nil
	}
	if x.DType == tensor.Float64 {
		double(c)
	} else {
		single(c)
	}
	return nil
}

// truncated returns the integer part of what fits in an integer, and the nearest one that does for other numbers; 0 for NaN.
func truncated(x float64) int64 {
	if x != x {
		return 0
	}
	return int64(min(max(x, -1<<62), 1<<62))
}

// A regionTask is some regions of an image.
type regionTask[T ops.Real] struct {
	x, regions, out    ops.View
	scale              T
	size               [2]int
	sampling           int
	aligned, positions bool
	work               []byte
	grain              int
}

func regionTaskOf[T ops.Real](c *ops.Call) regionTask[T] {
	size := c.Attrs.Ints("size")
	regions := c.In[1].Shape()[0]
	return regionTask[T]{
		x: c.In[0], regions: c.In[1], out: c.Out[0], scale: T(c.Attrs.Float("scale")), size: [2]int{size[0], size[1]},
		sampling: c.Attrs.Int("sampling"), aligned: c.Attrs.Bool("aligned"), positions: c.Attrs.Bool("positional"),
		work: c.Work, grain: (regions + regionParts - 1) / regionParts,
	}
}

// region returns the image of a region and its coordinates, in the order of the dimensions: top, left, bottom, right.
func (t *regionTask[T]) region(k int) (image int, box [4]T) {
	r, l := ops.Elements[T](t.regions), t.regions.Layout
	at, step := l.Offset+k*l.Strides[0], l.Strides[1]
	for i, from := range [4]int{2, 1, 4, 3} {
		box[i] = T(r[at+from*step] * t.scale)
	}
	return int(r[at]), box
}

// channel returns the channel of the input that a channel of the result takes in a bin.
func (t *regionTask[T]) channel(ch, y, x int) int {
	if t.positions {
		return (ch*t.size[0]+y)*t.size[1] + x
	}
	return ch
}

// A sample is a place along one dimension: between two pixels, and how far from the first.
type sample struct {
	low, high int
	at        float64
}

// A roiAxis is where the bins of a region have samples along one dimension that lie on the image.
type roiAxis[T ops.Real] struct {
	samples []sample
	// ends is where those of each bin end.
	ends []int
	// count is how many samples a bin has, on the image or not.
	count float64
}

// axisSamples bounds the samples on an image of a size. Where data says how many there are, they are more than half a pixel
// apart.
func axisSamples(size, bins, sampling int) int64 {
	if sampling > 0 {
		return int64(bins) * int64(sampling)
	}
	return 2*int64(size) + 2*int64(bins) + 8
}

// roiAlignWork is room for the samples of one region in each part.
func roiAlignWork(in, _ []graph.Spec, a graph.Attrs) int64 {
	size, s := a.Ints("size"), in[0].Shape
	parts := int64(min(regionParts, in[1].Shape[0]))
	n := axisSamples(s[2], size[0], a.Int("sampling")) + axisSamples(s[3], size[1], a.Int("sampling"))
	return parts * (n*24 + int64(size[0]+size[1])*8)
}

func roiAlign[T ops.Real](c *ops.Call) {
	t := regionAligning[T]{regionTaskOf[T](c)}
	tasks.Do(c.Pool, c.In[1].Shape()[0], t.grain, t)
}

// regionAligning is the task of roiAlign.
type regionAligning[T ops.Real] struct{ regionTask[T] }

// Run implements Task.
func (t *regionAligning[T]) Run(from, to int) {
	s := t.x.Shape()
	ny := int(axisSamples(s[2], t.size[0], t.sampling))
	nx := int(axisSamples(s[3], t.size[1], t.sampling))
	room := t.work[from/t.grain*((ny+nx)*24+(t.size[0]+t.size[1])*8):]
	samples := ops.Elements[sample](ops.View{Data: room[:(ny+nx)*24]})
	ends := ops.Elements[int](ops.View{Data: room[(ny+nx)*24:]})
	y := roiAxis[T]{samples: samples[:ny], ends: ends[:t.size[0]]}
	x := roiAxis[T]{samples: samples[ny:], ends: ends[t.size[0]:][:t.size[1]]}
	for k := from; k < to; k++ {
		image, box := t.region(k)
		t.place(&y, box[0], box[2], s[2])
		t.place(&x, box[1], box[3], s[3])
		t.means(k, image, &y, &x)
	}
}

// place fills an axis with the samples from start to end, on an image of a size.
func (t *regionAligning[T]) place(a *roiAxis[T], start, end T, size int) {
	if t.aligned || t.positions {
		start, end = start-0.5, end-0.5
	}
	length := end - start
	if !t.aligned && !t.positions {
		length = max(length, 1)
	}
	bin := length / T(len(a.ends))
	a.count = float64(t.sampling)
	if t.sampling == 0 {
		a.count = math.Ceil(float64(bin))
	}
	n := 0
	for b := range a.ends {
		first := start + T(T(b)*bin)
		from, to := 0.0, a.count
		if t.sampling == 0 { // those far outside are not looked at
			from = max(0, math.Floor((-1-float64(first))*a.count/float64(bin))-2)
			to = min(to, from+float64(len(a.samples)))
		}
		for i := from; i < to && n < len(a.samples) && size > 0; i++ {
			at := first + T(T(T(i)+0.5)*bin)/T(a.count)
			if t.sampling == 0 && at > T(size) {
				break
			}
			if at < -1 || at > T(size) || at != at {
				continue
			}
			at = max(at, 0)
			low := int(at)
			high := low + 1
			if low >= size-1 {
				low, high = size-1, size-1
				at = T(low)
			}
			a.samples[n] = sample{low, high, float64(at - T(low))}
			n++
		}
		a.ends[b] = n
	}
}

// means computes the bins of one region.
func (t *regionAligning[T]) means(k, image int, y, x *roiAxis[T]) {
	src, out, l := ops.Elements[T](t.x), ops.Elements[T](t.out), t.x.Layout
	count := T(y.count * x.count)
	if !t.positions {
		count = max(count, 1)
	}
	if count != count { // so are the coordinates, and torchvision's integers have no NaN
		count = 1
	}
	channels := t.out.Shape()[1]
	for ch := range channels {
		to := out[(k*channels+ch)*t.size[0]*t.size[1]:]
		rows := 0
		for by, endY := range y.ends {
			columns := 0
			for bx, endX := range x.ends {
				at := l.Offset + image*l.Strides[0] + t.channel(ch, by, bx)*l.Strides[1]
				var sum T
				for _, sy := range y.samples[rows:endY] {
					ly := T(sy.at)
					hy := 1 - ly
					low, high := at+sy.low*l.Strides[2], at+sy.high*l.Strides[2]
					for _, sx := range x.samples[columns:endX] {
						lx := T(sx.at)
						hx := 1 - lx
						left, right := sx.low*l.Strides[3], sx.high*l.Strides[3]
						value := T(T(hy*hx)*src[low+left]) + T(T(hy*lx)*src[low+right])
						value += T(T(ly*hx) * src[high+left])
						value += T(T(ly*lx) * src[high+right])
						sum += value
					}
				}
				to[by*t.size[1]+bx] = sum / count
				columns = endX
			}
			rows = endY
		}
	}
}

func roiPool[T ops.Real](c *ops.Call) {
	t := regionPooling[T]{regionTaskOf[T](c)}
	tasks.Do(c.Pool, c.In[1].Shape()[0], t.grain, t)
}

// regionPooling is the task of roiPool.
type regionPooling[T ops.Real] struct{ regionTask[T] }

// Run implements Task.
func (t *regionPooling[T]) Run(from, to int) {
	for k := from; k < to; k++ {
		image, box := t.region(k)
		for by := range t.size[0] {
			top, bottom := t.bin(box[0], box[2], by, t.size[0], t.x.Shape()[2])
			for bx := range t.size[1] {
				left, right := t.bin(box[1], box[3], bx, t.size[1], t.x.Shape()[3])
				t.pool(k, image, by, bx, [4]int{top, left, bottom, right})
			}
		}
	}
}

// bin returns the pixels of a bin along a dimension.
func (t *regionPooling[T]) bin(start, end T, b, bins, size int) (from, to int) {
	first, length := wholePixel(start), wholePixel(end)-wholePixel(start)
	last := size
	if t.positions {
		last = size - 1
	} else {
		length++
	}
	step := T(max(length, 1)) / T(bins)
	from = first + int(math.Floor(float64(T(T(b)*step))))
	to = first + int(math.Ceil(float64(T(T(b+1)*step))))
	return min(max(from, 0), last), min(max(to, 0), last)
}

// wholePixel returns the nearest integer, halves away from zero, of what is not far outside every image.
func wholePixel[T ops.Real](x T) int {
	return int(truncated(math.Round(min(max(float64(x), -1<<40), 1<<40))))
}

// pool computes a bin of a region that has the pixels of box.
func (t *regionPooling[T]) pool(k, image, by, bx int, box [4]int) {
	src, out, l := ops.Elements[T](t.x), ops.Elements[T](t.out), t.x.Layout
	channels := t.out.Shape()[1]
	empty := box[2] <= box[0] || box[3] <= box[1]
	for ch := range channels {
		at := l.Offset + image*l.Strides[0] + t.channel(ch, by, bx)*l.Strides[1]
		var sum T
		best := T(-math.MaxFloat32)
		for y := box[0]; y < box[2]; y++ {
			for x := box[1]; x < box[3]; x++ {
				v := src[at+y*l.Strides[2]+x*l.Strides[3]]
				sum += v
				if v > best {
					best = v
				}
			}
		}
		switch {
		case empty:
			best = 0
		case t.positions:
			best = sum / T((box[2]-box[0])*(box[3]-box[1]))
		}
		out[((k*channels+ch)*t.size[0]+by)*t.size[1]+bx] = best
	}
}

func runDeform(c *ops.Call) error {
	if c.Out[0].Size() == 0 {
		return nil
	}
	if c.In[0].DType == tensor.Float64 {
		deform[float64](c)
	} else {
		deform[float32](c)
	}
	return nil
}

func deform[T ops.Real](c *ops.Call) {
	pair := func(name string) [2]int { return [2]int(c.Attrs.Ints(name)) }
	s := c.Out[0].Shape()
	t := deforming[T]{
		x: c.In[0], moves: c.In[1], out: c.Out[0], kernel: pair("kernel"), stride: pair("stride"), padding: pair("padding"),
		dilation: pair("dilation"), each: s[1] / c.Attrs.Int("groups"), outputs: [2]int{s[3], s[4]},
	}
	if len(c.In) > 2 {
		t.mask = c.In[2]
	}
	tasks.Do(c.Pool, s[0]*s[1]*s[2], max(1, ops.Grain/16/(s[3]*s[4])), t)
}

// deforming is the task of deform: a part is some positions of the kernel over some channels.
type deforming[T ops.Real] struct {
	x, moves, mask, out               ops.View
	kernel, stride, padding, dilation [2]int
	outputs                           [2]int
	// each is how many channels move together.
	each int
}

// Run implements Task.
func (t *deforming[T]) Run(from, to int) {
	channels, taps := t.x.Shape()[1], t.kernel[0]*t.kernel[1]
	for i := from; i < to; i++ {
		t.column(i/(channels*taps), i/taps%channels, i%taps, i)
	}
}

// column computes what one position of the kernel meets in one channel, for all outputs.
func (t *deforming[T]) column(image, ch, tap, at int) {
	src, out, l := ops.Elements[T](t.x), ops.Elements[T](t.out), t.x.Layout
	plane := l.Offset + image*l.Strides[0] + ch*l.Strides[1]
	height, width := t.x.Shape()[2], t.x.Shape()[3]
	line := ch/t.each*t.kernel[0]*t.kernel[1] + tap
	place := func(v ops.View, channel, y, x int) T {
		s := v.Layout.Strides
		return ops.Elements[T](v)[v.Layout.Offset+image*s[0]+channel*s[1]+y*s[2]+x*s[3]]
	}
	pixel := func(y, x int) T {
		if y < 0 || y >= height || x < 0 || x >= width {
			return 0
		}
		return src[plane+y*l.Strides[2]+x*l.Strides[3]]
	}
	to := out[at*t.outputs[0]*t.outputs[1]:]
	for oy := range t.outputs[0] {
		for ox := range t.outputs[1] {
			y := T(oy*t.stride[0]-t.padding[0]+tap/t.kernel[1]*t.dilation[0]) + place(t.moves, 2*line, oy, ox)
			x := T(ox*t.stride[1]-t.padding[1]+tap%t.kernel[1]*t.dilation[1]) + place(t.moves, 2*line+1, oy, ox)
			var v T
			if y > -1 && y < T(height) && x > -1 && x < T(width) {
				top, left := int(math.Floor(float64(y))), int(math.Floor(float64(x)))
				ly, lx := y-T(top), x-T(left)
				hy, hx := 1-ly, 1-lx
				v = T(T(hy*hx)*pixel(top, left)) + T(T(hy*lx)*pixel(top, left+1))
				v += T(T(ly*hx) * pixel(top+1, left))
				v += T(T(ly*lx) * pixel(top+1, left+1))
			}
			if !t.mask.Absent() {
				v *= place(t.mask, line, oy, ox)
			}
			to[oy*t.outputs[1]+ox] = v
		}
	}
}
