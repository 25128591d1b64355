package models

import (
	"math"
	"slices"
	"strings"

	"github.com/optimem/optimem/tensor"
)

// GGUF files of decoders with experts, whose tensors have all experts of a block each.

// sharedInside are the experts that every token goes through, at a place in a block.
func sharedInside(at string) []string {
	return []string{"ffn_gate_shexp.", at + "gate_proj.", "ffn_up_shexp.", at + "up_proj.", "ffn_down_shexp.", at + "down_proj."}
}

// biasedExperts are the biases of experts.
func biasedExperts(at string) []string {
	return []string{
		"ffn_gate_exps.bias", at + "experts.gate_proj_bias", "ffn_up_exps.bias", at + "experts.up_proj_bias",
		"ffn_down_exps.bias", at + "experts.down_proj_bias",
	}
}

// llamaInsideWith are the modules of Llama's block with others, which come first.
func llamaInsideWith(first ...[]string) *strings.Replacer {
	return strings.NewReplacer(append(slices.Concat(first...), llamaBlock...)...)
}

// expertFiles are the families of such files.
var expertFiles = []ggufFamily{
	{
		arch: "gpt-oss", class: "GptOssForCausalLM", model: "gpt_oss", experts: true, strict: true,
		outside: llamaOutside,
		inside: llamaInsideWith(biasedExperts("mlp."), expertsInside("mlp.", "router."),
			[]string{"post_attention_norm.", "post_attention_layernorm.", "attn_sinks.weight", "self_attn.sinks"}),
		config: (*ggufModel).gptOss,
	},
	{
		arch: "qwen2moe", class: "Qwen2MoeForCausalLM", model: "qwen2_moe", experts: true, strict: true,
		outside: llamaOutside,
		inside: llamaInsideWith([]string{"ffn_gate_inp_shexp.", "mlp.shared_expert_gate."},
			sharedInside("mlp.shared_expert."),
			expertsInside("mlp.", "gate.")),
		config: func(g *ggufModel) {
			g.sizes("num_experts", "expert_count", "num_experts_per_tok", "expert_used_count")
			g.scored(softmax, false)
			g.width("moe_intermediate_size", "expert_feed_forward_length", "blk.0.ffn_up_exps.weight")
			g.width("shared_expert_intermediate_size", "expert_shared_feed_forward_length", "blk.0.ffn_up_shexp.weight")
			g.set("norm_topk_prob", false) // as every file of the architecture means
		},
	},
	{
		arch: "olmoe", class: "OlmoeForCausalLM", experts: true, strict: true, outside: llamaOutside,
		inside: llamaInsideWith(expertsInside("mlp.", "gate.")),
		config: func(g *ggufModel) {
			g.sizes("num_experts", "expert_count", "num_experts_per_tok", "expert_used_count")
			g.scored(softmax, false)
			g.expertsWidth()
			g.set("norm_topk_prob", false)
		},
	},
	{
		arch: "granitemoe", class: "GraniteMoeForCausalLM", experts: true, strict: true, outside: llamaOutside,
		inside: llamaInsideWith(expertsInside("block_sparse_moe.", "router."), []string{
			"ffn_gate_shexp.", "shared_mlp.gate_proj.", "ffn_up_shexp.", "shared_mlp.up_proj.",
			"ffn_down_shexp.", "shared_mlp.output_linear.",
		}),
		config: func(g *ggufModel) {
			g.granite()
			g.sizes("num_local_experts", "expert_count", "num_experts_per_tok", "expert_used_count")
			g.scored(softmax, true)
			g.expertsWidth()
			if n, _ := g.integer("expert_shared_feed_forward_length"); n > 0 {
				g.set("architectures", []string{"GraniteMoeSharedForCausalLM"})
				g.set("model_type", "granitemoeshared")
				g.set("shared_intermediate_size", n)
			}
		},
	},
	{
		arch: "deepseek2", class: "DeepseekV2ForCausalLM", model: "deepseek_v2", experts: true, strict: true,
		outside: llamaOutside,
		inside: llamaInsideWith([]string{
			"attn_q_a_norm.", "self_attn.q_a_layernorm.", "attn_q_a.", "self_attn.q_a_proj.", "attn_q_b.",
			"self_attn.q_b_proj.",
			"attn_kv_a_norm.", "self_attn.kv_a_layernorm.", "attn_kv_a_mqa.", "self_attn.kv_a_proj_with_mqa.",
			"attn_kv_b.", "self_attn.kv_b_proj.", "attn_k_b.weight", "self_attn.k_b_proj", "attn_v_b.weight",
			"self_attn.v_b_proj",
			"exp_probs_b.bias", "mlp.gate.e_score_correction_bias",
		}, sharedInside("mlp.shared_experts."), expertsInside("mlp.", "gate.")),
		own: (*ggufModel).deepseek2,
	},
	{
		arch: "glm4moe", class: "Glm4MoeForCausalLM", model: "glm4_moe", experts: true, strict: true, part: true,
		outside: llamaOutside,
		inside: llamaInsideWith([]string{
			"post_attention_norm.", "post_attention_layernorm.", "exp_probs_b.bias",
			"mlp.gate.e_score_correction_bias",
		}, sharedInside("mlp.shared_experts."), expertsInside("mlp.", "gate.")),
		config: (*ggufModel).glm4Moe,
	},
	{
		arch: "llama4", class: "Llama4ForCausalLM", model: "llama4_text", experts: true, strict: true,
		outside: llamaOutside,
		inside: llamaInsideWith(sharedInside("feed_forward.shared_expert."),
			expertsInside("feed_forward.", "router."), gatedInside("feed_forward.")),
		config: (*ggufModel).llama4,
	},
}

// What expert_gating_func says: how weights come from the logits of a router.
const (
	softmax         = 1
	sigmoid         = 2
	softmaxOfChosen = 3
)

// scored refuses files whose routers weigh experts otherwise: by another function, with sums of one or without, with
// a factor, or out of the best groups.
func (g *ggufModel) scored(by int64, normalized bool) {
	if n, ok := g.integer("expert_gating_func"); ok && n != by && !(n == softmaxOfChosen && by == softmax && normalized) {
		g.lacks("experts that are weighed by function %d", n)
	}
	if v := g.key("expert_weights_norm"); v != nil && v != normalized {
		g.lacks("weights of experts whose sum is one: %v", v)
	}
	if x, ok := g.float("expert_weights_scale"); ok && x != 1 && x != 0 { // 0 stands for none
		g.lacks("weights of experts times %v", x)
	}
	if n, _ := g.integer("expert_group_count"); n > 1 {
		g.lacks("experts in %d groups", n)
	}
	g.key("expert_group_used_count")
}

// expertsWidth makes the width of experts that of the MLP, where the file says it.
func (g *ggufModel) expertsWidth() {
	if n, ok := g.integer("expert_feed_forward_length"); ok {
		g.set("intermediate_size", n)
	}
}

// width sets an entry to a number of the file or, in the first files of an architecture, to the rows of a tensor.
func (g *ggufModel) width(entry, name, rows string) {
	n, ok := g.integer(name)
	if w, there := g.ckpt.Weight(rows); !ok && there && len(w.Layout.Shape) > 1 {
		n, ok = int64(w.Layout.Shape[len(w.Layout.Shape)-2]), true
	}
	if !ok {
		g.fail("it does not say %s.%s", g.family.arch, name)
	}
	g.set(entry, n)
}

// gptOss has windows in every other layer, which its file does not say, and frequencies between whose bounds there is
// no rounding.
func (g *ggufModel) gptOss() {
	g.sizes("num_local_experts", "expert_count", "num_experts_per_tok", "expert_used_count",
		"sliding_window", "attention.sliding_window")
	g.scored(softmaxOfChosen, true)
	g.expertsWidth()
	switch scaling, ok := g.config["rope_scaling"].(map[string]any); {
	case ok && scaling["rope_type"] == "yarn":
		scaling["truncate"] = false
	case !ok:
		g.set("rope_scaling", map[string]any{"rope_type": "default"})
	}
	if !g.has("blk.0.attn_q.bias") {
		g.set("attention_bias", false)
	}
}

// deepseek2 is DeepSeek-V2's, whose routers take shares, or -V3's, whose routers take sigmoids. Where attn_k_b and
// attn_v_b are apart, the file calls what all heads share one key, and has the sizes of heads as those of "mla".
func (g *ggufModel) deepseek2() {
	g.sizes("hidden_size", "embedding_length", "num_attention_heads", "attention.head_count",
		"max_position_embeddings", "context_length",
		"qk_rope_head_dim", "rope.dimension_count", "kv_lora_rank", "attention.kv_lora_rank",
		"num_experts_per_tok", "expert_used_count", "n_routed_experts", "expert_count", "moe_intermediate_size",
		"expert_feed_forward_length",
		"n_shared_experts", "expert_shared_count")
	g.set("num_hidden_layers", g.depth())
	g.set("num_key_value_heads", g.config["num_attention_heads"])
	g.key("attention.head_count_kv")
	inner, _ := g.largest("feed_forward_length")
	g.set("intermediate_size", inner)
	g.number("rms_norm_eps", "attention.layer_norm_rms_epsilon")
	g.optional("rope_theta", "rope.freq_base")
	dense, _ := g.integer("leading_dense_block_count")
	g.set("first_k_dense_replace", dense)
	g.set("q_lora_rank", nil)
	if n, ok := g.integer("attention.q_lora_rank"); ok && g.has("blk.0.attn_q_a.weight") {
		g.set("q_lora_rank", n)
	}
	keys, _ := g.integer("attention.key_length")
	values, _ := g.integer("attention.value_length")
	if n, ok := g.integer("attention.key_length_mla"); ok {
		keys = n
		values, _ = g.integer("attention.value_length_mla")
	}
	turned, _ := g.integer("rope.dimension_count")
	g.set("qk_nope_head_dim", keys-turned)
	g.set("v_head_dim", values)
	g.rope(turned)
	g.latentYarn()
	g.deepseekRouter()
}

// latentYarn has what scores are multiplied with where positions are stretched, in llama.cpp's own unit.
func (g *ggufModel) latentYarn() {
	scaling, ok := g.config["rope_scaling"].(map[string]any)
	by, there := g.float("rope.scaling.yarn_log_multiplier")
	switch {
	case !ok || scaling["rope_type"] != "yarn":
	case !there || by <= 0:
		g.lacks("yarn without rope.scaling.yarn_log_multiplier")
	default:
		all := math.Round(by*1e7) / 1e6 // of float32
		scaling["mscale"], scaling["mscale_all_dim"] = all, all
	}
}

func (g *ggufModel) deepseekRouter() {
	by, ok := g.integer("expert_gating_func")
	normalized, groups := g.grouped()
	switch {
	case by == sigmoid:
		g.set("architectures", []string{"DeepseekV3ForCausalLM"})
		g.set("model_type", "deepseek_v3")
		g.set("norm_topk_prob", normalized)
	case ok && by != softmax && by != 0:
		g.lacks("experts that are weighed by function %d", by)
	case normalized:
		g.lacks("shares of experts whose sum is one")
	default:
		if g.set("topk_method", "greedy"); groups > 1 {
			g.set("topk_method", "group_limited_greedy")
		}
	}
}

// grouped reads what the chosen experts of the best groups are multiplied with. It returns whether their weights have
// a sum of one, and how many groups there are.
func (g *ggufModel) grouped() (normalized bool, groups int64) {
	normalized, _ = g.key("expert_weights_norm").(bool)
	groups, _ = g.integer("expert_group_count")
	if x, ok := g.float("expert_weights_scale"); ok && x != 0 { // which stands for none
		g.set("routed_scaling_factor", x)
	} else {
		g.set("routed_scaling_factor", 1)
	}
	g.set("n_group", max(groups, 1))
	g.set("topk_group", 1)
	if groups > 1 {
		g.sizes("topk_group", "expert_group_used_count")
	}
	g.key("expert_group_used_count")
	return normalized, groups
}

func (g *ggufModel) glm4Moe() {
	g.set("num_hidden_layers", g.depth())
	g.sizes("n_routed_experts", "expert_count", "num_experts_per_tok", "expert_used_count",
		"moe_intermediate_size", "expert_feed_forward_length", "n_shared_experts", "expert_shared_count")
	if by, ok := g.integer("expert_gating_func"); ok && by != sigmoid && by != 0 {
		g.lacks("experts that are weighed by function %d", by)
	}
	normalized, _ := g.grouped()
	g.set("norm_topk_prob", normalized)
	dense, _ := g.integer("leading_dense_block_count")
	g.set("first_k_dense_replace", dense)
	g.set("use_qk_norm", g.has("blk.0.attn_q_norm.weight"))
	g.set("attention_bias", g.has("blk.0.attn_q.bias"))
}

// llama4 has what its file does not say as llama.cpp has it: chunks of 8,192, no positions in every fourth layer, and
// no norms of heads in the model of 128 experts.
func (g *ggufModel) llama4() {
	g.set("intermediate_size_mlp", g.config["intermediate_size"])
	g.sizes("num_local_experts", "expert_count", "num_experts_per_tok", "expert_used_count",
		"intermediate_size", "expert_feed_forward_length", "interleave_moe_layer_step", "interleave_moe_layer_step")
	g.scored(sigmoid, false)
	g.set("use_qk_norm", g.config["num_local_experts"] != int64(128))
	if n, ok := g.integer("attention.sliding_window"); ok && n != 8192 {
		g.lacks("chunks of %d", n)
	}
}

// depth is how many blocks are the model's: not those that guess tokens ahead, which come last.
func (g *ggufModel) depth() int64 {
	all, ok := g.integer("block_count")
	ahead, _ := g.integer("nextn_predict_layers")
	if !ok || ahead < 0 || all <= ahead || all > math.MaxInt32 {
		g.fail("%d blocks, of which %d guess tokens ahead", all, ahead)
		return 1
	}
	if ahead > 0 {
		g.blocks = int(all - ahead)
	}
	return all - ahead
}

// ggufHarmless are keys that change no number, or repeat others.
var ggufHarmless = []string{
	"vocab_size", "rope.scaling.finetuned", "rope.scaling.original_context_length", "expert_shared_count",
	"tensor_data_layout",
}

// unread refuses a file that says more than was looked at.
func (g *ggufModel) unread() {
	before := g.family.arch + "."
	var more []string
	for name := range g.ckpt.Metadata {
		if key, ok := strings.CutPrefix(name, before); ok && !g.looked[key] && !slices.Contains(ggufHarmless, key) {
			more = append(more, key)
		}
	}
	if len(more) > 0 {
		g.lacks("%s%.60s, which is not known", before, slices.Min(more))
	}
}

// row gives a vector the shape of a matrix with one row.
func row(w tensor.Weight) tensor.Weight {
	if s := w.Layout.Shape; len(s) == 1 {
		w.Layout = tensor.Contiguous(1, s[0])
	}
	return w
}
