package models

import (
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
		arch: "gpt-oss", class: "GptOssForCausalLM", model: "gpt_oss", experts: true, strict: true, outside: llamaOutside,
		inside: llamaInsideWith(biasedExperts("mlp."), expertsInside("mlp.", "router."),
			[]string{"post_attention_norm.", "post_attention_layernorm.", "attn_sinks.weight", "self_attn.sinks"}),
		config: (*ggufModel).gptOss,
	},
	{
		arch: "qwen2moe", class: "Qwen2MoeForCausalLM", model: "qwen2_moe", experts: true, strict: true, outside: llamaOutside,
		inside: llamaInsideWith([]string{"ffn_gate_inp_shexp.", "mlp.shared_expert_gate."}, sharedInside("mlp.shared_expert."),
			expertsInside("mlp.", "gate.")),
		config: func(g *ggufModel) {
			g.routed()
			g.scored(softmax, false)
			shared, ok := g.integer("expert_shared_feed_forward_length")
			if !ok {
				shared, _ = g.config["intermediate_size"].(int64)
			}
			g.set("shared_expert_intermediate_size", shared)
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
		inside: llamaInsideWith(expertsInside("block_sparse_moe.", "router.")),
		config: func(g *ggufModel) {
			g.granite()
			g.sizes("num_local_experts", "expert_count", "num_experts_per_tok", "expert_used_count")
			g.scored(softmax, true)
			g.expertsWidth()
			if n, _ := g.integer("expert_shared_feed_forward_length"); n > 0 {
				g.lacks("experts that every token goes through (GraniteMoeShared)")
			}
		},
	},
}

// What expert_gating_func says: how weights come from the logits of a router.
const (
	softmax         = 1
	sigmoid         = 2
	softmaxOfChosen = 3
)

// scored refuses files whose routers weigh experts otherwise: by another function, with sums of one or without, with a factor, or
// out of the best groups.
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

// gptOss has windows in every other layer, which its file does not say, and frequencies between whose bounds there is no rounding.
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

// ggufHarmless are keys that change no number, or repeat others.
var ggufHarmless = []string{
	"vocab_size", "rope.scaling.finetuned", "rope.scaling.original_context_length", "expert_shared_count", "tensor_data_layout",
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
