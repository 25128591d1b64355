package layers

import (
	"maps"
	"math"

	"github.com/optimem/optimem/tensor"
)

const multiheadAttention = "torch.nn.modules.activation.MultiheadAttention"

// attentionClasses let positions look at each other.
var attentionClasses = Classes{
	// Its forward takes query, key, value, key_padding_mask and attn_mask, and by name need_weights,
	// average_attn_weights and is_causal.
	multiheadAttention: {
		Forward: multiheadForward,
		Inputs: []Port{
			{Name: "query", DType: tensor.Float32}, {Name: "key", DType: tensor.Float32},
			{Name: "value", DType: tensor.Float32}, {Name: "key_padding_mask", DType: tensor.Bool, Optional: true},
			{Name: "attn_mask", DType: tensor.Float32, Optional: true},
		},
		Defaults: map[string]any{"_qkv_same_embed_dim": true, "batch_first": false, "add_zero_attn": false},
	},
}

// multiheadForward is MultiheadAttention's forward, by the way that exported programs take.
func multiheadForward(t *Trace, m *Module, args ...any) any {
	flags := Named{"need_weights": true, "average_attn_weights": true, "is_causal": false}
	if n := len(args); n > 0 {
		if named, ok := args[n-1].(Named); ok {
			args = args[:n-1]
			maps.Copy(flags, named)
		}
	}
	a := attention{
		Trace: t, m: m, query: argument(m, args, 0), key: argument(m, args, 1), value: argument(m, args, 2),
		keyPadding: optional(m, args, 3), mask: optional(m, args, 4),
	}
	a.weights, _ = flags["need_weights"].(bool)
	a.averaged, _ = flags["average_attn_weights"].(bool)
	a.causal, _ = flags["is_causal"].(bool)
	rank := len(a.query.Shape())
	if (rank != 2 && rank != 3) || len(a.key.Shape()) != rank || len(a.value.Shape()) != rank {
		fail("queries %v, keys %v and values %v", a.query.Shape(), a.key.Shape(), a.value.Shape())
	}
	a.keyPadding, a.mask = a.additive(a.keyPadding), a.additive(a.mask)
	swap := m.Bool("batch_first") && rank == 3
	if swap {
		a.transposeAll()
	}
	out, weights := a.run(rank == 3)
	if swap {
		out = t.Op("transpose.int", out, 1, 0)
	}
	if weights == nil {
		return []any{out, nil}
	}
	return []any{out, weights}
}

// An attention is a call of attention under way.
type attention struct {
	*Trace
	m                 *Module
	query, key, value Tensor
	// keyPadding and mask are what is added to the scores; nil for nothing.
	keyPadding, mask Tensor
	// weights asks for the attention's weights, averaged over the heads.
	weights, averaged bool
	// causal says that mask is the causal one.
	causal bool
}

// additive returns a mask as numbers to add: −∞ where a mask of truths is true.
func (a *attention) additive(mask Tensor) Tensor {
	if mask == nil || mask.DType() != tensor.Bool {
		return mask
	}
	return a.Op("masked_fill_.Scalar", a.Op("zeros_like", mask, Named{"dtype": a.query.DType()}), mask, math.Inf(-1))
}

// transposeAll puts the sequence before the batch. What is one tensor stays one.
func (a *attention) transposeAll() {
	swapped := func(x Tensor) Tensor { return a.Op("transpose.int", x, 1, 0) }
	query, key, value := a.query, a.key, a.value
	a.query = swapped(query)
	switch {
	case key == value && query == key:
		a.key, a.value = a.query, a.query
	case key == value:
		a.key = swapped(key)
		a.value = a.key
	default:
		a.key, a.value = swapped(key), swapped(value)
	}
}

// run is torch.nn.functional.multi_head_attention_forward.
func (a *attention) run(batched bool) (out, weights Tensor) {
	m := a.m
	if !batched {
		a.query, a.key, a.value = a.Op("unsqueeze", a.query, 1), a.Op("unsqueeze", a.key, 1),
			a.Op("unsqueeze", a.value, 1)
		if a.keyPadding != nil {
			a.keyPadding = a.Op("unsqueeze", a.keyPadding, 0)
		}
	}
	target, batch, width, source := a.query.Shape()[0], a.query.Shape()[1], a.query.Shape()[2], a.key.Shape()[0]
	heads := m.Int("num_heads")
	if width != m.Int("embed_dim") || heads < 1 || width < 1 || width%heads != 0 {
		fail("%d heads of embed_dim %d over queries %v", heads, m.Int("embed_dim"), a.query.Shape())
	}
	if s := a.key.Shape(); s[1] != batch || a.value.Shape()[0] != source || a.value.Shape()[1] != batch {
		fail("queries %v, keys %v and values %v", a.query.Shape(), s, a.value.Shape())
	}
	if a.causal && a.mask == nil {
		fail("is_causal without the mask")
	}
	if a.causal && a.keyPadding == nil && !a.weights {
		a.mask = nil
	} else if a.keyPadding != nil {
		a.causal = false
	}
	each := width / heads
	q, k, v := a.projections(width)
	a.checkMasks(batch, heads, target, source)
	if biasK := a.Param(m, "bias_k"); biasK != nil {
		k = a.Op("cat", []Tensor{k, a.Op("repeat", biasK, []int{1, batch, 1})})
		v = a.Op("cat", []Tensor{v, a.Op("repeat", a.Param(m, "bias_v"), []int{1, batch, 1})})
		a.widenMasks()
	}
	perHead := func(x Tensor) Tensor {
		x = a.Op("view", x, []int{x.Shape()[0], batch * heads, each})
		return a.Op("transpose.int", x, 0, 1)
	}
	q, k, v = perHead(q), perHead(k), perHead(v)
	if m.Bool("add_zero_attn") {
		zeros := func(x Tensor) Tensor {
			return a.Op("cat", []Tensor{x, a.Op("zeros", []int{batch * heads, 1, each}, Named{"dtype": x.DType()})}, 1)
		}
		k, v = zeros(k), zeros(v)
		a.widenMasks()
	}
	source = k.Shape()[1]
	if p := a.keyPadding; p != nil {
		p = a.Op("expand", a.Op("view", p, []int{batch, 1, 1, source}), []int{-1, heads, -1, -1})
		p = a.Op("reshape", p, []int{batch * heads, 1, source})
		if a.mask != nil {
			p = a.Op("add.Tensor", a.mask, p)
		}
		a.mask = p
	}
	if a.weights {
		out, weights = a.weighted(q, k, v, each)
		out = a.Op("reshape", a.Op("transpose.int", out, 0, 1), []int{target * batch, width})
	} else {
		if a.mask != nil && a.mask.Shape()[0] == 1 {
			a.mask = a.Op("unsqueeze", a.mask, 0)
		} else if a.mask != nil {
			a.mask = a.Op("view", a.mask, []int{batch, heads, -1, source})
		}
		q = a.Op("view", q, []int{batch, heads, target, each})
		k, v = a.Op("view", k, []int{batch, heads, source, each}), a.Op("view", v, []int{batch, heads, source, each})
		out = a.Op("scaled_dot_product_attention", q, k, v, a.mask, 0.0, a.causal)
		out = a.Op("reshape", a.Op("permute", out, []int{2, 0, 1, 3}), []int{target * batch, width})
	}
	return a.finish(out, weights, batched, []int{batch, heads, target, source})
}

// finish projects what attention gave, and gives both results the shapes that the caller of the module expects; sizes
// are those of the weights for each head.
func (a *attention) finish(out, weights Tensor, batched bool, sizes []int) (Tensor, Tensor) {
	projection := a.child(a.m, "out_proj")
	out = a.Op("linear", out, a.Param(projection, "weight"), a.Param(projection, "bias"))
	out = a.Op("view", out, []int{sizes[2], sizes[0], -1})
	if weights != nil {
		weights = a.Op("view", weights, sizes)
		if a.averaged {
			weights = a.Op("mean.dim", weights, []int{1})
		}
		if !batched {
			weights = a.Op("squeeze.dim", weights, 0)
		}
	}
	if !batched {
		out = a.Op("squeeze.dim", out, 1)
	}
	return out, weights
}

// projections returns queries, keys and values behind their linear layers.
func (a *attention) projections(width int) (q, k, v Tensor) {
	m := a.m
	bias := a.Param(m, "in_proj_bias")
	linear := func(x, w, b Tensor) Tensor { return a.Op("linear", x, w, b) }
	var biases [3]Tensor
	thirds := func(x Tensor) (parts [3]Tensor) {
		if x == nil {
			return parts
		}
		list := a.Tensors("chunk", x, 3)
		if len(list) != 3 {
			fail("an input projection %v", x.Shape())
		}
		return [3]Tensor(list)
	}
	if !m.Bool("_qkv_same_embed_dim") {
		biases = thirds(bias)
		return linear(a.query, a.Param(m, "q_proj_weight"), biases[0]),
			linear(a.key, a.Param(m, "k_proj_weight"), biases[1]),
			linear(a.value, a.Param(m, "v_proj_weight"), biases[2])
	}
	weight := a.Param(m, "in_proj_weight")
	// apart cuts n projections made at once.
	apart := func(x Tensor, n int) func(i int) Tensor {
		x = a.Op("unsqueeze", a.Op("unflatten.int", x, -1, []int{n, width}), 0)
		x = a.Op("contiguous", a.Op("squeeze.dim", a.Op("transpose.int", x, 0, -2), -2))
		return func(i int) Tensor { return a.Op("select.int", x, 0, i) }
	}
	switch {
	case a.key == a.value && a.query == a.key:
		part := apart(linear(a.query, weight, bias), 3)
		return part(0), part(1), part(2)
	case a.key == a.value:
		split := func(x Tensor) []Tensor {
			if x == nil {
				return []Tensor{nil, nil}
			}
			return a.Tensors("split_with_sizes", x, []int{width, 2 * width})
		}
		w, b := split(weight), split(bias)
		q = linear(a.query, w[0], b[0])
		part := apart(linear(a.key, w[1], b[1]), 2)
		return q, part(0), part(1)
	}
	weights := thirds(weight)
	biases = thirds(bias)
	return linear(a.query, weights[0], biases[0]), linear(a.key, weights[1], biases[1]),
		linear(a.value, weights[2], biases[2])
}

// checkMasks holds the masks against the scores, and gives mask three dimensions.
func (a *attention) checkMasks(batch, heads, target, source int) {
	if a.keyPadding != nil && !a.keyPadding.Shape().Equal(tensor.Shape{batch, source}) {
		fail("key_padding_mask %v where %v is wanted", a.keyPadding.Shape(), tensor.Shape{batch, source})
	}
	if a.mask == nil {
		return
	}
	switch s := a.mask.Shape(); {
	case s.Equal(tensor.Shape{target, source}):
		a.mask = a.Op("unsqueeze", a.mask, 0)
	case !s.Equal(tensor.Shape{batch * heads, target, source}):
		fail("attn_mask %v where %v or %v is wanted", s, tensor.Shape{target, source},
			tensor.Shape{batch * heads, target, source})
	}
}

// widenMasks makes room for one more key, which is seen.
func (a *attention) widenMasks() {
	if a.mask != nil {
		a.mask = a.Op("pad", a.mask, []int{0, 1})
	}
	if a.keyPadding != nil {
		a.keyPadding = a.Op("pad", a.keyPadding, []int{0, 1})
	}
}

// weighted is attention step by step, which keeps its weights.
func (a *attention) weighted(q, k, v Tensor, each int) (out, weights Tensor) {
	q = a.Op("mul.Tensor", q, math.Sqrt(1/float64(each)))
	if a.mask != nil {
		weights = a.Op("baddbmm", a.mask, q, a.Op("transpose.int", k, -2, -1))
	} else {
		weights = a.Op("bmm", q, a.Op("transpose.int", k, -2, -1))
	}
	weights = a.Op("softmax.int", weights, -1)
	return a.Op("bmm", weights, v), weights
}

// MultiheadAttention is torch.nn.MultiheadAttention; kdim, vdim, add_bias_kv and add_zero_attn are options.
func MultiheadAttention(width, heads int, opts ...Option) *Module {
	m := made(multiheadAttention, map[string]any{
		"embed_dim": width, "kdim": width, "vdim": width, "num_heads": heads, "dropout": 0.0, "batch_first": false,
		"add_zero_attn": false, "bias": true, "add_bias_kv": false,
	}, opts)
	bias, kv := m.Bool("bias"), m.Bool("add_bias_kv")
	delete(m.Attrs, "bias")
	delete(m.Attrs, "add_bias_kv")
	same := m.Int("kdim") == width && m.Int("vdim") == width
	m.Attrs["_qkv_same_embed_dim"] = same
	add := func(name string, there bool, shape ...int) {
		m.Param(name, shape...)
		m.Params[len(m.Params)-1].None = !there
	}
	if same {
		add("in_proj_weight", true, 3*width, width)
	}
	add("q_proj_weight", !same, width, width)
	add("k_proj_weight", !same, width, m.Int("kdim"))
	add("v_proj_weight", !same, width, m.Int("vdim"))
	if !same {
		add("in_proj_weight", false, 3*width, width)
	}
	add("in_proj_bias", bias, 3*width)
	add("bias_k", kv, 1, 1, width)
	add("bias_v", kv, 1, 1, width)
	projection := Linear(width, width, Attr("bias", bias))
	projection.Class = "torch.nn.modules.linear.NonDynamicallyQuantizableLinear"
	return m.Add("out_proj", projection)
}
