package pager

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/device/late"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/tensor"
)

// TestPlansTakeTurns: plans of which one wants a large ring and the other large activations run in turns within a budget that is
// enough for each by itself, on a device that has that much and on one that has more.
func TestPlansTakeTurns(t *testing.T) {
	host := newCPU(t)
	few, _ := network(t, host, 1, 100, 300, 300, 300, 300)
	many, _ := network(t, host, 100, 100, 300, 300, 300, 300)
	plans := []*plan.Plan{
		mustPlan(t, few, search.Options{Mode: plan.Page, Target: emu, Slots: 4}),
		mustPlan(t, many, search.Options{Mode: plan.Page, Target: emu, Slots: 1}),
	}
	budget := max(plans[0].PeakBytes(), plans[1].PeakBytes())
	if sum := max(plans[0].RingBytes, plans[1].RingBytes) + max(plans[0].ActivationBytes, plans[1].ActivationBytes); sum <= budget {
		t.Fatalf("both fit into %d bytes at once\n%v\n%v", budget, plans[0], plans[1])
	}
	var want []*transfer
	for _, l := range []*graph.Lowered{few, many} {
		x := newTransfer(l.Graph, 1)
		if err := newPager(t, host, Options{}).Pass(t.Context(), mustPlan(t, l, search.Options{Mode: plan.Resident}), x); err != nil {
			t.Fatal(err)
		}
		want = append(want, x)
	}
	for name, c := range map[string]struct{ has, bound int64 }{
		"there is more": {}, "the device has no more": {budget, 0}, "the pager may take no more": {0, budget}, "both": {budget, budget},
	} {
		inner := emulated.New(emulated.Options{MemoryBytes: c.has, CheckOrder: true})
		dev := late.New(inner, late.Options{})
		p := newPager(t, dev, Options{MemoryBytes: c.bound})
		for n := range 6 {
			k := n % 2
			x := newTransfer(plans[k].Lowered.Graph, 1)
			if err := p.Pass(t.Context(), plans[k], x); err != nil || !bytes.Equal(x.out[0], want[k].out[0]) {
				t.Fatalf("%s, pass %d: %v, or other bits", name, n, err)
			}
		}
		if c.has+c.bound > 0 && inner.PeakBytes() > budget {
			t.Errorf("%s: %d bytes were taken of %d", name, inner.PeakBytes(), budget)
		}
		if err := errors.Join(p.Close(), dev.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// A registrar is a device that copies in place from memory that it is told of.
type registrar struct {
	*late.Device
	bytes int64
}

type registered struct {
	d   *registrar
	mem []byte
}

func (d *registrar) Register(mem []byte) (device.HostMemory, error) {
	d.bytes += int64(len(mem))
	return &registered{d, mem}, nil
}

func (r *registered) Bytes() []byte { return r.mem }
func (r *registered) Free()         { r.d.bytes -= int64(len(r.mem)) }

// A held file lies in memory.
type heldFile struct{ *file }

func (f heldFile) Memory() []byte { return f.data }

// TestSourcesInMemory: weights of sources in memory are copied from where they lie, as many sources as the host's memory has
// room for beside what the plan takes, and left alone when the pager is closed.
func TestSourcesInMemory(t *testing.T) {
	host := newCPU(t)
	l, src := network(t, host, 2, 50, 60, 60, 60, 60)
	want := newTransfer(l.Graph, 1)
	if err := newPager(t, host, Options{}).Pass(t.Context(), mustPlan(t, l, search.Options{Mode: plan.Resident}), want); err != nil {
		t.Fatal(err)
	}
	halves := [2]heldFile{{&file{data: src.data, reads: make(chan int, 1)}}, {&file{data: bytes.Clone(src.data), reads: make(chan int, 1)}}}
	weights := 0
	for _, f := range halves {
		f.reads <- 0
	}
	for i := range l.Graph.Values {
		if w := &l.Graph.Values[i].Weight; w.Extent.Source == src {
			w.Extent.Source = halves[weights/4]
			weights++
		}
	}
	made := mustPlan(t, l, search.Options{Mode: plan.Page, Target: emu})
	size := src.Size()
	for _, c := range []struct{ bound, most int64 }{
		{0, 2 * size}, {made.HostBytes() + 2*size, 2 * size}, {made.HostBytes() + 2*size - 1, size}, {made.HostBytes() + size - 1, 0},
	} {
		dev := &registrar{Device: late.New(emulated.New(emulated.Options{CheckOrder: true}), late.Options{})}
		p, err := New(dev, Options{HostBytes: c.bound})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			x := newTransfer(l.Graph, 1)
			if err := p.Pass(t.Context(), made, x); err != nil || !bytes.Equal(x.out[0], want.out[0]) {
				t.Fatalf("%d bytes of host memory: %v, or other bits", c.bound, err)
			}
			if n := p.Stats().RegisteredBytes; n != c.most || dev.bytes != n {
				t.Errorf("%d bytes of host memory: %d are said to be copied from in place, %d are, want %d", c.bound, n, dev.bytes, c.most)
			}
		}
		if err := errors.Join(p.Close(), dev.Close()); err != nil || dev.bytes != 0 {
			t.Errorf("%v, %d bytes are left to the device", err, dev.bytes)
		}
	}
}

// TestNothingGoesOnAfterClose: a pager that is closed leaves no goroutine, whatever passes it has run and however they ended.
func TestNothingGoesOnAfterClose(t *testing.T) {
	l, src := sentence(t, tensor.Int64)
	made := mustPlan(t, l, search.Options{Mode: plan.Page, MemoryBytes: 1 << 20})
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) { // which ends with an error where goroutines are left
			src.reads = make(chan int, 1)
			src.reads <- 0
			if src.failAt = 0; fails {
				src.failAt = 4
			}
			dev := cpu.New(1, graph.Standard())
			p, err := New(dev, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Pass(t.Context(), made, spoken(l, 1)); (err != nil) != fails {
				t.Errorf("%v", err)
			}
			if err := errors.Join(p.Close(), dev.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

// packedOf returns a plan that packs weights on a device with memory of its own, with what computes it alone.
func packedOf(t *testing.T, host *cpu.Device) (*plan.Plan, *transfer) {
	t.Helper()
	l, _ := network(t, host, 64, 96, 128, 64, 96, 128)
	made := mustPlan(t, l, search.Options{Mode: plan.Resident, Target: emu})
	if len(made.Fixed.Packings) == 0 {
		t.Skip("the processor's kernels take no weights packed")
	}
	want := newTransfer(l.Graph, 1)
	if err := newPager(t, host, Options{}).Pass(t.Context(), mustPlan(t, l, search.Options{Mode: plan.Resident}), want); err != nil {
		t.Fatal(err)
	}
	return made, want
}

// TestPackingFails: where any call of a device fails while weights are packed, no memory is given back that the device still
// works with, and the next pass brings the weights again.
func TestPackingFails(t *testing.T) {
	host := newCPU(t)
	made, want := packedOf(t, host)
	for _, what := range troubles {
		for n := 1; ; n++ {
			inner := emulated.New(emulated.Options{CheckOrder: true, Threads: 1})
			dev, ctx, hit := troubled(t.Context(), inner, what, n, late.Options{Seed: uint64(n)})
			p := newPager(t, dev, Options{})
			err := p.Pass(ctx, made, newTransfer(made.Lowered.Graph, 1))
			if err != nil && what.waits != errors.Is(err, context.Canceled) || err != nil && !what.waits && !errors.Is(err, errLost) {
				t.Fatalf("call %d %s: %v", n, what.name, err)
			}
			if len(hit) == 0 {
				break
			}
			x := newTransfer(made.Lowered.Graph, 1)
			if err := p.Pass(t.Context(), made, x); err != nil || !bytes.Equal(x.out[0], want.out[0]) {
				t.Fatal(fmt.Errorf("after call %d %s: %w, or other bits", n, what.name, err))
			}
			if err := errors.Join(p.Close(), dev.Close()); err != nil {
				t.Fatal(err)
			}
		}
	}
}
