package pager

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// drawNetwork returns an embedding, linear layers of all widths with skips over some of them, layers that share weights,
// and a head that is tied to the embedding.
func drawNetwork(t *rapid.T, dev *cpu.Device) *graph.Lowered {
	src := newFile(16 << 20)
	g := &graph.Graph{}
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
	emit := func(path string, kind graph.Kind, in ...graph.Operand) graph.ValueID {
		out, err := g.Emit(graph.Standard(), graph.Op{Kind: kind, Path: path, In: in})
		if err != nil {
			t.Fatal(err)
		}
		return out[0]
	}
	rows, width := rapid.IntRange(1, 12).Draw(t, "rows"), rapid.IntRange(1, 20).Draw(t, "width")*8
	ids := g.AddInput("ids", tensor.Int64, tensor.Shape{rows})
	table := weight("table", rapid.IntRange(60, 1500).Draw(t, "table"), width)
	values := []graph.ValueID{emit("embed", "embedding", table, g.Whole(ids))}
	shared := weight("shared", width, width)
	for i := range rapid.IntRange(1, 8).Draw(t, "layers") {
		path, x := fmt.Sprint(i), g.Whole(values[len(values)-1])
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			x = g.Whole(emit(path, "linear", x, shared))
		case 1:
			n := rapid.IntRange(1, 2000).Draw(t, "wide")
			h := g.Whole(emit(path+".up", "linear", x, weight(path+".up.weight", n, width), weight(path+".up.bias", n)))
			x = g.Whole(emit(path+".down", "linear", h, weight(path+".down.weight", width, n)))
		case 2:
			skip := values[rapid.IntRange(0, len(values)-1).Draw(t, "skip")]
			x = g.Whole(emit(path, "add", x, g.Whole(skip)))
		default:
			x = g.Whole(emit(path, "linear", x, weight(path+".weight", width, width), weight(path+".bias", width)))
		}
		values = append(values, emit(path, "tanh", x))
	}
	last := g.Whole(values[len(values)-1])
	sum := emit("", "add", last, g.Whole(values[0]))
	y := emit("head", "linear", g.Whole(sum), table)
	g.Outputs = []graph.Output{{Name: "y", Operand: g.Whole(y)}}
	l, err := dev.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// rowsOf returns inputs that name rows of a table.
func rowsOf(g *graph.Graph, instances int) *transfer {
	x := &transfer{}
	for i := range instances {
		in := lying(g.Values[g.Inputs[0]].Bytes())
		for k := range len(in) / 8 {
			binary.LittleEndian.PutUint64(in[k*8:], uint64((k*17+i*29)%60))
		}
		x.in = append(x.in, in)
		x.out = append(x.out, lying(g.Values[g.Outputs[0].Operand.Value].Bytes()))
	}
	return x
}

// TestAnyPlan runs random networks in random modes under random budgets, on the CPU, with and without a file in which
// activations wait, and on a device with memory of its own: always the bits of the resident mode, the memory that was planned, and no access that no event orders.
func TestAnyPlan(t *testing.T) {
	host, folder := newCPU(t), t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		l := drawNetwork(t, host)
		instances := rapid.SampledFrom([]int{1, 1, 3}).Draw(t, "instances")
		want := rowsOf(l.Graph, instances)
		run := func(made *plan.Plan, got *transfer, direct bool) {
			dev := emulated.New(emulated.Options{MemoryBytes: made.PeakBytes(), CheckOrder: true, Threads: 2})
			var p *Pager
			var err error
			if direct {
				p, err = New(host, Options{SwapFolder: folder})
			} else {
				p, err = New(dev, Options{})
			}
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := p.Pass(t.Context(), made, got); err != nil {
					t.Fatalf("%v\n%v", err, made)
				}
			}
			if p.Held().Total() != made.PassBytes() || p.Stats().PeakBytes != made.PeakBytes() || !direct && dev.PeakBytes() != made.PeakBytes() {
				t.Fatalf("%d bytes are held, %d planned", p.Held().Total(), made.PeakBytes())
			}
			if err := errors.Join(p.Close(), dev.Close()); err != nil {
				t.Fatal(err)
			}
		}
		resident, err := search.Plan(l, search.Options{Mode: plan.Resident, Instances: instances})
		if err != nil {
			t.Fatal(err)
		}
		run(resident, want, true)
		o := search.Options{
			Mode:      rapid.SampledFrom([]plan.Mode{plan.Page, plan.Auto, plan.Chunk}).Draw(t, "mode"),
			Target:    rapid.SampledFrom([]plan.Target{plan.CPU, {Name: "emu", AlignBytes: 256}, emu}).Draw(t, "target"),
			Instances: instances, Lower: host.Lower, Once: rapid.Bool().Draw(t, "once"),
			Capacity: plan.Limit{N: rapid.Int64Range(0, 300_000).Draw(t, "capacity"), Unit: plan.Params},
		}
		if o.Target.Direct && rapid.Bool().Draw(t, "file") {
			o.SwapBytes = 1 << 24
		}
		free, err := search.Plan(l, o)
		if err != nil {
			t.Fatal(err)
		}
		o.MemoryBytes = free.MinBytes
		if rapid.Bool().Draw(t, "more") {
			o.MemoryBytes = rapid.Int64Range(free.MinBytes, resident.PeakBytes()+free.MinBytes).Draw(t, "memory")
		}
		made, err := search.Plan(l, o)
		if err != nil {
			t.Fatal(err)
		}
		got := rowsOf(l.Graph, instances)
		made.Early = rapid.Bool().Draw(t, "early")
		run(made, got, o.Target.Direct)
		for i := range got.out {
			if !bytes.Equal(got.out[i], want.out[i]) {
				t.Fatalf("instance %d: other bits\n%v", i, made)
			}
		}
	})
}

// TestLeastMemory runs a network in the least memory that works: weights come by rows, and what skips over layers waits
// in host memory.
func TestLeastMemory(t *testing.T) {
	host := newCPU(t)
	l, _ := network(t, host, 30, 100, 300, 50, 700, 300, 300, 20, 300)
	const instances = 3
	for _, n := range []int{1, instances} {
		want := newTransfer(l.Graph, n)
		resident := mustPlan(t, l, search.Options{Mode: plan.Resident, Instances: n})
		if err := newPager(t, host, Options{}).Pass(t.Context(), resident, want); err != nil {
			t.Fatal(err)
		}
		for _, mode := range []plan.Mode{plan.Page, plan.Auto} {
			o := search.Options{Mode: mode, Target: plan.Target{Name: "emu", AlignBytes: 256}, Instances: n, Lower: host.Lower}
			o.MemoryBytes = mustPlan(t, l, o).MinBytes
			made := mustPlan(t, l, o)
			if made.SplitBytes == 0 || made.SwapBytes == 0 || made.MinBytes != o.MemoryBytes {
				t.Fatalf("nothing was done for the least memory\n%v", made)
			}
			dev := emulated.New(emulated.Options{MemoryBytes: o.MemoryBytes, CheckOrder: true})
			before := inUse()
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
						t.Fatalf("instance %d: other bits\n%v", i, made)
					}
				}
			}
			if err := errors.Join(p.Close(), dev.Close()); err != nil {
				t.Fatal(err)
			}
			if inUse() != before {
				t.Errorf("%d bytes are left", inUse()-before)
			}
		}
	}
}
