// Streams, events, and graphs of what streams kept.
#include "call.h"

bool alive(stream *s) { return the().streams.count(s) != 0; }

// later is what is not done yet. Whoever asks again and again sees something happen in the end; who asks for a while and then
// waits, nothing before.
static int later() {
	world &w = the();
	if (++w.asked % 256 == 0) {
		w.steps_wanted++;
		w.changed.notify_all();
	}
	return not_ready;
}

bool foreign(stream *s) { return s->device != current; }

bool spoils(stream *s) {
	if (!s->keeping)
		return false;
	return s->keeping->spoiled = true;
}

void wait_all(locked &lock) {
	std::vector<std::shared_ptr<mark>> all;
	for (auto *set : {&the().streams, &the().orphans})
		for (stream *s : *set)
			all.push_back(ending(s));
	for (auto &m : all) {
		await(lock, m);
		see(m->knows);
	}
}

std::shared_ptr<mark> ending(stream *s) {
	if (!s->waits.empty())
		enqueue(s, 0, nullptr);
	return s->last;
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
	// It returns at once, and what the stream was given is done whenever that may be.
	if (!seen(*ending(s)))
		misuse("cuStreamDestroy: nobody has waited for what the stream was given");
	w.streams.erase(s);
	s->ended = true;
	if (!s->queue.empty())
		w.orphans.insert(s); // which are few, and leaked where no thread of theirs deletes them
	else if (w.set.lazy)
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
	auto m = ending(s);
	order::join(w.host, s->knows);
	order::join(s->knows, w.host);
	if (!m->done)
		w.spins++;
	await(lock, m);
	see(m->knows);
	return w.sticky;
}

API cuStreamQuery(stream *s) {
	IN_CONTEXT("cuStreamQuery")
	if (!alive(s))
		return invalid_handle;
	if (spoils(s))
		return cannot_be_kept;
	auto m = ending(s);
	if (m->done) {
		see(m->knows);
		return 0;
	}
	return later();
}

API cuStreamWaitEvent(stream *s, event *e, unsigned flags) {
	IN_CONTEXT("cuStreamWaitEvent")
	if (flags) // for what is kept
		return invalid_value;
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

API cuEventCreate(event **to, unsigned flags) {
	IN_CONTEXT("cuEventCreate")
	if (flags & ~3u) // events of other processes are not simulated
		return invalid_value;
	*to = new event{current, (flags & 1) != 0, !(flags & 2), nullptr};
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
	if (!alive(s) || !w.events.count(e) || e->device != s->device || foreign(s))
		return invalid_handle;
	if (spoils(s))
		return cannot_be_kept;
	// Whoever still has the event for what it stood for would wait for something else.
	if (e->last && !seen(*e->last))
		misuse("cuEventRecord: the event is recorded again, and nobody knows whether it was reached");
	if (e->timed)
		w.timed++;
	e->last = enqueue(s, 0, nullptr);
	return 0;
}

API cuEventQuery(event *e) {
	IN_CONTEXT("cuEventQuery")
	if (!w.events.count(e))
		return invalid_handle;
	if (!e->last || e->last->done) {
		if (e->last)
			see(e->last->knows);
		return 0;
	}
	return later();
}

API cuEventSynchronize(event *e) {
	IN_CONTEXT("cuEventSynchronize")
	if (!w.events.count(e))
		return invalid_handle;
	if (e->last) {
		auto m = e->last;
		if (!m->done && !e->sleeps)
			w.spins++;
		await(lock, m);
		see(m->knows);
	}
	return w.sticky;
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

API cuGraphInstantiateWithFlags(graph **to, graph *from, unsigned long long flags) {
	IN_CONTEXT("cuGraphInstantiate")
	if (flags)
		return invalid_value;
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
	GIVING("cuGraphLaunch")
	if (!alive(s) || !w.graphs.count(g) || foreign(s))
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
