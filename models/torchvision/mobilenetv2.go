package torchvision

import (
	"fmt"

	"github.com/optimem/optimem/layers"
)

// mobilenetsV2 are MobileNet v2 of any width: torchvision/models/mobilenetv2.py.
var mobilenetsV2 = &family{
	classes: layers.Classes{
		"torchvision.models.mobilenetv2.MobileNetV2": layers.Unary(
			func(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
				x = t.Op("adaptive_avg_pool2d", t.Child(m, "features", x), []int{1, 1})
				return t.Child(m, "classifier", t.Op("flatten.using_ints", x, 1))
			}),
		"torchvision.models.mobilenetv2.InvertedResidual": layers.Unary(
			func(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
				if m.Bool("use_res_connect") {
					return t.Op("add.Tensor", x, t.Child(m, "conv", x))
				}
				return t.Child(m, "conv", x)
			}),
	},
	names: []string{"mobilenet_v2"},
	make: func(_ string, o Options) *layers.Module {
		return mobilenetV2{32, [7]int{16, 24, 32, 64, 96, 160, 320}, 1280}.module(o.classes())
	},
	infer: inferMobilenetV2,
}

// A mobilenetV2 is the widths of one: of the first convolution, of the stages and of the last convolution. Its depth
// is always the same.
type mobilenetV2 struct {
	first  int
	stages [7]int
	last   int
}

// mobilenetV2Stages are how much wider a stage is inside, its number of blocks, and its stride.
var mobilenetV2Stages = [7]struct{ expansion, depth, stride int }{
	{1, 1, 1}, {6, 2, 2}, {6, 3, 2}, {6, 4, 2}, {6, 3, 1}, {6, 3, 2}, {6, 1, 1},
}

func (v mobilenetV2) module(classes int) *layers.Module {
	features := layers.Sequential(convNormActivation(3, v.first, 3, batchNorm, layers.ReLU6, layers.Stride(2)))
	in := v.first
	for i, stage := range mobilenetV2Stages {
		stride := stage.stride
		for range stage.depth {
			appendTo(features, mobilenetV2Block(in, v.stages[i], stride, stage.expansion))
			in, stride = v.stages[i], 1
		}
	}
	appendTo(features, convNormActivation(in, v.last, 1, batchNorm, layers.ReLU6))
	return layers.New("torchvision.models.mobilenetv2.MobileNetV2", nil).
		Add("features", features).
		Add("classifier", layers.Sequential(layers.Dropout(0.2), layers.Linear(v.last, classes)))
}

func mobilenetV2Block(in, out, stride, expansion int) *layers.Module {
	conv, hidden := layers.Sequential(), in*expansion
	if expansion != 1 {
		appendTo(conv, convNormActivation(in, hidden, 1, batchNorm, layers.ReLU6))
	}
	appendTo(conv, convNormActivation(hidden, hidden, 3, batchNorm, layers.ReLU6,
		layers.Stride(stride), layers.Groups(hidden)))
	appendTo(conv, layers.Conv2d(hidden, out, 1, layers.NoBias))
	appendTo(conv, layers.BatchNorm2d(out))
	return layers.New("torchvision.models.mobilenetv2.InvertedResidual", map[string]any{
		"stride": stride, "use_res_connect": stride == 1 && in == out,
	}).Add("conv", conv)
}

func inferMobilenetV2(s shapes) []candidate {
	if s.size("features.1.conv.0.0.weight", 0) == 0 {
		return nil
	}
	v := mobilenetV2{first: s.size("features.0.0.weight", 0), last: s.size("features.18.0.weight", 0)}
	at, project := 1, "conv.1.weight"
	for i, stage := range mobilenetV2Stages {
		v.stages[i] = s.size(fmt.Sprintf("features.%d.%s", at, project), 0)
		at, project = at+stage.depth, "conv.2.weight"
	}
	if !positive(v.first, v.stages[:]...) {
		return nil
	}
	return []candidate{{"mobilenet_v2", v.module(s.classes("classifier.1.weight"))}}
}
