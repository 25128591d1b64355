// What the parts of the simulated driver know of each other.
#pragma once

#define SIMT_ENGINE
#include "simt.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace simt {

// run computes a grid, one block after the other, and returns what went wrong. The bits of order turn round the order of
// blocks and of threads.
std::string run(const entry &kernel, char *packed, dim3 blocks, dim3 threads, size_t shared_bytes, unsigned order);

// kernels returns those compiled in.
std::map<std::string, entry> &kernels();

} // namespace simt

namespace order {

// A clock holds, for each stream, up to which of its steps is known to be done.
typedef std::vector<int> clock;

void join(clock &c, const clock &with);
int of(const clock &c, int stream);
void tick(clock &c, int stream);

// An access is a step of a stream that touches bytes.
struct access {
	int stream, step;
	uint64_t low, high;
	bool writes;
};

// A history is what was done to an allocation, as far as it can still conflict.
struct history {
	std::vector<access> seen;
	// note adds an access of a stream that knows a clock, and returns a conflict in words or "".
	std::string note(access now, const clock &knows);
};

} // namespace order

namespace ptx {

struct kernel {
	std::vector<size_t> parameters; // sizes in bytes
};

struct image {
	int version, target; // 78 for 7.8, 70 for sm_70
	bool only = false;   // for no other, as sm_90a
	std::map<std::string, kernel> kernels;
};

// parse reads what the simulator has to know of PTX. It returns what is wrong, or "".
std::string parse(const char *text, image &to);

} // namespace ptx
