package sounds

import (
	"slices"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
	"github.com/optimem/optimem/models/transformers/seq2seq"
	"github.com/optimem/optimem/tensor"
)

const whisperClass = "transformers.models.whisper.modeling_whisper.Whisper"

// whisper is transformers/models/whisper/modeling_whisper.py.
var whisper = &family.Family{
	Model: "whisper", Prefix: "model",
	Classes: layers.Classes{
		whisperClass + "Model":                    {Forward: whisperModelForward},
		whisperClass + "Encoder":                  layers.Unary(whisperEncoderForward),
		whisperClass + "Decoder":                  {Forward: whisperDecoderForward},
		whisperClass + "EncoderLayer":             {Forward: seq2seq.NormedFirstLayerForward},
		whisperClass + "DecoderLayer":             {Forward: seq2seq.NormedFirstLayerForward},
		whisperClass + "Attention":                {Forward: whisperAttentionForward},
		whisperClass + "PositionalEmbedding":      layers.Unary(whisperPositionsForward),
		whisperClass + "ForConditionalGeneration": {Forward: whisperForConditionalGenerationForward},
		whisperClass + "ForAudioClassification":   {Forward: whisperForAudioClassificationForward},
	},
	Heads: []family.Head{
		{Class: "WhisperModel", Make: whisperModel},
		family.Transducing(func(c *family.Config) int { return c.Table("max_target_positions", 448) },
			func(c *family.Config) int { return c.Table("max_source_positions", 1500) },
			family.Head{Class: "WhisperForConditionalGeneration", Make: func(c *family.Config) *layers.Module {
				return layers.New(whisperClass+"ForConditionalGeneration", nil).
					Add("model", whisperModel(c)).
					Add("proj_out", layers.Linear(c.Size("d_model", 384), c.Size("vocab_size", 51865), layers.NoBias))
			}}),
		{Class: "WhisperForAudioClassification", Make: func(c *family.Config) *layers.Module {
			if c.Flag("use_weighted_layer_sum", false) {
				c.Unsupported("use_weighted_layer_sum")
			}
			inner := c.Size("classifier_proj_size", 256)
			return layers.New(whisperClass+"ForAudioClassification", nil).
				Add("encoder", whisperEncoder(c)).
				Add("projector", layers.Linear(c.Size("d_model", 384), inner)).
				Add("classifier", layers.Linear(inner, c.Labels()))
		}, Inputs: func(c *family.Config) []layers.Port { return whisperInputs(c)[:1] }},
	},
	Inputs: whisperInputs,
	Tied:   [][2]string{{"proj_out.weight", "model.decoder.embed_tokens.weight"}},
	Ties:   true,
}

func whisperInputs(c *family.Config) []layers.Port {
	features := layers.Port{
		Name: "input_features", DType: tensor.Float32, Dims: []string{"batch", "", ""},
		Shape: tensor.Shape{-1, c.Size("num_mel_bins", 80), 2 * c.Table("max_source_positions", 1500)},
	}
	return []layers.Port{
		features, family.Tokens("decoder_input_ids", false), family.Tokens("decoder_attention_mask", true),
		family.Tokens("decoder_position_ids", true),
	}
}

func whisperModel(c *family.Config) *layers.Module {
	hidden := c.Size("d_model", 384)
	decoder := layers.New(whisperClass+"Decoder", map[string]any{"eager": c.Eager()}).
		Add("embed_tokens", layers.Embedding(c.Size("vocab_size", 51865), hidden)).
		Add("embed_positions", layers.New(whisperClass+"PositionalEmbedding", nil).
			Param("weight", c.Table("max_target_positions", 448), hidden)).
		Add("layers", c.Repeat(c.Size("decoder_layers", 4), whisperLayer(c, "decoder"))).
		Add("layer_norm", layers.LayerNorm(hidden))
	return layers.New(whisperClass+"Model", nil).Add("encoder", whisperEncoder(c)).Add("decoder", decoder)
}

func whisperEncoder(c *family.Config) *layers.Module {
	hidden := c.Size("d_model", 384)
	return layers.New(whisperClass+"Encoder", nil).
		Add("conv1", layers.Conv1d(c.Size("num_mel_bins", 80), hidden, 3, layers.Padding(1))).
		Add("conv2", layers.Conv1d(hidden, hidden, 3, layers.Stride(2), layers.Padding(1))).
		Add("embed_positions", layers.Embedding(c.Table("max_source_positions", 1500), hidden)).
		Add("layers", c.Repeat(c.Size("encoder_layers", 4), whisperLayer(c, "encoder"))).
		Add("layer_norm", layers.LayerNorm(hidden))
}

// whisperLayer returns what makes a layer: it has the parts of BART's.
func whisperLayer(c *family.Config, side string) func(int) *layers.Module {
	hidden, heads := c.Size("d_model", 384), c.Size(side+"_attention_heads", 6)
	c.Heads(hidden, heads)
	attend := func() *layers.Module {
		return layers.New(whisperClass+"Attention", map[string]any{
			"num_heads": heads, "head_dim": hidden / heads, "eager": c.Eager(),
		}).
			Add("k_proj", layers.Linear(hidden, hidden, layers.NoBias)).
			Add("v_proj", layers.Linear(hidden, hidden)).
			Add("q_proj", layers.Linear(hidden, hidden)).
			Add("out_proj", layers.Linear(hidden, hidden))
	}
	return func(int) *layers.Module { return seq2seq.BartLayer(c, whisperClass, side, attend) }
}

// whisperModelForward takes input_features, decoder_input_ids, decoder_attention_mask and decoder_position_ids.
func whisperModelForward(t *layers.Trace, m *layers.Module, args ...any) any {
	if _, step := t.Steps(); step {
		return layers.Fields{{Name: "last_hidden_state", Value: t.ChildOf(m, "decoder", args[1], nil, args[3])}}
	}
	features := family.Optional(t, args, 0)
	if features == nil || len(features.Shape()) != 3 {
		t.Fail("input_features of [batch, bins, time] are needed")
	}
	encoded := t.Child(m, "encoder", features)
	if t.Reads() {
		family.KeepSource(t, m.Child("decoder"), encoded)
		return seq2seq.SourceOnly(encoded)
	}
	ids := family.Optional(t, args, 1)
	if ids == nil || len(ids.Shape()) != 2 || ids.Shape()[0] != features.Shape()[0] {
		t.Fail("decoder_input_ids of [%d, tokens] are needed", features.Shape()[0])
	}
	decoded := t.ChildOf(m, "decoder", ids, family.Optional(t, args, 2), family.Optional(t, args, 3), encoded)
	return layers.Fields{
		{Name: "last_hidden_state", Value: decoded},
		{Name: "encoder_last_hidden_state", Value: encoded},
	}
}

func whisperEncoderForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	x = t.Op("gelu", t.Child(m, "conv1", x))
	x = t.Op("gelu", t.Child(m, "conv2", x))
	x = t.Op("permute", x, []int{0, 2, 1})
	positions := t.Child(m, "embed_positions", t.Op("arange", x.Shape()[1]))
	x = t.Op("add.Tensor", x, positions)
	for _, layer := range m.Child("layers").Children {
		x = t.Run(layer.Module, x, nil).(layers.Tensor)
	}
	return t.Child(m, "layer_norm", x)
}

// whisperDecoderForward takes input_ids, attention_mask, position_ids and the encoder's output.
func whisperDecoderForward(t *layers.Trace, m *layers.Module, args ...any) any {
	ids, padding, positions := family.TokenIDs(t, args), family.Optional(t, args, 1), family.Optional(t, args, 2)
	s := ids.Shape()
	x := t.Child(m, "embed_tokens", ids)
	if positions == nil {
		positions = t.Op("unsqueeze", t.Op("add.Tensor", t.Op("arange", s[1]), 0), 0)
		positions = t.Op("repeat", positions, []int{s[0], 1})
	}
	x = t.Op("add.Tensor", x, t.Child(m, "embed_positions", positions))
	var mask layers.Tensor
	if _, step := t.Steps(); !step {
		mask = family.Masking{
			Batch: s[0], Queries: s[1], Keys: s[1], Causal: true, Padding: padding, Positions: positions,
			Additive: m.Bool("eager"),
		}.Create(t)
	}
	for _, layer := range m.Child("layers").Children {
		x = t.Run(layer.Module, x, mask, family.Optional(t, args, 3)).(layers.Tensor)
	}
	return t.Child(m, "layer_norm", x)
}

func whisperPositionsForward(t *layers.Trace, m *layers.Module, positions layers.Tensor) layers.Tensor {
	weight, s := t.Param(m, "weight"), positions.Shape()
	if n, longest := s[len(s)-1], weight.Shape()[0]; n > longest && !seq2seq.IsStep(t) {
		t.Fail("%d tokens, and the model has %d positions", n, longest)
	}
	return t.Op("index.Tensor", weight, []layers.Tensor{positions})
}

// whisperAttentionForward takes x, what is attended to where that is not x, and the mask. The queries are scaled, not
// the scores.
func whisperAttentionForward(t *layers.Trace, m *layers.Module, args ...any) any {
	heads, size := m.Int("num_heads"), m.Int("head_dim")
	if t.Reads() && m.Attrs[family.Keeps] != nil {
		return family.Keep(t, m, args[0], "k_proj", "v_proj", heads, size)
	}
	x, of := family.Optional(t, args, 0), family.Optional(t, args, 1)
	if of == nil {
		of = x
	}
	s := x.Shape()
	split := func(x layers.Tensor, shape []int) layers.Tensor {
		return t.Op("contiguous", t.Op("transpose.int", t.Op("view", x, shape), 1, 2))
	}
	q := t.Op("mul.Tensor", t.Child(m, "q_proj", x), family.InverseSqrt(size))
	q = split(q, []int{s[0], s[1], -1, size})
	if family.Recalls(t, m) {
		return t.Child(m, "out_proj", family.Attention{Scaling: 1}.Recall(t, m, q))
	}
	k := split(t.Child(m, "k_proj", of), []int{s[0], -1, heads, size})
	v := split(t.Child(m, "v_proj", of), []int{s[0], -1, heads, size})
	return t.Child(m, "out_proj", family.Attention{Scaling: 1, Eager: m.Bool("eager")}.Run(t, m, q, k, v, family.Optional(t, args, 2)))
}

func whisperForConditionalGenerationForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, encoded := seq2seq.OfBoth(t, m, args)
	if x == nil {
		return seq2seq.SourceOnly(encoded)
	}
	return seq2seq.WithSource(layers.Field{Name: "logits", Value: t.Child(m, "proj_out", t.Wanted(x))}, encoded)
}

func whisperForAudioClassificationForward(t *layers.Trace, m *layers.Module, args ...any) any {
	features := family.Optional(t, args, 0)
	if features == nil || len(features.Shape()) != 3 {
		t.Fail("input_features of [batch, bins, time] are needed")
	}
	x := t.Op("mean.dim", family.Through("encoder", "projector")(t, m, features), []int{1})
	return layers.Fields{{Name: "logits", Value: t.Child(m, "classifier", x)}}
}

// Families are the families of models that hear.
var Families = slices.Concat(speechFamilies, []*family.Family{whisper})
