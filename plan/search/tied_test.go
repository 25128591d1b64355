package search

import (
	"fmt"
	"slices"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/tensor"
)

// TestTiedWeightsThatStay: a weight that stays because one of its readers does is not brought for the others.
func TestTiedWeightsThatStay(t *testing.T) {
	for _, target := range []plan.Target{plan.CPU, {Name: "emu", AlignBytes: 256}} {
		b := newBuilder(t)
		x := b.g.AddInput("x", tensor.Float32, tensor.Shape{1, 128})
		tied := b.weight("tied", 128, 128)
		h := x
		for _, path := range []string{"a", "b", "c", "d"} {
			w := tied
			if path == "b" || path == "d" {
				w = b.weight(path, 128, 128)
			}
			h = b.emit(path, "linear", nil, b.g.Whole(h), w)
		}
		b.g.Outputs = []graph.Output{{Name: "y", Operand: b.g.Whole(h)}}
		l := &graph.Lowered{Graph: b.g, Steps: make([]graph.Step, len(b.g.Ops))}
		o := Options{Mode: plan.Auto, Target: target, asGiven: true}.filled()
		d := newDraft(l, cut(l.Graph, plan.Limit{}), o, nil)
		keep := make([]bool, len(d.groups))
		keep[0] = true
		d.prepare(keep)
		p := d.plan(keep, layout{1 << 20, endToEnd})
		checkPlan(t, p, o, b.g)
		stays := slices.ContainsFunc(p.Fixed.Parts, func(part plan.Part) bool { return part.Value == tied.Value })
		if !stays || p.MovedBytes != 2*128*128*4 {
			t.Errorf("%s: %d bytes are moved\n%v", target.Name, p.MovedBytes, p)
		}
	}
}

// TestWeightsWithinAnother: weights that are views of a part of another's bytes in the file, as PyTorch saves slices of
// a parameter, are read whole with it, and so is what follows in the file.
func TestWeightsWithinAnother(t *testing.T) {
	for _, target := range []plan.Target{plan.CPU, {Name: "emu", AlignBytes: 256}} {
		for _, mode := range []plan.Mode{plan.Resident, plan.Page, plan.Auto} {
			b := newBuilder(t)
			x := b.g.AddInput("x", tensor.Float32, tensor.Shape{1, 128})
			within := func(name string, whole graph.Operand, first, rows int) graph.Operand {
				e := b.g.Values[whole.Value].Weight.Extent
				e.Offset, e.Bytes = e.Offset+int64(first)*128*4, int64(rows)*128*4
				layout := tensor.Contiguous(rows, 128)
				return graph.Operand{Layout: layout, Value: b.g.AddWeight(tensor.Weight{
					Name: name, DType: tensor.Float32, Layout: layout, Extent: e,
				}, graph.Weight)}
			}
			whole := b.weight("whole", 512, 128)
			for i, w := range []graph.Operand{
				whole, within("first", whole, 0, 128), within("inner", whole, 200, 128), b.weight("next", 128, 128),
			} {
				y := b.emit("all", "linear", nil, b.g.Whole(x), w)
				b.g.Outputs = append(b.g.Outputs, graph.Output{Name: fmt.Sprint(i), Operand: b.g.Whole(y)})
			}
			l := &graph.Lowered{Graph: b.g, Steps: make([]graph.Step, len(b.g.Ops))}
			o := Options{Mode: mode, Target: target}
			if mode != plan.Resident {
				o.MaxGroup = plan.Limit{N: 1 << 40, Unit: plan.Bytes}
			}
			p := mustPlan(t, l, o)
			checkPlan(t, p, o, b.g)
			if read := plan.SpanBytes(append(spansOf(p), p.Fixed.Spans...)); target == plan.CPU && read != b.src.bytes {
				t.Errorf("%s: %d bytes are read of a file of %d\n%v", mode, read, b.src.bytes, p)
			}
		}
	}
}
