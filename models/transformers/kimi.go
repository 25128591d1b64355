package transformers

import (
	"math"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
)

// kimiLinear is the decoder of transformers/models/kimi_linear/modeling_kimi_linear.py: most layers walk the tokens by
// the delta rule, with a decay for each element of a key; the others attend to latents, without positions.
var kimiLinear = func() *family.Family {
	d := decoder{
		model: "kimi_linear", class: module("kimi_linear", "KimiLinear"), name: "KimiLinear", vocabulary: 163840, hidden: 2304, inner: 9216,
		layers: 27, heads: 32, keys: 32, positions: 1048576, eps: 1e-5, pad: 163839, noTexts: true, noTokens: true, still: true,
		latents: latents{128, 128, 0},
		renames: append([]string{
			".self_attn.f_a_proj.", ".self_attn.forget_gate.f_a_proj.", ".self_attn.f_b_proj.", ".self_attn.forget_gate.f_b_proj.",
			".self_attn.dt_bias", ".self_attn.forget_gate.dt_bias", ".self_attn.A_log", ".self_attn.forget_gate.A_log",
		}, mixtralNames...),
		mixer: func(d *decoder, c *family.Config, i int, s shape) (string, *layers.Module) {
			if kimiAttends(c, i, s.layers) {
				return "", nil
			}
			return "self_attn", d.kimiDelta(c, s.hidden)
		},
	}
	f := latentFamily(mixture{
		block: "MoE", router: "TopkRouter", experts: "Experts", gate: "gate", number: 256, chosen: 8, inner: 1024, numberKey: expertsKey,
		chosenKey: "num_experts_per_tok|num_experts_per_token", innerKey: "moe_intermediate_size", scores: sigmoids,
		normalized: func(c *family.Config) bool { return c.Flag("norm_topk_prob|moe_renormalize", true) },
		dense:      listedDense(1), shared: sharedExperts(1024, 1), more: correctedGroups(1, 1, 2.446),
	}, d)
	f = withMixer(f, d.class, kimiDeltaForward)
	f.Classes[d.class+"ForgetGate"] = layers.Unary(forgetGateForward)
	return f
}()

// kimiAttends says whether a layer attends: as a list of kinds says, or lists of the layers of each kind, counted from
// 1.
func kimiAttends(c *family.Config, i, count int) bool {
	if kinds := kinds(c, "layer_types", count); kinds != nil {
		return kinds[i] == fullAttention
	}
	lists := c.Sub("linear_attn_config")
	defer c.Adopt(lists)
	if lists.Fields["full_attn_layers"] == nil {
		return i > 0 && i%4 == 0
	}
	for _, n := range numbers(lists, "full_attn_layers") {
		if n == i+1 {
			return true
		}
	}
	return false
}

// kimiDelta is the mixer. The convolution is one, or, in the first files, one for queries, keys and values each.
func (d *decoder) kimiDelta(c *family.Config, hidden int) *layers.Module {
	lists := c.Sub("linear_attn_config")
	size := lists.Size("head_dim", c.Size("linear_head_dim", 128))
	heads := lists.Size("num_heads", c.Size("linear_num_heads", 32))
	taps := lists.Size("short_conv_kernel_size", c.Size("linear_conv_kernel_dim", 4))
	c.Adopt(lists)
	linear := func(from, to int) *layers.Module { return layers.Linear(from, to, layers.NoBias) }
	width := heads * size
	m := layers.New(d.class+"Mixer", map[string]any{"heads": heads, "size": size}).
		Add("act", c.Activation(c.Text(d.actKey, silu))).
		Add("forget_gate", layers.New(d.class+"ForgetGate", map[string]any{"heads": heads, "size": size}).
			Param("A_log", 1, 1, heads, 1).Param("dt_bias", width).
			Add("f_a_proj", linear(hidden, size)).Add("f_b_proj", linear(size, width))).
		Add("b_proj", linear(hidden, heads)).Add("g_a_proj", linear(hidden, size)).Add("g_b_proj", linear(size, width)).
		Add("o_norm", d.normModule(c, size)).Add("o_proj", linear(width, hidden))
	for _, name := range []string{"q", "k", "v"} {
		m.Add(name+"_proj", linear(hidden, width))
	}
	if c.Whole || !c.Holds("q_conv1d.weight") {
		return m.Add("conv1d", d.causalConv(c, 3*width, taps, false))
	}
	for _, name := range []string{"q", "k", "v"} {
		m.Add(name+"_conv1d", d.causalConv(c, width, taps, false))
	}
	return m
}

// forgetGateForward returns the decay of each element of keys.
func forgetGateForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	s := x.Shape()
	x = t.Op("add.Tensor", t.Child(m, "f_b_proj", t.Child(m, "f_a_proj", x)), t.Param(m, "dt_bias"))
	x = t.Op("view", x, []int{s[0], s[1], m.Int("heads"), m.Int("size")})
	return t.Op("mul.Tensor", t.Op("neg", t.Op("exp", t.Param(m, "A_log"))), t.Op("softplus", x))
}

// kimiDeltaForward takes the states of the tokens and what is around them.
func kimiDeltaForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, a := args[0].(layers.Tensor), args[1].(*around)
	s, heads, size := x.Shape(), m.Int("heads"), m.Int("size")
	x = a.withoutPadding(t, x)
	var qkv []layers.Tensor
	for _, name := range []string{"q", "k", "v"} {
		y := t.Child(m, name+"_proj", x)
		if conv := name + "_conv1d"; m.Has(conv) {
			y = t.Child(m, "act", t.Child(m, conv, y))
		}
		qkv = append(qkv, y)
	}
	if m.Has("conv1d") {
		y := t.Child(m, "act", t.Child(m, "conv1d", t.Op("cat", qkv, -1)))
		qkv = parts(t, y, heads*size, heads*size, heads*size)
	}
	for i := range qkv {
		qkv[i] = t.Op("view", qkv[i], []int{s[0], s[1], heads, size})
	}
	unit := func(x layers.Tensor) layers.Tensor { // of length 1
		squares := t.Op("sum.dim_IntList", t.Op("mul.Tensor", x, x), []int{-1}, true)
		return t.Op("div.Tensor", x, t.Op("sqrt", t.Op("add.Tensor", squares, 1e-6)))
	}
	q := t.Op("div.Tensor", unit(qkv[0]), math.Sqrt(float64(size)))
	share := t.Op("sigmoid", t.Child(m, "b_proj", x))
	y := t.Recur(m, "delta_rule", q, unit(qkv[1]), qkv[2], t.Child(m, "forget_gate", x), share)
	gate := t.Op("view", t.Child(m, "g_b_proj", t.Child(m, "g_a_proj", x)), []int{s[0], s[1], heads, size})
	y = t.Op("mul.Tensor", t.Child(m, "o_norm", y), t.Op("sigmoid", gate))
	return t.Child(m, "o_proj", t.Op("reshape", y, []int{s[0], s[1], heads * size}))
}
