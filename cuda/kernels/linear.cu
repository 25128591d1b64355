#include "om.h"

// Products of matrices, a block of SIDE × SIDE results at a time: 16 × 16 threads, each with STEP × STEP of them, DEPTH terms of
// each sum at a time in shared memory. Sums run over k in order.
#define SIDE 64
#define DEPTH 16
#define STEP 4
#define THREADS 16

// fill copies lines of a factor to shared memory, term by term: to[k][i] = element (k0 + k) of line i. at is where the lines
// begin that the thread copies, −1 for those that are not there.
template <class T, class A>
OM_DEVICE void fill(A (*to)[SIDE + 1], const T *from, const om_i64 *at, om_i64 step, om_i64 k0, om_i64 k, int t, bool along) {
	for (int i = 0; i < STEP; i++) {
		int term = along ? t % DEPTH : t / SIDE + i * (DEPTH / STEP), line = along ? t / DEPTH + i * (SIDE / STEP) : t % SIDE;
		A x = 0;
		if (at[along ? i : 0] >= 0 && k0 + term < k)
			x = om_float(from[at[along ? i : 0] + (k0 + term) * step]);
		to[term][line] = x;
	}
}

// activation_of is om_activated, once for a type in the file.
template <class A> static __device__ __noinline__ A activation_of(int act, A x, A a, A b) { return om_activated(act, x, a, b); }

// product computes f(alpha·Σ left·right + bias) + beta·added, f being an activation, for matrices of m × k and k × n.
template <class T, class A>
OM_DEVICE void product(T *out, const T *left, const om_layout &rows, om_i64 left_step, const T *right, const om_layout &batches,
					   om_i64 line, om_i64 right_step, const T *bias, om_i64 bias_step, const T *added, const om_layout &added_view,
					   om_i64 m, om_i64 n, om_i64 k, om_i64 batch, A alpha, A beta, int act, A act_a, A act_b, A (*a)[SIDE + 1],
					   A (*b)[SIDE + 1]) {
	int tx = threadIdx.x, ty = threadIdx.y, t = ty * THREADS + tx;
	bool left_along = left_step == 1, right_along = right_step == 1;
	for (om_i64 z = blockIdx.z; z < batch; z += gridDim.z) {
		const T *matrix = right + om_at(batches, z);
		for (om_i64 top = (om_i64)blockIdx.y * SIDE; top < m; top += (om_i64)gridDim.y * SIDE) {
			om_i64 first = (om_i64)blockIdx.x * SIDE;
			om_i64 left_at[STEP], right_at[STEP];
			for (int i = 0; i < STEP; i++) {
				om_i64 r = top + (left_along ? t / DEPTH + i * (SIDE / STEP) : t % SIDE);
				om_i64 c = first + (right_along ? t / DEPTH + i * (SIDE / STEP) : t % SIDE);
				left_at[i] = r < m ? om_at(rows, z * m + r) : -1;
				right_at[i] = c < n ? c * line : -1;
			}
			A sums[STEP][STEP];
			for (int i = 0; i < STEP; i++)
				for (int j = 0; j < STEP; j++)
					sums[i][j] = 0;
			for (om_i64 k0 = 0; k0 < k; k0 += DEPTH) {
				fill<T, A>(a, left, left_at, left_step, k0, k, t, left_along);
				fill<T, A>(b, matrix, right_at, right_step, k0, k, t, right_along);
				__syncthreads();
#pragma unroll 4
				for (int term = 0; term < DEPTH; term++) {
					A x[STEP], y[STEP];
					for (int i = 0; i < STEP; i++) {
						x[i] = a[term][ty + i * THREADS];
						y[i] = b[term][tx + i * THREADS];
					}
					for (int i = 0; i < STEP; i++)
						for (int j = 0; j < STEP; j++)
							sums[i][j] += x[i] * y[j];
				}
				__syncthreads();
			}
			for (int i = 0; i < STEP; i++) {
				om_i64 r = top + ty + i * THREADS;
				for (int j = 0; j < STEP; j++) {
					om_i64 c = first + tx + j * THREADS;
					if (r >= m || c >= n)
						continue;
					om_i64 at = (z * m + r) * n + c;
					A sum = alpha * sums[i][j];
					if (bias)
						sum += om_float(bias[c * bias_step]);
					if (act != OM_NO_ACTIVATION)
						sum = activation_of(act, sum, act_a, act_b);
					if (added && beta != 0)
						sum += beta * om_float(added[om_at(added_view, at)]);
					om_round(&out[at], sum);
				}
			}
		}
	}
}

// out[z, r, j] = f(alpha·Σ_k left[z, r, k]·right[z, k, j] + bias[j]) + beta·added[z, r, j]. out is contiguous; the others are found
// by views, of which rows has all dimensions of the left one but the last, batches those of the right one but the last two.
#define PRODUCT(suffix, T, A)                                                                                              \
	OM_KERNEL(om_product_##suffix, T *out, const T *left, OM_GIVEN om_layout rows, om_i64 left_step, const T *right, OM_GIVEN om_layout batches,  \
			  om_i64 line, om_i64 right_step, const T *bias, om_i64 bias_step, const T *added, OM_GIVEN om_layout added_view, om_i64 m,  \
			  om_i64 n, om_i64 k, om_i64 batch, A alpha, A beta, int act, A act_a, A act_b) { \
		__shared__ A a[DEPTH][SIDE + 1];                                                                                \
		__shared__ A b[DEPTH][SIDE + 1];                                                                                \
		product<T, A>(out, left, rows, left_step, right, batches, line, right_step, bias, bias_step, added, added_view, m, n, k, \
					  batch, alpha, beta, act, act_a, act_b, a, b); \
	}

// Floats have blocks of their own, and float16 has tensor cores everywhere.
PRODUCT(bf16, om_bf16, float)
PRODUCT(f64, double, double)

// The same of integers, which wrap around, an element a thread.
OM_KERNEL(om_product_i, void *out, const void *left, OM_GIVEN om_layout rows, om_i64 left_step, const void *right, OM_GIVEN om_layout batches,
		  om_i64 line, om_i64 right_step, const void *bias, om_i64 bias_step, const void *added, OM_GIVEN om_layout added_view, int type,
		  om_i64 m, om_i64 n, om_i64 k, om_i64 total, om_i64 alpha, om_i64 beta) {
	OM_EACH(i, total) {
		om_i64 j = i % n, row = i / n;
		om_i64 l = om_at(rows, row), r = om_at(batches, row / m) + j * line;
		om_u64 sum = 0;
		for (om_i64 at = 0; at < k; at++)
			sum += (om_u64)om_load_i(left, l + at * left_step, type) * (om_u64)om_load_i(right, r + at * right_step, type);
		sum *= (om_u64)alpha;
		if (bias)
			sum += (om_u64)om_load_i(bias, j * bias_step, type);
		if (added && beta != 0)
			sum += (om_u64)beta * (om_u64)om_load_i(added, om_at(added_view, i), type);
		om_store_i(out, i, type, (om_i64)sum);
	}
}

// Rows of left in groups that end where ends says, each times its group's matrix; rows after the last are zero.
#define GROUPED(suffix, T, A)                                                                                              \
	OM_KERNEL(om_grouped_##suffix, T *out, const T *left, om_i64 left_line, om_i64 left_step, const T *right, om_i64 matrix,    \
			  om_i64 right_line, om_i64 right_step, const void *ends, om_i64 ends_step, int ends_type, om_i64 groups,         \
			  om_i64 rows, om_i64 n, om_i64 k, int *status, int where) {                                                   \
		OM_EACH(i, rows * n) {                                                                                         \
			om_i64 r = i / n, j = i % n, group = 0, before = 0;                                                       \
			bool good = true;                                                                                         \
			for (om_i64 g = 0; g < groups; g++) {                                                                     \
				om_i64 end = om_load_i(ends, g * ends_step, ends_type);                                               \
				good = good && end >= before && end <= rows;                                                          \
				before = end;                                                                                         \
				group += r >= end;                                                                                    \
			}                                                                                                         \
			if (!good) {                                                                                              \
				om_fail(status, where, OM_BAD_GROUPS);                                                                \
				group = groups;                                                                                       \
			}                                                                                                         \
			A sum = 0;                                                                                                \
			if (group < groups)                                                                                       \
				for (om_i64 at = 0; at < k; at++)                                                                     \
					sum += om_float(left[r * left_line + at * left_step]) *                                           \
						   om_float(right[group * matrix + at * right_line + j * right_step]);                        \
			om_round(&out[i], sum);                                                                                   \
		}                                                                                                             \
	}

OM_REAL(GROUPED)

// The vector product over a dimension of three: outer × 3 × inner.
#define CROSS(suffix, T, A)                                                                                              \
	OM_KERNEL(om_cross_##suffix, T *out, const T *a, OM_GIVEN om_layout a_view, const T *b, OM_GIVEN om_layout b_view, om_i64 inner, om_i64 n) { \
		OM_EACH(i, n) {                                                                                                \
			om_i64 c = i / inner % 3, base = i - c * inner, p = base + (c + 1) % 3 * inner, q = base + (c + 2) % 3 * inner; \
			A x = om_float(a[om_at(a_view, p)]), y = om_float(b[om_at(b_view, q)]);                                     \
			A u = om_float(a[om_at(a_view, q)]), v = om_float(b[om_at(b_view, p)]);                                     \
			om_round(&out[i], x * y - u * v);                                                                          \
		}                                                                                                              \
	}

OM_REAL(CROSS)

OM_KERNEL(om_cross_i, void *out, const void *a, OM_GIVEN om_layout a_view, const void *b, OM_GIVEN om_layout b_view, int type, om_i64 inner, om_i64 n) {
	OM_EACH(i, n) {
		om_i64 c = i / inner % 3, base = i - c * inner, p = base + (c + 1) % 3 * inner, q = base + (c + 2) % 3 * inner;
		om_u64 x = om_load_i(a, om_at(a_view, p), type), y = om_load_i(b, om_at(b_view, q), type);
		om_u64 u = om_load_i(a, om_at(a_view, q), type), v = om_load_i(b, om_at(b_view, p), type);
		om_store_i(out, i, type, (om_i64)(x * y - u * v));
	}
}
