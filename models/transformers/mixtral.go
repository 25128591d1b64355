package transformers

import (
	"encoding/json"
	"math"
	"strconv"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
)

// mixtralNames are what Mixtral's checkpoints call modules, and what those are called.
var mixtralNames = []string{"block_sparse_moe.", "mlp.", ".w1.", ".gate_proj.", ".w2.", ".down_proj.", ".w3.", ".up_proj."}

// The decoders with experts that are Llama's kin but for those: transformers/models/mixtral/modeling_mixtral.py and others.
var (
	mixtral = mixture{
		block: "SparseMoeBlock", router: "TopKRouter", experts: "Experts", gate: "gate", number: 8, chosen: 2,
		numberKey: expertsKey, chosenKey: chosenKey, scores: softmaxOfAll, normalized: always,
	}.of(decoder{
		model: "mixtral", class: "transformers.models.mixtral.modeling_mixtral.Mixtral", name: "Mixtral",
		vocabulary: 32000, hidden: 4096, inner: 14336, layers: 32, heads: 32, keys: 8, positions: 131072, eps: 1e-5,
		act: "silu", actKey: "hidden_act", window: everyLayer(0), qaPrefix: "model",
		rope:    rope{theta: 1e6},
		renames: mixtralNames,
	})

	minimaxM2 = mixture{
		block: "SparseMoeBlock", router: "TopKRouter", experts: "Experts", gate: "gate", number: 256, chosen: 8,
		numberKey: expertsKey, chosenKey: chosenKey, scores: sigmoids, normalized: always,
		outer: func(*family.Config) string { return correctionKey },
	}.of(decoder{
		model: "minimax_m2", class: module("minimax_m2", "MiniMaxM2"), name: "MiniMaxM2", vocabulary: 200064, hidden: 3072, inner: 1536,
		layers: 62, heads: 48, keys: 8, size: 128, positions: 196608, eps: 1e-6, act: silu, actKey: hiddenAct,
		headNorm: headNorm{kind: allHeads}, rope: rope{theta: 5e6, part: 1}, noTexts: true, noTokens: true,
		renames: mixtralNames,
		by: func(c *family.Config, d *decoder) {
			if n := c.Number("rotary_dim", 0); n > 0 {
				d.rope.dims = func(*family.Config) int { return n }
			}
		},
	})

	qwen2Moe = mixture{
		block: "SparseMoeBlock", router: "TopKRouter", experts: "Experts", gate: "gate", number: 60, chosen: 4, inner: 1408,
		numberKey: expertsKey, chosenKey: chosenKey, innerKey: "moe_intermediate_size", scores: softmaxOfAll,
		normalized: normTopK(false), dense: qwenDense,
		shared: func(d *decoder, c *family.Config, m *layers.Module, s shape) {
			m.Add("shared_expert", d.mlp(c, s.hidden, c.Size("shared_expert_intermediate_size", 5632))).
				Add("shared_expert_gate", layers.Linear(s.hidden, 1, layers.NoBias))
		},
	}.of(decoder{
		model: "qwen2_moe", class: "transformers.models.qwen2_moe.modeling_qwen2_moe.Qwen2Moe", name: "Qwen2Moe",
		vocabulary: 151936, hidden: 2048, inner: 5632, layers: 24, heads: 16, keys: 16, positions: 32768, eps: 1e-6,
		act: "silu", actKey: "hidden_act", qkvBias: func(c *family.Config) bool { return c.Flag("qkv_bias", true) },
		window: func(c *family.Config, layers int) (int, func(int) bool) {
			if !c.Flag("use_sliding_window", false) {
				return 0, func(int) bool { return false }
			}
			first := c.Number("max_window_layers", 28)
			return slidingWindow(c, 4096), layerTypes(c, layers, func(i int) bool { return i%2 == 0 && i < first })
		},
		qaPrefix: "model",
	})

	qwen3Moe = mixture{
		block: "SparseMoeBlock", router: "TopKRouter", experts: "Experts", gate: "gate", number: 128, chosen: 8, inner: 768,
		numberKey: expertsKey, chosenKey: chosenKey, innerKey: "moe_intermediate_size", scores: softmaxOfAll,
		normalized: normTopK(false), dense: qwenDense,
	}.of(decoder{
		model: "qwen3_moe", class: "transformers.models.qwen3_moe.modeling_qwen3_moe.Qwen3Moe", name: "Qwen3Moe",
		vocabulary: 151936, hidden: 2048, inner: 6144, layers: 24, heads: 32, keys: 4, positions: 32768, eps: 1e-6,
		act: "silu", actKey: "hidden_act", qkvBias: attentionBias, outBias: attentionBias, headNorm: headNorm{kind: eachHead},
		window: func(c *family.Config, layers int) (int, func(int) bool) {
			if !c.Flag("use_sliding_window", false) {
				return 0, nil
			}
			return slidingWindow(c, 4096), func(int) bool { return true }
		},
		qaPrefix: "model",
	})

	olmoe = mixture{
		block: "SparseMoeBlock", router: "TopKRouter", experts: "Experts", gate: "gate", number: 64, chosen: 8,
		numberKey: expertsKey, chosenKey: chosenKey, scores: softmaxOfAll, normalized: normTopK(false),
	}.of(decoder{
		model: "olmoe", class: "transformers.models.olmoe.modeling_olmoe.Olmoe", name: "Olmoe",
		vocabulary: 50304, hidden: 2048, inner: 2048, layers: 16, heads: 16, positions: 4096, eps: 1e-5, pad: 1,
		act: "silu", actKey: "hidden_act", qkvBias: attentionBias, outBias: attentionBias, headNorm: headNorm{kind: allHeads},
		noTexts: true, noTokens: true,
		by: func(c *family.Config, _ *decoder) {
			if c.Float("clip_qkv", 0) != 0 {
				c.Unsupported("clip_qkv")
			}
		},
	})

	phiMoe = mixture{
		block: "SparseMoeBlock", router: "TopKRouter", experts: "Experts", gate: "router", number: 16, chosen: 2,
		numberKey: expertsKey, chosenKey: chosenKey, scores: oneByOne,
		more: func(c *family.Config, router *layers.Module, _ int) {
			router.Attrs["near"] = 2 * c.Float("router_jitter_noise", 0.01)
		},
	}.of(decoder{
		model: "phimoe", class: module("phimoe", "Phimoe"), name: "Phimoe", vocabulary: 32064, hidden: 4096, inner: 6400, layers: 32,
		heads: 32, keys: 8, positions: 131072, eps: 1e-5, act: silu, actKey: hiddenAct, qkvBias: attentionBias, outBias: attentionBias,
		headBias: flagged("lm_head_bias", false), norm: meanAndSpread, window: everyLayer(0), rope: rope{theta: 1e6, scaled: true},
		noTokens: true, renames: append([]string{"block_sparse_moe.gate.", "mlp.router."}, mixtralNames...),
	})

	flexOlmo = mixture{
		block: "SparseMoeBlock", router: "TopKRouter", experts: "Experts", gate: "gate", number: 7, chosen: 5,
		numberKey: expertsKey, chosenKey: chosenKey, scores: softmaxOfAll, normalized: normTopK(false),
	}.of(decoder{
		model: "flex_olmo", class: module("flex_olmo", "FlexOlmo"), name: "FlexOlmo", vocabulary: 100352, hidden: 4096, inner: 11008,
		layers: 32, heads: 32, positions: 4096, eps: 1e-6, act: silu, actKey: hiddenAct, pad: 100277, qkvBias: attentionBias,
		outBias: attentionBias, names: names{after: afterOnly}, headNorm: headNorm{kind: allHeads}, rope: rope{theta: 500000},
		noTexts: true, noTokens: true,
	})

	graniteMoeShared = mixture{
		block: "MoE", router: "TopKRouter", experts: "Experts", gate: "router", number: 8, chosen: 2,
		numberKey: expertsKey, chosenKey: chosenKey, scores: softmaxOfChosen,
	}.of(decoder{
		model: "granitemoeshared", class: module("granitemoeshared", "GraniteMoeShared"), name: "GraniteMoeShared", vocabulary: 32000,
		hidden: 4096, inner: 11008, layers: 32, heads: 32, positions: 2048, eps: 1e-6, act: silu, actKey: hiddenAct,
		qkvBias: attentionBias, outBias: attentionBias, noTexts: true, noTokens: true, gateFused: true, beside: "shared_mlp",
		names:     names{mlp: "block_sparse_moe", gateUp: "input_linear", down: "output_linear", act: "activation"},
		scaling:   func(c *family.Config, _ int) float64 { return c.Float("attention_multiplier", 1) },
		embedding: factor("embedding_multiplier", 1), residual: factor("residual_multiplier", 1),
		logits: func(c *family.Config) float64 { return 1 / positive(c, c, "logits_scaling", 1) },
		more: func(d *decoder, c *family.Config, _ int, s shape, layer *layers.Module) {
			if n := c.Number("shared_intermediate_size", 0); n > 0 {
				layer.Add("shared_mlp", d.mlp(c, s.hidden, n))
			}
		},
		by: func(c *family.Config, d *decoder) {
			if !c.Whole && c.Holds("shared_mlp.gate_proj.weight") { // as GGUF files have it
				d.gateFused, d.names.gate, d.names.up = false, "gate_proj", "up_proj"
			}
		},
		renames: graniteNames,
	})

	graniteMoe = mixture{
		block: "MoE", router: "TopKRouter", experts: "Experts", gate: "router", number: 8, chosen: 2,
		numberKey: expertsKey, chosenKey: chosenKey, scores: softmaxOfChosen,
	}.of(decoder{
		model: "granitemoe", class: "transformers.models.granitemoe.modeling_granitemoe.GraniteMoe", name: "GraniteMoe",
		vocabulary: 32000, hidden: 4096, inner: 11008, layers: 32, heads: 32, positions: 2048, eps: 1e-6,
		act: "silu", actKey: "hidden_act", qkvBias: attentionBias, outBias: attentionBias, noTexts: true, noTokens: true,
		names:     names{mlp: "block_sparse_moe"},
		scaling:   func(c *family.Config, _ int) float64 { return c.Float("attention_multiplier", 1) },
		embedding: func(c *family.Config) float64 { return c.Float("embedding_multiplier", 1) },
		residual:  func(c *family.Config) float64 { return c.Float("residual_multiplier", 1) },
		logits:    func(c *family.Config) float64 { return 1 / positive(c, c, "logits_scaling", 1) },
		renames:   graniteNames,
	})

	gptOss = mixture{
		block: "MLP", router: "TopKRouter", experts: "Experts", gate: "router", number: 128, chosen: 4,
		numberKey: expertsKey, chosenKey: chosenKey, scores: softmaxOfChosen,
		turned: true, interleaved: true, biased: true, clamped: true,
		more: func(_ *family.Config, router *layers.Module, number int) {
			router.Attrs["biased"] = true
			router.Param("bias", number)
		},
	}.of(decoder{
		model: "gpt_oss", class: "transformers.models.gpt_oss.modeling_gpt_oss.GptOss", name: "GptOss",
		vocabulary: 201088, hidden: 2880, inner: 2880, layers: 36, heads: 64, keys: 8, size: 64, positions: 131072, eps: 1e-5,
		act: "silu", actKey: "hidden_act", sinks: true,
		qkvBias: func(c *family.Config) bool { return c.Flag("attention_bias", true) },
		outBias: func(c *family.Config) bool { return c.Flag("attention_bias", true) },
		window: func(c *family.Config, layers int) (int, func(int) bool) {
			return slidingWindow(c, 128), layerTypes(c, layers, func(i int) bool { return i%2 == 0 })
		},
		rope: rope{theta: 150000, missing: map[string]any{
			"rope_type": "yarn", "factor": json.Number("32"), "truncate": false, contextName: json.Number("4096"),
		}},
	})

	glm4Moe = mixture{
		block: "MoE", router: "TopkRouter", experts: "Experts", gate: "gate", number: 128, chosen: 8, inner: 1408,
		numberKey: expertsKey, chosenKey: chosenKey, innerKey: "moe_intermediate_size", scores: sigmoids, normalized: normTopK(true),
		dense: firstDense(1), shared: sharedExperts(1408, 1), more: correctedGroups(1, 1, 1),
	}.of(decoder{
		model: "glm4_moe", class: "transformers.models.glm4_moe.modeling_glm4_moe.Glm4Moe", name: "Glm4Moe",
		vocabulary: 151552, hidden: 4096, inner: 10944, layers: 46, heads: 96, keys: 8, positions: 131072, eps: 1e-5,
		act: "silu", actKey: "hidden_act", qkvBias: attentionBias, rope: rope{part: 0.5}, noTexts: true, noTokens: true,
		headNorm: headNorm{kind: eachHead, when: func(c *family.Config) bool { return c.Flag("use_qk_norm", false) }},
		ignored:  []string{`model\.layers\.(92|46)\.`},
	})

	solarOpen = mixture{
		block: "MoE", router: "TopkRouter", experts: "Experts", gate: "gate", number: 128, chosen: 8, inner: 1280,
		numberKey: expertsKey, chosenKey: chosenKey, innerKey: "moe_intermediate_size", scores: sigmoids, normalized: normTopK(true),
		shared: sharedExperts(1280, 1), more: correctedGroups(1, 1, 1),
	}.of(decoder{
		model: "solar_open", class: module("solar_open", "SolarOpen"), name: "SolarOpen", vocabulary: 196608, hidden: 4096, layers: 48,
		heads: 64, keys: 8, size: 128, positions: 131072, eps: 1e-5, act: silu, actKey: hiddenAct, qkvBias: attentionBias,
		rope: rope{theta: 1e6, part: 1}, noTexts: true, noTokens: true,
	})

	exaoneMoe = mixture{
		block: "SparseMoEBlock", router: "TopkRouter", experts: "Experts", gate: "gate", number: 64, chosen: 8, inner: 1024,
		numberKey: expertsKey, chosenKey: chosenKey, innerKey: "moe_intermediate_size", scores: sigmoids, normalized: normTopK(true),
		dense: listedDense(1), shared: sharedExperts(1024, 1), more: correctedGroups(1, 1, 2.5),
	}.of(decoder{
		model: "exaone_moe", class: module("exaone_moe", "ExaoneMoe"), name: "ExaoneMoe", vocabulary: 102400, hidden: 4096, inner: 16384,
		layers: 32, heads: 32, keys: 32, positions: 2048, eps: 1e-5, act: silu, actKey: hiddenAct, headNorm: headNorm{kind: eachHead},
		turns: exaoneTurns, window: exaoneWindow, noTexts: true, noTokens: true, ignored: []string{`mtp`},
		renames: []string{".mlp.e_score_correction_bias", ".mlp.gate.e_score_correction_bias"},
	})

	hunyuanMoe = mixture{
		block: "Moe", router: "Gate", experts: "Experts", gate: "gate", number: 1, chosen: 1, numberKey: expertsKey,
		chosenKey: "num_experts_per_tok|moe_topk", scores: softmaxOfAll, normalized: always,
		shared: func(d *decoder, c *family.Config, m *layers.Module, s shape) {
			m.Add("shared_mlp", d.mlp(c, s.hidden, s.inner))
		},
	}.of(decoder{
		model: "hunyuan_v1_moe", class: module("hunyuan_v1_moe", "HunYuanMoEV1"), name: "HunYuanMoEV1", vocabulary: 290943, hidden: 4096,
		inner: 11008, layers: 32, heads: 32, positions: 2048, eps: 1e-5, act: silu, actKey: hiddenAct, pad: 0, qkvBias: attentionBias,
		outBias: attentionBias, headNorm: headNorm{kind: eachHead, late: true}, noTokens: true,
		names: names{qNorm: "query_layernorm", kNorm: "key_layernorm"}, rope: rope{alpha: true}, renames: []string{".gate.wg.", ".gate."},
	})

	dots1 = mixture{
		block: "MoE", router: "TopkRouter", experts: "Experts", gate: "gate", number: 128, chosen: 6, inner: 1408,
		numberKey: expertsKey, chosenKey: chosenKey, innerKey: "moe_intermediate_size", scores: sigmoids, normalized: normTopK(false),
		dense: firstDense(0), shared: sharedExperts(1408, 1), more: correctedGroups(1, 1, 1),
	}.of(decoder{
		model: "dots1", class: module("dots1", "Dots1"), name: "Dots1", vocabulary: 152064, hidden: 4608, inner: 10944, layers: 62,
		heads: 32, keys: 32, positions: 2048, eps: 1e-6, act: silu, actKey: hiddenAct, qkvBias: attentionBias, outBias: attentionBias,
		headNorm: headNorm{kind: eachHead}, noTexts: true, noTokens: true,
		window: func(c *family.Config, layers int) (int, func(int) bool) {
			first := c.Number("max_window_layers", 62)
			return slidingWindow(c, 4096), layerTypes(c, layers, func(i int) bool { return i >= first })
		},
	})

	ernieMoe = mixture{
		block: "SparseMoeBlock", router: "TopKRouter", experts: "Experts", gate: "gate", number: 64, chosen: 6, inner: 1536,
		numberKey: "moe_num_experts|" + expertsKey, chosenKey: "moe_k|" + chosenKey, innerKey: "moe_intermediate_size",
		scores: softmaxOfAll, normalized: always,
		dense: func(c *family.Config) func(i int) bool {
			first, every, last := c.Number("moe_layer_start_index", 1), c.Size("moe_layer_interval", 1), c.Number("moe_layer_end_index", -1)
			return func(i int) bool { return (i+1)%every != 0 || i < first || last >= 0 && i > last }
		},
		shared: func(d *decoder, c *family.Config, m *layers.Module, s shape) {
			if n := c.Number("moe_num_shared_experts", 2); n > 0 {
				m.Add("shared_experts", d.mlp(c, s.hidden, n*c.Size("moe_intermediate_size", 1536)))
			}
		},
		more: func(c *family.Config, router *layers.Module, number int) {
			router.Attrs["correction"], router.Attrs["least"] = "moe_statics", c.Float("moe_norm_min", 1e-12)
			router.Add("moe_statics", layers.New(ernieStatics, nil).Param(correctionKey, 1, number))
		},
	}.of(decoder{
		model: "ernie4_5_moe", class: "transformers.models.ernie4_5_moe.modeling_ernie4_5_moe.Ernie4_5_Moe", name: "Ernie4_5_Moe",
		vocabulary: 103424, hidden: 2560, inner: 12288, layers: 28, heads: 20, keys: 4, positions: 131072, eps: 1e-5, pad: 0, ties: true,
		act: "silu", actKey: "hidden_act", qkvBias: useBias, outBias: useBias, mlpBias: useBias, headBias: useBias, rope: rope{theta: 500000, interleaved: true},
		noTexts: true, noTokens: true, ignored: []string{"mtp"},
		renames: []string{".mlp.moe_statics.", ".mlp.gate.moe_statics."},
	})
)

// graniteNames are what Granite's checkpoints call experts and routers, and what those are called.
var graniteNames = []string{
	".block_sparse_moe.input_linear.weight", ".block_sparse_moe.experts.gate_up_proj",
	".block_sparse_moe.output_linear.weight", ".block_sparse_moe.experts.down_proj",
	".router.layer.weight", ".router.weight",
}

const ernieStatics = "transformers.models.ernie4_5_moe.modeling_ernie4_5_moe.Ernie4_5_MoeStatics"

// useBias is the entry of Ernie that says whether projections have a bias.
func useBias(c *family.Config) bool { return c.Flag("use_bias", false) }

// firstDense are the first layers, as many as the entry says.
func firstDense(missing int) func(c *family.Config) func(i int) bool {
	return func(c *family.Config) func(i int) bool {
		n := c.Number("first_k_dense_replace", missing)
		return func(i int) bool { return i < n }
	}
}

// listedDense are the layers that a list says are, else the first.
func listedDense(missing int) func(c *family.Config) func(i int) bool {
	return func(c *family.Config) func(i int) bool {
		list, ok := c.Fields["mlp_layer_types"].([]any)
		if !ok {
			return firstDense(missing)(c)
		}
		return func(i int) bool { return i < len(list) && list[i] == "dense" }
	}
}

// sharedExperts adds an MLP as wide as so many experts.
func sharedExperts(inner, missing int) func(d *decoder, c *family.Config, m *layers.Module, s shape) {
	return func(d *decoder, c *family.Config, m *layers.Module, s shape) {
		n := c.Size("moe_intermediate_size", inner) * c.Size("n_shared_experts|num_shared_experts", missing)
		m.Add("shared_experts", d.mlp(c, s.hidden, n))
	}
}

// correctedGroups makes a router choose of the best groups, by scores that are corrected.
func correctedGroups(groups, chosen int, factor float64) func(c *family.Config, router *layers.Module, number int) {
	return func(c *family.Config, router *layers.Module, number int) {
		a := router.Attrs
		a["correction"], a["epsilon"], a["nobody"] = correctionKey, 1e-20, math.Inf(-1)
		a["groups"], a["chosen_groups"], a["group_best"] = c.Size("n_group|num_expert_group", groups), c.Size("topk_group", chosen), 2
		a["factor"] = c.Float("routed_scaling_factor", factor)
		router.Param(correctionKey, number)
		router.Params[len(router.Params)-1].Buffer = true
		checkGroups(c, router, number)
	}
}

// checkGroups holds the groups of experts against their number.
func checkGroups(c *family.Config, router *layers.Module, number int) {
	groups, best := router.Int("groups"), router.Int("group_best")
	if groups > 1 && (number%groups != 0 || router.Int("chosen_groups") > groups || best > number/groups) {
		c.Fail("n_group", "is %d, for %d experts of which the best %d groups are chosen", groups, number, router.Int("chosen_groups"))
	}
}

// What the entries are called in most configurations.
const (
	expertsKey = "num_local_experts|num_experts|n_routed_experts"
	chosenKey  = "num_experts_per_tok"
)

// normTopK is the entry that says whether weights of the chosen experts are normalized.
func normTopK(missing bool) func(c *family.Config) bool {
	return func(c *family.Config) bool { return c.Flag("norm_topk_prob", missing) }
}

// qwenDense are the layers without experts: those that a list names, and all but every so many.
func qwenDense(c *family.Config) func(i int) bool {
	step := c.Size("decoder_sparse_step", 1)
	only := make(map[int]bool)
	switch list := c.Fields["mlp_only_layers"].(type) {
	case nil:
	case []any:
		for _, v := range list {
			number, _ := v.(json.Number)
			n, err := strconv.Atoi(number.String())
			if err != nil {
				c.Fail("mlp_only_layers", "has %s, not the number of a layer", family.Short(v))
			}
			only[n] = true
		}
	default:
		c.Fail("mlp_only_layers", "is %s, not a list", family.Short(list))
	}
	return func(i int) bool { return only[i] || (i+1)%step != 0 }
}
