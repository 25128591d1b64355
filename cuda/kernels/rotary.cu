#include "om.h"
#include "wide.h"

// product is that of two numbers of a dtype, rounded to it.
OM_DEVICE float product(float a, float b, int type) {
	float x = om_times(a, b);
	om_f16 half;
	om_bf16 brain;
	if (type == OM_F16) {
		om_round(&half, x);
		x = om_float(half);
	} else if (type == OM_BF16) {
		om_round(&brain, x);
		x = om_float(brain);
	}
	return x;
}

// out = x × cos + turned × sin along lines of two halves: turned is the second half of x, negated, and then the first. A thread
// has width pairs that are half a line apart: one, or four that lie together. The views show first halves; the second are far
// from those. All are of one dtype, float or half floats, to which products are rounded before they are summed up, as if each op
// wrote its result.
OM_KERNEL(om_rotary, void *out, const void *x, OM_GIVEN om_layout x_view, om_i64 x_far, const void *cos, OM_GIVEN om_layout cos_view, om_i64 cos_far,
		  const void *sin, OM_GIVEN om_layout sin_view, om_i64 sin_far, int type, om_divisor half, int hows, int width, om_i64 n) {
	OM_EACH(i, n / width) {
		om_i64 line = i * width, column = om_take(&line, half);
		om_i64 x_at = om_at(x_view, i * width), cos_at = om_at(cos_view, i * width), sin_at = om_at(sin_view, i * width);
		float a[4], b[4], c[4], s[4], low[4], high[4];
		om_load_how(a, x, x_at, type, hows & 3);
		om_load_how(b, x, x_at + x_far, type, hows & 3);
		om_load_how(c, cos, cos_at, type, hows >> 2 & 3);
		om_load_how(s, sin, sin_at, type, hows >> 4 & 3);
#pragma unroll
		for (int l = 0; l < 4; l++)
			low[l] = product(a[l], c[l], type) - product(b[l], s[l], type);
		om_load_how(c, cos, cos_at + cos_far, type, hows >> 2 & 3);
		om_load_how(s, sin, sin_at + sin_far, type, hows >> 4 & 3);
#pragma unroll
		for (int l = 0; l < 4; l++)
			high[l] = product(b[l], c[l], type) + product(a[l], s[l], type);
		om_i64 to = line * 2 * half.by + column;
		if (width == 4) {
			om_store_4(out, to, type, low);
			om_store_4(out, to + half.by, type, high);
		} else {
			om_store_f(out, to, type, low[0]);
			om_store_f(out, to + half.by, type, high[0]);
		}
	}
}
