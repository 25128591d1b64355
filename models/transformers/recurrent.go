package transformers

import (
	"encoding/json"
	"math"

	"github.com/optimem/optimem/layers"
)

// recurrents are the families whose layers, or some of them, keep a state of a fixed size in place of keys and values.
var recurrents = []*family{mamba, mamba2, lfm2}

// kinds returns the entry that says of what kind each layer is, nil where the configuration does not.
func (c *config) kinds(key string, layers int) []string {
	key, v := c.value(key)
	if v == nil {
		return nil
	}
	list, isList := v.([]any)
	if !isList || len(list) != layers {
		c.fail(key, "is %s, not a list for %d layers", short(v), layers)
		return nil
	}
	names := make([]string, len(list))
	for i, v := range list {
		names[i], _ = v.(string)
	}
	return names
}

// causalConv is a convolution along the tokens, of each channel by itself: a Conv1d in Python.
func (d *decoder) causalConv(c *config, channels, taps int, bias bool) *layers.Module {
	if taps < 2 {
		c.fail("", "a convolution of %d taps", taps)
		taps = 2
	}
	m := layers.New(d.class+"CausalConv", nil).Param("weight", channels, 1, taps)
	if bias {
		m.Param("bias", channels)
	}
	return m
}

// causalConvForward takes [batch, tokens, channels].
func causalConvForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	w := t.Param(m, "weight")
	s := w.Shape()
	var bias layers.Tensor
	if len(m.Params) > 1 {
		bias = t.Param(m, "bias")
	}
	return t.Recur(m, "causal_conv", x, t.Op("view", w, []int{s[0], s[2]}), bias)
}

// withoutPadding makes what is no token zeros, so that no state remembers it.
func (a *around) withoutPadding(t *layers.Trace, x layers.Tensor) layers.Tensor {
	if a.padding == nil {
		return x
	}
	return t.Op("mul.Tensor", x, t.Op("unsqueeze", a.padding, -1))
}

// parts cuts the last dimension into parts of the given sizes.
func parts(t *layers.Trace, x layers.Tensor, sizes ...int) []layers.Tensor {
	return t.Tensors("split_with_sizes", x, sizes, -1)
}

// selective is the mixer of Mamba 1: transformers/models/mamba/modeling_mamba.py.
func (d *decoder) selective(c *config, hidden int) *layers.Module {
	inner, state := int(c.float("expand", 2)*float64(hidden)), c.size("state_size", 16)
	rank := (hidden + 15) / 16
	if v, isText := c.fields["time_step_rank"].(string); !isText || v != "auto" {
		rank = c.size("time_step_rank", rank)
	}
	if inner < 1 || inner > maxSize {
		c.fail("expand", "makes %d of %d", inner, hidden)
		inner = 1
	}
	bias := layers.Attr("bias", c.flag("use_bias", false))
	return layers.New(d.class+"Mixer", map[string]any{"inner": inner, "state": state, "rank": rank}).
		Param("A_log", inner, state).Param("D", inner).
		Add("conv1d", d.causalConv(c, inner, c.size("conv_kernel", 4), c.flag("use_conv_bias", true))).
		Add("act", c.activation(c.text(d.actKey, d.act))).
		Add("in_proj", layers.Linear(hidden, 2*inner, bias)).
		Add("x_proj", layers.Linear(inner, rank+2*state, layers.NoBias)).
		Add("dt_proj", layers.Linear(rank, inner)).
		Add("out_proj", layers.Linear(inner, hidden, bias))
}

// selectiveForward takes the states of the tokens and what is around them.
func selectiveForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, a := args[0].(layers.Tensor), args[1].(*around)
	s, inner, state := x.Shape(), m.Int("inner"), m.Int("state")
	both := parts(t, t.Child(m, "in_proj", a.withoutPadding(t, x)), inner, inner)
	x = a.withoutPadding(t, t.Child(m, "act", t.Child(m, "conv1d", both[0])))
	made := parts(t, t.Child(m, "x_proj", x), m.Int("rank"), state, state)
	steps := t.Op("softplus", t.Child(m, "dt_proj", made[0]))
	group := func(x layers.Tensor) layers.Tensor { return t.Op("unsqueeze", x, 2) }
	y := t.Recur(m, "selective_scan", t.Op("unsqueeze", x, -1), steps, rates(t, m), group(made[1]), group(made[2]))
	y = t.Op("add.Tensor", t.Op("view", y, []int{s[0], s[1], inner}), t.Op("mul.Tensor", x, t.Param(m, "D")))
	return t.Child(m, "out_proj", t.Op("mul.Tensor", y, t.Op("silu", both[1])))
}

// rates are −exp(A_log): how fast states are forgotten.
func rates(t *layers.Trace, m *layers.Module) layers.Tensor {
	return t.Op("neg", t.Op("exp", t.Param(m, "A_log")))
}

// A dual has the sizes of the mixer of Mamba 2, and what models do otherwise.
type dual struct {
	inner, heads, size, groups, state, taps int
	bias, outBias, convBias                 bool
	// norm is where the norm is: "gated" behind the gate, "before" in front of it, "" for none.
	norm string
	// least and most bound steps.
	least, most float64
}

// duality is the mixer of Mamba 2: transformers/models/mamba2/modeling_mamba2.py.
func (d *decoder) duality(c *config, hidden int, x dual) *layers.Module {
	if x.heads*x.size != x.inner || x.heads%x.groups != 0 {
		c.fail("", "%d heads of %d in %d groups for %d elements", x.heads, x.size, x.groups, x.inner)
		x = dual{inner: 1, heads: 1, size: 1, groups: 1, state: 1, taps: 2}
	}
	channels := x.inner + 2*x.groups*x.state
	m := layers.New(d.class+"Mixer", map[string]any{
		"inner": x.inner, "heads": x.heads, "size": x.size, "groups": x.groups, "state": x.state, "norm": x.norm,
		"least": x.least, "most": x.most,
	}).
		Param("A_log", x.heads).Param("D", x.heads).Param("dt_bias", x.heads).
		Add("conv1d", d.causalConv(c, channels, x.taps, x.convBias)).
		Add("act", c.activation(c.text(d.actKey, d.act))).
		Add("in_proj", layers.Linear(hidden, x.inner+channels+x.heads, layers.Attr("bias", x.bias))).
		Add("out_proj", layers.Linear(x.inner, hidden, layers.Attr("bias", x.outBias)))
	if x.norm != "" {
		m.Add("norm", d.normOf(c, 0, x.inner))
		m.Child("norm").Class = d.class + "GroupNorm"
		m.Child("norm").Attrs["groups"] = x.groups
	}
	return m
}

// dualityForward takes the states of the tokens and what is around them; a third argument, if it is a tensor, is multiplied with
// what the projection makes of them.
func dualityForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, a := args[0].(layers.Tensor), args[1].(*around)
	s, inner, heads, groups, state := x.Shape(), m.Int("inner"), m.Int("heads"), m.Int("groups"), m.Int("state")
	x = t.Child(m, "in_proj", a.withoutPadding(t, x))
	if by, ok := args[2].(layers.Tensor); ok {
		x = t.Op("mul.Tensor", x, by)
	}
	made := parts(t, x, inner, inner+2*groups*state, heads)
	gate := made[0]
	x = a.withoutPadding(t, t.Child(m, "act", t.Child(m, "conv1d", made[1])))
	steps := t.Op("softplus", t.Op("add.Tensor", made[2], t.Param(m, "dt_bias")))
	if least, most := m.Float("least"), m.Float("most"); least > 0 || !math.IsInf(most, 1) {
		steps = t.Op("clamp", steps, least, most)
	}
	made = parts(t, x, inner, groups*state, groups*state)
	x = t.Op("view", made[0], []int{s[0], s[1], heads, m.Int("size")})
	group := func(x layers.Tensor) layers.Tensor { return t.Op("view", x, []int{s[0], s[1], groups, state}) }
	y := t.Recur(m, "selective_scan", x, steps, t.Op("unsqueeze", rates(t, m), -1), group(made[1]), group(made[2]))
	y = t.Op("add.Tensor", y, t.Op("mul.Tensor", x, t.Op("unsqueeze", t.Param(m, "D"), -1)))
	y = t.Op("view", y, []int{s[0], s[1], inner})
	open := func(y layers.Tensor) layers.Tensor { return t.Op("mul.Tensor", y, t.Op("silu", gate)) }
	switch m.Text("norm") {
	case "gated":
		y = t.Child(m, "norm", open(y))
	case "before":
		y = open(t.Child(m, "norm", y))
	default:
		y = open(y)
	}
	return t.Child(m, "out_proj", y)
}

// groupNormForward normalizes each of the groups of the last dimension by itself.
func groupNormForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	s, groups := x.Shape(), m.Int("groups")
	size := s[len(s)-1] / groups
	y := t.Op("view", x, []int{s[0], s[1], groups, size})
	mean := t.Op("mean.dim", t.Op("pow.Tensor_Scalar", y, 2), []int{-1}, true)
	y = t.Op("mul.Tensor", y, t.Op("rsqrt", t.Op("add.Tensor", mean, m.Float("eps"))))
	return t.Op("mul.Tensor", t.Param(m, "weight"), t.Op("view", y, []int(s)))
}

// stepLimits reads time_step_limit: two numbers, of which the second may be no bound, in the words of any version of transformers.
func (c *config) stepLimits() (least, most float64) {
	most = math.Inf(1)
	c.looked("time_step_limit")
	list, _ := c.fields["time_step_limit"].([]any)
	for i, v := range list {
		n, isNumber := v.(json.Number)
		x, err := n.Float64()
		if i > 1 || !isNumber || err != nil {
			if named, _ := v.(map[string]any); i == 1 && (named["__float__"] == "Infinity" || math.IsInf(x, 1)) {
				continue
			}
			c.fail("time_step_limit", "is %s", short(c.fields["time_step_limit"]))
			return 0, most
		}
		if i == 0 {
			least = x
		} else {
			most = x
		}
	}
	return least, most
}

// recurrentFamily is the family of a decoder with mixers of a kind.
func recurrentFamily(d decoder, forward func(t *layers.Trace, m *layers.Module, args ...any) any) *family {
	d.noTexts, d.noTokens = true, true
	f := d.family()
	f.classes[d.class+"Mixer"] = layers.Class{Forward: forward}
	f.classes[d.class+"CausalConv"] = layers.Unary(causalConvForward)
	f.classes[d.class+"GroupNorm"] = layers.Unary(groupNormForward)
	return f
}

// backboneNames are the names of the modules of Mamba.
var backboneNames = names{base: "backbone", embed: "embeddings", norm: "norm_f", before: [2]string{"norm"}}

// noContext bounds positions where nothing else does.
const noContext = 1 << 20

var (
	mamba = recurrentFamily(decoder{
		model: "mamba", class: module("mamba", "Mamba"), name: "Mamba", vocabulary: 50280, hidden: 768, inner: 1, layers: 32, heads: 1,
		positions: noContext, eps: 1e-5, epsKey: "layer_norm_epsilon", act: silu, actKey: hiddenAct, pad: 0, ties: true,
		names: backboneNames, renames: []string{"embedding.weight", "embeddings.weight"}, still: true, bare: true,
		mixer: func(d *decoder, c *config, _ int, s shape) (string, *layers.Module) {
			return "mixer", d.selective(c, s.hidden)
		},
	}, selectiveForward)

	mamba2 = recurrentFamily(decoder{
		model: "mamba2", class: module("mamba2", "Mamba2"), name: "Mamba2", vocabulary: 32768, hidden: 4096, inner: 1, layers: 64, heads: 1,
		positions: noContext, eps: 1e-5, epsKey: "layer_norm_epsilon", act: silu, actKey: hiddenAct, pad: 1,
		names: backboneNames, renames: []string{"embedding.weight", "embeddings.weight"}, still: true, bare: true,
		mixer: func(d *decoder, c *config, _ int, s shape) (string, *layers.Module) {
			bias := c.flag("use_bias", false)
			x := dual{
				inner: int(c.float("expand", 2) * float64(s.hidden)), heads: c.size("num_heads", 128), size: c.size("head_dim", 64),
				groups: c.size("n_groups", 8), state: c.size("state_size", 128), taps: c.size("conv_kernel", 4), bias: bias, outBias: bias,
				convBias: c.flag("use_conv_bias", true), norm: "gated",
			}
			x.least, x.most = c.stepLimits()
			return "mixer", d.duality(c, s.hidden, x)
		},
	}, dualityForward)

	lfm2 = recurrentFamily(decoder{
		model: "lfm2", class: module("lfm2", "Lfm2"), name: "Lfm2", vocabulary: 65536, hidden: 2560, inner: 12288, layers: 32, heads: 32,
		keys: 8, positions: 128000, eps: 1e-5, epsKey: "norm_eps", act: silu, pad: 0, ties: true, rope: rope{theta: 1e6},
		headNorm: headNorm{kind: eachHead},
		names: names{
			norm: "embedding_norm", mlp: "feed_forward", before: [2]string{"operator_norm", "ffn_norm"}, gate: "w1", up: "w3", down: "w2",
			o: "out_proj", qNorm: "q_layernorm", kNorm: "k_layernorm",
		},
		feed: func(d *decoder, c *config, _ int, s shape) *layers.Module {
			return d.mlp(c, s.hidden, c.lfm2Inner(s.inner))
		},
		mixer: func(d *decoder, c *config, i int, s shape) (string, *layers.Module) {
			if c.lfm2Attends(i, s.layers) {
				return "", nil
			}
			bias := c.flag("conv_bias", false)
			return "conv", layers.New(d.class+"Mixer", map[string]any{"hidden": s.hidden}).
				Add("conv", d.causalConv(c, s.hidden, c.size("conv_L_cache", 3), bias)).
				Add("in_proj", layers.Linear(s.hidden, 3*s.hidden, layers.Attr("bias", bias))).
				Add("out_proj", layers.Linear(s.hidden, s.hidden, layers.Attr("bias", bias)))
		},
	}, shortConvForward)
)

// shortConvForward is the convolution of LFM2 between two gates.
func shortConvForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, a, n := args[0].(layers.Tensor), args[1].(*around), m.Int("hidden")
	made := parts(t, t.Child(m, "in_proj", a.withoutPadding(t, x)), n, n, n)
	y := t.Child(m, "conv", t.Op("mul.Tensor", made[0], made[2]))
	return t.Child(m, "out_proj", t.Op("mul.Tensor", made[1], y))
}

// lfm2Attends says whether a layer has an attention.
func (c *config) lfm2Attends(i, layers int) bool {
	if kinds := c.kinds("layer_types", layers); kinds != nil {
		if kinds[i] != "conv" && kinds[i] != fullAttention {
			c.unsupported("layers of the type " + kinds[i])
		}
		return kinds[i] == fullAttention
	}
	key, v := c.value("full_attn_idxs")
	list, isList := v.([]any)
	if v != nil && !isList {
		c.fail(key, "is %s, not a list", short(v))
	}
	for _, x := range list {
		if n, ok := x.(json.Number); ok {
			if at, err := n.Int64(); err == nil && at == int64(i) {
				return true
			}
		}
	}
	return v == nil
}

// lfm2Inner is the width of LFM2's MLP for the one that the configuration says.
func (c *config) lfm2Inner(inner int) int {
	inner = c.size("block_ff_dim", inner)
	if !c.flag("block_auto_adjust_ff_dim", true) {
		return inner
	}
	inner = int(float64(2*inner) / 3)
	if v, there := c.fields["block_ffn_dim_multiplier"]; !there || v != nil {
		inner = int(min(c.float("block_ffn_dim_multiplier", 1)*float64(inner), maxSize))
		multiple := c.size("block_multiple_of", 256)
		inner = (inner + multiple - 1) / multiple * multiple
	}
	return max(min(inner, maxSize), 1)
}
