package transformers

import (
	"maps"
	"math"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// A decoder is Llama, or one of the models that are Llama but for what the fields say. The sizes are the defaults of
// the configuration's class.
type decoder struct {
	// model is the model_type; class the module and the beginning of the class names in Python, name that of the latter.
	model, class, name                   string
	vocabulary, hidden, inner            int
	layers, heads, keys, size, positions int // keys and size 0: as many as heads, hidden / heads
	eps                                  float64
	act, actKey                          string
	// pad is the default of pad_token_id, nil for none; ties that of tie_word_embeddings.
	pad  any
	ties bool
	// qaPrefix is the name of the base model in the one that answers questions, "" where there is none.
	qaPrefix string
	// qkvBias and outBias say whether the projections of the attention have a bias.
	qkvBias, outBias func(c *config) bool
	mlpBias          bool // there is an entry mlp_bias
	headNorm         bool // queries and keys are normalized: Qwen3
	fused            bool // one projection makes queries, keys and values, one both halves of the MLP: Phi-3
	scaled           bool // embeddings are multiplied with √hidden, norms with 1 + weight: Gemma
	sandwich         bool // norms after attention and MLP too, scores and logits bounded: Gemma 2
	// window returns the layers' sliding window, 0 for none, and which layers have it.
	window func(c *config, layers int) (size int, slides func(i int) bool)
	// feed makes what stands in place of the MLP of layer i; nil is the MLP.
	feed func(d decoder, c *config, i, hidden, inner int, act string) *layers.Module
}

// family is the decoder with its heads.
func (d decoder) family() *family {
	f := &family{
		model: d.model, prefix: "model", encodes: d.name + "Model", positions: d.positions,
		classes: layers.Classes{
			d.class + "Model":                     {Forward: d.modelForward},
			d.class + "DecoderLayer":              {Forward: d.layerForward},
			d.class + "Attention":                 {Forward: d.attentionForward},
			d.class + "MLP":                       layers.Unary(d.mlpForward),
			d.class + "RMSNorm":                   layers.Unary(d.normForward),
			d.class + "RotaryEmbedding":           {Forward: rotaryForward},
			d.class + "ForCausalLM":               headed("model", causalLM),
			d.class + "ForSequenceClassification": lastToken("model"),
			d.class + "ForTokenClassification":    headed("model", logitsOf("dropout", "score")),
		},
		heads: []head{
			{class: d.name + "Model", make: d.base},
			generating(d.context, d.head("ForCausalLM", "model", func(c *config, m *layers.Module, hidden int) {
				m.Attrs = map[string]any{"final_logit_softcapping": 0.0}
				if d.sandwich {
					m.Attrs["final_logit_softcapping"] = c.softcap("final_logit_softcapping", 30)
				}
				m.Add("lm_head", layers.Linear(hidden, c.size("vocab_size", d.vocabulary), layers.NoBias))
			})),
			d.head("ForSequenceClassification", "model", func(c *config, m *layers.Module, hidden int) {
				m.Attrs = map[string]any{"pad_token_id": c.padding(d.pad)}
				m.Add("score", layers.Linear(hidden, c.labels(), layers.NoBias))
			}),
			d.head("ForTokenClassification", "model", func(c *config, m *layers.Module, hidden int) {
				var bias []layers.Option
				if !c.flag("token_classification_bias", true) {
					bias = append(bias, layers.NoBias)
				}
				m.Add("dropout", layers.Dropout(0.1)).Add("score", layers.Linear(hidden, c.labels(), bias...))
			}),
		},
		inputs: tokenInputs("attention_mask", "position_ids"),
		tied:   [][2]string{{"lm_head.weight", "model.embed_tokens.weight"}},
		ties:   d.ties,
	}
	if d.scaled {
		f.classes[d.class+"TextScaledWordEmbedding"] = layers.Unary(scaledEmbeddingForward)
	}
	if d.qaPrefix != "" {
		f.classes[d.class+"ForQuestionAnswering"] = headed(d.qaPrefix, spansOf("qa_outputs"))
		f.heads = append(f.heads, d.head("ForQuestionAnswering", d.qaPrefix, func(_ *config, m *layers.Module, hidden int) {
			m.Add("qa_outputs", layers.Linear(hidden, 2))
		}))
	}
	return f
}

// head returns a model with a head that add puts on it.
func (d decoder) head(name, prefix string, add func(c *config, m *layers.Module, hidden int)) head {
	return head{class: d.name + name, prefix: prefix, make: func(c *config) *layers.Module {
		m := layers.New(d.class+name, nil).Add(prefix, d.base(c))
		add(c, m, c.size("hidden_size", d.hidden))
		return m
	}}
}

// context is how many positions a sequence may have.
func (d decoder) context(c *config) int { return c.size("max_position_embeddings", d.positions) }

// base is the constructor of the base model.
func (d decoder) base(c *config) *layers.Module {
	hidden, inner := c.size("hidden_size", d.hidden), c.size("intermediate_size", d.inner)
	heads, positions := c.size("num_attention_heads", d.heads), c.size("max_position_embeddings", d.positions)
	keys := d.keys
	if keys == 0 {
		keys = heads
	}
	keys = c.size("num_key_value_heads", keys)
	size := d.size
	if size == 0 {
		size = max(hidden/heads, 1)
	}
	size = c.size("head_dim", size)
	if heads%keys != 0 {
		c.fail("num_key_value_heads", "is %d, and does not divide the %d heads", keys, heads)
	}
	if c.flag("use_bidirectional_attention", false) {
		c.unsupported("use_bidirectional_attention")
	}
	act := c.text(d.actKey, d.act)
	if d.scaled && !d.sandwich && act == "gelu" {
		act = d.act // the first files of Gemma say so and mean the approximation
	}
	n := c.size("num_hidden_layers", d.layers)
	window, slides := 0, func(int) bool { return false }
	if d.window != nil {
		window, slides = d.window(c, n)
	}
	norm := func(size int) *layers.Module {
		return layers.New(d.class+"RMSNorm", map[string]any{"eps": c.float("rms_norm_eps", d.eps)}).Param("weight", size)
	}
	attrs := map[string]any{
		"head_dim": size, "groups": heads / max(keys, 1), "queries": heads * size, "keys": keys * size,
		"scaling": inverseSqrt(size), "softcap": 0.0, "eager": c.eager() || d.sandwich,
	}
	if d.sandwich {
		attrs["scaling"] = inverseSqrt(c.size("query_pre_attn_scalar", 256))
		attrs["softcap"] = c.softcap("attn_logit_softcapping", 50)
	}
	layer := func(i int) *layers.Module {
		own := maps.Clone(attrs)
		sliding := window > 0 && slides(i)
		if own["window"] = 0; sliding {
			own["window"] = window
		}
		m := layers.New(d.class+"DecoderLayer", map[string]any{"sliding": sliding}).
			Add("self_attn", d.attention(c, own, hidden, norm)).
			Add("mlp", d.feedForward(c, i, hidden, inner, act)).
			Add("input_layernorm", norm(hidden)).
			Add("post_attention_layernorm", norm(hidden))
		if d.sandwich {
			m.Add("pre_feedforward_layernorm", norm(hidden)).Add("post_feedforward_layernorm", norm(hidden))
		}
		return m
	}
	words := layers.Embedding(c.size("vocab_size", d.vocabulary), hidden)
	if d.scaled {
		words = layers.New(d.class+"TextScaledWordEmbedding", nil).Param("weight", c.size("vocab_size", d.vocabulary), hidden)
		words.Params = append(words.Params, layers.Param{
			Name: "embed_scale", DType: tensor.Float32, Shape: tensor.Shape{}, Buffer: true, Transient: true,
			Value: tensor.Of([]float32{float32(math.Sqrt(float64(hidden)))}),
		})
	}
	return layers.New(d.class+"Model", map[string]any{"eager": attrs["eager"], "window": window}).
		Add("embed_tokens", words).
		Add("layers", c.repeat(n, layer)).
		Add("norm", norm(hidden)).
		Add("rotary_emb", c.rotary(d.class+"RotaryEmbedding", size, positions, d.fused))
}

func (d decoder) attention(c *config, attrs map[string]any, hidden int, norm func(int) *layers.Module) *layers.Module {
	bias := func(has func(*config) bool) layers.Option {
		return layers.Attr("bias", has != nil && has(c))
	}
	m := layers.New(d.class+"Attention", attrs)
	queries, keys := m.Int("queries"), m.Int("keys")
	if d.fused {
		return m.Add("o_proj", layers.Linear(queries, hidden, layers.NoBias)).
			Add("qkv_proj", layers.Linear(hidden, queries+2*keys, layers.NoBias))
	}
	m.Add("q_proj", layers.Linear(hidden, queries, bias(d.qkvBias))).
		Add("k_proj", layers.Linear(hidden, keys, bias(d.qkvBias))).
		Add("v_proj", layers.Linear(hidden, keys, bias(d.qkvBias))).
		Add("o_proj", layers.Linear(queries, hidden, bias(d.outBias)))
	if d.headNorm {
		m.Add("q_norm", norm(m.Int("head_dim"))).Add("k_norm", norm(m.Int("head_dim")))
	}
	return m
}

// feedForward is the MLP of layer i, or what stands in its place.
func (d decoder) feedForward(c *config, i, hidden, inner int, act string) *layers.Module {
	if d.feed != nil {
		return d.feed(d, c, i, hidden, inner, act)
	}
	return d.mlp(c, hidden, inner, act)
}

func (d decoder) mlp(c *config, hidden, inner int, act string) *layers.Module {
	m := layers.New(d.class+"MLP", nil)
	if d.fused {
		return m.Add("gate_up_proj", layers.Linear(hidden, 2*inner, layers.NoBias)).
			Add("down_proj", layers.Linear(inner, hidden, layers.NoBias)).
			Add("activation_fn", c.activation(act))
	}
	bias := layers.Attr("bias", d.mlpBias && c.flag("mlp_bias", false))
	return m.Add("gate_proj", layers.Linear(hidden, inner, bias)).
		Add("up_proj", layers.Linear(hidden, inner, bias)).
		Add("down_proj", layers.Linear(inner, hidden, bias)).
		Add("act_fn", c.activation(act))
}

// softcap returns an entry that bounds scores; null in the file is none.
func (c *config) softcap(name string, missing float64) float64 {
	if v, there := c.fields[name]; there && v == nil {
		return 0
	}
	return c.float(name, missing)
}

// padding returns pad_token_id; null in the file is none.
func (c *config) padding(missing any) any {
	if _, there := c.fields["pad_token_id"]; !there {
		return missing
	}
	return c.optional("pad_token_id")
}

// modelForward takes input_ids, attention_mask and position_ids.
func (d decoder) modelForward(t *layers.Trace, m *layers.Module, args ...any) any {
	ids, positions := tokenIDs(t, args), optional(t, args, 2)
	s := ids.Shape()
	x := t.Child(m, "embed_tokens", ids)
	if positions == nil {
		positions = countedPositions(t, s[1])
	}
	full := masking{
		batch: s[0], queries: s[1], keys: s[1], causal: true, padding: optional(t, args, 1), positions: positions,
		additive: m.Bool("eager"),
	}
	sliding := full
	sliding.window = m.Int("window")
	var masks [2]layers.Tensor // of full and of sliding attention
	blocks := m.Child("layers").Children
	_, steps := t.Steps()
	for i, k := range []masking{full, sliding} {
		if steps { // a step has none
			break
		}
		for _, block := range blocks {
			if block.Module.Bool("sliding") == (i == 1) {
				masks[i] = k.create(t)
				break
			}
		}
	}
	angles := t.ChildOf(m, "rotary_emb", positions)
	for _, block := range blocks {
		mask := masks[0]
		if block.Module.Bool("sliding") {
			mask = masks[1]
		}
		x = t.Run(block.Module, x, mask, angles).(layers.Tensor)
	}
	return layers.Fields{{Name: "last_hidden_state", Value: t.Child(m, "norm", x)}}
}

func (d decoder) layerForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x := args[0].(layers.Tensor)
	attended := t.ChildOf(m, "self_attn", t.Child(m, "input_layernorm", x), args[1], args[2]).(layers.Tensor)
	if d.sandwich {
		x = t.Op("add.Tensor", x, t.Child(m, "post_attention_layernorm", attended))
		inner := t.Child(m, "mlp", t.Child(m, "pre_feedforward_layernorm", x))
		return t.Op("add.Tensor", x, t.Child(m, "post_feedforward_layernorm", inner))
	}
	x = t.Op("add.Tensor", x, attended)
	return t.Op("add.Tensor", x, t.Child(m, "mlp", t.Child(m, "post_attention_layernorm", x)))
}

func (d decoder) attentionForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, mask := args[0].(layers.Tensor), optional(t, args, 1)
	angles, _ := args[2].([]layers.Tensor)
	size := m.Int("head_dim")
	var q, k, v layers.Tensor
	if d.fused {
		q, k, v = fusedHeads(t, m, x, size)
	} else {
		heads := func(projection, norm string) layers.Tensor {
			s := x.Shape()
			h := t.Op("view", t.Child(m, projection, x), []int{s[0], s[1], -1, size})
			if d.headNorm && norm != "" {
				h = t.Child(m, norm, h)
			}
			return t.Op("transpose.int", h, 1, 2)
		}
		q, k = heads("q_proj", "q_norm"), heads("k_proj", "k_norm")
		v = heads("v_proj", "")
	}
	cos, sin := t.Op("unsqueeze", angles[0], 1), t.Op("unsqueeze", angles[1], 1)
	turn := func(x layers.Tensor) layers.Tensor { return rotate(t, x, cos, sin) }
	if d.fused {
		turn = func(x layers.Tensor) layers.Tensor {
			turned := cos.Shape()[3]
			part := rotate(t, t.Op("slice.Tensor", x, 3, 0, turned), cos, sin)
			return t.Op("cat", []layers.Tensor{part, t.Op("slice.Tensor", x, 3, turned, math.MaxInt64)}, -1)
		}
	}
	q = turn(q)
	a := attention{
		scaling: m.Float("scaling"), groups: m.Int("groups"), softcap: m.Float("softcap"), eager: m.Bool("eager"),
		window: m.Int("window"),
	}
	return t.Child(m, "o_proj", a.run(t, m, q, turn(k), v, mask))
}

// fusedHeads returns queries, keys and values out of one projection.
func fusedHeads(t *layers.Trace, m *layers.Module, x layers.Tensor, size int) (q, k, v layers.Tensor) {
	qkv, s := t.Child(m, "qkv_proj", x), x.Shape()
	queries, keys := m.Int("queries"), m.Int("keys")
	part := func(from, to int) layers.Tensor {
		h := t.Op("view", t.Op("slice.Tensor", qkv, 2, from, to), []int{s[0], s[1], -1, size})
		return t.Op("transpose.int", h, 1, 2)
	}
	return part(0, queries), part(queries, queries+keys), part(queries+keys, math.MaxInt64)
}

func (d decoder) mlpForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	if d.fused {
		halves := t.Tensors("chunk", t.Child(m, "gate_up_proj", x), 2, -1)
		return t.Child(m, "down_proj", t.Op("mul.Tensor", halves[1], t.Child(m, "activation_fn", halves[0])))
	}
	gate := t.Child(m, "act_fn", t.Child(m, "gate_proj", x))
	return t.Child(m, "down_proj", t.Op("mul.Tensor", gate, t.Child(m, "up_proj", x)))
}

func (d decoder) normForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	mean := t.Op("mean.dim", t.Op("pow.Tensor_Scalar", x, 2), []int{-1}, true)
	x = t.Op("mul.Tensor", x, t.Op("rsqrt", t.Op("add.Tensor", mean, m.Float("eps"))))
	w := t.Param(m, "weight")
	if d.scaled {
		return t.Op("mul.Tensor", x, t.Op("add.Tensor", w, 1.0))
	}
	return t.Op("mul.Tensor", w, x)
}

func scaledEmbeddingForward(t *layers.Trace, m *layers.Module, ids layers.Tensor) layers.Tensor {
	return t.Op("mul.Tensor", t.Op("embedding", t.Param(m, "weight"), ids), t.Param(m, "embed_scale"))
}

// causalLM predicts the next token.
func causalLM(t *layers.Trace, m *layers.Module, x, _ layers.Tensor) any {
	logits := t.Child(m, "lm_head", t.Wanted(x))
	if bound := m.Float("final_logit_softcapping"); bound != 0 {
		logits = t.Op("mul.Tensor", t.Op("tanh", t.Op("div.Tensor", logits, bound)), bound)
	}
	return layers.Fields{{Name: "logits", Value: logits}}
}
