package transformers

import (
	"math"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// An alibi adds to the score of a key what its position makes of a head's slope.
type alibi struct {
	slopes []float32
	// rounded is set where slopes, positions and their products are rounded to bfloat16, and multiplied with scale: Falcon.
	rounded bool
	scale   float64
}

// alibiSlopes are the slopes of BLOOM and Falcon: powers of 2^(−8/n) for the n heads that are a power of two, and powers of
// its root for the others.
func alibiSlopes(heads int) []float32 {
	near := 1
	for 2*near <= heads {
		near *= 2
	}
	slopes := make([]float32, heads)
	base := func(n int) float64 { return float64(float32(math.Pow(2, -math.Pow(2, -(math.Log2(float64(n))-3))))) }
	for i := range slopes {
		if i < near {
			slopes[i] = float32(math.Pow(base(near), float64(i+1)))
		} else {
			slopes[i] = float32(math.Pow(base(2*near), float64(2*(i-near)+1)))
		}
	}
	return slopes
}

// mptSlopes are MPT's: those of the next power of two, every second one first.
func mptSlopes(heads int) []float32 {
	n := 1
	for n < heads {
		n *= 2
	}
	all := make([]float32, n)
	for i := range all {
		all[i] = 1 / float32(math.Pow(2, float64(float32(i+1)*(8/float32(n)))))
	}
	if n == heads {
		return all
	}
	var slopes []float32
	for i := 1; i < n; i += 2 {
		slopes = append(slopes, all[i])
	}
	for i := 0; i < n; i += 2 {
		slopes = append(slopes, all[i])
	}
	return slopes[:heads]
}

// An alibiPass is what one pass makes of it: for a forward a bias of the scores, [1 or batch, heads, 1, keys]; for a step more
// elements of queries and keys, whose product is the bias, so that caches keep what scores need.
type alibiPass struct {
	bias layers.Tensor
	// queries are the slopes that queries get, [1, heads, 1, elements], without what the scaling of the scores makes of them;
	// keys what keys get, [1, 1 or heads, rows, elements].
	queries, keys layers.Tensor
}

// alibiParts splits positions so that each part is a number that half floats hold: caches may be of these.
const alibiParts = 128

// pass computes it. padding is attention_mask, positions are position_ids where a caller gives them.
func (a *alibi) pass(t *layers.Trace, s tensor.Shape, padding, positions layers.Tensor) *alibiPass {
	_, steps := t.Steps()
	if positions == nil {
		if padding != nil {
			count := t.Op("sub.Tensor", t.Op("cumsum", padding, -1), 1)
			positions = t.Op("mul.Tensor", count, padding)
		} else {
			positions = countedPositions(t, s[1])
		}
	}
	heads := len(a.slopes)
	slopes := t.Constant(tensor.Of(a.slopes, 1, heads, 1))
	if steps && !a.rounded {
		high := t.Op("floor_divide.Scalar", positions, alibiParts)
		low := t.Op("sub.Tensor", positions, t.Op("mul.Tensor", high, alibiParts))
		parts := t.Op("stack", []layers.Tensor{high, low}, -1)
		both := make([]float32, 0, 2*heads)
		for _, x := range a.slopes {
			both = append(both, alibiParts*x, x)
		}
		return &alibiPass{
			queries: t.Constant(tensor.Of(both, 1, heads, 1, 2)),
			keys:    t.Op("unsqueeze", t.Op("to.dtype", parts, tensor.Float32), 1),
		}
	}
	at := t.Op("unsqueeze", t.Op("to.dtype", positions, tensor.Float32), 1)
	if !a.rounded {
		return &alibiPass{bias: t.Op("unsqueeze", t.Op("mul.Tensor", slopes, at), 2)}
	}
	round := func(x layers.Tensor) layers.Tensor {
		return t.Op("to.dtype", t.Op("to.dtype", x, tensor.BFloat16), tensor.Float32)
	}
	bias := round(t.Op("mul.Tensor", round(slopes), round(at)))
	if !steps {
		return &alibiPass{bias: t.Op("unsqueeze", t.Op("mul.Tensor", bias, a.scale), 2)}
	}
	ones := make([]float32, heads)
	for i := range ones {
		ones[i] = float32(a.scale)
	}
	return &alibiPass{queries: t.Constant(tensor.Of(ones, 1, heads, 1, 1)), keys: t.Op("unsqueeze", bias, 3)}
}

// apply returns queries and keys of [batch, heads, tokens, size] with what a step adds to them, or the bias of a forward.
func (p *alibiPass) apply(t *layers.Trace, q, k layers.Tensor, scaling float64) (queries, keys, bias layers.Tensor) {
	if p.bias != nil {
		return q, k, p.bias
	}
	longer := func(x, more layers.Tensor) layers.Tensor {
		s := x.Shape()
		if n := more.Shape()[1]; n != 1 && n != s[1] {
			t.Fail("step by step with positions added to scores of %d heads that share %d keys", n, s[1])
		}
		more = t.Op("expand", more, []int{s[0], s[1], s[2], more.Shape()[3]})
		return t.Op("cat", []layers.Tensor{x, more}, -1)
	}
	return longer(q, t.Op("div.Tensor", p.queries, scaling)), longer(k, p.keys), nil
}
