// What all calls of the driver share: codes, the context of a thread, faults.
#pragma once

#include "world.h"

#define API extern "C" __attribute__((visibility("default"))) int

typedef std::unique_lock<std::mutex> locked;

enum {
	invalid_value = 1, out_of_memory = 2, not_initialised = 3, no_device = 100, invalid_device = 101, invalid_context = 201,
	invalid_image = 200, no_binary = 209, no_compiler = 221, invalid_ptx = 218, unsupported_ptx = 222, invalid_handle = 400, not_found = 500,
	not_ready = 600, illegal_address = 700, too_many_resources = 701,
	already_registered = 712, not_registered = 713, not_permitted = 800, missing_feature = 801,
	cannot_be_kept = 900, spoiled = 901,
};

// most_shared is what a block of any GPU here may have of shared memory, by opting in.
const int most_shared = 227 << 10;

// shared_limit is what one of a compute capability may have: below 9.0 what all have.
inline int shared_limit(int capability) { return capability < 90 ? 96 << 10 : most_shared; }

// current is the device of the thread's context, −1 for none.
extern thread_local int current;

// injected returns the code that a call is to fail with, 0 for none; late ones by reference.
int injected(const char *call, int *late = nullptr);

// failing is what fails once it is executed.
std::function<std::string()> failing(int code, const char *call);

// refuse keeps in words why a call fails, and returns its code.
int refuse(const std::string &why, int code);

// alive reports whether there is such a stream; spoils whether it keeps launches, which a call other than a launch must not
// interrupt.
bool alive(stream *s);
bool foreign(stream *s); // of another device than that of the thread's context
bool spoils(stream *s);

// ending is what is reached when a stream has done what it was given, waiting among it.
std::shared_ptr<mark> ending(stream *s);

// wait_all returns once all streams have done what they were given.
void wait_all(locked &lock);

inline size_t rounded(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

// BEGIN opens a call; IN_CONTEXT one that needs a context; GIVING one that gives work to a stream, which may fail late.
#define BEGIN(name)                     \
	world &w = the();                   \
	locked lock(w.mutex);               \
	if (int code = injected(name))      \
		return code;                    \
	if (!w.initialised)                 \
		return not_initialised;
#define IN_CONTEXT(name)                \
	BEGIN(name)                         \
	if (w.sticky)                       \
		return w.sticky;                \
	if (current < 0)                    \
		return invalid_context;         \
	device &dev = w.devices[current];   \
	(void)dev;
#define GIVING(name)                        \
	world &w = the();                       \
	locked lock(w.mutex);                   \
	int late = 0;                           \
	if (int code = injected(name, &late))   \
		return code;                        \
	if (w.sticky)                           \
		return w.sticky;                    \
	if (current < 0)                        \
		return invalid_context;
