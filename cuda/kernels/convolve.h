// Convolutions on tensor cores, sums being float: products, by parts of 64 bytes of terms, of the windows of all images, a line
// for each pixel, and a group's weight, a line for each output channel. What windows read and the weight have the channels of
// a place behind each other, by sixteens of bytes that are aligned, so that terms are in the order of taps, then of channels,
// and sixteen bytes of them are copied at a time; where they lie otherwise om_conv_last_… puts them so before. Results are
// N×C×space, or N×space×C. GPUs before compute capability 8.0 have other kernels, but for half floats; the host goes over the terms of
// each result. Needs conv.h, tile.h, pieces.h, tensor.h and finish.h.
#pragma once

// A term is sixteen bytes of channels of a tap.
struct term {
	int chunk, x, y, z;
	int chunks, wide, high; // of channels in a tap, of taps in a row, of rows

	__device__ __forceinline__ void begin(const geometry &g, om_i64 at, int each) {
		chunks = (int)(g.inputs / each), wide = (int)g.kernel[2], high = (int)g.kernel[1];
		om_i64 tap = at / chunks;
		chunk = (int)(at - tap * chunks), x = (int)(tap % wide), y = (int)(tap / wide % high), z = (int)(tap / wide / high);
	}
	__device__ __forceinline__ void further(int by) {
		chunk += by;
#pragma unroll 1
		while (chunk >= chunks) {
			chunk -= chunks;
			if (++x == wide) {
				x = 0;
				if (++y == high)
					y = 0, z++;
			}
		}
	}
};

// NOWHERE is a place along a dimension that no tap comes back from.
#define NOWHERE (-(1 << 30))

// end_convolved ends four results and writes them: those of a pixel of all images from a channel of a group on, where channels lie behind
// each other, else those of the channel from the pixel on. parts is where sums of parts go, if the results are those, of one part.
template <class T>
OM_DEVICE void end_convolved(T *out, float *parts, int part, const geometry &g, om_i64 group, om_i64 r, om_i64 o, float *v, const T *bias,
							 om_i64 bias_step, ENDING_AS(const om_layout &, T, float), int last, int fours) {
	om_i64 pixels = g.out[0] * g.out[1] * g.out[2], n = g.batch * pixels, channels = g.groups * g.outputs;
	if (r >= n || o >= g.outputs)
		return;
	om_i64 channel = group * g.outputs + o, image = r / pixels, at = r - image * pixels;
	om_i64 i = last ? r * channels + channel : (image * channels + channel) * pixels + at;
	om_i64 left = last ? g.outputs - o : n - r, first = i;
	float *parts_at = parts + part * n * channels;
#pragma unroll 1
	for (int e = 0; e < 4 && e < left; e++) {
		float y = v[0];
		if (!parts)
			y = finish_one<T>(y, channel, i, bias, bias_step, END);
		if (!fours && parts)
			parts_at[i] = y;
		else if (!fours)
			om_round(&out[i], y);
		v[0] = v[1], v[1] = v[2], v[2] = v[3], v[3] = y;
		i++;
		if (last)
			channel++;
		else if (++at == pixels)
			at = 0, i += (channels - 1) * pixels;
	}
	if (fours && parts)
		write_four(parts_at + first, v);
	else if (fours)
		store_four(out + first, v, 4, true);
}

#ifndef __CUDA_ARCH__
// plain_sum is the sum of some terms of a pixel of all images and a channel of a group, on the host.
template <class M>
float plain_sum(const typename M::T *x, const typename M::T *w, const geometry &g, om_i64 group, om_i64 r, om_i64 o, om_i64 from, om_i64 to) {
	const int EACH = 16 / sizeof(typename M::T);
	om_i64 pixels = g.out[0] * g.out[1] * g.out[2], p = r % pixels;
	if (r >= g.batch * pixels || o >= g.outputs)
		return 0;
	om_i64 z0 = p / g.out[2] / g.out[1] * g.stride[0] - g.padding[0], y0 = p / g.out[2] % g.out[1] * g.stride[1] - g.padding[1];
	om_i64 x0 = p % g.out[2] * g.stride[2] - g.padding[2];
	float sum = 0;
	term tap;
	tap.begin(g, from / EACH, EACH);
	for (om_i64 at = from; at < to; at += EACH, tap.further(1)) {
		om_i64 z = z0 + tap.z * g.dilation[0], y = y0 + tap.y * g.dilation[1], c = x0 + tap.x * g.dilation[2];
		if (z < 0 || z >= g.in[0] || y < 0 || y >= g.in[1] || c < 0 || c >= g.in[2])
			continue;
		const typename M::T *u = x + r / pixels * g.x[0] + group * g.inputs + z * g.x[2] + y * g.x[3] + c * g.x[4] + tap.chunk * EACH;
		const typename M::T *f = w + (group * g.outputs + o) * g.w[0] + tap.z * g.w[2] + tap.y * g.w[3] + tap.x * g.w[4] + tap.chunk * EACH;
		for (int i = 0; i < EACH; i++)
			sum += value(M(), u[i]) * value(M(), f[i]);
	}
	return sum;
}
#endif

template <class M, int ROWS, int COLS, int TALL, int WIDE>
OM_DEVICE void convolve(typename M::T *out, float *parts, const typename M::T *x, const typename M::T *w, const typename M::T *bias,
						om_i64 bias_step, const geometry &g, ENDING_AS(const om_layout &, typename M::T, float), om_i64 part, int last, int fours) {
#ifdef __CUDA_ARCH__
	if (TENSOR < M::SINCE) {
		asm volatile("trap;");
		return;
	}
#endif
	typedef typename M::T T;
	const int EACH = 16 / sizeof(T), WARPS = COLS / (WIDE * 8), THREADS = ROWS / (TALL * 16) * WARPS * 32;
	int t = threadIdx.x;
	om_i64 pixels = g.out[0] * g.out[1] * g.out[2], n = g.batch * pixels, channels = g.groups * g.outputs;
	om_i64 k = g.kernel[0] * g.kernel[1] * g.kernel[2] * g.inputs;
	spot s = spot_of(n, g.outputs, g.groups, ROWS, COLS);
	om_i64 from = s.part * part, to = from + part < k ? from + part : k;

	auto end_four = [&](int row, int column, float *v) {
		end_convolved(out, parts, s.part, g, s.z, s.top + row, s.first + column, v, bias, bias_step, END, last, fours);
	};
#if TENSOR
	if constexpr (TENSOR >= M::SINCE) {
		// Larger blocks round floats on the way to shared memory, where LOTS parts of the terms are then, of TERMS, CHUNKS times 16 bytes.
		const bool ROUNDED = M::ROUNDS && ROWS * COLS > 128 * 128;
		const int LOTS = ROUNDED ? 2 : PARTS, CHUNKS = ROUNDED ? 8 : 4, TERMS = CHUNKS * EACH;
		const int HIGH = ROWS / TALL, PITCHED = COLS + 4, LEFTS = ROWS * CHUNKS / THREADS, RIGHTS = COLS * CHUNKS / THREADS;
		__shared__ __align__(128) char space[LOTS * (ROWS + COLS) * LINE];
		static_assert(HIGH * PITCHED * 4 <= sizeof space, "results do not fit");
		int warp = t / 32, down = warp / WARPS * (TALL * 16), across = warp % WARPS * (WIDE * 8);
		float sums[TALL][WIDE][4];
#pragma unroll
		for (int i = 0; i < TALL; i++)
#pragma unroll
			for (int j = 0; j < WIDE; j++)
#pragma unroll
				for (int e = 0; e < 4; e++)
					sums[i][j][e] = 0;

		// The thread copies chunk t % CHUNKS of each part of some lines.
		typename choice<ROUNDED, int, const T *>::T begins[LEFTS]; // or how many times 16 bytes after x
		int at[LEFTS][3];
#pragma unroll
		for (int i = 0; i < LEFTS; i++) {
			om_i64 r = s.top + t / CHUNKS + i * (THREADS / CHUNKS), image = r / pixels;
			int p = (int)(r - image * pixels), wide = (int)g.out[2], high = (int)g.out[1];
			at[i][2] = p % wide * (int)g.stride[2] - (int)g.padding[2];
			at[i][1] = p / wide % high * (int)g.stride[1] - (int)g.padding[1];
			at[i][0] = p / wide / high * (int)g.stride[0] - (int)g.padding[0];
			om_i64 start = image * g.x[0] + s.z * g.inputs + at[i][0] * g.x[2] + at[i][1] * g.x[3] + at[i][2] * g.x[4];
			if constexpr (ROUNDED)
				begins[i] = (int)(start / EACH);
			else
				begins[i] = x + start;
			if (r >= n)
				at[i][0] = NOWHERE;
		}
		const T *weights = w + (s.z * g.outputs + s.first + t / CHUNKS) * g.w[0];
		int there = (int)(g.outputs - s.first < COLS ? g.outputs - s.first : COLS) - t / CHUNKS;
		om_u32 a = shared_at(space), b = a + LOTS * ROWS * LINE;
		om_u32 slot = kept(ROUNDED ? swizzled(t / 8, t % 8 / 2) + t % 2 * 8 : swizzled(t / 4, t % 4));
		om_u32 left = kept(a + left_at(down)), right = kept(b + right_at(across));
		typename choice<ROUNDED, int, om_i64>::T next = from / EACH + t % CHUNKS, end = to / EACH;
		term p;
		p.begin(g, next, EACH);
		om_u32 held[LEFTS + RIGHTS][4]; // what waits for the next copy, where that is not asynchronous
		auto bring_part = [&](om_u32 lines, om_u32 others) {
			int z = p.z * (int)g.dilation[0], y = p.y * (int)g.dilation[1], c = p.x * (int)g.dilation[2];
			om_i64 further = z * g.x[2] + y * g.x[3] + c * g.x[4] + p.chunk * EACH;
#pragma unroll
			for (int i = 0; i < LEFTS; i++) {
				bool inside = next < end && (unsigned)(at[i][0] + z) < (unsigned)g.in[0] && (unsigned)(at[i][1] + y) < (unsigned)g.in[1] &&
							  (unsigned)(at[i][2] + c) < (unsigned)g.in[2];
				const T *start;
				if constexpr (ROUNDED)
					start = x + further + (om_i64)begins[i] * EACH;
				else
					start = begins[i] + further;
				bring<ROUNDED>(lines + i * THREADS * 16, held[i], inside ? start : x, inside);
			}
			further = p.z * g.w[2] + p.y * g.w[3] + p.x * g.w[4] + p.chunk * EACH;
#pragma unroll
			for (int i = 0; i < RIGHTS; i++) {
				bool inside = next < end && i * (THREADS / CHUNKS) < there;
				bring<ROUNDED>(others + i * THREADS * 16, held[LEFTS + i], inside ? weights + i * (THREADS / CHUNKS) * g.w[0] + further : w, inside);
			}
			next += CHUNKS;
			p.further(CHUNKS);
		};
		auto copy = [&](int stage) {
			om_u32 lines = a + stage * ROWS * LINE + slot, others = b + stage * COLS * LINE + slot;
#if !AHEAD
#pragma unroll
			for (int i = 0; i < LEFTS + RIGHTS; i++)
				store_words(i < LEFTS ? lines + i * THREADS * 16 : others + (i - LEFTS) * THREADS * 16, held[i]);
#endif
			bring_part(lines, others);
		};
		if constexpr (ROUNDED) {
#if TENSOR > 1
			// What a thread reads waits in registers for its turn to be stored.
#pragma unroll
			for (int i = 0; i < LEFTS + RIGHTS; i++)
#pragma unroll
				for (int e = 0; e < 4; e++)
					held[i][e] = 0;
			int lots = (int)((to - from + TERMS - 1) / TERMS), stage = 1;
#pragma unroll 1
			for (int lot = -2; lot < lots; lot++) {
				if (lot >= 0)
					__syncthreads();
				if (lot + 1 < lots) {
					om_u32 lines = a + stage * ROWS * LINE + slot, others = b + stage * COLS * LINE + slot;
#pragma unroll
					for (int i = 0; i < LEFTS + RIGHTS; i++)
						store_two(i < LEFTS ? lines + i * THREADS * 8 : others + (i - LEFTS) * THREADS * 8, pair(held[i][0], held[i][1]),
								  pair(held[i][2], held[i][3]));
					bring_part(0, 0);
				}
				stage ^= 1;
				if (lot >= 0) {
					om_u32 y = right + stage * COLS * LINE;
					multiply_parts<of_bf16, TALL, WIDE>(sums, left + stage * ROWS * LINE,
														[&](om_u32 *four, int slice, int j) { load_along(four, y, slice, j); });
				}
			}
			// The block's place is found again: there are no registers to keep it in.
			om_i64 high = n;
			asm volatile("mov.b64 %0, %0;" : "+l"(high));
			s = spot_of(high, g.outputs, g.groups, ROWS, COLS);
#endif
		} else {
#if !AHEAD
			bring_part(0, 0);
#endif
#pragma unroll 1
			for (int q = 0; q < PARTS - 1; q++) {
				if (from + q * TERMS < to)
					copy(q);
				end_lot();
			}
			int stage = 0;
#pragma unroll 1
			for (int lots = (int)((to - from + TERMS - 1) / TERMS); lots > 0; lots--) {
				await_lot();
				__syncthreads();
				if (lots >= PARTS)
					copy((stage + PARTS - 1) % PARTS);
				end_lot();
				om_u32 y = right + stage * COLS * LINE;
				multiply_parts<M, TALL, WIDE>(sums, left + stage * ROWS * LINE,
											  [&](om_u32 *four, int slice, int j) { load_along(four, y, slice, j); });
				stage = (stage + 1) % PARTS;
			}
		}
		// Results go through shared memory, a piece of each warp's rows at a time.
		float *results = (float *)space;
#pragma unroll 1
		for (int pass = 0; pass < TALL; pass++) {
			__syncthreads();
#pragma unroll
			for (int i = 0; i < TALL; i++)
				if (i == pass)
#pragma unroll
					for (int j = 0; j < WIDE; j++)
#pragma unroll
						for (int e = 0; e < 4; e++)
							results[(warp / WARPS * 16 + piece_row() + e / 2 * ROW_STEP) * PITCHED + across + j * 8 + piece_column() + e % 2] =
								sums[i][j][e];
			__syncthreads();
#pragma unroll 1
			for (int q = t; q < HIGH * COLS / 4; q += THREADS) {
				int own = last ? q / (COLS / 4) : q % (HIGH / 4) * 4, column = last ? q % (COLS / 4) * 4 : q / (HIGH / 4);
				float v[4];
#pragma unroll
				for (int e = 0; e < 4; e++)
					v[e] = results[(last ? own : own + e) * PITCHED + column + (last ? e : 0)];
				end_four(own / 16 * (TALL * 16) + pass * 16 + own % 16, column, v);
			}
		}
	}
#elif !defined(__CUDA_ARCH__)
	for (int q = t; q < ROWS * COLS / 4; q += THREADS) {
		int row = last ? q / (COLS / 4) : q % (ROWS / 4) * 4, column = last ? q % (COLS / 4) * 4 : q / (ROWS / 4);
		float v[4] = {0, 0, 0, 0};
		for (int e = 0; e < 4; e++)
			v[e] = plain_sum<M>(x, w, g, s.z, s.top + row + (last ? 0 : e), s.first + column + (last ? e : 0), from, to);
		end_four(row, column, v);
	}
#endif
}

#define CONVOLUTION(name, M, T, lines, columns, tall, wide, blocks)                                                                \
	BOUNDED_KERNEL((lines / (tall * 16) * (columns / (wide * 8)) * 32), blocks, name, T *out, float *parts, const T *x, const T *w, \
				   const T *bias, om_i64 bias_step, OM_GIVEN geometry g, ENDING(T, float), om_i64 part, int last, int fours) {              \
		convolve<M, lines, columns, tall, wide>(out, parts, x, w, bias, bias_step, g, END, part, last, fours);                      \
	}
#define CONVOLUTIONS(name, M, T)                             \
	CONVOLUTION(name##_128, M, T, 128, 128, 4, 8, 2)         \
	CONVOLUTION(name##_64, M, T, 64, 64, 2, 4, 2)            \
	CONVOLUTION(name##_32, M, T, 128, 32, 2, 4, 2)

// The parts of sums, one after the other, and what the convolution ends with; each is how many results of a channel lie behind
// each other.
#define SUM(suffix, T)                                                                                                              \
	OM_KERNEL(om_conv_sum_##suffix, T *out, const float *parts, const T *bias, om_i64 bias_step, om_i64 each, om_i64 channels,     \
			  ENDING(T, float), om_i64 total, int count) {                                                                          \
		OM_EACH(i, total) {                                                                                                         \
			float sum = 0;                                                                                                          \
			for (int p = 0; p < count; p++)                                                                                         \
				sum += parts[p * total + i];                                                                                        \
			om_round(&out[i], finish_one<T>(sum, i / each % channels, i, bias, bias_step, END));                                    \
		}                                                                                                                           \
	}
