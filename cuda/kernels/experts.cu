#include "om.h"
#include "wide.h"
#include "codes.h"

// Layers of which each row takes a few experts out of many: graph op experts. Pairs of a row and a place that names an expert are
// listed by expert; then two launches for every BATCH experts look on the GPU at which pairs are theirs, and have nothing to do
// where none is; in the end what experts gave is summed in the router's order. Weights are floats, or blocks of codes.
//
// A sum has one order, for any number of rows: the terms are cut into steps of STEP and those into PARTS as even runs, as those of
// linears of codes are.
#define THREADS 128
#define PARTS (THREADS / 32)
#define STEP 256
// LINES is how many lines a block has: one of the gate and one of the up, or two of the down. ROWS is how many pairs it has at a time.
#define LINES 2
#define ROWS 4
#define SUMS (LINES * ROWS)
// BATCH is how many experts a launch has, of which blockIdx.z is one.
#define BATCH 8
#define EIGHT(name)                                                                                                     \
	const void *name##0, const void *name##1, const void *name##2, const void *name##3, const void *name##4, const void *name##5, \
		const void *name##6, const void *name##7
#define ONE_OF(name, i)                                                                                                 \
	(i < 4 ? i < 2 ? i == 0 ? name##0 : name##1 : i == 2 ? name##2 : name##3 : i < 6 ? i == 4 ? name##4 : name##5 : i == 6 ? name##6 : name##7)

// om_experts_sort lists the pairs of some rows by expert, and those of each in their order: one block. ends say where in the list
// the pairs of each expert end.
OM_KERNEL(om_experts_sort, int *ends, int *order, const om_i64 *ids, OM_GIVEN om_layout rows, om_i64 step, om_i64 first, om_i64 named,
		  om_i64 pairs, om_i64 experts, int *status, int where) {
	for (om_i64 e = threadIdx.x; e < experts; e += THREADS) {
		int count = 0;
		for (om_i64 p = 0; p < pairs; p++) {
			om_i64 id = ids[om_at(rows, first + p / named) + p % named * step];
			if (e == 0 && (id < -1 || id >= experts))
				om_fail(status, where, OM_OUT_OF_RANGE);
			count += id == e;
		}
		ends[e] = count;
	}
	__syncthreads();
	if (threadIdx.x == 0)
		for (om_i64 e = 1; e < experts; e++)
			ends[e] += ends[e - 1];
	__syncthreads();
	for (om_i64 e = threadIdx.x; e < experts; e += THREADS) {
		int at = e > 0 ? ends[e - 1] : 0;
		for (om_i64 p = 0; at < ends[e]; p++)
			if (ids[om_at(rows, first + p / named) + p % named * step] == e)
				order[at++] = (int)p;
	}
}

// How a weight of an expert lies: expertsCall.weights of op_experts.go. type is OM_U8 for blocks of codes, of which end bytes are left; wide
// says that eight elements can be read at once.
struct om_expert_weight {
	om_i64 line, step, end, type, wide, bias_type, bias_step;
};

// The first expert of a launch, and the sizes of its products: launchExperts of op_experts.go.
struct om_expert {
	om_i64 expert, named, first, lines, terms, x_step, x_wide, weigh, weights_step;
};

// om_expert_terms makes numbers of eight terms of a line.
OM_DEVICE void om_expert_terms(float *to, const void *w, om_i64 line, om_i64 k, om_i64 terms, const om_expert_weight &s,
							   const om_coding &c, const float *table) {
	if (s.type == OM_U8) {
		int i = (int)(k & ((1 << c.log) - 1));
		om_coded raw = om_fetch((const om_u8 *)w, line * s.line + (k >> c.log) * c.bytes, s.end, i, c);
		om_numbers(to, raw, i, c, table);
	} else if (s.wide) {
		om_load_8(to, w, line * s.line + k, (int)s.type);
	} else {
#pragma unroll
		for (int e = 0; e < 8; e++)
			to[e] = k + e < terms ? om_load_f(w, line * s.line + (k + e) * s.step, (int)s.type) : 0.0f;
	}
}

// om_expert_sums computes sums of ROWS pairs from one on, by lines of two weights, which may be one. found gets them: of each pair
// both. x of a pair begin where rows say, or one behind the other.
OM_DEVICE void om_expert_sums(float (*found)[SUMS], const float *x, const om_layout *rows, const float *weights,
							  const om_layout *weights_rows, const int *order, int from, int end, const void *const *w,
							  const om_i64 *line, const om_expert_weight *const *s, const om_coding *const *c,
							  const float (*table)[16], const om_expert &o) {
	int t = threadIdx.x, lane = t % 32, part = t / 32;
	om_i64 each = ((o.terms + STEP - 1) / STEP + PARTS - 1) / PARTS * STEP;
	om_i64 to = (part + 1) * each < o.terms ? (part + 1) * each : o.terms, at[ROWS];
	float sums[SUMS], by[ROWS];
#pragma unroll
	for (int r = 0; r < ROWS; r++) {
		om_i64 pair = order[from + r < end ? from + r : from], row = o.first + pair / o.named;
		at[r] = rows ? om_at(*rows, row) : pair * o.terms;
		by[r] = weights ? weights[om_at(*weights_rows, row) + pair % o.named * o.weights_step] : 1.0f;
#pragma unroll
		for (int j = 0; j < LINES; j++)
			sums[r * LINES + j] = 0;
	}
#pragma unroll 1
	for (om_i64 k = part * each + lane * 8; k < to; k += STEP) {
		float numbers[LINES][8];
#pragma unroll
		for (int j = 0; j < LINES; j++)
			om_expert_terms(numbers[j], w[j], line[j], k, o.terms, *s[j], *c[j], table[j]);
#pragma unroll
		for (int r = 0; r < ROWS; r++) {
			float y[8];
			if (o.x_wide)
				om_load_8(y, x, at[r] + k, OM_F32);
			else
#pragma unroll
				for (int e = 0; e < 8; e++)
					y[e] = k + e < o.terms ? x[at[r] + (k + e) * o.x_step] : 0.0f;
			if (weights)
#pragma unroll
				for (int e = 0; e < 8; e++)
					y[e] = om_times(y[e], by[r]);
#pragma unroll
			for (int j = 0; j < LINES; j++)
#pragma unroll
				for (int e = 0; e < 8; e++)
					sums[r * LINES + j] = fmaf(y[e], numbers[j][e], sums[r * LINES + j]);
		}
	}
	float own = om_warp_sums<SUMS>(sums);
	__syncthreads(); // nobody looks at what was found before
	if (lane % (32 / SUMS) == 0)
		found[part][lane / (32 / SUMS)] = own;
	__syncthreads();
}

// om_expert_sum adds the parts of a sum, and the bias of its line.
OM_DEVICE float om_expert_sum(const float (*found)[SUMS], int i, const void *bias, om_i64 line, const om_expert_weight &s) {
	float sum = 0;
	for (int p = 0; p < PARTS; p++)
		sum += found[p][i];
	return bias ? sum + om_load_f(bias, line * s.bias_step, (int)s.bias_type) : sum;
}

// om_expert_table copies the numbers of an encoding's codes to shared memory.
OM_DEVICE void om_expert_table(float *table, const om_coding &c, int from) {
	int t = (int)threadIdx.x - from;
	if (t >= 0 && t < 16)
		table[t] = om_bits_float((om_u32)(c.table[t / 2] >> t % 2 * 32));
}

// The clamped gate of gpt-oss: the code of launchExperts.
#define CLAMPED (-1)

// om_experts_gate has an expert's pairs go through its gate and its up: hidden, by pair. Inputs are multiplied with weights where o
// says so. a and b are the numbers of the activation, or alpha and limit.
OM_KERNEL(om_experts_gate, float *hidden, const float *x, OM_GIVEN om_layout rows, const float *weights, OM_GIVEN om_layout weights_rows,
		  const int *ends, const int *order, EIGHT(gates), EIGHT(gate_biases), OM_GIVEN om_expert_weight gate_s, OM_GIVEN om_coding gate_c,
		  EIGHT(ups), EIGHT(up_biases), OM_GIVEN om_expert_weight up_s, OM_GIVEN om_coding up_c,
		  OM_GIVEN om_expert o, int act, float a, float b) {
	__shared__ float table[LINES][16];
	__shared__ float found[PARTS][SUMS];
	int one = blockIdx.z, t = threadIdx.x;
	om_i64 expert = o.expert + one, line = blockIdx.x;
	int from = expert > 0 ? ends[expert - 1] : 0, end = ends[expert];
	if (from == end)
		return;
	const void *gate = ONE_OF(gates, one), *gate_bias = ONE_OF(gate_biases, one), *up = ONE_OF(ups, one), *up_bias = ONE_OF(up_biases, one);
	const void *w[LINES] = {gate, up};
	const om_expert_weight *s[LINES] = {&gate_s, &up_s};
	const om_coding *c[LINES] = {&gate_c, &up_c};
	om_i64 lines[LINES] = {line, line};
	om_expert_table(table[0], gate_c, 0);
	om_expert_table(table[1], up_c, 16);
	__syncthreads();
#pragma unroll 1
	for (from += (int)blockIdx.y * ROWS; from < end; from += (int)gridDim.y * ROWS) {
		om_expert_sums(found, x, &rows, o.weigh ? weights : 0, &weights_rows, order, from, end, w, lines, s, c, table, o);
		if (t >= ROWS || from + t >= end)
			continue;
		float g = om_expert_sum(found, t * LINES, gate_bias, line, gate_s), u = om_expert_sum(found, t * LINES + 1, up_bias, line, up_s);
		if (act == CLAMPED) {
			g = fminf(g, b);
			u = om_times(fminf(fmaxf(u, -b), b) + 1.0f, g);
			g = 1.0f / (1.0f + expf(-om_times(a, g)));
		} else {
			g = om_activated(act, g, a, b);
		}
		hidden[order[from + t] * o.lines + line] = om_times(g, u);
	}
}

// om_experts_down has them go through its down: results, by pair.
OM_KERNEL(om_experts_down, float *results, const float *hidden, const int *ends, const int *order, EIGHT(downs), EIGHT(down_biases),
		  OM_GIVEN om_expert_weight down_s, OM_GIVEN om_coding down_c, OM_GIVEN om_expert o) {
	__shared__ float table[LINES][16];
	__shared__ float found[PARTS][SUMS];
	int one = blockIdx.z, t = threadIdx.x;
	om_i64 expert = o.expert + one, line = (om_i64)blockIdx.x * LINES;
	int from = expert > 0 ? ends[expert - 1] : 0, end = ends[expert];
	if (from == end)
		return;
	const void *down = ONE_OF(downs, one), *down_bias = ONE_OF(down_biases, one);
	const void *w[LINES] = {down, down};
	const om_expert_weight *s[LINES] = {&down_s, &down_s};
	const om_coding *c[LINES] = {&down_c, &down_c};
	om_i64 lines[LINES] = {line, line + 1 < o.lines ? line + 1 : line};
	om_expert_table(table[0], down_c, 0);
	om_expert_table(table[1], down_c, 16);
	__syncthreads();
#pragma unroll 1
	for (from += (int)blockIdx.y * ROWS; from < end; from += (int)gridDim.y * ROWS) {
		om_expert_sums(found, hidden, 0, 0, 0, order, from, end, w, lines, s, c, table, o);
		om_i64 own = line + t % LINES;
		if (t < SUMS && from + t / LINES < end && own < o.lines)
			results[order[from + t / LINES] * o.lines + own] = om_expert_sum(found, t, down_bias, own, down_s);
	}
}

// om_experts_sum sums what experts gave for rows, weighed unless their inputs were, in the order in which the router named them.
OM_KERNEL(om_experts_sum, float *out, const float *results, const om_i64 *ids, OM_GIVEN om_layout rows, om_i64 step, const float *weights,
		  OM_GIVEN om_layout weights_rows, om_i64 weights_step, int weigh, om_i64 first, om_i64 named, om_i64 experts, om_i64 width, om_i64 n) {
	OM_EACH(i, n) {
		om_i64 row = i / width, c = i - row * width, at = om_at(rows, first + row), by_at = om_at(weights_rows, first + row);
		float sum = 0;
		for (om_i64 k = 0; k < named; k++) {
			om_i64 id = ids[at + k * step];
			if (id < 0 || id >= experts)
				continue;
			float x = results[(row * named + k) * width + c];
			sum = weigh ? fmaf(weights[by_at + k * weights_step], x, sum) : sum + x;
		}
		out[first * width + i] = sum;
	}
}
