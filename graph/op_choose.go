package graph

import (
	"fmt"

	"github.com/optimem/optimem/tensor"
)

// chooseOps join the branches of conditionals.
var chooseOps = []OpDef{
	// choose: In[1] where In[0], one bool, is true, else In[2]. The other one is not read: it may be undefined.
	{Kind: "choose", Shape: chooseShape, FLOPs: noFLOPs, Axes: samePlace},
}

func chooseShape(in []Spec, _ Attrs) ([]Spec, error) {
	if len(in) != 3 || in[0].DType != tensor.Bool || len(in[0].Shape) != 0 {
		return nil, fmt.Errorf("a choice by %v", in)
	}
	if in[1].DType != in[2].DType || !in[1].Shape.Equal(in[2].Shape) {
		return nil, fmt.Errorf("a choice of %v %v and %v %v", in[1].DType, in[1].Shape, in[2].DType, in[2].Shape)
	}
	return []Spec{in[1]}, nil
}
