package sounds

import (
	"math"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
	"github.com/optimem/optimem/tensor"
)

// modelForward takes input_values and attention_mask.
func (s speech) modelForward(t *layers.Trace, m *layers.Module, args ...any) any {
	wave, mask := family.Optional(t, args, 0), family.Optional(t, args, 1)
	if wave == nil || len(wave.Shape()) != 2 {
		t.Fail("input_values of [batch, samples] are needed")
	}
	if mask != nil && !mask.Shape().Equal(wave.Shape()) {
		t.Fail("attention_mask is %v, and the samples are %v", mask.Shape(), wave.Shape())
	}
	features := t.Op("transpose.int", t.Child(m, "feature_extractor", wave), 1, 2)
	seen := speechSeen(t, m, mask, features.Shape()[1])
	projected := t.ChildOf(m, "feature_projection", features).([]layers.Tensor)
	states := t.ChildOf(m, "encoder", projected[0], seen).([]layers.Tensor)
	x := states[len(states)-1]
	if m.Has("adapter") {
		x = t.Child(m, "adapter", x)
	}
	out := layers.Fields{{Name: "last_hidden_state", Value: x}}
	if !s.bare {
		out = append(out, layers.Field{Name: "extract_features", Value: projected[1]})
	}
	if m.Bool("states") {
		out = append(out, layers.Field{Name: "hidden_states", Value: states[:len(states)-1]})
	}
	return out
}

// speechLengths returns how many moments are made of a mask's samples, [batch, 1]: windows of sizes, so many steps
// apart.
func speechLengths(t *layers.Trace, m *layers.Module, mask layers.Tensor) layers.Tensor {
	n := t.Op("sum.dim_IntList", mask, []int{1}, true)
	windows := m.Attrs["windows"].([]int)
	for i, step := range m.Ints("steps", len(windows)) {
		n = t.Op("floor_divide.Scalar", t.Op("sub.Tensor", n, windows[i]), step)
		n = t.Op("add.Tensor", n, 1)
	}
	return n
}

// speechSeen tells which moments are of more than padding, [batch, moments]; nil where there is no mask.
func speechSeen(t *layers.Trace, m *layers.Module, mask layers.Tensor, moments int) layers.Tensor {
	if mask == nil {
		return nil
	}
	n := speechLengths(t, m, mask)
	// The last one is the index before the length: as in Python it counts from the end where it is negative.
	last := t.Op("remainder.Scalar", t.Op("sub.Tensor", n, 1), moments)
	return t.Op("le.Tensor", t.Op("arange", moments), last)
}

func speechFeaturesForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	return t.Each(m.Child("conv_layers"), t.Op("unsqueeze", x, 1))
}

// speechNormedForward is a convolution with a norm over channels.
func speechNormedForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	return t.Child(m, "activation", overChannels(t, m, t.Child(m, "conv", x)))
}

// overChannels runs the norm of [batch, channels, time] over channels.
func overChannels(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	x = t.Child(m, "layer_norm", t.Op("transpose.int", x, -2, -1))
	return t.Op("transpose.int", x, -2, -1)
}

// speechProjectionForward gives states as wide as the encoder's, and what they are made of.
func speechProjectionForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x := args[0].(layers.Tensor)
	if m.Has("layer_norm") {
		x = t.Child(m, "layer_norm", x)
	}
	return []layers.Tensor{t.Child(m, "dropout", t.Child(m, "projection", x)), x}
}

// encoderForward takes states and which of them are seen. It gives the states before the first layer and after each,
// and what the encoder gives.
func (s speech) encoderForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, seen := args[0].(layers.Tensor), family.Optional(t, args, 1)
	if seen != nil {
		x = t.Op("masked_fill.Scalar", x, t.Op("logical_not", t.Op("unsqueeze", seen, -1)), 0)
	}
	shape, mask := x.Shape(), seen
	if !s.gated {
		mask = family.Masking{Batch: shape[0], Queries: shape[1], Keys: shape[1], Padding: seen, Additive: m.Bool("eager")}.Create(t)
	}
	x = t.Op("add.Tensor", x, t.Child(m, "pos_conv_embed", x))
	stable := m.Bool("stable")
	if !stable {
		x = t.Child(m, "layer_norm", x)
	}
	x = t.Child(m, "dropout", x)
	states := []layers.Tensor{x}
	var bias layers.Tensor
	for _, layer := range m.Child("layers").Children {
		out := t.Run(layer.Module, x, mask, bias).([]layers.Tensor)
		x, bias = out[0], out[1]
		states = append(states, x)
	}
	if stable {
		x = t.Child(m, "layer_norm", x)
	}
	return append(states, x)
}

func (s speech) positionsForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	x = t.Op("transpose.int", x, 1, 2)
	if list := m.Child("layers"); list != nil {
		x = t.Each(list, x)
	} else {
		if m.Has("batch_norm") {
			x = t.Child(m, "batch_norm", x)
		}
		x = family.Through("conv", "padding", "activation")(t, m, x)
	}
	return t.Op("transpose.int", x, 1, 2)
}

func speechStackedForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	return t.Child(m, "activation", overChannels(t, m, family.Through("conv", "padding")(t, m, x)))
}

// speechPadForward leaves out what a window of an even size makes too many.
func speechPadForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	if m.Int("remove") == 0 {
		return x
	}
	return t.Op("slice.Tensor", x, 2, 0, -1)
}

// parametrizedConvForward is Conv1d's with a weight that is computed.
func parametrizedConvForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	weight := t.ChildOf(m, "parametrizations.weight")
	return t.Op("conv1d", x, weight, t.Param(m, "bias"), m.Ints("stride", 1), m.Ints("padding", 1), m.Ints("dilation", 1), m.Int("groups"))
}

// parametrizedForward gives what the originals are made into.
func parametrizedForward(t *layers.Trace, m *layers.Module, _ ...any) any {
	return t.ChildOf(m, "0", t.Param(m, "original0"), t.Param(m, "original1"))
}

// weightNormForward takes lengths, one for each place of a window, and directions.
func weightNormForward(t *layers.Trace, _ *layers.Module, args ...any) any {
	return t.Op("_weight_norm", args[1], args[0], 2)
}

// speechLayerForward takes states, a mask and a bias, and gives states and the bias of the layers that follow: as the
// layers with norms at other places do.
func speechLayerForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x := args[0].(layers.Tensor)
	attended := t.ChildOf(m, "attention", args...).([]layers.Tensor)
	x = t.Child(m, "layer_norm", t.Op("add.Tensor", x, t.Child(m, "dropout", attended[0])))
	x = t.Child(m, "final_layer_norm", t.Op("add.Tensor", x, t.Child(m, "feed_forward", x)))
	return []layers.Tensor{x, attended[1]}
}

func speechStableLayerForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x := args[0].(layers.Tensor)
	attended := t.ChildOf(m, "attention", t.Child(m, "layer_norm", x), args[1], args[2]).([]layers.Tensor)
	x = t.Op("add.Tensor", x, t.Child(m, "dropout", attended[0]))
	x = t.Op("add.Tensor", x, t.Child(m, "feed_forward", t.Child(m, "final_layer_norm", x)))
	if m.Has("adapter_layer") {
		x = t.Op("add.Tensor", x, t.Child(m, "adapter_layer", x))
	}
	return []layers.Tensor{x, attended[1]}
}

func speechAttentionForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, size := family.Optional(t, args, 0), m.Int("head_dim")
	q, k, v := family.SplitHeads(t, m, "q_proj", x, size), family.SplitHeads(t, m, "k_proj", x, size), family.SplitHeads(t, m, "v_proj", x, size)
	out := family.Attention{Eager: m.Bool("eager")}.Run(t, m, q, k, v, family.Optional(t, args, 1))
	return []layers.Tensor{t.Child(m, "out_proj", out), nil}
}

// speechGatedForward takes states, which of them are seen, and the bias by distance, [1, heads, states, states], which
// the first layer makes. A state has as much of it as its gate says.
func speechGatedForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, seen, bias := family.Optional(t, args, 0), family.Optional(t, args, 1), family.Optional(t, args, 2)
	s, heads, size := x.Shape(), m.Int("num_heads"), m.Int("head_dim")
	if bias == nil {
		if !m.Has("rel_attn_embed") {
			t.Fail("a first layer that has no bias of distances")
		}
		at := speechBuckets(t, m, s[1])
		bias = t.Op("unsqueeze", t.Op("permute", t.Child(m, "rel_attn_embed", at), []int{2, 0, 1}), 0)
	}
	gates := t.Op("permute", t.Op("view", x, []int{s[0], s[1], heads, size}), []int{0, 2, 1, 3})
	gates = t.Op("view", t.Child(m, "gru_rel_pos_linear", gates), []int{s[0], heads, s[1], 2, 4})
	parts := t.Tensors("chunk", t.Op("sigmoid", t.Op("sum.dim_IntList", gates, []int{-1})), 2, -1)
	gate := t.Op("sub.Tensor", t.Op("mul.Tensor", parts[1], t.Param(m, "gru_rel_pos_const")), 1.0)
	gate = t.Op("add.Tensor", t.Op("mul.Tensor", parts[0], gate), 2.0)
	mask := t.Op("mul.Tensor", gate, bias)
	if seen != nil {
		mask = t.Op("where.ScalarOther", t.Op("view", seen, []int{s[0], 1, 1, s[1]}), mask, family.Lowest)
	}
	q, k, v := family.SplitHeads(t, m, "q_proj", x, size), family.SplitHeads(t, m, "k_proj", x, size), family.SplitHeads(t, m, "v_proj", x, size)
	out := family.Attention{}.Run(t, m, q, k, v, mask)
	return []layers.Tensor{t.Child(m, "out_proj", out), bias}
}

// speechBuckets tells of every two of so many places which bucket their distance is in: those before and those after
// have half of them each, near distances one by one and far ones by their logarithm.
func speechBuckets(t *layers.Trace, m *layers.Module, n int) layers.Tensor {
	places := t.Op("arange", n, layers.Named{"dtype": tensor.Int64})
	distance := t.Op("sub.Tensor", t.Op("unsqueeze", places, 0), t.Op("unsqueeze", places, 1))
	count := m.Int("num_buckets") / 2
	exact, far := count/2, m.Int("max_distance")
	after := t.Op("mul.Tensor", t.Op("to.dtype", t.Op("gt.Scalar", distance, 0), tensor.Int64), count)
	distance = t.Op("abs", distance)
	large := t.Op("log", t.Op("div.Tensor", t.Op("to.dtype", distance, tensor.Float32), exact))
	large = t.Op("div.Tensor", large, math.Log(float64(far)/float64(exact)))
	large = t.Op("add.Tensor", t.Op("mul.Tensor", large, count-exact), exact)
	large = t.Op("to.dtype", large, tensor.Int64)
	large = t.Op("min.other", large, t.Op("full_like", large, count-1))
	near := t.Op("lt.Scalar", distance, exact)
	return t.Op("add.Tensor", after, t.Op("where.self", near, distance, large))
}

func speechAdapterForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	if m.Has("proj") {
		x = family.Through("proj", "proj_layer_norm")(t, m, x)
	}
	x = t.Each(m.Child("layers"), t.Op("transpose.int", x, 1, 2))
	return t.Op("transpose.int", x, 1, 2)
}

func speechAdapterLayerForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	return t.Op("glu", t.Child(m, "conv", x), 1)
}

// states runs the base model of a head: the last states, or of all layers as much as learnt weights say.
func (s speech) states(t *layers.Trace, m *layers.Module, args []any) layers.Tensor {
	out := t.ChildOf(m, s.prefix, args...).(layers.Fields)
	list, weighted := out[len(out)-1].Value.([]layers.Tensor)
	if !weighted {
		return family.Field(out, "last_hidden_state")
	}
	weights := t.Op("softmax.int", t.Param(m, "layer_weights"), -1)
	var sum layers.Tensor
	for i, x := range list {
		if x = t.Op("mul.Tensor", x, t.Op("select.int", weights, 0, i)); sum != nil {
			x = t.Op("add.Tensor", sum, x)
		}
		sum = x
	}
	return sum
}

// sequenceForward classifies by the mean of what is seen.
func (s speech) sequenceForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x := t.Child(m, "projector", s.states(t, m, args))
	if seen := speechSeen(t, m.Child(s.prefix), family.Optional(t, args, 1), x.Shape()[1]); seen == nil {
		x = t.Op("mean.dim", x, []int{1})
	} else {
		x = speechMean(t, x, seen, 0)
	}
	return layers.Fields{{Name: "logits", Value: t.Child(m, "classifier", x)}}
}

// speechMean returns the sum of the states that are seen, [batch, size], by their number or by one that is less by so
// much.
func speechMean(t *layers.Trace, x, seen layers.Tensor, less int) layers.Tensor {
	weights := t.Op("to.dtype", t.Op("unsqueeze", seen, -1), tensor.Float32)
	count := t.Op("sum.dim_IntList", weights, []int{1})
	if less > 0 {
		count = t.Op("sub.Tensor", count, less)
	}
	return t.Op("div.Tensor", t.Op("sum.dim_IntList", t.Op("mul.Tensor", x, weights), []int{1}), count)
}

func (s speech) framesForward(t *layers.Trace, m *layers.Module, args ...any) any {
	return layers.Fields{{Name: "logits", Value: t.Child(m, "classifier", s.states(t, m, args))}}
}

// speakerForward makes a vector of the mean and the deviation of what windows make of the states.
func (s speech) speakerForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x := t.Each(m.Child("tdnn"), t.Child(m, "projector", s.states(t, m, args)))
	var mean, deviation layers.Tensor
	if mask := family.Optional(t, args, 1); mask == nil {
		mean, deviation = t.Op("mean.dim", x, []int{1}), t.Op("std.dim", x, []int{1})
	} else {
		n := speechLengths(t, m.Child(s.prefix), mask)
		for _, window := range m.Attrs["windows"].([]int) {
			n = t.Op("sub.Tensor", n, window-1)
		}
		seen := t.Op("lt.Tensor", t.Op("arange", x.Shape()[1]), n)
		mean = speechMean(t, x, seen, 0)
		away := t.Op("sub.Tensor", x, t.Op("unsqueeze", mean, 1))
		deviation = t.Op("sqrt", speechMean(t, t.Op("mul.Tensor", away, away), seen, 1))
	}
	x = t.Child(m, "feature_extractor", t.Op("cat", []layers.Tensor{mean, deviation}, -1))
	return layers.Fields{
		{Name: "logits", Value: t.Child(m, "classifier", x)},
		{Name: "embeddings", Value: x},
	}
}

// speechTDNNForward is a convolution whose weight lies as that of a linear layer.
func speechTDNNForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	kernel := m.Child("kernel")
	weight, window := t.Param(kernel, "weight"), m.Int("window")
	s := weight.Shape()
	weight = t.Op("transpose.int", t.Op("view", weight, []int{s[0], window, s[1] / window}), 1, 2)
	x = t.Op("conv1d", t.Op("transpose.int", x, 1, 2), weight, t.Param(kernel, "bias"), []int{1}, []int{0}, []int{m.Int("dilation")})
	return t.Child(m, "activation", t.Op("transpose.int", x, 1, 2))
}
