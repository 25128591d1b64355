// Products of half floats by wgmma: out[r, j] = f(alpha·Σ_k left[r, k]·right[j, k] + bias[j]) + beta·added[r, j], in blocks as hopper.h
// has them. The terms of both factors lie behind each other, and one thread has them copied by the unit that copies parts of tensors.
// Parts of the terms, and how a product ends, are product.h's. The host computes the same plainly. Included after product.h and hopper.h.
#pragma once

// left_line and right_line are how far lines lie from each other, the maps what describes the factors from left and right on.
template <class M, int ROWS>
OM_DEVICE void hopper_product(typename M::T *out, float *parts, const typename M::T *left, om_i64 left_line, const typename M::T *right,
							  om_i64 right_line, ENDING(const om_layout &, typename M::T), om_i64 m, om_i64 n, om_i64 k, om_i64 part,
							  int fours, const om_map &left_map, const om_map &right_map) {
	typedef typename M::T T;
#if defined(__CUDA_ARCH__) && !HOPPER
	asm volatile("trap;"); // nobody launches it there
#else
	spot s = spot_of(m, n, 1, ROWS, WIDTH);
	om_i64 from = s.part * part, to = from + part < k ? from + part : k;
	auto end_four = [&](int own, int column, float *x) {
		om_i64 r = s.top + own, c = s.first + column;
		if (r >= m || c >= n)
			return;
		if (parts) {
			write_line(parts + (s.part * m + r) * n + c, x, n - c, fours);
			return;
		}
		const T *line_added = added ? added + place_at(added_rows, r) : 0;
		end_product(x, c, n, bias, bias_step, line_added, added_step, alpha, beta, act, act_a, act_b);
		store_four(out + r * n + c, x, n - c, fours);
	};
#if HOPPER
	OM_DYNAMIC(unsigned char, space);
	typedef hopper_tile<M, ROWS> tile;
	tile own;
	own.begin(shared_at(space), 1);
	int lots = (int)((to - from + LOT - 1) / LOT);
	float sums[WIDTH / 2];
	bool brings = threadIdx.x >= tile::GROUPS * GROUP;
	if (!brings)
		own.multiply(sums, lots);
	else if (threadIdx.x == tile::GROUPS * GROUP)
		own.bring(&left_map, &right_map, (int)from, (int)s.top, (int)s.first, lots);
	__syncthreads(); // nobody reads the factors any more
	if (!brings)
		tile::finish(sums, (float *)(space + (own.lots - shared_at(space))), end_four);
#else
#pragma unroll 1
	for (int q = threadIdx.x; q < ROWS * WIDTH / 4; q += (ROWS / 64 + 1) * GROUP) {
		int own = q / (WIDTH / 4), column = q % (WIDTH / 4) * 4;
		float x[4] = {0, 0, 0, 0};
		om_i64 r = s.top + own;
		for (om_i64 term = from; term < to && r < m; term++) {
			float y = value(M(), left[r * left_line + term]);
			for (int e = 0; e < 4; e++)
				if (s.first + column + e < n)
					x[e] += y * value(M(), right[(s.first + column + e) * right_line + term]);
		}
		end_four(own, column, x);
	}
#endif
#endif
}

#define HOPPER_PRODUCT(name, M, lines, threads)                                                                                \
	BOUNDED_KERNEL(threads, 1, name, M::T *out, float *parts, const M::T *left, om_i64 left_line, const M::T *right, om_i64 right_line, \
				   ENDING(OM_GIVEN om_layout, M::T), om_i64 m, om_i64 n, om_i64 k, om_i64 part, int fours, OM_GIVEN om_map left_map, \
				   OM_GIVEN om_map right_map) {                                                                                \
		hopper_product<M, lines>(out, parts, left, left_line, right, right_line, END, m, n, k, part, fours, left_map, right_map); \
	}
#define HOPPER_PRODUCTS(name, M)             \
	HOPPER_PRODUCT(name##_128, M, 128, 384) \
	HOPPER_PRODUCT(name##_64, M, 64, 256)
