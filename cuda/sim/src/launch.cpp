// Modules, kernels and their launches.
#include "call.h"
#include "tensormap.h"

#include <cstdio>

static thread_local std::vector<std::pair<uint64_t, size_t>> spans; // of the next launch's pointers
static thread_local std::vector<int> offsets;
static thread_local size_t told_bytes;

std::map<std::string, simt::entry> &simt::kernels() {
	static auto *all = new std::map<std::string, simt::entry>();
	return *all;
}
void simt::add(const entry &e) { kernels()[e.name] = e; }

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

// What the linker makes stands for assembled code: PTX behind a line with the capability that it is for.
static const std::string assembled = "\x7fsimcubin ";

// A linking is what a linker was given, and what it made.
struct linking {
	std::string text, made;
};

API cuLinkCreate_v2(unsigned, const int *, void **, linking **to) {
	IN_CONTEXT("cuLinkCreate_v2")
	*to = new linking();
	return 0;
}

API cuLinkAddData_v2(linking *l, int type, const char *data, size_t bytes, const char *, unsigned, const int *, void **) {
	IN_CONTEXT("cuLinkAddData_v2")
	ptx::image read;
	if (type != 1 || bytes == 0 || data[bytes - 1] != 0)
		return invalid_value;
	if (!w.set.compiler)
		return no_compiler;
	if (!ptx::parse(data, read).empty())
		return invalid_image;
	if (read.version > newest(w.set.driver))
		return unsupported_ptx;
	l->text = data;
	if (read.only && read.target != w.set.capability)
		return invalid_ptx;
	return read.target > w.set.capability ? no_binary : 0;
}

API cuLinkComplete(linking *l, const char **to, size_t *bytes) {
	IN_CONTEXT("cuLinkComplete")
	l->made = assembled + std::to_string(w.set.capability) + "\n" + l->text;
	*to = l->made.data(), *bytes = l->made.size();
	return 0;
}

API cuLinkDestroy(linking *l) {
	IN_CONTEXT("cuLinkDestroy")
	delete l;
	return 0;
}

API cuModuleLoadDataEx(module **to, const char *text, unsigned n, const int *names, void **values) {
	IN_CONTEXT("cuModuleLoadDataEx")
	if (strncmp(text, assembled.data(), assembled.size()) == 0) {
		if (atoi(text + assembled.size()) != w.set.capability)
			return no_binary;
		text = strchr(text, '\n') + 1;
	} else if (*text == 0x7f)
		return invalid_image;
	else if (!w.set.compiler)
		return no_compiler;
	module *m = new module();
	std::string wrong = ptx::parse(text, m->image);
	int code = 0;
	if (!wrong.empty())
		code = invalid_image;
	else if (m->image.version > newest(w.set.driver)) {
		code = unsupported_ptx;
		wrong = "Unsupported .version " + std::to_string(m->image.version / 10) + "." + std::to_string(m->image.version % 10);
	} else if (m->image.only && m->image.target != w.set.capability) {
		code = invalid_ptx;
		wrong = "target sm_" + std::to_string(m->image.target) + "a is for no other GPU";
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
	if (!seen(*m->of->last))
		misuse("cuModuleUnload: nobody has waited for kernels of the module");
	m->of->over = true;
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
	*to = new function{&host->second, name, m->text, m->of};
	return 0;
}

API cuFuncSetAttribute(function *f, int attribute, int value) {
	IN_CONTEXT("cuFuncSetAttribute")
	if (attribute != 8 || value < 0 || value > shared_limit(w.set.capability)) // dynamic shared memory
		return invalid_value;
	f->shared_limit = value;
	return 0;
}

API cuLaunchKernel(function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
				   stream *s, void **given, void **extra) {
	std::vector<std::pair<uint64_t, size_t>> stand;
	std::vector<int> at;
	stand.swap(spans);
	at.swap(offsets);
	GIVING("cuLaunchKernel")
	if (!alive(s) || foreign(s) || f->of->over)
		return invalid_handle;
	if (!gx || !gy || !gz || !bx || !by || !bz || gy > 65535 || gz > 65535 || gx > 0x7fffffff || bz > 64 ||
		(uint64_t)bx * by * bz > 1024)
		return refuse(f->name + ": a grid of that size cannot be launched", invalid_value);
	if (shared > f->shared_limit)
		return refuse(f->name + ": too much shared memory", too_many_resources);
	char *packed = nullptr;
	size_t size = at.empty() ? 0 : told_bytes;
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
		// A compiler counts such a place from where it puts the parameters of all kernels, and a driver given one piece does not move it.
		if (p.align > 16 && packed)
			return refuse(f->name + ": parameters in one piece, and parameter " + std::to_string(i) + " is elsewhere", too_many_resources);
	}
	if (given && at.empty())
		size = want;
	bool fits = want == size && size <= 4096 && (at.empty() || at.size() == places.size());
	for (size_t i = 0; fits && i < at.size(); i++)
		fits = (size_t)at[i] == places[i];
	if (!fits)
		return refuse(f->name + ": " + std::to_string(size) + " bytes of " + std::to_string(at.size()) +
			" parameters, the kernel takes " + std::to_string(want) + " of " + std::to_string(places.size()), invalid_value);
	std::vector<char> gathered(given ? want : 0);
	for (int i = 0; given && i < f->entry->count; i++)
		memcpy(&gathered[places[i]], given[i], f->entry->parameters[i].bytes);
	if (given)
		packed = gathered.data();
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
		if (!a || a->device != s->device)
			return refuse(f->name + ": parameter " + std::to_string(i) + " points nowhere" + (a ? " on this GPU" : ""), w.sticky = illegal_address);
		uint64_t low = a->address;
		size_t bytes = a->bytes;
		for (auto &x : stand)
			if (address >= x.first && address <= x.first + x.second) {
				low = x.first, bytes = x.second;
				if (address == low && bytes) // what ends there is another
					break;
			}
		regions->insert(regions->end(), {low, bytes, p.writes});
	}
	auto maps = std::make_shared<std::vector<tensormap::memory>>();
	for (int i = 0; i < f->entry->count; i++) {
		const simt::parameter &p = f->entry->parameters[i];
		tensormap::memory m;
		if (p.bytes == tensormap::bytes && p.align == tensormap::align && tensormap::read(packed + places[i], m))
			maps->push_back(m);
	}
	for (auto &m : *maps)
		if (!tensormap::holds(m))
			return refuse(f->name + ": a tensor map of memory that is gone", w.sticky = illegal_address);
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
		for (auto &m : *maps)
			if (!tensormap::holds(m)) {
				refuse(f->name + ": was kept with a tensor map of memory that is gone", w.sticky = illegal_address);
				return;
			}
		for (size_t i = 0; i < regions->size(); i += 3)
			touch(s, (*regions)[i], (*regions)[i + 1], (*regions)[i + 2], f->name.c_str());
		w.launches++;
		f->of->last = enqueue(s, w.set.launch_ns, compute);
	};
	if (s->keeping)
		s->keeping->launches.push_back(give);
	else
		give(s);
	return 0;
}

// simcuSubAlloc says which bytes a pointer among the next launch's parameters stands for, on this thread.
API simcuSubAlloc(uint64_t address, size_t bytes) {
	spans.push_back({address, bytes});
	return 0;
}

// simcuOffsets says where the next launch's parameters were put, and how many bytes they are.
API simcuOffsets(const int *list, int n, size_t bytes) {
	offsets.assign(list, list + n);
	told_bytes = bytes;
	return 0;
}
