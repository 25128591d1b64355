#include "om.h"
#include "wide.h"
#include "attention.h"

// Attention of few queries over many keys, in float: blocks share the keys of a matrix between them, each for up to ROWS
// queries, and a second launch puts together what they found, always in the same order. Keys and values are read from memory
// once, eight elements to a thread.
#define THREADS 128
#define WARPS (THREADS / 32)
// CHUNK keys have their scores in shared memory at a time.
#define CHUNK 128

// MOST bounds the widths of queries and values, which are multiples of eight.
#define MOST 256

// A split's findings for a query are the sums of its values, the largest score, and the sum of the weights relative to that.
// k_lanes and v_lanes threads, powers of two, share a line of keys and of values.
template <int ROWS>
OM_DEVICE void split(float *found, const void *q, const om_layout &q_batches, const void *k, const om_layout &k_batches,
					 const void *v, const om_layout &v_batches, const void *mask, const om_layout &mask_batches, int type,
					 int mask_type, const om_attention &s, float scale, int k_lanes, int v_lanes, om_i64 splits,
					 om_i64 each, float (*queries)[MOST], float (*weights)[CHUNK], float *keeps) {
	const float below = -OM_INF;
	int t = threadIdx.x, lane = t % 32, warp = t / 32;
	om_i64 tops = (s.queries + ROWS - 1) / ROWS;
	om_i64 unit = blockIdx.x, part = unit % splits, top = unit / splits % tops * ROWS, z = unit / splits / tops;
	om_i64 q_at = om_at(q_batches, z), k_at = om_at(k_batches, z), v_at = om_at(v_batches, z);
	om_i64 mask_at = mask ? om_at(mask_batches, z) : 0;
	om_i64 from = part * each, to = from + each < s.keys ? from + each : s.keys;
	int e = t % k_lanes * 8, c = t % v_lanes * 8;
	float query[ROWS][8], sums[ROWS][8];
	float most[(ROWS + WARPS - 1) / WARPS], total[(ROWS + WARPS - 1) / WARPS];
#pragma unroll 1
	for (int at = t; at < ROWS * MOST; at += THREADS) {
		om_i64 r = top + at / MOST, column = at % MOST;
		bool there = r < s.queries && column < s.width;
		queries[at / MOST][at % MOST] = there ? om_load_f(q, q_at + r * s.q_line + column * s.q_step, type) : 0;
	}
	__syncthreads();
#pragma unroll
	for (int i = 0; i < ROWS; i++)
#pragma unroll
		for (int j = 0; j < 8; j++) {
			query[i][j] = queries[i][e + j];
			sums[i][j] = 0;
		}
#pragma unroll
	for (int i = 0; i < (ROWS + WARPS - 1) / WARPS; i++) {
		most[i] = below;
		total[i] = 0;
	}
	for (om_i64 first = from; first < to; first += CHUNK) {
		int here = (int)(to - first < CHUNK ? to - first : CHUNK);
		__syncthreads();
#pragma unroll 2
		for (int key = t / k_lanes; key < CHUNK; key += THREADS / k_lanes) { // all of a warp go on: they exchange sums
			float x[8] = {}, score[ROWS];
			if (key < here && e < s.width)
				om_load_8(x, k, k_at + (first + key) * s.k_line + e, type);
#pragma unroll
			for (int i = 0; i < ROWS; i++) {
				score[i] = 0;
#pragma unroll
				for (int j = 0; j < 8; j++)
					score[i] += query[i][j] * x[j];
			}
			// With each exchange a lane gives away half of its queries, until it has one.
			int apart = k_lanes / 2, row = 0;
#pragma unroll
			for (int n = ROWS / 2; n > 0; n /= 2, apart /= 2) {
				bool upper = (t & apart) != 0;
				row += upper ? n : 0;
#pragma unroll
				for (int i = 0; i < n; i++) {
					float given = upper ? score[i] : score[i + n], kept = upper ? score[i + n] : score[i];
					score[i] = kept + __shfl_xor_sync(0xffffffffu, given, apart);
				}
			}
			int rest = apart;
			for (; apart > 0; apart /= 2)
				score[0] += __shfl_xor_sync(0xffffffffu, score[0], apart);
			if (rest == 0 || (t & (2 * rest - 1)) == 0) {
				float y = below;
				if (key < here && top + row < s.queries) {
					y = score[0] * scale;
					if (mask)
						y = om_masked(y, mask, mask_at + (top + row) * s.mask_line + (first + key) * s.mask_step, mask_type);
				}
				weights[row][key] = y;
			}
		}
		__syncthreads();
#pragma unroll
		for (int i = 0; i < (ROWS + WARPS - 1) / WARPS; i++) {
			int row = warp + i * WARPS;
			if (row >= ROWS)
				break;
			float score[CHUNK / 32], larger = most[i], sum = 0;
#pragma unroll
			for (int j = 0; j < CHUNK / 32; j++) {
				score[j] = weights[row][lane + 32 * j];
				larger = fmaxf(larger, score[j]);
			}
			larger = om_warp_most(larger);
#pragma unroll
			for (int j = 0; j < CHUNK / 32; j++) {
				float weight = score[j] == below ? 0.0f : expf(score[j] - larger);
				weights[row][lane + 32 * j] = weight;
				sum += weight;
			}
			float keep = most[i] == below ? 0.0f : expf(most[i] - larger);
			most[i] = larger;
			total[i] = total[i] * keep + sum;
			if (lane == 0)
				keeps[row] = keep;
		}
		__syncthreads();
#pragma unroll
		for (int i = 0; i < ROWS; i++) {
			float keep = keeps[i];
#pragma unroll
			for (int j = 0; j < 8; j++)
				sums[i][j] *= keep;
		}
#pragma unroll 2
		for (int key = t / v_lanes; key < here && c < s.values; key += THREADS / v_lanes) {
			float x[8];
			om_load_8(x, v, v_at + (first + key) * s.v_line + c, type);
#pragma unroll
			for (int i = 0; i < ROWS; i++) {
				float weight = weights[i][key];
#pragma unroll
				for (int j = 0; j < 8; j++)
					sums[i][j] += weight * x[j];
			}
		}
	}
	// Threads with the same columns add up, first those of a warp, then warp by warp.
#pragma unroll 1
	for (int apart = 16; apart >= v_lanes; apart /= 2)
#pragma unroll
		for (int i = 0; i < ROWS; i++)
#pragma unroll
			for (int j = 0; j < 8; j++)
				sums[i][j] += __shfl_xor_sync(0xffffffffu, sums[i][j], apart);
#pragma unroll 1
	for (int turn = 0; turn < WARPS; turn++) {
		__syncthreads();
		if (warp == turn && lane < v_lanes)
#pragma unroll
			for (int i = 0; i < ROWS; i++)
#pragma unroll
				for (int j = 0; j < 8; j++)
					queries[i][c + j] = sums[i][j] + (turn == 0 ? 0.0f : queries[i][c + j]);
	}
	__syncthreads();
	int rows = s.queries - top < ROWS ? (int)(s.queries - top) : ROWS, pitch = (int)s.values + 2;
	float *noted = found + (z * s.queries + top) * splits * pitch + part * pitch;
#pragma unroll 1
	for (int at = t; at < rows * MOST; at += THREADS)
		if (at % MOST < s.values)
			noted[at / MOST * splits * pitch + at % MOST] = queries[at / MOST][at % MOST];
#pragma unroll
	for (int i = 0; i < (ROWS + WARPS - 1) / WARPS; i++) {
		int row = warp + i * WARPS;
		float all = om_warp_sum(total[i]);
		if (row < rows && lane == 0) {
			noted[row * splits * pitch + s.values] = most[i];
			noted[row * splits * pitch + s.values + 1] = all;
		}
	}
}

#define SPLIT(ROWS)                                                                                                        \
	OM_KERNEL(om_attention_split_##ROWS, float *found, const void *q, OM_GIVEN om_layout q_batches, const void *k, OM_GIVEN om_layout k_batches,    \
			  const void *v, OM_GIVEN om_layout v_batches, const void *mask, OM_GIVEN om_layout mask_batches, int type, int mask_type,              \
			  OM_GIVEN om_attention s, float scale, int k_lanes, int v_lanes, om_i64 splits, om_i64 each) {                              \
		__shared__ float queries[ROWS][MOST];                                                                               \
		__shared__ float weights[ROWS][CHUNK];                                                                              \
		__shared__ float keeps[ROWS];                                                                                       \
		split<ROWS>(found, q, q_batches, k, k_batches, v, v_batches, mask, mask_batches, type, mask_type, s, scale,               \
					k_lanes, v_lanes, splits, each, queries, weights, keeps);                                         \
	}
SPLIT(1)
SPLIT(8)

// om_attention_join gives the queries' results: a block for each.
OM_KERNEL(om_attention_join, void *out, float *also, const float *found, int type, om_i64 rows, om_i64 splits, om_i64 values,
		  int unseen_nan) {
	for (om_i64 row = blockIdx.x; row < rows; row += gridDim.x) {
		const float *from = found + row * splits * (values + 2);
		float most = -OM_INF, total = 0;
		#pragma unroll 1
		for (om_i64 i = 0; i < splits; i++)
			most = fmaxf(most, from[i * (values + 2) + values]);
		#pragma unroll 1
		for (om_i64 i = 0; i < splits; i++)
			if (from[i * (values + 2) + values + 1] != 0)
				total += from[i * (values + 2) + values + 1] * expf(from[i * (values + 2) + values] - most);
		float inverse = total == 0 ? (unseen_nan ? OM_NAN : 0.0f) : 1.0f / total;
		for (om_i64 c = threadIdx.x; c < values; c += blockDim.x) {
			float sum = 0;
			#pragma unroll 1
		for (om_i64 i = 0; i < splits; i++) {
				float top = from[i * (values + 2) + values];
				if (top != -OM_INF)
					sum += from[i * (values + 2) + c] * expf(top - most);
			}
			om_store_f(out, row * values + c, type, sum * inverse);
		}
		if (also && threadIdx.x == 0)
			also[row] = total == 0 ? 0.0f : most + logf(total);
	}
}
