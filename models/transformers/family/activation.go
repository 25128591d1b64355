package family

import (
	"math"

	"github.com/optimem/optimem/layers"
)

// Activation returns the module of a name in transformers' ACT2FN.
func (c *Config) Activation(name string) *layers.Module {
	class, ok := activations[name]
	if !ok {
		c.Unsupported("activation " + name)
		return layers.Identity()
	}
	return layers.New(class, nil)
}

// activations are the classes of ACT2FN that take no parameters.
var activations = map[string]string{
	"gelu":              "transformers.activations.GELUActivation",
	"gelu_new":          "transformers.activations.NewGELUActivation",
	"gelu_fast":         "transformers.activations.FastGELUActivation",
	"gelu_pytorch_tanh": "transformers.activations.GELUTanh",
	"gelu_accurate":     "transformers.activations.AccurateGELUActivation",
	"quick_gelu":        "transformers.activations.QuickGELUActivation",
	"linear":            "transformers.activations.LinearActivation",
	"relu2":             "transformers.activations.ReLUSquaredActivation",
	"silu":              "transformers.activations.SiLUActivation",
	"swish":             "transformers.activations.SiLUActivation",
	"relu":              "torch.nn.modules.activation.ReLU",
	"tanh":              "torch.nn.modules.activation.Tanh",
	"sigmoid":           "torch.nn.modules.activation.Sigmoid",
}

// SharedClasses are those that several families use.
var SharedClasses = layers.Classes{
	"transformers.activations.GELUActivation": layers.Unary(
		func(t *layers.Trace, _ *layers.Module, x layers.Tensor) layers.Tensor { return t.Op("gelu", x) }),
	"transformers.activations.GELUTanh": layers.Unary(
		func(t *layers.Trace, _ *layers.Module, x layers.Tensor) layers.Tensor {
			return t.Op("gelu", x, layers.Named{"approximate": "tanh"})
		}),
	"transformers.activations.SiLUActivation": layers.Unary(
		func(t *layers.Trace, _ *layers.Module, x layers.Tensor) layers.Tensor { return t.Op("silu", x) }),
	"transformers.activations.LinearActivation": layers.Unary(
		func(_ *layers.Trace, _ *layers.Module, x layers.Tensor) layers.Tensor { return x }),
	"transformers.activations.ReLUSquaredActivation": layers.Unary(
		func(t *layers.Trace, _ *layers.Module, x layers.Tensor) layers.Tensor {
			return t.Op("square", t.Op("relu", x))
		}),
	"transformers.activations.QuickGELUActivation": layers.Unary(
		func(t *layers.Trace, _ *layers.Module, x layers.Tensor) layers.Tensor {
			return t.Op("mul.Tensor", x, t.Op("sigmoid", t.Op("mul.Tensor", x, 1.702)))
		}),
	"transformers.activations.NewGELUActivation":      layers.Unary(cubicGELU(3.0)),
	"transformers.activations.AccurateGELUActivation": layers.Unary(cubicGELU(3)),
	"transformers.activations.FastGELUActivation": layers.Unary(
		func(t *layers.Trace, _ *layers.Module, x layers.Tensor) layers.Tensor {
			half := t.Op("mul.Tensor", x, 0.5)
			scaled := t.Op("mul.Tensor", x, 0.7978845608)
			square := t.Op("mul.Tensor", t.Op("mul.Tensor", x, 0.044715), x)
			inner := t.Op("mul.Tensor", scaled, t.Op("add.Tensor", square, 1.0))
			return t.Op("mul.Tensor", half, t.Op("add.Tensor", t.Op("tanh", inner), 1.0))
		}),
}

// cubicGELU is 0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))), op by op. The exponent is of either of Python's types of
// number.
func cubicGELU(exponent any) func(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	return func(t *layers.Trace, _ *layers.Module, x layers.Tensor) layers.Tensor {
		half := t.Op("mul.Tensor", x, 0.5)
		cube := t.Op("mul.Tensor", t.Op("pow.Tensor_Scalar", x, exponent), 0.044715)
		inner := t.Op("mul.Tensor", t.Op("add.Tensor", x, cube), math.Sqrt(2/math.Pi))
		return t.Op("mul.Tensor", half, t.Op("add.Tensor", t.Op("tanh", inner), 1.0))
	}
}
