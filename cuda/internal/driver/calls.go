//go:build !(gorgonia && linux && (amd64 || arm64)) || nocuda

package driver

import (
	"errors"
	goruntime "runtime"
	"unsafe"
)

// init initialises the driver.
func (l *Library) init() Code { return l.call(fnInit, 0) }

// text returns what the driver says of a code.
func (l *Library) text(code Code) string {
	var name, text *byte
	l.call(fnGetErrorName, uintptr(code), uintptr(unsafe.Pointer(&name)))
	l.call(fnGetErrorString, uintptr(code), uintptr(unsafe.Pointer(&text)))
	return describe(goString(name), goString(text))
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

// Attribute returns a number of a GPU.
func (l *Library) Attribute(d DeviceID, a Attribute) (int, error) {
	var v int32
	err := l.check(fnDeviceGetAttribute,
		l.call(fnDeviceGetAttribute, uintptr(unsafe.Pointer(&v)), uintptr(a), uintptr(d)))
	return int(v), err
}

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

// Enter makes a context the calling thread's until Leave, and longer where nobody else makes calls of the driver.
func (l *Library) Enter(c Context) error { return l.SetCurrent(c) }

// Leave undoes an Enter that succeeded, on the same thread.
func (*Library) Leave() {}

// Synchronize waits for everything in the context.
func (l *Library) Synchronize() error { return l.check(fnCtxSynchronize, l.call(fnCtxSynchronize)) }

// MemInfo returns the free and the total bytes of the GPU's memory, other processes' use counted.
func (l *Library) MemInfo() (free, total int64, err error) {
	var f, t uint64
	err = l.check(fnMemGetInfo, l.call(fnMemGetInfo, uintptr(unsafe.Pointer(&f)), uintptr(unsafe.Pointer(&t))))
	return int64(f), int64(t), err
}

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

// register has memory of the host page-locked.
func (l *Library) register(mem []byte, flags uint32) Code {
	return l.call(fnMemHostRegister, uintptr(unsafe.Pointer(unsafe.SliceData(mem))), uintptr(len(mem)), uintptr(flags))
}

// UnregisterHost undoes RegisterHost.
func (l *Library) UnregisterHost(mem []byte) error {
	return l.check(fnMemHostUnregister,
		l.call(fnMemHostUnregister, uintptr(unsafe.Pointer(unsafe.SliceData(mem)))))
}

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
	code := l.call(
		fnMemcpyHtoDAsync, uintptr(to), uintptr(unsafe.Pointer(unsafe.SliceData(from))), uintptr(len(from)), uintptr(s),
	)
	goruntime.KeepAlive(from)
	return l.check(fnMemcpyHtoDAsync, code)
}

// CopyOut gives a copy from the GPU's memory to a stream. Memory that is not page-locked has been written when CopyOut
// returns.
func (l *Library) CopyOut(to []byte, from Pointer, s Stream) error {
	code := l.call(
		fnMemcpyDtoHAsync, uintptr(unsafe.Pointer(unsafe.SliceData(to))), uintptr(from), uintptr(len(to)), uintptr(s),
	)
	goruntime.KeepAlive(to)
	return l.check(fnMemcpyDtoHAsync, code)
}

// Fill sets bytes of the GPU's memory.
func (l *Library) Fill(to Pointer, with byte, bytes int64, s Stream) error {
	return l.check(fnMemsetD8Async, l.call(fnMemsetD8Async, uintptr(to), uintptr(with), uintptr(bytes), uintptr(s)))
}

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

// relaxed has a stream keep work whatever other threads do meanwhile.
const relaxed = 2

// BeginKeeping has a stream keep the launches that it is given, instead of running them. Nothing else may be asked of the
// stream until EndKeeping.
func (l *Library) BeginKeeping(s Stream) error {
	return l.check(fnStreamBeginCapture, l.call(fnStreamBeginCapture, uintptr(s), relaxed))
}

// EndKeeping returns the launches that a stream kept, ready to be given out. They are the caller's to drop.
func (l *Library) EndKeeping(s Stream) (Kept, error) {
	var graph uintptr
	code := l.call(fnStreamEndCapture, uintptr(s), uintptr(unsafe.Pointer(&graph)))
	if err := l.check(fnStreamEndCapture, code); err != nil {
		return 0, err
	}
	var k Kept
	err := l.check(fnGraphInstantiate, l.call(fnGraphInstantiate, uintptr(unsafe.Pointer(&k)), graph, 0))
	return k, errors.Join(err, l.check(fnGraphDestroy, l.call(fnGraphDestroy, graph)))
}

// LaunchKept gives launches that were kept to a stream.
func (l *Library) LaunchKept(k Kept, s Stream) error {
	return l.check(fnGraphLaunch, l.call(fnGraphLaunch, uintptr(k), uintptr(s)))
}

// DropKept gives back what was kept.
func (l *Library) DropKept(k Kept) error {
	return l.check(fnGraphExecDestroy, l.call(fnGraphExecDestroy, uintptr(k)))
}

// Links reports whether the driver gives out what it assembles: whether there is Assemble.
func (l *Library) Links() bool {
	return l.has(fnLinkCreate) && l.has(fnLinkAddData) && l.has(fnLinkComplete) && l.has(fnLinkDestroy)
}

// Assemble compiles PTX for the GPU of the context, and returns what LoadModule takes without compiling.
func (l *Library) Assemble(ptx []byte) ([]byte, error) {
	text := append(append(make([]byte, 0, len(ptx)+1), ptx...), 0)
	var link uintptr
	if err := l.check(fnLinkCreate, l.call(fnLinkCreate, 0, 0, 0, uintptr(unsafe.Pointer(&link)))); err != nil {
		return nil, err
	}
	const isPTX = 1
	name := []byte("kernels\x00")
	err := l.check(fnLinkAddData, l.call(fnLinkAddData, link, isPTX, uintptr(unsafe.Pointer(&text[0])), uintptr(len(text)),
		uintptr(unsafe.Pointer(&name[0])), 0, 0, 0))
	var made *byte
	var bytes uintptr
	if err == nil {
		err = l.check(fnLinkComplete, l.call(fnLinkComplete, link, uintptr(unsafe.Pointer(&made)), uintptr(unsafe.Pointer(&bytes))))
	}
	var cubin []byte
	if err == nil && made != nil { // it is the link's
		cubin = append(cubin, unsafe.Slice(made, bytes)...)
	}
	return cubin, errors.Join(err, l.check(fnLinkDestroy, l.call(fnLinkDestroy, link)))
}

// LoadModule has the GPU of the context take PTX, which the driver compiles, or what Assemble returned. The error has what the
// driver's compiler says.
func (l *Library) LoadModule(ptx []byte) (Module, error) {
	text := append(append(make([]byte, 0, len(ptx)+1), ptx...), 0)
	log := make([]byte, logBytes)
	var pin goruntime.Pinner // the driver gets the log's address in a list
	pin.Pin(&log[0])
	defer pin.Unpin()
	const errorLog, errorLogBytes = 5, 6
	options := [2]int32{errorLog, errorLogBytes}
	values := [2]uintptr{uintptr(unsafe.Pointer(&log[0])), logBytes}
	var m Module
	code := l.call(fnModuleLoadDataEx, uintptr(unsafe.Pointer(&m)), uintptr(unsafe.Pointer(&text[0])), uintptr(
		len(options),
	),
		uintptr(unsafe.Pointer(&options[0])), uintptr(unsafe.Pointer(&values[0])))
	err := l.check(fnModuleLoadDataEx, code)
	if said := goString(&log[0]); err != nil && said != "" {
		err.(*Error).Text += ": " + said
	}
	return m, err
}

// UnloadModule gives a module back.
func (l *Library) UnloadModule(m Module) error {
	return l.check(fnModuleUnload, l.call(fnModuleUnload, uintptr(m)))
}

// Function returns a kernel of a module.
func (l *Library) Function(m Module, name string) (Function, error) {
	text := append([]byte(name), 0)
	var f Function
	err := l.check(fnModuleGetFunction,
		l.call(fnModuleGetFunction, uintptr(unsafe.Pointer(&f)), uintptr(m), uintptr(unsafe.Pointer(&text[0]))))
	return f, err
}

// A TensorRoom is where a description is made, and what the driver reads for it.
type TensorRoom struct {
	bytes        [TensorMapBytes + 64]byte
	sizes, pitch [2]uint64
	box, steps   [2]uint32
}

// DescribesTensors reports whether the driver has DescribeTensor.
func (l *Library) DescribesTensors() bool { return l.has(fnTensorMapEncodeTiled) }

// DescribeTensor returns what a kernel takes to have a GPU of compute capability 9.0 copy boxes of a tensor. It lies in room.
func (l *Library) DescribeTensor(t Tensor, room *TensorRoom) ([]byte, error) {
	const rank, plain, by128Bytes, read128Bytes, zeros = 2, 0, 3, 2, 0
	at := -uintptr(unsafe.Pointer(&room.bytes[0])) % 64
	room.sizes, room.pitch[0] = [2]uint64{t.Terms, t.Lines}, t.Pitch
	room.box, room.steps = [2]uint32{t.BoxTerms, t.BoxLines}, [2]uint32{1, 1}
	code := l.call(fnTensorMapEncodeTiled, uintptr(unsafe.Pointer(&room.bytes[at])), uintptr(t.Type), rank,
		uintptr(t.Address),
		uintptr(unsafe.Pointer(&room.sizes[0])), uintptr(unsafe.Pointer(&room.pitch[0])),
		uintptr(unsafe.Pointer(&room.box[0])),
		uintptr(unsafe.Pointer(&room.steps[0])), plain, by128Bytes, read128Bytes, zeros)
	return room.bytes[at : at+TensorMapBytes], l.check(fnTensorMapEncodeTiled, code)
}

// SharedLimit allows a kernel more dynamic shared memory than the 48 KiB that all have.
func (l *Library) SharedLimit(f Function, bytes int) error {
	const maxDynamicShared = 8
	return l.check(fnFuncSetAttribute, l.call(fnFuncSetAttribute, uintptr(f), maxDynamicShared, uintptr(bytes)))
}

// buffers tell the driver where each of a launch's parameters is. It is not given all of them in one piece: where parameters lie at
// multiples of 64 bytes, as tensor maps do, the kernel's compiler counts from another place than the first parameter.
type buffers struct {
	at []uintptr
}

// Launch gives a kernel to a stream.
func (l *Library) Launch(f Function, g Grid, p *Parameters, s Stream) error {
	if l.has(fnSimSubAlloc) {
		l.tell(p)
	}
	// What is packed is on the heap, which does not move.
	p.at = p.at[:0]
	for _, offset := range p.Offsets {
		p.at = append(p.at, uintptr(unsafe.Add(unsafe.Pointer(unsafe.SliceData(p.Packed)), offset)))
	}
	code := l.call(fnLaunchKernel, uintptr(f),
		uintptr(g.Blocks[0]), uintptr(g.Blocks[1]), uintptr(g.Blocks[2]),
		uintptr(g.Threads[0]), uintptr(g.Threads[1]), uintptr(g.Threads[2]),
		uintptr(g.SharedBytes), uintptr(s), uintptr(unsafe.Pointer(unsafe.SliceData(p.at))), 0)
	goruntime.KeepAlive(p)
	return l.check(fnLaunchKernel, code)
}

// tell gives the simulated driver what a launch's pointers stand for and where its parameters are.
func (l *Library) tell(p *Parameters) {
	for i := 0; i+1 < len(p.Spans); i += 2 {
		l.call(fnSimSubAlloc, uintptr(p.Spans[i]), uintptr(p.Spans[i+1]))
	}
	if len(p.Offsets) > 0 {
		l.call(fnSimOffsets, uintptr(unsafe.Pointer(&p.Offsets[0])), uintptr(len(p.Offsets)), uintptr(len(p.Packed)))
	}
}
