#include "om.h"

// Kernels for the tests of the simulator: what threads of a block do together.

// The sum of each block's part of in, by a tree in shared memory.
OM_KERNEL(om_test_sum, int *out, const int *in) {
	OM_DYNAMIC(int, part);
	int i = threadIdx.x;
	part[i] = in[blockIdx.x * blockDim.x + i];
	__syncthreads();
	for (int n = blockDim.x / 2; n > 0; n /= 2) {
		if (i < n)
			part[i] += part[i + n];
		__syncthreads();
	}
	if (i == 0)
		out[blockIdx.x] = part[0];
}

// For each thread of one block: the warp's sum by shuffles down to lane 0 and back, the lane two below, the partner, and
// which lanes of its half have an odd number in in.
OM_KERNEL(om_test_warp, int *out, const int *in) {
	int i = threadIdx.x, lane = i % 32;
	int sum = in[i];
	for (int n = 16; n > 0; n /= 2)
		sum += __shfl_down_sync(0xffffffffu, sum, n);
	sum = __shfl_sync(0xffffffffu, sum, 0);
	int up = __shfl_up_sync(0xffffffffu, in[i], 2);
	int partner = __shfl_xor_sync(0xffffffffu, in[i], 1);
	unsigned odd;
	if (lane < 16)
		odd = __ballot_sync(0x0000ffffu, in[i] & 1);
	else
		odd = __ballot_sync(0xffff0000u, in[i] & 1);
	__syncthreads(); // part of a warp may have waited for each other before
	out[i * 4] = sum;
	out[i * 4 + 1] = up;
	out[i * 4 + 2] = partner;
	out[i * 4 + 3] = (int)odd;
}

// Threads of one block that wait at two barriers at a time.
OM_KERNEL(om_test_diverged, int *out) {
	if (threadIdx.x < 8)
		__syncthreads();
	else
		__syncthreads();
	out[threadIdx.x] = 1;
}

// Lanes that wait for one that waits elsewhere.
OM_KERNEL(om_test_deadlock, int *out) {
	if (threadIdx.x == 3)
		__syncthreads();
	else
		out[threadIdx.x] = __shfl_sync(0xffffffffu, 1, 3);
}

// How many threads there are, and where the last one is.
OM_KERNEL(om_test_index, int *out) {
	atomicAdd(&out[0], 1);
	atomicMax(&out[1], (int)(blockIdx.x * blockDim.x + threadIdx.x));
	atomicMax(&out[2], (int)(blockIdx.y * blockDim.y + threadIdx.y));
	atomicMax(&out[3], (int)(blockIdx.z * blockDim.z + threadIdx.z));
}

// Reads before the others wrote, as a missing barrier does.
OM_KERNEL(om_test_hasty, int *out) {
	__shared__ int part[64];
	part[threadIdx.x] = threadIdx.x + 1;
	out[threadIdx.x] = part[(threadIdx.x + 1) % 64];
}

// Takes what describes a tensor, and leaves it alone.
struct alignas(64) om_test_described {
	unsigned long long words[16];
};
OM_KERNEL(om_test_map, int *out, const om_test_described map) { out[threadIdx.x] = (int)map.words[1]; }
