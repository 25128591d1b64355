package torchvision

import (
	"fmt"
	"math"
	"slices"

	"github.com/optimem/optimem/layers"
)

// regnets are RegNet X and Y of any sizes: torchvision/models/regnet.py.
var regnets = &family{
	classes: layers.Classes{
		"torchvision.models.regnet.RegNet":              layers.Unary(regnetForward),
		"torchvision.models.regnet.SimpleStemIN":        layers.Unary((*layers.Trace).Each),
		"torchvision.models.regnet.AnyStage":            layers.Unary((*layers.Trace).Each),
		"torchvision.models.regnet.BottleneckTransform": layers.Unary((*layers.Trace).Each),
		"torchvision.models.regnet.ResBottleneckBlock":  layers.Unary(regnetBlockForward),
	},
	names: []string{
		"regnet_y_400mf", "regnet_y_800mf", "regnet_y_1_6gf", "regnet_y_3_2gf", "regnet_y_8gf", "regnet_y_16gf",
		"regnet_y_32gf", "regnet_y_128gf", "regnet_x_400mf", "regnet_x_800mf", "regnet_x_1_6gf", "regnet_x_3_2gf",
		"regnet_x_8gf", "regnet_x_16gf", "regnet_x_32gf",
	},
	make: func(name string, o Options) *layers.Module {
		return regnetSizes[name].module(o.classes())
	},
	infer: inferRegnet,
}

// A regnet is the sizes of one: the width of the stem, the stages, and how wide the squeeze of a block is in parts of
// what comes in, 0 where there is none.
type regnet struct {
	stem    int
	stages  []regnetStage
	squeeze float64
}

// A regnetStage is the sizes of a stage: inner is the width of a block's middle convolution, group that of its groups.
type regnetStage struct{ depth, width, inner, group int }

var regnetSizes = map[string]regnet{
	"regnet_y_400mf": published(0.25, []int{1, 3, 6, 6}, []int{48, 104, 208, 440}, 8),
	"regnet_y_800mf": published(0.25, []int{1, 3, 8, 2}, []int{64, 144, 320, 784}, 16),
	"regnet_y_1_6gf": published(0.25, []int{2, 6, 17, 2}, []int{48, 120, 336, 888}, 24),
	"regnet_y_3_2gf": published(0.25, []int{2, 5, 13, 1}, []int{72, 216, 576, 1512}, 24),
	"regnet_y_8gf":   published(0.25, []int{2, 4, 10, 1}, []int{224, 448, 896, 2016}, 56),
	"regnet_y_16gf":  published(0.25, []int{2, 4, 11, 1}, []int{224, 448, 1232, 3024}, 112),
	"regnet_y_32gf":  published(0.25, []int{2, 5, 12, 1}, []int{232, 696, 1392, 3712}, 232),
	"regnet_y_128gf": published(0.25, []int{2, 7, 17, 1}, []int{528, 1056, 2904, 7392}, 264),
	"regnet_x_400mf": published(0, []int{1, 2, 7, 12}, []int{32, 64, 160, 400}, 16),
	"regnet_x_800mf": published(0, []int{1, 3, 7, 5}, []int{64, 128, 288, 672}, 16),
	"regnet_x_1_6gf": published(0, []int{2, 4, 10, 2}, []int{72, 168, 408, 912}, 24),
	"regnet_x_3_2gf": published(0, []int{2, 6, 15, 2}, []int{96, 192, 432, 1008}, 48),
	"regnet_x_8gf":   published(0, []int{2, 5, 15, 1}, []int{80, 240, 720, 1920}, 120),
	"regnet_x_16gf":  published(0, []int{2, 6, 13, 1}, []int{256, 512, 896, 2048}, 128),
	"regnet_x_32gf":  published(0, []int{2, 7, 13, 1}, []int{336, 672, 1344, 2520}, 168),
}

// published makes a regnet whose blocks are as wide inside as outside, in groups of one width.
func published(squeeze float64, depths, widths []int, group int) regnet {
	r := regnet{stem: 32, squeeze: squeeze}
	for i, width := range widths {
		r.stages = append(r.stages, regnetStage{depths[i], width, width, min(group, width)})
	}
	return r
}

func (r regnet) module(classes int) *layers.Module {
	stem := convNormActivation(3, r.stem, 3, batchNorm, layers.ReLU, layers.Stride(2))
	stem.Class = "torchvision.models.regnet.SimpleStemIN"
	trunk, in := layers.Sequential(), r.stem
	for i, s := range r.stages {
		stage, stride := layers.New("torchvision.models.regnet.AnyStage", nil), 2
		for b := range s.depth {
			stage.Add(fmt.Sprintf("block%d-%d", i+1, b), r.block(s, in, stride))
			in, stride = s.width, 1
		}
		trunk.Add(fmt.Sprintf("block%d", i+1), stage)
	}
	return layers.New("torchvision.models.regnet.RegNet", nil).
		Add("stem", stem).
		Add("trunk_output", trunk).
		Add("avgpool", layers.AdaptiveAvgPool2d(1)).
		Add("fc", layers.Linear(in, classes))
}

func (r regnet) block(s regnetStage, in, stride int) *layers.Module {
	m := layers.New("torchvision.models.regnet.ResBottleneckBlock", nil)
	if in != s.width || stride != 1 {
		m.Add("proj", convNormActivation(in, s.width, 1, batchNorm, nil, layers.Stride(stride)))
	}
	f := layers.New("torchvision.models.regnet.BottleneckTransform", nil).
		Add("a", convNormActivation(in, s.inner, 1, batchNorm, layers.ReLU)).
		Add("b", convNormActivation(s.inner, s.inner, 3, batchNorm, layers.ReLU,
			layers.Stride(stride), layers.Groups(s.inner/s.group)))
	if r.squeeze > 0 {
		f.Add("se", squeezeExcitation(s.inner, r.squeezed(in), layers.ReLU(), layers.Sigmoid()))
	}
	f.Add("c", convNormActivation(s.inner, s.width, 1, batchNorm, nil))
	return m.Add("f", f).Add("activation", layers.ReLU(layers.InPlace))
}

// squeezed is the width of the squeeze of a block, rounded as Python does.
func (r regnet) squeezed(in int) int { return int(math.RoundToEven(r.squeeze * float64(in))) }

func inferRegnet(s shapes) []candidate {
	r := regnet{stem: s.size("stem.0.weight", 0)}
	in := r.stem
	least, most := 0.0, math.Inf(1) // bounds of the squeeze's part, from the widths that it was rounded to
	for i := 1; ; i++ {
		stage := fmt.Sprintf("trunk_output.block%d.block%d-", i, i)
		first := stage + "0.f."
		size := regnetStage{
			s.count(stage, ".f.a.0.weight"), s.size(first+"c.0.weight", 0),
			s.size(first+"b.0.weight", 0), s.size(first+"b.0.weight", 1),
		}
		if !positive(in, size.depth, size.width, size.inner, size.group) || size.group > size.inner {
			break
		}
		for b, in := range []int{in, size.width} { // the blocks behind the second are like it
			if squeezed := s.size(fmt.Sprintf("%s%d.f.se.fc1.weight", stage, b), 0); squeezed > 0 {
				least = max(least, (float64(squeezed)-0.5)/float64(in))
				most = min(most, (float64(squeezed)+0.5)/float64(in))
			}
		}
		r.stages, in = append(r.stages, size), size.width
	}
	if len(r.stages) == 0 {
		return nil
	}
	if least > 0 {
		r.squeeze = (least + most) / 2
		if least <= 0.25 && 0.25 <= most {
			r.squeeze = 0.25 // as in all that were published
		}
	}
	name := "regnet"
	for known, sizes := range regnetSizes {
		if sizes.stem == r.stem && sizes.squeeze == r.squeeze && slices.Equal(sizes.stages, r.stages) {
			name = known
		}
	}
	return []candidate{{name, r.module(s.classes("fc.weight"))}}
}

func regnetForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	for _, name := range []string{"stem", "trunk_output", "avgpool"} {
		x = t.Child(m, name, x)
	}
	return t.Child(m, "fc", t.Op("flatten.using_ints", x, 1))
}

func regnetBlockForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	if m.Has("proj") {
		proj := t.Child(m, "proj", x)
		return t.Child(m, "activation", t.Op("add.Tensor", proj, t.Child(m, "f", x)))
	}
	return t.Child(m, "activation", t.Op("add.Tensor", x, t.Child(m, "f", x)))
}
