package transformers

import (
	"encoding/json"
	"math"
	"strconv"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
)

// gemma4Text is the decoder of transformers/models/gemma4/modeling_gemma4.py: layers that see all have larger heads, of
// which a part is turned; some models have experts beside the MLP.
var gemma4Text = func() *family.Family {
	x := mixture{
		block: "Block", router: "Router", experts: "Experts", number: 128, chosen: 8, numberKey: "num_experts",
		chosenKey: "top_k_experts", innerKey: "moe_intermediate_size", inner: 704,
	}
	d := decoder{
		model: "gemma4_text", class: module("gemma4", "Gemma4Text"), name: "Gemma4", vocabulary: 262144, hidden: 2304, inner: 9216,
		layers: 30, heads: 8, keys: 4, size: 256, positions: 131072, eps: 1e-6, act: "gelu_pytorch_tanh",
		actKey: "hidden_activation", pad: 0, ties: true, qkvBias: attentionBias, outBias: attentionBias, scaled: true,
		headNorm: headNorm{kind: eachHead}, names: sandwiched, scaling: unscaled, logitCap: true, noTokens: true, noTexts: true,
		ignored: sharedUnread, full: gemma4Full,
		window: gemma4Window,
		rope: rope{theta: 1e6, local: 10000, missing: map[string]any{
			"rope_type": "proportional", "partial_rotary_factor": json.Number("0.25"), "rope_theta": json.Number("1000000"),
		}},
		attend: func(d *decoder, c *family.Config, i int, s shape, attrs map[string]any) *layers.Module {
			_, slides := d.window(c, s.layers)
			attrs["same"] = c.Flag("attention_k_eq_v", false) && !slides(i)
			return d.sharing(c, i, s, attrs, 0)
		},
		feed: func(d *decoder, c *family.Config, i int, s shape) *layers.Module {
			if c.Flag("use_double_wide_mlp", false) && i >= s.layers-c.Number("num_kv_shared_layers", 0) {
				s.inner = min(2*s.inner, family.MaxSize)
			}
			return d.mlp(c, s.hidden, s.inner)
		},
		top: func(d *decoder, c *family.Config, s shape, m *layers.Module) {
			if c.Number("hidden_size_per_layer_input", 256) > 0 {
				d.perLayerTop(c, s, m, 256)
			}
		},
		more: func(d *decoder, c *family.Config, i int, s shape, layer *layers.Module) {
			layer.Class = d.class + "ScaledLayer"
			layer.Param("layer_scalar", 1)
			layer.Params[len(layer.Params)-1].Buffer = true
			if c.Number("hidden_size_per_layer_input", 256) > 0 {
				d.perLayer(c, i, s, layer, 256)
			}
			if c.Flag("enable_moe_block", false) {
				x.beside(d, c, s, layer)
			}
		},
		begin: func(t *layers.Trace, m *layers.Module, ids, x layers.Tensor, a *around) layers.Tensor {
			if m.Has("embed_tokens_per_layer") {
				a.perLayer = perLayerInputs(t, m, ids, x)
			}
			return x
		},
	}
	f := withSharing(d)
	x.join(f, d.class)
	f.Classes[d.class+"ScaledLayer"] = layers.Class{Forward: scaledLayerForward}
	f.Classes[d.class+"Router"] = layers.Class{Forward: gemma4RouterForward}
	return f
}()

// gemma4Window slides in all layers but every sixth and the last.
func gemma4Window(c *family.Config, layers int) (int, func(int) bool) {
	window, slides := pattern("", 6, 512)(c, layers)
	return window, func(i int) bool { return i != layers-1 && slides(i) }
}

// gemma4Full are the sizes of the layers that see all: of entries of their own, or of a list of layers that are not as
// the others.
func gemma4Full(c *family.Config, s shape) shape {
	all := c.Sub("per_layer_config")
	defer c.Adopt(all)
	if len(all.Fields) == 0 {
		s.size = c.Size("global_head_dim", 512)
		if c.Flag("attention_k_eq_v", false) {
			s.keys = c.Size("num_global_key_value_heads", s.keys)
		}
		return s
	}
	full, found, known := s, false, 0
	_, slides := gemma4Window(c, s.layers)
	for i := range s.layers {
		name := strconv.Itoa(i)
		if all.Fields[name] != nil {
			known++
		}
		one := all.Sub(name)
		size, keys := one.Size("head_dim", s.size), one.Size("num_key_value_heads", s.keys)
		all.Adopt(one)
		want := s
		if !slides(i) {
			if !found {
				full.size, full.keys, found = size, keys, true
			}
			want = full
		}
		if size != want.size || keys != want.keys {
			c.Unsupported("a per_layer_config in which layers of one type differ")
			return s
		}
	}
	if known != len(all.Fields) {
		c.Fail("per_layer_config", "has layers that are not there")
	}
	return full
}

// beside adds to a layer experts that see what it has before the MLP, with norms of their own.
func (x mixture) beside(d *decoder, c *family.Config, s shape, layer *layers.Module) {
	number, chosen := c.Size(x.numberKey, x.number), c.Size(x.chosenKey, x.chosen)
	if number > maxExperts || chosen > number {
		c.Fail(x.numberKey, "is %d, of which %d are chosen", number, chosen)
		return
	}
	router := layers.New(d.class+x.router, map[string]any{"chosen": chosen, "eps": c.Float("rms_norm_eps", d.eps)}).
		Param("scale", s.hidden).Param("per_expert_scale", number).
		Add("proj", layers.Linear(s.hidden, number, layers.NoBias))
	layer.Add("router", router).Add("experts", x.list(d, c, number, s.hidden, c.Size(x.innerKey, x.inner)))
	for _, name := range []string{"post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2"} {
		layer.Add(name, d.normModule(c, s.hidden))
	}
}

// gemma4RouterForward returns the ids and the weights of the experts of each token.
func gemma4RouterForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x := args[0].(layers.Tensor)
	hidden := x.Shape()[len(x.Shape())-1]
	x = t.Op("mul.Tensor", unweighted(t, x, m.Float("eps")), t.Param(m, "scale"))
	x = t.Child(m, "proj", t.Op("mul.Tensor", x, family.InverseSqrt(hidden)))
	best := t.Tensors("topk", t.Op("softmax.int", x, -1), m.Int("chosen"), -1)
	weights := t.Op("div.Tensor", best[0], t.Op("sum.dim_IntList", best[0], []int{-1}, true))
	of := t.Op("index.Tensor", t.Param(m, "per_expert_scale"), []layers.Tensor{best[1]})
	return []layers.Tensor{best[1], t.Op("mul.Tensor", weights, of)}
}

// scaledLayerForward is a layer whose result is multiplied with a number.
func scaledLayerForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, a, n := args[0].(layers.Tensor), args[1].(*around), m.Attrs["decoder"].(*decoder).names
	attended := t.ChildOf(m, n.attention, t.Child(m, n.before[0], x), a, m.Bool("sliding")).(layers.Tensor)
	x = t.Op("add.Tensor", x, t.Child(m, n.after[0], attended))
	fed := t.Child(m, n.mlp, t.Child(m, n.before[1], x))
	if m.Has("router") {
		routed := t.ChildOf(m, "router", x).([]layers.Tensor)
		mixed := t.ChildOf(m, "experts", t.Child(m, "pre_feedforward_layernorm_2", x), routed[0], routed[1]).(layers.Tensor)
		fed = t.Op("add.Tensor", t.Child(m, "post_feedforward_layernorm_1", fed), t.Child(m, "post_feedforward_layernorm_2", mixed))
	}
	x = t.Op("add.Tensor", x, t.Child(m, n.after[1], fed))
	if a.perLayer != nil {
		x = t.Op("add.Tensor", x, perLayerInput(t, m, x, a))
	}
	return t.Op("mul.Tensor", x, t.Param(m, "layer_scalar"))
}

// proportional are frequencies of heads of which a share is turned, as if all were: the others stand still.
func proportional(c *family.Config, p *family.Config, share float64, freq []float32) {
	factor, turned := positive(p, c, "factor", 1), int(math.Floor(share*float64(2*len(freq))/2))
	for i := range freq {
		if freq[i] /= float32(factor); i >= turned {
			freq[i] = 0
		}
	}
}
