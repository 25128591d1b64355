package transformers

import (
	"math"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// A masking says which tokens see which: transformers' masking_utils.
type masking struct {
	// batch, queries and keys are the sizes.
	batch, queries, keys int
	// causal tokens see those before them; of those only the last window where it is not 0. Others see all, or those that are
	// no further away than the window.
	causal bool
	window int
	// chunk is how many tokens there are in the chunks that tokens see none before; 0 for no such. Chunks begin behind padding.
	chunk int
	// padding is attention_mask: int64 of [batch, keys], nil for none.
	padding layers.Tensor
	// positions are position_ids, [1 or batch, queries]. Where there is no padding, several sequences packed into a row
	// are told apart by them. nil for none.
	positions layers.Tensor
	// additive masks are added to the scores, as the eager attention wants them. Others are true where a token is seen.
	additive bool
}

// create returns the mask, [batch, 1, queries, keys].
func (k masking) create(t *layers.Trace) layers.Tensor {
	padding := k.padding
	if padding != nil {
		if s := padding.Shape(); len(s) != 2 || s[0] != k.batch || s[1] != k.keys {
			t.Fail("attention_mask is %v, and the tokens are [%d %d]", s, k.batch, k.keys)
		}
		padding = t.Op("to.dtype", padding, tensor.Bool)
	}
	var positions, packed layers.Tensor
	if k.positions != nil && padding == nil {
		positions = t.Op("expand", k.positions, []int{k.batch, -1})
		first := t.Op("sub.Tensor", t.Op("slice.Tensor", positions, 1, 0, 1), 1)
		steps := t.Op("diff", positions, 1, -1, first)
		packed = t.Op("cumsum", t.Op("ne.Scalar", steps, 1), -1)
	}
	batch := t.Op("arange", k.batch)
	t.Op("arange", 1) // the index of the head, which no mask depends on
	q := t.Op("add.Tensor", t.Op("arange", k.queries), 0)
	kv := t.Op("add.Tensor", t.Op("arange", k.keys), 0)
	batch = t.Op("view", batch, []int{-1, 1, 1, 1})
	q = t.Op("view", q, []int{1, 1, -1, 1})
	kv = t.Op("view", kv, []int{1, 1, 1, -1})

	at := func(x, index layers.Tensor) layers.Tensor {
		return t.Op("index.Tensor", x, []layers.Tensor{batch, index})
	}
	sees := func() layers.Tensor { return k.sees(t, q, kv) }
	if packed != nil {
		sees = all(t, q,
			func() layers.Tensor { return t.Op("eq.Tensor", at(packed, q), at(packed, kv)) },
			func() layers.Tensor {
				pq := at(positions, q)
				return k.sees(t, pq, at(positions, kv))
			})
	}
	if padding != nil {
		sees = all(t, q, sees, func() layers.Tensor { return at(padding, kv) })
	}
	mask := t.Op("expand", sees(), []int{k.batch, -1, k.queries, k.keys})
	if !k.additive {
		return mask
	}
	zero := t.Op("zeros", []int{}, layers.Named{"dtype": tensor.Float32})
	return t.Op("where.ScalarOther", mask, zero, lowest)
}

// lowest is the smallest finite number of float32.
const lowest = -math.MaxFloat32

// sees tells for indices of queries and keys whether the one sees the other.
func (k masking) sees(t *layers.Trace, q, kv layers.Tensor) layers.Tensor {
	before := func() layers.Tensor { return t.Op("le.Tensor", kv, q) }
	switch {
	case k.chunk > 0:
		return all(t, q, func() layers.Tensor { return k.sameChunk(t, q, kv) }, before)()
	case !k.causal && k.window == 0:
		return t.Op("ge.Scalar", q, 0)
	case !k.causal:
		return t.Op("le.Scalar", t.Op("abs", t.Op("sub.Tensor", q, kv)), k.window)
	case k.window == 0:
		return before()
	}
	return all(t, q, func() layers.Tensor {
		return t.Op("gt.Tensor", kv, t.Op("sub.Tensor", q, k.window))
	}, before)()
}

// sameChunk tells for indices of queries and keys whether they are in one chunk.
func (k masking) sameChunk(t *layers.Trace, q, kv layers.Tensor) layers.Tensor {
	if k.padding != nil {
		none := t.Op("eq.Scalar", t.Op("cumsum", k.padding, -1), 0)
		left := t.Op("view", t.Op("sum.dim_IntList", none, []int{-1}), []int{-1, 1, 1, 1})
		q, kv = t.Op("sub.Tensor", q, left), t.Op("sub.Tensor", kv, left)
	}
	of := func(x layers.Tensor) layers.Tensor { return t.Op("floor_divide.Scalar", x, k.chunk) }
	return t.Op("eq.Tensor", of(kv), of(q))
}

// all is and_masks: a token is seen where every condition holds.
func all(t *layers.Trace, q layers.Tensor, conditions ...func() layers.Tensor) func() layers.Tensor {
	return func() layers.Tensor {
		result := t.Op("new_ones", q, []int{}, layers.Named{"dtype": tensor.Bool})
		for _, c := range conditions {
			result = t.Op("__and__.Tensor", result, c())
		}
		return result
	}
}
