package chunker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/pager"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// branching returns layers of which each is computed with one of two weights, as one input says.
func branching(t *testing.T, dev *cpu.Device, width, depth int) *graph.Lowered {
	t.Helper()
	src := &numbers{make([]byte, 8*width*width*depth)}
	for i := range len(src.data) / 4 {
		binary.LittleEndian.PutUint32(src.data[i*4:], math.Float32bits(float32(int32(i*2654435761%2001)-1000)/30000))
	}
	g := &graph.Graph{}
	emit := func(op graph.Op) graph.Operand {
		out, err := g.Emit(graph.Standard(), op)
		if err != nil {
			t.Fatal(err)
		}
		return g.Whole(out[0])
	}
	x := g.Whole(g.AddInput("x", tensor.Float32, tensor.Shape{2, width}))
	left := g.Whole(g.AddInput("left", tensor.Bool, tensor.Shape{}))
	n := int64(4 * width * width)
	for i := range depth {
		var made [2]graph.Operand
		for k, want := range []bool{true, false} {
			guard := []graph.Guard{{Predicate: left, Want: want}}
			path := fmt.Sprintf("%d.%v", i, want)
			w := g.AddWeight(tensor.Weight{
				Name: path + ".weight", DType: tensor.Float32, Layout: tensor.Contiguous(width, width),
				Extent: storage.Extent{Source: src, Offset: int64(2*i+k) * n, Bytes: n},
			}, graph.Weight)
			y := emit(graph.Op{
				Kind: "linear", Path: path, Guard: guard,
				In: []graph.Operand{x, {Value: w, Layout: tensor.Contiguous(width, width)}},
			})
			made[k] = emit(graph.Op{Kind: "tanh", Path: path, Guard: guard, In: []graph.Operand{y}})
		}
		x = emit(graph.Op{Kind: "choose", Path: fmt.Sprint(i), In: []graph.Operand{left, made[0], made[1]}})
	}
	g.Outputs = []graph.Output{{Name: "y", Operand: x}}
	l, err := dev.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A choice is an IO over memory.
type choice struct {
	x, left, y []byte
	g          *graph.Graph
}

func (c *choice) Input(_ int, id graph.ValueID) []byte {
	if id == c.g.Inputs[0] {
		return c.x
	}
	return c.left
}
func (c *choice) Output(int, int, bool) []byte { return c.y }

// TestBranchesOnBothSides: the host's processor helps with programs that branch, too, and each side runs the branch that
// the data ask for.
func TestBranchesOnBothSides(t *testing.T) {
	host := cpu.New(2, graph.Standard())
	defer host.Close()
	l := branching(t, host, 256, 6)
	run := func(c *Chunker, p *plan.Plan, left byte) []byte {
		t.Helper()
		io := &choice{newTransfer(l.Graph, 1).in[0], []byte{left}, make([]byte, 2*256*4), l.Graph}
		if err := c.Pass(t.Context(), p, io); err != nil {
			t.Fatal(fmt.Errorf("%w\n%v", err, p))
		}
		return io.y
	}
	o := search.Options{
		Mode: plan.Auto, Target: plan.Target{Name: "emu", AlignBytes: 256}, Lower: host.Lower,
		Rates:     cost.Rates{FLOPs: 1e12, MemoryBytes: 100e9, OpSeconds: 1e-6, CopyBytes: 1e9, CopySeconds: 1e-6},
		HostRates: cost.Rates{FLOPs: 10e9, MemoryBytes: 10e9, OpSeconds: 1e-6},
	}
	free, err := search.Plan(l, o)
	if err != nil {
		t.Fatal(err)
	}
	o.MemoryBytes, o.HostLower = free.PeakBytes()-free.Fixed.Bytes/2, host.Lower
	helped, err := search.Plan(l, o)
	if err != nil {
		t.Fatal(err)
	}
	if helped.Sides == nil {
		t.Fatalf("the host does not help\n%v", helped)
	}
	chunk := o
	chunk.Mode, chunk.MemoryBytes, chunk.Capacity = plan.Chunk, 0, plan.Limit{N: 5 * 256 * 256, Unit: plan.Params}
	pinned, err := search.Plan(l, chunk)
	if err != nil {
		t.Fatal(err)
	}
	dev := emulated.New(emulated.Options{CheckOrder: true})
	c, err := New(dev, host, Options{Device: pager.Options{}})
	if err != nil {
		t.Fatal(err)
	}
	want := [2][]byte{run(c, free, 0), run(c, free, 1)}
	if bytes.Equal(want[0], want[1]) {
		t.Fatal("the branches cannot be told apart")
	}
	for _, p := range []*plan.Plan{helped, pinned} {
		for _, left := range []byte{0, 1, 1, 0} {
			if got := run(c, p, left); !bytes.Equal(got, want[left]) {
				t.Errorf("branch %d: other bits\n%v", left, p)
			}
		}
	}
	if err := errors.Join(c.Close(), dev.Close()); err != nil {
		t.Fatal(err)
	}
}
