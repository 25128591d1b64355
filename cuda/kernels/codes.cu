#include "om.h"
#include "wide.h"
#include "codes.h"

// Numbers of weights that lie as blocks of codes, and linears that read such weights: the blocks become numbers in registers, and
// what is read of memory are the file's bytes.
//
// A sum has one order, for any number of rows: the terms are cut into steps of STEP and those into PARTS as even runs. Of each step
// a lane of a warp has eight terms that lie behind each other, and adds them to its sum of the part; the lanes' sums of a part are
// added by halves of the warp (om_warp_sum), and the parts in order.
#define THREADS 128
#define PARTS (THREADS / 32)
#define STEP 256
// LINES is how many lines a block of few rows has, MANY_LINES and ROWS_EACH those of a block of many rows and the rows of its warps.
#define LINES 4
#define MANY_LINES 8
#define ROWS_EACH 8
#define MANY_SUMS (MANY_LINES * ROWS_EACH)

// Sizes and strides: codesSizes of op_codes.go. end is how many bytes the weight has.
struct om_codes {
	om_i64 rows, lines, terms, x_line, x_step, w_line, end, bias_step, added_line, added_step;
};

// What a linear ends with: bias, activation, and what is added; all but the activation may be missing.
#define ENDING                                                                                                       \
	const void *bias, int bias_type, const float *added, OM_GIVEN om_codes s, OM_GIVEN om_coding c, int wide, int act, \
		float act_a, float act_b

// om_coded_end writes the result of a row and a line.
OM_DEVICE void om_coded_end(float *out, om_i64 row, om_i64 line, float sum, const void *bias, int bias_type, const float *added,
							const om_codes &s, int act, float act_a, float act_b) {
	if (bias)
		sum += om_load_f(bias, line * s.bias_step, bias_type);
	sum = om_activated(act, sum, act_a, act_b);
	if (added)
		sum += added[row * s.added_line + line * s.added_step];
	out[row * s.lines + line] = sum;
}

// om_coded_table has the threads of a block copy the encoding's table to shared memory, for all once they have met.
OM_DEVICE void om_coded_table(float *table, const om_coding &c) {
	int t = threadIdx.x;
	if (t < 16)
		table[t] = om_bits_float((om_u32)(c.table[t / 2] >> t % 2 * 32));
}

// om_coded_terms reads N terms of a row.
template <int N> OM_DEVICE void om_coded_terms(float *to, const float *x, om_i64 at, om_i64 step, int wide) {
	if (wide) {
#pragma unroll
		for (int e = 0; e < N; e += 4)
			om_load_4(to + e, x, at + e, OM_F32);
		return;
	}
#pragma unroll
	for (int e = 0; e < N; e++)
		to[e] = x[at + e * step];
}

// om_coded_part is how many steps a part has at most.
OM_DEVICE om_i64 om_coded_part(om_i64 terms) { return ((terms + STEP - 1) / STEP + PARTS - 1) / PARTS; }

// few_end adds up what the lanes and the parts of a block have, and writes it.
template <int ROWS, int EACH>
OM_DEVICE void few_end(float *out, float *sums, const void *bias, int bias_type, const float *added, const om_codes &s, int act,
					   float act_a, float act_b, float (*found)[ROWS * EACH]) {
	const int COUNT = ROWS * EACH;
	int t = threadIdx.x, lane = t % 32, part = t / 32;
	float own = om_warp_sums<COUNT>(sums);
	if (lane % (32 / COUNT) == 0)
		found[part][lane / (32 / COUNT)] = own;
	__syncthreads();
	om_i64 row = (om_i64)blockIdx.y * ROWS + t / EACH, line = (om_i64)blockIdx.x * EACH + t % EACH;
	if (t >= COUNT || row >= s.rows || line >= s.lines)
		return;
	float sum = 0;
	for (int p = 0; p < PARTS; p++)
		sum += found[p][t];
	om_coded_end(out, row, line, sum, bias, bias_type, added, s, act, act_a, act_b);
}

// few computes LINES lines of ROWS rows: a warp has a part of the terms.
template <int ROWS>
OM_DEVICE void few(float *out, const float *x, const om_u8 *w, const void *bias, int bias_type, const float *added, const om_codes &s,
				   const om_coding &c, int wide, int act, float act_a, float act_b, float *table, float (*found)[ROWS * LINES]) {
	const int COUNT = ROWS * LINES;
	int lane = threadIdx.x % 32, part = threadIdx.x / 32, log = (int)c.log;
	om_i64 first = (om_i64)blockIdx.x * LINES, top = (om_i64)blockIdx.y * ROWS, each = om_coded_part(s.terms) * STEP;
	float sums[COUNT];
#pragma unroll
	for (int i = 0; i < COUNT; i++)
		sums[i] = 0;
	om_coded_table(table, c);
	__syncthreads();
	om_i64 to = (part + 1) * each < s.terms ? (part + 1) * each : s.terms;
#pragma unroll 1
	for (om_i64 k = part * each + lane * 8; k < to; k += STEP) {
		om_coded raw[LINES];
		float y[ROWS][8];
		int i = (int)(k & ((1 << log) - 1));
		om_i64 at = (k >> log) * c.bytes;
#pragma unroll
		for (int j = 0; j < LINES; j++)
			raw[j] = om_fetch(w, (first + j < s.lines ? first + j : first) * s.w_line + at, s.end, i, c);
#pragma unroll
		for (int r = 0; r < ROWS; r++)
			om_coded_terms<8>(y[r], x, (top + r < s.rows ? top + r : top) * s.x_line + k * s.x_step, s.x_step, wide);
#pragma unroll
		for (int j = 0; j < LINES; j++) {
			float numbers[8];
			om_numbers(numbers, raw[j], i, c, table);
#pragma unroll
			for (int r = 0; r < ROWS; r++)
#pragma unroll
				for (int e = 0; e < 8; e++)
					sums[r * LINES + j] = fmaf(y[r][e], numbers[e], sums[r * LINES + j]);
		}
	}
	few_end<ROWS, LINES>(out, sums, bias, bias_type, added, s, act, act_a, act_b, found);
}

#define FEW(ROWS)                                                                                                       \
	OM_KERNEL(om_codes_##ROWS, float *out, const float *x, const om_u8 *w, ENDING) {                                      \
		__shared__ float table[16];                                                                                       \
		__shared__ float found[PARTS][ROWS * LINES];                                                                       \
		few<ROWS>(out, x, w, bias, bias_type, added, s, c, wide, act, act_a, act_b, table, found);                          \
	}
FEW(1)
FEW(4)

// A scaled_step is what a lane has of a step: what EACH lines and ROWS rows have of its eight terms.
template <int ROWS, int EACH> struct scaled_step {
	om_scaled_raw raw[EACH];
	float y[ROWS][8];
};

// few_scaled is few for scaled encodings and rows whose terms lie together at multiples of sixteen bytes: EACH lines. What a step
// reads is asked for before the step before it is computed. A block's lines have less than 2^31 bytes; the weight begins and ends at
// multiples of four.
template <int ROWS, int EACH>
OM_DEVICE void few_scaled(float *out, const float *x, const om_u8 *w, const void *bias, int bias_type, const float *added,
						  const om_codes &s, const om_coding &c, int act, float act_a, float act_b, float (*found)[ROWS * EACH]) {
	int lane = threadIdx.x % 32, part = threadIdx.x / 32, log = (int)c.log;
	om_i64 first = (om_i64)blockIdx.x * EACH, top = (om_i64)blockIdx.y * ROWS;
	om_scaled how = om_scaled_of(c);
	w += first * s.w_line;
	om_u32 skew = (om_u32)((om_u64)w & 3), lines[EACH], half = (om_u32)c.half, bytes = (om_u32)c.bytes;
	w -= skew; // a multiple of four
	const float *rows[ROWS];
	float sums[ROWS * EACH];
#pragma unroll
	for (int j = 0; j < EACH; j++)
		lines[j] = skew + (first + j < s.lines ? j * (om_u32)s.w_line : 0);
#pragma unroll
	for (int r = 0; r < ROWS; r++)
		rows[r] = x + (top + r < s.rows ? top + r : top) * s.x_line;
#pragma unroll
	for (int i = 0; i < ROWS * EACH; i++)
		sums[i] = 0;
	int each = (int)om_coded_part(s.terms) * STEP, terms = (int)s.terms;
	int to = (part + 1) * each < terms ? (part + 1) * each : terms;
	auto read = [&](scaled_step<ROWS, EACH> &n, int k) {
		om_u32 i = k & ((1 << log) - 1), block = (om_u32)(k >> log) * bytes;
		om_u32 codes = block + (om_u32)c.head + (half > 0 ? i & (half - 1) : i);
#pragma unroll
		for (int j = 0; j < EACH; j++)
			n.raw[j] = om_scaled_fetch(w, lines[j] + block, lines[j] + codes, how);
#pragma unroll
		for (int r = 0; r < ROWS; r++)
			om_coded_terms<8>(n.y[r], rows[r], k, 1, 1);
	};
	int k = part * each + lane * 8;
	scaled_step<ROWS, EACH> now;
	if (k < to)
		read(now, k);
#pragma unroll 1
	while (k < to) {
		int after = k + STEP, shift = k & half ? 4 : 0;
		om_u32 i = k & ((1 << log) - 1), block = (om_u32)(k >> log) * bytes;
		om_u32 codes = block + (om_u32)c.head + (half > 0 ? i & (half - 1) : i);
		scaled_step<ROWS, EACH> next = now;
		if (after < to)
			read(next, after);
#pragma unroll
		for (int j = 0; j < EACH; j++) {
			float numbers[8];
			om_scaled_numbers(numbers, now.raw[j], lines[j] + block, lines[j] + codes, shift, how);
#pragma unroll
			for (int r = 0; r < ROWS; r++)
#pragma unroll
				for (int e = 0; e < 8; e++)
					sums[r * EACH + j] = fmaf(now.y[r][e], numbers[e], sums[r * EACH + j]);
		}
		now = next;
		k = after;
	}
	few_end<ROWS, EACH>(out, sums, bias, bias_type, added, s, act, act_a, act_b, found);
}

#define FEW_SCALED(ROWS, EACH)                                                                                          \
	OM_KERNEL(om_codes_scaled_##ROWS, float *out, const float *x, const om_u8 *w, ENDING) {                               \
		__shared__ float found[PARTS][ROWS * EACH];                                                                        \
		few_scaled<ROWS, EACH>(out, x, w, bias, bias_type, added, s, c, act, act_a, act_b, found);                          \
	}
FEW_SCALED(1, 2)
FEW_SCALED(4, 2)

// om_codes_many computes MANY_LINES lines of ROWS_EACH rows for each warp. The numbers of a step are made once, by all warps, and lie
// in shared memory: the first four of each lane, then the others.
OM_KERNEL(om_codes_many, float *out, const float *x, const om_u8 *w, ENDING) {
	__shared__ float table[16];
	__shared__ om_16 tile[MANY_LINES][2][32];
	const int OWN = MANY_LINES / PARTS; // lines that a warp makes
	int t = threadIdx.x, lane = t % 32, warp = t / 32, log = (int)c.log;
	om_i64 first = (om_i64)blockIdx.y * MANY_LINES, top = ((om_i64)blockIdx.x * PARTS + warp) * ROWS_EACH;
	om_i64 each = om_coded_part(s.terms) * STEP;
	bool computes = top < s.rows;
	float sums[MANY_SUMS], totals[2] = {0, 0};
	om_i64 rows[ROWS_EACH];
#pragma unroll
	for (int i = 0; i < MANY_SUMS; i++)
		sums[i] = 0;
#pragma unroll
	for (int r = 0; r < ROWS_EACH; r++)
		rows[r] = (top + r < s.rows ? top + r : 0) * s.x_line;
	om_coded_table(table, c);
	om_i64 part = each;
#pragma unroll 1
	for (om_i64 k = 0; k < s.terms; k += STEP) {
		om_i64 own = k + lane * 8;
		bool there = own < s.terms;
		int i = (int)(own & ((1 << log) - 1));
		__syncthreads();
#pragma unroll
		for (int j = 0; j < OWN; j++) {
			om_i64 line = first + warp * OWN + j;
			float numbers[8] = {0, 0, 0, 0, 0, 0, 0, 0};
			if (there) {
				om_coded raw = om_fetch(w, (line < s.lines ? line : first) * s.w_line + (own >> log) * c.bytes, s.end, i, c);
				om_numbers(numbers, raw, i, c, table);
			}
			om_store_4(&tile[warp * OWN + j][0][lane], 0, OM_F32, numbers);
			om_store_4(&tile[warp * OWN + j][1][lane], 0, OM_F32, numbers + 4);
		}
		__syncthreads();
		if (computes && there) {
#pragma unroll
			for (int h = 0; h < 2; h++) {
				float y[ROWS_EACH][4];
#pragma unroll
				for (int r = 0; r < ROWS_EACH; r++)
					om_coded_terms<4>(y[r], x, rows[r] + (own + 4 * h) * s.x_step, s.x_step, wide);
#pragma unroll
				for (int j = 0; j < MANY_LINES; j++) {
					float numbers[4];
					om_load_4(numbers, &tile[j][h][lane], 0, OM_F32);
#pragma unroll
					for (int r = 0; r < ROWS_EACH; r++)
#pragma unroll
						for (int e = 0; e < 4; e++)
							sums[j / 4 * 32 + r * 4 + j % 4] = fmaf(y[r][e], numbers[e], sums[j / 4 * 32 + r * 4 + j % 4]);
				}
			}
		}
		if (k + STEP < part && k + STEP < s.terms)
			continue;
		part += each; // one ends
#pragma unroll
		for (int g = 0; g < 2; g++) {
			totals[g] += om_warp_sums<32>(sums + 32 * g);
#pragma unroll
			for (int i = 0; i < 32; i++)
				sums[32 * g + i] = 0;
		}
	}
	om_i64 row = top + lane / 4;
	if (row >= s.rows)
		return;
#pragma unroll
	for (int g = 0; g < 2; g++) {
		om_i64 line = first + g * 4 + lane % 4;
		if (line < s.lines)
			om_coded_end(out, row, line, totals[g], bias, bias_type, added, s, act, act_a, act_b);
	}
}

// om_decode makes numbers of blocks, eight to a thread; rows of columns begin where the layout says.
OM_KERNEL(om_decode, float *out, const om_u8 *w, OM_GIVEN om_layout rows, om_i64 end, OM_GIVEN om_coding c, om_divisor columns, om_i64 n) {
	__shared__ float table[16];
	om_coded_table(table, c);
	__syncthreads();
	OM_EACH(i, n) {
		om_i64 row = i, first = om_take(&row, columns) * 8;
		int at = (int)(first & ((1 << c.log) - 1));
		float numbers[8];
		om_coded raw = om_fetch(w, om_at(rows, row) + (first >> c.log) * c.bytes, end, at, c);
		om_numbers(numbers, raw, at, c, table);
		om_store_4(out, i * 8, OM_F32, numbers);
		om_store_4(out, i * 8 + 4, OM_F32, numbers + 4);
	}
}
