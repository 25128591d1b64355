#include "om.h"
#include "tile.h"
#include "pieces.h"
#include "tensor.h"
#include "product.h"
#include "weights.h"

// Linears on tensor cores whose weight is narrower than what it is multiplied with, int8 with scales or half floats beside
// floats: out[r, j] = f(scales[j]·Σ_k left[r, k]·right[j, k] + bias[j]) + added[r, j]. The weight is narrow up to the registers of
// a thread, which widens it into shared memory. GPUs of compute capability 7.5 have it for half floats alone, those
// before not at all: the weight is widened in memory there.

// WIDENS is TENSOR of these kernels.
#define WIDENS (QUADS ? 0 : TENSOR)

// weight_at is an element of a weight.
OM_DEVICE float weight_at(const void *w, om_i64 i, int type) {
	return type == OM_I8 ? (float)((const om_i8 *)w)[i] : om_load_f(w, i, type);
}

#if TENSOR

OM_DEVICE om_u32 word_of(om_f16 low, om_f16 high) { return low.bits | (om_u32)high.bits << 16; }
OM_DEVICE om_u32 word_of(om_bf16 low, om_bf16 high) { return low.bits | (om_u32)high.bits << 16; }

// widen makes 16 bytes of elements of as many narrow ones.
template <class T> OM_DEVICE void widen(T *, om_u32 *to, om_u64 from, int) {
#pragma unroll
	for (int e = 0; e < 4; e++) {
		om_u32 two = (om_u32)(from >> e * 16);
		T low, high;
		om_round(&low, (float)(om_i8)two);
		om_round(&high, (float)(om_i8)(two >> 8));
		to[e] = word_of(low, high);
	}
}
OM_DEVICE void widen(float *, om_u32 *to, om_u64 from, int type) {
	float x[4];
	widen_four(x, from, type);
#pragma unroll
	for (int e = 0; e < 4; e++)
		to[e] = __float_as_uint(x[e]);
}

// The lines of a weight. What a thread loads it widens and stores when it is asked for the next terms.
template <class T, int LINES, int THREADS> struct widened_lines {
	static const int HOLDS = 0, COUNT = LINES * 4 / THREADS, EACH = 16 / (int)sizeof(T), TERMS = LINE / (int)sizeof(T);
	const char *at[COUNT];
	om_i64 step, rest;
	int type, size, first, slot, lines;
	bool vectors;
	om_u64 held[COUNT];

	// begin sets what the weight is, from a line and a term on: its elements lie step bytes apart; vectors says that EACH of
	// them lie behind each other and are aligned.
	__device__ __forceinline__ void begin(const void *p, int kind, om_i64 next, om_i64 apart, om_i64 from, om_i64 terms, bool even,
										  om_i64 count) {
		int t = threadIdx.x;
		type = kind, size = type == OM_I8 ? 1 : 2, step = apart * size, rest = terms - from, vectors = even;
		first = t % 4 * EACH, slot = swizzled(t / 4, t % 4), lines = count < LINES ? (int)count : LINES;
#pragma unroll
		for (int i = 0; i < COUNT; i++) {
			int own = (t + i * THREADS) / 4;
			at[i] = (const char *)p + (own < lines ? own * next * size : 0) + (from + first) * step;
		}
		load();
	}

	__device__ __forceinline__ void load() {
		int left = (rest < TERMS ? (int)rest : TERMS) - first;
		rest -= TERMS;
#pragma unroll
		for (int i = 0; i < COUNT; i++) {
			int count = (threadIdx.x + i * THREADS) / 4 < lines ? left : 0;
			held[i] = 0;
			if (vectors && count >= EACH)
				held[i] = EACH * size == 8 ? *(const om_u64 *)at[i] : *(const om_u32 *)at[i];
			else
#pragma unroll 1
				for (int e = 0; e < EACH && e < count; e++) {
					const char *p = at[i] + e * step;
					held[i] |= (om_u64)(size == 1 ? *(const om_u8 *)p : *(const om_u16 *)p) << e * 8 * size;
				}
			at[i] += TERMS * step;
		}
	}

	__device__ __forceinline__ bool lies(int so) const { return so == BYTES_ALONG; }

	__device__ __forceinline__ void copy(om_u32 to) {
#pragma unroll
		for (int i = 0; i < COUNT; i++) {
			om_u32 words[4];
			widen((T *)0, words, held[i], type);
			store_words(to + slot + i * THREADS * 16, words);
		}
		load();
	}
};

#endif

template <class M, int ROWS, int COLS, int TALL, int WIDE>
OM_DEVICE void weighted(typename M::T *out, float *parts, const typename M::T *left, const om_layout &rows, om_i64 left_step, WEIGHT,
						SCALED_ENDING(const om_layout &, typename M::T), om_i64 m, om_i64 n, om_i64 k, om_i64 part, int left_how, int vectors, int fours) {
	typedef typename M::T T;
#ifdef __CUDA_ARCH__
	if (WIDENS < M::SINCE) {
		asm volatile("trap;");
		return;
	}
#endif
	spot s = spot_of(m, n, 1, ROWS, COLS);
	om_i64 from = s.part * part, to = from + part < k ? from + part : k;
	auto row_at = [&](int i) { return place_at(rows, s.top + i); };
	auto end_four = [&](int own, int column, float *x) {
		om_i64 r = s.top + own, c = s.first + column;
		if (r >= m || c >= n)
			return;
		if (parts) {
			write_line(parts + (s.part * m + r) * n + c, x, n - c, fours);
			return;
		}
		const T *line_added = added ? added + place_at(added_rows, r) : 0;
		// The four take turns in one place: a loop that is not unrolled finds them there.
#pragma unroll 1
		for (int e = 0; e < 4; e++) {
			float y = x[0];
			if (c + e < n) {
				if (scales)
					y *= any_at(scales, (c + e) * scale_step, scales_type);
				if (bias)
					y += any_at(bias, (c + e) * bias_step, bias_type);
				y = activated(act, y, act_a, act_b);
				if (added)
					y += om_float(line_added[(c + e) * added_step]);
			}
			x[0] = x[1], x[1] = x[2], x[2] = x[3], x[3] = y;
		}
		store_four(out + r * n + c, x, n - c, fours);
	};
#if TENSOR
	if constexpr (WIDENS >= M::SINCE) {
		typedef tensor_tile<M, ROWS, COLS, TALL, WIDE> own;
		__shared__ __align__(128) char space[own::BYTES];
		factor_lines<T, ROWS, own::THREADS, ROWS == 128 ? BYTES_ALONG : -1> lefts;
		widened_lines<T, COLS, own::THREADS> rights;
		lefts.begin(left, left_step, from, k, left_how, m - s.top, row_at);
		rights.begin((const char *)right + s.first * line * (type == OM_I8 ? 1 : 2), type, line, right_step, from, k, vectors, n - s.first);
		float sums[TALL][WIDE][4];
		own::multiply(sums, space, lefts, rights, to - from);
		own::finish(sums, space, end_four);
	}
#else
	const int THREADS = ROWS / (TALL * 16) * (COLS / (WIDE * 8)) * 32;
	for (int q = threadIdx.x; q < ROWS * COLS / 4; q += THREADS) {
		int own = q / (COLS / 4), column = q % (COLS / 4) * 4;
		float x[4] = {0, 0, 0, 0};
		om_i64 r = s.top + own < m ? row_at(own) : -1;
		for (om_i64 term = from; term < to && r >= 0; term++) {
			float y = value(M(), left[r + term * left_step]);
			for (int e = 0; e < 4; e++)
				if (s.first + column + e < n) {
					T w;
					om_round(&w, weight_at(right, (s.first + column + e) * line + term * right_step, type));
					x[e] += y * value(M(), w);
				}
		}
		end_four(own, column, x);
	}
#endif
}

#define WEIGHTED(name, M, lines, columns, tall, wide, threads, blocks)                                                       \
	BOUNDED_KERNEL(threads, blocks, name, M::T *out, float *parts, const M::T *left, OM_GIVEN om_layout rows, om_i64 left_step, WEIGHT, \
				   SCALED_ENDING(OM_GIVEN om_layout, M::T), om_i64 m, om_i64 n, om_i64 k, om_i64 part, int left_how, int vectors, int fours) {   \
		weighted<M, lines, columns, tall, wide>(out, parts, left, rows, left_step, right, type, line, right_step, SCALED_END, m, \
												n, k, part, left_how, vectors, fours);                                       \
	}
#define WEIGHTEDS(name, M)                               \
	WEIGHTED(name##_128, M, 128, 128, 4, 8, 128, 2)      \
	WEIGHTED(name##_32, M, 32, 128, 2, 4, 128, 4)

WEIGHTEDS(om_weights_f16, of_f16)
WEIGHTEDS(om_weights_bf16, of_bf16)
WEIGHTEDS(om_weights_narrow, to_bf16)
WEIGHTEDS(om_weights_tf32, to_tf32)
