package models

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/optimem/optimem/tensor"
)

// GGUF files of models whose layers keep states, or have embeddings of their own. llama.cpp's converter stores
// −exp(A_log) as ssm_a, drops dimensions of one, and folds multipliers into weights.

// The names of the modules of a mixer, of Mamba and of Mamba 2, at a place in a block.
func selectiveInside(at string, more ...string) *strings.Replacer {
	return strings.NewReplacer(append([]string{
		"ssm_dt_norm.", at + "dt_layernorm.", "ssm_b_norm.", at + "b_layernorm.", "ssm_c_norm.", at + "c_layernorm.",
		"ssm_in.", at + "in_proj.", "ssm_conv1d.", at + "conv1d.", "ssm_x.", at + "x_proj.", "ssm_dt.", at + "dt_proj.",
		"ssm_a", at + "ssm_a", "ssm_d", at + "D", "ssm_out.", at + "out_proj.",
	}, more...)...)
}

func dualInside(at string, more ...string) *strings.Replacer {
	return strings.NewReplacer(append([]string{
		"ssm_in.", at + "in_proj.", "ssm_conv1d.", at + "conv1d.", "ssm_dt.bias", at + "dt_bias", "ssm_a", at + "ssm_a", "ssm_d", at + "D",
		"ssm_norm.", at + "norm.", "ssm_out.", at + "out_proj.",
	}, more...)...)
}

// attentionInside are the projections of an attention at a place in a block.
func attentionInside(at string) []string {
	return []string{
		"attn_q.", at + "q_proj.", "attn_k.", at + "k_proj.", "attn_v.", at + "v_proj.", "attn_output.", at + "o_proj.",
	}
}

// expertsInside are the tensors of experts at a place in a block.
func expertsInside(at, router string) []string {
	return []string{
		"ffn_gate_inp.", at + router, "ffn_gate_exps.weight", at + "experts.gate_proj", "ffn_up_exps.weight", at + "experts.up_proj",
		"ffn_down_exps.weight", at + "experts.down_proj",
	}
}

// gatedInside is an MLP with a gate.
func gatedInside(at string) []string {
	return []string{"ffn_gate.", at + "gate_proj.", "ffn_up.", at + "up_proj.", "ffn_down.", at + "down_proj."}
}

var (
	backboneOutside = strings.NewReplacer("token_embd.", "backbone.embeddings.", "output_norm.", "backbone.norm_f.",
		"output.", "lm_head.")
	finalOutside = strings.NewReplacer("token_embd.", "model.embed_tokens.", "output_norm.",
		"model.final_layernorm.", "output.", "lm_head.")
	lfm2Outside = strings.NewReplacer(
		"token_embd_norm.", "model.embedding_norm.", "token_embd.", "model.embed_tokens.", "output_norm.", "model.embedding_norm.",
		"output.", "lm_head.",
	)
	lfm2Inside = []string{
		"attn_q_norm.", "self_attn.q_layernorm.", "attn_k_norm.", "self_attn.k_layernorm.", "attn_norm.", "operator_norm.",
		"attn_q.", "self_attn.q_proj.", "attn_k.", "self_attn.k_proj.", "attn_v.", "self_attn.v_proj.",
		"attn_output.", "self_attn.out_proj.", "shortconv.conv.", "conv.conv.", "shortconv.in_proj.", "conv.in_proj.",
		"shortconv.out_proj.", "conv.out_proj.", "ffn_norm.", "ffn_norm.", "ffn_gate.", "feed_forward.w1.", "ffn_up.", "feed_forward.w3.",
		"ffn_down.", "feed_forward.w2.",
	}
)

// hybrids are the families of such files.
var hybrids = []ggufFamily{
	{
		arch: "mamba", class: "MambaForCausalLM", blocks: "backbone.layers.", outside: backboneOutside,
		inside: selectiveInside("mixer.", "attn_norm.", "norm."), own: (*ggufModel).mamba,
	},
	{
		arch: "mamba2", class: "Mamba2ForCausalLM", blocks: "backbone.layers.", outside: backboneOutside,
		inside: dualInside("mixer.", "attn_norm.", "norm."), own: (*ggufModel).mamba2,
	},
	{
		arch: "falcon-h1", class: "FalconH1ForCausalLM", model: "falcon_h1", outside: finalOutside,
		inside: dualInside("mamba.", slices.Concat(
			[]string{"attn_norm.", "input_layernorm.", "ffn_norm.", "pre_ff_layernorm."}, attentionInside("self_attn."),
			gatedInside("feed_forward."))...),
		config: (*ggufModel).falconH1,
	},
	{
		arch: "lfm2", class: "Lfm2ForCausalLM", outside: lfm2Outside, inside: strings.NewReplacer(lfm2Inside...),
		config: (*ggufModel).lfm2,
	},
	{
		arch: "lfm2moe", class: "Lfm2MoeForCausalLM", model: "lfm2_moe", experts: true, outside: lfm2Outside,
		inside: strings.NewReplacer(slices.Concat(
			[]string{"exp_probs_b.bias", "feed_forward.expert_bias"}, expertsInside("feed_forward.", "gate."),
			lfm2Inside)...),
		config: func(g *ggufModel) {
			g.lfm2()
			g.routed()
			g.sizes("num_dense_layers", "leading_dense_block_count")
			g.set("use_expert_bias", g.anyBlock("exp_probs_b.bias"))
		},
	},
	{
		arch: "jamba", class: "JambaForCausalLM", anyExperts: true, outside: finalOutside,
		inside: selectiveInside("mamba.", slices.Concat(
			[]string{"attn_norm.", "input_layernorm.", "ffn_norm.", "pre_ff_layernorm."}, attentionInside("self_attn."),
			expertsInside("feed_forward.", "router."), gatedInside("feed_forward."))...),
		config: (*ggufModel).jamba,
	},
	{
		arch: "granitehybrid", class: "GraniteMoeHybridForCausalLM", model: "granitemoehybrid", anyExperts: true,
		outside: llamaOutside,
		inside: dualInside("mamba.", slices.Concat(
			[]string{
				"attn_norm.", "input_layernorm.", "ffn_norm.", "post_attention_layernorm.", "ffn_gate_shexp.", "shared_mlp.gate_proj.",
				"ffn_up_shexp.", "shared_mlp.up_proj.", "ffn_down_shexp.", "shared_mlp.down_proj.",
			}, attentionInside("self_attn."), expertsInside("block_sparse_moe.", "router."),
			gatedInside("shared_mlp."))...),
		config: (*ggufModel).graniteHybrid,
	},
	{
		arch: "nemotron_h", class: "NemotronHForCausalLM",
		outside: strings.NewReplacer("token_embd.", "model.embeddings.", "output_norm.", "model.norm_f.", "output.",
			"lm_head."),
		inside: dualInside("mixer.", slices.Concat(
			[]string{"attn_norm.", "norm.", "ffn_up.", "mixer.up_proj.", "ffn_down.", "mixer.down_proj."},
			attentionInside("mixer."))...),
		config: (*ggufModel).nemotronH,
	},
	{
		arch: "gemma3n", class: "Gemma3nForCausalLM", model: "gemma3n_text",
		outside: strings.NewReplacer(
			"per_layer_token_embd.", "model.embed_tokens_per_layer.", "per_layer_model_proj.", "model.per_layer_model_projection.",
			"per_layer_proj_norm.", "model.per_layer_projection_norm.", "altup_proj.", "model.altup_projections.",
			"altup_unembd_proj.", "model.altup_unembed_projections.", "token_embd.", "model.embed_tokens.", "output_norm.", "model.norm.",
			"output.", "lm_head.",
		),
		inside: strings.NewReplacer(append([]string{
			"altup_correct_coef.", "altup.correction_coefs.", "altup_correct_scale.weight", "altup.correct_output_scale",
			"altup_predict_coef.", "altup.prediction_coefs.", "altup_router_norm.", "altup.router_norm.",
			"altup_router.", "altup.modality_router.", "laurel_l.", "laurel.linear_left.", "laurel_r.", "laurel.linear_right.",
			"laurel_post_norm.", "laurel.post_laurel_norm.", "inp_gate.", "per_layer_input_gate.", "attn_q_norm.", "self_attn.q_norm.",
			"attn_k_norm.", "self_attn.k_norm.", "attn_norm.", "input_layernorm.", "post_attention_norm.", "post_attention_layernorm.",
			"ffn_norm.", "pre_feedforward_layernorm.", "post_ffw_norm.", "post_feedforward_layernorm.",
			"post_norm.", "post_per_layer_input_norm.", "proj.", "per_layer_projection.",
		}, slices.Concat(attentionInside("self_attn."), gatedInside("mlp."))...)...),
		config: (*ggufModel).gemma3n,
	},
}

// mamba has no attention, whose sizes its file says are 0.
func (g *ggufModel) mamba() {
	g.recurrent("conv_kernel", "state_size")
	g.sizes("time_step_rank", "ssm.time_step_rank")
	g.set("use_bias", g.has("blk.0.ssm_in.bias"))
	g.set("use_conv_bias", g.has("blk.0.ssm_conv1d.bias"))
	if normed, _ := g.key("ssm.dt_b_c_rms").(bool); normed {
		g.set("model_type", "falcon_mamba")
		g.set("architectures", []string{"FalconMambaForCausalLM"})
	}
}

func (g *ggufModel) mamba2() {
	g.recurrent("conv_kernel", "state_size")
	heads, size := g.dualHeads()
	g.set("num_heads", heads)
	g.set("head_dim", size)
	g.sizes("n_groups", "ssm.group_count")
	g.set("use_bias", g.has("blk.0.ssm_in.bias"))
	g.set("use_conv_bias", g.has("blk.0.ssm_conv1d.bias"))
}

// recurrent reads what models of mixers alone have, and calls the taps of convolutions and the size of states so.
func (g *ggufModel) recurrent(taps, state string) {
	g.sizes("hidden_size", "embedding_length", "num_hidden_layers", "block_count", "max_position_embeddings",
		"context_length",
		taps, "ssm.conv_kernel", state, "ssm.state_size")
	g.number("layer_norm_epsilon", "attention.layer_norm_rms_epsilon")
	hidden, _ := g.integer("embedding_length")
	inner, ok := g.integer("ssm.inner_size")
	if !ok || hidden < 1 {
		g.fail("it does not say %s.ssm.inner_size, or its embeddings have %d elements", g.family.arch, hidden)
		return
	}
	g.set("expand", float64(inner)/float64(hidden))
}

// dualHeads returns how many heads a mixer of Mamba 2 has, and how large they are.
func (g *ggufModel) dualHeads() (heads, size int64) {
	heads, _ = g.integer("ssm.time_step_rank")
	inner, _ := g.integer("ssm.inner_size")
	if heads < 1 || inner%heads != 0 {
		g.fail("%d heads for %d elements", heads, inner)
		return 1, 1
	}
	return heads, inner / heads
}

// dual reads the sizes of mixers of Mamba 2 beside attentions.
func (g *ggufModel) dual() {
	heads, size := g.dualHeads()
	g.set("mamba_n_heads", heads)
	g.set("mamba_d_head", size)
	g.sizes("mamba_n_groups", "ssm.group_count", "mamba_d_state", "ssm.state_size", "mamba_d_conv", "ssm.conv_kernel")
	hidden, _ := g.integer("embedding_length")
	g.set("mamba_expand", float64(heads*size)/float64(max(hidden, 1)))
	g.set("mamba_conv_bias", g.anyBlock("ssm_conv1d.bias"))
	g.set("mamba_proj_bias", g.anyBlock("ssm_in.bias"))
	g.set("attention_bias", g.anyBlock("attn_q.bias"))
}

func (g *ggufModel) falconH1() {
	g.dual()
	heads, size := g.dualHeads()
	g.set("mamba_d_ssm", heads*size)
	g.set("projectors_bias", g.anyBlock("ssm_out.bias"))
	g.set("mlp_bias", g.anyBlock("ffn_up.bias"))
	g.set("mamba_rms_norm", g.anyBlock("ssm_norm.weight"))
	g.set("mamba_norm_before_gate", false) // as llama.cpp has it
}

// lfm2 reads which layers attend by their tensors.
func (g *ggufModel) lfm2() {
	g.number("norm_eps", "attention.layer_norm_rms_epsilon")
	g.sizes("conv_L_cache", "shortconv.l_cache")
	g.set("block_auto_adjust_ff_dim", false)
	g.set("conv_bias", g.anyBlock("shortconv.in_proj.bias"))
	g.kinds("layer_types", "conv", map[string]string{"attn_q.weight": "full_attention"})
}

// routed reads how many experts there are and how wide they are.
func (g *ggufModel) routed() {
	g.sizes("num_experts", "expert_count", "num_experts_per_tok", "expert_used_count",
		"moe_intermediate_size", "expert_feed_forward_length")
}

// jamba reads which layers attend and which have experts by their tensors: both are every so many.
func (g *ggufModel) jamba() {
	g.sizes("mamba_d_conv", "ssm.conv_kernel", "mamba_d_state", "ssm.state_size", "mamba_dt_rank", "ssm.time_step_rank")
	hidden, _ := g.integer("embedding_length")
	inner, _ := g.integer("ssm.inner_size")
	g.set("mamba_expand", float64(inner)/float64(max(hidden, 1)))
	g.set("mamba_proj_bias", g.anyBlock("ssm_in.bias"))
	g.set("mamba_conv_bias", g.anyBlock("ssm_conv1d.bias"))
	period, offset := g.every("attn_q.weight")
	g.set("attn_layer_period", period)
	g.set("attn_layer_offset", offset)
	g.set("num_experts", 1)
	if n, _ := g.integer("expert_count"); n > 1 {
		g.sizes("num_experts", "expert_count", "num_experts_per_tok", "expert_used_count")
		period, offset = g.every("ffn_gate_inp.weight")
		g.set("expert_layer_period", period)
		g.set("expert_layer_offset", offset)
	}
}

func (g *ggufModel) graniteHybrid() {
	g.granite()
	g.dual()
	if turned, _ := g.key("rope.scaling.finetuned").(bool); turned {
		g.lacks("layers that keep states beside turned heads (Bamba)")
	}
	g.kinds("layer_types", "mamba", map[string]string{"attn_q.weight": "attention"})
	g.set("num_local_experts", 0)
	if n, _ := g.integer("expert_count"); n > 0 {
		g.sizes("num_local_experts", "expert_count", "num_experts_per_tok", "expert_used_count",
			"shared_intermediate_size", "expert_shared_feed_forward_length")
	} else {
		g.set("shared_intermediate_size", g.config["intermediate_size"])
	}
}

func (g *ggufModel) nemotronH() {
	g.number("layer_norm_epsilon", "attention.layer_norm_rms_epsilon")
	heads, size := g.dualHeads()
	g.set("mamba_num_heads", heads)
	g.set("mamba_head_dim", size)
	g.sizes("n_groups", "ssm.group_count", "ssm_state_size", "ssm.state_size", "conv_kernel", "ssm.conv_kernel")
	g.set("use_conv_bias", g.anyBlock("ssm_conv1d.bias"))
	g.set("use_bias", g.anyBlock("ssm_in.bias"))
	g.set("mlp_bias", g.anyBlock("ffn_up.bias"))
	g.set("time_step_min", 0) // as llama.cpp has it: steps have no bound
	g.kinds("layers_block_type", "mlp", map[string]string{"attn_q.weight": "full_attention",
		"ssm_in.weight": "linear_attention"})
}

// gemma3n has sizes that follow from those of tensors, and closed gates as multiples of their spread.
func (g *ggufModel) gemma3n() {
	g.sizes("num_kv_shared_layers", "attention.shared_kv_layers", "hidden_size_per_layer_input",
		"embedding_length_per_layer_input",
		"altup_active_idx", "altup.active_idx", "altup_num_inputs", "altup.num_inputs", "sliding_window", "attention.sliding_window")
	g.optional("final_logit_softcapping", "final_logit_softcapping")
	if w, ok := g.ckpt.Weight("per_layer_token_embd.weight"); ok && len(w.Layout.Shape) == 2 {
		g.set("vocab_size_per_layer_input", w.Layout.Shape[0])
	}
	if w, ok := g.ckpt.Weight("blk.0.laurel_l.weight"); ok && len(w.Layout.Shape) == 2 {
		g.set("laurel_rank", w.Layout.Shape[0])
	}
	if scales, ok := g.key("activation_sparsity_scale").([]float32); ok {
		shares := make([]float64, len(scales))
		for i, x := range scales {
			if shares[i] = 0.5 * (1 + math.Erf(float64(x)/math.Sqrt2)); math.IsNaN(shares[i]) {
				g.fail("activation_sparsity_scale has %v", x)
				return
			}
		}
		g.set("activation_sparsity_pattern", shares)
	}
	g.windows()
}

// blockCount is how many blocks there are, in bounds.
func (g *ggufModel) blockCount() int {
	n, _ := g.integer("block_count")
	return int(min(max(n, 0), int64(len(g.ckpt.Weights))))
}

// anyBlock reports whether a block has a tensor.
func (g *ggufModel) anyBlock(name string) bool {
	for i := range g.blockCount() {
		if g.has(fmt.Sprintf("blk.%d.%s", i, name)) {
			return true
		}
	}
	return false
}

// kinds sets an entry to the kinds of the layers: that of the tensor that a block has, or else.
func (g *ggufModel) kinds(entry, without string, with map[string]string) {
	list := make([]string, g.blockCount())
	for i := range list {
		list[i] = without
		for name, kind := range with {
			if g.has(fmt.Sprintf("blk.%d.%s", i, name)) {
				list[i] = kind
			}
		}
	}
	g.set(entry, list)
}

// every returns how many layers there are from one with a tensor to the next, and which is the first.
func (g *ggufModel) every(name string) (period, first int) {
	var at []int
	for i := range g.blockCount() {
		if g.has(fmt.Sprintf("blk.%d.%s", i, name)) {
			at = append(at, i)
		}
	}
	switch len(at) {
	case 0:
		return g.blockCount() + 1, g.blockCount()
	case 1:
		return g.blockCount() + 1, at[0]
	}
	return at[1] - at[0], at[0]
}

// largest is integer for what may be a list with a number for each layer: the largest.
func (g *ggufModel) largest(name string) (int64, bool) {
	v := reflect.ValueOf(g.key(name))
	if !v.IsValid() || v.Kind() != reflect.Slice {
		return g.integer(name)
	}
	most := int64(0)
	for i := range v.Len() {
		switch x := v.Index(i); {
		case x.CanInt():
			most = max(most, x.Int())
		case x.CanUint() && x.Uint() <= math.MaxInt64:
			most = max(most, int64(x.Uint()))
		default:
			g.lacks("a %T as %s", g.key(name), name)
			return 0, false
		}
	}
	return most, v.Len() > 0
}

// arranged gives a tensor the dimensions that the module has, where the file has fewer, or more of one.
func arranged(w tensor.Weight, name string) tensor.Weight {
	s := w.Layout.Shape
	switch {
	case name == "ffn_gate_inp_shexp.weight":
		return row(w)
	case len(s) != 2 || w.DType != tensor.Float32 && !w.DType.IsHalf():
	case name == "ssm_conv1d.weight" || name == "shortconv.conv.weight":
		w.Layout = tensor.Contiguous(s[0], 1, s[1])
	case (name == "ssm_a" || name == "ssm_d") && s[1] == 1:
		w.Layout = tensor.Contiguous(s[0])
	case name == "ssm_norm.weight":
		w.Layout = tensor.Contiguous(s[0] * s[1])
	}
	return w
}

// apart returns the matrices of a tensor that has several, each under its number.
func apart(w tensor.Weight, name string) []tensor.Weight {
	s := w.Layout.Shape
	if len(s) != 3 || s[0] < 1 {
		return []tensor.Weight{w}
	}
	list := make([]tensor.Weight, s[0])
	for i := range list {
		one := w
		one.Name = strings.Replace(name, ".weight", fmt.Sprintf(".%d.weight", i), 1)
		one.Layout = tensor.Contiguous(s[1], s[2])
		one.Extent.Bytes = w.Extent.Bytes / int64(s[0])
		one.Extent.Offset += int64(i) * one.Extent.Bytes
		list[i] = one
	}
	return list
}
