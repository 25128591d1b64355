// Streams and how their work is executed: by a thread of each, or by one that runs nothing before someone waits, and
// then a random one of the orders that are allowed.
#include "world.h"

#include <csignal>
#include <pthread.h>
#include <thread>

// The state is never destroyed: the process may end while threads wait on it.
world &the() {
	static world *w = new world();
	return *w;
}

static bool ready(const stream *s) {
	if (s->running || s->queue.empty())
		return false;
	for (const auto &m : s->queue.front().after)
		if (!m->done)
			return false;
	return true;
}

// execute runs the first op of a stream.
static void execute(std::unique_lock<std::mutex> &lock, stream *s) {
	world &w = the();
	op &o = s->queue.front();
	s->running = true;
	std::string failed;
	// After a failure that sticks nothing is executed any more.
	if (o.run && !w.sticky) {
		lock.unlock();
		failed = o.run();
		lock.lock();
	}
	if (!failed.empty() && !w.sticky) {
		w.sticky = 719;
		if (failed.rfind("code ", 0) == 0)
			w.sticky = atoi(failed.c_str() + 5);
		w.message = w.detail = failed;
	}
	o.done->done = true;
	s->queue.pop_front();
	s->running = false;
	w.changed.notify_all();
}

// spawn starts a thread that no signal of the host's program is delivered to.
template <class F> static void spawn(F run) {
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	std::thread(run).detach();
	pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

void start_worker(stream *s) {
	world &w = the();
	if (!w.set.lazy) {
		spawn([s] {
			world &w = the();
			std::unique_lock<std::mutex> lock(w.mutex);
			for (;;) {
				w.changed.wait(lock, [&] { return ready(s) || (s->ended && s->queue.empty()); });
				if (!ready(s)) // what an ended one was given is done, too
					break;
				execute(lock, s);
			}
			w.orphans.erase(s);
			delete s;
		});
		return;
	}
	if (w.executor)
		return;
	w.executor = true;
	spawn([] {
		world &w = the();
		std::unique_lock<std::mutex> lock(w.mutex);
		for (;;) {
			std::vector<stream *> can;
			w.changed.wait(lock, [&] {
				for (size_t i = w.wanted.size(); i-- > 0;)
					if (w.wanted[i]->done)
						w.wanted.erase(w.wanted.begin() + i);
				can.clear();
				if (!w.set.lazy || (w.wanted.empty() && w.steps_wanted == 0))
					return false;
				for (stream *s : w.streams)
					if (ready(s))
						can.push_back(s);
				for (stream *s : w.orphans)
					if (ready(s))
						can.push_back(s);
				if (can.empty())
					w.steps_wanted = 0;
				return !can.empty();
			});
			if (w.steps_wanted > 0)
				w.steps_wanted--;
			// Streams stand in the set by address, which differs from run to run.
			stream *chosen = nullptr;
			unsigned k = w.random() % can.size();
			for (stream *s : can) {
				unsigned below = 0;
				for (stream *t : can)
					below += t->id < s->id;
				if (below == k)
					chosen = s;
			}
			execute(lock, chosen);
		}
	});
}

std::shared_ptr<mark> enqueue(stream *s, double ns, std::function<std::string()> run) {
	world &w = the();
	for (const auto &m : s->waits)
		s->at = m->at > s->at ? m->at : s->at;
	s->at += ns;
	order::tick(s->knows, s->id);
	auto m = std::make_shared<mark>();
	m->at = s->at;
	m->knows = s->knows;
	m->stream = s->id, m->step = order::of(s->knows, s->id);
	s->queue.push_back({std::move(run), std::move(s->waits), m});
	s->waits.clear();
	s->last = m;
	w.changed.notify_all();
	return m;
}

void await(std::unique_lock<std::mutex> &lock, const std::shared_ptr<mark> &m) {
	world &w = the();
	if (!m->done) {
		w.wanted.push_back(m);
		w.changed.notify_all();
		w.changed.wait(lock, [&] { return m->done; });
	}
	if (m->at > w.span)
		w.span = m->at;
}

allocation *find(uint64_t address, size_t bytes) {
	world &w = the();
	auto i = w.allocations.upper_bound(address);
	if (i == w.allocations.begin())
		return nullptr;
	allocation *a = (--i)->second;
	return address >= a->address && address - a->address <= a->bytes && bytes <= a->bytes - (address - a->address) ? a : nullptr;
}

void touch(stream *s, uint64_t low, size_t bytes, bool writes, const char *what) {
	world &w = the();
	allocation *a = find(low, bytes);
	if (!a || bytes == 0)
		return;
	// The op that is about to be enqueued is the stream's next step.
	order::clock knows = s->knows;
	for (const auto &m : s->waits)
		order::join(knows, m->knows);
	std::string found = a->history.note({s->id, order::of(s->knows, s->id) + 1, low, low + bytes, writes}, knows);
	if (!found.empty() && w.races++ == 0)
		w.first_race = std::string(what) + ": " + found;
}
