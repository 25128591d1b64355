package torchvision

import (
	"strings"

	"github.com/optimem/optimem/layers"
)

// googlenets are GoogLeNet: torchvision/models/googlenet.py. Its published weights want pictures that are normalized
// differently from other models', and the model does that itself, which Python is told by transform_input=True. No
// weight tells: the state dict of a model of 1,000 classes is taken for the published one or its successor, others are
// ambiguous. The name with this ending is the model that takes pictures as they are.
var googlenets = &family{
	classes: layers.Classes{
		"torchvision.models.googlenet.GoogLeNet":    layers.Unary(googlenetForward),
		"torchvision.models.googlenet.Inception":    layers.Unary(googlenetBlockForward),
		"torchvision.models.googlenet.InceptionAux": layers.Unary(googlenetAuxForward),
		"torchvision.models.googlenet.BasicConv2d":  layers.Unary(basicConvForward),
	},
	names: []string{"googlenet", "googlenet" + untransformed},
	make: func(name string, o Options) *layers.Module {
		return googlenet(!strings.HasSuffix(name, untransformed), true, o.classes())
	},
	infer: func(s shapes) []candidate {
		if s.size("inception3a.branch1.conv.weight", 0) == 0 {
			return nil
		}
		return transforms("googlenet", s, googlenetOf)
	},
	variant: googlenetOf,
	note:    transformNote,
}

// untransformed ends the names of architectures that take pictures as they are, transform_input=False in Python.
const untransformed = "_no_transform"

// googlenetOf makes the model of one of the names with the heads of a state dict.
func googlenetOf(name string, s shapes) *layers.Module {
	aux := s.size("aux1.conv.conv.weight", 0) > 0
	return googlenet(!strings.HasSuffix(name, untransformed), aux, s.classes("fc.weight"))
}

// transforms returns the candidates with transform_input and without, see [googlenets].
func transforms(name string, s shapes, build func(name string, s shapes) *layers.Module) []candidate {
	list := []candidate{{name, build(name, s)}}
	if s.classes("fc.weight") != 1000 {
		list = append(list, candidate{name + untransformed, build(name+untransformed, s)})
	}
	return list
}

// transformNote says what was assumed of a model of 1,000 classes.
func transformNote(name string) string {
	if strings.HasSuffix(name, untransformed) {
		return ""
	}
	return "like the published weights it is taken to transform its input; --arch " + name + untransformed + " does not"
}

// googlenetBlocks are the Inception modules with their channels: what comes in, the first branch, both convolutions of
// the second and the third, and the fourth.
var googlenetBlocks = map[string][7]int{
	"inception3a": {192, 64, 96, 128, 16, 32, 32},
	"inception3b": {256, 128, 128, 192, 32, 96, 64},
	"inception4a": {480, 192, 96, 208, 16, 48, 64},
	"inception4b": {512, 160, 112, 224, 24, 64, 64},
	"inception4c": {512, 128, 128, 256, 24, 64, 64},
	"inception4d": {512, 112, 144, 288, 32, 64, 64},
	"inception4e": {528, 256, 160, 320, 32, 128, 128},
	"inception5a": {832, 256, 160, 320, 32, 128, 128},
	"inception5b": {832, 384, 192, 384, 48, 128, 128},
}

// googlenetOrder is the model's forward, up to the vectors.
var googlenetOrder = []string{
	"conv1", "maxpool1", "conv2", "conv3", "maxpool2", "inception3a", "inception3b", "maxpool3", "inception4a",
	"inception4b", "inception4c", "inception4d", "inception4e", "maxpool4", "inception5a", "inception5b", "avgpool",
}

func googlenet(transform, aux bool, classes int) *layers.Module {
	conv := func(in, out, kernel int, opts ...layers.Option) *layers.Module {
		return basicConv("torchvision.models.googlenet.BasicConv2d", in, out, kernel, opts...)
	}
	pool := func(kernel int, opts ...layers.Option) *layers.Module {
		return layers.MaxPool2d(kernel, append(opts, layers.Attr("ceil_mode", true))...)
	}
	m := layers.New("torchvision.models.googlenet.GoogLeNet", map[string]any{"transform_input": transform})
	for _, name := range googlenetOrder {
		switch name {
		case "conv1":
			m.Add(name, conv(3, 64, 7, layers.Stride(2), layers.Padding(3)))
		case "conv2":
			m.Add(name, conv(64, 64, 1))
		case "conv3":
			m.Add(name, conv(64, 192, 3, layers.Padding(1)))
		case "maxpool1", "maxpool2", "maxpool3":
			m.Add(name, pool(3, layers.Stride(2)))
		case "maxpool4":
			m.Add(name, pool(2))
		case "avgpool":
			if aux {
				m.Add("aux1", googlenetAux(conv, 512, classes)).Add("aux2", googlenetAux(conv, 528, classes))
			}
			m.Add(name, layers.AdaptiveAvgPool2d(1))
		default:
			c := googlenetBlocks[name]
			m.Add(name, layers.New("torchvision.models.googlenet.Inception", nil).
				Add("branch1", conv(c[0], c[1], 1)).
				Add("branch2", layers.Sequential(conv(c[0], c[2], 1), conv(c[2], c[3], 3, layers.Padding(1)))).
				Add("branch3", layers.Sequential(conv(c[0], c[4], 1), conv(c[4], c[5], 3, layers.Padding(1)))).
				Add("branch4", layers.Sequential(pool(3, layers.Stride(1), layers.Padding(1)), conv(c[0], c[6], 1))))
		}
	}
	return m.Add("dropout", layers.Dropout(0.2)).Add("fc", layers.Linear(1024, classes))
}

// googlenetAux is the head that training has besides. Evaluation does not run it.
func googlenetAux(
	conv func(in, out, kernel int, opts ...layers.Option) *layers.Module, in, classes int,
) *layers.Module {
	return layers.New("torchvision.models.googlenet.InceptionAux", nil).
		Add("conv", conv(in, 128, 1)).
		Add("fc1", layers.Linear(2048, 1024)).
		Add("fc2", layers.Linear(1024, classes)).
		Add("dropout", layers.Dropout(0.7))
}

func googlenetForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	x = transformInput(t, m, x)
	for _, name := range googlenetOrder {
		x = t.Child(m, name, x)
	}
	return t.Child(m, "fc", t.Child(m, "dropout", t.Op("flatten.using_ints", x, 1)))
}

func googlenetBlockForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	var branches []layers.Tensor
	for _, name := range []string{"branch1", "branch2", "branch3", "branch4"} {
		branches = append(branches, t.Child(m, name, x))
	}
	return t.Op("cat", branches, 1)
}

func googlenetAuxForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	x = t.Child(m, "conv", t.Op("adaptive_avg_pool2d", x, []int{4, 4}))
	x = t.Op("relu_", t.Child(m, "fc1", t.Op("flatten.using_ints", x, 1)))
	return t.Child(m, "fc2", t.Child(m, "dropout", x))
}

// basicConv is the BasicConv2d of GoogLeNet and Inception v3: a convolution, a normalization, a function.
func basicConv(class string, in, out, kernel int, opts ...layers.Option) *layers.Module {
	return layers.New(class, nil).
		Add("conv", layers.Conv2d(in, out, kernel, append(opts, layers.NoBias)...)).
		Add("bn", layers.BatchNorm2d(out, layers.Eps(0.001)))
}

func basicConvForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	return t.Op("relu_", t.Child(m, "bn", t.Child(m, "conv", x)))
}

// transformInput takes the normalization of other models' pictures back to that of these.
func transformInput(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	if !m.Bool("transform_input") {
		return x
	}
	mean, deviation := [3]float64{0.485, 0.456, 0.406}, [3]float64{0.229, 0.224, 0.225}
	channels := make([]layers.Tensor, 3)
	for i := range channels {
		channel := t.Op("unsqueeze", t.Op("select.int", x, 1, i), 1)
		channels[i] = t.Op("add.Tensor", t.Op("mul.Tensor", channel, deviation[i]/0.5), (mean[i]-0.5)/0.5)
	}
	return t.Op("cat", channels, 1)
}
