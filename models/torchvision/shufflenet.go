package torchvision

import (
	"fmt"

	"github.com/optimem/optimem/layers"
)

// shufflenets are ShuffleNet v2 of any depth and width: torchvision/models/shufflenetv2.py.
var shufflenets = &family{
	classes: layers.Classes{
		"torchvision.models.shufflenetv2.ShuffleNetV2":     layers.Unary(shufflenetForward),
		"torchvision.models.shufflenetv2.InvertedResidual": layers.Unary(shufflenetBlockForward),
	},
	names: []string{"shufflenet_v2_x0_5", "shufflenet_v2_x1_0", "shufflenet_v2_x1_5", "shufflenet_v2_x2_0"},
	make: func(name string, o Options) *layers.Module {
		return shufflenet{[3]int{4, 8, 4}, shufflenetWidths[name]}.module(o.classes())
	},
	infer: inferShufflenet,
}

// A shufflenet is the sizes of one: the blocks of each stage, and the widths of the first convolution, the stages and
// the last convolution.
type shufflenet struct {
	depths [3]int
	widths [5]int
}

var shufflenetWidths = map[string][5]int{
	"shufflenet_v2_x0_5": {24, 48, 96, 192, 1024},
	"shufflenet_v2_x1_0": {24, 116, 232, 464, 1024},
	"shufflenet_v2_x1_5": {24, 176, 352, 704, 1024},
	"shufflenet_v2_x2_0": {24, 244, 488, 976, 2048},
}

func (n shufflenet) module(classes int) *layers.Module {
	w := n.widths
	m := layers.New("torchvision.models.shufflenetv2.ShuffleNetV2", nil).
		Add("conv1", layers.Sequential(
			layers.Conv2d(3, w[0], 3, layers.Stride(2), layers.Padding(1), layers.NoBias),
			layers.BatchNorm2d(w[0]), layers.ReLU(layers.InPlace))).
		Add("maxpool", layers.MaxPool2d(3, layers.Stride(2), layers.Padding(1)))
	for i, depth := range n.depths {
		stage := layers.Sequential()
		for b := range depth {
			if b == 0 {
				appendTo(stage, shufflenetBlock(w[i], w[i+1], 2))
			} else {
				appendTo(stage, shufflenetBlock(w[i+1], w[i+1], 1))
			}
		}
		m.Add(fmt.Sprintf("stage%d", i+2), stage)
	}
	return m.
		Add("conv5", layers.Sequential(
			layers.Conv2d(w[3], w[4], 1, layers.NoBias), layers.BatchNorm2d(w[4]), layers.ReLU(layers.InPlace))).
		Add("fc", layers.Linear(w[4], classes))
}

// shufflenetBlock is InvertedResidual: half of the channels go through the second branch. With a stride of 2 all do, and
// through the first one too.
func shufflenetBlock(in, out, stride int) *layers.Module {
	half := out / 2
	relu := func() *layers.Module { return layers.ReLU(layers.InPlace) }
	depthwise := func(channels int) *layers.Module {
		return layers.Conv2d(channels, channels, 3,
			layers.Stride(stride), layers.Padding(1), layers.Groups(channels), layers.NoBias)
	}
	branch1, from := layers.Sequential(), half
	if stride > 1 {
		from = in
		branch1 = layers.Sequential(
			depthwise(in), layers.BatchNorm2d(in),
			layers.Conv2d(in, half, 1, layers.NoBias), layers.BatchNorm2d(half), relu())
	}
	return layers.New("torchvision.models.shufflenetv2.InvertedResidual", map[string]any{"stride": stride}).
		Add("branch1", branch1).
		Add("branch2", layers.Sequential(
			layers.Conv2d(from, half, 1, layers.NoBias), layers.BatchNorm2d(half), relu(),
			depthwise(half), layers.BatchNorm2d(half),
			layers.Conv2d(half, half, 1, layers.NoBias), layers.BatchNorm2d(half), relu()))
}

func inferShufflenet(s shapes) []candidate {
	if s.size("stage2.0.branch1.0.weight", 0) == 0 {
		return nil
	}
	n := shufflenet{widths: [5]int{0: s.size("conv1.0.weight", 0), 4: s.size("conv5.0.weight", 0)}}
	for i := range n.depths {
		n.depths[i] = s.count(fmt.Sprintf("stage%d.", i+2), ".branch2.0.weight")
		n.widths[i+1] = 2 * s.size(fmt.Sprintf("stage%d.0.branch2.0.weight", i+2), 0)
	}
	if !positive(n.widths[0], n.widths[1:]...) {
		return nil
	}
	name := "shufflenet_v2"
	for known, widths := range shufflenetWidths {
		if n == (shufflenet{[3]int{4, 8, 4}, widths}) {
			name = known
		}
	}
	return []candidate{{name, n.module(s.classes("fc.weight"))}}
}

func shufflenetForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	for _, name := range []string{"conv1", "maxpool", "stage2", "stage3", "stage4", "conv5"} {
		x = t.Child(m, name, x)
	}
	return t.Child(m, "fc", t.Op("mean.dim", x, []int{2, 3}))
}

func shufflenetBlockForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	var halves []layers.Tensor
	if m.Int("stride") == 1 {
		chunks := t.Tensors("chunk", x, 2, 1)
		if len(chunks) != 2 {
			t.Fail("%v channels do not make two halves", x.Shape())
		}
		halves = []layers.Tensor{chunks[0], t.Child(m, "branch2", chunks[1])}
	} else {
		halves = []layers.Tensor{t.Child(m, "branch1", x), t.Child(m, "branch2", x)}
	}
	out := t.Op("cat", halves, 1)
	shape := out.Shape()
	if len(shape) != 4 {
		t.Fail("takes pictures, not %v", shape)
	}
	out = t.Op("view", out, []int{shape[0], 2, shape[1] / 2, shape[2], shape[3]})
	out = t.Op("contiguous", t.Op("transpose.int", out, 1, 2))
	return t.Op("view", out, []int(shape))
}
