//go:build gorgonia && linux && (amd64 || arm64) && !nocuda

// gorgonia.org/cu is linked against libcuda.so, and a program that is does not start where there is none. Here are the
// calls instead, each a jump to where the driver has it once one was opened, and until then to a failure. That takes the
// linker's wish: libcuda.a in the folder lib is empty.
#include "lazy.h"

#include <dlfcn.h>

static int absent(void) { return CUDA_ERROR_NOT_INITIALIZED; }
static CUresult none(unsigned flags) {
	(void)flags;
	return CUDA_ERROR_NO_DEVICE;
}

// A place holds where a call leads. What is hidden is not taken by libraries for the driver's own.
#define CALL(name) __attribute__((visibility("hidden"))) void *om_at_##name = (void *)absent;
#include "calls.h"
#undef CALL

#if defined(__x86_64__)
#define JUMP(name) "jmp *om_at_" name "(%rip)\n"
#elif defined(__aarch64__)
#define JUMP(name) "adrp x16, om_at_" name "\nldr x16, [x16, :lo12:om_at_" name "]\nbr x16\n"
#endif

#define CALL(name)                                                                                       \
	__asm__(".pushsection .text\n.globl " #name "\n.hidden " #name "\n.type " #name ", %function\n" #name ":\n" \
			JUMP(#name) ".size " #name ", .-" #name "\n.popsection\n");
#include "calls.h"
#undef CALL

static const struct {
	const char *name;
	void **at;
} calls[] = {
#define CALL(name) {#name, &om_at_##name},
#include "calls.h"
#undef CALL
};

static CUresult (*init)(unsigned) = none;

// gorgonia.org/cu calls this when the program starts, and ends the program where it fails.
__attribute__((visibility("hidden"))) CUresult cuInit(unsigned flags) {
	(void)flags;
	return CUDA_SUCCESS;
}

uintptr_t om_open(const char *path, const char **why) {
	void *driver = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	if (!driver)
		*why = dlerror();
	return (uintptr_t)driver;
}

int om_has(uintptr_t driver, const char *name) { return dlsym((void *)driver, name) != NULL; }

void om_use(uintptr_t driver) {
	void *p;
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
		if ((p = dlsym((void *)driver, calls[i].name)))
			*calls[i].at = p;
	if ((p = dlsym((void *)driver, "cuInit")))
		init = (CUresult(*)(unsigned))p;
}

CUresult om_init(void) { return init(0); }

// What the thread had before the first of the calls of om_enter that were not left yet.
static __thread CUcontext before;
static __thread int entered;

CUresult om_enter(CUcontext context) {
	CUresult failed = entered ? CUDA_SUCCESS : cuCtxGetCurrent(&before);
	if (failed || (failed = cuCtxSetCurrent(context)))
		return failed;
	entered++;
	return CUDA_SUCCESS;
}

void om_leave(void) {
	if (--entered == 0)
		cuCtxSetCurrent(before);
}

CUresult om_launch(CUfunction f, const unsigned *blocks, const unsigned *threads, unsigned shared, CUstream s,
				   const char *packed, const int *offsets, int count) {
	void *at[OM_MOST_PARAMETERS];
	if (count > OM_MOST_PARAMETERS)
		return CUDA_ERROR_INVALID_VALUE;
	for (int i = 0; i < count; i++)
		at[i] = (void *)(packed + offsets[i]);
	return cuLaunchKernel(f, blocks[0], blocks[1], blocks[2], threads[0], threads[1], threads[2], shared, s, at, NULL);
}

CUresult om_copy_in(CUdeviceptr to, const char *from, size_t bytes, CUstream s) {
	return cuMemcpyHtoDAsync(to, from, bytes, s);
}

CUresult om_copy_out(char *to, CUdeviceptr from, size_t bytes, CUstream s) { return cuMemcpyDtoHAsync(to, from, bytes, s); }

CUresult om_register(char *p, size_t bytes, unsigned flags) { return cuMemHostRegister(p, bytes, flags); }

CUresult om_unregister(char *p) { return cuMemHostUnregister(p); }
