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

// ladder returns linear layers of which each leaves a value for sums behind the last of them: with wide layers in between,
// what the first leaves is idle while most is alive.
func ladder(t fatal, skips int) *graph.Graph {
	const rows, width, wide = 16, 128, 512
	b := newBuilder(t)
	h := b.g.AddInput("x", tensor.Float32, tensor.Shape{rows, width})
	var left []graph.ValueID
	for k := range skips {
		path := fmt.Sprint(k)
		up := b.emit(path, "linear", nil, b.g.Whole(h), b.weight(path+".up", wide, width))
		h = b.emit(path, "linear", nil, b.g.Whole(up), b.weight(path+".down", width, wide))
		left = append(left, h)
	}
	shared := b.weight("last", width, width)
	for range 2 { // these two are not to be parted
		h = b.emit("last", "linear", nil, b.g.Whole(h), shared)
	}
	for k := skips - 1; k >= 0; k-- {
		h = b.emit("last", "add", nil, b.g.Whole(h), b.g.Whole(left[k]))
	}
	b.g.Outputs = []graph.Output{{Name: "y", Operand: b.g.Whole(h)}}
	return b.g
}

// TestGroupsAreCutForActivations: sums at the end of a group get what they add one by one, behind the layer, which stays
// whole; and what one micro-batch after the other needs in a group is there when the group begins.
func TestGroupsAreCutForActivations(t *testing.T) {
	l := &graph.Lowered{Graph: ladder(t, 5)}
	l.Steps = make([]graph.Step, len(l.Graph.Ops))
	o := Options{Mode: plan.Page, Target: plan.Target{Name: "emu", AlignBytes: 256}}
	o.MemoryBytes = mustPlan(t, l, o).MinBytes
	p := mustPlan(t, l, o)
	checkPlan(t, p, o, l.Graph)
	last, moved := 0, int64(0)
	for i := range p.Groups {
		if g := &p.Groups[i]; g.Path == "last" {
			last++
			moved += g.WeightBytes
		}
	}
	// Nothing else is there while a layer reads a value and writes one that is four times as wide.
	if _, in := crossings(p); last < 2 || in < 3 || moved != 128*128*4 || p.ActivationBytes != 5*8<<10 {
		t.Errorf("%d groups, %d come back, %d bytes of weights, activations of %d\n%v", last, in, moved, p.ActivationBytes, p)
	}
	o.Instances, o.MemoryBytes = 3, 0
	o.MemoryBytes = mustPlan(t, l, o).MinBytes
	p = mustPlan(t, l, o)
	checkPlan(t, p, o, l.Graph)
	for i := 1; i < len(p.Groups); i++ {
		if p.Groups[i].Path == p.Groups[i-1].Path {
			t.Errorf("group %d goes on with what the one before began\n%v", i, p)
		}
	}
}

// TestSwapWithinAQuota: on the CPU nothing waits where there is no file. With one the least budget falls as far as what fits
// into the file allows, and a plan for it is found.
func TestSwapWithinAQuota(t *testing.T) {
	l := &graph.Lowered{Graph: ladder(t, 5)}
	l.Steps = make([]graph.Step, len(l.Graph.Ops))
	least := func(quota int64) (minBytes, swapBytes int64) {
		o := Options{Mode: plan.Page, Target: plan.CPU, SwapBytes: quota}
		o.MemoryBytes = mustPlan(t, l, o).MinBytes
		p := mustPlan(t, l, o)
		checkPlan(t, p, o, l.Graph)
		return p.MinBytes, p.SwapBytes
	}
	const value = 8 << 10
	all, wanted := least(1 << 30)
	before := int64(math.MaxInt64)
	for quota := int64(0); quota <= wanted; quota += value {
		now, took := least(quota)
		if took != quota || now >= before {
			t.Errorf("with a file of %d bytes the least budget is %d, was %d, and %d wait", quota, now, before, took)
		}
		before = now
	}
	if before != all || wanted != 4*value {
		t.Errorf("with %d bytes the least budget is %d, with more %d", wanted, before, all)
	}
}

// TestRoomIsKeptWhereThereIsSome: what waits twice leaves once if its room can be kept in between, else twice.
func TestRoomIsKeptWhereThereIsSome(t *testing.T) {
	g, skip := waiting(t, false, 0)
	l, _ := lower(g)
	o := Options{Mode: plan.Page, Target: plan.Target{Name: "emu", AlignBytes: 256}}.filled()
	d := newDraft(l, cut(g, o.MaxGroup), o, nil)
	steps := d.steps(false)
	other := g.Ops[d.groups[2].First].Out[0] // as large, in the room in between
	chosen := func() []wait {
		return []wait{{value: skip, from: 0, to: 1}, {value: other, from: 2, to: 4}, {value: skip, from: 5, to: 10}}
	}
	kept, again := d.rename(chosen(), steps, false), d.rename(chosen(), steps, true)
	const bytes = 16 * 128 * 4
	if kept.hostBytes != 2*bytes || again.hostBytes != bytes {
		t.Errorf("%d bytes where room is kept, %d where not", kept.hostBytes, again.hostBytes)
	}
	if n, m := len(kept.groups[5].SwapOut), len(again.groups[5].SwapOut); n != 0 || m != 1 {
		t.Errorf("it leaves again: %d times where room is kept, %d where not", n, m)
	}
	for hostBytes, want := range map[int64]int64{bytes: bytes, 2 * bytes: 2 * bytes, 0: 2 * bytes} {
		d.o.HostBytes = hostBytes
		d.base.ActivationBytes = 1 << 40 // anything is less
		if e, fits := d.withWaits(chosen(), steps); !fits || e == nil || e.base.SwapBytes != want {
			t.Errorf("within %d bytes: fits: %v", hostBytes, fits)
		}
	}
	d.o.HostBytes = bytes - 1
	if e, fits := d.withWaits(chosen(), steps); fits || e != nil {
		t.Errorf("within %d bytes it fits", d.o.HostBytes)
	}
}

// TestSwapsAreExpectedToTakeTime: copies to host memory at the rate of the bus, those to a file at the disk's.
func TestSwapsAreExpectedToTakeTime(t *testing.T) {
	l := &graph.Lowered{Graph: ladder(t, 5)}
	l.Steps = make([]graph.Step, len(l.Graph.Ops))
	for _, target := range []plan.Target{plan.CPU, {Name: "emu", AlignBytes: 64}} {
		o := Options{Mode: plan.Page, Target: target, SwapBytes: 1 << 20, Rates: cost.Rates{DiskBytes: 1e6, CopyBytes: 1e7, CopySeconds: 1e-3}}
		o.MemoryBytes = mustPlan(t, l, o).MinBytes
		p := mustPlan(t, l, o)
		out, in := p.SwappedBytes()
		want := float64(out+in) / 1e6
		if !target.Direct {
			swaps, back := crossings(p)
			want = float64(out+in)/1e7 + 1e-3*float64(swaps.sum()+back)
		}
		if got := p.Forecast.SwapSeconds; out == 0 || math.Abs(got-want) > 1e-9 || p.Forecast.ComputeSeconds < want {
			t.Errorf("%s: %v s of %v for %d bytes out and %d in, want %v", target.Name, got, p.Forecast.ComputeSeconds, out, in, want)
		}
	}
}
