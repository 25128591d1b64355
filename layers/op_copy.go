package layers

import (
	"fmt"

	"github.com/optimem/optimem/tensor"
)

// copyOps move elements without looking at them.
var copyOps = []OpDef{
	// copy: the operand's elements in row-major order.
	{Kind: "copy", Shape: sameAsFirst, FLOPs: noFLOPs, Axes: samePlace},
	// write_view: In[0], a whole value, with the elements under attributes "shape", "strides", "offset" replaced by In[1].
	// [Batched] follows rows through it by these attributes.
	{Kind: "write_view", Shape: writeViewShape, FLOPs: noFLOPs, Axes: mixes},
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
