#include "om.h"
#include "wide.h"

// Sequences walked with a state: a block for each sequence, a warp for each unit of the state at a time.
#define THREADS 256
#define WARPS (THREADS / 32)

// Sizes and strides of one direction: recurrentSizes of op_recurrent.go.
struct recurrent_sizes {
	om_i64 gates, directions, direction, reverse, relu;
	om_i64 rows, steps, batch, input, hidden, width;
	om_i64 x_step, batches_step, state[3], cell[3];
	om_i64 input_line, input_step, state_line, state_step, input_bias, state_bias, projection_line, projection_step;
};

template <class A> OM_DEVICE A sigmoid(A x) { return (A)1 / ((A)1 + (A)exp(-x)); }

// rounded is the nearest number that a dtype holds.
OM_DEVICE float rounded(float x, int type) {
	if (type == OM_F16) {
		om_f16 h;
		om_round(&h, x);
		return om_float(h);
	}
	if (type == OM_BF16) {
		om_bf16 h;
		om_round(&h, x);
		return om_float(h);
	}
	return x;
}
OM_DEVICE double rounded(double x, int) { return x; }

template <class A> OM_DEVICE A sum_of_warp(A x) {
	for (int apart = 16; apart > 0; apart /= 2)
		x += __shfl_xor_sync(0xffffffffu, x, apart);
	return x;
}

// product_of is bias[row] + Σ matrix[row, k]·in[k] for the lanes of a warp, where in lies in memory or is a state.
template <class A>
OM_DEVICE A product_of(const void *matrix, om_i64 line, om_i64 step, const void *bias, om_i64 bias_step, om_i64 row, const void *in,
					   om_i64 in_at, om_i64 in_step, const A *state, om_i64 terms, int type) {
	A sum = 0, m, x;
	for (om_i64 k = threadIdx.x % 32; k < terms; k += 32) {
		om_load(&m, matrix, row * line + k * step, type);
		if (state)
			x = state[k];
		else
			om_load(&x, in, in_at + k * in_step, type);
		sum += m * x;
	}
	sum = sum_of_warp(sum);
	if (bias) {
		om_load(&m, bias, row * bias_step, type);
		sum += m;
	}
	return sum;
}

template <class A>
OM_DEVICE void recurrent(void *out, void *last_state, void *last_cell, const void *x, const om_layout &x_rows, const om_i64 *batches,
						 const void *first_state, const void *first_cell, const void *input_weight, const void *state_weight,
						 const void *input_bias, const void *state_bias, const void *projection, int type,
						 const recurrent_sizes &s, int *status, int where, A *state) {
	A *cell = state + s.width, *next = cell + s.hidden;
	om_i64 lane = threadIdx.x % 32, warp = threadIdx.x / 32, G = s.gates, H = s.hidden;
	if (batches) { // never more sequences than at the step before
		om_i64 rows = 0, last = s.batch;
		bool good = true;
		for (om_i64 t = 0; t < s.steps; t++) {
			om_i64 n = batches[t * s.batches_step];
			good = good && n >= 0 && n <= last;
			last = n;
			rows += n;
		}
		if (!good || rows != s.rows) {
			om_fail(status, where, OM_BAD_COUNTS);
			return;
		}
	}
	for (om_i64 b = blockIdx.x; b < s.batch; b += gridDim.x) {
		__syncthreads();
		for (om_i64 k = threadIdx.x; k < s.width; k += THREADS)
			om_load(&state[k], first_state, s.direction * s.state[0] + b * s.state[1] + k * s.state[2], type);
		if (first_cell)
			for (om_i64 k = threadIdx.x; k < H; k += THREADS)
				om_load(&cell[k], first_cell, s.direction * s.cell[0] + b * s.cell[1] + k * s.cell[2], type);
		om_i64 at = s.reverse ? s.rows : 0;
		for (om_i64 t = 0; t < s.steps; t++) {
			om_i64 i = s.reverse ? s.steps - 1 - t : t, n = batches ? batches[i * s.batches_step] : s.batch;
			om_i64 row = (s.reverse ? at - n : at) + b;
			at += s.reverse ? -n : n;
			if (b >= n)
				continue;
			om_i64 from = om_at(x_rows, row);
			__syncthreads();
			for (om_i64 j = warp; j < H; j += WARPS) {
				A in[4], held[4];
				for (om_i64 g = 0; g < G; g++) {
					in[g] = product_of<A>(input_weight, s.input_line, s.input_step, input_bias, s.input_bias, g * H + j, x, from,
										  s.x_step, 0, s.input, type);
					held[g] = product_of<A>(state_weight, s.state_line, s.state_step, state_bias, s.state_bias, g * H + j, 0, 0, 0,
											state, s.width, type);
				}
				if (lane != 0)
					continue;
				if (G == 4) {
					A c = sigmoid(in[1] + held[1]) * cell[j] + sigmoid(in[0] + held[0]) * (A)tanh(in[2] + held[2]);
					cell[j] = rounded(c, type);
					next[j] = rounded(sigmoid(in[3] + held[3]) * (A)tanh(cell[j]), type);
				} else if (G == 3) {
					A value = (A)tanh(in[2] + sigmoid(in[0] + held[0]) * held[2]);
					next[j] = rounded((state[j] - value) * sigmoid(in[1] + held[1]) + value, type);
				} else {
					A sum = in[0] + held[0];
					next[j] = rounded(s.relu ? (sum > 0 ? sum : sum != sum ? sum : (A)0) : (A)tanh(sum), type);
				}
			}
			__syncthreads();
			om_i64 to = (row * s.directions + s.direction) * s.width;
			for (om_i64 k = projection ? warp : threadIdx.x; k < s.width; k += projection ? WARPS : THREADS) {
				A h = projection ? rounded(product_of<A>(projection, s.projection_line, s.projection_step, 0, 0, k, 0, 0, 0, next,
														 H, type), type)
								 : next[k];
				if (projection && lane != 0)
					continue;
				state[k] = h;
				om_store(out, to + k, type, h);
			}
		}
		__syncthreads();
		om_i64 to = s.direction * s.batch + b;
		for (om_i64 k = threadIdx.x; k < s.width; k += THREADS)
			om_store(last_state, to * s.width + k, type, state[k]);
		if (last_cell)
			for (om_i64 k = threadIdx.x; k < H; k += THREADS)
				om_store(last_cell, to * H + k, type, cell[k]);
	}
}

#define RECURRENT(suffix, A)                                                                                              \
	OM_KERNEL(om_recurrent_##suffix, void *out, void *last_state, void *last_cell, const void *x, OM_GIVEN om_layout x_rows,             \
			  const om_i64 *batches, const void *first_state, const void *first_cell, const void *input_weight,              \
			  const void *state_weight, const void *input_bias, const void *state_bias, const void *projection, int type,      \
			  OM_GIVEN recurrent_sizes s, int *status, int where) {                                                                \
		OM_DYNAMIC(A, state);                                                                                             \
		recurrent<A>(out, last_state, last_cell, x, x_rows, batches, first_state, first_cell, input_weight, state_weight,     \
					 input_bias, state_bias, projection, type, s, status, where, state);                                  \
	}
RECURRENT(f, float)
RECURRENT(d, double)

// One step of sequences side by side: a warp has a unit of the state, of up to ROWS sequences at a time, so that a step's
// weights are read once for them, by all of a GPU. What one step writes, the next reads as its state.
#define ROWS 4

// Sizes and strides of a step: stepSizes of op_recurrent.go. Of those of two, the first is for the input.
struct step_sizes {
	om_i64 gates, relu, batch, hidden, terms[2], row[2], step[2], line[2], term[2], bias[2], cell_row, cell_step, out_row;
};

// gather adds the products of a unit's lines with what is read of the sequences.
OM_DEVICE void gather(float (*sums)[ROWS], const void *weight, const void *in, int type, const step_sizes &s, int part, om_i64 unit,
					  om_i64 top, int wide) {
	int lane = threadIdx.x % 32;
	if (wide) {
		for (om_i64 k = lane * 8; k < s.terms[part]; k += 256) {
			float x[ROWS][8], m[8];
#pragma unroll
			for (int r = 0; r < ROWS; r++)
				om_load_8(x[r], in, (top + r < s.batch ? top + r : top) * s.row[part] + k, type);
#pragma unroll
			for (int g = 0; g < 4; g++) {
				if (g >= s.gates)
					break;
				om_load_8(m, weight, (g * s.hidden + unit) * s.line[part] + k, type);
#pragma unroll
				for (int r = 0; r < ROWS; r++)
#pragma unroll
					for (int e = 0; e < 8; e++)
						sums[g][r] += x[r][e] * m[e];
			}
		}
		return;
	}
	for (om_i64 k = lane; k < s.terms[part]; k += 32) {
		float x[ROWS];
#pragma unroll
		for (int r = 0; r < ROWS; r++)
			x[r] = om_load_f(in, (top + r < s.batch ? top + r : top) * s.row[part] + k * s.step[part], type);
#pragma unroll
		for (int g = 0; g < 4; g++) {
			if (g >= s.gates)
				break;
			float m = om_load_f(weight, (g * s.hidden + unit) * s.line[part] + k * s.term[part], type);
#pragma unroll
			for (int r = 0; r < ROWS; r++)
				sums[g][r] += x[r] * m;
		}
	}
}

OM_KERNEL(om_recurrent_step, void *out, void *last_state, void *cell, const void *x, const void *state, const void *first_cell,
		  const void *input_weight, const void *state_weight, const void *input_bias, const void *state_bias, int type,
		  OM_GIVEN step_sizes s, int wide) {
	int lane = threadIdx.x % 32;
	om_i64 unit = (om_i64)blockIdx.y * (blockDim.x / 32) + threadIdx.x / 32, top = (om_i64)blockIdx.x * ROWS;
	if (unit >= s.hidden)
		return;
	// Of three gates the last one's parts stay apart: its share of the state is the fourth.
	float all[4 * ROWS];
#pragma unroll
	for (int i = 0; i < 4 * ROWS; i++)
		all[i] = 0;
#pragma unroll 1
	for (int part = 0; part < 2; part++) {
		const void *bias = part == 0 ? input_bias : state_bias;
		float sums[4][ROWS];
#pragma unroll
		for (int g = 0; g < 4; g++)
#pragma unroll
			for (int r = 0; r < ROWS; r++)
				sums[g][r] = 0;
		gather(sums, part == 0 ? input_weight : state_weight, part == 0 ? x : state, type, s, part, unit, top, wide);
#pragma unroll
		for (int g = 0; g < 4; g++) {
			float more = bias && lane == 0 && g < s.gates ? om_load_f(bias, (g * s.hidden + unit) * s.bias[part], type) : 0;
			bool apart = g == 2 && part == 1 && s.gates == 3;
#pragma unroll
			for (int r = 0; r < ROWS; r++) {
				float sum = sums[g][r] + more;
				all[g * ROWS + r] += apart ? 0 : sum;
				if (g == 2)
					all[3 * ROWS + r] += apart ? sum : 0;
			}
		}
	}
	float own = om_warp_sums<4 * ROWS>(all), y[4];
#pragma unroll
	for (int g = 0; g < 4; g++)
		y[g] = __shfl_sync(0xffffffffu, own, (g * ROWS + lane % ROWS) * (8 / ROWS));
	om_i64 b = top + lane;
	if (lane >= ROWS || b >= s.batch)
		return;
	float h;
	if (s.gates == 4) {
		om_i64 at = b * s.hidden + unit;
		float before = first_cell ? om_load_f(first_cell, b * s.cell_row + unit * s.cell_step, type) : om_load_f(cell, at, type);
		float c = rounded(sigmoid(y[1]) * before + sigmoid(y[0]) * tanhf(y[2]), type);
		om_store_f(cell, at, type, c);
		h = sigmoid(y[3]) * tanhf(c);
	} else if (s.gates == 3) {
		float before = om_load_f(state, b * s.row[1] + unit * s.step[1], type), value = tanhf(y[2] + sigmoid(y[0]) * y[3]);
		h = (before - value) * sigmoid(y[1]) + value;
	} else {
		h = s.relu ? (y[0] > 0 ? y[0] : y[0] != y[0] ? y[0] : 0) : tanhf(y[0]);
	}
	om_store_f(out, b * s.out_row + unit, type, h);
	if (last_state)
		om_store_f(last_state, b * s.hidden + unit, type, h);
}
