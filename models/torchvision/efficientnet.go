package torchvision

import (
	"fmt"
	"math"
	"slices"

	"github.com/optimem/optimem/layers"
)

// efficientnets are EfficientNet, the first version and the second, of any depth and width:
// torchvision/models/efficientnet.py. Strides are those of the published ones.
var efficientnets = &family{
	classes: layers.Classes{
		"torchvision.models.efficientnet.EfficientNet": layers.Unary(featuresForward),
		"torchvision.models.efficientnet.MBConv":       layers.Unary(blockForward),
		"torchvision.models.efficientnet.FusedMBConv":  layers.Unary(blockForward),
	},
	names: []string{
		"efficientnet_b0", "efficientnet_b1", "efficientnet_b2", "efficientnet_b3", "efficientnet_b4",
		"efficientnet_b5",
		"efficientnet_b6", "efficientnet_b7", "efficientnet_v2_s", "efficientnet_v2_m", "efficientnet_v2_l",
	},
	make: func(name string, o Options) *layers.Module {
		return efficientnetSizes[name].module(o.classes())
	},
	infer: inferEfficientnet,
	note: func(name string) string {
		if name == "efficientnet" {
			return "strides, and what normalizations add to the variance, are taken to be those of the published ones"
		}
		return ""
	},
}

// An efficientnet is the sizes of one.
type efficientnet struct {
	stages []efficientnetStage
	// last is the width of the last convolution, eps what its normalizations add to the variance.
	last int
	eps  float64
}

// An efficientnetStage is the sizes of a stage. Expansion is how much wider its blocks are inside.
type efficientnetStage struct {
	fused     bool
	expansion float64
	kernel    int
	in, out   int
	depth     int
}

// efficientnetStrides are those of the stages, as far as there are stages.
var efficientnetStrides = []int{1, 2, 2, 2, 1, 2, 1}

var efficientnetSizes = map[string]efficientnet{
	"efficientnet_b0": efficientnetB(1, 1, 1e-5),
	"efficientnet_b1": efficientnetB(1, 1.1, 1e-5),
	"efficientnet_b2": efficientnetB(1.1, 1.2, 1e-5),
	"efficientnet_b3": efficientnetB(1.2, 1.4, 1e-5),
	"efficientnet_b4": efficientnetB(1.4, 1.8, 1e-5),
	"efficientnet_b5": efficientnetB(1.6, 2.2, 1e-3),
	"efficientnet_b6": efficientnetB(1.8, 2.6, 1e-3),
	"efficientnet_b7": efficientnetB(2, 3.1, 1e-3),
	"efficientnet_v2_s": {[]efficientnetStage{
		{true, 1, 3, 24, 24, 2}, {true, 4, 3, 24, 48, 4}, {true, 4, 3, 48, 64, 4},
		{false, 4, 3, 64, 128, 6}, {false, 6, 3, 128, 160, 9}, {false, 6, 3, 160, 256, 15},
	}, 1280, 1e-3},
	"efficientnet_v2_m": {[]efficientnetStage{
		{true, 1, 3, 24, 24, 3}, {true, 4, 3, 24, 48, 5}, {true, 4, 3, 48, 80, 5},
		{false, 4, 3, 80, 160, 7}, {false, 6, 3, 160, 176, 14}, {false, 6, 3, 176, 304, 18}, {false, 6, 3, 304, 512, 5},
	}, 1280, 1e-3},
	"efficientnet_v2_l": {[]efficientnetStage{
		{true, 1, 3, 32, 32, 4}, {true, 4, 3, 32, 64, 7}, {true, 4, 3, 64, 96, 7},
		{false, 4, 3, 96, 192, 10}, {false, 6, 3, 192, 224, 19}, {false, 6, 3, 224, 384, 25},
		{false, 6, 3, 384, 640, 7},
	}, 1280, 1e-3},
}

// efficientnetB is the first version, scaled in width and depth.
func efficientnetB(width, depth, eps float64) efficientnet {
	e := efficientnet{eps: eps}
	for _, s := range []efficientnetStage{
		{false, 1, 3, 32, 16, 1}, {false, 6, 3, 16, 24, 2}, {false, 6, 5, 24, 40, 2}, {false, 6, 3, 40, 80, 3},
		{false, 6, 5, 80, 112, 3}, {false, 6, 5, 112, 192, 4}, {false, 6, 3, 192, 320, 1},
	} {
		s.in, s.out = divisible(float64(s.in)*width), divisible(float64(s.out)*width)
		s.depth = int(math.Ceil(float64(s.depth) * depth))
		e.stages, e.last = append(e.stages, s), 4*s.out
	}
	return e
}

func (e efficientnet) module(classes int) *layers.Module {
	norm := batchNormEps(e.eps)
	features := layers.Sequential(convNormActivation(3, e.stages[0].in, 3, norm, layers.SiLU, layers.Stride(2)))
	for i, s := range e.stages {
		stage, stride := layers.Sequential(), 1
		if i < len(efficientnetStrides) {
			stride = efficientnetStrides[i]
		}
		in := s.in
		for range s.depth {
			appendTo(stage, s.block(in, stride, norm))
			in, stride = s.out, 1
		}
		appendTo(features, stage)
	}
	appendTo(features, convNormActivation(e.stages[len(e.stages)-1].out, e.last, 1, norm, layers.SiLU))
	return layers.New("torchvision.models.efficientnet.EfficientNet", nil).
		Add("features", features).
		Add("avgpool", layers.AdaptiveAvgPool2d(1)).
		Add("classifier", layers.Sequential(inPlaceDropout(0.2), layers.Linear(e.last, classes)))
}

func (s efficientnetStage) block(in, stride int, norm normLayer) *layers.Module {
	class, expanded, block := "MBConv", divisible(float64(in)*s.expansion), layers.Sequential()
	if s.fused {
		class = "FusedMBConv"
	}
	switch {
	case s.fused && expanded == in:
		appendTo(block, convNormActivation(in, s.out, s.kernel, norm, layers.SiLU, layers.Stride(stride)))
	case s.fused:
		appendTo(block, convNormActivation(in, expanded, s.kernel, norm, layers.SiLU, layers.Stride(stride)))
		appendTo(block, convNormActivation(expanded, s.out, 1, norm, nil))
	default:
		if expanded != in {
			appendTo(block, convNormActivation(in, expanded, 1, norm, layers.SiLU))
		}
		appendTo(block, convNormActivation(expanded, expanded, s.kernel, norm, layers.SiLU,
			layers.Stride(stride), layers.Groups(expanded)))
		appendTo(block, squeezeExcitation(expanded, max(1, in/4), layers.SiLU(layers.InPlace), layers.Sigmoid()))
		appendTo(block, convNormActivation(expanded, s.out, 1, norm, nil))
	}
	return layers.New("torchvision.models.efficientnet."+class, map[string]any{
		"use_res_connect": stride == 1 && in == s.out,
	}).Add("block", block).Add("stochastic_depth", stochasticDepth(0.2))
}

// inferEfficientnet reads the stages off the shapes. What the normalizations add is told by the widths: the wider ones
// of the first version and all of the second were published with 0.001.
func inferEfficientnet(s shapes) []candidate {
	if s.size("features.1.0.block.0.0.weight", 0) == 0 {
		return nil
	}
	e := efficientnet{eps: 1e-5}
	in := s.size("features.0.0.weight", 0)
	for i := 1; ; i++ {
		stage, ok := s.efficientnetStage(fmt.Sprintf("features.%d.", i), in)
		if !ok {
			e.last = s.size(fmt.Sprintf("features.%d.0.weight", i), 0)
			break
		}
		e.stages, in = append(e.stages, stage), stage.out
	}
	if len(e.stages) == 0 {
		return nil
	}
	if e.stages[0].fused {
		e.eps = 1e-3
	}
	name := "efficientnet"
	for known, sizes := range efficientnetSizes {
		sameWidths := slices.EqualFunc(sizes.stages, e.stages, func(a, b efficientnetStage) bool {
			a.depth = b.depth
			return a == b
		})
		if sameWidths && sizes.last == e.last {
			e.eps = sizes.eps
			if slices.Equal(sizes.stages, e.stages) {
				name = known
			}
		}
	}
	return []candidate{{name, e.module(s.classes("classifier.1.weight"))}}
}

// efficientnetStage reads a stage off the shapes of its first block, whose kind and parts its names tell.
func (s shapes) efficientnetStage(prefix string, in int) (efficientnetStage, bool) {
	at := func(part string) string { return prefix + "0.block." + part }
	stage := efficientnetStage{in: in, depth: s.count(prefix, ".block.0.0.weight")}
	first, project, depthwise := s.size(at("0.0.weight"), 0), "", "0.0.weight"
	switch {
	case s.size(at("2.fc1.weight"), 0) > 0: // expand, depthwise, squeeze, project
		depthwise, project = "1.0.weight", "3.0.weight"
	case s.size(at("1.fc1.weight"), 0) > 0: // depthwise, squeeze, project
		project = "2.0.weight"
	case s.size(at("1.0.weight"), 0) > 0: // expand, project
		stage.fused, project = true, "1.0.weight"
	default:
		stage.fused, project = true, "0.0.weight"
	}
	stage.kernel, stage.out = s.size(at(depthwise), 2), s.size(at(project), 0)
	if !positive(in, first, stage.depth, stage.kernel, stage.out) {
		return stage, false
	}
	stage.expansion = float64(first) / float64(in)
	if stage.fused && project == depthwise {
		stage.expansion = 1
	}
	return stage, true
}
