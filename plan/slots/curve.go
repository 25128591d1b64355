package slots

// A Curve is what passes through a layer have shown of its routing: how many other experts were needed since each was
// needed last. With it the share of hits is known for any number of slots from which who was needed longest ago leaves.
// Its memory is linear in the number of experts.
type Curve struct {
	// Distances counts needs by how many other experts were needed since; First those of an expert that was not needed
	// before.
	Distances []int64
	First     int64
	// order has the experts that were needed, the one that was needed last first.
	order []int32
}

// NewCurve returns one of a layer with so many experts.
func NewCurve(experts int) *Curve { return &Curve{Distances: make([]int64, experts)} }

// Needs returns how many needs were noted.
func (c *Curve) Needs() int64 {
	n := c.First
	for _, k := range c.Distances {
		n += k
	}
	return n
}

// Hits returns the share of needs that so many slots meet; false where too little is known to say.
func (c *Curve) Hits(slots int) (float64, bool) {
	if c == nil {
		return 0, false
	}
	needs := c.Needs() - c.First // a first need is one of a process, not of a pass
	if needs < int64(enough*len(c.Distances)) {
		return 0, false
	}
	var met int64
	for _, n := range c.Distances[:min(max(slots, 0), len(c.Distances))] {
		met += n
	}
	return float64(met) / float64(needs), true
}

// enough is how often each expert has to have been needed on average for a curve to say something.
const enough = 2

// Add adds what another curve of the same layer has counted. One for another number of experts adds nothing.
func (c *Curve) Add(other *Curve) {
	if other == nil || len(other.Distances) != len(c.Distances) {
		return
	}
	for i, n := range other.Distances {
		c.Distances[i] += n
	}
	c.First += other.First
}

// Note notes a pass. All that it needs count as needed at one time: among themselves they are no distance.
func (c *Curve) Note(wanted []int32) {
	if c.order == nil {
		c.order = make([]int32, 0, len(c.Distances))
	}
	for i, e := range wanted {
		at := -1
		for k, x := range c.order {
			if x == e {
				at = k
				break
			}
		}
		if at < 0 {
			c.First++
			c.order = append(c.order, e)
			at = len(c.order) - 1
		} else {
			c.Distances[max(at-i, 0)]++ // the i before it in this pass have moved ahead of it, or were so already
		}
		copy(c.order[1:at+1], c.order[:at])
		c.order[0] = e
	}
}
