package torchvision

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/optimem/optimem/layers"
)

// densenets are DenseNet of any sizes: torchvision/models/densenet.py.
var densenets = &family{
	classes: layers.Classes{
		"torchvision.models.densenet.DenseNet":    layers.Unary(densenetForward),
		"torchvision.models.densenet._DenseBlock": layers.Unary(denseBlockForward),
		"torchvision.models.densenet._DenseLayer": {Forward: denseLayerForward},
		"torchvision.models.densenet._Transition": layers.Unary((*layers.Trace).Each),
	},
	names: []string{"densenet121", "densenet161", "densenet169", "densenet201"},
	make: func(name string, o Options) *layers.Module {
		return densenetSizes[name].module(o.classes())
	},
	infer: inferDensenet,
	spelling: func(name string) string { // of the published weights, from a time when modules could have dots in their names
		return dottedDenseLayer.ReplaceAllString(name, "$1$2")
	},
}

var dottedDenseLayer = regexp.MustCompile(
	`^(.*denselayer\d+\.(?:norm|relu|conv))\.([12]\.(?:weight|bias|running_mean|running_var|num_batches_tracked))$`)

// A densenet is the sizes of one.
type densenet struct {
	first  int   // channels of the first convolution
	growth int   // channels that each layer adds
	inner  int   // channels of a layer's first convolution
	depths []int // layers of each block
}

var densenetSizes = map[string]densenet{
	"densenet121": {64, 32, 128, []int{6, 12, 24, 16}},
	"densenet161": {96, 48, 192, []int{6, 12, 36, 24}},
	"densenet169": {64, 32, 128, []int{6, 12, 32, 32}},
	"densenet201": {64, 32, 128, []int{6, 12, 48, 32}},
}

func (d densenet) module(classes int) *layers.Module {
	relu := func() *layers.Module { return layers.ReLU(layers.InPlace) }
	features := layers.Sequential().
		Add("conv0", layers.Conv2d(3, d.first, 7, layers.Stride(2), layers.Padding(3), layers.NoBias)).
		Add("norm0", layers.BatchNorm2d(d.first)).
		Add("relu0", relu()).
		Add("pool0", layers.MaxPool2d(3, layers.Stride(2), layers.Padding(1)))
	channels := d.first
	for i, depth := range d.depths {
		block := layers.New("torchvision.models.densenet._DenseBlock", nil)
		for l := range depth {
			block.Add(fmt.Sprintf("denselayer%d", l+1), layers.New("torchvision.models.densenet._DenseLayer", nil).
				Add("norm1", layers.BatchNorm2d(channels)).
				Add("relu1", relu()).
				Add("conv1", layers.Conv2d(channels, d.inner, 1, layers.NoBias)).
				Add("norm2", layers.BatchNorm2d(d.inner)).
				Add("relu2", relu()).
				Add("conv2", layers.Conv2d(d.inner, d.growth, 3, layers.Padding(1), layers.NoBias)))
			channels += d.growth
		}
		features.Add(fmt.Sprintf("denseblock%d", i+1), block)
		if i < len(d.depths)-1 {
			transition := layers.New("torchvision.models.densenet._Transition", nil).
				Add("norm", layers.BatchNorm2d(channels)).
				Add("relu", relu()).
				Add("conv", layers.Conv2d(channels, channels/2, 1, layers.NoBias)).
				Add("pool", layers.AvgPool2d(2))
			features.Add(fmt.Sprintf("transition%d", i+1), transition)
			channels /= 2
		}
	}
	features.Add("norm5", layers.BatchNorm2d(channels))
	return layers.New("torchvision.models.densenet.DenseNet", nil).
		Add("features", features).
		Add("classifier", layers.Linear(channels, classes))
}

func inferDensenet(s shapes) []candidate {
	const layer = "features.denseblock1.denselayer1."
	d := densenet{
		first: s.size("features.conv0.weight", 0), growth: s.size(layer+"conv2.weight", 0),
		inner: s.size(layer+"conv1.weight", 0),
	}
	if !positive(d.first, d.growth, d.inner) {
		return nil
	}
	for block := 1; ; block++ {
		depth := 0
		for s.size(fmt.Sprintf("features.denseblock%d.denselayer%d.conv1.weight", block, depth+1), 0) > 0 {
			depth++
		}
		if depth == 0 {
			break
		}
		d.depths = append(d.depths, depth)
	}
	name := "densenet"
	for known, sizes := range densenetSizes {
		if sizes.first == d.first && sizes.growth == d.growth && sizes.inner == d.inner &&
			slices.Equal(sizes.depths, d.depths) {
			name = known
		}
	}
	return []candidate{{name, d.module(s.classes("classifier.weight"))}}
}

func densenetForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	x = t.Op("relu_", t.Child(m, "features", x))
	x = t.Op("adaptive_avg_pool2d", x, []int{1, 1})
	return t.Child(m, "classifier", t.Op("flatten.using_ints", x, 1))
}

func denseBlockForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	features := []layers.Tensor{x}
	for _, layer := range m.Children {
		out, ok := t.Run(layer.Module, slices.Clone(features)).(layers.Tensor)
		if !ok {
			t.Fail("%s gives no tensor", layer.Name)
		}
		features = append(features, out)
	}
	return t.Op("cat", features, 1)
}

// denseLayerForward takes what all layers before gave.
func denseLayerForward(t *layers.Trace, m *layers.Module, args ...any) any {
	var features []layers.Tensor
	if len(args) == 1 {
		switch v := args[0].(type) {
		case layers.Tensor:
			features = []layers.Tensor{v}
		case []layers.Tensor:
			features = v
		}
	}
	if len(features) == 0 {
		t.Fail("takes a tensor or a list of them")
	}
	x := t.Op("cat", features, 1)
	for _, name := range []string{"norm1", "relu1", "conv1", "norm2", "relu2", "conv2"} {
		x = t.Child(m, name, x)
	}
	return x
}
