package graph

import (
	"fmt"
	"math"

	"github.com/optimem/optimem/tensor"
)

// An epilogue is what conv and linear do to their results before they write them. It is made by [Fuse]; no program
// has it.
//
//	conv:   product + bias → batch norm → + residual → activation
//	linear: product, × scales + bias → activation → + residual
//
// The operands have fixed places. A conv's In[3] to In[6] are the weight, bias, mean and variance of the batch norm, all of
// them or none, and attribute "eps" is there where they are. In[7] is what is added. A linear's In[3] is what is added.
// Attribute "act" names the activation; "act_a" and "act_b" are its numbers. A linear's
// In[4] are the scales of a weight of int8, which belong to its product. Operands that are absent at the end may be left
// out.
const (
	ConvNorm, ConvResidual       = 3, 7
	LinearResidual, LinearScales = 3, 4
)

// activations are the values of attribute "act", each as an elementwise op. a and b are its numbers.
var activations = map[string]func(a, b float64) (Kind, Attrs){
	"relu":        func(_, _ float64) (Kind, Attrs) { return "relu", nil },
	"relu6":       func(_, _ float64) (Kind, Attrs) { return "clamp", Attrs{"min": 0.0, "max": 6.0} },
	"hardtanh":    func(a, b float64) (Kind, Attrs) { return "clamp", Attrs{"min": a, "max": b} },
	"silu":        func(_, _ float64) (Kind, Attrs) { return "silu", nil },
	"hardswish":   func(_, _ float64) (Kind, Attrs) { return "hardswish", nil },
	"hardsigmoid": func(_, _ float64) (Kind, Attrs) { return "hardsigmoid", nil },
	"sigmoid":     func(_, _ float64) (Kind, Attrs) { return "sigmoid", nil },
	"tanh":        func(_, _ float64) (Kind, Attrs) { return "tanh", nil },
	"gelu":        func(_, _ float64) (Kind, Attrs) { return "gelu", Attrs{"approximate": "none"} },
	"gelu_tanh":   func(_, _ float64) (Kind, Attrs) { return "gelu", Attrs{"approximate": "tanh"} },
	"leaky_relu":  func(a, _ float64) (Kind, Attrs) { return "leaky_relu", Attrs{"slope": a} },
	"elu": func(a, _ float64) (Kind, Attrs) {
		return "elu", Attrs{"alpha": a, "scale": 1.0, "input_scale": 1.0}
	},
}

// Activation returns the elementwise op that the attributes of a conv or a linear name, "" for none.
func Activation(a Attrs) (Kind, Attrs) {
	name := a.String("act")
	if name == "" {
		return "", nil
	}
	return activations[name](a.Float("act_a"), a.Float("act_b"))
}

// ActivationOf returns the attributes that name an elementwise op as an activation, false where it is none.
func ActivationOf(op *Op) (Attrs, bool) {
	switch op.Kind {
	case "relu", "silu", "hardswish", "hardsigmoid", "sigmoid", "tanh":
		return Attrs{"act": string(op.Kind)}, true
	case "gelu":
		if op.Attrs.String("approximate") == "tanh" {
			return Attrs{"act": "gelu_tanh"}, true
		}
		return Attrs{"act": "gelu"}, true
	case "leaky_relu":
		return Attrs{"act": "leaky_relu", "act_a": op.Attrs.Float("slope")}, true
	case "elu":
		a := op.Attrs
		return Attrs{"act": "elu", "act_a": a.Float("alpha")}, a.Float("scale") == 1 && a.Float("input_scale") == 1
	case "clamp":
		low, high := op.Attrs.Float("min"), op.Attrs.Float("max")
		switch {
		case low == 0 && high == 6:
			return Attrs{"act": "relu6"}, true
		case low == 0 && math.IsInf(high, 1):
			return Attrs{"act": "relu"}, true
		}
		return Attrs{"act": "hardtanh", "act_a": low, "act_b": high}, !math.IsNaN(low) && !math.IsNaN(high)
	}
	return nil, false
}

// HasScales reports whether a linear's weight is int8 with scales.
func HasScales(in []Spec) bool {
	return given(in, LinearScales) && in[1].DType == tensor.Int8 && in[0].DType != tensor.Int8
}

// HasEpilogue reports whether a conv or a linear does more than its product and its bias.
func HasEpilogue(in []Spec, a Attrs) bool {
	for k := 3; k < len(in); k++ {
		if given(in, k) && !(k == LinearScales && HasScales(in)) {
			return true
		}
	}
	return a.String("act") != ""
}

// wantEpilogue returns an error unless the epilogue of a conv or linear fits its result.
func wantEpilogue(in []Spec, a Attrs, out Spec, residual int) error {
	if !HasEpilogue(in, a) {
		return nil
	}
	if !isFloat(out.DType) {
		return fmt.Errorf("%w: an epilogue of %v", ErrDType, out.DType)
	}
	if act := a.String("act"); act != "" && activations[act] == nil {
		return fmt.Errorf("no activation %q", act)
	}
	if given(in, residual) && (in[residual].DType != out.DType || !in[residual].Shape.Equal(out.Shape)) {
		return fmt.Errorf("%v %v is added to %v %v", in[residual].DType, in[residual].Shape, out.DType, out.Shape)
	}
	if residual == LinearResidual {
		return nil
	}
	_, normed := a["eps"]
	for k := ConvNorm; k < ConvResidual; k++ {
		switch {
		case given(in, k) != normed:
			return fmt.Errorf("a batch norm with an operand too many or missing")
		case normed && (in[k].DType != out.DType || !in[k].Shape.Equal(tensor.Shape{out.Shape[1]})):
			return fmt.Errorf("%v %v normalises channels of %v %v", in[k].DType, in[k].Shape, out.DType, out.Shape)
		}
	}
	return nil
}

// epilogueFLOPs counts what an epilogue does.
func epilogueFLOPs(in []Spec, a Attrs, out Spec, residual int) int64 {
	var each int64
	if residual == ConvResidual && given(in, ConvNorm) {
		each += 2
	}
	if given(in, residual) {
		each++
	}
	if a.String("act") != "" {
		each++
	}
	return product(each, Elements(out.Shape))
}
