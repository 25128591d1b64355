package graph

import (
	"fmt"

	"github.com/optimem/optimem/tensor"
)

// poolOps reduce windows over the last dimensions of N×C×spatial, one to three of them.
var poolOps = []OpDef{
	// max_pool: attributes "kernel", "stride", "padding", "dilation", "ceil_mode". With "indices" a second result says
	// where in its channel each maximum lies.
	{Kind: "max_pool", Shape: maxPoolShape, FLOPs: poolFLOPs, Axes: leading(2, 0)},
	// avg_pool: attributes "kernel", "stride", "padding", "ceil_mode", "count_include_pad", and "divisor", which replaces
	// the number of elements unless it is 0.
	{Kind: "avg_pool", Shape: avgPoolShape, FLOPs: poolFLOPs, Axes: leading(2, 0)},
	// adaptive_avg_pool and adaptive_max_pool: windows that give the size "size". Maxima may have "indices".
	{Kind: "adaptive_avg_pool", Shape: adaptivePoolShape, FLOPs: readFLOPs, Axes: leading(2, 0)},
	{Kind: "adaptive_max_pool", Shape: adaptivePoolShape, FLOPs: readFLOPs, Axes: leading(2, 0)},
	// max_unpool: zeros of the size "size" with the elements of In[0] where In[1], int64, says.
	{Kind: "max_unpool", Shape: maxUnpoolShape, FLOPs: noFLOPs, Axes: leading(2, 0, 1)},
}

// spatial returns the rank of N×C×spatial, which must be that of n.
func spatial(x Spec, n int) (int, error) {
	rank := len(x.Shape) - 2
	if rank < 1 || rank > 3 || rank != n {
		return 0, fmt.Errorf("input %v for %d spatial dimensions", x.Shape, n)
	}
	return rank, nil
}

func maxPoolShape(in []Spec, a Attrs) ([]Spec, error) {
	out, err := poolShape(in, a, a.Ints("dilation"))
	if err != nil || !a.Bool("indices") {
		return out, err
	}
	return append(out, Spec{DType: tensor.Int64, Shape: out[0].Shape}), nil
}

func avgPoolShape(in []Spec, a Attrs) ([]Spec, error) { return poolShape(in, a, nil) }

// poolShape is the rule of pools with windows of one size.
func poolShape(in []Spec, a Attrs, dilation []int) ([]Spec, error) {
	if len(in) != 1 {
		return nil, fmt.Errorf("%d operands", len(in))
	}
	x := in[0]
	rank, err := spatial(x, len(a.Ints("kernel")))
	if err != nil {
		return nil, err
	}
	bad := func(err error) ([]Spec, error) { return nil, fmt.Errorf("input %v: %w", x.Shape, err) }
	kernel, err := windowAttr(a, "kernel", rank, 1)
	if err != nil {
		return bad(err)
	}
	stride, err := windowAttr(a, "stride", rank, 1)
	if err != nil {
		return bad(err)
	}
	padding, err := windowAttr(a, "padding", rank, 0)
	if err != nil {
		return bad(err)
	}
	if dilation != nil {
		if dilation, err = windowAttr(a, "dilation", rank, 1); err != nil {
			return bad(err)
		}
	}
	shape := tensor.Shape{x.Shape[0], x.Shape[1]}
	for d, n := range x.Shape[2:] {
		span := kernel[d]
		if dilation != nil {
			span = dilation[d]*(kernel[d]-1) + 1
		}
		if padding[d] > span/2 {
			return bad(fmt.Errorf("padding %v is more than half of the kernel %v", padding, kernel))
		}
		if n > 1<<61 {
			return bad(fmt.Errorf("size"))
		}
		room := n + 2*padding[d] - span
		if a.Bool("ceil_mode") {
			room += stride[d] - 1
		}
		if n < 1 || room < 0 { // which division would round up
			return bad(fmt.Errorf("kernel %v and padding %v leave nothing", kernel, padding))
		}
		size := room/stride[d] + 1
		if a.Bool("ceil_mode") {
			// The last window must begin inside of the input or of the padding before it.
			if (size-1)*stride[d] >= n+padding[d] {
				size--
			}
		}
		shape = append(shape, size)
	}
	return []Spec{{DType: x.DType, Shape: shape}}, nil
}

// poolFLOPs counts one for each element of each window.
func poolFLOPs(_, out []Spec, a Attrs) int64 {
	n, _ := out[0].Shape.NumElements()
	k, err := tensor.Shape(a.Ints("kernel")).NumElements()
	if err != nil {
		return 0
	}
	flops, _ := tensor.MulBytes(n, k)
	return flops
}

// readFLOPs counts one for each element of the operand.
func readFLOPs(in, _ []Spec, _ Attrs) int64 {
	n, _ := in[0].Shape.NumElements()
	return n
}

func adaptivePoolShape(in []Spec, a Attrs) ([]Spec, error) {
	if len(in) != 1 {
		return nil, fmt.Errorf("%d operands", len(in))
	}
	x := in[0]
	rank, err := spatial(x, len(a.Ints("size")))
	if err != nil {
		return nil, err
	}
	size, err := windowAttr(a, "size", rank, 0)
	if err != nil {
		return nil, err
	}
	for _, n := range x.Shape[2:] {
		if n < 1 || n > maxWindow {
			return nil, fmt.Errorf("adaptive pool of %v", x.Shape)
		}
	}
	out := Spec{DType: x.DType, Shape: append(tensor.Shape{x.Shape[0], x.Shape[1]}, size...)}
	if a.Bool("indices") {
		return []Spec{out, {DType: tensor.Int64, Shape: out.Shape}}, nil
	}
	return []Spec{out}, nil
}

func maxUnpoolShape(in []Spec, a Attrs) ([]Spec, error) {
	if len(in) != 2 || in[1].DType != tensor.Int64 || !in[0].Shape.Equal(in[1].Shape) {
		return nil, fmt.Errorf("values and indices %v", in)
	}
	x := in[0]
	rank, err := spatial(x, len(a.Ints("size")))
	if err != nil {
		return nil, err
	}
	size, err := windowAttr(a, "size", rank, 0)
	if err != nil {
		return nil, err
	}
	return []Spec{{DType: x.DType, Shape: append(tensor.Shape{x.Shape[0], x.Shape[1]}, size...)}}, nil
}
