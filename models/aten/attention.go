package aten

import (
	"fmt"
	"math"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// attentionTargets let positions look at each other.
var attentionTargets = []atenOp{
	{"aten::scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, " +
		"float dropout_p=0., bool is_causal=False, *, float? scale=None, bool enable_gqa=False) -> Tensor",
		attention("attn_mask", func(c *call, r []*Ref) { c.set(r[0]) }, "")},
	{"aten::_scaled_dot_product_attention_math(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, " +
		"float dropout_p=0., bool is_causal=False, Tensor? dropout_mask=None, *, float? scale=None, " +
		"bool enable_gqa=False) -> (Tensor, Tensor)",
		attention("attn_mask", func(c *call, r []*Ref) { c.set(r[0], r[1]) }, "weights")},
	{"aten::_scaled_dot_product_flash_attention_for_cpu(Tensor query, Tensor key, Tensor value, float dropout_p=0., " +
		"bool is_causal=False, *, Tensor? attn_mask=None, float? scale=None) -> (Tensor output, Tensor logsumexp)",
		attention("attn_mask", func(c *call, r []*Ref) { c.set(r[0], r[1]) }, "logsumexp")},
	// What programs exported for other devices hold. Their random states have no meaning here.
	{"aten::_scaled_dot_product_efficient_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_bias, " +
		"bool compute_log_sumexp, float dropout_p=0., bool is_causal=False, *, float? scale=None) -> " +
		"(Tensor output, Tensor log_sumexp, Tensor philox_seed, Tensor philox_offset)",
		attention("attn_bias", func(c *call, r []*Ref) { c.set(r[0], nil, nil, nil) }, "")},
	{"aten::_scaled_dot_product_flash_attention(Tensor query, Tensor key, Tensor value, float dropout_p=0., " +
		"bool is_causal=False, bool return_debug_mask=False, *, float? scale=None) -> (Tensor output, Tensor logsumexp, " +
		"Tensor cum_seq_q, Tensor cum_seq_k, SymInt max_q, SymInt max_k, Tensor rng_state, Tensor unused, " +
		"Tensor debug_attn_mask)", attention("", deviceAttention, "")},
	{"aten::_scaled_dot_product_cudnn_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_bias, " +
		"bool compute_log_sumexp, float dropout_p=0., bool is_causal=False, bool return_debug_mask=False, *, " +
		"float? scale=None) -> (Tensor output, Tensor logsumexp, Tensor cum_seq_q, Tensor cum_seq_k, SymInt max_q, " +
		"SymInt max_k, Tensor philox_seed, Tensor philox_offset, Tensor debug_attn_mask)",
		attention("attn_bias", deviceAttention, "")},
	{"aten::_scaled_dot_product_fused_attention_overrideable(Tensor query, Tensor key, Tensor value, " +
		"Tensor? attn_bias=None, float dropout_p=0., bool is_causal=False, bool return_debug_mask=False, *, " +
		"float? scale=None) -> (Tensor output, Tensor logsumexp, Tensor cum_seq_q, Tensor cum_seq_k, SymInt max_q, " +
		"SymInt max_k, Tensor philox_seed, Tensor philox_offset, Tensor debug_attn_mask)",
		attention("attn_bias", deviceAttention, "")},
	{"aten::dropout(Tensor input, float p, bool train) -> Tensor", dropout("input")},
	{"aten::dropout_(Tensor(a!) self, float p, bool train) -> Tensor(a!)", dropout("self")},
	{"aten::feature_dropout(Tensor input, float p, bool train) -> Tensor", dropout("input")},
	{"aten::feature_dropout_(Tensor(a!) self, float p, bool train) -> Tensor(a!)", dropout("self")},
	{"aten::alpha_dropout(Tensor input, float p, bool train) -> Tensor", dropout("input")},
	{"aten::alpha_dropout_(Tensor(a!) self, float p, bool train) -> Tensor(a!)", dropout("self")},
	{"aten::feature_alpha_dropout(Tensor input, float p, bool train) -> Tensor", dropout("input")},
	{"aten::feature_alpha_dropout_(Tensor(a!) self, float p, bool train) -> Tensor(a!)", dropout("self")},
	{"aten::native_dropout(Tensor input, float p, bool? train) -> (Tensor, Tensor)", func(c *call) error {
		r := c.tensor("input")
		if c.err != nil {
			return c.err
		}
		if train := !c.has("train") || c.bool("train"); train && c.float("p") != 0 {
			return errDropout
		}
		kept, err := c.full(true, tensor.Bool, r.shape())
		if err != nil {
			return err
		}
		out, err := c.copy(r)
		if err != nil {
			return err
		}
		c.set(out, kept)
		return nil
	}},
}

var errDropout = fmt.Errorf("dropout is random while training: export the model in evaluation, model.eval()")

// dropout gives its argument, as PyTorch does outside of training.
func dropout(name string) func(c *call) error {
	return func(c *call) error {
		if r := c.tensor(name); !c.bool("train") || c.float("p") == 0 || NumElements(r.shape()) == 0 {
			return c.giveRef(r, nil)
		}
		return errDropout
	}
}

// deviceAttention gives the results of attention as GPUs give it: the attention and the lengths.
func deviceAttention(c *call, r []*Ref) {
	q, k := c.tensor("query"), c.tensor("key")
	c.set(r[0], nil, nil, nil, q.shape()[q.rank()-2], k.shape()[k.rank()-2], nil, nil, nil)
}

// attention builds attention from the arguments of torch.nn.functional.scaled_dot_product_attention. mask names the
// mask; also is the further result, and give sets the results.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func attention(mask string, give func(c *call, r []*Ref), also string) func(c *call) error {
	return func(c *call) error {
		q, k, v := c.tensor("query"), c.tensor("key"), c.tensor("value")
		var m *Ref
		if mask != "" {
			m = c.optTensor(mask)
		}
		causal := c.bool("is_causal")
		if c.err != nil {
			return c.err
		}
		switch {
		case q.rank() < 2 || k.rank() < 2 || v.rank() < 2:
			return fmt.Errorf("queries %v, keys %v and values %v", q.shape(), k.shape(), v.shape())
		case c.float("dropout_p") != 0 || c.has("dropout_mask"):
			return errDropout
		case m != nil && causal:
			return fmt.Errorf("a mask and is_causal together")
		}
		scale := 1.0
		if width := q.shape()[q.rank()-1]; width > 0 {
			scale = 1 / math.Sqrt(float64(width))
		}
		attrs := graph.Attrs{"scale": c.optFloat("scale", scale), "is_causal": causal, "also": also}
		if c.err != nil {
			return c.err
		}
		if m != nil && m.dtype == tensor.Bool && also == "weights" {
			// Called by itself this op adds a mask of truths as ones and zeros.
			var err error
			if m, err = c.Cast(m, q.dtype); err != nil {
				return err
			}
		}
		r, err := c.attend(q, k, v, m, c.bool("enable_gqa"), attrs)
		if err != nil {
			return err
		}
		give(c, r)
		return c.err
	}
}

// attend emits attention over operands whose leading dimensions broadcast. With shared, several heads of queries share
// one of keys and values.
func (b *Builder) attend(q, k, v, mask *Ref, shared bool, attrs graph.Attrs) ([]*Ref, error) {
	split := 0 // how many heads of queries share one head of keys
	if shared && q.rank() > 2 && k.rank() > 2 && v.rank() > 2 {
		var err error
		heads := q.shape()[q.rank()-3]
		if k, err = b.groupHeads(k, heads, v); err != nil {
			return nil, err
		}
		if v, err = b.groupHeads(v, heads, k); err != nil {
			return nil, err
		}
		if n := k.shape()[k.rank()-3]; n != heads && n > 0 {
			split = heads / n
			q = b.view(q, splitDim(q.layout, q.rank()-3, split))
			k, v = b.unsqueeze(k, k.rank()-2), b.unsqueeze(v, v.rank()-2)
		}
	}
	lead := func(r *Ref) tensor.Shape { return r.shape()[:r.rank()-2] }
	batch, err := broadcast(lead(q), lead(k), lead(v))
	if err != nil {
		return nil, fmt.Errorf("queries %v, keys %v and values %v: %w", q.shape(), k.shape(), v.shape(), err)
	}
	if q, err = b.expandLeading(q, batch, 2); err != nil {
		return nil, err
	}
	if k, err = b.expandLeading(k, batch, 2); err != nil {
		return nil, err
	}
	if v, err = b.expandLeading(v, batch, 2); err != nil {
		return nil, err
	}
	if mask != nil {
		weights := slices.Concat(batch, tensor.Shape{q.shape()[q.rank()-2], k.shape()[k.rank()-2]})
		if split > 0 {
			at := len(weights) - 4
			whole := slices.Concat(weights[:at], tensor.Shape{weights[at] * split}, weights[at+2:])
			if mask, err = b.expand(mask, whole); err == nil {
				mask = b.view(mask, splitDim(mask.layout, at, split))
			}
		} else {
			mask, err = b.expand(mask, weights)
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
		shape := slices.Concat(r.shape()[:at], tensor.Shape{batch[at] * batch[at+1]}, r.shape()[at+2:])
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
func (b *Builder) groupHeads(r *Ref, heads int, other *Ref) (*Ref, error) {
	d := r.rank() - 3
	n := r.shape()[d]
	if n == heads {
		return r, nil
	}
	if n == 0 || heads == 0 || heads%n != 0 {
		return nil, fmt.Errorf("%d heads of queries do not share %d of keys or values", heads, n)
	}
	if n == other.shape()[other.rank()-3] {
		return r, nil
	}
	shape := slices.Clone(r.shape())
	shape[d] = heads
	wide := b.unsqueeze(r, d+1)
	wide, err := b.expand(wide, slices.Concat(shape[:d], tensor.Shape{n, heads / n}, shape[d+1:]))
	if err != nil {
		return nil, err
	}
	return b.Reshape(wide, shape)
}
