#include "om.h"
#include "tile.h"
#include "weights.h"

// Linears of floats by blocks, as in gemm.cu, whose weight is narrower, int8 with scales or half floats: out[r, j] =
// f(Σ_k left[r, k]·(scales[j]·right[j, k]) + bias[j]) + added[r, j]. The weight is narrow up to the registers of a thread, which
// widens it into shared memory and scales it there, so that sums are those of a weight that was widened in memory. Where the
// terms are split into parts, om_weights_sum ends.

// How four elements that a thread reads lie: terms of a line or lines of a term, and then whether they are aligned
// neighbours.
enum { TERMS_ANYHOW, TERMS_BEHIND, LINES_ANYHOW, LINES_BEHIND };

// The lines of a weight, of which a thread has four elements at a time. What it loads waits narrow until the next terms are
// asked for.
template <int LINES, int THREADS> struct narrow_lines {
	static const int COUNT = LINES * DEPTH / 4 / THREADS, FOURS = LINES / 4;
	// Where the next four are, COUNT times; bytes from one of them to the next, and to those of the next terms.
	const char *at[COUNT];
	om_i64 apart, next, rest;
	// lines is how many there are of the block's, had how many terms of what is held.
	int type, how, lines, had;
	float scale[COUNT][4];
	om_u64 held[COUNT];

	__device__ __forceinline__ bool across() const { return how >= LINES_ANYHOW; }
	// own and term are where the first of four lies among those of the block.
	__device__ __forceinline__ int own(int i) const {
		int t = threadIdx.x;
		return across() ? t % FOURS * 4 : (t + i * THREADS) / 2;
	}
	__device__ __forceinline__ int term(int i) const {
		int t = threadIdx.x;
		return across() ? t / FOURS + i * (THREADS / FOURS) : t % 2 * 4;
	}

	// begin sets what the weight is, from a line and a term on, and its scales, from that line on: null is none.
	__device__ __forceinline__ void begin(const void *p, int kind, om_i64 line, om_i64 step, int lie, om_i64 first, om_i64 count,
										  om_i64 from, om_i64 terms, const void *scales, int scales_type, om_i64 scale_step) {
		om_i64 size = kind == OM_I8 ? 1 : 2;
		type = kind, how = lie, lines = count < LINES ? (int)count : LINES, rest = terms - from;
		apart = (across() ? line : step) * size, next = DEPTH * step * size;
#pragma unroll
		for (int i = 0; i < COUNT; i++) {
			bool there = own(i) < lines;
			at[i] = (const char *)p + (there ? ((first + own(i)) * line + (from + term(i)) * step) * size : 0);
#pragma unroll
			for (int e = 0; e < 4; e++) {
				int j = own(i) + (across() ? e : 0);
				scale[i][e] = scales && j < lines ? any_at(scales, (first + j) * scale_step, scales_type) : 1.0f;
			}
		}
#if AHEAD
		load();
#endif
	}

	// load reads the next terms. They come in order.
	__device__ __forceinline__ void load() {
		had = rest < DEPTH ? (int)rest : DEPTH, rest -= DEPTH;
#pragma unroll
		for (int i = 0; i < COUNT; i++) {
			int some = across() ? (term(i) < had ? lines - own(i) : 0) : own(i) < lines ? had - term(i) : 0;
			held[i] = 0;
			if (some >= 4 && (how == TERMS_BEHIND || how == LINES_BEHIND))
				held[i] = type == OM_I8 ? *(const om_u32 *)at[i] : *(const om_u64 *)at[i];
			else
#pragma unroll 1
				for (int e = 0; e < 4 && e < some; e++) {
					const char *p = at[i] + e * apart;
					held[i] |= type == OM_I8 ? (om_u64) * (const om_u8 *)p << e * 8 : (om_u64) * (const om_u16 *)p << e * 16;
				}
			at[i] += next;
		}
	}

	// store widens what was loaded. Terms that are not there are zero, whatever the scale.
	__device__ __forceinline__ void store(place to) {
#pragma unroll
		for (int i = 0; i < COUNT; i++) {
			float x[4];
			widen_four(x, held[i], type);
#pragma unroll
			for (int e = 0; e < 4; e++)
				x[e] = term(i) + (across() ? 0 : e) < had ? x[e] * scale[i][e] : 0;
			if (across())
				write_four(further(to, term(i) * PITCH(LINES) + own(i)), x);
			else
#pragma unroll
				for (int e = 0; e < 4; e++)
					write_one(further(to, (term(i) + e) * PITCH(LINES) + own(i)), x[e]);
		}
	}

	__device__ __forceinline__ void turn(place to, int at) {
		if (at != TURN)
			return;
		store(to);
		load();
	}
};

template <int ROWS, int COLS, int TALL, int WIDE>
OM_DEVICE void weighted(float *out, float *parts, const float *left, const om_layout &rows, om_i64 left_step, WEIGHT,
						SCALED_ENDING(const om_layout &, float), om_i64 m, om_i64 n, om_i64 k, om_i64 part, int left_how, int right_how, int fours) {
	typedef tile<ROWS, COLS, TALL, WIDE> own;
	__shared__ __align__(16) float space[own::FLOATS];
	spot at = spot_of(m, n, 1, ROWS, COLS);
	om_i64 from = at.part * part, to = from + part < k ? from + part : k;
	strided<ROWS, own::THREADS, false> lefts;
	narrow_lines<COLS, own::THREADS> rights;
	lefts.begin(left, left_step, from, k, left_how, m - at.top, [&](om_i64 i) { return place_at(rows, at.top + i); });
	rights.begin(right, type, line, right_step, right_how, at.first, n - at.first, from, k, scales, scales_type, scale_step);
	float sums[TALL][WIDE];
	own::multiply(sums, space, lefts, rights, from, to);
	own::finish(sums, space, [&](int row, int column, float *x) {
		om_i64 r = at.top + row, c = at.first + column;
		if (r >= m || c >= n)
			return;
		if (parts) {
			write_line(parts + (at.part * m + r) * n + c, x, n - c, fours);
			return;
		}
		const float *line_added = added ? added + place_at(added_rows, r) : 0;
#pragma unroll
		for (int e = 0; e < 4; e++) {
			if (c + e >= n)
				break;
			if (bias)
				x[e] += any_at(bias, (c + e) * bias_step, bias_type);
			x[e] = activated(act, x[e], act_a, act_b);
			if (added)
				x[e] += line_added[(c + e) * added_step];
		}
		write_line(out + r * n + c, x, n - c, fours);
	});
}

#define WEIGHTED(name, lines, columns, tall, wide, blocks)                                                                \
	BOUNDED_KERNEL((lines / tall * (columns / wide)), blocks, name, float *out, float *parts, const float *left, OM_GIVEN om_layout rows, \
				   om_i64 left_step, WEIGHT, SCALED_ENDING(OM_GIVEN om_layout, float), om_i64 m, om_i64 n, om_i64 k, om_i64 part, int left_how,      \
				   int right_how, int fours) {                                                                            \
		weighted<lines, columns, tall, wide>(out, parts, left, rows, left_step, right, type, line, right_step, SCALED_END, m, \
											 n, k, part, left_how, right_how, fours);                                     \
	}

// One of the largest blocks: see gemm.cu.
WEIGHTED(om_weights_f32_128, 128, 128, 8, 8, 1)
WEIGHTED(om_weights_f32_64, 64, 64, 8, 4, 4)
WEIGHTED(om_weights_f32_16, 16, 128, 4, 4, 4)
