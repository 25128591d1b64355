// Blocks of ROWS × 256 sums of products of half floats by wgmma, which GPUs of compute capability 9.0 have and no others. The terms of
// both factors come to shared memory, 64 terms of every line at a time, and up to STAGES such lots are on their way or computed with. A
// warpgroup, four warps, has 64 rows of results; one more brings the factors. hopper_product.h and hopper_conv.h say what is summed.
// Included after tile.h and tensor.h.
#pragma once

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
#define HOPPER 1
#else
#define HOPPER 0
#endif

// A map describes a factor in memory to the unit that copies: what the driver wrote, for the launch.
struct alignas(64) om_map {
	om_u64 words[16];
};

#define GROUP 128
#define LOT 64
#define STAGES_AHEAD 4
#define WIDTH 256

#if HOPPER

// A barrier counts those that arrive, and bytes that are copied, and has a phase for each time that all have. These are of its address.
OM_DEVICE void begin_barrier(om_u32 barrier, int count) {
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
OM_DEVICE void arrive(om_u32 barrier) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory"); }
// expect arrives, and has the phase last until as many bytes were copied.
OM_DEVICE void expect(om_u32 barrier, int bytes) {
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// await waits until the phase that has a parity is over: of a new barrier the one before the first, of parity 1, is.
OM_DEVICE void await(om_u32 barrier, om_u32 parity) {
	om_u32 over;
	do
		asm volatile("{\n.reg .pred over;\nmbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;\nselp.b32 %0, 1, 0, over;\n}"
					 : "=r"(over) : "r"(barrier), "r"(parity) : "memory");
	while (!over);
}

// bring_box begins to copy a box of a factor, from a term and a line on.
OM_DEVICE void bring_box(om_u32 to, const om_map *map, int term, int line, om_u32 barrier) {
	asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
				 "l"(map), "r"(term), "r"(line), "r"(barrier) : "memory");
}

// described is what wgmma takes of a factor in shared memory: lines of 128 bytes, of which eight are 1024 and swizzled.
OM_DEVICE om_u64 described(om_u32 at) { return 1ull << 62 | 64ull << 32 | 1ull << 16 | at >> 4; }

#define SUMS_4(s, i) "+f"(s[i]), "+f"(s[i + 1]), "+f"(s[i + 2]), "+f"(s[i + 3])
#define SUMS_16(s, i) SUMS_4(s, i), SUMS_4(s, i + 4), SUMS_4(s, i + 8), SUMS_4(s, i + 12)
#define SUMS_64(s, i) SUMS_16(s, i), SUMS_16(s, i + 16), SUMS_16(s, i + 32), SUMS_16(s, i + 48)

// A warpgroup's product of 16 terms of 64 lines and of 256: sums are added to, or where more is 0 set. Of piece j of eight columns a
// lane has four, as of mma.sync: rows lane / 4 and that + 8 of the warp's sixteen, columns twice lane % 4 and the next.
#define WGMMA(name, kind)                                                                                                    \
	OM_DEVICE void name(float *s, om_u64 a, om_u64 b, int more) {                                                             \
		asm volatile(                                                                                                        \
			"{\n.reg .pred more;\nsetp.ne.b32 more, %130, 0;\nwgmma.mma_async.sync.aligned.m64n256k16.f32." kind " {"         \
			"%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                          \
			"%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                                \
			"%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                                \
			"%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "                                \
			"%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "                                \
			"%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "                                \
			"%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "                    \
			"%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "               \
			"%128, %129, more, 1, 1, 0, 0;\n}"                                                                                \
			: SUMS_64(s, 0), SUMS_64(s, 64)                                                                                  \
			: "l"(a), "l"(b), "r"(more));                                                                                    \
	}
WGMMA(multiply_group_f16, "f16.f16")
WGMMA(multiply_group_bf16, "bf16.bf16")
OM_DEVICE void multiply_group(of_f16, float *s, om_u64 a, om_u64 b, int more) { multiply_group_f16(s, a, b, more); }
OM_DEVICE void multiply_group(of_bf16, float *s, om_u64 a, om_u64 b, int more) { multiply_group_bf16(s, a, b, more); }

// Products of a warpgroup are begun by begin_group after what else wrote the sums, and end_group makes a group of those since the last
// one; await_groups waits until at most LEFT groups are on their way.
OM_DEVICE void begin_group() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
OM_DEVICE void end_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT> OM_DEVICE void await_groups() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory"); }

// A hopper_tile is a block of ROWS × 256 results: as many warpgroups as 64 rows are, and one that has the factors brought.
template <class M, int ROWS> struct hopper_tile {
	static const int GROUPS = ROWS / 64, STAGE = (ROWS + WIDTH) * LOT * 2;
	// Results go through shared memory at the end, sixteen rows of each warp.
	static const int PITCHED = WIDTH + 8;
	static_assert(ROWS * PITCHED * 4 <= STAGES_AHEAD * STAGE, "results do not fit");

	// Where shared memory has the lots, and two barriers for each: full lots and those that nobody reads any more.
	om_u32 lots, full, empty;

	// begin makes the barriers. A lot is full when so many have arrived that bring it, and the bytes that they expect have come.
	__device__ __forceinline__ void begin(om_u32 space, int bringers) {
		lots = (space + 1023) & ~1023u, full = lots + STAGES_AHEAD * STAGE, empty = full + STAGES_AHEAD * 8;
		if (threadIdx.x == 0) {
#pragma unroll 1
			for (int i = 0; i < STAGES_AHEAD; i++) {
				begin_barrier(full + i * 8, bringers);
				begin_barrier(empty + i * 8, GROUPS * 4);
			}
			asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
		}
		__syncthreads();
	}

	// bring has count lots of both factors brought as boxes, from a term and lines of the factors on; one thread does. What lies outside
	// of the factors is zero there.
	__device__ __forceinline__ void bring(const om_map *left, const om_map *right, int term, int top, int first, int count) {
		int stage = 0;
		om_u32 parity = 1;
#pragma unroll 1
		for (int lot = 0; lot < count; lot++) {
			om_u32 at = lots + stage * STAGE, barrier = full + stage * 8;
			await(empty + stage * 8, parity);
			expect(barrier, STAGE);
			bring_box(at, left, term + lot * LOT, top, barrier);
			bring_box(at + ROWS * LOT * 2, right, term + lot * LOT, first, barrier);
			if (++stage == STAGES_AHEAD)
				stage = 0, parity ^= 1;
		}
	}

	// multiply computes the products of count lots.
	__device__ __forceinline__ void multiply(float *sums, int count) {
		int stage = 0, before = 0, more = 0;
		om_u32 parity = 0, own = threadIdx.x / GROUP * 64 * LOT * 2;
#pragma unroll 1
		for (int lot = 0; lot < count; lot++) {
			om_u64 a = described(lots + stage * STAGE + own), b = described(lots + stage * STAGE + ROWS * LOT * 2);
			await(full + stage * 8, parity);
			begin_group();
#pragma unroll
			for (int slice = 0; slice < LOT / 16; slice++) { // 32 bytes of a line
				multiply_group(M(), sums, a + slice * 2, b + slice * 2, more);
				more = 1;
			}
			end_group();
			// The products of the lot before are done: each warp says so.
			await_groups<1>();
			if (lot > 0 && threadIdx.x % 32 == 0)
				arrive(empty + before * 8);
			before = stage;
			if (++stage == STAGES_AHEAD)
				stage = 0, parity ^= 1;
		}
		await_groups<0>();
	}

	// lay writes a warp's results to shared memory, rows a pitch apart; space is where the lots were.
	static __device__ __forceinline__ float *lay(const float *sums, float *space, int pitch) {
		int lane = threadIdx.x % 32;
		float *own = space + threadIdx.x / 32 * 16 * pitch;
#pragma unroll
		for (int j = 0; j < WIDTH / 8; j++)
#pragma unroll
			for (int e = 0; e < 4; e += 2)
				*(float2 *)(own + (lane / 4 + e / 2 * 8) * pitch + j * 8 + lane % 4 * 2) = make_float2(sums[j * 4 + e], sums[j * 4 + e + 1]);
		__syncwarp();
		return own;
	}

	// finish gives a warp's results to write(row, column, four of them in a row).
	template <class F> static __device__ __forceinline__ void finish(const float *sums, float *space, F write) {
		int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
		const float *own = lay(sums, space, PITCHED);
#pragma unroll 1
		for (int q = lane; q < 16 * WIDTH / 4; q += 32) {
			int row = q / (WIDTH / 4), column = q % (WIDTH / 4) * 4;
			float x[4];
			read_four(x, own + row * PITCHED + column);
			write(warp * 16 + row, column, x);
		}
	}
};

#endif
