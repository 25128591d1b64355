// Package emulated emulates an accelerator: separate memory with a hard limit, streams for copies and compute, and a
// simulated clock. Copies take as long as a bus of the given bandwidth and latency would, ops as long as a cost table
// says, and the CPU computes the results. It is for tests, plans and demonstrations; its times are a model's, never
// measurements.
//
// It knows ops and buffers. It does not know models, plans or files.
//
//	dev := emulated.New(emulated.Options{MemoryBytes: 2 << 30, CopyBytes: 12e9, CopyLatency: 10 * time.Microsecond})
//	// … run something on it …
//	fmt.Println(dev.Elapsed())
package emulated

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/internal/hostmem"
)

// Options describe the device. The zero value has no limits, and everything on it takes no time.
type Options struct {
	// MemoryBytes is the size of the memory; 0 is unlimited.
	MemoryBytes int64
	// CopyBytes is what the bus moves in a second; 0 is any number. CopyLatency is what each copy costs besides.
	CopyBytes   float64
	CopyLatency time.Duration
	// Cost is what an op takes; nil is nothing.
	Cost func(step *graph.Step, op *graph.Op, in, out []graph.Spec) time.Duration
	// Threads and Ops are those of the CPU that computes.
	Threads int
	Ops     *graph.Registry
	// Dry computes and copies nothing, so that only the clock is right.
	Dry bool
	// FailAlloc and FailCopy make the n-th allocation or copy fail, counted from 1; 0 is never.
	FailAlloc, FailCopy int
	// CheckOrder looks for accesses of two streams to the same bytes, one of them a write, that no event orders. The first
	// is an error at the next Sync.
	CheckOrder bool
}

// ErrCopy is what a copy that Options.FailCopy names ends in.
var ErrCopy = errors.New("copy failed, as asked for")

// A Device is an emulated accelerator.
type Device struct {
	opts Options
	cpu  *cpu.Device

	mu         sync.Mutex
	used, peak int64
	// taken is what others use of the memory.
	taken          int64
	allocs, copies int
	streams        int
	elapsed        time.Duration
	// hosted is until when the host was busy with something else: ops that it gives out later begin after that.
	hosted time.Duration
	moved  int64
	order  order
}

var _ device.Device = (*Device)(nil)

// New returns a device.
func New(opts Options) *Device {
	if opts.Ops == nil {
		opts.Ops = graph.Standard()
	}
	return &Device{opts: opts, cpu: cpu.New(opts.Threads, opts.Ops)}
}

// Name returns "emu".
func (d *Device) Name() string { return "emu" }

// Memory returns the size asked for and what is not allocated of it.
func (d *Device) Memory() (totalBytes, freeBytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.opts.MemoryBytes, max(d.opts.MemoryBytes-d.taken-d.used, 0)
}

// Take says how much of the memory others use from now on, as another process would. What is allocated stays.
func (d *Device) Take(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.taken = bytes
}

// Allocated returns the bytes that are allocated.
func (d *Device) Allocated() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.used
}

// PeakBytes returns the most that was allocated at once.
func (d *Device) PeakBytes() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.peak
}

// MovedBytes returns what was copied to the device so far.
func (d *Device) MovedBytes() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.moved
}

// Elapsed returns the device's clock: when the last of what streams were synchronised for was done.
func (d *Device) Elapsed() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.elapsed
}

// Spend says that the host computed for a while after what was synchronised last, so that ops given to the device from now
// on begin later. Copies of streams that run no ops go on meanwhile.
func (d *Device) Spend(t time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hosted = max(d.hosted, d.elapsed) + t
	d.elapsed = d.hosted
}

// SpendAfter says that the host computed for a while after what it did before and after an event, and that meanwhile the
// device went on with what it was given. Spend(0) afterwards has it wait for the host.
func (d *Device) SpendAfter(e device.Event, t time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.elapsed = max(d.elapsed, e.(*event).at) + t
}

// Supports returns nil when the CPU has a kernel that takes the operands.
func (d *Device) Supports(op graph.Op, in, out []graph.Spec) error {
	return d.cpu.Supports(op, in, out)
}

// Lower decides how every op of a graph is computed: as the CPU does.
func (d *Device) Lower(g *graph.Graph) (*graph.Lowered, error) { return d.cpu.Lower(g) }

// memory is memory of the device. Dry devices have none behind it.
type memory struct {
	d     *Device
	bytes int64
	host  *hostmem.Buf
	freed atomic.Bool
}

// Alloc takes memory up to the limit.
func (d *Device) Alloc(bytes int64) (device.Memory, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.allocs++
	limited := d.opts.MemoryBytes > 0
	free := d.opts.MemoryBytes - d.taken - d.used
	if bytes < 0 || d.allocs == d.opts.FailAlloc || limited && bytes > free {
		return nil, &device.OutOfMemoryError{Device: d.Name(), WantBytes: bytes, FreeBytes: max(free, 0)}
	}
	m := &memory{d: d, bytes: bytes}
	if !d.opts.Dry {
		var err error
		if m.host, err = hostmem.Alloc(bytes, hostmem.Activations); err != nil {
			return nil, &device.OutOfMemoryError{Device: d.Name(), WantBytes: bytes}
		}
	}
	d.used += bytes
	d.peak = max(d.peak, d.used)
	return m, nil
}

// Bytes returns the size.
func (m *memory) Bytes() int64 { return m.bytes }

// Free gives the memory back.
func (m *memory) Free() error {
	if m.freed.Swap(true) {
		return nil
	}
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	m.d.used -= m.bytes
	m.d.order.forget(m)
	if m.host != nil {
		m.host.Free()
	}
	return nil
}

// region checks a region and returns its bytes, nil on a dry device.
func (d *Device) region(r device.Region) (*memory, []byte, error) {
	m, ok := r.Memory.(*memory)
	switch {
	case !ok || m.d != d:
		return nil, nil, errors.New("a region of no memory of this device")
	case m.freed.Load():
		return nil, nil, errors.New("a region of memory that was freed")
	case r.Offset < 0 || r.Bytes < 0 || r.Offset > m.bytes-r.Bytes:
		return nil, nil, fmt.Errorf("%d bytes at %d lie outside %d bytes", r.Bytes, r.Offset, m.bytes)
	case d.opts.Dry:
		return m, nil, nil
	}
	return m, m.host.Bytes()[r.Offset : r.Offset+r.Bytes], nil
}

// Close fails where memory was forgotten.
func (d *Device) Close() error {
	d.mu.Lock()
	used := d.used
	d.mu.Unlock()
	if used != 0 {
		return errors.Join(fmt.Errorf("%d bytes were not freed", used), d.cpu.Close())
	}
	return d.cpu.Close()
}
