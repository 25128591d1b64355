#include "om.h"
#include "tile.h"
#include "weights.h"

// Linears of few rows of floats, of programs in which a row's bits do not depend on other rows: out[r, j] =
// f(Σ_k left[r, k]·(scales[j]·right[j, k]) + bias[j]) + added[r, j]. The weight is float32, half floats, or int8 with scales, and to read it
// once is what takes time. Each sum is that of gemm.cu and weights_f32.cu, where many rows are computed: over the terms of a part in order,
// then over the parts in order. So a lane has a line of the weight and the rows' sums for it, and a warp, which has 32 lines, a part of the terms.
// What they read comes to shared memory asynchronously, some lots ahead, where a GPU can do that.
#define LINES 32
#define MOST_PARTS 4

// Of a weight whose elements have SIZE bytes a lot has TERMS terms of each line, which lie so far apart that lanes read without conflicts.
template <int ROWS, int SIZE> struct few_lot {
	static const int TERMS = SIZE == 4 ? 32 : 64, LINE = TERMS * SIZE, APART = LINE + 16, CHUNKS = LINE / 16;
	static const int BYTES = LINES * APART + ROWS * TERMS * 4, LOTS = AHEAD ? ROWS == 1 ? 5 : 3 : 1;
};

// copy_sixteen copies sixteen bytes to shared memory; those after a number of bytes are zero.
OM_DEVICE void copy_sixteen(char *to, const char *from, int bytes) {
#if AHEAD
	begin_copy_four(shared_at(to), (const float *)from, bytes);
#else
	for (int i = 0; i < 16; i += 4)
		*(om_u32 *)(to + i) = i + 4 <= bytes ? *(const om_u32 *)(from + i) : 0;
	for (int i = bytes & ~3; i < bytes; i++)
		to[i] = from[i];
#endif
}

// few_left is how many bytes, at most sixteen, are left of some elements.
OM_DEVICE int few_left(om_i64 elements, int size) { return elements <= 0 ? 0 : elements * size >= 16 ? 16 : (int)elements * size; }

// widen_sixteen makes floats of sixteen bytes of a weight.
template <int SIZE> OM_DEVICE void widen_sixteen(float *to, const char *from, int type) {
	if (SIZE == 4) {
		read_four(to, (const float *)from);
		return;
	}
	const om_u64 *words = (const om_u64 *)from;
	if (SIZE == 2) {
		widen_four(to, words[0], type == OM_F16 ? OM_F16 : OM_BF16);
		widen_four(to + 4, words[1], type == OM_F16 ? OM_F16 : OM_BF16);
		return;
	}
#pragma unroll
	for (int i = 0; i < 16; i += 4)
		widen_four(to + i, words[i / 8] >> i % 8 * 8, OM_I8);
}

// few_add adds the products of a lot that has so many terms, up to a multiple of DEPTH, as blocks of many rows do: what is behind them is
// zero, whatever the scale.
template <int ROWS, int SIZE> OM_DEVICE void few_add(float *sums, const char *weight, const float *terms, int had, int type, float scale) {
	typedef few_lot<ROWS, SIZE> lot;
	const int EACH = 16 / SIZE, TOGETHER = ROWS == 1 && SIZE > 1 ? 2 : 1;
	int all = (had + DEPTH - 1) / DEPTH * DEPTH;
#pragma unroll TOGETHER
	for (int c = 0; c * EACH < all; c++) {
		float y[EACH];
		widen_sixteen<SIZE>(y, weight + c * 16, type);
#pragma unroll
		for (int e = 0; e < EACH; e += 4) {
			if (EACH > DEPTH && c * EACH + e >= all)
				break;
			if (SIZE == 1)
#pragma unroll
				for (int i = 0; i < 4; i++)
					y[e + i] = c * EACH + e + i < had ? y[e + i] * scale : 0;
#pragma unroll
			for (int r = 0; r < ROWS; r++) {
				float x[4];
				read_four(x, terms + r * lot::TERMS + c * EACH + e);
#pragma unroll
				for (int i = 0; i < 4; i++)
					sums[r] += x[i] * y[e + i];
			}
		}
	}
}

template <int ROWS, int SIZE>
OM_DEVICE void few(float *out, const float *left, om_i64 apart, WEIGHT, SCALED_ENDING(const om_layout &, float), om_i64 m, om_i64 n, om_i64 k,
				   om_i64 part, int parts) {
	typedef few_lot<ROWS, SIZE> lot;
	OM_DYNAMIC(char, space);
	int lane = threadIdx.x % 32, own = threadIdx.x / 32;
	om_i64 first = (om_i64)blockIdx.x * LINES, top = (om_i64)blockIdx.y * ROWS, from = own * part, to = from + part < k ? from + part : k;
	char *lots = space + own * (lot::LOTS * lot::BYTES);
	float sums[ROWS], scale = SIZE == 1 && scales && first + lane < n ? any_at(scales, (first + lane) * scale_step, scales_type) : 1.0f;
#pragma unroll
	for (int r = 0; r < ROWS; r++)
		sums[r] = 0;
	// A lane copies CHUNKS pieces of the weight, of lines that are 32 / CHUNKS apart, and pieces of the rows.
	const int ACROSS = 32 / lot::CHUNKS, PIECES = lot::TERMS / 4;
	om_i64 next = line * SIZE;
	int chunk = lane % lot::CHUNKS, begin = lane / lot::CHUNKS;
	const char *weight = (const char *)right + first * next + chunk * 16;
	auto copy = [&](char *at, om_i64 term) {
		const char *source = weight + begin * next + term * SIZE;
		char *to_weight = at + begin * lot::APART + chunk * 16;
		int bytes = few_left(to - term - chunk * (16 / SIZE), SIZE);
#pragma unroll 1
		for (int j = begin; j < LINES; j += ACROSS) {
			bool there = first + j < n;
			copy_sixteen(to_weight, there ? source : (const char *)right, there ? bytes : 0);
			source += ACROSS * next, to_weight += ACROSS * lot::APART;
		}
#pragma unroll 1
		for (int piece = lane; piece < ROWS * PIECES; piece += 32) {
			int r = piece / PIECES, e = piece % PIECES * 4;
			bool there = top + r < m;
			copy_sixteen(at + LINES * lot::APART + piece * 16, (const char *)(there ? left + (top + r) * apart + term + e : left),
						 there ? few_left(to - term - e, 4) : 0);
		}
	};
	int count = to > from ? (int)((to - from + lot::TERMS - 1) / lot::TERMS) : 0, now = 0, free = 0;
#pragma unroll 1
	for (int s = 1 - lot::LOTS; s < count; s++) {
		if (s >= 0) {
#if AHEAD
			asm volatile("cp.async.wait_group %0;" ::"n"(lot::LOTS - 2) : "memory");
#endif
			__syncwarp();
		}
		if (s + lot::LOTS - 1 < count)
			copy(lots + free * lot::BYTES, from + (om_i64)(s + lot::LOTS - 1) * lot::TERMS);
		free = free + 1 == lot::LOTS ? 0 : free + 1;
#if AHEAD
		end_part();
		if (s < 0)
			continue;
#else
		__syncwarp();
#endif
		const char *at = lots + now * lot::BYTES;
		om_i64 rest = to - from - (om_i64)s * lot::TERMS;
		few_add<ROWS, SIZE>(sums, at + lane * lot::APART, (const float *)(at + LINES * lot::APART), rest < lot::TERMS ? (int)rest : lot::TERMS, type, scale);
		now = now + 1 == lot::LOTS ? 0 : now + 1;
	}
	float *found = (float *)(space + parts * (lot::LOTS * lot::BYTES));
#pragma unroll
	for (int r = 0; r < ROWS; r++)
		found[(own * ROWS + r) * LINES + lane] = sums[r];
	__syncthreads();
	om_i64 c = first + lane;
#pragma unroll 1
	for (int i = own; i < ROWS; i += parts) {
		om_i64 r = top + i;
		if (r >= m || c >= n)
			break;
		float x = parts > 1 ? 0.0f : found[i * LINES + lane];
#pragma unroll 1
		for (int p = 0; p < parts && parts > 1; p++)
			x += found[(p * ROWS + i) * LINES + lane];
		if (bias)
			x += any_at(bias, c * bias_step, bias_type);
		x = activated(act, x, act_a, act_b);
		if (added)
			x += added[place_at(added_rows, r) + c * added_step];
		out[r * n + c] = x;
	}
}

#define FEW(name, lines, size)                                                                                                   \
	BOUNDED_KERNEL(MOST_PARTS * 32, 1, name, float *out, const float *left, om_i64 apart, WEIGHT,                                   \
				   SCALED_ENDING(OM_GIVEN om_layout, float), om_i64 m, om_i64 n, om_i64 k, om_i64 part, int parts) {             \
		few<lines, size>(out, left, apart, right, type, line, right_step, SCALED_END, m, n, k, part, parts);                      \
	}
FEW(om_few_4_1, 1, 4)
FEW(om_few_2_1, 1, 2)
FEW(om_few_1_1, 1, 1)
FEW(om_few_4_8, 8, 4)
FEW(om_few_2_8, 8, 2)
FEW(om_few_1_8, 8, 1)
