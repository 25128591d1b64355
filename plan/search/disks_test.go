package search

import (
	"math"
	"testing"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

// A placedSource lies on a disk.
type placedSource struct {
	storage.Source
	on storage.Disk
}

func (p placedSource) Disk() storage.Disk { return p.on }

// onTwo returns a lowered graph whose weights lie on two disks in turn.
func onTwo(l *graph.Lowered, disks ...storage.Disk) *graph.Lowered {
	out, g := *l, *l.Graph
	out.Graph = &g
	g.Values = append([]graph.Value(nil), g.Values...)
	k := 0
	for i := range g.Values {
		if v := &g.Values[i]; v.Role == graph.Weight {
			v.Weight.Extent.Source = placedSource{v.Weight.Extent.Source, disks[k%len(disks)]}
			k++
		}
	}
	return &out
}

// TestForecastOfTwoDisks: a pass that waits for its disks takes half as long where every other group lies on another one,
// and what the slower one takes where one is slower; rates of a disk that nothing lies on change nothing.
func TestForecastOfTwoDisks(t *testing.T) {
	l := stack(t, 1, 64, 64, 64, 64, 64, 64, 64, 64, 64)
	rates := cost.Rates{FLOPs: 1e15, MemoryBytes: 1e15, OpSeconds: 1e-12, DiskBytes: 1e6, ReadSeconds: 1e-9}
	forecast := func(r cost.Rates, disks ...storage.Disk) plan.Forecast {
		o := Options{Mode: plan.Page, Target: plan.CPU, Rates: r, asGiven: true}
		p, err := Plan(onTwo(l, disks...), o)
		if err != nil {
			t.Fatal(err)
		}
		if (len(p.Disks) == 2) != (len(disks) == 2) {
			t.Errorf("disks of the plan: %v", p.Disks)
		}
		return p.Forecast
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 0.02*want {
			t.Errorf("%s: %g s, not %g", what, got, want)
		}
	}
	one := forecast(rates, 1)
	with := func(disks map[storage.Disk]cost.Disk) cost.Rates {
		r := rates
		r.Disks = disks
		return r
	}
	fast := forecast(with(map[storage.Disk]cost.Disk{1: {Bytes: 4e6}, 9: {Bytes: 1}}), 1)
	near("a disk four times as fast", fast.LoadSeconds, one.LoadSeconds/4)
	two := forecast(rates, 1, 2)
	if two.LoadSeconds > 0.7*one.LoadSeconds || two.Seconds > 0.8*one.Seconds {
		t.Errorf("two disks: %+v, one: %+v", two, one)
	}
	near("two disks", two.LeastSeconds, two.LoadSeconds)
	slow := forecast(with(map[storage.Disk]cost.Disk{1: {Bytes: 1e9}, 2: {Bytes: 1e9}}), 1, 2)
	uneven := forecast(with(map[storage.Disk]cost.Disk{1: {Bytes: 1e9}}), 1, 2)
	if slow.LoadSeconds > two.LoadSeconds/100 {
		t.Errorf("two fast disks: %+v", slow)
	}
	if uneven.LoadSeconds > two.LoadSeconds*1.001 || uneven.LoadSeconds < two.LoadSeconds/3 {
		t.Errorf("a fast and a slow disk: %+v, two slow ones: %+v", uneven, two)
	}
}
