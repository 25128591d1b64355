//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"errors"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// TestMemoryIsCounted: the peak is the most that was allocated at once, memory is given back once, and an error of memory says how
// much there is.
func TestMemoryIsCounted(t *testing.T) {
	const all, others, piece = 1 << 20, 256 << 10, 512
	dev, lib := openSimulated(t, "memory=1M")
	alloc := func(n int64) device.Memory {
		t.Helper()
		m, err := dev.Alloc(n)
		if err != nil || m.Bytes() != n {
			t.Fatal(m, err)
		}
		return m
	}
	a, b := alloc(1024), alloc(512)
	if dev.PeakBytes() != 1536 {
		t.Errorf("the peak is %d", dev.PeakBytes())
	}
	if err := errors.Join(a.Free(), a.Free()); err != nil {
		t.Error(err)
	}
	c, none := alloc(piece), alloc(0)
	if dev.PeakBytes() != 1536 {
		t.Errorf("after some was given back the peak is %d", dev.PeakBytes())
	}
	lib.Take(0, others)
	total, free := dev.Memory()
	if total != all || free != all-others-2*piece {
		t.Errorf("%d bytes are free of %d", free, total)
	}
	for _, n := range []int64{all, -1} {
		_, err := dev.Alloc(n)
		var full *device.OutOfMemoryError
		if !errors.As(err, &full) || full.WantBytes != n || full.Device != dev.Name() || n > 0 && full.FreeBytes != free {
			t.Errorf("%d bytes of %d that are free: %v", n, free, err)
		}
	}
	big := alloc(free)
	if dev.PeakBytes() != free+2*piece {
		t.Errorf("with all that there is the peak is %d", dev.PeakBytes())
	}
	for _, m := range []device.Memory{b, c, none, big} {
		if err := errors.Join(m.Free(), m.Free()); err != nil {
			t.Error(err)
		}
	}
}

// TestMemoryRegions: no region that is not there is copied to or from, and no op takes one.
func TestMemoryRegions(t *testing.T) {
	dev, lib := openSimulated(t, "memory=1M")
	another, err := cuda.New(cuda.Options{Library: lib.Path})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	var memories []device.Memory
	for _, d := range []device.Device{dev, dev, another} {
		m, err := d.Alloc(1024)
		if err != nil {
			t.Fatal(err)
		}
		memories = append(memories, m)
	}
	here, gone, foreign := memories[0], memories[1], memories[2]
	if err := gone.Free(); err != nil {
		t.Fatal(err)
	}
	good := device.Region{Memory: here, Bytes: 64}
	argument := func(r device.Region) []device.Argument {
		return []device.Argument{{
			Region: r, Operand: graph.Operand{Layout: tensor.Contiguous(16)},
			Spec: graph.Spec{DType: tensor.Float32, Shape: tensor.Shape{16}},
		}}
	}
	op := graph.Op{Kind: "relu"}
	for name, r := range map[string]device.Region{
		"beyond the end": {Memory: here, Offset: 1000, Bytes: 64}, "behind the end": {Memory: here, Offset: 1025, Bytes: 64},
		"before the begin": {Memory: here, Offset: -4, Bytes: 64}, "of less than nothing": {Memory: here, Offset: 8, Bytes: -8},
		"of too many bytes": {Memory: here, Offset: 8, Bytes: 1<<63 - 1},
		"of freed memory":   {Memory: gone, Bytes: 64}, "of another device": {Memory: foreign, Bytes: 64}, "of nothing": {Bytes: 64},
	} {
		for what, err := range map[string]error{
			"copied in":      stream.CopyIn(r, make([]byte, 64)),
			"copied out":     stream.CopyOut(make([]byte, 64), r),
			"an operand":     stream.Run(t.Context(), device.Launch{Op: op, In: argument(r), Out: argument(good)}),
			"a result":       stream.Run(t.Context(), device.Launch{Op: op, In: argument(good), Out: argument(r)}),
			"scratch memory": stream.Run(t.Context(), device.Launch{Op: op, In: argument(good), Out: argument(good), Work: r}),
		} {
			if err == nil && (what != "scratch memory" || r.Bytes > 0) {
				t.Errorf("a region %s was %s", name, what)
			}
		}
	}
	if stream.CopyIn(good, make([]byte, 65)) == nil {
		t.Error("65 bytes were copied to 64")
	}
	if stream.CopyOut(make([]byte, 65), good) == nil {
		t.Error("65 bytes were copied of 64")
	}
	x := numbers(tensor.Float32, 16)
	out := device.Region{Memory: here, Offset: 960, Bytes: 64}
	got := &tensor.Tensor{DType: tensor.Float32, Layout: x.Layout, Data: make([]byte, 64)}
	for _, err := range []error{
		stream.CopyIn(good, x.Data), stream.Run(t.Context(), device.Launch{Op: graph.Op{Kind: "neg"}, In: argument(good), Out: argument(out)}),
		stream.Run(t.Context(), device.Launch{Op: graph.Op{Kind: "neg"}, In: argument(out), Out: argument(good)}),
		stream.CopyOut(got.Data, good), stream.Sync(t.Context()), stream.Close(), here.Free(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := devicetest.Compare(got, x, 0); err != nil {
		t.Error(err)
	}
	if err := errors.Join(foreign.Free(), another.Close()); err != nil {
		t.Error(err)
	}
}

// TestForgottenMemory: a device that is closed says what was not given back, of its memory and of the host's.
func TestForgottenMemory(t *testing.T) {
	for name, take := range map[string]func(d *cuda.Device) (free func(), err error){
		"memory": func(d *cuda.Device) (func(), error) {
			m, err := d.Alloc(64)
			return func() { _ = m.Free() }, err // the device is closed by then
		},
		"page-locked memory": func(d *cuda.Device) (func(), error) {
			h, err := d.AllocHost(64)
			return h.Free, err
		},
		"memory of the host's": func(d *cuda.Device) (func(), error) {
			h, err := d.Register(make([]byte, 64))
			return h.Free, err
		},
	} {
		dev, _ := openAlone(t, "memory=1M")
		free, err := take(dev)
		if err != nil {
			t.Fatal(err)
		}
		if dev.Close() == nil {
			t.Errorf("nobody says that %s was not freed", name)
		}
		if err := dev.Close(); err != nil {
			t.Errorf("a second time: %v", err)
		}
		free()
	}
	dev, lib := openAlone(t, "memory=1M")
	h, err := dev.AllocHost(64)
	if err != nil {
		t.Fatal(err)
	}
	r, err := dev.Register(make([]byte, 1<<16))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		h.Free()
		r.Free()
	}
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
	lib.Check(t)
}
