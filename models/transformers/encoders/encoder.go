// Package encoders has models of Python's transformers that give every token of a text a state that the whole text decides:
// BERT and those made like it.
//
// It knows modules and their configurations. It does not know models of anything but texts, files, devices or the meaning of
// ops.
//
//	all = append(all, encoders.Families...)
package encoders

import (
	"cmp"
	"maps"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
	"github.com/optimem/optimem/tensor"
)

// An Encoder is BERT without a head, under the names of one of the models that consist of it.
type Encoder struct {
	// Prefix is base_model_prefix; Class the module and the beginning of the class names in Python.
	Prefix, Class string
	// Vocabulary and padding are the defaults of vocab_size and pad_token_id.
	Vocabulary, padding int
	// hidden, heads and inner are the defaults of the sizes, 0 for BERT's; words that of embedding_size, 0 where embeddings are as
	// wide as what is made of them.
	hidden, heads, inner, words int
	// Positions returns the numbers of the positions where none are given.
	Positions func(t *layers.Trace, embeddings *layers.Module, ids layers.Tensor) layers.Tensor
}

// Model is BertModel's constructor.
func (e Encoder) Model(c *family.Config, pooler bool) *layers.Module {
	hidden := c.Size("hidden_size", cmp.Or(e.hidden, 768))
	heads, words := c.Size("num_attention_heads", cmp.Or(e.heads, 12)), hidden
	if e.words > 0 {
		words = c.Size("embedding_size", e.words)
	}
	inner, eps := c.Size("intermediate_size", cmp.Or(e.inner, 3072)), layers.Eps(c.Float("layer_norm_eps", 1e-12))
	c.Heads(hidden, heads)
	if c.Flag("add_cross_attention", false) {
		c.Unsupported("add_cross_attention")
	}
	if t := c.Text("position_embedding_type", "absolute"); t != "absolute" {
		c.Unsupported("position_embedding_type " + t)
	}
	act := c.Text("hidden_act", "gelu")
	layer := func(int) *layers.Module {
		attrs := map[string]any{"attention_head_size": hidden / heads, "eager": c.Eager()}
		self := layers.New(e.Class+"SelfAttention", attrs).
			Add("query", layers.Linear(hidden, hidden)).
			Add("key", layers.Linear(hidden, hidden)).
			Add("value", layers.Linear(hidden, hidden)).
			Add("dropout", layers.Dropout(0.1))
		return layers.New(e.Class+"Layer", nil).
			Add("attention", layers.New(e.Class+"Attention", nil).
				Add("self", self).
				Add("output", e.Output("SelfOutput", hidden, hidden, eps))).
			Add("intermediate", layers.New(e.Class+"Intermediate", nil).
				Add("dense", layers.Linear(hidden, inner)).
				Add("intermediate_act_fn", c.Activation(act))).
			Add("output", e.Output("Output", inner, hidden, eps))
	}
	m := layers.New(e.Class+"Model", map[string]any{"is_decoder": c.Flag("is_decoder", false), "eager": c.Eager()}).
		Add("embeddings", e.embeddings(c, words, e.Vocabulary, eps))
	if words != hidden {
		m.Add("embeddings_project", layers.Linear(words, hidden))
	}
	m.Add("encoder", layers.New(e.Class+"Encoder", nil).
		Add("layer", c.Repeat(c.Size("num_hidden_layers", 12), layer)))
	if pooler {
		m.Add("pooler", layers.New(e.Class+"Pooler", nil).
			Add("dense", layers.Linear(hidden, hidden)).
			Add("activation", layers.Tanh()))
	}
	return m
}

// embeddings are BertEmbeddings of a size.
func (e Encoder) embeddings(c *family.Config, size, vocabulary int, eps layers.Option) *layers.Module {
	positions := c.Table("max_position_embeddings", 512)
	m := layers.New(e.Class+"Embeddings", map[string]any{"padding_idx": c.Number("pad_token_id", e.padding)}).
		Add("word_embeddings", layers.Embedding(c.Size("vocab_size", vocabulary), size)).
		Add("position_embeddings", layers.Embedding(positions, size)).
		Add("token_type_embeddings", layers.Embedding(c.Size("type_vocab_size", 2), size)).
		Add("LayerNorm", layers.LayerNorm(size, eps)).
		Add("dropout", layers.Dropout(0.1))
	m.Params = append(m.Params, family.Table("position_ids", tensor.Shape{1, positions}, 1))
	m.Params = append(m.Params, family.Table("token_type_ids", tensor.Shape{1, positions}, 0))
	return m
}

// Output is BertSelfOutput or BertOutput: a projection, then the norm of the sum with what the layer was given.
func (e Encoder) Output(class string, in, out int, eps layers.Option) *layers.Module {
	return layers.New(e.Class+class, nil).
		Add("dense", layers.Linear(in, out)).
		Add("LayerNorm", layers.LayerNorm(out, eps)).
		Add("dropout", layers.Dropout(0.1))
}

// Classes are those that a model and its heads consist of.
func (e Encoder) Classes(heads layers.Classes) layers.Classes {
	all := layers.Classes{
		e.Class + "Model":         {Forward: encoderModelForward},
		e.Class + "Embeddings":    {Forward: e.embeddingsForward},
		e.Class + "Encoder":       {Forward: family.LayersForward},
		e.Class + "Layer":         {Forward: encoderLayerForward},
		e.Class + "Attention":     {Forward: encoderAttentionForward},
		e.Class + "SelfAttention": {Forward: encoderSelfAttentionForward},
		e.Class + "SelfOutput":    {Forward: encoderOutputForward},
		e.Class + "Output":        {Forward: encoderOutputForward},
		e.Class + "Intermediate":  layers.Unary(family.Through("dense", "intermediate_act_fn")),
		e.Class + "Pooler":        layers.Unary(family.PoolerForward),
	}
	maps.Copy(all, heads)
	return all
}

// encoderModelForward takes input_ids, attention_mask, token_type_ids and position_ids.
func encoderModelForward(t *layers.Trace, m *layers.Module, args ...any) any {
	ids, mask := family.TokenIDs(t, args), family.Optional(t, args, 1)
	s := ids.Shape()
	x := t.ChildOf(m, "embeddings", ids, family.Optional(t, args, 2), family.Optional(t, args, 3)).(layers.Tensor)
	if m.Has("embeddings_project") {
		x = t.Child(m, "embeddings_project", x)
	}
	mask = family.Masking{
		Batch: s[0], Queries: s[1], Keys: s[1], Causal: m.Bool("is_decoder"), Padding: mask, Additive: m.Bool("eager"),
	}.Create(t)
	x = t.ChildOf(m, "encoder", x, mask).(layers.Tensor)
	out := layers.Fields{{Name: "last_hidden_state", Value: x}}
	if m.Has("pooler") {
		out = append(out, layers.Field{Name: "pooler_output", Value: t.Child(m, "pooler", x)})
	}
	return out
}

func (e Encoder) embeddingsForward(t *layers.Trace, m *layers.Module, args ...any) any {
	ids, kinds, positions := family.TokenIDs(t, args), family.Optional(t, args, 1), family.Optional(t, args, 2)
	batch, n := ids.Shape()[0], ids.Shape()[1]
	if positions == nil {
		positions = e.Positions(t, m, ids)
	}
	if kinds == nil {
		all := t.Op("expand", t.Param(m, "token_type_ids"), []int{positions.Shape()[0], -1})
		kinds = t.Op("expand", t.Op("gather", all, 1, positions), []int{batch, n})
	}
	x := t.Child(m, "word_embeddings", ids)
	x = t.Op("add.Tensor", x, t.Child(m, "token_type_embeddings", kinds))
	x = t.Op("add.Tensor", x, t.Child(m, "position_embeddings", positions))
	return t.Child(m, "dropout", t.Child(m, "LayerNorm", x))
}

// FirstPositions are 0, 1, …, from a table that is as long as a sequence may be.
func FirstPositions(t *layers.Trace, m *layers.Module, ids layers.Tensor) layers.Tensor {
	all := t.Param(m, "position_ids")
	n := ids.Shape()[1]
	if longest := all.Shape()[1]; n > longest {
		t.Fail("%d tokens, and the model has %d positions", n, longest)
	}
	return t.Op("slice.Tensor", all, 1, 0, n)
}

func encoderLayerForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x := t.ChildOf(m, "attention", args...)
	return t.ChildOf(m, "output", t.ChildOf(m, "intermediate", x), x)
}

func encoderAttentionForward(t *layers.Trace, m *layers.Module, args ...any) any {
	return t.ChildOf(m, "output", t.ChildOf(m, "self", args...), args[0])
}

func encoderSelfAttentionForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, mask := args[0].(layers.Tensor), family.Optional(t, args, 1)
	size := m.Int("attention_head_size")
	q := family.SplitHeads(t, m, "query", x, size)
	k := family.SplitHeads(t, m, "key", x, size)
	v := family.SplitHeads(t, m, "value", x, size)
	return family.Attention{Eager: m.Bool("eager")}.Run(t, m, q, k, v, mask)
}

func encoderOutputForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x := t.Child(m, "dropout", t.Child(m, "dense", args[0].(layers.Tensor)))
	return t.Child(m, "LayerNorm", t.Op("add.Tensor", x, args[1]))
}

// Families are the families of encoders of texts.
var Families = []*family.Family{bert, roberta, xlmRoberta, camembert, distilbert, albert, electra, mpnet, debertaV2}
