// The state of the simulated driver.
#pragma once

#include "engine.h"

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <set>

// A mark is a point in a stream: when it is reached by the virtual clock, and what the stream knew then.
struct mark {
	bool done = false;
	double at = 0;
	order::clock knows;
	int stream = -1, step = 0; // none: nothing to be reached
};

struct op {
	std::function<std::string()> run;
	std::vector<std::shared_ptr<mark>> after;
	std::shared_ptr<mark> done;
};

struct stream;

// A graph is launches that a stream kept: each gives itself to a stream.
struct graph {
	std::vector<std::function<void(stream *)>> launches;
	bool spoiled = false; // by what cannot be kept
};

struct stream {
	int id, device;
	std::shared_ptr<graph> keeping; // where launches go instead of into the queue
	std::deque<op> queue;
	bool running = false, ended = false;
	order::clock knows;
	double at = 0;
	std::vector<std::shared_ptr<mark>> waits; // of the next op
	std::shared_ptr<mark> last = std::make_shared<mark>();
};

struct event {
	int device;
	bool sleeps, timed; // whoever waits for it, and whether it is to be timed
	std::shared_ptr<mark> last;
};

// Host memory that is page-locked.
struct locked_memory {
	size_t bytes;
	int device; // the only one that copies from it by itself, unless it is portable
	bool portable, registered, read_only;
};

// A use is what a copy does to page-locked memory of the host, from when it is given out until the host has waited for it.
struct use {
	uintptr_t low, high;
	int stream, step;
	bool writes, known; // known says that sum is that of the bytes that are to be copied
	uint64_t sum;
};

struct allocation {
	uint64_t address;
	size_t bytes, taken; // asked for, and in whole pieces
	int device;
	order::history history;
	uint64_t number; // of all allocations so far
};

// What kernels know of the module that they are of.
struct life {
	bool over = false;
	std::shared_ptr<mark> last = std::make_shared<mark>(); // of the launches
};

struct module {
	ptx::image image;
	std::shared_ptr<std::string> text;
	std::shared_ptr<life> of = std::make_shared<life>();
};

// A launch as it is given to who runs it instead of the kernels that are compiled in.
struct foreign_launch {
	const char *text; // the PTX
	size_t text_bytes;
	const char *name, *packed;
	size_t packed_bytes;
	unsigned grid[3], size[3];
	size_t shared_bytes;
	const uint64_t *regions; // address, bytes and whether they may be written, of each
	size_t count;
	char *error; // what went wrong, "" is nothing
	size_t error_bytes;
};

struct function {
	const simt::entry *entry;
	std::string name;
	std::shared_ptr<std::string> text;
	std::shared_ptr<life> of;
	size_t shared_limit = 48 << 10;
};

// A fault makes the n-th call of a name fail, or all from it on. A late one comes up when the work is done.
struct fault {
	std::string call;
	int n, code;
	bool on, late;
};

struct device {
	size_t used = 0, taken = 0, peak = 0;
	int retained = 0;
};

struct lt_object;

struct settings {
	size_t memory = 1u << 30, pinned = 0;
	int devices = 1, capability = 80, driver = 12040, init = 0, latency_ns = 0, launch_ns = 0;
	bool compiler = true; // the driver's
	double copy = 0; // bytes a second, 0 is any number
	bool lazy = true;
	unsigned seed = 0;
	std::vector<fault> faults;
};

struct world {
	std::mutex mutex;
	std::condition_variable changed;
	settings set;
	bool initialised = false;
	uint64_t allocated = 0;
	device devices[8];
	std::set<stream *> streams;
	std::set<event *> events;
	std::set<module *> modules;
	std::set<graph *> graphs; // kept, and ready to be launched
	std::set<lt_object *> blas; // what cuBLASLt made
	std::map<uint64_t, allocation *> allocations;
	std::set<stream *> orphans; // that were destroyed, and have work
	std::map<uintptr_t, locked_memory> pinned;
	std::vector<use> uses;
	size_t pinned_bytes = 0, pinned_peak = 0;
	std::map<std::string, int> calls;
	int sticky = 0, next_stream = 0, steps_wanted = 0, asked = 0;
	std::vector<std::shared_ptr<mark>> wanted;
	order::clock host; // what streams were synchronised with the host for
	order::clock seen; // what the host has waited for, or was told to be done
	std::mt19937 random;
	bool executor = false;
	// What is reported.
	int misuses = 0, spins = 0, timed = 0;
	int races = 0, unpinned = 0, launches = 0, graph_launches = 0, copies = 0, products = 0;
	size_t bytes_in = 0, bytes_out = 0;
	double span = 0;
	// run, if there is one, runs launches.
	void (*run)(foreign_launch *) = nullptr;
	// detail is what the next cuGetErrorString adds.
	std::string first_race, first_misuse, message, detail;
};

world &the();

// enqueue gives an op to a stream, with what it takes of the virtual clock in ns.
std::shared_ptr<mark> enqueue(stream *s, double ns, std::function<std::string()> run);

// await returns once a mark is reached.
void await(std::unique_lock<std::mutex> &lock, const std::shared_ptr<mark> &m);

// touch looks for races.
void touch(stream *s, uint64_t low, size_t bytes, bool writes, const char *what);

// misuse counts what a GPU punishes, perhaps much later and elsewhere, and keeps the first in words.
void misuse(const std::string &what);

// see notes what the host was told to be done; seen reports whether it was told of a mark.
void see(const order::clock &knows);
bool seen(const mark &m);

// give_host notes that the next op of a stream copies from or to page-locked memory, and looks for others that it disturbs.
// A copy to it finds it filled with bytes of no use. It returns what the copy has to check when it is made.
use give_host(stream *s, const void *p, size_t bytes, bool writes);

// check_host looks whether the host left the memory of a copy alone until that is made.
void check_host(const use &u);

// leave_host ends the uses of memory that is given back, which nobody may need any more.
void leave_host(const void *p, size_t bytes, const char *call);

// find returns the allocation that bytes lie in, or null.
allocation *find(uint64_t address, size_t bytes);

void start_worker(stream *s);
