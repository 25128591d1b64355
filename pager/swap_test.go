package pager

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// TestSwap runs a network whose skip connection waits in host memory: the same bits, no access out of order, and the
// memory that was planned, for several instances, too.
func TestSwap(t *testing.T) {
	host := newCPU(t)
	l, _ := network(t, host, 200, 100, 200, 20, 600, 600, 20, 200)
	const instances = 3
	want := newTransfer(l.Graph, instances)
	resident := mustPlan(t, l, search.Options{Mode: plan.Resident, Instances: instances})
	if err := newPager(t, host, Options{}).Pass(t.Context(), resident, want); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, instances} {
		o := search.Options{
			Mode: plan.Page, Target: plan.Target{Name: "emu", AlignBytes: 256}, MemoryBytes: 1, Instances: n, Lower: host.Lower,
		}
		o.MemoryBytes = leastMemory(t, l, o)
		made := mustPlan(t, l, o)
		if made.SwapBytes == 0 {
			t.Fatalf("nothing waits in host memory:\n%v", made)
		}
		before := inUse()
		dev := emulated.New(emulated.Options{
			MemoryBytes: made.PeakBytes(), CopyBytes: 1e9, CopyLatency: time.Microsecond, CheckOrder: true,
		})
		p, err := New(dev, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			got := newTransfer(l.Graph, n)
			if err := p.Pass(t.Context(), made, got); err != nil {
				t.Fatal(err)
			}
			for i := range got.out {
				if !bytes.Equal(got.out[i], want.out[i]) {
					t.Fatalf("instance %d of %d gives other bits", i, n)
				}
			}
		}
		if held := inUse() - before - dev.PeakBytes(); held != p.HostBytes() || held > made.HostBytes() {
			t.Errorf("%d bytes of host memory, %d said, %d planned", held, p.HostBytes(), made.HostBytes())
		}
		out, in := made.SwappedBytes()
		if s := p.Stats(); out == 0 || s.SwappedOutBytes != 3*out || s.SwappedInBytes != 3*in {
			t.Errorf("%+v, and %d bytes leave in a pass, %d come back", s, out, in)
		}
		if hostmem.InUse(hostmem.Activations) == 0 {
			t.Error("nothing is counted")
		}
		if err := errors.Join(p.Close(), dev.Close()); err != nil {
			t.Fatal(err)
		}
		if inUse() != before {
			t.Errorf("%d bytes are left", inUse()-before)
		}
	}
}

// TestSwapToAFile runs the same network on the CPU, whose activations wait in a file: the same bits, in memory that is no
// more than planned and less than without. The file is there while it is wanted, and never under a name.
func TestSwapToAFile(t *testing.T) {
	host := newCPU(t)
	l, _ := network(t, host, 200, 100, 200, 20, 600, 600, 20, 200)
	const instances = 3
	want := newTransfer(l.Graph, instances)
	o := search.Options{Mode: plan.Resident, Target: plan.CPU, Instances: instances}
	resident := mustPlan(t, l, o)
	if err := newPager(t, host, Options{}).Pass(t.Context(), resident, want); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, instances} {
		o := search.Options{Mode: plan.Page, Target: plan.CPU, MemoryBytes: 1, Instances: n, Lower: host.Lower}
		least := leastMemory(t, l, o)
		o.SwapBytes = 1 << 20
		o.MemoryBytes = leastMemory(t, l, o)
		made := mustPlan(t, l, o)
		if made.SwapBytes == 0 || o.MemoryBytes >= least || made.HostBytes() != 0 {
			t.Fatalf("nothing waits in a file, or it saves nothing of %d bytes:\n%v", least, made)
		}
		folder := t.TempDir()
		p, err := New(host, Options{SwapFolder: folder})
		if err != nil {
			t.Fatal(err)
		}
		const passes = 3
		for range passes {
			got := newTransfer(l.Graph, n)
			if err := p.Pass(t.Context(), made, got); err != nil {
				t.Fatal(err)
			}
			for i := range got.out {
				if !bytes.Equal(got.out[i], want.out[i]) {
					t.Fatalf("instance %d of %d gives other bits", i, n)
				}
			}
		}
		out, in := made.SwappedBytes()
		if s := p.Stats(); s.SwappedOutBytes != passes*out || s.SwappedInBytes != passes*in || s.SwapStall <= 0 {
			t.Errorf("%+v, and %d bytes leave in a pass, %d come back", s, out, in)
		}
		if held := p.Held().Total(); held > made.PeakBytes() || p.Inventory().FileBytes != made.SwapBytes {
			t.Errorf("%d bytes are held of %d planned, and a file of %d of %d", held, made.PeakBytes(), p.Inventory().FileBytes, made.SwapBytes)
		}
		if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
			t.Errorf("in the folder: %v, %v", left, err)
		}
		if err := p.GiveBack(t.Context()); err != nil || p.Inventory().FileBytes != 0 {
			t.Errorf("after everything is given back, there is a file of %d bytes: %v", p.Inventory().FileBytes, err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNoRoomToSwap: a file that cannot be made ends the pass with an error that says where, and the next pass is as if
// nothing had been.
func TestNoRoomToSwap(t *testing.T) {
	host := newCPU(t)
	l, _ := network(t, host, 200, 100, 200, 20, 600, 600, 20, 200)
	o := search.Options{Mode: plan.Page, Target: plan.CPU, MemoryBytes: 1, SwapBytes: 1 << 20, Lower: host.Lower}
	o.MemoryBytes = leastMemory(t, l, o)
	made := mustPlan(t, l, o)
	folder := filepath.Join(t.TempDir(), "later")
	p := newPager(t, host, Options{SwapFolder: folder})
	var failed *storage.ScratchError
	if err := p.Pass(t.Context(), made, newTransfer(l.Graph, 1)); !errors.As(err, &failed) || failed.Folder != folder {
		t.Fatalf("without a folder: %v", err)
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := p.Pass(t.Context(), made, newTransfer(l.Graph, 1)); err != nil {
		t.Fatal(err)
	}
}

// leastMemory returns the least budget.
func leastMemory(t *testing.T, l *graph.Lowered, o search.Options) int64 {
	t.Helper()
	_, err := search.Plan(l, o)
	var capacity *plan.CapacityError
	if !errors.As(err, &capacity) {
		t.Fatal(err)
	}
	return capacity.MinBytes
}

// TestComputedAnew runs a network of which a value is computed anew at its second reader, since that takes less time
// than to have it wait, while its operand waits: the same bits as when all is kept, from the emulated device and on the
// CPU.
func TestComputedAnew(t *testing.T) {
	host := newCPU(t)
	const rows, width, wide = 64, 100, 600
	g := &graph.Graph{}
	src := newFile(4 * (width*width + 2*width*wide))
	emit := func(path string, kind graph.Kind, in ...graph.Operand) graph.ValueID {
		out, err := g.Emit(graph.Standard(), graph.Op{Kind: kind, Path: path, In: in})
		if err != nil {
			t.Fatal(err)
		}
		return out[0]
	}
	var at int64
	linear := func(path string, x graph.ValueID, out, in int) graph.ValueID {
		w := g.AddWeight(tensor.Weight{
			Name: path + ".weight", DType: tensor.Float32, Layout: tensor.Contiguous(out, in),
			Extent: storage.Extent{Source: src, Offset: at, Bytes: 4 * int64(out*in)},
		}, graph.Weight)
		at += 4 * int64(out*in)
		return emit(path, "linear", g.Whole(x), graph.Operand{Value: w, Layout: tensor.Contiguous(out, in)})
	}
	x := g.AddInput("x", tensor.Float32, tensor.Shape{rows, width})
	value := emit("first", "relu", g.Whole(x))
	h := emit("first", "add", g.Whole(linear("first", x, width, width)), g.Whole(value))
	h = linear("down", linear("up", h, wide, width), width, wide)
	h = emit("last", "add", g.Whole(h), g.Whole(emit("last", "mul", g.Whole(x), g.Whole(value))))
	g.Outputs = []graph.Output{{Name: "y", Operand: g.Whole(h)}}
	l, err := host.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	want := newTransfer(g, 1)
	if err := newPager(t, host, Options{}).Pass(t.Context(), mustPlan(t, l, search.Options{Mode: plan.Resident}), want); err != nil {
		t.Fatal(err)
	}
	for _, target := range []plan.Target{plan.CPU, {Name: "emu", AlignBytes: 256}} {
		o := search.Options{
			Mode: plan.Page, Target: target, MemoryBytes: 1, SwapBytes: 1 << 20, Lower: host.Lower,
			Rates: cost.Rates{DiskBytes: 1e8, CopyBytes: 1e8},
		}
		o.MemoryBytes = leastMemory(t, l, o)
		made := mustPlan(t, l, o)
		out, _ := made.SwappedBytes()
		if made.AgainBytes() == 0 || out == 0 {
			t.Fatalf("%s: %d bytes are computed anew, %d wait\n%v", target.Name, made.AgainBytes(), out, made)
		}
		dev, opts := device.Device(host), Options{SwapFolder: t.TempDir()}
		if !target.Direct {
			emulated := emulated.New(emulated.Options{MemoryBytes: made.PeakBytes(), CopyBytes: 1e9, CheckOrder: true})
			defer func() { _ = emulated.Close() }()
			dev, opts = emulated, Options{}
		}
		p, err := New(dev, opts)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			got := newTransfer(g, 1)
			if err := p.Pass(t.Context(), made, got); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.out[0], want.out[0]) {
				t.Fatalf("%s: other bits", target.Name)
			}
		}
		if s := p.Stats(); s.RecomputedBytes != 3*made.AgainBytes() {
			t.Errorf("%s: %d bytes were computed anew, %d are to be in a pass", target.Name, s.RecomputedBytes, made.AgainBytes())
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
