package transformers

import (
	"encoding/json"
	"math"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
)

// kinds returns the entry that says of what kind each layer is, nil where the configuration does not.
func kinds(c *family.Config, key string, layers int) []string {
	key, v := c.Value(key)
	if v == nil {
		return nil
	}
	list, isList := v.([]any)
	if !isList || len(list) != layers {
		c.Fail(key, "is %s, not a list for %d layers", family.Short(v), layers)
		return nil
	}
	names := make([]string, len(list))
	for i, v := range list {
		names[i], _ = v.(string)
	}
	return names
}

// causalConv is a convolution along the tokens, of each channel by itself: a Conv1d in Python.
func (d *decoder) causalConv(c *family.Config, channels, taps int, bias bool) *layers.Module {
	if taps < 2 {
		c.Fail("", "a convolution of %d taps", taps)
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
func (d *decoder) selective(c *family.Config, hidden int) *layers.Module {
	inner, state := int(c.Float("mamba_expand|expand", 2)*float64(hidden)), c.Size("mamba_d_state|state_size", 16)
	rank := (hidden + 15) / 16
	const rankKey = "mamba_dt_rank|time_step_rank"
	if _, v := c.Value(rankKey); v != "auto" {
		rank = c.Size(rankKey, rank)
	}
	if inner < 1 || inner > family.MaxSize {
		c.Fail("expand", "makes %d of %d", inner, hidden)
		inner = 1
	}
	bias := layers.Attr("bias", c.Flag("mamba_proj_bias|use_bias", false))
	return layers.New(d.class+"Mixer", map[string]any{"inner": inner, "state": state, "rank": rank, "normed": 0.0}).
		Param(ratesName(c), inner, state).Param("D", inner).
		Add("conv1d", d.causalConv(c, inner, c.Size("mamba_d_conv|conv_kernel", 4), c.Flag("mamba_conv_bias|use_conv_bias", true))).
		Add("act", c.Activation(c.Text(d.actKey, d.act))).
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
	for i, x := range made {
		if eps := m.Float("normed"); eps != 0 {
			made[i] = unweighted(t, x, eps)
		} else if name := selectiveNorms[i]; m.Has(name) {
			made[i] = t.Child(m, name, x)
		}
	}
	steps := t.Op("softplus", t.Child(m, "dt_proj", made[0]))
	group := func(x layers.Tensor) layers.Tensor { return t.Op("unsqueeze", x, 2) }
	y := t.Recur(m, "selective_scan", t.Op("unsqueeze", x, -1), steps, rates(t, m), group(made[1]), group(made[2]))
	y = t.Op("add.Tensor", t.Op("view", y, []int{s[0], s[1], inner}), t.Op("mul.Tensor", x, t.Param(m, "D")))
	return t.Child(m, "out_proj", t.Op("mul.Tensor", y, t.Op("silu", both[1])))
}

// selectiveNorms are Jamba's norms of what steps are made of, and of what goes into states and comes out of them.
var selectiveNorms = [3]string{"dt_layernorm", "b_layernorm", "c_layernorm"}

// unweighted divides by the root of the mean of the squares.
func unweighted(t *layers.Trace, x layers.Tensor, eps float64) layers.Tensor {
	mean := t.Op("mean.dim", t.Op("pow.Tensor_Scalar", x, 2), []int{-1}, true)
	return t.Op("mul.Tensor", x, t.Op("rsqrt", t.Op("add.Tensor", mean, eps)))
}

// ratesKey is what GGUF files call rates, which they have in the place of A_log.
const ratesKey = "ssm_a"

// ratesName is the name of what rates are made of.
func ratesName(c *family.Config) string {
	if !c.Whole && c.Holds(ratesKey) {
		return ratesKey
	}
	return "A_log"
}

// rates are −exp(A_log): how fast states are forgotten.
func rates(t *layers.Trace, m *layers.Module) layers.Tensor {
	if m.Params[0].Name == ratesKey {
		return t.Param(m, ratesKey)
	}
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
	// act is the activation, "" for the decoder's.
	act string
}

// duality is the mixer of Mamba 2: transformers/models/mamba2/modeling_mamba2.py.
func (d *decoder) duality(c *family.Config, hidden int, x dual) *layers.Module {
	if x.heads*x.size != x.inner || x.heads%x.groups != 0 {
		c.Fail("", "%d heads of %d in %d groups for %d elements", x.heads, x.size, x.groups, x.inner)
		x = dual{inner: 1, heads: 1, size: 1, groups: 1, state: 1, taps: 2}
	}
	if x.act == "" {
		x.act = c.Text(d.actKey, d.act)
	}
	channels := x.inner + 2*x.groups*x.state
	m := layers.New(d.class+"Mixer", map[string]any{
		"inner": x.inner, "heads": x.heads, "size": x.size, "groups": x.groups, "state": x.state, "norm": x.norm,
		"least": x.least, "most": x.most, "in_factor": 1.0,
	}).
		Param(ratesName(c), x.heads).Param("D", x.heads).Param("dt_bias", x.heads).
		Add("conv1d", d.causalConv(c, channels, x.taps, x.convBias)).
		Add("act", c.Activation(x.act)).
		Add("in_proj", layers.Linear(hidden, x.inner+channels+x.heads, layers.Attr("bias", x.bias))).
		Add("out_proj", layers.Linear(x.inner, hidden, layers.Attr("bias", x.outBias)))
	if x.norm != "" {
		m.Add("norm", d.normOf(c, 0, x.inner))
		m.Child("norm").Class = d.class + "GroupNorm"
		m.Child("norm").Attrs["groups"] = x.groups
	}
	return m
}

// dualityForward takes the states of the tokens and what is around them.
func dualityForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, a := args[0].(layers.Tensor), args[1].(*around)
	s, inner, heads, groups, state := x.Shape(), m.Int("inner"), m.Int("heads"), m.Int("groups"), m.Int("state")
	x = a.withoutPadding(t, x)
	if by := m.Float("in_factor"); by != 1 {
		x = t.Op("mul.Tensor", x, by)
	}
	x = t.Child(m, "in_proj", x)
	if len(m.Params) > 3 {
		x = t.Op("mul.Tensor", x, t.Param(m, "mup_vector"))
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
	y = unweighted(t, y, m.Float("eps"))
	return t.Op("mul.Tensor", t.Param(m, "weight"), t.Op("view", y, []int(s)))
}

// stepLimits reads time_step_limit: two numbers, of which the second may be no bound, in the words of any version of
// transformers.
func stepLimits(c *family.Config) (least, most float64) {
	most = math.Inf(1)
	c.Looked("time_step_limit")
	list, _ := c.Fields["time_step_limit"].([]any)
	for i, v := range list {
		n, isNumber := v.(json.Number)
		x, err := n.Float64()
		if i > 1 || !isNumber || err != nil {
			if named, _ := v.(map[string]any); i == 1 && (named["__float__"] == "Infinity" || math.IsInf(x, 1)) {
				continue
			}
			c.Fail("time_step_limit", "is %s", family.Short(c.Fields["time_step_limit"]))
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
func recurrentFamily(d decoder, forward func(t *layers.Trace, m *layers.Module, args ...any) any) *family.Family {
	d.noTexts, d.noTokens = true, true
	return withMixer(d.family(), d.class, forward)
}

// withMixer adds the classes of mixers to a family.
func withMixer(f *family.Family, class string, forward func(t *layers.Trace, m *layers.Module, args ...any) any) *family.Family {
	f.Classes[class+"Mixer"] = layers.Class{Forward: forward}
	f.Classes[class+"CausalConv"] = layers.Unary(causalConvForward)
	f.Classes[class+"GroupNorm"] = layers.Unary(groupNormForward)
	f.Classes[class+"BothLayer"] = layers.Class{Forward: bothLayerForward}
	f.Classes[class+"ScaledMLP"] = layers.Unary(scaledMLPForward)
	return f
}
