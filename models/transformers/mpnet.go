package transformers

import (
	"github.com/optimem/optimem/layers"
)

const mpnetClass = "transformers.models.mpnet.modeling_mpnet.MPNet"

// mpnetBuckets is how many buckets of distances MPNetEncoder has, whatever the configuration says of its table.
const mpnetBuckets = 32

// mpnet is transformers/models/mpnet/modeling_mpnet.py: BERT with the positions of RoBERTa and, in its scores, the
// distances of T5.
var mpnet = &family{
	model: "mpnet", prefix: "mpnet",
	encodes: "MPNetModel", positions: 512, afterPadding: true, padding: 1,
	ignored: []string{`(^|\.)pooler\.`},
	classes: layers.Classes{
		mpnetClass + "Model":         {Forward: mpnetModelForward},
		mpnetClass + "Embeddings":    {Forward: mpnetEmbeddingsForward},
		mpnetClass + "Encoder":       {Forward: mpnetEncoderForward},
		mpnetClass + "Layer":         {Forward: mpnetLayerForward},
		mpnetClass + "Attention":     {Forward: mpnetAttentionForward},
		mpnetClass + "SelfAttention": {Forward: mpnetSelfAttentionForward},
		mpnetClass + "Intermediate":  layers.Unary(through("dense", "intermediate_act_fn")),
		mpnetClass + "Output":        {Forward: encoderOutputForward},
		mpnetClass + "Pooler":        layers.Unary(encoderPoolerForward),
		mpnetClass + "LMHead":        layers.Unary(robertaLMHeadForward),
		mpnetClass + "ForMaskedLM":   headed("mpnet", logitsOf("lm_head")),

		mpnetClass + "ClassificationHead":        layers.Unary(robertaClassificationHeadForward),
		mpnetClass + "ForSequenceClassification": headed("mpnet", logitsOf("classifier")),
		mpnetClass + "ForTokenClassification":    headed("mpnet", logitsOf("dropout", "classifier")),
		mpnetClass + "ForQuestionAnswering":      headed("mpnet", spansOf("qa_outputs")),
	},
	heads: []head{
		{class: "MPNetModel", make: func(c *config) *layers.Module {
			return mpnetModel(c, c.holds("pooler.dense.weight"))
		}},
		{class: "MPNetForMaskedLM", make: func(c *config) *layers.Module {
			hidden, words := c.size("hidden_size", 768), c.size("vocab_size", 30527)
			return layers.New(mpnetClass+"ForMaskedLM", nil).
				Add("mpnet", mpnetModel(c, false)).
				Add("lm_head", layers.New(mpnetClass+"LMHead", nil).
					Param("bias", words).
					Add("dense", layers.Linear(hidden, hidden)).
					Add("layer_norm", layers.LayerNorm(hidden, layers.Eps(c.float("layer_norm_eps", 1e-12)))).
					Add("decoder", layers.Linear(hidden, words)))
		}},
		mpnetHead("ForSequenceClassification", func(c *config, m *layers.Module) {
			addClassificationHead(c, m, mpnetClass)
		}),
		mpnetHead("ForTokenClassification", addClassifier),
		mpnetHead("ForQuestionAnswering", addSpans),
	},
	inputs: tokenInputs("attention_mask", "position_ids"),
	tied: [][2]string{
		{"lm_head.decoder.weight", "mpnet.embeddings.word_embeddings.weight"},
		{"lm_head.decoder.bias", "lm_head.bias"},
	},
	ties: true,
}

// mpnetHead returns a model with a head that add puts on it.
func mpnetHead(name string, add func(c *config, m *layers.Module)) head {
	return head{class: "MPNet" + name, make: func(c *config) *layers.Module {
		m := layers.New(mpnetClass+name, nil).Add("mpnet", mpnetModel(c, false))
		add(c, m)
		return m
	}}
}

func mpnetModel(c *config, pooler bool) *layers.Module {
	hidden, heads := c.size("hidden_size", 768), c.size("num_attention_heads", 12)
	inner, eps := c.size("intermediate_size", 3072), layers.Eps(c.float("layer_norm_eps", 1e-12))
	act, buckets := c.text("hidden_act", "gelu"), c.size("relative_attention_num_buckets", mpnetBuckets)
	c.heads(hidden, heads)
	if c.err == nil && buckets < mpnetBuckets {
		c.fail("relative_attention_num_buckets", "is %d, and distances have %d", buckets, mpnetBuckets)
	}
	norm := func() *layers.Module { return layers.LayerNorm(hidden, eps) }
	layer := func(int) *layers.Module {
		attn := layers.New(mpnetClass+"SelfAttention", map[string]any{
			"attention_head_size": hidden / heads, "eager": c.eager(),
		})
		for _, name := range []string{"q", "k", "v", "o"} {
			attn.Add(name, layers.Linear(hidden, hidden))
		}
		return layers.New(mpnetClass+"Layer", nil).
			Add("attention", layers.New(mpnetClass+"Attention", nil).
				Add("attn", attn).
				Add("LayerNorm", norm()).
				Add("dropout", layers.Dropout(0.1))).
			Add("intermediate", layers.New(mpnetClass+"Intermediate", nil).
				Add("dense", layers.Linear(hidden, inner)).
				Add("intermediate_act_fn", c.activation(act))).
			Add("output", layers.New(mpnetClass+"Output", nil).
				Add("dense", layers.Linear(inner, hidden)).
				Add("LayerNorm", norm()).
				Add("dropout", layers.Dropout(0.1)))
	}
	m := layers.New(mpnetClass+"Model", map[string]any{"eager": c.eager()}).
		Add("embeddings", layers.New(mpnetClass+"Embeddings", map[string]any{"padding_idx": 1}).
			Add("word_embeddings", layers.Embedding(c.size("vocab_size", 30527), hidden)).
			Add("position_embeddings", layers.Embedding(c.size("max_position_embeddings", 512), hidden)).
			Add("LayerNorm", norm()).
			Add("dropout", layers.Dropout(0.1))).
		Add("encoder", layers.New(mpnetClass+"Encoder", map[string]any{
			"num_buckets": mpnetBuckets, "max_distance": 128, "is_decoder": false,
		}).
			Add("layer", c.repeat(c.size("num_hidden_layers", 12), layer)).
			Add("relative_attention_bias", layers.Embedding(buckets, heads)))
	if pooler {
		m.Add("pooler", layers.New(mpnetClass+"Pooler", nil).
			Add("dense", layers.Linear(hidden, hidden)).
			Add("activation", layers.Tanh()))
	}
	return m
}

// mpnetModelForward takes input_ids, attention_mask and position_ids.
func mpnetModelForward(t *layers.Trace, m *layers.Module, args ...any) any {
	ids := tokenIDs(t, args)
	s := ids.Shape()
	x := t.ChildOf(m, "embeddings", ids, optional(t, args, 2))
	mask := masking{
		batch: s[0], queries: s[1], keys: s[1], padding: optional(t, args, 1), additive: m.Bool("eager"),
	}.create(t)
	last := t.ChildOf(m, "encoder", x, mask).(layers.Tensor)
	out := layers.Fields{{Name: "last_hidden_state", Value: last}}
	if m.Has("pooler") {
		out = append(out, layers.Field{Name: "pooler_output", Value: t.Child(m, "pooler", last)})
	}
	return out
}

func mpnetEmbeddingsForward(t *layers.Trace, m *layers.Module, args ...any) any {
	ids, positions := tokenIDs(t, args), optional(t, args, 1)
	if positions == nil {
		positions = positionsAfterPadding(t, m, ids)
	}
	x := t.Op("add.Tensor", t.Child(m, "word_embeddings", ids), t.Child(m, "position_embeddings", positions))
	return t.Child(m, "dropout", t.Child(m, "LayerNorm", x))
}

// mpnetEncoderForward adds the same distances to the scores of every layer.
func mpnetEncoderForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x := args[0].(layers.Tensor)
	n := x.Shape()[1]
	bias := t.Child(m, "relative_attention_bias", t5Buckets(t, m, n, n))
	bias = t.Op("unsqueeze", t.Op("permute", bias, []int{2, 0, 1}), 0)
	for _, layer := range m.Child("layer").Children {
		x = t.Run(layer.Module, x, args[1], bias).(layers.Tensor)
	}
	return x
}

func mpnetLayerForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x := t.ChildOf(m, "attention", args...)
	return t.ChildOf(m, "output", t.ChildOf(m, "intermediate", x), x)
}

func mpnetAttentionForward(t *layers.Trace, m *layers.Module, args ...any) any {
	attended := t.Child(m, "dropout", t.ChildOf(m, "attn", args...).(layers.Tensor))
	return t.Child(m, "LayerNorm", t.Op("add.Tensor", attended, args[0]))
}

func mpnetSelfAttentionForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, size := args[0].(layers.Tensor), m.Int("attention_head_size")
	q := splitHeads(t, m, "q", x, size)
	k := splitHeads(t, m, "k", x, size)
	v := splitHeads(t, m, "v", x, size)
	a := attention{eager: m.Bool("eager"), bias: optional(t, args, 2)}
	return t.Child(m, "o", a.run(t, m, q, k, v, optional(t, args, 1)))
}
