package emulated_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// TestClock follows the device's clock, which is counted and not measured: copies take what bytes and latency say, ops what
// the cost table says, streams go on side by side, and one that waits begins after what it waits for.
func TestClock(t *testing.T) {
	const ms = time.Millisecond
	dev := emulated.New(emulated.Options{
		CopyBytes: 1e6, CopyLatency: ms, Dry: true,
		Cost: func(*graph.Step, *graph.Op, []graph.Spec, []graph.Spec) time.Duration { return 10 * ms },
	})
	memory, err := dev.Alloc(8000)
	if err != nil {
		t.Fatal(err)
	}
	stream := func() device.Stream {
		s, err := dev.NewStream()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	copies, ops, other := stream(), stream(), stream()
	host := make([]byte, 4000)
	copyIn := func(s device.Stream) {
		if err := s.CopyIn(device.Region{Memory: memory, Bytes: 4000}, host); err != nil {
			t.Fatal(err)
		}
	}
	run := func(s device.Stream) {
		out := device.Argument{
			Region: device.Region{Memory: memory, Offset: 4000, Bytes: 4000}, Operand: graph.Operand{Layout: tensor.Contiguous(1000)},
		}
		if err := s.Run(t.Context(), device.Launch{Op: graph.Op{Kind: "relu"}, Out: []device.Argument{out}}); err != nil {
			t.Fatal(err)
		}
	}
	at := func(what string, s device.Stream, want time.Duration) {
		t.Helper()
		if err := s.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := dev.Elapsed(); got != want {
			t.Errorf("%s: the clock says %v, want %v", what, got, want)
		}
	}
	copyIn(copies)
	mark := copies.Record()
	copyIn(copies)
	run(ops)
	ops.Wait(mark)
	at("an op beside a copy", ops, 10*ms)
	run(ops)
	at("a second op", ops, 20*ms)
	at("copies that were done long ago", copies, 20*ms)
	copyIn(other) // 5 ms
	copyIn(other)
	copyIn(other)
	copyIn(other)
	copyIn(other)
	late := other.Record() // at 25 ms
	ops.Wait(late)
	run(ops)
	at("an op that waits", ops, 35*ms)
	dev.Spend(7 * ms)
	run(ops)
	at("an op after the host was busy", ops, 52*ms)
	copyIn(other)
	at("a copy meanwhile", other, 52*ms)
	dev.SpendAfter(late, 100*ms)
	if got := dev.Elapsed(); got != 152*ms {
		t.Errorf("the host was busy from 52 ms on for 100 ms, and the clock says %v", got)
	}
	if got := dev.MovedBytes(); got != 8*4000 {
		t.Errorf("%d bytes were moved", got)
	}
	if err := errors.Join(memory.Free(), dev.Close()); err != nil {
		t.Error(err)
	}
}

// TestMemory: the limit is for what the device and others use together, what is freed can be had again once, and what is
// forgotten is told.
func TestMemory(t *testing.T) {
	dev := emulated.New(emulated.Options{MemoryBytes: 1000, FailAlloc: 5})
	alloc := func(bytes, free int64) device.Memory {
		t.Helper()
		m, err := dev.Alloc(bytes)
		var full *device.OutOfMemoryError
		switch {
		case free < 0 && err != nil:
			t.Fatal(err)
		case free >= 0 && (!errors.As(err, &full) || full.FreeBytes != free || full.WantBytes != bytes || full.Device != "emu"):
			t.Errorf("%d bytes of %d: %v", bytes, free, err)
		}
		return m
	}
	a := alloc(600, -1)
	alloc(401, 400)
	b := alloc(400, -1)
	if err := errors.Join(a.Free(), a.Free()); err != nil {
		t.Error(err)
	}
	if total, free := dev.Memory(); total != 1000 || free != 600 {
		t.Errorf("%d bytes are free of %d", free, total)
	}
	dev.Take(500)
	alloc(101, 100)
	alloc(1, 100) // the fifth
	c := alloc(100, -1)
	if dev.PeakBytes() != 1000 {
		t.Errorf("the peak is %d", dev.PeakBytes())
	}
	if err := errors.Join(b.Free()); err != nil {
		t.Error(err)
	}
	dev.Take(2000)
	if _, free := dev.Memory(); free != 0 {
		t.Errorf("others use all, and %d bytes are free", free)
	}
	if dev.Close() == nil {
		t.Error("nobody says that 100 bytes were not freed")
	}
	if err := errors.Join(c.Free(), dev.Close()); err != nil {
		t.Error(err)
	}
}

// TestRefusals: regions that are not there, on a device with memory behind it and on a dry one, and the copy that is to fail.
func TestRefusals(t *testing.T) {
	for _, dry := range []bool{false, true} {
		dev, another := emulated.New(emulated.Options{Dry: dry, FailCopy: 2}), emulated.New(emulated.Options{Dry: dry})
		memory, err := dev.Alloc(16)
		if err != nil {
			t.Fatal(err)
		}
		foreign, err := another.Alloc(16)
		if err != nil {
			t.Fatal(err)
		}
		s, err := dev.NewStream()
		if err != nil {
			t.Fatal(err)
		}
		for name, r := range map[string]device.Region{
			"beyond the end": {Memory: memory, Offset: 9, Bytes: 8}, "before the begin": {Memory: memory, Offset: -1, Bytes: 8},
			"behind the end": {Memory: memory, Offset: 17}, "of another device": {Memory: foreign, Bytes: 8}, "of nothing": {Bytes: 8},
			"of too many bytes": {Memory: memory, Offset: 8, Bytes: 1<<63 - 1},
		} {
			op := graph.Op{Kind: "relu"}
			argument := device.Argument{Region: r, Operand: graph.Operand{Layout: tensor.Contiguous(2)}}
			good := device.Argument{Region: device.Region{Memory: memory, Bytes: 8}, Operand: argument.Operand}
			for what, err := range map[string]error{
				"copied in":      s.CopyIn(r, make([]byte, 8)),
				"copied out":     s.CopyOut(make([]byte, 8), r),
				"an operand":     s.Run(t.Context(), device.Launch{Op: op, In: []device.Argument{argument}, Out: []device.Argument{good}}),
				"a result":       s.Run(t.Context(), device.Launch{Op: op, In: []device.Argument{good}, Out: []device.Argument{argument}}),
				"packed":         s.(device.Packer).Pack(t.Context(), &op, graph.Pack{}, argument, good.Region),
				"where it packs": s.(device.Packer).Pack(t.Context(), &op, graph.Pack{}, good, r),
			} {
				if err == nil {
					t.Errorf("dry %v: a region %s was %s", dry, name, what)
				}
			}
		}
		r := device.Region{Memory: memory, Bytes: 8}
		in := []byte("01234567")
		if err := s.CopyIn(r, in); err != nil {
			t.Error(err)
		}
		if err := s.CopyOut(make([]byte, 8), r); !errors.Is(err, emulated.ErrCopy) {
			t.Errorf("the second copy gives %v", err)
		}
		out := make([]byte, 8)
		if err := s.CopyOut(out, r); err != nil || !dry && !bytes.Equal(out, in) {
			t.Errorf("%q came back of %q: %v", out, in, err)
		}
		if err := errors.Join(memory.Free(), foreign.Free()); err != nil {
			t.Error(err)
		}
		if s.CopyIn(r, in) == nil {
			t.Error("freed memory was written")
		}
		if err := errors.Join(dev.Close(), another.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestStreamCopies: what does not fit into a region, or is not in it, is an error.
func TestStreamCopies(t *testing.T) {
	d := emulated.New(emulated.Options{})
	devicetest.Copies(t, d)
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
