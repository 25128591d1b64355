// Package driver is the calls of NVIDIA's driver that the CUDA device makes, found at run time: without cgo, without
// headers, and without a driver where programs do not ask for one.
//
// It knows handles and addresses. What they are for is package cuda's. Every call but those of a [Library] that ask for
// devices needs a current context on the calling thread, which a goroutine must be locked to.
//
//	lib, err := driver.Open("")
//	n, err := lib.DeviceCount()
//
// With the build tag nocuda there is no provider, and [Open] says so; programs are then linked statically.
package driver

import (
	"errors"
	"fmt"
	goruntime "runtime"
	"unsafe"
)

// A Code is what a call of the driver returned.
type Code int32

// Codes that callers tell apart. All but the first group leave a context unusable.
const (
	InvalidValue     Code = 1
	OutOfMemory      Code = 2
	NoDevice         Code = 100
	InvalidDevice    Code = 101
	NoBinary         Code = 209
	InvalidPTX       Code = 218
	UnsupportedPTX   Code = 222
	OperatingSystem  Code = 304
	NotReady         Code = 600
	NotPermitted     Code = 800
	DriverMismatch   Code = 803
	IllegalAddress   Code = 700
	LaunchTimeout    Code = 702
	Assert           Code = 710
	HardwareStack    Code = 714
	IllegalInstr     Code = 715
	MisalignedAddr   Code = 716
	InvalidAddrSpace Code = 717
	InvalidPC        Code = 718
	LaunchFailed     Code = 719
	Unavailable      Code = 46
	UncorrectableECC Code = 214
)

// Sticky reports whether no further call can succeed in the context.
func (c Code) Sticky() bool {
	switch c {
	case IllegalAddress, LaunchTimeout, Assert, HardwareStack, IllegalInstr, MisalignedAddr, InvalidAddrSpace, InvalidPC,
		LaunchFailed, Unavailable, UncorrectableECC:
		return true
	}
	return false
}

// An Error is a call of the driver that failed.
type Error struct {
	Call string
	Code Code
	// Text is what the driver says of the code, or its compiler of the PTX.
	Text string
}

// Error names the call.
func (e *Error) Error() string { return fmt.Sprintf("%s: error %d: %s", e.Call, e.Code, e.Text) }

// Is reports whether the target is the code.
func (e *Error) Is(target error) bool {
	code, ok := target.(Code)
	return ok && code == e.Code
}

// Error lets a code be a target of errors.Is.
func (c Code) Error() string { return fmt.Sprintf("CUDA error %d", int32(c)) }

// ErrAbsent is wrapped where there is no driver to open.
var ErrAbsent = errors.New("no NVIDIA driver")

// A fn is a call of the driver.
type fn uint8

const (
	fnInit fn = iota
	fnDriverGetVersion
	fnDeviceGetCount
	fnDeviceGet
	fnDeviceGetName
	fnDeviceTotalMem
	fnDeviceGetAttribute
	fnPrimaryCtxRetain
	fnPrimaryCtxRelease
	fnCtxSetCurrent
	fnCtxSynchronize
	fnMemGetInfo
	fnMemAlloc
	fnMemFree
	fnMemHostAlloc
	fnMemFreeHost
	fnMemcpyHtoDAsync
	fnMemcpyDtoHAsync
	fnMemsetD8Async
	fnStreamCreate
	fnStreamDestroy
	fnStreamSynchronize
	fnStreamQuery
	fnStreamWaitEvent
	fnEventCreate
	fnEventDestroy
	fnEventRecord
	fnEventQuery
	fnEventSynchronize
	fnModuleLoadDataEx
	fnModuleUnload
	fnModuleGetFunction
	fnFuncSetAttribute
	fnLaunchKernel
	fnGetErrorName
	fnGetErrorString
	// Those below are the simulated driver's and may be absent.
	fnSimSubAlloc
	fnSimOffsets
	fnCount
)

// names are the symbols. Where a call has versions, the one without a number is an old layout that must not be used.
var names = [fnCount]string{
	"cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceTotalMem_v2",
	"cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2", "cuCtxSetCurrent",
	"cuCtxSynchronize", "cuMemGetInfo_v2", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemHostAlloc", "cuMemFreeHost",
	"cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemsetD8Async", "cuStreamCreate", "cuStreamDestroy_v2",
	"cuStreamSynchronize", "cuStreamQuery", "cuStreamWaitEvent", "cuEventCreate", "cuEventDestroy_v2", "cuEventRecord",
	"cuEventQuery", "cuEventSynchronize", "cuModuleLoadDataEx", "cuModuleUnload", "cuModuleGetFunction",
	"cuFuncSetAttribute", "cuLaunchKernel", "cuGetErrorName", "cuGetErrorString", "simcuSubAlloc", "simcuOffsets",
}

// A Library is an opened driver.
type Library struct {
	provider
	path string
}

// Open opens the driver at a path, or for "" the system's, and initialises it. The library stays open: drivers cannot be
// closed.
func Open(path string) (*Library, error) {
	l := &Library{}
	if err := l.open(path); err != nil {
		return nil, err
	}
	return l, l.check(fnInit, l.call(fnInit, 0))
}

// Path returns what was opened.
func (l *Library) Path() string { return l.path }

// Simulated reports whether the driver is the simulator of package cuda/sim.
func (l *Library) Simulated() bool { return l.has(fnSimSubAlloc) }

// check turns what a call returned into an error.
func (l *Library) check(f fn, code Code) error {
	if code == 0 {
		return nil
	}
	return &Error{Call: names[f], Code: code, Text: l.text(code)}
}

// text returns what the driver says of a code.
func (l *Library) text(code Code) string {
	var name, text *byte
	l.call(fnGetErrorName, uintptr(code), uintptr(unsafe.Pointer(&name)))
	l.call(fnGetErrorString, uintptr(code), uintptr(unsafe.Pointer(&text)))
	switch n, t := goString(name), goString(text); {
	case n == "" && t == "":
		return "unknown to the driver"
	case n == "" || n == t:
		return t
	default:
		return n + ": " + t
	}
}

// goString copies a C string.
func goString(p *byte) string {
	if p == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}

// Version returns the release of CUDA that the driver is of, as in 12040 for 12.4.
func (l *Library) Version() (int, error) {
	var v int32
	err := l.check(fnDriverGetVersion, l.call(fnDriverGetVersion, uintptr(unsafe.Pointer(&v))))
	return int(v), err
}

// DeviceCount returns how many GPUs the process may use.
func (l *Library) DeviceCount() (int, error) {
	var n int32
	err := l.check(fnDeviceGetCount, l.call(fnDeviceGetCount, uintptr(unsafe.Pointer(&n))))
	return int(n), err
}

// A DeviceID is a GPU.
type DeviceID int32

// Device returns a GPU by its number.
func (l *Library) Device(ordinal int) (DeviceID, error) {
	var d DeviceID
	err := l.check(fnDeviceGet, l.call(fnDeviceGet, uintptr(unsafe.Pointer(&d)), uintptr(ordinal)))
	return d, err
}

// DeviceName returns what the GPU is called.
func (l *Library) DeviceName(d DeviceID) (string, error) {
	var name [256]byte
	err := l.check(fnDeviceGetName,
		l.call(fnDeviceGetName, uintptr(unsafe.Pointer(&name[0])), uintptr(len(name)), uintptr(d)))
	name[len(name)-1] = 0
	return goString(&name[0]), err
}

// DeviceMemory returns the bytes of memory that a GPU has.
func (l *Library) DeviceMemory(d DeviceID) (int64, error) {
	var n uint64
	err := l.check(fnDeviceTotalMem, l.call(fnDeviceTotalMem, uintptr(unsafe.Pointer(&n)), uintptr(d)))
	return int64(n), err
}

// An Attribute is a number that describes a GPU.
type Attribute int

// The attributes that are asked for.
const (
	Multiprocessors        Attribute = 16
	ComputeCapabilityMajor Attribute = 75
	ComputeCapabilityMinor Attribute = 76
)

// Attribute returns a number of a GPU.
func (l *Library) Attribute(d DeviceID, a Attribute) (int, error) {
	var v int32
	err := l.check(fnDeviceGetAttribute,
		l.call(fnDeviceGetAttribute, uintptr(unsafe.Pointer(&v)), uintptr(a), uintptr(d)))
	return int(v), err
}

// Capability returns the compute capability of a GPU, as in 86 for 8.6.
func (l *Library) Capability(d DeviceID) (int, error) {
	major, err := l.Attribute(d, ComputeCapabilityMajor)
	if err != nil {
		return 0, err
	}
	minor, err := l.Attribute(d, ComputeCapabilityMinor)
	return major*10 + minor, err
}

// A Context is what the driver keeps for a process on a GPU.
type Context uintptr

// RetainPrimary returns the context that all of the process share.
func (l *Library) RetainPrimary(d DeviceID) (Context, error) {
	var c Context
	err := l.check(fnPrimaryCtxRetain, l.call(fnPrimaryCtxRetain, uintptr(unsafe.Pointer(&c)), uintptr(d)))
	return c, err
}

// ReleasePrimary gives the shared context back.
func (l *Library) ReleasePrimary(d DeviceID) error {
	return l.check(fnPrimaryCtxRelease, l.call(fnPrimaryCtxRelease, uintptr(d)))
}

// SetCurrent makes a context the calling thread's; 0 leaves it without one.
func (l *Library) SetCurrent(c Context) error {
	return l.check(fnCtxSetCurrent, l.call(fnCtxSetCurrent, uintptr(c)))
}

// Synchronize waits for everything in the context.
func (l *Library) Synchronize() error { return l.check(fnCtxSynchronize, l.call(fnCtxSynchronize)) }

// MemInfo returns the free and the total bytes of the GPU's memory, other processes' use counted.
func (l *Library) MemInfo() (free, total int64, err error) {
	var f, t uint64
	err = l.check(fnMemGetInfo, l.call(fnMemGetInfo, uintptr(unsafe.Pointer(&f)), uintptr(unsafe.Pointer(&t))))
	return int64(f), int64(t), err
}

// A Pointer is an address of the GPU's memory.
type Pointer uint64

// Alloc takes memory of the GPU.
func (l *Library) Alloc(bytes int64) (Pointer, error) {
	var p Pointer
	err := l.check(fnMemAlloc, l.call(fnMemAlloc, uintptr(unsafe.Pointer(&p)), uintptr(bytes)))
	return p, err
}

// Free gives memory of the GPU back. It waits for everything in the context.
func (l *Library) Free(p Pointer) error { return l.check(fnMemFree, l.call(fnMemFree, uintptr(p))) }

// AllocHost takes page-locked memory of the host, which the GPU copies from and to by itself. It is not Go's: FreeHost
// gives it back.
func (l *Library) AllocHost(bytes int64) ([]byte, error) {
	var p *byte
	const portable = 1
	err := l.check(fnMemHostAlloc, l.call(fnMemHostAlloc, uintptr(unsafe.Pointer(&p)), uintptr(bytes), portable))
	if err != nil {
		return nil, err
	}
	return unsafe.Slice(p, bytes), nil
}

// FreeHost gives back what AllocHost returned.
func (l *Library) FreeHost(mem []byte) error {
	return l.check(fnMemFreeHost, l.call(fnMemFreeHost, uintptr(unsafe.Pointer(unsafe.SliceData(mem)))))
}

// A Stream is a queue of work.
type Stream uintptr

// NewStream returns a stream that does not wait for the default stream.
func (l *Library) NewStream() (Stream, error) {
	var s Stream
	const nonBlocking = 1
	err := l.check(fnStreamCreate, l.call(fnStreamCreate, uintptr(unsafe.Pointer(&s)), nonBlocking))
	return s, err
}

// DestroyStream ends a stream.
func (l *Library) DestroyStream(s Stream) error {
	return l.check(fnStreamDestroy, l.call(fnStreamDestroy, uintptr(s)))
}

// SyncStream waits for a stream's work.
func (l *Library) SyncStream(s Stream) error {
	return l.check(fnStreamSynchronize, l.call(fnStreamSynchronize, uintptr(s)))
}

// StreamDone reports whether a stream's work is done.
func (l *Library) StreamDone(s Stream) (bool, error) {
	code := l.call(fnStreamQuery, uintptr(s))
	if code == NotReady {
		return false, nil
	}
	return code == 0, l.check(fnStreamQuery, code)
}

// CopyIn gives a copy to the GPU's memory to a stream. Page-locked memory must stay as it is until the copy was done;
// other memory has been read when CopyIn returns.
func (l *Library) CopyIn(to Pointer, from []byte, s Stream) error {
	code := l.call(fnMemcpyHtoDAsync, uintptr(to), uintptr(unsafe.Pointer(unsafe.SliceData(from))), uintptr(len(from)), uintptr(s))
	goruntime.KeepAlive(from)
	return l.check(fnMemcpyHtoDAsync, code)
}

// CopyOut gives a copy from the GPU's memory to a stream. Memory that is not page-locked has been written when CopyOut
// returns.
func (l *Library) CopyOut(to []byte, from Pointer, s Stream) error {
	code := l.call(fnMemcpyDtoHAsync, uintptr(unsafe.Pointer(unsafe.SliceData(to))), uintptr(from), uintptr(len(to)), uintptr(s))
	goruntime.KeepAlive(to)
	return l.check(fnMemcpyDtoHAsync, code)
}

// Fill sets bytes of the GPU's memory.
func (l *Library) Fill(to Pointer, with byte, bytes int64, s Stream) error {
	return l.check(fnMemsetD8Async, l.call(fnMemsetD8Async, uintptr(to), uintptr(with), uintptr(bytes), uintptr(s)))
}

// An Event is a point in a stream.
type Event uintptr

// NewEvent returns an event without timing, whose waiters sleep.
func (l *Library) NewEvent() (Event, error) {
	var e Event
	const blockingSync, disableTiming = 1, 2
	err := l.check(fnEventCreate, l.call(fnEventCreate, uintptr(unsafe.Pointer(&e)), blockingSync|disableTiming))
	return e, err
}

// DestroyEvent ends an event.
func (l *Library) DestroyEvent(e Event) error {
	return l.check(fnEventDestroy, l.call(fnEventDestroy, uintptr(e)))
}

// RecordEvent puts an event behind the stream's work so far.
func (l *Library) RecordEvent(e Event, s Stream) error {
	return l.check(fnEventRecord, l.call(fnEventRecord, uintptr(e), uintptr(s)))
}

// WaitEvent makes a stream's further work wait for an event.
func (l *Library) WaitEvent(s Stream, e Event) error {
	return l.check(fnStreamWaitEvent, l.call(fnStreamWaitEvent, uintptr(s), uintptr(e), 0))
}

// EventDone reports whether an event was reached.
func (l *Library) EventDone(e Event) (bool, error) {
	code := l.call(fnEventQuery, uintptr(e))
	if code == NotReady {
		return false, nil
	}
	return code == 0, l.check(fnEventQuery, code)
}

// SyncEvent waits for an event.
func (l *Library) SyncEvent(e Event) error {
	return l.check(fnEventSynchronize, l.call(fnEventSynchronize, uintptr(e)))
}
