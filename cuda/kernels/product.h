// Products of matrices on tensor cores in blocks of ROWS × COLS results, as in gemm.cu: out[z, r, j] =
// f(alpha·Σ_k left[z, r, k]·right[z, k, j] + bias[j]) + beta·added[z, r, j]. Where the terms are split into parts, each part of
// the sums goes to parts, and om_tensor_sum, or om_product_sum of floats, ends. Terms come asynchronously, two lots ahead of
// those that are computed with. GPUs before compute capability 8.0 compute floats that are rounded without tensor cores, each
// thread over the terms of its own results; so does the host. Included after pieces.h and tensor.h, by a source for each kind
// of factors, so that a driver compiles what is asked for. Blocks of more than 128 × 128 results, of floats that are rounded to bfloat16,
// round them on the way to shared memory.
#pragma once

// How the lines of a factor lie: with their terms behind each other, sixteen bytes at multiples of sixteen; with the same
// term of all lines so, which only a right factor may; or anyhow.
enum { BYTES_ALONG, BYTES_ACROSS, ANYHOW };

#if TENSOR

// gather makes 16 bytes of terms a step apart, count of which are there.
template <class T> OM_DEVICE void gather(om_u32 *words, const T *from, om_i64 step, int count) {
#pragma unroll
	for (int e = 0; e < 4; e++)
		words[e] = (2 * e < count ? from[2 * e * step].bits : 0u) | (2 * e + 1 < count ? (om_u32)from[(2 * e + 1) * step].bits << 16 : 0u);
}

#if AHEAD

// copy_anyhow copies 16 bytes' worth of terms a step apart, count of which are there.
OM_DEVICE void copy_anyhow(om_u32 to, const float *from, om_i64 step, int count) {
#pragma unroll
	for (int e = 0; e < 4; e++)
		asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to + e * 4),
					 "l"(__cvta_generic_to_global(from + (e < count ? e * step : 0))), "r"(e < count ? 4 : 0) : "memory");
}
template <class T> OM_DEVICE void copy_anyhow(om_u32 to, const T *from, om_i64 step, int count) {
	om_u32 words[4];
	gather(words, from, step, count);
	store_words(to, words);
}

#endif

// The lines of a factor in memory, LINES of a block, which THREADS threads copy by 16 bytes. HOW is how they lie, or −1 where
// that is known only when the kernel runs.
template <class T, int LINES, int THREADS, int HOW> struct factor_lines {
	static const int HOLDS = 0, COUNT = LINES * 4 / THREADS, EACH = 16 / (int)sizeof(T), PER = LINES / EACH, TERMS = LINE / (int)sizeof(T);
	// Where the thread's next 16 bytes are, and how many of them there are at most.
	const T *at[COUNT];
	int there;
	om_i64 step;
	// whole is how many copies have all their terms, odd how many terms the one after those has. first is the first of the
	// thread's terms among those that are copied, slot where in shared memory its bytes go.
	int how, first, slot, whole, odd;
#if !AHEAD
	om_u32 held[COUNT][4]; // what is stored when the next terms are asked for
#endif

	__device__ __forceinline__ bool lies(int so) const { return HOW < 0 ? how == so : HOW == so; }

	// begin sets what the factor is, from a term on: place says where one of count lines begins. Instead of lines that are not
	// there the last one is read, for results that nobody writes.
	template <class F>
	__device__ __forceinline__ void begin(const T *p, om_i64 apart, om_i64 from, om_i64 terms, int lie, om_i64 count, F place) {
		int t = threadIdx.x;
		how = lie, step = HOW == BYTES_ALONG ? 1 : apart, whole = (int)((terms - from) / TERMS), odd = (int)((terms - from) % TERMS);
		bool over = lies(BYTES_ACROSS);
		first = over ? t / PER : t % 4 * EACH;
		slot = kept(over ? across(t / PER, t % PER) : swizzled(t / 4, t % 4));
		om_i64 lines = over ? count - t % PER * EACH : EACH;
		there = lines >= EACH ? 16 : lines > 0 ? (int)lines * (int)sizeof(T) : 0;
#pragma unroll
		for (int i = 0; i < COUNT; i++) {
			int own = (t + i * THREADS) / 4;
			at[i] = p + (from + first) * step;
			if (over)
				at[i] += i * (THREADS / PER) * step + (there ? t % PER * EACH : 0);
			else
				at[i] += place(own < count ? own : (int)count - 1);
		}
#if !AHEAD
		load();
#endif
	}

	// further goes on to the next terms.
	__device__ __forceinline__ void further() {
		whole--;
#pragma unroll
		for (int i = 0; i < COUNT; i++)
			at[i] += TERMS * step;
	}

#if AHEAD
	// copy begins to copy the next terms; those that are not there are zero. What is copied of a line's end has no bytes,
	// and is not read.
	__device__ __forceinline__ void copy(om_u32 to) {
		to += slot;
		if (whole > 0 && there == 16 && !lies(ANYHOW)) {
#pragma unroll
			for (int i = 0; i < COUNT; i++)
				begin_copy_16(to + i * THREADS * 16, at[i]);
		} else {
			int left = (whole > 0 ? TERMS : odd) - first, bytes = left > 0 ? left * (int)sizeof(T) : 0;
			bytes = bytes < 16 ? bytes : 16;
#pragma unroll
			for (int i = 0; i < COUNT; i++) {
				int some = !lies(BYTES_ACROSS) ? bytes : left > i * (THREADS / PER) ? there : 0;
				if (!lies(ANYHOW))
					begin_copy_bytes(to + i * THREADS * 16, at[i], some);
				else
					copy_anyhow(to + i * THREADS * 16, at[i], step, some / (int)sizeof(T));
			}
		}
		further();
	}
#else
	// load reads the next terms. There may be none any more.
	__device__ __forceinline__ void load() {
		if (whole > 0 && there == 16 && !lies(ANYHOW)) {
#pragma unroll
			for (int i = 0; i < COUNT; i++) {
				uint4 x = *(const uint4 *)at[i];
				held[i][0] = x.x, held[i][1] = x.y, held[i][2] = x.z, held[i][3] = x.w;
			}
		} else {
			int left = (whole > 0 ? TERMS : whole == 0 ? odd : 0) - first;
#pragma unroll
			for (int i = 0; i < COUNT; i++) {
				int some = !lies(BYTES_ACROSS) ? left : left > i * (THREADS / PER) ? there / (int)sizeof(T) : 0;
				gather(held[i], at[i], lies(ANYHOW) ? step : 1, some);
			}
		}
		further();
	}

	// copy stores the next terms, and reads those after them.
	__device__ __forceinline__ void copy(om_u32 to) {
#pragma unroll
		for (int i = 0; i < COUNT; i++)
			store_words(to + slot + i * THREADS * 16, held[i]);
		load();
	}
#endif

	// across is where 16 bytes of a term begin in shared memory, of lines that lie across.
	static __device__ __forceinline__ int across(int term, int chunk) {
		return term * LINES * (int)sizeof(T) + ((chunk ^ (sizeof(T) == 2 ? term & 7 : (term & 3) << 1)) << 4);
	}
};

#if TENSOR > 1

// same is kept of something that several ask for.
OM_DEVICE om_u32 same(om_u32 x) {
	om_u32 y;
	asm("mov.b32 %0, %1;" : "=r"(y) : "r"(x));
	return y;
}

// The lines of a factor of floats in memory, which are rounded to bfloat16 on their way to shared memory: what a thread reads waits in
// registers, 16 bytes of each of COUNT lines or terms, until it is asked for the next terms. EVEN says that all lines are as far from
// each other.
template <int LINES, int THREADS, int HOW, bool EVEN> struct rounded_lines {
	static const int HOLDS = 1, COUNT = LINES * 8 / THREADS, PER = LINES / 4, TERMS = LINE / 2;
	// A thread's lines, or terms, are NEXT from each other.
	static const int NEXT = HOW == BYTES_ACROSS ? THREADS / PER : THREADS / 8;
	// Where the thread's next 16 bytes of its first line or term are, and how many times 16 bytes from there those of the others are, of
	// even ones the next: there are no registers for addresses.
	const float *at;
	int apart[EVEN ? 1 : COUNT];
	// there is how many lines a thread has, of those that lie across four or less in each term; whole, odd, first and slot are those of
	// factor_lines.
	int there, first, slot, whole, odd;
	om_u32 held[COUNT][4];

	__device__ __forceinline__ bool lies(int so) const { return HOW == so; }

	// begin is that of factor_lines.
	template <class F> __device__ __forceinline__ void begin(const float *p, om_i64 step, om_i64 from, om_i64 terms, om_i64 count, F place) {
		int t = threadIdx.x;
		whole = (int)((terms - from) / TERMS), odd = (int)((terms - from) % TERMS);
		if (HOW == BYTES_ACROSS) {
			om_i64 lines = count - t % PER * 4;
			first = t / PER, there = lines > 4 ? 4 : lines > 0 ? (int)lines : 0, apart[0] = (int)(step * NEXT / 4);
			slot = same(factor_lines<om_bf16, LINES, THREADS, HOW>::across(first, t % PER / 2) + t % 2 * 8);
			at = p + (from + first) * step + (there ? t % PER * 4 : 0);
		} else {
			om_i64 lines = (count - t / 8 + NEXT - 1) / NEXT, start = lines > 0 ? place(t / 8) : 0;
			first = t % 8 * 4, there = lines > COUNT ? COUNT : (int)lines, slot = same(swizzled(t / 8, t % 8 / 2) + t % 2 * 8);
			at = p + from + first + start;
#pragma unroll
			for (int i = 0; i < (EVEN ? 1 : COUNT); i++) {
				int own = t / 8 + (EVEN ? NEXT : i * NEXT);
				apart[i] = own < count ? (int)((place(own) - start) / 4) : 0;
			}
		}
#pragma unroll
		for (int i = 0; i < COUNT; i++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				held[i][e] = 0;
	}

	// other is where the 16 bytes of line or term i are.
	__device__ __forceinline__ const float *other(int i) const { return at + (om_i64)apart[EVEN ? 0 : i] * (EVEN ? i * 4 : 4); }

	static __device__ __forceinline__ void read_words(om_u32 *to, const float *from) {
		uint4 x = *(const uint4 *)from;
		to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
	}

	// load reads the next terms. There may be none any more.
	__device__ __forceinline__ void load() {
		if (whole > 0 && there == (HOW == BYTES_ACROSS ? 4 : COUNT)) {
#pragma unroll
			for (int i = 0; i < COUNT; i++)
				read_words(held[i], other(i));
		} else {
			int left = (whole > 0 ? TERMS : whole == 0 ? odd : 0) - first;
#pragma unroll
			for (int i = 0; i < COUNT; i++) {
				int some = HOW == BYTES_ACROSS ? left > i * NEXT ? there : 0 : i < there ? left : 0;
				if (some >= 4) {
					read_words(held[i], other(i));
					continue;
				}
				held[i][3] = 0;
#pragma unroll
				for (int e = 0; e < 3; e++)
					held[i][e] = e < some ? __float_as_uint(other(i)[e]) : 0;
			}
		}
		whole--;
		at += HOW == BYTES_ACROSS ? (om_i64)apart[0] * (TERMS / NEXT * 4) : TERMS;
	}

	// copy stores the next terms, and reads those after them.
	__device__ __forceinline__ void copy(om_u32 to) {
#pragma unroll
		for (int i = 0; i < COUNT; i++) {
			om_u32 low = pair(held[i][0], held[i][1]), high = pair(held[i][2], held[i][3]);
			if (HOW == BYTES_ACROSS)
				store_two((to + slot ^ (i * NEXT & 7) << 4) + i * NEXT * LINES * 2, low, high);
			else
				store_two(to + slot + i * THREADS * 8, low, high);
		}
		load();
	}
};

#endif

// A tensor_tile is a block whose warps have TALL × WIDE pieces of 16 × 8 results each, which lie as pieces.h has it. LOTS is how many
// parts of the terms are in shared memory, of which more than two come there asynchronously.
template <class M, int ROWS, int COLS, int TALL, int WIDE, int LOTS = PARTS> struct tensor_tile {
	typedef typename M::T T;
	static const int WARPS = COLS / (WIDE * 8), THREADS = ROWS / (TALL * 16) * WARPS * 32;
	// TERMS is how many a part has.
	static const int TERMS = LINE / (int)sizeof(T);
	// Results go through shared memory at the end, a piece of each warp's rows at a time.
	static const int HIGH = ROWS / TALL, PITCHED = COLS + 8;
	// BYTES is the shared memory that a block needs.
	static const int BYTES = LOTS * (ROWS + COLS) * LINE;
	static_assert(HIGH * PITCHED * 4 <= BYTES, "results do not fit");

	static __device__ __forceinline__ int down() { return threadIdx.x / 32 / WARPS * (TALL * 16); }
	static __device__ __forceinline__ int across() { return threadIdx.x / 32 % WARPS * (WIDE * 8); }

	// multiply computes the products of some terms of two factors, which copy(where) brings TERMS at a time, as factor_lines
	// do; the right one's lie across or not.
	template <class L, class R>
	static __device__ __forceinline__ void multiply(float (*sums)[WIDE][4], char *space, L &left, R &right, om_i64 terms) {
		bool right_across = right.lies(BYTES_ACROSS);
		om_u32 a = shared_at(space), b = a + LOTS * ROWS * LINE, x = kept(a + left_at(down())), y = kept(b + first_right(right_across));
#pragma unroll
		for (int i = 0; i < TALL; i++)
#pragma unroll
			for (int j = 0; j < WIDE; j++)
#pragma unroll
				for (int e = 0; e < 4; e++)
					sums[i][j][e] = 0;
		// Lines that hold what they bring store it a turn later. They leave few registers: where the next terms go after these is where
		// those lie that it is the turn of, so one number says both.
		int lots = (int)((terms + TERMS - 1) / TERMS), now = 0, next = L::HOLDS ? LOTS - 1 : 0;
#pragma unroll 1
		for (int lot = 1 - LOTS - L::HOLDS; lot < lots; lot++) {
			if (lot >= 0) {
				if (LOTS > 2)
					await_lot();
				__syncthreads();
			}
			if (lot + LOTS - 1 < lots) {
				left.copy(a + next * ROWS * LINE);
				right.copy(b + next * COLS * LINE);
			}
			if (LOTS > 2)
				end_lot();
			next = next + 1 == LOTS ? 0 : next + 1;
			if (lot >= 0) {
				add(sums, x + (L::HOLDS ? next : now) * ROWS * LINE, y + (L::HOLDS ? next : now) * COLS * LINE, right_across);
				now = now + 1 == LOTS ? 0 : now + 1;
			}
		}
	}

	// first_right is where a lane first reads the right factor.
	static __device__ __forceinline__ int first_right(bool right_across) {
		int lane = threadIdx.x % 32;
		if (!right_across)
			return right_at(across());
#if QUADS
		return factor_lines<T, COLS, THREADS, BYTES_ACROSS>::across(lane % 4, (across() + right_column()) / 8) + right_column() % 8 * 2;
#endif
		if (sizeof(T) == 2)
			return lane % 16 * COLS * 2 + (((across() / 8 + lane / 16) ^ lane % 8) << 4);
		return 0;
	}

	// add adds the products of a part of the terms.
	static __device__ __forceinline__ void add(float (*sums)[WIDE][4], om_u32 x, om_u32 y, bool right_across) {
#if QUADS
		if (!right_across) {
			multiply_parts<M, TALL, WIDE>(sums, x, [&](om_u32 *words, int slice, int j) { load_along(words, y, slice, j); });
			return;
		}
		// The fourth of eight terms has its chunks where a bit is another.
		multiply_parts<M, TALL, WIDE, true>(sums, x, [&](om_u32 *words, int slice, int j) {
			load_8(words, (y ^ j << 4) + slice * 8 * COLS * 2);
			load_8(words + 2, (y ^ j << 4 ^ 4 << 4) + (slice * 8 + 4) * COLS * 2);
		});
#else
		int lane = threadIdx.x % 32;
		multiply_parts<M, TALL, WIDE>(sums, x, [&](om_u32 *four, int slice, int j) {
			if (!right_across)
				load_along(four, y, slice, j);
			else if (sizeof(T) == 2) // eight columns are 16 bytes, which piece of WIDE is in bits of its own
				load_turned(four, (y ^ j << 4) + slice * 16 * COLS * 2);
			else {
				int c = across() + j * 8;
#pragma unroll
				for (int e = 0; e < 4; e++) {
					int term = slice * 8 + lane % 4 + e % 2 * 4, column = c + e / 2 * 8 + lane / 4;
					four[e] = load_word(y + factor_lines<T, COLS, THREADS, BYTES_ACROSS>::across(term, column / 4) + column % 4 * 4);
				}
			}
		});
#endif
	}

	// finish gives the results to write(row, column, four of them), in an order in which warps write to places that lie
	// behind each other.
	template <class F> static __device__ __forceinline__ void finish(float (*sums)[WIDE][4], char *space, F write) {
		float *results = (float *)space;
		int t = threadIdx.x;
#pragma unroll 1
		for (int pass = 0; pass < TALL; pass++) {
			__syncthreads();
#pragma unroll
			for (int i = 0; i < TALL; i++)
				if (i == pass)
#pragma unroll
					for (int j = 0; j < WIDE; j++)
#pragma unroll
						for (int e = 0; e < 4; e += 2)
							*(float2 *)(results + (t / 32 / WARPS * 16 + piece_row() + e / 2 * ROW_STEP) * PITCHED + across() + j * 8 + piece_column()) =
								make_float2(sums[i][j][e], sums[i][j][e + 1]);
			__syncthreads();
#pragma unroll 1
			for (int q = t; q < HIGH * COLS / 4; q += THREADS) {
				int own = q / (COLS / 4), column = q % (COLS / 4) * 4;
				float x[4];
				read_four(x, results + own * PITCHED + column);
				write(own / 16 * (TALL * 16) + pass * 16 + own % 16, column, x);
			}
		}
	}
};

#endif

// L is how the layouts are taken: by kernels as they are given.
#define FACTORS(L, T) const T *left, L rows, om_i64 left_step, const T *right, L batches, om_i64 line, om_i64 right_step
#define ENDING(L, T)                                                                                                   \
	const T *bias, om_i64 bias_step, const T *added, L added_rows, om_i64 added_step, float alpha, float beta,  \
		int act, float act_a, float act_b
#define END bias, bias_step, added, added_rows, added_step, alpha, beta, act, act_a, act_b

template <class M, int ROWS, int COLS, int TALL, int WIDE>
OM_DEVICE void product(typename M::T *out, float *parts, FACTORS(const om_layout &, typename M::T),
					   ENDING(const om_layout &, typename M::T), om_i64 m, om_i64 n, om_i64 k, om_i64 batch, om_i64 part, int left_how, int right_how, int fours) {
	typedef typename M::T T;
#ifdef __CUDA_ARCH__
	// bfloat16 goes by linear.cu there, and TF32 is refused, so the code for them is left out.
	if (TENSOR < M::SINCE && !M::ROUNDS) {
		asm volatile("trap;");
		return;
	}
#endif
	spot s = spot_of(m, n, batch, ROWS, COLS);
	const T *matrix = right + place_at(batches, s.z) + s.first * line;
	om_i64 from = s.part * part, to = from + part < k ? from + part : k;
	auto row_at = [&](int i) { return place_at(rows, s.z * m + s.top + i); };
	auto column_at = [&](int i) { return i * line; };
	auto end_four = [&](int own, int column, float *x) {
		om_i64 r = s.top + own, c = s.first + column;
		if (r >= m || c >= n)
			return;
		r += s.z * m;
		if (parts) {
			write_line(parts + (s.part * batch * m + r) * n + c, x, n - c, fours);
			return;
		}
		const T *line_added = added ? added + place_at(added_rows, r) : 0;
		end_product(x, c, n, bias, bias_step, line_added, added_step, alpha, beta, act, act_a, act_b);
		store_four(out + r * n + c, x, n - c, fours);
	};
#if TENSOR
	if constexpr (TENSOR >= M::SINCE) {
		const bool ROUNDED = M::ROUNDS && ROWS * COLS > 128 * 128;
		typedef typename choice<ROUNDED, tensor_tile<of_bf16, ROWS, COLS, TALL, WIDE, 2>, tensor_tile<M, ROWS, COLS, TALL, WIDE>>::T own;
		__shared__ __align__(128) char space[own::BYTES];
		float sums[TALL][WIDE][4];
#if TENSOR > 1
		if constexpr (ROUNDED) {
			rounded_lines<ROWS, own::THREADS, BYTES_ALONG, false> lefts;
			lefts.begin(left, left_step, from, k, m - s.top, row_at);
			if (right_how == BYTES_ACROSS) {
				rounded_lines<COLS, own::THREADS, BYTES_ACROSS, true> rights;
				rights.begin(matrix, right_step, from, k, n - s.first, column_at);
				own::multiply(sums, space, lefts, rights, to - from);
			} else {
				rounded_lines<COLS, own::THREADS, BYTES_ALONG, true> rights;
				rights.begin(matrix, right_step, from, k, n - s.first, column_at);
				own::multiply(sums, space, lefts, rights, to - from);
			}
			// The block's place is found again: there are no registers to keep it in.
			om_i64 high = m;
			asm volatile("mov.b64 %0, %0;" : "+l"(high));
			s = spot_of(high, n, batch, ROWS, COLS);
		} else
#endif
		if (ROWS * COLS < 128 * 128) {
			factor_lines<T, ROWS, own::THREADS, -1> lefts;
			factor_lines<T, COLS, own::THREADS, -1> rights;
			lefts.begin(left, left_step, from, k, left_how, m - s.top, row_at);
			rights.begin(matrix, right_step, from, k, right_how, n - s.first, column_at);
			own::multiply(sums, space, lefts, rights, to - from);
		} else {
			// The largest blocks have code for how most factors lie, and none for the others.
			factor_lines<T, ROWS, own::THREADS, BYTES_ALONG> lefts;
			lefts.begin(left, left_step, from, k, left_how, m - s.top, row_at);
			if (right_how == BYTES_ACROSS) {
				factor_lines<T, COLS, own::THREADS, BYTES_ACROSS> rights;
				rights.begin(matrix, right_step, from, k, right_how, n - s.first, column_at);
				own::multiply(sums, space, lefts, rights, to - from);
			} else {
				factor_lines<T, COLS, own::THREADS, BYTES_ALONG> rights;
				rights.begin(matrix, right_step, from, k, right_how, n - s.first, column_at);
				own::multiply(sums, space, lefts, rights, to - from);
			}
		}
		own::finish(sums, space, end_four);
		return;
	}
#endif
	const int THREADS = ROWS / (TALL * 16) * (COLS / (WIDE * 8)) * 32;
#pragma unroll 1
	for (int q = threadIdx.x; q < ROWS * COLS / 4; q += THREADS) {
		int own = q / (COLS / 4), column = q % (COLS / 4) * 4;
		float x[4] = {0, 0, 0, 0};
		om_i64 r = s.top + own < m ? row_at(own) : -1;
#pragma unroll 1
		for (om_i64 term = from; term < to && r >= 0; term++) {
			float y = value(M(), left[r + term * left_step]);
#pragma unroll
			for (int e = 0; e < 4; e++)
				if (s.first + column + e < n)
					x[e] += y * value(M(), matrix[column_at(column + e) + term * right_step]);
		}
		end_four(own, column, x);
	}
}

#define PRODUCT(name, M, lines, columns, tall, wide, threads, blocks)                                                        \
	BOUNDED_KERNEL(threads, blocks, name, M::T *out, float *parts, FACTORS(OM_GIVEN om_layout, M::T), ENDING(OM_GIVEN om_layout, M::T), om_i64 m, om_i64 n, om_i64 k, \
				   om_i64 batch, om_i64 part, int left_how, int right_how, int fours) {                                      \
		product<M, lines, columns, tall, wide>(out, parts, left, rows, left_step, right, batches, line, right_step, END, m, n, k, \
											   batch, part, left_how, right_how, fours);                                     \
	}
#define PRODUCTS(name, M)                               \
	PRODUCT(name##_128, M, 128, 128, 4, 8, 128, 2)      \
	PRODUCT(name##_64, M, 64, 64, 2, 4, 128, 4)         \
	PRODUCT(name##_32, M, 32, 128, 2, 4, 128, 4)

// The parts of sums, one after the other, and what the product ends with.
#define SUM(suffix, T)                                                                                                 \
	OM_KERNEL(om_tensor_sum_##suffix, T *out, const float *parts, ENDING(OM_GIVEN om_layout, T), om_i64 n, om_i64 total, int count) {      \
		OM_EACH(i, total) {                                                                                            \
			float sum = 0;                                                                                             \
			for (int p = 0; p < count; p++)                                                                            \
				sum += parts[p * total + i];                                                                           \
			om_i64 r = i / n, c = i - r * n;                                                                           \
			sum *= alpha;                                                                                              \
			if (bias)                                                                                                  \
				sum += om_float(bias[c * bias_step]);                                                                  \
			sum = activated(act, sum, act_a, act_b);                                                                   \
			if (added)                                                                                                 \
				sum += beta * om_float(added[place_at(added_rows, r) + c * added_step]);                               \
			om_round(&out[i], sum);                                                                                    \
		}                                                                                                              \
	}
