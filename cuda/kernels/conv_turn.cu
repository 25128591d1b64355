#include "om.h"

// A turn is from a tensor of lines × channels × space, where channels are inputs of each group, to lines × space × channels,
// where each group has padded ones; those more are zero.
struct turn {
	om_i64 lines, groups, inputs, padded, in[3], x[5];
};

#define SIDE 32
#define TURN(size, T)                                                                                                          \
	OM_KERNEL(om_conv_last_##size, T *out, const T *in, turn g) {                                                              \
		__shared__ T tile[SIDE][SIDE + 1];                                                                                     \
		om_i64 pixels = g.in[0] * g.in[1] * g.in[2], channels = g.groups * g.padded;                                           \
		om_i64 across = (channels + SIDE - 1) / SIDE, down = (pixels + SIDE - 1) / SIDE, block = blockIdx.x / across;          \
		om_i64 first = (blockIdx.x - block * across) * SIDE, line = block / down, top = (block - line * down) * SIDE;          \
		int own = threadIdx.x % SIDE, other = threadIdx.x / SIDE, step = blockDim.x / SIDE;                                    \
		om_i64 p = top + own;                                                                                                  \
		const T *from = in + line * g.x[0] + p / g.in[2] / g.in[1] * g.x[2] + p / g.in[2] % g.in[1] * g.x[3] + p % g.in[2] * g.x[4]; \
		for (int i = other; i < SIDE; i += step) {                                                                             \
			om_i64 c = first + i, group = c / g.padded, channel = c - group * g.padded;                                        \
			bool there = p < pixels && c < channels && channel < g.inputs;                                                     \
			tile[i][own] = there ? from[(group * g.inputs + channel) * g.x[1]] : (T)0;                                         \
		}                                                                                                                      \
		__syncthreads();                                                                                                       \
		om_i64 c = first + own;                                                                                                \
		for (int i = other; i < SIDE; i += step)                                                                               \
			if (top + i < pixels && c < channels)                                                                              \
				out[(line * pixels + top + i) * channels + c] = tile[own][i];                                                  \
	}
TURN(2, om_u16)
TURN(4, om_u32)
