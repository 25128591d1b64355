package pager

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/null"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
)

// A packing device is the CPU with a form of the weights of linear layers: pieces of eight rows, the bytes of each in the
// reverse order, and the last padded.
type packing struct {
	*cpu.Device
	mu    sync.Mutex
	calls int
	// packed counts operands that ops took packed, peak the most memory at once.
	packed int
	peak   int64
}

const packedRows = 8

// withPacks returns lowered steps that say what a packing device takes.
func withPacks(l *graph.Lowered) *graph.Lowered {
	l.Steps = slices.Clone(l.Steps)
	for i := range l.Steps {
		if op := &l.Graph.Ops[i]; op.Kind == "linear" {
			shape := op.In[1].Layout.Shape
			pieces := (shape[0] + packedRows - 1) / packedRows
			l.Steps[i].Packs = []graph.Pack{{
				In: 1, Bytes: int64(pieces*packedRows*shape[1]) * 4, Form: "reversed8", Step: packedRows,
			}}
		} else {
			l.Steps[i].Packs = nil
		}
	}
	return l
}

func (d *packing) Lower(g *graph.Graph) (*graph.Lowered, error) {
	l, err := d.Device.Lower(g)
	if err != nil {
		return nil, err
	}
	return withPacks(l), nil
}

func (d *packing) Alloc(n int64) (device.Memory, error) {
	m, err := d.Device.Alloc(n)
	d.mu.Lock()
	defer d.mu.Unlock()
	used, _ := d.Memory()
	d.peak = max(d.peak, used)
	return m, err
}

func (d *packing) NewStream() (device.Stream, error) {
	s, err := d.Device.NewStream()
	return &packingStream{s, d}, err
}

type packingStream struct {
	device.Stream
	d *packing
}

func (s *packingStream) Pack(
	_ context.Context, op *graph.Op, p graph.Pack, src device.Argument, dst device.Region,
) error {
	s.d.mu.Lock()
	s.d.calls++
	s.d.mu.Unlock()
	l := src.Operand.Layout
	rowBytes := l.Shape[1] * 4
	from, to := s.d.HostBytes(src.Region), s.d.HostBytes(dst)
	if pieces := (l.Shape[0] + packedRows - 1) / packedRows; pieces*packedRows*rowBytes != len(to) || op.Kind != "linear" {
		return fmt.Errorf("%s: %v of %d rows to %d bytes", op.Kind, p, l.Shape[0], len(to))
	}
	clear(to)
	for r := range l.Shape[0] {
		row := from[(l.Offset+r*l.Strides[0])*4:][:rowBytes]
		piece := to[r/packedRows*packedRows*rowBytes:][:packedRows*rowBytes]
		at := len(piece) - (r%packedRows+1)*rowBytes
		copy(piece[at:], row)
		slices.Reverse(piece[at:][:rowBytes])
	}
	return nil
}

func (s *packingStream) Run(ctx context.Context, l device.Launch) error {
	in := make([]cpu.Operand, len(l.In))
	for i, a := range l.In {
		if a.Operand.Value == graph.NoValue {
			continue
		}
		in[i] = cpu.Operand{Bytes: s.d.HostBytes(a.Region), DType: a.Spec.DType, Layout: a.Operand.Layout}
		if !a.Packed {
			continue
		}
		s.d.mu.Lock()
		s.d.packed++
		s.d.mu.Unlock()
		rowBytes := a.Spec.Shape[1] * 4
		raw := make([]byte, a.Spec.Shape[0]*rowBytes)
		for r := range a.Spec.Shape[0] {
			piece := in[i].Bytes[r/packedRows*packedRows*rowBytes:][:packedRows*rowBytes]
			copy(raw[r*rowBytes:], piece[len(piece)-(r%packedRows+1)*rowBytes:][:rowBytes])
			slices.Reverse(raw[r*rowBytes:][:rowBytes])
		}
		in[i].Bytes, in[i].Layout.Offset = raw, 0
	}
	out := make([]cpu.Operand, len(l.Out))
	for i, a := range l.Out {
		out[i] = cpu.Operand{Bytes: s.d.HostBytes(a.Region), DType: a.Spec.DType, Layout: a.Operand.Layout}
	}
	return s.d.Compute(ctx, &l.Op, in, out, s.d.HostBytes(l.Work))
}

// TestPackedWeightsGiveTheSameBits runs random networks with packed weights under random budgets: always the bits of the
// raw ones, within the memory that was planned.
func TestPackedWeightsGiveTheSameBits(t *testing.T) {
	host := newCPU(t)
	packs := 0
	rapid.Check(t, func(t *rapid.T) {
		l := drawNetwork(t, host)
		for i := range l.Steps {
			l.Steps[i].Packs = nil
		}
		raw, err := search.Plan(l, search.Options{Mode: plan.Resident})
		if err != nil {
			t.Fatal(err)
		}
		want, got := rowsOf(l.Graph, 1), rowsOf(l.Graph, 1)
		p, err := New(host, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Pass(t.Context(), raw, want); err != nil {
			t.Fatal(err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		dev := &packing{Device: host}
		o := search.Options{Mode: rapid.SampledFrom([]plan.Mode{plan.Resident, plan.Auto, plan.Chunk}).Draw(t, "mode"), Lower: dev.Lower}
		packedLowered := withPacks(&graph.Lowered{Graph: l.Graph, Steps: l.Steps})
		copies := rapid.Bool().Draw(t, "copies")
		for i := range packedLowered.Steps {
			for k := range packedLowered.Steps[i].Packs {
				packedLowered.Steps[i].Packs[k].Copy = copies
			}
		}
		free, err := search.Plan(packedLowered, o)
		if err != nil {
			t.Fatal(err)
		}
		if rapid.Bool().Draw(t, "limited") {
			o.MemoryBytes = rapid.Int64Range(free.MinBytes, max(free.PeakBytes(), free.MinBytes)+4096).Draw(t, "memory")
		}
		made, err := search.Plan(packedLowered, o)
		if err != nil {
			t.Fatal(err)
		}
		if o.MemoryBytes > 0 && made.PeakBytes() > o.MemoryBytes {
			t.Fatalf("%d bytes of %d\n%v", made.PeakBytes(), o.MemoryBytes, made)
		}
		linear := 0
		for _, op := range l.Graph.Ops {
			if op.Kind == "linear" && (copies || op.Path != "head") { // whose weight is the embedding's, too
				linear++
			}
		}
		if p, err = New(dev, Options{}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			dev.packed = 0
			if err := p.Pass(t.Context(), made, got); err != nil {
				t.Fatalf("%v\n%v", err, made)
			}
		}
		if dev.peak != made.PeakBytes() || !bytes.Equal(got.out[0], want.out[0]) {
			t.Fatalf("%d bytes taken of %d planned, or other bits\n%v", dev.peak, made.PeakBytes(), made)
		}
		if o.Mode != plan.Auto && o.MemoryBytes == 0 && dev.packed != linear {
			t.Fatalf("%d weights were packed of %d\n%v", dev.packed, linear, made)
		}
		packs += dev.packed
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	})
	if packs == 0 {
		t.Error("nothing was packed")
	}
}

// TestPackedByPieces: of a large weight little is in memory twice, on a device that is filled through host memory, too.
func TestPackedByPieces(t *testing.T) {
	dev := &packing{Device: newCPU(t)}
	l, _ := network(t, dev.Device, 1, 1000, 3000, 10)
	made := mustPlan(t, withPacks(l), search.Options{Mode: plan.Resident})
	if made.Fixed.PackingBytes > 2<<20 || made.PeakBytes() > 14<<20 {
		t.Fatalf("%d bytes for packing 12 MB of weights\n%v", made.Fixed.PackingBytes, made)
	}
	p := newPager(t, dev, Options{})
	if err := p.Pass(t.Context(), made, newTransfer(l.Graph, 1)); err != nil {
		t.Fatal(err)
	}
	if dev.calls < 12 || dev.packed != 2 || dev.peak != made.PeakBytes() {
		t.Errorf("%d calls for pieces, %d operands packed, %d bytes for %d planned", dev.calls, dev.packed, dev.peak, made.PeakBytes())
	}
	through := null.New(null.Options{})
	made = mustPlan(t, l, search.Options{Mode: plan.Resident, Target: plan.Target{Name: "null", AlignBytes: 256}})
	p = newPager(t, through, Options{})
	if err := p.Pass(t.Context(), made, newTransfer(l.Graph, 1)); err != nil {
		t.Fatal(err)
	}
	if through.PeakBytes() != made.PeakBytes() {
		t.Errorf("%d bytes taken of %d planned", through.PeakBytes(), made.PeakBytes())
	}
	trace := through.Trace()
	if n := strings.Count(trace, " pack "); n != dev.calls || strings.Count(trace, " packed ") != 2 {
		t.Errorf("%d pieces were packed, want %d:\n%s", n, dev.calls, trace)
	}
}

// TestPackedForOtherShapes: a plan for another shape keeps weights that lie in the same form, and reads those that do
// not.
func TestPackedForOtherShapes(t *testing.T) {
	dev := &packing{Device: newCPU(t)}
	one, _ := network(t, dev.Device, 1, 100, 300, 50)
	two := &graph.Lowered{Graph: one.Graph, Steps: slices.Clone(one.Steps)}
	first := mustPlan(t, withPacks(one), search.Options{Mode: plan.Resident})
	same := mustPlan(t, withPacks(two), search.Options{Mode: plan.Resident, Like: first})
	other := withPacks(&graph.Lowered{Graph: one.Graph, Steps: slices.Clone(one.Steps)})
	for i := range other.Steps {
		for k := range other.Steps[i].Packs {
			other.Steps[i].Packs[k].Form = "another"
		}
	}
	repacked := mustPlan(t, other, search.Options{Mode: plan.Resident, Like: first})
	p := newPager(t, dev, Options{})
	for _, c := range []struct {
		plan  *plan.Plan
		again bool
	}{{first, true}, {same, false}, {repacked, true}, {same, true}} {
		calls := dev.calls
		if err := p.Pass(t.Context(), c.plan, newTransfer(one.Graph, 1)); err != nil {
			t.Fatal(err)
		}
		if (dev.calls > calls) != c.again {
			t.Errorf("%d pieces were packed again", dev.calls-calls)
		}
	}
	want := first.Fixed.WeightBytes
	for i := range first.Fixed.Packed { // twice in another form; what lies raw stays
		if c := &first.Fixed.Packed[i]; hostmem.CanResize {
			want += 2 * (c.High - c.Low)
		}
	}
	if !hostmem.CanResize {
		want *= 3
	}
	if st := p.Stats(); st.FixedBytes != want {
		t.Errorf("%d bytes were brought to stay, want %d: the weights, of %d bytes, and twice what is packed", st.FixedBytes, want, first.Fixed.WeightBytes)
	}
}
