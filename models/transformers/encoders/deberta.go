package encoders

import (
	"math"
	"slices"
	"strings"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
	"github.com/optimem/optimem/tensor"
)

const debertaModule = "transformers.models.deberta_v2.modeling_deberta_v2."

const debertaClass = debertaModule + "DebertaV2"

// debertaV2 is transformers/models/deberta_v2/modeling_deberta_v2.py, of versions 2 and 3: BERT whose scores are sums
// of what tokens are to each other and what they are to the distance between them.
var debertaV2 = &family.Family{
	Model: "deberta-v2", Prefix: "deberta", Encodes: "DebertaV2Model", Positions: 512,
	Ignored: []string{`position_embeddings`, `(^|\.)mask_predictions\.`},
	Classes: layers.Classes{
		debertaClass + "Model":                                   {Forward: debertaModelForward},
		debertaClass + "Embeddings":                              {Forward: debertaEmbeddingsForward},
		debertaClass + "Encoder":                                 {Forward: debertaEncoderForward},
		debertaModule + "ConvLayer":                              {Forward: debertaConvForward},
		debertaClass + "Layer":                                   {Forward: encoderLayerForward},
		debertaClass + "Attention":                               {Forward: encoderAttentionForward},
		debertaModule + "DisentangledSelfAttention":              {Forward: debertaAttentionForward},
		debertaClass + "SelfOutput":                              {Forward: encoderOutputForward},
		debertaClass + "Intermediate":                            layers.Unary(family.Through("dense", "intermediate_act_fn")),
		debertaClass + "Output":                                  {Forward: encoderOutputForward},
		debertaModule + "LegacyDebertaV2OnlyMLMHead":             layers.Unary(family.Through("predictions")),
		debertaModule + "LegacyDebertaV2LMPredictionHead":        layers.Unary(family.Through("transform", "decoder")),
		debertaModule + "LegacyDebertaV2PredictionHeadTransform": layers.Unary(family.Through("dense", "transform_act_fn", "LayerNorm")),
		debertaClass + "OnlyMLMHead":                             {Forward: debertaOnlyMLMForward},
		debertaClass + "LMPredictionHead":                        {Forward: debertaPredictionForward},
		debertaModule + "ContextPooler":                          layers.Unary(debertaPoolerForward),
		debertaClass + "ForMaskedLM":                             family.Headed("deberta", debertaMaskedForward),
		debertaClass + "ForSequenceClassification":               family.Headed("deberta", family.LogitsOf("pooler", "dropout", "classifier")),
		debertaClass + "ForTokenClassification":                  family.Headed("deberta", family.LogitsOf("dropout", "classifier")),
		debertaClass + "ForQuestionAnswering":                    family.Headed("deberta", family.SpansOf("qa_outputs")),
	},
	Heads: []family.Head{
		{Class: "DebertaV2Model", Make: debertaModel},
		debertaHead("ForMaskedLM", debertaMasked),
		debertaHead("ForSequenceClassification", func(c *family.Config, m *layers.Module, hidden int) {
			if pooled := c.Size("pooler_hidden_size", hidden); pooled != hidden && c.Err == nil {
				c.Fail("pooler_hidden_size", "is %d, and the hidden size %d", pooled, hidden)
			}
			m.Add("pooler", layers.New(debertaModule+"ContextPooler", nil).
				Add("dense", layers.Linear(hidden, hidden)).
				Add("dropout", layers.Dropout(0)).
				Add("act", c.Activation(c.Text("pooler_hidden_act", "gelu")))).
				Add("classifier", layers.Linear(hidden, c.Labels())).
				Add("dropout", layers.Dropout(0.1))
		}),
		debertaHead("ForTokenClassification", func(c *family.Config, m *layers.Module, hidden int) {
			m.Add("dropout", layers.Dropout(0.1)).Add("classifier", layers.Linear(hidden, c.Labels()))
		}),
		debertaHead("ForQuestionAnswering", func(c *family.Config, m *layers.Module, hidden int) {
			m.Add("qa_outputs", layers.Linear(hidden, c.Labels()))
		}),
	},
	Inputs: family.TokenInputs("attention_mask", "token_type_ids", "position_ids"),
	Tied: [][2]string{
		{"cls.predictions.decoder.weight", "deberta.embeddings.word_embeddings.weight"},
		{"cls.predictions.decoder.bias", "cls.predictions.bias"},
	},
	Ties: true,
}

// debertaHead returns a model with a head that add puts on it.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func debertaHead(name string, add func(c *family.Config, m *layers.Module, hidden int)) family.Head {
	return family.Head{Class: "DebertaV2" + name, Make: func(c *family.Config) *layers.Module {
		m := layers.New(debertaClass+name, nil).Add("deberta", debertaModel(c))
		add(c, m, c.Size("hidden_size", 1536))
		return m
	}}
}

// A distances says how a configuration of DeBERTa has tokens see the distances between them.
type distances struct {
	relative, shared bool
	// content are the scores of tokens for distances, position those of distances for tokens.
	content, position bool
	// span is how many distances there are on each side; buckets, where it is not 0, how many of them far ones share,
	// up to most.
	span, buckets, most int
}

func distancesOf(c *family.Config) distances {
	d := distances{relative: c.Flag("relative_attention", false), shared: c.Flag("share_att_key", false)}
	for _, kind := range words(c, "pos_att_type", "") {
		switch kind {
		case "c2p":
			d.content = true
		case "p2c":
			d.position = true
		default:
			c.Unsupported("pos_att_type " + kind)
		}
	}
	if !d.relative {
		return d
	}
	if d.most = c.Number("max_relative_positions", -1); d.most < 1 {
		d.most = c.Size("max_position_embeddings", 512)
	}
	d.span = d.most
	if d.buckets = max(c.Number("position_buckets", -1), 0); d.buckets > 0 {
		d.span = d.buckets
		if d.buckets < 4 || d.most-1 <= d.buckets/2 {
			c.Fail("position_buckets", "is %d, and distances go to %d: wanted are 4 or more, and further than half", d.buckets, d.most)
		}
	}
	if d.span > family.MaxTable {
		c.Fail("max_relative_positions", "is %d, more than %d", d.span, family.MaxTable)
		d.span = 1
	}
	return d
}

// words returns an entry that is a list of words, or a text of words with bars between.
func words(c *family.Config, name, missing string) []string {
	var words []string
	c.Looked(name)
	switch v := c.Fields[name].(type) {
	case []any:
		for _, w := range v {
			text, ok := w.(string)
			if !ok {
				c.Fail(name, "has %s, not a text", family.Short(w))
			}
			words = append(words, text)
		}
	default:
		for w := range strings.SplitSeq(strings.ToLower(c.Text(name, missing)), "|") {
			if w = strings.TrimSpace(w); w != "" {
				words = append(words, w)
			}
		}
	}
	return words
}

func debertaModel(c *family.Config) *layers.Module {
	hidden := c.Size("hidden_size", 1536)
	eps := layers.Eps(c.Float("layer_norm_eps", 1e-7))
	d := distancesOf(c)
	encoder := layers.New(debertaClass+"Encoder", map[string]any{
		"relative": d.relative, "span": d.span, "buckets": d.buckets, "most": d.most,
	}).Add("layer", c.Repeat(c.Size("num_hidden_layers", 24), func(int) *layers.Module { return debertaLayer(c, d, hidden, eps) }))
	if d.relative {
		encoder.Add("rel_embeddings", layers.Embedding(2*d.span, hidden))
	}
	if slices.Contains(words(c, "norm_rel_ebd", "none"), "layer_norm") {
		encoder.Add("LayerNorm", layers.LayerNorm(hidden, eps))
	}
	if kernel := c.Number("conv_kernel_size", 0); kernel > 0 {
		groups := c.Size("conv_groups", 1)
		if kernel%2 == 0 || kernel > 1<<10 || hidden%groups != 0 {
			c.Fail("conv_kernel_size", "is %d in %d groups of %d: wanted are an odd one, and groups that divide", kernel, groups, hidden)
			kernel, groups = 1, 1
		}
		encoder.Add("conv", layers.New(debertaModule+"ConvLayer", nil).
			Add("conv", layers.Conv1d(hidden, hidden, kernel, layers.Padding((kernel-1)/2), layers.Groups(groups))).
			Add("LayerNorm", layers.LayerNorm(hidden, eps)).
			Add("dropout", layers.Dropout(0.1)).
			Add("act", c.Activation(c.Text("conv_act", "tanh"))))
	}
	return layers.New(debertaClass+"Model", nil).Add("embeddings", debertaEmbeddings(c, hidden, eps)).Add("encoder", encoder)
}

func debertaEmbeddings(c *family.Config, hidden int, eps layers.Option) *layers.Module {
	small, positions := c.Size("embedding_size", hidden), c.Table("max_position_embeddings", 512)
	m := layers.New(debertaClass+"Embeddings", nil).
		Add("word_embeddings", layers.Embedding(c.Size("vocab_size", 128100), small))
	if c.Flag("position_biased_input", true) {
		m.Add("position_embeddings", layers.Embedding(positions, small))
	}
	if kinds := c.Number("type_vocab_size", 0); kinds > 0 {
		m.Add("token_type_embeddings", layers.Embedding(kinds, small))
	}
	if small != hidden {
		m.Add("embed_proj", layers.Linear(small, hidden, layers.NoBias))
	}
	m.Add("LayerNorm", layers.LayerNorm(hidden, eps)).Add("dropout", layers.Dropout(0.1))
	m.Params = append(m.Params, family.Table("position_ids", tensor.Shape{1, positions}, 1))
	return m
}

func debertaLayer(c *family.Config, d distances, hidden int, eps layers.Option) *layers.Module {
	heads, inner := c.Size("num_attention_heads", 24), c.Size("intermediate_size", 6144)
	c.Heads(hidden, heads)
	if size := c.Size("attention_head_size", max(hidden/heads, 1)); c.Err == nil && size*heads != hidden {
		c.Fail("attention_head_size", "is %d, and %d heads of it are not %d wide", size, heads, hidden)
	}
	self := layers.New(debertaModule+"DisentangledSelfAttention", map[string]any{
		"attention_head_size": hidden / heads, "relative": d.relative, "content": d.content, "position": d.position,
		"shared": d.shared, "span": d.span,
	}).
		Add("query_proj", layers.Linear(hidden, hidden)).
		Add("key_proj", layers.Linear(hidden, hidden)).
		Add("value_proj", layers.Linear(hidden, hidden))
	if d.relative && !d.shared && d.content {
		self.Add("pos_key_proj", layers.Linear(hidden, hidden))
	}
	if d.relative && !d.shared && d.position {
		self.Add("pos_query_proj", layers.Linear(hidden, hidden))
	}
	e := Encoder{Class: debertaClass}
	return layers.New(debertaClass+"Layer", nil).
		Add("attention", layers.New(debertaClass+"Attention", nil).
			Add("self", self).
			Add("output", e.Output("SelfOutput", hidden, hidden, eps))).
		Add("intermediate", layers.New(debertaClass+"Intermediate", nil).
			Add("dense", layers.Linear(hidden, inner)).
			Add("intermediate_act_fn", c.Activation(c.Text("hidden_act", "gelu")))).
		Add("output", e.Output("Output", inner, hidden, eps))
}

// debertaMasked adds the older head, whose decoder is the embeddings, or the newer one, which reads them.
func debertaMasked(c *family.Config, m *layers.Module, hidden int) {
	eps, words := layers.Eps(c.Float("layer_norm_eps", 1e-7)), c.Size("vocab_size", 128100)
	act, small := c.Activation(c.Text("hidden_act", "gelu")), c.Size("embedding_size", hidden)
	if !c.Flag("legacy", true) {
		if small != hidden && c.Err == nil {
			c.Fail("embedding_size", "is %d, and the head's %d", small, hidden)
		}
		m.Add("lm_predictions", layers.New(debertaClass+"OnlyMLMHead", nil).
			Add("lm_head", layers.New(debertaClass+"LMPredictionHead", nil).
				Param("bias", words).
				Add("dense", layers.Linear(hidden, hidden)).
				Add("transform_act_fn", act).
				Add("LayerNorm", layers.LayerNorm(hidden, eps))))
		return
	}
	m.Add("cls", layers.New(debertaModule+"LegacyDebertaV2OnlyMLMHead", nil).
		Add("predictions", layers.New(debertaModule+"LegacyDebertaV2LMPredictionHead", nil).
			Param("bias", words).
			Add("transform", layers.New(debertaModule+"LegacyDebertaV2PredictionHeadTransform", nil).
				Add("dense", layers.Linear(hidden, small)).
				Add("transform_act_fn", act).
				Add("LayerNorm", layers.LayerNorm(small, eps))).
			Add("decoder", layers.Linear(small, words))))
}

// debertaModelForward takes input_ids, attention_mask, token_type_ids and position_ids.
func debertaModelForward(t *layers.Trace, m *layers.Module, args ...any) any {
	ids, mask := family.TokenIDs(t, args), family.Optional(t, args, 1)
	if s := ids.Shape(); mask != nil && !mask.Shape().Equal(s) {
		t.Fail("attention_mask is %v, and the tokens are %v", mask.Shape(), s)
	}
	x := t.ChildOf(m, "embeddings", ids, family.Optional(t, args, 2), family.Optional(t, args, 3), mask)
	x = t.ChildOf(m, "encoder", x, mask)
	return layers.Fields{{Name: "last_hidden_state", Value: x}}
}

// debertaEmbeddingsForward takes tokens, their kinds, their positions and the mask.
func debertaEmbeddingsForward(t *layers.Trace, m *layers.Module, args ...any) any {
	ids, kinds, positions := family.TokenIDs(t, args), family.Optional(t, args, 1), family.Optional(t, args, 2)
	x := t.Child(m, "word_embeddings", ids)
	if m.Has("position_embeddings") {
		if positions == nil {
			positions = FirstPositions(t, m, ids)
		}
		x = t.Op("add.Tensor", x, t.Child(m, "position_embeddings", positions))
	}
	if m.Has("token_type_embeddings") {
		if kinds == nil {
			kinds = t.Op("zeros_like", ids)
		}
		x = t.Op("add.Tensor", x, t.Child(m, "token_type_embeddings", kinds))
	}
	if m.Has("embed_proj") {
		x = t.Child(m, "embed_proj", x)
	}
	x = t.Child(m, "LayerNorm", x)
	return t.Child(m, "dropout", masked(t, x, family.Optional(t, args, 3)))
}

// masked makes the rows of padding 0.
func masked(t *layers.Trace, x, mask layers.Tensor) layers.Tensor {
	if mask == nil {
		return x
	}
	return t.Op("mul.Tensor", x, t.Op("to.dtype", t.Op("unsqueeze", mask, 2), tensor.Float32))
}

// debertaEncoderForward takes the embeddings and the mask.
func debertaEncoderForward(t *layers.Trace, m *layers.Module, args ...any) any {
	first, mask := args[0].(layers.Tensor), family.Optional(t, args, 1)
	var hidden, near, table layers.Tensor
	if mask != nil { // tokens see each other where neither is padding
		seen := t.Op("to.dtype", mask, tensor.Bool)
		rows, columns := t.Op("unsqueeze", t.Op("unsqueeze", seen, 1), 3), t.Op("unsqueeze", t.Op("unsqueeze", seen, 1), 1)
		hidden = t.Op("logical_not", t.Op("__and__.Tensor", rows, columns))
	}
	if m.Bool("relative") {
		near, table = debertaDistances(t, m, first.Shape()[1]), t.Param(m.Child("rel_embeddings"), "weight")
		if m.Has("LayerNorm") {
			table = t.Child(m, "LayerNorm", table)
		}
	}
	x := first
	for i, layer := range m.Child("layer").Children {
		x = t.Run(layer.Module, x, hidden, near, table).(layers.Tensor)
		if i == 0 && m.Has("conv") {
			x = t.ChildOf(m, "conv", first, x, mask).(layers.Tensor)
		}
	}
	return x
}

// debertaDistances is build_relative_position, [1, 1, tokens, tokens]: near distances are themselves, far ones share
// buckets by their logarithm.
func debertaDistances(t *layers.Trace, m *layers.Module, n int) layers.Tensor {
	all := t.Op("arange", n, layers.Named{"dtype": tensor.Int64})
	distance := t.Op("sub.Tensor", t.Op("unsqueeze", all, 1), t.Op("unsqueeze", all, 0))
	if buckets := m.Int("buckets"); buckets > 0 {
		middle := buckets / 2
		far := t.Op("abs", distance)
		near := t.Op("le.Scalar", far, middle)
		share := t.Op("log", t.Op("div.Tensor", t.Op("to.dtype", t.Op("clamp", far, middle), tensor.Float32), middle))
		share = t.Op("div.Tensor", share, float64(float32(math.Log(float64(float32(m.Int("most")-1)/float32(middle))))))
		share = t.Op("ceil", t.Op("mul.Tensor", share, middle-1))
		share = t.Op("to.dtype", t.Op("add.Tensor", share, middle), tensor.Int64)
		distance = t.Op("where.self", near, distance, t.Op("mul.Tensor", share, t.Op("sign", distance)))
	}
	return t.Op("view", distance, []int{1, 1, n, n})
}

// debertaConvForward takes what the first layer was given, what it made of it, and the mask.
func debertaConvForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, residual, mask := args[0].(layers.Tensor), args[1].(layers.Tensor), family.Optional(t, args, 2)
	x = t.Op("contiguous", t.Op("permute", x, []int{0, 2, 1}))
	x = t.Op("contiguous", t.Op("permute", t.Child(m, "conv", x), []int{0, 2, 1}))
	x = masked(t, x, mask)
	x = t.Child(m, "act", t.Child(m, "dropout", x))
	return masked(t, t.Child(m, "LayerNorm", t.Op("add.Tensor", residual, x)), mask)
}

// debertaAttentionForward takes tokens, which of them do not see which, distances, and what distances are.
func debertaAttentionForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, hidden, near, table := args[0].(layers.Tensor), family.Optional(t, args, 1), family.Optional(t, args, 2), family.Optional(t, args, 3)
	s, size := x.Shape(), m.Int("attention_head_size")
	q, k, v := family.SplitHeads(t, m, "query_proj", x, size), family.SplitHeads(t, m, "key_proj", x, size), family.SplitHeads(t, m, "value_proj", x, size)
	parts := 1
	for _, name := range []string{"content", "position"} {
		if m.Bool(name) {
			parts++
		}
	}
	scale := float64(float32(math.Sqrt(float64(size * parts))))
	turned := func(x layers.Tensor) layers.Tensor { return t.Op("transpose.int", x, -1, -2) }
	scores := t.Op("matmul", q, t.Op("div.Tensor", turned(k), scale))
	if m.Bool("relative") {
		if bias := debertaBias(t, m, q, k, near, table, scale); bias != nil {
			scores = t.Op("add.Tensor", scores, bias)
		}
	}
	if hidden != nil {
		scores = t.Op("masked_fill.Scalar", scores, hidden, family.Lowest)
	}
	out := t.Op("matmul", t.Op("softmax.int", scores, -1), v)
	return t.Op("reshape", t.Op("transpose.int", out, 1, 2), []int{s[0], s[1], -1})
}

// debertaBias is disentangled_attention_bias, nil where neither part of it is wanted.
func debertaBias(t *layers.Trace, m *layers.Module, q, k, near, table layers.Tensor, scale float64) layers.Tensor {
	s, size, span := q.Shape(), m.Int("attention_head_size"), m.Int("span")
	table = t.Op("unsqueeze", table, 0)
	project := func(shared, own string) layers.Tensor {
		if m.Bool("shared") {
			own = shared
		}
		return t.Op("transpose.int", family.SplitHeads(t, m, own, table, size), -1, -2)
	}
	// part gives the scores of x for the distances that at says.
	part := func(x, of, at layers.Tensor) layers.Tensor {
		at = t.Op("clamp", t.Op("add.Tensor", at, span), 0, 2*span-1)
		return t.Op("gather", t.Op("matmul", x, of), -1, t.Op("expand", at, []int{s[0], s[1], s[2], s[2]}))
	}
	var bias layers.Tensor
	if m.Bool("content") {
		bias = t.Op("div.Tensor", part(q, project("key_proj", "pos_key_proj"), near), scale)
	}
	if m.Bool("position") {
		other := part(k, project("query_proj", "pos_query_proj"), t.Op("neg", near))
		other = t.Op("div.Tensor", t.Op("transpose.int", other, -1, -2), scale)
		if bias == nil {
			return other
		}
		bias = t.Op("add.Tensor", bias, other)
	}
	return bias
}

func debertaPoolerForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	x = t.Child(m, "dropout", t.Op("select.int", x, 1, 0))
	return t.Child(m, "act", t.Child(m, "dense", x))
}

func debertaMaskedForward(t *layers.Trace, m *layers.Module, x, _ layers.Tensor) any {
	if m.Has("cls") {
		return layers.Fields{{Name: "logits", Value: t.Child(m, "cls", x)}}
	}
	words := t.Param(m.Child("deberta").Child("embeddings").Child("word_embeddings"), "weight")
	return layers.Fields{{Name: "logits", Value: t.ChildOf(m, "lm_predictions", x, words)}}
}

func debertaOnlyMLMForward(t *layers.Trace, m *layers.Module, args ...any) any {
	return t.ChildOf(m, "lm_head", args...)
}

// debertaPredictionForward takes states and the embeddings of words.
func debertaPredictionForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x := t.Child(m, "dense", args[0].(layers.Tensor))
	x = t.Child(m, "LayerNorm", t.Child(m, "transform_act_fn", x))
	x = t.Op("matmul", x, t.Op("t", args[1]))
	return t.Op("add.Tensor", x, t.Param(m, "bias"))
}
