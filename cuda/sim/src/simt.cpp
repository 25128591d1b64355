// The threads of a block as fibers: each runs until it ends or waits for others.
#include "engine.h"

#include <sys/mman.h>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace simt {

thread_local fiber *self;
thread_local dim3 block, threads, blocks;
thread_local char *dynamic;

namespace {

const size_t stack_bytes = 128 << 10;

// A meeting of lanes of a warp that were named in one mask.
struct meeting {
	unsigned mask, came, left;
	unsigned long long given[32];
};

// An engine runs blocks on one thread.
struct engine {
	std::vector<fiber *> all; // fibers, kept for their stacks
	std::vector<fiber *> live;
	std::vector<std::vector<meeting *>> meetings; // for each warp
	void *scheduler;
	const entry *kernel;
	char *packed;
	bool progress;
	std::string error;
};

thread_local engine *here;

#if defined(__x86_64__)
extern "C" void simt_switch(void **save, void *load);
asm(R"(
.text
.globl simt_switch
.hidden simt_switch
.type simt_switch,@function
simt_switch:
	pushq %rbp
	pushq %rbx
	pushq %r12
	pushq %r13
	pushq %r14
	pushq %r15
	movq %rsp, (%rdi)
	movq %rsi, %rsp
	popq %r15
	popq %r14
	popq %r13
	popq %r12
	popq %rbx
	popq %rbp
	ret
.size simt_switch,.-simt_switch
)");

void prepare(fiber *f, void (*run)()) {
	// The stack is 16-byte aligned before a call, so 8 off at the entry of a function.
	uintptr_t top = (uintptr_t)(f->stack + stack_bytes) & ~(uintptr_t)15;
	void **sp = (void **)top;
	*--sp = nullptr;
	*--sp = (void *)run;
	for (int i = 0; i < 6; i++)
		*--sp = nullptr;
	f->stack_pointer = sp;
}

void to_fiber(fiber *f) { simt_switch(&here->scheduler, f->stack_pointer); }
void to_scheduler(fiber *f) { simt_switch(&f->stack_pointer, here->scheduler); }
#else
void prepare(fiber *f, void (*run)()) {
	if (!f->stack_pointer)
		f->stack_pointer = new ucontext_t;
	ucontext_t *c = (ucontext_t *)f->stack_pointer;
	getcontext(c);
	c->uc_stack = {f->stack, 0, stack_bytes};
	makecontext(c, run, 0);
}

void to_fiber(fiber *f) {
	if (!here->scheduler)
		here->scheduler = new ucontext_t;
	swapcontext((ucontext_t *)here->scheduler, (ucontext_t *)f->stack_pointer);
}
void to_scheduler(fiber *f) { swapcontext((ucontext_t *)f->stack_pointer, (ucontext_t *)here->scheduler); }
#endif

void run_fiber() {
	fiber *f = self;
	here->kernel->call(here->kernel->function, here->packed);
	f->state = fiber::finished;
	to_scheduler(f);
}

fiber *fiber_at(size_t i) {
	engine *e = here;
	while (e->all.size() <= i) {
		fiber *f = new fiber();
		f->stack = (char *)mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		e->all.push_back(f);
	}
	return e->all[i];
}

// wait leaves the fiber until it is scheduled again.
void wait(fiber *f) {
	to_scheduler(f);
	self = f;
}

void resume(fiber *f) {
	self = f;
	to_fiber(f);
	if (f->state == fiber::finished)
		here->progress = true;
}

unsigned live_lanes(unsigned warp) {
	unsigned lanes = 0;
	for (fiber *f : here->live)
		if (f->warp == warp && f->state != fiber::finished)
			lanes |= 1u << f->lane;
	return lanes;
}

// release lets all go on that wait at a barrier, once nobody else runs.
bool release() {
	fiber *first = nullptr;
	for (fiber *f : here->live) {
		if (f->state == fiber::finished)
			continue;
		if (f->state != fiber::at_barrier)
			return false;
		if (first && (f->line != first->line || strcmp(f->file, first->file) != 0) && here->error.empty())
			here->error = "threads of a block wait at " + std::string(first->file) + ":" + std::to_string(first->line) +
				" and " + std::to_string(f->line);
		first = first ? first : f;
	}
	if (!first)
		return false;
	for (fiber *f : here->live)
		if (f->state == fiber::at_barrier)
			f->state = fiber::ready;
	return true;
}

void run_block(bool backwards) {
	engine *e = here;
	size_t n = (size_t)threads.x * threads.y * threads.z, used = 0;
	e->live.clear();
	for (auto &w : e->meetings)
		for (meeting *m : w)
			delete m;
	e->meetings.assign((n + 31) / 32, {});
	// A thread that ends without having waited leaves its stack to the next.
	for (size_t k = 0; k < n; k++) {
		size_t i = backwards ? n - 1 - k : k;
		fiber *f = fiber_at(used);
		f->index = {(unsigned)(i % threads.x), (unsigned)(i / threads.x % threads.y), (unsigned)(i / threads.x / threads.y)};
		f->lane = i % 32, f->warp = i / 32;
		f->state = fiber::ready;
		prepare(f, run_fiber);
		// Lanes that have not begun count as live, so all are listed once one waits.
		resume(f);
		if (f->state != fiber::finished) {
			e->live.push_back(f);
			used++;
		}
	}
	for (bool any = true; any && e->error.empty();) {
		any = false;
		e->progress = false;
		for (fiber *f : e->live) {
			if (f->state == fiber::finished)
				continue;
			any = true;
			if (f->state != fiber::at_barrier)
				resume(f);
		}
		if (!any || e->progress)
			continue;
		if (!release())
			e->error = "threads of a block wait for each other, or for lanes that are gone";
	}
}

} // namespace

void barrier(const char *file, int line) {
	fiber *f = self;
	f->state = fiber::at_barrier;
	f->file = file, f->line = line;
	here->progress = true;
	wait(f);
}

const unsigned long long *exchange(unsigned mask, unsigned long long mine, unsigned *came) {
	fiber *f = self;
	auto &list = here->meetings[f->warp];
	unsigned bit = 1u << f->lane;
	if (!(mask & bit)) {
		here->error = "a lane is not in the mask of its own warp operation";
		mask |= bit;
	}
	meeting *m = nullptr;
	for (meeting *x : list)
		if (x->mask == mask && !(x->came & bit))
			m = x;
	if (!m) {
		m = new meeting{};
		m->mask = mask;
		list.push_back(m);
	}
	m->came |= bit;
	m->given[f->lane] = mine;
	here->progress = true;
	f->state = fiber::in_warp;
	// Lanes that ended are not waited for; those of the mask that are not there cannot come.
	do
		wait(f);
	while ((m->came & mask) != mask && (live_lanes(f->warp) & mask & ~m->came));
	f->state = fiber::ready;
	static thread_local unsigned long long given[32];
	memcpy(given, m->given, sizeof given);
	if (came)
		*came = m->came;
	m->left |= bit;
	here->progress = true;
	if (m->left == m->came) {
		for (size_t i = 0; i < list.size(); i++)
			if (list[i] == m)
				list.erase(list.begin() + i);
		delete m;
	}
	return given;
}

std::string run(const entry &kernel, char *packed, dim3 grid, dim3 size, size_t shared_bytes, unsigned order) {
	if (!here)
		here = new engine();
	engine *e = here;
	std::vector<char> space(shared_bytes + 16, (char)0xff);
	dynamic = (char *)(((uintptr_t)space.data() + 15) & ~(uintptr_t)15);
	e->kernel = &kernel, e->packed = packed;
	e->error.clear();
	blocks = grid, threads = size;
	size_t n = (size_t)grid.x * grid.y * grid.z;
	for (size_t k = 0; k < n && e->error.empty(); k++) {
		size_t i = order & 1 ? n - 1 - k : k;
		block = {(unsigned)(i % grid.x), (unsigned)(i / grid.x % grid.y), (unsigned)(i / grid.x / grid.y)};
		run_block(order & 2);
	}
	return e->error.empty() ? "" : std::string(kernel.name) + ": " + e->error;
}

} // namespace simt
