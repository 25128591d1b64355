#include "om.h"
#include "wide.h"

// Products of few rows with the lines of a matrix, as linear layers have them, in float: what takes time is to read the matrix,
// once. A block has LINES lines; its warps have every fourth part of their terms each, eight to a thread. The matrix may be of
// half floats or int8, which stay so until they are in registers. Where there are few lines of many terms, blocks have a part of
// those, blockIdx.z says which, and om_gemv_sum adds what they found, in order.
#define THREADS 128
#define WARPS (THREADS / 32)
#define LINES 4
#define TERMS (THREADS * 8)

// Sizes and strides: gemvSizes of op_gemv.go.
struct gemv_sizes {
	om_i64 rows, lines, terms, part, x_line, x_step, w_line, w_step, scale_step, bias_step, added_line, added_step;
};

// What a product ends with: scales of lines, bias, activation, and what is added; all but the third may be missing.
#define ENDING                                                                                                    \
	float *parts, const void *scales, int scales_type, const void *bias, int bias_type, const void *added, gemv_sizes s, \
		int act, float act_a, float act_b
#define END parts, scales, scales_type, bias, bias_type, added, s, act, act_a, act_b

// end writes the result of a row and a line, or where parts is given what was found of it.
OM_DEVICE void end(void *out, int type, om_i64 row, om_i64 line, float sum, ENDING) {
	if (parts) {
		parts[(blockIdx.z * s.rows + row) * s.lines + line] = sum;
		return;
	}
	if (scales)
		sum *= om_load_f(scales, line * s.scale_step, scales_type);
	if (bias)
		sum += om_load_f(bias, line * s.bias_step, bias_type);
	sum = om_activated(act, sum, act_a, act_b);
	if (added)
		sum += om_load_f(added, row * s.added_line + line * s.added_step, type);
	om_store_f(out, row * s.lines + line, type, sum);
}

OM_DEVICE float byte_of(om_u32 word, int i) { return (float)(om_i8)(word >> (8 * i)); }

template <int ROWS>
OM_DEVICE void gemv(void *out, int type, const void *x, const void *w, int w_type, ENDING, float (*shared)[ROWS * LINES]) {
	int t = threadIdx.x, lane = t % 32, warp = t / 32;
	om_i64 first = (om_i64)blockIdx.x * LINES, top = (om_i64)blockIdx.y * ROWS;
	float sums[ROWS * LINES];
#pragma unroll
	for (int i = 0; i < ROWS * LINES; i++)
		sums[i] = 0;
	om_i64 from = blockIdx.z * s.part, to = from + s.part < s.terms ? from + s.part : s.terms;
	for (om_i64 k = from + t * 8; k < to; k += TERMS) {
		om_16 raw[LINES], more[LINES];
#pragma unroll
		for (int j = 0; j < LINES; j++) {
			om_i64 line = first + j < s.lines ? first + j : first, at = line * s.w_line + k; // where there is none, no matter which
			if (w_type == OM_I8) {
				om_8 both = *(const om_8 *)((const om_i8 *)w + at);
				raw[j].x = both.x;
				raw[j].y = both.y;
			} else if (w_type == OM_F32) {
				raw[j] = *(const om_16 *)((const float *)w + at);
				more[j] = *(const om_16 *)((const float *)w + at + 4);
			} else {
				raw[j] = *(const om_16 *)((const om_u16 *)w + at);
			}
		}
		float y[ROWS][8], m[LINES][8];
#pragma unroll
		for (int i = 0; i < ROWS; i++)
			om_load_8(y[i], x, (top + i < s.rows ? top + i : top) * s.x_line + k, type);
#pragma unroll
		for (int j = 0; j < LINES; j++) {
			om_u32 words[4] = {raw[j].x, raw[j].y, raw[j].z, raw[j].w}, rest[4] = {more[j].x, more[j].y, more[j].z, more[j].w};
#pragma unroll
			for (int e = 0; e < 8; e++) { // two instructions for each, of which the dtype chooses
				om_u32 half = words[e / 2], low = e % 2 == 0 ? half : half >> 16;
				float brain = e % 2 == 0 ? om_bits_float(half << 16) : om_bits_float(half & 0xffff0000u);
				m[j][e] = w_type == OM_I8 ? byte_of(words[e / 4], e % 4) : w_type == OM_F32 ? om_bits_float(e < 4 ? words[e] : rest[e - 4])
						  : w_type == OM_F16 ? om_below(low, OM_F16) : brain;
			}
		}
#pragma unroll
		for (int j = 0; j < LINES; j++)
#pragma unroll
			for (int i = 0; i < ROWS; i++)
#pragma unroll
				for (int e = 0; e < 8; e++)
					sums[i * LINES + j] += y[i][e] * m[j][e];
	}
	const int COUNT = ROWS * LINES;
	float own = om_warp_sums<COUNT>(sums);
	if (lane % (32 / COUNT) == 0)
		shared[warp][lane / (32 / COUNT)] = own;
	__syncthreads();
	om_i64 row = top + t / LINES, line = first + t % LINES;
	if (t >= ROWS * LINES || row >= s.rows || line >= s.lines)
		return;
	float sum = 0;
	for (int i = 0; i < WARPS; i++)
		sum += shared[i][t];
	end(out, type, row, line, sum, END);
}

#define GEMV(ROWS)                                                                                                 \
	OM_KERNEL(om_gemv_##ROWS, void *out, int type, const void *x, const void *w, int w_type, ENDING) {               \
		__shared__ float shared[WARPS][ROWS * LINES];                                                               \
		gemv<ROWS>(out, type, x, w, w_type, END, shared);                                                             \
	}
GEMV(1)
GEMV(8)

OM_DEVICE float weight_at(const void *w, om_i64 at, int type) {
	return type == OM_I8 ? (float)((const om_i8 *)w)[at] : om_load_f(w, at, type);
}

// The same of operands that lie in any way: a warp for each result.
OM_KERNEL(om_gemv_any, void *out, int type, const void *x, const void *w, int w_type, ENDING) {
	int lane = threadIdx.x % 32;
	om_i64 warps = (om_i64)gridDim.x * WARPS, n = s.rows * s.lines;
	for (om_i64 i = (om_i64)blockIdx.x * WARPS + threadIdx.x / 32; i < n; i += warps) {
		om_i64 row = i / s.lines, line = i % s.lines;
		float sum = 0;
		for (om_i64 k = lane; k < s.terms; k += 32)
			sum += om_load_f(x, row * s.x_line + k * s.x_step, type) * weight_at(w, line * s.w_line + k * s.w_step, w_type);
		sum = om_warp_sum(sum);
		if (lane == 0)
			end(out, type, row, line, sum, END);
	}
}

// The same of a matrix whose lines lie across, each element next to that of the line behind: a lane has a line, and the warps of
// a block share its terms.
#define MOST_WARPS 16
OM_KERNEL(om_gemv_across, void *out, int type, const void *x, const void *w, int w_type, ENDING) {
	__shared__ float shared[MOST_WARPS][32];
	int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
	om_i64 row = blockIdx.y, line = (om_i64)blockIdx.x * 32 + lane;
	om_i64 from = blockIdx.z * s.part, to = from + s.part < s.terms ? from + s.part : s.terms;
	float sum = 0;
	if (line < s.lines)
#pragma unroll 4
		for (om_i64 k = from + warp; k < to; k += warps)
			sum += om_load_f(x, row * s.x_line + k * s.x_step, type) * weight_at(w, line * s.w_line + k * s.w_step, w_type);
	shared[warp][lane] = sum;
	__syncthreads();
	if (warp > 0 || line >= s.lines)
		return;
	for (int other = 1; other < warps; other++)
		sum += shared[other][lane];
	end(out, type, row, line, sum, END);
}

// The sums of count parts.
OM_KERNEL(om_gemv_sum, void *out, int type, const float *found, int count, ENDING) {
	om_i64 n = s.rows * s.lines;
	OM_EACH(i, n) {
		float sum = 0;
		for (int part = 0; part < count; part++)
			sum += found[part * n + i];
		om_i64 row = i / s.lines;
		end(out, type, row, i - row * s.lines, sum, END);
	}
}

// A narrow matrix made as wide as what it is multiplied with, scaled line by line, for products of many rows.
OM_KERNEL(om_widen, void *out, int type, const void *w, int w_type, om_i64 line, om_i64 step, const void *scales, int scales_type,
		  om_i64 scale_step, om_i64 terms, om_i64 n) {
	OM_EACH(i, n) {
		om_i64 row = i / terms, at = row * line + (i - row * terms) * step;
		float x = weight_at(w, at, w_type);
		if (scales)
			x *= om_load_f(scales, row * scale_step, scales_type);
		om_store_f(out, i, type, x);
	}
}
