package torchvision

import (
	"fmt"

	"github.com/optimem/optimem/layers"
)

// resnets are ResNet, ResNeXt and Wide ResNet: torchvision/models/resnet.py.
var resnets = &family{
	classes: layers.Classes{
		"torchvision.models.resnet.ResNet":     layers.Unary(resnetForward),
		"torchvision.models.resnet.BasicBlock": layers.Unary(basicBlockForward),
		"torchvision.models.resnet.Bottleneck": layers.Unary(bottleneckForward),
	},
	names: []string{
		"resnet18", "resnet34", "resnet50", "resnet101", "resnet152",
		"resnext50_32x4d", "resnext101_32x8d", "resnext101_64x4d", "wide_resnet50_2", "wide_resnet101_2",
	},
	make:  func(name string, o Options) *layers.Module { return resnetSizes[name].module(o) },
	infer: inferResnet,
}

// A resnet is the sizes of one.
type resnet struct {
	bottleneck    bool
	depths        [4]int
	groups, width int // of the inner convolutions; width per group
}

var resnetSizes = map[string]resnet{
	"resnet18":         {false, [4]int{2, 2, 2, 2}, 1, 64},
	"resnet34":         {false, [4]int{3, 4, 6, 3}, 1, 64},
	"resnet50":         {true, [4]int{3, 4, 6, 3}, 1, 64},
	"resnet101":        {true, [4]int{3, 4, 23, 3}, 1, 64},
	"resnet152":        {true, [4]int{3, 8, 36, 3}, 1, 64},
	"resnext50_32x4d":  {true, [4]int{3, 4, 6, 3}, 32, 4},
	"resnext101_32x8d": {true, [4]int{3, 4, 23, 3}, 32, 8},
	"resnext101_64x4d": {true, [4]int{3, 4, 23, 3}, 64, 4},
	"wide_resnet50_2":  {true, [4]int{3, 4, 6, 3}, 1, 128},
	"wide_resnet101_2": {true, [4]int{3, 4, 23, 3}, 1, 128},
}

// expansion is how many times wider a block's output is than its planes.
func (r resnet) expansion() int {
	if r.bottleneck {
		return 4
	}
	return 1
}

func (r resnet) module(o Options) *layers.Module {
	m := layers.New("torchvision.models.resnet.ResNet", nil)
	out := r.addStages(m, false)
	return m.Add("avgpool", layers.AdaptiveAvgPool2d(1)).Add("fc", layers.Linear(out, o.classes()))
}

// addStages adds all that comes before the head and returns its channels. Dilated, the last two stages keep the size of
// the picture and look further instead, as replace_stride_with_dilation=[False, True, True] says.
func (r resnet) addStages(m *layers.Module, dilated bool) int {
	m.Add("conv1", layers.Conv2d(3, 64, 7, layers.Stride(2), layers.Padding(3), layers.NoBias)).
		Add("bn1", layers.BatchNorm2d(64)).
		Add("relu", layers.ReLU(layers.InPlace)).
		Add("maxpool", layers.MaxPool2d(3, layers.Stride(2), layers.Padding(1)))
	in, dilation := 64, 1
	for i, depth := range r.depths {
		layer := layers.Sequential()
		planes, stride, next := 64<<i, min(i+1, 2), dilation
		if dilated && i >= 2 {
			stride, next = 1, 2*dilation
		}
		for b := range depth {
			layer.Add(fmt.Sprint(b), r.block(in, planes, stride, dilation))
			in, stride, dilation = planes*r.expansion(), 1, next
		}
		m.Add(fmt.Sprintf("layer%d", i+1), layer)
	}
	return in
}

func (r resnet) block(in, planes, stride, dilation int) *layers.Module {
	out := planes * r.expansion()
	var m *layers.Module
	if r.bottleneck {
		width := planes * r.width / 64 * r.groups
		m = layers.New("torchvision.models.resnet.Bottleneck", nil).
			Add("conv1", layers.Conv2d(in, width, 1, layers.NoBias)).
			Add("bn1", layers.BatchNorm2d(width)).
			Add("conv2", layers.Conv2d(width, width, 3,
				layers.Stride(stride), layers.Padding(dilation), layers.Dilation(dilation), layers.Groups(r.groups),
				layers.NoBias)).
			Add("bn2", layers.BatchNorm2d(width)).
			Add("conv3", layers.Conv2d(width, out, 1, layers.NoBias)).
			Add("bn3", layers.BatchNorm2d(out)).
			Add("relu", layers.ReLU(layers.InPlace))
	} else {
		m = layers.New("torchvision.models.resnet.BasicBlock", nil).
			Add("conv1", layers.Conv2d(in, planes, 3, layers.Stride(stride), layers.Padding(1), layers.NoBias)).
			Add("bn1", layers.BatchNorm2d(planes)).
			Add("relu", layers.ReLU(layers.InPlace)).
			Add("conv2", layers.Conv2d(planes, planes, 3, layers.Padding(1), layers.NoBias)).
			Add("bn2", layers.BatchNorm2d(planes))
	}
	if stride != 1 || in != out {
		m.Add("downsample", layers.Sequential(
			layers.Conv2d(in, out, 1, layers.Stride(stride), layers.NoBias), layers.BatchNorm2d(out)))
	}
	return m
}

func inferResnet(s shapes) []candidate {
	r, name, ok := s.resnet("")
	if !ok || s.size("fc.weight", 0) == 0 {
		return nil
	}
	return []candidate{{name: name, root: r.module(Options{Classes: s.size("fc.weight", 0)})}}
}

// resnet reads the sizes off the shapes under a prefix: the depth from the names, the groups from the channels of a
// grouped convolution's weight. The name is that of the published one with these sizes, else the family's.
func (s shapes) resnet(prefix string) (r resnet, name string, ok bool) {
	first := prefix + "layer1.0."
	if s.size(first+"conv1.weight", 0) == 0 {
		return r, "", false
	}
	r = resnet{groups: 1, width: 64}
	for i := range r.depths {
		r.depths[i] = s.count(fmt.Sprintf("%slayer%d.", prefix, i+1), ".conv1.weight")
	}
	if r.bottleneck = s.size(first+"conv3.weight", 0) > 0; r.bottleneck {
		width, perGroup := s.size(first+"conv2.weight", 0), s.size(first+"conv2.weight", 1)
		if perGroup == 0 || width%perGroup != 0 {
			return r, "", false
		}
		r.groups = width / perGroup
		r.width = perGroup
	}
	name = "resnet"
	for known, sizes := range resnetSizes {
		if sizes == r {
			name = known
		}
	}
	return r, name, true
}

func resnetForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	for _, name := range []string{
		"conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4", "avgpool",
	} {
		x = t.Child(m, name, x)
	}
	return t.Child(m, "fc", t.Op("flatten.using_ints", x, 1))
}

func basicBlockForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	out := t.Child(m, "relu", t.Child(m, "bn1", t.Child(m, "conv1", x)))
	out = t.Child(m, "bn2", t.Child(m, "conv2", out))
	return t.Child(m, "relu", t.Op("add_.Tensor", out, shortcut(t, m, x)))
}

func bottleneckForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	out := t.Child(m, "relu", t.Child(m, "bn1", t.Child(m, "conv1", x)))
	out = t.Child(m, "relu", t.Child(m, "bn2", t.Child(m, "conv2", out)))
	out = t.Child(m, "bn3", t.Child(m, "conv3", out))
	return t.Child(m, "relu", t.Op("add_.Tensor", out, shortcut(t, m, x)))
}

// shortcut is what a block adds its result to.
func shortcut(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	if m.Has("downsample") {
		return t.Child(m, "downsample", x)
	}
	return x
}
