package torchvision

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/layers"
)

// mobilenetsV3 are MobileNet v3 of any width: torchvision/models/mobilenetv3.py. A state dict does not tell the dilated
// ones that segmentation uses from the others, which is what it is taken for.
var mobilenetsV3 = &family{
	classes: layers.Classes{
		"torchvision.models.mobilenetv3.MobileNetV3":      layers.Unary(featuresForward),
		"torchvision.models.mobilenetv3.InvertedResidual": layers.Unary(blockForward),
	},
	names: []string{"mobilenet_v3_large", "mobilenet_v3_small"},
	make: func(name string, o Options) *layers.Module {
		v := mobilenetsV3Known[name]
		return v.module(false, o.classes())
	},
	infer: inferMobilenetV3,
}

// A mobilenetV3 is the sizes of one: its blocks, and the hidden width of the classifier.
type mobilenetV3 struct {
	blocks []mobilenetV3Block
	hidden int
}

// A mobilenetV3Block is the sizes of a block. Those up to squeezed are told by shapes, the others are not.
type mobilenetV3Block struct {
	in, kernel, expanded, out int
	squeezed                  bool
	hardswish                 bool
	// stride is 2 for a block that halves the picture; deep is set for those that dilated models widen instead.
	stride int
	deep   bool
}

var mobilenetsV3Known = map[string]mobilenetV3{
	"mobilenet_v3_large": {[]mobilenetV3Block{
		{16, 3, 16, 16, false, false, 1, false},
		{16, 3, 64, 24, false, false, 2, false},
		{24, 3, 72, 24, false, false, 1, false},
		{24, 5, 72, 40, true, false, 2, false},
		{40, 5, 120, 40, true, false, 1, false},
		{40, 5, 120, 40, true, false, 1, false},
		{40, 3, 240, 80, false, true, 2, false},
		{80, 3, 200, 80, false, true, 1, false},
		{80, 3, 184, 80, false, true, 1, false},
		{80, 3, 184, 80, false, true, 1, false},
		{80, 3, 480, 112, true, true, 1, false},
		{112, 3, 672, 112, true, true, 1, false},
		{112, 5, 672, 160, true, true, 2, true},
		{160, 5, 960, 160, true, true, 1, true},
		{160, 5, 960, 160, true, true, 1, true},
	}, 1280},
	"mobilenet_v3_small": {[]mobilenetV3Block{
		{16, 3, 16, 16, true, false, 2, false},
		{16, 3, 72, 24, false, false, 2, false},
		{24, 3, 88, 24, false, false, 1, false},
		{24, 5, 96, 40, true, true, 2, false},
		{40, 5, 240, 40, true, true, 1, false},
		{40, 5, 240, 40, true, true, 1, false},
		{40, 5, 120, 48, true, true, 1, false},
		{48, 5, 144, 48, true, true, 1, false},
		{48, 5, 288, 96, true, true, 2, true},
		{96, 5, 576, 96, true, true, 1, true},
		{96, 5, 576, 96, true, true, 1, true},
	}, 1024},
}

// mobilenetV3Norm is its normalization.
var mobilenetV3Norm = batchNormEps(0.001)

// module makes the model; dilated is what segmentation asks for.
func (v mobilenetV3) module(dilated bool, classes int) *layers.Module {
	last := v.blocks[len(v.blocks)-1].out
	return layers.New("torchvision.models.mobilenetv3.MobileNetV3", nil).
		Add("features", v.features(dilated)).
		Add("avgpool", layers.AdaptiveAvgPool2d(1)).
		Add("classifier", layers.Sequential(
			layers.Linear(6*last, v.hidden), layers.Hardswish(layers.InPlace),
			inPlaceDropout(0.2), layers.Linear(v.hidden, classes)))
}

func (v mobilenetV3) features(dilated bool) *layers.Module {
	features := layers.Sequential(
		convNormActivation(3, v.blocks[0].in, 3, mobilenetV3Norm, layers.Hardswish, layers.Stride(2)))
	for _, b := range v.blocks {
		appendTo(features, b.module(dilated && b.deep))
	}
	last := v.blocks[len(v.blocks)-1].out
	return appendTo(features, convNormActivation(last, 6*last, 1, mobilenetV3Norm, layers.Hardswish))
}

func (b mobilenetV3Block) module(dilated bool) *layers.Module {
	act := layers.ReLU
	if b.hardswish {
		act = layers.Hardswish
	}
	stride, dilation := b.stride, 1
	if dilated {
		stride, dilation = 1, 2
	}
	block := layers.Sequential()
	if b.expanded != b.in {
		appendTo(block, convNormActivation(b.in, b.expanded, 1, mobilenetV3Norm, act))
	}
	appendTo(block, convNormActivation(b.expanded, b.expanded, b.kernel, mobilenetV3Norm, act,
		layers.Stride(stride), layers.Dilation(dilation), layers.Groups(b.expanded)))
	if b.squeezed {
		appendTo(
			block, squeezeExcitation(b.expanded, divisible(float64(b.expanded/4)), layers.ReLU(), layers.Hardsigmoid()),
		)
	}
	appendTo(block, convNormActivation(b.expanded, b.out, 1, mobilenetV3Norm, nil))
	return layers.New("torchvision.models.mobilenetv3.InvertedResidual", map[string]any{
		"use_res_connect": b.stride == 1 && b.in == b.out,
	}).Add("block", block)
}

func inferMobilenetV3(s shapes) []candidate {
	v, ok := s.mobilenetV3("features.")
	if !ok {
		return nil
	}
	name := "mobilenet_v3"
	for known, sizes := range mobilenetsV3Known {
		if slices.Equal(sizes.blocks, v.blocks) {
			name = known
		}
	}
	v.hidden = s.size("classifier.0.weight", 0)
	return []candidate{{name, v.module(false, s.classes("classifier.3.weight"))}}
}

// mobilenetV3 reads the blocks off the shapes of the features under prefix. The number of blocks says which one it is,
// and that where the activations change and the picture shrinks.
func (s shapes) mobilenetV3(prefix string) (mobilenetV3, bool) {
	depth := s.blocks(prefix)
	for _, known := range mobilenetsV3Known {
		if len(known.blocks) != depth {
			continue
		}
		v := mobilenetV3{blocks: slices.Clone(known.blocks)}
		in := s.size(prefix+"0.0.weight", 0)
		for i := range v.blocks {
			b, at := &v.blocks[i], fmt.Sprintf("%s%d.block.", prefix, i+1)
			b.in, b.expanded = in, s.size(at+"0.0.weight", 0)
			k := 0
			if b.expanded != b.in {
				k = 1
			}
			b.kernel = s.size(fmt.Sprintf("%s%d.0.weight", at, k), 2)
			k++
			if b.squeezed = s.size(fmt.Sprintf("%s%d.fc1.weight", at, k), 0) > 0; b.squeezed {
				k++
			}
			b.out = s.size(fmt.Sprintf("%s%d.0.weight", at, k), 0)
			if !positive(b.in, b.expanded, b.kernel, b.out) {
				return v, false
			}
			in = b.out
		}
		return v, true
	}
	return mobilenetV3{}, false
}

// blocks counts the blocks of MobileNet v3.
func (s shapes) blocks(prefix string) int {
	n := 0
	for s.size(fmt.Sprintf("%s%d.block.0.0.weight", prefix, n+1), 0) > 0 {
		n++
	}
	return n
}

// blockForward is the forward of blocks that add what they are given where its shape is right, as use_res_connect says.
func blockForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	result := t.Child(m, "block", x)
	if m.Bool("use_res_connect") {
		if m.Has("stochastic_depth") {
			result = t.Child(m, "stochastic_depth", result)
		}
		result = t.Op("add_.Tensor", result, x)
	}
	return result
}
