package encoders

import (
	"github.com/optimem/optimem/layers"

	"github.com/optimem/optimem/models/transformers/family"
)

const albertClass = "transformers.models.albert.modeling_albert.Albert"

var albertEncoder = Encoder{Class: albertClass, Positions: FirstPositions}

// albert is transformers/models/albert/modeling_albert.py: BERT whose layers share their weights, with smaller embeddings.
var albert = &family.Family{
	Model: "albert", Prefix: "albert", Encodes: "AlbertModel", Positions: 512,
	Ignored: []string{`(^|\.)pooler\.`, `(^|\.)embeddings\.token_type_ids$`},
	Classes: layers.Classes{
		albertClass + "Model":       {Forward: albertModelForward},
		albertClass + "Embeddings":  {Forward: albertEncoder.embeddingsForward},
		albertClass + "Transformer": {Forward: albertTransformerForward},
		albertClass + "LayerGroup":  {Forward: albertGroupForward},
		albertClass + "Layer":       {Forward: albertLayerForward},
		albertClass + "Attention":   {Forward: albertAttentionForward},
		albertClass + "MLMHead":     layers.Unary(family.Through("dense", "activation", "LayerNorm", "decoder")),
		albertClass + "ForMaskedLM": family.Headed("albert", family.LogitsOf("predictions")),

		albertClass + "ForSequenceClassification": family.Headed("albert", family.LogitsOfPooled("dropout", "classifier")),
		albertClass + "ForTokenClassification":    family.Headed("albert", family.LogitsOf("dropout", "classifier")),
		albertClass + "ForQuestionAnswering":      family.Headed("albert", family.SpansOf("qa_outputs")),
	},
	Heads: []family.Head{
		{Class: "AlbertModel", Make: func(c *family.Config) *layers.Module { return albertModel(c, c.Holds("pooler.weight")) }},
		{Class: "AlbertForMaskedLM", Make: func(c *family.Config) *layers.Module {
			small, words := c.Size("embedding_size", 128), c.Size("vocab_size", 30000)
			return layers.New(albertClass+"ForMaskedLM", nil).
				Add("albert", albertModel(c, false)).
				Add("predictions", layers.New(albertClass+"MLMHead", nil).
					Param("bias", words).
					Add("LayerNorm", layers.LayerNorm(small, layers.Eps(c.Float("layer_norm_eps", 1e-12)))).
					Add("dense", layers.Linear(c.Size("hidden_size", 4096), small)).
					Add("decoder", layers.Linear(small, words)).
					Add("activation", c.Activation(c.Text("hidden_act", "gelu_new"))))
		}},
		albertHead("ForSequenceClassification", true, func(c *family.Config, m *layers.Module, hidden int) {
			m.Add("dropout", layers.Dropout(0.1)).Add("classifier", layers.Linear(hidden, c.Labels()))
		}),
		albertHead("ForTokenClassification", false, func(c *family.Config, m *layers.Module, hidden int) {
			m.Add("dropout", layers.Dropout(0.1)).Add("classifier", layers.Linear(hidden, c.Labels()))
		}),
		albertHead("ForQuestionAnswering", false, func(c *family.Config, m *layers.Module, hidden int) {
			m.Add("qa_outputs", layers.Linear(hidden, c.Labels()))
		}),
	},
	Inputs: family.TokenInputs("attention_mask", "token_type_ids", "position_ids"),
	Tied: [][2]string{
		{"predictions.decoder.weight", "albert.embeddings.word_embeddings.weight"},
		{"predictions.decoder.bias", "predictions.bias"},
	},
	Ties: true,
}

// albertHead returns a model with a head that add puts on it.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func albertHead(name string, pooler bool, add func(c *family.Config, m *layers.Module, hidden int)) family.Head {
	return family.Head{Class: "Albert" + name, Make: func(c *family.Config) *layers.Module {
		m := layers.New(albertClass+name, nil).Add("albert", albertModel(c, pooler))
		add(c, m, c.Size("hidden_size", 4096))
		return m
	}}
}

// maxShared bounds layers that share their weights, of which a file may ask for any number.
const maxShared = 1000

func albertModel(c *family.Config, pooler bool) *layers.Module {
	hidden, heads := c.Size("hidden_size", 4096), c.Size("num_attention_heads", 64)
	inner, eps := c.Size("intermediate_size", 16384), layers.Eps(c.Float("layer_norm_eps", 1e-12))
	n, groups, inGroup := c.Size("num_hidden_layers", 12), c.Size("num_hidden_groups", 1), c.Size("inner_group_num", 1)
	c.Heads(hidden, heads)
	if c.Err == nil && n > maxShared {
		c.Fail("num_hidden_layers", "is %d, more than %d", n, maxShared)
	}
	small := c.Size("embedding_size", 128)
	layer := func(int) *layers.Module {
		attention := layers.New(albertClass+"Attention", map[string]any{"attention_head_size": hidden / heads, "eager": c.Eager()})
		for _, name := range []string{"query", "key", "value", "dense"} {
			attention.Add(name, layers.Linear(hidden, hidden))
		}
		return layers.New(albertClass+"Layer", nil).
			Add("full_layer_layer_norm", layers.LayerNorm(hidden, eps)).
			Add("attention", attention.Add("LayerNorm", layers.LayerNorm(hidden, eps))).
			Add("ffn", layers.Linear(hidden, inner)).
			Add("ffn_output", layers.Linear(inner, hidden)).
			Add("activation", c.Activation(c.Text("hidden_act", "gelu_new")))
	}
	group := func(int) *layers.Module {
		return layers.New(albertClass+"LayerGroup", nil).Add("albert_layers", c.Repeat(inGroup, layer))
	}
	m := layers.New(albertClass+"Model", map[string]any{"eager": c.Eager()}).
		Add("embeddings", albertEncoder.embeddings(c, small, 30000, eps)).
		Add("encoder", layers.New(albertClass+"Transformer", map[string]any{"num_hidden_layers": n}).
			Add("embedding_hidden_mapping_in", layers.Linear(small, hidden)).
			Add("albert_layer_groups", c.Repeat(groups, group)))
	if pooler {
		m.Add("pooler", layers.Linear(hidden, hidden)).Add("pooler_activation", layers.Tanh())
	}
	return m
}

// albertModelForward takes input_ids, attention_mask, token_type_ids and position_ids.
func albertModelForward(t *layers.Trace, m *layers.Module, args ...any) any {
	ids := family.TokenIDs(t, args)
	s := ids.Shape()
	x := t.ChildOf(m, "embeddings", ids, family.Optional(t, args, 2), family.Optional(t, args, 3)).(layers.Tensor)
	mask := family.Masking{
		Batch: s[0], Queries: s[1], Keys: s[1], Padding: family.Optional(t, args, 1), Additive: m.Bool("eager"),
	}.Create(t)
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
	q := family.SplitHeads(t, m, "query", x, size)
	k := family.SplitHeads(t, m, "key", x, size)
	v := family.SplitHeads(t, m, "value", x, size)
	out := t.Child(m, "dense", family.Attention{Eager: m.Bool("eager")}.Run(t, m, q, k, v, family.Optional(t, args, 1)))
	return t.Child(m, "LayerNorm", t.Op("add.Tensor", x, out))
}
