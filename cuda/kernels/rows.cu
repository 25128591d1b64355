#include "om.h"
#include "wide.h"

// Rows of elements that are combined: reductions, softmax, norms. Rows that fit are read once, sixteen bytes at a time, into the
// registers of a warp or of a block; for others a block goes over its row, every thread over each THREADS-th element. In what
// order parts are put together depends on the sizes alone.
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

// together combines what the threads of a block found, or those of them that are across apart; all get the result.
template <class V> OM_DEVICE found<V> together(int op, found<V> mine, found<V> *shared, int across = 1) {
	int t = threadIdx.x, lane = t % 32;
	__syncthreads();
	if (across > 1) {
		shared[t] = mine;
		__syncthreads();
		mine = shared[t % across];
#pragma unroll 1
		for (int other = t % across + across; other < THREADS; other += across)
			mine = combined(op, mine, shared[other]);
		return mine;
	}
#pragma unroll 1
	for (int apart = 16; apart > 0; apart /= 2) {
		found<V> other = {__shfl_xor_sync(0xffffffffu, mine.value, apart), __shfl_xor_sync(0xffffffffu, mine.at, apart)};
		mine = combined(op, mine, other);
	}
	if (lane == 0)
		shared[t / 32] = mine;
	__syncthreads();
	mine = shared[0];
#pragma unroll 1
	for (int other = 1; other < THREADS / 32; other++)
		mine = combined(op, mine, shared[other]);
	return mine;
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

// by_what is what the elements of a reduction, or what they count as, are combined by.
OM_DEVICE int by_what(int op, double order) {
	switch (op) {
	case NORM:
		return fabs(order) != (double)OM_INF ? SUM : order > 0 ? AMAX : AMIN;
	case NANSUM:
	case MEAN:
	case COUNT:
	case VAR:
	case STD:
	case LOGSUMEXP:
		return SUM;
	}
	return op;
}

// finish makes a result of what was found in a row.
OM_DEVICE void finish(void *out, om_i64 o, int out_type, const found<double> &all, om_i64 count, int op, double order, double shift) {
	double y = all.value;
	switch (op) {
	case MEAN:
		y /= (double)count;
		break;
	case NORM:
		if (fabs(order) != (double)OM_INF && order != 0 && order != 1)
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
		return;
	case ANY:
	case ALL:
	case COUNT:
		om_store_i(out, o, out_type, (om_i64)y);
		return;
	}
	om_store_d(out, o, out_type, y);
}

// A reduction of floats: kept says where the row of an output begins, gone where its elements lie. A block has across outputs
// next to each other, as many threads for each, and one of the parts of their rows; of several, it notes what it found.
OM_KERNEL(om_reduce_f, void *out, int out_type, const void *in, int type, OM_GIVEN om_layout kept, OM_GIVEN om_layout gone, om_i64 outputs,
		  om_i64 count, int op, double order, int across, om_i64 parts, found<double> *noted) {
	__shared__ found<double> shared[THREADS];
	int by = by_what(op, order);
	om_i64 tops = (outputs + across - 1) / across;
	for (om_i64 unit = blockIdx.x; unit < tops * parts; unit += gridDim.x) {
		om_i64 part = unit % parts, o = unit / parts * across + threadIdx.x % across, each = (count + parts - 1) / parts;
		om_i64 base = o < outputs ? om_at(kept, o) : 0, end = o < outputs ? (part + 1) * each : 0;
		om_i64 from = part * each + threadIdx.x / across, step = THREADS / across;
		end = end < count ? end : count;
		double shift = 0;
		if (op == VAR || op == STD || op == LOGSUMEXP) { // two passes: the mean, or the largest
			found<double> first = {0, -1};
			for (om_i64 j = from; j < end; j += step) {
				found<double> x = {om_load_d(in, base + om_at(gone, j), type), j};
				first = op == LOGSUMEXP ? combined(AMAX, first, x) : combined(SUM, first, x);
			}
			first = together(op == LOGSUMEXP ? AMAX : SUM, first, shared, across);
			shift = op == LOGSUMEXP ? (first.at < 0 ? -(double)OM_INF : first.value) : first.value / (double)count;
			if (op == LOGSUMEXP && fabs(shift) == (double)OM_INF)
				shift = 0;
		}
		found<double> mine = {op == PROD || op == ALL ? 1.0 : 0.0, -1};
		for (om_i64 j = from; j < end; j += step) {
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
		found<double> all = together(by, mine, shared, across);
		if ((int)threadIdx.x >= across || o >= outputs)
			continue;
		if (parts > 1)
			noted[o * parts + part] = all;
		else
			finish(out, o, out_type, all, count, op, order, shift);
	}
}

// The same of integers and bool, which wrap around.
OM_KERNEL(om_reduce_i, void *out, int out_type, const void *in, int type, OM_GIVEN om_layout kept, OM_GIVEN om_layout gone, om_i64 outputs,
		  om_i64 count, int op, int across, om_i64 parts, found<om_i64> *noted) {
	__shared__ found<om_i64> shared[THREADS];
	om_i64 tops = (outputs + across - 1) / across;
	for (om_i64 unit = blockIdx.x; unit < tops * parts; unit += gridDim.x) {
		om_i64 part = unit % parts, o = unit / parts * across + threadIdx.x % across, each = (count + parts - 1) / parts;
		om_i64 base = o < outputs ? om_at(kept, o) : 0, end = o < outputs ? (part + 1) * each : 0;
		end = end < count ? end : count;
		found<om_i64> mine = {op == PROD || op == ALL, -1};
		for (om_i64 j = part * each + threadIdx.x / across; j < end; j += THREADS / across) {
			found<om_i64> x = {om_load_i(in, base + om_at(gone, j), type), j};
			if (op == COUNT)
				x.value = x.value != 0;
			mine = combined(op, mine, x);
		}
		found<om_i64> all = together(op, mine, shared, across);
		if ((int)threadIdx.x >= across || o >= outputs)
			continue;
		if (parts > 1)
			noted[o * parts + part] = all;
		else
			om_store_i(out, o, out_type, op == ARGMAX || op == ARGMIN ? all.at : all.value);
	}
}

// What was noted of the parts of rows, put together: a block for each row.
OM_KERNEL(om_reduce_join_f, void *out, int out_type, const found<double> *noted, om_i64 outputs, om_i64 count, int op,
		  double order, om_i64 parts) {
	__shared__ found<double> shared[THREADS];
	int by = by_what(op, order);
	for (om_i64 o = blockIdx.x; o < outputs; o += gridDim.x) {
		found<double> mine = {by == PROD || by == ALL ? 1.0 : 0.0, -1};
		for (om_i64 i = threadIdx.x; i < parts; i += THREADS)
			mine = combined(by, mine, noted[o * parts + i]);
		mine = together(by, mine, shared);
		if (threadIdx.x == 0)
			finish(out, o, out_type, mine, count, op, order, 0);
	}
}
OM_KERNEL(om_reduce_join_i, void *out, int out_type, const found<om_i64> *noted, om_i64 outputs, int op, om_i64 parts) {
	__shared__ found<om_i64> shared[THREADS];
	for (om_i64 o = blockIdx.x; o < outputs; o += gridDim.x) {
		found<om_i64> mine = {op == PROD || op == ALL, -1};
		for (om_i64 i = threadIdx.x; i < parts; i += THREADS)
			mine = combined(op, mine, noted[o * parts + i]);
		mine = together(op, mine, shared);
		if (threadIdx.x == 0)
			om_store_i(out, o, out_type, op == ARGMAX || op == ARGMIN ? mine.at : mine.value);
	}
}

// A row in the registers of a warp, or of a block of several: each thread has EACH times four elements that lie together.
#define EACH 4

// all_sum and all_most combine what the threads of a row's warps have.
OM_DEVICE float all_sum(float x, int warps, float *shared) {
	x = om_warp_sum(x);
	if (warps == 1)
		return x;
	__syncthreads();
	if (threadIdx.x % 32 == 0)
		shared[threadIdx.x / 32] = x;
	__syncthreads();
	x = 0;
	for (int i = 0; i < warps; i++)
		x += shared[i];
	return x;
}
OM_DEVICE float all_most(float x, int warps, float *shared) {
	for (int apart = 16; apart > 0; apart /= 2) {
		float y = __shfl_xor_sync(0xffffffffu, x, apart);
		x = y > x || y != y ? y : x;
	}
	if (warps == 1)
		return x;
	__syncthreads();
	if (threadIdx.x % 32 == 0)
		shared[threadIdx.x / 32] = x;
	__syncthreads();
	for (int i = 0; i < warps; i++)
		x = shared[i] > x || shared[i] != shared[i] ? shared[i] : x;
	return x;
}

// ROW walks n rows, a warp for each or a block where warps are more than one; lane is the thread's place in it, wide how many
// elements its threads have at a time.
#define ROW(row, n)                                                                                                        \
	int own = warps == 1 ? (int)(blockDim.x / 32) : 1, lane = (int)(warps == 1 ? threadIdx.x % 32 : threadIdx.x), wide = warps * 128; \
	for (om_i64 row = (om_i64)blockIdx.x * own + (warps == 1 ? threadIdx.x / 32 : 0); row < (n); row += (om_i64)gridDim.x * own)

OM_DEVICE double put_together(double a, double b) { return a + b; }
OM_DEVICE float put_together(float a, float b) { return b > a || b != b ? b : a; }

// walked adds up elements from up to end of a row that begins at base, as double, or finds the greatest, as float: lane has
// every wide-th four of them, and reads four fours before it uses any, so that many reads are under way. Elements that cannot be
// read in fours are read alone, and put together in the same order. What an op makes of elements before that is the same few
// instructions for all ops, and what is missing at the end counts as nothing, so that nothing branches for an element.
template <class A>
OM_DEVICE A walked(A start, const void *in, int type, om_i64 base, om_i64 from, om_i64 end, int lane, int wide, int fours, int op,
				   double order) {
	A mine[4] = {start, start, start, start};
	om_u32 kept = op == NORM ? 0x7fffffffu : 0xffffffffu, turned = op == AMIN ? 0x80000000u : 0, blank = 0;
	bool numbers = op == NANSUM, squares = op == NORM && order == 2;
	int as = fours ? type : OM_F32;
	if (sizeof(A) == 4) {
		blank = as == OM_F32 ? 0xff800000u : as == OM_F16 ? 0xfc00fc00u : 0xff80ff80u;
		blank ^= op != AMIN ? 0 : as == OM_F32 ? 0x80000000u : 0x80008000u;
	}
	for (om_i64 j = from + lane * 4; j < end; j += EACH * wide) {
		om_16 raw[EACH];
#pragma unroll
		for (int k = 0; k < EACH; k++)
			raw[k].x = raw[k].y = raw[k].z = raw[k].w = blank;
		if (!fours) {
#pragma unroll 1
			for (int l = 0; l < 4; l++) {
#pragma unroll
				for (int k = 0; k < EACH; k++) { // the last of four ends as w
					raw[k].x = raw[k].y, raw[k].y = raw[k].z, raw[k].z = raw[k].w, raw[k].w = blank;
					if (j + k * wide + l < end)
						raw[k].w = om_float_bits(om_load_f(in, base + j + k * wide + l, type));
				}
			}
		} else if (type == OM_F32) {
#pragma unroll
			for (int k = 0; k < EACH; k++)
				if (j + k * wide < end)
					raw[k] = *(const om_16 *)((const float *)in + base + j + k * wide);
		} else {
#pragma unroll
			for (int k = 0; k < EACH; k++)
				if (j + k * wide < end) {
					om_8 half = *(const om_8 *)((const om_u16 *)in + base + j + k * wide);
					raw[k].x = half.x, raw[k].y = half.y;
				}
		}
		if (as != OM_F32) {
#pragma unroll
			for (int k = 0; k < EACH; k++) {
				om_u32 low = raw[k].x, high = raw[k].y;
				raw[k].x = om_float_bits(om_below(low, as)), raw[k].y = om_float_bits(om_above(low, as));
				raw[k].z = om_float_bits(om_below(high, as)), raw[k].w = om_float_bits(om_above(high, as));
			}
		}
#pragma unroll
		for (int k = 0; k < EACH; k++) {
			om_u32 four[4] = {raw[k].x, raw[k].y, raw[k].z, raw[k].w};
#pragma unroll
			for (int l = 0; l < 4; l++) {
				float x = om_bits_float((four[l] & kept) ^ turned);
				A y = (A)(numbers && x != x ? 0 : x);
				if (sizeof(A) == 8)
					y *= squares ? y : 1;
				mine[l] = put_together(mine[l], y);
			}
		}
	}
	A all = put_together(put_together(mine[0], mine[1]), put_together(mine[2], mine[3]));
#pragma unroll 1
	for (int apart = 16; apart > 0; apart /= 2)
		all = put_together(all, (A)__shfl_xor_sync(0xffffffffu, all, apart));
	return all;
}

// A reduction of floats of at most 32 bits whose rows lie one element behind the other: a warp or a block for each row, or
// for each of its parts, of each elements, a multiple of four. lines says where rows begin.
OM_KERNEL(om_reduce_rows, void *out, int out_type, const void *in, int type, OM_GIVEN om_layout lines, om_i64 outputs, om_i64 count,
		  int op, double order, om_i64 parts, om_i64 each, found<double> *noted, int fours, int warps) {
	__shared__ double shared[32];
	ROW(unit, outputs * parts) {
		om_i64 o = unit, from = 0, end = count;
		if (parts > 1) {
			o = unit / parts, from = (unit - o * parts) * each;
			end = from + each < count ? from + each : count;
		}
		om_i64 base = om_at(lines, o);
		double all;
		if (op == AMAX || op == AMIN)
			all = walked(-OM_INF, in, type, base, from, end, lane, wide, fours, op, order);
		else
			all = walked(0.0, in, type, base, from, end, lane, wide, fours, op, order);
		if (warps > 1) {
			__syncthreads();
			if (threadIdx.x % 32 == 0)
				shared[threadIdx.x / 32] = all;
			__syncthreads();
			all = shared[0];
			for (int i = 1; i < warps; i++) {
				if (op == AMAX || op == AMIN)
					all = put_together((float)all, (float)shared[i]);
				else
					all += shared[i];
			}
		}
		if (lane != 0)
			continue;
		if (op == AMIN)
			all = -all;
		if (parts > 1) {
			noted[unit].value = all;
			noted[unit].at = from < end ? unit - o * parts : -1;
			continue;
		}
		if (op == MEAN)
			all /= (double)count;
		if (op == NORM && order == 2)
			all = sqrt(all);
		om_store_d(out, o, out_type, all);
	}
}

OM_KERNEL(om_softmax_rows, void *out, const void *in, int type, OM_GIVEN om_layout lines, int count, om_i64 n, int logarithm, int safe,
		  int warps) {
	__shared__ float shared[32];
	ROW(row, n) {
		float x[EACH][4], most = -OM_INF, sum = 0;
		om_i64 from = om_at(lines, row);
#pragma unroll
		for (int i = 0; i < EACH; i++) {
			int j = i * wide + lane * 4;
			if (j >= count)
				break;
			om_load_4(x[i], in, from + j, type);
#pragma unroll
			for (int l = 0; l < 4; l++)
				most = x[i][l] > most || x[i][l] != x[i][l] ? x[i][l] : most;
		}
		most = all_most(most, warps, shared);
#pragma unroll
		for (int i = 0; i < EACH; i++) {
			if (i * wide + lane * 4 >= count)
				break;
#pragma unroll
			for (int l = 0; l < 4; l++) {
				x[i][l] -= most;
				float y = expf(x[i][l]);
				sum += y;
				if (!logarithm)
					x[i][l] = y;
			}
		}
		sum = all_sum(sum, warps, shared);
		float less = logarithm ? logf(sum) : 0;
#pragma unroll
		for (int i = 0; i < EACH; i++) {
			int j = i * wide + lane * 4;
			if (j >= count)
				break;
#pragma unroll
			for (int l = 0; l < 4; l++) {
				x[i][l] = logarithm ? x[i][l] - less : x[i][l] / sum;
				if (safe && most == -OM_INF)
					x[i][l] = 0;
			}
			om_store_4(out, row * count + j, type, x[i]);
		}
	}
}

// Norms, as norm below. Parameters lie one behind the other; spatial is 1, or a multiple of four.
OM_KERNEL(om_norm_rows, void *out, const void *in, int type, OM_GIVEN om_layout rows, const void *w, int w_type, const void *b, int b_type,
		  int count, om_i64 n, int centred, float eps, om_i64 groups, int channels, int spatial, int warps) {
	__shared__ float shared[32];
	ROW(row, n) {
		float x[EACH][4], mean = 0, squares = 0;
		om_i64 from = om_at(rows, row), group = groups > 1 ? row % groups * channels : 0;
#pragma unroll
		for (int i = 0; i < EACH; i++) {
			int j = i * wide + lane * 4;
			if (j >= count)
				break;
			om_load_4(x[i], in, from + j, type);
#pragma unroll
			for (int l = 0; l < 4; l++)
				mean += x[i][l];
		}
		mean = centred ? all_sum(mean, warps, shared) / (float)count : 0;
#pragma unroll
		for (int i = 0; i < EACH; i++) {
			if (i * wide + lane * 4 >= count)
				break;
#pragma unroll
			for (int l = 0; l < 4; l++) {
				x[i][l] -= mean;
				squares += x[i][l] * x[i][l];
			}
		}
		float scale = 1.0f / sqrtf(all_sum(squares, warps, shared) / (float)count + eps);
#pragma unroll
		for (int i = 0; i < EACH; i++) {
			int j = i * wide + lane * 4;
			if (j >= count)
				break;
			float p[4] = {1, 1, 1, 1}, q[4] = {0, 0, 0, 0};
			if (spatial == 1) {
				if (w)
					om_load_4(p, w, group + j, w_type);
				if (b)
					om_load_4(q, b, group + j, b_type);
			} else {
				if (w)
					p[0] = om_load_f(w, group + j / spatial, w_type);
				if (b)
					q[0] = om_load_f(b, group + j / spatial, b_type);
				p[1] = p[2] = p[3] = p[0];
				q[1] = q[2] = q[3] = q[0];
			}
#pragma unroll
			for (int l = 0; l < 4; l++) {
				x[i][l] *= scale;
				if (w)
					x[i][l] *= p[l];
				if (b)
					x[i][l] += q[l];
			}
			om_store_4(out, row * count + j, type, x[i]);
		}
	}
}

OM_DEVICE void load_as(float *x, const void *p, om_i64 i, int type) { *x = om_load_f(p, i, type); }
OM_DEVICE void load_as(double *x, const void *p, om_i64 i, int type) { *x = om_load_d(p, i, type); }
OM_DEVICE void store_as(void *p, om_i64 i, int type, float x) { om_store_f(p, i, type, x); }
OM_DEVICE void store_as(void *p, om_i64 i, int type, double x) { om_store_d(p, i, type, x); }

// softmax along lines of count elements, step apart; out is contiguous, with inner elements between those of a line. safe gives
// zeros where all are −inf. A block has across lines next to each other, and as many threads for each.
template <class A>
OM_DEVICE void softmax(void *out, const void *in, int type, const om_layout &lines, om_i64 step, om_i64 count, om_i64 inner,
					   om_i64 n, int logarithm, int safe, int across, found<A> *shared) {
	om_i64 begin = threadIdx.x / across, by = THREADS / across;
	for (om_i64 first = (om_i64)blockIdx.x * across; first < n; first += (om_i64)gridDim.x * across) {
		om_i64 line = first + threadIdx.x % across, end = line < n ? count : 0;
		om_i64 from = line < n ? om_at(lines, line) : 0, to = line / inner * inner * count + line % inner;
		found<A> top = {0, -1};
		for (om_i64 j = begin; j < end; j += by) {
			found<A> x = {0, j};
			load_as(&x.value, in, from + j * step, type);
			top = combined(AMAX, top, x);
		}
		top = together(AMAX, top, shared, across);
		found<A> sum = {0, -1};
		for (om_i64 j = begin; j < end; j += by) {
			A x;
			load_as(&x, in, from + j * step, type);
			sum.value += (A)exp(x - top.value);
		}
		sum = together(SUM, sum, shared, across);
		for (om_i64 j = begin; j < end; j += by) {
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

OM_KERNEL(om_softmax_f, void *out, const void *in, int type, OM_GIVEN om_layout lines, om_i64 step, om_i64 count, om_i64 inner, om_i64 n,
		  int logarithm, int safe, int across) {
	__shared__ found<float> shared[THREADS];
	softmax<float>(out, in, type, lines, step, count, inner, n, logarithm, safe, across, shared);
}
OM_KERNEL(om_softmax_d, void *out, const void *in, OM_GIVEN om_layout lines, om_i64 step, om_i64 count, om_i64 inner, om_i64 n,
		  int logarithm, int safe, int across) {
	__shared__ found<double> shared[THREADS];
	softmax<double>(out, in, OM_F64, lines, step, count, inner, n, logarithm, safe, across, shared);
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

OM_KERNEL(om_norm_f, void *out, const void *in, int type, OM_GIVEN om_layout rows, OM_GIVEN om_layout row, const void *w, int w_type,
		  OM_GIVEN om_layout w_view, const void *b, int b_type, OM_GIVEN om_layout b_view, om_i64 n, om_i64 count, int centred, float eps,
		  om_i64 groups, om_i64 channels, om_i64 spatial) {
	__shared__ found<float> shared[THREADS];
	norm<float>(out, in, type, rows, row, w, w_type, w_view, b, b_type, b_view, n, count, centred, eps, groups, channels, spatial,
				shared);
}
OM_KERNEL(om_norm_d, void *out, const void *in, int type, OM_GIVEN om_layout rows, OM_GIVEN om_layout row, const void *w, int w_type,
		  OM_GIVEN om_layout w_view, const void *b, int b_type, OM_GIVEN om_layout b_view, om_i64 n, om_i64 count, int centred, double eps,
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
	OM_KERNEL(om_channel_norm_##suffix, void *out, const void *in, int type, OM_GIVEN om_layout view, const void *w, int w_type,             \
			  const void *b, int b_type, const void *mean, int mean_type, const void *var, int var_type, channel_steps s,          \
			  om_i64 channels, om_i64 spatial, om_i64 n, A eps) {                                                             \
		channel_norm<A>(out, in, type, view, w, w_type, b, b_type, mean, mean_type, var, var_type, s, channels, spatial, n, eps); \
	}
CHANNEL_NORM(f, float)
CHANNEL_NORM(d, double)
