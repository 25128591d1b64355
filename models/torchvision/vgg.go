package torchvision

import (
	"fmt"
	"slices"
	"strings"

	"github.com/optimem/optimem/layers"
)

// vggs are VGG, with and without normalization: torchvision/models/vgg.py.
var vggs = &family{
	classes: layers.Classes{"torchvision.models.vgg.VGG": layers.Unary(featuresForward)},
	names:   []string{"vgg11", "vgg11_bn", "vgg13", "vgg13_bn", "vgg16", "vgg16_bn", "vgg19", "vgg19_bn"},
	make: func(name string, o Options) *layers.Module {
		name, normalized := strings.CutSuffix(name, "_bn")
		return vgg{vggChannels[name], normalized, [2]int{4096, 4096}, o.classes()}.module()
	},
	infer: inferVGG,
}

// A vgg is the sizes of one. Its channels are those of the convolutions, with 0 for a pooling; hidden are the hidden
// layers of the classifier.
type vgg struct {
	channels   []int
	normalized bool
	hidden     [2]int
	classes    int
}

var vggChannels = map[string][]int{
	"vgg11": {64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0},
	"vgg13": {64, 64, 0, 128, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0},
	"vgg16": {64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0},
	"vgg19": {64, 64, 0, 128, 128, 0, 256, 256, 256, 256, 0, 512, 512, 512, 512, 0, 512, 512, 512, 512, 0},
}

func (v vgg) module() *layers.Module {
	features, in := layers.Sequential(), 3
	for _, out := range v.channels {
		if out == 0 {
			appendTo(features, layers.MaxPool2d(2))
			continue
		}
		appendTo(features, layers.Conv2d(in, out, 3, layers.Padding(1)))
		if v.normalized {
			appendTo(features, layers.BatchNorm2d(out))
		}
		appendTo(features, layers.ReLU(layers.InPlace))
		in = out
	}
	return layers.New("torchvision.models.vgg.VGG", nil).
		Add("features", features).
		Add("avgpool", layers.AdaptiveAvgPool2d(7)).
		Add("classifier", layers.Sequential(
			layers.Linear(in*7*7, v.hidden[0]), layers.ReLU(layers.InPlace), layers.Dropout(0.5),
			layers.Linear(v.hidden[0], v.hidden[1]), layers.ReLU(layers.InPlace), layers.Dropout(0.5),
			layers.Linear(v.hidden[1], v.classes)))
}

// inferVGG walks the numbers of the features: a convolution leaves entries, and where there are none is a pooling. The
// last pooling leaves no trace; every VGG has it.
func inferVGG(s shapes) []candidate {
	if s.size("features.0.weight", 2) != 3 || s.size("classifier.0.weight", 0) == 0 {
		return nil
	}
	v := vgg{normalized: s.size("features.1.running_mean", 0) > 0, classes: s.classes("classifier.6.weight")}
	v.hidden = [2]int{s.size("classifier.0.weight", 0), s.size("classifier.3.weight", 0)}
	step := 2
	if v.normalized {
		step = 3
	}
	for i := 0; ; {
		out := s.size(fmt.Sprintf("features.%d.bias", i), 0)
		if v.normalized {
			out = s.size(fmt.Sprintf("features.%d.running_mean", i+1), 0)
		}
		if out > 0 {
			i += step
		} else {
			i++
		}
		v.channels = append(v.channels, out)
		if n := len(v.channels); out == 0 && (n == 1 || v.channels[n-2] == 0) { // nothing follows the pooling
			v.channels = v.channels[:n-1]
			break
		}
	}
	name := "vgg"
	for known, channels := range vggChannels {
		if slices.Equal(channels, v.channels) {
			name = known
		}
	}
	if v.normalized {
		name += "_bn"
	}
	return []candidate{{name, v.module()}}
}

// featuresForward is the forward of models of features, a pooling and a classifier of vectors.
func featuresForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	x = t.Child(m, "avgpool", t.Child(m, "features", x))
	return t.Child(m, "classifier", t.Op("flatten.using_ints", x, 1))
}
