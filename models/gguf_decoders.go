package models

import (
	"fmt"
	"strings"

	"github.com/optimem/optimem/tensor"
)

// GGUF files of decoders that are Llama but for norms, windows or what is beside their attention.

// moreDecoders are the families of such files.
var moreDecoders = []ggufFamily{
	{
		arch: "glm4", class: "Glm4ForCausalLM", strict: true, part: true, outside: llamaOutside,
		inside: llamaInsideWith([]string{
			"post_attention_norm.", "post_self_attn_layernorm.", "post_ffw_norm.", "post_mlp_layernorm.", "ffn_up.",
			"mlp.gate_up_proj.",
		}),
		config: func(g *ggufModel) {
			g.set("num_hidden_layers", g.depth())
			g.set("attention_bias", g.has("blk.0.attn_q.bias"))
		},
	},
	{
		arch: "command-r", class: "CohereForCausalLM", model: "cohere", strict: true, outside: llamaOutside,
		inside:    llamaInside,
		layerNorm: "layer_norm_eps", config: func(g *ggufModel) {
			g.biases()
			g.set("use_qk_norm", g.has("blk.0.attn_q_norm.weight"))
			g.number("logit_scale", "logit_scale")
		},
	},
	{
		arch: "cohere2", class: "Cohere2ForCausalLM", strict: true, outside: llamaOutside, inside: llamaInside,
		layerNorm: "layer_norm_eps", config: func(g *ggufModel) {
			g.biases()
			g.number("logit_scale", "logit_scale")
			g.sizes("sliding_window", "attention.sliding_window")
			g.windows()
		},
	},
	{
		arch: "exaone4", class: "Exaone4ForCausalLM", strict: true, outside: llamaOutside, inside: sandwichedInside,
		config: func(g *ggufModel) {
			g.set("num_hidden_layers", g.depth())
			g.set("sliding_window", nil)
			g.window()
			g.windows()
		},
	},
	{
		arch: "ernie4_5", class: "Ernie4_5ForCausalLM", strict: true, outside: llamaOutside, inside: llamaInside,
		config: func(g *ggufModel) { g.set("use_bias", g.has("blk.0.attn_q.bias")) },
	},
	{
		arch: "nemotron", class: "NemotronForCausalLM", strict: true, part: true, outside: llamaOutside,
		inside:    llamaInside,
		layerNorm: "norm_eps", config: (*ggufModel).biases,
	},
	{
		arch: "phi2", class: "PhiForCausalLM", model: "phi", strict: true, part: true, layerNorm: "layer_norm_eps",
		outside: strings.NewReplacer("token_embd.", "model.embed_tokens.", "output_norm.", "model.final_layernorm.",
			"output.", "lm_head."),
		inside: strings.NewReplacer("attn_output.", "self_attn.dense.", "attn_norm.", "input_layernorm.",
			"attn_qkv.", "self_attn.qkv_proj.", "attn_q.",
			"self_attn.q_proj.",
			"attn_k.", "self_attn.k_proj.", "attn_v.", "self_attn.v_proj.", "ffn_up.", "mlp.fc1.", "ffn_down.",
			"mlp.fc2."),
	},
	{
		arch: "stablelm", class: "StableLmForCausalLM", strict: true, part: true, layerNorm: "layer_norm_eps",
		outside: llamaOutside,
		inside:  llamaInside,
		config: func(g *ggufModel) {
			g.set("use_qkv_bias", g.has("blk.0.attn_q.bias"))
			g.set("qk_layernorm", g.has("blk.0.attn_q_norm.weight"))
			g.parallel(!g.has("blk.0.ffn_norm.weight"))
		},
	},
	{
		arch: "gptneox", class: "GPTNeoXForCausalLM", model: "gpt_neox", strict: true, part: true,
		layerNorm: "layer_norm_eps",
		blocks:    "gpt_neox.layers.",
		outside: strings.NewReplacer("token_embd.", "gpt_neox.embed_in.", "output_norm.",
			"gpt_neox.final_layer_norm.", "output.",
			"lm_head."),
		inside: strings.NewReplacer("attn_norm.", "input_layernorm.", "attn_qkv.", "attention.query_key_value.",
			"attn_output.", "attention.dense.", "ffn_norm.", "post_attention_layernorm.", "ffn_up.",
			"mlp.dense_h_to_4h.",
			"ffn_down.", "mlp.dense_4h_to_h."),
		config: func(g *ggufModel) {
			g.set("attention_bias", g.has("blk.0.attn_qkv.bias"))
			g.set("query_key_value_in_a_row", true)
			g.parallel(true)
		},
	},
}

// parallel reads whether the attention and the MLP are beside each other.
func (g *ggufModel) parallel(missing bool) {
	if said, ok := g.key("use_parallel_residual").(bool); ok {
		missing = said
	}
	g.set("use_parallel_residual", missing)
}

// olmo3 has windows and, where these are, positions that are not stretched.
func (g *ggufModel) olmo3() {
	if n, ok := g.integer("attention.sliding_window"); ok && n > 0 {
		g.set("architectures", []string{"Olmo3ForCausalLM"})
		g.set("model_type", "olmo3")
		g.set("sliding_window", n)
		g.windows()
		full := map[string]any{"rope_type": "default"}
		if scaling, ok := g.config["rope_scaling"].(map[string]any); ok {
			full = scaling
			delete(g.config, "rope_scaling")
		}
		near := map[string]any{"rope_type": "default"}
		for _, p := range []map[string]any{full, near} {
			if theta, ok := g.float("rope.freq_base"); ok {
				p["rope_theta"] = theta
			}
		}
		g.set("rope_parameters", map[string]any{"full_attention": full, "sliding_attention": near})
	}
}

// windows reads which layers slide: a list that says it of each, or after how many one does not.
func (g *ggufModel) windows() {
	const name = "attention.sliding_window_pattern"
	slides, ok := g.key(name).([]bool)
	if !ok {
		if n, ok := g.integer(name); ok {
			g.set("sliding_window_pattern", n)
		}
		return
	}
	kinds := make([]string, len(slides))
	for i, s := range slides {
		if kinds[i] = "full_attention"; s {
			kinds[i] = "sliding_attention"
		}
	}
	g.set("layer_types", kinds)
}

// rowsApart returns the rows of a matrix, each as a weight with its number in its name.
func rowsApart(w tensor.Weight, name string) []tensor.Weight {
	s := w.Layout.Shape
	if len(s) != 2 || s[0] < 1 || s[0] > maxRowsApart || w.DType != tensor.Float32 {
		return []tensor.Weight{w}
	}
	list := make([]tensor.Weight, s[0])
	for i := range list {
		one := w
		one.Name = fmt.Sprintf("%s%d.weight", name, i)
		one.Layout = tensor.Contiguous(s[1])
		one.Extent.Bytes = w.Extent.Bytes / int64(s[0])
		one.Extent.Offset += int64(i) * one.Extent.Bytes
		list[i] = one
	}
	return list
}

// maxRowsApart bounds how many heads have norms of their own.
const maxRowsApart = 1 << 12
