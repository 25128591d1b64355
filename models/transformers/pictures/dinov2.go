package pictures

import (
	"math"
	"strings"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
)

const dinov2Class = "transformers.models.dinov2.modeling_dinov2.Dinov2"

var dinov2Vision = vision{prefix: "dinov2", class: dinov2Class, tokens: []string{"cls_token"}}

// dinov2 is transformers/models/dinov2/modeling_dinov2.py.
var dinov2 = &family.Family{
	Model: "dinov2", Prefix: "dinov2",
	Renames: strings.NewReplacer(
		"attention.attention.query", "attention.q_proj",
		"attention.attention.key", "attention.k_proj",
		"attention.attention.value", "attention.v_proj",
		"attention.output.dense", "attention.o_proj",
		"mlp.weights_out", "mlp.down_proj",
	),
	Ignored: []string{`(^|\.)mask_token$`},
	Classes: dinov2Vision.classes(layers.Classes{
		dinov2Class + "Model":                  {Forward: dinov2ModelForward},
		dinov2Class + "Encoder":                {Forward: family.LayersForward},
		dinov2Class + "Embeddings":             {Forward: dinov2EmbeddingsForward},
		dinov2Class + "Layer":                  {Forward: dinov2LayerForward},
		dinov2Class + "LayerScale":             layers.Unary(dinov2LayerScaleForward),
		dinov2Class + "SwiGLUFFN":              layers.Unary(dinov2SwiGLUForward),
		dinov2Class + "ForImageClassification": family.Headed("dinov2", dinov2LogitsForward),
	}),
	Heads: []family.Head{
		{Class: "Dinov2Model", Make: dinov2Model},
		{Class: "Dinov2ForImageClassification", Make: func(c *family.Config) *layers.Module {
			return layers.New(dinov2Class+"ForImageClassification", nil).
				Add("dinov2", dinov2Model(c)).
				Add("classifier", layers.Linear(2*c.Size("hidden_size", 768), c.Labels()))
		}},
	},
	Inputs: func(c *family.Config) []layers.Port { return pixels(c, 224, false) },
}

// dinov2Model is Dinov2Model's constructor.
func dinov2Model(c *family.Config) *layers.Module {
	hidden := c.Size("hidden_size", 768)
	eps := layers.Eps(c.Float("layer_norm_eps", 1e-6))
	inner := product(c, "mlp_ratio", hidden, 4)
	gated, act := c.Flag("use_swiglu_ffn", false), c.Text("hidden_act", "gelu")
	scale := func() *layers.Module {
		return layers.New(dinov2Class+"LayerScale", nil).Param("lambda1", hidden)
	}
	layer := func(int) *layers.Module {
		m := layers.New(dinov2Class+"Layer", nil).
			Add("norm1", layers.LayerNorm(hidden, eps)).
			Add("attention", dinov2Vision.attention(c)).
			Add("layer_scale1", scale()).
			Add("drop_path", layers.Identity()).
			Add("norm2", layers.LayerNorm(hidden, eps))
		if gated {
			m.Add("mlp", dinov2SwiGLU(c, hidden, inner))
		} else {
			m.Add("mlp", visionMLP(c, dinov2Class+"MLP", hidden, inner, act))
		}
		return m.Add("layer_scale2", scale())
	}
	return layers.New(dinov2Class+"Model", map[string]any{"eager": c.Eager()}).
		Add("embeddings", dinov2Vision.embeddings(c, 224)).
		Add("encoder", layers.New(dinov2Class+"Encoder", nil).
			Add("layer", c.Repeat(c.Size("num_hidden_layers", 12), layer))).
		Add("layernorm", layers.LayerNorm(hidden, eps))
}

// product returns int(n * entry), for an entry that is a number.
func product(c *family.Config, names string, n int, missing float64) int {
	x := float64(n) * c.Float(names, missing)
	if !(x >= 1 && x <= family.MaxSize) {
		key, _ := c.Value(names)
		c.Fail(key, "times %d is not from 1 to %d", n, family.MaxSize)
		return 1
	}
	return int(x)
}

// dinov2SwiGLU is Dinov2SwiGLUFFN. Checkpoints have gate_proj and up_proj in one tensor, weights_in.
func dinov2SwiGLU(c *family.Config, hidden, inner int) *layers.Module {
	inner = (inner*2/3 + 7) / 8 * 8
	m := layers.New(dinov2Class+"SwiGLUFFN", nil)
	if c.Holds("mlp.gate_proj.weight") || c.Holds("encoder.layer.0.mlp.gate_proj.weight") {
		m.Add("gate_proj", layers.Linear(hidden, inner)).Add("up_proj", layers.Linear(hidden, inner))
	} else {
		m.Add("weights_in", layers.Linear(hidden, 2*inner))
	}
	return m.Add("down_proj", layers.Linear(inner, hidden)).Add("act_fn", c.Activation("silu"))
}

func dinov2SwiGLUForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	var gate, up layers.Tensor
	if both := m.Child("weights_in"); both != nil {
		weights := t.Tensors("chunk", t.Param(both, "weight"), 2)
		biases := t.Tensors("chunk", t.Param(both, "bias"), 2)
		gate, up = t.Op("linear", x, weights[0], biases[0]), t.Op("linear", x, weights[1], biases[1])
		gate = t.Child(m, "act_fn", gate)
	} else {
		gate = t.Child(m, "act_fn", t.Child(m, "gate_proj", x))
		up = t.Child(m, "up_proj", x)
	}
	return t.Child(m, "down_proj", t.Op("mul.Tensor", gate, up))
}

func dinov2ModelForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x := t.ChildOf(m, "embeddings", picture(t, args)).(layers.Tensor)
	x = t.ChildOf(m, "encoder", x, seesAll(t, x, m.Bool("eager"))).(layers.Tensor)
	x = t.Child(m, "layernorm", x)
	return layers.Fields{
		{Name: "last_hidden_state", Value: x},
		{Name: "pooler_output", Value: t.Op("select.int", x, 1, 0)},
	}
}

func dinov2EmbeddingsForward(t *layers.Trace, m *layers.Module, args ...any) any {
	pixels := picture(t, args)
	x := dinov2Vision.withTokens(t, m, t.Child(m, "patch_embeddings", pixels))
	positions := positionsFor(t, t.Param(m, "position_embeddings"), x, pixels.Shape(), m.Ints("patch_size", 2))
	return t.Child(m, "dropout", t.Op("add.Tensor", x, positions))
}

// positionsFor is interpolate_pos_encoding: the positions of a square of patches, resized to the patches of a picture.
func positionsFor(t *layers.Trace, positions, x layers.Tensor, pixels []int, patch []int) layers.Tensor {
	known, height, width := positions.Shape()[1]-1, pixels[2], pixels[3]
	if x.Shape()[1]-1 == known && height == width {
		return positions
	}
	side := int(math.Sqrt(float64(known)))
	if side*side != known {
		t.Fail("%d positions of patches, which are no square, do not fit pictures of %d × %d", known, height, width)
	}
	size := x.Shape()[2]
	class := t.Op("slice.Tensor", positions, 1, nil, 1)
	grid := t.Op("reshape", t.Op("slice.Tensor", positions, 1, 1), []int{1, side, side, size})
	grid = t.Op("to.dtype", t.Op("permute", grid, []int{0, 3, 1, 2}), x.DType())
	grid = t.Op("upsample_bicubic2d.vec", grid, []int{height / patch[0], width / patch[1]}, false, nil)
	grid = t.Op("to.dtype", grid, x.DType())
	grid = t.Op("view", t.Op("permute", grid, []int{0, 2, 3, 1}), []int{1, -1, size})
	return t.Op("cat", []layers.Tensor{class, grid}, 1)
}

func dinov2LayerForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x := family.Optional(t, args, 0)
	y := t.ChildOf(m, "attention", t.Child(m, "norm1", x), args[1]).(layers.Tensor)
	x = t.Op("add.Tensor", t.Child(m, "drop_path", t.Child(m, "layer_scale1", y)), x)
	y = t.Child(m, "mlp", t.Child(m, "norm2", x))
	return t.Op("add.Tensor", t.Child(m, "drop_path", t.Child(m, "layer_scale2", y)), x)
}

func dinov2LayerScaleForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	return t.Op("mul.Tensor", x, t.Param(m, "lambda1"))
}

// dinov2LogitsForward classifies by the class token and the mean of the patches.
func dinov2LogitsForward(t *layers.Trace, m *layers.Module, x, _ layers.Tensor) any {
	mean := t.Op("mean.dim", t.Op("slice.Tensor", x, 1, 1), []int{1})
	both := t.Op("cat", []layers.Tensor{t.Op("select.int", x, 1, 0), mean}, 1)
	return layers.Fields{{Name: "logits", Value: t.Child(m, "classifier", both)}}
}
