// The driver itself, its devices and their contexts.
#include "call.h"

#include <cstdio>

thread_local int current = -1;

int injected(const char *call, int *late) {
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

std::function<std::string()> failing(int code, const char *call) {
	std::string text = "code " + std::to_string(code) + " in " + call + ", as asked for";
	return [text] { return text; };
}

int refuse(const std::string &why, int code) {
	the().message = the().detail = why;
	return code;
}

API cuInit(unsigned flags) {
	world &w = the();
	locked lock(w.mutex);
	if (flags)
		return invalid_value;
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
	case 97: *value = shared_limit(w.set.capability); break; // shared memory by opting in
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
		for (auto *set : {&w.streams, &w.orphans})
			for (stream *s : *set)
				s->queue.clear();
		w.orphans.clear();
		w.streams.clear(), w.events.clear(), w.modules.clear(), w.graphs.clear(), w.blas.clear(), w.pinned.clear(), w.uses.clear();
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

API cuCtxGetCurrent(uintptr_t *context) {
	BEGIN("cuCtxGetCurrent")
	*context = current + 1;
	return 0;
}

API cuCtxSynchronize() {
	IN_CONTEXT("cuCtxSynchronize")
	for (stream *s : w.streams)
		ending(s), order::join(w.host, s->knows);
	for (stream *s : w.streams)
		order::join(s->knows, w.host);
	wait_all(lock);
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
