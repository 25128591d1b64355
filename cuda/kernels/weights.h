// What linears share whose weight is narrower than what it is multiplied with: its parameters, those of their ends, and how
// four elements become floats. Included after tile.h.
#pragma once

// any_at is om_load_f, once in a file.
static __device__ __noinline__ float any_at(const void *p, om_i64 i, int type) { return om_load_f(p, i, type); }

#define WEIGHT const void *right, int type, om_i64 line, om_i64 right_step
// L is how the layout is taken: by kernels as it is given.
#define SCALED_ENDING(L, T)                                                                                            \
	const void *scales, int scales_type, om_i64 scale_step, const void *bias, int bias_type, om_i64 bias_step,         \
		const T *added, L added_rows, om_i64 added_step, int act, float act_a, float act_b
#define SCALED_END scales, scales_type, scale_step, bias, bias_type, bias_step, added, added_rows, added_step, act, act_a, act_b

// widen_four makes floats of four elements that lie behind each other, int8 or half floats.
OM_DEVICE void widen_four(float *to, om_u64 from, int type) {
#pragma unroll
	for (int e = 0; e < 4; e++) {
		om_f16 half = {(om_u16)(from >> e * 16)};
		om_bf16 brain = {half.bits};
		to[e] = type == OM_I8 ? (float)(om_i8)(from >> e * 8) : type == OM_F16 ? om_float(half) : om_float(brain);
	}
}
