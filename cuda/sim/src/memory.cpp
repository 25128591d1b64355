// Memory of devices and of the host, and copies between them.
#include "call.h"

#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>

API cuMemGetInfo_v2(size_t *free, size_t *total) {
	IN_CONTEXT("cuMemGetInfo")
	*total = w.set.memory;
	size_t gone = dev.used + dev.taken;
	*free = gone > w.set.memory ? 0 : w.set.memory - gone;
	return 0;
}

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
	allocation *a = new allocation{(uint64_t)(base + 4096), bytes, size, current, {}, ++w.allocated};
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
	wait_all(lock);
	allocation *a = i->second;
	w.devices[a->device].used -= a->taken;
	munmap((char *)a->address - 4096, rounded(a->taken, 4096) + 8192);
	w.allocations.erase(i);
	delete a;
	return 0;
}

API cuMemHostAlloc(void **p, size_t bytes, unsigned flags) {
	IN_CONTEXT("cuMemHostAlloc")
	if (flags & ~7u)
		return invalid_value;
	if (w.set.pinned && w.pinned_bytes + bytes > w.set.pinned)
		return out_of_memory;
	// Less than a MiB is cut from pieces that are there, and begins at any multiple of 512 bytes.
	size_t before = bytes < 1 << 20 ? 512 : 0;
	if (posix_memalign(p, 4096, bytes + before + 1) != 0)
		return out_of_memory;
	*p = (char *)*p + before;
	memset(*p, 0xff, bytes);
	w.pinned[(uintptr_t)*p] = {bytes, current, (flags & 1) != 0, false, false};
	w.pinned_bytes += bytes;
	w.pinned_peak = w.pinned_bytes > w.pinned_peak ? w.pinned_bytes : w.pinned_peak;
	return 0;
}

API cuMemFreeHost(void *p) {
	IN_CONTEXT("cuMemFreeHost")
	auto i = w.pinned.find((uintptr_t)p);
	if (i == w.pinned.end() || i->second.registered)
		return invalid_value;
	leave_host(p, i->second.bytes, "cuMemFreeHost");
	wait_all(lock); // so that the simulator itself reads nothing that is gone
	w.pinned_bytes -= i->second.bytes;
	w.pinned.erase((uintptr_t)p);
	free((void *)((uintptr_t)p & ~(uintptr_t)4095));
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
		if ((x.first & ~4095ul) < (uintptr_t)p + bytes && ((uintptr_t)p & ~4095ul) < x.first + x.second.bytes)
			return already_registered;
	if (!(flags & 8) && !writable((uintptr_t)p, bytes))
		return invalid_value;
	if (w.set.pinned && w.pinned_bytes + bytes > w.set.pinned)
		return out_of_memory;
	w.pinned[(uintptr_t)p] = {bytes, current, (flags & 1) != 0, true, (flags & 8) != 0};
	w.pinned_bytes += bytes;
	w.pinned_peak = w.pinned_bytes > w.pinned_peak ? w.pinned_bytes : w.pinned_peak;
	return 0;
}

API cuMemHostUnregister(void *p) {
	IN_CONTEXT("cuMemHostUnregister")
	auto i = w.pinned.find((uintptr_t)p);
	if (i == w.pinned.end() || !i->second.registered)
		return not_registered;
	leave_host(p, i->second.bytes, "cuMemHostUnregister");
	wait_all(lock);
	w.pinned_bytes -= i->second.bytes;
	w.pinned.erase((uintptr_t)p);
	return 0;
}

// What memory of the host is to a copy. That of which only a part is page-locked no driver takes, nor what is there to be read
// only as that which is copied to.
enum host_kind { loose, pinned, refused };

static host_kind kind_of(const void *p, size_t bytes, bool writes) {
	auto &all = the().pinned;
	uintptr_t low = (uintptr_t)p, high = low + bytes;
	auto i = all.lower_bound(high);
	if (bytes == 0 || i == all.begin())
		return loose;
	const locked_memory &m = (--i)->second;
	if (i->first + m.bytes <= low)
		return loose;
	if (low < i->first || high > i->first + m.bytes || (writes && m.read_only))
		return refused;
	return m.portable || m.device == current ? pinned : loose;
}

static double copy_ns(size_t bytes) {
	const settings &set = the().set;
	return set.latency_ns + (set.copy > 0 ? bytes / set.copy * 1e9 : 0);
}

API cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, stream *s) {
	GIVING("cuMemcpyHtoDAsync")
	if (!alive(s) || foreign(s))
		return invalid_handle;
	host_kind kind = kind_of(from, bytes, false);
	if (!find(to, bytes) || kind == refused)
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
	if (kind == pinned) {
		use u = give_host(s, from, bytes, false);
		enqueue(s, copy_ns(bytes), [=] { return check_host(u), memcpy((void *)to, from, bytes), ""; });
		return 0;
	}
	// The driver copies memory that is not pinned to a place of its own before it returns.
	w.unpinned++;
	auto kept = std::make_shared<std::vector<char>>((const char *)from, (const char *)from + bytes);
	enqueue(s, copy_ns(bytes), [=] { return memcpy((void *)to, kept->data(), bytes), ""; });
	return 0;
}

API cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, stream *s) {
	GIVING("cuMemcpyDtoHAsync")
	if (!alive(s) || foreign(s))
		return invalid_handle;
	host_kind kind = kind_of(to, bytes, true);
	if (!find(from, bytes) || kind == refused)
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
	if (kind == pinned) {
		use u = give_host(s, to, bytes, true);
		enqueue(s, copy_ns(bytes), [=] { return check_host(u), memcpy(to, (void *)from, bytes), ""; });
		return 0;
	}
	auto m = enqueue(s, copy_ns(bytes), [=] { return memcpy(to, (void *)from, bytes), ""; });
	w.unpinned++;
	await(lock, m);
	see(m->knows);
	return w.sticky;
}

API cuMemsetD8Async(uint64_t to, unsigned char byte, size_t bytes, stream *s) {
	IN_CONTEXT("cuMemsetD8Async")
	if (!alive(s) || foreign(s))
		return invalid_handle;
	if (!find(to, bytes))
		return invalid_value;
	if (spoils(s))
		return cannot_be_kept;
	touch(s, to, bytes, true, "cuMemsetD8Async");
	enqueue(s, w.set.launch_ns, [=] { return memset((void *)to, byte, bytes), ""; });
	return 0;
}
