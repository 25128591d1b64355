package plan

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// A file is bytes that differ from place to place.
type file struct{ data []byte }

func (f *file) Size() int64 { return int64(len(f.data)) }
func (f *file) ReadAt(_ context.Context, p []byte, off int64) error {
	copy(p, f.data[off:])
	return nil
}

// arenaPlan returns a plan that keeps some weights of a file, each at a place behind the one before, and expert slots
// behind them where there are some.
func arenaPlan(g *graph.Graph, f *file, rng *rand.Rand, chance float64, slots int) *Plan {
	p := &Plan{Lowered: &graph.Lowered{Graph: g}, Target: CPU}
	var at int64
	for id := range g.Values {
		e := g.Values[id].Weight.Extent
		if rng.Float64() > chance {
			continue
		}
		low := e.Offset / storage.AlignBytes * storage.AlignBytes
		end := min(AlignUp(e.Offset+e.Bytes, storage.AlignBytes), int64(len(f.data)))
		if n := len(p.Fixed.Spans); n > 0 {
			last := &p.Fixed.Spans[n-1]
			if reach := last.Extent.Offset + last.Extent.Bytes; low <= reach {
				p.Fixed.Parts = append(p.Fixed.Parts, Part{Value: graph.ValueID(id), High: e.Bytes, Offset: last.Offset + e.Offset - last.Extent.Offset})
				at += max(end-reach, 0)
				last.Extent.Bytes += max(end-reach, 0)
				continue
			}
		}
		p.Fixed.Spans = append(p.Fixed.Spans, Span{Extent: storage.Extent{Source: f, Offset: low, Bytes: end - low}, Offset: at})
		p.Fixed.Parts = append(p.Fixed.Parts, Part{Value: graph.ValueID(id), High: e.Bytes, Offset: at + e.Offset - low})
		at += AlignUp(end-low, storage.AlignBytes)
	}
	if slots > 0 {
		p.Fixed.Slots = []SlotSet{{Experts: 8, Slots: slots, Offset: at, SlotBytes: storage.AlignBytes}}
		at += p.Fixed.Slots[0].Bytes()
	}
	p.Fixed.Bytes = at
	return p
}

// fill puts what a plan keeps into an arena.
func fill(t *testing.T, arena []byte, list []Span) {
	t.Helper()
	for _, s := range list {
		if err := s.Extent.ReadAt(t.Context(), arena[s.Offset:s.Offset+s.Extent.Bytes], 0); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKeeps goes from plan to plan in one arena: behind the moves and the reads all lies where the plan says, what was
// read is what was missing and blocks around it, and slots keep what they hold as long as they are as many.
func TestKeeps(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	const weights = 60
	f := &file{}
	g := &graph.Graph{}
	for i := range weights {
		n := 1 + rng.Int64N(9000)
		g.Values = append(g.Values, graph.Value{Role: graph.Weight, Weight: tensor.Weight{
			Name: fmt.Sprint(i), Extent: storage.Extent{Source: f, Offset: int64(len(f.data)), Bytes: n},
		}})
		for range n + rng.Int64N(5000) {
			f.data = append(f.data, byte(rng.Uint32()))
		}
	}
	arena := make([]byte, len(f.data)*2+weights*storage.AlignBytes)
	held := arenaPlan(g, f, rng, 0.5, 3)
	fill(t, arena, held.Fixed.Spans)
	mark := []byte("what the experts are")
	copy(arena[held.Fixed.Slots[0].Offset:], mark)
	for step := range 200 {
		slots := 3
		if step%50 == 49 {
			slots = 4
		}
		p := arenaPlan(g, f, rng, []float64{0.2, 0.5, 0.9}[step%3], slots)
		k := p.Keeps(held)
		k.Each(func(m Move) { copy(arena[m.To:m.To+m.Bytes], arena[m.From:m.From+m.Bytes]) })
		fill(t, arena, k.Missing)
		var missing int64
		for _, part := range p.Fixed.Parts {
			e := g.Values[part.Value].Weight.Extent
			if !bytes.Equal(arena[part.Offset:part.Offset+e.Bytes], f.data[e.Offset:e.Offset+e.Bytes]) {
				t.Fatalf("step %d: weight %d is not what it is", step, part.Value)
			}
			missing += e.Bytes
		}
		missing -= k.Bytes
		if k.Slots {
			missing += p.Fixed.Slots[0].Bytes()
		}
		if k.MissingBytes != SpanBytes(k.Missing) || k.MissingBytes < missing || k.MissingBytes > missing+int64(len(p.Fixed.Parts))*2*storage.AlignBytes {
			t.Fatalf("step %d: reads %d bytes of %d that are missing", step, k.MissingBytes, missing)
		}
		if want := held.Fixed.Slots[0].Slots == slots; k.Slots != want {
			t.Fatalf("step %d: slots stay: %v, want %v", step, k.Slots, want)
		}
		at := p.Fixed.Slots[0].Offset
		if k.Slots && !bytes.Equal(arena[at:at+int64(len(mark))], mark) {
			t.Fatalf("step %d: another expert lies in the slot", step)
		}
		copy(arena[at:], mark)
		if same := p.Keeps(p); same.MissingBytes != 0 || len(same.Missing)+len(same.Packings) != 0 || !same.Slots {
			t.Fatalf("step %d: a plan lacks %d bytes of itself", step, same.MissingBytes)
		}
		held = p
	}
}
