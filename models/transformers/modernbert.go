package transformers

import (
	"encoding/json"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
)

const modernBertClass = "transformers.models.modernbert.modeling_modernbert.ModernBert"

// modernBert is transformers/models/modernbert/modeling_modernbert.py: norms before sublayers, rotary embeddings, and
// layers that see a window of neighbours between those that see everything.
var modernBert = &family.Family{
	Model: "modernbert", Prefix: "model", Encodes: "ModernBertModel", Positions: 8192,
	Classes: layers.Classes{
		modernBertClass + "Model":           {Forward: modernBertModelForward},
		modernBertClass + "Embeddings":      layers.Unary(family.Through("tok_embeddings", "norm", "drop")),
		modernBertClass + "EncoderLayer":    {Forward: modernBertLayerForward},
		modernBertClass + "Attention":       {Forward: modernBertAttentionForward},
		modernBertClass + "MLP":             layers.Unary(modernBertMLPForward),
		modernBertClass + "RotaryEmbedding": {Forward: modernBertRotaryForward},
		modernBertClass + "LayerRotary":     {Forward: rotaryForward},
		modernBertClass + "PredictionHead":  layers.Unary(family.Through("dense", "act", "norm")),
		modernBertClass + "ForMaskedLM":     family.Headed("model", family.LogitsOf("head", "decoder")),

		modernBertClass + "ForSequenceClassification": {Forward: modernBertSequenceForward},
		modernBertClass + "ForTokenClassification":    family.Headed("model", family.LogitsOf("head", "drop", "classifier")),
		modernBertClass + "ForQuestionAnswering":      family.Headed("model", family.SpansOf("head", "drop", "classifier")),
	},
	Heads: []family.Head{
		{Class: "ModernBertModel", Make: modernBertModel},
		{Class: "ModernBertForMaskedLM", Make: func(c *family.Config) *layers.Module {
			return layers.New(modernBertClass+"ForMaskedLM", nil).
				Add("model", modernBertModel(c)).
				Add("head", modernBertPrediction(c)).
				Add("decoder", layers.Linear(c.Size("hidden_size", 768), c.Size("vocab_size", 50368),
					layers.Attr("bias", c.Flag("decoder_bias", true))))
		}},
		modernBertClassifier("ForSequenceClassification"),
		modernBertClassifier("ForTokenClassification"),
		modernBertClassifier("ForQuestionAnswering"),
	},
	Inputs: family.TokenInputs("attention_mask", "position_ids"),
	Tied:   [][2]string{{"decoder.weight", "model.embeddings.tok_embeddings.weight"}},
	Ties:   true,
}

// modernBertPrediction is ModernBertPredictionHead.
func modernBertPrediction(c *family.Config) *layers.Module {
	hidden, eps := c.Size("hidden_size", 768), layers.Eps(c.Float("norm_eps", 1e-5))
	return layers.New(modernBertClass+"PredictionHead", nil).
		Add("dense", layers.Linear(hidden, hidden, layers.Attr("bias", c.Flag("classifier_bias", false)))).
		Add("act", c.Activation(c.Text("classifier_activation", "gelu"))).
		Add("norm", layers.LayerNorm(hidden, eps, layers.Attr("bias", c.Flag("norm_bias", false))))
}

// modernBertClassifier is a model that classifies texts or tokens, or finds answers.
func modernBertClassifier(name string) family.Head {
	return family.Head{Class: "ModernBert" + name, Make: func(c *family.Config) *layers.Module {
		pooling := c.Text("classifier_pooling", "cls")
		if pooling != "cls" && pooling != "mean" {
			c.Unsupported("classifier_pooling " + pooling)
		}
		return layers.New(modernBertClass+name, map[string]any{"mean": pooling == "mean"}).
			Add("model", modernBertModel(c)).
			Add("head", modernBertPrediction(c)).
			Add("drop", layers.Dropout(0)).
			Add("classifier", layers.Linear(c.Size("hidden_size", 768), c.Labels()))
	}}
}

// modernBertSequenceForward takes what the base model does: a text is its first token, or the mean of those that are no
// padding.
func modernBertSequenceForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, mask := family.Field(t.ChildOf(m, "model", args...), "last_hidden_state"), family.Optional(t, args, 1)
	switch {
	case !m.Bool("mean"):
		x = t.Op("select.int", x, 1, 0)
	case mask == nil:
		x = t.Op("mean.dim", x, []int{1})
	default:
		x = t.Op("sum.dim_IntList", t.Op("mul.Tensor", x, t.Op("unsqueeze", mask, -1)), []int{1})
		x = t.Op("div.Tensor", x, t.Op("sum.dim_IntList", mask, []int{1}, true))
	}
	return layers.Fields{{Name: "logits", Value: family.Through("head", "drop", "classifier")(t, m, x)}}
}

// The types of layers, which are also the names of their rotary embeddings.
const (
	fullAttention    = "full_attention"
	slidingAttention = "sliding_attention"
)

func modernBertModel(c *family.Config) *layers.Module {
	hidden, heads := c.Size("hidden_size", 768), c.Size("num_attention_heads", 12)
	inner, eps := c.Size("intermediate_size", 1152), layers.Eps(c.Float("norm_eps", 1e-5))
	positions, n := c.Size("max_position_embeddings", 8192), c.Size("num_hidden_layers", 22)
	act, every := c.Text("hidden_activation", "gelu"), c.Size("global_attn_every_n_layers", 3)
	slides := layerTypes(c, n, func(i int) bool { return i%every != 0 })
	window := c.Size("local_attention", 128)
	c.Heads(hidden, heads)
	if c.Err == nil && window < 2 {
		c.Fail("local_attention", "is %d, which has no neighbour", window)
	}
	normBias := layers.Attr("bias", c.Flag("norm_bias", false))
	attnBias, mlpBias := layers.Attr("bias", c.Flag("attention_bias", false)), layers.Attr("bias", c.Flag("mlp_bias", false))
	norm := func() *layers.Module { return layers.LayerNorm(hidden, eps, normBias) }
	layer := func(i int) *layers.Module {
		kind := fullAttention
		if slides(i) {
			kind = slidingAttention
		}
		first := layers.Identity()
		if i > 0 {
			first = norm()
		}
		return layers.New(modernBertClass+"EncoderLayer", map[string]any{"attention_type": kind}).
			Add("attn_norm", first).
			Add("attn", layers.New(modernBertClass+"Attention", map[string]any{"head_dim": hidden / heads, "eager": c.Eager()}).
				Add("Wqkv", layers.Linear(hidden, 3*hidden, attnBias)).
				Add("Wo", layers.Linear(hidden, hidden, attnBias)).
				Add("out_drop", layers.Identity())).
			Add("mlp_norm", norm()).
			Add("mlp", layers.New(modernBertClass+"MLP", nil).
				Add("Wi", layers.Linear(hidden, 2*inner, mlpBias)).
				Add("act", c.Activation(act)).
				Add("drop", layers.Dropout(0)).
				Add("Wo", layers.Linear(inner, hidden, mlpBias)))
	}
	m := layers.New(modernBertClass+"Model", map[string]any{"eager": c.Eager(), "window": window / 2}).
		Add("embeddings", layers.New(modernBertClass+"Embeddings", nil).
			Add("tok_embeddings", layers.Embedding(c.Size("vocab_size", 50368), hidden)).
			Add("norm", norm()).
			Add("drop", layers.Dropout(0))).
		Add("layers", c.Repeat(n, layer)).
		Add("final_norm", norm())
	rotary := layers.New(modernBertClass+"RotaryEmbedding", nil)
	for _, kind := range []string{fullAttention, slidingAttention} {
		rotary.Add(kind, rotaryOf(c, kind, hidden/max(heads, 1), positions))
	}
	return m.Add("rotary_emb", rotary)
}

// rotaryOf is the rotary embedding of the layers of a type, whose parameters newer files have under its name.
func rotaryOf(c *family.Config, kind string, headDim, positions int) *layers.Module {
	theta, base := "global_rope_theta", json.Number("160000")
	if kind == slidingAttention {
		theta, base = "local_rope_theta", "10000"
	}
	own := &family.Config{Dict: c.Dict, Err: c.Err, Fields: map[string]any{
		"model_type": c.Fields["model_type"], "rope_scaling": c.Fields["rope_scaling"], "rope_theta": base,
	}}
	if v := c.Fields[theta]; v != nil {
		own.Fields["rope_theta"] = v
	}
	all := c.Sub("rope_parameters")
	own.Fields["rope_parameters"] = all.Fields[kind]
	c.Adopt(all)
	m := rotary(own, modernBertClass+"LayerRotary", headDim, positions, rope{})
	c.Adopt(own)
	return m
}

// modernBertModelForward takes input_ids, attention_mask and position_ids.
func modernBertModelForward(t *layers.Trace, m *layers.Module, args ...any) any {
	ids, positions := family.TokenIDs(t, args), family.Optional(t, args, 2)
	s := ids.Shape()
	if positions == nil {
		positions = countedPositions(t, s[1])
	}
	x := t.Child(m, "embeddings", ids)
	masks, angles := make(map[string]layers.Tensor), make(map[string]any)
	for _, layer := range m.Child("layers").Children {
		kind := layer.Module.Attrs["attention_type"].(string)
		if masks[kind] == nil {
			k := family.Masking{
				Batch: s[0], Queries: s[1], Keys: s[1], Padding: family.Optional(t, args, 1), Additive: m.Bool("eager"),
			}
			if kind == slidingAttention {
				k.Window = m.Int("window")
			}
			masks[kind], angles[kind] = k.Create(t), t.ChildOf(m, "rotary_emb", positions, kind)
		}
		x = t.Run(layer.Module, x, masks[kind], angles[kind]).(layers.Tensor)
	}
	return layers.Fields{{Name: "last_hidden_state", Value: t.Child(m, "final_norm", x)}}
}

// modernBertRotaryForward takes positions and the type of the layers.
func modernBertRotaryForward(t *layers.Trace, m *layers.Module, args ...any) any {
	return t.ChildOf(m, args[1].(string), args[0])
}

func modernBertLayerForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x := args[0].(layers.Tensor)
	x = t.Op("add.Tensor", x, t.ChildOf(m, "attn", t.Child(m, "attn_norm", x), args[1], args[2]))
	return t.Op("add.Tensor", x, t.Child(m, "mlp", t.Child(m, "mlp_norm", x)))
}

func modernBertAttentionForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, mask := args[0].(layers.Tensor), family.Optional(t, args, 1)
	angles, _ := args[2].([]layers.Tensor)
	s, size := x.Shape(), m.Int("head_dim")
	qkv := t.Op("view", t.Child(m, "Wqkv", x), []int{s[0], s[1], 3, -1, size})
	parts := make([]layers.Tensor, 3)
	for i := range parts {
		parts[i] = t.Op("transpose.int", t.Op("select.int", qkv, 2, i), 1, 2)
	}
	cos, sin := t.Op("unsqueeze", angles[0], 1), t.Op("unsqueeze", angles[1], 1)
	q, k := family.Rotate(t, parts[0], cos, sin), family.Rotate(t, parts[1], cos, sin)
	out := family.Attention{Eager: m.Bool("eager")}.Run(t, m, q, k, parts[2], mask)
	return t.Child(m, "out_drop", t.Child(m, "Wo", out))
}

func modernBertMLPForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	halves := t.Tensors("chunk", t.Child(m, "Wi", x), 2, -1)
	x = t.Op("mul.Tensor", t.Child(m, "act", halves[0]), halves[1])
	return t.Child(m, "Wo", t.Child(m, "drop", x))
}
