package transformers

import (
	"math"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

const bartClass = "transformers.models.bart.modeling_bart.Bart"

// bart is transformers/models/bart/modeling_bart.py.
var bart = &family{
	model: "bart", prefix: "model",
	ignored: []string{`(^|\.)(encoder|decoder)\.version$`},
	classes: layers.Classes{
		bartClass + "Model":                      {Forward: bartModelForward},
		bartClass + "Encoder":                    {Forward: bartEncoderForward},
		bartClass + "Decoder":                    {Forward: bartDecoderForward},
		bartClass + "EncoderLayer":               {Forward: bartLayerForward},
		bartClass + "DecoderLayer":               {Forward: bartLayerForward},
		bartClass + "Attention":                  {Forward: bartAttentionForward},
		bartClass + "ScaledWordEmbedding":        layers.Unary(bartEmbeddingForward),
		bartClass + "LearnedPositionalEmbedding": {Forward: bartPositionsForward},
		bartClass + "ClassificationHead":         layers.Unary(bartClassificationHeadForward),
		bartClass + "ForConditionalGeneration":   {Forward: bartForConditionalGenerationForward},
		bartClass + "ForSequenceClassification":  {Forward: bartForSequenceClassificationForward},
		bartClass + "ForQuestionAnswering":       {Forward: bartForQuestionAnsweringForward},
	},
	heads: []head{
		{class: "BartModel", make: bartModel},
		{class: "BartForConditionalGeneration", make: func(c *config) *layers.Module {
			hidden, words := c.size("d_model", 1024), c.table("vocab_size", 50265)
			bias := layers.Param{
				Name: "final_logits_bias", DType: tensor.Float32, Shape: tensor.Shape{1, words}, Buffer: true,
			}
			if !c.holds(bias.Name) { // it may be missing, and is zero then
				bias.Transient, bias.Value = true, tensor.Of(make([]float32, words), 1, words)
			}
			m := layers.New(bartClass+"ForConditionalGeneration", nil)
			m.Params = append(m.Params, bias)
			return m.Add("model", bartModel(c)).Add("lm_head", layers.Linear(hidden, words, layers.NoBias))
		}},
		{class: "BartForSequenceClassification", make: func(c *config) *layers.Module {
			hidden := c.size("d_model", 1024)
			return layers.New(bartClass+"ForSequenceClassification", map[string]any{"eos_token_id": c.number("eos_token_id", 2)}).
				Add("model", bartModel(c)).
				Add("classification_head", layers.New(bartClass+"ClassificationHead", nil).
					Add("dense", layers.Linear(hidden, hidden)).
					Add("dropout", layers.Dropout(0)).
					Add("out_proj", layers.Linear(hidden, c.bartLabels())))
		}},
		{class: "BartForQuestionAnswering", make: func(c *config) *layers.Module {
			return layers.New(bartClass+"ForQuestionAnswering", nil).
				Add("model", bartModel(c)).
				Add("qa_outputs", layers.Linear(c.size("d_model", 1024), 2))
		}},
	},
	inputs: func(c *config) []layers.Port {
		ports := seq2seqInputs(c)
		ports[2].Optional = true
		return ports
	},
	tied: [][2]string{
		{"shared.weight", "encoder.embed_tokens.weight"},
		{"decoder.embed_tokens.weight", "shared.weight"},
		{"encoder.embed_tokens.weight", "shared.weight"},
		{"model.shared.weight", "model.encoder.embed_tokens.weight"},
		{"model.shared.weight", "lm_head.weight"},
		{"model.decoder.embed_tokens.weight", "model.shared.weight"},
		{"model.encoder.embed_tokens.weight", "model.shared.weight"},
	},
	ties: true,
}

// bartLabels is labels with the default of BART, which was trained to tell entailment.
func (c *config) bartLabels() int {
	if c.fields["id2label"] == nil && c.fields["num_labels"] == nil {
		return 3
	}
	return c.labels()
}

func bartModel(c *config) *layers.Module {
	return layers.New(bartClass+"Model", map[string]any{"decoder_start_token_id": c.number("decoder_start_token_id", 2)}).
		Add("shared", bartEmbedding(c)).
		Add("encoder", bartStack(c, "Encoder", "encoder")).
		Add("decoder", bartStack(c, "Decoder", "decoder"))
}

func bartEmbedding(c *config) *layers.Module {
	hidden := c.size("d_model", 1024)
	scale := 1.0
	if c.flag("scale_embedding", false) {
		scale = math.Sqrt(float64(hidden))
	}
	return layers.New(bartClass+"ScaledWordEmbedding", map[string]any{"embed_scale": scale}).
		Param("weight", c.size("vocab_size", 50265), hidden)
}

// bartOffset is where the numbers of positions begin, for the sake of checkpoints.
const bartOffset = 2

func bartStack(c *config, class, side string) *layers.Module {
	hidden, positions := c.size("d_model", 1024), c.table("max_position_embeddings", 1024)
	layer := func(int) *layers.Module { return bartLayer(c, bartClass, side, bartAttention(c, side)) }
	return layers.New(bartClass+class, map[string]any{"eager": c.eager()}).
		Add("embed_tokens", bartEmbedding(c)).
		Add("embed_positions", layers.New(bartClass+"LearnedPositionalEmbedding", nil).
			Param("weight", positions+bartOffset, hidden)).
		Add("layers", c.repeat(c.size(side+"_layers", 12), layer)).
		Add("layernorm_embedding", layers.LayerNorm(hidden))
}

// bartLayer is BartEncoderLayer or BartDecoderLayer, of the attention that create makes; Whisper has the same parts.
func bartLayer(c *config, class, side string, create func() *layers.Module) *layers.Module {
	hidden, inner := c.size("d_model", 1024), c.size(side+"_ffn_dim", 4096)
	name := map[string]string{"encoder": "EncoderLayer", "decoder": "DecoderLayer"}[side]
	m := layers.New(class+name, nil).
		Add("self_attn", create()).
		Add("self_attn_layer_norm", layers.LayerNorm(hidden)).
		Add("activation_fn", c.activation(c.text("activation_function", "gelu")))
	if side == "decoder" {
		m.Add("encoder_attn", create()).Add("encoder_attn_layer_norm", layers.LayerNorm(hidden))
	}
	return m.Add("fc1", layers.Linear(hidden, inner)).
		Add("fc2", layers.Linear(inner, hidden)).
		Add("final_layer_norm", layers.LayerNorm(hidden))
}

func bartAttention(c *config, side string) func() *layers.Module {
	hidden, heads := c.size("d_model", 1024), c.size(side+"_attention_heads", 16)
	c.heads(hidden, heads)
	return func() *layers.Module {
		m := layers.New(bartClass+"Attention", map[string]any{"head_dim": hidden / heads, "eager": c.eager()})
		for _, name := range []string{"k_proj", "v_proj", "q_proj", "out_proj"} {
			m.Add(name, layers.Linear(hidden, hidden))
		}
		return m
	}
}

func bartEmbeddingForward(t *layers.Trace, m *layers.Module, ids layers.Tensor) layers.Tensor {
	return t.Op("mul.Tensor", t.Op("embedding", t.Param(m, "weight"), ids), m.Float("embed_scale"))
}

// bartPositionsForward takes tokens, and their positions if they are known.
func bartPositionsForward(t *layers.Trace, m *layers.Module, args ...any) any {
	weight, s := t.Param(m, "weight"), tokenIDs(t, args).Shape()
	if longest := weight.Shape()[0] - bartOffset; s[1] > longest {
		t.Fail("%d tokens, and the model has %d positions", s[1], longest)
	}
	positions := optional(t, args, 1)
	if positions == nil {
		positions = t.Op("arange.start", 0, s[1], layers.Named{"dtype": tensor.Int64})
		positions = t.Op("expand", positions, []int{s[0], -1})
	} else {
		positions = t.Op("unsqueeze", positions, 0)
	}
	return t.Op("embedding", weight, t.Op("add.Tensor", positions, bartOffset))
}

// bartModelForward takes input_ids, attention_mask, decoder_input_ids and decoder_attention_mask.
func bartModelForward(t *layers.Trace, m *layers.Module, args ...any) any {
	ids := tokenIDs(t, args)
	all := make([]any, 4)
	copy(all, args)
	if optional(t, args, 2) == nil { // the text itself, one token later
		first := t.Op("full", []int{ids.Shape()[0], 1}, m.Int("decoder_start_token_id"), layers.Named{"dtype": tensor.Int64})
		all[2] = t.Op("cat", []layers.Tensor{first, t.Op("slice.Tensor", ids, 1, 0, -1)}, 1)
	}
	encoded, decoded := encodeDecode(t, m, all)
	return layers.Fields{
		{Name: "last_hidden_state", Value: decoded},
		{Name: "encoder_last_hidden_state", Value: encoded},
	}
}

func bartEncoderForward(t *layers.Trace, m *layers.Module, args ...any) any {
	ids := tokenIDs(t, args)
	s := ids.Shape()
	x := t.Child(m, "embed_tokens", ids)
	x = t.Op("add.Tensor", x, t.Child(m, "embed_positions", ids))
	x = t.Child(m, "layernorm_embedding", x)
	mask := masking{
		batch: s[0], queries: s[1], keys: s[1], padding: optional(t, args, 1), additive: m.Bool("eager"),
	}.create(t)
	for _, layer := range m.Child("layers").Children {
		x = t.Run(layer.Module, x, mask).(layers.Tensor)
	}
	return x
}

// bartDecoderForward takes input_ids, attention_mask, the encoder's output and the mask for it.
func bartDecoderForward(t *layers.Trace, m *layers.Module, args ...any) any {
	ids, encoded := tokenIDs(t, args), optional(t, args, 2)
	s := ids.Shape()
	x := t.Child(m, "embed_tokens", ids)
	positions := t.Op("add.Tensor", t.Op("arange", s[1]), 0)
	mask := masking{
		batch: s[0], queries: s[1], keys: s[1], causal: true, padding: optional(t, args, 1), additive: m.Bool("eager"),
	}.create(t)
	encodedMask := crossMask(t, ids, encoded, optional(t, args, 3), m.Bool("eager"))
	x = t.Op("add.Tensor", x, t.ChildOf(m, "embed_positions", ids, positions))
	x = t.Child(m, "layernorm_embedding", x)
	for _, layer := range m.Child("layers").Children {
		x = t.Run(layer.Module, x, mask, encoded, encodedMask).(layers.Tensor)
	}
	return x
}

// bartLayerForward takes x and its mask, and in the decoder the encoder's output and the mask for it.
func bartLayerForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x := optional(t, args, 0)
	x = t.Op("add.Tensor", x, t.ChildOf(m, "self_attn", x, nil, args[1]))
	x = t.Child(m, "self_attn_layer_norm", x)
	if m.Has("encoder_attn") {
		x = t.Op("add.Tensor", x, t.ChildOf(m, "encoder_attn", x, args[2], args[3]))
		x = t.Child(m, "encoder_attn_layer_norm", x)
	}
	x = t.Op("add.Tensor", x, through("fc1", "activation_fn", "fc2")(t, m, x))
	return t.Child(m, "final_layer_norm", x)
}

// bartAttentionForward takes x, what is attended to where that is not x, and the mask.
func bartAttentionForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, of := optional(t, args, 0), optional(t, args, 1)
	if of == nil {
		of = x
	}
	size := m.Int("head_dim")
	q := splitHeads(t, m, "q_proj", x, size)
	k, v := t.Child(m, "k_proj", of), t.Child(m, "v_proj", of)
	shape := []int{of.Shape()[0], of.Shape()[1], -1, size}
	k = t.Op("transpose.int", t.Op("view", k, shape), 1, 2)
	v = t.Op("transpose.int", t.Op("view", v, shape), 1, 2)
	return t.Child(m, "out_proj", attention{eager: m.Bool("eager")}.run(t, m, q, k, v, optional(t, args, 2)))
}

// ofBoth runs the model within a head and returns the decoder's and the encoder's last hidden states.
func ofBoth(t *layers.Trace, m *layers.Module, args []any) (decoded, encoded layers.Tensor) {
	out, _ := t.ChildOf(m, "model", args...).(layers.Fields)
	if len(out) != 2 {
		t.Fail("%s gives %d results", m.Class, len(out))
	}
	return out[0].Value.(layers.Tensor), out[1].Value.(layers.Tensor)
}

func bartForConditionalGenerationForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, encoded := ofBoth(t, m, args)
	logits := t.Op("add.Tensor", t.Child(m, "lm_head", x), t.Param(m, "final_logits_bias"))
	return layers.Fields{{Name: "logits", Value: logits}, {Name: "encoder_last_hidden_state", Value: encoded}}
}

// bartForSequenceClassificationForward classifies by the last end of text in a row. PyTorch refuses rows without one;
// here the first token stands for it.
func bartForSequenceClassificationForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, encoded := ofBoth(t, m, args)
	ids := tokenIDs(t, args)
	s := ids.Shape()
	if s[1] != x.Shape()[1] {
		t.Fail("decoder_input_ids has %d tokens, and input_ids %d", x.Shape()[1], s[1])
	}
	ends := t.Op("to.dtype", t.Op("eq.Scalar", ids, m.Int("eos_token_id")), tensor.Int64)
	last := t.Op("argmax", t.Op("mul.Tensor", ends, t.Op("arange", s[1])), -1)
	x = t.Op("index.Tensor", x, []layers.Tensor{t.Op("arange", s[0]), last})
	return layers.Fields{
		{Name: "logits", Value: t.Child(m, "classification_head", x)},
		{Name: "encoder_last_hidden_state", Value: encoded},
	}
}

func bartClassificationHeadForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	x = t.Op("tanh", t.Child(m, "dense", t.Child(m, "dropout", x)))
	return t.Child(m, "out_proj", t.Child(m, "dropout", x))
}

func bartForQuestionAnsweringForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, encoded := ofBoth(t, m, args)
	out := spansOf("qa_outputs")(t, m, x, nil).(layers.Fields)
	return append(out, layers.Field{Name: "encoder_last_hidden_state", Value: encoded})
}
