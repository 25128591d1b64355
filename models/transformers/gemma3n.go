package transformers

import (
	"math"
	"strconv"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
	"github.com/optimem/optimem/tensor"
)

// The decoders of Gemma 3n and 4, of transformers/models/gemma3n/modeling_gemma3n.py and gemma4: layers have embeddings
// of their own for every token, and the last ones see the keys and values of the last one before them that is of their
// kind.

// sharedUnread are the weights of layers that have no keys of their own: checkpoints hold them, and nothing reads them.
var sharedUnread = []string{`\.self_attn\.(k_proj|v_proj|k_norm|v_norm)\.weight$`}

// gemma3nText is the decoder of Gemma 3n, whose layers pass on several states of a token of which they compute one.
var gemma3nText = func() *family.Family {
	d := decoder{
		model: "gemma3n_text", class: module("gemma3n", "Gemma3nText"), name: "Gemma3n", vocabulary: 262400, hidden: 2048, inner: 16384,
		layers: 35, heads: 8, keys: 2, size: 256, positions: 32768, eps: 1e-6, act: "gelu_pytorch_tanh",
		actKey: "hidden_activation", pad: 0, ties: true, qkvBias: attentionBias, outBias: attentionBias, scaled: true,
		headNorm: headNorm{kind: eachHead}, names: sandwiched, scaling: unscaled, logitCap: true, logitBound: 30,
		noTokens: true, noTexts: true, window: pattern("", 5, 512), ignored: sharedUnread,
		rope: rope{theta: 1e6, local: 10000, localKey: "rope_local_base_freq"},
		attend: func(d *decoder, c *family.Config, i int, s shape, attrs map[string]any) *layers.Module {
			return d.sharing(c, i, s, attrs, 15)
		},
		feed: func(d *decoder, c *family.Config, i int, s shape) *layers.Module {
			m := d.mlp(c, s.hidden, sizeOf(c, innerKey, d.inner, i))
			m.Class, m.Attrs["sparsity"] = d.class+"SparseMLP", sparsity(c, i, s.layers)
			return m
		},
		top: func(d *decoder, c *family.Config, s shape, m *layers.Module) {
			d.perLayerTop(c, s, m, 256)
			number := altNumber(c)
			each := func() *layers.Module {
				return c.Repeat(number-1, func(int) *layers.Module { return layers.Linear(s.hidden, s.hidden, layers.NoBias) })
			}
			m.Add("altup_projections", each()).Add("altup_unembed_projections", each())
		},
		more: func(d *decoder, c *family.Config, i int, s shape, layer *layers.Module) {
			layer.Class = d.class + "AltLayer"
			d.perLayer(c, i, s, layer, 256)
			rank, number := c.Size("laurel_rank", 64), altNumber(c)
			layer.Attrs["active"], layer.Attrs["corrected"] = c.Number("altup_active_idx", 0), c.Flag("altup_correct_scale", true)
			if at := layer.Int("active"); at < 0 || at >= number {
				c.Fail("altup_active_idx", "is %d of %d", at, number)
			}
			linear := func(from, to int) *layers.Module { return layers.Linear(from, to, layers.NoBias) }
			layer.Add("altup", layers.New(d.class+"Held", nil).Param("correct_output_scale", s.hidden).
				Add("correction_coefs", linear(number, number)).Add("prediction_coefs", linear(number, number*number)).
				Add("modality_router", linear(s.hidden, number)).Add("router_norm", d.normModule(c, s.hidden)))
			layer.Add("laurel", layers.New(d.class+"LaurelBlock", nil).Add("linear_left", linear(s.hidden, rank)).
				Add("linear_right", linear(rank, s.hidden)).Add("post_laurel_norm", d.normModule(c, s.hidden)))
		},
		begin: func(t *layers.Trace, m *layers.Module, ids, x layers.Tensor, a *around) layers.Tensor {
			a.perLayer = perLayerInputs(t, m, ids, x)
			return altered(t, m, x)
		},
		end: single,
	}
	f := withSharing(d)
	f.Classes[d.class+"AltLayer"] = layers.Class{Forward: altLayerForward}
	f.Classes[d.class+"SparseMLP"] = layers.Unary(sparseMLPForward)
	f.Classes[d.class+"LaurelBlock"] = layers.Unary(func(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
		return t.Op("add.Tensor", x, family.Through("linear_left", "linear_right", "post_laurel_norm")(t, m, x))
	})
	return f
}()

// unscaled is for scores that are multiplied with nothing.
func unscaled(*family.Config, int) float64 { return 1 }

// withSharing is the family of a decoder whose layers share keys, under the names that its classes have.
func withSharing(d decoder) *family.Family {
	f := d.family()
	f.Classes[d.class+"Attention"] = layers.Class{Forward: sharingForward}
	f.Classes[d.class+"Held"] = layers.Class{Forward: func(t *layers.Trace, m *layers.Module, _ ...any) any {
		t.Fail("%s is computed by the layer that it is in", m.Class)
		return nil
	}}
	f.Heads[0].Class, f.Encodes = d.name+"TextModel", d.name+"TextModel"
	return f
}

// sizeOf is an entry that is a size, or a list of one for each layer.
func sizeOf(c *family.Config, names string, missing, layer int) int {
	key, v := c.Value(names)
	list, isList := v.([]any)
	if !isList {
		return c.Size(names, missing)
	}
	sizes := numbers(c, key)
	if layer >= len(list) || layer >= len(sizes) || sizes[layer] < 1 {
		c.Fail(key, "has no positive size for layer %d", layer)
		return 1
	}
	return min(sizes[layer], family.MaxSize)
}

// sparsity is the share of a layer's gates that are closed.
func sparsity(c *family.Config, layer, layers int) float64 {
	const key = "activation_sparsity_pattern"
	if c.Fields[key] == nil {
		if layers > 10 && layer < 10 {
			return 0.95
		}
		return 0
	}
	share := floats(c, key, layers)[layer]
	if !(share >= 0 && share < 1) {
		c.Fail(key, "has the share %v", share)
		return 0
	}
	return share
}

// altNumber is how many states of a token layers pass on.
func altNumber(c *family.Config) int {
	n := c.Size("altup_num_inputs", 4)
	if n > 64 {
		c.Fail("altup_num_inputs", "is %d, more than 64", n)
		return 1
	}
	return n
}

// perLayerTop adds to a model the embeddings that its layers have of their own.
func (d *decoder) perLayerTop(c *family.Config, s shape, m *layers.Module, missing int) {
	size, words := c.Size("hidden_size_per_layer_input", missing), c.Size("vocab_size_per_layer_input", 262144)
	if c.Err != nil || s.layers*size > family.MaxSize {
		c.Fail("hidden_size_per_layer_input", "is %d, for %d layers", size, s.layers)
		return
	}
	m.Attrs["layers"], m.Attrs["per_layer"], m.Attrs["hidden"] = s.layers, size, s.hidden
	if m.Attrs["per_layer_words"] = 0; words < c.Size("vocab_size", d.vocabulary) {
		m.Attrs["per_layer_words"] = words
	}
	m.Add("embed_tokens_per_layer", d.scaledWords(words, s.layers*size, size)).
		Add("per_layer_model_projection", layers.Linear(s.hidden, s.layers*size, layers.NoBias)).
		Add("per_layer_projection_norm", d.normModule(c, size))
}

// perLayer adds to a layer what it does with its own embeddings.
func (d *decoder) perLayer(c *family.Config, i int, s shape, layer *layers.Module, missing int) {
	size := c.Size("hidden_size_per_layer_input", missing)
	layer.Attrs["index"] = i
	layer.Add("act_fn", d.activation(c)).
		Add("per_layer_input_gate", layers.Linear(s.hidden, size, layers.NoBias)).
		Add("per_layer_projection", layers.Linear(size, s.hidden, layers.NoBias)).
		Add("post_per_layer_input_norm", d.normModule(c, s.hidden))
}

// perLayerInputs returns what the layers have of their own of each token: [batch, tokens, layers, size].
func perLayerInputs(t *layers.Trace, m *layers.Module, ids, x layers.Tensor) layers.Tensor {
	s := ids.Shape()
	each := []int{s[0], s[1], m.Int("layers"), m.Int("per_layer")}
	if n := m.Int("per_layer_words"); n > 0 { // the others have those of the first
		ids = t.Op("mul.Tensor", ids, t.Op("to.dtype", t.Op("lt.Scalar", ids, n), tensor.Int64))
	}
	words := t.Op("view", t.Child(m, "embed_tokens_per_layer", ids), each)
	made := t.Op("mul.Tensor", t.Child(m, "per_layer_model_projection", x), family.InverseSqrt(m.Int("hidden")))
	made = t.Child(m, "per_layer_projection_norm", t.Op("view", made, each))
	return t.Op("mul.Tensor", t.Op("add.Tensor", made, words), family.InverseSqrt(2))
}

// perLayerInput returns what a layer makes of a state and of what it has of its own of the token.
func perLayerInput(t *layers.Trace, m *layers.Module, x layers.Tensor, a *around) layers.Tensor {
	own := t.Op("select.int", a.perLayer, 2, m.Int("index"))
	gate := t.Child(m, "act_fn", t.Child(m, "per_layer_input_gate", x))
	y := t.Child(m, "per_layer_projection", t.Op("mul.Tensor", gate, own))
	return t.Child(m, "post_per_layer_input_norm", y)
}

// sharing makes the attention of layer i: with keys and values of its own, or with those of a layer before it. missing
// is the default of how many of the last layers have none.
func (d *decoder) sharing(c *family.Config, i int, s shape, attrs map[string]any, missing int) *layers.Module {
	first := s.layers - c.Number("num_kv_shared_layers", missing)
	if first < 1 || first > s.layers {
		c.Fail("num_kv_shared_layers", "is %d of %d", s.layers-first, s.layers)
		first = s.layers
	}
	if attrs["shares"] = i >= first; i >= first {
		_, slides := d.window(c, s.layers)
		for k := first - 1; slides(k) != slides(i); k-- {
			if k == 0 {
				c.Fail("num_kv_shared_layers", "is %d, and no layer before those is of the kind of layer %d", s.layers-first, i)
				break
			}
		}
	}
	attrs["eps"] = c.Float("rms_norm_eps", d.eps)
	n, queries, keys := d.names, s.heads*s.size, s.keys*s.size
	m := layers.New(d.class+"Attention", attrs).
		Add(n.q, layers.Linear(s.hidden, queries, biased(c, d.qkvBias))).
		Add(n.qNorm, d.normModule(c, s.size)).
		Add(n.o, layers.Linear(queries, s.hidden, biased(c, d.outBias)))
	if i >= first {
		return m
	}
	m.Add(n.k, layers.Linear(s.hidden, keys, biased(c, d.qkvBias))).Add(n.kNorm, d.normModule(c, s.size))
	if attrs["same"] != true {
		m.Add(n.v, layers.Linear(s.hidden, keys, biased(c, d.qkvBias)))
	}
	return m
}

// remembered are the keys and values of a module, which others see, too. In a step it is the module that remembers
// them.
type remembered struct {
	by   *layers.Module
	k, v layers.Tensor
}

// sharingForward takes the states of the tokens, what is around them, and whether the layer slides.
func sharingForward(t *layers.Trace, m *layers.Module, args ...any) any {
	own, x, a := m.Attrs["decoder"].(*decoder), args[0].(layers.Tensor), args[1].(*around)
	kind := 0
	if args[2].(bool) {
		kind = 1
	}
	n, s, size := own.names, x.Shape(), m.Int("head_dim")
	heads := func(x layers.Tensor) layers.Tensor { return t.Op("view", x, []int{s[0], s[1], -1, size}) }
	angles := a.angles[kind].([]layers.Tensor)
	cos, sin := t.Op("unsqueeze", angles[0], 1), t.Op("unsqueeze", angles[1], 1)
	turn := func(x layers.Tensor) layers.Tensor { return own.rope.turn(t, t.Op("transpose.int", x, 1, 2), cos, sin) }
	q := turn(t.Child(m, n.qNorm, heads(t.Child(m, n.q, x))))
	if !m.Bool("shares") {
		k := heads(t.Child(m, n.k, x))
		v := k
		if m.Has(n.v) {
			v = heads(t.Child(m, n.v, x))
		}
		v = t.Op("transpose.int", unweighted(t, v, m.Float("eps")), 1, 2)
		a.shared[kind] = remembered{m, turn(t.Child(m, n.kNorm, k)), v}
	}
	of := a.shared[kind]
	if of.by == nil {
		t.Fail("no layer before has keys of this kind")
	}
	if _, steps := t.Steps(); steps && of.by != m {
		of.k, of.v = nil, nil // they are where that module wrote them
	}
	mask, _ := a.masks[kind].(layers.Tensor)
	how := family.Attention{Scaling: m.Float("scaling"), Groups: m.Int("groups"), Eager: m.Bool("eager"), Window: m.Int("window")}
	return t.Child(m, n.o, how.Run(t, of.by, q, of.k, of.v, mask))
}

// magnitude is the root of the mean of the squares, of which least is the least.
func magnitude(t *layers.Trace, x layers.Tensor, least float64) layers.Tensor {
	mean := t.Op("mean.dim", t.Op("mul.Tensor", x, x), []int{-1}, true)
	if least > 0 {
		mean = t.Op("clamp", mean, least)
	}
	return t.Op("sqrt", mean)
}

// asLarge scales x to a magnitude.
func asLarge(t *layers.Trace, x, size layers.Tensor) layers.Tensor {
	return t.Op("div.Tensor", t.Op("mul.Tensor", x, size), magnitude(t, x, 1e-5))
}

// altered returns the states of tokens that layers pass on, [batch, tokens, number, hidden], as large as the first.
func altered(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	states, size, list := []layers.Tensor{x}, magnitude(t, x, 0), m.Child("altup_projections")
	for i := range list.Children {
		states = append(states, asLarge(t, t.Child(list, strconv.Itoa(i), x), size))
	}
	return t.Op("stack", states, 2)
}

// single makes one of the states of tokens.
func single(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	of := func(i int) layers.Tensor { return t.Op("select.int", x, 2, i) }
	states, list := []layers.Tensor{of(0)}, m.Child("altup_unembed_projections")
	size := magnitude(t, states[0], 0)
	for i := range list.Children {
		states = append(states, asLarge(t, t.Child(list, strconv.Itoa(i), of(i+1)), size))
	}
	return t.Op("mean.dim", t.Op("stack", states, 2), []int{2}, false)
}

// altLayerForward takes the states of tokens, of which it predicts what becomes of them, computes that of one, and
// corrects the others by it.
func altLayerForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, a, n := args[0].(layers.Tensor), args[1].(*around), m.Attrs["decoder"].(*decoder).names
	s, alt, active := x.Shape(), m.Child("altup"), m.Int("active")
	of := func(x layers.Tensor) layers.Tensor { return t.Op("select.int", x, 2, active) }
	kinds := func(x layers.Tensor) layers.Tensor {
		x = t.Op("mul.Tensor", t.Child(alt, "router_norm", x), 1/float64(s[3]))
		return t.Op("tanh", t.Child(alt, "modality_router", x))
	}
	shares := t.Op("view", t.Child(alt, "prediction_coefs", kinds(of(x))), []int{s[0], s[1], s[2], s[2]})
	predicted := t.Op("add.Tensor", t.Op("matmul", shares, x), x)

	first := of(predicted)
	seen := t.Child(m, n.before[0], first)
	attended := t.ChildOf(m, n.attention, seen, a, m.Bool("sliding")).(layers.Tensor)
	y := t.Op("add.Tensor", t.Op("add.Tensor", first, t.Child(m, n.after[0], attended)), t.Child(m, "laurel", seen))
	y = t.Op("div.Tensor", y, math.Sqrt2)
	y = t.Op("add.Tensor", y, t.Child(m, n.after[1], t.Child(m, n.mlp, t.Child(m, n.before[1], y))))

	by := t.Op("add.Tensor", t.Child(alt, "correction_coefs", kinds(y)), 1.0)
	news := t.Op("unsqueeze", t.Op("sub.Tensor", y, first), 2)
	corrected := t.Op("add.Tensor", t.Op("mul.Tensor", news, t.Op("unsqueeze", by, -1)), predicted)
	first = of(corrected)
	if m.Bool("corrected") {
		first = t.Op("mul.Tensor", first, t.Param(alt, "correct_output_scale"))
	}
	first = t.Op("unsqueeze", perLayerInput(t, m, first, a), 2)
	rest := t.Op("add.Tensor", t.Op("slice.Tensor", corrected, 2, 1, math.MaxInt64), first)
	return t.Op("cat", []layers.Tensor{t.Op("slice.Tensor", corrected, 2, 0, 1), rest}, 2)
}

// sparseMLPForward closes all gates but the share that is the furthest above the mean, as if they were spread normally.
func sparseMLPForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	n := m.Attrs["decoder"].(*decoder).names
	gate := t.Child(m, n.gate, x)
	if share := m.Float("sparsity"); share > 0 {
		by := math.Sqrt2 * math.Erfinv(2*share-1)
		mean, spread := t.Op("mean.dim", gate, []int{-1}, true), t.Op("std.dim", gate, []int{-1}, false, true)
		least := t.Op("add.Tensor", mean, t.Op("mul.Tensor", spread, by))
		gate = t.Op("relu", t.Op("sub.Tensor", gate, least))
	}
	return t.Child(m, n.down, t.Op("mul.Tensor", t.Child(m, n.act, gate), t.Child(m, n.up, x)))
}
