#include "om.h"

// Windows over N×C×spatial. There are three dimensions of space, of which the first may be of one. A thread has the outputs of
// as many lines as rows, one below the other, and reads each line that their windows share once.
struct pool_sizes {
	om_divisor channels, size[3], down; // down is how many threads there are for size[1]
	om_i64 image, channel; // the input's strides
	om_i64 in[3], strides[3], kernel[3], stride[3], padding[3], dilation[3];
	om_i64 adaptive, with_padding, divisor, rows;
};
#define ROWS 4

// window says which elements output o reads along dimension d: those from from to below to, dilation apart. It would begin at
// the one that is returned.
OM_DEVICE om_i64 window(const pool_sizes &s, int d, om_i64 o, om_i64 *from, om_i64 *to) {
	om_i64 n = s.in[d];
	if (s.adaptive) {
		*from = om_over(o * n, s.size[d]);
		*to = om_over((o + 1) * n + s.size[d].by - 1, s.size[d]);
		return *from;
	}
	om_i64 begin = o * s.stride[d] - s.padding[d], end = begin + (s.kernel[d] - 1) * s.dilation[d] + 1;
	*to = end < n ? end : n;
	*from = begin;
	if (begin < 0)
		*from += s.dilation[d] == 1 ? -begin : (-begin + s.dilation[d] - 1) / s.dilation[d] * s.dilation[d];
	return begin;
}

// A place is where a thread's outputs and their windows are: all have those along the first and the last dimension in common.
// Along the other the first window would begin at line first, and a window has span lines.
struct place {
	om_i64 base, out, o[3], from[3], to[3], first, span;
	int rows;
};

// begin_of and end_of are which lines the window of output r of a place reads. More than one have no dilation.
OM_DEVICE om_i64 begin_of(const pool_sizes &s, const place &p, int r) {
	om_i64 begin = p.first + r * s.stride[1];
	return r == 0 ? p.from[1] : begin < 0 ? 0 : begin;
}
OM_DEVICE om_i64 end_of(const pool_sizes &s, const place &p, int r) {
	om_i64 end = p.first + r * s.stride[1] + p.span;
	return end < s.in[1] ? end : s.in[1];
}

OM_DEVICE place place_of(const pool_sizes &s, om_i64 i) {
	place p;
	p.o[2] = om_take(&i, s.size[2]);
	p.o[1] = om_take(&i, s.down) * s.rows;
	p.o[0] = om_take(&i, s.size[0]);
	p.out = ((i * s.size[0].by + p.o[0]) * s.size[1].by + p.o[1]) * s.size[2].by + p.o[2];
	om_i64 channel = om_take(&i, s.channels);
	p.base = i * s.image + channel * s.channel;
	om_i64 left = s.size[1].by - p.o[1];
	p.rows = (int)(left < s.rows ? left : s.rows);
	window(s, 0, p.o[0], &p.from[0], &p.to[0]);
	p.first = window(s, 1, p.o[1], &p.from[1], &p.to[1]);
	window(s, 2, p.o[2], &p.from[2], &p.to[2]);
	p.span = s.adaptive ? p.to[1] - p.first : (s.kernel[1] - 1) * s.dilation[1] + 1;
	p.to[1] = end_of(s, p, p.rows - 1);
	return p;
}

// reads says whether the window of output r of a place reads line b, which is one that some window reads.
OM_DEVICE bool reads(const pool_sizes &s, const place &p, int r, om_i64 b) {
	return (om_u64)(b - p.first - r * s.stride[1]) < (om_u64)p.span;
}

OM_DEVICE void lowest(float *x) { *x = -OM_INF; }
OM_DEVICE void lowest(double *x) { *x = -(double)OM_INF; }
OM_DEVICE void lowest(om_i64 *x) { *x = (om_i64)(1ull << 63); }

// The largest of each window, NaN where there is one, and where in the channel it lies: the first of equals, the last NaN.
template <class A>
OM_DEVICE void max_pool(void *out, om_i64 *where, const void *in, int type, const pool_sizes &s, om_i64 n) {
	OM_EACH(i, n) {
		place p = place_of(s, i);
		A most[ROWS], x;
		om_i64 at[ROWS];
#pragma unroll
		for (int r = 0; r < ROWS; r++) {
			lowest(&most[r]);
			at[r] = (p.from[0] * s.in[1] + begin_of(s, p, r)) * s.in[2] + p.from[2];
		}
		om_i64 step = s.rows > 1 ? 1 : s.dilation[1];
#pragma unroll 1
		for (om_i64 a = p.from[0]; a < p.to[0]; a += s.dilation[0])
#pragma unroll 1
			for (om_i64 b = p.from[1]; b < p.to[1]; b += step) {
				A line;
				lowest(&line);
				om_i64 column = 0, row = p.base + a * s.strides[0] + b * s.strides[1];
#pragma unroll 1
				for (om_i64 c = p.from[2]; c < p.to[2]; c += s.dilation[2]) {
					om_load(&x, in, row + c * s.strides[2], type);
					if (x > line || x != x) {
						line = x;
						column = c;
					}
				}
				column += (a * s.in[1] + b) * s.in[2];
#pragma unroll
				for (int r = 0; r < ROWS; r++)
					if (reads(s, p, r, b) && (line > most[r] || line != line)) {
						most[r] = line;
						at[r] = column;
					}
			}
#pragma unroll
		for (int r = 0; r < ROWS; r++)
			if (r < p.rows) {
				om_store(out, p.out + r * s.size[2].by, type, most[r]);
				if (where)
					where[p.out + r * s.size[2].by] = at[r];
			}
	}
}

#define MAX_POOL(suffix, A)                                                                                              \
	OM_KERNEL(om_max_pool_##suffix, void *out, om_i64 *where, const void *in, int type, OM_GIVEN pool_sizes s, om_i64 n) { \
		max_pool<A>(out, where, in, type, s, n);                                                                     \
	}
MAX_POOL(f, float)
MAX_POOL(d, double)
MAX_POOL(i, om_i64)

// extent is the length of a window with the padding on both sides of the input.
OM_DEVICE om_i64 extent(const pool_sizes &s, int d, om_i64 o) {
	om_i64 begin = o * s.stride[d] - s.padding[d], end = begin + s.kernel[d], last = s.in[d] + s.padding[d];
	return (end < last ? end : last) - begin;
}

OM_DEVICE om_i64 length(om_i64 from, om_i64 to) { return to > from ? to - from : 0; }

// The mean of each window, summed in S.
template <class S> OM_DEVICE void avg_pool(void *out, const void *in, int type, const pool_sizes &s, om_i64 n) {
	OM_EACH(i, n) {
		place p = place_of(s, i);
		S sum[ROWS], x;
#pragma unroll
		for (int r = 0; r < ROWS; r++)
			sum[r] = 0;
#pragma unroll 1
		for (om_i64 a = p.from[0]; a < p.to[0]; a++)
#pragma unroll 1
			for (om_i64 b = p.from[1]; b < p.to[1]; b++) {
				S line = 0;
				om_i64 row = p.base + a * s.strides[0] + b * s.strides[1];
#pragma unroll 1
				for (om_i64 c = p.from[2]; c < p.to[2]; c++) {
					om_load(&x, in, row + c * s.strides[2], type);
					line += x;
				}
#pragma unroll
				for (int r = 0; r < ROWS; r++)
					if (reads(s, p, r, b))
						sum[r] += line;
			}
		om_i64 plane = length(p.from[0], p.to[0]) * length(p.from[2], p.to[2]);
		om_i64 whole = extent(s, 0, p.o[0]) * extent(s, 2, p.o[2]);
#pragma unroll
		for (int r = 0; r < ROWS; r++)
			if (r < p.rows) {
				om_i64 count = plane * length(begin_of(s, p, r), end_of(s, p, r)), by = count;
				if (s.divisor)
					by = s.divisor;
				else if (s.with_padding)
					by = whole * extent(s, 1, p.o[1] + r);
				om_store(out, p.out + r * s.size[2].by, type, count > 0 ? sum[r] / (S)by : (S)0);
			}
	}
}

#define AVG_POOL(suffix, S)                                                                               \
	OM_KERNEL(om_avg_pool_##suffix, void *out, const void *in, int type, OM_GIVEN pool_sizes s, om_i64 n) { \
		avg_pool<S>(out, in, type, s, n);                                                              \
	}
AVG_POOL(f, float)
AVG_POOL(d, double)
AVG_POOL(i, om_i64)

// om_last notes for each element of a result which element of the source is the last to go there.
OM_KERNEL(om_last, int *last, const om_i64 *index, OM_GIVEN om_layout view, om_divisor per, om_i64 pixels, om_i64 n, int *status,
		  int where) {
	OM_EACH(i, n) {
		om_i64 at = index[om_at(view, i)], channel = i, k = om_take(&channel, per);
		if (at < 0 || at >= pixels)
			om_fail(status, where, OM_OUT_OF_RANGE);
		else
			atomicMax(&last[channel * pixels + at], (int)k);
	}
}

OM_KERNEL(om_none, int *last, om_i64 n) {
	OM_EACH(i, n) last[i] = -1;
}

#define UNPOOL(size, T)                                                                                                 \
	OM_KERNEL(om_unpool_##size, T *out, const T *in, OM_GIVEN om_layout view, const int *last, om_i64 per, om_divisor pixels, om_i64 n) { \
		OM_EACH(i, n) out[i] = last[i] < 0 ? (T)0 : in[om_at(view, om_over(i, pixels) * per + last[i])];                       \
	}
UNPOOL(1, om_u8)
UNPOOL(2, om_u16)
UNPOOL(4, om_u32)
UNPOOL(8, om_u64)
