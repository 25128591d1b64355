#include "om.h"
#include "conv.h"

// read_at is where along dimension d tap k of the window of output o reads; −1 outside.
OM_DEVICE om_i64 read_at(const geometry &g, int d, om_i64 o, om_i64 k) {
	if (!g.transposed) {
		om_i64 at = o * g.stride[d] - g.padding[d] + k * g.dilation[d];
		return at >= 0 && at < g.in[d] ? at : -1;
	}
	om_i64 at = o + g.padding[d] - k * g.dilation[d];
	if (at < 0 || at % g.stride[d] != 0)
		return -1;
	at /= g.stride[d];
	return at < g.in[d] ? at : -1;
}

// Windows walks over the terms of an output: add(place in x, place in w) for each.
template <class F> OM_DEVICE void window(const geometry &g, om_i64 image, om_i64 o, om_i64 pixel, F add) {
	om_i64 group = o / g.outputs;
	om_i64 ox = pixel % g.out[2], oy = pixel / g.out[2] % g.out[1], oz = pixel / g.out[2] / g.out[1];
	om_i64 x0 = image * g.x[0] + group * g.inputs * g.x[1];
	om_i64 w0 = g.transposed ? group * g.inputs * g.w[0] + o % g.outputs * g.w[1] : o * g.w[0];
	om_i64 channel = g.transposed ? g.w[0] : g.w[1];
	for (om_i64 kz = 0; kz < g.kernel[0]; kz++) {
		om_i64 z = read_at(g, 0, oz, kz);
		if (z < 0)
			continue;
		for (om_i64 ky = 0; ky < g.kernel[1]; ky++) {
			om_i64 y = read_at(g, 1, oy, ky);
			if (y < 0)
				continue;
			for (om_i64 kx = 0; kx < g.kernel[2]; kx++) {
				om_i64 x = read_at(g, 2, ox, kx);
				if (x < 0)
					continue;
				om_i64 from = x0 + z * g.x[2] + y * g.x[3] + x * g.x[4];
				om_i64 with = w0 + kz * g.w[2] + ky * g.w[3] + kx * g.w[4];
#pragma unroll 1
				for (om_i64 c = 0; c < g.inputs; c++)
					add(from + c * g.x[1], with + c * channel);
			}
		}
	}
}

// An output a thread: for few channels, transposed convolutions, integers, and weights that are views.
#define DIRECT(suffix, T, A)                                                                                                \
	OM_KERNEL(om_conv_direct_##suffix, T *out, const T *x, const T *w, const T *bias, om_i64 bias_step, OM_GIVEN geometry g, om_i64 n, \
			  ENDING(T, A)) { \
		om_i64 pixels = g.out[0] * g.out[1] * g.out[2], channels = g.groups * g.outputs;                                \
		OM_EACH(i, n) {                                                                                                \
			om_i64 o = i / pixels % channels;                                                                         \
			A sum = 0;                                                                                                \
			window(g, i / pixels / channels, o, i % pixels,                                                           \
				   [&](om_i64 from, om_i64 with) { sum += om_float(x[from]) * om_float(w[with]); });                   \
			if (bias)                                                                                                 \
				sum += om_float(bias[o * bias_step]);                                                                 \
			om_round(&out[i], ended<T, A>(sum, o, i, END)); \
		}                                                                                                              \
	}

OM_REAL(DIRECT)

OM_KERNEL(om_conv_direct_i, void *out, const void *x, const void *w, const void *bias, om_i64 bias_step, int type, OM_GIVEN geometry g,
		  om_i64 n) {
	om_i64 pixels = g.out[0] * g.out[1] * g.out[2], channels = g.groups * g.outputs;
	OM_EACH(i, n) {
		om_i64 o = i / pixels % channels;
		om_u64 sum = 0;
		window(g, i / pixels / channels, o, i % pixels, [&](om_i64 from, om_i64 with) {
			sum += (om_u64)om_load_i(x, from, type) * (om_u64)om_load_i(w, with, type);
		});
		if (bias)
			sum += (om_u64)om_load_i(bias, o * bias_step, type);
		om_store_i(out, i, type, (om_i64)sum);
	}
}

// Products of matrices, the weight by windows that are looked up as they are needed: a block of SIDE channels by SIDE pixels of
// all images at a time, 16 × 16 threads with STEP × STEP results each, DEPTH terms at a time in shared memory.
#define SIDE 64
#define DEPTH 16
#define STEP 4
#define THREADS 16

template <class T, class A>
OM_DEVICE void tiles(T *out, const T *x, const T *w, const T *bias, om_i64 bias_step, const geometry &g, ENDING_AS(const om_layout &, T, A),
					 A (*a)[SIDE + 1], A (*b)[SIDE + 1]) {
	int tx = threadIdx.x, ty = threadIdx.y, t = ty * THREADS + tx;
	om_i64 pixels = g.out[0] * g.out[1] * g.out[2], taps = g.kernel[0] * g.kernel[1] * g.kernel[2], k = g.inputs * taps;
	for (om_i64 group = blockIdx.z; group < g.groups; group += gridDim.z) {
		for (om_i64 top = (om_i64)blockIdx.y * SIDE; top < g.outputs; top += (om_i64)gridDim.y * SIDE) {
			// The pixel that the thread looks up.
			om_i64 first = (om_i64)blockIdx.x * SIDE, mine = first + t % SIDE;
			bool there = mine < g.batch * pixels;
			om_i64 p = mine % pixels, base = mine / pixels * g.x[0] + group * g.inputs * g.x[1];
			om_i64 oz = p / g.out[2] / g.out[1] * g.stride[0] - g.padding[0];
			om_i64 oy = p / g.out[2] % g.out[1] * g.stride[1] - g.padding[1];
			om_i64 ox = p % g.out[2] * g.stride[2] - g.padding[2];
			A sums[STEP][STEP];
			for (int i = 0; i < STEP; i++)
				for (int j = 0; j < STEP; j++)
					sums[i][j] = 0;
			for (om_i64 k0 = 0; k0 < k; k0 += DEPTH) {
#pragma unroll 1
				for (int i = 0; i < STEP; i++) {
					int term = t % DEPTH, line = t / DEPTH + i * (SIDE / STEP);
					om_i64 at = k0 + term, c = at / taps, tap = at - c * taps;
					om_i64 kx = tap % g.kernel[2], ky = tap / g.kernel[2] % g.kernel[1], kz = tap / g.kernel[2] / g.kernel[1];
					om_i64 o = top + line;
					A weight = 0;
					if (o < g.outputs && at < k)
						weight = om_float(w[(group * g.outputs + o) * g.w[0] + c * g.w[1] + kz * g.w[2] + ky * g.w[3] + kx * g.w[4]]);
					a[term][line] = weight;
				}
#pragma unroll 1
				for (int i = 0; i < STEP; i++) {
					int term = t / SIDE + i * (DEPTH / STEP);
					om_i64 at = k0 + term, c = at / taps, tap = at - c * taps;
					om_i64 kx = tap % g.kernel[2], ky = tap / g.kernel[2] % g.kernel[1], kz = tap / g.kernel[2] / g.kernel[1];
					om_i64 z = oz + kz * g.dilation[0], y = oy + ky * g.dilation[1], px = ox + kx * g.dilation[2];
					A value = 0;
					if (there && at < k && z >= 0 && z < g.in[0] && y >= 0 && y < g.in[1] && px >= 0 && px < g.in[2])
						value = om_float(x[base + c * g.x[1] + z * g.x[2] + y * g.x[3] + px * g.x[4]]);
					b[term][t % SIDE] = value;
				}
				__syncthreads();
#pragma unroll 4
				for (int term = 0; term < DEPTH; term++) {
					A u[STEP], v[STEP];
					for (int i = 0; i < STEP; i++) {
						u[i] = a[term][ty + i * THREADS];
						v[i] = b[term][tx + i * THREADS];
					}
					for (int i = 0; i < STEP; i++)
						for (int j = 0; j < STEP; j++)
							sums[i][j] += u[i] * v[j];
				}
				__syncthreads();
			}
			for (int i = 0; i < STEP; i++) {
				om_i64 o = top + ty + i * THREADS;
				for (int j = 0; j < STEP; j++) {
					om_i64 c = first + tx + j * THREADS;
					if (o >= g.outputs || c >= g.batch * pixels)
						continue;
					om_i64 channel = group * g.outputs + o;
					A sum = sums[i][j];
					if (bias)
						sum += om_float(bias[channel * bias_step]);
					om_i64 at = (c / pixels * g.groups * g.outputs + channel) * pixels + c % pixels;
					om_round(&out[at], ended<T, A>(sum, channel, at, END));
				}
			}
		}
	}
}

#define TILED(suffix, T, A)                                                                                               \
	OM_KERNEL(om_conv_tiled_##suffix, T *out, const T *x, const T *w, const T *bias, om_i64 bias_step, OM_GIVEN geometry g, \
			  ENDING(T, A)) { \
		__shared__ A a[DEPTH][SIDE + 1];                                                                               \
		__shared__ A b[DEPTH][SIDE + 1];                                                                               \
		tiles<T, A>(out, x, w, bias, bias_step, g, END, a, b); \
	}

// Floats have blocks of their own: conv_f32.cu.
TILED(f16, om_f16, float)
TILED(bf16, om_bf16, float)
TILED(f64, double, double)
