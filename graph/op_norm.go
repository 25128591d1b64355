package graph

import (
	"fmt"

	"github.com/optimem/optimem/tensor"
)

// normOps scale elements by statistics of their neighbours. All have attribute "eps", which is added to the variance
// before its root is taken. Weights and biases may be absent and may be of float32 beside half precision.
var normOps = []OpDef{
	// layer_norm: (In[0] − mean) ÷ √(var + eps) × In[1] + In[2] over the last "dims" dimensions, whose sizes the weight
	// and bias have.
	{Kind: "layer_norm", Shape: layerNormShape(3), FLOPs: normFLOPs(7), Axes: layerNormAxes},
	// rms_norm: In[0] ÷ √(mean of squares + eps) × In[1] over the last "dims" dimensions.
	{Kind: "rms_norm", Shape: layerNormShape(2), FLOPs: normFLOPs(4), Axes: layerNormAxes},
	// group_norm: layer_norm of In[0] [N C …] over each of "groups" equal parts of the channels; In[1] and In[2] [C].
	{Kind: "group_norm", Shape: groupNormShape, FLOPs: normFLOPs(7), Axes: leading(1, 0)},
	// batch_norm: (In[0] − In[3]) ÷ √(In[4] + eps) × In[1] + In[2], where In[0] is [N C …] and the others are [C].
	{Kind: "batch_norm", Shape: batchNormShape, FLOPs: normFLOPs(2), Axes: batchNormAxes},
}

func normFLOPs(n int64) func(in, out []Spec, a Attrs) int64 {
	return func(in, _ []Spec, _ Attrs) int64 { return product(n, Elements(in[0].Shape)) }
}

// wantParameters returns an error unless the operands after the first are absent or have the given shape and a dtype
// that goes with the first's.
func wantParameters(in []Spec, shape tensor.Shape) error {
	for _, s := range in[1:] {
		if s.DType == tensor.Invalid {
			continue
		}
		if !s.Shape.Equal(shape) || s.DType != in[0].DType && !(in[0].DType.IsHalf() && s.DType == tensor.Float32) {
			return fmt.Errorf("%v %v does not take a parameter of %v %v", in[0].DType, in[0].Shape, s.DType, s.Shape)
		}
	}
	return nil
}

func layerNormShape(most int) func(in []Spec, a Attrs) ([]Spec, error) {
	return func(in []Spec, a Attrs) ([]Spec, error) {
		if err := wantOperands(in, 1, most); err != nil {
			return nil, err
		}
		n := a.Int("dims")
		rank := len(in[0].Shape)
		if n < 1 || n > rank {
			return nil, fmt.Errorf("the last %d dimensions of %v", n, in[0].Shape)
		}
		if err := wantParameters(in, in[0].Shape[rank-n:]); err != nil {
			return nil, err
		}
		return in[:1], wantClass(in[0], isFloat)
	}
}

func groupNormShape(in []Spec, a Attrs) ([]Spec, error) {
	if err := wantOperands(in, 1, 3); err != nil {
		return nil, err
	}
	s, groups := in[0].Shape, a.Int("groups")
	if len(s) < 2 || groups < 1 || s[1]%groups != 0 {
		return nil, fmt.Errorf("%d groups of channels of %v", groups, s)
	}
	if err := wantParameters(in, s[1:2]); err != nil {
		return nil, err
	}
	return in[:1], wantClass(in[0], isFloat)
}

func batchNormShape(in []Spec, _ Attrs) ([]Spec, error) {
	if err := wantOperands(in, 1, 5); err != nil {
		return nil, err
	}
	if len(in) < 5 || !given(in, 3) || !given(in, 4) {
		return nil, fmt.Errorf("no mean and variance")
	}
	s := in[0].Shape
	if len(s) < 2 {
		return nil, fmt.Errorf("%v has no channels", s)
	}
	if err := wantParameters(in, s[1:2]); err != nil {
		return nil, err
	}
	return in[:1], wantClass(in[0], isFloat)
}
