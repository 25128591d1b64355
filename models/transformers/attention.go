package transformers

import (
	"math/big"

	"github.com/optimem/optimem/layers"
)

// An attention says how a module attends.
type attention struct {
	// scaling of the scores; 0 is the usual one.
	scaling float64
	// groups is how many heads of the queries share one of the keys and values.
	groups int
	// softcap bounds the scores where it is not 0, and wants the eager form.
	softcap float64
	// eager computes the attention in single ops.
	eager bool
	// bias is added to the scores: [1, heads, queries, keys], in a step [heads, distances]; nil for none.
	bias layers.Tensor
	// window is how many tokens a token sees, itself included, 0 for all. A mask says it for a forward.
	window int
	// chunk is how many tokens there are in the chunks that tokens see none before, 0 for no such; for a forward as window is.
	chunk int
	// sinks are scores of the heads for nothing, nil for none; they want the eager form.
	sinks layers.Tensor
}

// run returns [batch, queries, heads × size] for queries, keys and values of [batch, heads, tokens, size], which
// transformers' sdpa_attention_forward and eager_attention_forward give.
//
// In a step there is no mask: causal attention over what the module m has seen, which takes one head of keys for a group.
func (a attention) run(t *layers.Trace, m *layers.Module, q, k, v, mask layers.Tensor) layers.Tensor {
	shape := q.Shape()
	batch, queries, size := shape[0], shape[2], shape[3]
	if a.scaling == 0 {
		a.scaling = inverseSqrt(size)
	}
	if _, ok := t.Steps(); ok {
		return t.Attend(m, q, k, v, layers.Attention{
			Scale: a.scaling, Softcap: a.softcap, Window: a.window, Chunk: a.chunk, Sinks: a.sinks, Bias: a.bias,
		})
	}
	k, v = repeatHeads(t, k, a.groups), repeatHeads(t, v, a.groups)
	var out layers.Tensor
	if a.eager {
		scores := t.Op("mul.Tensor", t.Op("matmul", q, t.Op("transpose.int", k, 2, 3)), a.scaling)
		if a.softcap != 0 {
			scores = t.Op("mul.Tensor", t.Op("tanh", t.Op("div.Tensor", scores, a.softcap)), a.softcap)
		}
		if a.bias != nil {
			scores = t.Op("add.Tensor", scores, a.bias)
		}
		if mask != nil {
			scores = t.Op("add.Tensor", scores, mask)
		}
		if a.sinks != nil {
			sinks := t.Op("expand", t.Op("view", a.sinks, []int{1, -1, 1, 1}), []int{batch, -1, queries, 1})
			scores = t.Op("cat", []layers.Tensor{scores, sinks}, -1)
		}
		scores = t.Op("softmax.int", scores, -1)
		if a.sinks != nil {
			scores = t.Op("slice.Tensor", scores, 3, 0, -1)
		}
		out = t.Op("matmul", scores, v)
	} else {
		if a.bias != nil {
			mask = t.Op("contiguous", t.Op("where.ScalarOther", mask, a.bias, lowest))
		}
		out = t.Op("scaled_dot_product_attention", q, k, v, mask, layers.Named{"scale": a.scaling})
		out = t.Op("reshape", out, []int{batch, -1, queries, v.Shape()[3]})
	}
	return t.Op("reshape", t.Op("transpose.int", out, 1, 2), []int{batch, queries, -1})
}

// keeps is the attribute of a decoder's attention modules that says what their keys and values are made of: of what is
// written, or of the source.
const (
	keeps       = "keeps"
	ofWritten   = "written"
	ofTheSource = "source"
)

// recalls reports whether m attends to a source in a step.
func recalls(t *layers.Trace, m *layers.Module) bool {
	_, step := t.Steps()
	return step && m.Attrs[keeps] == ofTheSource
}

// recall is run for what m attends to of a source in a step.
func (a attention) recall(t *layers.Trace, m *layers.Module, q layers.Tensor) layers.Tensor {
	if a.scaling == 0 {
		a.scaling = inverseSqrt(q.Shape()[3])
	}
	return t.Recall(m, q, layers.Attention{Scale: a.scaling})
}

// keepSource has the attention modules of a decoder keep what they make of a source, [1, tokens, size], for steps.
func keepSource(t *layers.Trace, decoder *layers.Module, encoded layers.Tensor) {
	decoder.Walk(func(_ string, m *layers.Module) {
		if m.Attrs[keeps] != nil {
			t.Run(m, encoded)
		}
	})
}

// keep is the forward of an attention module of a decoder where a source is read.
func keep(t *layers.Trace, m *layers.Module, encoded any, k, v string, heads, size int) any {
	x, ok := encoded.(layers.Tensor)
	if !ok {
		t.Fail("a source that is a %T", encoded)
	}
	if m.Attrs[keeps] == ofWritten {
		t.Reserve(m, heads, size)
	} else {
		t.Keep(m, splitHeads(t, m, k, x, size), splitHeads(t, m, v, x, size))
	}
	return nil
}

// inverseSqrt is Python's n ** -0.5, which is rounded once.
func inverseSqrt(n int) float64 {
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

// splitHeads runs a projection and returns [batch, heads, tokens, size].
func splitHeads(t *layers.Trace, m *layers.Module, name string, x layers.Tensor, size int) layers.Tensor {
	s := x.Shape()
	x = t.Child(m, name, x)
	return t.Op("transpose.int", t.Op("view", x, []int{s[0], s[1], -1, size}), 1, 2)
}

// eager reports whether a configuration asks for the attention in single ops.
//
//go:noinline
func (c *config) eager() bool {
	return c.text("attn_implementation|_attn_implementation", "sdpa") == "eager"
}
