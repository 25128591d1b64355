package search

import (
	"errors"
	"testing"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/tensor"
)

// TestEarly: a first pass begins before the weights that stay are there where it computes for a while and they take a
// while, on a device that files are read into.
func TestEarly(t *testing.T) {
	l := stack(t, 4, 300, 300, 300, 300)
	emu := plan.Target{Name: "emu", AlignBytes: 256}
	for _, c := range []struct {
		name   string
		rates  cost.Rates
		target plan.Target
		early  bool
	}{
		{"both take long", cost.Rates{FLOPs: 1e6, DiskBytes: 1e6}, plan.CPU, true},
		{"reads take nothing", cost.Rates{FLOPs: 1e6, DiskBytes: 1e12}, plan.CPU, false},
		{"ops take nothing", cost.Rates{FLOPs: 1e12, MemoryBytes: 1e12, DiskBytes: 1e6}, plan.CPU, false},
		{"through host memory", cost.Rates{FLOPs: 1e6, DiskBytes: 1e6}, emu, false},
	} {
		for _, mode := range []plan.Mode{plan.Resident, plan.Page} {
			p := mustPlan(t, l, Options{Mode: mode, Once: true, Target: c.target, Rates: c.rates})
			if is := p.Early && p.FirstReads() != nil; is != (c.early && mode == plan.Resident) {
				t.Errorf("%s, %s: early is %v\n%v", c.name, mode, is, p)
			}
		}
	}
}

// TestAutoOnce: for one pass over large weights nothing stays although there is room, since nothing would be gained;
// small ones stay, and so do all for several passes and on a device that is filled through host memory.
func TestAutoOnce(t *testing.T) {
	emu := plan.Target{Name: "emu", AlignBytes: 256}
	for _, c := range []struct {
		name   string
		width  int
		once   bool
		target plan.Target
		pages  bool
	}{
		{"large", 4096, true, plan.CPU, true}, {"small", 512, true, plan.CPU, false},
		{"many passes", 4096, false, plan.CPU, false},
		{"through host memory", 4096, true, emu, false},
	} {
		l := stack(t, 1, c.width, c.width, c.width, c.width, c.width, c.width)
		for _, memory := range []int64{0, 1 << 30} {
			p := mustPlan(t, l, Options{Mode: plan.Auto, Once: c.once, Target: c.target, MemoryBytes: memory})
			if pages := p.MovedBytes > 0; pages != c.pages || pages == (p.Fixed.WeightBytes > 0) || p.Mode != plan.Auto {
				t.Errorf("%s, %d bytes: %d are moved, %d stay\n%v", c.name, memory, p.MovedBytes, p.Fixed.WeightBytes, p)
			}
			least := mustPlan(t, l, Options{Mode: plan.Auto, Once: c.once, Target: c.target, MemoryBytes: p.MinBytes})
			if least.PeakBytes() > p.MinBytes {
				t.Errorf("%s: %d bytes are taken of the least, %d", c.name, least.PeakBytes(), p.MinBytes)
			}
		}
	}
}

// TestAutoOnceWhereNotAllFits: a single pass on the CPU reads each weight once whatever stays, so that auto is page
// there, under any budget that does not hold everything.
func TestAutoOnceWhereNotAllFits(t *testing.T) {
	for _, width := range []int{256, 4096} {
		l := stack(t, 1, width, width, width, width, width, width)
		all := mustPlan(t, l, Options{Mode: plan.Resident, Once: true, Target: plan.CPU}).PeakBytes()
		min := mustPlan(t, l, Options{Mode: plan.Page, Once: true, Target: plan.CPU}).MinBytes
		for memory := min; memory < all; memory += (all - min + 4) / 5 {
			p := mustPlan(t, l, Options{Mode: plan.Auto, Once: true, Target: plan.CPU, MemoryBytes: memory})
			paged := mustPlan(t, l, Options{Mode: plan.Page, Once: true, Target: plan.CPU, MemoryBytes: memory})
			if p.Mode != plan.Auto || p.Fixed.WeightBytes > 0 || p.PeakBytes() != paged.PeakBytes() ||
				p.MovedBytes != paged.MovedBytes {
				t.Errorf("width %d, %d bytes: auto takes %d and keeps %d, page takes %d\n%v",
					width, memory, p.PeakBytes(), p.Fixed.WeightBytes, paged.PeakBytes(), p)
			}
		}
	}
}

// TestFirstReadsOfTwoFiles: a group's weights that lie one behind the other in memory, and in two files or apart in
// one, come by a read of each.
func TestFirstReadsOfTwoFiles(t *testing.T) {
	for _, name := range []string{"two files", "a gap"} {
		b := newBuilder(t)
		x := b.g.AddInput("x", tensor.Float32, tensor.Shape{2, 64})
		w := b.weight("weight", 64, 64)
		if b.src.bytes += 1 << 24; name == "two files" {
			b.src = &nowhere{}
		}
		y := b.emit("linear", "linear", nil, b.g.Whole(x), w, b.weight("bias", 64))
		b.g.Outputs = []graph.Output{{Name: "y", Operand: b.g.Whole(y)}}
		l := &graph.Lowered{Graph: b.g, Steps: make([]graph.Step, len(b.g.Ops))}
		o := Options{Mode: plan.Resident, Once: true, Target: plan.CPU}
		p := mustPlan(t, l, o)
		if len(p.Fixed.Spans) != 2 {
			t.Fatalf("%s: %d reads of what stays\n%v", name, len(p.Fixed.Spans), p)
		}
		checkPlan(t, p, o, b.g)
	}
}

// TestAutoOnceNamesTheLeast: where everything stays in less memory than paging takes, which brings a block of the file
// twice, too little memory for a single pass names the least that does.
func TestAutoOnceNamesTheLeast(t *testing.T) {
	b := newBuilder(t)
	x := b.g.AddInput("x", tensor.Float32, tensor.Shape{1, 62})
	y := b.emit("y", "linear", nil, b.g.Whole(x), b.weight("weight", 33, 62)) // 8 bytes less than two blocks
	b.g.Outputs = []graph.Output{{Name: "y", Operand: b.g.Whole(y)}, {Name: "kept", Operand: b.weight("kept", 4, 62)}}
	l := &graph.Lowered{Graph: b.g, Steps: make([]graph.Step, len(b.g.Ops))}
	o := Options{Mode: plan.Auto, Once: true, Target: plan.CPU}
	all := o
	all.Mode = plan.Resident
	least := mustPlan(t, l, o).MinBytes
	if n := mustPlan(t, l, all).PeakBytes(); n != least {
		t.Fatalf("to keep everything takes %d bytes, and the least is %d", n, least)
	}
	o.MemoryBytes = least
	if p := mustPlan(t, l, o); p.PeakBytes() > least {
		t.Errorf("takes %d of %d bytes", p.PeakBytes(), least)
	}
	o.MemoryBytes--
	_, err := Plan(l, o)
	var c *plan.CapacityError
	if !errors.As(err, &c) || c.MinBytes != least {
		t.Errorf("a byte less than %d: got %v", least, err)
	}
}
