package transformers

import "github.com/optimem/optimem/layers"

const albertClass = "transformers.models.albert.modeling_albert.Albert"

var albertEncoder = encoder{class: albertClass, positions: firstPositions}

// albert is transformers/models/albert/modeling_albert.py: BERT whose layers share their weights, with smaller embeddings.
var albert = &family{
	model: "albert", prefix: "albert", encodes: "AlbertModel", positions: 512,
	ignored: []string{`(^|\.)pooler\.`, `(^|\.)embeddings\.token_type_ids$`},
	classes: layers.Classes{
		albertClass + "Model":       {Forward: albertModelForward},
		albertClass + "Embeddings":  {Forward: albertEncoder.embeddingsForward},
		albertClass + "Transformer": {Forward: albertTransformerForward},
		albertClass + "LayerGroup":  {Forward: albertGroupForward},
		albertClass + "Layer":       {Forward: albertLayerForward},
		albertClass + "Attention":   {Forward: albertAttentionForward},
		albertClass + "MLMHead":     layers.Unary(through("dense", "activation", "LayerNorm", "decoder")),
		albertClass + "ForMaskedLM": headed("albert", logitsOf("predictions")),

		albertClass + "ForSequenceClassification": headed("albert", logitsOfPooled("dropout", "classifier")),
		albertClass + "ForTokenClassification":    headed("albert", logitsOf("dropout", "classifier")),
		albertClass + "ForQuestionAnswering":      headed("albert", spansOf("qa_outputs")),
	},
	heads: []head{
		{class: "AlbertModel", make: func(c *config) *layers.Module { return albertModel(c, c.holds("pooler.weight")) }},
		{class: "AlbertForMaskedLM", make: func(c *config) *layers.Module {
			small, words := c.size("embedding_size", 128), c.size("vocab_size", 30000)
			return layers.New(albertClass+"ForMaskedLM", nil).
				Add("albert", albertModel(c, false)).
				Add("predictions", layers.New(albertClass+"MLMHead", nil).
					Param("bias", words).
					Add("LayerNorm", layers.LayerNorm(small, layers.Eps(c.float("layer_norm_eps", 1e-12)))).
					Add("dense", layers.Linear(c.size("hidden_size", 4096), small)).
					Add("decoder", layers.Linear(small, words)).
					Add("activation", c.activation(c.text("hidden_act", "gelu_new"))))
		}},
		albertHead("ForSequenceClassification", true, func(c *config, m *layers.Module, hidden int) {
			m.Add("dropout", layers.Dropout(0.1)).Add("classifier", layers.Linear(hidden, c.labels()))
		}),
		albertHead("ForTokenClassification", false, func(c *config, m *layers.Module, hidden int) {
			m.Add("dropout", layers.Dropout(0.1)).Add("classifier", layers.Linear(hidden, c.labels()))
		}),
		albertHead("ForQuestionAnswering", false, func(c *config, m *layers.Module, hidden int) {
			m.Add("qa_outputs", layers.Linear(hidden, c.labels()))
		}),
	},
	inputs: tokenInputs("attention_mask", "token_type_ids", "position_ids"),
	tied: [][2]string{
		{"predictions.decoder.weight", "albert.embeddings.word_embeddings.weight"},
		{"predictions.decoder.bias", "predictions.bias"},
	},
	ties: true,
}

// albertHead returns a model with a head that add puts on it.
func albertHead(name string, pooler bool, add func(c *config, m *layers.Module, hidden int)) head {
	return head{class: "Albert" + name, make: func(c *config) *layers.Module {
		m := layers.New(albertClass+name, nil).Add("albert", albertModel(c, pooler))
		add(c, m, c.size("hidden_size", 4096))
		return m
	}}
}

// maxShared bounds layers that share their weights, of which a file may ask for any number.
const maxShared = 1000

func albertModel(c *config, pooler bool) *layers.Module {
	hidden, heads := c.size("hidden_size", 4096), c.size("num_attention_heads", 64)
	inner, eps := c.size("intermediate_size", 16384), layers.Eps(c.float("layer_norm_eps", 1e-12))
	n, groups, inGroup := c.size("num_hidden_layers", 12), c.size("num_hidden_groups", 1), c.size("inner_group_num", 1)
	c.heads(hidden, heads)
	if c.err == nil && n > maxShared {
		c.fail("num_hidden_layers", "is %d, more than %d", n, maxShared)
	}
	small := c.size("embedding_size", 128)
	layer := func(int) *layers.Module {
		attention := layers.New(albertClass+"Attention", map[string]any{"attention_head_size": hidden / heads, "eager": c.eager()})
		for _, name := range []string{"query", "key", "value", "dense"} {
			attention.Add(name, layers.Linear(hidden, hidden))
		}
		return layers.New(albertClass+"Layer", nil).
			Add("full_layer_layer_norm", layers.LayerNorm(hidden, eps)).
			Add("attention", attention.Add("LayerNorm", layers.LayerNorm(hidden, eps))).
			Add("ffn", layers.Linear(hidden, inner)).
			Add("ffn_output", layers.Linear(inner, hidden)).
			Add("activation", c.activation(c.text("hidden_act", "gelu_new")))
	}
	group := func(int) *layers.Module {
		return layers.New(albertClass+"LayerGroup", nil).Add("albert_layers", c.repeat(inGroup, layer))
	}
	m := layers.New(albertClass+"Model", map[string]any{"eager": c.eager()}).
		Add("embeddings", albertEncoder.embeddings(c, small, 30000, eps)).
		Add("encoder", layers.New(albertClass+"Transformer", map[string]any{"num_hidden_layers": n}).
			Add("embedding_hidden_mapping_in", layers.Linear(small, hidden)).
			Add("albert_layer_groups", c.repeat(groups, group)))
	if pooler {
		m.Add("pooler", layers.Linear(hidden, hidden)).Add("pooler_activation", layers.Tanh())
	}
	return m
}

// albertModelForward takes input_ids, attention_mask, token_type_ids and position_ids.
func albertModelForward(t *layers.Trace, m *layers.Module, args ...any) any {
	ids := tokenIDs(t, args)
	s := ids.Shape()
	x := t.ChildOf(m, "embeddings", ids, optional(t, args, 2), optional(t, args, 3)).(layers.Tensor)
	mask := masking{
		batch: s[0], queries: s[1], keys: s[1], padding: optional(t, args, 1), additive: m.Bool("eager"),
	}.create(t)
	x = t.ChildOf(m, "encoder", x, mask).(layers.Tensor)
	out := layers.Fields{{Name: "last_hidden_state", Value: x}}
	if m.Has("pooler") {
		pooled := t.Child(m, "pooler", t.Op("select.int", x, 1, 0))
		out = append(out, layers.Field{Name: "pooler_output", Value: t.Child(m, "pooler_activation", pooled)})
	}
	return out
}

// albertTransformerForward runs every group for its share of the layers.
func albertTransformerForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x := t.Child(m, "embedding_hidden_mapping_in", args[0].(layers.Tensor))
	groups, n := m.Child("albert_layer_groups").Children, m.Int("num_hidden_layers")
	for i := range n {
		group := int(float64(i) / (float64(n) / float64(len(groups)))) // as in Python, with its rounding
		x = t.Run(groups[group].Module, x, args[1]).(layers.Tensor)
	}
	return x
}

func albertGroupForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x := args[0]
	for _, layer := range m.Child("albert_layers").Children {
		x = t.Run(layer.Module, x, args[1])
	}
	return x
}

func albertLayerForward(t *layers.Trace, m *layers.Module, args ...any) any {
	attended := t.ChildOf(m, "attention", args...).(layers.Tensor)
	x := t.Child(m, "ffn_output", t.Child(m, "activation", t.Child(m, "ffn", attended)))
	return t.Child(m, "full_layer_layer_norm", t.Op("add.Tensor", x, attended))
}

func albertAttentionForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, size := args[0].(layers.Tensor), m.Int("attention_head_size")
	q := splitHeads(t, m, "query", x, size)
	k := splitHeads(t, m, "key", x, size)
	v := splitHeads(t, m, "value", x, size)
	out := t.Child(m, "dense", attention{eager: m.Bool("eager")}.run(t, m, q, k, v, optional(t, args, 1)))
	return t.Child(m, "LayerNorm", t.Op("add.Tensor", x, out))
}
