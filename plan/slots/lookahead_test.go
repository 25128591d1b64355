package slots_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/optimem/optimem/plan/slots"
)

// A clockwork is a virtual clock on which passes with experts run: reading one takes a time of 1, computing one each, and what a
// layer has beside its experts around. A guess is read while the disk has nothing else to do, into one of spare slots that no
// layer has; it is never stopped, and what is needed waits behind it.
type clockwork struct {
	each, around float64
	spare        int
	// guess lists experts that layer l may need in the visit that comes, the likeliest first.
	guess func(l int, visit *slots.Visit, there func(int32) bool) []int32
}

// A tally is what a trace takes on the clock.
type tally struct {
	time                 float64
	needs, reads         int // of experts that were needed
	ahead, useful, spent int // read before they were known to be needed; those that were; those that were not
}

// run replays a trace in which each layer has so many slots.
func (c *clockwork) run(t *slots.Trace, experts, each int) (sum tally) {
	sets := make([]*slots.Set, len(t.Layers))
	inside := make([][]int32, len(t.Layers)) // who is in each slot
	for l := range sets {
		sets[l], inside[l] = slots.NewSet(experts, each), slices.Repeat([]int32{-1}, each)
	}
	type guessed struct {
		layer  int
		expert int32
		ready  float64
	}
	var spare []guessed
	now, disk := 0.0, 0.0
	for i := range t.Visits {
		v := &t.Visits[i]
		now += c.around // the router's result is there
		steps := sets[v.Layer].Pass(0, v.Experts)
		sum.needs += len(steps)
		compute := now
		var waits []float64
		for _, s := range steps {
			if !s.Read {
				compute += c.each
				continue
			}
			k := slices.IndexFunc(spare, func(g guessed) bool { return g.layer == v.Layer && g.expert == s.Expert })
			if k >= 0 {
				sum.useful++
				waits = append(waits, max(spare[k].ready, now))
				continue
			}
			sum.reads++
			disk = max(disk, now) + 1
			waits = append(waits, disk)
		}
		slices.Sort(waits)
		for _, at := range waits {
			compute = max(compute, at) + c.each
		}
		for _, s := range steps {
			if s.Read {
				inside[v.Layer][s.Slot] = s.Expert
			}
		}
		spare = spare[:0]
		if c.guess != nil && i+1 < len(t.Visits) { // what is guessed is read until the next layer knows
			next := &t.Visits[i+1]
			there := func(e int32) bool { return slices.Contains(inside[next.Layer], e) }
			for _, e := range c.guess(next.Layer, next, there) {
				if disk = max(disk, now); len(spare) == c.spare || disk >= compute+c.around {
					break
				}
				disk++
				spare = append(spare, guessed{next.Layer, e, disk})
				sum.ahead++
			}
		}
		now = compute
	}
	sum.time, sum.spent = now, sum.ahead-sum.useful
	return sum
}

// A foresight lists experts that a layer may need in the visit that comes.
type foresight = func(l int, visit *slots.Visit, there func(int32) bool) []int32

// fromStatistics guesses those that were needed most often and are not there.
func fromStatistics(trace *slots.Trace, experts, most int) foresight {
	uses, seen := make([][]int, len(trace.Layers)), 0
	for l := range uses {
		uses[l] = make([]int, experts)
	}
	return func(l int, v *slots.Visit, there func(int32) bool) []int32 {
		for ; &trace.Visits[seen] != v; seen++ {
			for _, e := range trace.Visits[seen].Experts {
				uses[trace.Visits[seen].Layer][e]++
			}
		}
		var list []int32
		for e := range int32(experts) {
			if !there(e) && uses[l][e] > 0 {
				list = append(list, e)
			}
		}
		slices.SortStableFunc(list, func(a, b int32) int { return uses[l][b] - uses[l][a] })
		return list[:min(len(list), most)]
	}
}

// fromRouter guesses as the next layer's router might that is given what this layer sees: a share of those that are
// needed it finds, and for each of them it names so many others.
func fromRouter(experts int, finds, wrong float64) foresight {
	rng := rand.New(rand.NewPCG(7, 7))
	return func(_ int, v *slots.Visit, there func(int32) bool) (list []int32) {
		for _, e := range v.Experts {
			if there(e) || rng.Float64() >= finds {
				continue
			}
			if list = append(list, e); rng.Float64() < wrong {
				list = append(list, int32(rng.IntN(experts)))
			}
		}
		rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		return slices.DeleteFunc(list, there)
	}
}

// TestLookahead measures on the virtual clock whether it pays to read ahead while the disk is idle, with a slot less in
// each layer for what is guessed: statistics of routing never do, since what is often needed lies in slots anyway; a
// router that is right as often as published ones does, unless the disk has hardly any idle time. The table in
// docs/larger-than-memory.md has these numbers (go test -v).
func TestLookahead(t *testing.T) {
	const layers, experts, named, passes, spare = 8, 128, 8, 220, 8
	trace := drawn(1, layers, experts, named, passes, 0.2, 0.4)
	for _, each := range []int{18, 35, 70} {
		for _, around := range []float64{0.1, 0.5, 2} {
			plain := (&clockwork{each: 0.05, around: around}).run(trace, experts, each)
			if plain.ahead != 0 || plain.needs != layers*named*passes {
				t.Fatalf("%+v", plain)
			}
			measure := func(name string, guess foresight) float64 {
				c := &clockwork{each: 0.05, around: around, spare: spare, guess: guess}
				got := c.run(trace, experts, each-spare/layers)
				time, bytes := got.time/plain.time, float64(got.reads+got.ahead)/float64(plain.reads)
				t.Logf("%d slots, %v around a layer's experts, %s: %.2f of the time, %.2f of the bytes, %d of %d guesses needed",
					each, around, name, time, bytes, got.useful, got.ahead)
				return time
			}
			if x := measure("statistics", fromStatistics(trace, experts, spare)); x < 1.05 {
				t.Errorf("%d slots, %v: statistics take %.3f of the time", each, around, x)
			}
			poor := measure("a router that finds 46 %", fromRouter(experts, 0.46, 0.4))
			good := measure("a router that finds 85 %", fromRouter(experts, 0.85, 0.2))
			if idle := around > 0.1; idle && (poor > 0.97 || good > poor) || !idle && poor < 0.94 {
				t.Errorf("%d slots, %v: routers take %.3f and %.3f of the time", each, around, poor, good)
			}
		}
	}
}
