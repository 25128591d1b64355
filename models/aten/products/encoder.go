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

// encoderTargets are the whole layers that PyTorch's transformer modules call when they need no gradient.
var encoderTargets = []call.Overload{
	call.Several("aten::_native_multi_head_attention(Tensor query, Tensor key, Tensor value, int embed_dim, int num_head, "+
		"Tensor qkv_weight, Tensor qkv_bias, Tensor proj_weight, Tensor proj_bias, Tensor? mask=None, "+
		"bool need_weights=True, bool average_attn_weights=True, int? mask_type=None) -> (Tensor, Tensor)",
		nativeMultiHeadAttention),
	call.One("aten::_transformer_encoder_layer_fwd(Tensor src, int embed_dim, int num_heads, Tensor qkv_weight, "+
		"Tensor qkv_bias, Tensor proj_weight, Tensor proj_bias, bool use_gelu, bool norm_first, float eps, "+
		"Tensor norm_weight_1, Tensor norm_bias_1, Tensor norm_weight_2, Tensor norm_bias_2, Tensor ffn_weight_1, "+
		"Tensor ffn_bias_1, Tensor ffn_weight_2, Tensor ffn_bias_2, Tensor? mask=None, int? mask_type=None) -> Tensor",
		transformerEncoderLayer),
}

func nativeMultiHeadAttention(c *call.Call) error {
	query := c.Tensor("query")
	out, weights, err := multiHeadAttention(c, query, c.Tensor("key"), c.Tensor("value"), c.Int("num_head"))
	if err != nil {
		return err
	}
	if !c.Bool("need_weights") {
		c.Set(out, nil)
		return c.Err
	}
	if c.Bool("average_attn_weights") {
		attrs := graph.Attrs{"dims": []int{1}, "keepdim": false, "dtype": weights.DType()}
		if weights, err = c.Apply("mean", attrs, weights); err != nil {
			return err
		}
	}
	c.Set(out, weights)
	return c.Err
}

// multiHeadAttention builds attention with the call's projections and mask. A mask is true where a key is not seen; a
// query that sees none gives NaN, unlike scaled_dot_product_attention.
func multiHeadAttention(c *call.Call, query, key, value *cells.Ref, heads int) (out, weights *cells.Ref, err error) {
	width := c.Int("embed_dim")
	if c.Err != nil {
		return nil, nil, c.Err
	}
	inWeight, inBias := c.Tensor("qkv_weight"), c.Tensor("qkv_bias")
	outWeight, outBias := c.Tensor("proj_weight"), c.Tensor("proj_bias")
	shape := query.Shape()
	if len(shape) != 3 || shape[2] != width || !key.Shape().Equal(shape) || !value.Shape().Equal(shape) ||
		heads < 1 || width%heads != 0 || width < 1 ||
		!inWeight.Shape().Equal(tensor.Shape{3 * width, width}) || !inBias.Shape().Equal(tensor.Shape{3 * width}) {
		return nil, nil, fmt.Errorf("attention of %d heads over %v, %v and %v with weights %v",
			heads, shape, key.Shape(), value.Shape(), inWeight.Shape())
	}
	// projected returns one of the three projections as [B heads L width/heads].
	projected := func(x *cells.Ref, i int) (*cells.Ref, error) {
		w := c.Slice(inWeight, 0, i*width, (i+1)*width, 1)
		r, err := linear(c.Builder, x, w, c.Slice(inBias, 0, i*width, (i+1)*width, 1))
		if err != nil {
			return nil, err
		}
		return c.Permute(c.View(r, splitDim(r.Layout(), 2, width/heads)), 0, 2, 1, 3), nil
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
	scores, err := c.Apply("matmul", scale, q, c.Transpose(k, 2, 3))
	if err != nil {
		return nil, nil, err
	}
	if mask := c.OptTensor("mask"); mask != nil {
		if scores, err = masked(c, scores, mask); err != nil {
			return nil, nil, err
		}
	}
	if weights, err = c.Apply("softmax", graph.Attrs{"dim": 3}, scores); err != nil {
		return nil, nil, err
	}
	seen, err := multiply(c.Builder, weights, v)
	if err != nil {
		return nil, nil, err
	}
	if seen, err = c.Reshape(c.Permute(seen, 0, 2, 1, 3), shape); err != nil {
		return nil, nil, err
	}
	out, err = linear(c.Builder, seen, outWeight, outBias)
	return out, weights, err
}

// masked returns scores [B heads L S] with −∞ where the mask is true. Its type is 0 for [L S], 1 for [B S] and 2 for
// [B heads L S].
func masked(c *call.Call, scores, mask *cells.Ref) (*cells.Ref, error) {
	mask, err := c.Cast(mask, tensor.Bool)
	if err != nil {
		return nil, err
	}
	if kind := c.OptInt("mask_type", -1); kind == 1 && mask.Rank() == 2 {
		mask = c.Unsqueeze(c.Unsqueeze(mask, 1), 1)
	} else if kind < 0 || kind > 2 || kind == 1 {
		return nil, fmt.Errorf("a mask %v of type %d", mask.Shape(), kind)
	}
	if mask, err = c.Expand(mask, scores.Shape()); err != nil {
		return nil, fmt.Errorf("mask: %w", err)
	}
	hidden, err := c.Full(math.Inf(-1), scores.DType(), scores.Shape())
	if err != nil {
		return nil, err
	}
	return c.Apply("where", nil, mask, hidden, scores)
}

// transformerEncoderLayer builds torch.nn.TransformerEncoderLayer.
func transformerEncoderLayer(c *call.Call) (*cells.Ref, error) {
	src, normFirst := c.Tensor("src"), c.Bool("norm_first")
	eps := c.Float("eps")
	if c.Err != nil {
		return nil, c.Err
	}
	if src.Rank() != 3 {
		return nil, fmt.Errorf("a source %v", src.Shape())
	}
	norm := func(x *cells.Ref, which string) (*cells.Ref, error) {
		attrs := graph.Attrs{"dims": 1, "eps": eps}
		return c.Apply("layer_norm", attrs, x, c.Tensor("norm_weight_"+which), c.Tensor("norm_bias_"+which))
	}
	attention := func(x *cells.Ref) (*cells.Ref, error) {
		out, _, err := multiHeadAttention(c, x, x, x, c.Int("num_heads"))
		return out, err
	}
	feedForward := func(x *cells.Ref) (*cells.Ref, error) {
		inner, err := linear(c.Builder, x, c.Tensor("ffn_weight_1"), c.Tensor("ffn_bias_1"))
		if err != nil {
			return nil, err
		}
		if c.Bool("use_gelu") {
			inner, err = c.Apply("gelu", graph.Attrs{"approximate": "none"}, inner)
		} else {
			inner, err = c.Apply("relu", nil, inner)
		}
		if err != nil {
			return nil, err
		}
		return linear(c.Builder, inner, c.Tensor("ffn_weight_2"), c.Tensor("ffn_bias_2"))
	}
	// block builds x + f(x) with a norm before f or after the sum.
	block := func(x *cells.Ref, f func(x *cells.Ref) (*cells.Ref, error), which string) (*cells.Ref, error) {
		steps := []func(x *cells.Ref) (*cells.Ref, error){
			f,
			func(y *cells.Ref) (*cells.Ref, error) { return c.Sum("add", y, x, 1) },
			func(y *cells.Ref) (*cells.Ref, error) { return norm(y, which) },
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
