package encoders

import (
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
	"github.com/optimem/optimem/tensor"
)

const (
	distilModule = "transformers.models.distilbert.modeling_distilbert."
	distilClass  = distilModule + "DistilBert"
)

// distilbert is transformers/models/distilbert/modeling_distilbert.py.
var distilbert = &family.Family{
	Model: "distilbert", Prefix: "distilbert", Encodes: "DistilBertModel", Positions: 512,
	Classes: layers.Classes{
		distilModule + "Embeddings":               {Forward: distilEmbeddingsForward},
		distilModule + "Transformer":              {Forward: family.LayersForward},
		distilModule + "TransformerBlock":         {Forward: distilBlockForward},
		distilModule + "FFN":                      layers.Unary(family.Through("lin1", "activation", "lin2", "dropout")),
		distilClass + "SelfAttention":             {Forward: distilAttentionForward},
		distilClass + "Model":                     {Forward: distilModelForward},
		distilClass + "ForMaskedLM":               family.Headed("distilbert", distilMaskedLM),
		distilClass + "ForSequenceClassification": family.Headed("distilbert", distilSequence),
		distilClass + "ForTokenClassification":    family.Headed("distilbert", family.LogitsOf("dropout", "classifier")),
		distilClass + "ForQuestionAnswering":      family.Headed("distilbert", family.SpansOf("dropout", "qa_outputs")),
	},
	Heads: []family.Head{
		{Class: "DistilBertModel", Make: distilModel},
		distilHead("ForMaskedLM", func(c *family.Config, m *layers.Module, dim int) {
			m.Add("vocab_transform", layers.Linear(dim, dim)).
				Add("activation", c.Activation(c.Text("activation", "gelu"))).
				Add("vocab_layer_norm", layers.LayerNorm(dim, layers.Eps(1e-12))).
				Add("vocab_projector", layers.Linear(dim, c.Size("vocab_size", 30522)))
		}),
		distilHead("ForSequenceClassification", func(c *family.Config, m *layers.Module, dim int) {
			m.Add("pre_classifier", layers.Linear(dim, dim)).
				Add("classifier", layers.Linear(dim, c.Labels())).
				Add("dropout", layers.Dropout(0.2))
		}),
		distilHead("ForTokenClassification", func(c *family.Config, m *layers.Module, dim int) {
			m.Add("dropout", layers.Dropout(0.1)).Add("classifier", layers.Linear(dim, c.Labels()))
		}),
		distilHead("ForQuestionAnswering", func(c *family.Config, m *layers.Module, dim int) {
			m.Add("qa_outputs", layers.Linear(dim, c.Labels())).Add("dropout", layers.Dropout(0.1))
		}),
	},
	Inputs: family.TokenInputs("attention_mask", "position_ids"),
	Tied:   [][2]string{{"vocab_projector.weight", "distilbert.embeddings.word_embeddings.weight"}},
	Ties:   true,
}

// distilHead returns a model with a head that add puts on it.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func distilHead(name string, add func(c *family.Config, m *layers.Module, dim int)) family.Head {
	return family.Head{Class: "DistilBert" + name, Make: func(c *family.Config) *layers.Module {
		m := layers.New(distilClass+name, nil).Add("distilbert", distilModel(c))
		add(c, m, c.Size("dim|hidden_size", 768))
		return m
	}}
}

func distilModel(c *family.Config) *layers.Module {
	dim, inner := c.Size("dim|hidden_size", 768), c.Size("hidden_dim", 3072)
	heads := c.Size("n_heads|num_attention_heads", 12)
	positions, eps, act := c.Table("max_position_embeddings", 512), layers.Eps(1e-12), c.Text("activation", "gelu")
	c.Heads(dim, heads)
	embeddings := layers.New(distilModule+"Embeddings", nil).
		Add("word_embeddings", layers.Embedding(c.Size("vocab_size", 30522), dim)).
		Add("position_embeddings", layers.Embedding(positions, dim)).
		Add("LayerNorm", layers.LayerNorm(dim, eps)).
		Add("dropout", layers.Dropout(0.1))
	embeddings.Params = append(embeddings.Params, family.Table("position_ids", tensor.Shape{1, positions}, 1))
	layer := func(int) *layers.Module {
		return layers.New(distilModule+"TransformerBlock", nil).
			Add("attention", layers.New(distilClass+"SelfAttention", map[string]any{
				"attention_head_size": dim / heads, "eager": c.Eager(),
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
				Add("activation", c.Activation(act))).
			Add("output_layer_norm", layers.LayerNorm(dim, eps))
	}
	return layers.New(distilClass+"Model", map[string]any{"eager": c.Eager()}).
		Add("embeddings", embeddings).
		Add("transformer", layers.New(distilModule+"Transformer", nil).
			Add("layer", c.Repeat(c.Size("n_layers|num_hidden_layers", 6), layer)))
}

// distilModelForward takes input_ids, attention_mask and position_ids.
func distilModelForward(t *layers.Trace, m *layers.Module, args ...any) any {
	ids := family.TokenIDs(t, args)
	s := ids.Shape()
	x := t.ChildOf(m, "embeddings", ids, family.Optional(t, args, 2))
	mask := family.Masking{
		Batch: s[0], Queries: s[1], Keys: s[1], Padding: family.Optional(t, args, 1), Additive: m.Bool("eager"),
	}.Create(t)
	return layers.Fields{{Name: "last_hidden_state", Value: t.ChildOf(m, "transformer", x, mask)}}
}

func distilEmbeddingsForward(t *layers.Trace, m *layers.Module, args ...any) any {
	ids, positions := family.TokenIDs(t, args), family.Optional(t, args, 1)
	x := t.Child(m, "word_embeddings", ids)
	if positions == nil {
		positions = FirstPositions(t, m, ids)
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
	q := family.SplitHeads(t, m, "q_lin", x, size)
	k := family.SplitHeads(t, m, "k_lin", x, size)
	v := family.SplitHeads(t, m, "v_lin", x, size)
	return t.Child(m, "out_lin", family.Attention{Eager: m.Bool("eager")}.Run(t, m, q, k, v, family.Optional(t, args, 1)))
}

func distilMaskedLM(t *layers.Trace, m *layers.Module, x, _ layers.Tensor) any {
	return family.LogitsOf("vocab_transform", "activation", "vocab_layer_norm", "vocab_projector")(t, m, x, nil)
}

func distilSequence(t *layers.Trace, m *layers.Module, x, _ layers.Tensor) any {
	x = t.Op("relu", t.Child(m, "pre_classifier", t.Op("select.int", x, 1, 0)))
	return family.LogitsOf("dropout", "classifier")(t, m, x, nil)
}
