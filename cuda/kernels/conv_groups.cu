#include "om.h"
#include "conv.h"
#include "tile.h"
#include "tensor.h"
#include "finish.h"

// Convolutions of groups with few output channels, and of channels by themselves where the channels of a pixel lie behind each
// other.

// Groups that have few output channels: each thread has a pixel of SOME channels of a group, so that what it reads of an
// image serves them all. A block has pixels of one image and group: chunks of them one behind the other.
template <class T, int SOME>
OM_DEVICE void few(T *out, const T *x, const T *w, const T *bias, om_i64 bias_step, const geometry &g,
				   ENDING_AS(const om_layout &, T, float), int chunks) {
	int pixels = (int)(g.out[0] * g.out[1] * g.out[2]), some = (int)((g.outputs + SOME - 1) / SOME);
	int rest = blockIdx.x / chunks, p = (int)(blockIdx.x - (unsigned)rest * chunks) * blockDim.x + threadIdx.x;
	if (p >= pixels)
		return;
	int first = rest % some * SOME, group = rest / some % (int)g.groups;
	om_i64 image = rest / some / (int)g.groups;
	int wide = (int)g.out[2], high = (int)g.out[1];
	int left = p % wide * (int)g.stride[2] - (int)g.padding[2], above = p / wide % high * (int)g.stride[1] - (int)g.padding[1];
	int before = p / wide / high * (int)g.stride[0] - (int)g.padding[0];
	const T *of = x + image * g.x[0] + group * g.inputs * g.x[1], *with = w + (group * g.outputs + first) * g.w[0];
	float sums[SOME];
	om_i64 line[SOME];
#pragma unroll
	for (int o = 0; o < SOME; o++) {
		sums[o] = 0;
		line[o] = first + o < g.outputs ? o * g.w[0] : 0;
	}
	for (int c = 0; c < (int)g.inputs; c++)
		for (int kz = 0; kz < (int)g.kernel[0]; kz++) {
			int z = before + kz * (int)g.dilation[0];
			if ((unsigned)z >= (unsigned)g.in[0])
				continue;
			for (int ky = 0; ky < (int)g.kernel[1]; ky++) {
				int y = above + ky * (int)g.dilation[1];
				if ((unsigned)y >= (unsigned)g.in[1])
					continue;
				const T *row = of + c * g.x[1] + z * g.x[2] + y * g.x[3];
				const T *taps = with + c * g.w[1] + kz * g.w[2] + ky * g.w[3];
#pragma unroll 1
				for (int kx = 0; kx < (int)g.kernel[2]; kx++) {
					int at = left + kx * (int)g.dilation[2];
					if ((unsigned)at >= (unsigned)g.in[2])
						continue;
					float value = om_float(row[at * g.x[4]]);
#pragma unroll
					for (int o = 0; o < SOME; o++)
						sums[o] += value * om_float(taps[line[o] + kx * g.w[4]]);
				}
			}
		}
#pragma unroll 1
	for (int o = 0; o < SOME && first + o < g.outputs; o++) {
		om_i64 channel = group * g.outputs + first + o, i = (image * g.groups * g.outputs + channel) * pixels + p;
		om_round(&out[i], finish_one<T>(sums[0], channel, i, bias, bias_step, END));
#pragma unroll
		for (int e = 1; e < SOME; e++)
			sums[e - 1] = sums[e];
	}
}

#define FEW(name, T, some)                                                                                                   \
	OM_KERNEL(name, T *out, const T *x, const T *w, const T *bias, om_i64 bias_step, OM_GIVEN geometry g, ENDING(T, float), int chunks) { \
		few<T, some>(out, x, w, bias, bias_step, g, END, chunks);                                                            \
	}
FEW(om_conv_few_f32_1, float, 1)
FEW(om_conv_few_f32_4, float, 4)
FEW(om_conv_few_f16_1, om_f16, 1)
FEW(om_conv_few_f16_4, om_f16, 4)
FEW(om_conv_few_bf16_1, om_bf16, 1)
FEW(om_conv_few_bf16_4, om_bf16, 4)

OM_DEVICE void load_channels(float *to, const float *from) { read_four(to, from); }
template <class T> OM_DEVICE void load_channels(float *to, const T *from) {
	T x[4];
#ifdef __CUDA_ARCH__
	uint2 bits = *(const uint2 *)from;
	x[0].bits = (om_u16)bits.x, x[1].bits = (om_u16)(bits.x >> 16), x[2].bits = (om_u16)bits.y, x[3].bits = (om_u16)(bits.y >> 16);
#else
	for (int e = 0; e < 4; e++)
		x[e] = from[e];
#endif
#pragma unroll
	for (int e = 0; e < 4; e++)
		to[e] = om_float(x[e]);
}

// Each channel by itself, N×space×C: a thread has four channels of ROW pixels that lie behind each other, which share their
// weights. Channels are a multiple of four, and four of them aligned.
#define ROW 4
template <class T>
OM_DEVICE void each_channel(T *out, const T *x, const T *w, const T *bias, om_i64 bias_step, const geometry &g,
							ENDING_AS(const om_layout &, T, float),
							om_i64 n) {
	int fours = (int)(g.groups / 4), wide = (int)((g.out[2] + ROW - 1) / ROW), high = (int)g.out[1], deep = (int)g.out[0];
	OM_EACH(q, n) {
		om_i64 rest = q / fours, line = rest / wide, image = line / high / deep;
		int c = (int)(q - rest * fours) * 4, column = (int)(rest - line * wide) * ROW;
		int oy = (int)(line % high), oz = (int)(line / high % deep);
		int above = oy * (int)g.stride[1] - (int)g.padding[1], before = oz * (int)g.stride[0] - (int)g.padding[0];
		const T *of = x + image * g.x[0] + c, *with = w + c * g.w[0];
		float sums[ROW][4];
#pragma unroll
		for (int p = 0; p < ROW; p++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				sums[p][e] = 0;
		for (int kz = 0; kz < (int)g.kernel[0]; kz++) {
			int z = before + kz * (int)g.dilation[0];
			if ((unsigned)z >= (unsigned)g.in[0])
				continue;
			for (int ky = 0; ky < (int)g.kernel[1]; ky++) {
				int y = above + ky * (int)g.dilation[1];
				if ((unsigned)y >= (unsigned)g.in[1])
					continue;
				const T *row = of + z * g.x[2] + y * g.x[3], *taps = with + kz * g.w[2] + ky * g.w[3];
#pragma unroll 1
				for (int kx = 0; kx < (int)g.kernel[2]; kx++) {
					float weights[4], values[4];
#pragma unroll
					for (int e = 0; e < 4; e++)
						weights[e] = om_float(taps[e * g.w[0] + kx * g.w[4]]);
#pragma unroll
					for (int p = 0; p < ROW; p++) {
						int at = (column + p) * (int)g.stride[2] - (int)g.padding[2] + kx * (int)g.dilation[2];
						if ((unsigned)at >= (unsigned)g.in[2])
							continue;
						load_channels(values, row + at * g.x[4]);
#pragma unroll
						for (int e = 0; e < 4; e++)
							sums[p][e] += values[e] * weights[e];
					}
				}
			}
		}
#pragma unroll 1
		for (int p = 0; p < ROW && column + p < (int)g.out[2]; p++) {
			om_i64 i = (line * g.out[2] + column + p) * g.groups + c;
			float y[4] = {sums[0][0], sums[0][1], sums[0][2], sums[0][3]};
#pragma unroll 1
			for (int e = 0; e < 4; e++) {
				float one = finish_one<T>(y[0], c + e, i + e, bias, bias_step, END);
				y[0] = y[1], y[1] = y[2], y[2] = y[3], y[3] = one;
			}
			store_four(out + i, y, 4, true);
#pragma unroll
			for (int f = 1; f < ROW; f++)
#pragma unroll
				for (int e = 0; e < 4; e++)
					sums[f - 1][e] = sums[f][e];
		}
	}
}

#define EACH_CHANNEL(suffix, T)                                                                                               \
	OM_KERNEL(om_conv_each_##suffix, T *out, const T *x, const T *w, const T *bias, om_i64 bias_step, OM_GIVEN geometry g, ENDING(T, float), \
			  om_i64 n) {                                                                                                     \
		each_channel<T>(out, x, w, bias, bias_step, g, END, n);                                                               \
	}
EACH_CHANNEL(f32, float)
EACH_CHANNEL(f16, om_f16)
EACH_CHANNEL(bf16, om_bf16)
