#include "om.h"

// Lines in order, or added up, a block of threads for each.
#define THREADS 256

// Keys are unsigned integers in the order of the elements; where they are equal the index decides, so every order is the only
// one.
struct ranked {
	om_u64 key;
	om_i64 index;
};

OM_DEVICE om_u64 bits_of(double x) {
#ifdef __CUDA_ARCH__
	return (om_u64)__double_as_longlong(x);
#else
	om_u64 bits;
	__builtin_memcpy(&bits, &x, 8);
	return bits;
#endif
}

#define TOP (1ull << 63)
#define NAN_KEY (~0ull)

OM_DEVICE om_u64 key_of(const void *in, om_i64 at, int type) {
	if (type > OM_BF16)
		return (om_u64)om_load_i(in, at, type) ^ (type == OM_U64 ? 0 : TOP);
	double x = om_load_d(in, at, type);
	om_u64 bits = bits_of(x);
	if (x != x)
		return NAN_KEY;
	return x == 0 ? TOP : bits & TOP ? ~bits : bits | TOP;
}

OM_DEVICE bool after(const ranked &a, const ranked &b) { return a.key != b.key ? a.key > b.key : a.index > b.index; }

// How many elements fit into a block's shared memory.
#define SHARED 1024

// Which of a line's elements are given: chosen of op_sort.go.
enum { FIRST, KTH, MEDIAN, NANMEDIAN, MODE };

// Elements of lines in order: the first k, or one. room is a power of two that is not below the line's length; scratch has room for
// each block of the grid, if it is above SHARED. out has inner elements between those of a line.
OM_KERNEL(om_sort, om_u8 *out, om_i64 *where, const om_u8 *in, int type, int bytes, OM_GIVEN om_layout lines, om_i64 step, om_i64 count,
		  om_i64 room, ranked *scratch, int descending, int what, om_i64 k, om_i64 inner, om_i64 n) {
	__shared__ ranked near[SHARED];
	__shared__ om_i64 found;
	ranked *items = room <= SHARED ? near : scratch + blockIdx.x * room;
	for (om_i64 line = blockIdx.x; line < n; line += gridDim.x) {
		om_i64 from = om_at(lines, line);
		__syncthreads();
		for (om_i64 i = threadIdx.x; i < room; i += THREADS) {
			ranked r = {~0ull, i};
			if (i < count)
				r.key = key_of(in, from + i * step, type) ^ (descending ? ~0ull : 0);
			items[i] = r;
		}
		__syncthreads();
		for (om_i64 size = 2; size <= room; size *= 2)
			for (om_i64 apart = size / 2; apart > 0; apart /= 2) {
				for (om_i64 i = threadIdx.x; i < room / 2; i += THREADS) {
					om_i64 a = i / apart * apart * 2 + i % apart, b = a + apart;
					ranked x = items[a], y = items[b];
					if (after(x, y) == ((a & size) == 0)) {
						items[a] = y;
						items[b] = x;
					}
				}
				__syncthreads();
			}
		om_i64 at = k, length = k;
		if (what == KTH)
			at = k - 1;
		if (what == MEDIAN || what == NANMEDIAN) {
			om_i64 low = 0, high = count; // the first NaN
			while (type <= OM_BF16 && low < high) {
				om_i64 mid = (low + high) / 2;
				if (items[mid].key == NAN_KEY)
					high = mid;
				else
					low = mid + 1;
			}
			om_i64 numbers = type <= OM_BF16 ? low : count;
			at = numbers < count && (what == MEDIAN || numbers == 0) ? numbers : (numbers - 1) / 2;
		}
		if (what == MODE) {
			if (threadIdx.x == 0) {
				om_i64 most = 0;
				for (om_i64 i = 0; i < count;) {
					om_i64 j = i;
					while (j < count && items[j].key == items[i].key)
						j++;
					if (j - i > most) {
						most = j - i;
						found = j - 1;
					}
					i = j;
				}
			}
			__syncthreads();
			at = found;
		}
		if (what != FIRST)
			length = 1;
		else
			at = 0;
		om_i64 to = line / inner * inner * length + line % inner;
		for (om_i64 i = threadIdx.x; i < length; i += THREADS) {
			om_i64 index = items[at + i].index;
			om_i64 source = (from + index * step) * bytes, goal = to + i * inner;
			for (int b = 0; b < bytes; b++)
				out[goal * bytes + b] = in[source + b];
			where[goal] = index;
		}
	}
}

// What is combined along a line: scans of op_sort.go.
enum { SUM, PROD, LOGSUMEXP, MAX, MIN };

template <class A> struct part {
	A value;
	om_i64 at;
};

OM_DEVICE double log_sum(double a, double b) {
	double low = a < b ? a : b, high = a < b ? b : a;
	if (a != a || b != b)
		return a + b;
	if (low == high && fabs(low) == (double)OM_INF)
		return low;
	return high + log1p(exp(low - high));
}
OM_DEVICE om_i64 log_sum(om_i64 a, om_i64) { return a; }

// joined puts b after a; at is −1 where there is nothing yet. Extremes stay NaN from the first one on, whose index goes on with
// each further NaN.
template <class A> OM_DEVICE part<A> joined(int op, const part<A> &a, const part<A> &b) {
	part<A> c = b;
	if (a.at < 0)
		return b;
	if (b.at < 0)
		return a;
	switch (op) {
	case SUM:
		c.value = a.value + b.value;
		break;
	case PROD:
		c.value = a.value * b.value;
		break;
	case LOGSUMEXP:
		c.value = log_sum(a.value, b.value);
		break;
	case MAX:
		if (!(b.value != b.value || (a.value == a.value && b.value >= a.value)))
			c = a;
		break;
	case MIN:
		if (!(b.value != b.value || (a.value == a.value && b.value <= a.value)))
			c = a;
		break;
	}
	return c;
}

// Each element combined with all before it: a thread has a run of the line, and then those of the threads before it.
template <class A>
OM_DEVICE void scan(void *out, om_i64 *where, const void *in, int type, const om_layout &lines, om_i64 step, om_i64 count, om_i64 inner,
					int op, om_i64 n, part<A> *shared) {
	om_i64 t = threadIdx.x, each = (count + THREADS - 1) / THREADS;
	om_i64 first = t * each < count ? t * each : count, last = first + each < count ? first + each : count;
	for (om_i64 line = blockIdx.x; line < n; line += gridDim.x) {
		om_i64 from = om_at(lines, line), to = line / inner * inner * count + line % inner;
		part<A> none = {0, -1}, mine = none;
		for (om_i64 i = first; i < last; i++) {
			part<A> x = {0, i};
			om_load(&x.value, in, from + i * step, type);
			mine = joined(op, mine, x);
		}
		__syncthreads();
		shared[t] = mine;
		__syncthreads();
		if (t == 0) {
			part<A> all = none;
			for (int i = 0; i < THREADS; i++) {
				part<A> next = joined(op, all, shared[i]);
				shared[i] = all;
				all = next;
			}
		}
		__syncthreads();
		mine = shared[t];
		for (om_i64 i = first; i < last; i++) {
			part<A> x = {0, i};
			om_load(&x.value, in, from + i * step, type);
			mine = joined(op, mine, x);
			om_store(out, to + i * inner, type, mine.value);
			if (where)
				where[to + i * inner] = mine.at;
		}
	}
}

#define SCAN(suffix, A)                                                                                                  \
	OM_KERNEL(om_scan_##suffix, void *out, om_i64 *where, const void *in, int type, OM_GIVEN om_layout lines, om_i64 step, om_i64 count, \
			  om_i64 inner, int op, om_i64 n) {                                                                          \
		__shared__ part<A> shared[THREADS];                                                                              \
		scan<A>(out, where, in, type, lines, step, count, inner, op, n, shared);                                         \
	}
SCAN(d, double)
SCAN(i, om_i64)

OM_DEVICE double number(const void *p, om_i64 i, int type) {
	return type <= OM_BF16 ? om_load_d(p, i, type) : (double)om_load_i(p, i, type);
}

// How many elements fall into each of equal parts of a range, by one block. Without a range it is that of the elements.
OM_KERNEL(om_histogram, void *out, int *counts, const void *in, int type, OM_GIVEN om_layout view, om_i64 n, om_i64 bins, double low,
		  double high, int *status, int where) {
	__shared__ double lows[THREADS], highs[THREADS];
	int t = threadIdx.x;
	if (low == high && n > 0) {
		double least = (double)OM_INF, most = -(double)OM_INF;
		for (om_i64 i = t; i < n; i += THREADS) {
			double x = number(in, om_at(view, i), type);
			least = x < least || x != x ? x : least;
			most = x > most || x != x ? x : most;
		}
		lows[t] = least;
		highs[t] = most;
		__syncthreads();
		low = lows[0];
		high = highs[0];
		for (int i = 1; i < THREADS; i++) {
			low = lows[i] < low || lows[i] != lows[i] ? lows[i] : low;
			high = highs[i] > high || highs[i] != highs[i] ? highs[i] : high;
		}
	}
	if (low == high) {
		low -= 1;
		high += 1;
	}
	double width = high - low; // of too wide a range no bin has a number
	if (!(fabs(width) < (double)OM_INF) || (type == OM_F32 && width > 3.4028234663852886e38)) {
		om_fail(status, where, OM_BAD_RANGE);
		low = 0;
		high = 1;
	}
	for (om_i64 i = t; i < bins; i += THREADS)
		counts[i] = 0;
	__syncthreads();
	for (om_i64 i = t; i < n; i += THREADS) {
		double x = number(in, om_at(view, i), type);
		if (!(x >= low && x <= high))
			continue;
		om_i64 at = (om_i64)((x - low) / (high - low) * (double)bins);
		if (type == OM_F32) // its own precision decides at the edges
			at = (om_i64)om_times(((float)x - (float)low) / ((float)high - (float)low), (float)bins);
		atomicAdd(&counts[at < bins ? at : bins - 1], 1);
	}
	__syncthreads();
	for (om_i64 i = t; i < bins; i += THREADS)
		if (type <= OM_BF16)
			om_store_d(out, i, type, (double)counts[i]);
		else
			om_store_i(out, i, type, counts[i]);
}

// The distance of order p between each row of x and each of y.
OM_KERNEL(om_distances, void *out, const void *x, int type, OM_GIVEN om_layout xs, om_i64 x_line, om_i64 x_step, const void *y, OM_GIVEN om_layout ys,
		  om_i64 y_line, om_i64 y_step, om_i64 rows, om_i64 columns, om_i64 terms, double p, om_i64 n) {
	OM_EACH(i, n) {
		om_i64 column = i % columns, row = i / columns % rows, z = i / columns / rows;
		om_i64 a = om_at(xs, z) + row * x_line, b = om_at(ys, z) + column * y_line;
		double sum = 0;
		for (om_i64 k = 0; k < terms; k++) {
			double d = fabs(om_load_d(x, a + k * x_step, type) - om_load_d(y, b + k * y_step, type));
			if (p == 0)
				sum += d != 0;
			else if (p == 1)
				sum += d;
			else if (p == 2)
				sum += d * d;
			else if (p == (double)OM_INF)
				sum = d > sum || d != d ? d : sum;
			else
				sum += pow(d, p);
		}
		if (p == 2)
			sum = sqrt(sum);
		else if (p != 0 && p != 1 && p != (double)OM_INF)
			sum = pow(sum, 1 / p);
		om_store_d(out, i, type, sum);
	}
}
