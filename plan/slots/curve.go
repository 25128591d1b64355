package slots

import (
	"cmp"
	"slices"
)

// A Curve is what passes through a layer have shown of its routing: how many other experts were likelier to be needed than
// those that were. With it the share of hits is known for any number of slots in which the likeliest lie, as a [Set] has
// it. Its memory is linear in the number of experts.
type Curve struct {
	// Ranks counts needs by how many experts had been likelier; First those of an expert that was not needed before.
	Ranks []int64
	First int64
	// Distances counts needs by how many other experts were needed since, as earlier versions did: they say something where
	// there are few ranks. Nil is none.
	Distances []int64

	history history
	experts []expertHistory
	needed  []bool
}

// NewCurve returns one of a layer with so many experts.
func NewCurve(experts int) *Curve { return &Curve{Ranks: make([]int64, experts)} }

// Needs returns how many needs were noted.
func (c *Curve) Needs() int64 { return c.First + sum(c.Ranks) }

func sum(counts []int64) (n int64) {
	for _, k := range counts {
		n += k
	}
	return n
}

// Hits returns the share of needs that so many slots meet; false where too little is known to say. A first need is one of
// a process, not of a pass, and does not count.
func (c *Curve) Hits(slots int) (float64, bool) {
	counts, needs := c.known()
	if counts == nil {
		return 0, false
	}
	return float64(sum(counts[:min(max(slots, 0), len(counts))])) / float64(needs), true
}

// known returns the counts that say something, and their sum; nil where none do.
func (c *Curve) known() (counts []int64, needs int64) {
	if c == nil {
		return nil, 0
	}
	for _, counts := range [][]int64{c.Ranks, c.Distances} {
		if needs := sum(counts); needs > 0 && needs >= int64(enough*len(counts)) {
			return counts, needs
		}
	}
	return nil, 0
}

// SharedHits returns the share of needs that slots meet which layers with these curves share, where a pass through one
// needs so many experts; false where too little is known of one. Those that a pass needs have slots until others can
// take them, and the likeliest of all layers have the rest.
func SharedHits(layers []*Curve, slots, needs int) (float64, bool) {
	var shares []float64
	for _, c := range layers {
		counts, all := c.known()
		if counts == nil {
			return 0, false
		}
		for _, n := range counts {
			shares = append(shares, float64(n)/float64(all))
		}
	}
	slices.SortFunc(shares, func(a, b float64) int { return cmp.Compare(b, a) })
	var met float64
	for _, x := range shares[:min(max(slots-needs, 0), len(shares))] {
		met += x
	}
	return met / float64(max(len(layers), 1)), len(layers) > 0
}

// enough is how often each expert has to have been needed on average for a curve to say something.
const enough = 2

// Add adds what another curve of the same layer has counted. One for another number of experts adds nothing.
func (c *Curve) Add(other *Curve) {
	if other == nil || len(other.Ranks) != len(c.Ranks) {
		return
	}
	for i, n := range other.Ranks {
		c.Ranks[i] += n
	}
	c.First += other.First
	if c.Distances == nil {
		c.Distances = slices.Clone(other.Distances)
		return
	}
	for i, n := range other.Distances {
		c.Distances[i] += n
	}
}

// Note notes a pass.
func (c *Curve) Note(wanted []int32) {
	if c.experts == nil {
		c.experts, c.needed = make([]expertHistory, len(c.Ranks)), make([]bool, len(c.Ranks))
		c.history.weights = assumed
	}
	for _, e := range wanted {
		c.needed[e] = true
		if c.experts[e].seen {
			c.Ranks[c.rank(e)]++
		} else {
			c.First++
		}
	}
	for _, e := range wanted {
		c.history.see(c.experts, e)
	}
	c.history.pass(c.experts, func(e int32) bool { return c.needed[e] })
	for _, e := range wanted {
		c.needed[e] = false
	}
}

// rank returns how many experts are likelier to be needed than one, of equal ones those that were needed before it was.
func (c *Curve) rank(expert int32) (rank int) {
	own, before := c.experts[expert].chance, true
	for _, e := range c.history.seen {
		if e == expert {
			before = false
		} else if x := c.experts[e].chance; x > own || x == own && before {
			rank++
		}
	}
	return rank
}
