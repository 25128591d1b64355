package graph

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/tensor"
)

// copyOps move elements without looking at them.
var copyOps = []OpDef{
	// copy: the operand's elements in row-major order.
	{Kind: "copy", Shape: sameAsFirst, FLOPs: noFLOPs, Axes: samePlace},
	// bitcast: the bytes of the operand's elements in row-major order, as elements of attribute "dtype". Where these have
	// another size the last dimension is as much longer or shorter.
	{Kind: "bitcast", Shape: bitcastShape, FLOPs: noFLOPs, Axes: bitcastAxes},
	// write_view: In[0], a whole value, with the elements under attributes "shape", "strides", "offset" replaced by In[1].
	// [Batched] follows rows through it by these attributes.
	{Kind: "write_view", Shape: writeViewShape, FLOPs: noFLOPs, Axes: mixes},
}

func bitcastShape(in []Spec, a Attrs) ([]Spec, error) {
	to := a.DType("dtype")
	if len(in) != 1 || in[0].DType.Size() == 0 || to.Size() == 0 {
		return nil, fmt.Errorf("%v as %v", in, to)
	}
	from, shape := in[0].DType.Size(), slices.Clone(in[0].Shape)
	if from == to.Size() {
		return []Spec{{DType: to, Shape: shape}}, nil
	}
	last := len(shape) - 1
	if last < 0 {
		return nil, fmt.Errorf("%v without dimensions as %v", in[0].DType, to)
	}
	bytes, ok := tensor.MulBytes(int64(shape[last]), int64(from))
	if !ok || bytes%int64(to.Size()) != 0 {
		return nil, fmt.Errorf("%d elements of %v as %v", shape[last], in[0].DType, to)
	}
	shape[last] = int(bytes / int64(to.Size()))
	return []Spec{{DType: to, Shape: shape}}, nil
}

// bitcastAxes keeps the dimensions before the last, and that where elements stay elements.
func bitcastAxes(in, out []Spec, _ Attrs) [][]int {
	axes := axesOf(in)
	n := len(axes[0])
	if in[0].DType.Size() != out[0].DType.Size() {
		n = max(n-1, 0)
	}
	keep(axes[0], 0, n, 0)
	return axes
}

func noFLOPs(_, _ []Spec, _ Attrs) int64 { return 0 }

func writeViewShape(in []Spec, a Attrs) ([]Spec, error) {
	if len(in) != 2 || in[0].DType != in[1].DType {
		return nil, fmt.Errorf("write of %v", in)
	}
	l := tensor.Layout{Shape: a.Ints("shape"), Strides: a.Ints("strides"), Offset: a.Int("offset")}
	_, end, err := l.Span()
	if err != nil {
		return nil, err
	}
	written, err := l.NumElements()
	if err != nil {
		return nil, err
	}
	if n, err := in[0].Shape.NumElements(); err != nil || written > 0 && end > n || !l.Shape.Equal(in[1].Shape) {
		return nil, fmt.Errorf("view %v of %v does not take %v", l, in[0].Shape, in[1].Shape)
	}
	return []Spec{in[0]}, nil
}
