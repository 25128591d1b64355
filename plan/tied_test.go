package plan

import (
	"slices"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// TestTiedWeightsThatStay: a weight that stays because one of its readers does is not brought for the others.
func TestTiedWeightsThatStay(t *testing.T) {
	for _, target := range []Target{CPU, {Name: "emu", AlignBytes: 256}} {
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
		o := Options{Mode: Auto, Target: target, asGiven: true}.filled()
		d := newDraft(l, cut(l.Graph, Limit{}), o, nil)
		keep := make([]bool, len(d.groups))
		keep[0] = true
		d.prepare(keep)
		p := d.plan(keep, layout{1 << 20, endToEnd})
		checkPlan(t, p, o, b.g)
		if !slices.ContainsFunc(p.Fixed.Parts, func(part Part) bool { return part.Value == tied.Value }) || p.MovedBytes != 2*128*128*4 {
			t.Errorf("%s: %d bytes are moved\n%v", target.Name, p.MovedBytes, p)
		}
	}
}
