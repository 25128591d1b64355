package slots_test

import (
	"math"
	"slices"
	"testing"

	"github.com/optimem/optimem/plan/slots"
)

// TestCurve: what a curve says that is read differs little from what is read, whatever the routing and the slots. Those who
// went by who was needed longest ago expected up to twice as much.
func TestCurve(t *testing.T) {
	worst := 1.0
	for i, kind := range routings {
		if testing.Short() && i%4 > 0 {
			continue
		}
		for _, of := range [][2]int{{64, 8}, {32, 4}} {
			trace := kind.trace(of[0], of[1], 3, 300)
			for _, n := range []int{of[0] / 5, of[0] / 2, of[0] * 3 / 4} {
				room, places := apart(trace, of[0], n)
				curves := make([]*slots.Curve, len(trace.Layers))
				for l := range curves {
					curves[l] = slots.NewCurve(of[0])
				}
				if _, ok := curves[0].Hits(n); ok {
					t.Fatal("a curve without passes says something")
				}
				for _, v := range trace.Visits {
					curves[v.Layer].Note(v.Experts)
				}
				reads, expected := float64(slots.Sum(slots.Replay(trace, room, places)).Reads), 0.0
				for _, c := range curves {
					hits, ok := c.Hits(n)
					if !ok {
						t.Fatal("nothing is known")
					}
					expected += float64(c.First) + (1-hits)*float64(c.Needs()-c.First)
				}
				if off := expected / reads; off < 0.85 || off > 1.1 {
					t.Errorf("%s, %d of %d, %d slots: %.0f are read, %.0f were expected", kind.name, of[1], of[0], n, reads, expected)
				} else {
					worst = max(worst, math.Exp(math.Abs(math.Log(off))))
				}
			}
		}
	}
	t.Logf("off by a factor of %.3f at most", worst)
}

// TestSharedHits: what curves say of slots that layers share is there, but for few.
func TestSharedHits(t *testing.T) {
	const layers, experts, named = 6, 64, 8
	for i, kind := range routings {
		if testing.Short() && i%4 > 0 {
			continue
		}
		trace := kind.trace(experts, named, layers, 200)
		var places []slots.Place
		var curves []*slots.Curve
		for l := range layers {
			places, curves = append(places, slots.Place{First: l * experts}), append(curves, slots.NewCurve(experts))
		}
		if _, ok := slots.SharedHits(curves, 20, named); ok {
			t.Fatal("curves without passes say something")
		}
		needs := 0
		for _, v := range trace.Visits {
			curves[v.Layer].Note(v.Experts)
			needs += len(v.Experts)
		}
		for _, n := range []int{8, 24, 42} {
			room := slots.Room{Slots: []int{n}, Experts: []int{layers * experts}}
			got := slots.Sum(slots.Replay(trace, room, places)).Hits()
			hits, ok := slots.SharedHits(curves, n, needs/len(trace.Visits))
			if !ok || math.Abs(hits-got) > 0.07 {
				t.Errorf("%s, %d slots: %.3f are there, %.3f were expected", kind.name, n, got, hits)
			}
		}
	}
	if _, ok := slots.SharedHits(append([]*slots.Curve{nil}, slots.NewCurve(4)), 3, 1); ok {
		t.Error("a layer of which nothing is known says something")
	}
}

// TestRanks: on passes that can be followed by hand.
func TestRanks(t *testing.T) {
	curve := slots.NewCurve(4)
	for _, pass := range [][]int32{{2}, {2}, {2}, {1}, {2}, {2}, {1}} { // 2 is likelier all the time
		curve.Note(pass)
	}
	if !slices.Equal(curve.Ranks, []int64{4, 1, 0, 0}) || curve.First != 2 || curve.Needs() != 7 {
		t.Errorf("%v, and %d first needs", curve.Ranks, curve.First)
	}
	alike := slots.NewCurve(4) // of equal ones as many lie in slots as there are
	for range 10 {
		alike.Note([]int32{0, 1, 2, 3})
	}
	for n := range 6 {
		if got, ok := alike.Hits(n); !ok || got != float64(min(n, 4))/4 {
			t.Errorf("%d slots meet %v of what four need that are alike", n, got)
		}
	}
}

// TestCurves: curves add up, those of earlier versions count where little else is known, and those of other layers never.
func TestCurves(t *testing.T) {
	curve := slots.NewCurve(4)
	for range 4 {
		curve.Note([]int32{1, 3})
	}
	old := &slots.Curve{Ranks: make([]int64, 4), First: 3, Distances: []int64{6, 2, 0, 0}}
	if got, ok := old.Hits(1); !ok || got != 0.75 {
		t.Errorf("a slot meets %v by distances", got)
	}
	both := slots.NewCurve(4)
	both.Add(old)
	both.Add(old)
	if got, ok := both.Hits(1); !ok || got != 0.75 || both.First != 6 || both.Distances[0] != 12 || old.Distances[0] != 6 {
		t.Errorf("a slot meets %v by distances of two", got)
	}
	both.Add(curve)
	if got, _ := both.Hits(1); got != 0.75 { // six ranks of four experts are few
		t.Errorf("a slot meets %v by few ranks", got)
	}
	both.Add(curve)
	if got, _ := both.Hits(1); got != 0.5 || both.Needs() != 6+2*curve.Needs() {
		t.Errorf("a slot meets %v by ranks", got)
	}
	other := slots.NewCurve(7)
	other.Note([]int32{3, 5})
	before := both.Needs()
	both.Add(other)
	both.Add(nil)
	if both.Needs() != before {
		t.Error("a curve of another layer is added")
	}
	var none *slots.Curve
	if _, ok := none.Hits(3); ok {
		t.Error("no curve says something")
	}
}
