package transformers

import (
	"encoding/json"
	"strings"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

const llavaClass = "transformers.models.llava.modeling_llava.Llava"

// llava is transformers/models/llava/modeling_llava.py as a whole: a model of pictures, whose patches become tokens of
// a model of texts. Its folders are taken for their text part ([config.takeTextPart]) unless the caller names the
// class.
var llava = &family{
	model: "llava", prefix: "model",
	renames: strings.NewReplacer(
		"vision_tower.vision_model.", "vision_tower.", "language_model.model.", "language_model.", "language_model.lm_head.", "lm_head."),
	classes: layers.Classes{
		llavaClass + "ForConditionalGeneration": {Forward: llavaForward},
		llavaClass + "Model":                    {Forward: llavaModelForward},
		llavaClass + "MultiModalProjector":      layers.Unary(through("linear_1", "act", "linear_2")),
	},
	heads: []head{seeingSteps(llavaContext, llavaPictures, head{class: "LlavaForConditionalGeneration", make: func(c *config) *layers.Module {
		text := c.sub("text_config")
		return layers.New(llavaClass+"ForConditionalGeneration", nil).
			Add("model", llavaModel(c)).
			Add("lm_head", layers.Linear(text.size("hidden_size", 4096), text.size("vocab_size", 32000), layers.NoBias))
	}})},
	inputs: func(c *config) []layers.Port {
		eyes := llavaEyes(c)
		picture := pixels(eyes, 224, true)[0]
		picture.Optional, picture.Dims = true, []string{"pictures", "", "", ""}
		c.adopt(eyes)
		return []layers.Port{tokens("input_ids", true), picture, tokens("attention_mask", true), tokens("position_ids", true)}
	},
	tied: [][2]string{{"lm_head.weight", "model.language_model.embed_tokens.weight"}},
}

// llavaContext is how many positions a sequence of the model of texts may have.
func llavaContext(c *config) int {
	text := clipConfig(c, "text_config")
	defer c.adopt(text)
	if f := c.named(text.text("model_type", "llama")); f != nil {
		for _, h := range f.heads {
			if h.context != nil && h.source == nil {
				return h.context(text)
			}
		}
	}
	return 0
}

// llavaPictures says which token of a text stands for patches, and how many patches a picture has.
func llavaPictures(c *config) *layers.Pictures {
	eyes := llavaEyes(c)
	defer c.adopt(eyes)
	height, width := eyes.pair("image_size", 224)
	patch, whole := 16, 0
	if eyes.text("model_type", "clip_vision_model") == "clip_vision_model" {
		patch, whole = 32, 1 // for all of the picture
	}
	patchHeight, patchWidth := eyes.pair("patch_size", patch)
	places := (height/max(patchHeight, 1))*(width/max(patchWidth, 1)) + whole
	if c.text("vision_feature_select_strategy", "default") == "default" {
		places--
	}
	if places < 1 || places > maxTable {
		c.fail("vision_config", "describes pictures of %d patches", places)
		places = 1
	}
	return &layers.Pictures{Input: "pixel_values", Token: c.number("image_token_index|image_token_id", 32000), Places: places}
}

// Seeing returns the class of the model that a config.json describes as a whole, and how pictures come into its texts,
// where its folder is taken for its text part unless that class is named ([Named]); "" and nil of all others.
func Seeing(text []byte) (class string, pictures *layers.Pictures) {
	c, err := parseWhole(text, nil)
	if err != nil {
		return "", nil
	}
	h := llava.heads[0]
	if class = c.architecture(); !seeing(class) || c.fields["model_type"] != llava.model {
		return "", nil
	}
	if pictures = h.pictures(c); c.err != nil {
		return "", nil
	}
	return class, pictures
}

// seeing reports whether a class is that of a model that sees as a whole, not of its text part.
func seeing(class string) bool { return class != "" && class == llava.heads[0].class }

// llavaEyes is the configuration of the model of pictures.
func llavaEyes(c *config) *config {
	if c.fields["vision_config"] == nil { // as the configuration's class has it
		c.fields["vision_config"] = map[string]any{
			"hidden_size": json.Number("1024"), "intermediate_size": json.Number("4096"), "patch_size": json.Number("14"),
			"image_size": json.Number("336"), "num_hidden_layers": json.Number("24"), "num_attention_heads": json.Number("16"),
		}
	}
	return clipConfig(c, "vision_config")
}

// llavaModel is LlavaModel's constructor.
func llavaModel(c *config) *layers.Module {
	eyes, text := llavaEyes(c), clipConfig(c, "text_config")
	var tower *layers.Module
	switch kind := eyes.text("model_type", "clip_vision_model"); kind {
	case "clip_vision_model":
		tower = clipVisionModel(eyes)
	case "siglip_vision_model":
		tower = siglip{name: "Siglip", model: "siglip"}.vision(eyes)
	default:
		c.unsupported("pictures by a model of the type " + kind)
		return layers.Identity()
	}
	language := llavaText(c, text)
	c.adopt(eyes)
	c.adopt(text)
	if c.err != nil {
		return layers.Identity()
	}
	width, hidden := eyes.size("hidden_size", 768), text.size("hidden_size", 4096)
	chosen := c.featureLayers(eyes.size("num_hidden_layers", 12))
	var bias []layers.Option
	if !c.flag("multimodal_projector_bias", true) {
		bias = append(bias, layers.NoBias)
	}
	first := 0
	switch strategy := c.text("vision_feature_select_strategy", "default"); strategy {
	case "default":
		first = 1
	case "full":
	default:
		c.fail("vision_feature_select_strategy", "is %q, neither default nor full", strategy)
	}
	tower.Attrs = with(tower.Attrs, "states", true)
	return layers.New(llavaClass+"Model", map[string]any{
		"chosen": chosen, "first": first, "picture": c.number("image_token_index|image_token_id", 32000),
	}).
		Add("vision_tower", tower).
		Add("multi_modal_projector", layers.New(llavaClass+"MultiModalProjector", nil).
			Add("linear_1", layers.Linear(width*len(chosen), hidden, bias...)).
			Add("act", c.activation(c.text("projector_hidden_act", "gelu"))).
			Add("linear_2", layers.Linear(hidden, hidden, bias...))).
		Add("language_model", language)
}

// llavaText is the model of texts, which has to know where pictures are.
func llavaText(c, text *config) *layers.Module {
	kind := text.text("model_type", "llama")
	if f := c.named(kind); f != nil {
		if m := f.heads[0].make(text); m.Attrs["decoder"] != nil || text.err != nil {
			return m
		}
	}
	c.unsupported("texts by a model of the type " + kind)
	return layers.Identity()
}

// featureLayers returns of which layers of so many the states are taken: 0 is what the first one sees.
func (c *config) featureLayers(layers int) []int {
	const key = "vision_feature_layer"
	list, several := c.fields[key].([]any)
	if !several {
		list = []any{c.fields[key]}
	}
	if len(list) == 0 || len(list) > maxSizes {
		c.fail(key, "is %s, not one layer or up to %d", short(list), maxSizes)
		return []int{0}
	}
	chosen := make([]int, len(list))
	for i, x := range list {
		one := &config{fields: map[string]any{key: x}, err: c.err}
		at := one.number(key, -2)
		c.adopt(one)
		if at < 0 {
			at += layers + 1
		}
		if at < 0 || at > layers {
			c.fail(key, "is %s, and there are %d layers", short(x), layers)
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
	ids, pixels := optional(t, args, 0), optional(t, args, 1)
	var seen layers.Fields
	var places *pictured
	if _, steps := t.Steps(); steps {
		places = &pictured{seen: m}
	} else if pixels != nil {
		features := llavaFeatures(t, m, pixels)
		if t.Reads() {
			t.KeepSeen(m, features)
		}
		seen = layers.Fields{{Name: "image_features", Value: features}}
		places = &pictured{features: features, token: m.Int("picture")}
	}
	if ids == nil {
		if seen == nil {
			t.Fail("input_ids, pixel_values or both are needed")
		}
		return seen
	}
	read := t.ChildOf(m, "language_model", ids, optional(t, args, 2), optional(t, args, 3), places)
	return append(layers.Fields{{Name: "last_hidden_state", Value: field(read, "last_hidden_state")}}, seen...)
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

// A pictured says what stands in the places of a token: the features of pictures, in their order; in a step those that
// the module seen kept when it read them.
type pictured struct {
	features layers.Tensor
	token    int
	seen     *layers.Module
}

// place puts the features into the embeddings of tokens, [batch, tokens, size].
func (p *pictured) place(t *layers.Trace, ids, x layers.Tensor) layers.Tensor {
	if p == nil {
		return x
	}
	if p.seen != nil {
		kept, named := t.Seen(p.seen, x.Shape()[2])
		return t.Op("where.self", t.Op("unsqueeze", t.Op("unsqueeze", named, 0), -1), kept, x)
	}
	at := t.Op("unsqueeze", t.Op("eq.Scalar", ids, p.token), -1)
	return t.Op("masked_scatter", x, at, t.Op("to.dtype", p.features, tensor.Float32))
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
