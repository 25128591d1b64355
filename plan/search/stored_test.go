package search

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

// inBlocks is a packed file of which nothing is read: seven tenths of what it stands for.
type inBlocks struct{ nowhere }

const blockOf = 16 << 10

func (s *inBlocks) blocks(off, n int64) int64 {
	return (min(off+n, s.bytes)+blockOf-1)/blockOf - off/blockOf
}
func (s *inBlocks) StoredBytes(off, n int64) int64 { return s.blocks(off, n) * blockOf * 7 / 10 }
func (s *inBlocks) BlockBytes() int64              { return blockOf }
func (s *inBlocks) Cut(_, n, most int64) int64     { return min(n, most) }
func (s *inBlocks) BufferBytes() int64             { return 4 * blockOf }
func (s *inBlocks) ReadStored(context.Context, []byte, int64, int64) error {
	return errors.New("read while planning")
}
func (s *inBlocks) Kept([]byte, int64, int64) storage.PackedSource { return s }

// inPacked has a graph's weights lie in packed files.
func inPacked(g *graph.Graph) *graph.Graph {
	files := make(map[storage.Source]*inBlocks)
	for i := range g.Values {
		if e := &g.Values[i].Weight.Extent; e.Source != nil {
			file, ok := files[e.Source]
			if !ok {
				file = &inBlocks{nowhere{e.Source.Size()}}
				files[e.Source] = file
			}
			e.Source = file
		}
	}
	return g
}

// TestStored: where the disk is what a pass waits for, blocks of packed files stay and more of the model is in memory;
// where decoding is what takes the time, or nothing else may stay, they do not. Budgets are kept, and the forecast says
// that it pays.
func TestStored(t *testing.T) {
	widths := []int{512, 700, 512, 900, 512, 700, 512, 600, 512, 800, 512, 500, 512}
	l := stack(t, 1, widths...)
	inPacked(l.Graph)
	slow := cost.Rates{FLOPs: 50e9, MemoryBytes: 20e9, DiskBytes: 200e6, DecodeBytes: 6e9}
	o := Options{Mode: plan.Auto, Target: plan.CPU, Rates: slow}
	all := mustPlan(t, l, o)
	for _, c := range []struct {
		name   string
		part   float64
		change func(*Options)
		want   bool
	}{
		{name: "half of it", part: 0.5, want: true},
		{name: "all but a little", part: 0.85, want: true},
		{name: "a third", part: 0.35, want: true},
		{name: "everything fits", part: 1},
		{name: "decoding is slow", part: 0.5, change: func(o *Options) { o.Rates.DecodeBytes = 100e6 }},
		{name: "the disk is as fast as memory", part: 0.5, change: func(o *Options) { o.Rates.DiskBytes = 20e9 }},
		{name: "one pass", part: 0.5, change: func(o *Options) { o.Once = true }},
		{name: "page", part: 0.5, change: func(o *Options) { o.Mode = plan.Page }},
		{name: "another device", part: 0.5, change: func(o *Options) { o.Target = plan.Target{Name: "emu", AlignBytes: 256} }},
	} {
		o := o
		o.MemoryBytes = int64(float64(all.PeakBytes()) * c.part)
		if c.change != nil {
			c.change(&o)
		}
		p := mustPlan(t, l, o)
		checkPlan(t, p, o, l.Graph)
		stored, whole := p.Fixed.StoredBytes()
		if got := stored > 0; got != c.want || got != slices.ContainsFunc(p.Groups, func(g plan.Group) bool { return g.Decoded }) {
			t.Errorf("%s: %d bytes of blocks stay, for %d\n%v", c.name, stored, whole, p)
		}
		if again := mustPlan(t, l, o); again.String() != p.String() {
			t.Errorf("%s: another plan the second time", c.name)
		}
		if !c.want {
			continue
		}
		d := newDraft(l, cut(l.Graph, plan.Limit{}), o.filled(), nil).coarse()
		plain, err := d.thrifty().choose((*draft).mixed)
		if err != nil || p.Forecast.Seconds > plain.Forecast.Seconds*worthStoring {
			t.Errorf("%s: %v s, %v s without, %v", c.name, p.Forecast.Seconds, plain.Forecast.Seconds, err)
		}
		if p.FileBytes() >= plain.FileBytes() {
			t.Errorf("%s: %d bytes are read for a pass, %d without", c.name, p.FileBytes(), plain.FileBytes())
		}
		t.Logf("%s: %.2f ms, %.2f without; %d for %d bytes, %d read", c.name, 1e3*p.Forecast.Seconds, 1e3*plain.Forecast.Seconds, stored, whole, p.FileBytes())
	}
}

// TestStoredForOtherShapes: a plan for more rows keeps the same blocks in the same places, and reads what these have
// not.
func TestStoredForOtherShapes(t *testing.T) {
	widths := []int{512, 700, 512, 900, 512, 700, 512, 600, 512, 800, 512}
	one, many := stack(t, 1, widths...), stack(t, 64, widths...)
	inPacked(one.Graph)
	for i := range many.Graph.Values {
		if e := &many.Graph.Values[i].Weight.Extent; e.Source != nil {
			e.Source = one.Graph.Values[i].Weight.Extent.Source
		}
	}
	o := Options{
		Mode: plan.Auto, Target: plan.CPU, Rates: cost.Rates{FLOPs: 50e9, MemoryBytes: 20e9, DiskBytes: 200e6, DecodeBytes: 6e9},
	}
	o.MemoryBytes = mustPlan(t, one, o).PeakBytes() / 2
	p := mustPlan(t, one, o)
	o.MemoryBytes += 4 << 20
	o.Like = p
	q := mustPlan(t, many, o)
	checkPlan(t, q, o, many.Graph)
	if len(p.Fixed.Stored) == 0 || !plan.SameFixed(p, q) {
		t.Fatalf("other weights stay\n%v\n%v", p, q)
	}
	for i := range q.Groups {
		g := &q.Groups[i]
		if g.Decoded != p.Groups[i].Decoded {
			t.Errorf("group %d is %s, not %s", i, g.Placement(), p.Groups[i].Placement())
		}
	}
	keep := q.Keeps(p)
	if keep.MissingBytes != 0 || len(keep.Stored) != 0 || len(p.Keeps(&plan.Plan{Lowered: one}).Stored) != len(p.Fixed.Stored) {
		t.Errorf("%d bytes are missing, blocks %v", keep.MissingBytes, keep.Stored)
	}
}
