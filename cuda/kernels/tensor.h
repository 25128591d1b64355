// Tensor cores: what they multiply, how their factors lie in shared memory, and how they come there. Needs tile.h and pieces.h.
#pragma once

// TENSOR says what the tensor cores of the target multiply: 2 is all kinds of factors, from compute capability 8.0 on, 1 is half
// floats alone, by those before, and 0 nothing: the host.
#if AHEAD
#define TENSOR 2
#elif defined(__CUDA_ARCH__)
#define TENSOR 1
#else
#define TENSOR 0
#endif

// LINE is how many bytes of a line of terms are copied at a time, PARTS how many such parts are in shared memory. Where parts are not
// copied asynchronously the one after those waits in registers.
#define LINE 64
#if AHEAD
#define PARTS 3
#else
#define PARTS 2
#endif

// What factors are, how they are rounded on the way to the multipliers, and from which TENSOR on those take them.
struct of_f16 {
	typedef om_f16 T;
	enum { ROUNDS = 0, SINCE = 1 };
};
struct of_bf16 {
	typedef om_bf16 T;
	enum { ROUNDS = 0, SINCE = 2 };
};
struct to_bf16 {
	typedef float T;
	enum { ROUNDS = 1, SINCE = 2 };
};
struct to_tf32 {
	typedef float T;
	enum { ROUNDS = 0, SINCE = 2 };
};

// choice is one of two types.
template <bool FIRST, class A, class B> struct choice {
	typedef A T;
};
template <class A, class B> struct choice<false, A, B> {
	typedef B T;
};

// value is a factor's element as the multipliers take it.
OM_DEVICE float value(of_f16, om_f16 x) { return om_float(x); }
OM_DEVICE float value(of_bf16, om_bf16 x) { return om_float(x); }
OM_DEVICE float value(to_bf16, float x) {
	om_bf16 half;
	om_round(&half, x);
	return om_float(half);
}
// To tf32 halves are rounded away from zero.
OM_DEVICE float value(to_tf32, float x) {
	om_u32 bits = om_float_bits(x);
	return x - x != 0 ? x : om_bits_float((bits + 0x1000) & ~0x1fffu);
}

#if TENSOR

// swizzled is where 16 bytes of a line lie in shared memory: eight lines' lie in different banks.
OM_DEVICE int swizzled(int line, int chunk) { return line * LINE + ((chunk ^ (line >> 1 & 3)) << 4); }

// hold reads 16 bytes, or has zeros where they are not there.
OM_DEVICE void hold(om_u32 *held, const void *from, bool there) {
	uint4 x = make_uint4(0, 0, 0, 0);
	if (there)
		x = *(const uint4 *)from;
	held[0] = x.x, held[1] = x.y, held[2] = x.z, held[3] = x.w;
}

#if AHEAD

// begin_copy_bytes begins to copy 16 bytes to shared memory; those after a number of bytes are zero. begin_copy_16 has all.
OM_DEVICE void begin_copy_bytes(om_u32 to, const void *from, int bytes) {
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(__cvta_generic_to_global(from)), "r"(bytes)
				 : "memory");
}
OM_DEVICE void begin_copy_16(om_u32 to, const void *from) {
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(__cvta_generic_to_global(from)) : "memory");
}

// bring begins to copy 16 bytes to shared memory, or zeros where they are not there; HOLDS says that they are only held.
template <bool HOLDS> OM_DEVICE void bring(om_u32 to, om_u32 *held, const void *from, bool there) {
	if (HOLDS)
		hold(held, from, there);
	else
		begin_copy_bytes(to, from, there ? 16 : 0);
}

// await_lot waits until all but the last of the parts that are on their way are there; end_lot ends one.
OM_DEVICE void await_lot() { asm volatile("cp.async.wait_group 1;" ::: "memory"); }
OM_DEVICE void end_lot() { end_part(); }

#else

template <bool> OM_DEVICE void bring(om_u32, om_u32 *held, const void *from, bool there) { hold(held, from, there); }
OM_DEVICE void await_lot() {}
OM_DEVICE void end_lot() {}

#endif

#if !QUADS

// load reads four matrices of 8 × 8 half floats, or of 8 × 4 floats, of which a lane names a line of 16 bytes.
OM_DEVICE void load(om_u32 *to, om_u32 from) {
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
				 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from) : "memory");
}
OM_DEVICE void load_turned(om_u32 *to, om_u32 from) {
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
				 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from) : "memory");
}

#endif

// load_word reads four bytes.
OM_DEVICE om_u32 load_word(om_u32 from) {
	om_u32 x;
	asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(from) : "memory");
	return x;
}

// store_words writes 16 bytes.
OM_DEVICE void store_words(om_u32 to, const om_u32 *x) {
	asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]) : "memory");
}

// store_two writes 8 bytes.
OM_DEVICE void store_two(om_u32 to, om_u32 low, om_u32 high) {
	asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to), "r"(low), "r"(high) : "memory");
}

#if TENSOR > 1

#define MMA(name, kind)                                                                                                     \
	OM_DEVICE void name(float *sums, const om_u32 *a, const om_u32 *b) {                                                    \
		asm volatile("mma.sync.aligned." kind " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"            \
					 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])                                           \
					 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                                   \
	}
MMA(multiply_f16, "m16n8k16.row.col.f32.f16.f16.f32")
MMA(multiply_bf16, "m16n8k16.row.col.f32.bf16.bf16.f32")
MMA(multiply_tf32, "m16n8k8.row.col.f32.tf32.tf32.f32")
OM_DEVICE void multiply(of_f16, float *sums, const om_u32 *a, const om_u32 *b) { multiply_f16(sums, a, b); }
OM_DEVICE void multiply(of_bf16, float *sums, const om_u32 *a, const om_u32 *b) { multiply_bf16(sums, a, b); }
OM_DEVICE void multiply(to_bf16, float *sums, const om_u32 *a, const om_u32 *b) { multiply_bf16(sums, a, b); }
OM_DEVICE void multiply(to_tf32, float *sums, const om_u32 *a, const om_u32 *b) { multiply_tf32(sums, a, b); }

#elif !QUADS

// The product of sixteen terms is two of eight.
OM_DEVICE void multiply(of_f16, float *sums, const om_u32 *a, const om_u32 *b) {
#pragma unroll
	for (int half = 0; half < 2; half++)
		asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
					 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
					 : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(b[half]));
}

#endif

// rounded_in_place rounds what a lane was given of a factor to what the multipliers take.
template <class M> OM_DEVICE void rounded_in_place(M, om_u32 *, int) {}
#if TENSOR > 1
OM_DEVICE void rounded_in_place(to_tf32, om_u32 *x, int count) {
#pragma unroll
	for (int i = 0; i < count; i++)
		asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(x[i]) : "f"(__uint_as_float(x[i])));
}

// pair rounds two floats to a register of two halves.
OM_DEVICE om_u32 pair(om_u32 low, om_u32 high) {
	om_u32 both;
	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(__uint_as_float(high)), "f"(__uint_as_float(low)));
	return both;
}

#endif

#if QUADS

// SLICES is how many times 16 bytes of terms a part is.
#define SLICES 4

// multiply_parts is that of the other GPUs, below. A lane reads 16 bytes of each of its lines at a time, the terms of two products.
// ACROSS says that what it is given of the right factor is four columns of a term, then those of the fourth term on.
template <class M, int TALL, int WIDE, bool ACROSS = false, class F>
OM_DEVICE void multiply_parts(float (*sums)[WIDE][4], om_u32 x, F right) {
#pragma unroll 1
	for (int slice = 0; slice < SLICES; slice++) {
		om_u32 u[TALL][4], v[4];
#pragma unroll
		for (int i = 0; i < TALL; i++)
			load_16(u[i], (x ^ slice * 16) + i * 16 * LINE);
#pragma unroll
		for (int j = 0; j < WIDE; j += 2) {
			right(v, slice, j);
#pragma unroll
			for (int e = 0; e < 4; e += 2)
#pragma unroll
				for (int i = 0; i < TALL; i++)
					multiply_quads<ACROSS>(sums[i][j], sums[i][j + 1], u[i] + e, v + e);
		}
	}
}

// left_at and right_at are where a lane first reads of lines of a factor whose terms lie behind each other.
OM_DEVICE int left_at(int line) { return swizzled(line + left_line(), 0); }
OM_DEVICE int right_at(int line) { return swizzled(line + right_line(), 0); }

// load_along reads what the lane has of pieces j and j + 1 of a slice of the right factor, of which it first reads at y.
OM_DEVICE void load_along(om_u32 *words, om_u32 y, int slice, int j) { load_16(words, (y ^ slice * 16) + j * 8 * LINE); }

#else

// SLICES is how many products of 32 bytes of terms a part is.
#define SLICES 2

// multiply_parts adds the products of a part of both factors, lines of terms, to what a warp has: TALL × WIDE pieces of 16 × 8
// sums, which lie as pieces.h has it. x is where the lane reads the left
// factor first, left_at of the warp's lines; right says how pieces j and j + 1 of a slice of the right factor are read. Of the
// places that a lane reads only the first is computed: the others are a bit or a constant away, since parts begin at multiples of 128.
template <class M, int TALL, int WIDE, class F>
OM_DEVICE void multiply_parts(float (*sums)[WIDE][4], om_u32 x, F right) {
#if TENSOR == 1
	// The next terms wait in registers, which leaves few for the right factor: it is read as it is multiplied.
#pragma unroll 1
	for (int slice = 0; slice < SLICES; slice++) {
		om_u32 u[TALL][4], v[4];
#pragma unroll
		for (int i = 0; i < TALL; i++)
			load(u[i], (x ^ slice * 32) + i * 16 * LINE);
#pragma unroll
		for (int j = 0; j < WIDE; j += 2) {
			right(v, slice, j);
#pragma unroll
			for (int i = 0; i < TALL; i++)
#pragma unroll
				for (int e = 0; e < 2; e++)
					multiply(M(), sums[i][j + e], u[i], v + 2 * e);
		}
	}
#else
	om_u32 u[SLICES][TALL][4], v[SLICES][WIDE][2];
#pragma unroll
	for (int slice = 0; slice < SLICES; slice++) {
#pragma unroll
		for (int i = 0; i < TALL; i++) {
			load(u[slice][i], (x ^ slice * 32) + i * 16 * LINE);
			rounded_in_place(M(), u[slice][i], 4);
		}
#pragma unroll
		for (int j = 0; j < WIDE; j += 2) {
			om_u32 four[4];
			right(four, slice, j);
			rounded_in_place(M(), four, 4);
			v[slice][j][0] = four[0], v[slice][j][1] = four[1], v[slice][j + 1][0] = four[2], v[slice][j + 1][1] = four[3];
		}
		if (!M::ROUNDS) {
#pragma unroll
			for (int i = 0; i < TALL; i++)
#pragma unroll
				for (int j = 0; j < WIDE; j++)
					multiply(M(), sums[i][j], u[slice][i], v[slice][j]);
		}
	}
	// Floats to halves: the terms of both slices are those of one product. Which term is which does not matter, as long as
	// it is the same one on both sides.
	if constexpr (M::ROUNDS) {
#pragma unroll
		for (int i = 0; i < TALL; i++) {
			om_u32 w[4] = {pair(u[0][i][0], u[0][i][2]), pair(u[0][i][1], u[0][i][3]), pair(u[1][i][0], u[1][i][2]),
						   pair(u[1][i][1], u[1][i][3])};
#pragma unroll
			for (int j = 0; j < WIDE; j++) {
				om_u32 z[2] = {pair(v[0][j][0], v[0][j][1]), pair(v[1][j][0], v[1][j][1])};
				multiply(M(), sums[i][j], w, z);
			}
		}
	}
#endif
}

// left_at and right_at are where a lane first reads of lines of a factor whose terms lie behind each other.
OM_DEVICE int left_at(int line) {
	int lane = threadIdx.x % 32;
	return swizzled(line + lane % 16, lane / 16);
}
OM_DEVICE int right_at(int line) {
	int lane = threadIdx.x % 32;
	return swizzled(line + lane / 16 * 8 + lane % 8, lane / 8 % 2);
}

// load_along reads pieces j and j + 1 of a slice of the right factor, of which the lane first reads at y.
OM_DEVICE void load_along(om_u32 *four, om_u32 y, int slice, int j) { load(four, (y ^ slice * 32) + j * 8 * LINE); }

#endif
#endif

// store_four writes four results that lie behind each other, of which count are there; fours says that they are aligned.
OM_DEVICE void store_four(float *to, const float *x, om_i64 count, bool fours) { write_line(to, x, count, fours); }
template <class T> OM_DEVICE void store_four(T *to, const float *x, om_i64 count, bool fours) {
	T y[4];
#pragma unroll
	for (int e = 0; e < 4; e++)
		om_round(&y[e], x[e]);
#ifdef __CUDA_ARCH__
	if (fours && count >= 4) {
		*(uint2 *)to = make_uint2(y[0].bits | (om_u32)y[1].bits << 16, y[2].bits | (om_u32)y[3].bits << 16);
		return;
	}
#endif
#pragma unroll
	for (int e = 0; e < 4; e++)
		if (e < count)
			to[e] = y[e];
}
