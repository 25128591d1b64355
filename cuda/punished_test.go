//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/tensor"
)

// scarce returns a plan whose weights stay and come through host memory that is far smaller than they are.
func scarce(t *testing.T) *plan.Plan {
	t.Helper()
	l := lower(t, network(t, 2, 130, 220, 170, 190, 40))
	p := planned(t, l, search.Options{Mode: plan.Resident, HostBytes: 128 << 10})
	if fixed := plan.SpanBytes(p.Fixed.Spans); p.StagingBytes == 0 || fixed < 4*p.StagingBytes {
		t.Fatalf("%d bytes stay, and come through %d", fixed, p.StagingBytes)
	}
	return p
}

// TestStagingIsFilledAgain: the host memory through which weights come is filled again only once what was there was
// copied, and nobody waits for a copy by spinning.
func TestStagingIsFilledAgain(t *testing.T) {
	p := scarce(t)
	want := onCPU(t, p.Lowered.Graph)
	for _, order := range []string{"threads", "lazy:0", "lazy:1", "lazy:2"} {
		dev, lib := openSimulated(t, "memory=8M order="+order)
		got, _, err := passes(t.Context(), dev, p, 2)
		if err == nil {
			err = devicetest.Compare(float32s(got), float32s(want), 1e-5)
		}
		if err != nil {
			t.Fatalf("%s: %v", order, err)
		}
		if r := lib.Report(); r.Misuses > 0 || r.Spins > 0 || r.Timed > 0 {
			t.Errorf("%s: %+v", order, r)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestStagingFails makes each copy of the weights that stay fail in turn: what was given out before is waited for, and
// the memory that it comes from is given back after that.
func TestStagingFails(t *testing.T) {
	p := scarce(t)
	for n := 1; ; n++ {
		dev, lib, pg := openPager(t, fmt.Sprintf("memory=8M order=lazy:%d fault=cuMemcpyHtoDAsync:%d:1", n%3, n))
		err := pg.Pass(t.Context(), p, newTransfer(p.Lowered.Graph))
		var again error
		if err != nil {
			again = pg.Pass(t.Context(), p, newTransfer(p.Lowered.Graph))
		}
		if failed := errors.Join(again, pg.Close(), dev.Close()); failed != nil {
			t.Fatalf("copy %d: %v", n, failed)
		}
		lib.Check(t)
		if err == nil {
			if n < 6 {
				t.Errorf("%d copies", n-1)
			}
			return
		}
	}
}

// TestStreamsEndAfterTheirWork: a stream that is closed has done what it was given, and so says every mark of it.
func TestStreamsEndAfterTheirWork(t *testing.T) {
	dev, lib := openSimulated(t, "memory=1M order=lazy:3")
	d := newDesk(t, dev)
	defer d.close()
	x := d.put(numbers(tensor.Float32, 8))
	s, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	host, err := dev.AllocHost(32)
	if err != nil {
		t.Fatal(err)
	}
	s.Wait(d.stream.Record())
	if err := s.CopyOut(host.Bytes(), x.Region); err != nil {
		t.Fatal(err)
	}
	mark := s.Record()
	if err := s.Close(); err != nil || !mark.Done() {
		t.Errorf("closed: %v, and its mark is done: %v", err, mark.Done())
	}
	if !bytes.Equal(host.Bytes(), numbers(tensor.Float32, 8).Data) {
		t.Error("the copy was not made")
	}
	host.Free()
	if r := lib.Report(); r.Misuses > 0 {
		t.Errorf("%+v", r)
	}
}

// TestManyMarks: marks of which nobody has heard yet keep their events, however many there are.
func TestManyMarks(t *testing.T) {
	dev, lib := openSimulated(t, "memory=1M order=lazy:3")
	d := newDesk(t, dev)
	defer d.close()
	host, err := dev.AllocHost(32)
	if err != nil {
		t.Fatal(err)
	}
	x := d.put(numbers(tensor.Float32, 8))
	if err := d.stream.CopyIn(x.Region, host.Bytes()); err != nil {
		t.Fatal(err)
	}
	var marks []device.Event
	for range 700 {
		marks = append(marks, d.stream.Record())
	}
	if marks[0].Done() || marks[699].Done() {
		t.Error("marks are done that nobody has waited for, which this order does not do")
	}
	if err := marks[0].Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range host.Bytes() {
		host.Bytes()[i] = byte(i)
	}
	if err := errors.Join(d.stream.CopyIn(x.Region, host.Bytes()), d.stream.Sync(t.Context())); err != nil {
		t.Fatal(err)
	}
	for i, m := range marks {
		if !m.Done() {
			t.Errorf("mark %d is not done", i)
		}
	}
	host.Free()
	if r := lib.Report(); r.Misuses > 0 || r.Spins > 0 {
		t.Errorf("%+v", r)
	}
}

// TestPassesDoNotSpin: whatever a pass waits for, the host's processors are free meanwhile.
func TestPassesDoNotSpin(t *testing.T) {
	l := lower(t, network(t, 5, widths...))
	for name, p := range pagedPlans(t, l) {
		dev, lib := openSimulated(t, "memory=8M order=lazy:4")
		if _, _, err := passes(t.Context(), dev, p, 3); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if r := lib.Report(); r.Spins > 0 || r.Timed > 0 || r.Misuses > 0 {
			t.Errorf("%s: %+v", name, r)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestKernelsOutliveNoModule: kernels that run are waited for before a device that rests or closes gives up what they
// are of.
func TestKernelsOutliveNoModule(t *testing.T) {
	dev, lib := openSimulated(t, "memory=1M order=lazy:1")
	d := newDesk(t, dev)
	if err := d.stream.Run(t.Context(), d.launch(graph.Op{Kind: "relu"}, d.put(numbers(tensor.Float32, 8)))); err != nil {
		t.Fatal(err)
	}
	d.close()
	if err := dev.Rest(); err != nil {
		t.Fatal(err)
	}
	if r := lib.Report(); r.Misuses > 0 {
		t.Errorf("%+v", r)
	}
}

// TestWaitsAskFirst: a mark that was reached, or nearly, is asked for and not slept for; one that was not is slept for.
func TestWaitsAskFirst(t *testing.T) {
	dev, _ := openSimulated(t, "memory=1M order=lazy:1 fault=cuEventSynchronize:1:400")
	d := newDesk(t, dev)
	defer d.close()
	x := d.put(numbers(tensor.Float32, 8))
	reached := d.stream.Record()
	out := make([]byte, 32) // which the driver copies before it returns
	if err := d.stream.CopyOut(out, x.Region); err != nil {
		t.Fatal(err)
	}
	if err := reached.Sync(t.Context()); err != nil {
		t.Errorf("a mark that was reached: %v", err)
	}
	if err := d.stream.CopyIn(x.Region, out); err != nil {
		t.Fatal(err)
	}
	if err := d.stream.Record().Sync(t.Context()); err == nil || !strings.Contains(err.Error(), "cuEventSynchronize") {
		t.Errorf("a mark that was not: %v", err)
	}
	if err := d.stream.Sync(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestInputsAndOutputsArePinned: what a pass is given and gives passes through page-locked memory that the plan knows,
// so that no copy is one that the host waits for; without room for it copies are of the ordinary kind, and the bits the
// same.
func TestInputsAndOutputsArePinned(t *testing.T) {
	l := lower(t, network(t, 5, widths...))
	for _, mode := range []plan.Mode{plan.Resident, plan.Page} {
		var want []byte
		for _, pins := range []bool{true, false} {
			dev, lib := openSimulated(t, "memory=8M order=lazy:4")
			p := planned(t, l, search.Options{Mode: mode})
			if p.TransferBytes == 0 {
				t.Fatal("the plan has no memory for inputs and outputs")
			}
			if !pins {
				other := *p
				p, other.TransferBytes = &other, 0
			}
			got, stats, err := passes(t.Context(), dev, p, 3)
			if err != nil || stats.PageableBytes != 0 {
				t.Fatalf("%v, %+v", err, stats)
			}
			if r := lib.Report(); (r.Unpinned == 0) != pins || r.Spins > 0 || r.Misuses > 0 {
				t.Errorf("%s, pinned %v: %+v", mode, pins, r)
			}
			if want == nil {
				want = got
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s: other bits", mode)
			}
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
