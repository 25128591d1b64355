package search

import (
	"fmt"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/tensor"
)

// TestWaitingTwice: a value that later layers read twice, far apart, waits in host memory both times: it leaves once and
// comes back twice where its room can be kept, else it leaves twice. It is whole when its group ends: its last reader there
// does not write over it, nor do ops behind that. It does not leave where a branch makes it that may not be taken.
func TestWaitingTwice(t *testing.T) {
	for _, guarded := range []bool{false, true} {
		for _, behind := range []int{0, 2} { // so many ops are behind the last reader in the group
			for _, instances := range []int{1, 3} {
				g, skip := waiting(t, guarded, behind)
				l, _ := lower(g)
				o := Options{Mode: plan.Page, Target: plan.Target{Name: "emu", AlignBytes: 256}, Instances: instances}
				o.MemoryBytes = mustPlan(t, l, o).MinBytes
				p := mustPlan(t, l, o)
				checkPlan(t, p, o, g)
				out, in := crossings(p)
				if leaves := out[skip] > 0; leaves == guarded || leaves && (out[skip] != 1 || in != out.sum()+1) {
					t.Errorf("guarded: %v, %d instances: it leaves: %v, %d come back\n%v", guarded, instances, out, in, p)
				}
			}
		}
	}
}

// A leaving counts how often values leave.
type leaving map[graph.ValueID]int

func (l leaving) sum() (n int) {
	for _, k := range l {
		n += k
	}
	return n
}

// crossings returns how often each value leaves, and how many come back.
func crossings(p *plan.Plan) (out leaving, in int) {
	out = make(leaving)
	for i := range p.Groups {
		for _, s := range p.Groups[i].SwapOut {
			out[s.Value]++
		}
		in += len(p.Groups[i].SwapIn)
	}
	return out, in
}

// waiting returns a graph in which one value waits twice for a reader, with larger ones between.
func waiting(t fatal, guarded bool, behind int) (*graph.Graph, graph.ValueID) {
	const rows, width, wide = 16, 128, 1024
	b := newBuilder(t)
	linear := func(path string, x graph.ValueID, out, in int) graph.ValueID {
		return b.emit(path, "linear", nil, b.g.Whole(x), b.weight(path+".weight", out, in))
	}
	x := b.g.AddInput("x", tensor.Float32, tensor.Shape{rows, width})
	var truth graph.ValueID
	if guarded {
		truth = b.emit("first", "any", graph.Attrs{"dims": []int{0, 1}, "keepdim": false}, b.g.Whole(x))
		b.guard = []graph.Guard{{Predicate: b.g.Whole(truth), Want: true}}
	}
	skip := linear("first", x, width, width)
	b.guard = nil
	read := func(path string) graph.ValueID {
		if guarded {
			return b.emit(path, "choose", nil, b.g.Whole(truth), b.g.Whole(skip), b.g.Whole(x))
		}
		return b.emit(path, "relu", nil, b.g.Whole(skip))
	}
	h := read("first")
	for range behind {
		h = linear("first", h, width, width)
	}
	for _, stage := range []string{"second", "third"} {
		for k := range 2 {
			path := fmt.Sprintf("%s.%d", stage, k)
			h = linear(path+".down", linear(path+".up", h, wide, width), width, wide)
		}
		h = b.emit(stage, "add", nil, b.g.Whole(linear(stage, h, width, width)), b.g.Whole(read(stage)))
	}
	h = linear("last", h, 8, width)
	b.g.Outputs = []graph.Output{{Name: "y", Operand: b.g.Whole(h)}}
	return b.g, skip
}
