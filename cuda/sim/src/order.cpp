// Which accesses to the same bytes are ordered by events, and which are races. What is compared is the order that was asked
// for, not the one that came about: a race is found however the streams happened to run.
#include "engine.h"

namespace order {

void join(clock &c, const clock &with) {
	if (c.size() < with.size())
		c.resize(with.size());
	for (size_t i = 0; i < with.size(); i++)
		if (with[i] > c[i])
			c[i] = with[i];
}

int of(const clock &c, int stream) { return stream < (int)c.size() ? c[stream] : 0; }

void tick(clock &c, int stream) {
	if ((int)c.size() <= stream)
		c.resize(stream + 1);
	c[stream]++;
}

std::string history::note(access now, const clock &knows) {
	std::string found;
	std::vector<access> kept;
	for (const access &a : seen) {
		bool ordered = a.stream == now.stream || a.step <= of(knows, a.stream);
		if (a.low < now.high && now.low < a.high && (a.writes || now.writes) && !ordered && found.empty()) {
			uint64_t low = a.low > now.low ? a.low : now.low, high = a.high < now.high ? a.high : now.high;
			found = std::string("stream ") + std::to_string(now.stream) + (now.writes ? " writes " : " reads ") +
				std::to_string(high - low) + " bytes that stream " + std::to_string(a.stream) +
				(a.writes ? " writes" : " reads") + ", and no event orders them";
		}
		bool covered = now.low <= a.low && a.high <= now.high;
		// Whoever conflicts with what is covered conflicts with what covers it.
		if (covered && ((now.writes && ordered) || (!now.writes && !a.writes && a.stream == now.stream)))
			continue;
		kept.push_back(a);
	}
	kept.push_back(now);
	seen.swap(kept);
	return found;
}

} // namespace order
