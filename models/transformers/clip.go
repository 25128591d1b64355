package transformers

import (
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

const clipModule = "transformers.models.clip.modeling_clip.CLIP"

// clip is transformers/models/clip/modeling_clip.py: a text and a vision model and what compares them.
var clip = &family{
	model: "clip", prefix: "clip",
	classes: clipClasses,
	heads: []head{
		{class: "CLIPModel", make: clipModel, inputs: clipInputs},
		{class: "CLIPTextModel", prefix: "text_model", make: func(c *config) *layers.Module {
			return clipPart(c, "text_config", clipTextModel)
		}, inputs: clipTextInputs},
		{class: "CLIPVisionModel", prefix: "vision_model", make: func(c *config) *layers.Module {
			return clipPart(c, "vision_config", clipVisionModel)
		}, inputs: clipVisionInputs},
		{class: "CLIPTextModelWithProjection", make: func(c *config) *layers.Module {
			return clipPart(c, "text_config", clipTextWithProjection)
		}, inputs: clipTextInputs},
		{class: "CLIPVisionModelWithProjection", make: func(c *config) *layers.Module {
			return clipPart(c, "vision_config", clipVisionWithProjection)
		}, inputs: clipVisionInputs},
		{class: "CLIPForImageClassification", make: func(c *config) *layers.Module {
			vision := clipPart(c, "vision_config", clipVisionModel)
			hidden := clipConfig(c, "vision_config").size("hidden_size", 768)
			return layers.New(clipModule+"ForImageClassification", nil).
				Add("vision_model", vision).
				Add("classifier", layers.Linear(hidden, c.labels()))
		}, inputs: clipVisionInputs},
	},
}

// clipText is the text model of CLIP alone.
var clipText = &family{
	model: "clip_text_model", prefix: "text_model",
	heads: []head{
		{class: "CLIPTextModel", make: clipTextModel},
		{class: "CLIPTextModelWithProjection", make: clipTextWithProjection},
	},
	inputs: clipTextInputs,
}

// clipVision is the vision model of CLIP alone.
var clipVision = &family{
	model: "clip_vision_model", prefix: "vision_model",
	heads: []head{
		{class: "CLIPVisionModel", make: clipVisionModel},
		{class: "CLIPVisionModelWithProjection", make: clipVisionWithProjection},
	},
	inputs: func(c *config) []layers.Port { return pixels(c, 224, true) },
}

// clipConfig returns the configuration of a part. Older ones have it a second time, under a name that goes first.
func clipConfig(c *config, name string) *config {
	if c.fields[name+"_dict"] != nil {
		name += "_dict"
	}
	part := c.sub(name)
	if part.fields["attn_implementation"] == nil && c.eager() {
		part.fields["attn_implementation"] = "eager"
	}
	return part
}

// clipPart makes a part from its configuration.
func clipPart(c *config, name string, create func(c *config) *layers.Module) *layers.Module {
	part := clipConfig(c, name)
	m := create(part)
	c.adopt(part)
	return m
}

var clipTextInputs = tokenInputs("attention_mask", "position_ids")

func clipVisionInputs(c *config) []layers.Port {
	part := clipConfig(c, "vision_config")
	ports := pixels(part, 224, true)
	c.adopt(part)
	return ports
}

func clipInputs(c *config) []layers.Port {
	text := clipTextInputs(c)
	picture := clipVisionInputs(c)[0]
	picture.Dims = []string{"pictures", "", "", ""}
	return []layers.Port{text[0], picture, text[1], text[2]}
}

func clipModel(c *config) *layers.Module {
	return clipPair(c, clipModule+"Model", 512, clipPart(c, "text_config", clipTextModel))
}

// clipPair is a model of texts and one of pictures, and what compares them; hidden is the default of how wide texts
// are.
func clipPair(c *config, class string, hidden int, text *layers.Module) *layers.Module {
	vision := clipPart(c, "vision_config", clipVisionModel)
	projection := c.size("projection_dim", 512)
	m := layers.New(class, nil)
	m.Params = append(m.Params, layers.Param{Name: "logit_scale", DType: tensor.Float32, Shape: tensor.Shape{}})
	return m.Add("text_model", text).
		Add("vision_model", vision).
		Add("visual_projection",
			layers.Linear(clipConfig(c, "vision_config").size("hidden_size", 768), projection, layers.NoBias)).
		Add("text_projection",
			layers.Linear(clipConfig(c, "text_config").size("hidden_size", hidden), projection, layers.NoBias))
}

func clipTextWithProjection(c *config) *layers.Module {
	return layers.New(clipModule+"TextModelWithProjection", nil).
		Add("text_model", clipTextModel(c)).
		Add("text_projection", layers.Linear(c.size("hidden_size", 512), c.size("projection_dim", 512), layers.NoBias))
}

func clipVisionWithProjection(c *config) *layers.Module {
	return layers.New(clipModule+"VisionModelWithProjection", nil).
		Add("vision_model", clipVisionModel(c)).
		Add("visual_projection", layers.Linear(c.size("hidden_size", 768), c.size("projection_dim", 512), layers.NoBias))
}

func clipTextModel(c *config) *layers.Module {
	hidden, positions := c.size("hidden_size", 512), c.table("max_position_embeddings", 77)
	embeddings := layers.New(clipModule+"TextEmbeddings", nil).
		Add("token_embedding", layers.Embedding(c.size("vocab_size", 49408), hidden)).
		Add("position_embedding", layers.Embedding(positions, hidden))
	embeddings.Params = append(embeddings.Params, table("position_ids", tensor.Shape{1, positions}, 1))
	return layers.New(clipModule+"TextModel", map[string]any{
		"eos_token_id": c.number("eos_token_id", 49407), "eager": c.eager(),
	}).
		Add("embeddings", embeddings).
		Add("encoder", clipEncoder(c, hidden, c.size("intermediate_size", 2048), 8)).
		Add("final_layer_norm", layers.LayerNorm(hidden, layers.Eps(c.float("layer_norm_eps", 1e-5))))
}

func clipVisionModel(c *config) *layers.Module {
	hidden, eps := c.size("hidden_size", 768), layers.Eps(c.float("layer_norm_eps", 1e-5))
	height, width := c.pair("image_size", 224)
	patchHeight, patchWidth := c.pair("patch_size", 32)
	if height != width || patchHeight != patchWidth {
		c.unsupported("pictures or patches that are no squares")
	}
	side := height / patchHeight
	if side > maxTable/max(side, 1) {
		c.fail("image_size", "has more than %d patches", maxTable)
		side = 1
	}
	positions := side*side + 1
	embeddings := layers.New(clipModule+"VisionEmbeddings", map[string]any{"image_size": height}).
		Param("class_embedding", hidden).
		Add("patch_embedding", layers.Conv2d(c.size("num_channels", 3), hidden, patchHeight,
			layers.Stride(patchHeight), layers.NoBias)).
		Add("position_embedding", layers.Embedding(positions, hidden))
	embeddings.Params = append(embeddings.Params, table("position_ids", tensor.Shape{1, positions}, 1))
	return layers.New(clipModule+"VisionModel", nil).
		Add("embeddings", embeddings).
		Add("pre_layrnorm", layers.LayerNorm(hidden, eps)).
		Add("encoder", clipEncoder(c, hidden, c.size("intermediate_size", 3072), 12)).
		Add("post_layernorm", layers.LayerNorm(hidden, eps))
}

func clipEncoder(c *config, hidden, inner, heads int) *layers.Module {
	heads = c.size("num_attention_heads", heads)
	c.heads(hidden, heads)
	eps, act := layers.Eps(c.float("layer_norm_eps", 1e-5)), c.text("hidden_act", "quick_gelu")
	layer := func(int) *layers.Module {
		self := layers.New(clipModule+"Attention", map[string]any{"head_dim": hidden / heads, "eager": c.eager()})
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
		Add("layers", c.repeat(c.size("num_hidden_layers", 12), layer))
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
	clipModule + "MLP":                       layers.Unary(through("fc1", "activation_fn", "fc2")),
	clipModule + "TextModelWithProjection":   headed("text_model", clipProjected("text_embeds", "text_projection")),
	clipModule + "VisionModelWithProjection": headed("vision_model", clipProjected("image_embeds", "visual_projection")),
	clipModule + "ForImageClassification":    headed("vision_model", clipLogitsForward),
}

func clipTextModelForward(t *layers.Trace, m *layers.Module, args ...any) any {
	ids := tokenIDs(t, args)
	s := ids.Shape()
	ids = t.Op("view", ids, []int{-1, s[1]})
	x := t.ChildOf(m, "embeddings", ids, optional(t, args, 2)).(layers.Tensor)
	mask := masking{
		batch: s[0], queries: s[1], keys: s[1], causal: true, padding: optional(t, args, 1), additive: m.Bool("eager"),
	}.create(t)
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
	ids, positions := optional(t, args, 0), optional(t, args, 1)
	if positions == nil {
		positions = firstPositions(t, m, ids)
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
	x := optional(t, args, 0)
	x = t.Op("add.Tensor", x, t.ChildOf(m, "self_attn", t.Child(m, "layer_norm1", x), args[1]))
	return t.Op("add.Tensor", x, t.Child(m, "mlp", t.Child(m, "layer_norm2", x)))
}

func clipAttentionForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, size := optional(t, args, 0), m.Int("head_dim")
	s := x.Shape()
	q, k, v := t.Child(m, "q_proj", x), t.Child(m, "k_proj", x), t.Child(m, "v_proj", x)
	split := func(x layers.Tensor) layers.Tensor {
		return t.Op("transpose.int", t.Op("view", x, []int{s[0], s[1], -1, size}), 1, 2)
	}
	q, k, v = split(q), split(k), split(v)
	return t.Child(m, "out_proj", attention{eager: m.Bool("eager")}.run(t, m, q, k, v, optional(t, args, 1)))
}

// clipProjected returns the head that projects the pooled output.
func clipProjected(name, projection string) headForward {
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
	vision := t.ChildOf(m, "vision_model", optional(t, args, 1))
	return clipCompared(t, m, vision, t.ChildOf(m, "text_model", optional(t, args, 0), optional(t, args, 2), optional(t, args, 3)))
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
