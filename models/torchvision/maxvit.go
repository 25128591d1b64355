package torchvision

import (
	"fmt"
	"math"
	"slices"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// maxvits are MaxViT of any sizes: torchvision/models/maxvit.py.
var maxvits = &family{
	classes: layers.Classes{
		"torchvision.models.maxvit.MaxVit":                               layers.Unary(maxvitForward),
		"torchvision.models.maxvit.MaxVitBlock":                          layers.Unary(maxvitBlockForward),
		"torchvision.models.maxvit.MaxVitLayer":                          layers.Unary(maxvitLayerForward),
		"torchvision.models.maxvit.MBConv":                               layers.Unary(mbConvForward),
		"torchvision.models.maxvit.PartitionAttentionLayer":              layers.Unary(partitionForward),
		"torchvision.models.maxvit.WindowPartition":                      {Forward: windowPartitionForward},
		"torchvision.models.maxvit.WindowDepartition":                    {Forward: windowDepartitionForward},
		"torchvision.models.maxvit.RelativePositionalMultiHeadAttention": layers.Unary(relativeAttentionForward),
		"torchvision.models.maxvit.SwapAxes": layers.Unary(func(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
			return t.Op("swapaxes", x, m.Int("a"), m.Int("b"))
		}),
	},
	names: []string{"maxvit_t"},
	make:  func(_ string, o Options) *layers.Module { return maxvitT.module(o.classes()) },
	infer: inferMaxvit,
}

// A maxvit is the sizes of one.
type maxvit struct {
	stem, partition int
	blocks          []maxvitBlock
}

// A maxvitBlock is the sizes of a block: its layers, channels, and those inside its convolutions.
type maxvitBlock struct {
	depth, out, mid, squeezed, heads, mlp int
}

var maxvitT = maxvit{64, 7, []maxvitBlock{
	{2, 64, 256, 16, 2, 256}, {2, 128, 512, 32, 4, 512}, {5, 256, 1024, 64, 8, 1024}, {2, 512, 2048, 128, 16, 2048},
}}

func maxvitNorm(channels int) *layers.Module {
	return layers.BatchNorm2d(channels, layers.Eps(1e-3), layers.Attr("momentum", 0.01))
}

func (v maxvit) module(classes int) *layers.Module {
	blocks, in := layers.ModuleList(), v.stem
	for _, b := range v.blocks {
		list := layers.ModuleList()
		for i := range b.depth {
			appendTo(list, b.layer(in, 2-min(i, 1), v.partition))
			in = b.out
		}
		appendTo(blocks, layers.New("torchvision.models.maxvit.MaxVitBlock", nil).Add("layers", list))
	}
	return layers.New("torchvision.models.maxvit.MaxVit", nil).
		Add("stem", layers.Sequential(
			convNormActivation(3, v.stem, 3, maxvitNorm, gelu, layers.Stride(2)),
			convNormActivation(v.stem, v.stem, 3, nil, nil))).
		Add("blocks", blocks).
		Add("classifier", layers.Sequential(
			layers.AdaptiveAvgPool2d(1), layers.Flatten(), layers.LayerNorm(in), layers.Linear(in, in), layers.Tanh(),
			layers.Linear(in, classes, layers.NoBias)))
}

func (b maxvitBlock) layer(in, stride, partition int) *layers.Module {
	return layers.New("torchvision.models.maxvit.MaxVitLayer", nil).Add("layers", layers.Sequential().
		Add("MBconv", b.convolution(in, stride)).
		Add("window_attention", b.attention("window", partition)).
		Add("grid_attention", b.attention("grid", partition)))
}

func (b maxvitBlock) convolution(in, stride int) *layers.Module {
	proj := layers.Identity()
	if stride != 1 || in != b.out {
		proj = layers.Sequential()
		if stride == 2 {
			appendTo(proj, layers.AvgPool2d(3, layers.Stride(2), layers.Padding(1)))
		}
		appendTo(proj, layers.Conv2d(in, b.out, 1))
	}
	return layers.New("torchvision.models.maxvit.MBConv", nil).
		Add("proj", proj).
		Add("stochastic_depth", layers.Identity()).
		Add("layers", layers.Sequential().
			Add("pre_norm", maxvitNorm(in)).
			Add("conv_a", convNormActivation(in, b.mid, 1, maxvitNorm, gelu)).
			Add("conv_b", convNormActivation(b.mid, b.mid, 3, maxvitNorm, gelu,
				layers.Stride(stride), layers.Groups(b.mid))).
			Add("squeeze_excitation", squeezeExcitation(b.mid, b.squeezed, layers.SiLU(), layers.Sigmoid())).
			Add("conv_c", layers.Conv2d(b.mid, b.out, 1)))
}

func (b maxvitBlock) attention(kind string, partition int) *layers.Module {
	swap := func() *layers.Module {
		if kind == "window" {
			return layers.Identity()
		}
		return layers.New("torchvision.models.maxvit.SwapAxes", map[string]any{"a": -2, "b": -3})
	}
	places := partition * partition
	relative := layers.New("torchvision.models.maxvit.RelativePositionalMultiHeadAttention", map[string]any{
		"n_heads": b.heads, "head_dim": b.out / b.heads, "max_seq_len": places,
		"scale_factor": math.Pow(float64(b.out), -0.5),
	}).
		Param("relative_position_bias_table", (2*partition-1)*(2*partition-1), b.heads)
	relative.Params = append(relative.Params, layers.Param{
		Name: "relative_position_index", DType: tensor.Int64, Shape: tensor.Shape{places, places}, Buffer: true,
		Init: func() *tensor.Tensor { return relativeIndex([]int{places, places}, partition, partition) },
	})
	relative.Add("to_qkv", layers.Linear(b.out, 3*b.out)).Add("merge", layers.Linear(b.out, b.out))
	return layers.New("torchvision.models.maxvit.PartitionAttentionLayer", map[string]any{
		"partition_type": kind, "partition_size": partition,
	}).
		Add("partition_op", layers.New("torchvision.models.maxvit.WindowPartition", nil)).
		Add("departition_op", layers.New("torchvision.models.maxvit.WindowDepartition", nil)).
		Add("partition_swap", swap()).
		Add("departition_swap", swap()).
		Add("attn_layer", layers.Sequential(layers.LayerNorm(b.out), relative, layers.Dropout(0))).
		Add("mlp_layer", layers.Sequential(layers.LayerNorm(b.out), layers.Linear(b.out, b.mlp), gelu(),
			layers.Linear(b.mlp, b.out), layers.Dropout(0))).
		Add("stochastic_dropout", stochasticDepth(0))
}

// inferMaxvit reads the sizes off the shapes. The size of the pictures does not show, and the modules do not need it.
func inferMaxvit(s shapes) []candidate {
	v := maxvit{stem: s.size("stem.0.0.weight", 0)}
	v.partition = int(
		math.Sqrt(float64(s.size("blocks.0.layers.0.layers.window_attention.attn_layer.1.relative_position_index", 0))),
	)
	for i := 0; ; i++ {
		at := fmt.Sprintf("blocks.%d.layers.", i)
		b := maxvitBlock{
			depth:    s.count(at, ".layers.MBconv.layers.conv_c.weight"),
			out:      s.size(at+"0.layers.MBconv.layers.conv_c.weight", 0),
			mid:      s.size(at+"0.layers.MBconv.layers.conv_c.weight", 1),
			squeezed: s.size(at+"0.layers.MBconv.layers.squeeze_excitation.fc1.weight", 0),
			heads:    s.size(at+"0.layers.window_attention.attn_layer.1.relative_position_bias_table", 1),
			mlp:      s.size(at+"0.layers.window_attention.mlp_layer.1.weight", 0),
		}
		if b.depth == 0 {
			break
		}
		if !positive(b.out, b.mid, b.squeezed, b.heads, b.mlp) || b.out%b.heads != 0 {
			return nil
		}
		v.blocks = append(v.blocks, b)
	}
	if !positive(v.stem, v.partition, len(v.blocks)) || v.partition > 1<<10 {
		return nil
	}
	name := "maxvit"
	if v.stem == maxvitT.stem && v.partition == maxvitT.partition && slices.Equal(v.blocks, maxvitT.blocks) {
		name = "maxvit_t"
	}
	return []candidate{{name: name, root: v.module(s.size("classifier.5.weight", 0))}}
}

func maxvitForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	x = t.Child(m, "stem", x)
	if blocks := m.Child("blocks"); blocks != nil {
		x = t.Each(blocks, x)
	}
	return t.Child(m, "classifier", x)
}

func maxvitBlockForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	if list := m.Child("layers"); list != nil {
		x = t.Each(list, x)
	}
	return x
}

func maxvitLayerForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	return t.Child(m, "layers", x)
}

func mbConvForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	shortcut := t.Child(m, "proj", x)
	return t.Op("add.Tensor", shortcut, t.Child(m, "stochastic_depth", t.Child(m, "layers", x)))
}

// partitionForward attends inside windows of partition_size, or inside grids of as many places that are spread over the
// picture. A pickled module knows the size of the picture that it was made for, others take what they are given.
func partitionForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	if len(x.Shape()) != 4 {
		t.Fail("takes [batch, channels, height, width], not %v", x.Shape())
	}
	height, width := x.Shape()[2], x.Shape()[3]
	p := 0
	if _, pickled := m.Attrs["p"]; pickled {
		grid := m.Ints("grid_size", 2)
		p, height, width = m.Int("p"), grid[0], grid[1]
	} else if p = m.Int("partition_size"); m.Text("partition_type") == "grid" && p > 0 {
		p = height / p
	}
	if p < 1 || height%p != 0 || width%p != 0 {
		t.Fail("%v cannot be cut into %d by %d parts", x.Shape(), p, p)
	}
	x = one(t, t.ChildOf(m, "partition_op", x, p))
	x = t.Child(m, "partition_swap", x)
	x = t.Op("add.Tensor", x, t.Child(m, "stochastic_dropout", t.Child(m, "attn_layer", x)))
	x = t.Op("add.Tensor", x, t.Child(m, "stochastic_dropout", t.Child(m, "mlp_layer", x)))
	x = t.Child(m, "departition_swap", x)
	return one(t, t.ChildOf(m, "departition_op", x, p, height/p, width/p))
}

// numbers returns the tensor and the integers that a forward was given.
func numbers(t *layers.Trace, args []any, rank, n int) (layers.Tensor, []int) {
	if len(args) == n+1 {
		x, ok := args[0].(layers.Tensor)
		ints := make([]int, 0, n)
		for _, a := range args[1:] {
			if i, isInt := a.(int); isInt && i > 0 {
				ints = append(ints, i)
			}
		}
		if ok && len(ints) == n && len(x.Shape()) == rank {
			return x, ints
		}
	}
	t.Fail("takes a tensor of %d dimensions and %d numbers", rank, n)
	return nil, nil
}

func windowPartitionForward(t *layers.Trace, _ *layers.Module, args ...any) any {
	x, n := numbers(t, args, 4, 1)
	p, s := n[0], x.Shape()
	x = t.Op("reshape", x, []int{s[0], s[1], s[2] / p, p, s[3] / p, p})
	x = t.Op("permute", x, []int{0, 2, 4, 3, 5, 1})
	return t.Op("reshape", x, []int{s[0], s[2] / p * (s[3] / p), p * p, s[1]})
}

func windowDepartitionForward(t *layers.Trace, _ *layers.Module, args ...any) any {
	x, n := numbers(t, args, 4, 3)
	p, rows, columns, s := n[0], n[1], n[2], x.Shape()
	x = t.Op("reshape", x, []int{s[0], rows, columns, p, p, s[3]})
	x = t.Op("permute", x, []int{0, 5, 1, 3, 2, 4})
	return t.Op("reshape", x, []int{s[0], s[3], rows * p, columns * p})
}

func relativeAttentionForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	if len(x.Shape()) != 4 {
		t.Fail("takes [batch, windows, places, channels], not %v", x.Shape())
	}
	s, places := x.Shape(), m.Int("max_seq_len")
	parts := t.Tensors("chunk", t.Child(m, "to_qkv", x), 3, -1)
	if len(parts) != 3 {
		t.Fail("queries, keys and values are not three equal parts")
	}
	for i, part := range parts {
		part = t.Op("reshape", part, []int{s[0], s[1], s[2], m.Int("n_heads"), m.Int("head_dim")})
		parts[i] = t.Op("permute", part, []int{0, 1, 3, 2, 4})
	}
	k := t.Op("mul.Tensor", parts[1], m.Float("scale_factor"))
	attn := t.Op("einsum", "B G H I D, B G H J D -> B G H I J", []layers.Tensor{parts[0], k})
	index := t.Op("view", t.Param(m, "relative_position_index"), []int{-1})
	bias := relativeBias(t, t.Param(m, "relative_position_bias_table"), index, places)
	attn = t.Op("softmax.int", t.Op("add.Tensor", attn, bias), -1)
	out := t.Op("einsum", "B G H I J, B G H J D -> B G H I D", []layers.Tensor{attn, parts[2]})
	return t.Child(m, "merge", t.Op("reshape", t.Op("permute", out, []int{0, 1, 3, 2, 4}), []int(s)))
}
