package pictures

import (
	"maps"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/encoders"
	"github.com/optimem/optimem/models/transformers/family"
	"github.com/optimem/optimem/models/transformers/seq2seq"
	"github.com/optimem/optimem/tensor"
)

const (
	blipClass     = "transformers.models.blip.modeling_blip.Blip"
	blipTextClass = "transformers.models.blip.modeling_blip_text.BlipText"
)

// blip is transformers/models/blip/modeling_blip.py: what compares texts with pictures, and what writes of a picture.
var blip = &family.Family{
	Model: "blip", Prefix: "blip",
	Classes: blipClasses,
	Heads: []family.Head{
		{Class: "BlipModel", Make: blipModel, Inputs: func(c *family.Config) []layers.Port {
			text, picture := clipTextInputs(c), blipPictures(c)
			picture.Dims = []string{"pictures", "", "", ""}
			return []layers.Port{text[0], picture, text[1], text[2]}
		}},
		family.Transducing(func(c *family.Config) int { return clipConfig(c, "text_config").Table("max_position_embeddings", 512) }, blipPlaces,
			family.Head{Class: "BlipForConditionalGeneration", Make: func(c *family.Config) *layers.Module {
				return layers.New(blipClass+"ForConditionalGeneration", nil).
					Add("vision_model", clipPart(c, "vision_config", blipVision)).
					Add("text_decoder", clipPart(c, "text_config", blipWriter))
			}, Inputs: func(c *family.Config) []layers.Port {
				picture := blipPictures(c)
				return []layers.Port{picture, family.Tokens("input_ids", false), family.Tokens("attention_mask", true), family.Tokens("position_ids", true)}
			}}),
		{Class: "BlipVisionModel", Prefix: "vision_model", Make: func(c *family.Config) *layers.Module {
			return clipPart(c, "vision_config", blipVision)
		}, Inputs: func(c *family.Config) []layers.Port { return []layers.Port{blipPictures(c)} }},
	},
	Tied: [][2]string{
		{"text_decoder.cls.predictions.decoder.weight", "text_decoder.bert.embeddings.word_embeddings.weight"},
		{"text_decoder.cls.predictions.decoder.bias", "text_decoder.cls.predictions.bias"},
	},
	Ties: true,
}

func blipPictures(c *family.Config) layers.Port {
	part := clipConfig(c, "vision_config")
	ports := pixels(part, 384, true)
	c.Adopt(part)
	return ports[0]
}

// blipSide is how many patches there are in each direction.
func blipSide(c *family.Config) (picture, patch, side int) {
	height, width := pair(c, "image_size", 384)
	patchHeight, patchWidth := pair(c, "patch_size", 16)
	if height != width || patchHeight != patchWidth {
		c.Unsupported("pictures or patches that are no squares")
	}
	side = height / max(patchHeight, 1)
	if side > family.MaxTable/max(side, 1) {
		c.Fail("image_size", "has more than %d patches", family.MaxTable)
		side = 1
	}
	return height, patchHeight, side
}

// blipPlaces is how many states there are of a picture.
func blipPlaces(c *family.Config) int {
	part := clipConfig(c, "vision_config")
	_, _, side := blipSide(part)
	c.Adopt(part)
	return side*side + 1
}

func blipModel(c *family.Config) *layers.Module {
	text := clipPart(c, "text_config", func(c *family.Config) *layers.Module { return blipText(c, false).Add("pooler", blipPooler(c)) })
	vision, projection := clipPart(c, "vision_config", blipVision), c.Size("projection_dim", 512)
	m := layers.New(blipClass+"Model", nil)
	m.Params = append(m.Params, layers.Param{Name: "logit_scale", DType: tensor.Float32, Shape: tensor.Shape{}})
	return m.Add("text_model", text).Add("vision_model", vision).
		Add("visual_projection", layers.Linear(clipConfig(c, "vision_config").Size("hidden_size", 768), projection, layers.NoBias)).
		Add("text_projection", layers.Linear(clipConfig(c, "text_config").Size("hidden_size", 768), projection, layers.NoBias))
}

// blipVision is BlipVisionModel's constructor.
func blipVision(c *family.Config) *layers.Module {
	hidden, eps := c.Size("hidden_size", 768), layers.Eps(c.Float("layer_norm_eps", 1e-5))
	heads, inner, act := c.Size("num_attention_heads", 12), c.Size("intermediate_size", 3072), c.Text("hidden_act", "gelu")
	c.Heads(hidden, heads)
	picture, patch, side := blipSide(c)
	layer := func(int) *layers.Module {
		return layers.New(blipClass+"EncoderLayer", nil).
			Add("self_attn", layers.New(blipClass+"Attention", map[string]any{"head_dim": hidden / heads}).
				Add("qkv", layers.Linear(hidden, 3*hidden)).
				Add("projection", layers.Linear(hidden, hidden))).
			Add("layer_norm1", layers.LayerNorm(hidden, eps)).
			Add("mlp", visionMLP(c, blipClass+"MLP", hidden, inner, act)).
			Add("layer_norm2", layers.LayerNorm(hidden, eps))
	}
	return layers.New(blipClass+"VisionModel", nil).
		Add("embeddings", layers.New(blipClass+"VisionEmbeddings", map[string]any{"image_size": picture}).
			Param("class_embedding", 1, 1, hidden).
			Param("position_embedding", 1, side*side+1, hidden).
			Add("patch_embedding", layers.Conv2d(3, hidden, patch, layers.Stride(patch)))).
		Add("encoder", layers.New(blipClass+"Encoder", nil).Add("layers", c.Repeat(c.Size("num_hidden_layers", 12), layer))).
		Add("post_layernorm", layers.LayerNorm(hidden, eps))
}

// blipText is BlipTextModel's constructor, without a pooler: BERT whose layers may attend to a picture. It writes where
// each token sees those before it alone.
func blipText(c *family.Config, writes bool) *layers.Module {
	hidden, heads := c.Size("hidden_size", 768), c.Size("num_attention_heads", 8)
	inner, eps, act := c.Size("intermediate_size", 3072), layers.Eps(c.Float("layer_norm_eps", 1e-12)), c.Text("hidden_act", "gelu")
	c.Heads(hidden, heads)
	e := encoders.Encoder{Class: blipTextClass}
	attention := func(of int, kept string) *layers.Module {
		attrs := map[string]any{"num_heads": heads, "head_dim": hidden / heads}
		if writes {
			attrs[family.Keeps] = kept
		}
		return layers.New(blipTextClass+"Attention", nil).
			Add("self", layers.New(blipTextClass+"SelfAttention", attrs).
				Add("query", layers.Linear(hidden, hidden)).
				Add("key", layers.Linear(of, hidden)).
				Add("value", layers.Linear(of, hidden))).
			Add("output", e.Output("SelfOutput", hidden, hidden, eps))
	}
	layer := func(int) *layers.Module {
		m := layers.New(blipTextClass+"Layer", nil).Add("attention", attention(hidden, family.OfWritten))
		if c.Flag("is_decoder", true) {
			m.Add("crossattention", attention(c.Size("encoder_hidden_size", 768), family.OfTheSource))
		} else if writes {
			c.Fail("is_decoder", "is false, and the model writes")
		}
		return m.Add("intermediate", layers.New(blipTextClass+"Intermediate", nil).
			Add("dense", layers.Linear(hidden, inner)).
			Add("intermediate_act_fn", c.Activation(act))).
			Add("output", e.Output("Output", inner, hidden, eps))
	}
	positions := c.Table("max_position_embeddings", 512)
	embeddings := layers.New(blipTextClass+"Embeddings", nil).
		Add("word_embeddings", layers.Embedding(c.Size("vocab_size", 30524), hidden)).
		Add("position_embeddings", layers.Embedding(positions, hidden)).
		Add("LayerNorm", layers.LayerNorm(hidden, eps)).
		Add("dropout", layers.Dropout(0.1))
	embeddings.Params = append(embeddings.Params, family.Table("position_ids", tensor.Shape{1, positions}, 1))
	return layers.New(blipTextClass+"Model", map[string]any{"writes": writes}).
		Add("embeddings", embeddings).
		Add("encoder", layers.New(blipTextClass+"Encoder", nil).Add("layer", c.Repeat(c.Size("num_hidden_layers", 12), layer)))
}

func blipPooler(c *family.Config) *layers.Module {
	hidden := c.Size("hidden_size", 768)
	return layers.New(blipTextClass+"Pooler", nil).Add("dense", layers.Linear(hidden, hidden)).Add("activation", layers.Tanh())
}

// blipWriter is BlipTextLMHeadModel's constructor.
func blipWriter(c *family.Config) *layers.Module {
	hidden, words := c.Size("hidden_size", 768), c.Size("vocab_size", 30524)
	return layers.New(blipTextClass+"LMHeadModel", nil).
		Add("bert", blipText(c, true)).
		Add("cls", layers.New(blipTextClass+"OnlyMLMHead", nil).
			Add("predictions", layers.New(blipTextClass+"LMPredictionHead", nil).
				Param("bias", words).
				Add("transform", layers.New(blipTextClass+"PredictionHeadTransform", nil).
					Add("dense", layers.Linear(hidden, hidden)).
					Add("transform_act_fn", c.Activation(c.Text("hidden_act", "gelu"))).
					Add("LayerNorm", layers.LayerNorm(hidden, layers.Eps(c.Float("layer_norm_eps", 1e-12))))).
				Add("decoder", layers.Linear(hidden, words))))
}

var blipClasses = func() layers.Classes {
	all := layers.Classes{
		blipClass + "Model":                       {Forward: blipModelForward},
		blipClass + "ForConditionalGeneration":    {Forward: blipWritesForward},
		blipClass + "VisionModel":                 {Forward: blipVisionForward},
		blipClass + "VisionEmbeddings":            layers.Unary(blipEmbeddingsForward),
		blipClass + "Encoder":                     {Forward: clipEncoderForward},
		blipClass + "EncoderLayer":                {Forward: clipEncoderLayerForward},
		blipClass + "Attention":                   {Forward: blipAttentionForward},
		blipClass + "MLP":                         layers.Unary(family.Through("fc1", "activation_fn", "fc2")),
		blipTextClass + "LMHeadModel":             {Forward: blipWriterForward},
		blipTextClass + "OnlyMLMHead":             layers.Unary(family.Through("predictions")),
		blipTextClass + "LMPredictionHead":        layers.Unary(family.Through("transform", "decoder")),
		blipTextClass + "PredictionHeadTransform": layers.Unary(family.Through("dense", "transform_act_fn", "LayerNorm")),
	}
	maps.Copy(all, encoders.Encoder{Class: blipTextClass}.Classes(layers.Classes{
		blipTextClass + "Model":         {Forward: blipTextForward},
		blipTextClass + "Embeddings":    {Forward: blipTextEmbeddingsForward},
		blipTextClass + "Encoder":       {Forward: blipTextEncoderForward},
		blipTextClass + "Layer":         {Forward: blipTextLayerForward},
		blipTextClass + "SelfAttention": {Forward: blipSelfAttentionForward},
	}))
	return all
}()

func blipVisionForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x := t.ChildOf(m, "embeddings", picture(t, args)).(layers.Tensor)
	x = t.Child(m, "post_layernorm", t.ChildOf(m, "encoder", x, nil).(layers.Tensor))
	return layers.Fields{
		{Name: "last_hidden_state", Value: x},
		{Name: "pooler_output", Value: t.Child(m, "post_layernorm", t.Op("select.int", x, 1, 0))},
	}
}

func blipEmbeddingsForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	patches := squarePatches(t, m, x)
	class := t.Op("expand", t.Param(m, "class_embedding"), []int{patches.Shape()[0], 1, -1})
	return t.Op("add.Tensor", t.Op("cat", []layers.Tensor{class, patches}, 1), t.Param(m, "position_embedding"))
}

// blipAttentionForward has queries, keys and values of one projection.
func blipAttentionForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, size := family.Optional(t, args, 0), m.Int("head_dim")
	s := x.Shape()
	all := t.Op("reshape", t.Child(m, "qkv", x), []int{s[0], s[1], 3, -1, size})
	all = t.Op("permute", all, []int{2, 0, 3, 1, 4})
	q, k, v := t.Op("select.int", all, 0, 0), t.Op("select.int", all, 0, 1), t.Op("select.int", all, 0, 2)
	return t.Child(m, "projection", family.Attention{}.Run(t, m, q, k, v, nil))
}

// blipModelForward takes input_ids, pixel_values, attention_mask and position_ids.
func blipModelForward(t *layers.Trace, m *layers.Module, args ...any) any {
	vision := t.ChildOf(m, "vision_model", family.Optional(t, args, 1)).(layers.Fields)
	texts := t.ChildOf(m, "text_model", family.Optional(t, args, 0), family.Optional(t, args, 2), family.Optional(t, args, 3)).(layers.Fields)
	unit := func(x layers.Tensor) layers.Tensor {
		return t.Op("div.Tensor", x, t.Op("sqrt", t.Op("sum.dim_IntList", t.Op("mul.Tensor", x, x), []int{-1}, true)))
	}
	image := unit(t.Child(m, "visual_projection", family.Field(vision, "pooler_output")))
	text := unit(t.Child(m, "text_projection", family.Field(texts, "pooler_output")))
	perText := t.Op("mul.Tensor", t.Op("matmul", text, t.Op("t", image)), t.Op("exp", t.Param(m, "logit_scale")))
	return layers.Fields{
		{Name: "logits_per_image", Value: t.Op("t", perText)},
		{Name: "logits_per_text", Value: perText},
		{Name: "text_embeds", Value: text},
		{Name: "image_embeds", Value: image},
		{Name: "text_model_output", Value: texts},
		{Name: "vision_model_output", Value: vision},
	}
}

// blipWritesForward takes pixel_values, input_ids, attention_mask and position_ids.
func blipWritesForward(t *layers.Trace, m *layers.Module, args ...any) any {
	if _, step := t.Steps(); step {
		return layers.Fields{{Name: "logits", Value: t.ChildOf(m, "text_decoder", args[1], nil, args[3])}}
	}
	seen := family.Field(t.ChildOf(m, "vision_model", args[0]), "last_hidden_state")
	if t.Reads() {
		family.KeepSource(t, m.Child("text_decoder"), seen)
		return seq2seq.SourceOnly(seen)
	}
	ids := family.Optional(t, args, 1)
	if ids == nil || len(ids.Shape()) != 2 || ids.Shape()[0] != seen.Shape()[0] {
		t.Fail("input_ids of [%d, tokens] are needed", seen.Shape()[0])
	}
	return layers.Fields{
		{Name: "logits", Value: t.ChildOf(m, "text_decoder", ids, family.Optional(t, args, 2), family.Optional(t, args, 3), seen)},
		{Name: "image_embeds", Value: seen},
		{Name: "last_hidden_state", Value: seen},
	}
}

// blipWriterForward takes input_ids, attention_mask, position_ids and what is seen.
func blipWriterForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x := family.Field(t.ChildOf(m, "bert", args...), "last_hidden_state")
	return t.Child(m, "cls", t.Wanted(x))
}

// blipTextForward takes input_ids, attention_mask, position_ids and what is seen, nil for nothing.
func blipTextForward(t *layers.Trace, m *layers.Module, args ...any) any {
	ids := family.TokenIDs(t, args)
	s := ids.Shape()
	x := t.ChildOf(m, "embeddings", ids, family.Optional(t, args, 2))
	var mask layers.Tensor
	if _, step := t.Steps(); !step {
		mask = family.Masking{Batch: s[0], Queries: s[1], Keys: s[1], Causal: m.Bool("writes"), Padding: family.Optional(t, args, 1)}.Create(t)
	}
	x = t.ChildOf(m, "encoder", x, mask, family.Optional(t, args, 3))
	out := layers.Fields{{Name: "last_hidden_state", Value: x}}
	if m.Has("pooler") {
		out = append(out, layers.Field{Name: "pooler_output", Value: t.Child(m, "pooler", x.(layers.Tensor))})
	}
	return out
}

func blipTextEmbeddingsForward(t *layers.Trace, m *layers.Module, args ...any) any {
	ids, positions := family.TokenIDs(t, args), family.Optional(t, args, 1)
	if positions == nil {
		positions = encoders.FirstPositions(t, m, ids)
	}
	x := t.Op("add.Tensor", t.Child(m, "word_embeddings", ids), t.Child(m, "position_embeddings", positions))
	return t.Child(m, "dropout", t.Child(m, "LayerNorm", x))
}

func blipTextEncoderForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x := args[0]
	for _, layer := range m.Child("layer").Children {
		x = t.Run(layer.Module, x, args[1], args[2])
	}
	return x
}

// blipTextLayerForward takes states, a mask and what is seen.
func blipTextLayerForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x := t.ChildOf(m, "attention", args[0], args[1])
	if _, step := t.Steps(); family.Optional(t, args, 2) != nil || step {
		x = t.ChildOf(m, "crossattention", x, nil, args[2])
	}
	return t.ChildOf(m, "output", t.ChildOf(m, "intermediate", x), x)
}

// blipSelfAttentionForward takes x, a mask, and what is attended to where that is not x.
func blipSelfAttentionForward(t *layers.Trace, m *layers.Module, args ...any) any {
	heads, size := m.Int("num_heads"), m.Int("head_dim")
	if t.Reads() && m.Attrs[family.Keeps] != nil {
		return family.Keep(t, m, args[0], "key", "value", heads, size)
	}
	x, of := family.Optional(t, args, 0), family.Optional(t, args, 2)
	q := family.SplitHeads(t, m, "query", x, size)
	if family.Recalls(t, m) {
		return family.Attention{}.Recall(t, m, q)
	}
	if of == nil {
		of = x
	}
	return family.Attention{}.Run(t, m, q, family.SplitHeads(t, m, "key", of, size), family.SplitHeads(t, m, "value", of, size), family.Optional(t, args, 1))
}
