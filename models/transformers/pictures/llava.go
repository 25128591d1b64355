package pictures

import (
	"encoding/json"
	"strings"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
)

const llavaClass = "transformers.models.llava.modeling_llava.Llava"

// Llava is transformers/models/llava/modeling_llava.py as a whole: a model of pictures, whose patches become tokens of
// a model of texts. Its folders are taken for their text part unless the caller names the
// class.
var Llava = &family.Family{
	Model: "llava", Prefix: "model",
	Renames: strings.NewReplacer(
		"vision_tower.vision_model.", "vision_tower.", "language_model.model.", "language_model.", "language_model.lm_head.", "lm_head."),
	Classes: layers.Classes{
		llavaClass + "ForConditionalGeneration": {Forward: llavaForward},
		llavaClass + "Model":                    {Forward: llavaModelForward},
		llavaClass + "MultiModalProjector":      layers.Unary(family.Through("linear_1", "act", "linear_2")),
	},
	Heads: []family.Head{family.SeeingSteps(llavaContext, llavaPictures, family.Head{Class: "LlavaForConditionalGeneration", Make: func(c *family.Config) *layers.Module {
		text := c.Sub("text_config")
		return layers.New(llavaClass+"ForConditionalGeneration", nil).
			Add("model", llavaModel(c)).
			Add("lm_head", layers.Linear(text.Size("hidden_size", 4096), text.Size("vocab_size", 32000), layers.NoBias))
	}})},
	Inputs: func(c *family.Config) []layers.Port {
		eyes := llavaEyes(c)
		picture := pixels(eyes, 224, true)[0]
		picture.Optional, picture.Dims = true, []string{"pictures", "", "", ""}
		c.Adopt(eyes)
		return []layers.Port{family.Tokens("input_ids", true), picture, family.Tokens("attention_mask", true), family.Tokens("position_ids", true)}
	},
	Tied: [][2]string{{"lm_head.weight", "model.language_model.embed_tokens.weight"}},
}

// llavaContext is how many positions a sequence of the model of texts may have.
func llavaContext(c *family.Config) int {
	text := clipConfig(c, "text_config")
	defer c.Adopt(text)
	if f := c.Named(text.Text("model_type", "llama")); f != nil {
		for _, h := range f.Heads {
			if h.Context != nil && h.Source == nil {
				return h.Context(text)
			}
		}
	}
	return 0
}

// llavaPictures says which token of a text stands for patches, and how many patches a picture has.
func llavaPictures(c *family.Config) *layers.Pictures {
	eyes := llavaEyes(c)
	defer c.Adopt(eyes)
	height, width := pair(eyes, "image_size", 224)
	patch, whole := 16, 0
	if eyes.Text("model_type", "clip_vision_model") == "clip_vision_model" {
		patch, whole = 32, 1 // for all of the picture
	}
	patchHeight, patchWidth := pair(eyes, "patch_size", patch)
	places := (height/max(patchHeight, 1))*(width/max(patchWidth, 1)) + whole
	if c.Text("vision_feature_select_strategy", "default") == "default" {
		places--
	}
	if places < 1 || places > family.MaxTable {
		c.Fail("vision_config", "describes pictures of %d patches", places)
		places = 1
	}
	return &layers.Pictures{Input: "pixel_values", Token: c.Number("image_token_index|image_token_id", 32000), Places: places}
}

// llavaEyes is the configuration of the model of pictures.
func llavaEyes(c *family.Config) *family.Config {
	if c.Fields["vision_config"] == nil { // as the configuration's class has it
		c.Fields["vision_config"] = map[string]any{
			"hidden_size": json.Number("1024"), "intermediate_size": json.Number("4096"), "patch_size": json.Number("14"),
			"image_size": json.Number("336"), "num_hidden_layers": json.Number("24"), "num_attention_heads": json.Number("16"),
		}
	}
	return clipConfig(c, "vision_config")
}

// llavaModel is LlavaModel's constructor.
func llavaModel(c *family.Config) *layers.Module {
	eyes, text := llavaEyes(c), clipConfig(c, "text_config")
	var tower *layers.Module
	switch kind := eyes.Text("model_type", "clip_vision_model"); kind {
	case "clip_vision_model":
		tower = clipVisionModel(eyes)
	case "siglip_vision_model":
		tower = siglip{name: "Siglip", model: "siglip"}.vision(eyes)
	default:
		c.Unsupported("pictures by a model of the type " + kind)
		return layers.Identity()
	}
	language := llavaText(c, text)
	c.Adopt(eyes)
	c.Adopt(text)
	if c.Err != nil {
		return layers.Identity()
	}
	width, hidden := eyes.Size("hidden_size", 768), text.Size("hidden_size", 4096)
	chosen := featureLayers(c, eyes.Size("num_hidden_layers", 12))
	var bias []layers.Option
	if !c.Flag("multimodal_projector_bias", true) {
		bias = append(bias, layers.NoBias)
	}
	first := 0
	switch strategy := c.Text("vision_feature_select_strategy", "default"); strategy {
	case "default":
		first = 1
	case "full":
	default:
		c.Fail("vision_feature_select_strategy", "is %q, neither default nor full", strategy)
	}
	tower.Attrs = with(tower.Attrs, "states", true)
	return layers.New(llavaClass+"Model", map[string]any{
		"chosen": chosen, "first": first, "picture": c.Number("image_token_index|image_token_id", 32000),
	}).
		Add("vision_tower", tower).
		Add("multi_modal_projector", layers.New(llavaClass+"MultiModalProjector", nil).
			Add("linear_1", layers.Linear(width*len(chosen), hidden, bias...)).
			Add("act", c.Activation(c.Text("projector_hidden_act", "gelu"))).
			Add("linear_2", layers.Linear(hidden, hidden, bias...))).
		Add("language_model", language)
}

// llavaText is the model of texts, which has to know where pictures are.
func llavaText(c, text *family.Config) *layers.Module {
	kind := text.Text("model_type", "llama")
	if f := c.Named(kind); f != nil {
		if m := f.Heads[0].Make(text); m.Attrs["decoder"] != nil || text.Err != nil {
			return m
		}
	}
	c.Unsupported("texts by a model of the type " + kind)
	return layers.Identity()
}

// featureLayers returns of which layers of so many the states are taken: 0 is what the first one sees.
func featureLayers(c *family.Config, layers int) []int {
	const key = "vision_feature_layer"
	list, several := c.Fields[key].([]any)
	if !several {
		list = []any{c.Fields[key]}
	}
	if len(list) == 0 || len(list) > family.MaxSizes {
		c.Fail(key, "is %s, not one layer or up to %d", family.Short(list), family.MaxSizes)
		return []int{0}
	}
	chosen := make([]int, len(list))
	for i, x := range list {
		one := &family.Config{Fields: map[string]any{key: x}, Err: c.Err}
		at := one.Number(key, -2)
		c.Adopt(one)
		if at < 0 {
			at += layers + 1
		}
		if at < 0 || at > layers {
			c.Fail(key, "is %s, and there are %d layers", family.Short(x), layers)
			at = 0
		}
		chosen[i] = at
	}
	return chosen
}

// with returns attributes with one more.
func with(attrs map[string]any, key string, value any) map[string]any {
	if attrs == nil {
		attrs = make(map[string]any)
	}
	attrs[key] = value
	return attrs
}

// llavaForward takes input_ids, pixel_values, attention_mask and position_ids: texts, pictures, or both.
func llavaForward(t *layers.Trace, m *layers.Module, args ...any) any {
	out := t.ChildOf(m, "model", args...).(layers.Fields)
	if out[0].Name == "last_hidden_state" {
		out[0] = layers.Field{Name: "logits", Value: t.Child(m, "lm_head", t.Wanted(out[0].Value.(layers.Tensor)))}
	}
	return out
}

func llavaModelForward(t *layers.Trace, m *layers.Module, args ...any) any {
	ids, pixels := family.Optional(t, args, 0), family.Optional(t, args, 1)
	var seen layers.Fields
	var places *family.Pictured
	if _, steps := t.Steps(); steps {
		places = &family.Pictured{Seen: m}
	} else if pixels != nil {
		features := llavaFeatures(t, m, pixels)
		if t.Reads() {
			t.KeepSeen(m, features)
		}
		seen = layers.Fields{{Name: "image_features", Value: features}}
		places = &family.Pictured{Features: features, Token: m.Int("picture")}
	}
	if ids == nil {
		if seen == nil {
			t.Fail("input_ids, pixel_values or both are needed")
		}
		return seen
	}
	read := t.ChildOf(m, "language_model", ids, family.Optional(t, args, 2), family.Optional(t, args, 3), places)
	return append(layers.Fields{{Name: "last_hidden_state", Value: family.Field(read, "last_hidden_state")}}, seen...)
}

// llavaFeatures makes what stands for pictures in a text: [pictures, patches, size].
func llavaFeatures(t *layers.Trace, m *layers.Module, pixels layers.Tensor) layers.Tensor {
	states := t.ChildOf(m, "vision_tower", pixels).([]layers.Tensor)
	var parts []layers.Tensor
	for _, at := range m.Attrs["chosen"].([]int) {
		x := states[at]
		if first := m.Int("first"); first > 0 {
			x = t.Op("slice.Tensor", x, 1, first)
		}
		parts = append(parts, x)
	}
	x := parts[0]
	if len(parts) > 1 {
		x = t.Op("cat", parts, -1)
	}
	return t.Child(m, "multi_modal_projector", x)
}

// statesOf are those before the first layer of an encoder and after each.
func statesOf(t *layers.Trace, encoder *layers.Module, x layers.Tensor) []layers.Tensor {
	states := []layers.Tensor{x}
	for _, layer := range encoder.Child("layers").Children {
		x = t.Run(layer.Module, x, nil).(layers.Tensor)
		states = append(states, x)
	}
	return states
}
