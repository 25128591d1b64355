package pictures

import (
	"github.com/optimem/optimem/layers"

	"github.com/optimem/optimem/models/transformers/encoders"
	"github.com/optimem/optimem/models/transformers/family"
)

const chineseClipClass = "transformers.models.chinese_clip.modeling_chinese_clip.ChineseCLIP"

var chineseClipText = encoders.Encoder{Prefix: "text_model", Class: chineseClipClass + "Text", Vocabulary: 30522, Positions: encoders.FirstPositions}

// chineseClip is transformers/models/chinese_clip/modeling_chinese_clip.py: CLIP whose texts are read by BERT.
var chineseClip = &family.Family{
	Model: "chinese_clip", Prefix: "chinese_clip",
	Ignored: []string{`^text_model\.pooler\.`},
	Classes: chineseClipText.Classes(layers.Classes{chineseClipClass + "Model": {Forward: chineseClipForward}}),
	Heads: []family.Head{
		{Class: "ChineseCLIPModel", Make: func(c *family.Config) *layers.Module {
			return clipPair(c, chineseClipClass+"Model", 768, clipPart(c, "text_config", func(c *family.Config) *layers.Module {
				return chineseClipText.Model(c, false)
			}))
		}, Inputs: func(c *family.Config) []layers.Port {
			text, picture := family.TokenInputs("attention_mask", "token_type_ids", "position_ids")(c), clipVisionInputs(c)[0]
			picture.Dims = []string{"pictures", "", "", ""}
			return append([]layers.Port{text[0], picture}, text[1:]...)
		}},
		{Class: "ChineseCLIPTextModel", Prefix: "text_model", Make: func(c *family.Config) *layers.Module {
			return clipPart(c, "text_config", func(c *family.Config) *layers.Module {
				return chineseClipText.Model(c, c.Holds("pooler.dense.weight"))
			})
		}, Inputs: family.TokenInputs("attention_mask", "token_type_ids", "position_ids")},
		{Class: "ChineseCLIPVisionModel", Prefix: "vision_model", Make: func(c *family.Config) *layers.Module {
			return clipPart(c, "vision_config", clipVisionModel)
		}, Inputs: clipVisionInputs},
	},
}

// chineseClipForward takes input_ids, pixel_values, attention_mask, token_type_ids and position_ids. A text is what its
// first token is.
func chineseClipForward(t *layers.Trace, m *layers.Module, args ...any) any {
	vision := t.ChildOf(m, "vision_model", family.Optional(t, args, 1))
	x := family.Field(t.ChildOf(m, "text_model", family.Optional(t, args, 0), family.Optional(t, args, 2), family.Optional(t, args, 3), family.Optional(t, args, 4)), "last_hidden_state")
	return clipCompared(t, m, vision, layers.Fields{
		{Name: "last_hidden_state", Value: x}, {Name: "pooler_output", Value: t.Op("select.int", x, 1, 0)},
	})
}
