package transformers

import (
	"fmt"
	"math"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
)

// A fusedKind is how queries, keys and values come out of projections.
type fusedKind int

const (
	// apart is one projection for each.
	apart fusedKind = iota
	// behind is one for all, whose result has all queries, then all keys, then all values: Phi-3.
	behind
	// grouped is one for all, whose result has a group of queries, their key and their value, one group after the other:
	// GPT-NeoX, BLOOM, Falcon.
	grouped
)

// A headNorm is how queries and keys are normalized before their scores.
type headNorm struct {
	kind headNormKind
	// norm is the kind of the norm.
	norm normKind
	// late is set where heads are normalized after they are turned.
	late bool
	// when says whether a configuration has them, nil for always.
	when func(c *family.Config) bool
}

type headNormKind int

const (
	notNormed headNormKind = iota
	// eachHead normalizes the elements of each head, with one weight for all heads.
	eachHead
	// allHeads normalizes all heads at once.
	allHeads
	// ownWeights normalizes the elements of each head, with weights of [heads, elements].
	ownWeights
	// ownNorms is a list of norms, one for each head.
	ownNorms
)

// attentionAttrs are the attributes that the attention of all layers has.
func (d *decoder) attentionAttrs(c *family.Config, s shape) map[string]any {
	attrs := map[string]any{
		"decoder": d, "head_dim": s.size, "groups": s.heads / max(s.keys, 1), "queries": s.heads * s.size,
		"keys": s.keys * s.size, "scaling": family.InverseSqrt(s.size), "softcap": 0.0, "eager": c.Eager() || d.capped || d.sinks,
		"clip": 0.0, "warm": 0.0, "warm_context": 0.0, "key_factor": times(c, d.keyFactor),
	}
	if d.scaling != nil {
		attrs["scaling"] = d.scaling(c, s.size)
	}
	if d.capped {
		attrs["softcap"] = softcap(c, "attn_logit_softcapping", 50)
	}
	if d.clip != nil {
		attrs["clip"] = d.clip(c)
	}
	if d.warmed {
		p := c.Sub("rope_parameters")
		attrs["warm"], attrs["warm_context"] = p.Float("llama_4_scaling_beta", 0.1), positive(p, c, contextName, 16384)
		c.Adopt(p)
	}
	return attrs
}

func (d *decoder) attention(c *family.Config, s shape, attrs map[string]any) *layers.Module {
	m := layers.New(d.class+"Attention", attrs)
	n, queries, keys := d.names, s.heads*s.size, s.keys*s.size
	if d.fused != apart {
		m.Add(n.o, layers.Linear(queries, s.hidden, biased(c, d.outBias))).
			Add(n.qkv, layers.Linear(s.hidden, queries+2*keys, biased(c, d.qkvBias)))
	} else {
		m.Add(n.q, layers.Linear(s.hidden, queries, biased(c, d.qkvBias))).
			Add(n.k, layers.Linear(s.hidden, keys, biased(c, d.qkvBias))).
			Add(n.v, layers.Linear(s.hidden, keys, biased(c, d.qkvBias))).
			Add(n.o, layers.Linear(queries, s.hidden, biased(c, d.outBias)))
	}
	if d.sinks {
		m.Param("sinks", s.heads)
	}
	h := d.headNorm
	if h.kind == notNormed || h.when != nil && !h.when(c) {
		return m
	}
	for i, name := range []string{n.qNorm, n.kNorm} {
		heads := []int{s.heads, s.keys}[i]
		switch h.kind {
		case eachHead:
			m.Add(name, d.normOf(c, h.norm, s.size))
		case allHeads:
			m.Add(name, d.normOf(c, h.norm, heads*s.size))
		case ownWeights:
			m.Add(name, d.normOf(c, h.norm, heads, s.size))
		case ownNorms:
			m.Add(name, layers.New(d.class+"PerHead", nil).
				Add("norms", c.Repeat(heads, func(int) *layers.Module { return d.normOf(c, h.norm, s.size) })))
		}
	}
	return m
}

// attentionForward takes the states of the tokens, what is around them, and whether the layer slides.
func (d decoder) attentionForward(t *layers.Trace, m *layers.Module, args ...any) any {
	own := d.of(m)
	x, a, n := args[0].(layers.Tensor), args[1].(*around), own.names
	kind := 0
	if args[2].(bool) {
		kind = 1
	}
	q, k, v := own.headsOf(t, m, x)
	q, k, v = t.Op("transpose.int", q, 1, 2), t.Op("transpose.int", k, 1, 2), t.Op("transpose.int", v, 1, 2)
	if by := m.Float("key_factor"); by != 1 {
		k = t.Op("mul.Tensor", k, by)
	}
	if m.Bool("turned") {
		angles := a.angles[kind].([]layers.Tensor)
		cos, sin := t.Op("unsqueeze", angles[0], 1), t.Op("unsqueeze", angles[1], 1)
		q, k = own.rope.turn(t, q, cos, sin), own.rope.turn(t, k, cos, sin)
	}
	if own.headNorm.late {
		late := func(name string, x layers.Tensor) layers.Tensor {
			if !m.Has(name) {
				return x
			}
			return t.Child(m, name, x)
		}
		q, k = late(n.qNorm, q), late(n.kNorm, k)
	}
	if beta := m.Float("warm"); beta != 0 {
		q = warm(t, q, a.positions, beta, m.Float("warm_context"))
	}
	mask, _ := a.masks[kind].(layers.Tensor)
	how := family.Attention{
		Scaling: m.Float("scaling"), Groups: m.Int("groups"), Softcap: m.Float("softcap"), Eager: m.Bool("eager"),
		Window: m.Int("window"),
	}
	if a.alibi != nil {
		q, k, how.Bias = a.alibi.apply(t, q, k, how.Scaling)
	}
	if own.sinks {
		how.Sinks = t.Param(m, "sinks")
	}
	return t.Child(m, n.o, how.Run(t, m, q, k, v, mask))
}

// headsOf returns queries, keys and values of [batch, tokens, heads, size], normalized but where that is later.
func (d *decoder) headsOf(t *layers.Trace, m *layers.Module, x layers.Tensor) (q, k, v layers.Tensor) {
	s, n, size := x.Shape(), d.names, m.Int("head_dim")
	queries, keys, clip := m.Int("queries"), m.Int("keys"), m.Float("clip")
	projected := func(name string) layers.Tensor {
		y := t.Child(m, name, x)
		if clip != 0 {
			y = t.Op("clamp", y, -clip, clip)
		}
		return y
	}
	split := func(x layers.Tensor) layers.Tensor { return t.Op("view", x, []int{s[0], s[1], -1, size}) }
	switch d.fused {
	case behind:
		qkv := projected(n.qkv)
		part := func(from, to int) layers.Tensor { return split(t.Op("slice.Tensor", qkv, 2, from, to)) }
		return part(0, queries), part(queries, queries+keys), part(queries+keys, math.MaxInt64)
	case grouped:
		groups := queries / keys
		qkv := t.Op("view", projected(n.qkv), []int{s[0], s[1], keys / size, groups + 2, size})
		part := func(from, to int) layers.Tensor {
			return t.Op("reshape", t.Op("slice.Tensor", qkv, 3, from, to), []int{s[0], s[1], -1, size})
		}
		return part(0, groups), part(groups, groups+1), part(groups+1, groups+2)
	}
	normed := func(name string, y layers.Tensor) layers.Tensor {
		switch {
		case d.headNorm.late || !m.Has(name):
			return split(y)
		case d.headNorm.kind == allHeads:
			return split(t.Child(m, name, y))
		}
		return t.Child(m, name, split(y))
	}
	q, k = normed(n.qNorm, projected(n.q)), normed(n.kNorm, projected(n.k))
	return q, k, split(projected(n.v))
}

// perHeadForward runs a norm of its own for each head of [batch, tokens, heads, size].
func perHeadForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	var heads []layers.Tensor
	list := m.Child("norms")
	for i := range list.Children {
		head := t.Op("slice.Tensor", x, 2, i, i+1)
		heads = append(heads, t.Child(list, fmt.Sprint(i), head))
	}
	return t.Op("cat", heads, 2)
}

// turn turns the heads of [batch, heads, tokens, size], or the first elements of each, by the angles of their positions.
func (r rope) turn(t *layers.Trace, x, cos, sin layers.Tensor) layers.Tensor {
	turned, size := cos.Shape()[3], x.Shape()[3]
	how := family.Rotate
	if r.interleaved {
		how = rotateInterleaved
	}
	if turned == size && !r.partial() {
		return how(t, x, cos, sin)
	}
	part := how(t, t.Op("slice.Tensor", x, 3, 0, turned), cos, sin)
	return t.Op("cat", []layers.Tensor{part, t.Op("slice.Tensor", x, 3, turned, math.MaxInt64)}, -1)
}

// rotateInterleaved is rotate for pairs of elements that are neighbours.
func rotateInterleaved(t *layers.Trace, x, cos, sin layers.Tensor) layers.Tensor {
	s, half := x.Shape(), x.Shape()[3]/2
	cos, sin = t.Op("slice.Tensor", cos, 3, 0, half), t.Op("slice.Tensor", sin, 3, 0, half)
	pairs := t.Op("reshape", x, []int{s[0], s[1], s[2], half, 2})
	first, second := t.Op("select.int", pairs, 4, 0), t.Op("select.int", pairs, 4, 1)
	left := t.Op("sub.Tensor", t.Op("mul.Tensor", first, cos), t.Op("mul.Tensor", second, sin))
	right := t.Op("add.Tensor", t.Op("mul.Tensor", second, cos), t.Op("mul.Tensor", first, sin))
	return t.Op("reshape", t.Op("stack", []layers.Tensor{left, right}, -1), []int(s))
}

// warm multiplies queries with 1 + beta·log(1 + ⌊position ÷ context⌋).
func warm(t *layers.Trace, q, positions layers.Tensor, beta, context float64) layers.Tensor {
	passed := t.Op("floor", t.Op("div.Tensor", positions, context))
	factor := t.Op("add.Tensor", t.Op("mul.Tensor", t.Op("log", t.Op("add.Tensor", passed, 1.0)), beta), 1.0)
	return t.Op("mul.Tensor", q, t.Op("unsqueeze", t.Op("unsqueeze", factor, 1), 3))
}
