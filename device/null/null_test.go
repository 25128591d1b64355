package null

import (
	"errors"
	"testing"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// TestTrace records a copy, an op and a copy back, and compares the text.
func TestTrace(t *testing.T) {
	d := New(Options{MemoryBytes: 128})
	m, err := d.Alloc(128)
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	x, y := device.Region{Memory: m, Bytes: 64}, device.Region{Memory: m, Offset: 64, Bytes: 64}
	operand := layers.Operand{Layout: tensor.Contiguous(16)}
	launch := device.Launch{
		Op:  layers.Op{Kind: "relu", Path: "act"},
		In:  []device.Argument{{Region: x, Operand: operand}, {Operand: layers.Absent}},
		Out: []device.Argument{{Region: y, Operand: operand}},
	}
	buf := make([]byte, 64)
	for _, err := range []error{
		s.CopyIn(x, buf), s.Run(t.Context(), launch), s.CopyOut(buf, y), s.Sync(t.Context()), s.Close(), m.Free(), m.Free(),
		d.Close(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := `alloc m0 128
stream s0
s0 in m0[0+64]
s0 run relu act: m0[0+64] - -> m0[64+64]
s0 out m0[64+64]
s0 sync
s0 close
free m0
`
	if got := d.Trace(); got != want {
		t.Errorf("trace:\n%s\nwant:\n%s", got, want)
	}
	if d.PeakBytes() != 128 {
		t.Errorf("peak %d, want 128", d.PeakBytes())
	}
}

// TestRefusals: too large an allocation, the faults asked for, regions that are not there, memory that was forgotten.
func TestRefusals(t *testing.T) {
	d := New(Options{MemoryBytes: 100, FailAlloc: 2, FailCopy: 2})
	var oom *device.OutOfMemoryError
	m, err := d.Alloc(60)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Alloc(10); !errors.As(err, &oom) {
		t.Errorf("the second allocation gives %v, want an OutOfMemoryError", err)
	}
	if _, err := d.Alloc(50); !errors.As(err, &oom) || oom.FreeBytes != 40 {
		t.Errorf("an allocation of 50 gives %v, want an OutOfMemoryError with 40 free", err)
	}
	s, _ := d.NewStream()
	r := device.Region{Memory: m, Offset: 20, Bytes: 40}
	if err := s.CopyIn(r, make([]byte, 40)); err != nil {
		t.Error(err)
	}
	if err := s.CopyIn(r, make([]byte, 40)); !errors.Is(err, ErrCopy) {
		t.Errorf("the second copy gives %v, want ErrCopy", err)
	}
	if err := s.CopyIn(r, make([]byte, 39)); err == nil {
		t.Error("39 bytes were copied to 40")
	}
	r.Offset = 21
	if err := s.CopyOut(make([]byte, 40), r); err == nil {
		t.Error("a region past the end was read")
	}
	if err := d.Close(); err == nil {
		t.Error("closed with memory in use")
	}
	m.Free()
	r.Offset = 0
	if err := s.CopyIn(r, make([]byte, 40)); err == nil {
		t.Error("freed memory was written")
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
