package torchvision

import (
	"slices"
	"strconv"

	"github.com/optimem/optimem/layers"
)

// blockClasses are the classes of torchvision/ops that the models are built from.
var blockClasses = layers.Classes{
	"torchvision.ops.misc.ConvNormActivation":   layers.Unary((*layers.Trace).Each),
	"torchvision.ops.misc.Conv2dNormActivation": layers.Unary((*layers.Trace).Each),
	"torchvision.ops.misc.Conv3dNormActivation": layers.Unary((*layers.Trace).Each),
	"torchvision.ops.misc.MLP":                  layers.Unary((*layers.Trace).Each),
	"torchvision.ops.misc.SqueezeExcitation":    layers.Unary(squeezeExcitationForward),
	"torchvision.ops.misc.Permute": layers.Unary(func(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
		return t.Op("permute", x, m.Ints("dims", len(x.Shape())))
	}),
	"torchvision.ops.misc.FrozenBatchNorm2d":           layers.Unary(frozenBatchNormForward),
	"torchvision.ops.stochastic_depth.StochasticDepth": layers.Unary(same),
}

// same is the forward of what only training needs.
func same(_ *layers.Trace, _ *layers.Module, x layers.Tensor) layers.Tensor { return x }

// A normLayer makes a normalization of so many channels, an activation makes one that may work in place.
type (
	normLayer  func(channels int) *layers.Module
	activation func(opts ...layers.Option) *layers.Module
)

// batchNorm is the normalization of most models.
func batchNorm(channels int) *layers.Module { return layers.BatchNorm2d(channels) }

// batchNormEps is the one with another epsilon.
func batchNormEps(eps float64) normLayer {
	return func(channels int) *layers.Module { return layers.BatchNorm2d(channels, layers.Eps(eps)) }
}

// convNormActivation is Conv2dNormActivation, without the normalization or the activation where those are nil. Its
// padding keeps the size of the picture at stride 1, and it has a bias where nothing normalizes; options say otherwise.
func convNormActivation(in, out, kernel int, norm normLayer, act activation, opts ...layers.Option) *layers.Module {
	given := map[string]any{"dilation": 1}
	for _, o := range opts {
		o(given)
	}
	dilation, _ := given["dilation"].(int)
	defaults := []layers.Option{layers.Padding((kernel - 1) / 2 * dilation)}
	if norm != nil {
		defaults = append(defaults, layers.NoBias)
	}
	m := numbered("torchvision.ops.misc.Conv2dNormActivation",
		layers.Conv2d(in, out, kernel, append(defaults, opts...)...))
	if norm != nil {
		appendTo(m, norm(out))
	}
	if act != nil {
		appendTo(m, act(layers.InPlace))
	}
	return m
}

// squeezeExcitation is SqueezeExcitation: a factor for each channel, from the mean of all of them.
func squeezeExcitation(channels, squeezed int, act, scale *layers.Module) *layers.Module {
	return layers.New("torchvision.ops.misc.SqueezeExcitation", nil).
		Add("avgpool", layers.AdaptiveAvgPool2d(1)).
		Add("fc1", layers.Conv2d(channels, squeezed, 1)).
		Add("fc2", layers.Conv2d(squeezed, channels, 1)).
		Add("activation", act).
		Add("scale_activation", scale)
}

func squeezeExcitationForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	scale := x
	for _, name := range []string{"avgpool", "fc1", "activation", "fc2", "scale_activation"} {
		scale = t.Child(m, name, scale)
	}
	return t.Op("mul.Tensor", scale, x)
}

// mlp is MLP: linear layers with an activation after each but the last.
func mlp(in int, hidden []int, act activation, dropout float64) *layers.Module {
	m := numbered("torchvision.ops.misc.MLP")
	for i, out := range hidden {
		appendTo(m, layers.Linear(in, out))
		if i < len(hidden)-1 {
			appendTo(m, act())
		}
		appendTo(m, layers.Dropout(dropout))
		in = out
	}
	return m
}

// permute is Permute.
func permute(dims ...int) *layers.Module {
	return layers.New("torchvision.ops.misc.Permute", map[string]any{"dims": dims})
}

// stochasticDepth is StochasticDepth, which does nothing when a model is evaluated.
func stochasticDepth(p float64) *layers.Module {
	return layers.New("torchvision.ops.stochastic_depth.StochasticDepth", map[string]any{"p": p, "mode": "row"})
}

func frozenBatchNormForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	channels := func(name string) layers.Tensor {
		return t.Op("reshape", t.Param(m, name), []int{1, -1, 1, 1})
	}
	w, b := channels("weight"), channels("bias")
	variance, mean := channels("running_var"), channels("running_mean")
	scale := t.Op("mul.Tensor", w, t.Op("rsqrt", t.Op("add.Tensor", variance, m.Float("eps"))))
	bias := t.Op("sub.Tensor", b, t.Op("mul.Tensor", mean, scale))
	return t.Op("add.Tensor", t.Op("mul.Tensor", x, scale), bias)
}

// numbered makes a module of a subclass of Sequential.
func numbered(class string, children ...*layers.Module) *layers.Module {
	m := layers.Sequential(children...)
	m.Class = class
	return m
}

// appendTo adds a child under the next number, as append of a Sequential does.
func appendTo(m *layers.Module, child *layers.Module) *layers.Module {
	return m.Add(strconv.Itoa(len(m.Children)), child)
}

// divisible is _make_divisible: the multiple of 8 nearest to v that is not more than a tenth below it.
func divisible(v float64) int {
	n := max(8, int(v+4)/8*8)
	if float64(n) < 0.9*v {
		n += 8
	}
	return n
}

// inPlaceDropout is a Dropout that may overwrite its input, which evaluation does not do.
func inPlaceDropout(p float64) *layers.Module {
	m := layers.Dropout(p)
	m.Attrs["inplace"] = true
	return m
}

// positive reports whether all sizes that were read off a state dict are there.
func positive(size int, sizes ...int) bool {
	return size > 0 && !slices.ContainsFunc(sizes, func(n int) bool { return n <= 0 })
}
