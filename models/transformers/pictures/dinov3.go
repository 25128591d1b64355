package pictures

import (
	"math"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
	"github.com/optimem/optimem/tensor"
)

const dinov3Class = "transformers.models.dinov3_vit.modeling_dinov3_vit.DINOv3ViT"

// dinov3 is transformers/models/dinov3_vit/modeling_dinov3_vit.py: a ViT whose patches are turned by where they are.
// Older files have its layers without the encoder's name.
var dinov3 = &family.Family{
	Model: "dinov3_vit", Prefix: "model",
	Ignored: []string{`(^|\.)mask_token$`, `(^|\.)register_tokens$`, `(^|\.)rope_embeddings\.inv_freq$`},
	Classes: layers.Classes{
		dinov3Class + "Model":                 {Forward: dinov3ModelForward},
		dinov3Class + "Embeddings":            {Forward: dinov3EmbeddingsForward},
		dinov3Class + "RopePositionEmbedding": {Forward: dinov3RopeForward},
		dinov3Class + "Encoder":               {Forward: family.LayersForward},
		dinov3Class + "Layer":                 {Forward: dinov3LayerForward},
		dinov3Class + "LayerScale":            layers.Unary(dinov2LayerScaleForward),
		dinov3Class + "Attention":             {Forward: dinov3AttentionForward},
		dinov3Class + "MLP":                   layers.Unary(family.Through("up_proj", "act_fn", "down_proj")),
		dinov3Class + "GatedMLP":              layers.Unary(dinov3GatedForward),
	},
	Heads:  []family.Head{{Class: "DINOv3ViTModel", Make: dinov3Model}},
	Inputs: func(c *family.Config) []layers.Port { return pixels(c, 224, false) },
}

func dinov3Model(c *family.Config) *layers.Module {
	hidden, heads, inner := c.Size("hidden_size", 384), c.Size("num_attention_heads", 6), c.Size("intermediate_size", 1536)
	patch, other := pair(c, "patch_size", 16)
	if patch != other {
		c.Unsupported("patches that are no squares")
	}
	c.Heads(hidden, heads)
	size := hidden / max(heads, 1)
	if c.Err == nil && size%4 != 0 {
		c.Fail("", "heads of %d numbers are no multiple of 4", size)
	}
	if c.Err == nil && size > family.MaxTable {
		c.Fail("hidden_size", "has heads of %d numbers, more than %d", size, family.MaxTable)
	}
	norm := func() *layers.Module { return layers.LayerNorm(hidden, layers.Eps(c.Float("layer_norm_eps", 1e-5))) }
	bias := func(key string, missing bool) layers.Option { return layers.Attr("bias", c.Flag(key, missing)) }
	scale := func() *layers.Module { return layers.New(dinov3Class+"LayerScale", nil).Param("lambda1", hidden) }
	layer := func(int) *layers.Module {
		mlp := layers.New(dinov3Class+"MLP", nil)
		if c.Flag("use_gated_mlp", false) {
			mlp = layers.New(dinov3Class+"GatedMLP", nil).Add("gate_proj", layers.Linear(hidden, inner, bias("mlp_bias", true)))
		}
		mlp.Add("up_proj", layers.Linear(hidden, inner, bias("mlp_bias", true))).
			Add("down_proj", layers.Linear(inner, hidden, bias("mlp_bias", true))).
			Add("act_fn", c.Activation(c.Text("hidden_act", "gelu")))
		return layers.New(dinov3Class+"Layer", nil).
			Add("norm1", norm()).
			Add("attention", layers.New(dinov3Class+"Attention", map[string]any{"head_dim": size, "eager": c.Eager()}).
				Add("k_proj", layers.Linear(hidden, hidden, bias("key_bias", false))).
				Add("v_proj", layers.Linear(hidden, hidden, bias("value_bias", true))).
				Add("q_proj", layers.Linear(hidden, hidden, bias("query_bias", true))).
				Add("o_proj", layers.Linear(hidden, hidden, bias("proj_bias", true)))).
			Add("layer_scale1", scale()).
			Add("norm2", norm()).
			Add("mlp", mlp).
			Add("layer_scale2", scale())
	}
	embeddings := layers.New(dinov3Class+"Embeddings", nil).Param("cls_token", 1, 1, hidden)
	if n := c.Number("num_register_tokens", 0); n > 0 {
		embeddings.Param("register_tokens", 1, n, hidden)
	}
	return layers.New(dinov3Class+"Model", map[string]any{"patch": patch}).
		Add("embeddings", embeddings.
			Add("patch_embeddings", layers.Conv2d(c.Size("num_channels", 3), hidden, patch, layers.Stride(patch)))).
		Add("rope_embeddings", dinov3Rope(c, size)).
		Add("model", layers.New(dinov3Class+"Encoder", nil).Add("layer", c.Repeat(c.Size("num_hidden_layers", 12), layer))).
		Add("norm", norm())
}

// dinov3Rope has the frequencies that both directions have.
func dinov3Rope(c *family.Config, size int) *layers.Module {
	base := c.Float("rope_theta", 100)
	if c.Fields["rope_parameters"] != nil {
		p := c.Sub("rope_parameters")
		base = p.Float("rope_theta", base)
		if kind := p.Text("rope_type", "default"); kind != "default" {
			c.Unsupported("rope_type " + kind)
		}
		c.Adopt(p)
	}
	m := layers.New(dinov3Class+"RopePositionEmbedding", nil)
	n := max(size/4, 1)
	if c.Err != nil {
		n = 1
	}
	freq := make([]float32, n)
	for i := range freq {
		freq[i] = 1 / float32(math.Pow(base, float64(float32(float64(i)*(4/float64(max(size, 1)))))))
	}
	m.Params = append(m.Params, layers.Param{
		Name: "inv_freq", DType: tensor.Float32, Shape: tensor.Shape{n}, Buffer: true, Transient: true, Value: tensor.Of(freq, n),
	})
	return m
}

func dinov3ModelForward(t *layers.Trace, m *layers.Module, args ...any) any {
	pixels := picture(t, args)
	s, patch := pixels.Shape(), m.Int("patch")
	if s[2] < patch || s[3] < patch {
		t.Fail("pictures of %d × %d are smaller than a patch of %d", s[2], s[3], patch)
	}
	x := t.ChildOf(m, "embeddings", pixels)
	x = t.ChildOf(m, "model", x, t.ChildOf(m, "rope_embeddings", s[2]/patch, s[3]/patch))
	last := t.Child(m, "norm", x.(layers.Tensor))
	return layers.Fields{
		{Name: "last_hidden_state", Value: last},
		{Name: "pooler_output", Value: t.Op("select.int", last, 1, 0)},
	}
}

func dinov3EmbeddingsForward(t *layers.Trace, m *layers.Module, args ...any) any {
	pixels := picture(t, args)
	batch := pixels.Shape()[0]
	x := t.Child(m, "patch_embeddings", t.Op("to.dtype", pixels, tensor.Float32))
	x = t.Op("transpose.int", t.Op("flatten.using_ints", x, 2), 1, 2)
	parts := []layers.Tensor{t.Op("expand", t.Param(m, "cls_token"), []int{batch, -1, -1})}
	if len(m.Params) > 1 {
		parts = append(parts, t.Op("expand", t.Param(m, "register_tokens"), []int{batch, -1, -1}))
	}
	return t.Op("cat", append(parts, x), 1)
}

// dinov3RopeForward takes how many patches there are in each direction, and returns cosines and sines of their centers.
func dinov3RopeForward(t *layers.Trace, m *layers.Module, args ...any) any {
	height, width := args[0].(int), args[1].(int)
	centers := func(n int, view []int) layers.Tensor {
		x := t.Op("div.Tensor", t.Op("add.Tensor", t.Op("arange", n, layers.Named{"dtype": tensor.Float32}), 0.5), n)
		return t.Op("expand", t.Op("view", x, view), []int{height, width, 1})
	}
	at := t.Op("cat", []layers.Tensor{centers(height, []int{-1, 1, 1}), centers(width, []int{1, -1, 1})}, -1)
	at = t.Op("sub.Tensor", t.Op("mul.Tensor", t.Op("view", at, []int{height * width, 2, 1}), 2.0), 1.0)
	angles := t.Op("mul.Tensor", t.Op("mul.Tensor", at, 2*math.Pi), t.Param(m, "inv_freq"))
	angles = t.Op("flatten.using_ints", angles, 1, 2)
	angles = t.Op("cat", []layers.Tensor{angles, angles}, -1)
	return []layers.Tensor{t.Op("cos", angles), t.Op("sin", angles)}
}

func dinov3LayerForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x := family.Optional(t, args, 0)
	y := t.ChildOf(m, "attention", t.Child(m, "norm1", x), args[1]).(layers.Tensor)
	x = t.Op("add.Tensor", t.Child(m, "layer_scale1", y), x)
	y = t.Child(m, "mlp", t.Child(m, "norm2", x))
	return t.Op("add.Tensor", t.Child(m, "layer_scale2", y), x)
}

// dinov3AttentionForward turns the queries and keys of patches, which are behind the tokens of the class and registers.
func dinov3AttentionForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, size := family.Optional(t, args, 0), m.Int("head_dim")
	angles := args[1].([]layers.Tensor)
	first := x.Shape()[1] - angles[0].Shape()[0]
	turned := func(name string) layers.Tensor {
		all := family.SplitHeads(t, m, name, x, size)
		patches := family.Rotate(t, t.Op("slice.Tensor", all, 2, first, math.MaxInt64), angles[0], angles[1])
		return t.Op("cat", []layers.Tensor{t.Op("slice.Tensor", all, 2, 0, first), patches}, 2)
	}
	q, k, v := turned("q_proj"), turned("k_proj"), family.SplitHeads(t, m, "v_proj", x, size)
	return t.Child(m, "o_proj", family.Attention{Eager: m.Bool("eager")}.Run(t, m, q, k, v, nil))
}

func dinov3GatedForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	gate := t.Child(m, "act_fn", t.Child(m, "gate_proj", x))
	return t.Child(m, "down_proj", t.Op("mul.Tensor", gate, t.Child(m, "up_proj", x)))
}
