// Attention by tensor cores: products of bfloat16 or half precision, sums and softmax in float, for operands of those dtypes and, in
// bfloat16, for floats that may be rounded. A warp has sixteen queries in registers; keys and their values come through shared
// memory, KEYS at a time, the one while the other is computed with. What a warp's scores are made into are, as they lie in its
// registers, the left factor of the product with the values; on 7.0 lanes exchange them before. What is compiled for the host gives
// the same within rounding. GPUs before compute capability 8.0 have it for half precision and heads of up to 128 columns alone.
// Included after om.h, wide.h, attention.h and pieces.h.
#define THREADS 128
#define QUERIES 64

// A matrix of queries, keys or values. Its lines are aligned, their elements behind each other, and columns a multiple of
// eight.
struct lines {
	const void *from;
	om_i64 at, line, columns;
	int type;
};

#ifdef __CUDA_ARCH__

#if __CUDA_ARCH__ >= 800

// pair_of rounds two floats to a word of two halves, the first one below.
template <bool BRAIN> OM_DEVICE om_u32 pair_of(float low, float high) {
	om_u32 both;
	if (BRAIN)
		asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
	else
		asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
	return both;
}

// end_bringing ends what is brought, await_brought waits for it.
OM_DEVICE void end_bringing() { asm volatile("cp.async.commit_group;" ::: "memory"); }
OM_DEVICE void await_brought() { asm volatile("cp.async.wait_group 0;" ::: "memory"); }

template <bool BRAIN> OM_DEVICE void multiply(float *sums, const om_u32 *a, om_u32 b0, om_u32 b1) {
	if (BRAIN)
		asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
					 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
					 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
	else
		asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
					 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
					 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#else

template <bool> OM_DEVICE om_u32 pair_of(float low, float high) {
	om_u32 both;
	asm("{.reg .b16 l, h; cvt.rn.f16.f32 l, %1; cvt.rn.f16.f32 h, %2; mov.b32 %0, {l, h};}" : "=r"(both) : "f"(low), "f"(high));
	return both;
}
OM_DEVICE void end_bringing() {}
OM_DEVICE void await_brought() {}

#if !QUADS

// The product of sixteen terms is two of eight.
template <bool> OM_DEVICE void multiply(float *sums, const om_u32 *a, om_u32 b0, om_u32 b1) {
	asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
				 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) : "r"(a[0]), "r"(a[1]), "r"(b0));
	asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
				 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) : "r"(a[2]), "r"(a[3]), "r"(b1));
}

#endif
#endif

#if QUADS

// DEEP is how many columns of queries and keys are read at a time, and multiplied.
#define DEEP 8

// left_of makes of a warp's scores with sixteen keys, two pieces, the left factor of their product with the values: of the lane's row
// (left_line) the keys four by four. A lane has two keys of each four of its pair of quads in two rows; the lane of the other two keys
// gives it those of its row, and another pair of quads the other fours.
OM_DEVICE void left_of(om_u32 *words, const float *first, const float *second) {
	bool odd = threadIdx.x & 2, upper = threadIdx.x & 8;
#pragma unroll
	for (int piece = 0; piece < 2; piece++) {
		const float *x = piece ? second : first;
		om_u32 low = pair_of<false>(x[0], x[1]), high = pair_of<false>(x[2], x[3]);
		om_u32 got = __shfl_xor_sync(0xffffffffu, odd ? low : high, 2), own[2] = {odd ? got : low, odd ? high : got};
#pragma unroll
		for (int e = 0; e < 2; e++) {
			om_u32 other = __shfl_xor_sync(0xffffffffu, own[e], 8);
			words[piece * 4 + e] = upper ? other : own[e];
			words[piece * 4 + 2 + e] = upper ? own[e] : other;
		}
	}
}

OM_DEVICE void load_matrices(om_u32 *to, om_u32 from) { load_16(to, from); }

#else

#define DEEP 16

// Addresses of shared memory are words: half the arithmetic.
OM_DEVICE void load_matrices(om_u32 *to, om_u32 from) {
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
				 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from) : "memory");
}
OM_DEVICE void load_turned(om_u32 *to, om_u32 from) {
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
				 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from) : "memory");
}

#endif

// bring begins to bring lines to shared memory; those that are not there, and columns, are zero.
template <bool BRAIN, int COLUMNS> OM_DEVICE void bring(om_u16 *to, const lines &f, int count, om_i64 row, om_i64 rows) {
#pragma unroll 4
	for (int at = threadIdx.x; at < count * COLUMNS / 8; at += THREADS) {
		int r = at / (COLUMNS / 8), c = at % (COLUMNS / 8) * 8;
		bool there = row + r < rows && c < f.columns;
		om_i64 place = there ? f.at + (row + r) * f.line + c : 0;
		om_u16 *slot = to + r * (COLUMNS + 8) + c;
#if __CUDA_ARCH__ >= 800
		if (f.type != OM_F32) {
			asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"l"(__cvta_generic_to_shared(slot)),
						 "l"(__cvta_generic_to_global((const om_u16 *)f.from + place)), "r"(there ? 16 : 0) : "memory");
			continue;
		}
		float y[8] = {};
		if (there)
			om_load_8(y, f.from, place, OM_F32);
		*(om_16 *)slot = {pair_of<BRAIN>(y[0], y[1]), pair_of<BRAIN>(y[2], y[3]), pair_of<BRAIN>(y[4], y[5]), pair_of<BRAIN>(y[6], y[7])};
#else
		*(om_16 *)slot = there ? *(const om_16 *)((const om_u16 *)f.from + place) : om_16{0, 0, 0, 0};
#endif
	}
	end_bringing();
}

// power is 2 to the x; below −126 it may be zero.
OM_DEVICE float power(float x) {
	float y;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

#define LOG2_E 1.4426950408889634f
#define LN_2 0.6931471805599453f

// mask_of is what a mask adds to a score; where it hides a key, that is −∞.
OM_DEVICE float mask_of(const void *mask, om_i64 at, int type) {
	if (type == OM_BOOL)
		return ((const om_u8 *)mask)[at] ? 0.0f : -OM_INF;
	return om_load_f(mask, at, type) * LOG2_E;
}

template <bool BRAIN, int COLUMNS, int KEYS>
OM_DEVICE void flash(void *out, float *also, const lines &q, const om_layout &q_batches, const lines &k,
					 const om_layout &k_batches, const lines &v, const om_layout &v_batches, const void *mask,
					 const om_layout &mask_batches, int mask_type, const om_attention &s, float scale, om_u16 *shared) {
	const int PITCH = COLUMNS + 8;
	const float below = -OM_INF;
	om_u16 *v_tile = shared + KEYS * PITCH;
	int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	// Where a lane's line of a matrix of 8 × 8 begins in shared memory: of the queries, of keys, of values.
#if QUADS
	om_u32 begin = (om_u32)__cvta_generic_to_shared(shared), q_from = begin + (warp * 16 + left_line()) * PITCH * 2;
	om_u32 k_from = begin + right_line() * PITCH * 2, v_from = begin + ((KEYS + lane % 4) * PITCH + right_column()) * 2;
#else
	om_u32 begin = (om_u32)__cvta_generic_to_shared(shared), q_from = begin + ((warp * 16 + lane % 16) * PITCH + lane / 16 * 8) * 2;
	om_u32 k_from = begin + ((lane / 16 * 8 + lane % 8) * PITCH + lane / 8 % 2 * 8) * 2;
	om_u32 v_from = begin + ((KEYS + lane % 16) * PITCH + lane / 16 * 8) * 2;
#endif
	scale *= LOG2_E;
	om_i64 tops = (s.queries + QUERIES - 1) / QUERIES;
	// Of causal ones the last queries see the most keys, and go first.
	om_i64 unit = blockIdx.x, z = unit / tops, top = (tops - 1 - unit % tops) * QUERIES, mask_at = mask ? om_at(mask_batches, z) : 0;
	om_i64 q_at = om_at(q_batches, z), k_at = om_at(k_batches, z), v_at = om_at(v_batches, z);
	om_i64 end = s.causal && top + QUERIES < s.keys ? top + QUERIES : s.keys, rounds = (end + KEYS - 1) / KEYS;
	om_u32 query[COLUMNS / DEEP][4];
	float sums[COLUMNS / 8][4], score[KEYS / 8][4], most[2] = {below, below}, total[2] = {0, 0};
#pragma unroll
	for (int j = 0; j < COLUMNS / 8; j++)
#pragma unroll
		for (int e = 0; e < 4; e++)
			sums[j][e] = 0;
	// What is computed with at a step is brought in the one before: the queries, then keys and their values in turn.
#pragma unroll 1
	for (om_i64 step = -2; step < 2 * rounds; step++) {
		om_i64 first = step / 2 * KEYS;
		if (step >= -1) {
			await_brought();
			__syncthreads();
		}
		if (step == -1) {
#pragma unroll
			for (int e = 0; e < COLUMNS / DEEP; e++)
				load_matrices(query[e], q_from + e * DEEP * 2);
			__syncthreads();
		}
		lines next = step == -2 ? q : step % 2 == 0 ? v : k;
		next.at = step == -2 ? q_at : step % 2 == 0 ? v_at : k_at;
		if (step + 1 < 2 * rounds)
			bring<BRAIN, COLUMNS>(step >= 0 && step % 2 == 0 ? v_tile : shared, next, step == -2 ? QUERIES : KEYS,
								  step == -2 ? top : (step + 1) / 2 * KEYS, step == -2 ? s.queries : end);
		if (step < 0)
			continue;
		if (step % 2 != 0) {
#pragma unroll
			for (int i = 0; i < KEYS / 16; i++) {
#if QUADS
				om_u32 x[8];
				left_of(x, score[2 * i], score[2 * i + 1]);
#pragma unroll
				for (int j = 0; j < COLUMNS / 16; j++) {
					if (j * 16 >= s.values)
						break;
#pragma unroll
					for (int four = 0; four < 4; four++) {
						om_u32 y[2];
						load_8(y, v_from + (i * 4 + four) * 8 * PITCH + j * 32);
						multiply_quads<true>(sums[2 * j], sums[2 * j + 1], x + 2 * four, y);
					}
				}
#else
				om_u32 x[4] = {
					pair_of<BRAIN>(score[2 * i][0], score[2 * i][1]),
					pair_of<BRAIN>(score[2 * i][2], score[2 * i][3]),
					pair_of<BRAIN>(score[2 * i + 1][0], score[2 * i + 1][1]),
					pair_of<BRAIN>(score[2 * i + 1][2], score[2 * i + 1][3]),
				};
#pragma unroll
				for (int j = 0; j < COLUMNS / 16; j++) {
					om_u32 y[4];
					if (j * 16 >= s.values)
						break;
					load_turned(y, v_from + i * 32 * PITCH + j * 32);
					multiply<BRAIN>(sums[2 * j], x, y[0], y[1]);
					multiply<BRAIN>(sums[2 * j + 1], x, y[2], y[3]);
				}
#endif
			}
			continue;
		}
#pragma unroll
		for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				score[j][e] = 0;
#pragma unroll
		for (int e = 0; e < COLUMNS / DEEP; e++) {
			if (e * DEEP >= s.width)
				break;
#pragma unroll
			for (int j = 0; j < KEYS / 16; j++) {
				om_u32 y[4];
				load_matrices(y, k_from + j * 32 * PITCH + e * DEEP * 2);
#if QUADS
				multiply_quads<false>(score[2 * j], score[2 * j + 1], query[e], y);
				multiply_quads<false>(score[2 * j], score[2 * j + 1], query[e] + 2, y + 2);
#else
				multiply<BRAIN>(score[2 * j], query[e], y[0], y[1]);
				multiply<BRAIN>(score[2 * j + 1], query[e], y[2], y[3]);
#endif
			}
		}
		// Where a thread's first row and its first column lie from where the queries and the keys of this step begin.
		int row = warp * 16 + piece_row(), column = piece_column(), left = (int)(end - first < KEYS ? end - first : KEYS);
		if (mask) { // with a rolled loop, for there are many
			float more[KEYS / 2];
#pragma unroll 2
			for (int i = 0; i < KEYS / 2; i++) {
				om_i64 r = top + row + i / 2 % 2 * ROW_STEP;
				int key = i / 4 * 8 + column + i % 2;
				more[i] = 0;
				if (key < left && r < s.queries)
					more[i] = mask_of(mask, mask_at + r * s.mask_line + (first + key) * s.mask_step, mask_type);
			}
#pragma unroll
			for (int i = 0; i < KEYS / 2; i++)
				score[i / 4][i % 4] = more[i] == below ? below : score[i / 4][i % 4] * scale + more[i];
		} else {
#pragma unroll
			for (int i = 0; i < KEYS / 2; i++)
				score[i / 4][i % 4] *= scale;
		}
#pragma unroll
		for (int half = 0; half < 2; half++) {
			int seen = (int)(top - first) + row + half * ROW_STEP + 1;
			seen = s.causal && seen < left ? seen : left;
			float larger = most[half], sum = 0;
#pragma unroll
			for (int i = 0; i < KEYS / 4; i++) {
				float &x = score[i / 2][2 * half + i % 2];
				x = i / 2 * 8 + column + i % 2 >= seen ? below : x;
				larger = fmaxf(larger, x);
			}
			larger = fmaxf(larger, __shfl_xor_sync(0xffffffffu, larger, ROW_LANES));
			larger = fmaxf(larger, __shfl_xor_sync(0xffffffffu, larger, ROW_OTHERS));
			float base = larger == below ? 0.0f : larger, keep = power(most[half] - base);
#pragma unroll
			for (int i = 0; i < KEYS / 4; i++) {
				float &x = score[i / 2][2 * half + i % 2];
				x = power(x - base);
				sum += x;
			}
			most[half] = larger;
			total[half] = total[half] * keep + sum;
#pragma unroll
			for (int j = 0; j < COLUMNS / 8; j++) {
				sums[j][2 * half] *= keep;
				sums[j][2 * half + 1] *= keep;
			}
		}
	}
#pragma unroll
	for (int half = 0; half < 2; half++) {
		om_i64 r = top + warp * 16 + piece_row() + ROW_STEP * half;
		float all = total[half];
		all += __shfl_xor_sync(0xffffffffu, all, ROW_LANES);
		all += __shfl_xor_sync(0xffffffffu, all, ROW_OTHERS);
		float inverse = all == 0 ? 0.0f : 1.0f / all;
		if (all == 0 && s.unseen_nan && s.keys > 0)
			inverse = OM_NAN;
		if (r >= s.queries)
			continue;
		if (also && piece_column() == 0)
			also[z * s.queries + r] = all == 0 ? 0.0f : most[half] * LN_2 + logf(all);
		om_i64 at = (z * s.queries + r) * s.values + piece_column();
#pragma unroll
		for (int j = 0; j < COLUMNS / 8; j++) {
			if (j * 8 >= s.values)
				break;
			float low = sums[j][2 * half] * inverse, high = sums[j][2 * half + 1] * inverse;
			if (__CUDA_ARCH__ >= 800 && q.type == OM_F32)
				*(om_8 *)((float *)out + at + j * 8) = {om_float_bits(low), om_float_bits(high)};
			else
				*(om_u32 *)((om_u16 *)out + at + j * 8) = pair_of<BRAIN>(low, high);
		}
	}
}

#else

template <bool BRAIN> float rounded(const lines &f, om_i64 row, om_i64 column) {
	float x = om_load_f(f.from, f.at + row * f.line + column, f.type);
	om_bf16 brain;
	om_f16 half;
	om_round(&brain, x);
	om_round(&half, x);
	return BRAIN ? om_float(brain) : om_float(half);
}

template <bool BRAIN, int COLUMNS, int KEYS>
void flash(void *out, float *also, lines q, const om_layout &q_batches, lines k, const om_layout &k_batches, lines v,
		   const om_layout &v_batches, const void *mask, const om_layout &mask_batches, int mask_type, const om_attention &s,
		   float scale, om_u16 *) {
	OM_EACH(i, s.batch * s.queries) {
		om_i64 z = i / s.queries, r = i % s.queries, mask_at = mask ? om_at(mask_batches, z) + r * s.mask_line : 0;
		om_i64 end = s.causal && r + 1 < s.keys ? r + 1 : s.keys;
		q.at = om_at(q_batches, z);
		k.at = om_at(k_batches, z);
		v.at = om_at(v_batches, z);
		float sums[COLUMNS] = {}, most = -OM_INF, total = 0;
		for (om_i64 key = 0; key < end; key++) {
			float x = 0;
			for (om_i64 e = 0; e < s.width; e++)
				x += rounded<BRAIN>(q, r, e) * rounded<BRAIN>(k, key, e);
			x *= scale;
			if (mask)
				x = om_masked(x, mask, mask_at + key * s.mask_step, mask_type);
			float larger = fmaxf(most, x), keep = most == -OM_INF ? 0.0f : expf(most - larger);
			float weight = x == -OM_INF ? 0.0f : expf(x - larger);
			most = larger;
			total = total * keep + weight;
			for (om_i64 c = 0; c < s.values; c++)
				sums[c] = sums[c] * keep + weight * rounded<BRAIN>(v, key, c);
		}
		float inverse = total == 0 ? 0.0f : 1.0f / total;
		if (total == 0 && s.unseen_nan && s.keys > 0)
			inverse = OM_NAN;
		if (also)
			also[i] = total == 0 ? 0.0f : most + logf(total);
		for (om_i64 c = 0; c < s.values; c++)
			om_store_f(out, i * s.values + c, q.type, sums[c] * inverse);
	}
}

#endif

// A target's GPUs never get the kernels that it does not have.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define HAS(BRAIN, COLUMNS) (!(BRAIN) && (COLUMNS) <= 128)
#else
#define HAS(BRAIN, COLUMNS) true
#endif

#define BODY(BRAIN, COLUMNS, KEYS)                                                                                          \
	__shared__ __align__(16) om_u16 shared[2 * KEYS * (COLUMNS + 8)];                                                           \
	lines queries = {q, 0, s.q_line, s.width, type}, keys = {k, 0, s.k_line, s.width, type};                                    \
	lines columns = {v, 0, s.v_line, s.values, type};                                                                       \
	flash<BRAIN, COLUMNS, KEYS>(out, also, queries, q_batches, keys, k_batches, columns, v_batches, mask, mask_batches, mask_type, \
								s, scale, shared);

#define FLASH(name, BRAIN, COLUMNS, KEYS)                                                                                   \
	OM_KERNEL(om_flash_##name##_##COLUMNS, void *out, float *also, const void *q, OM_GIVEN om_layout q_batches, const void *k,           \
			  OM_GIVEN om_layout k_batches, const void *v, OM_GIVEN om_layout v_batches, const void *mask, OM_GIVEN om_layout mask_batches, int type,        \
			  int mask_type, OM_GIVEN om_attention s, float scale) {                                                                \
		if constexpr (HAS(BRAIN, COLUMNS)) {                                                                                \
			BODY(BRAIN, COLUMNS, KEYS)                                                                                      \
		}                                                                                                                   \
	}
