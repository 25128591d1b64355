package search

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/tensor"
)

// TestSmallGroups: from a disk, small layers that follow each other are brought together, unless their groups are as
// the user says, and that takes no more memory than bringing each by itself.
func TestSmallGroups(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		widths := rapid.SliceOfN(rapid.SampledFrom([]int{8, 16, 64, 100, 256, 1024}), 30, 120).Draw(t, "widths")
		l := stack(t, rapid.IntRange(1, 20).Draw(t, "rows"), widths...)
		o := Options{
			Mode:      rapid.SampledFrom([]plan.Mode{plan.Page, plan.Auto}).Draw(t, "mode"),
			Instances: rapid.SampledFrom([]int{1, 1, 3}).Draw(t, "instances"),
		}
		if rapid.Bool().Draw(t, "lower") {
			o.Lower = lower
		}
		p, err := Plan(l, o)
		if err != nil {
			t.Fatal(err)
		}
		checkPlan(t, p, o, l.Graph)
		alone := o
		alone.asGiven = true
		q, err := Plan(l, alone)
		if err != nil {
			t.Fatal(err)
		}
		if p.MinBytes > q.MinBytes {
			t.Fatalf("the least is %d bytes, and %d with a group for each layer", p.MinBytes, q.MinBytes)
		}
		o.MemoryBytes = p.MinBytes
		if least, err := Plan(l, o); err != nil || least.PeakBytes() > o.MemoryBytes {
			t.Fatalf("the least budget does not do: %v", err)
		}
	})
	// The least budget is no larger where the largest slot is a small part of the model.
	even := stack(t, 1, slices.Repeat([]int{64}, 300)...)
	joined := mustPlan(t, even, Options{Mode: plan.Page})
	alone := mustPlan(t, even, Options{Mode: plan.Page, asGiven: true})
	if joined.MinBytes > alone.MinBytes {
		t.Errorf("the least is %d bytes, and %d with a group for each layer", joined.MinBytes, alone.MinBytes)
	}
	if n, most := largestSlot(joined), largestSlot(alone); n > most {
		t.Errorf("a slot of %d bytes, and of %d with a group for each layer", n, most)
	}
	// Layers of 64 KiB, and one of them that is many times as large.
	widths := []int{1024}
	for range 400 {
		widths = append(widths, 128)
	}
	l := stack(t, 1, widths...)
	var weights int64
	for _, v := range l.Graph.Values {
		weights += v.Weight.Extent.Bytes
	}
	for _, c := range []struct {
		name   string
		change func(*Options)
		joined bool
	}{
		{"page", func(*Options) {}, true},
		{"auto", func(o *Options) { o.Mode, o.MemoryBytes = plan.Auto, weights/2 }, true},
		{"a size of groups", func(o *Options) { o.MaxGroup = plan.Limit{Unit: plan.Params} }, false},
		{"chunk", func(o *Options) { o.Mode, o.Capacity = plan.Chunk, plan.Limit{N: 1, Unit: plan.Bytes} }, false},
		{"no disk", func(o *Options) { o.Target = plan.Target{Name: "emu", AlignBytes: 256} }, false},
	} {
		o := Options{Mode: plan.Page}
		c.change(&o)
		p := mustPlan(t, l, o)
		reads, most := 0, int64(0)
		var paths []string
		for i := range p.Groups {
			g := &p.Groups[i]
			reads += len(g.Spans)
			var sum plan.Layer
			for _, layer := range g.Layers() {
				paths = append(paths, layer.Path)
				sum.Ops += layer.Ops
				sum.Params += layer.Params
				sum.WeightBytes += layer.WeightBytes
				sum.Seconds += layer.Seconds
			}
			name := g.Layers()[0].Path
			if n := len(g.Layers()); n > 1 {
				name += " to " + g.Layers()[n-1].Path
			}
			if g.Name() != name || len(g.Layers()) > 1 && !c.joined {
				t.Errorf("%s: group %d is called %q", c.name, i, g.Name())
			}
			if sum.Ops != g.End-g.First || sum.Params != g.Params || sum.WeightBytes != g.WeightBytes ||
				sum.Seconds > g.Seconds*1.0001 || sum.Seconds < g.Seconds*0.9 {
				t.Errorf("%s: the layers of group %d come to %+v, and it is %+v", c.name, i, sum, *g)
			}
			if n := p.Groups[i].SlotBytes; i > 0 {
				most = max(most, n)
			}
		}
		if !c.joined && len(p.Groups) != 400 || c.joined && (len(p.Groups) > 110 || most > smallBytes || reads > 110) {
			t.Errorf("%s: %d groups of at most %d bytes, %d reads", c.name, len(p.Groups), most, reads)
		}
		if len(paths) != 400 || len(slices.Compact(slices.Clone(paths))) != 400 {
			t.Errorf("%s: layers %q", c.name, paths)
		}
	}
}

// TestLayersOfRows: an embedding of which rows are brought weighs what its table does among the layers of a group, too.
func TestLayersOfRows(t *testing.T) {
	b := newBuilder(t)
	ids := b.g.AddInput("ids", tensor.Int64, tensor.Shape{1})
	table := b.weight("table", 26, 72)
	x := b.emit("embed", "embedding", nil, table, b.g.Whole(ids))
	x = b.emit("hidden", "linear", nil, b.g.Whole(x), b.weight("hidden.weight", 72, 72))
	x = b.emit("head", "linear", nil, b.g.Whole(x), table)
	b.g.Outputs = []graph.Output{{Name: "logits", Operand: b.g.Whole(x)}}
	l, err := lower(b.g)
	if err != nil {
		t.Fatal(err)
	}
	p := mustPlan(t, l, Options{
		Mode: plan.Page, Target: plan.Target{Name: "emu", AlignBytes: 256}, Instances: 3, Rates: cost.Rates{CopyBytes: 100e6},
	})
	g := &p.Groups[0]
	if list := g.Layers(); !g.Rows || len(list) != 2 || list[0].Path != "embed" || list[0].WeightBytes != 4*26*72 || list[0].Params != 26*72 {
		t.Errorf("the layers of the first group are %+v\n%v", list, p)
	}
	for i := range p.Groups {
		g, bytes := &p.Groups[i], int64(0)
		for _, layer := range g.Layers() {
			bytes += layer.WeightBytes
		}
		if bytes != g.WeightBytes {
			t.Errorf("the layers of group %d come to %d bytes, and it is %d", i, bytes, g.WeightBytes)
		}
	}
}

func largestSlot(p *plan.Plan) int64 {
	var most int64
	for i := range p.Groups {
		most = max(most, p.Groups[i].SlotBytes)
	}
	return most
}
