// Package seq2seq has models of Python's transformers that read one text and write another, T5 and BART, and the parts of
// theirs that models of sounds and pictures have too, which write what they hear or see.
//
// It knows modules and their configurations. It does not know what else is read, files, devices or the meaning of ops.
//
//	all = append(all, seq2seq.Families...)
package seq2seq

import (
	"strings"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
	"github.com/optimem/optimem/tensor"
)

const t5Class = "transformers.models.t5.modeling_t5.T5"

// t5 is transformers/models/t5/modeling_t5.py.
var t5 = &family.Family{
	Model: "t5", Prefix: "transformer", Encodes: "T5EncoderModel",
	Ignored: []string{`^decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight$`},
	Classes: layers.Classes{
		t5Class + "Model":                    {Forward: t5ModelForward},
		t5Class + "ForConditionalGeneration": {Forward: t5ForConditionalGenerationForward},
		t5Class + "EncoderModel":             {Forward: t5EncoderModelForward},
		t5Class + "Stack":                    {Forward: t5StackForward},
		t5Class + "Block":                    {Forward: t5BlockForward},
		t5Class + "LayerSelfAttention":       {Forward: t5LayerAttentionForward("SelfAttention")},
		t5Class + "LayerCrossAttention":      {Forward: t5LayerAttentionForward("EncDecAttention")},
		t5Class + "Attention":                {Forward: t5AttentionForward},
		t5Class + "LayerFF":                  layers.Unary(t5LayerFFForward),
		t5Class + "DenseActDense":            layers.Unary(family.Through("wi", "act", "dropout", "wo")),
		t5Class + "DenseGatedActDense":       layers.Unary(t5GatedForward),
		t5Class + "LayerNorm":                layers.Unary(t5LayerNormForward),
	},
	Heads: []family.Head{
		{Class: "T5Model", Make: func(c *family.Config) *layers.Module { return t5Model(c, "Model") }},
		family.Transducing(t5Context, t5Context, family.Head{Class: "T5ForConditionalGeneration", Make: func(c *family.Config) *layers.Module {
			hidden := c.Size("d_model", 512)
			m := t5Model(c, "ForConditionalGeneration")
			if t5Scaled(c) {
				m.Attrs["scale"] = family.InverseSqrt(hidden)
			}
			return m.Add("lm_head", layers.Linear(hidden, c.Size("vocab_size", 32128), layers.NoBias))
		}}),
		{Class: "T5EncoderModel", Make: func(c *family.Config) *layers.Module {
			return layers.New(t5Class+"EncoderModel", nil).
				Add("shared", layers.Embedding(c.Size("vocab_size", 32128), c.Size("d_model", 512))).
				Add("encoder", t5Stack(c, false))
		}, Inputs: family.TokenInputs("attention_mask")},
	},
	Inputs: seq2seqInputs,
	Tied: [][2]string{
		{"encoder.embed_tokens.weight", "shared.weight"},
		{"decoder.embed_tokens.weight", "shared.weight"},
		{"lm_head.weight", "shared.weight"},
	},
	AlwaysTied: true,
}

// t5Context bounds texts that have no bound by themselves: positions are told apart by their distance, and far ones are
// not.
func t5Context(*family.Config) int { return 1 << 15 }

// seq2seqInputs are those of models that read one text and write another. What is written so far is always given.
func seq2seqInputs(*family.Config) []layers.Port {
	ports := []layers.Port{
		family.Tokens("input_ids", false), family.Tokens("attention_mask", true),
		family.Tokens("decoder_input_ids", false), family.Tokens("decoder_attention_mask", true),
	}
	for i := range ports[2:] {
		ports[2+i].Dims = []string{"batch", "decoder_sequence"}
	}
	return ports
}

// t5Scaled tells whether the decoder's output is scaled before the logits: in T5, and not in version 1.1, whose
// configurations say that nothing is tied.
func t5Scaled(c *family.Config) bool {
	return c.Flag("scale_decoder_outputs", c.Flag("tie_word_embeddings", true))
}

func t5Model(c *family.Config, class string) *layers.Module {
	return layers.New(t5Class+class, map[string]any{}).
		Add("shared", layers.Embedding(c.Size("vocab_size", 32128), c.Size("d_model", 512))).
		Add("encoder", t5Stack(c, false)).
		Add("decoder", t5Stack(c, true))
}

func t5Stack(c *family.Config, decoder bool) *layers.Module {
	hidden, depth := c.Size("d_model", 512), c.Size("num_layers", 6)
	if decoder {
		depth = c.Size("num_decoder_layers", depth)
	}
	norm := func() *layers.Module {
		return layers.New(t5Class+"LayerNorm", map[string]any{"eps": c.Float("layer_norm_epsilon", 1e-6)}).
			Param("weight", hidden)
	}
	block := func(i int) *layers.Module {
		parts := []*layers.Module{layers.New(t5Class+"LayerSelfAttention", nil).
			Add("SelfAttention", t5Attention(c, decoder, i == 0)).Add("layer_norm", norm()).Add("dropout", layers.Dropout(0.1))}
		if decoder {
			cross := t5Attention(c, decoder, false)
			cross.Attrs[family.Keeps] = family.OfTheSource
			parts = append(parts, layers.New(t5Class+"LayerCrossAttention", nil).
				Add("EncDecAttention", cross).Add("layer_norm", norm()).Add("dropout", layers.Dropout(0.1)))
		}
		parts = append(parts, layers.New(t5Class+"LayerFF", nil).
			Add("DenseReluDense", t5Dense(c)).Add("layer_norm", norm()).Add("dropout", layers.Dropout(0.1)))
		return layers.New(t5Class+"Block", nil).Add("layer", layers.ModuleList(parts...))
	}
	return layers.New(t5Class+"Stack", map[string]any{"is_decoder": decoder, "eager": c.Eager()}).
		Add("embed_tokens", layers.Embedding(c.Size("vocab_size", 32128), hidden)).
		Add("block", c.Repeat(depth, block)).
		Add("final_layer_norm", norm()).
		Add("dropout", layers.Dropout(0.1))
}

func t5Attention(c *family.Config, decoder, relative bool) *layers.Module {
	hidden, heads, size := c.Size("d_model", 512), c.Size("num_heads", 8), c.Size("d_kv", 64)
	if heads > family.MaxSize/size {
		c.Fail("num_heads", "times d_kv is more than %d", family.MaxSize)
		heads, size = 1, 1
	}
	m := layers.New(t5Class+"Attention", map[string]any{
		"is_decoder": decoder, "eager": c.Eager(), "n_heads": heads, "key_value_proj_dim": size,
	})
	if decoder {
		m.Attrs[family.Keeps] = family.OfWritten
	}
	for _, name := range []string{"q", "k", "v"} {
		m.Add(name, layers.Linear(hidden, heads*size, layers.NoBias))
	}
	m.Add("o", layers.Linear(heads*size, hidden, layers.NoBias))
	if !relative {
		return m
	}
	buckets, distance := c.Size("relative_attention_num_buckets", 32), c.Size("relative_attention_max_distance", 128)
	if c.Err == nil && (buckets < 4 || distance <= buckets/2) {
		c.Fail("relative_attention_num_buckets", "is %d, and distances go to %d: wanted are 4 or more, and further than half",
			buckets, distance)
	}
	m.Attrs["num_buckets"], m.Attrs["max_distance"] = buckets, distance
	return m.Add("relative_attention_bias", layers.Embedding(buckets, heads))
}

func t5Dense(c *family.Config) *layers.Module {
	hidden, inner := c.Size("d_model", 512), c.Size("d_ff", 2048)
	kind := c.Text("feed_forward_proj", "relu")
	act, gated := strings.CutPrefix(kind, "gated-")
	if kind == "gated-gelu" {
		act = "gelu_new"
	}
	m := layers.New(t5Class+"DenseActDense", nil)
	if gated {
		m.Class = t5Class + "DenseGatedActDense"
		m.Add("wi_0", layers.Linear(hidden, inner, layers.NoBias)).Add("wi_1", layers.Linear(hidden, inner, layers.NoBias))
	} else {
		m.Add("wi", layers.Linear(hidden, inner, layers.NoBias))
	}
	return m.Add("wo", layers.Linear(inner, hidden, layers.NoBias)).
		Add("dropout", layers.Dropout(0.1)).
		Add("act", c.Activation(act))
}

func t5LayerNormForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	x = t.Op("to.dtype", x, tensor.Float32)
	variance := t.Op("mean.dim", t.Op("pow.Tensor_Scalar", x, 2), []int{-1}, true)
	x = t.Op("mul.Tensor", x, t.Op("rsqrt", t.Op("add.Tensor", variance, m.Float("eps"))))
	return t.Op("mul.Tensor", t.Param(m, "weight"), x)
}

func t5GatedForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	gate := t.Child(m, "act", t.Child(m, "wi_0", x))
	x = t.Op("mul.Tensor", gate, t.Child(m, "wi_1", x))
	return t.Child(m, "wo", t.Child(m, "dropout", x))
}

func t5LayerFFForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	y := t.Child(m, "DenseReluDense", t.Child(m, "layer_norm", x))
	return t.Op("add.Tensor", x, t.Child(m, "dropout", y))
}

// t5ModelForward takes input_ids, attention_mask, decoder_input_ids and decoder_attention_mask.
func t5ModelForward(t *layers.Trace, m *layers.Module, args ...any) any {
	encoded, decoded := encodeDecode(t, m, args)
	return layers.Fields{
		{Name: "last_hidden_state", Value: decoded},
		{Name: "encoder_last_hidden_state", Value: encoded},
	}
}

// encodeDecode runs encoder and decoder on the arguments of a model that has both. In a step the encoder does not run,
// and where a source is read, the decoder does not.
func encodeDecode(t *layers.Trace, m *layers.Module, args []any) (encoded, decoded layers.Tensor) {
	if _, step := t.Steps(); step {
		return nil, t.ChildOf(m, "decoder", args[2]).(layers.Tensor)
	}
	ids, mask := family.TokenIDs(t, args), family.Optional(t, args, 1)
	if t.Reads() {
		encoded = t.ChildOf(m, "encoder", ids, mask).(layers.Tensor)
		family.KeepSource(t, m.Child("decoder"), encoded)
		return encoded, nil
	}
	encoded = t.ChildOf(m, "encoder", ids, mask).(layers.Tensor)
	written := family.Optional(t, args, 2)
	if written == nil || len(written.Shape()) != 2 || written.Shape()[0] != ids.Shape()[0] {
		t.Fail("decoder_input_ids of [%d, tokens] are needed", ids.Shape()[0])
	}
	decoded = t.ChildOf(m, "decoder", written, family.Optional(t, args, 3), encoded, mask).(layers.Tensor)
	return encoded, decoded
}

func t5ForConditionalGenerationForward(t *layers.Trace, m *layers.Module, args ...any) any {
	encoded, x := encodeDecode(t, m, args)
	if x == nil {
		return SourceOnly(encoded)
	}
	x = t.Wanted(x)
	if _, scaled := m.Attrs["scale"]; scaled {
		x = t.Op("mul.Tensor", x, m.Float("scale"))
	}
	return WithSource(layers.Field{Name: "logits", Value: t.Child(m, "lm_head", x)}, encoded)
}

// SourceOnly is what a model gives that reads a source.
func SourceOnly(encoded layers.Tensor) layers.Fields {
	return layers.Fields{{Name: "encoder_last_hidden_state", Value: encoded}}
}

// WithSource is what a model gives that has read a source, which in a step it has not.
func WithSource(f layers.Field, encoded layers.Tensor) layers.Fields {
	if encoded == nil {
		return layers.Fields{f}
	}
	return append(layers.Fields{f}, SourceOnly(encoded)...)
}

func t5EncoderModelForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x := t.ChildOf(m, "encoder", family.TokenIDs(t, args), family.Optional(t, args, 1))
	return layers.Fields{{Name: "last_hidden_state", Value: x}}
}

// t5StackForward takes input_ids and attention_mask, and in the decoder the encoder's output and the mask for it.
func t5StackForward(t *layers.Trace, m *layers.Module, args ...any) any {
	ids, decoder := family.TokenIDs(t, args), m.Bool("is_decoder")
	s := ids.Shape()
	x := t.Child(m, "embed_tokens", ids)
	_, step := t.Steps()
	var mask layers.Tensor
	if !step {
		mask = family.Masking{
			Batch: s[0], Queries: s[1], Keys: s[1], Causal: decoder, Padding: family.Optional(t, args, 1), Additive: m.Bool("eager"),
		}.Create(t)
	}
	encoded := family.Optional(t, args, 2)
	var encodedMask layers.Tensor
	if decoder && !step {
		encodedMask = crossMask(t, ids, encoded, family.Optional(t, args, 3), m.Bool("eager"))
	}
	x = t.Child(m, "dropout", x)
	var bias, encodedBias layers.Tensor
	for _, block := range m.Child("block").Children {
		out := t.Run(block.Module, x, mask, bias, encoded, encodedMask, encodedBias).([]layers.Tensor)
		x, bias, encodedBias = out[0], out[1], out[2]
	}
	return t.Child(m, "dropout", t.Child(m, "final_layer_norm", x))
}

// crossMask says which tokens of the encoder, [batch, tokens, size], the decoder's tokens see.
func crossMask(t *layers.Trace, ids, encoded, padding layers.Tensor, additive bool) layers.Tensor {
	s := ids.Shape()
	return family.Masking{
		Batch: s[0], Queries: s[1], Keys: encoded.Shape()[1], Padding: padding, Additive: additive,
	}.Create(t)
}

func t5BlockForward(t *layers.Trace, m *layers.Module, args ...any) any {
	parts := m.Child("layer").Children
	out := t.Run(parts[0].Module, args[0], args[1], args[2], nil).([]layers.Tensor)
	x, bias := out[0], out[1]
	var encodedBias layers.Tensor
	if len(parts) == 3 {
		out = t.Run(parts[1].Module, x, args[4], args[5], args[3]).([]layers.Tensor)
		x, encodedBias = out[0], out[1]
	}
	x = t.Run(parts[len(parts)-1].Module, x).(layers.Tensor)
	return []layers.Tensor{x, bias, encodedBias}
}

// t5LayerAttentionForward returns the forward of a layer that attends: of x, the mask, the bias, and what is attended to
// where that is not x.
func t5LayerAttentionForward(name string) func(t *layers.Trace, m *layers.Module, args ...any) any {
	return func(t *layers.Trace, m *layers.Module, args ...any) any {
		x := family.Optional(t, args, 0)
		normed := t.Child(m, "layer_norm", x)
		out := t.ChildOf(m, name, normed, args[1], args[2], args[3]).([]layers.Tensor)
		return []layers.Tensor{t.Op("add.Tensor", x, t.Child(m, "dropout", out[0])), out[1]}
	}
}

func t5AttentionForward(t *layers.Trace, m *layers.Module, args ...any) any {
	if t.Reads() && m.Attrs[family.Keeps] != nil {
		return family.Keep(t, m, args[0], "k", "v", m.Int("n_heads"), m.Int("key_value_proj_dim"))
	}
	if family.Recalls(t, m) {
		q := family.SplitHeads(t, m, "q", family.Optional(t, args, 0), m.Int("key_value_proj_dim"))
		return []layers.Tensor{t.Child(m, "o", family.Attention{Scaling: 1}.Recall(t, m, q)), nil}
	}
	x, bias, of := family.Optional(t, args, 0), family.Optional(t, args, 2), family.Optional(t, args, 3)
	if of == nil {
		of = x
	}
	size := m.Int("key_value_proj_dim")
	q := family.SplitHeads(t, m, "q", x, size)
	k := family.SplitHeads(t, m, "k", of, size)
	v := family.SplitHeads(t, m, "v", of, size)
	queries, keys := x.Shape()[1], of.Shape()[1]
	context, step := t.Steps()
	switch {
	case bias != nil:
	case step && m.Has("relative_attention_bias"):
		// All that are further away than max_distance have a bucket together.
		distances := t.Op("arange", min(context, m.Int("max_distance")+1), layers.Named{"dtype": tensor.Int64})
		bias = t.Op("transpose.int", t.Child(m, "relative_attention_bias", family.DistanceShares(t, m, distances, m.Int("num_buckets"))), 0, 1)
	case step:
		t.Fail("a decoder whose first layer has no bias of distances")
	case m.Has("relative_attention_bias"):
		buckets := family.DistanceBuckets(t, m, queries, keys)
		bias = t.Op("permute", t.Child(m, "relative_attention_bias", buckets), []int{2, 0, 1})
		bias = t.Op("unsqueeze", bias, 0)
	default:
		bias = t.Op("zeros", []int{1, m.Int("n_heads"), queries, keys}, layers.Named{"dtype": tensor.Float32})
	}
	out := family.Attention{Scaling: 1, Eager: m.Bool("eager"), Bias: bias}.Run(t, m, q, k, v, family.Optional(t, args, 1))
	return []layers.Tensor{t.Child(m, "o", out), bias}
}
