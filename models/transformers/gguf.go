package transformers

// GGUFOutside are llama.cpp's names of the modules that Llama and its like have once, each before transformers' own. The longer ones come
// first, as [strings.NewReplacer] wants them, which takes the first that fits.
func GGUFOutside() []string {
	return []string{"token_embd.", "model.embed_tokens.", "output_norm.", "model.norm.", "output.", "lm_head."}
}

// GGUFInside are llama.cpp's names of the modules that each block of Llama and its like has, within the block, each before
// transformers' own, in such an order. Those of Qwen 3 are among them.
func GGUFInside() []string {
	return []string{
		"attn_q_norm.", "self_attn.q_norm.", "attn_k_norm.", "self_attn.k_norm.", "attn_norm.", "input_layernorm.",
		"attn_q.", "self_attn.q_proj.", "attn_k.", "self_attn.k_proj.", "attn_v.", "self_attn.v_proj.",
		"attn_output.", "self_attn.o_proj.", "ffn_norm.", "post_attention_layernorm.",
		"ffn_gate.", "mlp.gate_proj.", "ffn_up.", "mlp.up_proj.", "ffn_down.", "mlp.down_proj.",
	}
}
