// The threads of a block as fibers: each runs until it ends or waits for others.
#include "engine.h"

#include <algorithm>
#include <cstdlib>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace simt {

// A meeting of lanes of a warp that were named in one mask. It is held once all of those came that still can.
struct meeting {
	unsigned mask, came, left;
	bool held;
	unsigned long long given[32];
};

namespace {

struct warp {
	unsigned alive; // lanes that have not ended, those among them that have not begun
	std::vector<meeting *> meetings;
};

// An engine runs blocks on one thread.
struct engine : grid {
	std::vector<fiber *> all; // fibers, kept for their stacks
	std::vector<fiber *> live;
	size_t at; // which of the live ones runs
	std::vector<warp> warps;
	std::vector<meeting *> spare;
	void *scheduler;
	const entry *kernel;
	char *packed;
	std::string error;
};

thread_local engine *here;

engine *of(fiber *f) { return (engine *)f->grid; }

#if defined(__x86_64__)
// go leaves where it runs for another place. It is no call and ends in no return, which the processor would predict to be
// those of the thread it left; what it jumps to is mostly the same place of another thread.
inline __attribute__((always_inline)) void go(void **from, void *to) {
	asm volatile(R"(
		leaq -128(%%rsp), %%rsp
		pushq %%rbp
		leaq 1f(%%rip), %%rax
		pushq %%rax
		movq %%rsp, (%0)
		movq %1, %%rsp
		popq %%rax
		jmp *%%rax
	1:	popq %%rbp
		leaq 128(%%rsp), %%rsp
	)" : "+D"(from), "+S"(to) : : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory", "cc",
		"xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13",
		"xmm14", "xmm15");
}

void prepare(fiber *f, void (*run)()) {
	void **sp = (void **)f;
	*--sp = nullptr; // where run would return to
	*--sp = (void *)run;
	f->stack_pointer = sp;
}
#else
void go(void **from, void *to) {
	if (!*from)
		*from = new ucontext_t;
	swapcontext((ucontext_t *)*from, (ucontext_t *)to);
}

void prepare(fiber *f, void (*run)()) {
	if (!f->stack_pointer)
		f->stack_pointer = new ucontext_t;
	ucontext_t *c = (ucontext_t *)f->stack_pointer;
	getcontext(c);
	size_t room = (size_t)f & ~(stack_room - 1);
	c->uc_stack = {(void *)room, 0, (size_t)f - room};
	makecontext(c, run, 0);
}
#endif

// next returns the one that goes on after the one that runs, or null at the end of the list.
fiber *next(engine *e) {
	while (++e->at < e->live.size()) {
		fiber *f = e->live[e->at];
		if (f->state == fiber::ready || f->state == fiber::in_warp && f->meets->held)
			return f;
	}
	return nullptr;
}

// leave lets others go on, until it is this one's turn again.
void leave(fiber *f) {
	engine *e = of(f);
	fiber *to = next(e);
	go(&f->stack_pointer, to ? to->stack_pointer : e->scheduler);
}

// hold begins a meeting whose missing lanes have all ended.
void hold(meeting *m, unsigned alive) { m->held = m->held || (m->mask & ~m->came & alive) == 0; }

void run_fiber() {
	fiber *f = self();
	engine *e = of(f);
	e->kernel->call(e->kernel->function, e->packed);
	f->state = fiber::finished;
	// Lanes that ended are not waited for.
	warp &w = e->warps[f->warp];
	w.alive &= ~(1u << f->lane);
	for (meeting *m : w.meetings)
		hold(m, w.alive);
	leave(f);
}

fiber *fiber_at(size_t i) {
	engine *e = here;
	if (e->all.size() <= i) {
		const size_t more = 64;
		size_t rooms = (size_t)aligned_alloc(stack_room, more * stack_room);
		for (size_t k = 0; k < more; k++) {
			e->all.push_back(on(rooms + k * stack_room));
			*e->all.back() = {e};
		}
	}
	return e->all[i];
}

// release lets all go on that wait at a barrier, once nobody else runs.
bool release(engine *e) {
	fiber *first = nullptr;
	for (fiber *f : e->live) {
		if (f->state == fiber::finished)
			continue;
		if (f->state != fiber::at_barrier)
			return false;
		if (first && (f->line != first->line || strcmp(f->file, first->file) != 0) && e->error.empty())
			e->error = "threads of a block wait at " + std::string(first->file) + ":" + std::to_string(first->line) +
				" and " + std::to_string(f->line);
		first = first ? first : f;
	}
	if (!first)
		return false;
	for (fiber *f : e->live)
		if (f->state == fiber::at_barrier)
			f->state = fiber::ready;
	return true;
}

void run_block(engine *e, bool backwards) {
	const dim3 &threads = e->threads;
	size_t n = (size_t)threads.x * threads.y * threads.z, used = 0;
	e->live.clear();
	e->warps.resize((n + 31) / 32);
	for (size_t k = 0; k < e->warps.size(); k++) {
		warp &w = e->warps[k];
		w.alive = n - 32 * k < 32 ? (1u << (n - 32 * k)) - 1 : ~0u;
		e->spare.insert(e->spare.end(), w.meetings.begin(), w.meetings.end());
		w.meetings.clear();
	}
	// A thread that ends without having waited leaves its stack to the next.
	for (size_t k = 0; k < n; k++) {
		size_t i = backwards ? n - 1 - k : k;
		fiber *f = fiber_at(used);
		f->index = {(unsigned)(i % threads.x), (unsigned)(i / threads.x % threads.y), (unsigned)(i / threads.x / threads.y)};
		f->lane = i % 32, f->warp = i / 32;
		f->state = fiber::ready;
		prepare(f, run_fiber);
		e->at = e->live.size(); // nobody is next before all have begun
		go(&e->scheduler, f->stack_pointer);
		if (f->state != fiber::finished) {
			e->live.push_back(f);
			used++;
		}
	}
	auto ended = [](const fiber *f) { return f->state == fiber::finished; };
	while (e->error.empty()) {
		e->at = -1;
		if (fiber *first = next(e))
			go(&e->scheduler, first->stack_pointer);
		else if (std::all_of(e->live.begin(), e->live.end(), ended))
			break;
		else if (!release(e))
			e->error = "threads of a block wait for each other, or for lanes that are gone";
	}
}

} // namespace

void barrier(const char *file, int line) {
	fiber *f = self();
	f->state = fiber::at_barrier;
	f->file = file, f->line = line;
	leave(f);
}

const unsigned long long *exchange(unsigned mask, unsigned long long mine, unsigned *came) {
	fiber *f = self();
	engine *e = of(f);
	warp &w = e->warps[f->warp];
	auto &list = w.meetings;
	unsigned bit = 1u << f->lane;
	if (!(mask & bit)) {
		e->error = "a lane is not in the mask of its own warp operation";
		mask |= bit;
	}
	meeting *m = nullptr;
	for (meeting *x : list)
		if (x->mask == mask && !(x->came & bit))
			m = x;
	if (!m) {
		auto &spare = e->spare;
		if (spare.empty())
			spare.push_back(new meeting);
		m = spare.back();
		spare.pop_back();
		list.push_back(m);
		m->mask = mask, m->came = m->left = 0, m->held = false;
		memset(m->given, 0, sizeof m->given);
	}
	m->came |= bit;
	m->given[f->lane] = mine;
	hold(m, w.alive);
	if (!m->held) {
		f->meets = m;
		f->state = fiber::in_warp;
		leave(f);
		f->state = fiber::ready;
	}
	if (came)
		*came = m->came;
	m->left |= bit;
	if (m->left == m->came) {
		list.erase(std::find(list.begin(), list.end(), m));
		e->spare.push_back(m);
	}
	return m->given; // which the next meeting overwrites, and this thread runs on until then
}

std::string run(const entry &kernel, char *packed, dim3 blocks, dim3 threads, size_t shared_bytes, unsigned order) {
	if (!here)
		here = new engine();
	engine *e = here;
	std::vector<char> space(shared_bytes + 16, (char)0xff);
	(grid &)*e = {{}, threads, blocks, (char *)(((uintptr_t)space.data() + 15) & ~(uintptr_t)15)};
	e->kernel = &kernel, e->packed = packed;
	e->error.clear();
	size_t n = (size_t)blocks.x * blocks.y * blocks.z;
	for (size_t k = 0; k < n && e->error.empty(); k++) {
		size_t i = order & 1 ? n - 1 - k : k;
		e->block = {(unsigned)(i % blocks.x), (unsigned)(i / blocks.x % blocks.y), (unsigned)(i / blocks.x / blocks.y)};
		run_block(e, order & 2);
	}
	return e->error.empty() ? "" : std::string(kernel.name) + ": " + e->error;
}

} // namespace simt
