// Package driver binds the functions of NVIDIA's driver that package cuda calls. The driver is loaded at run time,
// without cgo or headers, and only if a program asks for it.
//
// It knows handles and addresses, and nothing of ops. All calls, except a [Library]'s that list devices, need a current
// context on the calling thread, so the goroutine must be locked to its thread.
//
//	lib, err := driver.Open("")
//	n, err := lib.DeviceCount()
//
// With the build tag nocuda [Open] returns an error, and programs are linked statically. With the build tag gorgonia
// (Linux only; needs cgo and the header cuda.h) gorgonia.org/cu makes the calls; the driver is still loaded at run
// time.
package driver

import (
	"errors"
	"fmt"
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
	NoCompiler       Code = 221 // CUDA_ERROR_JIT_COMPILER_NOT_FOUND
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

// OutOfMemory reports whether memory was short, for adapt.IsOutOfMemory.
func (e *Error) OutOfMemory() bool { return e.Code == OutOfMemory }

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
	fnMemHostRegister
	fnMemHostUnregister
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
	// Those below may be absent: they keep work to be given out again.
	fnStreamBeginCapture
	fnStreamEndCapture
	fnGraphInstantiate
	fnGraphLaunch
	fnGraphExecDestroy
	fnGraphDestroy
	// Those below are the simulated driver's.
	fnLinkCreate // and those after it
	fnLinkAddData
	fnLinkComplete
	fnLinkDestroy
	fnTensorMapEncodeTiled
	fnSimSubAlloc
	fnSimOffsets
	fnCount
)

// names are the symbols. Where a call has versions, the one without a number is an old layout that must not be used.
var names = [fnCount]string{
	"cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceTotalMem_v2",
	"cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2", "cuCtxSetCurrent",
	"cuCtxSynchronize", "cuMemGetInfo_v2", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemHostAlloc", "cuMemFreeHost",
	"cuMemHostRegister_v2", "cuMemHostUnregister", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemsetD8Async",
	"cuStreamCreate", "cuStreamDestroy_v2", "cuStreamSynchronize", "cuStreamQuery", "cuStreamWaitEvent",
	"cuEventCreate", "cuEventDestroy_v2", "cuEventRecord", "cuEventQuery", "cuEventSynchronize", "cuModuleLoadDataEx",
	"cuModuleUnload", "cuModuleGetFunction", "cuFuncSetAttribute", "cuLaunchKernel", "cuGetErrorName",
	"cuGetErrorString", "cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphLaunch",
	"cuGraphExecDestroy", "cuGraphDestroy", "cuLinkCreate_v2", "cuLinkAddData_v2", "cuLinkComplete", "cuLinkDestroy",
	"cuTensorMapEncodeTiled", "simcuSubAlloc", "simcuOffsets",
}

// fnOptional is the first of the calls that a driver may lack.
const fnOptional = fnStreamBeginCapture

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
	return l, l.check(fnInit, l.init())
}

// Path returns what was opened.
func (l *Library) Path() string { return l.path }

// Simulated reports whether the driver is the simulator of package cuda/sim.
func (l *Library) Simulated() bool { return l.has(fnSimSubAlloc) }

// Keeps reports whether the driver can keep work: whether there are BeginKeeping and those around it.
func (l *Library) Keeps() bool {
	for f := fnOptional; f < fnLinkCreate; f++ {
		if !l.has(f) {
			return false
		}
	}
	return true
}

// check turns what a call returned into an error.
func (l *Library) check(f fn, code Code) error {
	if code == 0 {
		return nil
	}
	return &Error{Call: names[f], Code: code, Text: l.text(code)}
}

// describe joins the name of a code with what the driver says of it.
func describe(name, text string) string {
	switch {
	case name == "" && text == "":
		return "unknown to the driver"
	case name == "" || name == text:
		return text
	default:
		return name + ": " + text
	}
}

// A DeviceID is a GPU.
type DeviceID int32

// An Attribute is a number that describes a GPU.
type Attribute int

// The attributes that are asked for.
const (
	ClockKHz               Attribute = 13
	Multiprocessors        Attribute = 16
	PCIBus                 Attribute = 33
	PCIDevice              Attribute = 34
	MemoryClockKHz         Attribute = 36
	MemoryBits             Attribute = 37
	PCIDomain              Attribute = 50
	ComputeCapabilityMajor Attribute = 75
	ComputeCapabilityMinor Attribute = 76
)

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

// A Pointer is an address of the GPU's memory.
type Pointer uint64

// RegisterHost has memory of the host page-locked that others took, which must not be given back before UnregisterHost.
// Who may only read it can register it too, where the driver knows how.
func (l *Library) RegisterHost(mem []byte) error {
	const portable, readOnly = 1, 8
	code := l.register(mem, portable)
	if code != 0 && !code.Sticky() && l.register(mem, portable|readOnly) == 0 {
		return nil
	}
	return l.check(fnMemHostRegister, code)
}

// A Stream is a queue of work.
type Stream uintptr

// An Event is a point in a stream.
type Event uintptr

// Kept is launches that a stream kept.
type Kept uintptr

// A Module is loaded PTX.
type Module uintptr

// A Function is a kernel in a module.
type Function uintptr

// logBytes is how much of what the driver's compiler says is kept.
const logBytes = 4096

// A Grid is the size of a launch.
type Grid struct {
	Blocks, Threads [3]uint32
	// SharedBytes is the dynamic shared memory of a block.
	SharedBytes uint32
}

// Parameters are those of a launch, packed as the compiler lays them out. They can be used again once it was given out.
type Parameters struct {
	Packed []byte
	// Offsets are where the parameters begin.
	Offsets []int32
	// Spans, address and bytes in turn, are what the pointers among them stand for, for the simulated driver.
	Spans []uint64

	buffers
}

// TensorMapBytes is the size of what DescribeTensor makes, a kernel's parameter at a multiple of 64 bytes.
const TensorMapBytes = 128

// A TensorType is what the elements of a tensor are.
type TensorType uint32

// The types that are described.
const (
	TensorFloat16  TensorType = 6
	TensorBFloat16 TensorType = 9
)

// A Tensor is lines of terms in the GPU's memory, Pitch bytes apart, of which boxes are copied: so many terms of so many lines. In
// shared memory sixteens of a box's bytes are swizzled by eight lines of 128 bytes; what is not there is zero.
type Tensor struct {
	Type                TensorType
	Address             Pointer
	Terms, Lines, Pitch uint64
	BoxTerms, BoxLines  uint32
}

// Address returns where a GPU is on the PCI bus, as the host writes it, "" where the driver does not say.
func (l *Library) Address(id DeviceID) string {
	var at [3]int
	for i, a := range []Attribute{PCIDomain, PCIBus, PCIDevice} {
		var err error
		if at[i], err = l.Attribute(id, a); err != nil {
			return ""
		}
	}
	return fmt.Sprintf("%04x:%02x:%02x.0", at[0], at[1], at[2])
}
