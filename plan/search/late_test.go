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

// What the page cache holds is copied by the processors that ops compute on: a pass takes as long as both.
func TestForecastOfCached(t *testing.T) {
	l := thousand(t)
	r := cost.Rates{FLOPs: 1e12, MemoryBytes: 1e15, OpSeconds: 1e-9, DiskBytes: 1e9, ReadSeconds: 1e-9, CachedBytes: 10e9}
	plan := func(share float64) *plan.Plan {
		p, err := Plan(l, Options{Mode: plan.Page, Rates: r.Cached(share)})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	cold, warm := plan(0), plan(1)
	disk, copied := float64(cold.MovedBytes)/r.DiskBytes, float64(warm.MovedBytes)/r.CachedBytes
	if f := cold.Forecast; math.Abs(f.LoadSeconds-disk) > 0.01*disk || f.Seconds < disk || f.Seconds > 1.1*disk || f.Bound != "disk" {
		t.Errorf("cold: %+v, the disk takes %.3g s", f, disk)
	}
	f := warm.Forecast
	if least := f.ComputeSeconds + cost.CopiedShare*copied; f.Seconds < 0.99*least || f.Seconds > f.ComputeSeconds+1.1*copied {
		t.Errorf("in the page cache: %+v, copying takes %.3g s", f, copied)
	}
}

// A disk's loads may be late, by what is on its way: where loads take about as long as ops, it takes more than two
// slots for a pass not to wait.
func TestLateLoads(t *testing.T) {
	pass := func(fitful bool, slots int, load, compute float64) float64 {
		all := make([]stage, 50)
		for i := range all {
			all[i] = stage{paged: true, after: slots, load: load, compute: compute}
		}
		m := simulation{fitful: fitful}
		seconds, _ := m.run(all)
		return seconds / 50
	}
	near := func(got, want float64) bool { return math.Abs(got-want) < 0.01*want }
	for _, c := range []struct {
		fitful        bool
		slots         int
		load, compute float64
		want          float64
	}{
		{false, 2, 4e-3, 3e-3, 4e-3},
		{true, 1, 4e-3, 3e-3, 7e-3},
		{true, 2, 4e-3, 3e-3, (4 + 3 + 0.45*4) / 2 * 1e-3},
		{true, 3, 4e-3, 4e-3, 4e-3},
		{true, 2, 24e-3, 22e-3, (24 + 22 + 10) / 2. * 1e-3},
		{true, 4, 4e-3, 3e-3, 4e-3},
		{true, 2, 1e-3, 10e-3, 10e-3},
		{true, 2, 40e-3, 30e-3, 40e-3},
	} {
		if got := pass(c.fitful, c.slots, c.load, c.compute); !near(got, c.want) {
			t.Errorf("%+v: a group takes %.4g s", c, got)
		}
	}
}

// TestNearRing: where reading is what takes the time, large weights come in parts through a ring that processors'
// caches hold, which is expected to be faster than a larger one; where computing is, they come whole.
func TestNearRing(t *testing.T) {
	for _, c := range []struct {
		rows  int
		parts bool
	}{{1, true}, {300, false}} {
		b := newBuilder(t)
		x := b.g.AddInput("x", tensor.Float32, tensor.Shape{c.rows, 4096})
		for i := range 24 {
			path := fmt.Sprint(i)
			x = b.emit(path, "linear", nil, b.g.Whole(x), b.weight(path+".weight", 4096, 4096))
		}
		b.g.Outputs = []graph.Output{{Name: "y", Operand: b.g.Whole(x)}}
		l, _ := lower(b.g)
		rates := cost.Rates{DiskBytes: 5e9, FLOPs: 100e9, MemoryBytes: 40e9, ReadSeconds: 30e-6}
		p, err := Plan(l, Options{Mode: plan.Page, Lower: lower, Rates: rates})
		if err != nil {
			t.Fatal(err)
		}
		if (p.SplitBytes > 0) != c.parts || c.parts && p.RingBytes > cost.NearBytes {
			t.Errorf("%d rows: parts of %d bytes, a ring of %d", c.rows, p.SplitBytes, p.RingBytes)
		}
		far := p.Forecast.LoadSeconds / (float64(plan.SpanBytes(spansOf(p))) / 5e9)
		if want := 1.0; c.parts && far > want+0.1 || !c.parts && far < want+cost.FarShare {
			t.Errorf("%d rows: loads are expected to take %.3f of what the disk does", c.rows, far)
		}
	}
}

// TestRingForSlowerDisk: if ops take longer than reads, the ring that a plan chooses avoids stalls on a disk 1.5 times
// slower than measured, and holds less than most of the model.
func TestRingForSlowerDisk(t *testing.T) {
	b := newBuilder(t)
	x := b.g.AddInput("x", tensor.Float32, tensor.Shape{512, 256})
	widths := []int{256, 256, 256, 256, 512, 512, 512, 1024, 1024, 2048, 2048, 256}
	for i := range 36 {
		path, in, out := fmt.Sprint(i), widths[i%12], widths[(i+1)%12]
		x = b.emit(path, "linear", nil, b.g.Whole(x), b.weight(path+".weight", out, in))
	}
	b.g.Outputs = []graph.Output{{Name: "y", Operand: b.g.Whole(x)}}
	l, _ := lower(b.g)
	rates := cost.Rates{DiskBytes: 2e9, FLOPs: 300e9, MemoryBytes: 40e9, ReadSeconds: 30e-6}
	p, err := Plan(l, Options{Mode: plan.Page, Lower: lower, Rates: rates})
	if err != nil {
		t.Fatal(err)
	}
	computed, total := 0.0, int64(0)
	all := make([]stage, len(p.Groups))
	for i := range p.Groups {
		g := &p.Groups[i]
		all[i] = stage{paged: g.Paged(), after: g.After, load: g.LoadSeconds, compute: g.Seconds}
		computed += g.Seconds
		total += g.SlotBytes
	}
	if p.Forecast.Bound != "compute" || p.RingBytes > total/2 {
		t.Errorf("bound by %s, a ring of %d bytes for %d", p.Forecast.Bound, p.RingBytes, total)
	}
	for _, slower := range []float64{0, 0.5} {
		m := simulation{fitful: true, slower: slower}
		if pass, _ := m.run(all); pass > 1.03*computed {
			t.Errorf("reads take %g longer: a pass takes %.3f of what its ops do", slower, pass/computed)
		}
	}
}

// spansOf lists a pass's reads.
func spansOf(p *plan.Plan) (all []plan.Span) {
	for i := range p.Groups {
		all = append(all, p.Groups[i].Spans...)
	}
	return all
}
