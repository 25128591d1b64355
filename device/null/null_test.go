package null

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
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
	operand := graph.Operand{Layout: tensor.Contiguous(16)}
	launch := device.Launch{
		Op:  graph.Op{Kind: "relu", Path: "act"},
		In:  []device.Argument{{Region: x, Operand: operand}, {Operand: graph.Absent}},
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

// TestRunIsChecked: operands, results, scratch memory and packed forms lie where there is memory, or the call is refused and
// leaves no line but that of the refusal.
func TestRunIsChecked(t *testing.T) {
	d := New(Options{})
	m, err := d.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	gone, err := d.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	if err := gone.Free(); err != nil {
		t.Fatal(err)
	}
	if last, err := d.Alloc(1); err != nil || last.Free() != nil || d.PeakBytes() != 128 {
		t.Errorf("the peak is %d: %v", d.PeakBytes(), err)
	}
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	good := device.Region{Memory: m, Offset: 32, Bytes: 32}
	argument := func(r device.Region) []device.Argument {
		return []device.Argument{{Region: r, Operand: graph.Operand{Layout: tensor.Contiguous(8)}}}
	}
	op, pack := graph.Op{Kind: "relu"}, graph.Pack{Bytes: 32}
	packer := s.(device.Packer)
	for name, r := range map[string]device.Region{
		"beyond the end": {Memory: m, Offset: 33, Bytes: 32}, "before the begin": {Memory: m, Offset: -1, Bytes: 32},
		"of freed memory": {Memory: gone, Bytes: 32}, "of nothing": {Bytes: 32},
	} {
		for what, err := range map[string]error{
			"an operand":     s.Run(t.Context(), device.Launch{Op: op, In: argument(r), Out: argument(good)}),
			"a result":       s.Run(t.Context(), device.Launch{Op: op, In: argument(good), Out: argument(r)}),
			"scratch memory": s.Run(t.Context(), device.Launch{Op: op, Out: argument(good), Work: r}),
			"packed":         packer.Pack(t.Context(), &op, pack, argument(r)[0], good),
			"where it packs": packer.Pack(t.Context(), &op, pack, argument(good)[0], r),
		} {
			if err == nil {
				t.Errorf("a region %s was %s", name, what)
			}
		}
	}
	if packer.Pack(t.Context(), &op, graph.Pack{Bytes: 31}, argument(good)[0], good) == nil {
		t.Error("31 bytes were packed to 32")
	}
	if strings.Contains(d.Trace(), "run") {
		t.Errorf("an op was recorded that was refused:\n%s", d.Trace())
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	for what, err := range map[string]error{
		"an op":     s.Run(done, device.Launch{Op: op, Out: argument(good)}),
		"a packing": packer.Pack(done, &op, pack, argument(good)[0], good),
		"a stream":  s.Sync(done),
		"an event":  s.Record().Sync(done),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s of a context that is done gives %v", what, err)
		}
	}
	if err := errors.Join(m.Free(), d.Close()); err != nil {
		t.Error(err)
	}
}

// TestTraceTellsStreamsAndEventsApart: two schedules that differ in who waits for what differ as text.
func TestTraceTellsStreamsAndEventsApart(t *testing.T) {
	d := New(Options{})
	var streams []device.Stream
	for range 2 {
		s, err := d.NewStream()
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	first, second := streams[0].Record(), streams[1].Record()
	streams[0].Wait(second)
	streams[1].Wait(first)
	want := "stream s0\nstream s1\ns0 record e0\ns1 record e1\ns0 wait e1\ns1 wait e0\n"
	if got := d.Trace(); got != want {
		t.Errorf("trace:\n%s\nwant:\n%s", got, want)
	}
}
