package cuda

import (
	"fmt"
	"math"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// resampleKernels read images between their elements or in windows: kernels/resample.cu.
var resampleKernels = map[graph.Kind]kernel{
	"interpolate": {supports: supportsInterpolate, work: interpolateWork, launch: launchInterpolate},
	"grid_sample": {supports: onlyReal, launch: launchGridSample},
	"affine_grid": {supports: onlyReal, launch: launchAffineGrid},
	"im2col":      {launch: launchIm2col},
	"col2im":      {supports: onlyReal, launch: launchCol2im},
}

// resizeModes and samplePaddings are the codes of kernels/resample.cu.
var (
	resizeModes    = map[string]int32{"nearest": 0, "nearest-exact": 1, "linear": 2, "cubic": 3, "lanczos": 4}
	samplePaddings = map[string]int{"zeros": 0, "border": 1, "reflection": 2}
)

var scaleNames = [...]string{"scale0", "scale1", "scale2"}

// exactSmall is the code of the mode nearest-exact for small images.
const exactSmall = 5

// isNearest reports whether a mode only moves elements.
func isNearest(mode string) bool { return mode == "nearest" || mode == "nearest-exact" }

// supportsInterpolate takes every dtype where elements are only moved, and refuses tables that no machine holds.
func supportsInterpolate(in, out []graph.Spec, a graph.Attrs) error {
	for d, n := range in[0].Shape[2:] {
		size := out[0].Shape[2+d]
		if taps := resizeTaps(n, size, d, a); n > mostCounted || float64(taps)*float64(size) > 1<<40 {
			return fmt.Errorf("interpolation of %v to %v reads %d elements for each", in[0].Shape, out[0].Shape, taps)
		}
	}
	if isNearest(a.String("mode")) {
		return nil
	}
	return onlyReal(in, out, a)
}

// resizeTaps returns how many elements of dimension d each result is made of.
func resizeTaps(n, size, d int, a graph.Attrs) int {
	half := map[string]float64{"linear": 1, "cubic": 2, "lanczos": 3}[a.String("mode")]
	switch {
	case half == 0, a.Bool("antialias") && n == size:
		return 1
	case !a.Bool("antialias"):
		return int(2 * half)
	}
	scale := resizeScale[float64](n, size, d, a)
	return min(2*int(math.Ceil(min(half*max(scale, 1), float64(n))))+1, max(n, 3)) // two are linear's
}

// resizeScale returns the step in the input for one step in the result, computed in the precision of the kernel.
func resizeScale[T float32 | float64](n, size, d int, a graph.Attrs) T {
	align, given := a.Bool("align_corners"), a.Float(scaleNames[d])
	switch {
	case align && size > 1:
		return T(n-1) / T(size-1)
	case align:
		return 0
	case given > 0:
		return T(1 / given)
	}
	return T(n) / T(size)
}

// tableBytes are the sizes of a dimension's two tables.
func tableBytes(n, size, d int, dtype tensor.DType, a graph.Attrs) (index, weight int64) {
	count, width := int64(size)*int64(resizeTaps(n, size, d, a)), int64(4)
	if dtype == tensor.Float64 {
		width = 8
	}
	return ceilDiv(count*4, alignBytes) * alignBytes, ceilDiv(count*width, alignBytes) * alignBytes
}

func interpolateWork(in, out []graph.Spec, a graph.Attrs) int64 {
	var bytes int64
	for d, n := range in[0].Shape[2:] {
		index, weight := tableBytes(n, out[0].Shape[2+d], d, in[0].DType, a)
		bytes += index + weight
	}
	return bytes
}

// launchInterpolate computes the tables of the dimensions, then the results.
func launchInterpolate(l *launch) error {
	x, out, a := l.in[0], l.out[0], l.attrs
	n := out.size()
	if n == 0 {
		return nil
	}
	small := a.Bool("small") // places are float32, whatever the elements are
	double := x.dtype == tensor.Float64 && !small
	suffix, mode := "f", resizeModes[a.String("mode")]
	if double {
		suffix = "d"
	}
	if small && a.String("mode") == "nearest-exact" {
		mode = exactSmall
	}
	shape, results := x.shape()[2:], out.shape()[2:]
	var index, weight [3]span
	taps, at := [3]int{1, 1, 1}, int64(0)
	for d, from := range shape {
		size, slot := results[d], d+3-len(shape)
		indexBytes, weightBytes := tableBytes(from, size, d, x.dtype, a)
		taps[slot] = resizeTaps(from, size, d, a)
		index[slot], weight[slot] = l.work.slice(at, indexBytes), l.work.slice(at+indexBytes, weightBytes)
		at += indexBytes + weightBytes
		c := l.call("om_resize_table_" + suffix).scratch(index[slot]).scratch(weight[slot]).i32(mode)
		c.i32(int32(flag(a.Bool("antialias")))).i32(int32(flag(a.Bool("align_corners")))).i64(int64(taps[slot]))
		if double {
			c.f64(resizeScale[float64](from, size, d, a))
		} else {
			c.f32(resizeScale[float32](from, size, d, a))
		}
		if err := c.i64(int64(from)).i64(int64(size)).over(int64(size)); err != nil {
			return err
		}
	}
	size, strides := threes(results, 1), threes(x.layout.Strides[2:], 0)
	planes := int64(x.shape()[0]) * int64(x.shape()[1])
	groups, each := l.sharing(planes, n/planes)
	sizes := l.s.divisorInts(int64(x.shape()[1]), n)
	for _, s := range size {
		sizes = append(sizes, l.s.divisorInts(int64(s), n)...)
	}
	sizes = append(append(sizes, x.layout.Strides[0], x.layout.Strides[1]), strides[:]...)
	sizes = append(append(sizes, taps[:]...), int(planes), int(each))
	nearest := isNearest(a.String("mode"))
	c := l.call("om_resize_" + suffix)
	if nearest {
		c = l.call(fmt.Sprintf("om_nearest_%d", out.dtype.Size()))
	}
	c.write(out).read(x)
	if !nearest {
		c.i32(dtypeCodes[x.dtype])
	}
	for d := range index {
		for i, table := range []span{index[d], weight[d]} {
			switch {
			case i == 1 && nearest:
			case table.bytes == 0:
				c.i64(0)
			default:
				c.scratch(table)
			}
		}
	}
	threads := n / planes * groups
	return c.ints(len(sizes), sizes...).i64(threads).over(threads)
}

// sharing returns how many of some planes a thread computes the results of at a place, and how many groups of them there
// are, for as many places: what is known of a place is looked up once where there are threads enough.
func (l *launch) sharing(planes, places int64) (groups, each int64) {
	const most = 8
	each = max(min(planes*places/l.s.d.enough, planes, most), 1)
	return ceilDiv(planes, each), each
}

// ofFloats is a kernel's name for the dtype: f, or d of doubles.
func ofFloats(name string, d tensor.DType) string {
	if d == tensor.Float64 {
		return name + "_d"
	}
	return name + "_f"
}

// launchGridSample reads in[0] at the points of in[1].
func launchGridSample(l *launch) error {
	x, grid, out, a := l.in[0], l.in[1], l.out[0], l.attrs
	n, rank, points := out.size(), len(x.shape())-2, 1
	if n == 0 {
		return nil
	}
	for _, d := range out.shape()[2:] {
		points *= d
	}
	images, channels := int64(out.shape()[0]), int64(out.shape()[1])
	groups, each := l.sharing(channels, images*int64(points))
	threads := images * groups * int64(points)
	in, strides := threes(x.shape()[2:], 1), threes(x.layout.Strides[2:], 0)
	sizes := append(l.s.divisorInts(int64(points), threads), l.s.divisorInts(groups, threads)...)
	sizes = append(sizes, int(channels), int(each), x.layout.Strides[0], x.layout.Strides[1], rank)
	sizes = append(append(sizes, in[:]...), strides[:]...)
	sizes = append(sizes, int(resizeModes[a.String("mode")]), samplePaddings[a.String("padding_mode")],
		flag(a.Bool("align_corners")))
	c := l.call(ofFloats("om_grid_sample", x.dtype)).write(out).read(x).i32(dtypeCodes[x.dtype])
	c.read(grid).layout(grid.layout.Leading(1)).i64(int64(grid.layout.Strides[rank+1]))
	return c.ints(len(sizes), sizes...).i64(threads).over(threads)
}

// launchAffineGrid gives the points of images moved by the matrices of in[0].
func launchAffineGrid(l *launch) error {
	theta, out := l.in[0], l.out[0]
	shape, n := out.shape(), out.size()
	size := threes(shape[1:len(shape)-1], 1)
	var sizes []int
	for _, s := range append(size[:], shape[len(shape)-1]) {
		sizes = append(sizes, l.s.divisorInts(int64(s), n)...)
	}
	sizes = append(sizes, theta.layout.Strides...)
	c := l.call(ofFloats("om_affine_grid", theta.dtype)).write(out).read(theta).i32(dtypeCodes[theta.dtype])
	return c.ints(len(sizes), sizes...).i32(int32(flag(l.attrs.Bool("align_corners")))).i64(n).over(n)
}

// windowSizes are the window_sizes of kernels/resample.cu for images of a size.
func (l *launch) windowSizes(channels int, size []int) []int {
	a := l.attrs
	kernel, stride, padding, dilation := a.Ints("kernel"), a.Ints("stride"), a.Ints("padding"), a.Ints("dilation")
	count := make([]int, 2)
	for d := range count {
		count[d] = (size[d]+2*padding[d]-dilation[d]*(kernel[d]-1)-1)/stride[d] + 1
	}
	// What col2im divides is less than an image and its padding.
	most := max(l.out[0].size(), int64(size[0]+padding[0]), int64(size[1]+padding[1]))
	list := l.s.divisorInts(int64(channels), most)
	for _, two := range [][]int{kernel, stride, size, count} {
		list = append(append(list, l.s.divisorInts(int64(two[0]), most)...), l.s.divisorInts(int64(two[1]), most)...)
	}
	list = append(append(list, padding[:2]...), dilation[:2]...)
	return append(list, l.in[0].layout.Strides...)
}

// windowInts is how many numbers a window_sizes has.
const windowInts = 26

// launchIm2col gives the windows of images as columns.
func launchIm2col(l *launch) error {
	x, out := l.in[0], l.out[0]
	n := out.size()
	c := l.call(fmt.Sprintf("om_im2col_%d", out.dtype.Size())).write(out).read(x)
	return c.ints(windowInts, l.windowSizes(x.shape()[1], x.shape()[2:])...).i64(n).over(n)
}

// launchCol2im sums what windows have for each element.
func launchCol2im(l *launch) error {
	x, out := l.in[0], l.out[0]
	n := out.size()
	c := l.call(ofFloats("om_col2im", out.dtype)).write(out).read(x).i32(dtypeCodes[x.dtype])
	return c.ints(windowInts, l.windowSizes(out.shape()[1], out.shape()[2:])...).i64(n).over(n)
}
