package cpu

import (
	"context"
	"fmt"
	goruntime "runtime"
	"sync/atomic"
	"unsafe"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/tensor"
)

// A Device is the CPU. Its memory is the host's, outside Go's heap.
type Device struct {
	pool     *ops.Pool
	registry *graph.Registry
	used     atomic.Int64
}

var (
	_ device.Device   = (*Device)(nil)
	_ device.Borrower = (*Device)(nil)
)

// A Pool shares work among threads. It is here for callers of Compute and Interpret, which know no package below.
type Pool = ops.Pool

// NewPool returns a pool of the given number of threads; 0 is one for each processor that the process may use. Close
// ends its goroutines.
func NewPool(threads int) *Pool { return ops.NewPool(threads) }

// New returns the CPU with the given number of threads, 0 for one a processor, and the ops that it runs.
func New(threads int, registry *graph.Registry) *Device {
	return &Device{pool: ops.NewPool(threads), registry: registry}
}

// Name returns "cpu".
func (d *Device) Name() string { return "cpu" }

// Threads returns the number of threads.
func (d *Device) Threads() int { return d.pool.Threads() }

// What products make of a thread with kernels for vectors, for each float of a register, and without, in a second: two
// thirds of a processor's arithmetic at 2.5 GHz. Where nobody measured, that is closer than one number for all.
const (
	laneFLOPs = 7e9
	goFLOPs   = 4e9
)

// Vectors reports whether this program has kernels of the processor's own, and not those of Go alone.
func Vectors() bool { return simd.Best() != nil }

// Guess says roughly how many operations of dense products the device's kernels do in a second, and how many bytes they read
// from memory. It measures nothing.
func (d *Device) Guess() (flops, memoryBytes float64) {
	const (
		threadBytes = 10e9
		mostReading = 4 // threads read all that memory gives
	)
	threads := float64(min(d.pool.Threads(), goruntime.GOMAXPROCS(0)))
	each := goFLOPs
	if set := d.pool.Set; set != nil {
		each = laneFLOPs * float64(set.Lanes)
	}
	return threads * each, min(threads, mostReading) * threadBytes
}

// Memory returns the bytes allocated as both total and used up: how much of the host's memory a process may take is not
// the device's to say.
func (d *Device) Memory() (totalBytes, freeBytes int64) { return d.used.Load(), 0 }

// Allocated returns the bytes that are allocated.
func (d *Device) Allocated() int64 { return d.used.Load() }

// Supports returns nil when there is a kernel that takes the operands.
func (d *Device) Supports(op graph.Op, in, out []graph.Spec) error {
	k, err := lookup(d.registry, op.Kind)
	if err != nil {
		return err
	}
	return k.Take(in, out, op.Attrs)
}

// Lower decides how every op of a graph is computed.
func (d *Device) Lower(g *graph.Graph) (*graph.Lowered, error) {
	return lower(g, d.registry, d.pool.Threads())
}

type memory struct {
	buf   *hostmem.Buf
	bytes []byte // what buf has, or what was borrowed
	d     *Device
	freed atomic.Bool
}

// Alloc takes memory outside the heap.
func (d *Device) Alloc(bytes int64) (device.Memory, error) {
	return d.alloc(bytes, bytes, hostmem.Activations)
}

// AllocCache implements device.CacheAllocator.
func (d *Device) AllocCache(bytes, most int64) (device.Memory, error) {
	return d.alloc(bytes, most, hostmem.Caches)
}

// SettleCache implements device.CacheAllocator.
func (d *Device) SettleCache(m device.Memory) {
	if own := m.(*memory); !own.freed.Load() {
		own.buf.Settle()
	}
}

// AllocRoom implements device.RoomAllocator.
func (d *Device) AllocRoom(bytes, most int64) (device.Memory, error) {
	return d.alloc(bytes, most, hostmem.Activations)
}

func (d *Device) alloc(bytes, most int64, purpose hostmem.Purpose) (device.Memory, error) {
	buf, err := hostmem.AllocRoom(bytes, most, purpose)
	if err != nil {
		return nil, &device.OutOfMemoryError{Device: d.Name(), WantBytes: bytes}
	}
	d.used.Add(bytes)
	return &memory{buf: buf, bytes: buf.Bytes(), d: d}, nil
}

// Resize implements device.RoomAllocator.
func (d *Device) Resize(m device.Memory, bytes int64) bool {
	own := m.(*memory)
	before := own.Bytes()
	if own.freed.Load() || !own.buf.Resize(bytes) {
		return false
	}
	own.bytes = own.buf.Bytes()
	d.used.Add(bytes - before)
	return true
}

// borrowedAlign is what the addresses of memory that is borrowed are a multiple of, as those of all other operands are.
const borrowedAlign = 64

// Borrow implements device.Borrower.
func (d *Device) Borrow(before device.Memory, mem []byte) device.Memory {
	m, ok := before.(*memory)
	if ok {
		m.bytes = nil
	}
	if len(mem) == 0 || uintptr(unsafe.Pointer(unsafe.SliceData(mem)))%borrowedAlign != 0 {
		return nil
	}
	if !ok {
		m = &memory{d: d}
		m.freed.Store(true) // it is not the device's to give back
	}
	m.bytes = mem
	return m
}

// Bytes returns the size.
func (m *memory) Bytes() int64 { return int64(len(m.bytes)) }

// Free gives the memory back to the operating system.
func (m *memory) Free() error {
	if m.freed.Swap(true) {
		return nil
	}
	n := m.Bytes()
	m.buf.Free()
	m.bytes = nil
	m.d.used.Add(-n)
	return nil
}

// regionBytes returns a region's bytes.
func regionBytes(r device.Region) []byte {
	if r.Memory == nil {
		return nil
	}
	return r.Memory.(*memory).bytes[r.Offset : r.Offset+r.Bytes]
}

// HostBytes returns the bytes of a region of the device's memory, for readers that can write there directly.
func (d *Device) HostBytes(r device.Region) []byte { return regionBytes(r) }

// Close ends the device's threads.
func (d *Device) Close() error {
	d.pool.Close()
	return nil
}

// A stream of the CPU does everything at once.
type stream struct {
	d *Device
	// meanwhile is called while ops are computed; nil is nothing.
	meanwhile func()
}

var (
	_ device.Packer  = (*stream)(nil)
	_ device.Yielder = (*stream)(nil)
)

// NewStream returns a stream that computes in the caller's time.
func (d *Device) NewStream() (device.Stream, error) { return &stream{d: d}, nil }

// Meanwhile implements device.Yielder.
func (s *stream) Meanwhile(f func()) { s.meanwhile = f }

func (s *stream) CopyIn(dst device.Region, src []byte) error {
	if int64(len(src)) > dst.Bytes {
		return fmt.Errorf("%d bytes do not go into %d", len(src), dst.Bytes)
	}
	s.d.pool.Copy(regionBytes(dst), src)
	return nil
}

func (s *stream) CopyOut(dst []byte, src device.Region) error {
	if int64(len(dst)) > src.Bytes {
		return fmt.Errorf("%d bytes are not in %d", len(dst), src.Bytes)
	}
	s.d.pool.Copy(dst, regionBytes(src))
	return nil
}

// Run computes an op.
func (s *stream) Run(ctx context.Context, l device.Launch) error {
	c := ops.NewCall()
	c.In, c.Out, c.Meanwhile, c.Lender = appendViews(c.In, l.In), appendViews(c.Out, l.Out), s.meanwhile, l.Lender
	return s.d.run(ctx, &l.Op, c, regionBytes(l.Work))
}

// Pack implements device.Packer.
func (s *stream) Pack(
	ctx context.Context, op *graph.Op, p graph.Pack, src device.Argument, dst device.Region,
) error {
	return s.d.Pack(ctx, op, p, Operand{
		Bytes: regionBytes(src.Region), DType: src.Spec.DType, Layout: src.Operand.Layout,
	}, regionBytes(dst))
}

// Pack writes an operand in the form that a lowered step says, for devices that compute with the CPU's kernels.
func (d *Device) Pack(ctx context.Context, op *graph.Op, p graph.Pack, raw Operand, dst []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	k, err := lookup(d.registry, op.Kind)
	if err != nil {
		return err
	}
	if k.Pack == nil {
		return fmt.Errorf("BUG: %s has no packed operands", op.Kind)
	}
	return k.Pack(d.pool, op.Attrs, p, ops.View{Data: raw.Bytes, DType: raw.DType, Layout: raw.Layout}, dst)
}

// run computes an op over the memory of a call's operands, which it ends the use of. Where ctx is done it returns within a
// part of the op's work, and what the results hold is undefined.
func (d *Device) run(ctx context.Context, op *graph.Op, c *ops.Call, work []byte) (err error) {
	defer ops.Recover(ctx, &err)
	defer c.Free()
	if err := ctx.Err(); err != nil {
		return err
	}
	k, err := lookup(d.registry, op.Kind)
	if err != nil {
		return err
	}
	c.Own = d.pool.With(ctx, c.Meanwhile)
	c.Ctx, c.Attrs, c.Work, c.Pool = ctx, op.Attrs, work, &c.Own
	return k.Run(c)
}

func appendViews(vs []ops.View, args []device.Argument) []ops.View {
	for _, a := range args {
		v := ops.View{}
		if a.Operand.Value != graph.NoValue {
			v = ops.View{Data: regionBytes(a.Region), DType: a.Spec.DType, Layout: a.Operand.Layout, Packed: a.Packed}
		}
		vs = append(vs, v)
	}
	return vs
}

// An Operand is an operand in the host's memory: the bytes of a value, and the view of it. The zero Operand is absent.
type Operand struct {
	Bytes  []byte
	DType  tensor.DType
	Layout tensor.Layout
	// Packed says that Bytes is the operand in the form that the step's pack says.
	Packed bool
}

// Compute runs an op over the host's memory, for devices that compute with the CPU's kernels. Work is as large as the
// lowered step says.
func (d *Device) Compute(ctx context.Context, op *graph.Op, in, out []Operand, work []byte) error {
	c := ops.NewCall()
	for _, o := range in {
		c.In = append(c.In, ops.View{Data: o.Bytes, DType: o.DType, Layout: o.Layout, Packed: o.Packed})
	}
	for _, o := range out {
		c.Out = append(c.Out, ops.View{Data: o.Bytes, DType: o.DType, Layout: o.Layout, Packed: o.Packed})
	}
	return d.run(ctx, op, c, work)
}

type event struct{}

func (event) Done() bool                     { return true }
func (event) Sync(ctx context.Context) error { return ctx.Err() }

func (s *stream) Record() device.Event           { return event{} }
func (s *stream) Wait(device.Event)              {}
func (s *stream) Sync(ctx context.Context) error { return ctx.Err() }
func (s *stream) Close() error                   { return nil }

// Peak returns the FLOP/s of as many threads that multiply matrices which stay in their first caches, 0 where there are
// no kernels: see [simd.Peak].
func Peak(threads int) float64 { return simd.Peak(threads) }
