package torchvision

import (
	"fmt"

	"github.com/optimem/optimem/layers"
)

// mnasnets are MNASNet of any width: torchvision/models/mnasnet.py. The first version of the class had a stem of the
// same width in all of them; the widths are read off the shapes, so both versions are recognised.
var mnasnets = &family{
	classes: layers.Classes{
		"torchvision.models.mnasnet.MNASNet": layers.Unary(
			func(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
				return t.Child(m, "classifier", t.Op("mean.dim", t.Child(m, "layers", x), []int{2, 3}))
			}),
		"torchvision.models.mnasnet._InvertedResidual": layers.Unary(
			func(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
				out := t.Child(m, "layers", x)
				if m.Bool("apply_residual") {
					return t.Op("add.Tensor", out, x)
				}
				return out
			}),
	},
	names: []string{"mnasnet0_5", "mnasnet0_75", "mnasnet1_0", "mnasnet1_3"},
	make: func(name string, o Options) *layers.Module {
		return mnasnetWidths[name].module(o.classes())
	},
	infer: inferMnasnet,
}

// A mnasnet is the widths of one: those of the first convolution, of the stem, and of the six stages.
type mnasnet [8]int

var mnasnetWidths = map[string]mnasnet{
	"mnasnet0_5":  {16, 8, 16, 24, 40, 48, 96, 160},
	"mnasnet0_75": {24, 16, 24, 32, 64, 72, 144, 240},
	"mnasnet1_0":  {32, 16, 24, 40, 80, 96, 192, 320},
	"mnasnet1_3":  {40, 24, 32, 56, 104, 128, 248, 416},
}

// mnasnetStages are the window of a stage, its stride, how much wider it is inside, and its number of blocks.
var mnasnetStages = [6]struct{ kernel, stride, expansion, depth int }{
	{3, 2, 3, 3}, {5, 2, 3, 3}, {5, 2, 6, 3}, {3, 1, 6, 2}, {5, 2, 6, 4}, {3, 1, 6, 1},
}

// mnasnetLast is the width of the last convolution.
const mnasnetLast = 1280

func (w mnasnet) module(classes int) *layers.Module {
	norm := func(channels int) *layers.Module {
		return layers.BatchNorm2d(channels, layers.Attr("momentum", 1-0.9997))
	}
	relu := func() *layers.Module { return layers.ReLU(layers.InPlace) }
	all := layers.Sequential(
		layers.Conv2d(3, w[0], 3, layers.Padding(1), layers.Stride(2), layers.NoBias), norm(w[0]), relu(),
		layers.Conv2d(w[0], w[0], 3, layers.Padding(1), layers.Groups(w[0]), layers.NoBias), norm(w[0]), relu(),
		layers.Conv2d(w[0], w[1], 1, layers.NoBias), norm(w[1]))
	for i, stage := range mnasnetStages {
		stack, in, stride := layers.Sequential(), w[i+1], stage.stride
		for range stage.depth {
			out, mid := w[i+2], in*stage.expansion
			appendTo(stack, layers.New("torchvision.models.mnasnet._InvertedResidual", map[string]any{
				"apply_residual": in == out && stride == 1,
			}).Add("layers", layers.Sequential(
				layers.Conv2d(in, mid, 1, layers.NoBias), norm(mid), relu(),
				layers.Conv2d(mid, mid, stage.kernel, layers.Padding(stage.kernel/2), layers.Stride(stride),
					layers.Groups(mid), layers.NoBias), norm(mid), relu(),
				layers.Conv2d(mid, out, 1, layers.NoBias), norm(out))))
			in, stride = out, 1
		}
		appendTo(all, stack)
	}
	appendTo(all, layers.Conv2d(w[7], mnasnetLast, 1, layers.NoBias))
	appendTo(all, norm(mnasnetLast))
	appendTo(all, relu())
	return layers.New("torchvision.models.mnasnet.MNASNet", nil).
		Add("layers", all).
		Add("classifier", layers.Sequential(inPlaceDropout(0.2), layers.Linear(mnasnetLast, classes)))
}

func inferMnasnet(s shapes) []candidate {
	if s.size("layers.8.0.layers.0.weight", 0) == 0 {
		return nil
	}
	w := mnasnet{s.size("layers.0.weight", 0), s.size("layers.6.weight", 0)}
	for i := range mnasnetStages {
		w[i+2] = s.size(fmt.Sprintf("layers.%d.0.layers.6.weight", 8+i), 0)
	}
	if !positive(w[0], w[1:]...) {
		return nil
	}
	name, first := "mnasnet", mnasnet{32, 16}
	for known, widths := range mnasnetWidths {
		if w == widths || w[0] == first[0] && w[1] == first[1] && [6]int(w[2:]) == [6]int(widths[2:]) {
			name = known
		}
	}
	return []candidate{{name, w.module(s.classes("classifier.1.weight"))}}
}
