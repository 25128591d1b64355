// Products of matrices of floats in blocks of ROWS × COLS results, of which a thread has TALL × WIDE, exact: no tensor cores.
// The factors' terms come DEPTH at a time, to shared memory as [term][line], so that a thread reads four lines at once. From
// compute capability 8.0 on three parts are on their way while one is computed with; elsewhere the next part waits in
// registers. Sums run over the terms in order.
#pragma once

#define DEPTH 8

// BOUNDED_KERNEL is OM_KERNEL with the threads of a block and how many blocks a multiprocessor is to have room for.
#ifdef __CUDACC__
#define BOUNDED_KERNEL(threads, blocks, name, ...) \
	extern "C" __global__ void __launch_bounds__(threads, blocks) name(__VA_ARGS__)
#else
#define BOUNDED_KERNEL(threads, blocks, name, ...) OM_KERNEL(name, __VA_ARGS__)
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define AHEAD 1
#define STAGES 4
#else
#define AHEAD 0
#define STAGES 2
#endif

// TURN is the term during whose product the next part's copies begin: not the first, for which all warps wait.
#define TURN 1

// PITCH keeps terms apart so that what a warp writes lies in different banks.
#define PITCH(lines) ((lines) + 4)

// How lines lie: each with its terms behind each other, or the same term of all behind each other, then perhaps by fours at
// multiples of 16 bytes. Lines or terms that are further apart are read as if they were near.
enum { ALONG, ACROSS, ACROSS_FOURS };

#ifdef __CUDA_ARCH__

// shared_at is where something in shared memory lies there: addresses of 32 bits are computed with one instruction each.
OM_DEVICE om_u32 shared_at(const void *p) { return (om_u32)__cvta_generic_to_shared(p); }

#endif

// kept is x, which the compiler keeps in a register instead of computing it again where it is needed.
OM_DEVICE om_u32 kept(om_u32 x) {
#ifdef __CUDA_ARCH__
	om_u32 y;
	asm volatile("mov.b32 %0, %1;" : "=r"(y) : "r"(x));
	return y;
#else
	return x;
#endif
}

#if AHEAD

// begin_copy begins to copy a float, or four, to shared memory; those after a number of bytes are zero.
OM_DEVICE void begin_copy(om_u32 to, const float *from, bool there) {
	asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(__cvta_generic_to_global(from)), "r"(there ? 4 : 0)
				 : "memory");
}
OM_DEVICE void begin_copy_four(om_u32 to, const float *from, int bytes) {
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(__cvta_generic_to_global(from)), "r"(bytes) : "memory");
}
// end_part ends a part of what is copied; await_part waits for the oldest of those that are on their way.
OM_DEVICE void end_part() { asm volatile("cp.async.commit_group;" ::: "memory"); }
OM_DEVICE void await_part() { asm volatile("cp.async.wait_group 2;" ::: "memory"); }

#endif

// read_four and write_four move four floats that are aligned.
OM_DEVICE void read_four(float *to, const float *from) {
#ifdef __CUDA_ARCH__
	float4 x = *(const float4 *)from;
	to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
#else
	for (int i = 0; i < 4; i++)
		to[i] = from[i];
#endif
}
OM_DEVICE void write_four(float *to, const float *from) {
#ifdef __CUDA_ARCH__
	*(float4 *)to = make_float4(from[0], from[1], from[2], from[3]);
#else
	for (int i = 0; i < 4; i++)
		to[i] = from[i];
#endif
}

// A place is where a float in shared memory is; that of a part of a factor is of its first line's first term.
#if AHEAD
typedef om_u32 place;
OM_DEVICE place place_of(const float *p) { return kept(shared_at(p)); }
OM_DEVICE place further(place p, int floats) { return p + floats * 4; }
OM_DEVICE void read_four(float *to, place from) {
	asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
				 : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
				 : "r"(from));
}
OM_DEVICE void write_four(place to, const float *from) {
	asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(from[0]), "f"(from[1]), "f"(from[2]), "f"(from[3])
				 : "memory");
}
OM_DEVICE void write_one(place to, float x) { asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(x) : "memory"); }
#else
typedef float *place;
OM_DEVICE place place_of(float *p) { return p; }
OM_DEVICE place further(place p, int floats) { return p + floats; }
OM_DEVICE void write_one(place to, float x) { *to = x; }
#endif

// A strided factor is LINES lines of k terms each in memory, which THREADS threads copy.
template <int LINES, int THREADS, bool FOURS> struct strided {
	// A thread copies a term of NEXT lines apart, or of a line, or of four, terms that are FURTHER apart.
	static const int COUNT = LINES * DEPTH / THREADS, NEXT = THREADS / DEPTH, FURTHER = THREADS / LINES;
	// Where what the thread copies next begins, and from there to the next part's.
	const float *at[COUNT];
	om_i64 part;
	// rest is how many terms there are, from the thread's first one on, slot where in a part that is, fours how many of four
	// lines there are.
	int how, rest, slot, fours;
#if !AHEAD
	float hold[COUNT];
#endif

	// begin sets what the factor is, from a term on: begins says where one of count lines begins. Instead of lines that are
	// not there the first one is read, for results that nobody writes.
	template <class F>
	__device__ __forceinline__ void begin(const float *p, om_i64 step, om_i64 from, om_i64 terms, int lie, om_i64 count, F begins) {
		int t = threadIdx.x, own = lie == ALONG ? t / DEPTH : lie == ACROSS ? t % LINES : t % (LINES / 4) * 4;
		int term = lie == ALONG ? t % DEPTH : lie == ACROSS ? t / LINES : t / (LINES / 4);
		int each = lie == ALONG ? 0 : lie == ACROSS ? FURTHER : FURTHER * 4;
		how = lie, part = DEPTH * step, slot = term * PITCH(LINES) + own;
		om_i64 left = terms - from - term;
		rest = left < 1 << 30 ? (int)left : 1 << 30;
#pragma unroll
		for (int i = 0; i < COUNT; i++) {
			om_i64 line = own + (lie == ALONG ? i * NEXT : 0);
			at[i] = p + begins(line < count ? line : 0) + (from + term + i * each) * step;
		}
		fours = count - own > 4 ? 4 : count < own ? 0 : (int)(count - own);
	}

	// next goes on to the next terms.
	__device__ __forceinline__ void next() {
		rest -= DEPTH;
#pragma unroll
		for (int i = 0; i < COUNT; i++)
			at[i] += part;
	}

#if AHEAD
	// copy begins to copy the next part.
	__device__ __forceinline__ void copy(place to) {
		to = further(to, slot);
		if (how == ALONG) {
#pragma unroll
			for (int i = 0; i < COUNT; i++)
				begin_copy(further(to, i * NEXT), at[i], rest > 0);
		} else if (FOURS && how == ACROSS_FOURS) {
#pragma unroll
			for (int i = 0; i < COUNT / 4; i++)
				begin_copy_four(further(to, i * FURTHER * 4 * PITCH(LINES)), at[i], rest > i * FURTHER * 4 ? fours * 4 : 0);
		} else {
#pragma unroll
			for (int i = 0; i < COUNT; i++)
				begin_copy(further(to, i * FURTHER * PITCH(LINES)), at[i], rest > i * FURTHER);
		}
		next();
	}
	// turn copies while the product of a term of another part is computed.
	__device__ __forceinline__ void turn(place to, int term) {
		if (term == TURN)
			copy(to);
	}
#else
	__device__ __forceinline__ void load() {
		if (FOURS && how == ACROSS_FOURS) {
#pragma unroll
			for (int i = 0; i < COUNT / 4; i++) {
				bool there = rest > i * FURTHER * 4;
				if (fours == 4 && there)
					read_four(hold + 4 * i, at[i]);
				else
#pragma unroll
					for (int e = 0; e < 4; e++)
						hold[4 * i + e] = e < fours && there ? at[i][e] : 0;
			}
		} else {
#pragma unroll
			for (int i = 0; i < COUNT; i++)
				hold[i] = rest > (how == ALONG ? 0 : i * FURTHER) ? *at[i] : 0;
		}
		next();
	}

	__device__ __forceinline__ void store(place to) {
		to += slot;
		if (how == ALONG) {
#pragma unroll
			for (int i = 0; i < COUNT; i++)
				to[i * NEXT] = hold[i];
		} else if (FOURS && how == ACROSS_FOURS) {
#pragma unroll
			for (int i = 0; i < COUNT / 4; i++)
				write_four(to + i * FURTHER * 4 * PITCH(LINES), hold + 4 * i);
		} else {
#pragma unroll
			for (int i = 0; i < COUNT; i++)
				to[i * FURTHER * PITCH(LINES)] = hold[i];
		}
	}
#endif
};

// A tile is where a thread's results lie in its block's: in groups of 4 × 4. A warp has 4 × 8 of them at a time. Lanes that
// differ in the lowest bit read the same columns, those that differ in the next bit the same rows: then 16 lanes are given
// what they read at once, else eight.
template <int ROWS, int COLS, int TALL, int WIDE> struct tile {
	static const int THREADS = ROWS / TALL * (COLS / WIDE);
	// Results go through shared memory at the end, SOME of a thread's rows at a time.
	static const int SOME = TALL * COLS > 512 ? 2 : 4, SLAB = ROWS / TALL * SOME;
	// LEFT and RIGHT are the floats of a part of each factor, FLOATS the shared memory that a block needs.
	static const int LEFT = DEPTH * PITCH(ROWS), RIGHT = DEPTH * PITCH(COLS), FLOATS = STAGES * (LEFT + RIGHT);

	static __device__ __forceinline__ int down() {
		int t = threadIdx.x, warps = COLS / WIDE / 8;
		return t / 32 / warps * 4 + t / 16 % 2 * 2 + t % 2;
	}
	static __device__ __forceinline__ int across() {
		int t = threadIdx.x, warps = COLS / WIDE / 8;
		return t / 32 % warps * 8 + t / 2 % 8;
	}
	// row and column are where group i of rows and j of columns begin.
	static __device__ __forceinline__ int row(int i, int d) { return i * (ROWS / (TALL / 4)) + d * 4; }
	static __device__ __forceinline__ int column(int j) { return j * (COLS / (WIDE / 4)) + across() * 4; }

	// add adds the products of a part of the terms, whose first groups are at x and y. turn is called for each term.
	template <class F> static __device__ __forceinline__ void add(float (*sums)[WIDE], place x, place y, F turn) {
#pragma unroll
		for (int term = 0; term < DEPTH; term++) {
			turn(term);
			float a[TALL], b[WIDE];
#pragma unroll
			for (int i = 0; i < TALL; i += 4)
				read_four(a + i, further(x, term * PITCH(ROWS) + row(i / 4, 0)));
#pragma unroll
			for (int j = 0; j < WIDE; j += 4)
				read_four(b + j, further(y, term * PITCH(COLS) + j * (COLS / WIDE)));
#pragma unroll
			for (int i = 0; i < TALL; i++)
#pragma unroll
				for (int j = 0; j < WIDE; j++)
					sums[i][j] += a[i] * b[j];
		}
	}

	// multiply computes the products of terms from … to two factors, which give their parts in order.
	template <class L, class R>
	static __device__ __forceinline__ void multiply(float (*sums)[WIDE], float *space, L &left, R &right, om_i64 from, om_i64 to) {
		place a = place_of(space), b = further(a, STAGES * LEFT), x = further(a, down() * 4), y = further(b, across() * 4);
#pragma unroll
		for (int i = 0; i < TALL; i++)
#pragma unroll
			for (int j = 0; j < WIDE; j++)
				sums[i][j] = 0;
		int lots = (int)((to - from + DEPTH - 1) / DEPTH);
#if AHEAD
#pragma unroll 1
		for (int s = 0; s < STAGES - 1; s++) {
			if (s < lots) {
#pragma unroll
				for (int term = 0; term < DEPTH; term++) {
					left.turn(further(a, s * LEFT), term);
					right.turn(further(b, s * RIGHT), term);
				}
			}
			end_part();
		}
		x = kept(x), y = kept(y);
		int stage = 0;
#pragma unroll 1
		for (; lots > 0; lots--) {
			await_part();
			__syncthreads();
			int free = (stage + STAGES - 1) & (STAGES - 1);
			bool more = lots >= STAGES;
			place next = further(a, free * LEFT), other = further(b, free * RIGHT);
			add(sums, further(x, stage * LEFT), further(y, stage * RIGHT), [&](int term) {
				if (more) {
					left.turn(next, term);
					right.turn(other, term);
				}
			});
			end_part();
			stage = (stage + 1) & (STAGES - 1);
		}
#else
		if (lots <= 0)
			return;
		left.load();
		right.load();
		left.store(a);
		right.store(b);
		__syncthreads();
		int stage = 0;
#pragma unroll 1
		for (int lot = 0; lot < lots; lot++, stage ^= 1) {
			bool more = lot + 1 < lots;
			if (more) {
				left.load();
				right.load();
			}
			add(sums, further(x, stage * LEFT), further(y, stage * RIGHT), [](int) {});
			if (more) {
				left.store(further(a, (stage ^ 1) * LEFT));
				right.store(further(b, (stage ^ 1) * RIGHT));
				__syncthreads();
			}
		}
#endif
	}

	// finish gives the results to write(row, column, four of them), in an order in which warps write to places that lie
	// behind each other. Every other group of rows has the halves of 32 columns the other way round, so that what eight lanes
	// write lies in different banks.
	template <class F> static __device__ __forceinline__ void finish(float (*sums)[WIDE], float *space, F write) {
#pragma unroll 1
		for (int pass = 0; pass < TALL / SOME; pass++) {
			__syncthreads();
#pragma unroll
			for (int p = 0; p < TALL / SOME; p++)
				if (p == pass)
#pragma unroll
					for (int i = 0; i < SOME; i++)
#pragma unroll
						for (int j = 0; j < WIDE; j += 4)
							write_four(space + (down() * SOME + i) * COLS + (column(j / 4) ^ down() % 2 * 16),
									   sums[p * SOME + i] + j);
			__syncthreads();
#pragma unroll 1
			for (int q = threadIdx.x; q < SLAB * COLS / 4; q += THREADS) {
				int line = q / (COLS / 4), i = pass * SOME + line % SOME;
				float x[4];
				read_four(x, space + (4 * q ^ line / SOME % 2 * 16));
				write(row(i / 4, line / SOME) + i % 4, q % (COLS / 4) * 4, x);
			}
		}
	}
};

// A spot is a block's place among the results: of one of several products and, where the terms are split, of one part.
struct spot {
	om_i64 z, top, first;
	int part;
};

// BAND rows of blocks are walked together, column by column, so that blocks that run at the same time share factors.
#define BAND 8

// spot_of finds the block among count products of m × n, each in parts.
OM_DEVICE spot spot_of(om_i64 m, om_i64 n, om_i64 count, int rows, int columns) {
	om_i64 down = (m + rows - 1) / rows, across = (n + columns - 1) / columns;
	om_i64 z = blockIdx.x / (down * across), block = blockIdx.x - z * (down * across);
	om_i64 band = block / (BAND * across), within = block - band * (BAND * across);
	om_i64 high = down - band * BAND < BAND ? down - band * BAND : BAND;
	spot s;
	s.part = (int)(z / count), s.z = z - s.part * count;
	s.top = (band * BAND + within % high) * rows, s.first = within / high * columns;
	return s;
}

// other_at is om_at, once in a file.
static __device__ __noinline__ om_i64 other_at(const om_layout &l, om_i64 i) { return om_at(l, i); }

OM_DEVICE om_i64 place_at(const om_layout &l, om_i64 i) { return l.rank == 1 ? i * l.stride[0] : other_at(l, i); }

// other_activation is om_activated, once in a file: unrolled loops have many calls.
static __device__ __noinline__ float other_activation(int act, float x, float a, float b) { return om_activated(act, x, a, b); }

OM_DEVICE float activated(int act, float x, float a, float b) {
	if (act == OM_NO_ACTIVATION)
		return x;
	if (act == OM_RELU)
		return x < 0 ? 0.0f : x;
	return other_activation(act, x, a, b);
}

// end_product gives four sums of a line of a product their last form: those of the columns from c on, of n that there are. added is
// what is added to the line, where something is.
template <class T>
OM_DEVICE void end_product(float *x, om_i64 c, om_i64 n, const T *bias, om_i64 bias_step, const T *added, om_i64 added_step, float alpha,
						   float beta, int act, float act_a, float act_b) {
#pragma unroll
	for (int e = 0; e < 4; e++) {
		if (c + e >= n)
			break;
		x[e] *= alpha;
		if (bias)
			x[e] += om_float(bias[(c + e) * bias_step]);
		x[e] = activated(act, x[e], act_a, act_b);
		if (added)
			x[e] += beta * om_float(added[(c + e) * added_step]);
	}
}

// write_line writes four results that lie behind each other, of which count are there.
OM_DEVICE void write_line(float *to, const float *x, om_i64 count, bool fours) {
	if (fours && count >= 4) {
		write_four(to, x);
		return;
	}
#pragma unroll
	for (int e = 0; e < 4; e++)
		if (e < count)
			to[e] = x[e];
}
