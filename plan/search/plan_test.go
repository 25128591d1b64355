package search

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// fatal is what a test and a property have in common.
type fatal interface{ Fatal(...any) }

// chain returns a graph of relus over n elements, each reading an earlier value.
func chain(t fatal, n int, sources []int) *graph.Lowered {
	g := &graph.Graph{}
	ids := []graph.ValueID{g.AddInput("x", tensor.Float32, tensor.Shape{n})}
	for _, from := range sources {
		out, err := g.Emit(graph.Standard(), graph.Op{Kind: "relu", In: []graph.Operand{g.Whole(ids[from])}})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, out[0])
	}
	g.Outputs = []graph.Output{{Name: "y", Operand: g.Whole(ids[len(ids)-1])}}
	return &graph.Lowered{Graph: g, Steps: make([]graph.Step, len(g.Ops))}
}

// nowhere is a source of a size that nobody reads.
type nowhere struct{ bytes int64 }

func (s *nowhere) Size() int64 { return s.bytes }
func (s *nowhere) ReadAt(context.Context, []byte, int64) error {
	return errors.New("read while planning")
}

// stack returns linear layers one after the other, of the given widths, with their weights end to end in one file.
func stack(t fatal, rows int, widths ...int) *graph.Lowered {
	g := &graph.Graph{}
	src := &nowhere{}
	x := g.AddInput("x", tensor.Float32, tensor.Shape{rows, widths[0]})
	for i := range len(widths) - 1 {
		in, out := widths[i], widths[i+1]
		n := int64(in) * int64(out) * 4
		w := g.AddWeight(tensor.Weight{
			Name: fmt.Sprintf("%d.weight", i), DType: tensor.Float32, Layout: tensor.Contiguous(out, in),
			Extent: storage.Extent{Source: src, Offset: src.bytes, Bytes: n},
		}, graph.Weight)
		src.bytes += n
		y, err := g.Emit(graph.Standard(), graph.Op{
			Kind: "linear", Path: fmt.Sprint(i),
			In: []graph.Operand{g.Whole(x), {Value: w, Layout: tensor.Contiguous(out, in)}},
		})
		if err != nil {
			t.Fatal(err)
		}
		x = y[0]
	}
	g.Outputs = []graph.Output{{Name: "y", Operand: g.Whole(x)}}
	return &graph.Lowered{Graph: g, Steps: make([]graph.Step, len(g.Ops))}
}

func mustPlan(t *testing.T, l *graph.Lowered, o Options) *plan.Plan {
	t.Helper()
	p, err := Plan(l, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestResidentReuses holds a chain to two buffers: what an op reads and what it writes.
func TestResidentReuses(t *testing.T) {
	p := mustPlan(t, chain(t, 1024, []int{0, 1, 2, 3, 4, 5}), Options{Mode: plan.Resident})
	if p.ActivationBytes != 2*4096 {
		t.Errorf("a chain takes %d bytes, want two buffers of 4096", p.ActivationBytes)
	}
}

// TestResidentKeepsWhatIsRead keeps a value that the last op reads.
func TestResidentKeepsWhatIsRead(t *testing.T) {
	p := mustPlan(t, chain(t, 1024, []int{0, 1, 2, 1}), Options{Mode: plan.Resident})
	if p.ActivationBytes != 3*4096 {
		t.Errorf("takes %d bytes, want three buffers of 4096", p.ActivationBytes)
	}
}

// TestPackNeverOverlaps: no two values that are alive together share a byte, and the arena is no larger than their sum.
func TestPackNeverOverlaps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 60).Draw(t, "values")
		items := make([]item, n)
		var sum int64
		for i := range items {
			first := rapid.IntRange(0, 40).Draw(t, "first")
			items[i] = item{
				id: i, first: first, last: rapid.IntRange(first, 41).Draw(t, "last"),
				bytes: rapid.Int64Range(1, 80).Draw(t, "lines") * 64,
			}
			sum += items[i].bytes
		}
		size := pack(items, 42)
		if size > sum {
			t.Fatalf("%d bytes for values of %d", size, sum)
		}
		for i, a := range items {
			if a.offset%plan.CPU.AlignBytes != 0 || a.offset < 0 || a.offset+a.bytes > size {
				t.Fatalf("value %d lies at %d of %d", a.id, a.offset, size)
			}
			for _, b := range items[:i] {
				together := a.first <= b.last && b.first <= a.last
				if together && a.offset < b.offset+b.bytes && b.offset < a.offset+a.bytes {
					t.Fatalf("values %d and %d overlap", a.id, b.id)
				}
			}
		}
	})
}

// TestLike: the plan for other shapes keeps weights where they are, whole or in parts, chosen or tied.
func TestLike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, _ := lower(drawGraph(t))
		o := drawOptions(t, l.Graph)
		o.HostLower = nil
		free, err := Plan(l, o)
		if err != nil {
			t.Fatal(err)
		}
		o.MemoryBytes = rapid.Int64Range(free.MinBytes, 2*free.PeakBytes()+free.MinBytes).Draw(t, "memory")
		first, err := Plan(l, o)
		if err != nil {
			t.Fatal(err)
		}
		o.Like = first
		again, err := Plan(l, o)
		if err != nil {
			t.Fatal(err)
		}
		if first.SwapBytes == 0 && first.AgainBytes() == 0 && (!plan.SameFixed(first, again) || again.RingBytes > first.RingBytes) {
			t.Fatalf("other weights stay\n%v\n%v", first, again)
		}
		if again.MinBytes != first.MinBytes {
			t.Fatalf("the least budget was %d and is %d", first.MinBytes, again.MinBytes)
		}
		checkPlan(t, again, o, l.Graph)
	})
}

// TestFittingPrefix: without a capacity the chunk mode pins as long a prefix as the budget admits.
func TestFittingPrefix(t *testing.T) {
	l := stack(t, 1, 256, 256, 256, 256, 256, 256, 256, 256)
	const slot = 256 * 256 * 4
	for _, target := range []plan.Target{plan.CPU, {Name: "emu", AlignBytes: 256}} {
		for slots := int64(2); slots < 7; slots++ {
			o := Options{Mode: plan.Chunk, Target: target, MemoryBytes: 2*256*4 + slots*slot}
			want := slots - 2 // beside two slots for the others
			if !target.Direct {
				o.Lower, o.HostLower, want = lower, lower, slots
				o.MemoryBytes += 1024 // scratch
			}
			p := mustPlan(t, l, o)
			if p.Fixed.Bytes != want*slot {
				t.Errorf("%s: %d bytes stay with room for %d slots\n%v", target.Name, p.Fixed.Bytes, slots, p)
			}
			if s := p.Sides; !target.Direct && s == nil {
				t.Errorf("%s: the host computes nothing", target.Name)
			}
		}
	}
}
