package transformers

import (
	"cmp"
	"fmt"
	"maps"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// An encoder is BERT without a head, under the names of one of the models that consist of it.
type encoder struct {
	// prefix is base_model_prefix; class the module and the beginning of the class names in Python.
	prefix, class string
	// vocabulary and padding are the defaults of vocab_size and pad_token_id.
	vocabulary, padding int
	// hidden, heads and inner are the defaults of the sizes, 0 for BERT's; words that of embedding_size, 0 where embeddings are as
	// wide as what is made of them.
	hidden, heads, inner, words int
	// positions returns the numbers of the positions where none are given.
	positions func(t *layers.Trace, embeddings *layers.Module, ids layers.Tensor) layers.Tensor
}

// model is BertModel's constructor.
func (e encoder) model(c *config, pooler bool) *layers.Module {
	hidden := c.size("hidden_size", cmp.Or(e.hidden, 768))
	heads, words := c.size("num_attention_heads", cmp.Or(e.heads, 12)), hidden
	if e.words > 0 {
		words = c.size("embedding_size", e.words)
	}
	inner, eps := c.size("intermediate_size", cmp.Or(e.inner, 3072)), layers.Eps(c.float("layer_norm_eps", 1e-12))
	c.heads(hidden, heads)
	if c.flag("add_cross_attention", false) {
		c.unsupported("add_cross_attention")
	}
	if t := c.text("position_embedding_type", "absolute"); t != "absolute" {
		c.unsupported("position_embedding_type " + t)
	}
	act := c.text("hidden_act", "gelu")
	layer := func(int) *layers.Module {
		attrs := map[string]any{"attention_head_size": hidden / heads, "eager": c.eager()}
		self := layers.New(e.class+"SelfAttention", attrs).
			Add("query", layers.Linear(hidden, hidden)).
			Add("key", layers.Linear(hidden, hidden)).
			Add("value", layers.Linear(hidden, hidden)).
			Add("dropout", layers.Dropout(0.1))
		return layers.New(e.class+"Layer", nil).
			Add("attention", layers.New(e.class+"Attention", nil).
				Add("self", self).
				Add("output", e.output("SelfOutput", hidden, hidden, eps))).
			Add("intermediate", layers.New(e.class+"Intermediate", nil).
				Add("dense", layers.Linear(hidden, inner)).
				Add("intermediate_act_fn", c.activation(act))).
			Add("output", e.output("Output", inner, hidden, eps))
	}
	m := layers.New(e.class+"Model", map[string]any{"is_decoder": c.flag("is_decoder", false), "eager": c.eager()}).
		Add("embeddings", e.embeddings(c, words, e.vocabulary, eps))
	if words != hidden {
		m.Add("embeddings_project", layers.Linear(words, hidden))
	}
	m.Add("encoder", layers.New(e.class+"Encoder", nil).
		Add("layer", c.repeat(c.size("num_hidden_layers", 12), layer)))
	if pooler {
		m.Add("pooler", layers.New(e.class+"Pooler", nil).
			Add("dense", layers.Linear(hidden, hidden)).
			Add("activation", layers.Tanh()))
	}
	return m
}

// embeddings are BertEmbeddings of a size.
func (e encoder) embeddings(c *config, size, vocabulary int, eps layers.Option) *layers.Module {
	positions := c.table("max_position_embeddings", 512)
	m := layers.New(e.class+"Embeddings", map[string]any{"padding_idx": c.number("pad_token_id", e.padding)}).
		Add("word_embeddings", layers.Embedding(c.size("vocab_size", vocabulary), size)).
		Add("position_embeddings", layers.Embedding(positions, size)).
		Add("token_type_embeddings", layers.Embedding(c.size("type_vocab_size", 2), size)).
		Add("LayerNorm", layers.LayerNorm(size, eps)).
		Add("dropout", layers.Dropout(0.1))
	m.Params = append(m.Params, table("position_ids", tensor.Shape{1, positions}, 1))
	m.Params = append(m.Params, table("token_type_ids", tensor.Shape{1, positions}, 0))
	return m
}

func (e encoder) output(class string, in, out int, eps layers.Option) *layers.Module {
	return layers.New(e.class+class, nil).
		Add("dense", layers.Linear(in, out)).
		Add("LayerNorm", layers.LayerNorm(out, eps)).
		Add("dropout", layers.Dropout(0.1))
}

// classes are those that a model and its heads consist of.
func (e encoder) classes(heads layers.Classes) layers.Classes {
	all := layers.Classes{
		e.class + "Model":         {Forward: encoderModelForward},
		e.class + "Embeddings":    {Forward: e.embeddingsForward},
		e.class + "Encoder":       {Forward: encoderForward},
		e.class + "Layer":         {Forward: encoderLayerForward},
		e.class + "Attention":     {Forward: encoderAttentionForward},
		e.class + "SelfAttention": {Forward: encoderSelfAttentionForward},
		e.class + "SelfOutput":    {Forward: encoderOutputForward},
		e.class + "Output":        {Forward: encoderOutputForward},
		e.class + "Intermediate":  layers.Unary(through("dense", "intermediate_act_fn")),
		e.class + "Pooler":        layers.Unary(encoderPoolerForward),
	}
	maps.Copy(all, heads)
	return all
}

// encoderModelForward takes input_ids, attention_mask, token_type_ids and position_ids.
func encoderModelForward(t *layers.Trace, m *layers.Module, args ...any) any {
	ids, mask := tokenIDs(t, args), optional(t, args, 1)
	s := ids.Shape()
	x := t.ChildOf(m, "embeddings", ids, optional(t, args, 2), optional(t, args, 3)).(layers.Tensor)
	if m.Has("embeddings_project") {
		x = t.Child(m, "embeddings_project", x)
	}
	mask = masking{
		batch: s[0], queries: s[1], keys: s[1], causal: m.Bool("is_decoder"), padding: mask, additive: m.Bool("eager"),
	}.create(t)
	x = t.ChildOf(m, "encoder", x, mask).(layers.Tensor)
	out := layers.Fields{{Name: "last_hidden_state", Value: x}}
	if m.Has("pooler") {
		out = append(out, layers.Field{Name: "pooler_output", Value: t.Child(m, "pooler", x)})
	}
	return out
}

func (e encoder) embeddingsForward(t *layers.Trace, m *layers.Module, args ...any) any {
	ids, kinds, positions := tokenIDs(t, args), optional(t, args, 1), optional(t, args, 2)
	batch, n := ids.Shape()[0], ids.Shape()[1]
	if positions == nil {
		positions = e.positions(t, m, ids)
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

// firstPositions are 0, 1, …, from a table that is as long as a sequence may be.
func firstPositions(t *layers.Trace, m *layers.Module, ids layers.Tensor) layers.Tensor {
	all := t.Param(m, "position_ids")
	n := ids.Shape()[1]
	if longest := all.Shape()[1]; n > longest {
		t.Fail("%d tokens, and the model has %d positions", n, longest)
	}
	return t.Op("slice.Tensor", all, 1, 0, n)
}

func encoderForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, mask := args[0], args[1]
	for _, layer := range m.Child("layer").Children {
		x = t.Run(layer.Module, x, mask)
	}
	return x
}

func encoderLayerForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x := t.ChildOf(m, "attention", args...)
	return t.ChildOf(m, "output", t.ChildOf(m, "intermediate", x), x)
}

func encoderAttentionForward(t *layers.Trace, m *layers.Module, args ...any) any {
	return t.ChildOf(m, "output", t.ChildOf(m, "self", args...), args[0])
}

func encoderSelfAttentionForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, mask := args[0].(layers.Tensor), optional(t, args, 1)
	size := m.Int("attention_head_size")
	q := splitHeads(t, m, "query", x, size)
	k := splitHeads(t, m, "key", x, size)
	v := splitHeads(t, m, "value", x, size)
	return attention{eager: m.Bool("eager")}.run(t, m, q, k, v, mask)
}

func encoderOutputForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x := t.Child(m, "dropout", t.Child(m, "dense", args[0].(layers.Tensor)))
	return t.Child(m, "LayerNorm", t.Op("add.Tensor", x, args[1]))
}

func encoderPoolerForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	return t.Child(m, "activation", t.Child(m, "dense", t.Op("select.int", x, 1, 0)))
}

// tokenIDs returns the first argument, [batch, tokens].
func tokenIDs(t *layers.Trace, args []any) layers.Tensor {
	ids := optional(t, args, 0)
	if ids == nil || len(ids.Shape()) != 2 {
		t.Fail("input_ids of [batch, tokens] are needed")
	}
	return ids
}

// optional returns an argument, nil where it was not given.
func optional(t *layers.Trace, args []any, i int) layers.Tensor {
	if i >= len(args) || args[i] == nil {
		return nil
	}
	x, ok := args[i].(layers.Tensor)
	if !ok {
		t.Fail("argument %d is a %T, not a tensor", i, args[i])
	}
	return x
}

// table returns a buffer of int64 that is computed: 0, step, 2·step, ….
func table(name string, shape tensor.Shape, step int64) layers.Param {
	n, err := shape.NumElements()
	if err != nil || n > maxTable {
		panic(fmt.Sprintf("BUG: a table of %v", shape))
	}
	values := make([]int64, n)
	for i := range values {
		values[i] = int64(i) * step
	}
	return layers.Param{
		Name: name, DType: tensor.Int64, Shape: shape, Buffer: true, Transient: true, Value: tensor.Of(values, shape...),
	}
}
