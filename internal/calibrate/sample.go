package calibrate

import (
	"slices"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// A sample is an op in a size that models have it in.
type sample struct {
	kind  layers.Kind
	in    []tensor.Shape
	attrs layers.Attrs
	// alike are kinds that are taken to be as fast.
	alike []layers.Kind
}

// picture is what convolutions and pools see in the middle of a network, sequence what transformers do.
var (
	picture  = tensor.Shape{1, 64, 56, 56}
	channels = tensor.Shape{64}
	sequence = tensor.Shape{1, 128, 768}
	features = tensor.Shape{768}
	scores   = tensor.Shape{12, 128, 128}
	mean     = layers.Attrs{"dims": []int{2}, "dtype": tensor.Float32}
)

// samples are measured, in turn. Of a kind that is there several times, all count.
var samples = []sample{
	{kind: "linear", in: []tensor.Shape{{128, 768}, {768, 768}, features}, alike: []layers.Kind{"grouped_matmul"}},
	{kind: "matmul", in: []tensor.Shape{{12, 128, 64}, {12, 64, 128}}},
	{kind: "conv", in: []tensor.Shape{picture, {64, 64, 3, 3}, channels}, attrs: window(3, 1)},
	{kind: "conv", in: []tensor.Shape{{1, 256, 28, 28}, {128, 256, 1, 1}, nil}, attrs: window(1, 0)},
	{
		kind: "scaled_dot_product_attention", in: []tensor.Shape{{1, 12, 128, 64}, {1, 12, 128, 64}, {1, 12, 128, 64}},
		attrs: layers.Attrs{"scale": 0.125},
	},
	{kind: "layer_norm", in: []tensor.Shape{sequence, features, features}, attrs: layers.Attrs{"dims": 1, "eps": 1e-5}},
	{kind: "rms_norm", in: []tensor.Shape{sequence, features}, attrs: layers.Attrs{"dims": 1, "eps": 1e-5}},
	{kind: "group_norm", in: []tensor.Shape{picture, channels, channels}, attrs: layers.Attrs{"groups": 32, "eps": 1e-5}},
	{
		kind: "batch_norm", in: []tensor.Shape{picture, channels, channels, channels, channels},
		attrs: layers.Attrs{"eps": 1e-5},
	},
	{kind: "softmax", in: []tensor.Shape{scores}, attrs: layers.Attrs{"dim": 2}, alike: []layers.Kind{"log_softmax"}},
	{kind: "max_pool", in: []tensor.Shape{picture}, attrs: window(3, 1)},
	{kind: "avg_pool", in: []tensor.Shape{picture}, attrs: window(3, 1)},
	{kind: "adaptive_avg_pool", in: []tensor.Shape{picture}, attrs: layers.Attrs{"size": []int{1, 1}}},
	{kind: "mean", in: []tensor.Shape{sequence}, attrs: mean, alike: []layers.Kind{"sum", "amax"}},
	{kind: "relu", in: []tensor.Shape{picture}, alike: []layers.Kind{
		"abs", "neg", "square", "clamp", "leaky_relu", "hardswish", "hardsigmoid", "maximum", "minimum",
	}},
	{kind: "add", in: []tensor.Shape{picture, picture}, alike: []layers.Kind{"sub", "mul"}},
	{kind: "div", in: []tensor.Shape{sequence, sequence}, alike: []layers.Kind{"reciprocal", "sqrt", "rsqrt"}},
	{kind: "gelu", in: []tensor.Shape{sequence}, attrs: layers.Attrs{"approximate": "none"}},
	{kind: "silu", in: []tensor.Shape{sequence}},
	{kind: "sigmoid", in: []tensor.Shape{sequence}},
	{kind: "tanh", in: []tensor.Shape{sequence}, alike: []layers.Kind{"mish", "softplus"}},
	{kind: "exp", in: []tensor.Shape{sequence}, alike: []layers.Kind{"exp2", "expm1", "log", "log2", "log1p"}},
	{kind: "erf", in: []tensor.Shape{sequence}, alike: []layers.Kind{"erfc"}},
	{kind: "cos", in: []tensor.Shape{sequence}, alike: []layers.Kind{"sin", "tan"}},
	{kind: "pow", in: []tensor.Shape{sequence, sequence}},
}

// Kinds returns the kinds of ops that are measured; others are taken to be as fast as one of them.
func Kinds() []layers.Kind {
	var kinds []layers.Kind
	for _, s := range samples {
		if !slices.Contains(kinds, s.kind) {
			kinds = append(kinds, s.kind)
		}
	}
	return kinds
}

// window returns the attributes of a convolution or a pool.
func window(kernel, padding int) layers.Attrs {
	return layers.Attrs{
		"kernel": []int{kernel, kernel}, "stride": []int{1, 1}, "padding": []int{padding, padding},
		"dilation": []int{1, 1}, "groups": 1,
	}
}
