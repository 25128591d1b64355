package calibrate

import (
	"slices"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// A sample is an op in a size that models have it in.
type sample struct {
	kind  graph.Kind
	in    []tensor.Shape
	attrs graph.Attrs
	// weight says that the second operand is one.
	weight bool
	// alike are kinds that are taken to be as fast.
	alike []graph.Kind
}

// convolved is the activation of sampled convolutions.
const convolved = string(cost.ConvActivation)

// sampled is the path of the op that is measured, among others that are there for its sake.
const sampled = "sampled"

// graph returns a graph of the sample's op, and after a convolution some more, since a device may arrange activations
// differently where there are several in a row.
func (s sample) graph(ops *graph.Registry) (*graph.Graph, error) {
	g := &graph.Graph{}
	op := graph.Op{Kind: s.kind, Attrs: s.attrs, Path: sampled}
	for i, shape := range s.in {
		switch {
		case shape == nil:
			op.In = append(op.In, graph.Absent)
		case s.weight && i > 0:
			op.In = append(op.In, weight(g, shape))
		default:
			op.In = append(op.In, g.Whole(g.AddInput("", tensor.Float32, shape)))
		}
	}
	out, err := g.Emit(ops, op)
	if err != nil {
		return nil, err
	}
	if s.kind == "conv" {
		for range 4 {
			channels := g.Values[out[0]].Shape[1]
			next := graph.Op{Kind: "conv", Attrs: window(1, 1, 0, 1), In: []graph.Operand{
				g.Whole(out[0]), weight(g, tensor.Shape{channels, channels, 1, 1}), graph.Absent,
			}}
			if out, err = g.Emit(ops, next); err != nil {
				return nil, err
			}
		}
	}
	for _, id := range out {
		g.Outputs = append(g.Outputs, graph.Output{Operand: g.Whole(id)})
	}
	return g, nil
}

// weight adds a weight that lies nowhere: its numbers do not matter.
func weight(g *graph.Graph, shape tensor.Shape) graph.Operand {
	layout := tensor.Contiguous(shape...)
	bytes := int64(tensor.Float32.Size())
	for _, n := range shape {
		bytes *= int64(n)
	}
	id := g.AddWeight(tensor.Weight{
		DType: tensor.Float32, Layout: layout, Extent: storage.Extent{Bytes: bytes},
	}, graph.Weight)
	return graph.Operand{Value: id, Layout: layout}
}

// picture is what convolutions and pools see in the middle of a network, sequence what transformers do.
var (
	picture  = tensor.Shape{1, 64, 56, 56}
	channels = tensor.Shape{64}
	sequence = tensor.Shape{1, 128, 768}
	features = tensor.Shape{768}
	scores   = tensor.Shape{12, 128, 128}
	mean     = graph.Attrs{"dims": []int{2}, "dtype": tensor.Float32}
)

var (
	// An op of next to nothing shows what every op costs.
	nothing = sample{kind: "add", in: []tensor.Shape{{4}, {4}}}
	// One row times a matrix that no cache holds is how weights are streamed from memory.
	streaming = linear(1, 16384, 4096)
)

// samples are measured, in turn. Of a kind that is there several times, all count.
var samples = slices.Concat(linears(), attentions, convolutions, others)

// linear is a layer as the middle of transformers has it, or the end of a convolutional network.
func linear(rows, outputs, inputs int) sample {
	return sample{
		kind: "linear", weight: true, in: []tensor.Shape{{rows, inputs}, {outputs, inputs}, {outputs}},
		alike: []graph.Kind{"grouped_matmul"},
	}
}

// linears are layers by rows: few read weights, many compute.
func linears() []sample {
	list := []sample{linear(128, 768, 768)}
	for _, rows := range []int{1, 4, 8, 16, 32, 64, 197} {
		list = append(list, linear(rows, 1024, 1024))
	}
	return append(list,
		linear(1, 4096, 4096), linear(4, 4096, 4096), linear(8, 4096, 4096), linear(64, 4096, 4096),
		linear(1, 1000, 2048),
		linear(128, 3072, 768), linear(128, 768, 3072), linear(197, 3072, 768), linear(512, 768, 768),
	)
}

func attention(heads, queries, keys, size int) sample {
	return sample{
		kind: "scaled_dot_product_attention", attrs: graph.Attrs{"scale": 0.125},
		in: []tensor.Shape{{1, heads, queries, size}, {1, heads, keys, size}, {1, heads, keys, size}},
	}
}

var attentions = []sample{
	{kind: "matmul", in: []tensor.Shape{{12, 128, 64}, {12, 64, 128}}},
	{kind: "matmul", in: []tensor.Shape{{12, 128, 128}, {12, 128, 64}}},
	{kind: "matmul", in: []tensor.Shape{{1, 128, 768}, {1, 768, 768}}},
	attention(12, 128, 128, 64), attention(12, 197, 197, 64), attention(12, 1, 128, 64), attention(8, 512, 512, 64),
	attention(8, 128, 128, 128),
}

// conv is a convolution of a square picture, with what follows it in most networks: a batch norm and an activation.
func conv(inputs, outputs, size, kernel, stride, groups int) sample {
	padding := kernel / 2
	if stride == kernel {
		padding = 0
	}
	norm, attrs := tensor.Shape{outputs}, window(kernel, stride, padding, groups)
	attrs["eps"], attrs["act"] = 1e-5, convolved
	return sample{
		kind: "conv", weight: true, attrs: attrs, in: []tensor.Shape{
			{1, inputs, size, size}, {outputs, inputs / groups, kernel, kernel}, nil, norm, norm, norm, norm,
		},
	}
}

// convolutions are those of networks from the stem to the last stage, for pictures of 224 and more.
var convolutions = []sample{
	conv(64, 64, 56, 3, 1, 1), conv(128, 128, 28, 3, 1, 1), conv(256, 256, 14, 3, 1, 1), conv(512, 512, 7, 3, 1, 1),
	conv(256, 256, 32, 3, 1, 1), conv(64, 64, 112, 3, 1, 1), conv(512, 512, 28, 3, 1, 1), conv(256, 256, 56, 3, 2, 1),
	conv(3, 64, 224, 7, 2, 1), conv(3, 64, 224, 3, 1, 1), conv(3, 32, 224, 3, 2, 1), conv(3, 768, 224, 16, 16, 1),
	conv(64, 256, 56, 1, 1, 1), conv(256, 64, 56, 1, 1, 1), conv(512, 128, 28, 1, 1, 1), conv(256, 1024, 14, 1, 1, 1),
	conv(1024, 256, 14, 1, 1, 1), conv(512, 2048, 7, 1, 1, 1), conv(2048, 512, 7, 1, 1, 1),
	conv(256, 1024, 32, 1, 1, 1),
	conv(1024, 256, 32, 1, 1, 1), conv(256, 512, 56, 1, 2, 1), conv(16, 96, 112, 1, 1, 1), conv(144, 24, 56, 1, 1, 1),
	conv(384, 64, 14, 1, 1, 1), conv(960, 160, 7, 1, 1, 1), conv(768, 3072, 14, 1, 1, 1),
	conv(32, 32, 112, 3, 1, 32), conv(96, 96, 112, 3, 2, 96), conv(144, 144, 56, 3, 1, 144),
	conv(384, 384, 14, 3, 1, 384),
	conv(960, 960, 7, 3, 1, 960), conv(672, 672, 14, 5, 1, 672), conv(96, 96, 56, 7, 1, 96),
	conv(128, 128, 56, 3, 1, 32), conv(512, 512, 14, 3, 1, 32),
}

var others = []sample{
	{kind: "layer_norm", in: []tensor.Shape{sequence, features, features}, attrs: graph.Attrs{"dims": 1, "eps": 1e-5}},
	{kind: "rms_norm", in: []tensor.Shape{sequence, features}, attrs: graph.Attrs{"dims": 1, "eps": 1e-5}},
	{
		kind: "group_norm", in: []tensor.Shape{picture, channels, channels},
		attrs: graph.Attrs{"groups": 32, "eps": 1e-5},
	},
	{
		kind: "batch_norm", in: []tensor.Shape{picture, channels, channels, channels, channels},
		attrs: graph.Attrs{"eps": 1e-5},
	},
	{kind: "softmax", in: []tensor.Shape{scores}, attrs: graph.Attrs{"dim": 2}, alike: []graph.Kind{"log_softmax"}},
	{kind: "max_pool", in: []tensor.Shape{picture}, attrs: window(3, 2, 1, 1)},
	{kind: "avg_pool", in: []tensor.Shape{picture}, attrs: window(3, 1, 1, 1)},
	{kind: "adaptive_avg_pool", in: []tensor.Shape{picture}, attrs: graph.Attrs{"size": []int{1, 1}}},
	{kind: "mean", in: []tensor.Shape{sequence}, attrs: mean, alike: []graph.Kind{"sum", "amax"}},
	{kind: "relu", in: []tensor.Shape{picture}, alike: []graph.Kind{
		"abs", "neg", "square", "clamp", "leaky_relu", "hardswish", "hardsigmoid", "maximum", "minimum",
	}},
	{kind: "add", in: []tensor.Shape{picture, picture}, alike: []graph.Kind{"sub", "mul"}},
	{kind: "div", in: []tensor.Shape{sequence, sequence}, alike: []graph.Kind{"reciprocal", "sqrt", "rsqrt"}},
	{kind: "gelu", in: []tensor.Shape{sequence}, attrs: graph.Attrs{"approximate": "none"}},
	{kind: "silu", in: []tensor.Shape{sequence}},
	{kind: "sigmoid", in: []tensor.Shape{sequence}},
	{kind: "tanh", in: []tensor.Shape{sequence}, alike: []graph.Kind{"mish", "softplus"}},
	{kind: "exp", in: []tensor.Shape{sequence}, alike: []graph.Kind{"exp2", "expm1", "log", "log2", "log1p"}},
	{kind: "erf", in: []tensor.Shape{sequence}, alike: []graph.Kind{"erfc"}},
	{kind: "cos", in: []tensor.Shape{sequence}, alike: []graph.Kind{"sin", "tan"}},
	{kind: "pow", in: []tensor.Shape{sequence, sequence}},
}

// quickSamples has the first size of each kind and class.
func quickSamples() []sample {
	var list []sample
	seen := make(map[string]bool)
	for _, s := range samples {
		name := string(s.kind)
		if s.kind == "conv" {
			p, _ := cost.ProductOf(graph.Product{}, s.kind, s.specs(), []graph.Spec{{Shape: s.in[0]}}, s.attrs)
			name = p.Class
		}
		if !seen[name] {
			seen[name] = true
			list = append(list, s)
		}
	}
	return list
}

func (s sample) specs() []graph.Spec {
	var list []graph.Spec
	for _, shape := range s.in {
		list = append(list, graph.Spec{DType: tensor.Float32, Shape: shape})
	}
	return list
}

// Kinds returns the kinds of ops that are measured; others are taken to be as fast as one of them.
func Kinds() []graph.Kind {
	var kinds []graph.Kind
	for _, s := range samples {
		if !slices.Contains(kinds, s.kind) {
			kinds = append(kinds, s.kind)
		}
	}
	return kinds
}

// window returns the attributes of a convolution or a pool.
func window(kernel, stride, padding, groups int) graph.Attrs {
	return graph.Attrs{
		"kernel": []int{kernel, kernel}, "stride": []int{stride, stride}, "padding": []int{padding, padding},
		"dilation": []int{1, 1}, "groups": groups,
	}
}
