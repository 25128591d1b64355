// Convolutions of half floats by wgmma, as convolve.h has them, in blocks as hopper.h has them: a row for each output channel of a group,
// a column for each pixel of all images. One thread has the weight's lines brought as boxes by the unit that copies parts of tensors, all
// of the warpgroup that brings copy what windows read, sixteen bytes of channels at a time, and tell that to what reads shared memory
// by itself. Included after convolve.h and hopper.h.
#pragma once

#if HOPPER

// LATE is how many lots are on their way while a warpgroup goes on to the next, before it waits for the first of them.
#define LATE 2

// A pixel is a place of a result, of an image.
struct pixel {
	om_i64 image;
	int x, y, z;

	__device__ __forceinline__ void begin(const geometry &g, om_i64 r) {
		om_i64 pixels = g.out[0] * g.out[1] * g.out[2];
		image = r / pixels;
		int p = (int)(r - image * pixels), wide = (int)g.out[2], high = (int)g.out[1], line = p / wide;
		x = p - line * wide, z = line / high, y = line - z * high;
	}
	__device__ __forceinline__ void further(const geometry &g, int by) {
		int wide = (int)g.out[2];
		x += by;
#pragma unroll 1
		while (x >= wide) {
			x -= wide;
			if (++y == (int)g.out[1]) {
				y = 0;
				if (++z == (int)g.out[0])
					z = 0, image++;
			}
		}
	}
};

// bring_windows has count lots brought, of a block's lines of the weight and of what its pixels read, from a term on.
template <class Tile, class T, int ROWS>
OM_DEVICE void bring_windows(const Tile &own, const T *x, const om_map *weights, const geometry &g, int group, int top, int first, int n,
							 om_i64 from, om_i64 to, int count) {
	// A thread copies the same sixteen bytes of each lot of some pixels' windows.
	const int EACH = 16 / (int)sizeof(T), CHUNKS = LOT / EACH, APART = GROUP / CHUNKS, LINES = WIDTH / APART;
	int t = threadIdx.x % GROUP, line = t / CHUNKS, chunk = t % CHUNKS;
	const T *begins[LINES];
	int at[LINES][3];
	pixel p;
	p.begin(g, first + line);
#pragma unroll
	for (int i = 0; i < LINES; i++) {
		at[i][2] = p.x * (int)g.stride[2] - (int)g.padding[2];
		at[i][1] = p.y * (int)g.stride[1] - (int)g.padding[1];
		at[i][0] = p.z * (int)g.stride[0] - (int)g.padding[0];
		begins[i] = x + p.image * g.x[0] + group * g.inputs + at[i][0] * g.x[2] + at[i][1] * g.x[3] + at[i][2] * g.x[4];
		if (first + line + i * APART >= n)
			at[i][0] = NOWHERE;
		p.further(g, APART);
	}
	int next = (int)(from / EACH) + chunk, end = (int)(to / EACH);
	term tap;
	tap.begin(g, next, EACH);
	// Lines of 128 bytes, of which eight are swizzled: those that the thread copies have the same place among eight.
	om_u32 slot = ROWS * LOT * 2 + line * LOT * 2 + ((chunk ^ line % 8) << 4);
	int stage = 0, before = 0;
	om_u32 parity = 1;
#pragma unroll 1
	for (int lot = 0; lot < count + LATE; lot++) {
		if (lot < count) {
			om_u32 space = own.lots + stage * Tile::STAGE, barrier = own.full + stage * 8;
			await(own.empty + stage * 8, parity);
			if (t == 0) {
				expect(barrier, ROWS * LOT * 2);
				bring_box(space, weights, (int)from + lot * LOT, (int)(group * g.outputs + top), barrier);
			}
			int z = tap.z * (int)g.dilation[0], y = tap.y * (int)g.dilation[1], c = tap.x * (int)g.dilation[2];
			om_i64 further = z * g.x[2] + y * g.x[3] + c * g.x[4] + tap.chunk * EACH;
#pragma unroll
			for (int i = 0; i < LINES; i++) {
				bool inside = next < end && (unsigned)(at[i][0] + z) < (unsigned)g.in[0] && (unsigned)(at[i][1] + y) < (unsigned)g.in[1] &&
							  (unsigned)(at[i][2] + c) < (unsigned)g.in[2];
				begin_copy_bytes(space + slot + i * APART * LOT * 2, inside ? begins[i] + further : x, inside ? 16 : 0);
			}
			next += CHUNKS;
			tap.further(CHUNKS);
			if (++stage == STAGES_AHEAD)
				stage = 0, parity ^= 1;
		}
		end_part();
		if (lot >= LATE) {
			// Each thread's copies are there, for wgmma too; then its warp says so.
			asm volatile("cp.async.wait_group %0;" ::"n"(LATE) : "memory");
			asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
			__syncwarp();
			if (t % 32 == 0)
				arrive(own.full + before * 8);
			if (++before == STAGES_AHEAD)
				before = 0;
		}
	}
}

// How results end: bits that are looked at for every four anew, as loops for each way of ending would be a lot of code. IN_PARTS are sums
// of parts; IN_FOURS lie behind each other and are aligned, IN_LINE what is added to them, too.
enum { IN_PARTS = 1, IN_FOURS = 2, NORMED = 4, MORE = 8, IN_LINE = 16 };

template <class T>
OM_DEVICE om_u32 ending_of(const float *parts, const T *mean, const T *added, const om_layout &added_view, int fours) {
	om_u32 how = (parts ? IN_PARTS : 0) | (fours ? IN_FOURS : 0) | (mean ? NORMED : 0) | (added ? MORE : 0);
	bool line = fours && added_view.rank == 1 && added_view.stride[0] == 1 && (om_u64)added % 8 == 0;
	return how | (line ? IN_LINE : 0);
}

// halves_of rounds two results.
OM_DEVICE om_u32 halves_of(om_bf16, float low, float high) { return pair(__float_as_uint(low), __float_as_uint(high)); }
OM_DEVICE om_u32 halves_of(om_f16, float low, float high) {
	om_f16 x, y;
	om_round(&x, low);
	om_round(&y, high);
	return x.bits | (om_u32)y.bits << 16;
}

// A channel_end is what the results of a channel end with: their bias, which may be none, and the batch norm, where there is one, with one
// factor for what it divides and multiplies by.
struct channel_end {
	float bias, mean, factor, b;

	template <class T>
	__device__ __forceinline__ void begin(om_i64 channel, const T *biases, om_i64 bias_step, const T *norm_w, const T *norm_b, const T *means,
										  const T *vars, const norm_steps &steps, float eps) {
		bias = biases ? om_float(biases[channel * bias_step]) : -0.0f; // which added changes nothing
		if (means) {
			mean = om_float(means[channel * steps.mean]), b = om_float(norm_b[channel * steps.b]);
			factor = om_float(norm_w[channel * steps.w]) / sqrtf(om_float(vars[channel * steps.var]) + eps);
		}
	}
};

// An ending_four is four results, of which the first is an element of all, and where they do not lie in fours which ones the others are.
// Those that are not there are as the last that is.
template <class T> struct ending_four {
	float v[4];
	om_i64 first, i[4];

	// finish ends them, each as its channel's results end, or all as one's.
	template <int CHANNELS>
	__device__ __forceinline__ void finish(const channel_end *ends, om_u32 how, const T *added, const om_layout &added_view, int act, float act_a,
										   float act_b) {
#pragma unroll
		for (int e = 0; e < 4; e++)
			v[e] += ends[e % CHANNELS].bias;
		if (how & NORMED)
#pragma unroll
			for (int e = 0; e < 4; e++)
				v[e] = (v[e] - ends[e % CHANNELS].mean) * ends[e % CHANNELS].factor + ends[e % CHANNELS].b;
		if (how & MORE) {
			if (how & IN_LINE) {
				uint2 four = *(const uint2 *)(added + first);
				om_u32 words[2] = {four.x, four.y};
#pragma unroll
				for (int e = 0; e < 4; e++) {
					T x;
					x.bits = (om_u16)(words[e / 2] >> e % 2 * 16);
					v[e] += om_float(x);
				}
			} else {
#pragma unroll
				for (int e = 0; e < 4; e++)
					i[e] = how & IN_FOURS ? first + e : i[e];
#pragma unroll 1
				for (int e = 0; e < 4; e++) {
					v[0] += om_float(added[place_at(added_view, i[0])]);
					turn();
				}
			}
		}
		if (act == OM_RELU) {
#pragma unroll
			for (int e = 0; e < 4; e++)
				v[e] = activated(OM_RELU, v[e], act_a, act_b);
		} else if (act != OM_NO_ACTIVATION) {
#pragma unroll 1
			for (int e = 0; e < 4; e++) {
				v[0] = activated(act, v[0], act_a, act_b);
				turn();
			}
		}
	}

	__device__ __forceinline__ void turn() {
		float first = v[0];
		om_i64 at = i[0];
#pragma unroll
		for (int e = 0; e < 3; e++)
			v[e] = v[e + 1], i[e] = i[e + 1];
		v[3] = first, i[3] = at;
	}

	// put writes those of them that are there.
	__device__ __forceinline__ void put(T *out, float *parts, om_u32 how, int there) {
		if (how & IN_FOURS) {
			if (how & IN_PARTS)
				write_four(parts + first, v);
			else
				// The compiler would make two writes of it.
				asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(out + first)),
							 "r"(halves_of(T(), v[0], v[1])), "r"(halves_of(T(), v[2], v[3])) : "memory");
			return;
		}
#pragma unroll 1
		for (int e = 0; e < 4 && e < there; e++) {
			if (how & IN_PARTS)
				parts[i[0]] = v[0];
			else
				om_round(&out[i[0]], v[0]);
			turn();
		}
	}
};

// end_pixels ends a warp's results where channels lie behind each other: a lane has four channels of every eighth pixel, which it reads
// from other banks than the other lanes.
template <class Tile, class T>
OM_DEVICE void end_pixels(const float *sums, float *space, T *out, float *parts, const geometry &g, int group, int top, int first, int n,
						  const T *bias, om_i64 bias_step, ENDING_AS(const om_layout &, T, float), int fours) {
	const int APART = Tile::PITCHED + 2;
	static_assert(Tile::GROUPS * 64 * APART * 4 <= STAGES_AHEAD * Tile::STAGE, "results do not fit");
	const float *own = Tile::lay(sums, space, APART);
	int lane = threadIdx.x % 32, row = lane % 4 * 4, o = top + threadIdx.x / 32 * 16 + row, there = (int)g.outputs - o;
	if (there <= 0)
		return;
	om_i64 channels = g.groups * g.outputs, channel = group * g.outputs + o;
	om_u32 given = ending_of(parts, mean, added, added_view, fours);
	channel_end ends[4];
#pragma unroll
	for (int e = 0; e < 4; e++)
		ends[e].begin(channel + (e < there ? e : there - 1), bias, bias_step, norm_w, norm_b, mean, var, steps, eps);
#pragma unroll 1
	for (int column = lane / 4; column < WIDTH && first + column < n; column += 8) {
		om_u32 how = kept(given);
		ending_four<T> four;
#pragma unroll
		for (int e = 0; e < 4; e++)
			four.v[e] = own[(row + e) * APART + column];
		four.first = (first + column) * channels + channel;
		if (!(how & IN_FOURS))
#pragma unroll
			for (int e = 0; e < 4; e++)
				four.i[e] = four.first + (e < there ? e : there - 1);
		if (!(how & IN_PARTS))
			four.template finish<4>(ends, how, added, added_view, kept(act), act_a, act_b);
		four.put(out, parts, how, there);
	}
}

// end_channels ends a warp's results where pixels lie behind each other: a lane has two times four of each channel.
template <class Tile, class T>
OM_DEVICE void end_channels(const float *sums, float *space, T *out, float *parts, const geometry &g, int group, int top, int first, int n,
							const T *bias, om_i64 bias_step, ENDING_AS(const om_layout &, T, float), int fours) {
	const float *own = Tile::lay(sums, space, Tile::PITCHED);
	int lane = threadIdx.x % 32, pixels = (int)(g.out[0] * g.out[1] * g.out[2]);
	om_i64 channels = g.groups * g.outputs;
	om_u32 given = ending_of(parts, mean, added, added_view, fours);
	om_i64 image[2];
	int at[2]; // of the image
#pragma unroll
	for (int half = 0; half < 2; half++) {
		int r = first + lane * 4 + half * (WIDTH / 2), of = r / pixels;
		at[half] = r - of * pixels, image[half] = of * channels * pixels;
	}
#pragma unroll 1
	for (int row = 0; row < 16; row++) {
		int o = top + threadIdx.x / 32 * 16 + row;
		if (o >= g.outputs)
			return;
		om_i64 channel = group * g.outputs + o;
		channel_end end;
		end.begin(channel, bias, bias_step, norm_w, norm_b, mean, var, steps, eps);
#pragma unroll
		for (int half = 0; half < 2; half++) {
			int column = lane * 4 + half * (WIDTH / 2), there = n - first - column, p = at[half];
			if (there <= 0)
				continue;
			om_u32 how = kept(given);
			ending_four<T> four;
			read_four(four.v, own + row * Tile::PITCHED + column);
			om_i64 i = four.first = image[half] + channel * pixels + p;
			if (!(how & IN_FOURS))
#pragma unroll
				for (int e = 0; e < 4; e++) {
					four.i[e] = i;
					if (e + 1 < there) {
						i++;
						if (++p == pixels)
							p = 0, i += (channels - 1) * pixels;
					}
				}
			if (!(how & IN_PARTS))
				four.template finish<1>(&end, how, added, added_view, kept(act), act_a, act_b);
			four.put(out, parts, how, there);
		}
	}
}

#endif

// w is the weight, a line for each output channel of all groups with its terms behind each other, weights what describes it.
template <class M, int ROWS>
OM_DEVICE void hopper_convolve(typename M::T *out, float *parts, const typename M::T *x, const typename M::T *w, const typename M::T *bias,
							   om_i64 bias_step, const geometry &g, ENDING_AS(const om_layout &, typename M::T, float), om_i64 part, int last,
							   int fours, const om_map &weights) {
#if defined(__CUDA_ARCH__) && !HOPPER
	asm volatile("trap;"); // nobody launches it there
#else
	om_i64 n = g.batch * g.out[0] * g.out[1] * g.out[2], k = g.kernel[0] * g.kernel[1] * g.kernel[2] * g.inputs;
	spot s = spot_of(g.outputs, n, g.groups, ROWS, WIDTH);
	om_i64 from = s.part * part, to = from + part < k ? from + part : k;
	// What a warpgroup keeps beside its sums has few registers: there are at most 2³⁰ of each.
	int group = (int)s.z, top = (int)s.top, first = (int)s.first;
	float *parts_at = parts ? parts + s.part * n * g.groups * g.outputs : 0;
#if HOPPER
	OM_DYNAMIC(unsigned char, space);
	typedef hopper_tile<M, ROWS> tile;
	tile own;
	own.begin(shared_at(space), 1 + GROUP / 32);
	int lots = (int)((to - from + LOT - 1) / LOT);
	float sums[WIDTH / 2];
	bool brings = threadIdx.x >= tile::GROUPS * GROUP;
	if (!brings)
		own.multiply(sums, lots);
	else
		bring_windows<tile, typename M::T, ROWS>(own, x, &weights, g, group, top, first, (int)n, from, to, lots);
	__syncthreads(); // nobody reads the factors any more
	if (brings)
		return;
	float *results = (float *)(space + (own.lots - shared_at(space)));
	if (last)
		end_pixels<tile>(sums, results, out, parts_at, g, group, top, first, (int)n, bias, bias_step, END, fours);
	else
		end_channels<tile>(sums, results, out, parts_at, g, group, top, first, (int)n, bias, bias_step, END, fours);
#else
#pragma unroll 1
	for (int q = threadIdx.x; q < ROWS * WIDTH / 4; q += (ROWS / 64 + 1) * GROUP) {
		int row = last ? q % (ROWS / 4) * 4 : q / (WIDTH / 4), column = last ? q / (ROWS / 4) : q % (WIDTH / 4) * 4;
		float v[4];
		for (int e = 0; e < 4; e++)
			v[e] = plain_sum<M>(x, w, g, group, first + column + (last ? 0 : e), top + row + (last ? e : 0), from, to);
		end_convolved(out, parts, s.part, g, group, first + column, top + row, v, bias, bias_step, END, last, fours);
	}
#endif
#endif
}

#define HOPPER_CONVOLUTION(name, M, lines, threads)                                                                            \
	BOUNDED_KERNEL(threads, 1, name, M::T *out, float *parts, const M::T *x, const M::T *w, const M::T *bias, om_i64 bias_step, \
				   OM_GIVEN geometry g, ENDING(M::T, float), om_i64 part, int last, int fours, OM_GIVEN om_map weights) {       \
		hopper_convolve<M, lines>(out, parts, x, w, bias, bias_step, g, END, part, last, fours, weights);                       \
	}
#define HOPPER_CONVOLUTIONS(name, M)             \
	HOPPER_CONVOLUTION(name##_128, M, 128, 384) \
	HOPPER_CONVOLUTION(name##_64, M, 64, 256)
