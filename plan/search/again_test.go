package search

import (
	"math"
	"slices"
	"testing"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/tensor"
)

// outer returns a graph in which the sum of a column and a row, as large as all that is alive together otherwise, is
// read at the beginning and at the end: what it is made of takes next to nothing. Late has the row read behind the
// sum's first reader only.
func outer(t fatal, kind graph.Kind, late bool) (g *graph.Graph, sum graph.ValueID) {
	const rows, width, wide = 64, 128, 512
	b := newBuilder(t)
	linear := func(path string, x graph.ValueID, out, in int) graph.ValueID {
		return b.emit(path, "linear", nil, b.g.Whole(x), b.weight(path+".weight", out, in))
	}
	x := b.g.AddInput("x", tensor.Float32, tensor.Shape{rows, width})
	column := b.g.AddInput("column", tensor.Float32, tensor.Shape{rows, 1})
	row := b.g.AddInput("row", tensor.Float32, tensor.Shape{1, width})
	if !late {
		row = b.emit("first", "relu", nil, b.g.Whole(row))
	}
	first, second := b.g.Whole(column), b.g.Whole(row)
	first.Layout = tensor.Layout{Shape: tensor.Shape{rows, width}, Strides: []int{1, 0}}
	second.Layout = tensor.Layout{Shape: tensor.Shape{rows, width}, Strides: []int{0, 1}}
	sum = b.emit("first", kind, nil, first, second)
	h := b.emit("first", "add", nil, b.g.Whole(linear("first", x, width, width)), b.g.Whole(sum))
	for _, path := range []string{"second", "third"} {
		h = linear(path+".down", linear(path+".up", h, wide, width), width, wide)
	}
	h = b.emit("last", "add", nil, b.g.Whole(linear("last", h, width, width)), b.g.Whole(sum))
	if late {
		h = b.emit("last", "add", nil, b.g.Whole(h), second)
	}
	b.g.Outputs = []graph.Output{{Name: "y", Operand: b.g.Whole(h)}}
	return b.g, sum
}

// TestComputedAnew: a value that takes less time to make than to copy out and back is computed anew before its second
// reader, if what it is made of is there or takes less, and waits where that is not so: where computing takes longer,
// with several micro-batches, and where an embedder's op makes it. The least budget is the same.
func TestComputedAnew(t *testing.T) {
	custom, err := graph.Standard().With(graph.OpDef{
		Kind:      "mine",
		Shape:     func(in []graph.Spec, _ graph.Attrs) ([]graph.Spec, error) { return in[:1], nil },
		Reference: func([]*tensor.Tensor, []*tensor.Tensor, graph.Attrs) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	quick := cost.Rates{CopyBytes: 1e9, DiskBytes: 1e9}
	for _, target := range []plan.Target{plan.CPU, {Name: "emu", AlignBytes: 256}} {
		var least int64
		for _, c := range []struct {
			name string
			o    Options
			late bool
			mine bool
			anew bool
		}{
			{name: "kept", anew: true},
			{name: "late", late: true, anew: true},
			{name: "slow", o: Options{Rates: cost.Rates{CopyBytes: 1e15, CopySeconds: 1e-15, DiskBytes: 1e15}}},
			{name: "several", o: Options{Instances: 2}},
			{name: "custom", o: Options{Ops: custom}, mine: true},
		} {
			g, sum := outer(t, "add", c.late)
			if c.mine {
				g.Ops[slices.IndexFunc(g.Ops, func(op graph.Op) bool { return slices.Contains(op.Out, sum) })].Kind = "mine"
			}
			l := &graph.Lowered{Graph: g, Steps: make([]graph.Step, len(g.Ops))}
			o := c.o
			o.Mode, o.Target, o.SwapBytes = plan.Page, target, 1<<20
			if o.Rates.CopyBytes == 0 {
				o.Rates = quick
			}
			o.MemoryBytes = mustPlan(t, l, o).MinBytes
			p := mustPlan(t, l, o)
			checkPlan(t, p, o, g)
			out, in := p.SwappedBytes()
			if anew := p.AgainBytes(); c.anew != (anew > 0) || c.anew && (anew != 64*128*4 || in+out > 0) || !c.anew && in == 0 {
				t.Errorf("%s, %s: %d bytes computed anew, %d come back\n%v", target.Name, c.name, anew, in, p)
			}
			if c.anew {
				k := slices.IndexFunc(p.Groups, func(group plan.Group) bool { return group.Again != nil })
				op := p.Lowered.Graph.Ops[p.Groups[k].Again[0].Op]
				if p.Groups[k].Path != "last" || op.Kind != "add" || p.Origins()[op.Out[0]] != plan.Recomputed || p.Groups[k].Again[0].Value != sum {
					t.Errorf("%s, %s: %v\n%v", target.Name, c.name, op, p)
				}
				if f := p.Forecast; f.AgainSeconds <= 0 || f.AgainSeconds >= float64(2*64*128*4)/1e9 || f.ComputeSeconds < f.AgainSeconds {
					t.Errorf("%s, %s: %+v", target.Name, c.name, f)
				}
			}
			if c.name == "kept" {
				least = o.MemoryBytes
			}
			if c.name == "slow" && math.Abs(float64(o.MemoryBytes-least)) > 1<<10 {
				t.Errorf("%s: the least budget is %d where it is computed anew and %d where it waits", target.Name, least, o.MemoryBytes)
			}
		}
		g, _ := outer(t, "add", false)
		l := &graph.Lowered{Graph: g, Steps: make([]graph.Step, len(g.Ops))}
		o := Options{Mode: plan.Page, Target: target, SwapBytes: 1 << 20, Rates: quick}
		if p := mustPlan(t, l, o); p.AgainBytes() > 0 {
			t.Errorf("%s: where there is room something is computed anew\n%v", target.Name, p)
		}
	}
}

// TestWhatIsComputedAnewNeedsItsOperands: a value is computed anew where its operand is read by the same op, which
// brings it back, and not where that waits until later, or is as large as the value and would be kept for it alone.
func TestWhatIsComputedAnewNeedsItsOperands(t *testing.T) {
	for order, want := range map[string]bool{"both": true, "value first": false, "operand first": false} {
		const rows, width, wide = 64, 128, 512
		b := newBuilder(t)
		linear := func(path string, x graph.ValueID, out, in int) graph.ValueID {
			return b.emit(path, "linear", nil, b.g.Whole(x), b.weight(path+".weight", out, in))
		}
		operand := linear("zero", b.g.AddInput("x", tensor.Float32, tensor.Shape{rows, 8}), width, 8) // its weight is not there any more
		value := b.emit("first", "relu", nil, b.g.Whole(operand))
		h := b.emit("first", "add", nil, b.g.Whole(linear("first", operand, width, width)), b.g.Whole(value))
		for _, path := range []string{"second", "third"} {
			h = linear(path+".down", linear(path+".up", h, wide, width), width, wide)
		}
		switch order {
		case "both":
			h = b.emit("last", "add", nil, b.g.Whole(h), b.g.Whole(b.emit("last", "mul", nil, b.g.Whole(operand), b.g.Whole(value))))
		case "value first":
			h = linear("fifth", b.emit("fourth", "add", nil, b.g.Whole(linear("fourth", h, width, width)), b.g.Whole(value)), width, width)
			h = b.emit("sixth", "add", nil, b.g.Whole(linear("sixth", h, width, width)), b.g.Whole(operand))
		case "operand first":
			h = linear("fifth", b.emit("fourth", "add", nil, b.g.Whole(linear("fourth", h, width, width)), b.g.Whole(operand)), width, width)
			h = b.emit("sixth", "add", nil, b.g.Whole(linear("sixth", h, width, width)), b.g.Whole(value))
		}
		b.g.Outputs = []graph.Output{{Name: "y", Operand: b.g.Whole(h)}}
		l := &graph.Lowered{Graph: b.g, Steps: make([]graph.Step, len(b.g.Ops))}
		o := Options{Mode: plan.Page, Target: plan.CPU, SwapBytes: 1 << 20, Rates: cost.Rates{DiskBytes: 1e9}}
		o.MemoryBytes = mustPlan(t, l, o).MinBytes
		p := mustPlan(t, l, o)
		checkPlan(t, p, o, b.g)
		if out, _ := p.SwappedBytes(); (p.AgainBytes() > 0) != want || out == 0 {
			t.Errorf("%s: %d bytes computed anew, %d leave\n%v", order, p.AgainBytes(), out, p)
		}
	}
}
