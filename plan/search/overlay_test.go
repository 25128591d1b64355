package search

import (
	"slices"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
)

// An arena is what lies where in the memory for activations while a pass is followed.
type arena struct {
	t    failer
	p    *plan.Plan
	held []holding
}

// A holding is the bytes of a value, for one instance.
type holding struct {
	id        graph.ValueID
	instance  int
	low, high int64
}

func (h holding) overlaps(o holding) bool { return h.low < o.high && o.low < h.high }

// has reports whether a value has bytes among activations.
func (a *arena) has(id graph.ValueID) bool {
	return id != graph.NoValue && a.p.Places[id].First >= 0 && a.p.Places[id].Bytes > 0
}

func (a *arena) at(id graph.ValueID, instance int) holding {
	place := &a.p.Places[id]
	low := place.Offset + int64(instance)*place.Stride
	return holding{id, instance, low, low + place.Bytes}
}

// write puts a value where it belongs: what was there is gone.
func (a *arena) write(id graph.ValueID, instance int) {
	if a.has(id) {
		now := a.at(id, instance)
		a.held = append(slices.DeleteFunc(a.held, now.overlaps), now)
	}
}

// read fails where something was written over a value.
func (a *arena) read(what string, id graph.ValueID, instance int) {
	if a.has(id) && !slices.Contains(a.held, a.at(id, instance)) {
		a.t.Fatalf("%s: something lies over value %d of instance %d\n%v", what, id, instance, a.p)
	}
}

// run follows an op. Its results may lie over an operand only where the op says so, exactly, and where it has no other
// view of it.
func (a *arena) run(i, instance int) {
	g := a.p.Lowered.Graph
	op, step := &g.Ops[i], &a.p.Lowered.Steps[i]
	for _, o := range op.In {
		a.read(string(op.Kind), o.Value, instance)
	}
	for _, guard := range op.Guard {
		a.read("guard", guard.Predicate.Value, instance)
	}
	for k, id := range op.Out {
		if !a.has(id) {
			continue
		}
		to := a.at(id, instance)
		for in, o := range op.In {
			if !a.has(o.Value) || !to.overlaps(a.at(o.Value, instance)) {
				continue
			}
			from := a.at(o.Value, instance)
			if k > 0 || !slices.Contains(step.InPlace, in) || !g.CanOverlay(op, in) || from.low != to.low || from.high != to.high {
				a.t.Fatalf("op %d, %s, writes value %d over its operand %d\n%v", i, op.Kind, id, in, a.p)
			}
		}
		for _, other := range op.Out[:k] {
			if a.has(other) && to.overlaps(a.at(other, instance)) {
				a.t.Fatalf("op %d, %s, writes two values to one place", i, op.Kind)
			}
		}
	}
	for _, id := range op.Out {
		a.write(id, instance)
	}
}

// checkBytes follows a pass op by op: whatever is read is what was written there last.
func checkBytes(t failer, p *plan.Plan) {
	a := &arena{t: t, p: p}
	g := p.Lowered.Graph
	for k := range p.Groups {
		group := &p.Groups[k]
		for instance := range p.Instances {
			for _, id := range group.Inputs {
				a.write(id, instance)
			}
			for _, s := range group.SwapIn {
				a.write(s.Value, instance)
			}
			for i := group.First; i < group.End; i++ {
				a.run(i, instance)
			}
			for _, out := range group.Outputs {
				a.read("output", g.Outputs[out].Operand.Value, instance)
			}
			for _, s := range group.SwapOut {
				a.read("swap", s.Value, instance)
			}
		}
	}
	for _, u := range g.Updates {
		a.read("update", u.Operand.Value, 0)
	}
}

// TestInPlace: where ops may write over their operands, a chain takes one buffer and no value is in the way of another;
// where they may not, two.
func TestInPlace(t *testing.T) {
	l := chain(t, 1024, []int{0, 1, 2, 3, 4, 5})
	for i := range l.Steps {
		l.Steps[i].InPlace = []int{0}
	}
	// The input is left as it is, and the last result goes out.
	if p := mustPlan(t, l, Options{Mode: plan.Resident}); p.ActivationBytes != 2*4096 || !p.Places[2].Over ||
		p.Places[1].Over {
		t.Errorf("takes %d bytes, want those of the input and of one buffer: %+v", p.ActivationBytes, p.Places)
	}
	deep := chain(t, 1024, []int{0, 1, 1, 2, 3, 4, 5}) // value 1 is read twice, the second time by the op that makes value 3
	for i := range deep.Steps {
		deep.Steps[i].InPlace = []int{0}
	}
	p := mustPlan(t, deep, Options{Mode: plan.Resident})
	if p.Places[2].Over || !p.Places[3].Over || p.Places[3].Offset != p.Places[1].Offset {
		t.Errorf("a value is written over what is read later: %+v", p.Places)
	}
}

// TestInPlaceIsLeftAlone: what goes out and what becomes a state is not written over, nor an operand of which the op
// has another view, or one whose elements have another size.
func TestInPlaceIsLeftAlone(t *testing.T) {
	l := chain(t, 64, []int{0, 1, 2})
	for i := range l.Steps {
		l.Steps[i].InPlace = []int{0}
	}
	g := l.Graph
	if p := mustPlan(t, l, Options{Mode: plan.Resident}); !p.Places[2].Over {
		t.Fatal("nothing is in place")
	}
	g.Outputs = append(g.Outputs, graph.Output{Name: "first", Operand: g.Whole(1)})
	if p := mustPlan(t, l, Options{Mode: plan.Resident}); p.Places[2].Over {
		t.Error("an output is written over")
	}
	g.Outputs = g.Outputs[:1]
	reversed := g.Whole(1)
	reversed.Layout.Shape, reversed.Layout.Strides = []int{8, 8}, []int{1, 8}
	g.Ops[1].In[0] = reversed
	if p := mustPlan(t, l, Options{Mode: plan.Resident}); p.Places[2].Over {
		t.Error("a view in another order is written over")
	}
}
