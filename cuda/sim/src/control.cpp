// The calls by which tests tell the driver what to do, and ask what it saw.
#include "call.h"

#include <cstdio>
#include <cstdlib>

static bool starts(const std::string &s, const char *with) { return s.rfind(with, 0) == 0; }

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
	else if (key == "compiler") set.compiler = number(value) != 0;
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
	for (auto *set : {&w.streams, &w.orphans})
		for (stream *s : *set)
			s->queue.clear();
	w.orphans.clear();
	w.streams.clear(), w.events.clear(), w.modules.clear(), w.graphs.clear(), w.blas.clear(), w.allocations.clear(), w.pinned.clear(), w.uses.clear(), w.calls.clear();
	w.pinned_bytes = w.pinned_peak = w.bytes_in = w.bytes_out = 0;
	w.misuses = w.spins = w.timed = 0;
	w.races = w.unpinned = w.launches = w.graph_launches = w.products = w.copies = w.sticky = w.steps_wanted = w.next_stream = w.asked = 0;
	w.wanted.clear(), w.host.clear(), w.seen.clear(), w.first_race.clear(), w.first_misuse.clear(), w.message.clear(), w.detail.clear();
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
		"misuses %d\nspins %d\ntimed %d\nraces %d\nunpinned %d\nlaunches %d\ngraph_launches %d\nproducts %d\ncopies %d\nbytes_in %zu\nbytes_out %zu\npeak %zu\npinned_peak %zu\nspan_ns %.0f\n"
		"allocations %zu\npinned %zu\nstreams %zu\nevents %zu\nmodules %zu\ngraphs %zu\nblas %zu\ncontexts %d\nfirst_race %s\nfirst_misuse %s\nmessage %s\n",
		w.misuses, w.spins, w.timed, w.races, w.unpinned, w.launches, w.graph_launches, w.products, w.copies, w.bytes_in, w.bytes_out, peak, w.pinned_peak, span, w.allocations.size(),
		w.pinned.size(), w.streams.size(), w.events.size(), w.modules.size(), w.graphs.size(), w.blas.size(), retained, w.first_race.c_str(), w.first_misuse.c_str(), w.message.c_str());
	return 0;
}

// Settings of a process come from OPTIMEM_SIM.
__attribute__((constructor)) static void configure() {
	if (const char *text = getenv("OPTIMEM_SIM"))
		simcuConfigure(text);
}
