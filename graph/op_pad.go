package graph

import (
	"fmt"

	"github.com/optimem/optimem/tensor"
)

// padOps make tensors larger, or cut them where an amount is negative.
var padOps = []OpDef{
	// pad: attributes "before" and "after" have an amount for each dimension, "mode" is constant, reflect, replicate or
	// circular. In[1] is the element that a constant padding is made of; it is absent in other modes.
	{Kind: "pad", Shape: padShape, FLOPs: noFLOPs, Axes: padAxes},
}

func padShape(in []Spec, a Attrs) ([]Spec, error) {
	if len(in) != 2 {
		return nil, fmt.Errorf("%d operands", len(in))
	}
	x, value := in[0], in[1]
	rank := len(x.Shape)
	before, err := windowAttr(a, "before", rank, -maxWindow)
	if err != nil {
		return nil, err
	}
	after, err := windowAttr(a, "after", rank, -maxWindow)
	if err != nil {
		return nil, err
	}
	bad := func(why string) ([]Spec, error) {
		return nil, fmt.Errorf("input %v padded by %v before and %v after: %s", x.Shape, before, after, why)
	}
	mode := a.String("mode")
	if constant := mode == "constant"; constant != (value.DType != tensor.Invalid) {
		return bad("the value")
	} else if constant && (value.DType != x.DType || len(value.Shape) != 0) {
		return bad(fmt.Sprintf("a value of %v %v", value.DType, value.Shape))
	}
	shape := make(tensor.Shape, rank)
	for d, n := range x.Shape {
		if n > 1<<61 {
			return bad("size")
		}
		lo, hi := before[d], after[d]
		shape[d] = n + lo + hi
		most := max(lo, hi)
		switch mode {
		case "constant":
		case "reflect":
			if most > 0 && most >= n {
				return bad("a reflection is as large as the input")
			}
		case "replicate":
			if most > 0 && n == 0 {
				return bad("nothing to repeat")
			}
		case "circular":
			if most > n || (lo < 0 || hi < 0) && most > 0 {
				return bad("it would wrap around more than once")
			}
		default:
			return bad("mode " + mode)
		}
		if shape[d] < 0 || shape[d] == 0 && mode != "constant" && n > 0 {
			return bad("nothing is left")
		}
	}
	return []Spec{{DType: x.DType, Shape: shape}}, nil
}
