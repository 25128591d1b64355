#include "om.h"
#include "tile.h"

// Products of matrices of floats by blocks, as in linear.cu: out[z, r, j] = f(alpha·Σ_k left[z, r, k]·right[z, k, j] + bias[j]) +
// beta·added[z, r, j]. Where the terms are split into parts, each part of the sums goes to sums, and om_product_sum ends.

// L is how the layouts are taken: by kernels as they are given.
#define FACTORS(L) const float *left, L rows, om_i64 left_step, const float *right, L batches, om_i64 line, om_i64 right_step
#define ENDING(L)                                                                                                     \
	const float *bias, om_i64 bias_step, const float *added, L added_rows, om_i64 added_step, float alpha, float beta, \
		int act, float act_a, float act_b
#define END bias, bias_step, added, added_rows, added_step, alpha, beta, act, act_a, act_b

template <int ROWS, int COLS, int TALL, int WIDE>
OM_DEVICE void product(float *out, float *parts, FACTORS(const om_layout &), ENDING(const om_layout &), om_i64 m, om_i64 n, om_i64 k, om_i64 batch,
					   om_i64 part, int left_how, int right_how, int fours) {
	typedef tile<ROWS, COLS, TALL, WIDE> own;
	__shared__ __align__(16) float space[own::FLOATS];
	spot at = spot_of(m, n, batch, ROWS, COLS);
	__shared__ spot where; // which the product leaves no registers for
	if (threadIdx.x == 0)
		where = at;
	om_i64 from = at.part * part, to = from + part < k ? from + part : k;
	strided<ROWS, own::THREADS, false> lefts;
	strided<COLS, own::THREADS, true> rights;
	lefts.begin(left, left_step, from, k, left_how, m - at.top, [&](om_i64 i) { return place_at(rows, at.z * m + at.top + i); });
	rights.begin(right + place_at(batches, at.z), right_step, from, k, right_how, n - at.first,
				 [&](om_i64 i) { return (at.first + i) * line; });
	float sums[TALL][WIDE];
	own::multiply(sums, space, lefts, rights, from, to);
	own::finish(sums, space, [&](int row, int column, float *x) {
		const spot &at = where;
		om_i64 r = at.top + row, c = at.first + column;
		if (r >= m || c >= n)
			return;
		r += at.z * m;
		if (parts) {
			write_line(parts + (at.part * batch * m + r) * n + c, x, n - c, fours);
			return;
		}
		const float *line_added = added ? added + place_at(added_rows, r) : 0;
		end_product(x, c, n, bias, bias_step, line_added, added_step, alpha, beta, act, act_a, act_b);
		write_line(out + r * n + c, x, n - c, fours);
	});
}

#define PRODUCT(name, lines, columns, tall, wide, blocks)                                                                    \
	BOUNDED_KERNEL((lines / tall * (columns / wide)), blocks, name, float *out, float *parts, FACTORS(OM_GIVEN om_layout), ENDING(OM_GIVEN om_layout), \
				   om_i64 m, om_i64 n, om_i64 k, om_i64 batch, om_i64 part, int left_how, int right_how, int fours) {         \
		product<lines, columns, tall, wide>(out, parts, left, rows, left_step, right, batches, line, right_step, END, m, n, \
											 k, batch, part, left_how, right_how, fours);         \
	}

// With room for two of the largest blocks, one of which computes while the other waits, a thread has 128 registers. They are too few where
// the next part waits in registers: what it copies from would be spilled.
PRODUCT(om_product_f32_128, 128, 128, 8, 8, AHEAD + 1)
PRODUCT(om_product_f32_64, 64, 64, 8, 4, 4)
PRODUCT(om_product_f32_16, 16, 128, 4, 4, 4)

// The parts of sums, one after the other, and what the product ends with.
OM_KERNEL(om_product_sum_f32, float *out, const float *parts, ENDING(OM_GIVEN om_layout), om_i64 n, om_i64 total, int count) {
	OM_EACH(i, total) {
		float sum = 0;
		for (int p = 0; p < count; p++)
			sum += parts[p * total + i];
		om_i64 r = i / n, c = i - r * n;
		sum *= alpha;
		if (bias)
			sum += bias[c * bias_step];
		sum = om_activated(act, sum, act_a, act_b);
		if (added)
			sum += beta * added[om_at(added_rows, r) + c * added_step];
		out[i] = sum;
	}
}
