package torchvision

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/layers"
)

// convnexts are ConvNeXt of any depth and width: torchvision/models/convnext.py.
var convnexts = &family{
	classes: layers.Classes{
		"torchvision.models.convnext.ConvNeXt": layers.Unary(
			func(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
				for _, name := range []string{"features", "avgpool", "classifier"} {
					x = t.Child(m, name, x)
				}
				return x
			}),
		"torchvision.models.convnext.CNBlock": layers.Unary(
			func(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
				result := t.Op("mul.Tensor", t.Param(m, "layer_scale"), t.Child(m, "block", x))
				return t.Op("add_.Tensor", t.Child(m, "stochastic_depth", result), x)
			}),
		"torchvision.models.convnext.LayerNorm2d": layers.Unary(
			func(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
				x = t.Op("permute", x, []int{0, 2, 3, 1})
				x = t.Op(
					"layer_norm", x, m.Ints("normalized_shape", 1), t.Param(m, "weight"), t.Param(m, "bias"),
					m.Float("eps"),
				)
				return t.Op("permute", x, []int{0, 3, 1, 2})
			}),
	},
	names: []string{"convnext_tiny", "convnext_small", "convnext_base", "convnext_large"},
	make: func(name string, o Options) *layers.Module {
		return convnextSizes[name].module(o.classes())
	},
	infer: inferConvnext,
}

// A convnext is the stages of one.
type convnext []convnextStage

// A convnextStage is a number of blocks of one width.
type convnextStage struct{ width, depth int }

var convnextSizes = map[string]convnext{
	"convnext_tiny":  {{96, 3}, {192, 3}, {384, 9}, {768, 3}},
	"convnext_small": {{96, 3}, {192, 3}, {384, 27}, {768, 3}},
	"convnext_base":  {{128, 3}, {256, 3}, {512, 27}, {1024, 3}},
	"convnext_large": {{192, 3}, {384, 3}, {768, 27}, {1536, 3}},
}

func (n convnext) module(classes int) *layers.Module {
	features := layers.Sequential(convNormActivation(3, n[0].width, 4, convnextNorm, nil,
		layers.Stride(4), layers.Padding(0), layers.Attr("bias", true)))
	for i, s := range n {
		if i > 0 {
			in := n[i-1].width
			appendTo(features, layers.Sequential(convnextNorm(in), layers.Conv2d(in, s.width, 2, layers.Stride(2))))
		}
		stage := layers.Sequential()
		for range s.depth {
			appendTo(stage, convnextBlock(s.width))
		}
		appendTo(features, stage)
	}
	last := n[len(n)-1].width
	return layers.New("torchvision.models.convnext.ConvNeXt", nil).
		Add("features", features).
		Add("avgpool", layers.AdaptiveAvgPool2d(1)).
		Add("classifier", layers.Sequential(convnextNorm(last), layers.Flatten(), layers.Linear(last, classes)))
}

// convnextNorm is LayerNorm2d: the channels of each pixel.
func convnextNorm(channels int) *layers.Module {
	m := layers.LayerNorm(channels, layers.Eps(1e-6))
	m.Class = "torchvision.models.convnext.LayerNorm2d"
	return m
}

func convnextBlock(width int) *layers.Module {
	return layers.New("torchvision.models.convnext.CNBlock", nil).
		Param("layer_scale", width, 1, 1).
		Add("block", layers.Sequential(
			layers.Conv2d(width, width, 7, layers.Padding(3), layers.Groups(width)),
			permute(0, 2, 3, 1),
			layers.LayerNorm(width, layers.Eps(1e-6)),
			layers.Linear(width, 4*width),
			layers.GELU("none"),
			layers.Linear(4*width, width),
			permute(0, 3, 1, 2))).
		Add("stochastic_depth", stochasticDepth(0.1))
}

func inferConvnext(s shapes) []candidate {
	var n convnext
	for i := 1; ; i += 2 {
		stage := convnextStage{
			s.size(fmt.Sprintf("features.%d.0.layer_scale", i), 0),
			s.count(fmt.Sprintf("features.%d.", i), ".layer_scale"),
		}
		if !positive(stage.width, stage.depth) {
			break
		}
		n = append(n, stage)
	}
	if len(n) == 0 {
		return nil
	}
	name := "convnext"
	for known, sizes := range convnextSizes {
		if slices.Equal(sizes, n) {
			name = known
		}
	}
	return []candidate{{name, n.module(s.classes("classifier.2.weight"))}}
}
