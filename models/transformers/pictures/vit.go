// Package pictures has models of Python's transformers that see: encoders of pictures (ViT, DINO), pairs of those with encoders
// of texts (CLIP, SigLIP), and models that write what they see (BLIP, LLaVA).
//
// It knows modules and their configurations. It does not know the decoders of texts, which a configuration finds by their names
// ([family.Config]), files, devices or the meaning of ops.
//
//	all = append(all, pictures.Families...)
package pictures

import (
	"maps"
	"slices"
	"strings"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
	"github.com/optimem/optimem/tensor"
)

const (
	vitClass  = "transformers.models.vit.modeling_vit.ViT"
	deitClass = "transformers.models.deit.modeling_deit.DeiT"
)

// A vision is a transformer over the patches of a picture: ViT, and what consists of its parts under other names.
type vision struct {
	// prefix is base_model_prefix; class the module and the beginning of the class names in Python.
	prefix, class string
	// tokens are the parameters that come before the patches.
	tokens []string
}

var (
	vitVision  = vision{prefix: "vit", class: vitClass, tokens: []string{"cls_token"}}
	deitVision = vision{prefix: "deit", class: deitClass, tokens: []string{"cls_token", "distillation_token"}}
)

// oldVisionNames are the names in checkpoints, which save_pretrained writes to this day.
var oldVisionNames = strings.NewReplacer(
	"encoder.layer.", "layers.",
	"attention.attention.query", "attention.q_proj",
	"attention.attention.key", "attention.k_proj",
	"attention.attention.value", "attention.v_proj",
	"attention.output.dense", "attention.o_proj",
	"intermediate.dense", "mlp.fc1",
	"output.dense", "mlp.fc2",
)

// vit is transformers/models/vit/modeling_vit.py.
var vit = &family.Family{
	Model: "vit", Prefix: "vit", Renames: oldVisionNames,
	Ignored: []string{`(^|\.)pooler\.`, `(^|\.)mask_token$`},
	Classes: vitVision.classes(layers.Classes{
		vitClass + "ForImageClassification": family.Headed("vit", logitsOfFirst(0, "classifier")),
	}),
	Heads: []family.Head{
		{Class: "ViTModel", Make: func(c *family.Config) *layers.Module {
			return vitVision.model(c, c.Holds("pooler.dense.weight"))
		}},
		{Class: "ViTForImageClassification", Make: func(c *family.Config) *layers.Module {
			return layers.New(vitClass+"ForImageClassification", nil).
				Add("vit", vitVision.model(c, false)).
				Add("classifier", layers.Linear(c.Size("hidden_size", 768), c.Labels()))
		}},
	},
	Inputs: func(c *family.Config) []layers.Port { return pixels(c, 224, true) },
}

// deit is transformers/models/deit/modeling_deit.py.
var deit = &family.Family{
	Model: "deit", Prefix: "deit", Renames: oldVisionNames,
	Ignored: []string{`(^|\.)pooler\.`, `(^|\.)mask_token$`},
	Classes: deitVision.classes(layers.Classes{
		deitClass + "ForImageClassification":            family.Headed("deit", logitsOfFirst(0, "classifier")),
		deitClass + "ForImageClassificationWithTeacher": family.Headed("deit", deitWithTeacherForward),
	}),
	Heads: []family.Head{
		{Class: "DeiTModel", Make: func(c *family.Config) *layers.Module {
			return deitVision.model(c, c.Holds("pooler.dense.weight"))
		}},
		{Class: "DeiTForImageClassification", Make: func(c *family.Config) *layers.Module {
			return layers.New(deitClass+"ForImageClassification", nil).
				Add("deit", deitVision.model(c, false)).
				Add("classifier", layers.Linear(c.Size("hidden_size", 768), c.Labels()))
		}},
		{Class: "DeiTForImageClassificationWithTeacher", Make: func(c *family.Config) *layers.Module {
			hidden := c.Size("hidden_size", 768)
			return layers.New(deitClass+"ForImageClassificationWithTeacher", nil).
				Add("deit", deitVision.model(c, false)).
				Add("cls_classifier", layers.Linear(hidden, c.Labels())).
				Add("distillation_classifier", layers.Linear(hidden, c.Labels()))
		}},
	},
	Inputs: func(c *family.Config) []layers.Port { return pixels(c, 224, true) },
}

// model is ViTModel's constructor.
func (v vision) model(c *family.Config, pooler bool) *layers.Module {
	hidden, inner := c.Size("hidden_size", 768), c.Size("intermediate_size", 3072)
	eps := layers.Eps(c.Float("layer_norm_eps", 1e-12))
	act := c.Text("hidden_act", "gelu")
	layer := func(int) *layers.Module {
		return layers.New(v.class+"Layer", nil).
			Add("attention", v.attention(c)).
			Add("layernorm_before", layers.LayerNorm(hidden, eps)).
			Add("layernorm_after", layers.LayerNorm(hidden, eps)).
			Add("mlp", visionMLP(c, v.class+"MLP", hidden, inner, act)).
			Add("dropout", layers.Dropout(0))
	}
	m := layers.New(v.class+"Model", map[string]any{"eager": c.Eager()}).
		Add("embeddings", v.embeddings(c, 224)).
		Add("layers", c.Repeat(c.Size("num_hidden_layers", 12), layer)).
		Add("layernorm", layers.LayerNorm(hidden, eps))
	if pooler {
		pooled := c.Size("pooler_output_size", hidden)
		m.Add("pooler", layers.New(v.class+"Pooler", nil).
			Add("dense", layers.Linear(hidden, pooled)).
			Add("activation", c.Activation(c.Text("pooler_act", "tanh"))))
	}
	return m
}

// embeddings is ViTEmbeddings: the tokens, the patches, their positions.
func (v vision) embeddings(c *family.Config, size int) *layers.Module {
	hidden := c.Size("hidden_size", 768)
	imageHeight, imageWidth := pair(c, "image_size", size)
	height, width := pair(c, "patch_size", 16)
	patches := (imageHeight / height) * (imageWidth / width)
	m := layers.New(v.class+"Embeddings", map[string]any{
		"image_size": []int{imageHeight, imageWidth}, "patch_size": []int{height, width},
	})
	for _, token := range v.tokens {
		m.Param(token, 1, 1, hidden)
	}
	return m.Param("position_embeddings", 1, patches+len(v.tokens), hidden).
		Add("patch_embeddings", layers.New(v.class+"PatchEmbeddings", nil).
			Add("projection", layers.Conv2d(c.Size("num_channels", 3), hidden, 0,
				layers.Kernel(height, width), layers.Stride(height, width)))).
		Add("dropout", layers.Dropout(0))
}

// attention is ViTAttention.
func (v vision) attention(c *family.Config) *layers.Module {
	hidden, heads := c.Size("hidden_size", 768), c.Size("num_attention_heads", 12)
	c.Heads(hidden, heads)
	var bias []layers.Option
	if !c.Flag("qkv_bias", true) {
		bias = append(bias, layers.NoBias)
	}
	return layers.New(v.class+"Attention", map[string]any{"head_dim": hidden / heads, "eager": c.Eager()}).
		Add("q_proj", layers.Linear(hidden, hidden, bias...)).
		Add("k_proj", layers.Linear(hidden, hidden, bias...)).
		Add("v_proj", layers.Linear(hidden, hidden, bias...)).
		Add("o_proj", layers.Linear(hidden, hidden))
}

// visionMLP is ViTMLP and what is like it.
func visionMLP(c *family.Config, class string, hidden, inner int, act string) *layers.Module {
	return layers.New(class, nil).
		Add("activation_fn", c.Activation(act)).
		Add("fc1", layers.Linear(hidden, inner)).
		Add("fc2", layers.Linear(inner, hidden))
}

// pair returns a size that is one integer or a list of two: a height and a width.
func pair(c *family.Config, names string, missing int) (height, width int) {
	key, v := c.Value(names)
	list, ok := v.([]any)
	if !ok {
		n := c.Size(names, missing)
		return n, n
	}
	sizes := [2]int{1, 1}
	for i := range sizes {
		if len(list) != len(sizes) {
			c.Fail(key, "is %s, not one size or two", family.Short(v))
			return 1, 1
		}
		one := &family.Config{Fields: map[string]any{key: list[i]}, Err: c.Err}
		sizes[i] = one.Size(key, missing)
		c.Adopt(one)
	}
	return sizes[0], sizes[1]
}

// pixels is the input of models that see: pictures of the size that the configuration has, or of any.
func pixels(c *family.Config, size int, fixed bool) []layers.Port {
	p := layers.Port{
		Name: "pixel_values", DType: tensor.Float32, Shape: tensor.Shape{-1, c.Size("num_channels", 3), -1, -1},
		Dims: []string{"batch", "", "height", "width"},
	}
	if fixed {
		p.Shape[2], p.Shape[3] = pair(c, "image_size", size)
		p.Dims = []string{"batch", "", "", ""}
	}
	return []layers.Port{p}
}

// classes are those that a model and its heads consist of.
func (v vision) classes(heads layers.Classes) layers.Classes {
	all := layers.Classes{
		v.class + "Model":           {Forward: visionModelForward},
		v.class + "Embeddings":      {Forward: v.embeddingsForward},
		v.class + "PatchEmbeddings": layers.Unary(patchEmbeddingsForward),
		v.class + "Layer":           {Forward: visionLayerForward},
		v.class + "Attention":       {Forward: visionAttentionForward},
		v.class + "MLP":             layers.Unary(family.Through("fc1", "activation_fn", "fc2")),
		v.class + "Pooler":          layers.Unary(family.PoolerForward),
	}
	maps.Copy(all, heads)
	return all
}

func visionModelForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x := t.ChildOf(m, "embeddings", picture(t, args)).(layers.Tensor)
	mask := seesAll(t, x, m.Bool("eager"))
	for _, layer := range m.Child("layers").Children {
		x = t.Run(layer.Module, x, mask).(layers.Tensor)
	}
	x = t.Child(m, "layernorm", x)
	out := layers.Fields{{Name: "last_hidden_state", Value: x}}
	if m.Has("pooler") {
		out = append(out, layers.Field{Name: "pooler_output", Value: t.Child(m, "pooler", x)})
	}
	return out
}

// seesAll is the mask of [batch, tokens, size] that hides nothing.
func seesAll(t *layers.Trace, x layers.Tensor, additive bool) layers.Tensor {
	s := x.Shape()
	return family.Masking{Batch: s[0], Queries: s[1], Keys: s[1], Additive: additive}.Create(t)
}

// picture returns the first argument, [batch, channels, height, width].
func picture(t *layers.Trace, args []any) layers.Tensor {
	x := family.Optional(t, args, 0)
	if x == nil || len(x.Shape()) != 4 {
		t.Fail("pixel_values of [batch, channels, height, width] are needed")
	}
	return x
}

func (v vision) embeddingsForward(t *layers.Trace, m *layers.Module, args ...any) any {
	pixels := picture(t, args)
	size, s := m.Ints("image_size", 2), pixels.Shape()
	if s[2] != size[0] || s[3] != size[1] {
		t.Fail("pictures of %d × %d, and the model's are %d × %d", s[2], s[3], size[0], size[1])
	}
	x := v.withTokens(t, m, t.Child(m, "patch_embeddings", pixels))
	return t.Child(m, "dropout", t.Op("add.Tensor", x, t.Param(m, "position_embeddings")))
}

// withTokens puts the tokens before the patches.
func (v vision) withTokens(t *layers.Trace, m *layers.Module, patches layers.Tensor) layers.Tensor {
	var all []layers.Tensor
	for _, token := range v.tokens {
		all = append(all, t.Op("expand", t.Param(m, token), []int{patches.Shape()[0], -1, -1}))
	}
	return t.Op("cat", append(all, patches), 1)
}

// patchEmbeddingsForward returns [batch, patches, size].
func patchEmbeddingsForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	return t.Op("transpose.int", t.Op("flatten.using_ints", t.Child(m, "projection", x), 2), 1, 2)
}

func visionLayerForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x := family.Optional(t, args, 0)
	y := t.ChildOf(m, "attention", t.Child(m, "layernorm_before", x), args[1]).(layers.Tensor)
	x = t.Op("add.Tensor", t.Child(m, "dropout", y), x)
	y = t.Child(m, "mlp", t.Child(m, "layernorm_after", x))
	return t.Op("add.Tensor", t.Child(m, "dropout", y), x)
}

func visionAttentionForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, size := family.Optional(t, args, 0), m.Int("head_dim")
	q := family.SplitHeads(t, m, "q_proj", x, size)
	k := family.SplitHeads(t, m, "k_proj", x, size)
	v := family.SplitHeads(t, m, "v_proj", x, size)
	return t.Child(m, "o_proj", family.Attention{Eager: m.Bool("eager")}.Run(t, m, q, k, v, family.Optional(t, args, 1)))
}

// logitsOfFirst returns the head that runs a submodule on one of the tokens.
func logitsOfFirst(token int, name string) family.HeadForward {
	return func(t *layers.Trace, m *layers.Module, x, _ layers.Tensor) any {
		return layers.Fields{{Name: "logits", Value: t.Child(m, name, t.Op("select.int", x, 1, token))}}
	}
}

func deitWithTeacherForward(t *layers.Trace, m *layers.Module, x, _ layers.Tensor) any {
	class := t.Child(m, "cls_classifier", t.Op("select.int", x, 1, 0))
	teacher := t.Child(m, "distillation_classifier", t.Op("select.int", x, 1, 1))
	return layers.Fields{
		{Name: "logits", Value: t.Op("div.Tensor", t.Op("add.Tensor", class, teacher), 2)},
		{Name: "cls_logits", Value: class},
		{Name: "distillation_logits", Value: teacher},
	}
}

// Families are the families of models that see.
var Families = slices.Concat(siglipFamilies,
	[]*family.Family{vit, deit, dinov2, dinov3, clip, clipText, clipVision, Llava, chineseClip, blip})
