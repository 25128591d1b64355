//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// A desk is a stream with memory in which ops are run one at a time.
type desk struct {
	t      *testing.T
	dev    *cuda.Device
	stream device.Stream
	memory device.Memory
	at     int64
}

func newDesk(t *testing.T, dev *cuda.Device) *desk {
	t.Helper()
	d := &desk{t: t, dev: dev}
	var err error
	if d.memory, err = dev.Alloc(1 << 16); err != nil {
		t.Fatal(err)
	}
	if d.stream, err = dev.NewStream(); err != nil {
		t.Fatal(err)
	}
	return d
}

// put copies a tensor to memory of its own.
func (d *desk) put(x *tensor.Tensor) device.Argument {
	d.t.Helper()
	a := device.Argument{
		Region:  device.Region{Memory: d.memory, Offset: d.at, Bytes: int64(len(x.Data))},
		Operand: graph.Operand{Layout: x.Layout}, Spec: graph.Spec{DType: x.DType, Shape: x.Layout.Shape},
	}
	d.at += (int64(len(x.Data)) + 255) / 256 * 256
	if err := d.stream.CopyIn(a.Region, x.Data); err != nil {
		d.t.Fatal(err)
	}
	return a
}

// launch lowers an op over operands that were put, and gives its result a place.
func (d *desk) launch(op graph.Op, in ...device.Argument) device.Launch {
	d.t.Helper()
	g := &graph.Graph{}
	for _, a := range in {
		op.In = append(op.In, g.Whole(g.AddInput("", a.Spec.DType, a.Spec.Shape)))
	}
	out, err := g.Emit(graph.Standard(), op)
	if err != nil {
		d.t.Fatal(err)
	}
	l, err := cuda.Lower(g)
	if err != nil {
		d.t.Fatal(err)
	}
	v := g.Values[out[0]]
	launch := device.Launch{Step: l.Steps[0], Op: op, In: in}
	launch.Out = []device.Argument{d.put(&tensor.Tensor{DType: v.DType, Layout: tensor.Contiguous(v.Shape...), Data: make([]byte, v.Bytes())})}
	if n := l.Steps[0].WorkBytes; n > 0 {
		launch.Work = device.Region{Memory: d.memory, Offset: d.at, Bytes: n}
		d.at += n
	}
	return launch
}

func (d *desk) close() {
	d.t.Helper()
	if err := errors.Join(d.stream.Close(), d.memory.Free()); err != nil {
		d.t.Error(err)
	}
}

// TestMarksStayDone: a mark that was reached long ago stays so, whatever its stream has yet to do, for the host and for streams
// that wait for it.
func TestMarksStayDone(t *testing.T) {
	dev, lib := openSimulated(t, "memory=1M order=lazy:3")
	d := newDesk(t, dev)
	defer d.close()
	other, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	first := d.stream.Record()
	if err := d.stream.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	events := lib.Report().Left["events"]
	for range 260 {
		d.stream.Record()
	}
	if got := lib.Report().Left["events"]; got >= events+260 {
		t.Fatalf("%d events of the driver: none is used again", got)
	}
	if !first.Done() {
		t.Error("a mark that was reached is not done any more")
	}
	if err := first.Sync(t.Context()); err != nil {
		t.Error(err)
	}
	other.Wait(first)
	if err := errors.Join(other.Sync(t.Context()), other.Close(), d.stream.Sync(t.Context())); err != nil {
		t.Error(err)
	}
}

// TestMarksThatFailAreTold: where the driver refuses a wait the stream takes no work, so that nothing runs too early, until Sync
// says why; then it goes on.
func TestMarksThatFailAreTold(t *testing.T) {
	dev, _ := openSimulated(t, "memory=1M fault=cuStreamWaitEvent:1:400")
	d := newDesk(t, dev)
	defer d.close()
	other, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	x := d.put(numbers(tensor.Float32, 8))
	d.stream.Wait(other.Record())
	if d.stream.CopyIn(x.Region, make([]byte, 32)) == nil {
		t.Error("a stream that could not wait copies")
	}
	if err := d.stream.Sync(t.Context()); err == nil || !strings.Contains(err.Error(), "cuStreamWaitEvent") {
		t.Errorf("Sync says %v", err)
	}
	if err := errors.Join(d.stream.CopyIn(x.Region, make([]byte, 32)), d.stream.Sync(t.Context()), other.Close()); err != nil {
		t.Errorf("after that: %v", err)
	}
}

// TestAheadIsBounded: who gives out op after op without waiting learns of a failure of the first before there are many
// more, kept or not: otherwise whoever cancels would wait for all of them.
func TestAheadIsBounded(t *testing.T) {
	const most = 256 // three times 64, and what comes until the next mark
	for _, kept := range []bool{false, true} {
		dev, _ := openAlone(t, "memory=1M order=lazy:3 fault=late:cuLaunchKernel:1:719")
		d := newDesk(t, dev)
		relu := d.launch(graph.Op{Kind: "relu"}, d.put(numbers(tensor.Float32, 8)))
		each, run := 1, func() error { return d.stream.Run(t.Context(), relu) }
		if kept {
			each = 100
			if err := run(); err != nil {
				t.Fatal(err)
			}
			keeper := d.stream.(device.Keeper)
			if err := keeper.BeginKeeping(); err != nil {
				t.Fatal(err)
			}
			for range each {
				if err := run(); err != nil {
					t.Fatal(err)
				}
			}
			ops, err := keeper.EndKeeping()
			if err != nil {
				t.Fatal(err)
			}
			run = func() error { return keeper.RunKept(t.Context(), ops) }
		}
		given, err := 0, error(nil)
		for ; err == nil && given < 10*most; given += each {
			err = run()
		}
		var lost *cuda.LostError
		if !errors.As(err, &lost) || given > most+3*each {
			t.Errorf("kept %v: %d ops were given out until %v", kept, given, err)
		}
		d.close()
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestFailureOnDataIsToldOnce: the op that failed is named, of those that could have, and the stream computes on.
func TestFailureOnDataIsToldOnce(t *testing.T) {
	dev, _ := openSimulated(t, "memory=1M order=lazy:3")
	d := newDesk(t, dev)
	defer d.close()
	table := d.put(tensor.Of([]float32{1, 2, 3}, 3))
	embedding := func(path string, ids ...int64) device.Launch {
		return d.launch(graph.Op{Kind: "embedding", Path: path}, table, d.put(tensor.Of(ids, len(ids))))
	}
	good, bad, third := embedding("first", 2, 0), embedding("second", 0, 3), embedding("third", 1)
	run := func(want string, list ...device.Launch) {
		t.Helper()
		for _, l := range list {
			if err := d.stream.Run(t.Context(), l); err != nil {
				t.Fatal(err)
			}
		}
		err := d.stream.Sync(t.Context())
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %q", err, want)
		}
	}
	run("", good, third)
	run("second: embedding: index out of range", good, bad, third)
	run("")
	run("", good, third)
	run("second: embedding: index out of range", third, bad)
	run("", third)
}
