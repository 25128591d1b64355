// Included after om.h by the sources of attention.
#pragma once

// Attention: sizes, the strides of a matrix's lines and within them, and what the op's attributes say. attentionOf of
// op_attention.go.
struct om_attention {
	om_i64 batch, queries, keys, width, values;
	om_i64 q_line, q_step, k_line, k_step, v_line, v_step, mask_line, mask_step;
	om_i64 causal, unseen_nan;
};

// om_masked is a score with what the mask has for it.
template <class A> OM_DEVICE A om_masked(A x, const void *mask, om_i64 at, int type) {
	if (type == OM_BOOL)
		return ((const om_u8 *)mask)[at] ? x : -(A)OM_INF;
	A more;
	om_load(&more, mask, at, type);
	return x + more;
}
