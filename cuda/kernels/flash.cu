#include "om.h"
#include "wide.h"
#include "attention.h"

// Attention in float of up to 256 columns, a block of queries at a time. The queries stay in shared memory; keys and values
// come through it in tiles of KEYS rows and up to 64 columns, the next of which is on its way in registers while the last one
// is computed with. A thread has EACH queries, 16 apart, and of them every eighth score and groups of four columns.
#define THREADS 128
#define KEYS 32
// P_PITCH keeps rows of weights apart.
#define P_PITCH (KEYS + 4)

// A tile's source: lines of elements from at on.
struct lines {
	const void *from;
	om_i64 at, line, step, columns;
	// wide says that four elements lie behind each other and are aligned, wherever they begin at a multiple of four.
	int wide, type;
};

// fetch begins to bring a tile's elements to registers. Those that are not there are zero; halves stay what they are.
template <int WIDTH> OM_DEVICE void fetch(om_16 *raw, const lines &f, om_i64 row, om_i64 rows, om_i64 column) {
	if (!f.wide)
		return;
#pragma unroll
	for (int i = 0; i < KEYS * WIDTH / 4 / THREADS; i++) {
		int at = threadIdx.x + i * THREADS, r = at / (WIDTH / 4), c = at % (WIDTH / 4) * 4;
		om_16 x = {0, 0, 0, 0};
		if (row + r < rows && column + c < f.columns) {
			om_i64 place = f.at + (row + r) * f.line + column + c;
			if (f.type == OM_F32) {
				x = *(const om_16 *)((const float *)f.from + place);
			} else {
				om_8 halves = *(const om_8 *)((const om_u16 *)f.from + place);
				x.x = halves.x;
				x.y = halves.y;
			}
		}
		raw[i] = x;
	}
}

// settle writes a tile that was fetched to shared memory, or brings one that is not wide there.
template <int WIDTH>
OM_DEVICE void settle(float *tile, const om_16 *raw, const lines &f, om_i64 row, om_i64 rows, om_i64 column) {
	if (f.wide) {
#pragma unroll
		for (int i = 0; i < KEYS * WIDTH / 4 / THREADS; i++) {
			int at = threadIdx.x + i * THREADS, r = at / (WIDTH / 4), c = at % (WIDTH / 4) * 4;
			om_16 x = raw[i];
			if (f.type != OM_F32) {
				om_16 both = x;
				x.x = om_float_bits(om_below(both.x, f.type));
				x.y = om_float_bits(om_above(both.x, f.type));
				x.z = om_float_bits(om_below(both.y, f.type));
				x.w = om_float_bits(om_above(both.y, f.type));
			}
			*(om_16 *)&tile[r * (WIDTH + 4) + c] = x;
		}
		return;
	}
#pragma unroll 2
	for (int at = threadIdx.x; at < KEYS * WIDTH; at += THREADS) {
		om_i64 r = row + at / WIDTH, c = column + at % WIDTH;
		float x = 0;
		if (r < rows && c < f.columns)
			x = om_load_f(f.from, f.at + r * f.line + c * f.step, f.type);
		tile[at / WIDTH * (WIDTH + 4) + at % WIDTH] = x;
	}
}

// four reads aligned floats.
OM_DEVICE void four(float *x, const float *from) {
	om_16 bits = *(const om_16 *)from;
	x[0] = om_bits_float(bits.x);
	x[1] = om_bits_float(bits.y);
	x[2] = om_bits_float(bits.z);
	x[3] = om_bits_float(bits.w);
}

// What a mask of truths is among numbers to add where it hides a key: no arithmetic gives these bits.
#define UNSEEN 0x7fffffffu

// bring_mask brings a warp's part of the mask to where its weights will be. Rows of a warp are 16 apart in fours.
template <int EACH>
OM_DEVICE void bring_mask(float *weights, const void *mask, om_i64 mask_at, int type, const om_attention &s, om_i64 top,
						  om_i64 key) {
	int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll 2
	for (int i = 0; i < 4 * EACH; i++) {
		int r = warp * 4 + i % 4 + i / 4 * 16;
		float x = 0;
		if (top + r < s.queries && key + lane < s.keys) {
			om_i64 at = mask_at + (top + r) * s.mask_line + (key + lane) * s.mask_step;
			if (type != OM_BOOL)
				x = om_load_f(mask, at, type);
			else if (!((const om_u8 *)mask)[at])
				x = om_bits_float(UNSEEN);
		}
		weights[r * P_PITCH + lane] = x;
	}
}

// weigh adds a tile of values, each by its key's weight, to the sums of columns from SIDE·WIDTH on.
template <int EACH, int COLUMNS, int WIDTH, int SIDE>
OM_DEVICE void weigh(float (*sums)[COLUMNS / 8], const float *x_at, const float *y_at, om_i64 values) {
#ifdef __CUDA_ARCH__ // without a difference between them the sides are made one, and its sums get no registers
	if (SIDE == 1)
		asm volatile("// the second side");
	if (SIDE == 2)
		asm volatile("// the third side");
	if (SIDE == 3)
		asm volatile("// the fourth side");
#endif
#pragma unroll 1
	for (int key = 0; key < KEYS; key += 4) {
		float x[EACH][4], y[4];
#pragma unroll
		for (int i = 0; i < EACH; i++)
			four(x[i], &x_at[16 * i * P_PITCH + key]);
#pragma unroll
		for (int j = 0; j < WIDTH / 32; j++) {
			if (SIDE * WIDTH + 32 * j >= values)
				break;
#pragma unroll
			for (int l = 0; l < 4; l++) {
				four(y, &y_at[(key + l) * (WIDTH + 4) + 32 * j]);
#pragma unroll
				for (int i = 0; i < EACH; i++)
#pragma unroll
					for (int c = 0; c < 4; c++)
						sums[i][(SIDE * WIDTH / 32 + j) * 4 + c] += x[i][l] * y[c];
			}
		}
	}
}

// COLUMNS bounds the widths of queries and values; WIDTH is that of a tile.
template <int EACH, int COLUMNS, int WIDTH>
OM_DEVICE void flash(void *out, float *also, const void *q, const om_layout &q_batches, lines k, const om_layout &k_batches,
					 lines v, const om_layout &v_batches, const void *mask, const om_layout &mask_batches, int type,
					 int mask_type, const om_attention &s, float scale, float *q_tile, float *tile, float *weights) {
	const int ROWS = 16 * EACH, PITCH = COLUMNS + 4;
	const float below = -OM_INF;
	int t = threadIdx.x, mine = t / 8, part = t % 8;
	om_i64 tops = (s.queries + ROWS - 1) / ROWS;
	int deep = (int)((s.width + WIDTH - 1) / WIDTH), steps = deep + (int)((s.values + WIDTH - 1) / WIDTH);
	// Of causal ones the last queries see the most keys, and go first.
	om_i64 unit = blockIdx.x, z = unit / tops, top = (tops - 1 - unit % tops) * ROWS;
	om_i64 q_at = om_at(q_batches, z), mask_at = mask ? om_at(mask_batches, z) : 0;
	k.at = om_at(k_batches, z);
	v.at = om_at(v_batches, z);
	om_i64 end = s.causal && top + ROWS < s.keys ? top + ROWS : s.keys;
#pragma unroll 2
	for (int at = t; at < ROWS * COLUMNS; at += THREADS) {
		om_i64 r = top + at / COLUMNS, e = at % COLUMNS;
		float x = 0;
		if (r < s.queries && e < s.width)
			x = om_load_f(q, q_at + r * s.q_line + e * s.q_step, type);
		q_tile[at / COLUMNS * PITCH + at % COLUMNS] = x;
	}
	float sums[EACH][COLUMNS / 8], score[EACH][4], most[EACH], total[EACH];
#pragma unroll
	for (int i = 0; i < EACH; i++) {
		most[i] = below;
		total[i] = 0;
#pragma unroll
		for (int j = 0; j < COLUMNS / 8; j++)
			sums[i][j] = 0;
#pragma unroll
		for (int j = 0; j < 4; j++)
			score[i][j] = 0;
	}
	// Tiles go through one place: of keys, then of their values, then of the next keys.
	om_16 raw[KEYS * WIDTH / 4 / THREADS];
	lines next = k;
	om_i64 first = 0, next_first = 0;
	int step = 0, next_step = 0;
#pragma unroll 1
	for (bool begun = false; first < end; begun = true) {
		if (begun) {
			__syncthreads();
			settle<WIDTH>(tile, raw, next, first, end, (step < deep ? step : step - deep) * WIDTH);
			__syncthreads();
			if (++next_step == steps) {
				next_step = 0;
				next_first += KEYS;
			}
			next = next_step < deep ? k : v;
		}
		fetch<WIDTH>(raw, next, next_first, end, (next_step < deep ? next_step : next_step - deep) * WIDTH);
		if (!begun)
			continue;
		if (step < deep) {
			const float *x_at = &q_tile[mine * PITCH + step * WIDTH], *y_at = &tile[part * (WIDTH + 4)];
			int left = (int)s.width - step * WIDTH; // what lies behind is zero
#pragma unroll 1
			for (int e = 0; e < WIDTH && e < left; e += 4) {
				float x[EACH][4], y[4];
#pragma unroll
				for (int i = 0; i < EACH; i++)
					four(x[i], &x_at[16 * i * PITCH + e]);
#pragma unroll
				for (int j = 0; j < 4; j++) {
					four(y, &y_at[8 * j * (WIDTH + 4) + e]);
#pragma unroll
					for (int i = 0; i < EACH; i++)
#pragma unroll
						for (int l = 0; l < 4; l++)
							score[i][j] += x[i][l] * y[l];
				}
			}
		} else {
			const float *x_at = &weights[mine * P_PITCH], *y_at = &tile[part * 4];
			int side = step - deep;
			if (side == 0)
				weigh<EACH, COLUMNS, WIDTH, 0>(sums, x_at, y_at, s.values);
			if constexpr (COLUMNS / WIDTH == 4) {
				if (side == 1)
					weigh<EACH, COLUMNS, WIDTH, 1>(sums, x_at, y_at, s.values);
				else if (side == 2)
					weigh<EACH, COLUMNS, WIDTH, 2>(sums, x_at, y_at, s.values);
				else if (side == 3)
					weigh<EACH, COLUMNS, WIDTH, 3>(sums, x_at, y_at, s.values);
			}
		}
		if (step == deep - 1) { // the scores are complete
			if (mask) {
				__syncwarp();
				bring_mask<EACH>(weights, mask, mask_at, mask_type, s, top, first);
			}
			__syncwarp(); // what a query has there is read and written by its warp, and by no other
#pragma unroll
			for (int i = 0; i < EACH; i++) {
				int r = (int)(s.queries - top) > mine + 16 * i ? mine + 16 * i : -1;
				int seen = s.causal ? (int)(top - first) + r : KEYS;
				float larger = most[i], sum = 0;
#pragma unroll
				for (int j = 0; j < 4; j++) {
					int key = part + 8 * j;
					float x = below, more = mask ? weights[(mine + 16 * i) * P_PITCH + key] : 0;
					if (r >= 0 && key <= seen && key < (int)(end - first) && om_float_bits(more) != UNSEEN)
						x = score[i][j] * scale + more;
					score[i][j] = x;
					larger = fmaxf(larger, x);
				}
				for (int apart = 4; apart > 0; apart /= 2)
					larger = fmaxf(larger, __shfl_xor_sync(0xffffffffu, larger, apart));
#pragma unroll
				for (int j = 0; j < 4; j++) {
					float weight = score[i][j] == below ? 0.0f : expf(score[i][j] - larger);
					weights[(mine + 16 * i) * P_PITCH + part + 8 * j] = weight;
					sum += weight;
					score[i][j] = 0;
				}
				float keep = most[i] == below ? 0.0f : expf(most[i] - larger);
				most[i] = larger;
				total[i] = total[i] * keep + sum;
#pragma unroll
				for (int j = 0; j < COLUMNS / 8; j++)
					sums[i][j] *= keep;
			}
			__syncwarp();
		}
		first = next_first;
		step = next_step;
	}
#pragma unroll
	for (int i = 0; i < EACH; i++) {
		om_i64 r = top + mine + 16 * i;
		for (int apart = 4; apart > 0; apart /= 2)
			total[i] += __shfl_xor_sync(0xffffffffu, total[i], apart);
		float inverse = total[i] == 0 ? 0.0f : 1.0f / total[i];
		if (total[i] == 0 && s.unseen_nan && s.keys > 0)
			inverse = OM_NAN;
		if (also && part == 0 && r < s.queries)
			also[z * s.queries + r] = total[i] == 0 ? 0.0f : most[i] + logf(total[i]);
		// The warp's own queries are not needed any more: what came out of them takes their place, to be written in order.
#pragma unroll
		for (int j = 0; j < COLUMNS / 8; j++)
			q_tile[(mine + 16 * i) * PITCH + j / 4 * 32 + part * 4 + j % 4] = sums[i][j] * inverse;
	}
	__syncwarp();
#pragma unroll 1
	for (int at = t % 32; at < 4 * EACH * COLUMNS; at += 32) {
		int r = t / 32 * 4 + at / COLUMNS % 4 + at / COLUMNS / 4 * 16, c = at % COLUMNS;
		if (top + r < s.queries && c < s.values)
			om_store_f(out, (z * s.queries + top + r) * s.values + c, type, q_tile[r * PITCH + c]);
	}
}

#define FLASH(COLUMNS, EACH, WIDTH)                                                                                         \
	OM_KERNEL(om_flash_##COLUMNS, void *out, float *also, const void *q, OM_GIVEN om_layout q_batches, const void *k, OM_GIVEN om_layout k_batches, \
			  const void *v, OM_GIVEN om_layout v_batches, const void *mask, OM_GIVEN om_layout mask_batches, int type, int mask_type,              \
			  OM_GIVEN om_attention s, float scale, int k_wide, int v_wide) {                                                        \
		__shared__ __align__(16) float q_tile[16 * EACH * (COLUMNS + 4)];                                                     \
		__shared__ __align__(16) float tile[KEYS * (WIDTH + 4)];                                                              \
		__shared__ __align__(16) float weights[16 * EACH * P_PITCH];                                                          \
		lines keys = {k, 0, s.k_line, s.k_step, s.width, k_wide, type}, columns = {v, 0, s.v_line, s.v_step, s.values, v_wide, type}; \
		flash<EACH, COLUMNS, WIDTH>(out, also, q, q_batches, keys, k_batches, columns, v_batches, mask, mask_batches, type,       \
									mask_type, s, scale, q_tile, tile, weights);                                            \
	}
FLASH(64, 4, 64)
FLASH(128, 2, 128)
FLASH(256, 2, 64)
