#include "om.h"

// Products of matrices whose factors are rounded to bfloat16 and whose sums are float, a block of SIDE × SIDE results at a
// time. From compute capability 8.0 on tensor cores multiply: parts of DEPTH terms are copied to shared memory as they are,
// the next one while the last one is computed with, and rounded on the way to the registers. Elsewhere each thread goes
// over the terms of its own results.
#define SIDE 64
#define DEPTH 32
// PITCH keeps lines apart so that the threads of half a warp read from different banks.
#define PITCH (DEPTH + 8)
#define THREADS 128
// A warp has TALL × WIDE pieces of 16 × 8 results.
#define TALL 2
#define WIDE 4

// A factor is lines of terms: rows of the left one, columns of the right one. at is where the lines begin that the thread
// copies, −1 for those that are not there.
struct factor {
	const float *from;
	om_i64 step;
	// wide says that four terms lie behind each other and are aligned, wherever they begin at a multiple of four.
	bool wide;
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

// copy_ahead begins to copy terms k0 … of lines to shared memory; those that are not there are zero.
OM_DEVICE void copy_ahead(float (*to)[PITCH], const factor &f, const om_i64 *at, om_i64 k0, om_i64 k, int t) {
	if (f.wide) {
#pragma unroll
		for (int i = 0; i < SIDE * DEPTH / 4 / THREADS; i++) {
			int line = t / (DEPTH / 4) + i * (THREADS / (DEPTH / 4)), term = t % (DEPTH / 4) * 4;
			om_i64 left = at[i] < 0 ? 0 : k - k0 - term;
			int bytes = left >= 4 ? 16 : left > 0 ? (int)left * 4 : 0;
			const float *from = bytes ? f.from + at[i] + k0 + term : f.from;
			asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"l"(__cvta_generic_to_shared(&to[line][term])),
						 "l"(__cvta_generic_to_global(from)), "r"(bytes) : "memory");
		}
		return;
	}
#pragma unroll
	for (int i = 0; i < SIDE * DEPTH / THREADS; i++) {
		int line = t % SIDE, term = t / SIDE + i * (THREADS / SIDE);
		int bytes = at[0] >= 0 && k0 + term < k ? 4 : 0;
		const float *from = bytes ? f.from + at[0] + (k0 + term) * f.step : f.from;
		asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"l"(__cvta_generic_to_shared(&to[line][term])),
					 "l"(__cvta_generic_to_global(from)), "r"(bytes) : "memory");
	}
}

// lines says where the lines that a thread copies begin.
#define LINES(at, f, count, place)                                                                     \
	for (int i = 0; i < 4; i++) {                                                                      \
		om_i64 own = (f).wide ? t / (DEPTH / 4) + i * (THREADS / (DEPTH / 4)) : t % SIDE;              \
		at[i] = own < (count) ? (place) : -1;                                                          \
	}

// pair rounds two terms to a register of two halves, the first one below.
OM_DEVICE om_u32 pair(const float *terms) {
	float2 x = *(const float2 *)terms;
	om_u32 both;
	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(x.y), "f"(x.x));
	return both;
}

OM_DEVICE void multiply(float *sums, const om_u32 *a, const om_u32 *b) {
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
				 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
				 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#else

OM_DEVICE float rounded(float x) {
	om_bf16 half;
	om_round(&half, x);
	return om_float(half);
}

#endif

// out[z, r, j] = f(alpha·Σ_k left[z, r, k]·right[z, k, j] + bias[j]) + beta·added[z, r, j], as in linear.cu.
OM_KERNEL(om_product_narrow, float *out, const float *left, om_layout rows, om_i64 left_step, const float *right, om_layout batches,
		  om_i64 line, om_i64 right_step, const float *bias, om_i64 bias_step, const float *added, om_layout added_view, om_i64 m,
		  om_i64 n, om_i64 k, om_i64 batch, float alpha, float beta, int act, float act_a, float act_b, int left_wide,
		  int right_wide) {
	int t = threadIdx.x, warp = t / 32, lane = t % 32;
	int down = warp / 2 * (TALL * 16) + lane / 4, across = warp % 2 * (WIDE * 8) + lane % 4 * 2;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
	__shared__ __align__(16) float a[2][SIDE][PITCH];
	__shared__ __align__(16) float b[2][SIDE][PITCH];
#endif
	om_i64 first = (om_i64)blockIdx.x * SIDE;
	for (om_i64 z = blockIdx.z; z < batch; z += gridDim.z) {
		const float *matrix = right + om_at(batches, z);
		for (om_i64 top = (om_i64)blockIdx.y * SIDE; top < m; top += (om_i64)gridDim.y * SIDE) {
			float sums[TALL][WIDE][4];
			for (int i = 0; i < TALL; i++)
				for (int j = 0; j < WIDE; j++)
					for (int e = 0; e < 4; e++)
						sums[i][j][e] = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
			factor lefts = {left, left_step, left_wide != 0}, rights = {matrix, right_step, right_wide != 0};
			om_i64 left_at[4], right_at[4];
			LINES(left_at, lefts, m - top, om_at(rows, z * m + top + own))
			LINES(right_at, rights, n - first, (first + own) * line)
			copy_ahead(a[0], lefts, left_at, 0, k, t);
			copy_ahead(b[0], rights, right_at, 0, k, t);
			asm volatile("cp.async.commit_group;" ::: "memory");
			int stage = 0;
			for (om_i64 k0 = 0; k0 < k; k0 += DEPTH, stage ^= 1) {
				if (k0 + DEPTH < k) {
					copy_ahead(a[stage ^ 1], lefts, left_at, k0 + DEPTH, k, t);
					copy_ahead(b[stage ^ 1], rights, right_at, k0 + DEPTH, k, t);
				}
				asm volatile("cp.async.commit_group;" ::: "memory");
				asm volatile("cp.async.wait_group 1;" ::: "memory");
				__syncthreads();
#pragma unroll
				for (int term = 0; term < DEPTH; term += 16) {
					int at = term + lane % 4 * 2;
					om_u32 x[TALL][4], y[WIDE][2];
					for (int i = 0; i < TALL; i++)
						for (int e = 0; e < 4; e++)
							x[i][e] = pair(&a[stage][down + i * 16 + e % 2 * 8][at + e / 2 * 8]);
					for (int j = 0; j < WIDE; j++)
						for (int e = 0; e < 2; e++)
							y[j][e] = pair(&b[stage][warp % 2 * (WIDE * 8) + j * 8 + lane / 4][at + e * 8]);
					for (int i = 0; i < TALL; i++)
						for (int j = 0; j < WIDE; j++)
							multiply(sums[i][j], x[i], y[j]);
				}
				__syncthreads();
			}
#endif
			for (int i = 0; i < TALL; i++)
				for (int j = 0; j < WIDE; j++)
					for (int e = 0; e < 4; e++) {
						om_i64 r = top + down + i * 16 + e / 2 * 8, c = first + across + j * 8 + e % 2;
						if (r >= m || c >= n)
							continue;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ < 800
						const float *x = left + om_at(rows, z * m + r), *y = matrix + c * line;
						for (om_i64 term = 0; term < k; term++)
							sums[i][j][e] += rounded(x[term * left_step]) * rounded(y[term * right_step]);
#endif
						om_i64 at = (z * m + r) * n + c;
						float sum = alpha * sums[i][j][e];
						if (bias)
							sum += bias[c * bias_step];
						sum = om_activated(act, sum, act_a, act_b);
						if (added && beta != 0)
							sum += beta * added[om_at(added_view, at)];
						out[at] = sum;
					}
		}
	}
}
