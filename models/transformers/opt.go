package transformers

import (
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
	"github.com/optimem/optimem/tensor"
)

const optClass = "transformers.models.opt.modeling_opt.OPT"

// opt is transformers/models/opt/modeling_opt.py.
var opt = &family.Family{
	Model: "opt", Prefix: "model", Encodes: "OPTModel", Positions: 2048,
	Ignored: []string{`decoder\.version$`},
	Classes: layers.Classes{
		optClass + "LearnedPositionalEmbedding": layers.Unary(optPositionsForward),
		optClass + "Attention":                  {Forward: optAttentionForward},
		optClass + "DecoderLayer":               {Forward: optLayerForward},
		optClass + "Decoder":                    {Forward: optDecoderForward},
		optClass + "Model": {Forward: func(t *layers.Trace, m *layers.Module, args ...any) any {
			return t.ChildOf(m, "decoder", args...)
		}},
		optClass + "ForCausalLM":               family.Headed("model", family.NextToken),
		optClass + "ForSequenceClassification": family.LastToken("model"),
		optClass + "ForQuestionAnswering":      family.Headed("model", family.SpansOf("qa_outputs")),
	},
	Heads: []family.Head{
		{Class: "OPTModel", Make: func(c *family.Config) *layers.Module {
			m, _ := optModel(c)
			return m
		}},
		family.Generating(optContext, optHead("ForCausalLM", func(c *family.Config, m *layers.Module, words int) {
			m.Add("lm_head", layers.Linear(words, c.Size("vocab_size", 50272), layers.NoBias))
		})),
		optHead("ForSequenceClassification", func(c *family.Config, m *layers.Module, words int) {
			m.Attrs = map[string]any{"pad_token_id": c.Number("pad_token_id", 1)}
			m.Add("score", layers.Linear(words, c.Labels(), layers.NoBias))
		}),
		optHead("ForQuestionAnswering", func(_ *family.Config, m *layers.Module, words int) {
			m.Add("qa_outputs", layers.Linear(words, 2))
		}),
	},
	Inputs: family.TokenInputs("attention_mask", "position_ids"),
	Tied:   [][2]string{{"lm_head.weight", "model.decoder.embed_tokens.weight"}},
	Ties:   true,
}

// optHead returns a model with a head that add puts on it.
func optHead(name string, add func(c *family.Config, m *layers.Module, words int)) family.Head {
	return family.Head{Class: "OPT" + name, Make: func(c *family.Config) *layers.Module {
		model, words := optModel(c)
		m := layers.New(optClass+name, nil).Add("model", model)
		add(c, m, words)
		return m
	}}
}

// optModel returns the base model and the size of what it gives.
func optModel(c *family.Config) (m *layers.Module, words int) {
	hidden, heads, inner := c.Size("hidden_size", 768), c.Size("num_attention_heads", 12), c.Size("ffn_dim", 3072)
	words = c.Size("word_embed_proj_dim", hidden)
	c.Heads(hidden, heads)
	first := c.Flag("do_layer_norm_before", true)
	act := c.Text("activation_function", "relu")
	var bias []layers.Option
	if !c.Flag("enable_bias", true) {
		bias = append(bias, layers.NoBias)
	}
	affine := layers.Attr("elementwise_affine", c.Flag("layer_norm_elementwise_affine", true))
	layer := func(int) *layers.Module {
		return layers.New(optClass+"DecoderLayer", map[string]any{"do_layer_norm_before": first}).
			Add("self_attn", layers.New(optClass+"Attention", map[string]any{"head_dim": hidden / heads, "eager": c.Eager()}).
				Add("k_proj", layers.Linear(hidden, hidden, bias...)).
				Add("v_proj", layers.Linear(hidden, hidden, bias...)).
				Add("q_proj", layers.Linear(hidden, hidden, bias...)).
				Add("out_proj", layers.Linear(hidden, hidden, bias...))).
			Add("activation_fn", c.Activation(act)).
			Add("self_attn_layer_norm", layers.LayerNorm(hidden, affine)).
			Add("fc1", layers.Linear(hidden, inner, bias...)).
			Add("fc2", layers.Linear(inner, hidden, bias...)).
			Add("final_layer_norm", layers.LayerNorm(hidden, affine))
	}
	decoder := layers.New(optClass+"Decoder", map[string]any{"eager": c.Eager()}).
		Add("embed_tokens", layers.Embedding(c.Size("vocab_size", 50272), words)).
		Add("embed_positions", layers.New(optClass+"LearnedPositionalEmbedding", nil).
			Param("weight", optContext(c)+optOffset, hidden))
	if words != hidden {
		decoder.Add("project_out", layers.Linear(hidden, words, layers.NoBias)).
			Add("project_in", layers.Linear(words, hidden, layers.NoBias))
	}
	if first && !c.Flag("_remove_final_layer_norm", false) {
		decoder.Add("final_layer_norm", layers.LayerNorm(hidden, affine))
	}
	decoder.Add("layers", c.Repeat(c.Size("num_hidden_layers", 12), layer))
	return layers.New(optClass+"Model", nil).Add("decoder", decoder), words
}

// optContext is how many positions a sequence may have.
func optContext(c *family.Config) int { return c.Size("max_position_embeddings", 2048) }

// optOffset is how many rows of the positions' embeddings come before the first position.
const optOffset = 2

func optPositionsForward(t *layers.Trace, m *layers.Module, positions layers.Tensor) layers.Tensor {
	return t.Op("embedding", t.Param(m, "weight"), t.Op("add.Tensor", positions, optOffset))
}

// optDecoderForward takes input_ids, attention_mask and position_ids.
func optDecoderForward(t *layers.Trace, m *layers.Module, args ...any) any {
	ids, padding, positions := family.TokenIDs(t, args), family.Optional(t, args, 1), family.Optional(t, args, 2)
	s := ids.Shape()
	x := t.Child(m, "embed_tokens", ids)
	if positions == nil {
		tokens := padding
		if tokens == nil {
			tokens = t.Op("ones", []int{s[0], s[1]})
		}
		count := t.Op("mul.Tensor", t.Op("cumsum", tokens, 1), tokens)
		positions = t.Op("to.dtype", t.Op("sub.Tensor", count, 1), tensor.Int64)
	}
	var mask layers.Tensor
	if _, steps := t.Steps(); !steps {
		mask = family.Masking{
			Batch: s[0], Queries: s[1], Keys: s[1], Causal: true, Padding: padding, Additive: m.Bool("eager"),
		}.Create(t)
	}
	at := t.Child(m, "embed_positions", positions)
	if m.Has("project_in") {
		x = t.Child(m, "project_in", x)
	}
	x = t.Op("add.Tensor", x, at)
	for _, layer := range m.Child("layers").Children {
		x = t.Run(layer.Module, x, mask).(layers.Tensor)
	}
	for _, name := range []string{"final_layer_norm", "project_out"} {
		if m.Has(name) {
			x = t.Child(m, name, x)
		}
	}
	return layers.Fields{{Name: "last_hidden_state", Value: x}}
}

func optLayerForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, mask := args[0].(layers.Tensor), family.Optional(t, args, 1)
	first := m.Bool("do_layer_norm_before")
	norm := func(name string, x layers.Tensor, here bool) layers.Tensor {
		if !here {
			return x
		}
		return t.Child(m, name, x)
	}
	attended := t.ChildOf(m, "self_attn", norm("self_attn_layer_norm", x, first), mask)
	x = norm("self_attn_layer_norm", t.Op("add.Tensor", x, attended), !first)
	s := x.Shape()
	x = t.Op("reshape", x, []int{-1, s[2]})
	inner := t.Child(m, "activation_fn", t.Child(m, "fc1", norm("final_layer_norm", x, first)))
	x = t.Op("view", t.Op("add.Tensor", x, t.Child(m, "fc2", inner)), []int(s))
	return norm("final_layer_norm", x, !first)
}

func optAttentionForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, size := args[0].(layers.Tensor), m.Int("head_dim")
	batch := x.Shape()[0]
	heads := func(x layers.Tensor) layers.Tensor {
		return t.Op("transpose.int", t.Op("view", x, []int{batch, -1, x.Shape()[2] / size, size}), 1, 2)
	}
	q := heads(t.Op("mul.Tensor", t.Child(m, "q_proj", x), family.InverseSqrt(size)))
	k, v := t.Child(m, "k_proj", x), t.Child(m, "v_proj", x)
	out := family.Attention{Scaling: 1, Eager: m.Bool("eager")}.Run(t, m, q, heads(k), heads(v), family.Optional(t, args, 1))
	return t.Child(m, "out_proj", out)
}
