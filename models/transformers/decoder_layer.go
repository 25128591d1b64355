package transformers

import (
	"strings"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
)

// A normKind is how a decoder normalizes. The zero value is Llama's: by the root of the mean of the squares, times a weight.
type normKind int

const (
	// rootMeanPlusOne multiplies with the weight and 1: Gemma.
	rootMeanPlusOne normKind = iota + 1
	// meanAndSpread is PyTorch's LayerNorm.
	meanAndSpread
	// meanAndSpreadBare is LayerNorm without a bias, meanAndSpreadFixed without a weight too, meanAndSpreadPlusOne with a weight
	// that 1 is added to.
	meanAndSpreadBare
	meanAndSpreadFixed
	meanAndSpreadPlusOne
)

// normModule returns a norm over the last dimensions.
func (d *decoder) normModule(c *family.Config, shape ...int) *layers.Module {
	return d.normOf(c, d.norm, shape...)
}

func (d *decoder) normOf(c *family.Config, kind normKind, shape ...int) *layers.Module {
	key := d.epsKey
	if key == "" {
		key = "rms_norm_eps"
	}
	eps := d.eps
	if key != noEps {
		eps = c.Float(key, eps)
	}
	switch kind {
	case meanAndSpread:
		return layers.LayerNorm(shape[len(shape)-1], layers.Attr("eps", eps))
	case meanAndSpreadBare, meanAndSpreadFixed, meanAndSpreadPlusOne:
		m := layers.New(d.class+"LayerNorm", map[string]any{"eps": eps, "plus_one": kind == meanAndSpreadPlusOne})
		if kind != meanAndSpreadFixed {
			m.Param("weight", shape...)
		}
		if kind == meanAndSpreadPlusOne {
			m.Param("bias", shape...)
		}
		return m
	}
	return layers.New(d.class+"RMSNorm", map[string]any{"eps": eps, "plus_one": kind == rootMeanPlusOne}).Param("weight", shape...)
}

// noEps is an epsKey of norms whose epsilon no configuration says.
const noEps = "-"

func (d decoder) normForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	mean := t.Op("mean.dim", t.Op("pow.Tensor_Scalar", x, 2), []int{-1}, true)
	x = t.Op("mul.Tensor", x, t.Op("rsqrt", t.Op("add.Tensor", mean, m.Float("eps"))))
	w := t.Param(m, "weight")
	if m.Bool("plus_one") {
		return t.Op("mul.Tensor", x, t.Op("add.Tensor", w, 1.0))
	}
	return t.Op("mul.Tensor", w, x)
}

// layerNormForward normalizes over the last dimension. A weight may have more: one for each head.
func layerNormForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	s := x.Shape()
	last := []int{s[len(s)-1]}
	var weight, bias layers.Tensor
	for _, p := range m.Params {
		switch p.Name {
		case "weight":
			weight = t.Param(m, "weight")
		case "bias":
			bias = t.Param(m, "bias")
		}
	}
	if weight != nil && m.Bool("plus_one") {
		weight = t.Op("add.Tensor", weight, 1.0)
	}
	if weight != nil && len(weight.Shape()) > 1 {
		return t.Op("mul.Tensor", t.Op("layer_norm", x, last, nil, nil, m.Float("eps")), weight)
	}
	return t.Op("layer_norm", x, last, weight, bias, m.Float("eps"))
}

// layer returns layer i.
func (d *decoder) layer(c *family.Config, i int, s shape, attrs map[string]any, sliding bool) *layers.Module {
	attend, feed := d.attend, d.feed
	if attend == nil {
		attend = func(d *decoder, c *family.Config, _ int, s shape, attrs map[string]any) *layers.Module {
			return d.attention(c, s, attrs)
		}
	}
	if feed == nil {
		feed = func(d *decoder, c *family.Config, _ int, s shape) *layers.Module { return d.mlp(c, s.hidden, s.inner) }
	}
	name, mixer := "", (*layers.Module)(nil)
	if d.mixer != nil {
		name, mixer = d.mixer(d, c, i, s)
	}
	m := layers.New(d.class+"DecoderLayer", map[string]any{
		"decoder": d, "sliding": sliding, "turned": attrs["turned"], "residual_multiplier": times(c, d.residual), "mixer": name, "alone": mixer != nil && mixer.Attrs["alone"] == true,
	})
	if mixer != nil {
		m.Attrs["turned"] = false
		m.Add(name, mixer)
	} else {
		m.Add(d.names.attention, attend(d, c, i, s, attrs))
	}
	if !d.bare {
		m.Add(d.names.mlp, feed(d, c, i, s))
	}
	if d.more != nil {
		d.more(d, c, i, s, m)
	}
	for i := range 2 {
		for _, name := range []string{d.names.before[i], d.names.after[i]} {
			if name != "" {
				m.Add(name, d.normModule(c, s.hidden))
			}
		}
	}
	return m
}

// layerForward adds to the states what the attention and the MLP make of them.
func (d decoder) layerForward(t *layers.Trace, m *layers.Module, args ...any) any {
	own := d.of(m)
	x, a := args[0].(layers.Tensor), args[1].(*around)
	normed := func(name string, x layers.Tensor) layers.Tensor {
		if name == "" {
			return x
		}
		return t.Child(m, name, x)
	}
	added := func(x, y layers.Tensor, after string) layers.Tensor {
		y = normed(after, y)
		if factor := m.Float("residual_multiplier"); factor != 1 {
			y = t.Op("mul.Tensor", y, factor)
		}
		return t.Op("add.Tensor", x, y)
	}
	before, after := own.names.before, own.names.after
	seen := normed(before[0], x)
	mixer := m.Text("mixer")
	if mixer == "" {
		mixer = own.names.attention
	}
	var attended layers.Tensor
	if m.Bool("alone") {
		attended = t.Child(m, mixer, seen)
	} else {
		attended = t.ChildOf(m, mixer, seen, a, m.Bool("sliding")).(layers.Tensor)
	}
	if own.parallel {
		if before[1] != "" {
			seen = normed(before[1], x)
		}
		return added(added(x, attended, after[0]), t.Child(m, own.names.mlp, seen), after[1])
	}
	if own.normed {
		x = seen
	}
	x = added(x, attended, after[0])
	if own.bare {
		return x
	}
	seen = normed(before[1], x)
	if own.normed {
		x = seen
	}
	fed := t.Child(m, own.names.mlp, seen)
	if own.beside != "" && m.Has(own.beside) {
		fed = t.Op("add.Tensor", t.Child(m, own.beside, seen), fed)
	}
	return added(x, fed, after[1])
}

func (d *decoder) mlp(c *family.Config, hidden, inner int) *layers.Module {
	m := layers.New(d.class+"MLP", map[string]any{"decoder": d})
	bias := biased(c, d.mlpBias)
	act := d.activation(c)
	if d.gateFused {
		return m.Add(d.names.gateUp, layers.Linear(hidden, 2*inner, layers.NoBias)).
			Add(d.names.down, layers.Linear(inner, hidden, layers.NoBias)).
			Add(d.names.act, act)
	}
	if !d.plain {
		m.Add(d.names.gate, layers.Linear(hidden, inner, bias))
	}
	return m.Add(d.names.up, layers.Linear(hidden, inner, bias)).
		Add(d.names.down, layers.Linear(inner, hidden, bias)).
		Add(d.names.act, act)
}

// activation returns the module of the MLP's activation.
func (d *decoder) activation(c *family.Config) *layers.Module {
	act := d.act
	if d.actKey != "" {
		act = c.Text(d.actKey, act)
	}
	switch {
	case act == "gelu" && d.scaled && !d.capped && d.names.after[0] == "":
		act = d.act // the first files of Gemma say so and mean the approximation
	case act == "xielu":
		return layers.New(xieluClass, nil).Param("alpha_p", 1).Param("alpha_n", 1).Param("beta").Param("eps")
	}
	return c.Activation(act)
}

func (d decoder) mlpForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	own := d.of(m)
	n := own.names
	switch {
	case own.gateFused:
		halves := t.Tensors("chunk", t.Child(m, n.gateUp, x), 2, -1)
		return t.Child(m, n.down, t.Op("mul.Tensor", halves[1], t.Child(m, n.act, halves[0])))
	case own.plain:
		return t.Child(m, n.down, t.Child(m, n.act, t.Child(m, n.up, x)))
	}
	gate := t.Child(m, n.act, t.Child(m, n.gate, x))
	return t.Child(m, n.down, t.Op("mul.Tensor", gate, t.Child(m, n.up, x)))
}

const xieluClass = "transformers.activations.XIELUActivation"

// xieluForward is a square above zero and an exponential below, whose shares are learned.
func xieluForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	beta := t.Param(m, "beta")
	above := t.Op("softplus", t.Param(m, "alpha_p"))
	below := t.Op("add.Tensor", beta, t.Op("softplus", t.Param(m, "alpha_n")))
	line := t.Op("mul.Tensor", beta, x)
	square := t.Op("mul.Tensor", t.Op("mul.Tensor", above, x), x)
	curve := t.Op("sub.Tensor", t.Op("expm1", t.Op("minimum", x, t.Param(m, "eps"))), x)
	curve = t.Op("mul.Tensor", curve, below)
	return t.Op("where.self", t.Op("gt.Scalar", x, 0), t.Op("add.Tensor", square, line), t.Op("add.Tensor", curve, line))
}

// replacer returns what turns the names of checkpoints into those of modules, nil where they are the same.
func replacer(pairs []string) *strings.Replacer {
	if len(pairs) == 0 {
		return nil
	}
	return strings.NewReplacer(pairs...)
}
