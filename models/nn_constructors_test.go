package models

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/internal/zoo"
)

// constructed are modules made by the constructors of package layers, and the recorded modules that they stand for.
var constructed = []struct {
	name   string
	module *layers.Module
}{
	{"ReLU() of 2x3x5", layers.ReLU()},
	{"ReLU(inplace=True) of 2x3x5", layers.ReLU(layers.InPlace)},
	{"ReLU6(inplace=True) of 2x3x5", layers.ReLU6(layers.InPlace)},
	{"ELU(alpha=0.5, inplace=True) of 2x3x5", layers.ELU(0.5, layers.InPlace)},
	{"LeakyReLU() of 2x3x5", layers.LeakyReLU(0.01)},
	{"PReLU(3) of 2x3x5", layers.PReLU(3)},
	{"GELU() of 2x3x5", layers.GELU("none")},
	{"GELU(approximate='tanh') of 2x3x5", layers.GELU("tanh")},
	{"SiLU(inplace=True) of 2x3x5", layers.SiLU(layers.InPlace)},
	{"Mish() of 2x3x5", layers.Mish()},
	{"Hardswish() of 2x3x5", layers.Hardswish()},
	{"Hardsigmoid() of 2x3x5", layers.Hardsigmoid()},
	{"Sigmoid() of 2x3x5", layers.Sigmoid()},
	{"Tanh() of 2x3x5", layers.Tanh()},
	{"Softmax(dim=-1) of 2x3x5", layers.Softmax(-1)},
	{"LogSoftmax(dim=1) of 2x3x5", layers.LogSoftmax(1)},
	{"Linear(6, 4) of 3x6", layers.Linear(6, 4)},
	{"Linear(6, 4, bias=False) of 2x3x6", layers.Linear(6, 4, layers.NoBias)},
	{"Bilinear(4, 5, 3, bias=True)", layers.Bilinear(4, 5, 3)},
	{"Identity() of 2x3", layers.Identity()},
	{"Flatten() of 2x3x4", layers.Flatten()},
	{"Dropout(0.4) of 2x3x4", layers.Dropout(0.4)},
	{"Conv1d(4, 6, 3, padding=2, dilation=2, groups=2) of 2x4x9",
		layers.Conv1d(4, 6, 3, layers.Padding(2), layers.Dilation(2), layers.Groups(2))},
	{"Conv2d(4, 6, 3, stride=2, padding=1, bias=False) of 2x4x9x8",
		layers.Conv2d(4, 6, 3, layers.Stride(2), layers.Padding(1), layers.NoBias)},
	{"Conv2d(4, 6, (3, 1), stride=(2, 1), padding=(1, 0), dilation=(1, 2)) of 2x4x9x8",
		layers.Conv2d(4, 6, 0, layers.Kernel(3, 1), layers.Stride(2, 1), layers.Padding(1, 0), layers.Dilation(1, 2))},
	{"Conv2d(4, 6, 3, padding='valid') of 2x4x9x8", layers.Conv2d(4, 6, 3, layers.Attr("padding", "valid"))},
	{"Conv3d(4, 6, 3) of 2x4x5x6x5", layers.Conv3d(4, 6, 3)},
	{"ConvTranspose1d(4, 6, 3) of 2x4x9", layers.ConvTranspose1d(4, 6, 3)},
	{"ConvTranspose2d(4, 6, 3, groups=2, dilation=2, bias=False) of 2x4x9x8",
		layers.ConvTranspose2d(4, 6, 3, layers.Groups(2), layers.Dilation(2), layers.NoBias)},
	{"ConvTranspose3d(4, 6, 3, stride=2, padding=1, output_padding=1) of 2x4x5x6x5",
		layers.ConvTranspose3d(4, 6, 3, layers.Stride(2), layers.Padding(1), layers.Attr("output_padding", 1))},
	{"BatchNorm1d(4) of 2x4x3", layers.BatchNorm1d(4)},
	{"BatchNorm2d(4, eps=0.1, affine=False) of 2x4x3x5",
		layers.BatchNorm2d(4, layers.Eps(0.1), layers.Attr("affine", false))},
	{"BatchNorm3d(4, track_running_stats=False) of 2x4x3x5x2",
		layers.BatchNorm3d(4, layers.Attr("track_running_stats", false))},
	{"BatchNorm1d(4, momentum=None) of 2x4x3", layers.BatchNorm1d(4, layers.Attr("momentum", nil))},
	{"InstanceNorm1d(4) of 2x4x3", layers.InstanceNorm1d(4)},
	{"InstanceNorm2d(4, affine=True, track_running_stats=True) of 2x4x3x5",
		layers.InstanceNorm2d(4, layers.Attr("affine", true), layers.Attr("track_running_stats", true))},
	{"InstanceNorm3d(4) of 2x4x3x5x2", layers.InstanceNorm3d(4)},
	{"LayerNorm(6) of 2x3x6", layers.LayerNorm(6)},
	{"LayerNorm([3, 6], eps=0.01) of 2x3x6", layers.LayerNormOver([]int{3, 6}, layers.Eps(0.01))},
	{"LayerNorm(6, bias=False) of 2x3x6", layers.LayerNorm(6, layers.NoBias)},
	{"LayerNorm(6, elementwise_affine=False) of 2x3x6",
		layers.LayerNorm(6, layers.Attr("elementwise_affine", false))},
	{"RMSNorm(6) of 2x3x6", layers.RMSNorm(6)},
	{"RMSNorm(6, elementwise_affine=False) of 2x3x6", layers.RMSNorm(6, layers.Attr("elementwise_affine", false))},
	{"GroupNorm(2, 4) of 2x4x3x5", layers.GroupNorm(2, 4)},
	{"GroupNorm(4, 4, eps=0.1, affine=False) of 2x4x3",
		layers.GroupNorm(4, 4, layers.Eps(0.1), layers.Attr("affine", false))},
	{"MaxPool1d(2) of 2x3x9", layers.MaxPool1d(2)},
	{"MaxPool2d((3, 2), (2, 1), (1, 0)) of 2x3x9x8",
		layers.MaxPool2d(0, layers.Kernel(3, 2), layers.Stride(2, 1), layers.Padding(1, 0))},
	{"MaxPool3d(2) of 2x3x6x7x6", layers.MaxPool3d(2)},
	{"AvgPool1d(2) of 2x3x9", layers.AvgPool1d(2)},
	{"AvgPool2d(2, divisor_override=3) of 2x3x9x8", layers.AvgPool2d(2, layers.Attr("divisor_override", 3))},
	{"AvgPool3d(2) of 2x3x6x7x6", layers.AvgPool3d(2)},
	{"AdaptiveAvgPool1d(3) of 2x3x9", layers.AdaptiveAvgPool1d(3)},
	{"AdaptiveAvgPool2d(3) of 2x3x9x8", layers.AdaptiveAvgPool2d(3)},
	{"AdaptiveAvgPool2d((3, 5)) of 2x3x9x8", layers.AdaptiveAvgPool2d(3, 5)},
	{"AdaptiveAvgPool3d(3) of 2x3x6x7x6", layers.AdaptiveAvgPool3d(3)},
	{"AdaptiveMaxPool2d(3) of 2x3x9x8", layers.AdaptiveMaxPool2d(3)},
	{"Upsample(mode='nearest', scale_factor=2) of 2x3x6", layers.Upsample(2, "nearest")},
	{"Upsample(mode='bilinear', align_corners=True, scale_factor=1.7) of 2x3x6x5",
		layers.Upsample(1.7, "bilinear", layers.Attr("align_corners", true))},
	{"ZeroPad2d((1, 2, 3, 0)) of 2x3x6x5", layers.ZeroPad2d(1, 2, 3, 0)},
	{"PixelShuffle(2) of 2x8x3x4", layers.PixelShuffle(2)},
	{"ChannelShuffle(3) of 2x6x3x4", layers.ChannelShuffle(3)},
	{"Embedding(10, 4) of 2x3", layers.Embedding(10, 4)},
	{"Embedding(10, 4, padding_idx=2) of 5", layers.Embedding(10, 4, layers.Attr("padding_idx", 2))},
	{"EmbeddingBag(10, 4, mode='sum') of 3x5", layers.EmbeddingBag(10, 4, "sum")},
	{"LSTM(4, 6, )", layers.LSTM(4, 6)},
	{"LSTM(4, 6, proj_size=3, num_layers=2, bidirectional=True, batch_first=True)",
		layers.LSTM(4, 6, layers.Attr("proj_size", 3), layers.Layers(2), layers.Bidirectional, layers.BatchFirst)},
	{"GRU(4, 6, num_layers=2, bidirectional=True, batch_first=True)",
		layers.GRU(4, 6, layers.Layers(2), layers.Bidirectional, layers.BatchFirst)},
	{"RNN(4, 6, bias=False)", layers.RNN(4, 6, layers.NoBias)},
	{"MultiheadAttention(8, 2, {})", layers.MultiheadAttention(8, 2)},
	{"MultiheadAttention(8, 2, {'add_bias_kv': True, 'add_zero_attn': True, 'batch_first': True})",
		layers.MultiheadAttention(8, 2, layers.Attr("add_bias_kv", true),
			layers.Attr("add_zero_attn", true), layers.BatchFirst)},
	{"MultiheadAttention(8, 2, {'kdim': 6, 'vdim': 10, 'bias': False, 'batch_first': True})",
		layers.MultiheadAttention(8, 2, layers.Attr("kdim", 6), layers.Attr("vdim", 10), layers.NoBias,
			layers.BatchFirst)},
	{"TransformerEncoderLayer(8, 2, 12, )", layers.TransformerEncoderLayer(8, 2, 12)},
	{"TransformerEncoderLayer(8, 2, 12, layer_norm_eps=0.01, batch_first=True, norm_first=True)",
		layers.TransformerEncoderLayer(8, 2, 12, layers.Attr("layer_norm_eps", 0.01), layers.BatchFirst,
			layers.Attr("norm_first", true))},
	{"TransformerDecoderLayer(8, 2, 12, bias=False)", layers.TransformerDecoderLayer(8, 2, 12, layers.NoBias)},
	{"Sequential, nested",
		(&layers.Module{Class: "torch.nn.modules.container.Sequential"}).Add("stem",
			layers.Sequential(layers.Linear(4, 5), layers.ReLU(layers.InPlace))).Add("head", layers.Linear(5, 2))},
}

// TestNNConstructors compares modules made by constructors with those that Python's constructors make: state dicts,
// attributes and children.
func TestNNConstructors(t *testing.T) {
	cases, err := zoo.Modules("testdata/nn/nn.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	for _, made := range constructed {
		name, got := made.name, made.module
		i := slices.IndexFunc(cases, func(c zoo.Recorded) bool { return c.Name == name })
		if i < 0 {
			t.Errorf("no case %s is recorded", name)
			continue
		}
		ckpt, err := cases[i].Checkpoint()
		if err != nil {
			t.Fatal(err)
		}
		a, err := pickledArchitecture(ckpt)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(a.Root.StateDict(), got.StateDict()); diff != "" {
			t.Errorf("%s: state dicts (-Python +Go):\n%s", name, diff)
		}
		var want, have []string
		a.Root.Walk(func(path string, m *layers.Module) { want = append(want, path+" "+m.Class) })
		got.Walk(func(path string, m *layers.Module) { have = append(have, path+" "+m.Class) })
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("%s: modules (-Python +Go):\n%s", name, diff)
			continue
		}
		got.Walk(func(path string, m *layers.Module) {
			recorded := a.Root.Child(path)
			for attr, v := range m.Attrs {
				if want, ok := recorded.Attrs[attr]; !ok || plainText(want) != plainText(v) {
					t.Errorf("%s: %s.%s is %v, in Python %v", name, path, attr, v, want)
				}
			}
		})
	}
}

// plainText writes an attribute such that one number and several equal ones are the same, as they are to the classes.
func plainText(v any) string {
	var parts []string
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			parts = append(parts, fmt.Sprint(x))
		}
	case []int:
		for _, x := range v {
			parts = append(parts, fmt.Sprint(x))
		}
	default:
		parts = []string{fmt.Sprint(v)}
	}
	if all := slices.Compact(slices.Clone(parts)); len(all) == 1 {
		parts = all
	}
	return fmt.Sprint(parts)
}
