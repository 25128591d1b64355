package transformers

import (
	"encoding/json"
	"slices"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
	"github.com/optimem/optimem/tensor"
)

// recurrents are the families whose layers, or some of them, keep a state of a fixed size beside keys and values or in
// place of them.
var recurrents = []*family.Family{
	mamba, falconMamba, mamba2, lfm2, falconH1, graniteHybrid, bamba, qwen3Next, qwen35, qwen35Moe,
	lfm2Moe, jamba, nemotronH, minimax, kimiLinear,
}

// backboneNames are the names of the modules of Mamba.
var backboneNames = names{base: "backbone", embed: "embeddings", norm: "norm_f", before: [2]string{"norm"}}

// noContext bounds positions where nothing else does.
const noContext = 1 << 20

var (
	mamba = recurrentFamily(decoder{
		model: "mamba", class: module("mamba", "Mamba"), name: "Mamba", vocabulary: 50280, hidden: 768, inner: 1, layers: 32, heads: 1,
		positions: noContext, eps: 1e-5, epsKey: "layer_norm_epsilon", act: silu, actKey: hiddenAct, pad: 0, ties: true,
		names: backboneNames, renames: []string{"embedding.weight", "embeddings.weight"}, still: true, bare: true,
		mixer: func(d *decoder, c *family.Config, _ int, s shape) (string, *layers.Module) {
			return "mixer", d.selective(c, s.hidden)
		},
	}, selectiveForward)

	falconMamba = recurrentFamily(decoder{
		model: "falcon_mamba", class: module("falcon_mamba", "FalconMamba"), name: "FalconMamba", vocabulary: 50280, hidden: 768, inner: 1,
		layers: 32, heads: 1, positions: noContext, eps: 1e-5, epsKey: "layer_norm_epsilon", act: silu, actKey: hiddenAct, pad: 0, ties: true,
		names: backboneNames, still: true, bare: true,
		mixer: func(d *decoder, c *family.Config, _ int, s shape) (string, *layers.Module) {
			m := d.selective(c, s.hidden)
			m.Attrs["normed"] = c.Float("mixer_rms_eps", 1e-6)
			return "mixer", m
		},
	}, selectiveForward)

	mamba2 = recurrentFamily(decoder{
		model: "mamba2", class: module("mamba2", "Mamba2"), name: "Mamba2", vocabulary: 32768, hidden: 4096, inner: 1, layers: 64, heads: 1,
		positions: noContext, eps: 1e-5, epsKey: "layer_norm_epsilon", act: silu, actKey: hiddenAct, pad: 1,
		names: backboneNames, renames: []string{"embedding.weight", "embeddings.weight"}, still: true, bare: true,
		mixer: func(d *decoder, c *family.Config, _ int, s shape) (string, *layers.Module) {
			bias := c.Flag("use_bias", false)
			x := dual{
				inner: int(c.Float("expand", 2) * float64(s.hidden)), heads: c.Size("num_heads", 128), size: c.Size("head_dim", 64),
				groups: c.Size("n_groups", 8), state: c.Size("state_size", 128), taps: c.Size("conv_kernel", 4), bias: bias, outBias: bias,
				convBias: c.Flag("use_conv_bias", true), norm: "gated",
			}
			x.least, x.most = stepLimits(c)
			return "mixer", d.duality(c, s.hidden, x)
		},
	}, dualityForward)

	lfm2 = lfm2Family(nil, decoder{
		model: "lfm2", class: module("lfm2", "Lfm2"), name: "Lfm2", vocabulary: 65536, hidden: 2560, inner: 12288, layers: 32, heads: 32,
		keys: 8, positions: 128000, eps: 1e-5, epsKey: "norm_eps", act: silu, pad: 0, ties: true, rope: rope{theta: 1e6},
		feed: func(d *decoder, c *family.Config, _ int, s shape) *layers.Module {
			return d.mlp(c, s.hidden, lfm2Inner(c, s.inner))
		},
	})

	lfm2Moe = lfm2Family(&mixture{
		block: "SparseMoeBlock", router: "TopKRouter", experts: "Experts", gate: "gate", number: 32, chosen: 4, inner: 1792,
		numberKey: expertsKey, chosenKey: chosenKey, innerKey: "moe_intermediate_size", scores: sigmoids, normalized: normTopK(true),
		dense: func(c *family.Config) func(i int) bool {
			n := c.Number("num_dense_layers", 2)
			return func(i int) bool { return i < n }
		},
		outer: func(c *family.Config) string {
			if c.Flag("use_expert_bias", true) {
				return "expert_bias"
			}
			return ""
		},
		more: func(c *family.Config, router *layers.Module, _ int) {
			router.Attrs["epsilon"], router.Attrs["factor"] = 1e-6, c.Float("routed_scaling_factor", 1)
		},
	}, decoder{
		model: "lfm2_moe", class: module("lfm2_moe", "Lfm2Moe"), name: "Lfm2Moe", vocabulary: 65536, hidden: 2048, inner: 7168, layers: 32,
		heads: 32, keys: 8, positions: 128000, eps: 1e-5, epsKey: "norm_eps", act: silu, pad: 0, ties: true, rope: rope{theta: 1e6},
		renames: []string{".w1.", ".gate_proj.", ".w2.", ".down_proj.", ".w3.", ".up_proj."},
	})

	jamba = jambaFamily()

	falconH1 = recurrentFamily(decoder{
		model: "falcon_h1", class: module("falcon_h1", "FalconH1"), name: "FalconH1", vocabulary: 128000, hidden: 4096, inner: 14336,
		layers: 32, heads: 32, keys: 8, positions: 8192, eps: 1e-5, act: silu, actKey: hiddenAct, pad: 0, qkvBias: attentionBias,
		outBias: attentionBias, mlpBias: mlpBias, recurrent: true,
		names: names{
			norm: "final_layernorm", mlp: "feed_forward", before: [2]string{"input_layernorm", "pre_ff_layernorm"},
		},
		embedding: factor("embedding_multiplier", 1), logits: factor("lm_head_multiplier", 1), keyFactor: factor("key_multiplier", 1),
		more: falconH1Layer,
	}, dualityForward)

	bamba = recurrentFamily(decoder{
		model: "bamba", class: module("bamba", "Bamba"), name: "Bamba", vocabulary: 128000, hidden: 4096, inner: 14336, layers: 32,
		heads: 32, keys: 8, positions: 262144, eps: 1e-5, act: silu, actKey: hiddenAct, pad: 0, qkvBias: attentionBias,
		outBias: attentionBias, mlpBias: mlpBias, rope: rope{part: 0.5},
		names: names{
			norm: "final_layernorm", mlp: "feed_forward", before: [2]string{"input_layernorm", "pre_ff_layernorm"},
		},
		mixer: func(d *decoder, c *family.Config, i int, s shape) (string, *layers.Module) {
			if slices.Contains(numbers(c, "attn_layer_indices"), i) {
				return "", nil
			}
			return "mamba", d.duality(c, s.hidden, dualOf(c, s.hidden, "gated"))
		},
	}, dualityForward)

	graniteHybrid = graniteHybridFamily()

	qwen3Next = deltaFamily(qwenMixture(512, 10, 512), decoder{
		model: "qwen3_next", class: module("qwen3_next", "Qwen3Next"), name: "Qwen3Next", vocabulary: 151936, hidden: 2048, inner: 5632,
		layers: 48, heads: 16, keys: 2, size: 256, positions: 32768, eps: 1e-6, ignored: []string{`^mtp`}, qaPrefix: "transformer",
	}, true)

	qwen35 = deltaFamily(nil, decoder{
		model: "qwen3_5_text", class: module("qwen3_5", "Qwen3_5"), name: "Qwen3_5", vocabulary: 248320, hidden: 4096, inner: 12288,
		layers: 32, heads: 16, keys: 4, size: 256, positions: 32768, eps: 1e-6, ignored: []string{`^mtp`, `^model.visual`},
	}, false)

	qwen35Moe = deltaFamily(qwenMixture(256, 8, 512), decoder{
		model: "qwen3_5_moe_text", class: module("qwen3_5_moe", "Qwen3_5Moe"), name: "Qwen3_5Moe", vocabulary: 248320, hidden: 2048,
		layers: 40, heads: 16, keys: 2, size: 256, positions: 32768, eps: 1e-6, ignored: []string{`^mtp`, `^model.visual`},
	}, false)
)

// lfm2Family is the family of a decoder whose layers have an attention or a short convolution. x is nil where no layer
// has experts.
func lfm2Family(x *mixture, d decoder) *family.Family {
	d.headNorm = headNorm{kind: eachHead}
	d.names = names{
		norm: "embedding_norm", mlp: "feed_forward", before: [2]string{"operator_norm", "ffn_norm"}, gate: "w1", up: "w3", down: "w2",
		o: "out_proj", qNorm: "q_layernorm", kNorm: "k_layernorm",
	}
	d.mixer = func(d *decoder, c *family.Config, i int, s shape) (string, *layers.Module) {
		if lfm2Attends(c, i, s.layers) {
			return "", nil
		}
		bias := c.Flag("conv_bias", false)
		return "conv", layers.New(d.class+"Mixer", map[string]any{"hidden": s.hidden}).
			Add("conv", d.causalConv(c, s.hidden, c.Size("conv_L_cache", 3), bias)).
			Add("in_proj", layers.Linear(s.hidden, 3*s.hidden, layers.Attr("bias", bias))).
			Add("out_proj", layers.Linear(s.hidden, s.hidden, layers.Attr("bias", bias)))
	}
	if x != nil {
		d.feed = x.feed
	}
	f := recurrentFamily(d, shortConvForward)
	if x != nil {
		x.join(f, d.class)
	}
	return f
}

// jambaFamily is transformers/models/jamba/modeling_jamba.py: mixers of Mamba with norms, some attentions without
// positions, and experts in every other layer.
func jambaFamily() *family.Family {
	of := func(c *family.Config, kind string, period, offset int) func(i int) bool {
		n, first := c.Size(kind+"_layer_period", period), c.Number(kind+"_layer_offset", offset)
		return func(i int) bool { return i%n == first }
	}
	x := mixture{
		block: "SparseMoeBlock", router: "TopKRouter", experts: "Experts", gate: "router", number: 16, chosen: 2, numberKey: expertsKey,
		chosenKey: chosenKey, scores: softmaxOfAll,
		dense: func(c *family.Config) func(i int) bool {
			mixed := of(c, "expert", 2, 1)
			return func(i int) bool { return c.Size(expertsKey, 16) == 1 || !mixed(i) }
		},
	}
	d := decoder{
		model: "jamba", class: module("jamba", "Jamba"), name: "Jamba", vocabulary: 65536, hidden: 4096, inner: 14336, layers: 32,
		heads: 32, keys: 8, positions: 262144, eps: 1e-6, act: silu, actKey: hiddenAct, pad: 0, still: true, feed: x.feed, noTokens: true,
		names: names{
			norm: "final_layernorm", mlp: "feed_forward", before: [2]string{"input_layernorm", "pre_ff_layernorm"},
		},
		mixer: func(d *decoder, c *family.Config, i int, s shape) (string, *layers.Module) {
			if of(c, "attn", 8, 4)(i) {
				return "", nil
			}
			m := d.selective(c, s.hidden)
			for k, size := range []int{m.Int("rank"), m.Int("state"), m.Int("state")} {
				m.Add(selectiveNorms[k], d.normModule(c, size))
			}
			return "mamba", m
		},
	}
	f := withMixer(d.family(), d.class, selectiveForward)
	x.join(f, d.class)
	return f
}

// numbers returns an entry that is a list of numbers.
func numbers(c *family.Config, key string) []int {
	key, v := c.Value(key)
	list, isList := v.([]any)
	if v != nil && !isList {
		c.Fail(key, "is %s, not a list", family.Short(v))
	}
	var numbers []int
	for _, x := range list {
		n, _ := x.(json.Number)
		if at, err := n.Int64(); err == nil {
			numbers = append(numbers, int(at))
		} else {
			c.Fail(key, "is %s, not a list of numbers", family.Short(v))
		}
	}
	return numbers
}

// floats returns an entry that is a list of so many numbers, of which each is 1 where it is not there.
func floats(c *family.Config, key string, n int) []float64 {
	numbers := slices.Repeat([]float64{1}, n)
	key, v := c.Value(key)
	if v == nil {
		return numbers
	}
	list, _ := v.([]any)
	if len(list) != n {
		c.Fail(key, "is %s, not a list of %d numbers", family.Short(v), n)
		return numbers
	}
	for i, x := range list {
		number, _ := x.(json.Number)
		var err error
		if numbers[i], err = number.Float64(); err != nil {
			c.Fail(key, "is %s, not a list of numbers", family.Short(v))
		}
	}
	return numbers
}

// dualOf reads the sizes of a mixer of Mamba 2 from the entries that models with attention beside it have.
func dualOf(c *family.Config, hidden int, norm string) dual {
	x := dual{
		inner: int(c.Float("mamba_expand", 2) * float64(hidden)), heads: c.Size("mamba_n_heads", 128), groups: c.Size("mamba_n_groups", 1),
		state: c.Size("mamba_d_state", 256), taps: c.Size("mamba_d_conv", 4), bias: c.Flag("mamba_proj_bias", false),
		convBias: c.Flag("mamba_conv_bias", true), norm: norm,
	}
	x.outBias = x.bias
	return dualHeads(c, x)
}

// dualHeads reads how large heads are, and what bounds steps.
func dualHeads(c *family.Config, x dual) dual {
	x.size = max(x.inner/max(x.heads, 1), 1)
	if v, isText := c.Fields["mamba_d_head"].(string); !isText || v != "auto" {
		x.size = c.Size("mamba_d_head", x.size)
	}
	x.least, x.most = stepLimits(c)
	return x
}

// falconH1Layer adds to a layer of Falcon-H1 the mixer beside the attention, and its factors.
func falconH1Layer(d *decoder, c *family.Config, _ int, s shape, layer *layers.Module) {
	norm := ""
	if c.Flag("mamba_rms_norm", false) {
		if norm = "gated"; c.Flag("mamba_norm_before_gate", true) {
			norm = "before"
		}
	}
	x := dualOf(c, s.hidden, norm)
	if v, there := c.Fields["mamba_d_ssm"]; !there || v != nil {
		x.inner = c.Size("mamba_d_ssm", 1024)
		x = dualHeads(c, x)
	}
	x.outBias = c.Flag("projectors_bias", false)
	m := d.duality(c, s.hidden, x)
	m.Attrs["in_factor"] = c.Float("ssm_in_multiplier", 1)
	if by := floats(c, "ssm_multipliers", 5); c.Err == nil && slices.ContainsFunc(by, func(x float64) bool { return x != 1 }) {
		var vector []float32
		for i, n := range []int{x.inner, x.inner, x.groups * x.state, x.groups * x.state, x.heads} {
			vector = append(vector, slices.Repeat([]float32{float32(by[i])}, n)...)
		}
		m.Params = append(m.Params, layers.Param{
			Name: "mup_vector", DType: tensor.Float32, Shape: tensor.Shape{len(vector)}, Buffer: true, Transient: true,
			Value: tensor.Of(vector, len(vector)),
		})
	}
	layer.Add("mamba", m)
	layer.Attrs["attention_in"], layer.Attrs["attention_out"] = c.Float("attention_in_multiplier", 1), c.Float("attention_out_multiplier", 1)
	layer.Attrs["mixer_out"] = c.Float("ssm_out_multiplier", 1)
	mlp := layer.Child(d.names.mlp)
	by := floats(c, "mlp_multipliers", 2)
	mlp.Class, mlp.Attrs["gate_factor"], mlp.Attrs["down_factor"] = d.class+"ScaledMLP", by[0], by[1]
	layer.Class = d.class + "BothLayer"
}

// scaledBy multiplies with a factor that is not 1.
func scaledBy(t *layers.Trace, x layers.Tensor, by float64) layers.Tensor {
	if by == 1 {
		return x
	}
	return t.Op("mul.Tensor", x, by)
}

// bothLayerForward adds to the states what the attention and the mixer beside it make of them, then what the MLP makes
// of that.
func bothLayerForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, n := args[0].(layers.Tensor), m.Attrs["decoder"].(*decoder).names
	seen := t.Child(m, n.before[0], x)
	mixed := t.ChildOf(m, "mamba", seen, args[1], false).(layers.Tensor)
	attended := t.ChildOf(m, n.attention, scaledBy(t, seen, m.Float("attention_in")), args[1], false).(layers.Tensor)
	both := t.Op("add.Tensor", scaledBy(t, mixed, m.Float("mixer_out")), scaledBy(t, attended, m.Float("attention_out")))
	x = t.Op("add.Tensor", x, both)
	return t.Op("add.Tensor", x, t.Child(m, n.mlp, t.Child(m, n.before[1], x)))
}

// scaledMLPForward is the MLP of Falcon-H1.
func scaledMLPForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	n := m.Attrs["decoder"].(*decoder).names
	gate := t.Child(m, n.act, scaledBy(t, t.Child(m, n.gate, x), m.Float("gate_factor")))
	y := t.Child(m, n.down, t.Op("mul.Tensor", t.Child(m, n.up, x), gate))
	return scaledBy(t, y, m.Float("down_factor"))
}

// graniteHybridFamily is Granite 4: transformers/models/granitemoehybrid/modeling_granitemoehybrid.py.
func graniteHybridFamily() *family.Family {
	x := mixture{
		block: "MoE", router: "TopKRouter", experts: "Experts", gate: "router", number: 8, chosen: 2, numberKey: expertsKey,
		chosenKey: chosenKey, scores: softmaxOfChosen,
	}
	d := decoder{
		model: "granitemoehybrid", class: module("granitemoehybrid", "GraniteMoeHybrid"), name: "GraniteMoeHybrid", vocabulary: 32000,
		hidden: 4096, inner: 11008, layers: 32, heads: 32, positions: 2048, eps: 1e-6, act: silu, actKey: hiddenAct,
		qkvBias: attentionBias, outBias: attentionBias, gateFused: true, beside: "block_sparse_moe",
		names:     names{mlp: "shared_mlp", gateUp: "input_linear", down: "output_linear", act: "activation"},
		scaling:   func(c *family.Config, _ int) float64 { return c.Float("attention_multiplier", 1) },
		embedding: factor("embedding_multiplier", 1), residual: factor("residual_multiplier", 1),
		logits: func(c *family.Config) float64 { return 1 / nonzero(c, "logits_scaling", 1) },
		by: func(c *family.Config, d *decoder) {
			d.still = c.Text("position_embedding_type", "") != "rope"
			if !c.Whole && c.Holds("shared_mlp.gate_proj.weight") { // as GGUF files have it
				d.gateFused, d.names.gate, d.names.up, d.names.down = false, "gate_proj", "up_proj", "down_proj"
			}
		},
		feed: func(d *decoder, c *family.Config, _ int, s shape) *layers.Module {
			return d.mlp(c, s.hidden, c.Size("shared_intermediate_size", 1024))
		},
		mixer: func(d *decoder, c *family.Config, i int, s shape) (string, *layers.Module) {
			kinds := kinds(c, "layer_types|layers_block_type", s.layers)
			if kinds != nil && (kinds[i] == "attention" || kinds[i] == fullAttention) {
				return "", nil
			}
			return "mamba", d.duality(c, s.hidden, dualOf(c, s.hidden, "gated"))
		},
		more: func(d *decoder, c *family.Config, _ int, s shape, layer *layers.Module) {
			if c.Number(expertsKey, 8) > 0 {
				layer.Add("block_sparse_moe", x.feed(d, c, 0, s))
			}
		},
		renames: graniteNames,
	}
	f := recurrentFamily(d, dualityForward)
	x.join(f, d.class)
	return f
}

// shortConvForward is the convolution of LFM2 between two gates.
func shortConvForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, a, n := args[0].(layers.Tensor), args[1].(*around), m.Int("hidden")
	made := parts(t, t.Child(m, "in_proj", a.withoutPadding(t, x)), n, n, n)
	y := t.Child(m, "conv", t.Op("mul.Tensor", made[0], made[2]))
	return t.Child(m, "out_proj", t.Op("mul.Tensor", made[1], y))
}

// lfm2Attends says whether a layer has an attention.
func lfm2Attends(c *family.Config, i, layers int) bool {
	if kinds := kinds(c, "layer_types", layers); kinds != nil {
		if kinds[i] != "conv" && kinds[i] != fullAttention {
			c.Unsupported("layers of the type " + kinds[i])
		}
		return kinds[i] == fullAttention
	}
	return c.Fields["full_attn_idxs"] == nil || slices.Contains(numbers(c, "full_attn_idxs"), i)
}

// lfm2Inner is the width of LFM2's MLP for the one that the configuration says.
func lfm2Inner(c *family.Config, inner int) int {
	inner = c.Size("block_ff_dim", inner)
	if !c.Flag("block_auto_adjust_ff_dim", true) {
		return inner
	}
	inner = int(float64(2*inner) / 3)
	if v, there := c.Fields["block_ffn_dim_multiplier"]; !there || v != nil {
		inner = int(min(c.Float("block_ffn_dim_multiplier", 1)*float64(inner), family.MaxSize))
		multiple := c.Size("block_multiple_of", 256)
		inner = (inner + multiple - 1) / multiple * multiple
	}
	return max(min(inner, family.MaxSize), 1)
}
