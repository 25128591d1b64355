#include "om.h"
#include "wide.h"
#include "conv.h"
#include "tile.h"
#include "finish.h"

// Convolutions of floats by 3 × 3 windows next to each other, Winograd's F(4×4, 3×3): a tile of 6 × 6 pixels becomes 36 points, as
// does a weight's window; a product for each point, by the blocks of gemm.cu, sums up channels; 36 sums become 4 × 4 results.
// The points are 0, ±1, ±2 and infinity.

#define POINTS 36

// Tiles are counted over all images; of those from first on, count are computed at a time. Scratch memory has lines tiles for
// each channel and point, a multiple of four, those behind count being zeros.
struct winograd_sizes {
	om_divisor across, down, lines;
	om_i64 inputs, outputs, first, count;
	om_i64 in[2], out[2], padding[2], x[4];
};

// into_points turns six numbers, step apart, into those of six points.
OM_DEVICE void into_points(float *d, int step) {
	float d0 = d[0], d1 = d[step], d2 = d[2 * step], d3 = d[3 * step], d4 = d[4 * step], d5 = d[5 * step];
	float even = d4 - 4 * d2, odd = d3 - 4 * d1, near = d4 - d2, far = 2 * (d3 - d1);
	d[0] = 4 * d0 - 5 * d2 + d4;
	d[step] = even + odd;
	d[2 * step] = even - odd;
	d[3 * step] = near + far;
	d[4 * step] = near - far;
	d[5 * step] = 4 * d1 - 5 * d3 + d5;
}

// The points of tiles: v[point][channel][tile].
OM_KERNEL(om_winograd_in, float *v, const float *x, OM_GIVEN winograd_sizes s, om_i64 n) {
	OM_EACH(i, n) {
		om_i64 channel = i, t = om_take(&channel, s.lines), tile = s.first + t;
		om_i64 left = om_take(&tile, s.across) * 4 - s.padding[1], above = om_take(&tile, s.down) * 4 - s.padding[0];
		const float *from = x + tile * s.x[0] + channel * s.x[1] + above * s.x[2] + left * s.x[3];
		float d[POINTS];
#pragma unroll
		for (int r = 0; r < 6; r++)
#pragma unroll
			for (int c = 0; c < 6; c++) {
				bool inside = t < s.count && (om_u64)(above + r) < (om_u64)s.in[0] && (om_u64)(left + c) < (om_u64)s.in[1];
				d[6 * r + c] = inside ? from[r * s.x[2] + c * s.x[3]] : 0;
			}
#pragma unroll
		for (int c = 0; c < 6; c++)
			into_points(d + c, 6);
#pragma unroll
		for (int r = 0; r < 6; r++)
			into_points(d + 6 * r, 1);
#pragma unroll
		for (int p = 0; p < POINTS; p++)
			v[p * n + i] = d[p];
	}
}

// of_window sets, step apart, the numbers of six points of a weight's three taps.
OM_DEVICE void of_window(float *to, int step, float g0, float g1, float g2) {
	float ends = (g0 + g2) / 6, middle = g1 / 6, far = g0 / 24 + g2 / 6, between = g1 / 12;
	to[0] = g0 / 4;
	to[step] = -ends - middle;
	to[2 * step] = middle - ends;
	to[3 * step] = far + between;
	to[4 * step] = far - between;
	to[5 * step] = g2;
}

// The points of weights: u[point][output][input].
OM_KERNEL(om_winograd_weights, float *u, const float *w, om_divisor inputs, om_i64 of_output, om_i64 of_input, om_i64 of_row,
		  om_i64 of_column, om_i64 n) {
	OM_EACH(i, n) {
		om_i64 output = i, input = om_take(&output, inputs);
		const float *g = w + output * of_output + input * of_input;
		float half[18], all[POINTS];
#pragma unroll
		for (int c = 0; c < 3; c++)
			of_window(half + c, 3, g[c * of_column], g[of_row + c * of_column], g[2 * of_row + c * of_column]);
#pragma unroll
		for (int r = 0; r < 6; r++)
			of_window(all + 6 * r, 1, half[3 * r], half[3 * r + 1], half[3 * r + 2]);
#pragma unroll
		for (int p = 0; p < POINTS; p++)
			u[p * n + i] = all[p];
	}
}

// of_points sets four results of the sums of six points, which are step apart.
OM_DEVICE void of_points(float *to, const float *m, int step) {
	float near = m[step] + m[2 * step], across = m[step] - m[2 * step];
	float far = m[3 * step] + m[4 * step], apart = m[3 * step] - m[4 * step];
	to[0] = m[0] + near + far;
	to[1] = across + 2 * apart;
	to[2] = near + 4 * far;
	to[3] = across + 8 * apart + m[5 * step];
}

// Results out of the sums m[point][channel][tile]. fours says that lines are multiples of sixteen bytes.
OM_KERNEL(om_winograd_out, float *out, const float *m, const float *bias, om_i64 bias_step, OM_GIVEN winograd_sizes s, ENDING(float, float),
		  int fours, om_i64 n) {
	OM_EACH(i, n) {
		om_i64 channel = i, t = om_take(&channel, s.lines), tile = s.first + t;
		if (t >= s.count)
			continue;
		om_i64 column = om_take(&tile, s.across) * 4, row = om_take(&tile, s.down) * 4;
		float sums[POINTS], half[24];
#pragma unroll
		for (int p = 0; p < POINTS; p++)
			sums[p] = m[p * n + i];
#pragma unroll
		for (int c = 0; c < 6; c++)
			of_points(half + 4 * c, sums + c, 6);
		float y[16]; // in memory: how results end stands once
#pragma unroll
		for (int r = 0; r < 4; r++)
			of_points(y + 4 * r, half + r, 4);
		om_i64 at = ((tile * s.outputs + channel) * s.out[0] + row) * s.out[1] + column;
		int high = s.out[0] - row < 4 ? (int)(s.out[0] - row) : 4, wide = s.out[1] - column < 4 ? (int)(s.out[1] - column) : 4;
#pragma unroll 1
		for (int r = 0; r < high; r++, at += s.out[1]) {
#pragma unroll 1
			for (int c = 0; c < wide; c++) {
				y[4 * r + c] = finish_one(y[4 * r + c], channel, at + c, bias, bias_step, END);
				if (!fours)
					out[at + c] = y[4 * r + c];
			}
			if (fours)
				om_store_4(out, at, OM_F32, y + 4 * r);
		}
	}
}
