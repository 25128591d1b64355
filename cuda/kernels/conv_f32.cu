#include "om.h"
#include "conv.h"
#include "tile.h"

// Convolutions of floats: products, by the blocks of tile.h, of a group's weight, a line for each output channel, and the
// windows of all images, a line for each pixel. The windows are never written anywhere: where a term of them lies is
// looked up as it is copied. Terms are in the weight's order, so a window's are those of one channel behind those of the one
// before.

// A tap is a place in the kernel: how far from a window's begin it lies along each dimension. on is from there to the next term
// that a thread copies, in elements.
struct tap {
	int on, z, y, x;
};

// The windows are a factor whose lines are pixels: see strided in tile.h.
template <int LINES, int THREADS> struct windows {
	static const int COUNT = LINES * DEPTH / THREADS, FURTHER = THREADS / LINES;
	// Where the term is that the thread copies next, and its tap; taps_on is from there to the next one's, around count. rest is
	// how many terms there are from the part's first one on.
	const float *from;
	const tap *taps;
	tap p;
	int in[3], at[3], tap_at, taps_on, count, rest;
#if !AHEAD
	float hold[COUNT];
#endif

	// list makes the list of taps, count of them.
	static __device__ __forceinline__ void list(tap *taps, int count, const geometry &g) {
		int wide = (int)g.kernel[2], high = (int)g.kernel[1];
		auto offset = [&](int i) {
			return i / wide / high * (int)g.dilation[0] * g.x[2] + i / wide % high * (int)g.dilation[1] * g.x[3] +
				   i % wide * (int)g.dilation[2] * g.x[4];
		};
		for (int i = threadIdx.x; i < count; i += THREADS) {
			int next = i + FURTHER, channels = next / count;
			tap p;
			p.on = (int)(channels * g.x[1] + offset(next - channels * count) - offset(i));
			p.z = i / wide / high * (int)g.dilation[0], p.y = i / wide % high * (int)g.dilation[1];
			p.x = i % wide * (int)g.dilation[2];
			taps[i] = p;
		}
	}

	// begin sets the first term, of terms that there are; the window begins at x.
	__device__ __forceinline__ void begin(const float *x, const tap *of, int many, const geometry &g, om_i64 term, om_i64 terms) {
		taps = of, count = many, taps_on = (int)kept(FURTHER % many), tap_at = (int)(term % many), p = taps[tap_at];
		from = x + term / many * g.x[1] + p.z * g.x[2] + p.y * g.x[3] + p.x * g.x[4];
		rest = terms - term < 1 << 30 ? (int)(terms - term) : 1 << 30;
	}

	// inside says whether a part's term i lies there, next goes on to the one after it.
	__device__ __forceinline__ bool inside(int i) const {
		return (rest > i * FURTHER) & ((unsigned)(at[0] + p.z) < (unsigned)in[0]) & ((unsigned)(at[1] + p.y) < (unsigned)in[1]) &
			   ((unsigned)(at[2] + p.x) < (unsigned)in[2]);
	}
	__device__ __forceinline__ void next(int i) {
		from += p.on, tap_at += taps_on;
		if (tap_at >= count)
			tap_at -= count;
		p = taps[tap_at];
		if (i == COUNT - 1)
			rest -= DEPTH;
	}

#if AHEAD
	// turn begins to copy a term of the next part while the product of a term of another part is computed.
	__device__ __forceinline__ void turn(place part, int term) {
		int t = threadIdx.x, i = term / (DEPTH / COUNT);
		if (term % (DEPTH / COUNT))
			return;
		begin_copy(further(part, (t / LINES + i * FURTHER) * PITCH(LINES) + t % LINES), from, inside(i));
		next(i);
	}
#else
	__device__ __forceinline__ void load() {
#pragma unroll
		for (int i = 0; i < COUNT; i++) {
			hold[i] = inside(i) ? *from : 0;
			next(i);
		}
	}
	__device__ __forceinline__ void store(place to) {
		int t = threadIdx.x;
#pragma unroll
		for (int i = 0; i < COUNT; i++)
			to[(t / LINES + i * FURTHER) * PITCH(LINES) + t % LINES] = hold[i];
	}
#endif
};

// finish_four ends results of a channel, the first of which is element i.
OM_DEVICE void finish_four(float *x, int count, om_i64 channel, om_i64 i, const float *bias, om_i64 bias_step,
						   ENDING_AS(const om_layout &, float, float)) {
	float mean_of = 0, deviation = 1, scale = 1, shift = bias ? bias[channel * bias_step] : 0, after = 0;
	if (mean) {
		mean_of = mean[channel * steps.mean], deviation = sqrtf(var[channel * steps.var] + eps);
		scale = norm_w[channel * steps.w], after = norm_b[channel * steps.b];
	}
#pragma unroll
	for (int e = 0; e < 4; e++) {
		if (e >= count)
			break;
		x[e] += shift;
		if (mean)
			x[e] = (x[e] - mean_of) / deviation * scale + after;
		if (added)
			x[e] += added[place_at(added_view, i + e)];
		x[e] = activated(act, x[e], act_a, act_b);
	}
}

template <int ROWS, int COLS, int TALL, int WIDE>
OM_DEVICE void convolve(float *out, float *parts, const float *x, const float *w, const float *bias, om_i64 bias_step, const geometry &g,
						ENDING_AS(const om_layout &, float, float), om_i64 part, int fours) {
	typedef tile<ROWS, COLS, TALL, WIDE> own;
	__shared__ __align__(16) float space[own::FLOATS];
	OM_DYNAMIC(tap, taps);
	int t = threadIdx.x, count = (int)(g.kernel[0] * g.kernel[1] * g.kernel[2]);
	windows<COLS, own::THREADS>::list(taps, count, g);
	__syncthreads();
	om_i64 pixels = g.out[0] * g.out[1] * g.out[2], n = g.batch * pixels, k = g.inputs * count;
	spot s = spot_of(g.outputs, n, g.groups, ROWS, COLS);
	om_i64 from = s.part * part, to = from + part < k ? from + part : k;

	strided<ROWS, own::THREADS, false> weights;
	weights.begin(w + (s.z * g.outputs + s.top) * g.w[0], 1, from, k, ALONG, g.outputs - s.top, [&](om_i64 i) { return i * g.w[0]; });
	windows<COLS, own::THREADS> values;
	om_i64 mine = s.first + t % COLS, image = mine / pixels, term = from + t / COLS;
	int p = (int)(mine - image * pixels), wide = (int)g.out[2], high = (int)g.out[1];
	values.at[2] = p % wide * (int)g.stride[2] - (int)g.padding[2];
	values.at[1] = p / wide % high * (int)g.stride[1] - (int)g.padding[1];
	values.at[0] = p / wide / high * (int)g.stride[0] - (int)g.padding[0];
	const float *window = x + image * g.x[0] + s.z * g.inputs * g.x[1];
	window += values.at[0] * g.x[2] + values.at[1] * g.x[3] + values.at[2] * g.x[4];
	values.begin(window, taps, count, g, term, k);
	for (int d = 0; d < 3; d++)
		values.in[d] = mine < n ? (int)g.in[d] : 0;

	float sums[TALL][WIDE];
	own::multiply(sums, space, weights, values, from, to);
	own::finish(sums, space, [&](int row, int column, float *v) {
		om_i64 o = s.top + row, c = s.first + column;
		if (o >= g.outputs || c >= n)
			return;
		om_i64 channel = s.z * g.outputs + o, channels = g.groups * g.outputs, of = c / pixels, at = c - of * pixels;
		float *to = parts ? parts + s.part * n * channels : out;
		int count = fours ? 4 : 1;
#pragma unroll 1
		for (int e = 0; e < 4 && c + e < n; e += count) {
			om_i64 i = (of * channels + channel) * pixels + at;
			if (!parts)
				finish_four(v, count, channel, i, bias, bias_step, END);
			write_line(to + i, v, count, fours);
			v[0] = v[1], v[1] = v[2], v[2] = v[3];
			if (++at == pixels)
				at = 0, of++;
		}
	});
}

#define CONVOLUTION(name, lines, columns, tall, wide, blocks)                                                                    \
	BOUNDED_KERNEL((lines / tall * (columns / wide)), blocks, name, float *out, float *parts, const float *x, const float *w,   \
				   const float *bias, om_i64 bias_step, OM_GIVEN geometry g, ENDING(float, float), om_i64 part, int fours) {             \
		convolve<lines, columns, tall, wide>(out, parts, x, w, bias, bias_step, g, END, part, fours);                           \
	}

// One of the largest blocks: see gemm.cu.
CONVOLUTION(om_conv_f32_128, 128, 128, 8, 8, 1)
CONVOLUTION(om_conv_f32_64, 64, 64, 8, 4, 4)
CONVOLUTION(om_conv_f32_16, 16, 128, 4, 4, 4)

// The parts of sums, one after the other, and what the convolution ends with.
OM_KERNEL(om_conv_sum_f32, float *out, const float *parts, const float *bias, om_i64 bias_step, om_i64 pixels, om_i64 channels,
		  ENDING(float, float), om_i64 total, int count) {
	OM_EACH(i, total) {
		float sum = 0;
		for (int p = 0; p < count; p++)
			sum += parts[p * total + i];
		om_i64 channel = i / pixels % channels;
		if (bias)
			sum += bias[channel * bias_step];
		out[i] = ended<float, float>(sum, channel, i, END);
	}
}
