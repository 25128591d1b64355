// The calls of libcuda.so.1 that the CUDA device makes, over memory of the host. simcu… are calls for tests.
#include "world.h"

#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>

#define API extern "C" __attribute__((visibility("default"))) int

typedef std::unique_lock<std::mutex> locked;

enum {
	invalid_value = 1, out_of_memory = 2, not_initialised = 3, no_device = 100, invalid_device = 101, invalid_context = 201,
	invalid_image = 200, no_binary = 209, invalid_ptx = 218, unsupported_ptx = 222, invalid_handle = 400, not_found = 500,
	not_ready = 600, illegal_address = 700, too_many_resources = 701,
	already_registered = 712, not_registered = 713, not_permitted = 800,
	cannot_be_kept = 900, spoiled = 901,
};

static thread_local int current = -1; // the device of the thread's context
static thread_local std::vector<std::pair<uint64_t, size_t>> spans; // of the next launch's pointers
static thread_local std::vector<int> offsets;

std::map<std::string, simt::entry> &simt::kernels() {
	static auto *all = new std::map<std::string, simt::entry>();
	return *all;
}
void simt::add(const entry &e) { kernels()[e.name] = e; }

static bool starts(const std::string &s, const char *with) { return s.rfind(with, 0) == 0; }

// injected returns the code that a call is to fail with, 0 for none; late ones by reference.
static int injected(const char *call, int *late = nullptr) {
	world &w = the();
	int n = ++w.calls[call], code = 0;
	for (const fault &f : w.set.faults) {
		if (f.call != call || (f.on ? n < f.n : n != f.n))
			continue;
		if (!f.late)
			code = f.code;
		else if (late)
			*late = f.code;
	}
	return code;
}

// BEGIN opens a call; IN_CONTEXT one that needs a context.
#define BEGIN(name)                     \
	world &w = the();                   \
	locked lock(w.mutex);               \
	if (int code = injected(name))      \
		return code;                    \
	if (!w.initialised)                 \
		return not_initialised;
#define IN_CONTEXT(name)                \
	BEGIN(name)                         \
	if (w.sticky)                       \
		return w.sticky;                \
	if (current < 0)                    \
		return invalid_context;         \
	device &dev = w.devices[current];   \
	(void)dev;


API cuInit(unsigned) {
	world &w = the();
	locked lock(w.mutex);
	if (int code = injected("cuInit"))
		return code;
	if (w.set.init)
		return w.set.init;
	if (w.set.devices == 0)
		return no_device;
	w.initialised = true;
	return 0;
}

API cuDriverGetVersion(int *version) {
	*version = the().set.driver;
	return 0;
}

API cuDeviceGetCount(int *n) {
	BEGIN("cuDeviceGetCount")
	*n = w.set.devices;
	return 0;
}

API cuDeviceGet(int *d, int ordinal) {
	BEGIN("cuDeviceGet")
	if (ordinal < 0 || ordinal >= w.set.devices)
		return invalid_device;
	*d = ordinal;
	return 0;
}

API cuDeviceGetName(char *name, int n, int d) {
	BEGIN("cuDeviceGetName")
	snprintf(name, n, "Simulated GPU %d", d);
	return 0;
}

API cuDeviceTotalMem_v2(size_t *bytes, int) {
	BEGIN("cuDeviceTotalMem")
	*bytes = w.set.memory;
	return 0;
}

API cuDeviceGetAttribute(int *value, int attribute, int) {
	BEGIN("cuDeviceGetAttribute")
	switch (attribute) {
	case 16: *value = 1; break; // multiprocessors
	case 75: *value = w.set.capability / 10; break;
	case 76: *value = w.set.capability % 10; break;
	case 97: *value = 96 << 10; break; // shared memory by opting in
	default: *value = 0;
	}
	return 0;
}

// The context of a device is its number plus one.
API cuDevicePrimaryCtxRetain(uintptr_t *context, int d) {
	BEGIN("cuDevicePrimaryCtxRetain")
	if (d < 0 || d >= w.set.devices)
		return invalid_device;
	w.devices[d].retained++;
	*context = d + 1;
	return 0;
}

API cuDevicePrimaryCtxRelease_v2(int d) {
	BEGIN("cuDevicePrimaryCtxRelease")
	if (d < 0 || d >= w.set.devices || w.devices[d].retained == 0)
		return invalid_context;
	if (--w.devices[d].retained > 0)
		return 0;
	// A context that is gone takes along what is in it, and what was wrong with it.
	if (w.sticky) {
		for (auto i = w.allocations.begin(); i != w.allocations.end();) {
			allocation *a = i->second;
			if (a->device == d)
				w.devices[d].used -= a->taken, i = w.allocations.erase(i);
			else
				i++;
		}
		for (stream *s : w.streams)
			s->queue.clear();
		w.streams.clear(), w.events.clear(), w.modules.clear(), w.graphs.clear(), w.pinned.clear(), w.registered.clear();
		w.pinned_bytes = 0;
		w.sticky = 0;
	}
	return 0;
}

API cuCtxSetCurrent(uintptr_t context) {
	BEGIN("cuCtxSetCurrent")
	if (context > (uintptr_t)w.set.devices)
		return invalid_context;
	current = (int)context - 1;
	return w.sticky;
}

API cuCtxSynchronize() {
	IN_CONTEXT("cuCtxSynchronize")
	std::vector<std::shared_ptr<mark>> all;
	for (stream *s : w.streams)
		all.push_back(s->last);
	for (stream *s : w.streams)
		order::join(w.host, s->knows);
	for (stream *s : w.streams)
		order::join(s->knows, w.host);
	for (auto &m : all)
		await(lock, m);
	return w.sticky;
}

API cuMemGetInfo_v2(size_t *free, size_t *total) {
	IN_CONTEXT("cuMemGetInfo")
	*total = w.set.memory;
	size_t gone = dev.used + dev.taken;
	*free = gone > w.set.memory ? 0 : w.set.memory - gone;
	return 0;
}

static size_t rounded(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

API cuMemAlloc_v2(uint64_t *address, size_t bytes) {
	IN_CONTEXT("cuMemAlloc")
	if (bytes == 0)
		return invalid_value;
	size_t size = rounded(bytes, 512);
	if (dev.used + dev.taken + size > w.set.memory)
		return out_of_memory;
	// What lies beyond the end cannot be touched; what lies within is no number before it was written.
	size_t whole = rounded(size, 4096);
	char *base = (char *)mmap(nullptr, whole + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED || mprotect(base + 4096, whole, PROT_READ | PROT_WRITE) != 0)
		return out_of_memory;
	memset(base + 4096, 0xff, whole);
	allocation *a = new allocation{(uint64_t)(base + 4096), bytes, size, current, {}};
	w.allocations[a->address] = a;
	dev.used += size;
	dev.peak = dev.used > dev.peak ? dev.used : dev.peak;
	*address = a->address;
	return 0;
}

// Freeing waits for everything, as the driver does.
API cuMemFree_v2(uint64_t address) {
	IN_CONTEXT("cuMemFree")
	auto i = w.allocations.find(address);
	if (i == w.allocations.end())
		return invalid_value;
	std::vector<std::shared_ptr<mark>> all;
	for (stream *s : w.streams)
		all.push_back(s->last);
	for (auto &m : all)
		await(lock, m);
	allocation *a = i->second;
	w.devices[a->device].used -= a->taken;
	munmap((char *)a->address - 4096, rounded(a->taken, 4096) + 8192);
	w.allocations.erase(i);
	delete a;
	return 0;
}

API cuMemHostAlloc(void **p, size_t bytes, unsigned) {
	IN_CONTEXT("cuMemHostAlloc")
	if (w.set.pinned && w.pinned_bytes + bytes > w.set.pinned)
		return out_of_memory;
	if (posix_memalign(p, 4096, bytes ? bytes : 1) != 0)
		return out_of_memory;
	memset(*p, 0xff, bytes);
	w.pinned[(uintptr_t)*p] = bytes;
	w.pinned_bytes += bytes;
	w.pinned_peak = w.pinned_bytes > w.pinned_peak ? w.pinned_bytes : w.pinned_peak;
	return 0;
}

API cuMemFreeHost(void *p) {
	IN_CONTEXT("cuMemFreeHost")
	auto i = w.pinned.find((uintptr_t)p);
	if (i == w.pinned.end() || w.registered.count((uintptr_t)p))
		return invalid_value;
	std::vector<std::shared_ptr<mark>> all;
	for (stream *s : w.streams)
		all.push_back(s->last);
	for (auto &m : all)
		await(lock, m);
	w.pinned_bytes -= i->second;
	w.pinned.erase(i);
	free(p);
	return 0;
}

// writable reports whether the process may write to all of its bytes there.
static bool writable(uintptr_t p, size_t bytes) {
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512], mode[8];
	unsigned long low, high;
	uintptr_t end = p + bytes;
	while (f && p < end && fgets(line, sizeof line, f))
		if (sscanf(line, "%lx-%lx %7s", &low, &high, mode) == 3 && low <= p && p < high) {
			if (mode[1] != 'w')
				break;
			p = high;
		}
	if (f)
		fclose(f);
	return p >= end;
}

// Memory of others is registered once, by whole pages, and must be writable or said not to be.
API cuMemHostRegister_v2(void *p, size_t bytes, unsigned flags) {
	IN_CONTEXT("cuMemHostRegister")
	if (!p || !bytes || (flags & ~9u))
		return invalid_value;
	for (auto &x : w.pinned)
		if ((x.first & ~4095ul) < (uintptr_t)p + bytes && ((uintptr_t)p & ~4095ul) < x.first + x.second)
			return already_registered;
	if (!(flags & 8) && !writable((uintptr_t)p, bytes))
		return invalid_value;
	if (w.set.pinned && w.pinned_bytes + bytes > w.set.pinned)
		return out_of_memory;
	w.pinned[(uintptr_t)p] = bytes;
	w.registered.insert((uintptr_t)p);
	w.pinned_bytes += bytes;
	w.pinned_peak = w.pinned_bytes > w.pinned_peak ? w.pinned_bytes : w.pinned_peak;
	return 0;
}

API cuMemHostUnregister(void *p) {
	IN_CONTEXT("cuMemHostUnregister")
	if (!w.registered.erase((uintptr_t)p))
		return not_registered;
	std::vector<std::shared_ptr<mark>> all;
	for (stream *s : w.streams)
		all.push_back(s->last);
	for (auto &m : all)
		await(lock, m);
	w.pinned_bytes -= w.pinned[(uintptr_t)p];
	w.pinned.erase((uintptr_t)p);
	return 0;
}

static bool is_pinned(const void *p, size_t bytes) {
	auto &all = the().pinned;
	auto i = all.upper_bound((uintptr_t)p);
	return i != all.begin() && (--i, (uintptr_t)p + bytes <= i->first + i->second);
}

static bool alive(stream *s) { return the().streams.count(s) != 0; }

// spoils reports whether a stream keeps launches, which a call other than a launch must not interrupt.
static bool spoils(stream *s) {
	if (!s->keeping)
		return false;
	return s->keeping->spoiled = true;
}

static double copy_ns(size_t bytes) {
	const settings &set = the().set;
	return set.latency_ns + (set.copy > 0 ? bytes / set.copy * 1e9 : 0);
}

// late makes an op fail once it is executed.
static std::function<std::string()> failing(int code, const char *call) {
	std::string text = "code " + std::to_string(code) + " in " + call + ", as asked for";
	return [text] { return text; };
}

API cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, stream *s) {
	world &w = the();
	locked lock(w.mutex);
	int late = 0;
	if (int code = injected("cuMemcpyHtoDAsync", &late))
		return code;
	if (w.sticky)
		return w.sticky;
	if (current < 0)
		return invalid_context;
	if (!alive(s) || !find(to, bytes))
		return invalid_value;
	if (spoils(s))
		return cannot_be_kept;
	touch(s, to, bytes, true, "cuMemcpyHtoDAsync");
	w.copies++;
	w.bytes_in += bytes;
	if (late) {
		enqueue(s, copy_ns(bytes), failing(late, "cuMemcpyHtoDAsync"));
		return 0;
	}
	if (is_pinned(from, bytes)) {
		enqueue(s, copy_ns(bytes), [=] { return memcpy((void *)to, from, bytes), ""; });
		return 0;
	}
	// The driver copies memory that is not pinned to a place of its own before it returns.
	w.unpinned++;
	auto kept = std::make_shared<std::vector<char>>((const char *)from, (const char *)from + bytes);
	enqueue(s, copy_ns(bytes), [=] { return memcpy((void *)to, kept->data(), bytes), ""; });
	return 0;
}

API cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, stream *s) {
	world &w = the();
	locked lock(w.mutex);
	int late = 0;
	if (int code = injected("cuMemcpyDtoHAsync", &late))
		return code;
	if (w.sticky)
		return w.sticky;
	if (current < 0)
		return invalid_context;
	if (!alive(s) || !find(from, bytes))
		return invalid_value;
	if (spoils(s))
		return cannot_be_kept;
	touch(s, from, bytes, false, "cuMemcpyDtoHAsync");
	w.copies++;
	w.bytes_out += bytes;
	if (late) {
		enqueue(s, copy_ns(bytes), failing(late, "cuMemcpyDtoHAsync"));
		return 0;
	}
	auto m = enqueue(s, copy_ns(bytes), [=] { return memcpy(to, (void *)from, bytes), ""; });
	if (!is_pinned(to, bytes)) {
		w.unpinned++;
		await(lock, m);
		return w.sticky;
	}
	return 0;
}

API cuMemsetD8Async(uint64_t to, unsigned char byte, size_t bytes, stream *s) {
	IN_CONTEXT("cuMemsetD8Async")
	if (!alive(s) || !find(to, bytes))
		return invalid_value;
	if (spoils(s))
		return cannot_be_kept;
	touch(s, to, bytes, true, "cuMemsetD8Async");
	enqueue(s, w.set.launch_ns, [=] { return memset((void *)to, byte, bytes), ""; });
	return 0;
}

API cuStreamCreate(stream **to, unsigned flags) {
	IN_CONTEXT("cuStreamCreate")
	if (flags != 1) // streams that wait for the default stream are not simulated
		return invalid_value;
	stream *s = new stream();
	s->id = w.next_stream++;
	s->device = current;
	s->knows = w.host;
	s->last->done = true;
	w.streams.insert(s);
	start_worker(s);
	*to = s;
	return 0;
}

API cuStreamDestroy_v2(stream *s) {
	IN_CONTEXT("cuStreamDestroy")
	if (!alive(s))
		return invalid_handle;
	if (spoils(s))
		return cannot_be_kept;
	await(lock, s->last);
	w.streams.erase(s);
	s->ended = true;
	if (w.set.lazy)
		delete s;
	w.changed.notify_all();
	return 0;
}

API cuStreamSynchronize(stream *s) {
	IN_CONTEXT("cuStreamSynchronize")
	if (!alive(s))
		return invalid_handle;
	if (spoils(s))
		return cannot_be_kept;
	// The host orders streams by synchronising each: one that never is learns nothing, since who gave it work need not have
	// been the thread that waited for another.
	order::join(w.host, s->knows);
	order::join(s->knows, w.host);
	await(lock, s->last);
	return w.sticky;
}

API cuStreamQuery(stream *s) {
	IN_CONTEXT("cuStreamQuery")
	if (!alive(s))
		return invalid_handle;
	if (spoils(s))
		return cannot_be_kept;
	if (s->last->done)
		return 0;
	w.steps_wanted++;
	w.changed.notify_all();
	return not_ready;
}

API cuStreamWaitEvent(stream *s, event *e, unsigned) {
	IN_CONTEXT("cuStreamWaitEvent")
	if (!alive(s) || !w.events.count(e))
		return invalid_handle;
	if (spoils(s))
		return cannot_be_kept;
	if (e->last) {
		order::join(s->knows, e->last->knows);
		s->waits.push_back(e->last);
	}
	return 0;
}

API cuEventCreate(event **to, unsigned) {
	IN_CONTEXT("cuEventCreate")
	*to = new event();
	w.events.insert(*to);
	return 0;
}

API cuEventDestroy_v2(event *e) {
	IN_CONTEXT("cuEventDestroy")
	if (!w.events.erase(e))
		return invalid_handle;
	delete e;
	return 0;
}

API cuEventRecord(event *e, stream *s) {
	IN_CONTEXT("cuEventRecord")
	if (!alive(s) || !w.events.count(e))
		return invalid_handle;
	if (spoils(s))
		return cannot_be_kept;
	e->last = enqueue(s, 0, nullptr);
	return 0;
}

API cuEventQuery(event *e) {
	IN_CONTEXT("cuEventQuery")
	if (!w.events.count(e))
		return invalid_handle;
	if (!e->last || e->last->done)
		return 0;
	w.steps_wanted++;
	w.changed.notify_all();
	return not_ready;
}

API cuEventSynchronize(event *e) {
	IN_CONTEXT("cuEventSynchronize")
	if (!w.events.count(e))
		return invalid_handle;
	if (e->last) {
		auto m = e->last;
		await(lock, m);
	}
	return w.sticky;
}

// newest returns the PTX version that a driver takes, as in 78 for 7.8.
static int newest(int driver) {
	int major = driver / 1000, minor = driver % 1000 / 10;
	if (major == 12)
		return 80 + (minor >= 6 ? minor - 1 : minor);
	return (major - 4) * 10 + minor;
}

static void log_to(int n, const int *names, void **values, const std::string &text) {
	char *buf = nullptr;
	size_t size = 0;
	for (int i = 0; i < n; i++) {
		if (names[i] == 5)
			buf = (char *)values[i];
		if (names[i] == 6)
			size = (size_t)values[i];
	}
	if (buf && size)
		snprintf(buf, size, "%s", text.c_str());
}

API cuModuleLoadDataEx(module **to, const char *text, unsigned n, const int *names, void **values) {
	IN_CONTEXT("cuModuleLoadDataEx")
	module *m = new module();
	std::string wrong = ptx::parse(text, m->image);
	int code = 0;
	if (!wrong.empty())
		code = invalid_image;
	else if (m->image.version > newest(w.set.driver)) {
		code = unsupported_ptx;
		wrong = "Unsupported .version " + std::to_string(m->image.version / 10) + "." + std::to_string(m->image.version % 10);
	} else if (m->image.target > w.set.capability) {
		code = no_binary;
		wrong = "target sm_" + std::to_string(m->image.target) + " is newer than the GPU";
	}
	if (code) {
		log_to(n, names, values, wrong);
		delete m;
		return code;
	}
	m->text = std::make_shared<std::string>(text);
	w.modules.insert(m);
	*to = m;
	return 0;
}

API cuModuleUnload(module *m) {
	IN_CONTEXT("cuModuleUnload")
	if (!w.modules.erase(m))
		return invalid_handle;
	delete m;
	return 0;
}

// Handles of functions are never freed: they are few.
API cuModuleGetFunction(function **to, module *m, const char *name) {
	IN_CONTEXT("cuModuleGetFunction")
	if (!w.modules.count(m))
		return invalid_handle;
	auto k = m->image.kernels.find(name);
	if (k == m->image.kernels.end())
		return not_found;
	auto host = simt::kernels().find(name);
	bool same = host != simt::kernels().end() && host->second.count == (int)k->second.parameters.size();
	for (int i = 0; same && i < host->second.count; i++)
		same = host->second.parameters[i].bytes == k->second.parameters[i];
	if (!same) {
		w.message = w.detail = std::string(name) + ": the PTX is not of the source that was compiled for the host";
		return invalid_ptx;
	}
	*to = new function{&host->second, name, m->text};
	return 0;
}

API cuFuncSetAttribute(function *f, int attribute, int value) {
	IN_CONTEXT("cuFuncSetAttribute")
	if (attribute == 8) // dynamic shared memory
		f->shared_limit = value;
	return 0;
}

static int refuse(const std::string &why, int code) {
	the().message = the().detail = why;
	return code;
}

API cuLaunchKernel(function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
				   stream *s, void **, void **extra) {
	std::vector<std::pair<uint64_t, size_t>> stand;
	std::vector<int> at;
	stand.swap(spans);
	at.swap(offsets);
	world &w = the();
	locked lock(w.mutex);
	int late = 0;
	if (int code = injected("cuLaunchKernel", &late))
		return code;
	if (w.sticky)
		return w.sticky;
	if (current < 0)
		return invalid_context;
	if (!alive(s))
		return invalid_handle;
	if (!gx || !gy || !gz || !bx || !by || !bz || gy > 65535 || gz > 65535 || gx > 0x7fffffff || bz > 64 ||
		(uint64_t)bx * by * bz > 1024)
		return refuse(f->name + ": a grid of that size cannot be launched", invalid_value);
	if (shared > f->shared_limit)
		return refuse(f->name + ": too much shared memory", too_many_resources);
	char *packed = nullptr;
	size_t size = 0;
	for (void **e = extra; e && *e; e += 2) {
		if (*e == (void *)1)
			packed = (char *)e[1];
		if (*e == (void *)2)
			size = *(size_t *)e[1];
	}
	// The parameters must lie where the kernel's compiler puts them.
	size_t want = 0;
	std::vector<size_t> places;
	for (int i = 0; i < f->entry->count; i++) {
		const simt::parameter &p = f->entry->parameters[i];
		want = rounded(want, p.align);
		places.push_back(want);
		want += p.bytes;
	}
	bool fits = want == size && size <= 4096 && (at.empty() || at.size() == places.size());
	for (size_t i = 0; fits && i < at.size(); i++)
		fits = (size_t)at[i] == places[i];
	if (!fits)
		return refuse(f->name + ": " + std::to_string(size) + " bytes of " + std::to_string(at.size()) +
			" parameters, the kernel takes " + std::to_string(want) + " of " + std::to_string(places.size()), invalid_value);
	auto kept = std::make_shared<std::vector<char>>(packed, packed + size);
	auto regions = std::make_shared<std::vector<uint64_t>>();
	for (int i = 0; i < f->entry->count; i++) {
		const simt::parameter &p = f->entry->parameters[i];
		if (!p.pointer)
			continue;
		uint64_t address = *(uint64_t *)(packed + places[i]);
		if (!address)
			continue;
		allocation *a = find(address, 0);
		if (!a)
			return refuse(f->name + ": parameter " + std::to_string(i) + " points nowhere", w.sticky = illegal_address);
		uint64_t low = a->address;
		size_t bytes = a->bytes;
		for (auto &x : stand)
			if (address >= x.first && address <= x.first + x.second)
				low = x.first, bytes = x.second;
		regions->insert(regions->end(), {low, bytes, p.writes});
	}
	unsigned order = w.set.lazy ? w.set.seed : 0;
	auto run = w.run;
	std::function<std::string()> compute = [=] {
		if (run) {
			char error[1024] = "";
			foreign_launch l = {f->text->data(), f->text->size(), f->name.c_str(), kept->data(), kept->size(), {gx, gy, gz},
				{bx, by, bz}, shared, regions->data(), regions->size() / 3, error, sizeof error};
			run(&l);
			return std::string(error);
		}
		return simt::run(*f->entry, kept->data(), {gx, gy, gz}, {bx, by, bz}, shared, order);
	};
	if (late)
		compute = failing(late, f->name.c_str());
	auto give = [=](stream *s) {
		world &w = the();
		for (size_t i = 0; i < regions->size(); i += 3)
			if (!find((*regions)[i], (*regions)[i + 1])) {
				refuse(f->name + ": was kept with memory that is gone", w.sticky = illegal_address);
				return;
			}
		for (size_t i = 0; i < regions->size(); i += 3)
			touch(s, (*regions)[i], (*regions)[i + 1], (*regions)[i + 2], f->name.c_str());
		w.launches++;
		enqueue(s, w.set.launch_ns, compute);
	};
	if (s->keeping)
		s->keeping->launches.push_back(give);
	else
		give(s);
	return 0;
}

API cuStreamBeginCapture_v2(stream *s, int mode) {
	IN_CONTEXT("cuStreamBeginCapture")
	if (!alive(s))
		return invalid_handle;
	if (spoils(s) || mode != 2) // a stream that other threads' calls disturb is not simulated
		return invalid_value;
	s->keeping = std::make_shared<graph>();
	return 0;
}

// A graph that was not instantiated is not counted: it is what the stream kept.
API cuStreamEndCapture(stream *s, graph **to) {
	world &w = the();
	locked lock(w.mutex);
	if (!alive(s) || !s->keeping)
		return invalid_handle;
	auto kept = std::move(s->keeping);
	s->keeping = nullptr;
	if (int code = injected("cuStreamEndCapture")) // the stream keeps no more all the same
		return code;
	if (w.sticky)
		return w.sticky;
	if (kept->spoiled)
		return spoiled;
	*to = new graph(*kept);
	w.graphs.insert(*to);
	return 0;
}

API cuGraphInstantiateWithFlags(graph **to, graph *from, unsigned long long) {
	IN_CONTEXT("cuGraphInstantiate")
	if (!w.graphs.count(from))
		return invalid_handle;
	*to = new graph(*from);
	w.graphs.insert(*to);
	return 0;
}

static int drop(graph *g) {
	if (!the().graphs.erase(g))
		return invalid_handle;
	delete g;
	return 0;
}

API cuGraphDestroy(graph *g) {
	IN_CONTEXT("cuGraphDestroy")
	return drop(g);
}

API cuGraphExecDestroy(graph *g) {
	IN_CONTEXT("cuGraphExecDestroy")
	return drop(g);
}

// A launch of a graph is one of each of its launches, given at once.
API cuGraphLaunch(graph *g, stream *s) {
	world &w = the();
	locked lock(w.mutex);
	int late = 0;
	if (int code = injected("cuGraphLaunch", &late))
		return code;
	if (w.sticky)
		return w.sticky;
	if (current < 0)
		return invalid_context;
	if (!alive(s) || !w.graphs.count(g))
		return invalid_handle;
	if (spoils(s))
		return cannot_be_kept;
	w.graph_launches++;
	if (late)
		enqueue(s, 0, failing(late, "cuGraphLaunch"));
	for (auto &give : g->launches)
		give(s);
	return w.sticky;
}

API cuGetErrorName(int code, const char **name) {
	switch (code) {
	case invalid_value: *name = "CUDA_ERROR_INVALID_VALUE"; break;
	case out_of_memory: *name = "CUDA_ERROR_OUT_OF_MEMORY"; break;
	case not_initialised: *name = "CUDA_ERROR_NOT_INITIALIZED"; break;
	case no_device: *name = "CUDA_ERROR_NO_DEVICE"; break;
	case unsupported_ptx: *name = "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"; break;
	case illegal_address: *name = "CUDA_ERROR_ILLEGAL_ADDRESS"; break;
	case 719: *name = "CUDA_ERROR_LAUNCH_FAILED"; break;
	default: *name = nullptr; return invalid_value;
	}
	return 0;
}

API cuGetErrorString(int code, const char **text) {
	static thread_local std::string kept;
	const char *name = nullptr;
	cuGetErrorName(code, &name);
	world &w = the();
	locked lock(w.mutex);
	kept = w.detail.empty() ? (name ? name : "an error of the simulator") : w.detail;
	w.detail.clear();
	*text = kept.c_str();
	return 0;
}

// simcuSubAlloc says which bytes a pointer among the next launch's parameters stands for, on this thread.
API simcuSubAlloc(uint64_t address, size_t bytes) {
	spans.push_back({address, bytes});
	return 0;
}

// simcuOffsets says where the next launch's parameters were put.
API simcuOffsets(const int *list, int n) {
	offsets.assign(list, list + n);
	return 0;
}

// simcuRun gives all further launches to a function; null is the kernels that are compiled in.
API simcuRun(void (*run)(foreign_launch *)) {
	locked lock(the().mutex);
	the().run = run;
	return 0;
}

// simcuTake says how much of a device's memory others use.
API simcuTake(int d, size_t bytes) {
	world &w = the();
	locked lock(w.mutex);
	w.devices[d].taken = bytes;
	return 0;
}

static size_t number(const std::string &text) {
	char *end;
	double x = strtod(text.c_str(), &end);
	switch (*end) {
	case 'K': x *= 1 << 10; break;
	case 'M': x *= 1 << 20; break;
	case 'G': x *= 1 << 30; break;
	}
	return (size_t)x;
}

static bool apply(settings &set, const std::string &key, const std::string &value) {
	if (key == "memory") set.memory = number(value);
	else if (key == "pinned") set.pinned = number(value);
	else if (key == "devices") set.devices = (int)number(value);
	else if (key == "cc") set.capability = (int)number(value);
	else if (key == "driver") set.driver = (int)number(value);
	else if (key == "init") set.init = (int)number(value);
	else if (key == "copy") set.copy = strtod(value.c_str(), nullptr);
	else if (key == "latency") set.latency_ns = (int)number(value);
	else if (key == "launch") set.launch_ns = (int)number(value);
	else if (key == "order" && value == "threads") set.lazy = false;
	else if (key == "order" && starts(value, "lazy:")) set.lazy = true, set.seed = (unsigned)number(value.substr(5));
	else if (key == "fault") {
		// [late:]call:n:code[:+]
		fault f{};
		std::string rest = value;
		if (starts(rest, "late:"))
			f.late = true, rest = rest.substr(5);
		char call[64];
		if (sscanf(rest.c_str(), "%63[^:]:%d:%d", call, &f.n, &f.code) != 3)
			return false;
		f.call = call;
		f.on = rest.size() > 2 && rest.compare(rest.size() - 2, 2, ":+") == 0;
		set.faults.push_back(f);
	} else
		return false;
	return true;
}

// simcuConfigure begins anew with settings "key=value …". It fails with what was not given back before.
API simcuConfigure(const char *text) {
	world &w = the();
	locked lock(w.mutex);
	settings set;
	std::string all = text;
	for (size_t at = 0; (at = all.find_first_not_of(' ', at)) != std::string::npos;) {
		size_t end = all.find(' ', at), equals = all.find('=', at);
		std::string word = all.substr(at, end == std::string::npos ? end : end - at);
		at = end == std::string::npos ? all.size() : end;
		if (equals == std::string::npos || !apply(set, word.substr(0, word.find('=')), word.substr(word.find('=') + 1)))
			return invalid_value;
	}
	if (set.devices > 8)
		return invalid_value;
	// What is left from before is leaked: something may still use it.
	for (stream *s : w.streams)
		s->queue.clear();
	w.streams.clear(), w.events.clear(), w.modules.clear(), w.graphs.clear(), w.allocations.clear(), w.pinned.clear(), w.registered.clear(),
		w.calls.clear();
	w.pinned_bytes = w.pinned_peak = w.bytes_in = w.bytes_out = 0;
	w.races = w.unpinned = w.launches = w.graph_launches = w.copies = w.sticky = w.steps_wanted = w.next_stream = 0;
	w.wanted.clear(), w.host.clear(), w.first_race.clear(), w.message.clear(), w.detail.clear();
	w.span = 0;
	w.initialised = false;
	for (device &d : w.devices)
		d = device();
	w.set = set;
	w.random.seed(set.seed);
	return 0;
}

// simcuReport writes what was seen so far, a line of "key value" each.
API simcuReport(char *to, size_t size) {
	world &w = the();
	locked lock(w.mutex);
	double span = w.span;
	size_t peak = 0;
	for (device &d : w.devices)
		peak = d.peak > peak ? d.peak : peak;
	int retained = 0;
	for (device &d : w.devices)
		retained += d.retained;
	snprintf(to, size,
		"races %d\nunpinned %d\nlaunches %d\ngraph_launches %d\ncopies %d\nbytes_in %zu\nbytes_out %zu\npeak %zu\npinned_peak %zu\nspan_ns %.0f\n"
		"allocations %zu\npinned %zu\nstreams %zu\nevents %zu\nmodules %zu\ngraphs %zu\ncontexts %d\nfirst_race %s\nmessage %s\n",
		w.races, w.unpinned, w.launches, w.graph_launches, w.copies, w.bytes_in, w.bytes_out, peak, w.pinned_peak, span, w.allocations.size(),
		w.pinned.size(), w.streams.size(), w.events.size(), w.modules.size(), w.graphs.size(), retained, w.first_race.c_str(), w.message.c_str());
	return 0;
}

// Settings of a process come from OPTIMEM_SIM.
__attribute__((constructor)) static void configure() {
	if (const char *text = getenv("OPTIMEM_SIM"))
		simcuConfigure(text);
}
