package aten

import (
	"fmt"
	"math"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// encoderTargets are the whole layers that PyTorch's transformer modules call when they need no gradient.
var encoderTargets = []atenOp{
	{"aten::_native_multi_head_attention(Tensor query, Tensor key, Tensor value, int embed_dim, int num_head, " +
		"Tensor qkv_weight, Tensor qkv_bias, Tensor proj_weight, Tensor proj_bias, Tensor? mask=None, " +
		"bool need_weights=True, bool average_attn_weights=True, int? mask_type=None) -> (Tensor, Tensor)",
		nativeMultiHeadAttention},
	op("aten::_transformer_encoder_layer_fwd(Tensor src, int embed_dim, int num_heads, Tensor qkv_weight, "+
		"Tensor qkv_bias, Tensor proj_weight, Tensor proj_bias, bool use_gelu, bool norm_first, float eps, "+
		"Tensor norm_weight_1, Tensor norm_bias_1, Tensor norm_weight_2, Tensor norm_bias_2, Tensor ffn_weight_1, "+
		"Tensor ffn_bias_1, Tensor ffn_weight_2, Tensor ffn_bias_2, Tensor? mask=None, int? mask_type=None) -> Tensor",
		transformerEncoderLayer),
}

func nativeMultiHeadAttention(c *call) error {
	query := c.tensor("query")
	out, weights, err := c.multiHeadAttention(query, c.tensor("key"), c.tensor("value"), c.int("num_head"))
	if err != nil {
		return err
	}
	if !c.bool("need_weights") {
		c.set(out, nil)
		return c.err
	}
	if c.bool("average_attn_weights") {
		attrs := graph.Attrs{"dims": []int{1}, "keepdim": false, "dtype": weights.dtype}
		if weights, err = c.apply("mean", attrs, weights); err != nil {
			return err
		}
	}
	c.set(out, weights)
	return c.err
}

// multiHeadAttention builds attention with the call's projections and mask. A mask is true where a key is not seen; a
// query that sees none gives NaN, unlike scaled_dot_product_attention.
func (c *call) multiHeadAttention(query, key, value *Ref, heads int) (out, weights *Ref, err error) {
	width := c.int("embed_dim")
	if c.err != nil {
		return nil, nil, c.err
	}
	inWeight, inBias := c.tensor("qkv_weight"), c.tensor("qkv_bias")
	outWeight, outBias := c.tensor("proj_weight"), c.tensor("proj_bias")
	shape := query.shape()
	if len(shape) != 3 || shape[2] != width || !key.shape().Equal(shape) || !value.shape().Equal(shape) ||
		heads < 1 || width%heads != 0 || width < 1 ||
		!inWeight.shape().Equal(tensor.Shape{3 * width, width}) || !inBias.shape().Equal(tensor.Shape{3 * width}) {
		return nil, nil, fmt.Errorf("attention of %d heads over %v, %v and %v with weights %v",
			heads, shape, key.shape(), value.shape(), inWeight.shape())
	}
	// projected returns one of the three projections as [B heads L width/heads].
	projected := func(x *Ref, i int) (*Ref, error) {
		w := c.slice(inWeight, 0, i*width, (i+1)*width, 1)
		r, err := c.linear(x, w, c.slice(inBias, 0, i*width, (i+1)*width, 1))
		if err != nil {
			return nil, err
		}
		return c.permute(c.view(r, splitDim(r.layout, 2, width/heads)), 0, 2, 1, 3), nil
	}
	q, err := projected(query, 0)
	if err != nil {
		return nil, nil, err
	}
	k, err := projected(key, 1)
	if err != nil {
		return nil, nil, err
	}
	v, err := projected(value, 2)
	if err != nil {
		return nil, nil, err
	}
	scale := graph.Attrs{"alpha": 1 / math.Sqrt(float64(width/heads)), "beta": 1.0}
	scores, err := c.apply("matmul", scale, q, c.transpose(k, 2, 3))
	if err != nil {
		return nil, nil, err
	}
	if mask := c.optTensor("mask"); mask != nil {
		if scores, err = c.masked(scores, mask); err != nil {
			return nil, nil, err
		}
	}
	if weights, err = c.apply("softmax", graph.Attrs{"dim": 3}, scores); err != nil {
		return nil, nil, err
	}
	seen, err := c.multiply(weights, v)
	if err != nil {
		return nil, nil, err
	}
	if seen, err = c.Reshape(c.permute(seen, 0, 2, 1, 3), shape); err != nil {
		return nil, nil, err
	}
	out, err = c.linear(seen, outWeight, outBias)
	return out, weights, err
}

// masked returns scores [B heads L S] with −∞ where the mask is true. Its type is 0 for [L S], 1 for [B S] and 2 for
// [B heads L S].
func (c *call) masked(scores, mask *Ref) (*Ref, error) {
	mask, err := c.Cast(mask, tensor.Bool)
	if err != nil {
		return nil, err
	}
	if kind := c.optInt("mask_type", -1); kind == 1 && mask.rank() == 2 {
		mask = c.unsqueeze(c.unsqueeze(mask, 1), 1)
	} else if kind < 0 || kind > 2 || kind == 1 {
		return nil, fmt.Errorf("a mask %v of type %d", mask.shape(), kind)
	}
	if mask, err = c.expand(mask, scores.shape()); err != nil {
		return nil, fmt.Errorf("mask: %w", err)
	}
	hidden, err := c.full(math.Inf(-1), scores.dtype, scores.shape())
	if err != nil {
		return nil, err
	}
	return c.apply("where", nil, mask, hidden, scores)
}

// transformerEncoderLayer builds torch.nn.TransformerEncoderLayer.
func transformerEncoderLayer(c *call) (*Ref, error) {
	src, normFirst := c.tensor("src"), c.bool("norm_first")
	eps := c.float("eps")
	if c.err != nil {
		return nil, c.err
	}
	if src.rank() != 3 {
		return nil, fmt.Errorf("a source %v", src.shape())
	}
	norm := func(x *Ref, which string) (*Ref, error) {
		attrs := graph.Attrs{"dims": 1, "eps": eps}
		return c.apply("layer_norm", attrs, x, c.tensor("norm_weight_"+which), c.tensor("norm_bias_"+which))
	}
	attention := func(x *Ref) (*Ref, error) {
		out, _, err := c.multiHeadAttention(x, x, x, c.int("num_heads"))
		return out, err
	}
	feedForward := func(x *Ref) (*Ref, error) {
		inner, err := c.linear(x, c.tensor("ffn_weight_1"), c.tensor("ffn_bias_1"))
		if err != nil {
			return nil, err
		}
		if c.bool("use_gelu") {
			inner, err = c.apply("gelu", graph.Attrs{"approximate": "none"}, inner)
		} else {
			inner, err = c.apply("relu", nil, inner)
		}
		if err != nil {
			return nil, err
		}
		return c.linear(inner, c.tensor("ffn_weight_2"), c.tensor("ffn_bias_2"))
	}
	// block builds x + f(x) with a norm before f or after the sum.
	block := func(x *Ref, f func(x *Ref) (*Ref, error), which string) (*Ref, error) {
		steps := []func(x *Ref) (*Ref, error){
			f,
			func(y *Ref) (*Ref, error) { return c.sum("add", y, x, 1) },
			func(y *Ref) (*Ref, error) { return norm(y, which) },
		}
		if normFirst {
			steps = slices.Concat(steps[2:], steps[:2])
		}
		y := x
		for _, step := range steps {
			var err error
			if y, err = step(y); err != nil {
				return nil, err
			}
		}
		return y, nil
	}
	x, err := block(src, attention, "1")
	if err != nil {
		return nil, err
	}
	return block(x, feedForward, "2")
}
