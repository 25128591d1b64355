package pager_test

import (
	"math"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
)

// leastSeconds returns a time below which no schedule brings a pass, whatever it keeps and in whatever pieces it moves
// the rest, where weightBytes are the memory for weights. Ops that follow one another take what they compute. And of the
// bytes that they read no more than fit into the memory are there when they begin, so that the others are moved while
// they run. Over windows that do not overlap these times add up.
func (b *bench) leastSeconds(weightBytes int64) float64 {
	g := b.lowered.Graph
	seconds := make([]float64, len(g.Ops))
	for i := range g.Ops {
		op := &g.Ops[i]
		in, out := g.Specs(op, nil, nil)
		seconds[i] = b.options.Rates.Seconds(graph.Standard(), op, in, out) * float64(max(b.options.Instances, 1))
	}
	best := make([]float64, len(g.Ops)+1) // by the op before which the windows so far end
	for first := range g.Ops {
		seen := make(map[graph.ValueID]bool)
		var computed float64
		var bytes int64
		for end := first + 1; end <= len(g.Ops); end++ {
			computed += seconds[end-1]
			for _, o := range g.Ops[end-1].In {
				if g.Ops[end-1].Kind == "embedding" { // which reads a few rows
					break
				}
				if o.Value != graph.NoValue && g.Values[o.Value].Role == graph.Weight && !seen[o.Value] {
					seen[o.Value] = true
					bytes += g.Values[o.Value].Bytes()
				}
			}
			moved := float64(bytes-weightBytes) / b.options.Rates.CopyBytes
			best[end] = math.Max(best[end], best[first]+max(computed, moved))
		}
	}
	return best[len(g.Ops)]
}

// A divided op is one that a schedule keeps, moves whole or cuts: its weight's bytes, if any, what it takes whole, and,
// where it can be cut, what two pieces take beyond that and each further piece.
type dividedOp struct {
	bytes, seconds, two, more float64
	cuts                      bool
}

// divided lists the ops of a graph and what pieces of them cost on the bench.
func (b *bench) divided() []dividedOp {
	var ops []dividedOp
	g := b.lowered.Graph
	times := float64(max(b.options.Instances, 1))
	seconds := func(g *graph.Graph, of func(op int) bool) (sum float64) {
		for i := range g.Ops {
			if of(i) {
				in, out := g.Specs(&g.Ops[i], nil, nil)
				sum += b.options.Rates.Seconds(graph.Standard(), &g.Ops[i], in, out) * times
			}
		}
		return sum
	}
	for i := range g.Ops {
		op := &g.Ops[i]
		o := dividedOp{seconds: seconds(g, func(k int) bool { return k == i })}
		for _, in := range op.In {
			if in.Value != graph.NoValue && g.Values[in.Value].Role == graph.Weight && op.Kind != "embedding" {
				o.bytes += float64(g.Values[in.Value].Bytes())
			}
		}
		if rows, _ := rewrite.SplittableRows(g, op); rows >= 6 && o.bytes > 0 {
			cut := func(parts ...int) float64 {
				split, from := rewrite.SplitRowsAt(g, func(k int) []int {
					if k == i {
						return parts
					}
					return nil
				})
				return seconds(split, func(k int) bool { return from[k] == i }) - o.seconds
			}
			o.cuts = true
			o.two = cut(0, rows/2, rows)
			o.more = max(cut(0, rows/3, rows*2/3, rows)-o.two, 0)
		}
		ops = append(ops, o)
	}
	return ops
}

// A stream is the pass of a bench's graph as a bound sees it: its memory is a ring without borders, in which what is brought
// ahead lies anywhere, and what an op sets free is filled at once, byte by byte. All that counts of a schedule is then how
// many bytes are ahead of the ops. Bytes are parts of all weights, and seconds of what ops take whole.
type stream struct {
	ops    []dividedOp
	bus    float64 // bytes in a second
	memory float64 // for weights
	ways   [][]float64
}

const (
	// streamCuts is how many parts all weights have of which pieces are made, and streamLevels how many a ring has: how full
	// it is is rounded up.
	streamCuts, streamLevels = 128, 500
	// Rings are looked at together where they differ by less than mostBox, and apart down to leastBox.
	mostBox, leastBox = 0.016, 0.002
)

// newStream returns the stream of a graph for which there is so much memory for weights.
func (b *bench) newStream(weightBytes int64) *stream {
	ops := b.divided()
	all, seconds := float64(b.weightBytes), b.computeSeconds
	for k := range ops {
		o := &ops[k]
		o.bytes, o.seconds, o.two, o.more = o.bytes/all, o.seconds/seconds, o.two/seconds, o.more/seconds
	}
	return &stream{ops: ops, bus: b.options.Rates.CopyBytes * seconds / all, memory: float64(weightBytes) / all}
}

// tooShort reports whether no schedule brings a pass within a time, in whatever pieces it cuts weights, whichever of these
// stay and move, and wherever they lie. What stays leaves a ring of some size: for each there have to be prices at which
// even the best schedule is too expensive.
func (s *stream) tooShort(seconds float64) bool {
	most := min(seconds*s.bus-1+s.memory, s.memory) // of a larger ring more would have to be moved than the bus does
	prices := [2]float64{0.2 / s.bus, 0.2 / s.bus}
	var proven func(low, high float64) bool
	proven = func(low, high float64) bool {
		best := s.least(low, high, prices)
		for step := 0.1 / s.bus; step > 0.02/s.bus && best <= seconds; step /= 2 {
			for better := true; better && best <= seconds; {
				better = false
				for _, d := range [][2]float64{{1, 1}, {-1, -1}, {0, 1}, {0, -1}, {1, 0}, {-1, 0}} {
					p := [2]float64{max(prices[0]+d[0]*step, 0), max(prices[1]+d[1]*step, 0)}
					if v := s.least(low, high, p); v > best {
						best, prices, better = v, p, true
						break
					}
				}
			}
		}
		if best > seconds {
			return true
		}
		if high-low < leastBox || best < seconds-0.6*(high-low) {
			return false
		}
		middle := (low + high) / 2
		return proven(middle, high) && proven(low, middle)
	}
	for high := most; high > 0; high -= mostBox {
		if !proven(max(high-mostBox, 0), high) {
			return false
		}
	}
	return true
}

// TestStream: what two layers of half the weights each take at least is known where they cannot be cut.
func TestStream(t *testing.T) {
	for _, c := range []struct{ memory, seconds float64 }{
		{1, 1},      // both stay
		{0.75, 1.5}, // half of each is waited for
		{0.5, 2},    // one after the other
	} {
		layer := dividedOp{bytes: 0.5, seconds: 0.5}
		s := &stream{ops: []dividedOp{layer, layer}, bus: 1, memory: c.memory}
		if !s.tooShort(c.seconds-0.05) || s.tooShort(c.seconds+0.001) {
			t.Errorf("with memory for %g of the weights a pass takes %g: too short are %g %v, %g %v", c.memory, c.seconds,
				c.seconds-0.05, s.tooShort(c.seconds-0.05), c.seconds+0.001, s.tooShort(c.seconds+0.001))
		}
	}
}

// least returns a time that no schedule with a ring between two sizes is below. A byte that stays costs the first price,
// and all that there is room for pays it back; one that is ahead when a pass begins costs the second, which what is ahead
// at its end pays back. So schedules that take no more than there is, and leave to the next pass what they found, cost no
// more than the time they take. The ways to any place in the graph with so many bytes ahead are those to the places before
// it and one more piece.
func (s *stream) least(lowRing, ring float64, prices [2]float64) float64 {
	stays, ahead := prices[0], prices[1]
	unit := ring / streamLevels
	used := 0
	fresh := func() []float64 {
		if used == len(s.ways) {
			s.ways = append(s.ways, make([]float64, streamLevels+1))
		}
		w := s.ways[used]
		used++
		for x := range w {
			w[x] = math.Inf(1)
		}
		return w
	}
	up := func(bytes float64) int { return min(int(math.Ceil(bytes/unit-1e-9)), streamLevels) }
	piece := func(from, to []float64, bytes, seconds float64) {
		more := up(s.bus * seconds)
		for x, cost := range from { // it stays
			x = min(x+more, streamLevels)
			to[x] = min(to[x], cost+seconds+stays*bytes)
		}
		if bytes > ring {
			return
		}
		most := up(ring - bytes)
		for x, cost := range from {
			left := float64(x)*unit - bytes
			if left < 0 { // it is waited for
				cost -= left / s.bus
				left = 0
			}
			x = min(up(left+s.bus*seconds), most)
			to[x] = min(to[x], cost+seconds)
		}
	}
	at := append([]float64{}, fresh()...)
	for x := range at {
		at[x] = ahead * float64(x) * unit
	}
	for i := range s.ops {
		o := &s.ops[i]
		used = 0
		next := fresh()
		piece(at, next, o.bytes, o.seconds)
		if n := int(math.Ceil(o.bytes * streamCuts)); o.cuts && n > 1 {
			cuts := [][]float64{at}
			for len(cuts) < n {
				cuts = append(cuts, fresh())
			}
			cuts = append(cuts, next)
			for first := range n {
				for end := first + 1; end <= n; end++ {
					part := float64(end-first) / float64(n)
					seconds := o.more + part*(o.seconds-o.more)
					if end == n {
						seconds += o.two - o.more
					}
					if end-first < n {
						piece(cuts[first], cuts[end], part*o.bytes, seconds)
					}
				}
			}
		}
		copy(at, next)
	}
	best := math.Inf(1)
	for x, cost := range at {
		best = min(best, cost-ahead*float64(x)*unit)
	}
	return best - stays*(s.memory-lowRing)
}
