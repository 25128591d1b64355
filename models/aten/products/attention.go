package products

import (
	"fmt"
	"math"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// attentionTargets let positions look at each other.
var attentionTargets = []call.Overload{
	call.Several("aten::scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, "+
		"float dropout_p=0., bool is_causal=False, *, float? scale=None, bool enable_gqa=False) -> Tensor",
		attention("attn_mask", func(c *call.Call, r []*cells.Ref) { c.Set(r[0]) }, "")),
	call.Several("aten::_scaled_dot_product_attention_math(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, "+
		"float dropout_p=0., bool is_causal=False, Tensor? dropout_mask=None, *, float? scale=None, "+
		"bool enable_gqa=False) -> (Tensor, Tensor)",
		attention("attn_mask", func(c *call.Call, r []*cells.Ref) { c.Set(r[0], r[1]) }, "weights")),
	call.Several("aten::_scaled_dot_product_flash_attention_for_cpu(Tensor query, Tensor key, Tensor value, float dropout_p=0., "+
		"bool is_causal=False, *, Tensor? attn_mask=None, float? scale=None) -> (Tensor output, Tensor logsumexp)",
		attention("attn_mask", func(c *call.Call, r []*cells.Ref) { c.Set(r[0], r[1]) }, "logsumexp")),
	// What programs exported for other devices hold. Their random states have no meaning here.
	call.Several("aten::_scaled_dot_product_efficient_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_bias, "+
		"bool compute_log_sumexp, float dropout_p=0., bool is_causal=False, *, float? scale=None) -> "+
		"(Tensor output, Tensor log_sumexp, Tensor philox_seed, Tensor philox_offset)",
		attention("attn_bias", func(c *call.Call, r []*cells.Ref) { c.Set(r[0], nil, nil, nil) }, "")),
	call.Several("aten::_scaled_dot_product_flash_attention(Tensor query, Tensor key, Tensor value, float dropout_p=0., "+
		"bool is_causal=False, bool return_debug_mask=False, *, float? scale=None) -> (Tensor output, Tensor logsumexp, "+
		"Tensor cum_seq_q, Tensor cum_seq_k, SymInt max_q, SymInt max_k, Tensor rng_state, Tensor unused, "+
		"Tensor debug_attn_mask)", attention("", deviceAttention, "")),
	call.Several("aten::_scaled_dot_product_cudnn_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_bias, "+
		"bool compute_log_sumexp, float dropout_p=0., bool is_causal=False, bool return_debug_mask=False, *, "+
		"float? scale=None) -> (Tensor output, Tensor logsumexp, Tensor cum_seq_q, Tensor cum_seq_k, SymInt max_q, "+
		"SymInt max_k, Tensor philox_seed, Tensor philox_offset, Tensor debug_attn_mask)",
		attention("attn_bias", deviceAttention, "")),
	call.Several("aten::_scaled_dot_product_fused_attention_overrideable(Tensor query, Tensor key, Tensor value, "+
		"Tensor? attn_bias=None, float dropout_p=0., bool is_causal=False, bool return_debug_mask=False, *, "+
		"float? scale=None) -> (Tensor output, Tensor logsumexp, Tensor cum_seq_q, Tensor cum_seq_k, SymInt max_q, "+
		"SymInt max_k, Tensor philox_seed, Tensor philox_offset, Tensor debug_attn_mask)",
		attention("attn_bias", deviceAttention, "")),
	call.Several("aten::dropout(Tensor input, float p, bool train) -> Tensor", dropout("input")),
	call.Several("aten::dropout_(Tensor(a!) self, float p, bool train) -> Tensor(a!)", dropout("self")),
	call.Several("aten::feature_dropout(Tensor input, float p, bool train) -> Tensor", dropout("input")),
	call.Several("aten::feature_dropout_(Tensor(a!) self, float p, bool train) -> Tensor(a!)", dropout("self")),
	call.Several("aten::alpha_dropout(Tensor input, float p, bool train) -> Tensor", dropout("input")),
	call.Several("aten::alpha_dropout_(Tensor(a!) self, float p, bool train) -> Tensor(a!)", dropout("self")),
	call.Several("aten::feature_alpha_dropout(Tensor input, float p, bool train) -> Tensor", dropout("input")),
	call.Several("aten::feature_alpha_dropout_(Tensor(a!) self, float p, bool train) -> Tensor(a!)", dropout("self")),
	call.Several("aten::native_dropout(Tensor input, float p, bool? train) -> (Tensor, Tensor)",
		func(c *call.Call) error {
			r := c.Tensor("input")
			if c.Err != nil {
				return c.Err
			}
			if train := !c.Has("train") || c.Bool("train"); train && c.Float("p") != 0 {
				return errDropout
			}
			kept, err := c.Full(true, tensor.Bool, r.Shape())
			if err != nil {
				return err
			}
			out, err := c.Copy(r)
			if err != nil {
				return err
			}
			c.Set(out, kept)
			return nil
		}),
}

var errDropout = fmt.Errorf("dropout is random while training: export the model in evaluation, model.eval()")

// dropout gives its argument, as PyTorch does outside of training.
func dropout(name string) func(c *call.Call) error {
	return func(c *call.Call) error {
		if r := c.Tensor(name); !c.Bool("train") || c.Float("p") == 0 || cells.NumElements(r.Shape()) == 0 {
			return c.GiveRef(r, nil)
		}
		return errDropout
	}
}

// deviceAttention gives the results of attention as GPUs give it: the attention and the lengths.
func deviceAttention(c *call.Call, r []*cells.Ref) {
	q, k := c.Tensor("query"), c.Tensor("key")
	c.Set(r[0], nil, nil, nil, q.Shape()[q.Rank()-2], k.Shape()[k.Rank()-2], nil, nil, nil)
}

// attention builds attention from the arguments of torch.nn.functional.scaled_dot_product_attention. mask names the
// mask; also is the further result, and give sets the results.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func attention(mask string, give func(c *call.Call, r []*cells.Ref), also string) func(c *call.Call) error {
	return func(c *call.Call) error {
		q, k, v := c.Tensor("query"), c.Tensor("key"), c.Tensor("value")
		var m *cells.Ref
		if mask != "" {
			m = c.OptTensor(mask)
		}
		causal := c.Bool("is_causal")
		if c.Err != nil {
			return c.Err
		}
		switch {
		case q.Rank() < 2 || k.Rank() < 2 || v.Rank() < 2:
			return fmt.Errorf("queries %v, keys %v and values %v", q.Shape(), k.Shape(), v.Shape())
		case c.Float("dropout_p") != 0 || c.Has("dropout_mask"):
			return errDropout
		case m != nil && causal:
			return fmt.Errorf("a mask and is_causal together")
		}
		scale := 1.0
		if width := q.Shape()[q.Rank()-1]; width > 0 {
			scale = 1 / math.Sqrt(float64(width))
		}
		attrs := graph.Attrs{"scale": c.OptFloat("scale", scale), "is_causal": causal, "also": also}
		if c.Err != nil {
			return c.Err
		}
		if m != nil && m.DType() == tensor.Bool && also == "weights" {
			// Called by itself this op adds a mask of truths as ones and zeros.
			var err error
			if m, err = c.Cast(m, q.DType()); err != nil {
				return err
			}
		}
		r, err := attend(c.Builder, q, k, v, m, c.Bool("enable_gqa"), attrs)
		if err != nil {
			return err
		}
		give(c, r)
		return c.Err
	}
}

// attend emits attention over operands whose leading dimensions broadcast. With shared, several heads of queries share
// one of keys and values.
func attend(b *cells.Builder, q, k, v, mask *cells.Ref, shared bool, attrs graph.Attrs) ([]*cells.Ref, error) {
	split := 0 // how many heads of queries share one head of keys
	if shared && q.Rank() > 2 && k.Rank() > 2 && v.Rank() > 2 {
		var err error
		heads := q.Shape()[q.Rank()-3]
		if k, err = groupHeads(b, k, heads, v); err != nil {
			return nil, err
		}
		if v, err = groupHeads(b, v, heads, k); err != nil {
			return nil, err
		}
		if n := k.Shape()[k.Rank()-3]; n != heads && n > 0 {
			split = heads / n
			q = b.View(q, splitDim(q.Layout(), q.Rank()-3, split))
			k, v = b.Unsqueeze(k, k.Rank()-2), b.Unsqueeze(v, v.Rank()-2)
		}
	}
	lead := func(r *cells.Ref) tensor.Shape { return r.Shape()[:r.Rank()-2] }
	batch, err := cells.Broadcast(lead(q), lead(k), lead(v))
	if err != nil {
		return nil, fmt.Errorf("queries %v, keys %v and values %v: %w", q.Shape(), k.Shape(), v.Shape(), err)
	}
	if q, err = expandLeading(b, q, batch, 2); err != nil {
		return nil, err
	}
	if k, err = expandLeading(b, k, batch, 2); err != nil {
		return nil, err
	}
	if v, err = expandLeading(b, v, batch, 2); err != nil {
		return nil, err
	}
	if mask != nil {
		weights := slices.Concat(batch, tensor.Shape{q.Shape()[q.Rank()-2], k.Shape()[k.Rank()-2]})
		if split > 0 {
			at := len(weights) - 4
			whole := slices.Concat(weights[:at], tensor.Shape{weights[at] * split}, weights[at+2:])
			if mask, err = b.Expand(mask, whole); err == nil {
				mask = b.View(mask, splitDim(mask.Layout(), at, split))
			}
		} else {
			mask, err = b.Expand(mask, weights)
		}
		if err != nil {
			return nil, fmt.Errorf("mask: %w", err)
		}
	}
	results, err := b.Emit("scaled_dot_product_attention", attrs, b.Read(q), b.Read(k), b.Read(v), b.Read(mask))
	if err != nil || split == 0 {
		return results, err
	}
	for i, r := range results {
		at := len(batch) - 2
		shape := slices.Concat(r.Shape()[:at], tensor.Shape{batch[at] * batch[at+1]}, r.Shape()[at+2:])
		if results[i], err = b.Reshape(r, shape); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// splitDim returns the layout with dimension d cut into runs of n.
func splitDim(l tensor.Layout, d, n int) tensor.Layout {
	return tensor.Layout{
		Shape:   slices.Concat(l.Shape[:d], tensor.Shape{l.Shape[d] / n, n}, l.Shape[d+1:]),
		Strides: slices.Concat(l.Strides[:d], []int{l.Strides[d] * n, l.Strides[d]}, l.Strides[d+1:]),
		Offset:  l.Offset,
	}
}

// groupHeads checks that the heads of keys or values divide those of the queries, and repeats them where the other of
// the two has another number of heads.
func groupHeads(b *cells.Builder, r *cells.Ref, heads int, other *cells.Ref) (*cells.Ref, error) {
	d := r.Rank() - 3
	n := r.Shape()[d]
	if n == heads {
		return r, nil
	}
	if n == 0 || heads == 0 || heads%n != 0 {
		return nil, fmt.Errorf("%d heads of queries do not share %d of keys or values", heads, n)
	}
	if n == other.Shape()[other.Rank()-3] {
		return r, nil
	}
	shape := slices.Clone(r.Shape())
	shape[d] = heads
	wide := b.Unsqueeze(r, d+1)
	wide, err := b.Expand(wide, slices.Concat(shape[:d], tensor.Shape{n, heads / n}, shape[d+1:]))
	if err != nil {
		return nil, err
	}
	return b.Reshape(wide, shape)
}
