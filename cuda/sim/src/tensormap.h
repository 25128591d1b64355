// What launches know of tensor maps among their parameters.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tensormap {

const size_t bytes = 128, align = 64;

// A memory is where a map's tensor lies: the address, and the number of the allocation that was there.
struct memory {
	uint64_t address, allocation;
};

// read reports whether there is a map, and of what memory it is.
bool read(const char *from, memory &to);

// holds reports whether that memory is still there, and is no other's.
bool holds(const memory &m);

} // namespace tensormap
