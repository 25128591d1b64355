package search

import (
	"fmt"
	"math"
	"testing"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/tensor"
)

// uneven returns layers of which two have most of the weights, for a number of rows.
func uneven(t fatal, rows int) *graph.Graph {
	b := newBuilder(t)
	in := 512
	x := b.g.AddInput("x", tensor.Float32, tensor.Shape{rows, in})
	for i, out := range []int{700, 1200, 3000, 5000, 100, 900, 2000, 600, 400} {
		path := fmt.Sprint(i)
		x = b.emit(path, "linear", nil, b.g.Whole(x), b.weight(path+".weight", out, in), b.weight(path+".bias", out))
		in = out
	}
	b.g.Outputs = []graph.Output{{Name: "y", Operand: b.g.Whole(x)}}
	return b.g
}

// TestUnevenCuts: what stays and what is paged of large weights is cut into other pieces than equal ones where launches
// are dear, which is faster than any equal pieces; the plan is the same each time, and one for other shapes keeps the
// same bytes.
func TestUnevenCuts(t *testing.T) {
	l, _ := lower(uneven(t, 16))
	o := Options{
		Mode: plan.Auto, Target: plan.Target{Name: "emu", AlignBytes: 256}, Lower: lower,
		Rates: cost.Rates{FLOPs: 1e12, MemoryBytes: 100e9, OpSeconds: 3e-6, CopyBytes: 60e9, CopySeconds: 1e-9},
	}
	resident, err := Plan(l, o)
	if err != nil {
		t.Fatal(err)
	}
	o.MemoryBytes = resident.PeakBytes() - resident.Fixed.Bytes*11/20 + 13
	p, err := Plan(l, o)
	if err != nil {
		t.Fatal(err)
	}
	rows := make(map[int]bool) // in how many pieces are
	for i := range p.Groups {
		if g := &p.Groups[i]; g.EndRow > 0 {
			rows[g.EndRow-g.FirstRow] = true
		}
		if at := p.Groups[i].SlotOffset; at%o.Target.AlignBytes != 0 {
			t.Errorf("a slot at %d", at)
		}
	}
	checkPlan(t, p, o, l.Graph)
	if p.Cuts == nil || len(rows) < 4 || p.PeakBytes() > o.MemoryBytes {
		t.Fatalf("no uneven cuts\n%v", p)
	}
	equal := math.Inf(1)
	e := newDraft(l, cut(l.Graph, plan.Limit{}), o.filled(), nil)
	for _, v := range e.variants() {
		if q := v.mixed(); q != nil {
			equal = min(equal, q.Forecast.Seconds)
		}
	}
	if gain := equal / p.Forecast.Seconds; gain < 1.05 {
		t.Errorf("%.3f times as fast as equal pieces\n%v", gain, p)
	}
	again, err := Plan(l, o)
	if err != nil || again.String() != p.String() {
		t.Errorf("another plan the second time: %v\n%v", err, again)
	}
	other, _ := lower(uneven(t, 8))
	o.Like = p
	for i := range other.Graph.Values { // of the same file
		other.Graph.Values[i].Weight = l.Graph.Values[i].Weight
	}
	q, err := Plan(other, o)
	if err != nil {
		t.Fatal(err)
	}
	if !plan.SameFixed(p, q) || len(q.Groups) != len(p.Groups) {
		t.Errorf("for fewer rows other weights stay\n%v\n%v", p, q)
	}
}

// TestViewsAreCut: views of one large weight are cut each by its own rows, wherever in the weight it begins.
func TestViewsAreCut(t *testing.T) {
	b := newBuilder(t)
	in := 512
	x := b.g.AddInput("x", tensor.Float32, tensor.Shape{16, in})
	w := b.weight("shared.weight", 8000, in)
	view := func(first, rows int) graph.Operand {
		v := w
		v.Layout.Shape, v.Layout.Offset = tensor.Shape{rows, in}, first*in
		return v
	}
	for i, v := range [][2]int{{1500, 5000}, {0, 700}, {1500, 2500}, {4000, 4000}} {
		path := fmt.Sprint(i)
		h := b.emit(path+".up", "linear", nil, b.g.Whole(x), view(v[0], v[1]))
		x = b.emit(path+".down", "linear", nil, b.g.Whole(h), b.weight(path+".weight", in, v[1]))
	}
	b.g.Outputs = []graph.Output{{Name: "y", Operand: b.g.Whole(x)}}
	l, _ := lower(b.g)
	o := Options{
		Mode: plan.Auto, Target: plan.Target{Name: "emu", AlignBytes: 256}, Lower: lower,
		Rates: cost.Rates{FLOPs: 1e12, MemoryBytes: 100e9, OpSeconds: 3e-6, CopyBytes: 60e9, CopySeconds: 1e-9},
	}
	all := mustPlan(t, l, o)
	cuts := 0
	for _, share := range []int64{4, 8, 11, 14} {
		o.MemoryBytes = all.PeakBytes() - all.Fixed.Bytes*share/20 + 13
		p := mustPlan(t, l, o)
		checkPlan(t, p, o, l.Graph)
		cuts += len(p.Cuts)
	}
	if cuts == 0 {
		t.Error("nothing is cut")
	}
}
