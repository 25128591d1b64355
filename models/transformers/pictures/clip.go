package pictures

import (
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/encoders"
	"github.com/optimem/optimem/models/transformers/family"
	"github.com/optimem/optimem/tensor"
)

const clipModule = "transformers.models.clip.modeling_clip.CLIP"

// clip is transformers/models/clip/modeling_clip.py: a text and a vision model and what compares them.
var clip = &family.Family{
	Model: "clip", Prefix: "clip",
	Classes: clipClasses,
	Heads: []family.Head{
		{Class: "CLIPModel", Make: clipModel, Inputs: clipInputs},
		{Class: "CLIPTextModel", Prefix: "text_model", Make: func(c *family.Config) *layers.Module {
			return clipPart(c, "text_config", clipTextModel)
		}, Inputs: clipTextInputs},
		{Class: "CLIPVisionModel", Prefix: "vision_model", Make: func(c *family.Config) *layers.Module {
			return clipPart(c, "vision_config", clipVisionModel)
		}, Inputs: clipVisionInputs},
		{Class: "CLIPTextModelWithProjection", Make: func(c *family.Config) *layers.Module {
			return clipPart(c, "text_config", clipTextWithProjection)
		}, Inputs: clipTextInputs},
		{Class: "CLIPVisionModelWithProjection", Make: func(c *family.Config) *layers.Module {
			return clipPart(c, "vision_config", clipVisionWithProjection)
		}, Inputs: clipVisionInputs},
		{Class: "CLIPForImageClassification", Make: func(c *family.Config) *layers.Module {
			vision := clipPart(c, "vision_config", clipVisionModel)
			hidden := clipConfig(c, "vision_config").Size("hidden_size", 768)
			return layers.New(clipModule+"ForImageClassification", nil).
				Add("vision_model", vision).
				Add("classifier", layers.Linear(hidden, c.Labels()))
		}, Inputs: clipVisionInputs},
	},
}

// clipText is the text model of CLIP alone.
var clipText = &family.Family{
	Model: "clip_text_model", Prefix: "text_model",
	Heads: []family.Head{
		{Class: "CLIPTextModel", Make: clipTextModel},
		{Class: "CLIPTextModelWithProjection", Make: clipTextWithProjection},
	},
	Inputs: clipTextInputs,
}

// clipVision is the vision model of CLIP alone.
var clipVision = &family.Family{
	Model: "clip_vision_model", Prefix: "vision_model",
	Heads: []family.Head{
		{Class: "CLIPVisionModel", Make: clipVisionModel},
		{Class: "CLIPVisionModelWithProjection", Make: clipVisionWithProjection},
	},
	Inputs: func(c *family.Config) []layers.Port { return pixels(c, 224, true) },
}

// clipConfig returns the configuration of a part. Older ones have it a second time, under a name that goes first.
func clipConfig(c *family.Config, name string) *family.Config {
	if c.Fields[name+"_dict"] != nil {
		name += "_dict"
	}
	part := c.Sub(name)
	if part.Fields["attn_implementation"] == nil && c.Eager() {
		part.Fields["attn_implementation"] = "eager"
	}
	return part
}

// clipPart makes a part from its configuration.
func clipPart(c *family.Config, name string, create func(c *family.Config) *layers.Module) *layers.Module {
	part := clipConfig(c, name)
	m := create(part)
	c.Adopt(part)
	return m
}

var clipTextInputs = family.TokenInputs("attention_mask", "position_ids")

func clipVisionInputs(c *family.Config) []layers.Port {
	part := clipConfig(c, "vision_config")
	ports := pixels(part, 224, true)
	c.Adopt(part)
	return ports
}

func clipInputs(c *family.Config) []layers.Port {
	text := clipTextInputs(c)
	picture := clipVisionInputs(c)[0]
	picture.Dims = []string{"pictures", "", "", ""}
	return []layers.Port{text[0], picture, text[1], text[2]}
}

func clipModel(c *family.Config) *layers.Module {
	return clipPair(c, clipModule+"Model", 512, clipPart(c, "text_config", clipTextModel))
}

// clipPair is a model of texts and one of pictures, and what compares them; hidden is the default of how wide texts
// are.
func clipPair(c *family.Config, class string, hidden int, text *layers.Module) *layers.Module {
	vision := clipPart(c, "vision_config", clipVisionModel)
	projection := c.Size("projection_dim", 512)
	m := layers.New(class, nil)
	m.Params = append(m.Params, layers.Param{Name: "logit_scale", DType: tensor.Float32, Shape: tensor.Shape{}})
	return m.Add("text_model", text).
		Add("vision_model", vision).
		Add("visual_projection",
			layers.Linear(clipConfig(c, "vision_config").Size("hidden_size", 768), projection, layers.NoBias)).
		Add("text_projection",
			layers.Linear(clipConfig(c, "text_config").Size("hidden_size", hidden), projection, layers.NoBias))
}

func clipTextWithProjection(c *family.Config) *layers.Module {
	return layers.New(clipModule+"TextModelWithProjection", nil).
		Add("text_model", clipTextModel(c)).
		Add("text_projection", layers.Linear(c.Size("hidden_size", 512), c.Size("projection_dim", 512), layers.NoBias))
}

func clipVisionWithProjection(c *family.Config) *layers.Module {
	return layers.New(clipModule+"VisionModelWithProjection", nil).
		Add("vision_model", clipVisionModel(c)).
		Add("visual_projection", layers.Linear(c.Size("hidden_size", 768), c.Size("projection_dim", 512), layers.NoBias))
}

func clipTextModel(c *family.Config) *layers.Module {
	hidden, positions := c.Size("hidden_size", 512), c.Table("max_position_embeddings", 77)
	embeddings := layers.New(clipModule+"TextEmbeddings", nil).
		Add("token_embedding", layers.Embedding(c.Size("vocab_size", 49408), hidden)).
		Add("position_embedding", layers.Embedding(positions, hidden))
	embeddings.Params = append(embeddings.Params, family.Table("position_ids", tensor.Shape{1, positions}, 1))
	return layers.New(clipModule+"TextModel", map[string]any{
		"eos_token_id": c.Number("eos_token_id", 49407), "eager": c.Eager(),
	}).
		Add("embeddings", embeddings).
		Add("encoder", clipEncoder(c, hidden, c.Size("intermediate_size", 2048), 8)).
		Add("final_layer_norm", layers.LayerNorm(hidden, layers.Eps(c.Float("layer_norm_eps", 1e-5))))
}

func clipVisionModel(c *family.Config) *layers.Module {
	hidden, eps := c.Size("hidden_size", 768), layers.Eps(c.Float("layer_norm_eps", 1e-5))
	height, width := pair(c, "image_size", 224)
	patchHeight, patchWidth := pair(c, "patch_size", 32)
	if height != width || patchHeight != patchWidth {
		c.Unsupported("pictures or patches that are no squares")
	}
	side := height / patchHeight
	if side > family.MaxTable/max(side, 1) {
		c.Fail("image_size", "has more than %d patches", family.MaxTable)
		side = 1
	}
	positions := side*side + 1
	embeddings := layers.New(clipModule+"VisionEmbeddings", map[string]any{"image_size": height}).
		Param("class_embedding", hidden).
		Add("patch_embedding", layers.Conv2d(c.Size("num_channels", 3), hidden, patchHeight,
			layers.Stride(patchHeight), layers.NoBias)).
		Add("position_embedding", layers.Embedding(positions, hidden))
	embeddings.Params = append(embeddings.Params, family.Table("position_ids", tensor.Shape{1, positions}, 1))
	return layers.New(clipModule+"VisionModel", nil).
		Add("embeddings", embeddings).
		Add("pre_layrnorm", layers.LayerNorm(hidden, eps)).
		Add("encoder", clipEncoder(c, hidden, c.Size("intermediate_size", 3072), 12)).
		Add("post_layernorm", layers.LayerNorm(hidden, eps))
}

func clipEncoder(c *family.Config, hidden, inner, heads int) *layers.Module {
	heads = c.Size("num_attention_heads", heads)
	c.Heads(hidden, heads)
	eps, act := layers.Eps(c.Float("layer_norm_eps", 1e-5)), c.Text("hidden_act", "quick_gelu")
	layer := func(int) *layers.Module {
		self := layers.New(clipModule+"Attention", map[string]any{"head_dim": hidden / heads, "eager": c.Eager()})
		for _, name := range []string{"k_proj", "v_proj", "q_proj", "out_proj"} {
			self.Add(name, layers.Linear(hidden, hidden))
		}
		return layers.New(clipModule+"EncoderLayer", nil).
			Add("self_attn", self).
			Add("layer_norm1", layers.LayerNorm(hidden, eps)).
			Add("mlp", visionMLP(c, clipModule+"MLP", hidden, inner, act)).
			Add("layer_norm2", layers.LayerNorm(hidden, eps))
	}
	return layers.New(clipModule+"Encoder", nil).
		Add("layers", c.Repeat(c.Size("num_hidden_layers", 12), layer))
}

var clipClasses = layers.Classes{
	clipModule + "Model":                     {Forward: clipModelForward},
	clipModule + "TextModel":                 {Forward: clipTextModelForward},
	clipModule + "TextEmbeddings":            {Forward: clipTextEmbeddingsForward},
	clipModule + "VisionModel":               {Forward: clipVisionModelForward},
	clipModule + "VisionEmbeddings":          {Forward: clipVisionEmbeddingsForward},
	clipModule + "Encoder":                   {Forward: clipEncoderForward},
	clipModule + "EncoderLayer":              {Forward: clipEncoderLayerForward},
	clipModule + "Attention":                 {Forward: clipAttentionForward},
	clipModule + "MLP":                       layers.Unary(family.Through("fc1", "activation_fn", "fc2")),
	clipModule + "TextModelWithProjection":   family.Headed("text_model", clipProjected("text_embeds", "text_projection")),
	clipModule + "VisionModelWithProjection": family.Headed("vision_model", clipProjected("image_embeds", "visual_projection")),
	clipModule + "ForImageClassification":    family.Headed("vision_model", clipLogitsForward),
}

func clipTextModelForward(t *layers.Trace, m *layers.Module, args ...any) any {
	ids := family.TokenIDs(t, args)
	s := ids.Shape()
	ids = t.Op("view", ids, []int{-1, s[1]})
	x := t.ChildOf(m, "embeddings", ids, family.Optional(t, args, 2)).(layers.Tensor)
	mask := family.Masking{
		Batch: s[0], Queries: s[1], Keys: s[1], Causal: true, Padding: family.Optional(t, args, 1), Additive: m.Bool("eager"),
	}.Create(t)
	x = t.Child(m, "final_layer_norm", t.ChildOf(m, "encoder", x, mask).(layers.Tensor))
	rows := t.Op("arange", s[0])
	last := t.Op("to.dtype", ids, tensor.Int32)
	// The end of a text has the largest number, or in configurations that say which, that number.
	if end := m.Int("eos_token_id"); end != 2 {
		last = t.Op("to.dtype", t.Op("eq.Scalar", last, end), tensor.Int32)
	}
	last = t.Op("argmax", last, -1)
	return layers.Fields{
		{Name: "last_hidden_state", Value: x},
		{Name: "pooler_output", Value: t.Op("index.Tensor", x, []layers.Tensor{rows, last})},
	}
}

func clipTextEmbeddingsForward(t *layers.Trace, m *layers.Module, args ...any) any {
	ids, positions := family.Optional(t, args, 0), family.Optional(t, args, 1)
	if positions == nil {
		positions = encoders.FirstPositions(t, m, ids)
	}
	x := t.Child(m, "token_embedding", ids)
	return t.Op("add.Tensor", x, t.Child(m, "position_embedding", positions))
}

func clipVisionModelForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x := t.ChildOf(m, "embeddings", picture(t, args)).(layers.Tensor)
	x = t.Child(m, "pre_layrnorm", x)
	if m.Bool("states") {
		return statesOf(t, m.Child("encoder"), x)
	}
	x = t.ChildOf(m, "encoder", x, nil).(layers.Tensor)
	return layers.Fields{
		{Name: "last_hidden_state", Value: x},
		{Name: "pooler_output", Value: t.Child(m, "post_layernorm", t.Op("select.int", x, 1, 0))},
	}
}

func clipVisionEmbeddingsForward(t *layers.Trace, m *layers.Module, args ...any) any {
	patches := squarePatches(t, m, picture(t, args))
	class := t.Op("expand", t.Param(m, "class_embedding"), []int{patches.Shape()[0], 1, -1})
	x := t.Op("cat", []layers.Tensor{class, patches}, 1)
	return t.Op("add.Tensor", x, t.Child(m, "position_embedding", t.Param(m, "position_ids")))
}

// squarePatches returns the patches of pictures as [batch, patches, size]: of pictures as large as the model's alone.
func squarePatches(t *layers.Trace, m *layers.Module, pixels layers.Tensor) layers.Tensor {
	s, side := pixels.Shape(), m.Int("image_size")
	if s[2] != side || s[3] != side {
		t.Fail("pictures of %d × %d, and the model's are %d × %d", s[2], s[3], side, side)
	}
	x := t.Child(m, "patch_embedding", t.Op("to.dtype", pixels, tensor.Float32))
	return t.Op("transpose.int", t.Op("flatten.using_ints", x, 2), 1, 2)
}

func clipEncoderForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x := args[0]
	for _, layer := range m.Child("layers").Children {
		x = t.Run(layer.Module, x, args[1])
	}
	return x
}

func clipEncoderLayerForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x := family.Optional(t, args, 0)
	x = t.Op("add.Tensor", x, t.ChildOf(m, "self_attn", t.Child(m, "layer_norm1", x), args[1]))
	return t.Op("add.Tensor", x, t.Child(m, "mlp", t.Child(m, "layer_norm2", x)))
}

func clipAttentionForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, size := family.Optional(t, args, 0), m.Int("head_dim")
	s := x.Shape()
	q, k, v := t.Child(m, "q_proj", x), t.Child(m, "k_proj", x), t.Child(m, "v_proj", x)
	split := func(x layers.Tensor) layers.Tensor {
		return t.Op("transpose.int", t.Op("view", x, []int{s[0], s[1], -1, size}), 1, 2)
	}
	q, k, v = split(q), split(k), split(v)
	return t.Child(m, "out_proj", family.Attention{Eager: m.Bool("eager")}.Run(t, m, q, k, v, family.Optional(t, args, 1)))
}

// clipProjected returns the head that projects the pooled output.
func clipProjected(name, projection string) family.HeadForward {
	return func(t *layers.Trace, m *layers.Module, x, pooled layers.Tensor) any {
		return layers.Fields{
			{Name: name, Value: t.Child(m, projection, pooled)},
			{Name: "last_hidden_state", Value: x},
		}
	}
}

// clipLogitsForward classifies by the mean of the patches.
func clipLogitsForward(t *layers.Trace, m *layers.Module, x, _ layers.Tensor) any {
	mean := t.Op("mean.dim", t.Op("slice.Tensor", x, 1, 1), []int{1})
	return layers.Fields{{Name: "logits", Value: t.Child(m, "classifier", mean)}}
}

// clipModelForward takes input_ids, pixel_values, attention_mask and position_ids.
func clipModelForward(t *layers.Trace, m *layers.Module, args ...any) any {
	vision := t.ChildOf(m, "vision_model", family.Optional(t, args, 1))
	return clipCompared(t, m, vision, t.ChildOf(m, "text_model", family.Optional(t, args, 0), family.Optional(t, args, 2), family.Optional(t, args, 3)))
}

// clipCompared compares what the models of pictures and of texts give: their last states, and what is made of those.
func clipCompared(t *layers.Trace, m *layers.Module, seen, read any) any {
	project := func(out any, projection string) (layers.Fields, layers.Tensor) {
		fields, ok := out.(layers.Fields)
		if !ok || len(fields) != 2 {
			t.Fail("a part of CLIP gives a %T", out)
		}
		embedding := t.Child(m, projection, fields[1].Value.(layers.Tensor))
		fields[1].Value = embedding
		return fields, embedding
	}
	vision, image := project(seen, "visual_projection")
	texts, text := project(read, "text_projection")
	unit := func(x layers.Tensor) layers.Tensor {
		sum := t.Op("sum.dim_IntList", t.Op("pow.Tensor_Scalar", x, 2), []int{-1}, true)
		return t.Op("div.Tensor", x, t.Op("pow.Tensor_Scalar", sum, 0.5))
	}
	image, text = unit(image), unit(text)
	perText := t.Op("matmul", text, t.Op("t", image))
	perText = t.Op("mul.Tensor", perText, t.Op("exp", t.Param(m, "logit_scale")))
	return layers.Fields{
		{Name: "logits_per_image", Value: t.Op("t", perText)},
		{Name: "logits_per_text", Value: perText},
		{Name: "text_embeds", Value: text},
		{Name: "image_embeds", Value: image},
		{Name: "text_model_output", Value: texts},
		{Name: "vision_model_output", Value: vision},
	}
}
