#include "om.h"

// Blocks of packed files (package storage/packed, whose block.go says how they are written) become what they stand for. The
// host has looked at each: its parts are as long as its head says, and its codes name as many exponents as are elsewhere.
#define THREADS 256
#define WARPS (THREADS / 32)
// SLICES blocks of threads share a block of the file.
#define SLICES 4
// JOBS are in one launch: as many as its parameters have room for.
#define JOBS 120

enum { AS_IS, PACKED_BF16, PACKED_F16, PACKED_F32 };
enum { HEAD = 24, GROUP = 64, WHOLE = 256 };

// Of a block that stands for of bytes and lies at from, those from low on and before high go to where to says.
struct om_unpacking {
	om_i64 to, from;
	om_u32 of, low, high, rest;
};
struct om_unpackings {
	om_unpacking of[JOBS];
};

// put writes four bytes of a block, the first of them at place i, which is to go to out[i].
OM_DEVICE void put(om_u8 *to, om_i64 out, om_u32 low, om_u32 high, om_u32 i, om_u32 word) {
	if (i >= low && i + 4 <= high && ((om_u64)(to + out + i) & 3) == 0) {
		*(om_u32 *)(to + out + i) = word;
		return;
	}
	for (om_u32 k = 0; k < 4; k++)
		if (i + k >= low && i + k < high)
			to[out + i + k] = (om_u8)(word >> 8 * k);
}

// elsewhere returns how many exponents of a group are elsewhere, as far as one of eight lanes sees them.
OM_DEVICE int elsewhere(const om_u8 *planes, int bits) {
	om_u32 all = 0xff;
	for (int k = 0; k < bits; k++)
		all &= planes[8 * k];
	return __popc(all);
}

OM_DEVICE int total(int x) {
	for (int apart = 16; apart > 0; apart /= 2)
		x += __shfl_xor_sync(0xffffffffu, x, apart);
	return x;
}

OM_KERNEL(om_unpack, om_u8 *to, const om_u8 *from, OM_GIVEN om_unpackings jobs) {
	__shared__ int before[WARPS], mine[WARPS];
	__shared__ om_u8 dictionary[16];
	const om_unpacking &job = jobs.of[blockIdx.x];
	const om_u8 *block = from + job.from;
	om_u32 of = job.of, low = job.low, high = job.high;
	om_i64 out = job.to - low;
	int t = threadIdx.x, lane = t % 32, warp = t / 32, slice = blockIdx.y;
	int kind = block[0], bits = block[1];
	if (kind == AS_IS) {
		for (om_u32 i = 4 * (slice * THREADS + t); i < high; i += 4 * SLICES * THREADS) {
			om_u32 word = 0;
			for (om_u32 k = 0; k < 4 && i + k < of; k++)
				word |= (om_u32)(om_u8)~block[1 + i + k] << 8 * k;
			put(to, out, low, high, i, word);
		}
		return;
	}
	om_u32 escapes = block[4] | block[5] << 8 | block[6] << 16 | (om_u32)block[7] << 24;
	om_u32 whole = of / WHOLE * WHOLE;
	int groups = whole / (kind == PACKED_F32 ? 4 : 2) / GROUP, step = 8 * (kind == PACKED_F16 ? bits + 3 : bits);
	const om_u8 *planes = block + HEAD, *rest = planes + (om_i64)groups * step, *away = rest + (om_i64)groups * GROUP;
	const om_u8 *lower = away + escapes, *upper = lower + (block[2] & 1 ? (om_i64)groups * GROUP : 0);
	const om_u8 *tail = upper + (block[2] & 2 ? (om_i64)groups * GROUP : 0);
	if (t < 16)
		dictionary[t] = block[8 + t];
	int each = (groups + SLICES * WARPS - 1) / (SLICES * WARPS), begin = slice * WARPS * each;
	int first = begin + warp * each, end = first + each < groups ? first + each : groups;
	int found = 0;
	if (escapes) {
		// Eight lanes see a group: first those of the slices before, shared between all warps, then those of this warp.
		const om_u8 *seen = planes + lane % 8;
		for (int g = 4 * warp + lane / 8; g < begin && g < groups; g += 4 * WARPS)
			found += elsewhere(seen + (om_i64)g * step, bits);
		int own = 0;
		for (int g = first + lane / 8; g < end; g += 4)
			own += elsewhere(seen + (om_i64)g * step, bits);
		found = total(found);
		own = total(own);
		if (lane == 0) {
			before[warp] = found;
			mine[warp] = own;
		}
	}
	__syncthreads();
	om_u32 at = 0; // the number of the next exponent that is elsewhere
	if (escapes)
		for (int w = 0; w < WARPS; w++)
			at += before[w] + (w < warp ? mine[w] : 0);
	om_u32 lanes = (1u << lane) - 1, last = (1u << bits) - 1;
	om_u32 wide = kind == PACKED_F32 ? 4 * GROUP : 2 * GROUP;
	for (int g = first; g < end && g * wide < high; g++) {
		const om_u8 *plane = planes + (om_i64)g * step + lane / 4, *two = rest + (om_i64)g * GROUP + 2 * lane;
		om_u32 code[2] = {0, 0}, half[2];
		int by = 2 * (lane % 4);
		for (int k = 0; k < bits; k++) {
			om_u32 b = plane[8 * k] >> by;
			code[0] |= (b & 1) << k;
			code[1] |= (b >> 1 & 1) << k;
		}
		om_u32 exponent[2] = {dictionary[code[0]], dictionary[code[1]]};
		if (escapes) {
			om_u32 left = __ballot_sync(0xffffffffu, code[0] == last), right = __ballot_sync(0xffffffffu, code[1] == last);
			om_u32 i = at + __popc(left & lanes) + __popc(right & lanes);
			at += __popc(left) + __popc(right);
			for (int k = 0; k < 2; k++)
				if (code[k] == last) {
					exponent[k] = i < escapes ? away[i] : 0;
					i++;
				}
		}
		for (int k = 0; k < 2; k++) {
			om_u32 b = two[k];
			if (kind == PACKED_F16) {
				om_u32 more = 0;
				for (int j = 0; j < 3; j++) // the sign, then the two upper bits of the fraction
					more |= (om_u32)(plane[8 * (bits + j)] >> (by + k) & 1) << (j == 0 ? 15 : 10 - j);
				half[k] = b | exponent[k] << 8 | more;
			} else {
				half[k] = (b & 0x7f) | (b & 0x80) << 8 | exponent[k] << 7;
			}
		}
		if (kind != PACKED_F32) {
			put(to, out, low, high, g * wide + 4 * lane, half[0] | half[1] << 16);
			continue;
		}
		for (int k = 0; k < 2; k++) {
			om_i64 i = (om_i64)g * GROUP + 2 * lane + k;
			om_u32 word = half[k] << 16;
			if (block[2] & 1)
				word |= lower[i];
			if (block[2] & 2)
				word |= (om_u32)upper[i] << 8;
			put(to, out, low, high, (om_u32)(4 * i), word);
		}
	}
	if (slice == 0)
		for (om_u32 i = whole + t; i < of; i += THREADS)
			if (i >= low && i < high)
				to[out + i] = tail[i - whole];
}
