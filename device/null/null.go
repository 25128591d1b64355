// Package null is a device that allocates and computes nothing and records the calls it gets, so that plans and
// sessions are tested without hardware and schedules are compared as text.
//
// It does not know models, plans or files.
//
//	dev := null.New(null.Options{MemoryBytes: 2 << 30})
//	// … run something on it …
//	fmt.Print(dev.Trace())
package null

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
)

// Options describe the device. The zero value is a device without a limit on which nothing fails.
type Options struct {
	// MemoryBytes is the size of the memory; 0 is unlimited.
	MemoryBytes int64
	// FailAlloc and FailCopy make the n-th allocation or copy fail, counted from 1; 0 is never.
	FailAlloc, FailCopy int
}

// ErrCopy is what a copy that Options.FailCopy names ends in.
var ErrCopy = errors.New("copy failed, as asked for")

// A Device records. It is safe for parallel use; the record has the order in which the calls came.
type Device struct {
	opts Options

	mu             sync.Mutex
	used, peak     int64
	allocs, copies int
	memories       int
	streams        int
	events         int
	trace          strings.Builder
}

var _ device.Device = (*Device)(nil)

// New returns a device.
func New(opts Options) *Device { return &Device{opts: opts} }

// Name returns "null".
func (d *Device) Name() string { return "null" }

// Memory returns the size asked for and what is not allocated of it.
func (d *Device) Memory() (totalBytes, freeBytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.opts.MemoryBytes, d.opts.MemoryBytes - d.used
}

// PeakBytes returns the most that was allocated at once.
func (d *Device) PeakBytes() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.peak
}

// Supports takes every op.
func (d *Device) Supports(graph.Op, []graph.Spec, []graph.Spec) error { return nil }

// Trace returns a line for each call so far.
func (d *Device) Trace() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.trace.String()
}

// record adds a line; d.mu is held.
func (d *Device) record(format string, args ...any) { fmt.Fprintf(&d.trace, format+"\n", args...) }

type memory struct {
	d     *Device
	id    int
	bytes int64
	freed bool
}

// Alloc gives out a number of bytes and no memory.
func (d *Device) Alloc(bytes int64) (device.Memory, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.allocs++
	limited := d.opts.MemoryBytes > 0
	if bytes < 0 || d.allocs == d.opts.FailAlloc || limited && bytes > d.opts.MemoryBytes-d.used {
		d.record("alloc %d: refused", bytes)
		return nil, &device.OutOfMemoryError{Device: d.Name(), WantBytes: bytes, FreeBytes: d.opts.MemoryBytes - d.used}
	}
	d.used += bytes
	d.peak = max(d.peak, d.used)
	m := &memory{d: d, id: d.memories, bytes: bytes}
	d.memories++
	d.record("alloc m%d %d", m.id, bytes)
	return m, nil
}

// Bytes returns the size.
func (m *memory) Bytes() int64 { return m.bytes }

// Free gives the bytes back.
func (m *memory) Free() error {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	if m.freed {
		return nil
	}
	m.freed = true
	m.d.used -= m.bytes
	m.d.record("free m%d", m.id)
	return nil
}

// Close fails where memory was forgotten.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.used != 0 {
		return fmt.Errorf("%d bytes were not freed", d.used)
	}
	return nil
}

type stream struct {
	d  *Device
	id int
}

// NewStream returns a stream that is done at once.
func (d *Device) NewStream() (device.Stream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := &stream{d: d, id: d.streams}
	d.streams++
	d.record("stream s%d", s.id)
	return s, nil
}

// text writes a region as memory[offset+bytes].
func text(r device.Region) string {
	m, ok := r.Memory.(*memory)
	if !ok {
		return "-"
	}
	return fmt.Sprintf("m%d[%d+%d]", m.id, r.Offset, r.Bytes)
}

// check returns an error for a region outside its memory, or of freed memory.
func check(r device.Region) error {
	m, ok := r.Memory.(*memory)
	switch {
	case !ok:
		return errors.New("a region of no memory of this device")
	case m.freed:
		return fmt.Errorf("m%d was freed", m.id)
	case r.Offset < 0 || r.Bytes < 0 || r.Offset > m.bytes-r.Bytes:
		return fmt.Errorf("%s lies outside %d bytes", text(r), m.bytes)
	}
	return nil
}

func (s *stream) copied(what string, r device.Region, host int) error {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.d.copies++
	err := check(r)
	switch {
	case err == nil && int64(host) != r.Bytes:
		err = fmt.Errorf("%d host bytes for %s", host, text(r))
	case err == nil && s.d.copies == s.d.opts.FailCopy:
		err = ErrCopy
	}
	if err != nil {
		s.d.record("s%d %s %s: %v", s.id, what, text(r), err)
		return err
	}
	s.d.record("s%d %s %s", s.id, what, text(r))
	return nil
}

// CopyIn records a copy to the device.
func (s *stream) CopyIn(dst device.Region, src []byte) error { return s.copied("in", dst, len(src)) }

// CopyOut records a copy to the host, whose bytes stay as they are.
func (s *stream) CopyOut(dst []byte, src device.Region) error { return s.copied("out", src, len(dst)) }

// Run records an op, after checking that its operands lie where there is memory.
func (s *stream) Run(ctx context.Context, l device.Launch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	var in, out []string
	for _, a := range l.In {
		if a.Operand.Value == graph.NoValue {
			in = append(in, "-")
			continue
		}
		if err := check(a.Region); err != nil {
			return err
		}
		if in = append(in, text(a.Region)); a.Packed {
			in[len(in)-1] += " packed"
		}
	}
	for _, a := range l.Out {
		if err := check(a.Region); err != nil {
			return err
		}
		out = append(out, text(a.Region))
	}
	if l.Work.Bytes > 0 {
		if err := check(l.Work); err != nil {
			return err
		}
	}
	s.d.record("s%d run %s %s: %s -> %s", s.id, l.Op.Kind, l.Op.Path, strings.Join(in, " "), strings.Join(out, " "))
	return nil
}

// Pack records that a weight is packed.
func (s *stream) Pack(ctx context.Context, op *graph.Op, p graph.Pack, src device.Argument, dst device.Region) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	err := errors.Join(check(src.Region), check(dst))
	if err == nil && dst.Bytes != p.Bytes {
		err = fmt.Errorf("%d packed bytes for %s", p.Bytes, text(dst))
	}
	if err != nil {
		s.d.record("s%d pack: %v", s.id, err)
		return err
	}
	s.d.record("s%d pack %s as %s: %s %v -> %s", s.id, op.Path, p.Form, text(src.Region),
		src.Operand.Layout.Shape, text(dst))
	return nil
}

type event struct{ id int }

// Done is always true: nothing takes time here.
func (event) Done() bool { return true }

// Sync returns at once.
func (event) Sync(ctx context.Context) error { return ctx.Err() }

// Record marks the work so far.
func (s *stream) Record() device.Event {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	e := event{s.d.events}
	s.d.events++
	s.d.record("s%d record e%d", s.id, e.id)
	return e
}

// Wait records that the stream waits.
func (s *stream) Wait(e device.Event) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.d.record("s%d wait e%d", s.id, e.(event).id)
}

// Sync records and returns ctx's error.
func (s *stream) Sync(ctx context.Context) error {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.d.record("s%d sync", s.id)
	return ctx.Err()
}

// Close records the end.
func (s *stream) Close() error {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.d.record("s%d close", s.id)
	return nil
}
