package transformers

import (
	"encoding/json"

	"github.com/optimem/optimem/models/transformers/family"
)

// Most configurations name the activation in hidden_act, and it is this one.
const (
	hiddenAct = "hidden_act"
	silu      = "silu"
)

// module returns the beginning of the names of classes in Python.
func module(file, class string) string {
	return "transformers.models." + file + ".modeling_" + file + "." + class
}

// pattern slides in all layers but every n-th; the entry named is n.
func pattern(key string, every, window int) func(c *family.Config, layers int) (int, func(int) bool) {
	return func(c *family.Config, layers int) (int, func(int) bool) {
		n := every
		if key != "" {
			n = c.Size(key, every)
		}
		return slidingWindow(c, window), layerTypes(c, layers, func(i int) bool { return (i+1)%n != 0 })
	}
}

// onlySliding turns heads in the layers that slide.
func onlySliding(*family.Config) func(int, bool) bool {
	return func(_ int, sliding bool) bool { return sliding }
}

// flagged is an entry that says whether there is a bias.
func flagged(name string, missing bool) func(*family.Config) bool {
	return func(c *family.Config) bool { return c.Flag(name, missing) }
}

// factor is an entry that is multiplied with.
func factor(name string, missing float64) func(*family.Config) float64 {
	return func(c *family.Config) float64 { return c.Float(name, missing) }
}

// afterOnly are the norms of OLMo 2 and EXAONE 4: after the attention and the MLP.
var afterOnly = [2]string{"post_attention_layernorm", "post_feedforward_layernorm"}

// llama31 are the parameters of Llama 3.1 for another base and another factor.
func llama31(theta, factor string) map[string]any {
	return map[string]any{
		"rope_type": "llama3", "rope_theta": json.Number(theta), "factor": json.Number(factor), "low_freq_factor": json.Number("1"),
		"high_freq_factor": json.Number("4"), "original_max_position_embeddings": json.Number("8192"),
	}
}

// These are Llama but for what is said of them, and their modules have Llama's names.
var (
	gemma3Text = decoder{
		model: "gemma3_text", class: module("gemma3", "Gemma3"), name: "Gemma3", vocabulary: 262208, hidden: 2304, inner: 9216,
		layers: 26, heads: 8, keys: 4, size: 256, positions: 131072, eps: 1e-6, act: "gelu_pytorch_tanh",
		actKey: "hidden_activation", pad: 0, ties: true, qkvBias: attentionBias, outBias: attentionBias, scaled: true,
		norm: rootMeanPlusOne, headNorm: headNorm{kind: eachHead, norm: rootMeanPlusOne}, names: sandwiched,
		scaling: preAttention, logitCap: true, noTokens: true, noTexts: true,
		window: pattern("_sliding_window_pattern|sliding_window_pattern", 6, 4096),
		rope:   rope{theta: 1e6, local: 10000, localKey: "rope_local_base_freq"},
	}.family()

	smolLM3 = decoder{
		model: "smollm3", class: module("smollm3", "SmolLM3"), name: "SmolLM3", vocabulary: 128256, hidden: 2048, inner: 11008,
		layers: 36, heads: 16, keys: 4, positions: 32768, eps: 1e-6, act: silu, actKey: hiddenAct, pad: 128004, ties: true,
		qkvBias: attentionBias, outBias: attentionBias, mlpBias: mlpBias, qaPrefix: "transformer", rope: rope{theta: 2e6},
		turns: func(c *family.Config) func(int, bool) bool {
			return func(i int, _ bool) bool { return smolTurns(c, i) }
		},
		window: func(c *family.Config, layers int) (int, func(int) bool) {
			if !c.Flag("use_sliding_window", false) {
				return 0, layerTypes(c, layers, func(int) bool { return false })
			}
			return slidingWindow(c, 0), layerTypes(c, layers, func(i int) bool { return !smolTurns(c, i) })
		},
	}.family()

	ministral = decoder{
		model: "ministral", class: module("ministral", "Ministral"), name: "Ministral", vocabulary: 32000, hidden: 4096,
		inner: 14336, layers: 32, heads: 32, keys: 8, positions: 131072, eps: 1e-6, act: silu, actKey: hiddenAct, qaPrefix: "transformer",
		window: func(c *family.Config, layers int) (int, func(int) bool) {
			return slidingWindow(c, 4096), layerTypes(c, layers, func(int) bool { return true })
		},
	}.family()

	ministral3 = decoder{
		model: "ministral3", class: module("ministral3", "Ministral3"), name: "Ministral3", vocabulary: 131072, hidden: 4096,
		inner: 14336, layers: 34, heads: 32, keys: 8, size: 128, positions: 262144, eps: 1e-5, act: silu, actKey: hiddenAct,
		pad: 11, qaPrefix: "model", window: everyLayer(0), warmed: true,
		rope: rope{theta: 1e6, missing: map[string]any{
			"rope_type": "yarn", "rope_theta": json.Number("1000000"), "factor": json.Number("16"),
			"original_max_position_embeddings": json.Number("16384"), "beta_fast": json.Number("32"),
			"beta_slow": json.Number("1"), "mscale": json.Number("1"), "mscale_all_dim": json.Number("1"),
		}},
	}.family()

	olmo = decoder{
		model: "olmo", class: module("olmo", "Olmo"), name: "Olmo", vocabulary: 50304, hidden: 4096, inner: 11008, layers: 32,
		heads: 32, positions: 2048, eps: 1e-5, epsKey: noEps, act: silu, actKey: hiddenAct, pad: 1, qkvBias: attentionBias,
		outBias: attentionBias, norm: meanAndSpreadFixed, clip: factor("clip_qkv", 0), noTokens: true,
	}.family()

	olmo2 = decoder{
		model: "olmo2", class: module("olmo2", "Olmo2"), name: "Olmo2", vocabulary: 50304, hidden: 4096, inner: 11008, layers: 32,
		heads: 32, positions: 2048, eps: 1e-5, act: silu, actKey: hiddenAct, pad: 1, qkvBias: attentionBias, outBias: attentionBias,
		names: names{after: afterOnly}, headNorm: headNorm{kind: allHeads}, noTokens: true,
	}.family()

	olmo3 = decoder{
		model: "olmo3", class: module("olmo3", "Olmo3"), name: "Olmo3", vocabulary: 50304, hidden: 4096, inner: 11008, layers: 32,
		heads: 32, positions: 2048, eps: 1e-5, act: silu, actKey: hiddenAct, pad: 1, qkvBias: attentionBias, outBias: attentionBias,
		names: names{after: afterOnly}, headNorm: headNorm{kind: allHeads}, noTokens: true, window: pattern("", 4, 4096),
		rope: rope{theta: 500000, local: 500000},
	}.family()

	granite = decoder{
		model: "granite", class: module("granite", "Granite"), name: "Granite", vocabulary: 32000, hidden: 4096, inner: 11008,
		layers: 32, heads: 32, positions: 2048, eps: 1e-6, act: silu, actKey: hiddenAct, qkvBias: attentionBias,
		outBias: attentionBias, mlpBias: mlpBias, noTokens: true, noTexts: true,
		scaling:   func(c *family.Config, _ int) float64 { return c.Float("attention_multiplier", 1) },
		embedding: factor("embedding_multiplier", 1), residual: factor("residual_multiplier", 1),
		logits: func(c *family.Config) float64 { return 1 / nonzero(c, "logits_scaling", 1) },
	}.family()

	cohere = decoder{
		model: "cohere", class: module("cohere", "Cohere"), name: "Cohere", vocabulary: 256000, hidden: 8192, inner: 22528,
		layers: 40, heads: 64, positions: 8192, eps: 1e-5, epsKey: "layer_norm_eps", act: silu, actKey: hiddenAct, pad: 0, ties: true,
		qkvBias: attentionBias, outBias: attentionBias, norm: meanAndSpreadBare, parallel: true,
		names:    names{before: [2]string{"input_layernorm"}},
		headNorm: headNorm{kind: ownWeights, norm: meanAndSpreadBare, when: flagged("use_qk_norm", false)},
		rope:     rope{theta: 500000, interleaved: true}, logits: factor("logit_scale", 0.0625), noTokens: true, noTexts: true,
	}.family()

	cohere2 = decoder{
		model: "cohere2", class: module("cohere2", "Cohere2"), name: "Cohere2", vocabulary: 256000, hidden: 8192, inner: 22528,
		layers: 40, heads: 64, positions: 8192, eps: 1e-5, epsKey: "layer_norm_eps", act: silu, actKey: hiddenAct, pad: 0, ties: true,
		qkvBias: attentionBias, outBias: attentionBias, norm: meanAndSpreadBare, parallel: true,
		names: names{before: [2]string{"input_layernorm"}}, rope: rope{interleaved: true}, logits: factor("logit_scale", 0.0625),
		turns: onlySliding, window: pattern("sliding_window_pattern", 4, 4096), noTokens: true, noTexts: true,
	}.family()

	phi = decoder{
		model: "phi", class: module("phi", "Phi"), name: "Phi", vocabulary: 51200, hidden: 2048, inner: 8192, layers: 24, heads: 32,
		positions: 2048, eps: 1e-5, epsKey: "layer_norm_eps", act: "gelu_new", actKey: hiddenAct, qkvBias: always, outBias: always,
		mlpBias: always, headBias: always, norm: meanAndSpread, parallel: true, plain: true, rope: rope{part: 0.5},
		names: names{
			before: [2]string{"input_layernorm"}, norm: "final_layernorm", o: "dense", up: "fc1", down: "fc2", act: "activation_fn",
			qNorm: "q_layernorm", kNorm: "k_layernorm",
		},
		headNorm: headNorm{kind: eachHead, norm: meanAndSpread, when: flagged("qk_layernorm", false)},
		by: func(c *family.Config, d *decoder) {
			if !c.Whole && c.Holds("self_attn.qkv_proj.weight") { // as the first GGUF files of Phi-2 have it
				d.fused = behind
			}
		},
	}.family()

	stableLM = decoder{
		model: "stablelm", class: module("stablelm", "StableLm"), name: "StableLm", vocabulary: 50304, hidden: 2560, inner: 6912,
		layers: 32, heads: 32, positions: 4096, eps: 1e-5, epsKey: "layer_norm_eps", act: silu, actKey: hiddenAct,
		qkvBias: flagged("use_qkv_bias", false), norm: meanAndSpread, rope: rope{part: 0.25},
		names:    names{qNorm: "q_layernorm", kNorm: "k_layernorm"},
		headNorm: headNorm{kind: ownNorms, norm: meanAndSpreadBare, when: flagged("qk_layernorm", false)},
		by: func(c *family.Config, d *decoder) {
			if d.parallel = c.Flag("use_parallel_residual", false); d.parallel {
				d.names.before[1] = ""
			}
		},
	}.family()

	exaone4 = decoder{
		model: "exaone4", class: module("exaone4", "Exaone4"), name: "Exaone4", vocabulary: 102400, hidden: 4096, inner: 16384,
		layers: 32, heads: 32, keys: 32, positions: 2048, eps: 1e-5, act: silu, actKey: hiddenAct, qaPrefix: "transformer",
		names: names{after: afterOnly}, headNorm: headNorm{kind: eachHead},
		turns: exaoneTurns, window: exaoneWindow,
	}.family()

	glm = decoder{
		model: "glm", class: module("glm", "Glm"), name: "Glm", vocabulary: 151552, hidden: 4096, inner: 13696, layers: 40,
		heads: 32, keys: 2, size: 128, positions: 131072, eps: 1.5625e-7, act: silu, actKey: hiddenAct, pad: 151329,
		qkvBias: flagged("attention_bias", true), gateFused: true, names: names{act: "activation_fn"},
		rope: rope{part: 0.5, interleaved: true},
	}.family()

	glm4 = decoder{
		model: "glm4", class: module("glm4", "Glm4"), name: "Glm4", vocabulary: 151552, hidden: 4096, inner: 13696, layers: 40,
		heads: 32, keys: 2, size: 128, positions: 131072, eps: 1.5625e-7, act: silu, actKey: hiddenAct, pad: 151329,
		qkvBias: flagged("attention_bias", true), gateFused: true, rope: rope{part: 0.5, interleaved: true},
		names: names{
			act: "activation_fn", before: llamaNames.before, after: [2]string{"post_self_attn_layernorm", "post_mlp_layernorm"},
		},
	}.family()

	starcoder2 = decoder{
		model: "starcoder2", class: module("starcoder2", "Starcoder2"), name: "Starcoder2", vocabulary: 49152, hidden: 3072,
		inner: 12288, layers: 30, heads: 24, keys: 2, positions: 4096, eps: 1e-5, epsKey: "norm_epsilon", act: "gelu_pytorch_tanh",
		actKey: hiddenAct, ties: true, qkvBias: flagged("use_bias", true), outBias: flagged("use_bias", true),
		mlpBias: flagged("use_bias", true), norm: meanAndSpread, plain: true, window: everyLayer(0),
		names: names{up: "c_fc", down: "c_proj", act: "act"},
	}.family()

	nemotron = decoder{
		model: "nemotron", class: module("nemotron", "Nemotron"), name: "Nemotron", vocabulary: 256000, hidden: 6144, inner: 24576,
		layers: 32, heads: 48, positions: 4096, eps: 1e-5, epsKey: "norm_eps", act: "relu2", actKey: hiddenAct,
		qkvBias: attentionBias, outBias: attentionBias, mlpBias: mlpBias, norm: meanAndSpreadPlusOne, plain: true,
		rope: rope{part: 0.5}, qaPrefix: "transformer",
	}.family()

	helium = decoder{
		model: "helium", class: module("helium", "Helium"), name: "Helium", vocabulary: 48000, hidden: 2560, inner: 7040, layers: 24,
		heads: 20, keys: 20, size: 128, positions: 4096, eps: 1e-8, act: silu, actKey: hiddenAct, pad: 3, qkvBias: attentionBias,
		mlpBias: mlpBias, rope: rope{theta: 100000, interleaved: true},
	}.family()

	seedOSS = decoder{
		model: "seed_oss", class: module("seed_oss", "SeedOss"), name: "SeedOss", vocabulary: 155136, hidden: 4096, inner: 27648,
		layers: 64, heads: 80, keys: 8, size: 128, positions: 524288, eps: 1e-6, act: silu, actKey: hiddenAct, pad: 1,
		qkvBias: flagged("attention_bias", true), outBias: flagged("attention_out_bias", false), mlpBias: mlpBias, qaPrefix: "transformer",
	}.family()

	ernie45 = decoder{
		model: "ernie4_5", class: module("ernie4_5", "Ernie4_5"), name: "Ernie4_5", vocabulary: 103424, hidden: 1024, inner: 3072,
		layers: 18, heads: 16, keys: 2, size: 128, positions: 131072, eps: 1e-5, act: silu, actKey: hiddenAct, pad: 0, ties: true,
		qkvBias: flagged("use_bias", false), outBias: flagged("use_bias", false), mlpBias: flagged("use_bias", false),
		rope: rope{theta: 500000, interleaved: true}, noTokens: true, noTexts: true,
	}.family()

	hunyuan = decoder{
		model: "hunyuan_v1_dense", class: module("hunyuan_v1_dense", "HunYuanDenseV1"), name: "HunYuanDenseV1", vocabulary: 290943,
		hidden: 4096, inner: 11008, layers: 32, heads: 32, positions: 2048, eps: 1e-5, act: silu, actKey: hiddenAct, pad: 0,
		qkvBias: attentionBias, outBias: attentionBias, headNorm: headNorm{kind: eachHead, late: true}, noTokens: true,
		names: names{qNorm: "query_layernorm", kNorm: "key_layernorm"}, rope: rope{alpha: true},
	}.family()

	apertus = decoder{
		model: "apertus", class: module("apertus", "Apertus"), name: "Apertus", vocabulary: 131072, hidden: 4096, inner: 14336,
		layers: 32, heads: 32, positions: 65536, eps: 1e-5, act: "xielu", actKey: hiddenAct, pad: 3, qkvBias: attentionBias,
		outBias: attentionBias, headNorm: headNorm{kind: eachHead}, plain: true, noTexts: true,
		names: names{before: [2]string{"attention_layernorm", "feedforward_layernorm"}},
		rope:  rope{theta: 12e6, missing: llama31("12000000", "8")},
	}.family()

	arcee = decoder{
		model: "arcee", class: module("arcee", "Arcee"), name: "Arcee", vocabulary: 32000, hidden: 2560, inner: 18432, layers: 32,
		heads: 32, positions: 4096, eps: 1e-5, act: "relu2", actKey: hiddenAct, qkvBias: attentionBias, outBias: attentionBias,
		mlpBias: mlpBias, plain: true, qaPrefix: "transformer",
	}.family()

	cwm = decoder{
		model: "cwm", class: module("cwm", "Cwm"), name: "Cwm", vocabulary: 128256, hidden: 6144, inner: 21504, layers: 64,
		heads: 48, keys: 8, size: 128, positions: 131072, eps: 1e-5, act: silu, actKey: hiddenAct, noTokens: true, noTexts: true,
		rope: rope{theta: 1e6, missing: llama31("1000000", "16")},
		window: func(c *family.Config, layers int) (int, func(int) bool) {
			return slidingWindow(c, 8192), layerTypes(c, layers, func(i int) bool { return i%4 != 0 })
		},
	}.family()
)

// These were added by docs/families.md alone.
var (
	hyperCLOVAX = decoder{
		model: "hyperclovax", class: module("hyperclovax", "HyperCLOVAX"), name: "HyperCLOVAX", vocabulary: 32000, hidden: 4096,
		inner: 11008, layers: 32, heads: 32, positions: 2048, eps: 1e-6, act: silu, actKey: hiddenAct, qkvBias: attentionBias,
		outBias: attentionBias, mlpBias: mlpBias, noTokens: true, noTexts: true,
		scaling: func(c *family.Config, size int) float64 {
			return c.Float("attention_multiplier", family.InverseSqrt(size))
		},
		embedding: factor("embedding_multiplier", 1), residual: factor("residual_multiplier", 1), logits: factor("logits_scaling", 1),
		by: func(c *family.Config, d *decoder) {
			if c.Flag("use_post_norm", true) {
				d.names.after = [2]string{"post_norm1", "post_norm2"}
			}
		},
	}.family()

	jais2 = decoder{
		model: "jais2", class: module("jais2", "Jais2"), name: "Jais2", vocabulary: 150272, hidden: 3328, inner: 26624, layers: 32,
		heads: 26, positions: 8192, eps: 1e-5, epsKey: "layer_norm_eps", act: "relu2", actKey: hiddenAct,
		qkvBias: flagged("attention_bias", true), outBias: flagged("attention_bias", true), mlpBias: flagged("mlp_bias", true),
		norm: meanAndSpread, plain: true, noTokens: true, noTexts: true,
	}.family()
)

// smolTurns says whether SmolLM3 turns the heads of a layer: all but every fourth, or as a list says.
func smolTurns(c *family.Config, i int) bool {
	c.Looked("no_rope_layers")
	switch list := c.Fields["no_rope_layers"].(type) {
	case nil:
	case []any:
		if i >= len(list) {
			c.Fail("no_rope_layers", "has %d entries, and none for layer %d", len(list), i)
			return true
		}
		return list[i] != json.Number("0")
	default:
		c.Fail("no_rope_layers", "is %s, not a list", family.Short(list))
	}
	return (i+1)%c.Size("no_rope_layer_interval", 4) != 0
}

// exaoneTurns turns the heads that slide, or all where none do.
func exaoneTurns(c *family.Config) func(int, bool) bool {
	all := slidingWindow(c, 4096) == 0
	return func(_ int, sliding bool) bool { return all || sliding }
}

// exaoneWindow slides as a list of types, a text or a number says.
func exaoneWindow(c *family.Config, layers int) (int, func(int) bool) {
	n, window := 1, slidingWindow(c, 4096)
	if v, isText := c.Fields["sliding_window_pattern"].(string); isText {
		return window, layerTypes(c, layers, lettered(v, layers))
	}
	if window > 0 {
		n = c.Size("sliding_window_pattern", 4)
	}
	return window, layerTypes(c, layers, func(i int) bool { return (i+1)%n != 0 })
}

// lettered is a pattern of EXAONE 4: L for layers that slide and G for those that do not, again and again; the last one does not.
func lettered(letters string, layers int) func(int) bool {
	return func(i int) bool { return letters != "" && i < layers-1 && letters[i%len(letters)] == 'L' }
}

// nonzero is float for what is divided by.
func nonzero(c *family.Config, name string, missing float64) float64 {
	x := c.Float(name, missing)
	if x == 0 {
		c.Fail(name, "is 0")
		return 1
	}
	return x
}

// gptIgnored matches masks that the first checkpoints hold and nothing reads.
var gptIgnored = []string{`\.(attention|attn)\.(bias|masked_bias)$`}

// These have names of their own.
var (
	gptNeoX = decoder{
		model: "gpt_neox", class: module("gpt_neox", "GPTNeoX"), name: "GPTNeoX", vocabulary: 50432, hidden: 6144, inner: 24576,
		layers: 44, heads: 64, positions: 2048, eps: 1e-5, epsKey: "layer_norm_eps", act: "gelu", actKey: hiddenAct,
		qkvBias: flagged("attention_bias", true), outBias: flagged("attention_bias", true), mlpBias: always, norm: meanAndSpread,
		plain: true, fused: grouped, rope: rope{part: 0.25}, noTokens: true, ignored: gptIgnored,
		renames: []string{"embed_out.", "lm_head."},
		names: names{
			base: "gpt_neox", embed: "embed_in", norm: "final_layer_norm", attention: "attention", qkv: "query_key_value", o: "dense",
			up: "dense_h_to_4h", down: "dense_4h_to_h", act: "act",
		},
		by: func(c *family.Config, d *decoder) {
			if d.parallel = c.Flag("use_parallel_residual", true); c.Flag("query_key_value_in_a_row", false) { // as in GGUF files
				d.fused = behind
			}
		},
	}.family()

	gptJ = decoder{
		model: "gptj", class: module("gptj", "GPTJ"), name: "GPTJ", vocabulary: 50400, hidden: 4096, layers: 28, heads: 16,
		positions: 2048, eps: 1e-5, epsKey: "layer_norm_epsilon", act: "gelu_new", actKey: "activation_function", mlpBias: always,
		headBias: always, norm: meanAndSpread, parallel: true, plain: true, noTokens: true, ignored: gptIgnored,
		rope: rope{interleaved: true, dims: func(c *family.Config) int { return c.Size("rotary_dim", 64) }},
		names: names{
			base: "transformer", embed: "wte", layers: "h", norm: "ln_f", attention: "attn", o: "out_proj", up: "fc_in", down: "fc_out",
			act: "act", before: [2]string{"ln_1"},
		},
	}.family()

	falcon = decoder{
		model: "falcon", class: module("falcon", "Falcon"), name: "Falcon", vocabulary: 65024, hidden: 4544, layers: 32, heads: 71,
		positions: 2048, eps: 1e-5, epsKey: "layer_norm_epsilon", act: "gelu", actKey: "activation", ties: true,
		qkvBias: flagged("bias", false), outBias: flagged("bias", false), mlpBias: flagged("bias", false), norm: meanAndSpread,
		plain: true, fused: grouped, noTokens: true, by: falconBy,
		names: names{
			base: "transformer", embed: "word_embeddings", layers: "h", norm: "ln_f", attention: "self_attention",
			qkv: "query_key_value", o: "dense", up: "dense_h_to_4h", down: "dense_4h_to_h", act: "act",
		},
	}.family()

	bloom = decoder{
		model: "bloom", class: module("bloom", "Bloom"), name: "Bloom", vocabulary: 250880, hidden: 64, layers: 2, heads: 8,
		positions: 2048, eps: 1e-5, epsKey: "layer_norm_epsilon", act: "gelu_fast", ties: true, qkvBias: always, outBias: always,
		mlpBias: always, norm: meanAndSpread, plain: true, fused: grouped, noTokens: true,
		names: names{
			base: "transformer", embed: "word_embeddings", embedNorm: "word_embeddings_layernorm", layers: "h", norm: "ln_f",
			attention: "self_attention", qkv: "query_key_value", o: "dense", up: "dense_h_to_4h", down: "dense_4h_to_h",
			act: "gelu_impl",
		},
		alibi: func(_ *family.Config, heads int) *alibi { return &alibi{slopes: alibiSlopes(heads)} },
		by: func(c *family.Config, d *decoder) {
			d.normed = c.Flag("apply_residual_connection_post_layernorm", false)
		},
	}.family()

	mpt = decoder{
		model: "mpt", class: module("mpt", "Mpt"), name: "Mpt", vocabulary: 50368, hidden: 2048, layers: 24, heads: 16,
		positions: 2048, eps: 1e-5, epsKey: "layer_norm_epsilon", act: "gelu", ties: true, norm: meanAndSpreadBare, plain: true,
		fused: behind, noTokens: true, alibi: mptAlibi,
		names: names{
			base: "transformer", embed: "wte", layers: "blocks", norm: "norm_f", attention: "attn", mlp: "ffn",
			before: [2]string{"norm_1", "norm_2"}, qkv: "Wqkv", o: "out_proj", act: "act",
		},
		scaling: func(c *family.Config, size int) float64 {
			p := c.Sub("attn_config")
			defer c.Adopt(p)
			return p.Float("softmax_scale", family.InverseSqrt(size))
		},
		clip: func(c *family.Config) float64 {
			p := c.Sub("attn_config")
			defer c.Adopt(p)
			return p.Float("clip_qkv", 0)
		},
	}.family()
)

// falconBy makes the description that of the older or the newer architecture.
func falconBy(c *family.Config, d *decoder) {
	newer, parallel := c.Flag("new_decoder_architecture", false), c.Flag("parallel_attn", true)
	norms := c.Number("num_ln_in_parallel_attn", 1)
	if newer && c.Fields["num_ln_in_parallel_attn"] == nil {
		norms = 2
	}
	switch {
	case parallel && norms == 2:
		d.names.before = [2]string{"ln_attn", "ln_mlp"}
	case parallel:
		d.names.before[1] = ""
	}
	if d.parallel = parallel; newer && !parallel || !newer && norms == 2 {
		c.Unsupported("new_decoder_architecture with another num_ln_in_parallel_attn or parallel_attn")
	}
	if !newer {
		// The older architecture has as many keys as queries, or one of all heads; what it says of num_kv_heads nobody reads.
		keys := c.Size(headsKey, d.heads)
		if c.Flag("multi_query", true) {
			keys = 1
		}
		d.keys, d.keysKey = keys, noKeys
	}
	if c.Flag("alibi", false) {
		d.alibi = func(_ *family.Config, heads int) *alibi {
			size := max(c.Size(hiddenKey, d.hidden)/max(heads, 1), 1)
			return &alibi{slopes: alibiSlopes(heads), rounded: true, scale: family.InverseSqrt(size)}
		}
	}
}

// mptAlibi are MPT's slopes. As transformers does, it reads over alibi_bias_max.
func mptAlibi(c *family.Config, heads int) *alibi {
	p := c.Sub("attn_config")
	defer c.Adopt(p)
	if !p.Flag("alibi", true) || p.Flag("qk_ln", false) || p.Flag("prefix_lm", false) {
		c.Unsupported("attn_config without alibi, or with qk_ln or prefix_lm")
	}
	return &alibi{slopes: mptSlopes(heads)}
}

// decoders are all of these.
var decoders = []*family.Family{
	vaultGemma, gemma3Text, gemma3nText, gemma4Text, smolLM3, ministral, ministral3, olmo, olmo2, olmo3, granite, cohere, cohere2, phi, stableLM, exaone4, glm, glm4,
	starcoder2, nemotron, helium, seedOSS, ernie45, hunyuan, apertus, arcee, cwm, hyperCLOVAX, jais2, gptNeoX, gptJ, falcon, bloom, mpt,
}
