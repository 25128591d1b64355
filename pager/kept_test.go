package pager

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/device/late"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// tapped returns linear layers with activations behind them, each of which gives an output.
func tapped(t testing.TB, dev *cpu.Device, dtype tensor.DType, widths ...int) (*graph.Lowered, *file) {
	t.Helper()
	size := int64(dtype.Size())
	var n int64
	for i := range len(widths) - 1 {
		n += int64(widths[i]*widths[i+1]) * size
	}
	src := newFile(n)
	for i := range n / size {
		putNumber(src.data[i*size:], dtype, float32(int32(i*2654435761%2001)-1000)/3000)
	}
	g := &graph.Graph{}
	emit := func(path string, kind graph.Kind, in ...graph.Operand) graph.Operand {
		out, err := g.Emit(graph.Standard(), graph.Op{Kind: kind, Path: path, In: in})
		if err != nil {
			t.Fatal(err)
		}
		return g.Whole(out[0])
	}
	x := g.Whole(g.AddInput("x", dtype, tensor.Shape{2, widths[0]}))
	var at int64
	for i := range len(widths) - 1 {
		path, l := fmt.Sprint(i), tensor.Contiguous(widths[i+1], widths[i])
		bytes := int64(widths[i]*widths[i+1]) * size
		w := g.AddWeight(tensor.Weight{
			Name: path + ".weight", DType: dtype, Layout: l, Extent: storage.Extent{Source: src, Offset: at, Bytes: bytes},
		}, graph.Weight)
		at += bytes
		x = emit(path, "linear", x, graph.Operand{Value: w, Layout: l})
		x = emit(path, "tanh", x)
		if i != 1 { // of two layers that follow each other neither needs to wait for an output
			g.Outputs = append(g.Outputs, graph.Output{Name: path, Operand: x})
		}
	}
	l, err := dev.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	return l, src
}

// TestKeptOps: where a stream keeps ops, a pass runs each of them once for each instance, with that instance's operands, and
// gives what the interpreter gives, whatever ran before.
func TestKeptOps(t *testing.T) {
	host := newCPU(t)
	l, src := tapped(t, host, tensor.Float32, 20, 20, 20, 20, 20, 20)
	for _, instances := range []int{1, 3} {
		for _, o := range []search.Options{
			{Mode: plan.Resident}, {Mode: plan.Page, Slots: 2}, {Mode: plan.Chunk, Capacity: plan.Limit{N: 1000, Unit: plan.Params}},
		} {
			o.Instances, o.Target, o.Lower = instances, emu, host.Lower
			made := mustPlan(t, l, o)
			ran := 0
			dev := late.New(emulated.New(emulated.Options{CheckOrder: true, Threads: 1}), late.Options{
				Keeps: true, Before: func(_ context.Context, c late.Call) error {
					if c.Kind == late.Run {
						ran++
					}
					return nil
				},
			})
			if o.Mode == plan.Page { // whose copies come from a goroutine of their own
				ran = -1 << 40
			}
			p := newPager(t, dev, Options{})
			for n := range 7 {
				x := newCalls(t, l, src, instances, n)
				before := ran
				if err := p.Pass(t.Context(), made, x); err != nil {
					t.Fatal(err)
				}
				if err := x.differs(); err != nil {
					t.Fatalf("%s, pass %d: %v", made.Mode, n, err)
				}
				if want := len(l.Graph.Ops) * instances; before >= 0 && ran-before != want {
					t.Fatalf("%s, pass %d: %d ops ran of %d", made.Mode, n, ran-before, want)
				}
			}
			if dev.KeptRuns() == 0 {
				t.Errorf("%s: nothing was kept", made.Mode)
			}
			if err := errors.Join(p.Close(), dev.Close()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestHalvesByRows: a weight of two-byte elements that comes by rows, since memory has no room for all of it, is multiplied
// with as a whole one is.
func TestHalvesByRows(t *testing.T) {
	host := newCPU(t)
	l, src := tapped(t, host, tensor.Float16, 100, 300, 700, 50, 300)
	scattered := 0 // plans in which parts of a weight stay that lie apart in it
	for _, target := range []plan.Target{plan.CPU, emu} {
		for _, mode := range []plan.Mode{plan.Page, plan.Auto} {
			o := search.Options{Mode: mode, Target: target, Lower: host.Lower}
			least := mustPlan(t, l, o).MinBytes
			whole := mustPlan(t, l, search.Options{Mode: plan.Resident, Target: target}).PeakBytes()
			for part := range int64(16) {
				o.MemoryBytes = least + max(whole-least, 0)*part/16
				made := mustPlan(t, l, o)
				end := make(map[graph.ValueID]int64)
				for _, part := range made.Fixed.Parts {
					if e, ok := end[part.Value]; ok && e != part.Low {
						scattered++
					}
					end[part.Value] = part.High
				}
				if o.MemoryBytes == least && made.SplitBytes == 0 {
					t.Fatalf("no weight is split\n%v", made)
				}
				p := newPager(t, host, Options{})
				if !target.Direct {
					p = newPager(t, late.New(emulated.New(emulated.Options{CheckOrder: true}), late.Options{}), Options{})
				}
				for n := range 3 {
					x := newCalls(t, l, src, 1, n)
					if err := p.Pass(t.Context(), made, x); err != nil {
						t.Fatal(err)
					}
					if err := x.differs(); err != nil {
						t.Fatalf("%s, pass %d: %v\n%v", target.Name, n, err, made)
					}
				}
			}
		}
	}
	if scattered == 0 {
		t.Error("no plan keeps parts of a weight that lie apart")
	}
}
