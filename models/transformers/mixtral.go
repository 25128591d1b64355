package transformers

import (
	"encoding/json"
	"strconv"

	"github.com/optimem/optimem/layers"
)

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
		renames: []string{"block_sparse_moe.", "mlp.", ".w1.", ".gate_proj.", ".w2.", ".down_proj.", ".w3.", ".up_proj."},
	})

	qwen2Moe = mixture{
		block: "SparseMoeBlock", router: "TopKRouter", experts: "Experts", gate: "gate", number: 60, chosen: 4, inner: 1408,
		numberKey: expertsKey, chosenKey: chosenKey, innerKey: "moe_intermediate_size", scores: softmaxOfAll,
		normalized: normTopK(false), dense: qwenDense,
		shared: func(d *decoder, c *config, m *layers.Module, s shape) {
			m.Add("shared_expert", d.mlp(c, s.hidden, c.size("shared_expert_intermediate_size", 5632))).
				Add("shared_expert_gate", layers.Linear(s.hidden, 1, layers.NoBias))
		},
	}.of(decoder{
		model: "qwen2_moe", class: "transformers.models.qwen2_moe.modeling_qwen2_moe.Qwen2Moe", name: "Qwen2Moe",
		vocabulary: 151936, hidden: 2048, inner: 5632, layers: 24, heads: 16, keys: 16, positions: 32768, eps: 1e-6,
		act: "silu", actKey: "hidden_act", qkvBias: func(c *config) bool { return c.flag("qkv_bias", true) },
		window: func(c *config, layers int) (int, func(int) bool) {
			if !c.flag("use_sliding_window", false) {
				return 0, func(int) bool { return false }
			}
			first := c.number("max_window_layers", 28)
			return c.slidingWindow(4096), c.layerTypes(layers, func(i int) bool { return i%2 == 0 && i < first })
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
		window: func(c *config, layers int) (int, func(int) bool) {
			if !c.flag("use_sliding_window", false) {
				return 0, nil
			}
			return c.slidingWindow(4096), func(int) bool { return true }
		},
		qaPrefix: "model",
	})
)

// What the entries are called in most configurations.
const (
	expertsKey = "num_local_experts|num_experts|n_routed_experts"
	chosenKey  = "num_experts_per_tok"
)

// normTopK is the entry that says whether weights of the chosen experts are normalized.
func normTopK(missing bool) func(c *config) bool {
	return func(c *config) bool { return c.flag("norm_topk_prob", missing) }
}

// qwenDense are the layers without experts: those that a list names, and all but every so many.
func qwenDense(c *config) func(i int) bool {
	step := c.size("decoder_sparse_step", 1)
	only := make(map[int]bool)
	switch list := c.fields["mlp_only_layers"].(type) {
	case nil:
	case []any:
		for _, v := range list {
			number, _ := v.(json.Number)
			n, err := strconv.Atoi(number.String())
			if err != nil {
				c.fail("mlp_only_layers", "has %s, not the number of a layer", short(v))
			}
			only[n] = true
		}
	default:
		c.fail("mlp_only_layers", "is %s, not a list", short(list))
	}
	return func(i int) bool { return only[i] || (i+1)%step != 0 }
}
