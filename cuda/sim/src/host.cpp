// What the host does to its own page-locked memory while copies are under way, which a GPU does not notice: it copies what
// is there by then. As with races, what is compared is what the host has waited for, not what happened to be done.
#include "call.h"

#include <cstring>

void misuse(const std::string &what) {
	world &w = the();
	if (w.misuses++ == 0)
		w.first_misuse = what;
}

void see(const order::clock &knows) { order::join(the().seen, knows); }

bool seen(const mark &m) { return m.stream < 0 || m.step <= order::of(the().seen, m.stream); }

// sum tells contents apart.
static uint64_t sum(uintptr_t low, uintptr_t high) {
	uint64_t h = 14695981039346656037u, x;
	for (; low + 8 <= high; low += 8) {
		memcpy(&x, (const void *)low, 8);
		h = (h ^ x) * 1099511628211u;
		h ^= h >> 29;
	}
	for (; low < high; low++)
		h = (h ^ *(const unsigned char *)low) * 1099511628211u;
	return h;
}

// no_use is what memory that is copied to holds until then.
static const unsigned char no_use = 0xff;

static std::string bytes_of(const use &u) { return std::to_string(u.high - u.low) + " bytes of the host"; }

use give_host(stream *s, const void *p, size_t bytes, bool writes) {
	world &w = the();
	use now = {(uintptr_t)p, (uintptr_t)p + bytes, s->id, order::of(s->knows, s->id) + 1, writes, true, 0};
	order::clock knows = s->knows;
	for (const auto &m : s->waits)
		order::join(knows, m->knows);
	for (size_t i = w.uses.size(); i-- > 0;) {
		use &u = w.uses[i];
		if (u.step <= order::of(w.seen, u.stream)) {
			w.uses.erase(w.uses.begin() + i);
			continue;
		}
		if (u.low >= now.high || now.low >= u.high)
			continue;
		bool ordered = u.stream == s->id || u.step <= order::of(knows, u.stream);
		if ((u.writes || writes) && !ordered)
			misuse(bytes_of(u) + " are copied to while another copy uses them, and no event orders the two");
		if (!u.writes && !writes && u.known && sum(u.low, u.high) != u.sum) {
			misuse(bytes_of(u) + " were filled again although nobody has waited for the copy from there");
			u.known = false;
		}
		// What is there when the copy is made is not there yet, or must be read before.
		if (u.writes || writes)
			now.known = false;
	}
	if (now.known && writes)
		memset((void *)now.low, no_use, bytes);
	if (now.known && !writes)
		now.sum = sum(now.low, now.high);
	w.uses.push_back(now);
	return now;
}

void check_host(const use &u) {
	if (!u.known)
		return;
	bool left = true;
	if (u.writes)
		for (uintptr_t p = u.low; left && p < u.high; p++)
			left = *(const unsigned char *)p == no_use;
	else
		left = sum(u.low, u.high) == u.sum;
	if (left)
		return;
	locked lock(the().mutex);
	misuse(bytes_of(u) + (u.writes ? " were written to before the copy to there was made" : " were changed before the copy from there was made"));
}

void leave_host(const void *p, size_t bytes, const char *call) {
	world &w = the();
	uintptr_t low = (uintptr_t)p, high = low + bytes;
	for (size_t i = w.uses.size(); i-- > 0;) {
		const use &u = w.uses[i];
		if (u.low >= high || low >= u.high)
			continue;
		if (u.step > order::of(w.seen, u.stream))
			misuse(std::string(call) + ": nobody has waited for a copy " + (u.writes ? "to " : "from ") + bytes_of(u));
		w.uses.erase(w.uses.begin() + i);
	}
}
