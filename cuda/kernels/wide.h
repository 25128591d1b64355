// Included after om.h by sources that move sixteen bytes at a time or combine what the lanes of a warp have.
#pragma once

// Bytes that are loaded and stored at once, at multiples of their number.
struct alignas(16) om_16 {
	om_u32 x, y, z, w;
};
struct alignas(8) om_8 {
	om_u32 x, y;
};

// om_below and om_above widen the two halves of a word, of the dtype OM_F16 or else OM_BF16.
OM_DEVICE float om_below(om_u32 both, int dtype) {
	if (dtype == OM_F16) {
		om_f16 h = {(om_u16)both};
		return om_float(h);
	}
	return om_bits_float(both << 16);
}
OM_DEVICE float om_above(om_u32 both, int dtype) {
	if (dtype == OM_F16) {
		om_f16 h = {(om_u16)(both >> 16)};
		return om_float(h);
	}
	return om_bits_float(both & 0xffff0000u);
}

// om_load_8 reads eight elements from i on, where they lie at a multiple of 16 bytes, or of the dtype's size times eight.
OM_DEVICE void om_load_8(float *x, const void *p, om_i64 i, int dtype) {
	if (dtype == OM_F32) {
		const om_16 *from = (const om_16 *)((const float *)p + i);
		om_16 a = from[0], b = from[1];
		x[0] = om_bits_float(a.x), x[1] = om_bits_float(a.y), x[2] = om_bits_float(a.z), x[3] = om_bits_float(a.w);
		x[4] = om_bits_float(b.x), x[5] = om_bits_float(b.y), x[6] = om_bits_float(b.z), x[7] = om_bits_float(b.w);
		return;
	}
	om_16 a = *(const om_16 *)((const om_u16 *)p + i);
	om_u32 words[4] = {a.x, a.y, a.z, a.w};
	if (dtype == OM_F16) {
#pragma unroll
		for (int k = 0; k < 4; k++)
			x[2 * k] = om_below(words[k], OM_F16), x[2 * k + 1] = om_above(words[k], OM_F16);
		return;
	}
#pragma unroll
	for (int k = 0; k < 4; k++)
		x[2 * k] = om_below(words[k], OM_BF16), x[2 * k + 1] = om_above(words[k], OM_BF16);
}

// om_load_4 and om_store_4 are of four elements from i on, a multiple of four, where those lie at a multiple of 16 bytes, or of
// the dtype's size times four.
OM_DEVICE void om_load_4(float *x, const void *p, om_i64 i, int dtype) {
	if (dtype == OM_F32) {
		om_16 a = *(const om_16 *)((const float *)p + i);
		x[0] = om_bits_float(a.x), x[1] = om_bits_float(a.y), x[2] = om_bits_float(a.z), x[3] = om_bits_float(a.w);
		return;
	}
	om_8 a = *(const om_8 *)((const om_u16 *)p + i);
	x[0] = om_below(a.x, dtype), x[1] = om_above(a.x, dtype), x[2] = om_below(a.y, dtype), x[3] = om_above(a.y, dtype);
}
OM_DEVICE void om_store_4(void *p, om_i64 i, int dtype, const float *x) {
	if (dtype == OM_F32) {
		om_16 a = {om_float_bits(x[0]), om_float_bits(x[1]), om_float_bits(x[2]), om_float_bits(x[3])};
		*(om_16 *)((float *)p + i) = a;
		return;
	}
	om_u16 halves[4];
#pragma unroll
	for (int k = 0; k < 4; k++) {
		om_f16 h;
		om_bf16 b;
		if (dtype == OM_F16)
			om_round(&h, x[k]), halves[k] = h.bits;
		else
			om_round(&b, x[k]), halves[k] = b.bits;
	}
	om_8 a = {halves[0] | (om_u32)halves[1] << 16, halves[2] | (om_u32)halves[3] << 16};
	*(om_8 *)((om_u16 *)p + i) = a;
}

// om_warp_sum and om_warp_most combine what the lanes of a warp have; all get the result.
template <class A> OM_DEVICE A om_warp_sum(A x) {
	for (int apart = 16; apart > 0; apart /= 2)
		x += __shfl_xor_sync(0xffffffffu, x, apart);
	return x;
}
template <class A> OM_DEVICE A om_warp_most(A x) {
	for (int apart = 16; apart > 0; apart /= 2)
		x = fmax(x, __shfl_xor_sync(0xffffffffu, x, apart));
	return x;
}
