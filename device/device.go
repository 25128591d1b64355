// Package device is the contract between what runs a plan and what computes: device memory, streams that copy and run
// ops in order, and events between streams.
//
// It does not know models, plans or files. internal/cpu, device/null, device/emulated and cuda implement it;
// device/devicetest checks every implementation.
//
//	memory, err := dev.Alloc(bytes)
//	stream, err := dev.NewStream()
//	stream.CopyIn(memory.At(0, n), host)
//	stream.Run(ctx, device.Launch{Step: step, In: in, Out: out, Work: work})
//	err = stream.Sync(ctx)
package device

import (
	"context"
	"fmt"

	"github.com/optimem/optimem/graph"
)

// A Device computes ops over memory of its own. Its methods may be called from several goroutines.
type Device interface {
	// Name is what reports call it, such as "cpu".
	Name() string
	// Memory returns the total and the free bytes of the device's memory.
	Memory() (totalBytes, freeBytes int64)
	// Supports returns nil when the device can run the op, else an error that says why not.
	Supports(op graph.Op, in, out []graph.Spec) error
	// Alloc takes memory, or fails with an *OutOfMemoryError. The caller frees it.
	Alloc(bytes int64) (Memory, error)
	// NewStream returns a queue of copies and launches. The caller closes it.
	NewStream() (Stream, error)
	// Close frees what the device itself holds. Memory and streams must be gone.
	Close() error
}

// Memory is a run of device memory.
type Memory interface {
	Bytes() int64
	// Free gives the memory back. A second Free returns nil.
	Free() error
}

// A CacheAllocator is a device that counts memory which outlives passes by itself.
type CacheAllocator interface {
	// AllocCache is Alloc for such memory, zero at first, that a [RoomAllocator] can make as large as most. A host gives it bit by
	// bit, as it is written to.
	AllocCache(bytes, most int64) (Memory, error)
	// SettleCache has such memory lie so that it is read fast, where it is full by now. It is called now and then, between passes.
	SettleCache(m Memory)
}

// A RoomAllocator is a device that has memory which can become smaller and larger where it is: what outlives plans that
// differ need not be brought again.
type RoomAllocator interface {
	// AllocRoom is Alloc of memory that may become as large as most.
	AllocRoom(bytes, most int64) (Memory, error)
	// Resize makes memory smaller or larger, and reports whether it did. What is within both sizes stays. Nothing that was
	// given to a stream may use it meanwhile.
	Resize(m Memory, bytes int64) bool
}

// A HostAllocator is a device that copies by itself, while the host goes on, from and to memory of the host that it gave
// out. Other memory of the host it copies too, but not always in the background.
type HostAllocator interface {
	// AllocHost takes memory of the host, or fails: such memory is scarce. The caller frees it.
	AllocHost(bytes int64) (HostMemory, error)
}

// A HostRegistrar is a device that can copy by itself from memory of the host that others took, too.
type HostRegistrar interface {
	// Register has the device copy from memory by itself until Free, which leaves the memory to whom it belongs, or fails:
	// not all memory is fit for that, none twice. The memory must stay where it is until then.
	Register(mem []byte) (HostMemory, error)
}

// A Borrower is a device that computes inside Run where the host's memory is, so that what the host has need not be copied.
type Borrower interface {
	// Borrow makes memory of the host the device's until it is lent no more: what lies there can be an operand. It uses
	// before again, which Borrow returned and nobody needs any more, or nil. Nobody frees what it returns, which is nil where
	// the memory does not lie as operands must, or is none: then before is forgotten.
	Borrow(before Memory, mem []byte) Memory
}

// HostMemory is memory of the host.
type HostMemory interface {
	Bytes() []byte
	// Free gives the memory back, once.
	Free()
}

// A Region is part of a memory.
type Region struct {
	Memory Memory
	Offset int64
	Bytes  int64
}

// An Argument is an operand in place: the region that holds the value, and the view of it.
type Argument struct {
	Region  Region
	Operand graph.Operand
	Spec    graph.Spec
	// Packed says that the region holds the operand, and that alone, in the form that the step's pack of it says, not the
	// value with a view of it.
	Packed bool
}

// A Launch is one op with its operands in place. An absent operand has no memory.
type Launch struct {
	Step graph.Step
	Op   graph.Op
	In   []Argument
	Out  []Argument
	Work Region
	// Lender has the operands that are lent to the op while it runs (see [graph.Op.Lent]), whose arguments have no
	// memory; nil where none are.
	Lender Lender
}

// A Lender lends an op the weights of one expert after the other, on a device that computes inside Run. The op says
// which experts it needs, and is told in which order it is to compute them: those first that are there, while others
// are read. The goroutine that computes calls it.
type Lender interface {
	// Want says which experts are needed, each once and by id, and by how many rows in all.
	Want(ctx context.Context, experts []int32, rows int) error
	// Next returns the next expert with its [graph.LentOperands], which stay where they are until the next call; −1
	// once all were lent.
	Next(ctx context.Context) (expert int, operands []Argument, err error)
}

// A Stream executes what it is given in the order given. Errors of asynchronous work surface at Sync.
type Stream interface {
	// CopyIn copies host bytes to the begin of a region. They must stay unchanged until the stream was synchronised. More than the
	// region has bytes are an error.
	CopyIn(dst Region, src []byte) error
	// CopyOut fills dst from the begin of a region, which has at least so many bytes: else that is an error.
	CopyOut(dst []byte, src Region) error
	// Run computes an op. It returns ctx's error where ctx is done before the op begins.
	Run(ctx context.Context, l Launch) error
	// Record marks the work given so far; Wait makes this stream wait for a mark of another.
	Record() Event
	Wait(Event)
	// Sync returns when all work given so far is done, with the first error of it.
	Sync(ctx context.Context) error
	Close() error
}

// A Yielder is a stream that computes inside Run, in the time of its caller, and can let the caller do something else in
// between. Streams that compute in the background are none.
type Yielder interface {
	// Meanwhile has every later Run call f now and then while it computes, on the goroutine that called Run; Runs of short
	// ops may never call it. It is called once, before the first Run, by whoever made the stream. f is short, does not
	// panic, and does not use the stream; the device's other streams compute nothing until Run returns.
	Meanwhile(f func())
}

// A Packer is a stream of a device whose kernels have forms of weights of their own, as the packs of lowered steps say.
type Packer interface {
	// Pack writes the packed form of an operand of an op, which lies raw in src, to dst, in the order of the stream.
	Pack(ctx context.Context, op *graph.Op, p graph.Pack, src Argument, dst Region) error
}

// An Unpacker is a stream of a device that decodes blocks of packed files (storage.BlockSource) itself.
type Unpacker interface {
	// Unpack decodes blocks that lie in one region, as files have them, to another, in the order of the stream. The list is
	// not kept. Blocks must be such as CheckBlock of their source accepts.
	Unpack(ctx context.Context, dst, src Region, list []Unpacking) error
}

// An Unpacking is a block of which something is wanted: where it begins in its region, how many bytes it stands for, and
// where of these the bytes from Low on and before High go.
type Unpacking struct {
	From             int64
	Bytes, Low, High int64
	To               int64
}

// A Preparer is a device that can ready itself for a graph's ops before they run, in the background: it loads their kernels while
// weights are read.
type Preparer interface {
	Prepare(l *graph.Lowered)
}

// A Keeper is a stream that can keep ops with where their operands lie, and give them out again together: where ops are
// short, giving each out takes longer than computing it.
type Keeper interface {
	// BeginKeeping has Run keep what it is given, instead of computing it; nothing else may be called until EndKeeping. An
	// op must have run before it is kept.
	BeginKeeping() error
	// EndKeeping returns what was kept since BeginKeeping. The caller frees it. After an error, which may be that some op
	// cannot be kept, nothing was computed, and the stream goes on as before.
	EndKeeping() (Kept, error)
	// RunKept computes what was kept, as Run would.
	RunKept(ctx context.Context, k Kept) error
}

// Kept is ops that a stream kept.
type Kept interface {
	// Free gives back what keeping them takes. A second Free returns nil.
	Free() error
}

// An Event is a point in a stream.
type Event interface {
	// Done reports whether it was reached.
	Done() bool
	// Sync returns once it was.
	Sync(ctx context.Context) error
}

// An OutOfMemoryError says that a device has no room for an allocation.
type OutOfMemoryError struct {
	Device               string
	WantBytes, FreeBytes int64
}

// Error gives both sizes.
func (e *OutOfMemoryError) Error() string {
	return fmt.Sprintf("%s: out of memory: %d bytes wanted, %d free", e.Device, e.WantBytes, e.FreeBytes)
}

// OutOfMemory reports that memory was short, for adapt.IsOutOfMemory.
func (*OutOfMemoryError) OutOfMemory() bool { return true }
