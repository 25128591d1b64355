#include "om.h"

// Rows of elements that are combined, a block of threads for each: reductions, softmax, norms. Every thread takes each
// THREADS-th element and the threads' parts are put together in halves, so the order depends on the row's length alone.
#define THREADS 128

// Which reduction: reductions of op_rows.go.
enum { SUM, NANSUM, PROD, MEAN, AMAX, AMIN, ANY, ALL, COUNT, NORM, VAR, STD, LOGSUMEXP, ARGMAX, ARGMIN };

// What was found so far: a number and, of extremes, where.
template <class V> struct found {
	V value;
	om_i64 at;
};

OM_DEVICE bool is_nan(double x) { return x != x; }
OM_DEVICE bool is_nan(float x) { return x != x; }
OM_DEVICE bool is_nan(om_i64) { return false; }

// before reports whether extreme a goes before b: NaN first, then the greater or smaller, then the earlier.
template <class V> OM_DEVICE bool before(const found<V> &a, const found<V> &b, bool greatest) {
	if (a.at < 0 || b.at < 0)
		return b.at < 0 && a.at >= 0;
	if (is_nan(a.value) != is_nan(b.value))
		return is_nan(a.value);
	if (a.value == b.value || is_nan(a.value))
		return a.at < b.at;
	return greatest ? a.value > b.value : a.value < b.value;
}

template <class V> OM_DEVICE found<V> combined(int op, const found<V> &a, const found<V> &b) {
	found<V> c = a;
	switch (op) {
	case PROD:
		c.value = a.value * b.value;
		break;
	case AMAX:
	case ARGMAX:
		c = before(b, a, true) ? b : a;
		break;
	case AMIN:
	case ARGMIN:
		c = before(b, a, false) ? b : a;
		break;
	case ANY:
		c.value = a.value != 0 || b.value != 0;
		break;
	case ALL:
		c.value = a.value != 0 && b.value != 0;
		break;
	default:
		c.value = a.value + b.value;
	}
	return c;
}

// together combines what the threads of a block found; all get the result.
template <class V> OM_DEVICE found<V> together(int op, found<V> mine, found<V> *shared) {
	int t = threadIdx.x;
	__syncthreads();
	shared[t] = mine;
	__syncthreads();
	for (int half = THREADS / 2; half > 0; half /= 2) {
		if (t < half)
			shared[t] = combined(op, shared[t], shared[t + half]);
		__syncthreads();
	}
	return shared[0];
}

OM_DEVICE double number(const void *p, om_i64 i, int type) {
	if (type <= OM_BF16)
		return om_load_d(p, i, type);
	return (double)om_load_i(p, i, type);
}

// as_norm is what a norm adds up, or takes the extreme of, for one element.
OM_DEVICE double as_norm(double x, double order) {
	x = fabs(x);
	if (order == 0)
		return x != 0;
	if (order == 1 || x != x || fabs(order) == (double)OM_INF)
		return x;
	return order == 2 ? x * x : pow(x, order);
}

// A reduction of floats: kept says where the row of an output begins, gone where its elements lie.
OM_KERNEL(om_reduce_f, void *out, int out_type, const void *in, int type, om_layout kept, om_layout gone, om_i64 outputs,
		  om_i64 count, int op, double order) {
	__shared__ found<double> shared[THREADS];
	for (om_i64 o = blockIdx.x; o < outputs; o += gridDim.x) {
		om_i64 base = om_at(kept, o);
		// What to combine by, and what each element counts as.
		int by = op;
		double shift = 0;
		bool extreme = op == AMAX || op == AMIN || op == ARGMAX || op == ARGMIN;
		if (op == NORM && fabs(order) == (double)OM_INF) {
			by = order > 0 ? AMAX : AMIN;
			extreme = true;
		}
		if (op == VAR || op == STD || op == LOGSUMEXP) { // two passes: the mean, or the largest
			found<double> first = {0, -1};
			for (om_i64 j = threadIdx.x; j < count; j += THREADS) {
				found<double> x = {om_load_d(in, base + om_at(gone, j), type), j};
				first = op == LOGSUMEXP ? combined(AMAX, first, x) : combined(SUM, first, x);
			}
			first = together(op == LOGSUMEXP ? AMAX : SUM, first, shared);
			shift = op == LOGSUMEXP ? (first.at < 0 ? -(double)OM_INF : first.value) : first.value / (double)count;
			if (op == LOGSUMEXP && fabs(shift) == (double)OM_INF)
				shift = 0;
			by = SUM;
		}
		found<double> mine = {op == PROD || op == ALL ? 1.0 : 0.0, -1};
		for (om_i64 j = threadIdx.x; j < count; j += THREADS) {
			found<double> x = {om_load_d(in, base + om_at(gone, j), type), j};
			double apart = x.value - shift;
			switch (op) {
			case NANSUM:
				x.value = x.value != x.value ? 0 : x.value;
				break;
			case COUNT:
				x.value = x.value != 0;
				break;
			case NORM:
				x.value = as_norm(x.value, order);
				break;
			case VAR:
			case STD:
				x.value = apart * apart;
				break;
			case LOGSUMEXP:
				x.value = exp(apart);
				break;
			}
			mine = combined(by, mine, x);
		}
		found<double> all = together(by, mine, shared);
		if (threadIdx.x != 0)
			continue;
		double y = all.value;
		switch (op) {
		case MEAN:
			y /= (double)count;
			break;
		case NORM:
			if (!extreme && order != 0 && order != 1)
				y = order == 2 ? sqrt(y) : pow(y, 1 / order);
			break;
		case VAR:
		case STD: { // order is the correction
			double n = (double)count - order;
			y /= n > 0 ? n : 0;
			y = op == STD ? sqrt(y) : y;
			break;
		}
		case LOGSUMEXP:
			y = log(y) + shift;
			break;
		case ARGMAX:
		case ARGMIN:
			om_store_i(out, o, out_type, all.at);
			continue;
		case ANY:
		case ALL:
		case COUNT:
			om_store_i(out, o, out_type, (om_i64)y);
			continue;
		}
		om_store_d(out, o, out_type, y);
	}
}

// The same of integers and bool, which wrap around.
OM_KERNEL(om_reduce_i, void *out, int out_type, const void *in, int type, om_layout kept, om_layout gone, om_i64 outputs,
		  om_i64 count, int op) {
	__shared__ found<om_i64> shared[THREADS];
	for (om_i64 o = blockIdx.x; o < outputs; o += gridDim.x) {
		om_i64 base = om_at(kept, o);
		found<om_i64> mine = {op == PROD || op == ALL, -1};
		for (om_i64 j = threadIdx.x; j < count; j += THREADS) {
			found<om_i64> x = {om_load_i(in, base + om_at(gone, j), type), j};
			if (op == COUNT)
				x.value = x.value != 0;
			mine = combined(op, mine, x);
		}
		found<om_i64> all = together(op, mine, shared);
		if (threadIdx.x == 0)
			om_store_i(out, o, out_type, op == ARGMAX || op == ARGMIN ? all.at : all.value);
	}
}

OM_DEVICE void load_as(float *x, const void *p, om_i64 i, int type) { *x = om_load_f(p, i, type); }
OM_DEVICE void load_as(double *x, const void *p, om_i64 i, int type) { *x = om_load_d(p, i, type); }
OM_DEVICE void store_as(void *p, om_i64 i, int type, float x) { om_store_f(p, i, type, x); }
OM_DEVICE void store_as(void *p, om_i64 i, int type, double x) { om_store_d(p, i, type, x); }

// softmax along lines of count elements, step apart; out is contiguous, with inner elements between those of a line. safe gives
// zeros where all are −inf.
template <class A>
OM_DEVICE void softmax(void *out, const void *in, int type, const om_layout &lines, om_i64 step, om_i64 count, om_i64 inner,
					   om_i64 n, int logarithm, int safe, found<A> *shared) {
	for (om_i64 line = blockIdx.x; line < n; line += gridDim.x) {
		om_i64 from = om_at(lines, line), to = line / inner * inner * count + line % inner;
		found<A> top = {0, -1};
		for (om_i64 j = threadIdx.x; j < count; j += THREADS) {
			found<A> x = {0, j};
			load_as(&x.value, in, from + j * step, type);
			top = combined(AMAX, top, x);
		}
		top = together(AMAX, top, shared);
		found<A> sum = {0, -1};
		for (om_i64 j = threadIdx.x; j < count; j += THREADS) {
			A x;
			load_as(&x, in, from + j * step, type);
			sum.value += (A)exp(x - top.value);
		}
		sum = together(SUM, sum, shared);
		for (om_i64 j = threadIdx.x; j < count; j += THREADS) {
			A x;
			load_as(&x, in, from + j * step, type);
			x -= top.value;
			A y = logarithm ? x - (A)log(sum.value) : (A)exp(x) / sum.value;
			if (safe && top.value == -(A)OM_INF)
				y = 0;
			store_as(out, to + j * inner, type, y);
		}
	}
}

OM_KERNEL(om_softmax_f, void *out, const void *in, int type, om_layout lines, om_i64 step, om_i64 count, om_i64 inner, om_i64 n,
		  int logarithm, int safe) {
	__shared__ found<float> shared[THREADS];
	softmax<float>(out, in, type, lines, step, count, inner, n, logarithm, safe, shared);
}
OM_KERNEL(om_softmax_d, void *out, const void *in, om_layout lines, om_i64 step, om_i64 count, om_i64 inner, om_i64 n,
		  int logarithm, int safe) {
	__shared__ found<double> shared[THREADS];
	softmax<double>(out, in, OM_F64, lines, step, count, inner, n, logarithm, safe, shared);
}

// norm gives (x − mean) ÷ √(mean of (x − mean)² + eps)·w + b over rows of count elements, or the same without a mean. The
// parameters of element j of row r are those of index (r mod groups)·channels + j ÷ spatial.
template <class A>
OM_DEVICE void norm(void *out, const void *in, int type, const om_layout &rows, const om_layout &row, const void *w, int w_type,
					const om_layout &w_view, const void *b, int b_type, const om_layout &b_view, om_i64 n, om_i64 count,
					int centred, A eps, om_i64 groups, om_i64 channels, om_i64 spatial, found<A> *shared) {
	for (om_i64 r = blockIdx.x; r < n; r += gridDim.x) {
		om_i64 base = om_at(rows, r);
		A mean = 0;
		if (centred) {
			found<A> sum = {0, -1};
			for (om_i64 j = threadIdx.x; j < count; j += THREADS) {
				A x;
				load_as(&x, in, base + om_at(row, j), type);
				sum.value += x;
			}
			mean = together(SUM, sum, shared).value / (A)count;
		}
		found<A> squares = {0, -1};
		for (om_i64 j = threadIdx.x; j < count; j += THREADS) {
			A x;
			load_as(&x, in, base + om_at(row, j), type);
			squares.value += (x - mean) * (x - mean);
		}
		A scale = (A)1 / (A)sqrt(together(SUM, squares, shared).value / (A)count + eps);
		for (om_i64 j = threadIdx.x; j < count; j += THREADS) {
			A x, p;
			load_as(&x, in, base + om_at(row, j), type);
			x = (x - mean) * scale;
			om_i64 of = r % groups * channels + j / spatial;
			if (w) {
				load_as(&p, w, om_at(w_view, of), w_type);
				x *= p;
			}
			if (b) {
				load_as(&p, b, om_at(b_view, of), b_type);
				x += p;
			}
			store_as(out, r * count + j, type, x);
		}
	}
}

OM_KERNEL(om_norm_f, void *out, const void *in, int type, om_layout rows, om_layout row, const void *w, int w_type,
		  om_layout w_view, const void *b, int b_type, om_layout b_view, om_i64 n, om_i64 count, int centred, float eps,
		  om_i64 groups, om_i64 channels, om_i64 spatial) {
	__shared__ found<float> shared[THREADS];
	norm<float>(out, in, type, rows, row, w, w_type, w_view, b, b_type, b_view, n, count, centred, eps, groups, channels, spatial,
				shared);
}
OM_KERNEL(om_norm_d, void *out, const void *in, int type, om_layout rows, om_layout row, const void *w, int w_type,
		  om_layout w_view, const void *b, int b_type, om_layout b_view, om_i64 n, om_i64 count, int centred, double eps,
		  om_i64 groups, om_i64 channels, om_i64 spatial) {
	__shared__ found<double> shared[THREADS];
	norm<double>(out, in, type, rows, row, w, w_type, w_view, b, b_type, b_view, n, count, centred, eps, groups, channels, spatial,
				 shared);
}

// channel_norm gives (x − mean) ÷ √(var + eps)·w + b with the statistics of each channel given; parameters have steps.
struct channel_steps {
	om_i64 w, b, mean, var;
};
template <class A>
OM_DEVICE void channel_norm(void *out, const void *in, int type, const om_layout &view, const void *w, int w_type, const void *b,
							int b_type, const void *mean, int mean_type, const void *var, int var_type, const channel_steps &s,
							om_i64 channels, om_i64 spatial, om_i64 n, A eps) {
	OM_EACH(i, n) {
		om_i64 c = i / spatial % channels;
		A x, m, v, p;
		load_as(&x, in, om_at(view, i), type);
		load_as(&m, mean, c * s.mean, mean_type);
		load_as(&v, var, c * s.var, var_type);
		x = (x - m) / (A)sqrt(v + eps);
		if (w) {
			load_as(&p, w, c * s.w, w_type);
			x *= p;
		}
		if (b) {
			load_as(&p, b, c * s.b, b_type);
			x += p;
		}
		store_as(out, i, type, x);
	}
}

#define CHANNEL_NORM(suffix, A)                                                                                               \
	OM_KERNEL(om_channel_norm_##suffix, void *out, const void *in, int type, om_layout view, const void *w, int w_type,             \
			  const void *b, int b_type, const void *mean, int mean_type, const void *var, int var_type, channel_steps s,          \
			  om_i64 channels, om_i64 spatial, om_i64 n, A eps) {                                                             \
		channel_norm<A>(out, in, type, view, w, w_type, b, b_type, mean, mean_type, var, var_type, s, channels, spatial, n, eps); \
	}
CHANNEL_NORM(f, float)
CHANNEL_NORM(d, double)
