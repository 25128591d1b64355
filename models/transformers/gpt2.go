package transformers

import (
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
)

const (
	gpt2Class   = "transformers.models.gpt2.modeling_gpt2.GPT2"
	conv1DClass = "transformers.pytorch_utils.Conv1D"
)

// gpt2 is transformers/models/gpt2/modeling_gpt2.py.
var gpt2 = &family.Family{
	Model: "gpt2", Prefix: "transformer", Encodes: "GPT2Model", Positions: 1024,
	Ignored: []string{`\.attn\.(masked_)?bias$`, `\.crossattention\.(masked_)?bias$`},
	Classes: layers.Classes{
		conv1DClass:                             layers.Unary(conv1DForward),
		gpt2Class + "Attention":                 {Forward: gpt2AttentionForward},
		gpt2Class + "MLP":                       layers.Unary(family.Through("c_fc", "act", "c_proj", "dropout")),
		gpt2Class + "Block":                     {Forward: gpt2BlockForward},
		gpt2Class + "Model":                     {Forward: gpt2ModelForward},
		gpt2Class + "LMHeadModel":               family.Headed("transformer", family.NextToken),
		gpt2Class + "ForSequenceClassification": family.LastToken("transformer"),
		gpt2Class + "ForTokenClassification":    family.Headed("transformer", family.LogitsOf("dropout", "classifier")),
		gpt2Class + "ForQuestionAnswering":      family.Headed("transformer", family.SpansOf("qa_outputs")),
	},
	Heads: []family.Head{
		{Class: "GPT2Model", Make: gpt2Model},
		family.Generating(gpt2Context, gpt2Head("LMHeadModel", func(c *family.Config, m *layers.Module, hidden int) {
			m.Add("lm_head", layers.Linear(hidden, c.Size("vocab_size", 50257), layers.NoBias))
		})),
		gpt2Head("ForSequenceClassification", func(c *family.Config, m *layers.Module, hidden int) {
			m.Attrs = map[string]any{"pad_token_id": c.Optional("pad_token_id")}
			m.Add("score", layers.Linear(hidden, c.Labels(), layers.NoBias))
		}),
		gpt2Head("ForTokenClassification", func(c *family.Config, m *layers.Module, hidden int) {
			m.Add("dropout", layers.Dropout(0.1)).Add("classifier", layers.Linear(hidden, c.Labels()))
		}),
		gpt2Head("ForQuestionAnswering", func(_ *family.Config, m *layers.Module, hidden int) {
			m.Add("qa_outputs", layers.Linear(hidden, 2))
		}),
	},
	Inputs: family.TokenInputs("attention_mask", "token_type_ids", "position_ids"),
	Tied:   [][2]string{{"lm_head.weight", "transformer.wte.weight"}},
	Ties:   true,
}

// gpt2Head returns a model with a head that add puts on it.
func gpt2Head(name string, add func(c *family.Config, m *layers.Module, hidden int)) family.Head {
	return family.Head{Class: "GPT2" + name, Make: func(c *family.Config) *layers.Module {
		m := layers.New(gpt2Class+name, nil).Add("transformer", gpt2Model(c))
		add(c, m, c.Size("n_embd|hidden_size", 768))
		return m
	}}
}

func gpt2Model(c *family.Config) *layers.Module {
	hidden, heads := c.Size("n_embd|hidden_size", 768), c.Size("n_head|num_attention_heads", 12)
	inner, eps := c.Size("n_inner", 4*hidden), layers.Eps(c.Float("layer_norm_epsilon", 1e-5))
	act := c.Text("activation_function", "gelu_new")
	c.Heads(hidden, heads)
	if c.Flag("add_cross_attention", false) {
		c.Unsupported("add_cross_attention")
	}
	scaling := 1.0
	if c.Flag("scale_attn_weights", true) {
		scaling = family.InverseSqrt(hidden / heads)
	}
	byLayer := c.Flag("scale_attn_by_inverse_layer_idx", false)
	layer := func(i int) *layers.Module {
		attrs := map[string]any{"head_dim": hidden / heads, "split_size": hidden, "scaling": scaling, "eager": c.Eager()}
		if byLayer {
			attrs["scaling"] = scaling / float64(i+1)
		}
		return layers.New(gpt2Class+"Block", nil).
			Add("ln_1", layers.LayerNorm(hidden, eps)).
			Add("attn", layers.New(gpt2Class+"Attention", attrs).
				Add("c_attn", conv1D(hidden, 3*hidden)).
				Add("c_proj", conv1D(hidden, hidden)).
				Add("attn_dropout", layers.Dropout(0.1)).
				Add("resid_dropout", layers.Dropout(0.1))).
			Add("ln_2", layers.LayerNorm(hidden, eps)).
			Add("mlp", layers.New(gpt2Class+"MLP", nil).
				Add("c_fc", conv1D(hidden, inner)).
				Add("c_proj", conv1D(inner, hidden)).
				Add("act", c.Activation(act)).
				Add("dropout", layers.Dropout(0.1)))
	}
	return layers.New(gpt2Class+"Model", map[string]any{"eager": c.Eager()}).
		Add("wte", layers.Embedding(c.Size("vocab_size", 50257), hidden)).
		Add("wpe", layers.Embedding(gpt2Context(c), hidden)).
		Add("drop", layers.Dropout(0.1)).
		Add("h", c.Repeat(c.Size("n_layer|num_hidden_layers", 12), layer)).
		Add("ln_f", layers.LayerNorm(hidden, eps))
}

// gpt2Context is how many positions a sequence may have.
func gpt2Context(c *family.Config) int { return c.Size("n_positions|max_position_embeddings", 1024) }

// conv1D is a linear module whose weight is transposed.
func conv1D(in, out int) *layers.Module {
	return layers.New(conv1DClass, nil).Param("weight", in, out).Param("bias", out)
}

func conv1DForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	w, s := t.Param(m, "weight"), x.Shape()
	rows := t.Op("view", x, []int{-1, s[len(s)-1]})
	out := append(s[:len(s)-1:len(s)-1], w.Shape()[1])
	return t.Op("view", t.Op("addmm", t.Param(m, "bias"), rows, w), []int(out))
}

// gpt2ModelForward takes input_ids, attention_mask, token_type_ids and position_ids.
func gpt2ModelForward(t *layers.Trace, m *layers.Module, args ...any) any {
	ids, kinds, positions := family.TokenIDs(t, args), family.Optional(t, args, 2), family.Optional(t, args, 3)
	s := ids.Shape()
	x := t.Child(m, "wte", ids)
	if positions == nil {
		positions = countedPositions(t, s[1])
	}
	x = t.Op("add.Tensor", x, t.Child(m, "wpe", positions))
	var mask layers.Tensor
	if _, steps := t.Steps(); !steps {
		mask = family.Masking{
			Batch: s[0], Queries: s[1], Keys: s[1], Causal: true, Padding: family.Optional(t, args, 1), Positions: positions,
			Additive: m.Bool("eager"),
		}.Create(t)
	}
	if kinds != nil {
		x = t.Op("add.Tensor", x, t.Child(m, "wte", kinds))
	}
	x = t.Child(m, "drop", x)
	for _, block := range m.Child("h").Children {
		x = t.Run(block.Module, x, mask).(layers.Tensor)
	}
	return layers.Fields{{Name: "last_hidden_state", Value: t.Child(m, "ln_f", x)}}
}

// countedPositions are 0, 1, …, n−1 as [1, n].
func countedPositions(t *layers.Trace, n int) layers.Tensor {
	return t.Op("unsqueeze", t.Op("add.Tensor", t.Op("arange", n), 0), 0)
}

func gpt2BlockForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x := args[0].(layers.Tensor)
	attended := t.ChildOf(m, "attn", t.Child(m, "ln_1", x), family.Optional(t, args, 1))
	x = t.Op("add.Tensor", attended, x)
	return t.Op("add.Tensor", x, t.Child(m, "mlp", t.Child(m, "ln_2", x)))
}

func gpt2AttentionForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x := args[0].(layers.Tensor)
	size := m.Int("head_dim")
	parts := t.Tensors("split.Tensor", t.Child(m, "c_attn", x), m.Int("split_size"), 2)
	heads := func(x layers.Tensor) layers.Tensor {
		s := x.Shape()
		return t.Op("transpose.int", t.Op("view", x, []int{s[0], s[1], -1, size}), 1, 2)
	}
	k, v := heads(parts[1]), heads(parts[2])
	a := family.Attention{Scaling: m.Float("scaling"), Eager: m.Bool("eager")}
	out := a.Run(t, m, heads(parts[0]), k, v, family.Optional(t, args, 1))
	return t.Child(m, "resid_dropout", t.Child(m, "c_proj", out))
}
