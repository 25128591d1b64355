// What a kernel's source needs to be compiled for the host: CUDA's words, and the threads of a block as fibers.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

#define OM_DEVICE static inline
#define OM_KERNEL(name, ...)                                  \
	extern "C" void name(__VA_ARGS__);                         \
	static simt::registered simt_##name(#name, name);          \
	extern "C" void name(__VA_ARGS__)
#define OM_GIVEN const
#define OM_DYNAMIC(T, name) T *name = (T *)simt::self()->grid->dynamic

// Headers of the host use some of these words, so the simulator itself goes without.
#ifndef SIMT_ENGINE
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __constant__ static const
// Blocks of a stream run one at a time, on the thread of the stream.
#define __shared__ static thread_local

#define threadIdx (simt::self()->index)
#define blockIdx (simt::self()->grid->block)
#define blockDim (simt::self()->grid->threads)
#define gridDim (simt::self()->grid->blocks)
#define warpSize 32
#endif

#define __syncthreads() simt::barrier(__FILE__, __LINE__)
#define __syncwarp(...) simt::sync_warp(__VA_ARGS__)

namespace simt {

struct dim3 {
	unsigned x, y, z;
};

// A grid is what the threads of the block that runs know of all.
struct grid {
	dim3 block, threads, blocks;
	char *dynamic;
};

// A fiber is a thread of a block. It lies where its stack begins, and that grows down.
struct alignas(64) fiber {
	const simt::grid *grid;
	void *stack_pointer;
	dim3 index;
	unsigned lane, warp;
	enum { ready, at_barrier, in_warp, finished } state;
	struct meeting *meets; // where it waits in its warp
	const char *file;
	int line;
};

const size_t stack_room = 128 << 10; // a power of two, at a multiple of which the room for each stack begins

// on returns the fiber in a stack's room. Where it lies there is different in neighbours: pages and lines at the same place
// of each would share a few entries of the processor's tables and caches.
static inline fiber *on(size_t room) {
	size_t colour = room / stack_room % 16;
	return (fiber *)(room + stack_room - 128 - colour * (4096 + 704));
}

// self returns the fiber on whose stack the caller runs: kernels ask at every turn, and a variable of the system's thread
// would be a call each time.
static inline fiber *self() { return on((size_t)__builtin_frame_address(0) & ~(stack_room - 1)); }

void barrier(const char *file, int line);

// exchange gives a lane's 8 bytes to the lanes in mask and returns what those in it gave, once all have come. What is
// returned holds until the lane's next call.
const unsigned long long *exchange(unsigned mask, unsigned long long mine, unsigned *came);

static inline void sync_warp(unsigned mask = 0xffffffffu) { exchange(mask, 0, nullptr); }

// A parameter of a kernel, as the launch has to pass it.
struct parameter {
	size_t bytes, align;
	bool pointer, writes;
};

struct entry {
	const char *name;
	void *function;
	void (*call)(void *function, char *packed);
	int count;
	const parameter *parameters;
};

void add(const entry &e);

template <class T> constexpr parameter describe() {
	using P = std::remove_pointer_t<T>;
	return {sizeof(T), alignof(T), std::is_pointer_v<T>, std::is_pointer_v<T> && !std::is_const_v<P>};
}

template <class... A> struct described {
	static constexpr parameter list[sizeof...(A) + 1] = {describe<A>()..., {}};
};

template <class T> T *place(char *packed, size_t &at) {
	at = (at + alignof(T) - 1) / alignof(T) * alignof(T);
	T *p = (T *)(packed + at);
	at += sizeof(T);
	return p;
}

template <class... A> struct unpacked {
	static void call(void *function, char *packed) { apply(function, packed, std::index_sequence_for<A...>()); }
	template <size_t... I> static void apply(void *function, char *packed, std::index_sequence<I...>) {
		size_t at = 0;
		void *p[sizeof...(A) + 1] = {place<A>(packed, at)...}; // in order, as braces are
		((void (*)(A...))function)(*(A *)p[I]...);
	}
};

struct registered {
	template <class... A> registered(const char *name, void (*f)(A...)) {
		add({name, (void *)f, unpacked<A...>::call, (int)sizeof...(A), described<A...>::list});
	}
};

template <class T> static inline unsigned long long to_bits(T x) {
	static_assert(sizeof(T) <= 8);
	unsigned long long b = 0;
	memcpy(&b, &x, sizeof x);
	return b;
}

template <class T> static inline T from_bits(unsigned long long b) {
	T x;
	memcpy(&x, &b, sizeof x);
	return x;
}

// shuffle returns what lane from of the same part of the warp gave, its own where that is out of the part.
template <class T> static inline T shuffle(unsigned mask, T x, int from, int width) {
	unsigned lane = self()->lane, first = lane / width * width;
	const unsigned long long *all = exchange(mask, to_bits(x), nullptr);
	if (from < (int)first || from >= (int)(first + width))
		return x;
	return from_bits<T>(all[from]);
}

static inline unsigned ballot(unsigned mask, bool is) {
	unsigned came, votes = 0;
	const unsigned long long *all = exchange(mask, is, &came);
	for (int i = 0; i < 32; i++)
		if (came >> i & 1 && all[i])
			votes |= 1u << i;
	return votes;
}

static inline bool every(unsigned mask, bool is) {
	unsigned came;
	const unsigned long long *all = exchange(mask, is, &came);
	for (int i = 0; i < 32; i++)
		if (came >> i & 1 && !all[i])
			return false;
	return true;
}

} // namespace simt

template <class T> static inline T __shfl_sync(unsigned mask, T x, int from, int width = 32) {
	int first = (int)simt::self()->lane / width * width;
	return simt::shuffle(mask, x, first + (from & (width - 1)), width);
}
template <class T> static inline T __shfl_up_sync(unsigned mask, T x, unsigned by, int width = 32) {
	return simt::shuffle(mask, x, (int)simt::self()->lane - (int)by, width);
}
template <class T> static inline T __shfl_down_sync(unsigned mask, T x, unsigned by, int width = 32) {
	return simt::shuffle(mask, x, (int)(simt::self()->lane + by), width);
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T x, int with, int width = 32) {
	return simt::shuffle(mask, x, (int)simt::self()->lane ^ with, width);
}
static inline unsigned __ballot_sync(unsigned mask, int is) { return simt::ballot(mask, is); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __any_sync(unsigned mask, int is) { return simt::ballot(mask, is) != 0; }
static inline int __all_sync(unsigned mask, int is) { return simt::every(mask, is); }

// Streams run at the same time, so atomics are.
template <class T> static inline T atomicCAS(T *at, T expected, T desired) {
	__atomic_compare_exchange_n(at, &expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	return expected;
}
template <class T> static inline T atomicExch(T *at, T x) { return __atomic_exchange_n(at, x, __ATOMIC_SEQ_CST); }

namespace simt {
template <class T, class F> static inline T atomically(T *at, F change) {
	using bits = std::conditional_t<sizeof(T) == 8, unsigned long long, unsigned>;
	bits old = __atomic_load_n((bits *)at, __ATOMIC_SEQ_CST);
	for (;;) {
		T was = from_bits<T>(old), is = change(was);
		if (__atomic_compare_exchange_n((bits *)at, &old, (bits)to_bits(is), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			return was;
	}
}
} // namespace simt

#define SIMT_ATOMIC(name, expression)                                            \
	template <class T> static inline T name(T *at, std::common_type_t<T> x) {    \
		return simt::atomically(at, [x](T was) -> T { return expression; });     \
	}
SIMT_ATOMIC(atomicAdd, was + x)
SIMT_ATOMIC(atomicMax, was > x ? was : x)
SIMT_ATOMIC(atomicMin, was < x ? was : x)
SIMT_ATOMIC(atomicOr, was | x)
SIMT_ATOMIC(atomicAnd, was &x)

static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
static inline double rsqrt(double x) { return 1 / sqrt(x); }

// CUDA has these for every type beside C++'s.
template <class A, class B> static inline std::common_type_t<A, B> min(A a, B b) { return b < a ? b : a; }
template <class A, class B> static inline std::common_type_t<A, B> max(A a, B b) { return a < b ? b : a; }
