#include "om.h"

// Windows over N×C×spatial, an output a thread. There are three dimensions of space, of which the first may be of one.
struct pool_sizes {
	om_i64 channels, image, channel; // the input's strides
	om_i64 in[3], size[3], strides[3], kernel[3], stride[3], padding[3], dilation[3];
	om_i64 adaptive, with_padding, divisor;
};

// window says which elements output o reads along dimension d: those from from to below to, dilation apart.
OM_DEVICE void window(const pool_sizes &s, int d, om_i64 o, om_i64 *from, om_i64 *to) {
	om_i64 n = s.in[d];
	if (s.adaptive) {
		*from = o * n / s.size[d];
		*to = ((o + 1) * n + s.size[d] - 1) / s.size[d];
		return;
	}
	om_i64 begin = o * s.stride[d] - s.padding[d], end = begin + (s.kernel[d] - 1) * s.dilation[d] + 1;
	*to = end < n ? end : n;
	if (begin < 0)
		begin += (-begin + s.dilation[d] - 1) / s.dilation[d] * s.dilation[d];
	*from = begin;
}

// A place is an output's window and where its channel begins.
struct place {
	om_i64 base, o[3], from[3], to[3];
};

OM_DEVICE place place_of(const pool_sizes &s, om_i64 i) {
	place p;
	for (int d = 2; d >= 0; d--) {
		p.o[d] = i % s.size[d];
		i /= s.size[d];
		window(s, d, p.o[d], &p.from[d], &p.to[d]);
	}
	p.base = i / s.channels * s.image + i % s.channels * s.channel;
	return p;
}

OM_DEVICE void lowest(float *x) { *x = -OM_INF; }
OM_DEVICE void lowest(double *x) { *x = -(double)OM_INF; }
OM_DEVICE void lowest(om_i64 *x) { *x = (om_i64)(1ull << 63); }

// The largest of each window, NaN where there is one, and where in the channel it lies: the first of equals, the last NaN.
template <class A>
OM_DEVICE void max_pool(void *out, om_i64 *where, const void *in, int type, const pool_sizes &s, om_i64 n) {
	OM_EACH(i, n) {
		place p = place_of(s, i);
		A most, x;
		lowest(&most);
		om_i64 at = (p.from[0] * s.in[1] + p.from[1]) * s.in[2] + p.from[2];
		for (om_i64 a = p.from[0]; a < p.to[0]; a += s.dilation[0])
			for (om_i64 b = p.from[1]; b < p.to[1]; b += s.dilation[1])
				for (om_i64 c = p.from[2]; c < p.to[2]; c += s.dilation[2]) {
					om_load(&x, in, p.base + a * s.strides[0] + b * s.strides[1] + c * s.strides[2], type);
					if (x > most || x != x) {
						most = x;
						at = (a * s.in[1] + b) * s.in[2] + c;
					}
				}
		om_store(out, i, type, most);
		if (where)
			where[i] = at;
	}
}

#define MAX_POOL(suffix, A)                                                                                              \
	OM_KERNEL(om_max_pool_##suffix, void *out, om_i64 *where, const void *in, int type, pool_sizes s, om_i64 n) { \
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

// The mean of each window, summed in S.
template <class S> OM_DEVICE void avg_pool(void *out, const void *in, int type, const pool_sizes &s, om_i64 n) {
	OM_EACH(i, n) {
		place p = place_of(s, i);
		S sum = 0, x;
		for (om_i64 a = p.from[0]; a < p.to[0]; a++)
			for (om_i64 b = p.from[1]; b < p.to[1]; b++)
				for (om_i64 c = p.from[2]; c < p.to[2]; c++) {
					om_load(&x, in, p.base + a * s.strides[0] + b * s.strides[1] + c * s.strides[2], type);
					sum += x;
				}
		om_i64 count = 1, whole = 1;
		for (int d = 0; d < 3; d++) {
			count *= p.to[d] > p.from[d] ? p.to[d] - p.from[d] : 0;
			whole *= extent(s, d, p.o[d]);
		}
		S mean = 0;
		if (count > 0)
			mean = sum / (S)(s.divisor ? s.divisor : s.with_padding ? whole : count);
		om_store(out, i, type, mean);
	}
}

OM_KERNEL(om_avg_pool_d, void *out, const void *in, int type, pool_sizes s, om_i64 n) { avg_pool<double>(out, in, type, s, n); }
OM_KERNEL(om_avg_pool_i, void *out, const void *in, int type, pool_sizes s, om_i64 n) { avg_pool<om_i64>(out, in, type, s, n); }

// om_last notes for each element of a result which element of the source is the last to go there.
OM_KERNEL(om_last, int *last, const om_i64 *index, om_layout view, om_i64 per, om_i64 pixels, om_i64 n, int *status, int where) {
	OM_EACH(i, n) {
		om_i64 at = index[om_at(view, i)];
		if (at < 0 || at >= pixels)
			om_fail(status, where, OM_OUT_OF_RANGE);
		else
			atomicMax(&last[i / per * pixels + at], (int)(i % per));
	}
}

OM_KERNEL(om_none, int *last, om_i64 n) {
	OM_EACH(i, n) last[i] = -1;
}

#define UNPOOL(size, T)                                                                                                 \
	OM_KERNEL(om_unpool_##size, T *out, const T *in, om_layout view, const int *last, om_i64 per, om_i64 pixels, om_i64 n) { \
		OM_EACH(i, n) out[i] = last[i] < 0 ? (T)0 : in[om_at(view, i / pixels * per + last[i])];                       \
	}
UNPOOL(1, om_u8)
UNPOOL(2, om_u16)
UNPOOL(4, om_u32)
UNPOOL(8, om_u64)
