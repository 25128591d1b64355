package transformers

import (
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

const (
	distilModule = "transformers.models.distilbert.modeling_distilbert."
	distilClass  = distilModule + "DistilBert"
)

// distilbert is transformers/models/distilbert/modeling_distilbert.py.
var distilbert = &family{
	model: "distilbert", prefix: "distilbert", encodes: "DistilBertModel", positions: 512,
	classes: layers.Classes{
		distilModule + "Embeddings":               {Forward: distilEmbeddingsForward},
		distilModule + "Transformer":              {Forward: encoderForward},
		distilModule + "TransformerBlock":         {Forward: distilBlockForward},
		distilModule + "FFN":                      layers.Unary(through("lin1", "activation", "lin2", "dropout")),
		distilClass + "SelfAttention":             {Forward: distilAttentionForward},
		distilClass + "Model":                     {Forward: distilModelForward},
		distilClass + "ForMaskedLM":               headed("distilbert", distilMaskedLM),
		distilClass + "ForSequenceClassification": headed("distilbert", distilSequence),
		distilClass + "ForTokenClassification":    headed("distilbert", logitsOf("dropout", "classifier")),
		distilClass + "ForQuestionAnswering":      headed("distilbert", spansOf("dropout", "qa_outputs")),
	},
	heads: []head{
		{class: "DistilBertModel", make: distilModel},
		distilHead("ForMaskedLM", func(c *config, m *layers.Module, dim int) {
			m.Add("vocab_transform", layers.Linear(dim, dim)).
				Add("activation", c.activation(c.text("activation", "gelu"))).
				Add("vocab_layer_norm", layers.LayerNorm(dim, layers.Eps(1e-12))).
				Add("vocab_projector", layers.Linear(dim, c.size("vocab_size", 30522)))
		}),
		distilHead("ForSequenceClassification", func(c *config, m *layers.Module, dim int) {
			m.Add("pre_classifier", layers.Linear(dim, dim)).
				Add("classifier", layers.Linear(dim, c.labels())).
				Add("dropout", layers.Dropout(0.2))
		}),
		distilHead("ForTokenClassification", func(c *config, m *layers.Module, dim int) {
			m.Add("dropout", layers.Dropout(0.1)).Add("classifier", layers.Linear(dim, c.labels()))
		}),
		distilHead("ForQuestionAnswering", func(c *config, m *layers.Module, dim int) {
			m.Add("qa_outputs", layers.Linear(dim, c.labels())).Add("dropout", layers.Dropout(0.1))
		}),
	},
	inputs: tokenInputs("attention_mask", "position_ids"),
	tied:   [][2]string{{"vocab_projector.weight", "distilbert.embeddings.word_embeddings.weight"}},
	ties:   true,
}

// distilHead returns a model with a head that add puts on it.
func distilHead(name string, add func(c *config, m *layers.Module, dim int)) head {
	return head{class: "DistilBert" + name, make: func(c *config) *layers.Module {
		m := layers.New(distilClass+name, nil).Add("distilbert", distilModel(c))
		add(c, m, c.size("dim|hidden_size", 768))
		return m
	}}
}

func distilModel(c *config) *layers.Module {
	dim, inner := c.size("dim|hidden_size", 768), c.size("hidden_dim", 3072)
	heads := c.size("n_heads|num_attention_heads", 12)
	positions, eps, act := c.table("max_position_embeddings", 512), layers.Eps(1e-12), c.text("activation", "gelu")
	c.heads(dim, heads)
	embeddings := layers.New(distilModule+"Embeddings", nil).
		Add("word_embeddings", layers.Embedding(c.size("vocab_size", 30522), dim)).
		Add("position_embeddings", layers.Embedding(positions, dim)).
		Add("LayerNorm", layers.LayerNorm(dim, eps)).
		Add("dropout", layers.Dropout(0.1))
	embeddings.Params = append(embeddings.Params, table("position_ids", tensor.Shape{1, positions}, 1))
	layer := func(int) *layers.Module {
		return layers.New(distilModule+"TransformerBlock", nil).
			Add("attention", layers.New(distilClass+"SelfAttention", map[string]any{
				"attention_head_size": dim / heads, "eager": c.eager(),
			}).
				Add("q_lin", layers.Linear(dim, dim)).
				Add("k_lin", layers.Linear(dim, dim)).
				Add("v_lin", layers.Linear(dim, dim)).
				Add("out_lin", layers.Linear(dim, dim))).
			Add("sa_layer_norm", layers.LayerNorm(dim, eps)).
			Add("ffn", layers.New(distilModule+"FFN", nil).
				Add("dropout", layers.Dropout(0.1)).
				Add("lin1", layers.Linear(dim, inner)).
				Add("lin2", layers.Linear(inner, dim)).
				Add("activation", c.activation(act))).
			Add("output_layer_norm", layers.LayerNorm(dim, eps))
	}
	return layers.New(distilClass+"Model", map[string]any{"eager": c.eager()}).
		Add("embeddings", embeddings).
		Add("transformer", layers.New(distilModule+"Transformer", nil).
			Add("layer", c.repeat(c.size("n_layers|num_hidden_layers", 6), layer)))
}

// distilModelForward takes input_ids, attention_mask and position_ids.
func distilModelForward(t *layers.Trace, m *layers.Module, args ...any) any {
	ids := tokenIDs(t, args)
	s := ids.Shape()
	x := t.ChildOf(m, "embeddings", ids, optional(t, args, 2))
	mask := masking{
		batch: s[0], queries: s[1], keys: s[1], padding: optional(t, args, 1), additive: m.Bool("eager"),
	}.create(t)
	return layers.Fields{{Name: "last_hidden_state", Value: t.ChildOf(m, "transformer", x, mask)}}
}

func distilEmbeddingsForward(t *layers.Trace, m *layers.Module, args ...any) any {
	ids, positions := tokenIDs(t, args), optional(t, args, 1)
	x := t.Child(m, "word_embeddings", ids)
	if positions == nil {
		positions = firstPositions(t, m, ids)
	}
	x = t.Op("add.Tensor", x, t.Child(m, "position_embeddings", positions))
	return t.Child(m, "dropout", t.Child(m, "LayerNorm", x))
}

func distilBlockForward(t *layers.Trace, m *layers.Module, args ...any) any {
	attended := t.ChildOf(m, "attention", args...)
	x := t.Child(m, "sa_layer_norm", t.Op("add.Tensor", attended, args[0]))
	return t.Child(m, "output_layer_norm", t.Op("add.Tensor", t.Child(m, "ffn", x), x))
}

func distilAttentionForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, size := args[0].(layers.Tensor), m.Int("attention_head_size")
	q := splitHeads(t, m, "q_lin", x, size)
	k := splitHeads(t, m, "k_lin", x, size)
	v := splitHeads(t, m, "v_lin", x, size)
	return t.Child(m, "out_lin", attention{eager: m.Bool("eager")}.run(t, m, q, k, v, optional(t, args, 1)))
}

func distilMaskedLM(t *layers.Trace, m *layers.Module, x, _ layers.Tensor) any {
	return logitsOf("vocab_transform", "activation", "vocab_layer_norm", "vocab_projector")(t, m, x, nil)
}

func distilSequence(t *layers.Trace, m *layers.Module, x, _ layers.Tensor) any {
	x = t.Op("relu", t.Child(m, "pre_classifier", t.Op("select.int", x, 1, 0)))
	return logitsOf("dropout", "classifier")(t, m, x, nil)
}
