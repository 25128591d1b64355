package transformers

import (
	"math"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
)

// deltaFamily is the family of a decoder of Qwen3-Next's kind: transformers/models/qwen3_next/modeling_qwen3_next.py
// and qwen3_5. Most layers walk the tokens by the gated delta rule, every fourth has an attention whose result has a
// gate. fused is set where one projection makes queries, keys, values and gates, group by group. x is nil where no
// layer has experts.
func deltaFamily(x *mixture, d decoder, fused bool) *family.Family {
	d.act, d.actKey, d.norm, d.rope = silu, hiddenAct, rootMeanPlusOne, rope{part: 0.25}
	d.qkvBias, d.outBias, d.headNorm = attentionBias, attentionBias, headNorm{kind: eachHead, norm: rootMeanPlusOne}
	d.noTexts, d.noTokens = !fused, !fused
	d.mixer = func(d *decoder, c *family.Config, i int, s shape) (string, *layers.Module) {
		attends := (i+1)%c.Size("full_attention_interval", 4) == 0
		if kinds := kinds(c, "layer_types", s.layers); kinds != nil {
			if attends = kinds[i] == fullAttention; !attends && kinds[i] != "linear_attention" {
				c.Unsupported("layers of the type " + kinds[i])
			}
		}
		if attends {
			return "", nil
		}
		return "linear_attn", d.delta(c, s.hidden, fused)
	}
	d.attend = func(d *decoder, c *family.Config, _ int, s shape, attrs map[string]any) *layers.Module {
		m := d.attention(c, s, attrs)
		*m.Child(d.names.q) = *layers.Linear(s.hidden, 2*s.heads*s.size, biased(c, d.qkvBias))
		return m
	}
	if x != nil {
		d.feed = x.feed
	}
	f := withMixer(d.family(), d.class, deltaForward)
	if x != nil {
		x.join(f, d.class)
	}
	f.Classes[d.class+"Attention"] = layers.Class{Forward: gatedAttentionForward}
	if !fused { // the text part of a model that sees
		f.Heads[0].Class = d.name + "TextModel"
		f.Encodes = f.Heads[0].Class
	}
	return f
}

// qwenMixture are the experts of these.
func qwenMixture(number, chosen, inner int) *mixture {
	return &mixture{
		block: "SparseMoeBlock", router: "TopKRouter", experts: "Experts", gate: "gate", number: number, chosen: chosen, inner: inner,
		numberKey: expertsKey, chosenKey: chosenKey, innerKey: "moe_intermediate_size", scores: softmaxOfAll, normalized: normTopK(true),
		dense: qwenDense,
		shared: func(d *decoder, c *family.Config, m *layers.Module, s shape) {
			m.Add("shared_expert", d.mlp(c, s.hidden, c.Size("shared_expert_intermediate_size", inner))).
				Add("shared_expert_gate", layers.Linear(s.hidden, 1, layers.NoBias))
		},
	}
}

// gatedAttentionForward takes the states of the tokens, what is around them, and whether the layer slides, which it
// does not. The projection into queries makes a gate beside each head.
func gatedAttentionForward(t *layers.Trace, m *layers.Module, args ...any) any {
	own, x, a := m.Attrs["decoder"].(*decoder), args[0].(layers.Tensor), args[1].(*around)
	n, s, size := own.names, x.Shape(), m.Int("head_dim")
	heads := func(x layers.Tensor, size int) layers.Tensor { return t.Op("view", x, []int{s[0], s[1], -1, size}) }
	both := parts(t, heads(t.Child(m, n.q, x), 2*size), size, size)
	turn := func(x layers.Tensor) layers.Tensor {
		angles := a.angles[0].([]layers.Tensor)
		return own.rope.turn(t, t.Op("transpose.int", x, 1, 2), t.Op("unsqueeze", angles[0], 1), t.Op("unsqueeze", angles[1], 1))
	}
	q := turn(t.Child(m, n.qNorm, both[0]))
	k := turn(t.Child(m, n.kNorm, heads(t.Child(m, n.k, x), size)))
	v := t.Op("transpose.int", heads(t.Child(m, n.v, x), size), 1, 2)
	mask, _ := a.masks[0].(layers.Tensor)
	how := family.Attention{Scaling: m.Float("scaling"), Groups: m.Int("groups"), Eager: m.Bool("eager")}
	out := how.Run(t, m, q, k, v, mask)
	gate := t.Op("reshape", both[1], []int{s[0], s[1], -1})
	return t.Child(m, n.o, t.Op("mul.Tensor", out, t.Op("sigmoid", gate)))
}

// delta is the mixer.
func (d *decoder) delta(c *family.Config, hidden int, fused bool) *layers.Module {
	groups, heads := c.Size("linear_num_key_heads", 16), c.Size("linear_num_value_heads", 32)
	key, value := c.Size("linear_key_head_dim", 128), c.Size("linear_value_head_dim", 128)
	if heads%groups != 0 {
		c.Fail("linear_num_value_heads", "is %d, no multiple of %d", heads, groups)
		heads = groups
	}
	keys, values := groups*key, heads*value
	m := layers.New(d.class+"Mixer", map[string]any{"groups": groups, "heads": heads, "key": key, "value": value, "fused": fused}).
		Param("A_log", heads).Param("dt_bias", heads).
		Add("conv1d", d.causalConv(c, 2*keys+values, c.Size("linear_conv_kernel_dim", 4), false)).
		Add("act", c.Activation(c.Text(d.actKey, d.act))).
		Add("norm", d.normOf(c, 0, value)).
		Add("out_proj", layers.Linear(values, hidden, layers.NoBias))
	if fused {
		return m.Add("in_proj_qkvz", layers.Linear(hidden, 2*keys+2*values, layers.NoBias)).
			Add("in_proj_ba", layers.Linear(hidden, 2*heads, layers.NoBias))
	}
	return m.Add("in_proj_qkv", layers.Linear(hidden, 2*keys+values, layers.NoBias)).
		Add("in_proj_z", layers.Linear(hidden, values, layers.NoBias)).
		Add("in_proj_b", layers.Linear(hidden, heads, layers.NoBias)).
		Add("in_proj_a", layers.Linear(hidden, heads, layers.NoBias))
}

// projected returns what the projections make of the states of tokens: queries, keys and values side by side, the gate
// of [batch, tokens, heads, value], and of each head what the share and the decay are made of.
func projected(t *layers.Trace, m *layers.Module, x layers.Tensor) (qkv, gate, share, decay layers.Tensor) {
	s, groups, heads, key, value := x.Shape(), m.Int("groups"), m.Int("heads"), m.Int("key"), m.Int("value")
	shaped := func(x layers.Tensor, shape ...int) layers.Tensor {
		return t.Op("reshape", x, append([]int{s[0], s[1]}, shape...))
	}
	if !m.Bool("fused") {
		return t.Child(m, "in_proj_qkv", x), shaped(t.Child(m, "in_proj_z", x), heads, value),
			t.Child(m, "in_proj_b", x), t.Child(m, "in_proj_a", x)
	}
	each := heads / groups
	made := parts(t, shaped(t.Child(m, "in_proj_qkvz", x), groups, 2*key+2*each*value), key, key, each*value, each*value)
	two := parts(t, shaped(t.Child(m, "in_proj_ba", x), groups, 2*each), each, each)
	qkv = t.Op("cat", []layers.Tensor{shaped(made[0], -1), shaped(made[1], -1), shaped(made[2], -1)}, -1)
	return qkv, shaped(made[3], heads, value), shaped(two[0], heads), shaped(two[1], heads)
}

// deltaForward takes the states of the tokens and what is around them.
func deltaForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, a := args[0].(layers.Tensor), args[1].(*around)
	s, groups, heads, key, value := x.Shape(), m.Int("groups"), m.Int("heads"), m.Int("key"), m.Int("value")
	qkv, gate, share, decay := projected(t, m, a.withoutPadding(t, x))
	qkv = t.Child(m, "act", t.Child(m, "conv1d", qkv))
	made := parts(t, qkv, groups*key, groups*key, heads*value)
	unit := func(x layers.Tensor) layers.Tensor { // of length 1
		x = t.Op("view", x, []int{s[0], s[1], groups, key})
		squares := t.Op("sum.dim_IntList", t.Op("mul.Tensor", x, x), []int{-1}, true)
		return t.Op("mul.Tensor", x, t.Op("rsqrt", t.Op("add.Tensor", squares, 1e-6)))
	}
	q := t.Op("div.Tensor", unit(made[0]), math.Sqrt(float64(key)))
	v := t.Op("view", made[2], []int{s[0], s[1], heads, value})
	decay = t.Op("mul.Tensor", rates(t, m), t.Op("softplus", t.Op("add.Tensor", decay, t.Param(m, "dt_bias"))))
	y := t.Recur(m, "delta_rule", q, unit(made[1]), v, decay, t.Op("sigmoid", share))
	y = t.Op("mul.Tensor", t.Child(m, "norm", y), t.Op("silu", gate))
	return t.Child(m, "out_proj", t.Op("reshape", y, []int{s[0], s[1], heads * value}))
}
