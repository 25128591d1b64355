#include "om.h"

#define TILE 16

// out[r, j] = Σ_k x[r, k]·w[j, k] + bias[j], a block of TILE × TILE results at a time. Rows of x are found by a view whose
// last dimension is left out; out is contiguous. bias is null where there is none.
#define LINEAR(suffix, T, A)                                                                           \
	OM_KERNEL(om_linear_##suffix, T *out, const T *x, om_layout rows, om_i64 x_step, const T *w,        \
			  om_i64 w_line, om_i64 w_step, const T *bias, om_i64 bias_step, om_i64 m, om_i64 n, om_i64 k) { \
		__shared__ A left[TILE][TILE + 1];                                                            \
		__shared__ A right[TILE][TILE + 1];                                                           \
		int tx = threadIdx.x, ty = threadIdx.y;                                                       \
		om_i64 column = (om_i64)blockIdx.x * TILE + tx, line = (om_i64)blockIdx.x * TILE + ty;         \
		for (om_i64 top = (om_i64)blockIdx.y * TILE; top < m; top += (om_i64)gridDim.y * TILE) {       \
			om_i64 row = top + ty;                                                                    \
			om_i64 first = row < m ? om_at(rows, row) : 0;                                            \
			A sum = 0;                                                                                \
			for (om_i64 at = 0; at < k; at += TILE) {                                                 \
				om_i64 c = at + tx;                                                                   \
				left[ty][tx] = row < m && c < k ? om_float(x[first + c * x_step]) : (A)0;              \
				right[ty][tx] = line < n && c < k ? om_float(w[line * w_line + c * w_step]) : (A)0;    \
				__syncthreads();                                                                      \
				for (int i = 0; i < TILE; i++)                                                        \
					sum += left[ty][i] * right[tx][i];                                                \
				__syncthreads();                                                                      \
			}                                                                                         \
			if (row < m && column < n) {                                                              \
				if (bias)                                                                             \
					sum += om_float(bias[column * bias_step]);                                        \
				om_round(&out[row * n + column], sum);                                                \
			}                                                                                         \
		}                                                                                             \
	}

OM_REAL(LINEAR)
