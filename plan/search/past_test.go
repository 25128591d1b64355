package search

import (
	"reflect"
	"strings"
	"testing"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

// A passable source can be read past what the host holds of it, where it says so.
type passable struct {
	storage.PastSource
	bytes int64
	past  bool
}

func (s *passable) Size() int64     { return s.bytes }
func (s *passable) ReadsPast() bool { return s.past }

// passables has a graph's weights lie in such sources.
func passables(g *graph.Graph, past bool) {
	files := make(map[storage.Source]*passable)
	for i := range g.Values {
		if e := &g.Values[i].Weight.Extent; e.Source != nil {
			if files[e.Source] == nil {
				files[e.Source] = &passable{bytes: e.Source.Size(), past: past}
			}
			e.Source = files[e.Source]
		}
	}
}

// TestPast: what the page cache holds is read from a disk that is fast enough, if copying takes more of a pass than that, and where
// nothing speaks against it.
func TestPast(t *testing.T) {
	// A layer computes for 10 ms with 4 MiB, which a copy takes 2 ms for, and a disk as long as its rate says.
	rates := cost.Rates{
		FLOPs: 2 * 512 * 1024 * 1024 * 100, MemoryBytes: 1e15, DiskBytes: 1e9, ReadSeconds: 1e-5, CachedBytes: 2e9,
		Measured: true,
	}
	widths := []int{1024, 1024, 1024, 1024, 1024, 1024, 1024, 1024, 1024}
	for _, c := range []struct {
		what   string
		change func(*cost.Rates, *Options)
		fixed  bool // the file cannot be read past the page cache
		want   bool
	}{
		{"a fast disk", func(*cost.Rates, *Options) {}, false, true},
		{"a slow disk", func(r *cost.Rates, _ *Options) { r.DiskBytes = 2e8 }, false, false},
		{"copies that take nothing", func(r *cost.Rates, _ *Options) { r.CachedBytes = 1e12 }, false, false},
		{"rates that are guesses", func(r *cost.Rates, _ *Options) { r.Measured = false }, false, false},
		{"a single pass", func(_ *cost.Rates, o *Options) { o.Once = true }, false, false},
		{"resident weights", func(_ *cost.Rates, o *Options) { o.Mode = plan.Resident }, false, false},
		{"a device with its own memory", func(_ *cost.Rates, o *Options) {
			o.Target = plan.Target{Name: "emu", AlignBytes: 256}
		}, false, false},
		{"a file in memory alone", func(*cost.Rates, *Options) {}, true, false},
	} {
		l := stack(t, 512, widths...)
		passables(l.Graph, !c.fixed)
		r, o := rates, Options{Mode: plan.Page, Target: plan.CPU}
		c.change(&r, &o)
		past, copied := o, o
		past.Rates, copied.Rates = r, r.Cached(1)
		p := mustPlan(t, l, copied)
		q := Past(p, l, past, copied.Rates)
		if q.PastCache != c.want || (q == p) == c.want {
			t.Errorf("%s: past the page cache %v", c.what, q.PastCache)
		}
		if text := q.String(); strings.Contains(text, "past the page cache") != c.want {
			t.Errorf("%s: the plan says\n%s", c.what, text)
		}
		if !c.want {
			continue
		}
		if q.Forecast.Seconds > worthPast*p.Forecast.Seconds {
			t.Errorf("%s: %v s instead of %v", c.what, q.Forecast.Seconds, p.Forecast.Seconds)
		}
		q.PastCache = false
		if cold := mustPlan(t, l, past); !reflect.DeepEqual(q, cold) {
			t.Errorf("%s: not the plan for a file that the page cache does not hold", c.what)
		}
	}
}
