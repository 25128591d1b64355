package models

// GGUF files of decoders that are Llama but for norms, windows or what is beside their attention.

// moreDecoders are the families of such files.
var moreDecoders = []ggufFamily{
	{
		arch: "glm4", class: "Glm4ForCausalLM", strict: true, part: true, outside: llamaOutside,
		inside: llamaInsideWith([]string{
			"post_attention_norm.", "post_self_attn_layernorm.", "post_ffw_norm.", "post_mlp_layernorm.", "ffn_up.", "mlp.gate_up_proj.",
		}),
		config: func(g *ggufModel) {
			g.set("num_hidden_layers", g.depth())
			g.set("attention_bias", g.has("blk.0.attn_q.bias"))
		},
	},
	{
		arch: "command-r", class: "CohereForCausalLM", model: "cohere", strict: true, outside: llamaOutside, inside: llamaInside,
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
