package family

import (
	"math"
	"math/big"

	"github.com/optimem/optimem/layers"
)

// An Attention says how a module attends.
type Attention struct {
	// Scaling of the scores; 0 is the usual one.
	Scaling float64
	// Groups is how many heads of the queries share one of the keys and values.
	Groups int
	// Softcap bounds the scores where it is not 0, and wants the eager form.
	Softcap float64
	// Eager computes the attention in single ops.
	Eager bool
	// Bias is added to the scores: [1, heads, queries, keys], in a step [heads, distances]; nil for none.
	Bias layers.Tensor
	// Window is how many tokens a token sees, itself included, 0 for all. A mask says it for a forward.
	Window int
	// Chunk is how many tokens there are in the chunks that tokens see none before, 0 for no such; for a forward as Window is.
	Chunk int
	// Sinks are scores of the heads for nothing, nil for none; they want the eager form.
	Sinks layers.Tensor
}

// Run returns [batch, queries, heads × size] for queries, keys and values of [batch, heads, tokens, size], which
// transformers' sdpa_attention_forward and eager_attention_forward give.
//
// In a step there is no mask: causal attention over what the module m has seen, which takes one head of keys for a group.
func (a Attention) Run(t *layers.Trace, m *layers.Module, q, k, v, mask layers.Tensor) layers.Tensor {
	shape := q.Shape()
	batch, queries, size := shape[0], shape[2], shape[3]
	if a.Scaling == 0 {
		a.Scaling = InverseSqrt(size)
	}
	if _, ok := t.Steps(); ok {
		return t.Attend(m, q, k, v, layers.Attention{
			Scale: a.Scaling, Softcap: a.Softcap, Window: a.Window, Chunk: a.Chunk, Sinks: a.Sinks, Bias: a.Bias,
		})
	}
	k, v = repeatHeads(t, k, a.Groups), repeatHeads(t, v, a.Groups)
	var out layers.Tensor
	if a.Eager {
		scores := t.Op("mul.Tensor", t.Op("matmul", q, t.Op("transpose.int", k, 2, 3)), a.Scaling)
		if a.Softcap != 0 {
			scores = t.Op("mul.Tensor", t.Op("tanh", t.Op("div.Tensor", scores, a.Softcap)), a.Softcap)
		}
		if a.Bias != nil {
			scores = t.Op("add.Tensor", scores, a.Bias)
		}
		if mask != nil {
			scores = t.Op("add.Tensor", scores, mask)
		}
		if a.Sinks != nil {
			sinks := t.Op("expand", t.Op("view", a.Sinks, []int{1, -1, 1, 1}), []int{batch, -1, queries, 1})
			scores = t.Op("cat", []layers.Tensor{scores, sinks}, -1)
		}
		scores = t.Op("softmax.int", scores, -1)
		if a.Sinks != nil {
			scores = t.Op("slice.Tensor", scores, 3, 0, -1)
		}
		out = t.Op("matmul", scores, v)
	} else {
		if a.Bias != nil {
			mask = t.Op("contiguous", t.Op("where.ScalarOther", mask, a.Bias, Lowest))
		}
		out = t.Op("scaled_dot_product_attention", q, k, v, mask, layers.Named{"scale": a.Scaling})
		out = t.Op("reshape", out, []int{batch, -1, queries, v.Shape()[3]})
	}
	return t.Op("reshape", t.Op("transpose.int", out, 1, 2), []int{batch, queries, -1})
}

// Keeps is the attribute of a decoder's attention modules that says what their keys and values are made of: of what is
// written, or of the source.
const (
	Keeps       = "keeps"
	OfWritten   = "written"
	OfTheSource = "source"
)

// Recalls reports whether m attends to a source in a step.
func Recalls(t *layers.Trace, m *layers.Module) bool {
	_, step := t.Steps()
	return step && m.Attrs[Keeps] == OfTheSource
}

// Recall is run for what m attends to of a source in a step.
func (a Attention) Recall(t *layers.Trace, m *layers.Module, q layers.Tensor) layers.Tensor {
	if a.Scaling == 0 {
		a.Scaling = InverseSqrt(q.Shape()[3])
	}
	return t.Recall(m, q, layers.Attention{Scale: a.Scaling})
}

// KeepSource has the attention modules of a decoder keep what they make of a source, [1, tokens, size], for steps.
func KeepSource(t *layers.Trace, decoder *layers.Module, encoded layers.Tensor) {
	decoder.Walk(func(_ string, m *layers.Module) {
		if m.Attrs[Keeps] != nil {
			t.Run(m, encoded)
		}
	})
}

// Keep is the forward of an attention module of a decoder where a source is read.
func Keep(t *layers.Trace, m *layers.Module, encoded any, k, v string, heads, size int) any {
	x, ok := encoded.(layers.Tensor)
	if !ok {
		t.Fail("a source that is a %T", encoded)
	}
	if m.Attrs[Keeps] == OfWritten {
		t.Reserve(m, heads, size)
	} else {
		t.Keep(m, SplitHeads(t, m, k, x, size), SplitHeads(t, m, v, x, size))
	}
	return nil
}

// InverseSqrt is Python's n ** -0.5, which is rounded once.
func InverseSqrt(n int) float64 {
	const bits = 200
	root := new(big.Float).SetPrec(bits).SetInt64(int64(max(n, 1)))
	root.Sqrt(root)
	x, _ := new(big.Float).SetPrec(bits).Quo(big.NewFloat(1), root).Float64()
	return x
}

// repeatHeads is repeat_kv: every head n times.
func repeatHeads(t *layers.Trace, x layers.Tensor, n int) layers.Tensor {
	if n <= 1 {
		return x
	}
	s := x.Shape()
	x = t.Op("expand", t.Op("unsqueeze", x, 2), []int{s[0], s[1], n, s[2], s[3]})
	return t.Op("reshape", x, []int{s[0], s[1] * n, s[2], s[3]})
}

// SplitHeads runs a projection and returns [batch, heads, tokens, size].
func SplitHeads(t *layers.Trace, m *layers.Module, name string, x layers.Tensor, size int) layers.Tensor {
	s := x.Shape()
	x = t.Child(m, name, x)
	return t.Op("transpose.int", t.Op("view", x, []int{s[0], s[1], -1, size}), 1, 2)
}

// Eager reports whether a configuration asks for the attention in single ops.
//
//go:noinline
func (c *Config) Eager() bool {
	return c.Text("attn_implementation|_attn_implementation", "sdpa") == "eager"
}

// Rotate turns pairs of elements of heads by the angles of their positions.
func Rotate(t *layers.Trace, x, cos, sin layers.Tensor) layers.Tensor {
	half := x.Shape()[3] / 2
	straight := t.Op("mul.Tensor", x, cos)
	first := t.Op("slice.Tensor", x, 3, 0, half)
	second := t.Op("neg", t.Op("slice.Tensor", x, 3, half, math.MaxInt64))
	crossed := t.Op("mul.Tensor", t.Op("cat", []layers.Tensor{second, first}, -1), sin)
	return t.Op("add.Tensor", straight, crossed)
}
