package torchvision

import (
	"fmt"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// videoResnets are the ResNets for videos: torchvision/models/video/resnet.py.
var videoResnets = &family{
	classes: layers.Classes{
		"torchvision.models.video.resnet.VideoResNet":      layers.Unary(videoResnetForward),
		"torchvision.models.video.resnet.BasicBlock":       layers.Unary(videoBlockForward),
		"torchvision.models.video.resnet.Bottleneck":       layers.Unary(videoBlockForward),
		"torchvision.models.video.resnet.Conv3DSimple":     layers.NN()["torch.nn.modules.conv.Conv3d"],
		"torchvision.models.video.resnet.Conv3DNoTemporal": layers.NN()["torch.nn.modules.conv.Conv3d"],
		"torchvision.models.video.resnet.Conv2Plus1D":      layers.Unary((*layers.Trace).Each),
		"torchvision.models.video.resnet.BasicStem":        layers.Unary((*layers.Trace).Each),
		"torchvision.models.video.resnet.R2Plus1dStem":     layers.Unary((*layers.Trace).Each),
	},
	names: []string{"r3d_18", "mc3_18", "r2plus1d_18"},
	make: func(name string, o Options) *layers.Module {
		return videoResnetSizes[name].module(o.classesOr(400))
	},
	infer:  inferVideoResnet,
	inputs: videos,
}

// videos is the input of models of videos.
func videos(*layers.Module) []layers.Port {
	return []layers.Port{{
		Name: "x", DType: tensor.Float32, Shape: tensor.Shape{-1, 3, -1, -1, -1},
		Dims: []string{"batch", "", "frames", "height", "width"},
	}}
}

// A videoConv is what a stage convolves over.
type videoConv string

const (
	overAll    videoConv = "Conv3DSimple"     // space and time
	overSpace  videoConv = "Conv3DNoTemporal" // space
	overEither videoConv = "Conv2Plus1D"      // space, then time
)

// A videoResnet is the sizes of one, for each stage.
type videoResnet struct {
	depths [4]int
	convs  [4]videoConv
}

var videoResnetSizes = map[string]videoResnet{
	"r3d_18":      {[4]int{2, 2, 2, 2}, [4]videoConv{overAll, overAll, overAll, overAll}},
	"mc3_18":      {[4]int{2, 2, 2, 2}, [4]videoConv{overAll, overSpace, overSpace, overSpace}},
	"r2plus1d_18": {[4]int{2, 2, 2, 2}, [4]videoConv{overEither, overEither, overEither, overEither}},
}

func (v videoResnet) module(classes int) *layers.Module {
	relu := func() *layers.Module { return layers.ReLU(layers.InPlace) }
	m := layers.New("torchvision.models.video.resnet.VideoResNet", nil)
	if v.convs[0] == overEither {
		m.Add("stem", numbered("torchvision.models.video.resnet.R2Plus1dStem",
			conv3d(3, 45, [3]int{1, 7, 7}, [3]int{1, 2, 2}), layers.BatchNorm3d(45), relu(),
			conv3d(45, 64, [3]int{3, 1, 1}, [3]int{1, 1, 1}), layers.BatchNorm3d(64), relu()))
	} else {
		m.Add("stem", numbered("torchvision.models.video.resnet.BasicStem",
			conv3d(3, 64, [3]int{3, 7, 7}, [3]int{1, 2, 2}), layers.BatchNorm3d(64), relu()))
	}
	in := 64
	for i, depth := range v.depths {
		layer := layers.Sequential()
		planes, stride := 64<<i, min(i+1, 2)
		for range depth {
			appendTo(layer, v.convs[i].block(in, planes, stride))
			in, stride = planes, 1
		}
		m.Add(fmt.Sprintf("layer%d", i+1), layer)
	}
	return m.Add("avgpool", layers.AdaptiveAvgPool3d(1)).Add("fc", layers.Linear(in, classes))
}

// conv3d is a convolution without a bias that keeps the size of the video at stride 1.
func conv3d(in, out int, kernel, stride [3]int) *layers.Module {
	return layers.Conv3d(in, out, 0, layers.Kernel(kernel[:]...), layers.Stride(stride[:]...),
		layers.Padding(kernel[0]/2, kernel[1]/2, kernel[2]/2), layers.NoBias)
}

func (c videoConv) block(in, planes, stride int) *layers.Module {
	middle := in * planes * 27 / (in*9 + 3*planes)
	m := layers.New("torchvision.models.video.resnet.BasicBlock", nil).
		Add("conv1", layers.Sequential(
			c.module(in, planes, middle, stride), layers.BatchNorm3d(planes), layers.ReLU(layers.InPlace))).
		Add("conv2", layers.Sequential(c.module(planes, planes, middle, 1), layers.BatchNorm3d(planes))).
		Add("relu", layers.ReLU(layers.InPlace))
	if stride != 1 || in != planes {
		steps := [3]int{stride, stride, stride}
		if c == overSpace {
			steps[0] = 1
		}
		m.Add("downsample", layers.Sequential(conv3d(in, planes, [3]int{1, 1, 1}, steps), layers.BatchNorm3d(planes)))
	}
	return m
}

func (c videoConv) module(in, out, middle, stride int) *layers.Module {
	class := "torchvision.models.video.resnet." + string(c)
	switch c {
	case overEither:
		return numbered(class,
			conv3d(in, middle, [3]int{1, 3, 3}, [3]int{1, stride, stride}), layers.BatchNorm3d(middle),
			layers.ReLU(layers.InPlace), conv3d(middle, out, [3]int{3, 1, 1}, [3]int{stride, 1, 1}))
	case overSpace:
		m := conv3d(in, out, [3]int{1, 3, 3}, [3]int{1, stride, stride})
		m.Class = class
		return m
	}
	m := conv3d(in, out, [3]int{3, 3, 3}, [3]int{stride, stride, stride})
	m.Class = class
	return m
}

func inferVideoResnet(s shapes) []candidate {
	var v videoResnet
	for i := range v.depths {
		at := fmt.Sprintf("layer%d.", i+1)
		switch {
		case s.size(at+"0.conv1.0.0.weight", 0) > 0:
			v.depths[i], v.convs[i] = s.count(at, ".conv1.0.0.weight"), overEither
		case s.size(at+"0.conv1.0.weight", 2) == 1:
			v.depths[i], v.convs[i] = s.count(at, ".conv1.0.weight"), overSpace
		case s.size(at+"0.conv1.0.weight", 2) == 3:
			v.depths[i], v.convs[i] = s.count(at, ".conv1.0.weight"), overAll
		default:
			return nil
		}
	}
	name := "video_resnet"
	for known, sizes := range videoResnetSizes {
		if sizes == v {
			name = known
		}
	}
	return []candidate{{name: name, root: v.module(s.size("fc.weight", 0))}}
}

func videoResnetForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	for _, name := range []string{"stem", "layer1", "layer2", "layer3", "layer4", "avgpool"} {
		x = t.Child(m, name, x)
	}
	return t.Child(m, "fc", t.Op("flatten.using_ints", x, 1))
}

func videoBlockForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	out := t.Child(m, "conv2", t.Child(m, "conv1", x))
	if m.Has("conv3") {
		out = t.Child(m, "conv3", out)
	}
	return t.Child(m, "relu", t.Op("add_.Tensor", out, shortcut(t, m, x)))
}
