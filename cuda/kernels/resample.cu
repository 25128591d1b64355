#include "om.h"

// Images read between their elements or in windows. There are three dimensions of space, of which the first may be of one.

// How interpolate reads: resizeModes of op_resample.go.
enum { NEAREST, NEAREST_EXACT, LINEAR, CUBIC, LANCZOS, NEAREST_EXACT_SMALL };

// within is the largest whole number that is not above x, but at least low and at most high. x may be anything.
template <class A> OM_DEVICE om_i64 within(A x, om_i64 low, om_i64 high) {
	if (!(x >= (A)low))
		return low;
	if (x >= (A)high)
		return high;
	return (om_i64)floor(x);
}

// cubic_weights are those of the elements at −1, 0, 1 and 2 for a place between 0 and 1: cubic convolution with −¾.
template <class A> OM_DEVICE void cubic_weights(A *w, A t) {
	const A a = (A)-0.75;
	A far = t + 1, near = 1 - t, last = 2 - t;
	w[0] = ((a * far - 5 * a) * far + 8 * a) * far - 4 * a;
	w[1] = ((a + 2) * t - (a + 3)) * t * t + 1;
	w[2] = ((a + 2) * near - (a + 3)) * near * near + 1;
	w[3] = ((a * last - 5 * a) * last + 8 * a) * last - 4 * a;
}

// The filters of antialiased resizing.
OM_DEVICE double filter_of(int mode, double x) {
	const double a = -0.5;
	x = fabs(x);
	if (mode == LINEAR)
		return x < 1 ? 1 - x : 0;
	if (mode == CUBIC)
		return x < 1 ? ((a + 2) * x - (a + 3)) * x * x + 1 : x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
	if (x >= 3)
		return 0;
	if (x == 0)
		return 1;
	double p = 3.141592653589793 * x;
	return sin(p) / p * (sin(p / 3) / (p / 3));
}

// A table of one dimension: for each of size results taps elements of n, and their weights. Taps that an antialiasing filter
// leaves over have the index −1.
template <class A>
OM_DEVICE void resize_table(int *index, A *weight, int mode, int antialias, int align, om_i64 taps, A scale, om_i64 n, om_i64 size) {
	OM_EACH(o, size) {
		int *at = index + o * taps;
		A *w = weight + o * taps;
		if (n == size && (antialias || mode == LINEAR)) {
			for (om_i64 i = 0; i < taps; i++) {
				at[i] = (int)o;
				w[i] = i == 0;
			}
			continue;
		}
		if (antialias) {
			A half = mode == LINEAR ? (A)1 : mode == CUBIC ? (A)2 : (A)3, support = half, inverse = 1;
			if (scale >= 1) {
				support = half * scale;
				inverse = 1 / scale;
			}
			A center = om_times(scale, (A)o + (A)0.5), total = 0;
			om_i64 from = within(center - support + (A)0.5, 0, n), to = within(center + support + (A)0.5, 0, n);
			om_i64 count = to - from < 0 ? 0 : to - from > taps ? taps : to - from;
			for (om_i64 i = 0; i < taps; i++) {
				at[i] = i < count ? (int)(from + i) : -1;
				w[i] = i < count ? (A)filter_of(mode, (double)(((A)(i + from) - center + (A)0.5) * inverse)) : (A)0;
				total += w[i];
			}
			if (total != 0)
				for (om_i64 i = 0; i < taps; i++)
					w[i] /= total;
			continue;
		}
		if (mode == NEAREST || mode == NEAREST_EXACT || mode == NEAREST_EXACT_SMALL) {
			A place = om_times((A)o, scale);
			if (mode == NEAREST_EXACT) {
				place = fma((A)o + (A)0.5, scale, (A)-0.5);
				place = (place < 0 ? (A)0 : place) + (A)0.5;
			}
			if (mode == NEAREST_EXACT_SMALL)
				place = (A)(((double)o + 0.5) * (double)scale);
			at[0] = (int)within((float)place, 0, n - 1);
			w[0] = 1;
			continue;
		}
		A place = om_times((A)o, scale);
		if (!align) {
			place = om_times((A)o + (A)0.5, scale) - (A)0.5;
			if (mode == LINEAR && !(place > 0))
				place = 0;
		}
		om_i64 first = within(place, -1, n - 1);
		A part = place - (A)first;
		part = part < 0 ? (A)0 : part > 1 ? (A)1 : part;
		if (mode == LINEAR) {
			at[0] = (int)first;
			at[1] = (int)(first + 1 < n ? first + 1 : n - 1);
			w[0] = 1 - part;
			w[1] = part;
			continue;
		}
		cubic_weights(w, part);
		for (int i = 0; i < 4; i++) {
			om_i64 k = first - 1 + i;
			at[i] = (int)(k < 0 ? 0 : k >= n ? n - 1 : k);
		}
	}
}

// A thread has the results of one place in as many planes (an image's channels) as each: where those are read, and with which
// weights, is looked up once.
struct image_sizes {
	om_divisor channels, size[3];
	om_i64 image, channel; // the input's strides
	om_i64 strides[3], taps[3], planes, each;
};

// A spread is where a thread's results are: at place along the three dimensions, of planes from first to below last.
struct spread {
	om_i64 at[3], place, first, last;
};

OM_DEVICE spread spread_of(const image_sizes &s, om_i64 i) {
	spread p;
	p.at[2] = om_take(&i, s.size[2]);
	p.at[1] = om_take(&i, s.size[1]);
	p.at[0] = om_take(&i, s.size[0]);
	p.place = (p.at[0] * s.size[1].by + p.at[1]) * s.size[2].by + p.at[2];
	p.first = i * s.each;
	p.last = p.first + s.each < s.planes ? p.first + s.each : s.planes;
	return p;
}

// plane_of is where a plane of the input begins.
OM_DEVICE om_i64 plane_of(const image_sizes &s, om_i64 plane) {
	om_i64 channel = om_take(&plane, s.channels);
	return plane * s.image + channel * s.channel;
}

// Each result is the weighted sum of what the tables of its three places say.
template <class A>
OM_DEVICE void resize(void *out, const void *in, int type, const int *z_index, const A *z_weight, const int *y_index,
					  const A *y_weight, const int *x_index, const A *x_weight, const image_sizes &s, om_i64 n) {
	om_i64 all = s.size[0].by * s.size[1].by * s.size[2].by;
	OM_EACH(i, n) {
		spread p = spread_of(s, i);
		om_i64 x0 = p.at[2] * s.taps[2], y0 = p.at[1] * s.taps[1], z0 = p.at[0] * s.taps[0];
		if (!z_index && y_index && s.taps[1] == 2 && s.taps[2] == 2) {
			om_i64 left = x_index[x0] * s.strides[2], right = x_index[x0 + 1] * s.strides[2];
			om_i64 above = y_index[y0] * s.strides[1], below = y_index[y0 + 1] * s.strides[1];
			A of_left = x_weight[x0], of_right = x_weight[x0 + 1], of_above = y_weight[y0], of_below = y_weight[y0 + 1];
#pragma unroll 1
			for (om_i64 plane = p.first; plane < p.last; plane++) {
				om_i64 base = plane_of(s, plane);
				A a, b, c, d;
				om_load(&a, in, base + above + left, type);
				om_load(&b, in, base + above + right, type);
				om_load(&c, in, base + below + left, type);
				om_load(&d, in, base + below + right, type);
				om_store(out, plane * all + p.place, type, of_above * (of_left * a + of_right * b) + of_below * (of_left * c + of_right * d));
			}
			continue;
		}
#pragma unroll 1
		for (om_i64 plane = p.first; plane < p.last; plane++) {
			om_i64 base = plane_of(s, plane);
			A sum = 0;
#pragma unroll 1
			for (om_i64 a = z0; a < z0 + s.taps[0]; a++) {
				A slice = 0;
#pragma unroll 1
				for (om_i64 b = y0; b < y0 + s.taps[1] && !(y_index && y_index[b] < 0); b++) {
					om_i64 row = base + (z_index ? z_index[a] : 0) * s.strides[0] + (y_index ? y_index[b] : 0) * s.strides[1];
					A line = 0, x;
#pragma unroll 1
					for (om_i64 c = x0; c < x0 + s.taps[2] && x_index[c] >= 0; c++) {
						om_load(&x, in, row + x_index[c] * s.strides[2], type);
						line += x_weight[c] * x;
					}
					slice += (y_weight ? y_weight[b] : (A)1) * line;
				}
				sum += (z_weight ? z_weight[a] : (A)1) * slice;
			}
			om_store(out, plane * all + p.place, type, sum);
		}
	}
}

#define RESIZE(suffix, A)                                                                                                    \
	OM_KERNEL(om_resize_table_##suffix, int *index, A *weight, int mode, int antialias, int align, om_i64 taps, A scale, om_i64 n, \
			  om_i64 size) {                                                                                                 \
		resize_table<A>(index, weight, mode, antialias, align, taps, scale, n, size);                                        \
	}                                                                                                                        \
	OM_KERNEL(om_resize_##suffix, void *out, const void *in, int type, const int *z_index, const A *z_weight, const int *y_index,  \
			  const A *y_weight, const int *x_index, const A *x_weight, OM_GIVEN image_sizes s, om_i64 n) {                           \
		resize<A>(out, in, type, z_index, z_weight, y_index, y_weight, x_index, x_weight, s, n);                             \
	}
RESIZE(f, float)
RESIZE(d, double)

struct alignas(16) sixteen {
	om_u64 low, high;
};

template <class T>
OM_DEVICE void nearest(T *out, const T *in, const int *z_index, const int *y_index, const int *x_index, const image_sizes &s, om_i64 n) {
	om_i64 all = s.size[0].by * s.size[1].by * s.size[2].by;
	OM_EACH(i, n) {
		spread p = spread_of(s, i);
		om_i64 at = x_index[p.at[2]] * s.strides[2];
		if (y_index)
			at += y_index[p.at[1]] * s.strides[1];
		if (z_index)
			at += z_index[p.at[0]] * s.strides[0];
#pragma unroll 1
		for (om_i64 plane = p.first; plane < p.last; plane++)
			out[plane * all + p.place] = in[plane_of(s, plane) + at];
	}
}

#define NEAR(bytes, T)                                                                                                       \
	OM_KERNEL(om_nearest_##bytes, T *out, const T *in, const int *z_index, const int *y_index, const int *x_index, OM_GIVEN image_sizes s,     \
			  om_i64 n) {                                                                                                      \
		nearest<T>(out, in, z_index, y_index, x_index, s, n);                                                                \
	}
NEAR(1, om_u8)
NEAR(2, om_u16)
NEAR(4, om_u32)
NEAR(8, om_u64)
NEAR(16, sixteen)

// What the points of grid_sample lead to outside: paddings of op_resample.go.
enum { ZEROS, BORDER, REFLECTION };

// A thread has one point of an image in as many channels as each; groups of those are all channels.
struct grid_sizes {
	om_divisor points, groups;
	om_i64 channels, each, image, channel, rank;
	om_i64 in[3], strides[3];
	om_i64 mode, padding, align;
};

// narrowed is a coordinate as precise as PyTorch has it: type is that of halves in two dimensions.
OM_DEVICE double narrowed(double x, int) { return x; }
OM_DEVICE float narrowed(float x, int type) {
	if (type == OM_F16) {
		om_f16 half;
		om_round(&half, x);
		return om_float(half);
	}
	if (type == OM_BF16) {
		om_bf16 half;
		om_round(&half, x);
		return om_float(half);
	}
	return x;
}

template <class A> OM_DEVICE A unnormalized(A x, om_i64 n, bool align, int type) {
	x = narrowed(x + 1, type);
	if (align)
		return narrowed(om_times(x, narrowed((A)(n - 1) / 2, type)), type);
	return narrowed(narrowed(om_times(x, narrowed((A)n / 2, type)), type) - (A)0.5, type);
}

template <class A> OM_DEVICE A mirrored(A x, A period, int type) {
	x = fabs(x);
	x = narrowed(x - narrowed(om_times((A)trunc(narrowed(x / period, type)), period), type), type);
	A rest = narrowed(period - x, type);
	return x < rest ? x : x != x ? x : rest;
}

// folded brings a coordinate into the image, but of zeros leaves it.
template <class A> OM_DEVICE A folded(A x, om_i64 n, const grid_sizes &s, int type) {
	A last = narrowed((A)(n - 1), type);
	if (s.padding == ZEROS)
		return x;
	if (s.padding == REFLECTION)
		x = s.align ? mirrored(x, narrowed((A)(2 * (n - 1)), type), type)
					: narrowed(mirrored(narrowed(x + (A)0.5, type), narrowed((A)(2 * n), type), type) - (A)0.5, type);
	if (!(x > 0)) // NaN too
		return 0;
	return x < last ? x : last;
}

// element is in at whole coordinates, or zero where there is none.
template <class A> OM_DEVICE A element(const void *in, om_i64 base, const A *at, int type, const grid_sizes &s) {
	for (int d = 0; d < 3; d++) {
		if (!(at[d] > -1 && at[d] < (A)s.in[d])) // NaN too
			return 0;
		base += (om_i64)at[d] * s.strides[d];
	}
	A x;
	om_load(&x, in, base, type);
	return x;
}

template <class A>
OM_DEVICE void grid_sample(void *out, const void *in, int type, const void *grid, const om_layout &points, om_i64 step,
						   const grid_sizes &s, om_i64 n) {
	int half = s.rank == 2 ? type : OM_F32;
	OM_EACH(i, n) {
		om_i64 image = i, p = om_take(&image, s.points), channel = om_take(&image, s.groups) * s.each;
		om_i64 last = channel + s.each < s.channels ? channel + s.each : s.channels;
		om_i64 from = om_at(points, image * s.points.by + p);
		A at[3] = {0, 0, 0}, first[3], part[3];
		for (int k = 0; k < (int)s.rank; k++) {
			int d = 2 - k;
			om_load(&at[d], grid, from + k * step, type);
			at[d] = unnormalized(at[d], s.in[d], s.align != 0, half);
			if (s.mode != CUBIC)
				at[d] = folded(at[d], s.in[d], s, half);
		}
		for (int d = 0; d < 3; d++) {
			first[d] = s.mode == NEAREST ? (A)rint(at[d]) : (A)floor(at[d]);
			part[d] = at[d] - first[d];
		}
#pragma unroll 1
		for (; channel < last; channel++) {
			om_i64 base = image * s.image + channel * s.channel;
			A sum = 0;
			if (s.mode == NEAREST)
				sum = element(in, base, first, type, s);
			else if (s.mode == LINEAR)
				for (int corner = 0; corner < 1 << s.rank; corner++) {
					A place[3], weight = 1;
					for (int d = 0; d < 3; d++) {
						bool far = corner >> (2 - d) & 1;
						place[d] = first[d] + (A)far;
						if (d >= 3 - s.rank)
							weight = narrowed(weight * (far ? part[d] : narrowed(first[d] + 1 - at[d], half)), half);
					}
					sum += weight * element(in, base, place, type, s);
				}
			else {
				A y[4], x[4];
				cubic_weights(y, part[1]);
				cubic_weights(x, part[2]);
				for (int j = 0; j < 4; j++)
					for (int k = 0; k < 4; k++) {
						A place[3] = {0, folded(first[1] + (A)(j - 1), s.in[1], s, half),
									  folded(first[2] + (A)(k - 1), s.in[2], s, half)};
						sum += om_times(y[j], x[k]) * element(in, base, place, type, s);
					}
			}
			om_store(out, (image * s.channels + channel) * s.points.by + p, type, sum);
		}
	}
}

// coordinate is that of element i of n from −1 to 1.
template <class A> OM_DEVICE A coordinate(om_i64 i, om_i64 n, int align) {
	if (n < 2)
		return 0;
	A step = (A)2 / (A)(n - 1), at = -1 + om_times(step, (A)i);
	if (i >= n / 2)
		at = 1 - om_times(step, (A)(n - 1 - i));
	return align ? at : at * (A)(n - 1) / (A)n;
}

struct affine_sizes {
	om_divisor size[3], rank;
	om_i64 image, line, step;
};

// Each point of an image times its matrix, a coordinate a thread.
template <class A> OM_DEVICE void affine_grid(void *out, const void *theta, int type, const affine_sizes &s, int align, om_i64 n) {
	OM_EACH(i, n) {
		om_i64 image = i, r = om_take(&image, s.rank), x = om_take(&image, s.size[2]), y = om_take(&image, s.size[1]);
		om_i64 z = om_take(&image, s.size[0]);
		A point[4] = {coordinate<A>(x, s.size[2].by, align), coordinate<A>(y, s.size[1].by, align), 1, 1}, sum = 0, m;
		if (s.rank.by == 3)
			point[2] = coordinate<A>(z, s.size[0].by, align);
		for (int k = 0; k <= (int)s.rank.by; k++) {
			om_load(&m, theta, image * s.image + r * s.line + k * s.step, type);
			sum += m * point[k];
		}
		om_store(out, i, type, sum);
	}
}

struct window_sizes {
	om_divisor channels, kernel[2], stride[2], size[2], count[2];
	om_i64 padding[2], dilation[2], strides[4];
};

#define IM2COL(bytes, T)                                                                                                    \
	OM_KERNEL(om_im2col_##bytes, T *out, const T *in, OM_GIVEN window_sizes s, om_i64 n) {                                             \
		OM_EACH(i, n) {                                                                                                    \
			om_i64 rest = i, ox = om_take(&rest, s.count[1]), oy = om_take(&rest, s.count[0]);                             \
			om_i64 kx = om_take(&rest, s.kernel[1]), ky = om_take(&rest, s.kernel[0]), c = om_take(&rest, s.channels);     \
			om_i64 y = oy * s.stride[0].by - s.padding[0] + ky * s.dilation[0];                                            \
			om_i64 x = ox * s.stride[1].by - s.padding[1] + kx * s.dilation[1];                                            \
			om_i64 at = rest * s.strides[0] + c * s.strides[1] + y * s.strides[2] + x * s.strides[3];                      \
			T zero = {};                                                                                                   \
			out[i] = y < 0 || y >= s.size[0].by || x < 0 || x >= s.size[1].by ? zero : in[at];                                   \
		}                                                                                                                  \
	}
IM2COL(1, om_u8)
IM2COL(2, om_u16)
IM2COL(4, om_u32)
IM2COL(8, om_u64)
IM2COL(16, sixteen)

// Each element is the sum of what the windows that read it have for it.
template <class A> OM_DEVICE void col2im(void *out, const void *in, int type, const window_sizes &s, om_i64 n) {
	OM_EACH(i, n) {
		om_i64 image = i, x = om_take(&image, s.size[1]), y = om_take(&image, s.size[0]), channel = om_take(&image, s.channels);
		om_i64 base = image * s.strides[0] + channel * s.kernel[0].by * s.kernel[1].by * s.strides[1];
		A sum = 0, v;
		for (om_i64 ky = 0; ky < s.kernel[0].by; ky++) {
			om_i64 oy = y + s.padding[0] - ky * s.dilation[0];
			if (oy < 0 || om_take(&oy, s.stride[0]) != 0 || oy >= s.count[0].by)
				continue;
			for (om_i64 kx = 0; kx < s.kernel[1].by; kx++) {
				om_i64 ox = x + s.padding[1] - kx * s.dilation[1];
				if (ox < 0 || om_take(&ox, s.stride[1]) != 0 || ox >= s.count[1].by)
					continue;
				om_i64 column = oy * s.count[1].by + ox;
				om_load(&v, in, base + (ky * s.kernel[1].by + kx) * s.strides[1] + column * s.strides[2], type);
				sum += v;
			}
		}
		om_store(out, i, type, sum);
	}
}

#define IMAGES(suffix, A)                                                                                                     \
	OM_KERNEL(om_grid_sample_##suffix, void *out, const void *in, int type, const void *grid, OM_GIVEN om_layout points, om_i64 step,        \
			  OM_GIVEN grid_sizes s, om_i64 n) {                                                                                       \
		grid_sample<A>(out, in, type, grid, points, step, s, n);                                                              \
	}                                                                                                                         \
	OM_KERNEL(om_affine_grid_##suffix, void *out, const void *theta, int type, OM_GIVEN affine_sizes s, int align, om_i64 n) {           \
		affine_grid<A>(out, theta, type, s, align, n);                                                                        \
	}                                                                                                                         \
	OM_KERNEL(om_col2im_##suffix, void *out, const void *in, int type, OM_GIVEN window_sizes s, om_i64 n) {                             \
		col2im<A>(out, in, type, s, n);                                                                                       \
	}
IMAGES(f, float)
IMAGES(d, double)
