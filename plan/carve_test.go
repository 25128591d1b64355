package plan

import (
	"fmt"
	"math"
	"testing"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// uneven returns layers of which two have most of the weights, for a number of rows.
func uneven(t fatal, rows int) *layers.Graph {
	b := newBuilder(t)
	in := 512
	x := b.g.AddInput("x", tensor.Float32, tensor.Shape{rows, in})
	for i, out := range []int{700, 1200, 3000, 5000, 100, 900, 2000, 600, 400} {
		path := fmt.Sprint(i)
		x = b.emit(path, "linear", nil, b.g.Whole(x), b.weight(path+".weight", out, in), b.weight(path+".bias", out))
		in = out
	}
	b.g.Outputs = []layers.Output{{Name: "y", Operand: b.g.Whole(x)}}
	return b.g
}

// TestUnevenCuts: what stays and what is paged of large weights is cut into other pieces than equal ones where launches
// are dear, which is faster than any equal pieces; the plan is the same each time, and one for other shapes keeps the same
// bytes.
func TestUnevenCuts(t *testing.T) {
	l, _ := lower(uneven(t, 16))
	o := Options{
		Mode: Auto, Target: Target{Name: "emu", AlignBytes: 256}, Lower: lower,
		Rates: Rates{FLOPs: 1e12, MemoryBytes: 100e9, OpSeconds: 3e-6, CopyBytes: 60e9, CopySeconds: 1e-9},
	}
	resident, err := New(l, o)
	if err != nil {
		t.Fatal(err)
	}
	o.MemoryBytes = resident.PeakBytes() - resident.Fixed.Bytes*11/20 + 13
	p, err := New(l, o)
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
	if p.cuts == nil || len(rows) < 4 || p.PeakBytes() > o.MemoryBytes {
		t.Fatalf("no uneven cuts\n%v", p)
	}
	equal := math.Inf(1)
	e := newDraft(l, cut(l.Graph, Limit{}), o.filled(), nil)
	for _, v := range e.variants() {
		if q := v.mixed(); q != nil {
			equal = min(equal, q.Forecast.Seconds)
		}
	}
	if gain := equal / p.Forecast.Seconds; gain < 1.05 {
		t.Errorf("%.3f times as fast as equal pieces\n%v", gain, p)
	}
	again, err := New(l, o)
	if err != nil || again.String() != p.String() {
		t.Errorf("another plan the second time: %v\n%v", err, again)
	}
	other, _ := lower(uneven(t, 8))
	o.Like = p
	for i := range other.Graph.Values { // of the same file
		other.Graph.Values[i].Weight = l.Graph.Values[i].Weight
	}
	q, err := New(other, o)
	if err != nil {
		t.Fatal(err)
	}
	if !SameFixed(p, q) || len(q.Groups) != len(p.Groups) {
		t.Errorf("for fewer rows other weights stay\n%v\n%v", p, q)
	}
}
