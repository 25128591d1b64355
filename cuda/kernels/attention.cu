#include "om.h"
#include "wide.h"
#include "attention.h"

// Attention of any size, of doubles, and what an op may want besides: flash.cu and decode.cu have what is faster and takes
// less. One pass over the keys: a block of four warps takes ROWS queries of one matrix and up to COLUMNS of the values'
// columns, goes over the keys in tiles, and scales what it has summed whenever a larger score turns up. Each warp has four
// queries, each of its lanes a key of the tile, then some columns.
#define THREADS 128
#define ROWS 16
#define EACH (ROWS / 4)
#define KEYS 32
#define DEPTH 32

template <class A, int COLUMNS>
OM_DEVICE void attention(void *out, void *also, const void *q, const om_layout &q_batches, const void *k,
						 const om_layout &k_batches, const void *v, const om_layout &v_batches, const void *mask,
						 const om_layout &mask_batches, int type, int mask_type, const om_attention &s, A scale,
						 A (*q_tile)[DEPTH + 1], A (*k_tile)[DEPTH + 1], A (*v_tile)[COLUMNS], A (*weights)[KEYS]) {
	const A below = -(A)OM_INF;
	int t = threadIdx.x, lane = t % 32, warp = t / 32;
	om_i64 tops = (s.queries + ROWS - 1) / ROWS, sides = s.values > COLUMNS ? (s.values + COLUMNS - 1) / COLUMNS : 1;
	for (om_i64 unit = blockIdx.x; unit < s.batch * tops * sides; unit += gridDim.x) {
		om_i64 side = unit % sides * COLUMNS, top = unit / sides % tops * ROWS, z = unit / sides / tops;
		om_i64 q_at = om_at(q_batches, z), k_at = om_at(k_batches, z), v_at = om_at(v_batches, z);
		om_i64 mask_at = mask ? om_at(mask_batches, z) : 0;
		A sums[EACH][COLUMNS / 32], most[EACH], total[EACH];
		for (int i = 0; i < EACH; i++) {
			most[i] = below;
			total[i] = 0;
			for (int j = 0; j < COLUMNS / 32; j++)
				sums[i][j] = 0;
		}
		om_i64 end = s.causal && top + ROWS < s.keys ? top + ROWS : s.keys;
		for (om_i64 first = 0; first < end; first += KEYS) {
			A score[EACH];
			for (int i = 0; i < EACH; i++)
				score[i] = 0;
			__syncthreads();
			for (om_i64 e0 = 0; e0 < s.width; e0 += DEPTH) {
				for (int at = t; at < ROWS * DEPTH; at += THREADS) {
					om_i64 r = top + at / DEPTH, e = e0 + at % DEPTH;
					A x = 0;
					if (r < s.queries && e < s.width)
						om_load(&x, q, q_at + r * s.q_line + e * s.q_step, type);
					q_tile[at / DEPTH][at % DEPTH] = x;
				}
				for (int at = t; at < KEYS * DEPTH; at += THREADS) {
					om_i64 r = first + at / DEPTH, e = e0 + at % DEPTH;
					A x = 0;
					if (r < s.keys && e < s.width)
						om_load(&x, k, k_at + r * s.k_line + e * s.k_step, type);
					k_tile[at / DEPTH][at % DEPTH] = x;
				}
				__syncthreads();
#pragma unroll 8
				for (int e = 0; e < DEPTH; e++) {
					A y = k_tile[lane][e];
					for (int i = 0; i < EACH; i++)
						score[i] += q_tile[warp + 4 * i][e] * y;
				}
				__syncthreads();
			}
			for (int at = t; at < KEYS * COLUMNS; at += THREADS) {
				om_i64 r = first + at / COLUMNS, c = side + at % COLUMNS;
				A x = 0;
				if (r < s.keys && c < s.values)
					om_load(&x, v, v_at + r * s.v_line + c * s.v_step, type);
				v_tile[at / COLUMNS][at % COLUMNS] = x;
			}
			om_i64 key = first + lane;
			for (int i = 0; i < EACH; i++) {
				om_i64 r = top + warp + 4 * i;
				A x = below;
				if (key < s.keys && r < s.queries && (!s.causal || key <= r)) {
					x = score[i] * scale;
					if (mask)
						x = om_masked(x, mask, mask_at + r * s.mask_line + key * s.mask_step, mask_type);
				}
				A larger = fmax(most[i], om_warp_most(x));
				A weight = x == below ? (A)0 : (A)exp(x - larger);
				A keep = most[i] == below ? (A)0 : (A)exp(most[i] - larger);
				most[i] = larger;
				total[i] = total[i] * keep + om_warp_sum(weight);
				for (int j = 0; j < COLUMNS / 32; j++)
					sums[i][j] *= keep;
				weights[warp + 4 * i][lane] = weight;
			}
			__syncthreads();
#pragma unroll 4
			for (int key = 0; key < KEYS; key++) {
				A weight[EACH];
				for (int i = 0; i < EACH; i++)
					weight[i] = weights[warp + 4 * i][key];
				for (int j = 0; j < COLUMNS / 32; j++) {
					A y = v_tile[key][lane + 32 * j];
					for (int i = 0; i < EACH; i++)
						sums[i][j] += weight[i] * y;
				}
			}
		}
		for (int i = 0; i < EACH; i++) {
			om_i64 r = top + warp + 4 * i, row = z * s.queries + r;
			if (r >= s.queries)
				continue;
			A inverse = total[i] == 0 ? (A)0 : (A)1 / total[i];
			if (total[i] == 0 && s.unseen_nan && s.keys > 0)
				inverse = (A)OM_NAN;
			for (int j = 0; j < COLUMNS / 32; j++)
				if (side + lane + 32 * j < s.values)
					om_store(out, row * s.values + side + lane + 32 * j, type, sums[i][j] * inverse);
			if (also && side == 0 && lane == 0)
				om_store(also, row, type == OM_F64 ? OM_F64 : OM_F32, total[i] == 0 ? (A)0 : most[i] + (A)log(total[i]));
		}
	}
}

// A column more for each thread costs it a register for each of its queries.
#define ATTENTION(suffix, A, COLUMNS)                                                                                        \
	OM_KERNEL(om_attention_##suffix, void *out, void *also, const void *q, OM_GIVEN om_layout q_batches, const void *k,                    \
			  OM_GIVEN om_layout k_batches, const void *v, OM_GIVEN om_layout v_batches, const void *mask, OM_GIVEN om_layout mask_batches, int type,        \
			  int mask_type, OM_GIVEN om_attention s, A scale) {                                                                   \
		__shared__ A q_tile[ROWS][DEPTH + 1];                                                                            \
		__shared__ A k_tile[KEYS][DEPTH + 1];                                                                            \
		__shared__ A v_tile[KEYS][COLUMNS];                                                                              \
		__shared__ A weights[ROWS][KEYS];                                                                                \
		attention<A, COLUMNS>(out, also, q, q_batches, k, k_batches, v, v_batches, mask, mask_batches, type, mask_type, s, scale, \
							  q_tile, k_tile, v_tile, weights);                                                          \
	}
ATTENTION(f32, float, 128)
ATTENTION(f64, double, 64)

// The weights themselves, a warp a query: its scores are computed twice.
template <class A>
OM_DEVICE A score_of(const void *q, om_i64 q_at, const void *k, om_i64 k_at, const void *mask, om_i64 mask_at, int type,
					 int mask_type, const om_attention &s, A scale) {
	A sum = 0, x, y;
	for (om_i64 e = 0; e < s.width; e++) {
		om_load(&x, q, q_at + e * s.q_step, type);
		om_load(&y, k, k_at + e * s.k_step, type);
		sum += x * y;
	}
	sum *= scale;
	return mask ? om_masked(sum, mask, mask_at, mask_type) : sum;
}

template <class A>
OM_DEVICE void attention_weights(void *out, const void *q, const om_layout &q_batches, const void *k, const om_layout &k_batches,
								 const void *mask, const om_layout &mask_batches, int type, int mask_type,
								 const om_attention &s, A scale) {
	const A below = -(A)OM_INF;
	int lane = threadIdx.x % 32;
	om_i64 warps = (om_i64)gridDim.x * (blockDim.x / 32);
	for (om_i64 row = (om_i64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; row < s.batch * s.queries; row += warps) {
		om_i64 z = row / s.queries, r = row % s.queries;
		om_i64 q_at = om_at(q_batches, z) + r * s.q_line, k_at = om_at(k_batches, z);
		om_i64 mask_at = mask ? om_at(mask_batches, z) + r * s.mask_line : 0;
		om_i64 end = s.causal && r + 1 < s.keys ? r + 1 : s.keys;
		A most = below, total = 0;
		for (om_i64 key = lane; key < end; key += 32) {
			A x = score_of<A>(q, q_at, k, k_at + key * s.k_line, mask, mask_at + key * s.mask_step, type, mask_type, s, scale);
			A larger = fmax(most, x);
			total = (most == below ? (A)0 : total * (A)exp(most - larger)) + (x == below ? (A)0 : (A)exp(x - larger));
			most = larger;
		}
		A larger = om_warp_most(most);
		total = om_warp_sum(most == below ? total : total * (A)exp(most - larger));
		for (om_i64 key = lane; key < s.keys; key += 32) {
			A weight = 0;
			if (key < end && total == 0)
				weight = s.unseen_nan ? (A)OM_NAN : (A)0;
			else if (key < end) {
				A x = score_of<A>(q, q_at, k, k_at + key * s.k_line, mask, mask_at + key * s.mask_step, type, mask_type, s, scale);
				weight = (x == below ? (A)0 : (A)exp(x - larger)) / total;
			}
			om_store(out, row * s.keys + key, type, weight);
		}
	}
}

#define WEIGHTS(suffix, A)                                                                                                   \
	OM_KERNEL(om_attention_weights_##suffix, void *out, const void *q, OM_GIVEN om_layout q_batches, const void *k, OM_GIVEN om_layout k_batches,     \
			  const void *mask, OM_GIVEN om_layout mask_batches, int type, int mask_type, OM_GIVEN om_attention s, A scale) {                    \
		attention_weights<A>(out, q, q_batches, k, k_batches, mask, mask_batches, type, mask_type, s, scale);               \
	}
WEIGHTS(f32, float)
WEIGHTS(f64, double)
