// Included after om.h and wide.h by sources that read weights as blocks of codes: what package tensor/encoded computes of a
// block, to the bit. Eight numbers that lie behind each other, from a multiple of eight on, are always of one block and one group.
#pragma once

// The encodings, those whose numbers are told apart in different ways: codingKinds of op_codes.go. All from OM_Q2_K on have blocks
// of 256 numbers.
enum {
	OM_Q4_0, OM_Q4_1, OM_Q5_0, OM_Q5_1, OM_Q8_0, OM_IQ4_NL, OM_MXFP4, OM_INT4, OM_INT8, OM_F8, OM_LLM8, OM_SINT8, OM_TABLE4,
	OM_HQQ, OM_Q2_K, OM_Q3_K, OM_Q4_K, OM_Q5_K, OM_Q6_K, OM_IQ4_XS, OM_TQ2_0
};

// An encoding: codingOf of op_codes.go. A block has 1 << log numbers in so many bytes, the codes from head on: half bytes, the low
// halves of half bytes before the high ones, or bytes where half is 0. Numbers are rounded to dtype. table has sixteen floats.
struct om_coding {
	om_i64 kind, log, bytes, head, half, dtype;
	om_i64 table[8];
};

// What is read of a block for eight numbers: their codes, further bits of those, what blocks begin or end with, and scales.
struct om_coded {
	om_u64 codes, high, head;
	om_u32 scales;
};

// om_eight reads eight bytes from at on, of a weight that has end bytes, by words at multiples of four.
OM_DEVICE om_u64 om_eight(const om_u8 *w, om_i64 at, om_i64 end) {
	om_u32 skew = (om_u32)((om_u64)(w + at) & 3);
	om_i64 from = at - skew;
	if (from < 0 || from + 12 > end) { // of the first and the last block
		om_u64 all = 0;
#pragma unroll 1
		for (int i = 7; i >= 0; i--)
			all = all << 8 | (at + i < end ? w[at + i] : 0);
		return all;
	}
	const om_u32 *words = (const om_u32 *)(w + from);
	om_u64 both = words[0] | (om_u64)words[1] << 32;
	if (skew == 0)
		return both;
	return both >> 8 * skew | (om_u64)words[2] << (64 - 8 * skew);
}

// om_fetch reads what numbers i to i + 7 of the block at a byte of a weight are made of. The weight has end bytes.
OM_DEVICE om_coded om_fetch(const om_u8 *w, om_i64 at, om_i64 end, int i, const om_coding &c) {
	int kind = (int)c.kind, half = (int)c.half, head = 0, high = -1;
	int codes = (int)c.head + (half > 0 ? i & (half - 1) : i), quarter = i / 128 * 32 + i % 32, group = i / 32;
	om_coded r;
	r.scales = 0;
	switch (kind) {
	case OM_Q2_K:
		codes = 16 + quarter;
		head = 76;
		r.scales = w[at + i / 16];
		break;
	case OM_Q3_K:
		codes = 32 + quarter;
		high = i % 32;
		head = 102;
		r.scales = w[at + 96 + i / 16 % 8] | (om_u32)w[at + 104 + i / 16 % 4] << 8;
		break;
	case OM_Q5_K:
		high = 16 + i % 32;
		// fall through
	case OM_Q4_K:
		codes = (kind == OM_Q5_K ? 48 : 16) + group / 2 * 32 + i % 32;
		r.scales = w[at + 4 + group] | (om_u32)w[at + 8 + group] << 8;
		if (group >= 4)
			r.scales |= (om_u32)w[at + group] << 16;
		break;
	case OM_Q6_K:
		codes = i / 128 * 64 + i % 64;
		high = 128 + quarter;
		head = 202;
		r.scales = w[at + 192 + i / 16];
		break;
	case OM_IQ4_XS:
		codes = 8 + group * 16 + i % 16;
		break;
	case OM_TQ2_0:
		codes = quarter;
		head = 58;
		break;
	}
	r.codes = om_eight(w, at + codes, end);
	r.head = om_eight(w, at + head, end);
	r.high = high < 0 ? 0 : om_eight(w, at + high, end);
	return r;
}

// om_half_bits is the float16 whose bits are the low ones of a word.
OM_DEVICE float om_half_bits(om_u64 word) {
	om_f16 h = {(om_u16)word};
	return om_float(h);
}

// om_float_of is the number of a dtype whose bits are the low ones of a word.
OM_DEVICE float om_float_of(om_u64 word, int dtype) {
	om_f16 h = {(om_u16)word};
	return dtype == OM_F32 ? om_bits_float((om_u32)word) : dtype == OM_F16 ? om_float(h) : om_bits_float((om_u32)word << 16);
}

// om_rounded rounds to a dtype.
OM_DEVICE float om_rounded(float x, int dtype) {
	om_f16 h;
	om_bf16 b;
	if (dtype == OM_F16) {
		om_round(&h, x);
		return om_float(h);
	}
	if (dtype == OM_BF16) {
		om_round(&b, x);
		return om_float(b);
	}
	return x;
}

// om_float8 is the float8_e4m3fn of a code: a float16 has the same bits, but for its exponent's bias.
OM_DEVICE float om_float8(om_u32 code) {
	om_f16 h = {(om_u16)((code & 0x80) << 8 | (code & 0x7f) << 7)};
	return (code & 0x7f) == 0x7f ? OM_NAN : om_float(h) * 256.0f;
}

// om_scales_k are the scale and the minimum of a group of Q4_K or Q5_K, of 6 bits each.
OM_DEVICE void om_scales_k(const om_coded &r, int group, float *scale, float *least) {
	om_u32 a = r.scales & 0xff, b = r.scales >> 8 & 0xff, c = r.scales >> 16 & 0xff; // bytes group, group + 4 and group − 4
	om_u32 s = a & 63, m = b & 63;
	if (group >= 4) {
		s = (b & 15) | (c >> 2 & 48);
		m = b >> 4 | (a >> 2 & 48);
	}
	*scale = om_times(om_half_bits(r.head), (float)s);
	*least = om_times(om_half_bits(r.head >> 16), (float)m);
}

// om_numbers makes eight numbers of what was read of them. table are those of the encoding. Products are rounded before a minimum
// is added to them.
OM_DEVICE void om_numbers(float *to, const om_coded &r, int i, const om_coding &c, const float *table) {
	int kind = (int)c.kind, dtype = (int)c.dtype, half = (int)c.half, shift = half > 0 && (i & half) ? 4 : 0, bias = 0;
	om_u64 codes = r.codes >> shift & (half > 0 ? 0x0f0f0f0f0f0f0f0full : ~0ull);
	om_u32 fifth = 0; // bits of Q5_0 and Q5_1
	float scale = om_half_bits(r.head), least = 0;
	const om_u64 ones = 0x0101010101010101ull;
	switch (kind) {
	case OM_Q4_0:
		bias = 8;
		break;
	case OM_Q4_1:
		least = om_half_bits(r.head >> 16);
		break;
	case OM_Q5_0:
		fifth = (om_u32)(r.head >> 16) >> i;
		bias = 16;
		break;
	case OM_Q5_1:
		fifth = (om_u32)(r.head >> 32) >> i;
		least = om_half_bits(r.head >> 16);
		break;
	case OM_MXFP4: { // 2^(e − 128)
		om_u32 e = (om_u32)r.head & 0xff;
		scale = om_bits_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
		break;
	}
	case OM_INT4:
	case OM_INT8:
		scale = om_float_of(r.head, dtype);
		bias = (int)(r.head >> (dtype == OM_F32 ? 32 : 16) & 0xff);
		break;
	case OM_HQQ:
		scale = om_float_of(r.head, dtype);
		least = om_float_of(r.head >> (dtype == OM_F32 ? 32 : 16), dtype);
		break;
	case OM_F8:
	case OM_LLM8:
	case OM_SINT8:
	case OM_TABLE4:
		scale = om_bits_float((om_u32)r.head);
		break;
	case OM_Q2_K:
		codes = r.codes >> i % 128 / 32 * 2 & 3 * ones;
		scale = om_times(om_half_bits(r.head >> 32), (float)(r.scales & 15));
		least = -om_times(om_half_bits(r.head >> 48), (float)(r.scales >> 4));
		break;
	case OM_Q3_K: {
		int group = i / 16;
		om_u32 s = (r.scales >> group / 8 * 4 & 15) | (r.scales >> 8 >> group / 4 * 2 & 3) << 4;
		codes = (r.codes >> i % 128 / 32 * 2 & 3 * ones) | (r.high >> i / 32 & ones) << 2;
		scale = om_times(om_half_bits(r.head >> 48), (float)((int)s - 32));
		bias = 4;
		break;
	}
	case OM_Q4_K:
	case OM_Q5_K:
		codes = (r.codes >> i / 32 % 2 * 4 & 15 * ones) | (r.high >> i / 32 & ones) << 4;
		om_scales_k(r, i / 32, &scale, &least);
		least = -least;
		break;
	case OM_Q6_K:
		codes = (r.codes >> i % 128 / 64 * 4 & 15 * ones) | (r.high >> i % 128 / 32 * 2 & 3 * ones) << 4;
		scale = om_times(om_half_bits(r.head >> 48), (float)(om_i8)r.scales);
		bias = 32;
		break;
	case OM_IQ4_XS: {
		int group = i / 32;
		om_u32 s = ((om_u32)(r.head >> 32) >> group * 4 & 15) | ((om_u32)(r.head >> 16) >> group * 2 & 3) << 4;
		scale = om_times(om_half_bits(r.head), (float)((int)s - 32));
		codes = r.codes >> (i & 16 ? 4 : 0) & 15 * ones;
		break;
	}
	case OM_TQ2_0:
		codes = r.codes >> i % 128 / 32 * 2 & 3 * ones;
		scale = om_half_bits(r.head >> 48);
		bias = 1;
		break;
	}
	bool sums = kind == OM_Q4_1 || kind == OM_Q5_1 || kind == OM_Q2_K || kind == OM_Q4_K || kind == OM_Q5_K;
	bool looks = kind == OM_IQ4_NL || kind == OM_IQ4_XS || kind == OM_MXFP4 || kind == OM_TABLE4;
	bool has_sign = kind == OM_Q8_0 || kind == OM_LLM8 || kind == OM_SINT8;
#pragma unroll
	for (int e = 0; e < 8; e++) {
		int code = (int)(codes >> 8 * e & 0xff) | (int)(fifth >> e & 1) << 4;
		float x = (float)((has_sign ? (int)(om_i8)code : code) - bias);
		if (looks)
			x = table[code & 15];
		if (kind == OM_F8)
			x = om_float8(code);
		if (kind == OM_HQQ)
			x = om_rounded(x - least, dtype);
		x = om_times(x, scale);
		if (kind == OM_LLM8)
			x = om_times(x, 7.874015718698502e-3f);
		if (sums)
			x += least;
		to[e] = dtype == OM_F32 ? x : om_rounded(x, dtype);
	}
}

// What scaled encodings are: a block begins with a scale, of OM_F16, OM_BF16 or OM_F32, which the code that stands for nothing may
// follow, and has codes as an om_coding says.
struct om_scaled {
	om_u32 mask, flip, code, width; // of codes: their bits, those turned over, what stands for nothing; bytes of a scale
	bool follows;                   // that code follows the scale
	int scale, dtype;
};

OM_DEVICE om_scaled om_scaled_of(const om_coding &c) {
	int kind = (int)c.kind;
	bool has_sign = kind == OM_Q8_0 || kind == OM_SINT8;
	om_scaled s;
	s.dtype = (int)c.dtype;
	s.scale = kind == OM_Q4_0 || kind == OM_Q8_0 ? OM_F16 : kind == OM_SINT8 ? OM_F32 : s.dtype;
	s.width = s.scale == OM_F32 ? 4 : 2;
	s.follows = kind == OM_INT4 || kind == OM_INT8;
	s.mask = c.half > 0 ? 0x0f0f0f0fu : ~0u;
	s.flip = has_sign ? 0x80808080u : 0; // of codes with a sign 128 more
	s.code = has_sign ? 128 : 8;
	return s;
}

// The words that hold eight codes and a scale, and the code that stands for nothing.
struct om_scaled_raw {
	om_u32 codes[3], scale[2], code;
};

// om_scaled_fetch reads what eight numbers are made of: the codes from codes on, of a block that begins at block, both counted
// from base, a multiple of four. Of each word that is read, bytes are needed.
OM_DEVICE om_scaled_raw om_scaled_fetch(const om_u8 *base, om_u32 block, om_u32 codes, const om_scaled &s) {
	om_scaled_raw r;
	r.codes[0] = *(const om_u32 *)(base + (codes & ~3u));
	r.codes[1] = *(const om_u32 *)(base + (codes & ~3u) + 4);
	r.codes[2] = *(const om_u32 *)(base + (codes + 7 & ~3u));
	r.scale[0] = *(const om_u32 *)(base + (block & ~3u));
	r.scale[1] = *(const om_u32 *)(base + (block + 3 & ~3u));
	r.code = s.follows ? base[block + s.width] : s.code;
	return r;
}

// om_skewed are the four bytes that begin in a word, at a place whose lowest two bits say where, and end in the next.
OM_DEVICE om_u32 om_skewed(om_u32 word, om_u32 next, om_u32 at) {
#ifdef __CUDA_ARCH__
	return __funnelshift_r(word, next, at * 8);
#else
	return (om_u32)(((om_u64)next << 32 | word) >> (at & 3) * 8);
#endif
}

// om_whole is byte i of a word, and 2^23.
OM_DEVICE float om_whole(om_u32 word, int i) {
#ifdef __CUDA_ARCH__
	return om_bits_float(__byte_perm(word, 0x4b000000u, 0x7540 | i));
#else
	return om_bits_float(0x4b000000u | (word >> 8 * i & 0xff));
#endif
}

// om_scaled_numbers makes eight numbers of what was read, the same that om_numbers makes: differences of codes are exact as floats,
// and a product that is rounded to bfloat16 is finite where its scale is, and else stays as it is.
OM_DEVICE void om_scaled_numbers(float *to, const om_scaled_raw &r, om_u32 block, om_u32 codes, int shift, const om_scaled &s) {
	om_u32 low = om_skewed(r.codes[0], r.codes[1], codes) >> shift & s.mask ^ s.flip;
	om_u32 high = om_skewed(r.codes[1], r.codes[2], codes) >> shift & s.mask ^ s.flip;
	float scale = om_float_of(om_skewed(r.scale[0], r.scale[1], block), s.scale), nothing = om_bits_float(0x4b000000u | r.code);
#pragma unroll
	for (int e = 0; e < 8; e++)
		to[e] = om_times(om_whole(e < 4 ? low : high, e % 4) - nothing, scale);
	if (s.dtype == OM_BF16) {
		bool finite = (om_float_bits(scale) & 0x7f800000u) != 0x7f800000u;
		om_u32 keep = finite ? 0xffff0000u : ~0u, half = finite ? 0x7fff : 0, odd = finite ? 1 : 0;
#pragma unroll
		for (int e = 0; e < 8; e++) {
			om_u32 b = om_float_bits(to[e]);
			to[e] = om_bits_float(b + half + (b >> 16 & odd) & keep);
		}
	} else if (s.dtype == OM_F16) {
#pragma unroll
		for (int e = 0; e < 8; e++)
			to[e] = om_rounded(to[e], OM_F16);
	}
}
