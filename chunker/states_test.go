package chunker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/pager"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// changing returns layers one after the other with two states. The first layer adds "early" to its result, the last one
// "late"; each becomes what the other layer computed, so that on two sides both come from the other one. A third state
// becomes the second input, which no op reads.
func changing(t *testing.T, dev *cpu.Device, width, depth int) *graph.Lowered {
	t.Helper()
	src := &numbers{make([]byte, 4*width*(width*depth+6))}
	for i := range len(src.data) / 4 {
		binary.LittleEndian.PutUint32(src.data[i*4:], math.Float32bits(float32(i%17-8)/100))
	}
	g := &graph.Graph{}
	var at int64
	weight := func(name string, role graph.Role, rows int) graph.Operand {
		w := tensor.Weight{
			Name: name, DType: tensor.Float32, Layout: tensor.Contiguous(rows, width),
			Extent: storage.Extent{Source: src, Offset: at, Bytes: int64(4 * rows * width)},
		}
		at += w.Extent.Bytes
		return graph.Operand{Value: g.AddWeight(w, role), Layout: w.Layout}
	}
	emit := func(path string, kind graph.Kind, in ...graph.Operand) graph.Operand {
		t.Helper()
		out, err := g.Emit(graph.Standard(), graph.Op{Kind: kind, Path: path, In: in})
		if err != nil {
			t.Fatal(err)
		}
		return g.Whole(out[0])
	}
	x := g.Whole(g.AddInput("x", tensor.Float32, tensor.Shape{2, width}))
	z := g.Whole(g.AddInput("z", tensor.Float32, tensor.Shape{2, width}))
	early, late, kept := weight("early", graph.State, 2), weight("late", graph.State, 2), weight("kept", graph.State, 2)
	var first graph.Operand
	for i := range depth {
		x = emit(fmt.Sprint(i), "linear", x, weight(fmt.Sprint(i), graph.Weight, width))
		if i == 0 {
			x = emit("0", "add", x, early)
			first = x
		}
	}
	last := fmt.Sprint(depth - 1)
	x = emit(last, "add", emit(last, "add", x, late), kept)
	g.Outputs = []graph.Output{{Name: "y", Operand: x}}
	g.Updates = []graph.StateUpdate{
		{State: early.Value, Operand: x}, {State: late.Value, Operand: first}, {State: kept.Value, Operand: z},
	}
	l, err := dev.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A pair is an IO over two inputs and an output.
type pair struct {
	g       *graph.Graph
	x, z, y []byte
}

func (p *pair) Input(_ int, id graph.ValueID) []byte {
	if id == p.g.Inputs[0] {
		return p.x
	}
	return p.z
}
func (p *pair) Output(int, int, bool) []byte { return p.y }

// newPair returns the inputs of the n-th call.
func newPair(g *graph.Graph, n int) *pair {
	size := g.Values[g.Inputs[0]].Bytes()
	p := &pair{g, make([]byte, size), make([]byte, size), make([]byte, size)}
	for k := range size / 4 {
		binary.LittleEndian.PutUint32(p.x[k*4:], math.Float32bits(float32((k+int64(n))%5)-2))
		binary.LittleEndian.PutUint32(p.z[k*4:], math.Float32bits(float32((k+int64(3*n))%7)-3))
	}
	return p
}

// A patient context is done once it was asked a number of times.
type patient struct {
	left atomic.Int32
	done chan struct{}
}

func newPatient(times int) *patient {
	p := &patient{done: make(chan struct{})}
	p.left.Store(int32(times))
	return p
}

// ask reports whether it is done.
func (p *patient) ask() bool {
	left := p.left.Add(-1)
	if left == 0 {
		close(p.done)
	}
	return left <= 0
}

func (p *patient) Done() <-chan struct{} { p.ask(); return p.done }
func (p *patient) Err() error {
	if p.ask() {
		return context.Canceled
	}
	return nil
}
func (p *patient) Deadline() (time.Time, bool) { return time.Time{}, false }
func (p *patient) Value(any) any               { return nil }

// TestStatesOfBothSides: a state becomes what the other side computed, and a pass that is cancelled, or a copy of which fails,
// whenever that is, changes none.
func TestStatesOfBothSides(t *testing.T) {
	const width, depth, calls = 64, 4, 4
	host := cpu.New(1, graph.Standard())
	defer host.Close()
	l := changing(t, host, width, depth)
	target := plan.Target{Name: "emu", AlignBytes: 256}
	var want [][]byte
	for pinned := depth; pinned >= 0; pinned-- {
		made, err := search.Plan(l, search.Options{
			Mode: plan.Chunk, Target: target, Capacity: plan.Limit{N: int64(pinned*width*width) + 1, Unit: plan.Params},
			Lower: host.Lower, HostLower: host.Lower,
		})
		if err != nil {
			t.Fatal(err)
		}
		if (made.Sides != nil) != (pinned < depth) {
			t.Fatalf("%d layers pinned\n%v", pinned, made)
		}
		troubles := []struct{ patience, failingCopy int }{{0, 0}}
		for _, n := range []int{1, 2, 3, 5, 8, 13, 20, 30, 40, 50, 60, 70, 80} {
			troubles = append(troubles, struct{ patience, failingCopy int }{n, 0})
		}
		for n := range 40 {
			troubles = append(troubles, struct{ patience, failingCopy int }{0, n + 1})
		}
		for _, trouble := range troubles {
			patience := trouble.patience
			dev := emulated.New(emulated.Options{CheckOrder: true, FailCopy: trouble.failingCopy})
			c, err := New(dev, host, Options{})
			if err != nil {
				t.Fatal(err)
			}
			var got [][]byte
			for n := range calls {
				io := newPair(l.Graph, n)
				ctx := t.Context()
				if patience > 0 {
					ctx = newPatient(patience)
				}
				err := c.Pass(ctx, made, io)
				if errors.Is(err, context.Canceled) || errors.Is(err, emulated.ErrCopy) {
					err = c.Pass(t.Context(), made, io)
				}
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, io.y)
			}
			if want == nil {
				want = got
			}
			if !slices.EqualFunc(got, want, bytes.Equal) {
				t.Errorf("%d layers pinned, %+v: other bits", pinned, trouble)
			}
			if err := errors.Join(c.Close(), dev.Close()); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The first results are those of a device alone.
	alone, err := pager.New(host, pager.Options{})
	if err != nil {
		t.Fatal(err)
	}
	resident, err := search.Plan(l, search.Options{Mode: plan.Resident})
	if err != nil {
		t.Fatal(err)
	}
	for n := range calls {
		io := newPair(l.Graph, n)
		if err := alone.Pass(t.Context(), resident, io); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(io.y, want[n]) {
			t.Errorf("call %d: other bits than the host's", n)
		}
	}
	if err := alone.Close(); err != nil {
		t.Fatal(err)
	}
}
