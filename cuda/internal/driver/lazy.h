// The driver, opened when it is asked for, and calls of it that gorgonia.org/cu lacks.
#include <cuda.h>
#include <stdint.h>

// om_open opens a driver. Where it returns 0, why says why.
uintptr_t om_open(const char *path, const char **why);

// om_has reports whether an opened driver has a call.
int om_has(uintptr_t driver, const char *name);

// om_use has all calls lead to an opened driver. There is one in a process: it must not be called
// again.
void om_use(uintptr_t driver);

// om_init is the driver's own cuInit.
CUresult om_init(void);

// om_enter makes a context the thread's until om_leave, which gives the thread back the one that it had: its owner's, who may
// call the driver for something else. Between the two they may be called again.
CUresult om_enter(CUcontext context);
void om_leave(void);

// om_launch is cuLaunchKernel with the parameters, at most OM_MOST_PARAMETERS, at offsets of a buffer.
#define OM_MOST_PARAMETERS 128
CUresult om_launch(CUfunction f, const unsigned *blocks, const unsigned *threads, unsigned shared, CUstream s,
	const char *packed, const int *offsets, int count);

// Calls that take memory of the host, as bytes: where the type says void, cgo takes the memory around for what is passed.
CUresult om_copy_in(CUdeviceptr to, const char *from, size_t bytes, CUstream s);
CUresult om_copy_out(char *to, CUdeviceptr from, size_t bytes, CUstream s);
CUresult om_register(char *p, size_t bytes, unsigned flags);
CUresult om_unregister(char *p);

// What the simulated driver has besides.
int simcuSubAlloc(uint64_t address, size_t bytes);
int simcuOffsets(const int *list, int n, size_t bytes);
