#include "om.h"

// Ops that walk a sequence with a state: graph ops causal_conv, selective_scan and delta_rule. A state is of columns that do not
// look at each other: channels of a convolution, and the last dimension of the others. A column has its numbers in registers, of
// one thread or of a team of some of a warp, from the first row of a pass to the last, one row after the other. So no bit depends
// on how rows are cut into passes.
#define THREADS 128
#define WARPS (THREADS / 32)
// EACH is how many numbers of a column a thread has, TAPS the most of a convolution.
#define EACH 16
#define TAPS 8

// What a row finds in the first column of states where it is no place: the constants of graph/op_state.go.
#define NONE (-1)
#define BEFORE (-2)
#define ABSENT (-3)

// The sizes of a call and how its operands lie: walked of op_state.go. A head has rows × columns numbers; each heads have a
// group's operands; team threads have a column. x to e are strides of the operands in their order, one less than their dimensions
// where the last is a column or a number of one.
struct om_walk {
	om_i64 tokens, heads, each, rows, columns, places, team, states_row, states_step;
	om_i64 x[4], a[4], b[4], c[4], d[4];
};

// om_state_bad has a block look whether all rows find a state, and notes where one does not. Nothing is computed then.
OM_DEVICE bool om_state_bad(const om_i64 *states, const om_walk &s, int *bad, int *status, int where) {
	if (!states)
		return false;
	if (threadIdx.x == 0)
		*bad = 0;
	__syncthreads();
	for (om_i64 t = threadIdx.x; t < s.tokens; t += THREADS) {
		om_i64 from = states[t * s.states_row], to = states[t * s.states_row + s.states_step];
		bool before = t > 0 && states[(t - 1) * s.states_row] != ABSENT;
		if (from >= s.places || from < ABSENT || (from == BEFORE && !before) || to >= s.places)
			atomicCAS(bad, 0, 1);
	}
	__syncthreads();
	if (*bad == 0)
		return false;
	if (threadIdx.x == 0)
		om_fail(status, where, OM_OUT_OF_RANGE);
	return true;
}

// om_state_from and om_state_to are where a row begins and where it leaves its state.
OM_DEVICE om_i64 om_state_from(const om_i64 *states, const om_walk &s, om_i64 t) {
	return states ? states[t * s.states_row] : t == 0 ? NONE : BEFORE;
}
OM_DEVICE om_i64 om_state_to(const om_i64 *states, const om_walk &s, om_i64 t) {
	return states ? states[t * s.states_row + s.states_step] : NONE;
}

// om_state_conv computes a channel to a thread. cache is places × (taps − 1) × channels.
OM_KERNEL(om_state_conv, float *out, float *cache, const om_i64 *states, const float *x, const float *w, const float *bias,
		  OM_GIVEN om_walk s, int *status, int where) {
	__shared__ int bad;
	if (om_state_bad(states, s, &bad, status, where))
		return;
	om_i64 channel = (om_i64)blockIdx.x * THREADS + threadIdx.x, sequence = blockIdx.y;
	if (channel >= s.heads)
		return;
	int rows = (int)s.rows; // of a state: one less than taps
	float weight[TAPS], last[TAPS], add = bias ? bias[channel * s.b[0]] : 0.0f;
#pragma unroll
	for (int k = 0; k < TAPS; k++) {
		weight[k] = k <= rows ? w[channel * s.a[0] + k * s.a[1]] : 0.0f;
		last[k] = 0;
	}
	x += sequence * s.x[0] + channel * s.x[2];
#pragma unroll 1
	for (om_i64 t = 0; t < s.tokens; t++) {
		om_i64 from = om_state_from(states, s, t), to = om_state_to(states, s, t);
		float *y = out + (sequence * s.tokens + t) * s.heads + channel;
		if (from == ABSENT) {
			*y = 0;
			continue;
		}
		if (from != BEFORE)
#pragma unroll
			for (int k = 0; k < TAPS - 1; k++)
				last[k] = from >= 0 && k < rows ? cache[(from * rows + k) * s.heads + channel] : 0.0f;
		float now = x[t * s.x[1]], sum = add;
#pragma unroll
		for (int k = 0; k < TAPS; k++)
			sum = k < rows ? fmaf(weight[k], last[k], sum) : k == rows ? fmaf(weight[k], now, sum) : sum;
		*y = sum;
#pragma unroll
		for (int k = 0; k < TAPS - 1; k++)
			last[k] = k + 1 < rows ? last[k + 1] : now;
		if (to >= 0)
#pragma unroll
			for (int k = 0; k < TAPS - 1; k++)
				if (k < rows)
					cache[(to * rows + k) * s.heads + channel] = last[k];
	}
}

// A column, and which of its numbers a thread has: every team-th from first on.
struct om_column {
	om_i64 head, column;
	int first, team, side;
	bool there;
};

OM_DEVICE om_column om_column_of(const om_walk &s) {
	int lane = threadIdx.x % 32, team = (int)s.team, side = 32 / team; // side columns lie side by side in a warp
	om_i64 i = ((om_i64)blockIdx.x * WARPS + threadIdx.x / 32) * side + lane % side;
	om_column c;
	c.there = i < s.heads * s.columns;
	i = c.there ? i : 0; // its threads go on, for a warp exchanges sums
	c.head = i / s.columns;
	c.column = i - c.head * s.columns;
	c.first = lane / side;
	c.team = team;
	c.side = side;
	return c;
}

// om_team_sum adds what the threads of a team have.
OM_DEVICE float om_team_sum(float x, const om_column &c) {
#pragma unroll 1
	for (int apart = 16; apart >= c.side; apart /= 2)
		x += __shfl_xor_sync(0xffffffffu, x, apart);
	return x;
}

// om_state_begin reads the state with which a row begins, om_state_end writes the one behind it.
OM_DEVICE void om_state_begin(float *state, const float *cache, om_i64 from, const om_walk &s, const om_column &c) {
	if (from == BEFORE)
		return;
#pragma unroll
	for (int i = 0; i < EACH; i++) {
		om_i64 n = c.first + i * c.team;
		state[i] = c.there && from >= 0 && n < s.rows ? cache[((from * s.heads + c.head) * s.rows + n) * s.columns + c.column] : 0.0f;
	}
}
OM_DEVICE void om_state_end(const float *state, float *cache, om_i64 to, const om_walk &s, const om_column &c) {
	if (to < 0 || !c.there)
		return;
#pragma unroll
	for (int i = 0; i < EACH; i++) {
		om_i64 n = c.first + i * c.team;
		if (n < s.rows)
			cache[((to * s.heads + c.head) * s.rows + n) * s.columns + c.column] = state[i];
	}
}

// om_state_scan is selective_scan: x, steps, rates, b and c. own says that each number of a state has a rate of its own.
OM_KERNEL(om_state_scan, float *out, float *cache, const om_i64 *states, const float *x, const float *steps, const float *rates,
		  const float *ins, const float *outs, OM_GIVEN om_walk s, int own, int *status, int where) {
	__shared__ int bad;
	if (om_state_bad(states, s, &bad, status, where))
		return;
	om_column c = om_column_of(s);
	om_i64 sequence = blockIdx.y, group = c.head / s.each;
	float state[EACH], rate[EACH];
#pragma unroll
	for (int i = 0; i < EACH; i++) {
		om_i64 n = c.first + i * c.team;
		state[i] = 0;
		rate[i] = n < s.rows ? rates[c.head * s.b[0] + (own ? n * s.b[1] : 0)] : 0.0f;
	}
#pragma unroll 1
	for (om_i64 t = 0; t < s.tokens; t++) {
		om_i64 from = om_state_from(states, s, t);
		float *y = out + ((sequence * s.tokens + t) * s.heads + c.head) * s.columns + c.column, sum = 0;
		if (from == ABSENT) {
			if (c.there && c.first == 0)
				*y = 0;
			continue;
		}
		om_state_begin(state, cache, from, s, c);
		float step = steps[sequence * s.a[0] + t * s.a[1] + c.head * s.a[2]];
		float given = om_times(step, x[sequence * s.x[0] + t * s.x[1] + c.head * s.x[2] + c.column * s.x[3]]);
		float decay = own ? 0.0f : expf(om_times(step, rate[0]));
		const float *in = ins + sequence * s.c[0] + t * s.c[1] + group * s.c[2];
		const float *to = outs + sequence * s.d[0] + t * s.d[1] + group * s.d[2];
#pragma unroll
		for (int i = 0; i < EACH; i++) {
			om_i64 n = c.first + i * c.team;
			if (n < s.rows) {
				float by = own ? expf(om_times(step, rate[i])) : decay;
				state[i] = fmaf(state[i], by, om_times(in[n * s.c[3]], given));
				sum = fmaf(to[n * s.d[3]], state[i], sum);
			}
		}
		sum = om_team_sum(sum, c);
		if (c.there && c.first == 0)
			*y = sum;
		om_state_end(state, cache, om_state_to(states, s, t), s, c);
	}
}

// om_state_delta is delta_rule: queries, keys, values, decays and shares. own says that each element of a key has a decay of its
// own.
OM_KERNEL(om_state_delta, float *out, float *cache, const om_i64 *states, const float *queries, const float *keys,
		  const float *values, const float *decays, const float *shares, OM_GIVEN om_walk s, int own, int *status, int where) {
	__shared__ int bad;
	if (om_state_bad(states, s, &bad, status, where))
		return;
	om_column c = om_column_of(s);
	om_i64 sequence = blockIdx.y, group = c.head / s.each;
	float state[EACH];
#pragma unroll
	for (int i = 0; i < EACH; i++)
		state[i] = 0;
#pragma unroll 1
	for (om_i64 t = 0; t < s.tokens; t++) {
		om_i64 from = om_state_from(states, s, t);
		float *y = out + ((sequence * s.tokens + t) * s.heads + c.head) * s.columns + c.column;
		if (from == ABSENT) {
			if (c.there && c.first == 0)
				*y = 0;
			continue;
		}
		om_state_begin(state, cache, from, s, c);
		const float *q = queries + sequence * s.x[0] + t * s.x[1] + group * s.x[2];
		const float *k = keys + sequence * s.a[0] + t * s.a[1] + group * s.a[2];
		const float *decay = decays + sequence * s.c[0] + t * s.c[1] + c.head * s.c[2];
		float value = values[sequence * s.b[0] + t * s.b[1] + c.head * s.b[2] + c.column * s.b[3]];
		float share = shares[sequence * s.d[0] + t * s.d[1] + c.head * s.d[2]], by = own ? 1.0f : expf(*decay), seen = 0, sum = 0;
		float key[EACH];
#pragma unroll
		for (int i = 0; i < EACH; i++) {
			om_i64 n = c.first + i * c.team;
			key[i] = 0;
			if (n < s.rows) {
				key[i] = k[n * s.a[3]];
				state[i] = om_times(state[i], own ? expf(decay[n * s.c[3]]) : by);
				seen = fmaf(key[i], state[i], seen);
			}
		}
		float change = om_times(share, value - om_team_sum(seen, c));
#pragma unroll
		for (int i = 0; i < EACH; i++) {
			om_i64 n = c.first + i * c.team;
			if (n < s.rows) {
				state[i] = fmaf(key[i], change, state[i]);
				sum = fmaf(q[n * s.x[3]], state[i], sum);
			}
		}
		sum = om_team_sum(sum, c);
		if (c.there && c.first == 0)
			*y = sum;
		om_state_end(state, cache, om_state_to(states, s, t), s, c);
	}
}
