package torchvision

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/layers"
)

// squeezenets are SqueezeNet: torchvision/models/squeezenet.py.
var squeezenets = &family{
	classes: layers.Classes{
		"torchvision.models.squeezenet.SqueezeNet": layers.Unary(
			func(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
				x = t.Child(m, "classifier", t.Child(m, "features", x))
				return t.Op("flatten.using_ints", x, 1)
			}),
		"torchvision.models.squeezenet.Fire": layers.Unary(fireForward),
	},
	names: []string{"squeezenet1_0", "squeezenet1_1"},
	make: func(name string, o Options) *layers.Module {
		return squeezenetSizes[name].module(o.classes())
	},
	infer: inferSqueezenet,
}

// A squeezenet is the sizes of one: its first convolution, and the modules behind the first pooling.
type squeezenet struct {
	channels, kernel int
	fires            []fire
}

// A fire is the channels of a Fire module. The zero value stands for a pooling.
type fire struct{ squeezed, expanded1, expanded3 int }

var squeezenetSizes = map[string]squeezenet{
	"squeezenet1_0": {96, 7, []fire{
		{16, 64, 64}, {16, 64, 64}, {32, 128, 128}, {}, {32, 128, 128}, {48, 192, 192}, {48, 192, 192}, {64, 256, 256},
		{},
		{64, 256, 256},
	}},
	"squeezenet1_1": {64, 3, []fire{
		{16, 64, 64}, {16, 64, 64}, {}, {32, 128, 128}, {32, 128, 128}, {}, {48, 192, 192}, {48, 192, 192},
		{64, 256, 256},
		{64, 256, 256},
	}},
}

func (q squeezenet) module(classes int) *layers.Module {
	pool := func() *layers.Module {
		return layers.MaxPool2d(3, layers.Stride(2), layers.Attr("ceil_mode", true))
	}
	features := layers.Sequential(
		layers.Conv2d(3, q.channels, q.kernel, layers.Stride(2)), layers.ReLU(layers.InPlace), pool())
	in := q.channels
	for _, f := range q.fires {
		if f == (fire{}) {
			appendTo(features, pool())
			continue
		}
		appendTo(features, f.module(in))
		in = f.expanded1 + f.expanded3
	}
	return layers.New("torchvision.models.squeezenet.SqueezeNet", nil).
		Add("features", features).
		Add("classifier", layers.Sequential(
			layers.Dropout(0.5), layers.Conv2d(in, classes, 1), layers.ReLU(layers.InPlace),
			layers.AdaptiveAvgPool2d(1)))
}

func (f fire) module(in int) *layers.Module {
	return layers.New("torchvision.models.squeezenet.Fire", nil).
		Add("squeeze", layers.Conv2d(in, f.squeezed, 1)).
		Add("squeeze_activation", layers.ReLU(layers.InPlace)).
		Add("expand1x1", layers.Conv2d(f.squeezed, f.expanded1, 1)).
		Add("expand1x1_activation", layers.ReLU(layers.InPlace)).
		Add("expand3x3", layers.Conv2d(f.squeezed, f.expanded3, 3, layers.Padding(1))).
		Add("expand3x3_activation", layers.ReLU(layers.InPlace))
}

// inferSqueezenet walks the numbers of the features; where one is missing between two is a pooling.
func inferSqueezenet(s shapes) []candidate {
	if s.size("features.3.squeeze.weight", 0) == 0 {
		return nil
	}
	q := squeezenet{channels: s.size("features.0.weight", 0), kernel: s.size("features.0.weight", 2)}
	for i, pooled := 3, false; ; i++ {
		at := fmt.Sprintf("features.%d.", i)
		f := fire{
			s.size(at+"squeeze.weight", 0), s.size(at+"expand1x1.weight", 0), s.size(at+"expand3x3.weight", 0),
		}
		if f == (fire{}) {
			if pooled {
				break
			}
			pooled = true
			continue
		}
		if pooled {
			q.fires = append(q.fires, fire{})
		}
		q.fires, pooled = append(q.fires, f), false
	}
	name := "squeezenet"
	for known, sizes := range squeezenetSizes {
		if sizes.channels == q.channels && sizes.kernel == q.kernel && slices.Equal(sizes.fires, q.fires) {
			name = known
		}
	}
	return []candidate{{name, q.module(s.classes("classifier.1.weight"))}}
}

func fireForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	x = t.Child(m, "squeeze_activation", t.Child(m, "squeeze", x))
	return t.Op("cat", []layers.Tensor{
		t.Child(m, "expand1x1_activation", t.Child(m, "expand1x1", x)),
		t.Child(m, "expand3x3_activation", t.Child(m, "expand3x3", x)),
	}, 1)
}
