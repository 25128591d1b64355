package torchvision

import (
	"fmt"
	"strings"

	"github.com/optimem/optimem/layers"
)

// inceptions are Inception v3: torchvision/models/inception.py. About the names see [googlenets].
var inceptions = &family{
	classes: layers.Classes{
		"torchvision.models.inception.Inception3":   layers.Unary(inceptionForward),
		"torchvision.models.inception.InceptionA":   inceptionBlock(inceptionAPaths),
		"torchvision.models.inception.InceptionB":   inceptionBlock(inceptionBPaths),
		"torchvision.models.inception.InceptionC":   inceptionBlock(inceptionCPaths),
		"torchvision.models.inception.InceptionD":   inceptionBlock(inceptionDPaths),
		"torchvision.models.inception.InceptionE":   layers.Unary(inceptionEForward),
		"torchvision.models.inception.InceptionAux": layers.Unary(inceptionAuxForward),
		"torchvision.models.inception.BasicConv2d":  layers.Unary(basicConvForward),
	},
	names: []string{"inception_v3", "inception_v3" + untransformed},
	make: func(name string, o Options) *layers.Module {
		return inception(!strings.HasSuffix(name, untransformed), true, o.classes())
	},
	infer: func(s shapes) []candidate {
		if s.size("Mixed_5b.branch1x1.conv.weight", 0) == 0 {
			return nil
		}
		return transforms("inception_v3", s, inceptionOf)
	},
	variant: inceptionOf,
	note:    transformNote,
}

// inceptionOf makes the model of one of the names with the heads of a state dict.
func inceptionOf(name string, s shapes) *layers.Module {
	aux := s.size("AuxLogits.conv0.conv.weight", 0) > 0
	return inception(!strings.HasSuffix(name, untransformed), aux, s.classes("fc.weight"))
}

// inceptionOrder is the model's forward, up to the vectors.
var inceptionOrder = []string{
	"Conv2d_1a_3x3", "Conv2d_2a_3x3", "Conv2d_2b_3x3", "maxpool1", "Conv2d_3b_1x1", "Conv2d_4a_3x3", "maxpool2",
	"Mixed_5b", "Mixed_5c", "Mixed_5d", "Mixed_6a", "Mixed_6b", "Mixed_6c", "Mixed_6d", "Mixed_6e",
	"Mixed_7a", "Mixed_7b", "Mixed_7c", "avgpool", "dropout",
}

func inception(transform, aux bool, classes int) *layers.Module {
	pool := func() *layers.Module { return layers.MaxPool2d(3, layers.Stride(2)) }
	m := layers.New("torchvision.models.inception.Inception3", map[string]any{"transform_input": transform}).
		Add("Conv2d_1a_3x3", inceptionConv(3, 32, 3, layers.Stride(2))).
		Add("Conv2d_2a_3x3", inceptionConv(32, 32, 3)).
		Add("Conv2d_2b_3x3", inceptionConv(32, 64, 3, layers.Padding(1))).
		Add("maxpool1", pool()).
		Add("Conv2d_3b_1x1", inceptionConv(64, 80, 1)).
		Add("Conv2d_4a_3x3", inceptionConv(80, 192, 3)).
		Add("maxpool2", pool()).
		Add("Mixed_5b", inceptionA(192, 32)).
		Add("Mixed_5c", inceptionA(256, 64)).
		Add("Mixed_5d", inceptionA(288, 64)).
		Add("Mixed_6a", inceptionB(288)).
		Add("Mixed_6b", inceptionC(768, 128)).
		Add("Mixed_6c", inceptionC(768, 160)).
		Add("Mixed_6d", inceptionC(768, 160)).
		Add("Mixed_6e", inceptionC(768, 192))
	if aux {
		m.Add("AuxLogits", layers.New("torchvision.models.inception.InceptionAux", nil).
			Add("conv0", inceptionConv(768, 128, 1)).
			Add("conv1", inceptionConv(128, 768, 5)).
			Add("fc", layers.Linear(768, classes)))
	}
	return m.
		Add("Mixed_7a", inceptionD(768)).
		Add("Mixed_7b", inceptionE(1280)).
		Add("Mixed_7c", inceptionE(2048)).
		Add("avgpool", layers.AdaptiveAvgPool2d(1)).
		Add("dropout", layers.Dropout(0.5)).
		Add("fc", layers.Linear(2048, classes))
}

//go:noinline
func inceptionConv(in, out, kernel int, opts ...layers.Option) *layers.Module {
	return basicConv("torchvision.models.inception.BasicConv2d", in, out, kernel, opts...)
}

// rowConv and columnConv have a window of one row, of one column, that keeps the size of the picture.
func rowConv(in, out, n int) *layers.Module {
	return inceptionConv(in, out, n, layers.Kernel(1, n), layers.Padding(0, n/2))
}

func columnConv(in, out, n int) *layers.Module {
	return inceptionConv(in, out, n, layers.Kernel(n, 1), layers.Padding(n/2, 0))
}

func inceptionA(in, pooled int) *layers.Module {
	return layers.New("torchvision.models.inception.InceptionA", nil).
		Add("branch1x1", inceptionConv(in, 64, 1)).
		Add("branch5x5_1", inceptionConv(in, 48, 1)).
		Add("branch5x5_2", inceptionConv(48, 64, 5, layers.Padding(2))).
		Add("branch3x3dbl_1", inceptionConv(in, 64, 1)).
		Add("branch3x3dbl_2", inceptionConv(64, 96, 3, layers.Padding(1))).
		Add("branch3x3dbl_3", inceptionConv(96, 96, 3, layers.Padding(1))).
		Add("branch_pool", inceptionConv(in, pooled, 1))
}

func inceptionB(in int) *layers.Module {
	return layers.New("torchvision.models.inception.InceptionB", nil).
		Add("branch3x3", inceptionConv(in, 384, 3, layers.Stride(2))).
		Add("branch3x3dbl_1", inceptionConv(in, 64, 1)).
		Add("branch3x3dbl_2", inceptionConv(64, 96, 3, layers.Padding(1))).
		Add("branch3x3dbl_3", inceptionConv(96, 96, 3, layers.Stride(2)))
}

func inceptionC(in, c7 int) *layers.Module {
	return layers.New("torchvision.models.inception.InceptionC", nil).
		Add("branch1x1", inceptionConv(in, 192, 1)).
		Add("branch7x7_1", inceptionConv(in, c7, 1)).
		Add("branch7x7_2", rowConv(c7, c7, 7)).
		Add("branch7x7_3", columnConv(c7, 192, 7)).
		Add("branch7x7dbl_1", inceptionConv(in, c7, 1)).
		Add("branch7x7dbl_2", columnConv(c7, c7, 7)).
		Add("branch7x7dbl_3", rowConv(c7, c7, 7)).
		Add("branch7x7dbl_4", columnConv(c7, c7, 7)).
		Add("branch7x7dbl_5", rowConv(c7, 192, 7)).
		Add("branch_pool", inceptionConv(in, 192, 1))
}

func inceptionD(in int) *layers.Module {
	return layers.New("torchvision.models.inception.InceptionD", nil).
		Add("branch3x3_1", inceptionConv(in, 192, 1)).
		Add("branch3x3_2", inceptionConv(192, 320, 3, layers.Stride(2))).
		Add("branch7x7x3_1", inceptionConv(in, 192, 1)).
		Add("branch7x7x3_2", rowConv(192, 192, 7)).
		Add("branch7x7x3_3", columnConv(192, 192, 7)).
		Add("branch7x7x3_4", inceptionConv(192, 192, 3, layers.Stride(2)))
}

func inceptionE(in int) *layers.Module {
	return layers.New("torchvision.models.inception.InceptionE", nil).
		Add("branch1x1", inceptionConv(in, 320, 1)).
		Add("branch3x3_1", inceptionConv(in, 384, 1)).
		Add("branch3x3_2a", rowConv(384, 384, 3)).
		Add("branch3x3_2b", columnConv(384, 384, 3)).
		Add("branch3x3dbl_1", inceptionConv(in, 448, 1)).
		Add("branch3x3dbl_2", inceptionConv(448, 384, 3, layers.Padding(1))).
		Add("branch3x3dbl_3a", rowConv(384, 384, 3)).
		Add("branch3x3dbl_3b", columnConv(384, 384, 3)).
		Add("branch_pool", inceptionConv(in, 192, 1))
}

// An inceptionPath is a branch of a block: the name of its convolutions, and how many are numbered, 0 for a single one.
type inceptionPath struct {
	name string
	n    int
}

var (
	inceptionAPaths = []inceptionPath{{"branch1x1", 0}, {"branch5x5", 2}, {"branch3x3dbl", 3}, {"branch_pool", 0}}
	inceptionBPaths = []inceptionPath{{"branch3x3", 0}, {"branch3x3dbl", 3}, {"", 0}}
	inceptionCPaths = []inceptionPath{{"branch1x1", 0}, {"branch7x7", 3}, {"branch7x7dbl", 5}, {"branch_pool", 0}}
	inceptionDPaths = []inceptionPath{{"branch3x3", 2}, {"branch7x7x3", 4}, {"", 0}}
)

// inceptionBlock is the class of blocks whose branches do not fork. The last branch pools, and has a convolution unless
// the block shrinks the picture.
func inceptionBlock(paths []inceptionPath) layers.Class {
	return layers.Unary(func(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
		var branches []layers.Tensor
		for _, p := range paths {
			branch := x
			switch {
			case p.name == "":
				branch = t.Op("max_pool2d", x, []int{3, 3}, []int{2, 2})
			case p.name == "branch_pool":
				branch = inceptionPooled(t, m, x)
			case p.n == 0:
				branch = t.Child(m, p.name, x)
			}
			for i := range p.n {
				branch = t.Child(m, fmt.Sprintf("%s_%d", p.name, i+1), branch)
			}
			branches = append(branches, branch)
		}
		return t.Op("cat", branches, 1)
	})
}

func inceptionPooled(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	return t.Child(m, "branch_pool", t.Op("avg_pool2d", x, []int{3, 3}, []int{1, 1}, []int{1, 1}))
}

func inceptionEForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	fork := func(name string, x layers.Tensor) layers.Tensor {
		return t.Op("cat", []layers.Tensor{t.Child(m, name+"a", x), t.Child(m, name+"b", x)}, 1)
	}
	branch1 := t.Child(m, "branch1x1", x)
	branch3 := fork("branch3x3_2", t.Child(m, "branch3x3_1", x))
	double := fork("branch3x3dbl_3", t.Child(m, "branch3x3dbl_2", t.Child(m, "branch3x3dbl_1", x)))
	return t.Op("cat", []layers.Tensor{branch1, branch3, double, inceptionPooled(t, m, x)}, 1)
}

func inceptionForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	x = transformInput(t, m, x)
	for _, name := range inceptionOrder {
		x = t.Child(m, name, x)
	}
	return t.Child(m, "fc", t.Op("flatten.using_ints", x, 1))
}

func inceptionAuxForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	x = t.Child(m, "conv0", t.Op("avg_pool2d", x, []int{5, 5}, []int{3, 3}))
	x = t.Op("adaptive_avg_pool2d", t.Child(m, "conv1", x), []int{1, 1})
	return t.Child(m, "fc", t.Op("flatten.using_ints", x, 1))
}
