package cuda

import (
	"errors"
	"fmt"
	goruntime "runtime"
	"sync/atomic"
	"unsafe"

	"github.com/optimem/optimem/cuda/internal/driver"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/internal/hostmem"
)

// memory is memory of the GPU.
type memory struct {
	d       *Device
	pointer driver.Pointer
	bytes   int64
	freed   atomic.Bool
}

// Alloc takes memory of the GPU.
func (d *Device) Alloc(bytes int64) (device.Memory, error) {
	if bytes < 0 {
		return nil, &device.OutOfMemoryError{Device: d.name, WantBytes: bytes}
	}
	m := &memory{d: d, bytes: bytes}
	if bytes == 0 {
		return m, nil
	}
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	var err error
	if m.pointer, err = d.lib.Alloc(bytes); err != nil {
		return nil, d.outOfMemory(err, bytes)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.used += bytes
	d.peak = max(d.peak, d.used)
	return m, nil
}

// Bytes returns the size.
func (m *memory) Bytes() int64 { return m.bytes }

// Free gives the memory back. That waits for everything on the GPU.
func (m *memory) Free() error {
	if m.freed.Swap(true) || m.bytes == 0 {
		return nil
	}
	d := m.d
	d.mu.Lock()
	d.used -= m.bytes
	d.mu.Unlock()
	if d.gone() {
		return nil // the context took it along
	}
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	return d.failed(d.lib.Free(m.pointer))
}

// span finds a region.
func (d *Device) span(r device.Region) (span, error) {
	m, ok := r.Memory.(*memory)
	switch {
	case !ok || m.d != d:
		return span{}, errors.New("a region of no memory of this device")
	case m.freed.Load():
		return span{}, errors.New("a region of memory that was freed")
	case r.Offset < 0 || r.Bytes < 0 || r.Offset > m.bytes-r.Bytes:
		return span{}, fmt.Errorf("%d bytes at %d lie outside %d bytes", r.Bytes, r.Offset, m.bytes)
	}
	return span{uint64(m.pointer) + uint64(r.Offset), r.Bytes}, nil
}

// hostMemory is page-locked memory of the host.
type hostMemory struct {
	d     *Device
	bytes []byte
	freed atomic.Bool
	// registered says that the memory is another's, which pin keeps from going away where that is Go.
	registered bool
	pin        goruntime.Pinner
}

// near is where memory of the host is taken from, but in tests.
var near = hostmem.Near

// AllocHost takes page-locked memory of the host, which the GPU copies from and to by itself: where there are several
// NUMA nodes, of that which the GPU is at.
func (d *Device) AllocHost(bytes int64) (device.HostMemory, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("%d bytes of page-locked memory", bytes)
	}
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	var mem []byte
	err := near(d.info.Node, func() (err error) {
		mem, err = d.lib.AllocHost(bytes)
		return err
	})
	if err != nil {
		return nil, d.failed(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pinned += bytes
	return &hostMemory{d: d, bytes: mem}, nil
}

// Register has memory page-locked that others took, so that the GPU copies from it by itself.
func (d *Device) Register(mem []byte) (device.HostMemory, error) {
	if len(mem) == 0 {
		return nil, errors.New("no bytes to page-lock")
	}
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	if err := d.failed(d.lib.RegisterHost(mem)); err != nil {
		return nil, err
	}
	h := &hostMemory{d: d, bytes: mem, registered: true}
	h.pin.Pin(unsafe.SliceData(mem))
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pinned += int64(len(mem))
	return h, nil
}

// Bytes returns the memory.
func (h *hostMemory) Bytes() []byte { return h.bytes }

// Free gives the memory back. Nothing on the GPU may use it any more.
func (h *hostMemory) Free() {
	if h.freed.Swap(true) {
		return
	}
	d := h.d
	d.mu.Lock()
	d.pinned -= int64(len(h.bytes))
	d.mu.Unlock()
	defer h.pin.Unpin()
	if d.gone() || d.enter() != nil {
		return // the context took it along
	}
	defer d.leave()
	give := d.lib.FreeHost
	if h.registered {
		give = d.lib.UnregisterHost
	}
	_ = d.failed(give(h.bytes)) // what is lost is kept by failed
	h.bytes = nil
}
