package transformers

import "github.com/optimem/optimem/layers"

const chineseClipClass = "transformers.models.chinese_clip.modeling_chinese_clip.ChineseCLIP"

var chineseClipText = encoder{prefix: "text_model", class: chineseClipClass + "Text", vocabulary: 30522, positions: firstPositions}

// chineseClip is transformers/models/chinese_clip/modeling_chinese_clip.py: CLIP whose texts are read by BERT.
var chineseClip = &family{
	model: "chinese_clip", prefix: "chinese_clip",
	ignored: []string{`^text_model\.pooler\.`},
	classes: chineseClipText.classes(layers.Classes{chineseClipClass + "Model": {Forward: chineseClipForward}}),
	heads: []head{
		{class: "ChineseCLIPModel", make: func(c *config) *layers.Module {
			return clipPair(c, chineseClipClass+"Model", 768, clipPart(c, "text_config", func(c *config) *layers.Module {
				return chineseClipText.model(c, false)
			}))
		}, inputs: func(c *config) []layers.Port {
			text, picture := tokenInputs("attention_mask", "token_type_ids", "position_ids")(c), clipVisionInputs(c)[0]
			picture.Dims = []string{"pictures", "", "", ""}
			return append([]layers.Port{text[0], picture}, text[1:]...)
		}},
		{class: "ChineseCLIPTextModel", prefix: "text_model", make: func(c *config) *layers.Module {
			return clipPart(c, "text_config", func(c *config) *layers.Module {
				return chineseClipText.model(c, c.holds("pooler.dense.weight"))
			})
		}, inputs: tokenInputs("attention_mask", "token_type_ids", "position_ids")},
		{class: "ChineseCLIPVisionModel", prefix: "vision_model", make: func(c *config) *layers.Module {
			return clipPart(c, "vision_config", clipVisionModel)
		}, inputs: clipVisionInputs},
	},
}

// chineseClipForward takes input_ids, pixel_values, attention_mask, token_type_ids and position_ids. A text is what its
// first token is.
func chineseClipForward(t *layers.Trace, m *layers.Module, args ...any) any {
	vision := t.ChildOf(m, "vision_model", optional(t, args, 1))
	x := field(t.ChildOf(m, "text_model", optional(t, args, 0), optional(t, args, 2), optional(t, args, 3), optional(t, args, 4)), "last_hidden_state")
	return clipCompared(t, m, vision, layers.Fields{
		{Name: "last_hidden_state", Value: x}, {Name: "pooler_output", Value: t.Op("select.int", x, 1, 0)},
	})
}
