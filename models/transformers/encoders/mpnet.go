package encoders

import (
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
)

const mpnetClass = "transformers.models.mpnet.modeling_mpnet.MPNet"

// mpnetBuckets is how many buckets of distances MPNetEncoder has, whatever the configuration says of its table.
const mpnetBuckets = 32

// mpnet is transformers/models/mpnet/modeling_mpnet.py: BERT with the positions of RoBERTa and, in its scores, the
// distances of T5.
var mpnet = &family.Family{
	Model: "mpnet", Prefix: "mpnet",
	Encodes: "MPNetModel", Positions: 512, AfterPadding: true, Padding: 1,
	Ignored: []string{`(^|\.)pooler\.`},
	Classes: layers.Classes{
		mpnetClass + "Model":         {Forward: mpnetModelForward},
		mpnetClass + "Embeddings":    {Forward: mpnetEmbeddingsForward},
		mpnetClass + "Encoder":       {Forward: mpnetEncoderForward},
		mpnetClass + "Layer":         {Forward: mpnetLayerForward},
		mpnetClass + "Attention":     {Forward: mpnetAttentionForward},
		mpnetClass + "SelfAttention": {Forward: mpnetSelfAttentionForward},
		mpnetClass + "Intermediate":  layers.Unary(family.Through("dense", "intermediate_act_fn")),
		mpnetClass + "Output":        {Forward: encoderOutputForward},
		mpnetClass + "Pooler":        layers.Unary(family.PoolerForward),
		mpnetClass + "LMHead":        layers.Unary(robertaLMHeadForward),
		mpnetClass + "ForMaskedLM":   family.Headed("mpnet", family.LogitsOf("lm_head")),

		mpnetClass + "ClassificationHead":        layers.Unary(robertaClassificationHeadForward),
		mpnetClass + "ForSequenceClassification": family.Headed("mpnet", family.LogitsOf("classifier")),
		mpnetClass + "ForTokenClassification":    family.Headed("mpnet", family.LogitsOf("dropout", "classifier")),
		mpnetClass + "ForQuestionAnswering":      family.Headed("mpnet", family.SpansOf("qa_outputs")),
	},
	Heads: []family.Head{
		{Class: "MPNetModel", Make: func(c *family.Config) *layers.Module {
			return mpnetModel(c, c.Holds("pooler.dense.weight"))
		}},
		{Class: "MPNetForMaskedLM", Make: func(c *family.Config) *layers.Module {
			hidden, words := c.Size("hidden_size", 768), c.Size("vocab_size", 30527)
			return layers.New(mpnetClass+"ForMaskedLM", nil).
				Add("mpnet", mpnetModel(c, false)).
				Add("lm_head", layers.New(mpnetClass+"LMHead", nil).
					Param("bias", words).
					Add("dense", layers.Linear(hidden, hidden)).
					Add("layer_norm", layers.LayerNorm(hidden, layers.Eps(c.Float("layer_norm_eps", 1e-12)))).
					Add("decoder", layers.Linear(hidden, words)))
		}},
		mpnetHead("ForSequenceClassification", func(c *family.Config, m *layers.Module) {
			addClassificationHead(c, m, mpnetClass)
		}),
		mpnetHead("ForTokenClassification", addClassifier),
		mpnetHead("ForQuestionAnswering", addSpans),
	},
	Inputs: family.TokenInputs("attention_mask", "position_ids"),
	Tied: [][2]string{
		{"lm_head.decoder.weight", "mpnet.embeddings.word_embeddings.weight"},
		{"lm_head.decoder.bias", "lm_head.bias"},
	},
	Ties: true,
}

// mpnetHead returns a model with a head that add puts on it.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func mpnetHead(name string, add func(c *family.Config, m *layers.Module)) family.Head {
	return family.Head{Class: "MPNet" + name, Make: func(c *family.Config) *layers.Module {
		m := layers.New(mpnetClass+name, nil).Add("mpnet", mpnetModel(c, false))
		add(c, m)
		return m
	}}
}

func mpnetModel(c *family.Config, pooler bool) *layers.Module {
	hidden, heads := c.Size("hidden_size", 768), c.Size("num_attention_heads", 12)
	inner, eps := c.Size("intermediate_size", 3072), layers.Eps(c.Float("layer_norm_eps", 1e-12))
	act, buckets := c.Text("hidden_act", "gelu"), c.Size("relative_attention_num_buckets", mpnetBuckets)
	c.Heads(hidden, heads)
	if c.Err == nil && buckets < mpnetBuckets {
		c.Fail("relative_attention_num_buckets", "is %d, and distances have %d", buckets, mpnetBuckets)
	}
	norm := func() *layers.Module { return layers.LayerNorm(hidden, eps) }
	layer := func(int) *layers.Module {
		attn := layers.New(mpnetClass+"SelfAttention", map[string]any{
			"attention_head_size": hidden / heads, "eager": c.Eager(),
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
				Add("intermediate_act_fn", c.Activation(act))).
			Add("output", layers.New(mpnetClass+"Output", nil).
				Add("dense", layers.Linear(inner, hidden)).
				Add("LayerNorm", norm()).
				Add("dropout", layers.Dropout(0.1)))
	}
	m := layers.New(mpnetClass+"Model", map[string]any{"eager": c.Eager()}).
		Add("embeddings", layers.New(mpnetClass+"Embeddings", map[string]any{"padding_idx": 1}).
			Add("word_embeddings", layers.Embedding(c.Size("vocab_size", 30527), hidden)).
			Add("position_embeddings", layers.Embedding(c.Size("max_position_embeddings", 512), hidden)).
			Add("LayerNorm", norm()).
			Add("dropout", layers.Dropout(0.1))).
		Add("encoder", layers.New(mpnetClass+"Encoder", map[string]any{
			"num_buckets": mpnetBuckets, "max_distance": 128, "is_decoder": false,
		}).
			Add("layer", c.Repeat(c.Size("num_hidden_layers", 12), layer)).
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
	ids := family.TokenIDs(t, args)
	s := ids.Shape()
	x := t.ChildOf(m, "embeddings", ids, family.Optional(t, args, 2))
	mask := family.Masking{
		Batch: s[0], Queries: s[1], Keys: s[1], Padding: family.Optional(t, args, 1), Additive: m.Bool("eager"),
	}.Create(t)
	last := t.ChildOf(m, "encoder", x, mask).(layers.Tensor)
	out := layers.Fields{{Name: "last_hidden_state", Value: last}}
	if m.Has("pooler") {
		out = append(out, layers.Field{Name: "pooler_output", Value: t.Child(m, "pooler", last)})
	}
	return out
}

func mpnetEmbeddingsForward(t *layers.Trace, m *layers.Module, args ...any) any {
	ids, positions := family.TokenIDs(t, args), family.Optional(t, args, 1)
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
	bias := t.Child(m, "relative_attention_bias", family.DistanceBuckets(t, m, n, n))
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
	q := family.SplitHeads(t, m, "q", x, size)
	k := family.SplitHeads(t, m, "k", x, size)
	v := family.SplitHeads(t, m, "v", x, size)
	a := family.Attention{Eager: m.Bool("eager"), Bias: family.Optional(t, args, 2)}
	return t.Child(m, "o", a.Run(t, m, q, k, v, family.Optional(t, args, 1)))
}
