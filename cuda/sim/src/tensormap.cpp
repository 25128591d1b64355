// Descriptions of tensors, by which GPUs of compute capability 9.0 copy boxes of them.
#include "tensormap.h"

#include "call.h"

namespace tensormap {

static const uint64_t magic = 0x70616d7473696d6f;

static uint32_t sum(const unsigned char *p, size_t n) { // CRC-32
	uint32_t c = ~0u;
	for (size_t i = 0; i < n; i++) {
		c ^= p[i];
		for (int bit = 0; bit < 8; bit++)
			c = c >> 1 ^ (c & 1 ? 0xedb88320 : 0);
	}
	return ~c;
}

bool read(const char *from, memory &to) {
	uint64_t begin;
	uint32_t check;
	memcpy(&begin, from, 8);
	memcpy(&check, from + bytes - 4, 4);
	if (begin != magic || check != sum((const unsigned char *)from, bytes - 4))
		return false;
	memcpy(&to.address, from + 8, 8);
	memcpy(&to.allocation, from + 16, 8);
	return true;
}

bool holds(const memory &m) {
	allocation *a = find(m.address, 0);
	return a && a->number == m.allocation;
}

} // namespace tensormap

// cuTensorMapEncodeTiled has the rules that NVIDIA gives, but for that of strides which are multiples of each
// other. How the bytes of a map are used is not documented: these are what cuda/sim/ptx reads.
API cuTensorMapEncodeTiled(char *map, int type, unsigned rank, uint64_t address, const uint64_t *dims, const uint64_t *strides,
						   const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int promotion, int fill) {
	BEGIN("cuTensorMapEncodeTiled")
	static const int sizes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
	static const bool floats[] = {false, false, false, false, false, false, true, true, true, true, true, true, true};
	if (w.set.capability < 90)
		return refuse("tensor maps need compute capability 9.0", missing_feature);
	auto wrong = [](const char *why) { return refuse(std::string("cuTensorMapEncodeTiled: ") + why, invalid_value); };
	if (!map || (uintptr_t)map % 64 || !dims || !box || !steps || (rank > 1 && !strides))
		return wrong("a map lies at a multiple of 64, and nothing is null");
	if (type < 0 || type > 12)
		return wrong("a type that is not known");
	if (rank < 1 || rank > 5 || (interleave && rank < 3))
		return wrong("the number of dimensions");
	if (interleave < 0 || interleave > 2 || swizzle < 0 || swizzle > 3 || promotion < 0 || promotion > 3 || fill < 0 || fill > 1)
		return wrong("a mode that is not known");
	int even = interleave == 2 ? 32 : 16;
	if (!address || address % even)
		return wrong("the address is no multiple of 16");
	for (unsigned i = 0; i < rank; i++) {
		if (dims[i] < 1 || dims[i] > 1ull << 32)
			return wrong("a dimension is 0 or more than 2^32");
		if (i + 1 < rank && (strides[i] % even || strides[i] >= 1ull << 40))
			return wrong("a stride is no multiple of 16 bytes, or not below 2^40");
		if (box[i] < 1 || box[i] > 256)
			return wrong("a box is of 0 or of more than 256 elements along a dimension");
		if (steps[i] < 1 || steps[i] > 8)
			return wrong("steps are of 1 to 8 elements");
	}
	size_t inner = (size_t)box[0] * sizes[type];
	if (!interleave && inner % 16)
		return wrong("a line of a box is no multiple of 16 bytes");
	if (!interleave && swizzle && inner > 16u << swizzle)
		return wrong("a line of a box is longer than what is swizzled");
	if (interleave == 2 && swizzle != 1)
		return wrong("lines interleaved by 32 bytes are swizzled by 32");
	if (fill && !floats[type])
		return wrong("only floats are filled with NaN");
	allocation *a = find(address, 0);
	uint64_t number = a ? a->number : 0;
	char *at = map;
	auto put = [&](const void *p, size_t n) { memcpy(at, p, n), at += n; };
	memset(map, 0, tensormap::bytes);
	put(&tensormap::magic, 8), put(&address, 8), put(&number, 8);
	for (unsigned i = 0; i < 5; i++) {
		uint32_t most = i < rank ? (uint32_t)(dims[i] - 1) : 0;
		put(&most, 4);
	}
	for (unsigned i = 0; i < 4; i++) {
		uint64_t stride = i + 1 < rank ? strides[i] : 0;
		put(&stride, 8);
	}
	for (unsigned i = 0; i < 5; i++) {
		uint16_t pair[2] = {(uint16_t)(i < rank ? box[i] : 1), (uint16_t)(i < rank ? steps[i] : 1)};
		put(pair, 4);
	}
	unsigned char modes[] = {(unsigned char)type, (unsigned char)rank, (unsigned char)interleave, (unsigned char)swizzle,
		(unsigned char)promotion, (unsigned char)fill};
	put(modes, sizeof modes);
	uint32_t check = tensormap::sum((unsigned char *)map, tensormap::bytes - 4);
	memcpy(map + tensormap::bytes - 4, &check, 4);
	return 0;
}
