// Pieces of 16 × 8 results as tensor cores leave them with the lanes of a warp: where they lie and, for compute capability 7.0 and
// 7.2, how they are computed there. Needs om.h.
//
// Those multiply 8 × 4 by 4 × 8 halves, one such product for each of a warp's four pairs of quads, which are four lanes behind each
// other and those sixteen lanes on. Two neighbouring pieces, 16 × 16 results, are one product of each pair: of the rows it has those of
// one bit of four, of the columns, too, so that what any eight lanes read of either factor lies in eight lines behind each other.
#pragma once

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 750
#define QUADS 1
#else
#define QUADS 0
#endif

#ifdef __CUDA_ARCH__

// piece_row and piece_column are where a lane's results of a piece begin. It has two in a row, and two that are ROW_STEP rows on. Lanes
// that differ in the bits ROW_LANES and ROW_OTHERS have the same rows.
#if QUADS
#define ROW_STEP 2
#define ROW_LANES 2
#define ROW_OTHERS 8
OM_DEVICE int piece_row() {
	int lane = threadIdx.x % 32;
	return lane / 16 * 8 + lane / 4 % 2 * 4 + lane % 2;
}
OM_DEVICE int piece_column() {
	int lane = threadIdx.x % 32;
	return lane / 8 % 2 * 4 + (lane & 2);
}
#else
#define ROW_STEP 8
#define ROW_LANES 1
#define ROW_OTHERS 2
OM_DEVICE int piece_row() { return threadIdx.x % 32 / 4; }
OM_DEVICE int piece_column() { return threadIdx.x % 32 % 4 * 2; }
#endif

#if QUADS

// left_line and right_line are which of sixteen lines of a factor a lane reads: their terms lie behind each other. Of a right factor
// whose lines lie across the lane reads four columns, from right_column on, of term lane % 4.
OM_DEVICE int left_line() {
	int lane = threadIdx.x % 32;
	return lane / 16 * 8 + lane % 8;
}
OM_DEVICE int right_line() {
	int lane = threadIdx.x % 32;
	return lane / 16 * 8 + lane / 8 % 2 * 4 + lane % 4;
}
OM_DEVICE int right_column() {
	int lane = threadIdx.x % 32;
	return lane / 16 * 8 + lane / 8 % 2 * 4;
}

#define MULTIPLY_QUADS(layouts)                                                                                                    \
	asm volatile("mma.sync.aligned.m8n8k4." layouts                                                                                \
				 ".f32.f16.f16.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9}, {%10, %11}, {%0, %1, %2, %3, %4, %5, %6, %7};"      \
				 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(more[0]), "+f"(more[1]), "+f"(more[2]),        \
				   "+f"(more[3])                                                                                                   \
				 : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]))

// multiply_quads adds the products of four terms to two pieces beside each other. ACROSS says that a lane has four columns of a term of
// the right factor, instead of four terms of a column.
template <bool ACROSS> OM_DEVICE void multiply_quads(float *sums, float *more, const om_u32 *a, const om_u32 *b) {
	if (ACROSS)
		MULTIPLY_QUADS("row.row");
	else
		MULTIPLY_QUADS("row.col");
}

// load_16 and load_8 read so many bytes of shared memory.
OM_DEVICE void load_16(om_u32 *to, om_u32 from) {
	asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from) : "memory");
}
OM_DEVICE void load_8(om_u32 *to, om_u32 from) {
	asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "r"(from) : "memory");
}

#endif
#endif
