package search

import (
	"slices"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/tensor"
)

// TestStatesStayOnTheDevice: a value that waits long for its reader goes to host memory meanwhile, but not one that
// becomes a buffer: that is on the device until the pass ends, so that to move it would free nothing.
func TestStatesStayOnTheDevice(t *testing.T) {
	for _, becomes := range []bool{false, true} {
		b := newBuilder(t)
		const rows, width, wide = 16, 128, 1024
		x := b.g.AddInput("x", tensor.Float32, tensor.Shape{rows, width})
		buffer := b.weight("buffer", rows, width)
		b.g.Values[buffer.Value].Role = graph.State
		next := b.emit("first", "add", nil, b.g.Whole(x), buffer)
		skip := b.emit("first.linear", "linear", nil, b.g.Whole(next), b.weight("first.linear.weight", width, width))
		h := skip
		for _, path := range []string{"second", "third"} {
			up := b.emit(path+".up", "linear", nil, b.g.Whole(h), b.weight(path+".up.weight", wide, width))
			h = b.emit(path+".down", "linear", nil, b.g.Whole(up), b.weight(path+".down.weight", width, wide))
		}
		h = b.emit("fourth", "linear", nil, b.g.Whole(h), b.weight("fourth.weight", width, width))
		h = b.emit("fourth", "add", nil, b.g.Whole(h), b.g.Whole(skip))
		h = b.emit("fifth", "linear", nil, b.g.Whole(h), b.weight("fifth.weight", 8, width))
		late := b.emit("last", "linear", nil, b.g.Whole(next), b.weight("last.weight", 8, width))
		h = b.emit("last", "add", nil, b.g.Whole(h), b.g.Whole(late))
		b.g.Outputs = []graph.Output{{Name: "y", Operand: b.g.Whole(h)}}
		if becomes {
			b.g.Updates = []graph.StateUpdate{{State: buffer.Value, Operand: b.g.Whole(next)}}
		}
		l := &graph.Lowered{Graph: b.g, Steps: make([]graph.Step, len(b.g.Ops))}
		o := Options{Mode: plan.Page, Target: plan.Target{Name: "emu", AlignBytes: 256}}
		o.MemoryBytes = mustPlan(t, l, o).MinBytes
		p := mustPlan(t, l, o)
		checkPlan(t, p, o, b.g)
		leaves := func(id graph.ValueID) bool {
			return slices.ContainsFunc(p.Groups, func(g plan.Group) bool {
				return slices.ContainsFunc(g.SwapOut, func(s plan.Swap) bool { return s.Value == id })
			})
		}
		if !leaves(skip) || leaves(next) == becomes {
			t.Errorf("becomes a buffer: %v; leaves: %v, and another that waits: %v\n%v", becomes, leaves(next), leaves(skip), p)
		}
	}
}
