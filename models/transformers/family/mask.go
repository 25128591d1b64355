package family

import (
	"math"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// A Masking says which tokens see which: transformers' masking_utils.
type Masking struct {
	// Batch, Queries and Keys are the sizes.
	Batch, Queries, Keys int
	// Causal tokens see those before them; of those only the last Window where it is not 0. Others see all, or those that are
	// no further away than that.
	Causal bool
	Window int
	// Chunk is how many tokens there are in the chunks that tokens see none before; 0 for no such. Chunks begin behind padding.
	Chunk int
	// Padding is attention_mask: int64 of [batch, keys], nil for none.
	Padding layers.Tensor
	// Positions are position_ids, [1 or batch, queries]. Where there is no padding, several sequences packed into a row
	// are told apart by them. nil for none.
	Positions layers.Tensor
	// Additive masks are added to the scores, as the eager attention wants them. Others are true where a token is seen.
	Additive bool
}

// Create returns the mask, [batch, 1, queries, keys].
func (k Masking) Create(t *layers.Trace) layers.Tensor {
	padding := k.Padding
	if padding != nil {
		if s := padding.Shape(); len(s) != 2 || s[0] != k.Batch || s[1] != k.Keys {
			t.Fail("attention_mask is %v, and the tokens are [%d %d]", s, k.Batch, k.Keys)
		}
		padding = t.Op("to.dtype", padding, tensor.Bool)
	}
	var positions, packed layers.Tensor
	if k.Positions != nil && padding == nil {
		positions = t.Op("expand", k.Positions, []int{k.Batch, -1})
		first := t.Op("sub.Tensor", t.Op("slice.Tensor", positions, 1, 0, 1), 1)
		steps := t.Op("diff", positions, 1, -1, first)
		packed = t.Op("cumsum", t.Op("ne.Scalar", steps, 1), -1)
	}
	batch := t.Op("arange", k.Batch)
	t.Op("arange", 1) // the index of the head, which no mask depends on
	q := t.Op("add.Tensor", t.Op("arange", k.Queries), 0)
	kv := t.Op("add.Tensor", t.Op("arange", k.Keys), 0)
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
	mask := t.Op("expand", sees(), []int{k.Batch, -1, k.Queries, k.Keys})
	if !k.Additive {
		return mask
	}
	zero := t.Op("zeros", []int{}, layers.Named{"dtype": tensor.Float32})
	return t.Op("where.ScalarOther", mask, zero, Lowest)
}

// Lowest is the smallest finite number of float32.
const Lowest = -math.MaxFloat32

// sees tells for indices of queries and keys whether the one sees the other.
func (k Masking) sees(t *layers.Trace, q, kv layers.Tensor) layers.Tensor {
	before := func() layers.Tensor { return t.Op("le.Tensor", kv, q) }
	switch {
	case k.Chunk > 0:
		return all(t, q, func() layers.Tensor { return k.sameChunk(t, q, kv) }, before)()
	case !k.Causal && k.Window == 0:
		return t.Op("ge.Scalar", q, 0)
	case !k.Causal:
		return t.Op("le.Scalar", t.Op("abs", t.Op("sub.Tensor", q, kv)), k.Window)
	case k.Window == 0:
		return before()
	}
	return all(t, q, func() layers.Tensor {
		return t.Op("gt.Tensor", kv, t.Op("sub.Tensor", q, k.Window))
	}, before)()
}

// sameChunk tells for indices of queries and keys whether they are in one chunk.
func (k Masking) sameChunk(t *layers.Trace, q, kv layers.Tensor) layers.Tensor {
	if k.Padding != nil {
		none := t.Op("eq.Scalar", t.Op("cumsum", k.Padding, -1), 0)
		left := t.Op("view", t.Op("sum.dim_IntList", none, []int{-1}), []int{-1, 1, 1, 1})
		q, kv = t.Op("sub.Tensor", q, left), t.Op("sub.Tensor", kv, left)
	}
	of := func(x layers.Tensor) layers.Tensor { return t.Op("floor_divide.Scalar", x, k.Chunk) }
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
