package graph

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/tensor"
)

// regionOps are torchvision's ops for detection, over float32 or float64. Regions are rows (image, left, top, right, bottom) of
// a matrix; an image that is not there fails while running.
var regionOps = []OpDef{
	// roi_align: means of In[0] [N C H W] in "size" bins of each region In[1] [K 5], whose coordinates are taken times "scale".
	// A bin is sampled at "sampling" points along each dimension, 0 for as many as it has pixels. With "aligned" the centre of a
	// pixel is at one half. With "positional" that is so too, each bin has C / (bins) channels of its own, and bins without points
	// are NaN.
	{Kind: "roi_align", Shape: roiShape, FLOPs: roiAlignFLOPs, Axes: roiAxes},
	// roi_pool: the largest elements of bins of whole pixels; with "positional" means, of channels of each bin's own.
	{Kind: "roi_pool", Shape: roiShape, FLOPs: roiPoolFLOPs, Axes: roiAxes},
	// deform_columns: what each position of a kernel of the size "kernel" meets in In[0] [N C H W], moved by In[1]
	// [N 2·G·kernel outputs] and taken times In[2] [N G·kernel outputs], which may be absent: [N C kernel outputs]. The channels
	// are in "groups" G that move together. Attributes "stride", "padding", "dilation" are a convolution's.
	{Kind: "deform_columns", Shape: deformShape, FLOPs: deformFLOPs, Axes: leading(1, 0, 1, 2)},
	// nms: which boxes In[0] [N 4] (left, top, right, bottom) stay when from the highest of the scores In[1] [N] on each drops those
	// that it overlaps by more than "threshold", as a part of their union. In[2], one int64, says how many of the boxes count; absent
	// is all. Where In[3] [N] is given, of int64, boxes of different classes do not drop each other. The first result [N] begins with the int64 indices of those that stay, the highest first, and goes on with zeros; the
	// second says how many stay.
	{Kind: "nms", Shape: nmsShape, FLOPs: nmsFLOPs, Axes: mixes},
	// heatmap_peaks: where maps In[0] [N K H W], interpolated cubically to the size of their region, are largest. In[1] [N 2] are the
	// int64 sizes (height, width), at least one. In[2], one int64, says how many regions count; absent is all. The first result
	// [N K 2] has the int64 places (row, column), of equal ones the first, the second [N K] what is there; both are zeros for regions
	// that do not count. NaN is larger than any number.
	{Kind: "heatmap_peaks", Shape: peaksShape, FLOPs: peaksFLOPs, Axes: leading(1, 0, 1)},
}

// Bounds of what a region is divided into: an attribute may not ask for more.
const (
	mostBins    = 1 << 12
	mostSamples = 1 << 10
)

func isPlainFloat(d tensor.DType) bool { return d == tensor.Float32 || d == tensor.Float64 }

func roiShape(in []Spec, a Attrs) ([]Spec, error) {
	if err := wantOperands(in, 2, 2); err != nil {
		return nil, err
	}
	x, regions := in[0].Shape, in[1].Shape
	if len(x) != 4 || len(regions) != 2 || regions[1] != 5 || in[0].DType != in[1].DType {
		return nil, mismatch(in)
	}
	size := a.Ints("size")
	if len(size) != 2 || min(size[0], size[1]) < 1 || max(size[0], size[1]) > mostBins {
		return nil, fmt.Errorf("%v bins of a region; at most %d along a dimension are", size, mostBins)
	}
	if s := a.Int("sampling"); s < 0 || s > mostSamples {
		return nil, fmt.Errorf("%d samples of a bin; at most %d are", s, mostSamples)
	}
	channels := x[1]
	if a.Bool("positional") {
		if channels%(size[0]*size[1]) != 0 {
			return nil, fmt.Errorf("%d channels for %v bins", channels, size)
		}
		channels /= size[0] * size[1]
	}
	out := Spec{DType: in[0].DType, Shape: tensor.Shape{regions[0], channels, size[0], size[1]}}
	return []Spec{out}, wantClass(in[0], isPlainFloat)
}

// roiAxes: regions, and channels where a result has one.
func roiAxes(in, _ []Spec, a Attrs) [][]int {
	axes := axesOf(in)
	axes[1][0] = 0
	if !a.Bool("positional") {
		axes[0][1] = 1
	}
	return axes
}

// roiAlignFLOPs: eight for each sample; where data says how many those are, four are counted for a bin.
func roiAlignFLOPs(_, out []Spec, a Attrs) int64 {
	s := int64(a.Int("sampling"))
	if s == 0 {
		s = 2
	}
	return product(8, s, s, Elements(out[0].Shape))
}

// roiPoolFLOPs: four pixels for a bin.
func roiPoolFLOPs(_, out []Spec, _ Attrs) int64 { return product(4, Elements(out[0].Shape)) }

func deformShape(in []Spec, a Attrs) ([]Spec, error) {
	if err := wantOperands(in, 2, 3); err != nil {
		return nil, err
	}
	x, moves := in[0].Shape, in[1].Shape
	if len(x) != 4 || len(moves) != 4 || in[0].DType != in[1].DType || given(in, 2) && in[2].DType != in[0].DType {
		return nil, mismatch(in)
	}
	kernel, err := windowAttr(a, "kernel", 2, 1)
	if err != nil {
		return nil, err
	}
	w, err := windowOf(a, 2)
	if err != nil {
		return nil, err
	}
	var outputs []int
	for d := range 2 {
		n := x[2+d] + 2*w.padding[d] - w.dilation[d]*(kernel[d]-1) - 1
		if n < 0 {
			return nil, fmt.Errorf("a kernel of %v over %v", kernel, x)
		}
		outputs = append(outputs, n/w.stride[d]+1)
	}
	groups, taps := a.Int("groups"), kernel[0]*kernel[1]
	if groups < 1 || groups > max(x[1], 1) || x[1]%groups != 0 {
		return nil, fmt.Errorf("%d groups of %d channels", groups, x[1])
	}
	if want := slices.Concat([]int{x[0], 2 * groups * taps}, outputs); !slices.Equal(moves, want) {
		return nil, fmt.Errorf("offsets %v, want %v", moves, want)
	}
	if want := slices.Concat([]int{x[0], groups * taps}, outputs); given(in, 2) && !slices.Equal(in[2].Shape, want) {
		return nil, fmt.Errorf("a mask %v, want %v", in[2].Shape, want)
	}
	out := slices.Concat(x[:2], tensor.Shape{taps}, outputs)
	if _, err := out.NumElements(); err != nil {
		return nil, err
	}
	return []Spec{{DType: in[0].DType, Shape: out}}, wantClass(in[0], isPlainFloat)
}

// deformFLOPs: eight for each sample.
func deformFLOPs(_, out []Spec, _ Attrs) int64 { return product(8, Elements(out[0].Shape)) }

func nmsShape(in []Spec, _ Attrs) ([]Spec, error) {
	if err := wantOperands(in, 2, 4); err != nil {
		return nil, err
	}
	boxes, scores := in[0].Shape, in[1].Shape
	if len(boxes) != 2 || boxes[1] != 4 || len(scores) != 1 || scores[0] != boxes[0] || in[0].DType != in[1].DType ||
		given(in, 2) && (len(in[2].Shape) != 0 || in[2].DType != tensor.Int64) ||
		given(in, 3) && (!in[3].Shape.Equal(scores) || in[3].DType != tensor.Int64) {
		return nil, mismatch(in)
	}
	stay := Spec{DType: tensor.Int64, Shape: tensor.Shape{boxes[0]}}
	return []Spec{stay, {DType: tensor.Int64, Shape: tensor.Shape{}}}, wantClass(in[0], isPlainFloat)
}

// nmsFLOPs: ten for each pair of boxes.
func nmsFLOPs(in, _ []Spec, _ Attrs) int64 {
	return product(5, Elements(in[1].Shape), Elements(in[1].Shape))
}

func peaksShape(in []Spec, _ Attrs) ([]Spec, error) {
	if err := wantOperands(in, 2, 3); err != nil {
		return nil, err
	}
	maps, sizes := in[0].Shape, in[1].Shape
	if len(maps) != 4 || maps[2] < 1 || maps[3] < 1 || !sizes.Equal(tensor.Shape{maps[0], 2}) ||
		in[1].DType != tensor.Int64 ||
		given(in, 2) && (len(in[2].Shape) != 0 || in[2].DType != tensor.Int64) {
		return nil, mismatch(in)
	}
	places := Spec{DType: tensor.Int64, Shape: tensor.Shape{maps[0], maps[1], 2}}
	return []Spec{places, {DType: in[0].DType, Shape: slices.Clone(maps[:2])}}, wantClass(in[0], isPlainFloat)
}

// peaksFLOPs: sixteen for each pixel of a region, which counts as one of a hundred by a hundred.
func peaksFLOPs(_, out []Spec, _ Attrs) int64 { return product(16, 100, 100, Elements(out[1].Shape)) }
