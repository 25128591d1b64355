package pager

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"testing"
	"time"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/internal/panicked"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// A file is a source in memory that can be made to fail.
type file struct {
	data []byte
	// reads counts reads; the read numbered failAt (from 1) fails.
	failAt int
	reads  chan int
	// panics has the read panic instead.
	panics bool
}

func newFile(n int64) *file {
	f := &file{data: make([]byte, n), reads: make(chan int, 1)}
	f.reads <- 0
	for i := range n / 4 {
		x := float32(int32(i*2654435761%2001)-1000) / 30000
		binary.LittleEndian.PutUint32(f.data[i*4:], math.Float32bits(x))
	}
	return f
}

func (f *file) Size() int64 { return int64(len(f.data)) }

var errDisk = errors.New("the disk is gone")

func (f *file) ReadAt(ctx context.Context, p []byte, off int64) error {
	n := <-f.reads + 1
	fails := n == f.failAt // whoever has the number of reads may change it
	f.reads <- n
	if fails {
		if f.panics {
			panic(errDisk)
		}
		return errDisk
	}
	if off < 0 || off > int64(len(f.data)) || copy(p, f.data[off:]) < len(p) {
		return io.ErrUnexpectedEOF
	}
	return ctx.Err()
}

// network returns linear layers of the given widths with ReLUs between them and a skip from the first to the last, their
// weights in one file.
func network(t testing.TB, dev *cpu.Device, rows int, widths ...int) (*graph.Lowered, *file) {
	t.Helper()
	var size int64
	for i := range len(widths) - 1 {
		size += int64(widths[i]+1) * int64(widths[i+1]) * 4
	}
	src := newFile(size)
	g := &graph.Graph{}
	emit := func(path string, kind graph.Kind, in ...graph.Operand) graph.ValueID {
		out, err := g.Emit(graph.Standard(), graph.Op{Kind: kind, Path: path, In: in})
		if err != nil {
			t.Fatal(err)
		}
		return out[0]
	}
	var at int64
	weight := func(name string, shape ...int) graph.Operand {
		n := int64(4)
		for _, d := range shape {
			n *= int64(d)
		}
		w := g.AddWeight(tensor.Weight{
			Name: name, DType: tensor.Float32, Layout: tensor.Contiguous(shape...),
			Extent: storage.Extent{Source: src, Offset: at, Bytes: n},
		}, graph.Weight)
		at += n
		return graph.Operand{Value: w, Layout: tensor.Contiguous(shape...)}
	}
	x := g.AddInput("x", tensor.Float32, tensor.Shape{rows, widths[0]})
	first := graph.NoValue
	for i := range len(widths) - 1 {
		path := fmt.Sprint(i)
		x = emit(path, "linear", g.Whole(x), weight(path+".weight", widths[i+1], widths[i]), weight(path+".bias", widths[i+1]))
		if first == graph.NoValue {
			first = x
		}
		x = emit("act", "relu", g.Whole(x))
	}
	if g.Values[first].Shape.Equal(g.Values[x].Shape) {
		x = emit("", "add", g.Whole(x), g.Whole(first))
	}
	g.Outputs = []graph.Output{{Name: "y", Operand: g.Whole(x)}}
	l, err := dev.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	return l, src
}

// A transfer is an IO over memory.
type transfer struct{ in, out [][]byte }

func (x *transfer) Input(instance int, _ graph.ValueID) []byte { return x.in[instance] }
func (x *transfer) Output(instance, _ int, _ bool) []byte      { return x.out[instance] }
func newTransfer(g *graph.Graph, instances int) *transfer {
	x := &transfer{}
	for i := range instances {
		in := lying(g.Values[g.Inputs[0]].Bytes())
		for k := range len(in) / 4 {
			binary.LittleEndian.PutUint32(in[k*4:], math.Float32bits(float32((k*7+i*13)%11)-5))
		}
		x.in = append(x.in, in)
		x.out = append(x.out, lying(g.Values[g.Outputs[0].Operand.Value].Bytes()))
	}
	return x
}

func newCPU(t testing.TB) *cpu.Device {
	t.Helper()
	dev := cpu.New(2, graph.Standard())
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return dev
}

func newPager(t testing.TB, dev device.Device, o Options) *Pager {
	t.Helper()
	p, err := New(dev, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func mustPlan(t testing.TB, l *graph.Lowered, o search.Options) *plan.Plan {
	t.Helper()
	p, err := search.Plan(l, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// inUse returns what is allocated outside the heap.
func inUse() int64 {
	var n int64
	for _, p := range []hostmem.Purpose{hostmem.Weights, hostmem.Activations, hostmem.Workspace, hostmem.Staging} {
		n += hostmem.InUse(p)
	}
	return n
}

// TestModesGiveTheSameBits runs a network in every mode and compares bits with the resident one, pass after pass, and the
// memory held with what the plan says.
func TestModesGiveTheSameBits(t *testing.T) {
	dev := newCPU(t)
	l, _ := network(t, dev, 3, 100, 300, 50, 700, 300, 300, 20, 300)
	const instances = 3
	want := newTransfer(l.Graph, instances)
	resident := mustPlan(t, l, search.Options{Mode: plan.Resident})
	p := newPager(t, dev, Options{})
	for i := range instances {
		if err := p.Pass(t.Context(), resident, &transfer{want.in[i:], want.out[i:]}); err != nil {
			t.Fatal(err)
		}
	}
	if bytes.Equal(want.out[0], want.out[1]) || bytes.Equal(want.out[0], make([]byte, len(want.out[0]))) {
		t.Fatal("the instances cannot be told apart")
	}
	total := resident.PeakBytes()
	for _, o := range []search.Options{
		{Mode: plan.Page}, {Mode: plan.Page, Slots: 1}, {Mode: plan.Page, Slots: 2}, {Mode: plan.Page, Instances: instances},
		{Mode: plan.Page, MaxGroup: plan.Limit{N: 100_000, Unit: plan.Params}},
		{Mode: plan.Chunk, Capacity: plan.Limit{N: 300_000, Unit: plan.Params}},
		{Mode: plan.Chunk, Capacity: plan.Limit{N: 0, Unit: plan.Params}, Instances: 2},
		{Mode: plan.Auto, MemoryBytes: total * 3 / 4}, {Mode: plan.Auto, MemoryBytes: total * 3 / 4, Instances: instances},
		{Mode: plan.Auto}, {Mode: plan.Resident, Instances: instances},
	} {
		t.Run(fmt.Sprintf("%s/slots=%d/instances=%d/memory=%d", o.Mode, o.Slots, o.Instances, o.MemoryBytes), func(t *testing.T) {
			before := inUse()
			made := mustPlan(t, l, o)
			p := newPager(t, dev, Options{})
			for pass := range 3 {
				got := newTransfer(l.Graph, made.Instances)
				if err := p.Pass(t.Context(), made, got); err != nil {
					t.Fatal(err)
				}
				for i, out := range got.out {
					if !bytes.Equal(out, want.out[i]) {
						t.Fatalf("pass %d, instance %d gives other bits\n%v", pass, i, made)
					}
				}
			}
			if got := inUse() - before; got != made.PassBytes() || p.Held().Total() != got || p.Stats().PeakBytes != made.PeakBytes() {
				t.Errorf("%d bytes are held, %d say so, %d were planned", got, p.Held().Total(), made.PeakBytes())
			}
			if o.MemoryBytes > 0 && made.PeakBytes() > o.MemoryBytes {
				t.Errorf("takes %d of %d bytes", made.PeakBytes(), o.MemoryBytes)
			}
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			if got := inUse(); got != before {
				t.Errorf("%d bytes are left", got-before)
			}
		})
	}
}

// TestReadErrors makes every read of a pass fail in turn: the error names the group, nothing is left, and the pager works
// when the disk does again.
func TestReadErrors(t *testing.T) {
	dev := newCPU(t)
	l, src := network(t, dev, 2, 100, 300, 50, 200, 300)
	made := mustPlan(t, l, search.Options{Mode: plan.Page})
	before := inUse()
	p := newPager(t, dev, Options{})
	want := newTransfer(l.Graph, 1)
	if err := p.Pass(t.Context(), made, want); err != nil {
		t.Fatal(err)
	}
	for n := range 8 {
		p.current.fetcher.Reset()
		src.failAt = <-src.reads + 1 + n
		src.reads <- src.failAt - 1 - n
		var failed error
		for range 3 {
			x := newTransfer(l.Graph, 1)
			if failed = p.Pass(t.Context(), made, x); failed != nil {
				break
			}
		}
		var where *GroupError
		if !errors.Is(failed, errDisk) || !errors.As(failed, &where) || where.Path == "" || where.Step != "load" {
			t.Fatalf("read %d: got %v, want the disk's error and the group", n, failed)
		}
		got := newTransfer(l.Graph, 1)
		if err := p.Pass(t.Context(), made, got); err != nil {
			t.Fatalf("after read %d failed: %v", n, err)
		}
		if !bytes.Equal(got.out[0], want.out[0]) {
			t.Errorf("after read %d failed: other bits", n)
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if got := inUse(); got != before {
		t.Errorf("%d bytes are left", got-before)
	}
}

// TestReadPanics: a source of an embedder's that panics, on whichever goroutine, ends the pass with an error that names
// the group, and the pager goes on.
func TestReadPanics(t *testing.T) {
	dev := newCPU(t)
	l, src := network(t, dev, 2, 100, 300, 50, 200, 300)
	src.panics = true
	other := plan.Target{Name: "emu", AlignBytes: 256}
	for _, o := range []search.Options{
		{Mode: plan.Page}, {Mode: plan.Resident}, {Mode: plan.Page, Target: other}, {Mode: plan.Resident, Target: other},
	} {
		for n := 1; n < 6; n++ {
			var on device.Device = dev
			if o.Target == other {
				on = emulated.New(emulated.Options{MemoryBytes: 1 << 30})
			}
			p, made := newPager(t, on, Options{Readers: 1}), mustPlan(t, l, o)
			src.failAt = <-src.reads + n
			src.reads <- src.failAt - n
			var failed error
			for range 3 {
				if failed = p.Pass(t.Context(), made, newTransfer(l.Graph, 1)); failed != nil {
					break
				}
			}
			if failed == nil && (o.Mode == plan.Resident || o.Target == other) { // fewer reads
				if err := p.Close(); err != nil {
					t.Error(err)
				}
				continue
			}
			var where *GroupError
			var caught *panicked.Error
			if !errors.As(failed, &caught) || len(caught.Stack) == 0 || !errors.Is(failed, errDisk) ||
				!errors.As(failed, &where) || where.Path == "" || where.Step != "load" {
				t.Fatalf("%s, read %d: got %v, want the panic and the group", made.Mode, n, failed)
			}
			if err := p.Pass(t.Context(), made, newTransfer(l.Graph, 1)); err != nil {
				t.Errorf("%s, after read %d panicked: %v", made.Mode, n, err)
			}
			if err := p.Close(); err != nil { // it would read ahead
				t.Error(err)
			}
		}
	}
}

// TestCancel ends a pass at every group.
func TestCancel(t *testing.T) {
	dev := newCPU(t)
	l, _ := network(t, dev, 2, 100, 300, 50, 200, 300)
	made := mustPlan(t, l, search.Options{Mode: plan.Page})
	want := newTransfer(l.Graph, 1)
	for at := range made.Groups {
		ctx, cancel := context.WithCancel(t.Context())
		p := newPager(t, dev, Options{Observe: func(e Event) {
			if e.Group == at-1 {
				cancel()
			}
		}})
		if at == 0 {
			cancel()
		}
		if err := p.Pass(ctx, made, newTransfer(l.Graph, 1)); !errors.Is(err, context.Canceled) {
			t.Fatalf("group %d: got %v", at, err)
		}
		got := newTransfer(l.Graph, 1)
		if err := p.Pass(t.Context(), made, got); err != nil {
			t.Fatal(err)
		}
		if want.out[0] = got.out[0]; bytes.Equal(got.out[0], make([]byte, len(got.out[0]))) {
			t.Error("no output")
		}
		cancel()
	}
}

// TestEmulated runs every mode on a device with memory of its own: the same bits, no access out of order, the memory
// that was planned, and host memory within its bound.
func TestEmulated(t *testing.T) {
	host := newCPU(t)
	l, _ := network(t, host, 3, 100, 300, 50, 700, 300, 300, 20, 300)
	want := newTransfer(l.Graph, 1)
	resident := mustPlan(t, l, search.Options{Mode: plan.Resident})
	if err := newPager(t, host, Options{}).Pass(t.Context(), resident, want); err != nil {
		t.Fatal(err)
	}
	total := resident.PeakBytes()
	target := plan.Target{Name: "emu", AlignBytes: 256}
	for _, o := range []search.Options{
		{Mode: plan.Resident}, {Mode: plan.Page}, {Mode: plan.Page, Slots: 1}, {Mode: plan.Page, HostBytes: 2 << 20},
		{Mode: plan.Auto, MemoryBytes: total * 3 / 4}, {Mode: plan.Auto, MemoryBytes: total * 3 / 4, HostBytes: 2 << 20},
	} {
		t.Run(fmt.Sprintf("%s/slots=%d/memory=%d/host=%d", o.Mode, o.Slots, o.MemoryBytes, o.HostBytes), func(t *testing.T) {
			o.Target = target
			made := mustPlan(t, l, o)
			dev := emulated.New(emulated.Options{
				MemoryBytes: made.PeakBytes(), CopyBytes: 1e9, CopyLatency: time.Microsecond, CheckOrder: true,
				Cost: func(*graph.Step, *graph.Op, []graph.Spec, []graph.Spec) time.Duration { return time.Millisecond },
			})
			before := hostmem.InUse(hostmem.Staging)
			p, err := New(dev, Options{})
			if err != nil {
				t.Fatal(err)
			}
			for range 4 {
				got := newTransfer(l.Graph, 1)
				if err := p.Pass(t.Context(), made, got); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got.out[0], want.out[0]) {
					t.Fatal("other bits")
				}
				held := hostmem.InUse(hostmem.Staging) - before
				if o.HostBytes > 0 && held > o.HostBytes || held > made.HostBytes() {
					t.Errorf("%d bytes of host memory, %d planned, %d allowed", held, made.HostBytes(), o.HostBytes)
				}
			}
			if dev.PeakBytes() != made.PeakBytes() {
				t.Errorf("a peak of %d bytes, %d planned", dev.PeakBytes(), made.PeakBytes())
			}
			if err := errors.Join(p.Close(), dev.Close()); err != nil {
				t.Fatal(err)
			}
			if hostmem.InUse(hostmem.Staging) != before {
				t.Error("host memory is left")
			}
		})
	}
}
