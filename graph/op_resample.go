package graph

import (
	"fmt"

	"github.com/optimem/optimem/tensor"
)

// resampleOps read tensors of images between their elements or in windows.
var resampleOps = []OpDef{
	// interpolate: N×C×spatial to the spatial size "size". "mode" is nearest, nearest-exact, linear or cubic; "scale0" …
	// are the factors that the caller gave for each dimension, which then decide where elements are read, or 0; a
	// dimension whose size stays is left as it is by linear and by what is antialiased, whatever its factor. "align_corners";
	// "antialias" widens the filters of linear, cubic and lanczos when the result is smaller. "small": of nearest and
	// nearest-exact, places are rounded as PyTorch does it for small images and those with channels last.
	{Kind: "interpolate", Shape: interpolateShape, FLOPs: interpolateFLOPs, Axes: leading(2, 0)},
	// grid_sample: In[0], N×C×spatial, at the points of In[1], N×size×rank, whose coordinates run from -1 to 1, x first.
	// "mode" is nearest, linear or cubic; "padding_mode" zeros, border or reflection; "align_corners".
	{Kind: "grid_sample", Shape: gridSampleShape, FLOPs: gridSampleFLOPs, Axes: gridSampleAxes},
	// affine_grid: the points of "size" (N, C and spatial) moved by In[0], N×rank×(rank+1); "align_corners".
	{Kind: "affine_grid", Shape: affineGridShape, FLOPs: affineGridFLOPs, Axes: leading(1, 0)},
	// im2col: the windows of N×C×H×W as N×(C·taps)×windows; "kernel", "stride", "padding", "dilation".
	{Kind: "im2col", Shape: im2colShape, FLOPs: noFLOPs, Axes: leading(1, 0)},
	// col2im: the sum of windows that im2col of N×C×size gives the shape of; "size" besides its attributes.
	{Kind: "col2im", Shape: col2imShape, FLOPs: readFLOPs, Axes: leading(1, 0)},
}

func interpolateShape(in []Spec, a Attrs) ([]Spec, error) {
	if len(in) != 1 {
		return nil, fmt.Errorf("%d operands", len(in))
	}
	x := in[0]
	rank, err := spatial(x, len(a.Ints("size")))
	if err != nil {
		return nil, err
	}
	size, err := windowAttr(a, "size", rank, 1)
	if err != nil {
		return nil, err
	}
	for _, n := range x.Shape[2:] {
		if n < 1 || n > maxWindow {
			return nil, fmt.Errorf("interpolation of %v to %v", x.Shape, size)
		}
	}
	aa := a.Bool("antialias")
	switch mode := a.String("mode"); {
	case (mode == "nearest" || mode == "nearest-exact") && !aa && !a.Bool("align_corners"):
	case mode == "linear" && (!aa || rank == 2):
	case mode == "cubic" && rank == 2:
	case mode == "lanczos" && aa && rank == 2:
	default:
		return nil, fmt.Errorf("interpolation %s of %v with antialias %t", mode, x.Shape, aa)
	}
	return []Spec{{DType: x.DType, Shape: append(tensor.Shape{x.Shape[0], x.Shape[1]}, size...)}}, nil
}

// interpolateFLOPs counts two for each element read.
func interpolateFLOPs(in, out []Spec, a Attrs) int64 {
	reads := int64(1)
	for range len(in[0].Shape) - 2 {
		switch a.String("mode") {
		case "linear":
			reads *= 2
		case "cubic":
			reads *= 4
		case "lanczos":
			reads *= 6
		}
	}
	n, _ := out[0].Shape.NumElements()
	return 2 * reads * n
}

func gridSampleShape(in []Spec, a Attrs) ([]Spec, error) {
	if len(in) != 2 {
		return nil, fmt.Errorf("%d operands", len(in))
	}
	x, grid := in[0], in[1]
	rank := len(x.Shape) - 2
	if rank < 2 || rank > 3 || len(grid.Shape) != rank+2 || grid.Shape[rank+1] != rank || grid.Shape[0] != x.Shape[0] ||
		grid.DType != x.DType {
		return nil, fmt.Errorf("input %v %v and grid %v %v", x.DType, x.Shape, grid.DType, grid.Shape)
	}
	for _, n := range x.Shape[2:] {
		if n < 1 || n > maxWindow {
			return nil, fmt.Errorf("input %v has no elements to sample", x.Shape)
		}
	}
	switch mode := a.String("mode"); {
	case mode == "nearest", mode == "linear", mode == "cubic" && rank == 2:
	default:
		return nil, fmt.Errorf("mode %s for input %v", mode, x.Shape)
	}
	switch mode := a.String("padding_mode"); mode {
	case "zeros", "border", "reflection":
	default:
		return nil, fmt.Errorf("padding mode %s", mode)
	}
	shape := append(tensor.Shape{x.Shape[0], x.Shape[1]}, grid.Shape[1:rank+1]...)
	return []Spec{{DType: x.DType, Shape: shape}}, nil
}

func gridSampleFLOPs(in, out []Spec, a Attrs) int64 {
	return interpolateFLOPs(in, out, a)
}

func affineGridShape(in []Spec, a Attrs) ([]Spec, error) {
	size := a.Ints("size")
	rank := len(size) - 2
	if len(in) != 1 || rank < 2 || rank > 3 || !in[0].Shape.Equal(tensor.Shape{size[0], rank, rank + 1}) {
		return nil, fmt.Errorf("matrices %v for size %v", in, size)
	}
	if _, err := windowAttr(a, "size", rank+2, 1); err != nil {
		return nil, err
	}
	shape := append(tensor.Shape{size[0]}, size[2:]...)
	return []Spec{{DType: in[0].DType, Shape: append(shape, rank)}}, nil
}

func affineGridFLOPs(_, out []Spec, a Attrs) int64 {
	n, _ := out[0].Shape.NumElements()
	return n * 2 * int64(len(a.Ints("size"))-2)
}

// imageWindows returns how many windows of attributes "kernel", "stride", "padding" and "dilation" an image of h×w has,
// along each dimension.
func imageWindows(a Attrs, h, w int) (kernel, counts []int, err error) {
	if kernel, err = windowAttr(a, "kernel", 2, 1); err != nil {
		return nil, nil, err
	}
	win, err := windowOf(a, 2)
	if err != nil {
		return nil, nil, err
	}
	counts = make([]int, 2)
	for d, n := range []int{h, w} {
		room := n + 2*win.padding[d] - win.span(d, kernel[d])
		if n > 1<<61 || room < 0 {
			return nil, nil, fmt.Errorf("image %d×%d has no windows of %v, dilation %v, padding %v", h, w, kernel,
				win.dilation, win.padding)
		}
		counts[d] = room/win.stride[d] + 1
	}
	return kernel, counts, nil
}

func im2colShape(in []Spec, a Attrs) ([]Spec, error) {
	if len(in) != 1 || len(in[0].Shape) != 4 {
		return nil, fmt.Errorf("operands %v", in)
	}
	x := in[0]
	kernel, counts, err := imageWindows(a, x.Shape[2], x.Shape[3])
	if err != nil {
		return nil, err
	}
	rows, err := tensor.Shape{x.Shape[1], kernel[0], kernel[1]}.NumElements()
	if err != nil {
		return nil, err
	}
	columns, err := tensor.Shape(counts).NumElements()
	if err != nil {
		return nil, err
	}
	return []Spec{{DType: x.DType, Shape: tensor.Shape{x.Shape[0], int(rows), int(columns)}}}, nil
}

func col2imShape(in []Spec, a Attrs) ([]Spec, error) {
	if len(in) != 1 || len(in[0].Shape) != 3 {
		return nil, fmt.Errorf("operands %v", in)
	}
	x := in[0]
	size, err := windowAttr(a, "size", 2, 1)
	if err != nil {
		return nil, err
	}
	kernel, counts, err := imageWindows(a, size[0], size[1])
	if err != nil {
		return nil, err
	}
	taps, err := tensor.Shape(kernel).NumElements()
	if err != nil {
		return nil, err
	}
	columns, err := tensor.Shape(counts).NumElements()
	if err != nil {
		return nil, err
	}
	if int64(x.Shape[1])%taps != 0 || int64(x.Shape[2]) != columns {
		return nil, fmt.Errorf("windows %v are not those of size %v, kernel %v: %v", x.Shape, size, kernel, counts)
	}
	shape := tensor.Shape{x.Shape[0], int(int64(x.Shape[1]) / taps), size[0], size[1]}
	return []Spec{{DType: x.DType, Shape: shape}}, nil
}
