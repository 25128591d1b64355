package pictures

import (
	"math"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
	"github.com/optimem/optimem/tensor"
)

// siglipFamilies are transformers/models/siglip/modeling_siglip.py and, for pictures of any sides that come as patches,
// siglip2/modeling_siglip2.py: a text and a vision model and what compares them, and each alone.
var siglipFamilies = append(siglip{name: "Siglip", model: "siglip"}.families(), siglip{name: "Siglip2", model: "siglip2", patches: true}.families()...)

// A siglip is one of the two versions.
type siglip struct {
	// name begins the names of classes; model is the model_type.
	name, model string
	// patches is set where pictures are patches, [batch, patches, channels × side × side], a mask of them and how many
	// there are in each direction.
	patches bool
}

// class returns the qualified name of a class.
func (g siglip) class(name string) string {
	return "transformers.models." + g.model + ".modeling_" + g.model + "." + g.name + name
}

// families are the pair, the text model and the vision model.
func (g siglip) families() []*family.Family {
	classes := layers.Classes{
		g.class("Model"):                         {Forward: g.modelForward},
		g.class("TextModel"):                     {Forward: siglipTextForward},
		g.class("TextEmbeddings"):                {Forward: clipTextEmbeddingsForward},
		g.class("VisionModel"):                   {Forward: g.visionForward},
		g.class("VisionEmbeddings"):              {Forward: g.embeddingsForward},
		g.class("MultiheadAttentionPoolingHead"): {Forward: siglipPoolForward},
		g.class("Encoder"):                       {Forward: clipEncoderForward},
		g.class("EncoderLayer"):                  {Forward: clipEncoderLayerForward},
		g.class("Attention"):                     {Forward: clipAttentionForward},
		g.class("MLP"):                           layers.Unary(family.Through("fc1", "activation_fn", "fc2")),
		g.class("ForImageClassification"):        {Forward: g.classesForward},
	}
	visionInputs := func(c *family.Config) []layers.Port {
		part := clipConfig(c, "vision_config")
		ports := g.pictures(part)
		c.Adopt(part)
		return ports
	}
	return []*family.Family{
		{
			Model: g.model, Prefix: g.model, Classes: classes,
			Heads: []family.Head{
				{Class: g.name + "Model", Make: g.pair, Inputs: func(c *family.Config) []layers.Port {
					text, seen := clipTextInputs(c), visionInputs(c)
					for i := range seen {
						seen[i].Dims[0] = "pictures"
					}
					ports := append([]layers.Port{text[0]}, seen...)
					return append(ports, text[1:]...)
				}},
				{Class: g.name + "ForImageClassification", Inputs: visionInputs, Make: func(c *family.Config) *layers.Module {
					vision := clipPart(c, "vision_config", g.vision)
					return layers.New(g.class("ForImageClassification"), nil).
						Add("vision_model", vision).
						Add("classifier", layers.Linear(clipConfig(c, "vision_config").Size("hidden_size", 768), c.Labels()))
				}},
			},
		},
		{
			Model: g.model + "_text_model", Prefix: "text_model", Inputs: clipTextInputs,
			Heads: []family.Head{{Class: g.name + "TextModel", Make: g.text}},
		},
		{
			Model: g.model + "_vision_model", Prefix: "vision_model", Inputs: g.pictures,
			Heads: []family.Head{{Class: g.name + "VisionModel", Make: g.vision}},
		},
	}
}

// pictures are the inputs of the vision model.
func (g siglip) pictures(c *family.Config) []layers.Port {
	if !g.patches {
		return pixels(c, 224, true)
	}
	side := min(c.Size("patch_size", 16), family.MaxTable)
	mask := family.Tokens("pixel_attention_mask", true)
	mask.Dims = []string{"batch", "patches"}
	return []layers.Port{
		{
			Name: "pixel_values", DType: tensor.Float32, Shape: tensor.Shape{-1, -1, c.Table("num_channels", 3) * side * side},
			Dims: []string{"batch", "patches", ""},
		},
		mask,
		{Name: "spatial_shapes", DType: tensor.Int64, Shape: tensor.Shape{-1, 2}, Dims: []string{"batch", ""}},
	}
}

func (g siglip) pair(c *family.Config) *layers.Module {
	text, vision := clipPart(c, "text_config", g.text), clipPart(c, "vision_config", g.vision)
	if !vision.Has("head") && c.Err == nil {
		c.Fail("vision_use_head", "is false, and a model of both compares what the head gives")
	}
	return layers.New(g.class("Model"), nil).Param("logit_scale", 1).Param("logit_bias", 1).
		Add("text_model", text).Add("vision_model", vision)
}

func (g siglip) text(c *family.Config) *layers.Module {
	hidden, positions := c.Size("hidden_size", 768), c.Table("max_position_embeddings", 64)
	embeddings := layers.New(g.class("TextEmbeddings"), nil).
		Add("token_embedding", layers.Embedding(c.Size("vocab_size", 32000), hidden)).
		Add("position_embedding", layers.Embedding(positions, hidden))
	embeddings.Params = append(embeddings.Params, family.Table("position_ids", tensor.Shape{1, positions}, 1))
	return layers.New(g.class("TextModel"), map[string]any{"eager": c.Eager()}).
		Add("embeddings", embeddings).
		Add("encoder", g.encoder(c, hidden)).
		Add("final_layer_norm", layers.LayerNorm(hidden, siglipEps(c))).
		Add("head", layers.Linear(hidden, c.Size("projection_size", hidden)))
}

func siglipEps(c *family.Config) layers.Option { return layers.Eps(c.Float("layer_norm_eps", 1e-6)) }

func (g siglip) vision(c *family.Config) *layers.Module {
	hidden := c.Size("hidden_size", 768)
	m := layers.New(g.class("VisionModel"), map[string]any{"eager": c.Eager()}).
		Add("embeddings", g.embeddings(c, hidden)).
		Add("encoder", g.encoder(c, hidden)).
		Add("post_layernorm", layers.LayerNorm(hidden, siglipEps(c)))
	if c.Flag("vision_use_head", true) {
		m.Add("head", layers.New(g.class("MultiheadAttentionPoolingHead"), nil).
			Param("probe", 1, 1, hidden).
			Add("attention", layers.MultiheadAttention(hidden, c.Size("num_attention_heads", 12), layers.BatchFirst)).
			Add("layernorm", layers.LayerNorm(hidden, siglipEps(c))).
			Add("mlp", g.mlp(c, hidden)))
	}
	return m
}

func (g siglip) embeddings(c *family.Config, hidden int) *layers.Module {
	channels := c.Table("num_channels", 3)
	if g.patches {
		side, places := c.Size("patch_size", 16), c.Table("num_patches", 256)
		grid := int(math.Sqrt(float64(places)))
		if c.Err == nil && (grid*grid != places || side > 1<<10) {
			c.Fail("num_patches", "is %d and patch_size %d, which are no square of places and of pixels", places, side)
			side = 1
		}
		return layers.New(g.class("VisionEmbeddings"), map[string]any{"grid": grid}).
			Add("patch_embedding", layers.Linear(channels*side*side, hidden)).
			Add("position_embedding", layers.Embedding(places, hidden))
	}
	height, width := pair(c, "image_size", 224)
	patchHeight, patchWidth := pair(c, "patch_size", 16)
	if height != width || patchHeight != patchWidth {
		c.Unsupported("pictures or patches that are no squares")
	}
	side := height / max(patchHeight, 1)
	if side > family.MaxTable/max(side, 1) {
		c.Fail("image_size", "has more than %d patches", family.MaxTable)
		side = 1
	}
	m := layers.New(g.class("VisionEmbeddings"), map[string]any{"image_size": height}).
		Add("patch_embedding", layers.Conv2d(channels, hidden, patchHeight, layers.Stride(patchHeight))).
		Add("position_embedding", layers.Embedding(side*side, hidden))
	m.Params = append(m.Params, family.Table("position_ids", tensor.Shape{1, side * side}, 1))
	return m
}

func (g siglip) mlp(c *family.Config, hidden int) *layers.Module {
	return visionMLP(c, g.class("MLP"), hidden, c.Size("intermediate_size", 3072), c.Text("hidden_act", "gelu_pytorch_tanh"))
}

func (g siglip) encoder(c *family.Config, hidden int) *layers.Module {
	heads := c.Size("num_attention_heads", 12)
	c.Heads(hidden, heads)
	layer := func(int) *layers.Module {
		self := layers.New(g.class("Attention"), map[string]any{"head_dim": hidden / heads, "eager": c.Eager()})
		for _, name := range []string{"k_proj", "v_proj", "q_proj", "out_proj"} {
			self.Add(name, layers.Linear(hidden, hidden))
		}
		return layers.New(g.class("EncoderLayer"), nil).
			Add("layer_norm1", layers.LayerNorm(hidden, siglipEps(c))).
			Add("self_attn", self).
			Add("layer_norm2", layers.LayerNorm(hidden, siglipEps(c))).
			Add("mlp", g.mlp(c, hidden))
	}
	return layers.New(g.class("Encoder"), nil).Add("layers", c.Repeat(c.Size("num_hidden_layers", 12), layer))
}

// siglipTextForward takes input_ids, attention_mask and position_ids. A text is what its last token is, which may be
// padding.
func siglipTextForward(t *layers.Trace, m *layers.Module, args ...any) any {
	ids := family.TokenIDs(t, args)
	s := ids.Shape()
	x := t.ChildOf(m, "embeddings", ids, family.Optional(t, args, 2)).(layers.Tensor)
	mask := seenOf(t, m, family.Optional(t, args, 1), s[0], s[1], s[1])
	x = t.Child(m, "final_layer_norm", t.ChildOf(m, "encoder", x, mask).(layers.Tensor))
	return layers.Fields{
		{Name: "last_hidden_state", Value: x},
		{Name: "pooler_output", Value: t.Child(m, "head", t.Op("select.int", x, 1, -1))},
	}
}

// seenOf returns the mask of a model that sees all but padding, nil where there is none.
func seenOf(t *layers.Trace, m *layers.Module, padding layers.Tensor, batch, queries, keys int) any {
	if padding == nil {
		return nil
	}
	return family.Masking{Batch: batch, Queries: queries, Keys: keys, Padding: padding, Additive: m.Bool("eager")}.Create(t)
}

// visionForward takes pixel_values and, of patches, pixel_attention_mask and spatial_shapes.
func (g siglip) visionForward(t *layers.Trace, m *layers.Module, args ...any) any {
	mask := family.Optional(t, args, 1)
	x := t.ChildOf(m, "embeddings", family.Optional(t, args, 0), family.Optional(t, args, 2)).(layers.Tensor)
	if m.Bool("states") {
		return statesOf(t, m.Child("encoder"), x)
	}
	s := x.Shape()
	x = t.ChildOf(m, "encoder", x, seenOf(t, m, mask, s[0], s[1], s[1])).(layers.Tensor)
	x = t.Child(m, "post_layernorm", x)
	out := layers.Fields{{Name: "last_hidden_state", Value: x}}
	if m.Has("head") {
		out = append(out, layers.Field{Name: "pooler_output", Value: t.ChildOf(m, "head", x, mask)})
	}
	return out
}

// embeddingsForward takes pictures and, of patches, how many there are in each direction.
func (g siglip) embeddingsForward(t *layers.Trace, m *layers.Module, args ...any) any {
	if g.patches {
		return siglipPatches(t, m, family.Optional(t, args, 0), family.Optional(t, args, 1))
	}
	x := squarePatches(t, m, picture(t, args))
	return t.Op("add.Tensor", x, t.Child(m, "position_embedding", t.Param(m, "position_ids")))
}

// siglipPatches embeds patches, with places between those of the model's grid by how many patches a picture has.
func siglipPatches(t *layers.Trace, m *layers.Module, patches, shapes layers.Tensor) layers.Tensor {
	if patches == nil || len(patches.Shape()) != 3 || shapes == nil || len(shapes.Shape()) != 2 || shapes.Shape()[1] != 2 {
		t.Fail("pixel_values of [batch, patches, pixels] and spatial_shapes of [batch, 2] are needed")
	}
	float := layers.Named{"dtype": tensor.Float32}
	n, grid := patches.Shape()[1], m.Int("grid")
	sizes := t.Op("unsqueeze", t.Op("to.dtype", shapes, tensor.Float32), 1)
	width := t.Op("slice.Tensor", sizes, 2, 1, 2)
	all := t.Op("view", t.Op("arange", n, float), []int{1, n, 1})
	rows := t.Op("div.Tensor_mode", all, width, layers.Named{"rounding_mode": "floor"})
	at := t.Op("cat", []layers.Tensor{rows, t.Op("sub.Tensor", all, t.Op("mul.Tensor", rows, width))}, -1)
	count := t.Op("mul.Tensor", t.Op("slice.Tensor", sizes, 2, 0, 1), width)
	at = t.Op("mul.Tensor", at, t.Op("to.dtype", t.Op("lt.Tensor", all, count), tensor.Float32)) // padding is at the first place

	scale := t.Op("mul.Tensor", t.Op("reciprocal", sizes), grid)
	support := t.Op("unsqueeze", t.Op("clamp", scale, 1), 3)
	center := t.Op("sub.Tensor", t.Op("mul.Tensor", t.Op("add.Tensor", at, 0.5), scale), 0.5)
	away := t.Op("abs", t.Op("sub.Tensor", t.Op("arange", grid, float), t.Op("unsqueeze", center, 3)))
	weights := t.Op("clamp", t.Op("add.Tensor", t.Op("neg", t.Op("div.Tensor", away, support)), 1), 0)
	weights = t.Op("div.Tensor", weights, t.Op("sum.dim_IntList", weights, []int{-1}, true))
	across := t.Op("unsqueeze", t.Op("select.int", weights, 2, 0), 3)
	along := t.Op("unsqueeze", t.Op("select.int", weights, 2, 1), 2)
	weights = t.Op("flatten.using_ints", t.Op("mul.Tensor", across, along), 2)
	places := t.Op("matmul", weights, t.Param(m.Child("position_embedding"), "weight"))
	return t.Op("add.Tensor", t.Child(m, "patch_embedding", patches), places)
}

// siglipPoolForward takes what is seen and the mask of it: a learnt query attends to all.
func siglipPoolForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, padding := args[0].(layers.Tensor), family.Optional(t, args, 1)
	s := x.Shape()
	call := []any{t.Op("repeat", t.Param(m, "probe"), []int{s[0], 1, 1}), x, x}
	if padding != nil {
		mask := family.Masking{Batch: s[0], Queries: 1, Keys: s[1], Padding: padding, Additive: true}.Create(t)
		heads := m.Child("attention").Int("num_heads")
		mask = t.Op("repeat", mask, []int{1, heads, 1, 1})
		call = append(call, nil, t.Op("reshape", mask, []int{-1, 1, s[1]}))
	}
	pooled := t.ChildOf(m, "attention", call...).([]any)[0].(layers.Tensor)
	pooled = t.Op("add.Tensor", pooled, t.Child(m, "mlp", t.Child(m, "layernorm", pooled)))
	return t.Op("select.int", pooled, 1, 0)
}

// classesForward classifies by the mean of the patches that are no padding.
func (g siglip) classesForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, mask := family.Field(t.ChildOf(m, "vision_model", args...), "last_hidden_state"), family.Optional(t, args, 1)
	if mask == nil {
		x = t.Op("mean.dim", x, []int{1})
	} else {
		mask = t.Op("unsqueeze", mask, 2)
		x = t.Op("div.Tensor", t.Op("sum.dim_IntList", t.Op("mul.Tensor", x, mask), []int{1}), t.Op("sum.dim_IntList", mask, []int{1}))
	}
	return layers.Fields{{Name: "logits", Value: t.Child(m, "classifier", x)}}
}

// modelForward takes input_ids, what the vision model does, attention_mask and position_ids.
func (g siglip) modelForward(t *layers.Trace, m *layers.Module, args ...any) any {
	seen := 2
	if g.patches {
		seen = 4
	}
	ids := family.TokenIDs(t, args)
	vision, texts := t.ChildOf(m, "vision_model", args[1:min(seen, len(args))]...), t.ChildOf(
		m, "text_model", ids, family.Optional(t, args, seen), family.Optional(t, args, seen+1))
	unit := func(out any) layers.Tensor {
		x := family.Field(out, "pooler_output")
		sum := t.Op("sum.dim_IntList", t.Op("pow.Tensor_Scalar", x, 2), []int{-1}, true)
		return t.Op("div.Tensor", x, t.Op("sqrt", sum))
	}
	image, text := unit(vision), unit(texts)
	perText := t.Op("mul.Tensor", t.Op("matmul", text, t.Op("t", image)), t.Op("exp", t.Param(m, "logit_scale")))
	perText = t.Op("add.Tensor", perText, t.Param(m, "logit_bias"))
	return layers.Fields{
		{Name: "logits_per_image", Value: t.Op("t", perText)},
		{Name: "logits_per_text", Value: perText},
		{Name: "text_embeds", Value: text},
		{Name: "image_embeds", Value: image},
		{Name: "text_model_output", Value: texts},
		{Name: "vision_model_output", Value: vision},
	}
}
