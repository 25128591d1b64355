#include "om.h"

struct eight {
	om_i64 of[OM_DIMS];
};
struct alignas(16) sixteen {
	om_u64 low, high;
};
template <class T> OM_DEVICE T none(T *) { return 0; }
OM_DEVICE sixteen none(sixteen *) {
	sixteen zero = {0, 0};
	return zero;
}

// SIZES instantiates a macro for the sizes of elements that are moved without being looked at.
#define SIZES(M)  \
	M(1, om_u8)   \
	M(2, om_u16)  \
	M(4, om_u32)  \
	M(8, om_u64)  \
	M(16, sixteen)

// What stands outside of a padded tensor: padModes of op_index.go.
enum { CONSTANT, REFLECT, REPLICATE, CIRCULAR };

// padded sets where element i of a padded tensor is found; false says nowhere.
OM_DEVICE bool padded(const om_layout &to, const om_layout &from, const eight &before, int mode, om_i64 i, om_i64 *found) {
	om_i64 at = 0;
#pragma unroll 1
	for (int d = to.rank - 1; d >= 0; d--) {
		om_i64 k = om_along(&i, to, d) - before.of[d], n = from.shape[d];
		if (k < 0 || k >= n) {
			if (mode == CONSTANT || n == 0)
				return false;
			if (mode == REFLECT)
				k = k < 0 ? -k : 2 * (n - 1) - k;
			else if (mode == REPLICATE)
				k = k < 0 ? 0 : n - 1;
			else
				k = k < 0 ? k + n : k - n;
		}
		at += k * from.stride[d];
	}
	*found = at;
	return true;
}

#define PAD(size, T)                                                                                                      \
	OM_KERNEL(om_pad_##size, T *out, OM_GIVEN om_layout to, const T *in, OM_GIVEN om_layout from, const T *value, OM_GIVEN eight before, int mode, om_i64 n) { \
		OM_EACH(i, n) {                                                                                               \
			om_i64 at;                                                                                                \
			if (padded(to, from, before, mode, i, &at))                                                               \
				out[i] = in[at];                                                                                      \
			else                                                                                                      \
				out[i] = value ? *value : none((T *)0);                                                               \
		}                                                                                                             \
	}
SIZES(PAD)

// What om_index_at leaves where an index names nothing.
#define NOWHERE ((om_i64)(1ull << 63))

// at[i] is, or with more is increased by, where the index at position i leads: its stride times the index less low, if that is
// one of rows. An index outside of size, of which negative ones count from the end with wrap, fails.
OM_KERNEL(om_index_at, om_i64 *at, int more, const void *index, int type, OM_GIVEN om_layout view, om_i64 n, om_i64 size, om_i64 stride,
		  int wrap, om_i64 low, om_i64 rows, int *status, int where) {
	OM_EACH(i, n) {
		om_i64 k = om_load_i(index, om_at(view, i), type);
		if (wrap && k < 0)
			k += size;
		if (k < 0 || k >= size) {
			om_fail(status, where, OM_OUT_OF_RANGE);
			k = -1;
		}
		k -= low;
		om_i64 before = more ? at[i] : 0;
		at[i] = k < 0 || k >= rows || before == NOWHERE ? NOWHERE : before + k * stride;
	}
}

// Elements at outer positions × those of at × inner positions, width of them; where at leads nowhere those of rest, or zeros.
#define INDEX(size, T)                                                                                                     \
	OM_KERNEL(om_index_##size, T *out, const T *in, OM_GIVEN om_layout outer, OM_GIVEN om_layout inner, const om_i64 *at, om_divisor positions,     \
			  om_divisor width, const T *rest, OM_GIVEN om_layout rest_view, om_i64 n) {                                            \
		OM_EACH(i, n) {                                                                                                \
			om_i64 row = i, column = om_take(&row, width), from = at[om_take(&row, positions)];                        \
			if (from == NOWHERE)                                                                                       \
				out[i] = rest ? rest[om_at(rest_view, i)] : none((T *)0);                                              \
			else                                                                                                       \
				out[i] = in[om_at(outer, row) + from + om_at(inner, column)];                                          \
		}                                                                                                              \
	}
SIZES(INDEX)

// out[i] = in at place i of lines, as many elements along as the index at i says.
#define PICK(size, T)                                                                                                      \
	OM_KERNEL(om_pick_##size, T *out, const T *in, OM_GIVEN om_layout lines, om_i64 along, om_i64 stride, const void *index, int type,    \
			  OM_GIVEN om_layout view, om_i64 n, int *status, int where) {                                                          \
		OM_EACH(i, n) {                                                                                                \
			om_i64 k = om_load_i(index, om_at(view, i), type);                                                         \
			if (k < 0 || k >= along) {                                                                                 \
				om_fail(status, where, OM_OUT_OF_RANGE);                                                               \
				out[i] = none((T *)0);                                                                                 \
			} else                                                                                                     \
				out[i] = in[om_at(lines, i) + k * stride];                                                             \
		}                                                                                                              \
	}
SIZES(PICK)

// How an element is combined with what is there: merges of op_index.go.
enum { REPLACE, SUM, PROD, AMAX, AMIN };

template <class A> OM_DEVICE A merged(int op, A a, A b) {
	switch (op) {
	case SUM:
		return a + b;
	case PROD:
		return a * b;
	case AMAX:
		return b > a || b != b ? b : a;
	case AMIN:
		return b < a || b != b ? b : a;
	}
	return b;
}

// merge combines element i of out with x.
template <class A> OM_DEVICE void merge(void *out, om_i64 i, int type, int op, A x) {
	A a;
	om_load(&a, out, i, type);
	if (type == OM_BOOL && op == SUM)
		a = a != 0 || x != 0;
	else
		a = merged(op, a, x);
	om_store(out, i, type, a);
}

// A thread merges all that comes to the elements at one outer and one inner position, in order.
template <class A>
OM_DEVICE void put(void *out, int type, const om_layout &outer, const om_layout &inner, const om_i64 *at, om_i64 positions,
				   const om_divisor &width, const void *values, const om_layout &view, int op, om_i64 n) {
	OM_EACH(i, n) {
		om_i64 o = i, k = om_take(&o, width), base = om_at(outer, o) + om_at(inner, k);
		for (om_i64 p = 0; p < positions; p++) {
			if (at[p] == NOWHERE)
				continue;
			A x;
			om_load(&x, values, om_at(view, (o * positions + p) * width.by + k), type);
			merge(out, base + at[p], type, op, x);
		}
	}
}

// The same for what is replaced, in two passes over all values: which position is the last to come to an element, and then its
// value alone is written.
OM_KERNEL(om_put_last, int *last, OM_GIVEN om_layout outer, OM_GIVEN om_layout inner, const om_i64 *at, om_divisor positions, om_divisor width,
		  om_i64 n) {
	OM_EACH(i, n) {
		om_i64 row = i, column = om_take(&row, width), p = om_take(&row, positions);
		if (at[p] != NOWHERE)
			atomicMax(&last[om_at(outer, row) + at[p] + om_at(inner, column)], (int)p);
	}
}
OM_KERNEL(om_put_chosen, void *out, int type, OM_GIVEN om_layout outer, OM_GIVEN om_layout inner, const om_i64 *at, om_divisor positions,
		  om_divisor width, const void *values, OM_GIVEN om_layout view, const int *last, om_i64 n) {
	OM_EACH(i, n) {
		om_i64 row = i, column = om_take(&row, width), p = om_take(&row, positions);
		if (at[p] == NOWHERE)
			continue;
		om_i64 place = om_at(outer, row) + at[p] + om_at(inner, column);
		if (last[place] == p)
			om_store_i(out, place, type, om_load_i(values, om_at(view, i), type));
	}
}

// A thread merges a line along the dimension in which indices say where elements go. counts are how many came where.
template <class A>
OM_DEVICE void scatter(void *out, int type, const om_layout &to, om_i64 to_step, om_i64 along, const void *index, int index_type,
					   const om_layout &lines, om_i64 index_step, om_i64 length, const void *source, const om_layout &from,
					   om_i64 from_step, int *counts, int op, om_i64 n, int *status, int where) {
	OM_EACH(i, n) {
		om_i64 base = om_at(to, i), index_at = om_at(lines, i), at = om_at(from, i);
		for (om_i64 j = 0; j < length; j++) {
			om_i64 k = om_load_i(index, index_at + j * index_step, index_type);
			if (k < 0 || k >= along) {
				om_fail(status, where, OM_OUT_OF_RANGE);
				continue;
			}
			om_i64 place = base + k * to_step;
			int by = op;
			if (counts && counts[place]++ == 0)
				by = REPLACE;
			A x;
			om_load(&x, source, at + j * from_step, type);
			merge(out, place, type, by, x);
		}
	}
}

OM_DEVICE float divided(float sum, int n) { return sum / (float)n; }
OM_DEVICE double divided(double sum, int n) { return sum / n; }
OM_DEVICE om_i64 divided(om_i64 sum, int n) { return sum / n - (sum % n < 0); }

#define MERGE(suffix, A)                                                                                                     \
	OM_KERNEL(om_put_##suffix, void *out, int type, OM_GIVEN om_layout outer, OM_GIVEN om_layout inner, const om_i64 *at, om_i64 positions,          \
			  om_divisor width, const void *values, OM_GIVEN om_layout view, int op, om_i64 n) {                                      \
		put<A>(out, type, outer, inner, at, positions, width, values, view, op, n);                                          \
	}                                                                                                                        \
	OM_KERNEL(om_merge_##suffix, void *out, int type, OM_GIVEN om_layout to, om_i64 to_step, om_i64 along, const void *index,              \
			  int index_type, OM_GIVEN om_layout lines, om_i64 index_step, om_i64 length, const void *source, OM_GIVEN om_layout from,             \
			  om_i64 from_step, int *counts, int op, om_i64 n, int *status, int where) {                                     \
		scatter<A>(out, type, to, to_step, along, index, index_type, lines, index_step, length, source, from, from_step, counts, \
				   op, n, status, where);                                                                                \
	}                                                                                                                        \
	OM_KERNEL(om_divide_##suffix, void *out, int type, const int *counts, om_i64 n) {                                          \
		OM_EACH(i, n) {                                                                                                  \
			A sum;                                                                                                       \
			om_load(&sum, out, i, type);                                                                                 \
			if (counts[i] > 1)                                                                                           \
				om_store(out, i, type, divided(sum, counts[i]));                                                         \
		}                                                                                                                \
	}
MERGE(f, float)
MERGE(d, double)
MERGE(i, om_i64)

OM_KERNEL(om_counts, int *counts, int value, om_i64 n) {
	OM_EACH(i, n) counts[i] = value;
}

#define RANKERS 256

// rank[i] is how many of the elements before i are not zero, or with sums what they add up to; rank[n] is that of all. One
// block: each thread has a run of elements.
OM_KERNEL(om_ranks, om_i64 *rank, const void *in, int type, OM_GIVEN om_layout view, om_i64 n, int sums, int *status, int where) {
	__shared__ om_i64 before[RANKERS + 1];
	om_i64 t = threadIdx.x, each = (n + RANKERS - 1) / RANKERS;
	om_i64 from = t * each < n ? t * each : n, to = from + each < n ? from + each : n;
	for (int pass = 0; pass < 2; pass++) {
		om_i64 sum = pass ? before[t] : 0;
		for (om_i64 i = from; i < to; i++) {
			om_i64 at = om_at(view, i), x;
			if (pass)
				rank[i] = sum;
			if (type <= OM_BF16)
				x = om_load_d(in, at, type) != 0;
			else
				x = om_load_i(in, at, type);
			if (!sums)
				x = x != 0;
			else if (x < 0 || x > (om_i64)1 << 40) {
				om_fail(status, where, OM_BAD_COUNTS);
				x = 0;
			}
			sum += x;
		}
		if (pass)
			break;
		before[t + 1] = sum;
		__syncthreads();
		if (t == 0) {
			before[0] = 0;
			for (int i = 0; i < RANKERS; i++)
				before[i + 1] += before[i];
			rank[n] = before[RANKERS];
		}
		__syncthreads();
	}
}

// The indices of what is not zero, one row each, size in all; fill where there are none left.
OM_KERNEL(om_nonzero, om_i64 *out, const om_i64 *rank, OM_GIVEN om_layout view, om_i64 size, om_i64 fill, om_i64 n, om_i64 total) {
	OM_EACH(i, total) {
		om_i64 rest = i;
		if (i < n && rank[i + 1] > rank[i] && rank[i] < size)
			for (int d = view.rank - 1; d >= 0; d--)
				out[rank[i] * view.rank + d] = om_along(&rest, view, d);
		if (i < size && i >= rank[n])
			for (int d = 0; d < view.rank; d++)
				out[i * view.rank + d] = fill;
	}
}

// Index i as often as rank[i + 1] − rank[i].
OM_KERNEL(om_repeat, om_i64 *out, const om_i64 *rank, om_i64 n, om_i64 size, int *status, int where) {
	OM_EACH(i, size) {
		if (rank[n] != size)
			om_fail(status, where, OM_BAD_COUNTS);
		om_i64 low = 0, high = n; // rank[low] ≤ i
		while (high - low > 1) {
			om_i64 mid = low + (high - low) / 2;
			if (rank[mid] <= i)
				low = mid;
			else
				high = mid;
		}
		out[i] = low;
	}
}

#define MASKED(size, T)                                                                                                   \
	OM_KERNEL(om_masked_##size, T *out, const T *in, OM_GIVEN om_layout view, const om_u8 *mask, OM_GIVEN om_layout mask_view, const T *source,   \
			  OM_GIVEN om_layout from, om_i64 given, const om_i64 *rank, om_i64 n, int *status, int where) {                       \
		OM_EACH(i, n) {                                                                                               \
			out[i] = in[om_at(view, i)];                                                                              \
			if (!mask[om_at(mask_view, i)])                                                                           \
				continue;                                                                                             \
			if (rank[i] >= given)                                                                                     \
				om_fail(status, where, OM_BAD_COUNTS);                                                                \
			else                                                                                                      \
				out[i] = source[om_at(from, rank[i])];                                                                \
		}                                                                                                             \
	}
SIZES(MASKED)

// Strides and sizes of an embedding bag.
struct bag_sizes {
	om_i64 rows;
	om_divisor width;
	om_i64 line, step, indices, index_step, offsets, offset_step, scale_step, padding, mode;
};

// Bags of rows: their sums, weighted by scale, their means or their largest.
OM_KERNEL(om_bag, void *out, const void *table, int type, const void *index, int index_type, const void *offsets, int offset_type,
		  const void *scale, bag_sizes s, om_i64 n, int *status, int where) {
	OM_EACH(i, n) {
		om_i64 bag = i, column = om_take(&bag, s.width), count = 0;
		om_i64 begin = om_load_i(offsets, bag * s.offset_step, offset_type), end = s.indices;
		if (bag + 1 < s.offsets)
			end = om_load_i(offsets, (bag + 1) * s.offset_step, offset_type);
		if (begin < 0 || end < begin || end > s.indices || (bag == 0 && begin != 0)) {
			om_fail(status, where, OM_BAD_GROUPS);
			end = begin;
		}
		double sum = 0;
		for (om_i64 j = begin; j < end; j++) {
			om_i64 row = om_load_i(index, j * s.index_step, index_type);
			if (row < 0 || row >= s.rows) {
				om_fail(status, where, OM_OUT_OF_RANGE);
				continue;
			}
			if (row == s.padding)
				continue;
			double x = om_load_d(table, row * s.line + column * s.step, type);
			if (s.mode != 2)
				sum += scale ? x * om_load_d(scale, j * s.scale_step, type) : x;
			else if (count == 0 || x > sum || x != x)
				sum = x;
			count++;
		}
		if (s.mode == 1 && count > 0)
			sum /= (double)count;
		om_store_d(out, i, type, sum);
	}
}

// Where x goes among sorted elements: before equal ones, with right after them.
template <class A>
OM_DEVICE void search(void *out, int out_type, const void *sorted, const om_layout &lines, om_i64 step, om_i64 length,
					  const om_i64 *order, const om_layout &orders, om_i64 order_step, const void *x, const om_layout &view,
					  int type, om_i64 row, int right, om_i64 n, int *status, int where) {
	OM_EACH(i, n) {
		om_i64 line = row ? i / row : 0, base = om_at(lines, line), by = order ? om_at(orders, line) : 0, low = 0, high = length;
		A value, middle;
		om_load(&value, x, om_at(view, i), type);
		while (low < high) {
			om_i64 mid = low + (high - low) / 2, k = mid;
			if (order) {
				k = order[by + mid * order_step];
				if (k < 0 || k >= length) {
					om_fail(status, where, OM_OUT_OF_RANGE);
					break;
				}
			}
			om_load(&middle, sorted, base + k * step, type);
			if (right ? !(middle > value) : !(middle >= value))
				low = mid + 1;
			else
				high = mid;
		}
		om_store_i(out, i, out_type, low);
	}
}

#define SEARCH(suffix, A)                                                                                                     \
	OM_KERNEL(om_search_##suffix, void *out, int out_type, const void *sorted, OM_GIVEN om_layout lines, om_i64 step, om_i64 length,          \
			  const om_i64 *order, OM_GIVEN om_layout orders, om_i64 order_step, const void *x, OM_GIVEN om_layout view, int type, om_i64 row,       \
			  int right, om_i64 n, int *status, int where) {                                                                  \
		search<A>(out, out_type, sorted, lines, step, length, order, orders, order_step, x, view, type, row, right, n, status, where); \
	}
SEARCH(d, double)
SEARCH(i, om_i64)

// The columns that row i of a triangle has: from to below to.
OM_DEVICE void columns_of(om_i64 i, om_i64 columns, om_i64 offset, int upper, om_i64 *from, om_i64 *to) {
	om_i64 edge = i + offset + (upper ? 0 : 1);
	edge = edge < 0 ? 0 : edge > columns ? columns : edge;
	*from = upper ? edge : 0;
	*to = upper ? columns : edge;
}

// The rows, then the columns, of the size places on one side of a diagonal.
OM_KERNEL(om_triangle_indices, void *out, int type, om_i64 rows, om_i64 columns, om_i64 offset, int upper, om_i64 size) {
	OM_EACH(i, rows) {
		om_i64 at = 0, from, to;
		for (om_i64 r = 0; r < i; r++) {
			columns_of(r, columns, offset, upper, &from, &to);
			at += to - from;
		}
		columns_of(i, columns, offset, upper, &from, &to);
		for (om_i64 j = from; j < to && at < size; j++, at++) {
			om_store_i(out, at, type, i);
			om_store_i(out, size + at, type, j);
		}
	}
}
