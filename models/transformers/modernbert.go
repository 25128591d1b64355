package transformers

import (
	"encoding/json"

	"github.com/optimem/optimem/layers"
)

const modernBertClass = "transformers.models.modernbert.modeling_modernbert.ModernBert"

// modernBert is transformers/models/modernbert/modeling_modernbert.py: norms before sublayers, rotary embeddings, and
// layers that see a window of neighbours between those that see everything.
var modernBert = &family{
	model: "modernbert", prefix: "model", encodes: "ModernBertModel", positions: 8192,
	classes: layers.Classes{
		modernBertClass + "Model":           {Forward: modernBertModelForward},
		modernBertClass + "Embeddings":      layers.Unary(through("tok_embeddings", "norm", "drop")),
		modernBertClass + "EncoderLayer":    {Forward: modernBertLayerForward},
		modernBertClass + "Attention":       {Forward: modernBertAttentionForward},
		modernBertClass + "MLP":             layers.Unary(modernBertMLPForward),
		modernBertClass + "RotaryEmbedding": {Forward: modernBertRotaryForward},
		modernBertClass + "LayerRotary":     {Forward: rotaryForward},
		modernBertClass + "PredictionHead":  layers.Unary(through("dense", "act", "norm")),
		modernBertClass + "ForMaskedLM":     headed("model", logitsOf("head", "decoder")),

		modernBertClass + "ForSequenceClassification": {Forward: modernBertSequenceForward},
		modernBertClass + "ForTokenClassification":    headed("model", logitsOf("head", "drop", "classifier")),
		modernBertClass + "ForQuestionAnswering":      headed("model", spansOf("head", "drop", "classifier")),
	},
	heads: []head{
		{class: "ModernBertModel", make: modernBertModel},
		{class: "ModernBertForMaskedLM", make: func(c *config) *layers.Module {
			return layers.New(modernBertClass+"ForMaskedLM", nil).
				Add("model", modernBertModel(c)).
				Add("head", modernBertPrediction(c)).
				Add("decoder", layers.Linear(c.size("hidden_size", 768), c.size("vocab_size", 50368),
					layers.Attr("bias", c.flag("decoder_bias", true))))
		}},
		modernBertClassifier("ForSequenceClassification"),
		modernBertClassifier("ForTokenClassification"),
		modernBertClassifier("ForQuestionAnswering"),
	},
	inputs: tokenInputs("attention_mask", "position_ids"),
	tied:   [][2]string{{"decoder.weight", "model.embeddings.tok_embeddings.weight"}},
	ties:   true,
}

// modernBertPrediction is ModernBertPredictionHead.
func modernBertPrediction(c *config) *layers.Module {
	hidden, eps := c.size("hidden_size", 768), layers.Eps(c.float("norm_eps", 1e-5))
	return layers.New(modernBertClass+"PredictionHead", nil).
		Add("dense", layers.Linear(hidden, hidden, layers.Attr("bias", c.flag("classifier_bias", false)))).
		Add("act", c.activation(c.text("classifier_activation", "gelu"))).
		Add("norm", layers.LayerNorm(hidden, eps, layers.Attr("bias", c.flag("norm_bias", false))))
}

// modernBertClassifier is a model that classifies texts or tokens, or finds answers.
func modernBertClassifier(name string) head {
	return head{class: "ModernBert" + name, make: func(c *config) *layers.Module {
		pooling := c.text("classifier_pooling", "cls")
		if pooling != "cls" && pooling != "mean" {
			c.unsupported("classifier_pooling " + pooling)
		}
		return layers.New(modernBertClass+name, map[string]any{"mean": pooling == "mean"}).
			Add("model", modernBertModel(c)).
			Add("head", modernBertPrediction(c)).
			Add("drop", layers.Dropout(0)).
			Add("classifier", layers.Linear(c.size("hidden_size", 768), c.labels()))
	}}
}

// modernBertSequenceForward takes what the base model does: a text is its first token, or the mean of those that are no
// padding.
func modernBertSequenceForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, mask := field(t.ChildOf(m, "model", args...), "last_hidden_state"), optional(t, args, 1)
	switch {
	case !m.Bool("mean"):
		x = t.Op("select.int", x, 1, 0)
	case mask == nil:
		x = t.Op("mean.dim", x, []int{1})
	default:
		x = t.Op("sum.dim_IntList", t.Op("mul.Tensor", x, t.Op("unsqueeze", mask, -1)), []int{1})
		x = t.Op("div.Tensor", x, t.Op("sum.dim_IntList", mask, []int{1}, true))
	}
	return layers.Fields{{Name: "logits", Value: through("head", "drop", "classifier")(t, m, x)}}
}

// The types of layers, which are also the names of their rotary embeddings.
const (
	fullAttention    = "full_attention"
	slidingAttention = "sliding_attention"
)

func modernBertModel(c *config) *layers.Module {
	hidden, heads := c.size("hidden_size", 768), c.size("num_attention_heads", 12)
	inner, eps := c.size("intermediate_size", 1152), layers.Eps(c.float("norm_eps", 1e-5))
	positions, n := c.size("max_position_embeddings", 8192), c.size("num_hidden_layers", 22)
	act, every := c.text("hidden_activation", "gelu"), c.size("global_attn_every_n_layers", 3)
	slides := c.layerTypes(n, func(i int) bool { return i%every != 0 })
	window := c.size("local_attention", 128)
	c.heads(hidden, heads)
	if c.err == nil && window < 2 {
		c.fail("local_attention", "is %d, which has no neighbour", window)
	}
	normBias := layers.Attr("bias", c.flag("norm_bias", false))
	attnBias, mlpBias := layers.Attr("bias", c.flag("attention_bias", false)), layers.Attr("bias", c.flag("mlp_bias", false))
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
			Add("attn", layers.New(modernBertClass+"Attention", map[string]any{"head_dim": hidden / heads, "eager": c.eager()}).
				Add("Wqkv", layers.Linear(hidden, 3*hidden, attnBias)).
				Add("Wo", layers.Linear(hidden, hidden, attnBias)).
				Add("out_drop", layers.Identity())).
			Add("mlp_norm", norm()).
			Add("mlp", layers.New(modernBertClass+"MLP", nil).
				Add("Wi", layers.Linear(hidden, 2*inner, mlpBias)).
				Add("act", c.activation(act)).
				Add("drop", layers.Dropout(0)).
				Add("Wo", layers.Linear(inner, hidden, mlpBias)))
	}
	m := layers.New(modernBertClass+"Model", map[string]any{"eager": c.eager(), "window": window / 2}).
		Add("embeddings", layers.New(modernBertClass+"Embeddings", nil).
			Add("tok_embeddings", layers.Embedding(c.size("vocab_size", 50368), hidden)).
			Add("norm", norm()).
			Add("drop", layers.Dropout(0))).
		Add("layers", c.repeat(n, layer)).
		Add("final_norm", norm())
	rotary := layers.New(modernBertClass+"RotaryEmbedding", nil)
	for _, kind := range []string{fullAttention, slidingAttention} {
		rotary.Add(kind, c.rotaryOf(kind, hidden/max(heads, 1), positions))
	}
	return m.Add("rotary_emb", rotary)
}

// rotaryOf is the rotary embedding of the layers of a type, whose parameters newer files have under its name.
func (c *config) rotaryOf(kind string, headDim, positions int) *layers.Module {
	theta, base := "global_rope_theta", json.Number("160000")
	if kind == slidingAttention {
		theta, base = "local_rope_theta", "10000"
	}
	own := &config{dict: c.dict, err: c.err, fields: map[string]any{
		"model_type": c.fields["model_type"], "rope_scaling": c.fields["rope_scaling"], "rope_theta": base,
	}}
	if v := c.fields[theta]; v != nil {
		own.fields["rope_theta"] = v
	}
	all := c.sub("rope_parameters")
	own.fields["rope_parameters"] = all.fields[kind]
	c.adopt(all)
	m := own.rotary(modernBertClass+"LayerRotary", headDim, positions, rope{})
	c.adopt(own)
	return m
}

// modernBertModelForward takes input_ids, attention_mask and position_ids.
func modernBertModelForward(t *layers.Trace, m *layers.Module, args ...any) any {
	ids, positions := tokenIDs(t, args), optional(t, args, 2)
	s := ids.Shape()
	if positions == nil {
		positions = countedPositions(t, s[1])
	}
	x := t.Child(m, "embeddings", ids)
	masks, angles := make(map[string]layers.Tensor), make(map[string]any)
	for _, layer := range m.Child("layers").Children {
		kind := layer.Module.Attrs["attention_type"].(string)
		if masks[kind] == nil {
			k := masking{
				batch: s[0], queries: s[1], keys: s[1], padding: optional(t, args, 1), additive: m.Bool("eager"),
			}
			if kind == slidingAttention {
				k.window = m.Int("window")
			}
			masks[kind], angles[kind] = k.create(t), t.ChildOf(m, "rotary_emb", positions, kind)
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
	x, mask := args[0].(layers.Tensor), optional(t, args, 1)
	angles, _ := args[2].([]layers.Tensor)
	s, size := x.Shape(), m.Int("head_dim")
	qkv := t.Op("view", t.Child(m, "Wqkv", x), []int{s[0], s[1], 3, -1, size})
	parts := make([]layers.Tensor, 3)
	for i := range parts {
		parts[i] = t.Op("transpose.int", t.Op("select.int", qkv, 2, i), 1, 2)
	}
	cos, sin := t.Op("unsqueeze", angles[0], 1), t.Op("unsqueeze", angles[1], 1)
	q, k := rotate(t, parts[0], cos, sin), rotate(t, parts[1], cos, sin)
	out := attention{eager: m.Bool("eager")}.run(t, m, q, k, parts[2], mask)
	return t.Child(m, "out_drop", t.Child(m, "Wo", out))
}

func modernBertMLPForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	halves := t.Tensors("chunk", t.Child(m, "Wi", x), 2, -1)
	x = t.Op("mul.Tensor", t.Child(m, "act", halves[0]), halves[1])
	return t.Child(m, "Wo", t.Child(m, "drop", x))
}
