package search

import "math"

// A flow finds the pieces of a carving that are the best if the ring is a fluid: what is brought ahead of the ops lies
// anywhere in it, and what a piece sets free is filled at once. Then a schedule is known by how many bytes are ahead,
// and the best way to any atom with so many ahead is the best of those to the atoms before it and one more piece. What
// stays has a price, which is raised until there is room for it beside the ring.
type flow struct {
	c *carving
	// The sums over the atoms before each.
	compute, slot, saved []float64
	// bus is how many bytes arrive in a second.
	bus float64
	// at has the best ways to each atom, by how many bytes are ahead.
	at [][flowLevels + 1]way
}

// flowLevels is of how many parts of the ring it is known whether they are filled.
const flowLevels = 32

// A way is a choice of pieces up to an atom: the last begins with atom from, where level parts were filled. It leaves
// so many bytes ahead.
type way struct {
	cost, kept  float64
	ahead       float64
	from, level int
	keep        bool
}

func (c *carving) newFlow() *flow {
	n := len(c.atoms)
	f := &flow{c: c, at: make([][flowLevels + 1]way, n+1)}
	f.compute, f.slot, f.saved = make([]float64, n+1), make([]float64, n+1), make([]float64, n+1)
	var load float64
	for i := range c.atoms {
		a := &c.atoms[i]
		f.compute[i+1], f.slot[i+1], f.saved[i+1] = f.compute[i]+a.compute, f.slot[i]+float64(a.slot), f.saved[i]+a.saved
		load += a.load
	}
	f.bus = f.slot[n] / load
	return f
}

// consider costs the choices of a flow for rings that take several parts of the room.
func (f *flow) consider() {
	c, room := f.c, float64(f.c.room)
	for _, share := range flowShares {
		ring := room * share
		low, high := 0.0, flowPrice/f.bus
		for range flowPrices {
			price := (low + high) / 2
			if f.solve(ring, price) > room-ring {
				low = price
			} else {
				high = price
			}
			c.left -= flowWork
			if c.cost(&c.now, 1, endToEnd, soonest) && c.now.seconds < c.best.seconds {
				c.best.set(&c.now)
			}
		}
	}
}

var flowShares = []float64{0.15, 0.18, 0.21, 0.24, 0.27, 0.3, 0.35, 0.4}

const (
	// flowPrice is the most that a byte that stays may cost, in what bringing it takes.
	flowPrice = 2
	// flowPrices is how many prices are tried.
	flowPrices = 6
	// flowWork is about how many groups are simulated in the time that one choice takes.
	flowWork = searchWork / 100
)

// solve makes the best choice for a ring and a price the carving's, and returns the bytes that stay.
func (f *flow) solve(ring, price float64) float64 {
	c, n, unit := f.c, len(f.c.atoms), ring/flowLevels
	for i := range f.at {
		for x := range f.at[i] {
			f.at[i][x].cost = math.Inf(1)
		}
	}
	const begin = flowLevels / 2 // and as much is ahead at the end, for the next pass
	f.at[0][begin] = way{ahead: ring / 2}
	for i := range n {
		for end := i + 1; end <= n && (end == i+1 || c.atoms[end-1].joins); end++ {
			took := f.compute[end] - f.compute[i] - (f.saved[end] - f.saved[i+1])
			if c.atoms[i].first && c.atoms[end-1].last {
				took -= c.atoms[end-1].whole
			}
			took = max(took, 0)
			bytes, gained := f.slot[end]-f.slot[i], f.bus*took
			for level := range f.at[i] {
				w := &f.at[i][level]
				if math.IsInf(w.cost, 1) {
					continue
				}
				reach := func(ahead, seconds, kept float64, keep bool) {
					to := &f.at[end][int(ahead/unit+0.5)]
					if cost := w.cost + seconds + price*kept; cost < to.cost {
						*to = way{cost, w.kept + kept, ahead, i, level, keep}
					}
				}
				reach(min(w.ahead+gained, ring), took, bytes, bytes > 0)
				if bytes > 0 && bytes <= ring {
					reach(min(max(w.ahead-bytes, 0)+gained, ring-bytes), took+max(bytes-w.ahead, 0)/f.bus, 0, false)
				}
			}
		}
	}
	level := begin
	for x := begin; x <= flowLevels; x++ {
		if f.at[n][x].cost < f.at[n][level].cost {
			level = x
		}
	}
	kept := f.at[n][level].kept
	for end := n; end > 0; {
		w := &f.at[end][level]
		for k := w.from; k < end; k++ {
			c.now.keep[k], c.now.cut[k] = w.keep, k == w.from
		}
		end, level = w.from, w.level
	}
	return kept
}
