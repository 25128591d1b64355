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

// How elementwise kernels read an operand: one element, four that lie together, or one that four results have in common.
enum { OM_ONE, OM_FOUR, OM_SAME };

// om_load_how reads an operand's elements from at on: one, or four.
OM_DEVICE void om_load_how(float *x, const void *p, om_i64 at, int dtype, int how) {
	if (how == OM_FOUR && dtype != OM_BOOL) {
		om_load_4(x, p, at, dtype);
		return;
	}
	if (how == OM_FOUR) {
		om_u32 four = *(const om_u32 *)((const om_u8 *)p + at);
		x[0] = (four & 0xffu) != 0, x[1] = (four & 0xff00u) != 0, x[2] = (four & 0xff0000u) != 0, x[3] = four >> 24 != 0;
		return;
	}
	x[0] = dtype == OM_BOOL ? (float)(((const om_u8 *)p)[at] != 0) : om_load_f(p, at, dtype);
	x[1] = x[2] = x[3] = x[0];
}

// om_pick and om_put are x[i] where i is known late, without giving up that x lies in registers.
OM_DEVICE float om_pick(const float *x, int i) { return i < 2 ? (i == 0 ? x[0] : x[1]) : i == 2 ? x[2] : x[3]; }
OM_DEVICE void om_put(float *x, int i, float y) {
	x[0] = i == 0 ? y : x[0];
	x[1] = i == 1 ? y : x[1];
	x[2] = i == 2 ? y : x[2];
	x[3] = i == 3 ? y : x[3];
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

// om_warp_sums sums up N numbers, a power of two, over the lanes of a warp; lane i gets the sum of number i·N÷32. With each
// exchange a lane gives away half of its numbers. It calls itself so that they stay in registers.
template <int N> OM_DEVICE float om_warp_sums(float *x, int apart = 16) {
	if constexpr (N == 1) {
		for (; apart > 0; apart /= 2)
			x[0] += __shfl_xor_sync(0xffffffffu, x[0], apart);
		return x[0];
	} else {
		bool upper = (threadIdx.x & apart) != 0;
#pragma unroll
		for (int i = 0; i < N / 2; i++) {
			float given = upper ? x[i] : x[i + N / 2], kept = upper ? x[i + N / 2] : x[i];
			x[i] = kept + __shfl_xor_sync(0xffffffffu, given, apart);
		}
		return om_warp_sums<N / 2>(x, apart / 2);
	}
}
