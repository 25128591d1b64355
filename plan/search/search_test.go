package search

import (
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/tensor"
)

// drawStack returns linear layers of drawn widths, and options with a budget within which some of them may stay.
func drawStack(t *rapid.T, most int) (*graph.Lowered, Options) {
	widths := rapid.SliceOfN(rapid.SampledFrom([]int{64, 128, 256, 512, 1024}), 3, most).Draw(t, "widths")
	l := stack(t, rapid.IntRange(1, 64).Draw(t, "rows"), widths...)
	o := Options{
		Mode: plan.Auto, Target: rapid.SampledFrom([]plan.Target{plan.CPU, {Name: "emu", AlignBytes: 256}}).Draw(t, "target"),
		asGiven: true,
		Slots:   rapid.SampledFrom([]int{0, 0, 2}).Draw(t, "slots"),
		Rates:   cost.Rates{FLOPs: rapid.SampledFrom([]float64{1e9, 20e9, 100e9}).Draw(t, "flops"), CopyBytes: 4e9, ReadSeconds: 1e-6, CopySeconds: 1e-6},
	}.filled()
	d := newDraft(l, cut(l.Graph, plan.Limit{}), o, nil)
	_, largest := d.largest()
	o.MemoryBytes = d.restBytes() + rapid.Int64Range(largest, d.slotBytes()+largest).Draw(t, "room")
	return l, o
}

// TestChoicesAreCostedAsPlanned: a search for what stays finds a choice that fits the budget, expects of it what the
// plan that is made of it is expected to take, and no other choice of the same model is much faster.
func TestChoicesAreCostedAsPlanned(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, o := drawStack(t, 7)
		d := newDraft(l, cut(l.Graph, plan.Limit{}), o, nil)
		s := d.search(searchWork / 20)
		if !s.found() {
			t.Fatalf("no choice within %d bytes", d.room())
		}
		p := d.plan(s.best.keep, s.best.use)
		if p.PeakBytes() > o.MemoryBytes {
			t.Fatalf("takes %d of %d bytes\n%v", p.PeakBytes(), o.MemoryBytes, p)
		}
		if got := p.Forecast.Seconds; math.Abs(got-s.best.seconds) > 1e-6*got {
			t.Fatalf("costed at %v s, and expected to take %v\n%v", s.best.seconds, got, p)
		}
		best := math.Inf(1)
		for set := range 1 << len(d.groups) {
			keep, used := make([]bool, len(d.groups)), int64(0)
			for i := range keep {
				if keep[i] = set>>i&1 != 0; keep[i] {
					used += d.groups[i].SlotBytes
				}
			}
			for depth := endToEnd; depth < len(d.groups); depth++ {
				if o.Slots > 0 && (depth < 0 || depth >= o.Slots) || used > d.room() {
					continue
				}
				if q := d.plan(keep, layout{d.room() - used, depth}); q != nil {
					best = min(best, q.Forecast.Seconds)
				}
			}
		}
		if s.best.seconds > 1.1*best {
			t.Fatalf("a pass takes %v s, and can take %v\n%v", s.best.seconds, best, p)
		}
	})
}

// TestCheapest: of plans within the host's budget, if there are any, the one that takes the least memory of those that
// are about as fast as the fastest.
func TestCheapest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Options{HostBytes: 10}
		plans := make([]*plan.Plan, rapid.IntRange(1, 6).Draw(t, "plans"))
		for i := range plans {
			plans[i] = &plan.Plan{StagingBytes: rapid.Int64Range(0, 20).Draw(t, "host")}
			plans[i].RingBytes = rapid.Int64Range(1, 100).Draw(t, "ring")
			plans[i].Forecast.Seconds = rapid.SampledFrom([]float64{1, 1.005, 1.5, 2}).Draw(t, "seconds")
		}
		p := o.cheapest(plans)
		fits := func(q *plan.Plan) bool { return q.StagingBytes <= o.HostBytes }
		any, fastest := slices.ContainsFunc(plans, fits), math.Inf(1)
		for _, q := range plans {
			if fits(q) || !any {
				fastest = min(fastest, q.Forecast.Seconds)
			}
		}
		if any && !fits(p) || p.Forecast.Seconds > 1.01*fastest {
			t.Fatalf("%+v, where the fastest takes %v s", p, fastest)
		}
		for _, q := range plans {
			if (fits(q) || !any) && q.Forecast.Seconds <= fastest && q.RingBytes < p.RingBytes {
				t.Fatalf("%+v, where %+v takes less", p, q)
			}
		}
	})
}

// TestChunkCapacity: the groups whose weights, each counted once, come to the capacity or less stay, and no more of
// them.
func TestChunkCapacity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBuilder(t)
		x := b.g.AddInput("x", tensor.Float32, tensor.Shape{1, 64})
		shared := b.weight("shared", 64, 64)
		sums := []int64{0} // of the parameters of the first groups
		tied := false
		for range rapid.IntRange(1, 6).Draw(t, "layers") {
			w, n := shared, int64(0)
			path := string(rune('a' + len(sums)))
			if rapid.Bool().Draw(t, "own") {
				w, n = b.weight(path, 64, 64), 64*64
			} else if !tied {
				tied, n = true, 64*64
			}
			x = b.emit(path, "linear", nil, b.g.Whole(x), w)
			sums = append(sums, sums[len(sums)-1]+n)
		}
		b.g.Outputs = []graph.Output{{Name: "y", Operand: b.g.Whole(x)}}
		l, _ := lower(b.g)
		unit := rapid.SampledFrom([]plan.Unit{plan.Params, plan.Bytes}).Draw(t, "unit")
		most := rapid.SampledFrom(sums).Draw(t, "most") + rapid.SampledFrom([]int64{-1, 0, 1}).Draw(t, "more")
		o := Options{Mode: plan.Chunk, Capacity: plan.Limit{N: max(most, 0), Unit: unit}, Once: true}
		if unit == plan.Bytes {
			o.Capacity.N *= 4
		}
		want := int64(0)
		for _, n := range sums {
			if n <= max(most, 0) {
				want = n
			}
		}
		p, err := Plan(l, o)
		if err != nil {
			t.Fatal(err)
		}
		if p.Fixed.Params != want {
			t.Fatalf("%v: %d parameters stay, want %d of %v\n%v", o.Capacity, p.Fixed.Params, want, sums, p)
		}
	})
}

// TestPrefixOfUnevenGroups: without a capacity the chunk mode pins as many groups as leave room for any two neighbours
// of those that follow.
func TestPrefixOfUnevenGroups(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, o := drawStack(t, 9)
		o.Mode, o.Slots = plan.Chunk, 0
		d := newDraft(l, cut(l.Graph, plan.Limit{}), o, nil)
		want := 0
		for n := range len(d.groups) + 1 {
			var used, ring int64
			for i := range d.groups[:n] {
				used += d.groups[i].SlotBytes
			}
			for i := n; i < len(d.groups); i++ {
				pair := d.groups[i].SlotBytes
				if i+1 < len(d.groups) {
					pair += d.groups[i+1].SlotBytes
				}
				ring = max(ring, pair)
			}
			if used+ring <= d.room() {
				want = n
			}
		}
		if n := d.prefix(plan.Limit{}); n != want {
			t.Fatalf("%d groups stay, and %d could beside a ring, within %d bytes", n, want, d.room())
		}
	})
}

// TestMergedGroups: for micro-batches neighbours are merged as long as their slot takes no more than is said.
func TestMergedGroups(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, o := drawStack(t, 12)
		o.asGiven, o.Instances = false, 3
		d := newDraft(l, cut(l.Graph, plan.Limit{}), o, nil)
		_, largest := d.largest()
		most := rapid.Int64Range(largest, d.slotBytes()).Draw(t, "most")
		e := d.merged(most)
		if e == nil {
			return
		}
		if _, n := e.largest(); n > most || len(e.groups) >= len(d.groups) {
			t.Fatalf("a slot of %d bytes, want at most %d", n, most)
		}
	})
}

// TestLikeWithin: the plan for other shapes is within the budget, whatever more its activations take.
func TestLikeWithin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		widths := rapid.SliceOfN(rapid.SampledFrom([]int{64, 128, 256, 512}), 3, 9).Draw(t, "widths")
		few := stack(t, 1, widths...)
		many := stack(t, rapid.IntRange(2, 500).Draw(t, "rows"), widths...)
		for i := range many.Graph.Values {
			many.Graph.Values[i].Weight = few.Graph.Values[i].Weight
		}
		o := Options{
			Mode:   rapid.SampledFrom([]plan.Mode{plan.Resident, plan.Page, plan.Auto}).Draw(t, "mode"),
			Target: rapid.SampledFrom([]plan.Target{plan.CPU, {Name: "emu", AlignBytes: 256}}).Draw(t, "target"),
		}
		free, err := Plan(many, o)
		if err != nil {
			t.Fatal(err)
		}
		o.MemoryBytes = rapid.Int64Range(free.MinBytes, free.PeakBytes()+free.MinBytes).Draw(t, "memory")
		if o.Like, err = Plan(few, o); err != nil {
			t.Fatal(err)
		}
		p, err := Plan(many, o)
		if err != nil {
			t.Fatal(err)
		}
		checkPlan(t, p, o, many.Graph)
	})
}

// TestSameFixed: plans hold the same weights where these are the same bytes of the same files at the same places in the
// same forms.
func TestSameFixed(t *testing.T) {
	l, _ := lower(stack(t, 1, 64, 64, 64).Graph)
	p := mustPlan(t, l, Options{Mode: plan.Resident, Once: true})
	packed := mustPlan(t, l, Options{Mode: plan.Resident})
	if !plan.SameFixed(p, p) || !plan.SameFixed(packed, packed) || plan.SameFixed(p, packed) {
		t.Fatal("packed weights are taken for others")
	}
	for _, change := range []func(q *plan.Plan){
		func(q *plan.Plan) {
			q.Fixed.Parts[0].Offset, q.Fixed.Parts[1].Offset = q.Fixed.Parts[1].Offset, q.Fixed.Parts[0].Offset
		},
		func(q *plan.Plan) { q.Fixed.Parts[1].High -= 4 },
		func(q *plan.Plan) { q.Fixed.Parts = q.Fixed.Parts[:1] },
		func(q *plan.Plan) { q.Fixed.Bytes += 64 },
	} {
		q := *p
		q.Fixed.Parts = slices.Clone(p.Fixed.Parts)
		if change(&q); plan.SameFixed(p, &q) {
			t.Errorf("%+v is taken for %+v", q.Fixed.Parts, p.Fixed.Parts)
		}
	}
}

// TestRefused: what cannot be planned is an error.
func TestRefused(t *testing.T) {
	b := newBuilder(t)
	x := b.g.AddInput("x", tensor.Float32, tensor.Shape{4})
	state := b.weight("state", 4)
	b.g.Values[state.Value].Role = graph.State
	y := b.emit("", "add", nil, b.g.Whole(x), state)
	b.g.Updates = []graph.StateUpdate{{State: state.Value, Operand: b.g.Whole(y)}}
	l, _ := lower(b.g)
	if _, err := Plan(l, Options{Mode: plan.Resident, Instances: 2}); err == nil {
		t.Error("two micro-batches change one buffer")
	}
	huge := newBuilder(t)
	for _, name := range []string{"a", "b", "c"} {
		huge.g.AddInput(name, tensor.Float32, tensor.Shape{1 << 58})
	}
	l, _ = lower(huge.g)
	if p, err := Plan(l, Options{Mode: plan.Resident}); err == nil {
		t.Errorf("values of 3 × 2^60 bytes are planned\n%v", p)
	}
	if _, err := Plan(stack(t, 1, 8, 8), Options{Mode: "other"}); err == nil {
		t.Error("a mode of another name")
	}
	var c *plan.CapacityError
	_, err := Plan(stack(t, 1, 64, 64), Options{Mode: plan.Resident, MemoryBytes: 100})
	if !errors.As(err, &c) || c.MinBytes <= 100 {
		t.Errorf("a budget of 100 bytes: %v", err)
	}
}

// TestOverlap: where the device computes one micro-batch while the host's processor computes the one before it, a pass
// is expected to take what such a line of two takes.
func TestOverlap(t *testing.T) {
	l, _ := lower(stack(t, 4, 256, 256, 256, 256, 256).Graph)
	for _, rates := range []cost.Rates{{FLOPs: 1e9}, {FLOPs: 5e9}} { // the host, the device is the slower side
		p := mustPlan(t, l, Options{
			Mode: plan.Chunk, Capacity: plan.Limit{N: 2 * 256 * 256, Unit: plan.Params},
			Target: plan.Target{Name: "emu", AlignBytes: 256}, Instances: 5,
			Lower: lower, HostLower: lower, Rates: cost.Rates{FLOPs: 2e9}, HostRates: rates,
		})
		if p.Sides == nil || !p.Sides.Overlaps {
			t.Fatalf("no overlap\n%v", p)
		}
		var sides [2]float64
		for i := range p.Groups {
			if p.Groups[i].OnHost {
				sides[1] += p.Groups[i].Seconds
			} else {
				sides[0] += p.Groups[i].Seconds
			}
		}
		var device, host float64
		for range p.Instances {
			device += sides[0]
			host = max(host, device) + sides[1]
		}
		if math.Abs(p.Forecast.Seconds-host) > 1e-9*host {
			t.Errorf("expected to take %v s, want %v", p.Forecast.Seconds, host)
		}
	}
}
