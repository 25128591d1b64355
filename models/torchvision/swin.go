package torchvision

import (
	"math"
	"slices"
	"strconv"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// swins are Swin Transformer and its second version: torchvision/models/swin_transformer.py.
var swins = &family{
	classes: layers.Classes{
		"torchvision.models.swin_transformer.SwinTransformer":          layers.Unary(swinForward),
		"torchvision.models.swin_transformer.SwinTransformerBlock":     layers.Unary(swinBlockForward),
		"torchvision.models.swin_transformer.SwinTransformerBlockV2":   layers.Unary(swinBlockV2Forward),
		"torchvision.models.swin_transformer.PatchMerging":             layers.Unary(patchMergingForward),
		"torchvision.models.swin_transformer.PatchMergingV2":           layers.Unary(patchMergingV2Forward),
		"torchvision.models.swin_transformer.ShiftedWindowAttention":   layers.Unary(shiftedWindowForward),
		"torchvision.models.swin_transformer.ShiftedWindowAttentionV2": layers.Unary(shiftedWindowV2Forward),
	},
	names: []string{"swin_t", "swin_s", "swin_b", "swin_v2_t", "swin_v2_s", "swin_v2_b"},
	make:  func(name string, o Options) *layers.Module { return swinSizes[name].module(o.classes()) },
	infer: inferSwin,
}

// A swin is the sizes of one: those of its stages have one element for each.
type swin struct {
	v2            bool
	patch, width  int
	window        int
	depths, heads []int
	mlp           int // how many times wider the layer inside an MLP is
}

var swinSizes = map[string]swin{
	"swin_t":    {false, 4, 96, 7, []int{2, 2, 6, 2}, []int{3, 6, 12, 24}, 4},
	"swin_s":    {false, 4, 96, 7, []int{2, 2, 18, 2}, []int{3, 6, 12, 24}, 4},
	"swin_b":    {false, 4, 128, 7, []int{2, 2, 18, 2}, []int{4, 8, 16, 32}, 4},
	"swin_v2_t": {true, 4, 96, 8, []int{2, 2, 6, 2}, []int{3, 6, 12, 24}, 4},
	"swin_v2_s": {true, 4, 96, 8, []int{2, 2, 18, 2}, []int{3, 6, 12, 24}, 4},
	"swin_v2_b": {true, 4, 128, 8, []int{2, 2, 18, 2}, []int{4, 8, 16, 32}, 4},
}

func (s swin) equal(o swin) bool {
	return s.v2 == o.v2 && s.patch == o.patch && s.width == o.width && s.window == o.window && s.mlp == o.mlp &&
		slices.Equal(s.depths, o.depths) && slices.Equal(s.heads, o.heads)
}

// class returns the name of a class, that of the second version where it is one.
func (s swin) class(name string) string {
	if s.v2 {
		name += "V2"
	}
	return "torchvision.models.swin_transformer." + name
}

func (s swin) module(classes int) *layers.Module {
	features := layers.Sequential(layers.Sequential(
		layers.Conv2d(3, s.width, s.patch, layers.Stride(s.patch)),
		permute(0, 2, 3, 1),
		layers.LayerNorm(s.width),
	))
	width := s.width
	for i, depth := range s.depths {
		stage := layers.Sequential()
		for b := range depth {
			appendTo(stage, s.block(width, s.heads[i], b%2*(s.window/2)))
		}
		appendTo(features, stage)
		if i < len(s.depths)-1 {
			normed := 4 * width
			if s.v2 {
				normed = 2 * width
			}
			appendTo(features, layers.New(s.class("PatchMerging"), map[string]any{"dim": width}).
				Add("reduction", layers.Linear(4*width, 2*width, layers.NoBias)).
				Add("norm", layers.LayerNorm(normed)))
			width *= 2
		}
	}
	return layers.New("torchvision.models.swin_transformer.SwinTransformer", nil).
		Add("features", features).
		Add("norm", layers.LayerNorm(width)).
		Add("permute", permute(0, 3, 1, 2)).
		Add("avgpool", layers.AdaptiveAvgPool2d(1)).
		Add("flatten", layers.Flatten()).
		Add("head", layers.Linear(width, classes))
}

func (s swin) block(width, heads, shift int) *layers.Module {
	return layers.New(s.class("SwinTransformerBlock"), nil).
		Add("norm1", layers.LayerNorm(width)).
		Add("attn", s.attention(width, heads, shift)).
		Add("stochastic_depth", stochasticDepth(0)).
		Add("norm2", layers.LayerNorm(width)).
		Add("mlp", mlp(width, []int{s.mlp * width, width}, gelu, 0))
}

func (s swin) attention(width, heads, shift int) *layers.Module {
	w := s.window
	m := layers.New(s.class("ShiftedWindowAttention"), map[string]any{
		"window_size": []int{w, w}, "shift_size": []int{shift, shift}, "num_heads": heads,
		"attention_dropout": 0.0, "dropout": 0.0,
	})
	if s.v2 {
		m.Param("logit_scale", heads, 1, 1)
		m.Params = append(m.Params, layers.Param{
			Name: "relative_coords_table", DType: tensor.Float32, Shape: tensor.Shape{1, 2*w - 1, 2*w - 1, 2},
			Buffer: true,
			Init:   func() *tensor.Tensor { return relativeCoords(w) },
		})
	} else {
		m.Param("relative_position_bias_table", (2*w-1)*(2*w-1), heads)
	}
	m.Params = append(m.Params, layers.Param{
		Name: "relative_position_index", DType: tensor.Int64, Shape: tensor.Shape{w * w * w * w}, Buffer: true,
		Init: func() *tensor.Tensor { return relativeIndex([]int{w * w * w * w}, w, w) },
	})
	m.Add("qkv", layers.Linear(width, 3*width)).Add("proj", layers.Linear(width, width))
	if s.v2 {
		m.Add("cpb_mlp", layers.Sequential(
			layers.Linear(2, 512), layers.ReLU(layers.InPlace), layers.Linear(512, heads, layers.NoBias)))
	}
	return m
}

// relativeIndex is the row in a table of relative positions for each pair of places in a window of the given sizes.
func relativeIndex(shape []int, sizes ...int) *tensor.Tensor {
	places := 1
	for _, s := range sizes {
		places *= s
	}
	index := make([]int64, 0, places*places)
	for a := range places {
		for b := range places {
			// Both are numbers of places, row-major; their digits are the coordinates.
			row, step, x, y := 0, 1, a, b
			for d := len(sizes) - 1; d >= 0; d-- {
				row += (x%sizes[d] - y%sizes[d] + sizes[d] - 1) * step
				step *= 2*sizes[d] - 1
				x, y = x/sizes[d], y/sizes[d]
			}
			index = append(index, int64(row))
		}
	}
	return tensor.Of(index, shape...)
}

// relativeCoords is the distances in a window of that size, on a logarithmic scale.
func relativeCoords(window int) *tensor.Tensor {
	scaled := func(i int) float32 {
		x := float64(i-window+1) / float64(window-1) * 8
		return float32(math.Copysign(math.Log2(math.Abs(x)+1)/3, x))
	}
	side := 2*window - 1
	table := make([]float32, 0, side*side*2)
	for i := range side {
		for j := range side {
			table = append(table, scaled(i), scaled(j))
		}
	}
	return tensor.Of(table, 1, side, side, 2)
}

// inferSwin reads the sizes off the shapes, all of which show.
func inferSwin(d shapes) []candidate {
	s := swin{patch: d.size("features.0.0.weight", 3), width: d.size("features.0.0.weight", 0)}
	first := "features.1.0.attn."
	s.v2 = d.size(first+"logit_scale", 0) > 0
	if s.v2 {
		s.window = (d.size(first+"relative_coords_table", 1) + 1) / 2
	} else {
		s.window = (int(math.Sqrt(float64(d.size(first+"relative_position_bias_table", 0)))) + 1) / 2
	}
	if s.patch < 1 || s.width < 1 || s.window < 1 || s.window > 1<<10 || d.size("head.weight", 0) == 0 {
		return nil
	}
	s.mlp = d.size("features.1.0.mlp.0.weight", 0) / s.width
	for i := 1; ; i += 2 {
		stage := "features." + strconv.Itoa(i) + "."
		depth := d.count(stage, ".attn.qkv.weight")
		if depth == 0 {
			break
		}
		heads := d.size(stage+"0.attn.logit_scale", 0)
		if !s.v2 {
			heads = d.size(stage+"0.attn.relative_position_bias_table", 1)
		}
		if heads == 0 || len(s.depths) > 8 {
			return nil
		}
		s.depths, s.heads = append(s.depths, depth), append(s.heads, heads)
	}
	if len(s.depths) == 0 {
		return nil
	}
	name := "swin"
	if s.v2 {
		name = "swin_v2"
	}
	for known, sizes := range swinSizes {
		if sizes.equal(s) {
			name = known
		}
	}
	return []candidate{{name: name, root: s.module(d.size("head.weight", 0))}}
}

func swinForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	for _, name := range []string{"features", "norm", "permute", "avgpool", "flatten", "head"} {
		x = t.Child(m, name, x)
	}
	return x
}

func swinBlockForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	x = t.Op("add.Tensor", x, t.Child(m, "stochastic_depth", t.Child(m, "attn", t.Child(m, "norm1", x))))
	return t.Op("add.Tensor", x, t.Child(m, "stochastic_depth", t.Child(m, "mlp", t.Child(m, "norm2", x))))
}

// swinBlockV2Forward normalizes after the attention, not before.
func swinBlockV2Forward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	x = t.Op("add.Tensor", x, t.Child(m, "stochastic_depth", t.Child(m, "norm1", t.Child(m, "attn", x))))
	return t.Op("add.Tensor", x, t.Child(m, "stochastic_depth", t.Child(m, "norm2", t.Child(m, "mlp", x))))
}

func patchMergingForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	return t.Child(m, "reduction", t.Child(m, "norm", mergePatches(t, x)))
}

func patchMergingV2Forward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	return t.Child(m, "norm", t.Child(m, "reduction", mergePatches(t, x)))
}

// mergePatches makes one place of each four: _patch_merging_pad.
func mergePatches(t *layers.Trace, x layers.Tensor) layers.Tensor {
	n := len(x.Shape())
	if n < 3 {
		t.Fail("takes [..., height, width, channels], not %v", x.Shape())
	}
	h, w := n-3, n-2
	x = t.Op("pad", x, []int{0, 0, 0, x.Shape()[w] % 2, 0, x.Shape()[h] % 2})
	var parts []layers.Tensor
	for _, from := range [][2]int{{0, 0}, {1, 0}, {0, 1}, {1, 1}} {
		rows := t.Op("slice.Tensor", x, h, from[0], math.MaxInt, 2)
		parts = append(parts, t.Op("slice.Tensor", rows, w, from[1], math.MaxInt, 2))
	}
	return t.Op("cat", parts, -1)
}

func shiftedWindowForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	window := m.Ints("window_size", 2)
	bias := relativeBias(t, t.Param(m, "relative_position_bias_table"), t.Param(m, "relative_position_index"),
		window[0]*window[1])
	return shiftedWindow(t, m, x, bias, window, nil)
}

func shiftedWindowV2Forward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	window := m.Ints("window_size", 2)
	table := t.Op("view", t.Child(m, "cpb_mlp", t.Param(m, "relative_coords_table")), []int{-1, m.Int("num_heads")})
	bias := relativeBias(t, table, t.Param(m, "relative_position_index"), window[0]*window[1])
	bias = t.Op("mul.Tensor", t.Op("sigmoid", bias), 16)
	return shiftedWindow(t, m, x, bias, window, t.Param(m, "logit_scale"))
}

// relativeBias is what a window of n places adds to its attention: _get_relative_position_bias.
func relativeBias(t *layers.Trace, table, index layers.Tensor, n int) layers.Tensor {
	x := t.Op("view", t.Op("index.Tensor", table, []layers.Tensor{index}), []int{n, n, -1})
	return t.Op("unsqueeze", t.Op("contiguous", t.Op("permute", x, []int{2, 0, 1})), 0)
}

// shiftedWindow is shifted_window_attention: attention inside windows of [batch, height, width, channels]. The cosine
// one of the second version has a scale of its logits.
func shiftedWindow(
	t *layers.Trace, m *layers.Module, x, bias layers.Tensor, window []int, logitScale layers.Tensor,
) layers.Tensor {
	heads, shift := m.Int("num_heads"), slices.Clone(m.Ints("shift_size", 2))
	if len(x.Shape()) != 4 || heads < 1 || window[0] < 1 || window[1] < 1 {
		t.Fail("windows of %v in %v, %d heads", window, x.Shape(), heads)
	}
	batch, height, width, channels := x.Shape()[0], x.Shape()[1], x.Shape()[2], x.Shape()[3]
	right, bottom := upTo(width, window[1])-width, upTo(height, window[0])-height
	x = t.Op("pad", x, []int{0, 0, 0, right, 0, bottom})
	padded := []int{height + bottom, width + right}
	for i := range shift {
		if window[i] >= padded[i] {
			shift[i] = 0 // one window holds it all
		}
	}
	shifted := shift[0]+shift[1] > 0
	if shifted {
		x = t.Op("roll", x, []int{-shift[0], -shift[1]}, []int{1, 2})
	}
	rows, columns, places := padded[0]/window[0], padded[1]/window[1], window[0]*window[1]
	x = t.Op("view", x, []int{batch, rows, window[0], columns, window[1], channels})
	x = t.Op("reshape", t.Op("permute", x, []int{0, 1, 3, 2, 4, 5}), []int{batch * rows * columns, places, channels})

	weight, qkvBias := t.Param(m.Child("qkv"), "weight"), t.Param(m.Child("qkv"), "bias")
	if logitScale != nil && qkvBias != nil {
		qkvBias = t.Op("clone", qkvBias)
		third := qkvBias.Shape()[0] / 3
		t.Op("zero_", t.Op("slice.Tensor", qkvBias, 0, third, 2*third)) // keys have no bias
	}
	qkv := t.Op("reshape", t.Op("linear", x, weight, qkvBias),
		[]int{batch * rows * columns, places, 3, heads, channels / heads})
	qkv = t.Op("permute", qkv, []int{2, 0, 3, 1, 4})
	q, k, v := t.Op("select.int", qkv, 0, 0), t.Op("select.int", qkv, 0, 1), t.Op("select.int", qkv, 0, 2)
	var attn layers.Tensor
	if logitScale != nil {
		q, k = normalize(t, q), normalize(t, k)
		attn = t.Op("matmul", q, t.Op("transpose.int", k, -2, -1))
		attn = t.Op("mul.Tensor", attn, t.Op("exp", t.Op("clamp", logitScale, nil, math.Log(100))))
	} else {
		q = t.Op("mul.Tensor", q, math.Pow(float64(channels/heads), -0.5))
		attn = t.Op("matmul", q, t.Op("transpose.int", k, -2, -1))
	}
	attn = t.Op("add.Tensor", attn, bias)
	if shifted {
		mask := windowMask(t, x, padded, window, shift)
		attn = t.Op("view", attn, []int{batch, rows * columns, heads, places, places})
		attn = t.Op("add.Tensor", attn, t.Op("unsqueeze", t.Op("unsqueeze", mask, 1), 0))
		attn = t.Op("view", attn, []int{-1, heads, places, places})
	}
	attn = t.Op("softmax.int", attn, -1)

	x = t.Op("reshape", t.Op("transpose.int", t.Op("matmul", attn, v), 1, 2),
		[]int{batch * rows * columns, places, channels})
	x = t.Op("linear", x, t.Param(m.Child("proj"), "weight"), t.Param(m.Child("proj"), "bias"))
	x = t.Op("view", x, []int{batch, rows, columns, window[0], window[1], channels})
	x = t.Op("reshape", t.Op("permute", x, []int{0, 1, 3, 2, 4, 5}), []int{batch, padded[0], padded[1], channels})
	if shifted {
		x = t.Op("roll", x, shift, []int{1, 2})
	}
	x = t.Op("slice.Tensor", t.Op("slice.Tensor", x, 1, 0, height), 2, 0, width)
	return t.Op("contiguous", x)
}

// windowMask keeps places apart that lie in one window only because the picture was shifted around its edge.
func windowMask(t *layers.Trace, x layers.Tensor, padded, window, shift []int) layers.Tensor {
	mask := t.Op("new_zeros", x, padded)
	parts := func(d int) [][2]int {
		return [][2]int{{0, -window[d]}, {-window[d], -shift[d]}, {-shift[d], math.MaxInt}}
	}
	count := 0
	for _, h := range parts(0) {
		for _, w := range parts(1) {
			t.Op("fill_.Scalar", t.Op("slice.Tensor", t.Op("slice.Tensor", mask, 0, h[0], h[1]), 1, w[0], w[1]), count)
			count++
		}
	}
	rows, columns := padded[0]/window[0], padded[1]/window[1]
	mask = t.Op("view", mask, []int{rows, window[0], columns, window[1]})
	mask = t.Op("reshape", t.Op("permute", mask, []int{0, 2, 1, 3}), []int{rows * columns, window[0] * window[1]})
	return apart(t, mask)
}

// apart is −100 for each two places with different numbers in a window, else 0.
func apart(t *layers.Trace, mask layers.Tensor) layers.Tensor {
	mask = t.Op("sub.Tensor", t.Op("unsqueeze", mask, 1), t.Op("unsqueeze", mask, 2))
	far := t.Op("masked_fill.Scalar", mask, t.Op("ne.Scalar", mask, 0), -100.0)
	return t.Op("masked_fill.Scalar", far, t.Op("eq.Scalar", mask, 0), 0.0)
}

// normalize is torch.nn.functional.normalize over the last dimension.
func normalize(t *layers.Trace, x layers.Tensor) layers.Tensor {
	norm := t.Op("clamp_min", t.Op("linalg_vector_norm", x, 2.0, []int{-1}, true), 1e-12)
	return t.Op("div.Tensor", x, t.Op("expand_as", norm, x))
}

// upTo returns the multiple of step that is not less than n.
func upTo(n, step int) int { return (n + step - 1) / step * step }
