package images

import (
	"fmt"
	"math"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// resampleKernels read images between their elements or in windows. Half floats are computed in float32, but
// for coordinates of grid_sample.
var resampleKernels = map[graph.Kind]ops.Kernel{
	"interpolate": {Run: runInterpolate, Work: interpolateWork, Supports: interpolateSupports},
	"grid_sample": {Run: runGridSample, Supports: ops.OnlyReal},
	"affine_grid": {Run: runAffineGrid, Supports: ops.OnlyReal},
	"im2col":      {Run: runIm2col},
	"col2im":      {Run: runCol2im, Supports: ops.OnlyReal},
}

// interpolateSupports takes every dtype where elements are only moved, and refuses tables that no machine holds.
func interpolateSupports(in, out []graph.Spec, a graph.Attrs) error {
	mode := a.String("mode")
	for d, n := range in[0].Shape[2:] {
		size := out[0].Shape[2+d]
		if taps := resizeTaps(mode, a.Bool("antialias"), n, size, d, a); float64(taps)*float64(size) > 1<<40 {
			return fmt.Errorf("interpolation of %v to %v reads %d elements for each", in[0].Shape, out[0].Shape, taps)
		}
	}
	if mode == "nearest" || mode == "nearest-exact" {
		return nil
	}
	return ops.OnlyReal(in, out, a)
}

// A resizing is how interpolate reads along one dimension: for each element of the result, taps elements with weights.
type resizing[T ops.Real] struct {
	taps   int
	index  []int32
	weight []T
}

// resizeTaps returns how many elements of dimension d each result is made of.
func resizeTaps(mode string, antialias bool, n, size, d int, a graph.Attrs) int {
	half := 0.0
	switch {
	case antialias && n == size:
		return 1
	case mode == "linear":
		half = 1
	case mode == "cubic":
		half = 2
	case mode == "lanczos":
		half = 3
	default:
		return 1
	}
	if antialias {
		scale := resizeScale[float64](n, size, a.Bool("align_corners"), a.Float(scaleNames[d]))
		return min(2*int(math.Ceil(min(half*max(scale, 1), float64(n))))+1, max(n, 3)) // two are linear's
	}
	return int(2 * half)
}

var scaleNames = [...]string{"scale0", "scale1", "scale2"}

// resizeScale returns the step in the input for one step in the result.
func resizeScale[T ops.Real](n, size int, alignCorners bool, given float64) T {
	switch {
	case alignCorners && size > 1:
		return T(n-1) / T(size-1)
	case alignCorners:
		return 0
	case given > 0:
		return T(1 / given)
	}
	return T(n) / T(size)
}

func interpolateWork(in, out []graph.Spec, a graph.Attrs) int64 {
	var bytes int64
	size := ops.RealBytes(in[0].DType)
	for d, n := range in[0].Shape[2:] {
		results := out[0].Shape[2+d]
		taps := resizeTaps(a.String("mode"), a.Bool("antialias"), n, results, d, a)
		bytes += ops.ScratchBytes(size, results*taps) + ops.ScratchBytes(4, results*taps)
	}
	return bytes
}

// runInterpolate: out[p] = Σ weight · in over the elements around p's place in the input, dimension by dimension.
// PyTorch's upsample_nearest1d to 3d, _upsample_nearest_exact1d to 3d, upsample_linear1d, upsample_bilinear2d,
// upsample_trilinear3d, upsample_bicubic2d and the antialiased _upsample_bilinear2d_aa, _upsample_bicubic2d_aa and
// _upsample_lanczos2d_aa.
func runInterpolate(c *ops.Call) error {
	if c.Out[0].Size() == 0 {
		return nil
	}
	if mode := c.Attrs.String("mode"); mode == "nearest" || mode == "nearest-exact" {
		if c.In[0].DType == tensor.Float64 && !c.Attrs.Bool("small") {
			return nearest(c, resizings[float64](c))
		}
		return nearest(c, resizings[float32](c))
	}
	if c.In[0].DType == tensor.Float64 {
		interpolate(c, resizings[float64](c))
	} else {
		interpolate(c, resizings[float32](c))
	}
	return nil
}

// firstIndex and the whole weights are the table of a dimension with one element.
var (
	firstIndex    = [1]int32{0}
	wholeWeight32 = [1]float32{1}
	wholeWeight64 = [1]float64{1}
)

func wholeWeight[T ops.Real]() []T {
	if w, ok := any(&wholeWeight32).(*[1]T); ok {
		return w[:]
	}
	return any(&wholeWeight64).(*[1]T)[:]
}

// resizings fills the tables of all dimensions; those before the first have one element.
func resizings[T ops.Real](c *ops.Call) (tables [3]resizing[T]) {
	mode, antialias, align := c.Attrs.String("mode"), c.Attrs.Bool("antialias"), c.Attrs.Bool("align_corners")
	small := c.Attrs.Bool("small")
	shape, results := c.In[0].Shape()[2:], c.Out[0].Shape()[2:]
	work := ops.Scratch(c.Work)
	for d := range tables {
		k := d - (3 - len(shape))
		if k < 0 {
			tables[d] = resizing[T]{taps: 1, index: firstIndex[:], weight: wholeWeight[T]()}
			continue
		}
		n, size := shape[k], results[k]
		t := &tables[d]
		t.taps = resizeTaps(mode, antialias, n, size, k, c.Attrs)
		t.weight = ops.TakeReal[T](&work, size*t.taps)
		places := ops.RoundUp(size*t.taps*4, 8)
		t.index, work = ops.Elements[int32](ops.View{Data: work[:places]})[:size*t.taps], work[places:]
		scale := resizeScale[T](n, size, align, c.Attrs.Float(scaleNames[k]))
		for o := range size {
			index, weight := t.index[o*t.taps:][:t.taps], t.weight[o*t.taps:][:t.taps]
			switch {
			case mode == "nearest":
				index[0], weight[0] = int32(nearestTo(T(o)*scale, n)), 1
			case mode == "nearest-exact" && small:
				index[0], weight[0] = int32(nearestTo(T((float64(o)+0.5)*float64(scale)), n)), 1
			case mode == "nearest-exact":
				// Rounded once, as compilers do where they may. A float32's product is a float64.
				at := max(T(math.FMA(float64(T(o)+0.5), float64(scale), -0.5)), 0)
				index[0], weight[0] = int32(nearestTo(at+0.5, n)), 1
			case n == size && (antialias || mode == "linear"):
				clear(weight)
				for i := range index {
					index[i] = int32(o)
				}
				weight[0] = 1
			case antialias:
				antialiasTaps(mode, index, weight, scale, o, n)
			default:
				place(mode, index, weight, scale, o, n, align)
			}
		}
	}
	return tables
}

func floor[T ops.Real](x T) T { return T(math.Floor(float64(x))) }

// within returns the largest whole number that is not above x, but at least low and at most high. x may be anything.
func within[T ops.Real](x T, low, high int) int {
	if !(x >= T(low)) {
		return low
	}
	if x >= T(high) {
		return high
	}
	return int(floor(x))
}

// nearestTo returns which of n elements a place is in. PyTorch rounds places with floorf, those of doubles too.
func nearestTo[T ops.Real](place T, n int) int { return within(float32(place), 0, n-1) }

// place sets the taps of linear and cubic interpolation for result o.
func place[T ops.Real](mode string, index []int32, weight []T, scale T, o, n int, align bool) {
	at := T(o) * scale
	if !align {
		at = T((T(o)+0.5)*scale) - 0.5
		if mode == "linear" {
			at = max(at, 0)
		}
	}
	first := within(at, -1, n-1)
	part := min(max(at-T(first), 0), 1)
	if mode == "linear" {
		index[0], index[1] = int32(first), int32(min(first+1, n-1))
		weight[0], weight[1] = 1-part, part
		return
	}
	cubicWeights((*[4]T)(weight), part)
	for i := range index {
		index[i] = int32(min(max(first-1+i, 0), n-1))
	}
}

// cubicWeights sets the weights of the elements at -1, 0, 1 and 2 for a place between 0 and 1: cubic convolution with
// a = -0.75.
func cubicWeights[T ops.Real](w *[4]T, t T) {
	const a = -0.75
	near := func(x T) T { return ((a+2)*x-(a+3))*x*x + 1 }
	far := func(x T) T { return ((a*x-5*a)*x+8*a)*x - 4*a }
	*w = [4]T{far(t + 1), near(t), near(1 - t), far(2 - t)}
}

// antialiasTaps sets the taps for result o of a filter that is as wide as the step is long. Taps that are left over
// have the index -1, and no element: one that is not finite does not reach where the filter ends.
func antialiasTaps[T ops.Real](mode string, index []int32, weight []T, scale T, o, n int) {
	half := T(1)
	filter := func(x float64) float64 { return max(1-math.Abs(x), 0) }
	switch mode {
	case "cubic":
		half, filter = 2, keys
	case "lanczos":
		half, filter = 3, lanczos
	}
	support, inverse := half, T(1)
	if scale >= 1 {
		support, inverse = half*scale, 1/scale
	}
	center := scale * (T(o) + 0.5)
	from := within(center-support+0.5, 0, n)
	to := within(center+support+0.5, 0, n)
	count := min(max(to-from, 0), len(index))
	var total T
	for i := range index {
		index[i], weight[i] = -1, 0
		if i < count {
			index[i] = int32(from + i)
			weight[i] = T(filter(float64((T(i+from) - center + 0.5) * inverse)))
			total += weight[i]
		}
	}
	if total != 0 {
		for i := range weight {
			weight[i] /= total
		}
	}
}

// keys is the cubic filter with a = -0.5.
func keys(x float64) float64 {
	const a = -0.5
	x = math.Abs(x)
	switch {
	case x < 1:
		return ((a+2)*x-(a+3))*x*x + 1
	case x < 2:
		return (((x-5)*x+8)*x - 4) * a
	}
	return 0
}

// lanczos is the windowed sinc of three lobes.
func lanczos(x float64) float64 {
	sinc := func(x float64) float64 {
		if x == 0 {
			return 1
		}
		x *= math.Pi
		return math.Sin(x) / x
	}
	if math.Abs(x) < 3 {
		return sinc(x) * sinc(x/3)
	}
	return 0
}

// nearest moves elements of any dtype.
func nearest[T ops.Real](c *ops.Call, tables [3]resizing[T]) error {
	switch c.In[0].DType.Size() {
	case 1:
		nearestAs[uint8](c, tables)
	case 2:
		nearestAs[uint16](c, tables)
	case 4:
		nearestAs[uint32](c, tables)
	case 8:
		nearestAs[uint64](c, tables)
	case 16:
		nearestAs[[2]uint64](c, tables)
	default:
		return fmt.Errorf("elements of %v", c.In[0].DType)
	}
	return nil
}

func nearestAs[E any, T ops.Real](c *ops.Call, tables [3]resizing[T]) {
	n, grain := imageRows(c)
	tasks.Do(c.Pool, n, grain, nearestRows[E, T]{x: c.In[0], out: c.Out[0], tables: tables})
}

// nearestRows is the task of nearest: a part is some rows of the result.
type nearestRows[E any, T ops.Real] struct {
	x, out ops.View
	tables [3]resizing[T]
}

// Run implements Task.
func (t *nearestRows[E, T]) Run(from, to int) {
	src, dst, tables := ops.Elements[E](t.x), ops.Elements[E](t.out), &t.tables
	strides := ops.Threes(t.x.Layout.Strides[2:], 0)
	for i := from; i < to; i++ {
		row, out, z, y := imageRow(t.x, t.out, i)
		row += int(tables[0].index[z])*strides[0] + int(tables[1].index[y])*strides[1]
		line := dst[out:][:len(tables[2].index)]
		for k, x := range tables[2].index {
			line[k] = src[row+int(x)*strides[2]]
		}
	}
}

// imageRows returns how many rows the result has, and how many of them a part.
func imageRows(c *ops.Call) (n, each int) {
	shape := c.Out[0].Shape()
	size := ops.Threes(shape[2:], 1)
	return shape[0] * shape[1] * size[0] * size[1], max(1, ops.Grain/8/size[2])
}

// imageRow returns of a row of the result: where the input's channel begins, where the row begins in the result, and which
// row it is.
func imageRow(x, result ops.View, i int) (plane, out, z, y int) {
	l, channels, size := x.Layout, result.Shape()[1], ops.Threes(result.Shape()[2:], 1)
	rows := size[0] * size[1]
	channel, row := i/rows, i%rows
	plane = l.Offset + channel/channels*l.Strides[0] + channel%channels*l.Strides[1]
	return plane, i * size[2], row / size[1], row % size[1]
}

func interpolate[T ops.Real](c *ops.Call, tables [3]resizing[T]) {
	n, grain := imageRows(c)
	tasks.Do(c.Pool, n, grain, interpolatedRows[T]{x: c.In[0], out: c.Out[0], tables: tables})
}

// interpolatedRows is the task of interpolate: a part is some rows of the result.
type interpolatedRows[T ops.Real] struct {
	x, out ops.View
	tables [3]resizing[T]
}

// Run implements Task.
func (t *interpolatedRows[T]) Run(from, to int) {
	x, out := t.x, t.out
	strides := ops.Threes(x.Layout.Strides[2:], 0)
	half := ops.IsHalf(x.DType)
	var src, dst []T
	if !half {
		src, dst = ops.Elements[T](x), ops.Elements[T](out)
	}
	tz, ty, tx := &t.tables[0], &t.tables[1], &t.tables[2]
	width := len(tx.index) / tx.taps
	for i := from; i < to; i++ {
		plane, at, oz, oy := imageRow(x, out, i)
		zs, wz := tz.index[oz*tz.taps:][:tz.taps], tz.weight[oz*tz.taps:][:tz.taps]
		ys, wy := ty.index[oy*ty.taps:][:ty.taps], ty.weight[oy*ty.taps:][:ty.taps]
		if !half && tx.taps == 2 && len(ys) == 2 && len(zs) == 1 {
			row := plane + int(zs[0])*strides[0]
			top, bottom := src[row+int(ys[0])*strides[1]:], src[row+int(ys[1])*strides[1]:]
			bilinearRow(dst[at:][:width], top, bottom, strides[2], tx, wy[0], wy[1])
			continue
		}
		for ox := range width {
			xs, wx := tx.index[ox*tx.taps:][:tx.taps], tx.weight[ox*tx.taps:][:tx.taps]
			var sum T
			for i, z := range zs {
				var slice T
				for j, y := range ys {
					if y < 0 {
						break
					}
					row := plane + int(z)*strides[0] + int(y)*strides[1]
					var line T
					for k, p := range xs {
						if p < 0 {
							break
						}
						if half {
							var v [1]T
							ops.LoadReal(v[:], x, row+int(p)*strides[2], 1)
							line += wx[k] * v[0]
						} else {
							line += wx[k] * src[row+int(p)*strides[2]]
						}
					}
					slice += wy[j] * line
				}
				sum += wz[i] * slice
			}
			if half {
				putNumber(out, at+ox, sum)
			} else {
				dst[at+ox] = sum
			}
		}
	}
}

// bilinearRow computes a row of the result between two rows of an image.
func bilinearRow[T ops.Real](row, top, bottom []T, step int, x *resizing[T], above, below T) {
	for i := range row {
		index, weight := x.index[2*i:][:2], x.weight[2*i:][:2]
		a, b := int(index[0])*step, int(index[1])*step
		row[i] = above*(weight[0]*top[a]+weight[1]*top[b]) + below*(weight[0]*bottom[a]+weight[1]*bottom[b])
	}
}

// runAffineGrid: out[n, p] = theta[n] · (p's coordinates from -1 to 1, x first, and 1). PyTorch's
// affine_grid_generator.
func runAffineGrid(c *ops.Call) error {
	if c.In[0].DType == tensor.Float64 {
		affineGrid[float64](c)
	} else {
		affineGrid[float32](c)
	}
	return nil
}

func affineGrid[T ops.Real](c *ops.Call) {
	theta, out := c.In[0], c.Out[0]
	shape, align := out.Shape(), c.Attrs.Bool("align_corners")
	rank := shape[len(shape)-1]
	size := ops.Threes(shape[1:len(shape)-1], 1)
	tasks.Do(c.Pool, shape[0]*ops.Volume(size[:]), ops.Grain/8, gridPlaces[T]{
		theta: theta, out: out, rank: rank, size: size, align: align,
	})
}

// gridPlaces is the task of affineGrid: a part is some points.
type gridPlaces[T ops.Real] struct {
	theta, out ops.View
	rank       int
	size       [3]int
	align      bool
}

// coordinate returns that of element i of n.
func (t *gridPlaces[T]) coordinate(i, n int) T {
	if n < 2 {
		return 0
	}
	step := 2 / T(n-1)
	at := -1 + step*T(i)
	if i >= n/2 {
		at = 1 - step*T(n-1-i)
	}
	if !t.align {
		at = at * T(n-1) / T(n)
	}
	return at
}

// Run implements Task.
func (t *gridPlaces[T]) Run(from, to int) {
	l, size, rank, pixels := t.theta.Layout, t.size, t.rank, ops.Volume(t.size[:])
	for i := from; i < to; i++ {
		p := i % pixels
		point := [4]T{t.coordinate(p%size[2], size[2]), t.coordinate(p/size[2]%size[1], size[1]), 1}
		if rank == 3 {
			point[2], point[3] = t.coordinate(p/size[2]/size[1], size[0]), 1
		}
		for r := range rank {
			var sum [1]T
			for k := range rank + 1 {
				var m [1]T
				ops.LoadReal(m[:], t.theta, l.Offset+i/pixels*l.Strides[0]+r*l.Strides[1]+k*l.Strides[2], 1)
				sum[0] += m[0] * point[k]
			}
			ops.StoreReal(t.out, i*rank+r, sum[:])
		}
	}
}
