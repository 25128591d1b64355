package transformers

import (
	"github.com/optimem/optimem/models/transformers/family"
)

// attentionBias is the entry of most models that says whether projections have a bias.
func attentionBias(c *family.Config) bool { return c.Flag("attention_bias|qkv_bias", false) }

// always is for projections that have a bias whatever the configuration says.
func always(*family.Config) bool { return true }

// mlpBias is the entry that says so of the projections of the MLP.
func mlpBias(c *family.Config) bool { return c.Flag("mlp_bias|bias", false) }

// sandwiched are the norms of Gemma 2 and 3: before and after the attention and the MLP.
var sandwiched = names{
	before: [2]string{"input_layernorm", "pre_feedforward_layernorm"},
	after:  [2]string{"post_attention_layernorm", "post_feedforward_layernorm"},
}

// preAttention is the scaling by query_pre_attn_scalar.
func preAttention(c *family.Config, _ int) float64 {
	return family.InverseSqrt(c.Size("query_pre_attn_scalar", 256))
}

// everyLayer slides in all layers where sliding_window is set. A file without the entry has the default.
func everyLayer(missing int) func(c *family.Config, layers int) (int, func(int) bool) {
	return func(c *family.Config, _ int) (int, func(int) bool) {
		return slidingWindow(c, missing), func(int) bool { return true }
	}
}

// slidingWindow returns the entry of that name; null in the file is none, 0.
func slidingWindow(c *family.Config, missing int) int {
	c.Looked("sliding_window")
	v, there := c.Fields["sliding_window"]
	if there && v == nil || !there && missing == 0 {
		return 0
	}
	return c.Size("sliding_window", missing)
}

// layerTypes returns which layers slide: those that layer_types says, else those of the model's own rule.
func layerTypes(c *family.Config, layers int, rule func(i int) bool) func(int) bool {
	c.Looked("layer_types")
	switch list := c.Fields["layer_types"].(type) {
	case nil:
	case []any:
		if len(list) != layers {
			c.Fail("layer_types", "has %d entries for %d layers", len(list), layers)
			return rule
		}
		for _, v := range list {
			if v != slidingAttention && v != fullAttention {
				c.Unsupported("layers of the type " + family.Short(v))
				return rule
			}
		}
		return func(i int) bool { return list[i] == slidingAttention }
	default:
		c.Fail("layer_types", "is %s, not a list", family.Short(list))
	}
	return rule
}

// llama is transformers/models/llama/modeling_llama.py; the others are beside it.
var (
	llama = decoder{
		model: "llama", class: "transformers.models.llama.modeling_llama.Llama", name: "Llama",
		vocabulary: 32000, hidden: 4096, inner: 11008, layers: 32, heads: 32, positions: 2048, eps: 1e-6,
		act: "silu", actKey: "hidden_act", qkvBias: attentionBias, outBias: attentionBias, mlpBias: mlpBias,
		qaPrefix: "transformer",
	}.family()

	mistral = decoder{
		model: "mistral", class: "transformers.models.mistral.modeling_mistral.Mistral", name: "Mistral",
		vocabulary: 32000, hidden: 4096, inner: 14336, layers: 32, heads: 32, keys: 8, positions: 131072, eps: 1e-6,
		act: "silu", actKey: "hidden_act", window: everyLayer(4096), qaPrefix: "model",
	}.family()

	qwen2 = decoder{
		model: "qwen2", class: "transformers.models.qwen2.modeling_qwen2.Qwen2", name: "Qwen2",
		vocabulary: 151936, hidden: 4096, inner: 22016, layers: 32, heads: 32, keys: 32, positions: 32768, eps: 1e-6,
		act: "silu", actKey: "hidden_act", qkvBias: always, window: qwenWindow, qaPrefix: "transformer",
	}.family()

	qwen3 = decoder{
		model: "qwen3", class: "transformers.models.qwen3.modeling_qwen3.Qwen3", name: "Qwen3",
		vocabulary: 151936, hidden: 4096, inner: 22016, layers: 32, heads: 32, keys: 32, size: 128, positions: 32768,
		eps: 1e-6, act: "silu", actKey: "hidden_act", qkvBias: attentionBias, outBias: attentionBias, headNorm: headNorm{kind: eachHead},
		window: qwenWindow, qaPrefix: "transformer",
	}.family()

	gemma = decoder{
		model: "gemma", class: "transformers.models.gemma.modeling_gemma.Gemma", name: "Gemma",
		vocabulary: 256000, hidden: 3072, inner: 24576, layers: 28, heads: 16, keys: 16, size: 256, positions: 8192,
		eps: 1e-6, act: "gelu_pytorch_tanh", actKey: "hidden_act", pad: 0, ties: true, qkvBias: attentionBias,
		outBias: attentionBias, scaled: true, norm: rootMeanPlusOne,
	}.family()

	gemma2 = decoder{
		model: "gemma2", class: "transformers.models.gemma2.modeling_gemma2.Gemma2", name: "Gemma2",
		vocabulary: 256000, hidden: 2304, inner: 9216, layers: 26, heads: 8, keys: 4, size: 256, positions: 8192,
		eps: 1e-6, act: "gelu_pytorch_tanh", actKey: "hidden_activation", pad: 0, ties: true, qkvBias: attentionBias,
		outBias: attentionBias, scaled: true, norm: rootMeanPlusOne, capped: true, scaling: preAttention, names: sandwiched,
		window: func(c *family.Config, layers int) (int, func(int) bool) {
			return slidingWindow(c, 4096), layerTypes(c, layers, func(i int) bool { return i%2 == 0 })
		},
	}.family()

	vaultGemma = decoder{
		model: "vaultgemma", class: module("vaultgemma", "VaultGemma"), name: "VaultGemma",
		vocabulary: 256000, hidden: 2304, inner: 9216, layers: 26, heads: 8, keys: 4, size: 256, positions: 8192,
		eps: 1e-6, act: "gelu_pytorch_tanh", actKey: "hidden_activation", pad: 0, ties: true, qkvBias: attentionBias,
		outBias: attentionBias, scaled: true, norm: rootMeanPlusOne, capped: true, scaling: preAttention,
		names: names{before: sandwiched.before}, noTexts: true, noTokens: true,
		window: func(c *family.Config, layers int) (int, func(int) bool) {
			return slidingWindow(c, 4096), layerTypes(c, layers, func(i int) bool { return i%2 == 0 })
		},
	}.family()

	phi3 = decoder{
		model: "phi3", class: "transformers.models.phi3.modeling_phi3.Phi3", name: "Phi3",
		vocabulary: 32064, hidden: 3072, inner: 8192, layers: 32, heads: 32, positions: 4096, eps: 1e-5,
		act: "silu", actKey: "hidden_act", pad: 32000, fused: behind, gateFused: true, names: names{act: "activation_fn"},
		rope: rope{phi: true}, window: everyLayer(0),
	}.family()
)

// qwenWindow slides in the layers from max_window_layers on, where use_sliding_window is set.
func qwenWindow(c *family.Config, layers int) (int, func(int) bool) {
	if !c.Flag("use_sliding_window", false) {
		return 0, layerTypes(c, layers, func(int) bool { return false })
	}
	first := c.Number("max_window_layers", 28)
	return slidingWindow(c, 4096), layerTypes(c, layers, func(i int) bool { return i >= first })
}
