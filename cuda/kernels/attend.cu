#include "om.h"
#include "wide.h"

// Attention over what earlier passes computed: graph op attend. A pass writes the keys and values of all its rows to their places
// in the caches, one launch for each cache, and then attends.
//
// A row looks at its positions in spans that begin at multiples of SPAN, each computed by itself and then put together one after
// the other, in this order. So a row's bits depend on its position and on what the caches hold for it, and neither on the other
// rows nor on whether one block computes all spans or each has its own.
#define THREADS 128
#define WARPS (THREADS / 32)
#define SPAN 256
// BLOCK_ROWS positions of a sequence lie together in a cache.
#define BLOCK_ROWS 16
#define SPAN_BLOCKS (SPAN / BLOCK_ROWS)
// MOST bounds the widths of queries and values, EACH the columns of values that a thread has.
#define MOST 1024
#define EACH (MOST / THREADS)

// The sizes of a call and how its operands lie: attendSizes of op_attend.go. parts is how many blocks a row's head has.
struct om_attending {
	om_i64 rows, heads, groups, width, values, blocks, places;
	om_i64 q_row, q_head, q_step, at_step, table_row, table_step, sink_step;
	om_i64 window, chunk, parts;
	om_i64 bias_head, bias_step, distances;
};

// om_attend_place is where in the caches position p of a row lies, -1 where it has no place.
OM_DEVICE om_i64 om_attend_place(const om_i64 *table, om_i64 p, om_i64 blocks, om_i64 places, om_i64 table_step) {
	if (p < 0 || p >= blocks * BLOCK_ROWS)
		return -1;
	om_i64 block = table[p / BLOCK_ROWS * table_step];
	return block < 0 || block >= places ? -1 : block * BLOCK_ROWS + p % BLOCK_ROWS;
}

// om_attend_scale is the scale of a row of a cache of int8, the float32 in the four bytes from one on, the lowest first.
OM_DEVICE float om_attend_scale(const void *cache, om_i64 at) {
	const om_u8 *b = (const om_u8 *)cache + at;
	return om_bits_float(b[0] | (om_u32)b[1] << 8 | (om_u32)b[2] << 16 | (om_u32)b[3] << 24);
}

// om_attend_round writes a head's row to a cache of int8: a warp rounds it to 255 steps. Where a number is not finite, the scale is
// NaN and nothing else is there.
OM_DEVICE void om_attend_round(om_i8 *to, const void *x, om_i64 from, om_i64 step, int type, om_i64 width) {
	int lane = threadIdx.x % 32;
	float most = 0, broken = 0;
#pragma unroll 1
	for (om_i64 d = lane; d < width; d += 32) {
		float y = fabsf(om_load_f(x, from + d * step, type));
		broken = y < OM_INF ? broken : 1.0f;
		most = fmaxf(most, y);
	}
	for (int apart = 16; apart > 0; apart /= 2) {
		most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, apart));
		broken = fmaxf(broken, __shfl_xor_sync(0xffffffffu, broken, apart));
	}
	float scale = broken > 0 ? OM_NAN : most / 127.0f;
#pragma unroll 1
	for (om_i64 d = lane; d < width; d += 32) {
		float y = scale > 0 ? rintf(om_load_f(x, from + d * step, type) / scale) : 0.0f;
		to[d] = (om_i8)(int)fminf(fmaxf(y, -127.0f), 127.0f);
	}
	if (lane < 4)
		to[width + lane] = (om_i8)(om_float_bits(scale) >> 8 * lane);
}

// om_attend_first is the first position that one looks at.
OM_DEVICE om_i64 om_attend_first(om_i64 p, om_i64 window, om_i64 chunk) {
	om_i64 first = window > 0 && p - window + 1 > 0 ? p - window + 1 : 0;
	return chunk > 0 && p / chunk * chunk > first ? p / chunk * chunk : first;
}

// om_attend_write writes rows of keys, or of values, to their places: a block a row. Of rows that have one place the last is
// written, and the others are not.
OM_KERNEL(om_attend_write, void *cache, const void *x, const om_i64 *at, const om_i64 *table, int cache_type, int type, om_i64 rows,
		  om_i64 groups, om_i64 width, om_i64 blocks, om_i64 places, om_i64 x_row, om_i64 x_head, om_i64 x_step, om_i64 at_step,
		  om_i64 table_row, om_i64 table_step, int *status, int where) {
	__shared__ int taken[WARPS];
	int t = threadIdx.x;
	om_i64 row = blockIdx.x, p = at[row * at_step];
	if (p < 0)
		return;
	om_i64 place = om_attend_place(table + row * table_row, p, blocks, places, table_step);
	if (place < 0) {
		if (t == 0)
			om_fail(status, where, OM_OUT_OF_RANGE);
		return;
	}
	float again = 0;
#pragma unroll 1
	for (om_i64 r = row + 1 + t; r < rows; r += THREADS)
		if (om_attend_place(table + r * table_row, at[r * at_step], blocks, places, table_step) == place)
			again = 1;
	for (int apart = 16; apart > 0; apart /= 2)
		again += __shfl_xor_sync(0xffffffffu, again, apart);
	if (t % 32 == 0)
		taken[t / 32] = again > 0;
	__syncthreads();
#pragma unroll
	for (int w = 0; w < WARPS; w++)
		if (taken[w])
			return;
	if (cache_type == OM_I8) {
#pragma unroll 1
		for (om_i64 g = t / 32; g < groups; g += WARPS)
			om_attend_round((om_i8 *)cache + (place * groups + g) * (width + 4), x, row * x_row + g * x_head, x_step, type, width);
		return;
	}
#pragma unroll 1
	for (om_i64 i = t; i < groups * width; i += THREADS) {
		om_i64 g = i / width, d = i - g * width;
		om_store_f(cache, place * groups * width + i, cache_type, om_load_f(x, row * x_row + g * x_head + d * x_step, type));
	}
}

// What is known of the scores that were looked at: the largest, and the sum of the weights relative to that.
struct om_seen {
	float top, total;
};

// om_attend_join adds what is known of a span. It returns by what the sums so far, and those of the span, are multiplied.
OM_DEVICE om_seen om_attend_join(om_seen *all, om_seen span) {
	om_seen by = {1, 0};
	if (span.total == 0)
		return by;
	float larger = fmaxf(all->top, span.top);
	by.top = all->total == 0 ? 0.0f : expf(all->top - larger);
	by.total = expf(span.top - larger);
	all->total = om_times(all->total, by.top) + om_times(span.total, by.total);
	all->top = larger;
	return by;
}

// om_attend_end returns by what the sums of all spans are multiplied, with a sink among the weights where there is one.
OM_DEVICE float om_attend_end(om_seen all, const void *sinks, om_i64 sink, int type) {
	if (!sinks)
		return all.total == 0 ? OM_NAN : 1.0f / all.total;
	float score = om_load_f(sinks, sink, type), larger = fmaxf(all.top, score);
	float by = all.total == 0 ? 0.0f : expf(all.top - larger);
	return by / (om_times(all.total, by) + expf(score - larger));
}

// om_attend computes a head of a row, or a span of it, whose sums go to found: parts × (values + 2) for each head of each row.
OM_KERNEL(om_attend, void *out, float *found, const void *q, const void *keys, const void *values, const om_i64 *at,
		  const om_i64 *table, const void *sinks, const float *bias, int type, int cache_type, om_attending s, float scale, float softcap, int *status,
		  int where) {
	__shared__ float query[MOST];
	__shared__ float scores[SPAN];
	__shared__ float room[THREADS];
	__shared__ float of_warps[WARPS];
	__shared__ om_i64 place_of[SPAN_BLOCKS];
	const float below = -OM_INF;
	const int more = cache_type == OM_I8 ? 4 : 0; // bytes behind a row of a cache
	int t = threadIdx.x, lane = t % 32, warp = t / 32;
	om_i64 part = blockIdx.x % s.parts, head = blockIdx.x / s.parts % s.heads, row = blockIdx.x / s.parts / s.heads;
	om_i64 p = at[row * s.at_step], group = head / (s.heads / s.groups);
	bool there = p >= 0 && p < s.blocks * BLOCK_ROWS;
	if (p >= s.blocks * BLOCK_ROWS && t == 0)
		om_fail(status, where, OM_OUT_OF_RANGE);
	om_i64 first = there ? om_attend_first(p, s.window, s.chunk) : 0;
	om_i64 from = first / SPAN, to = there ? p / SPAN + 1 : 0;
	if (found) {
		to = to < part + 1 ? to : part + 1;
		from = from > part ? from : part;
	}
#pragma unroll 1
	for (int d = t; d < s.width; d += THREADS)
		query[d] = om_load_f(q, row * s.q_row + head * s.q_head + d * s.q_step, type);
	// lanes threads side by side have the columns of a value; teams of them share the positions.
	int lanes = s.values <= 32 ? 32 : s.values <= 64 ? 64 : THREADS, team = t / lanes, column = t % lanes;
	float sums[EACH];
#pragma unroll
	for (int i = 0; i < EACH; i++)
		sums[i] = 0;
	om_seen all = {below, 0};
#pragma unroll 1
	for (om_i64 span = from; span < to; span++) {
		om_i64 base = span * SPAN;
		int low = (int)(first > base ? first - base : 0), high = (int)(p + 1 - base < SPAN ? p + 1 - base : SPAN);
		__syncthreads();
		if (t < SPAN_BLOCKS && t >= low / BLOCK_ROWS && t * BLOCK_ROWS < high) {
			place_of[t] = om_attend_place(table + row * s.table_row, base + t * BLOCK_ROWS, s.blocks, s.places, s.table_step);
			if (place_of[t] < 0)
				om_fail(status, where, OM_OUT_OF_RANGE);
		}
		__syncthreads();
#pragma unroll 1
		for (int j = warp; j < SPAN; j += WARPS) {
			if (j < low || j >= high || place_of[j / BLOCK_ROWS] < 0) {
				if (lane == 0)
					scores[j] = below;
				continue;
			}
			om_i64 key = ((place_of[j / BLOCK_ROWS] + j % BLOCK_ROWS) * s.groups + group) * (s.width + more);
			float x = 0;
			if (more > 0) {
				float by = om_attend_scale(keys, key + s.width);
				for (int d = lane; d < s.width; d += 32)
					x += query[d] * om_times((float)((const om_i8 *)keys)[key + d], by);
			} else {
				for (int d = lane; d < s.width; d += 32)
					x += query[d] * om_load_f(keys, key + d, cache_type);
			}
			for (int apart = 16; apart > 0; apart /= 2)
				x += __shfl_xor_sync(0xffffffffu, x, apart);
			if (lane == 0) {
				x = softcap != 0 ? om_times(tanhf(om_times(x, scale / softcap)), softcap) : om_times(x, scale);
				if (bias) {
					om_i64 distance = p - base - j;
					distance = distance < s.distances ? distance : s.distances - 1;
					x += bias[head * s.bias_head + distance * s.bias_step];
				}
				scores[j] = x;
			}
		}
		__syncthreads();
		om_seen seen = {below, 0};
#pragma unroll
		for (int j = 0; j < SPAN / THREADS; j++)
			seen.top = fmaxf(seen.top, scores[t + j * THREADS]);
		for (int apart = 16; apart > 0; apart /= 2)
			seen.top = fmaxf(seen.top, __shfl_xor_sync(0xffffffffu, seen.top, apart));
		if (lane == 0)
			of_warps[warp] = seen.top;
		__syncthreads();
#pragma unroll
		for (int w = 0; w < WARPS; w++)
			seen.top = fmaxf(seen.top, of_warps[w]);
		float total = 0;
#pragma unroll
		for (int j = 0; j < SPAN / THREADS; j++) {
			float score = scores[t + j * THREADS], weight = score == below ? 0.0f : expf(score - seen.top);
			scores[t + j * THREADS] = weight;
			total += weight;
		}
		for (int apart = 16; apart > 0; apart /= 2)
			total += __shfl_xor_sync(0xffffffffu, total, apart);
		__syncthreads();
		if (lane == 0)
			of_warps[warp] = total;
		__syncthreads();
#pragma unroll
		for (int w = 0; w < WARPS; w++)
			seen.total += of_warps[w];
		float here[EACH];
#pragma unroll
		for (int i = 0; i < EACH; i++)
			here[i] = 0;
#pragma unroll 1
		for (int j = team; j < high; j += THREADS / lanes) {
			if (j < low || place_of[j / BLOCK_ROWS] < 0)
				continue;
			om_i64 value = ((place_of[j / BLOCK_ROWS] + j % BLOCK_ROWS) * s.groups + group) * (s.values + more);
			float weight = scores[j];
			float by = more > 0 ? om_attend_scale(values, value + s.values) : 1.0f;
#pragma unroll
			for (int i = 0; i < EACH; i++)
				if (column + i * lanes < s.values)
					here[i] += weight * (more > 0 ? om_times((float)((const om_i8 *)values)[value + column + i * lanes], by)
												: om_load_f(values, value + column + i * lanes, cache_type));
		}
		if (lanes < THREADS) { // then a thread has one column
			room[t] = here[0];
			__syncthreads();
			if (team == 0)
				for (int other = lanes; other < THREADS; other += lanes)
					here[0] += room[t + other];
		}
		if (found) {
			all = seen;
#pragma unroll
			for (int i = 0; i < EACH; i++)
				sums[i] = here[i];
			break;
		}
		om_seen by = om_attend_join(&all, seen);
#pragma unroll
		for (int i = 0; i < EACH; i++)
			sums[i] = seen.total == 0 ? sums[i] : om_times(sums[i], by.top) + om_times(here[i], by.total);
	}
	if (team > 0)
		return;
	if (found) {
		float *noted = found + ((row * s.heads + head) * s.parts + part) * (s.values + 2);
#pragma unroll
		for (int i = 0; i < EACH; i++)
			if (column + i * lanes < s.values)
				noted[column + i * lanes] = sums[i];
		if (t == 0) {
			noted[s.values] = all.top;
			noted[s.values + 1] = all.total;
		}
		return;
	}
	float by = p < 0 ? 0.0f : om_attend_end(all, sinks, head * s.sink_step, type);
#pragma unroll
	for (int i = 0; i < EACH; i++)
		if (column + i * lanes < s.values)
			om_store_f(out, (row * s.heads + head) * s.values + column + i * lanes, type, om_times(sums[i], by));
}

// om_attend_spans puts together the spans of a row's head: a block each.
OM_KERNEL(om_attend_spans, void *out, const float *found, const om_i64 *at, const void *sinks, int type, om_i64 heads, om_i64 values,
		  om_i64 at_step, om_i64 sink_step, om_i64 parts) {
	om_i64 row = blockIdx.x / heads, head = blockIdx.x % heads;
	const float *noted = found + blockIdx.x * parts * (values + 2);
	for (om_i64 c = threadIdx.x; c < values; c += blockDim.x) {
		om_seen all = {-OM_INF, 0};
		float sum = 0;
#pragma unroll 1
		for (om_i64 i = 0; i < parts; i++) {
			const float *span = noted + i * (values + 2);
			om_seen seen = {span[values], span[values + 1]};
			om_seen by = om_attend_join(&all, seen);
			sum = seen.total == 0 ? sum : om_times(sum, by.top) + om_times(span[c], by.total);
		}
		float by = at[row * at_step] < 0 ? 0.0f : om_attend_end(all, sinks, head * sink_step, type);
		om_store_f(out, (om_i64)blockIdx.x * values + c, type, om_times(sum, by));
	}
}
