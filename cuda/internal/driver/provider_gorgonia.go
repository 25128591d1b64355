//go:build gorgonia && linux && (amd64 || arm64) && !nocuda

package driver

/*
#cgo CFLAGS: -I/usr/local/cuda/include -I/opt/cuda/include
#cgo LDFLAGS: -L${SRCDIR}/lib -Wl,--as-needed -ldl
#include <stdlib.h>
#include "lazy.h"
*/
import "C"

import (
	"errors"
	"fmt"
	goruntime "runtime"
	"sync"
	"unsafe"

	"gorgonia.org/cu"
)

// A provider calls the driver by gorgonia.org/cu, and by cgo where that lacks a call or, in copies, must not be given bytes
// that lie in one piece with pointers. Handles of gorgonia.org/cu are
// pointers within a struct; here they are numbers of the same size.
type provider struct {
	// optional says which of the calls are there that a driver may lack.
	optional [fnCount - fnOptional]bool
}

// opened is the driver that the process uses: gorgonia.org/cu has no way to say which.
var opened struct {
	sync.Mutex
	handle uintptr
	path   string
}

func (l *Library) open(path string) error {
	handle, err := l.find(path, dlopen)
	if err != nil {
		return err
	}
	for f := range fnCount {
		there := has(handle, f)
		if !there && f < fnOptional {
			return l.old(f)
		}
		if f >= fnOptional {
			l.optional[f-fnOptional] = there
		}
	}
	opened.Lock()
	defer opened.Unlock()
	switch opened.handle {
	case 0:
		opened.handle, opened.path = handle, l.path
		C.om_use(C.uintptr_t(handle))
	case handle:
	default:
		return fmt.Errorf("a process with gorgonia.org/cu uses one driver only, and uses %s", opened.path)
	}
	return nil
}

// dlopen opens a library.
func dlopen(path string) (uintptr, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var why *C.char
	handle := uintptr(C.om_open(name, &why))
	if handle == 0 {
		return 0, errors.New(C.GoString(why))
	}
	return handle, nil
}

// has reports whether a library has a call.
func has(handle uintptr, f fn) bool {
	name := C.CString(names[f])
	defer C.free(unsafe.Pointer(name))
	return C.om_has(C.uintptr_t(handle), name) != 0
}

// has reports whether the library has a call that it may lack.
func (p *provider) has(f fn) bool { return p.optional[f-fnOptional] }

// chars are bytes as C has them.
func chars(bytes []byte) *C.char { return (*C.char)(unsafe.Pointer(unsafe.SliceData(bytes))) }

// init initialises the driver. What gorgonia.org/cu did when the program started reached none.
func (l *Library) init() Code { return Code(C.om_init()) }

// code returns the number of an error of gorgonia.org/cu.
func code(err error) Code {
	if err == nil {
		return 0
	}
	result := cu.Unknown
	_ = errors.As(err, &result)
	return Code(result)
}

// text returns what the driver says of a code.
func (l *Library) text(code Code) string {
	var name, text *C.char
	C.cuGetErrorName(C.CUresult(code), &name)
	C.cuGetErrorString(C.CUresult(code), &text)
	return describe(C.GoString(name), C.GoString(text))
}

// Version returns the release of CUDA that the driver is of, as in 12040 for 12.4.
func (l *Library) Version() (int, error) {
	v := cu.Version()
	if v < 0 { // gorgonia.org/cu does not say why
		return 0, l.check(fnDriverGetVersion, Code(cu.Unknown))
	}
	return v, nil
}

// DeviceCount returns how many GPUs the process may use.
func (l *Library) DeviceCount() (int, error) {
	n, err := cu.NumDevices()
	return n, l.check(fnDeviceGetCount, code(err))
}

// Device returns a GPU by its number.
func (l *Library) Device(ordinal int) (DeviceID, error) {
	d, err := cu.GetDevice(ordinal)
	return DeviceID(d), l.check(fnDeviceGet, code(err))
}

// DeviceName returns what the GPU is called.
func (l *Library) DeviceName(d DeviceID) (string, error) {
	name, err := cu.Device(d).Name()
	return name, l.check(fnDeviceGetName, code(err))
}

// DeviceMemory returns the bytes of memory that a GPU has.
func (l *Library) DeviceMemory(d DeviceID) (int64, error) {
	n, err := cu.Device(d).TotalMem()
	return n, l.check(fnDeviceTotalMem, code(err))
}

// Attribute returns a number of a GPU.
func (l *Library) Attribute(d DeviceID, a Attribute) (int, error) {
	v, err := cu.Device(d).Attribute(cu.DeviceAttribute(a))
	return v, l.check(fnDeviceGetAttribute, code(err))
}

// RetainPrimary returns the context that all of the process share.
func (l *Library) RetainPrimary(d DeviceID) (Context, error) {
	c, err := cu.Device(d).RetainPrimaryCtx()
	return *(*Context)(unsafe.Pointer(&c)), l.check(fnPrimaryCtxRetain, code(err))
}

// ReleasePrimary gives the shared context back.
func (l *Library) ReleasePrimary(d DeviceID) error {
	return l.check(fnPrimaryCtxRelease, code(cu.Device(d).ReleasePrimaryCtx()))
}

// SetCurrent makes a context the calling thread's; 0 leaves it without one.
func (l *Library) SetCurrent(c Context) error {
	return l.check(fnCtxSetCurrent, code(cu.SetCurrentContext(*(*cu.CUContext)(unsafe.Pointer(&c)))))
}

// Enter makes a context the calling thread's until Leave, which gives the thread back what it had: whoever calls
// gorgonia.org/cu on it has contexts of their own.
func (l *Library) Enter(c Context) error {
	return l.check(fnCtxSetCurrent, Code(C.om_enter(*(*C.CUcontext)(unsafe.Pointer(&c)))))
}

// Leave undoes an Enter that succeeded, on the same thread.
func (l *Library) Leave() { C.om_leave() }

// Synchronize waits for everything in the context.
func (l *Library) Synchronize() error { return l.check(fnCtxSynchronize, code(cu.Synchronize())) }

// MemInfo returns the free and the total bytes of the GPU's memory, other processes' use counted.
func (l *Library) MemInfo() (free, total int64, err error) {
	free, total, err = cu.MemInfo()
	return free, total, l.check(fnMemGetInfo, code(err))
}

// Alloc takes memory of the GPU.
func (l *Library) Alloc(bytes int64) (Pointer, error) {
	p, err := cu.MemAlloc(bytes)
	return Pointer(p), l.check(fnMemAlloc, code(err))
}

// Free gives memory of the GPU back. It waits for everything in the context.
func (l *Library) Free(p Pointer) error { return l.check(fnMemFree, code(cu.MemFree(cu.DevicePtr(p)))) }

// AllocHost takes page-locked memory of the host, which the GPU copies from and to by itself. It is not Go's: FreeHost
// gives it back.
func (l *Library) AllocHost(bytes int64) ([]byte, error) {
	var p unsafe.Pointer
	if err := l.check(
		fnMemHostAlloc, Code(C.cuMemHostAlloc(&p, C.size_t(bytes), C.CU_MEMHOSTALLOC_PORTABLE)),
	); err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(p), bytes), nil
}

// FreeHost gives back what AllocHost returned.
func (l *Library) FreeHost(mem []byte) error {
	return l.check(fnMemFreeHost, code(cu.MemFreeHost(unsafe.Pointer(unsafe.SliceData(mem)))))
}

// register has memory of the host page-locked.
func (l *Library) register(mem []byte, flags uint32) Code {
	return Code(C.om_register(chars(mem), C.size_t(len(mem)), C.uint(flags)))
}

// UnregisterHost undoes RegisterHost.
func (l *Library) UnregisterHost(mem []byte) error {
	return l.check(fnMemHostUnregister, Code(C.om_unregister(chars(mem))))
}

// stream is a stream as gorgonia.org/cu has it.
func (s *Stream) stream() *cu.Stream { return (*cu.Stream)(unsafe.Pointer(s)) }

// c is a stream as C has it.
func (s Stream) c() C.CUstream { return *(*C.CUstream)(unsafe.Pointer(&s)) }

// event is an event as gorgonia.org/cu has it.
func (e *Event) event() *cu.Event { return (*cu.Event)(unsafe.Pointer(e)) }

// NewStream returns a stream that does not wait for the default stream.
func (l *Library) NewStream() (Stream, error) {
	s, err := cu.MakeStream(cu.NonBlocking)
	return *(*Stream)(unsafe.Pointer(&s)), l.check(fnStreamCreate, code(err))
}

// DestroyStream ends a stream.
func (l *Library) DestroyStream(s Stream) error {
	return l.check(fnStreamDestroy, code(s.stream().Destroy()))
}

// SyncStream waits for a stream's work.
func (l *Library) SyncStream(s Stream) error {
	return l.check(fnStreamSynchronize, code(s.stream().Synchronize()))
}

// StreamDone reports whether a stream's work is done.
func (l *Library) StreamDone(s Stream) (bool, error) {
	code := code(s.stream().Query())
	if code == NotReady {
		return false, nil
	}
	return code == 0, l.check(fnStreamQuery, code)
}

// CopyIn gives a copy to the GPU's memory to a stream. Page-locked memory must stay as it is until the copy was done;
// other memory has been read when CopyIn returns.
func (l *Library) CopyIn(to Pointer, from []byte, s Stream) error {
	return l.check(fnMemcpyHtoDAsync, Code(C.om_copy_in(C.CUdeviceptr(to), chars(from), C.size_t(len(from)), s.c())))
}

// CopyOut gives a copy from the GPU's memory to a stream. Memory that is not page-locked has been written when CopyOut
// returns.
func (l *Library) CopyOut(to []byte, from Pointer, s Stream) error {
	return l.check(fnMemcpyDtoHAsync, Code(C.om_copy_out(chars(to), C.CUdeviceptr(from), C.size_t(len(to)), s.c())))
}

// Fill sets bytes of the GPU's memory.
func (l *Library) Fill(to Pointer, with byte, bytes int64, s Stream) error {
	return l.check(fnMemsetD8Async, code(cu.MemsetD8Async(cu.DevicePtr(to), with, bytes, *s.stream())))
}

// NewEvent returns an event without timing, whose waiters sleep.
func (l *Library) NewEvent() (Event, error) {
	e, err := cu.MakeEvent(cu.BlockingSyncEvent | cu.DisableTiming)
	return *(*Event)(unsafe.Pointer(&e)), l.check(fnEventCreate, code(err))
}

// DestroyEvent ends an event.
func (l *Library) DestroyEvent(e Event) error {
	return l.check(fnEventDestroy, code(cu.DestroyEvent(e.event())))
}

// RecordEvent puts an event behind the stream's work so far.
func (l *Library) RecordEvent(e Event, s Stream) error {
	return l.check(fnEventRecord, code(e.event().Record(*s.stream())))
}

// WaitEvent makes a stream's further work wait for an event.
func (l *Library) WaitEvent(s Stream, e Event) error {
	return l.check(fnStreamWaitEvent, code(s.stream().Wait(*e.event(), 0)))
}

// EventDone reports whether an event was reached.
func (l *Library) EventDone(e Event) (bool, error) {
	code := code(e.event().Query())
	if code == NotReady {
		return false, nil
	}
	return code == 0, l.check(fnEventQuery, code)
}

// SyncEvent waits for an event.
func (l *Library) SyncEvent(e Event) error {
	return l.check(fnEventSynchronize, code(e.event().Synchronize()))
}

// BeginKeeping has a stream keep the launches that it is given, instead of running them. Nothing else may be asked of the
// stream until EndKeeping.
func (l *Library) BeginKeeping(s Stream) error {
	return l.check(fnStreamBeginCapture, Code(C.cuStreamBeginCapture(s.c(), C.CU_STREAM_CAPTURE_MODE_RELAXED)))
}

// EndKeeping returns the launches that a stream kept, ready to be given out. They are the caller's to drop.
func (l *Library) EndKeeping(s Stream) (Kept, error) {
	var graph C.CUgraph
	if err := l.check(fnStreamEndCapture, Code(C.cuStreamEndCapture(s.c(), &graph))); err != nil {
		return 0, err
	}
	var exec C.CUgraphExec
	err := l.check(fnGraphInstantiate, Code(C.cuGraphInstantiateWithFlags(&exec, graph, 0)))
	err = errors.Join(err, l.check(fnGraphDestroy, Code(C.cuGraphDestroy(graph))))
	return *(*Kept)(unsafe.Pointer(&exec)), err
}

// c is what was kept as C has it.
func (k Kept) c() C.CUgraphExec { return *(*C.CUgraphExec)(unsafe.Pointer(&k)) }

// LaunchKept gives launches that were kept to a stream.
func (l *Library) LaunchKept(k Kept, s Stream) error {
	return l.check(fnGraphLaunch, Code(C.cuGraphLaunch(k.c(), s.c())))
}

// DropKept gives back what was kept.
func (l *Library) DropKept(k Kept) error {
	return l.check(fnGraphExecDestroy, Code(C.cuGraphExecDestroy(k.c())))
}

// Links reports whether the driver gives out what it assembles, for which there is no call here.
func (*Library) Links() bool { return false }

// Assemble is not there.
func (*Library) Assemble([]byte) ([]byte, error) { return nil, errors.ErrUnsupported }

// LoadModule has the GPU of the context take PTX, which the driver compiles, or what was assembled before. The error has what the
// driver's compiler says.
func (l *Library) LoadModule(ptx []byte) (Module, error) {
	log := make([]byte, logBytes)
	var pin goruntime.Pinner // the driver gets the log's address in a list
	pin.Pin(&log[0])
	defer pin.Unpin()
	m, failed := cu.LoadDataEx(string(ptx), &cu.JITErrorLogBuffer{Buffer: log})
	err := l.check(fnModuleLoadDataEx, code(failed))
	if said := C.GoString((*C.char)(unsafe.Pointer(&log[0]))); err != nil && said != "" {
		err.(*Error).Text += ": " + said
	}
	return *(*Module)(unsafe.Pointer(&m)), err
}

// UnloadModule gives a module back.
func (l *Library) UnloadModule(m Module) error {
	return l.check(fnModuleUnload, code((*cu.Module)(unsafe.Pointer(&m)).Unload()))
}

// Function returns a kernel of a module.
func (l *Library) Function(m Module, name string) (Function, error) {
	f, err := (*cu.Module)(unsafe.Pointer(&m)).Function(name)
	return *(*Function)(unsafe.Pointer(&f)), l.check(fnModuleGetFunction, code(err))
}

// A TensorRoom is where nothing is described.
type TensorRoom struct{}

// DescribesTensors reports whether there is DescribeTensor, for which there is no call here.
func (*Library) DescribesTensors() bool { return false }

// DescribeTensor fails.
func (*Library) DescribeTensor(Tensor, *TensorRoom) ([]byte, error) {
	return nil, errors.New("BUG: tensors are not described by gorgonia.org/cu")
}

// SharedLimit allows a kernel more dynamic shared memory than the 48 KiB that all have.
func (l *Library) SharedLimit(f Function, bytes int) error {
	return l.check(fnFuncSetAttribute, Code(C.cuFuncSetAttribute(*(*C.CUfunction)(unsafe.Pointer(&f)),
		C.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, C.int(bytes))))
}

// buffers are for C what a launch's sizes are, where they need no memory of their own.
type buffers struct {
	blocks, threads [3]C.uint
}

// Launch gives a kernel to a stream. What gorgonia.org/cu has for it takes parameters of eight bytes each, and kernels
// here have structs among them.
func (l *Library) Launch(f Function, g Grid, p *Parameters, s Stream) error {
	if l.Simulated() {
		l.tell(p)
	}
	for i := range p.blocks {
		p.blocks[i], p.threads[i] = C.uint(g.Blocks[i]), C.uint(g.Threads[i])
	}
	return l.check(fnLaunchKernel, Code(C.om_launch(*(*C.CUfunction)(unsafe.Pointer(&f)), &p.blocks[0], &p.threads[0],
		C.uint(g.SharedBytes), s.c(), chars(p.Packed),
		(*C.int)(unsafe.Pointer(unsafe.SliceData(p.Offsets))), C.int(len(p.Offsets)))))
}

// tell gives the simulated driver what a launch's pointers stand for and where its parameters are.
func (l *Library) tell(p *Parameters) {
	for i := 0; i+1 < len(p.Spans); i += 2 {
		C.simcuSubAlloc(C.uint64_t(p.Spans[i]), C.size_t(p.Spans[i+1]))
	}
	if len(p.Offsets) > 0 {
		C.simcuOffsets((*C.int)(unsafe.Pointer(&p.Offsets[0])), C.int(len(p.Offsets)), C.size_t(len(p.Packed)))
	}
}
