package search

import (
	"math"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/plan"
)

// carved returns a plan in which large weights are cut unevenly, if that is expected to be faster than p: what stays of
// one is few pieces, and what is paged of it are pieces as large as the ring takes, since each costs a launch. It
// returns nil where it is not.
func (d *draft) carved(p *plan.Plan) *plan.Plan {
	if p == nil || len(p.Disks) > 0 || p.MovedBytes == 0 || p.SwapBytes > 0 || d.o.Slots > 0 {
		return nil
	}
	var computed, moved float64
	var total int64
	for i := range d.groups {
		computed += d.groups[i].Seconds * float64(d.o.Instances)
		moved += d.groups[i].LoadSeconds
		total += d.groups[i].SlotBytes
	}
	moved *= 1 - float64(d.room())/float64(max(total, 1)) // what has no room in memory
	finest, largest := d.finestSplit()
	most := max(finest, total/mostAtoms)
	if finest == 0 || largest <= most || p.Forecast.Seconds <= max(computed, moved)*worthCarving {
		return nil
	}
	e := d.split(most)
	if e == nil || e.room() <= 0 {
		return nil
	}
	c := newCarving(d, e)
	if !c.search() {
		return nil
	}
	f := d.makeSplit(most, c.cuts(d))
	if f == nil {
		return nil
	}
	s := f.newSearch(searchWork / 4)
	s.depths = append(s.depths, soonest)
	s.consider(c.kept(e, f))
	s.improve()
	if !s.found() {
		return nil
	}
	q := f.plan(s.best.keep, s.best.use)
	if q == nil || d.o.overHost(q) || q.Forecast.Seconds > p.Forecast.Seconds*worthwhileCuts {
		return nil
	}
	return q
}

const (
	// mostAtoms is about how many parts all weights would be cut into; those that are smaller are whole.
	mostAtoms = 64
	// worthCarving is how much longer than what its ops or its loads take by themselves a pass may take before cuts are
	// looked for, and worthwhileCuts what part of a pass's time they must leave at most.
	worthCarving, worthwhileCuts = 1.005, 0.998
	// carveWork bounds the search for cuts as searchWork does the one for groups. Graphs that are worth it are small: few
	// of their weights are a large part of all.
	carveWork = 2 * searchWork
)

// An atom is a group that is not cut any further.
type atom struct {
	compute, load float64
	slot          int64
	// joins says that the atom may be one piece with the one before, saved and savedLoad what that saves.
	joins            bool
	saved, savedLoad float64
	// first and last say that the atom begins and ends a weight, whole what it saves besides if that is one piece.
	first, last bool
	whole       float64
	// op is the op of the graph as it was that the atom is a part of, rows the first of its rows.
	op, row int
}

// A carving is a search for pieces: runs of atoms of a weight that stay, or are paged, together.
type carving struct {
	atoms []atom
	room  int64
	left  int
	sim   simulation
	// ask ends the search where it is to end.
	ask func()
	// best and now are choices of which atoms stay and which begin a piece.
	best, now pieced
	stages    []stage
	visits    []visit
	at        []int // the first atom of each stage
	fitful    bool
	// stall is how long each atom's piece is waited for.
	stall  []float64
	random uint64
}

// A pieced is a choice.
type pieced struct {
	keep, cut []bool
	use       layout
	seconds   float64
}

func (p *pieced) set(q *pieced) {
	p.keep, p.cut = append(p.keep[:0], q.keep...), append(p.cut[:0], q.cut...)
	p.use, p.seconds = q.use, q.seconds
}

// newCarving returns a search over the atoms of e, which is d with large weights cut finely.
func newCarving(d, e *draft) *carving {
	c := &carving{room: e.room(), left: carveWork, fitful: d.o.Target.Direct, random: 1, ask: d.o.ask}
	e.prepare(nil)
	count := make(map[plan.CutWeight]int) // how many ops read a weight
	for i := range d.l.Graph.Ops {
		if op := &d.l.Graph.Ops[i]; isCut(d, op, e.base.SplitBytes) {
			count[cutOf(d.l.Graph, op)]++
		}
	}
	instances := float64(d.o.Instances)
	origin, base := -1, 0 // the op that parts are of, and the row of the weight that its view begins with
	within := false       // there are more of them
	for k := range e.groups {
		group, s := &e.groups[k], &e.stages[k]
		a := atom{compute: s.compute, load: s.load, slot: group.SlotBytes, op: -1}
		if group.EndRow > 0 {
			if !within {
				origin, base = e.cutOp(d, k, origin), group.FirstRow
			}
			a.op, a.row = origin, group.FirstRow-base
			op := &d.l.Graph.Ops[origin]
			rows, _ := rewrite.SplittableRows(d.l.Graph, op)
			a.first, a.last = a.row == 0, group.EndRow-base == rows
			within = !a.last
			a.joins = !a.first && count[cutOf(d.l.Graph, op)] == 1
		}
		c.atoms = append(c.atoms, a)
		if a.last {
			c.saves(d, e, k, instances)
		}
	}
	c.stall = make([]float64, len(c.atoms))
	return c
}

// isCut reports whether an op's weight is more than so many bytes and can be cut.
func isCut(d *draft, op *graph.Op, mostBytes int64) bool {
	return len(rewrite.RowParts(d.l.Graph, op, mostBytes)) > 2
}

// cutOp returns the op of d that group k of e, the first part of a weight, is of: the next behind one that is cut.
func (e *draft) cutOp(d *draft, k, behind int) int {
	i := max(d.groups[e.origin[k]].First, behind+1)
	for !isCut(d, &d.l.Graph.Ops[i], e.base.SplitBytes) {
		i++
	}
	return i
}

// saves finds what it saves to join the atoms of the weight that ends with atom k: what they take together beyond what
// the op takes by itself is the same for each.
func (c *carving) saves(d, e *draft, k int, instances float64) {
	first := k
	for !c.atoms[first].first {
		first--
	}
	n := k - first
	if n == 0 {
		return
	}
	var parts, join float64
	for i := first; i <= k; i++ {
		group := &e.groups[i]
		for op := group.First; op < group.End; op++ {
			switch len(plan.OpParts(e.l.Graph, &e.l.Graph.Ops[op])) {
			case 0:
				if i == k && join == 0 && e.l.Graph.Ops[op].Kind == "cat" {
					join = e.seconds[op]
				}
			default:
				parts += e.seconds[op]
			}
		}
	}
	each := max(parts-d.seconds[c.atoms[k].op], 0) / float64(n) * instances
	for i := first + 1; i <= k; i++ {
		c.atoms[i].saved = min(each, c.atoms[i].compute)
		c.atoms[i].savedLoad = min(d.o.Rates.CopySeconds, c.atoms[i].load)
		if c.fitful {
			c.atoms[i].savedLoad = 0
		}
	}
	c.atoms[k].whole = join * instances
}

// pieces finds the stages of a choice and returns what stays and the largest slot of the others.
func (c *carving) pieces(p *pieced) (used, largest int64) {
	c.stages, c.visits, c.at = c.stages[:0], c.visits[:0], c.at[:0]
	for i := 0; i < len(c.atoms); {
		a := &c.atoms[i]
		s := stage{compute: a.compute, load: a.load}
		slot := a.slot
		end := i + 1
		for ; end < len(c.atoms) && c.atoms[end].joins && !p.cut[end] && p.keep[end] == p.keep[i]; end++ {
			b := &c.atoms[end]
			s.compute += b.compute - b.saved
			s.load += b.load - b.savedLoad
			slot += b.slot
		}
		if a.first && c.atoms[end-1].last {
			s.compute -= c.atoms[end-1].whole
		}
		switch {
		case p.keep[i]:
			used += slot
		case slot > 0:
			s.paged = true
			largest = max(largest, slot)
			c.visits = append(c.visits, visit{bytes: slot})
		}
		c.stages, c.at = append(c.stages, s), append(c.at, i)
		i = end
	}
	return used, largest
}

// try costs the pieces that were found last with a layout.
func (c *carving) try(use layout) float64 {
	c.ask()
	c.left -= 4 * len(c.stages)
	if !use.place(c.visits) {
		return math.Inf(1)
	}
	k := 0
	for i := range c.stages {
		if c.stages[i].paged {
			c.stages[i].after = c.visits[k].after
			k++
		}
	}
	c.sim.fitful, c.sim.slower = c.fitful, farShare(plan.Target{Direct: c.fitful}, use.bytes)
	seconds, _ := c.sim.run(c.stages)
	return seconds
}

// cost completes a choice with the best of some layouts.
func (c *carving) cost(p *pieced, depths ...int) bool {
	p.seconds = math.Inf(1)
	used, largest := c.pieces(p)
	if used+largest > c.room {
		return false
	}
	for k, depth := range depths {
		if slices.Contains(depths[:k], depth) {
			continue
		}
		use := layout{c.room - used, depth}
		if seconds := c.try(use); seconds < p.seconds {
			p.seconds, p.use = seconds, use
		}
	}
	return true
}

// search looks for the best choice and reports whether there is one.
func (c *carving) search() bool {
	n := len(c.atoms)
	c.best.seconds = math.Inf(1)
	c.now = pieced{keep: make([]bool, n), cut: make([]bool, n)}
	var total int64
	for i := range c.atoms {
		total += c.atoms[i].slot
	}
	for _, share := range []int64{8, 12, 16, 24, 32, 48, mostAtoms} {
		for depth := range 3 {
			c.start(total/share, depth)
		}
	}
	c.newFlow().consider()
	if math.IsInf(c.best.seconds, 1) {
		return false
	}
	c.now.set(&c.best)
	c.improve()
	return true
}

// start considers pieces of about equal size, such that loads keep step with what is computed.
func (c *carving) start(most int64, depth int) {
	s := &search{room: c.room}
	var of []int // the piece of each atom
	for i := range c.atoms {
		a := &c.atoms[i]
		k := len(s.slot) - 1
		c.now.cut[i] = !a.joins || s.slot[k]+a.slot > most
		if c.now.cut[i] {
			s.slot, s.load, s.compute = append(s.slot, 0), append(s.load, 0), append(s.compute, 0)
			k++
		}
		s.slot[k] += a.slot
		s.load[k] += a.load
		s.compute[k] += a.compute
		of = append(of, k)
	}
	for k := range s.slot {
		if s.slot[k] > 0 {
			s.order = append(s.order, k)
		}
	}
	for _, share := range s.shares() {
		keep := s.diffuse(share, depth)
		for i, k := range of {
			c.now.keep[i] = keep[k]
		}
		cuts := slices.Clone(c.now.cut)
		for i := range c.atoms { // what stays is one piece with its neighbour
			if c.now.keep[i] {
				c.now.cut[i] = !c.atoms[i].joins
			}
		}
		if c.cost(&c.now, 1, endToEnd) && c.now.seconds < c.best.seconds {
			c.best.set(&c.now)
		}
		c.now.cut = cuts
	}
}

// below returns a number below n, the same ones each time.
func (c *carving) below(n int) int {
	c.random = c.random*6364136223846793005 + 1442695040888963407
	return int((c.random >> 33) % uint64(n))
}

// improve changes the best choice step by step, as a search for groups does: pieces come to stay or leave, are cut and
// joined, and the border between what stays of a weight and what does not is moved.
func (c *carving) improve() {
	var computed float64
	for i := range c.atoms {
		computed += c.atoms[i].compute - c.atoms[i].saved - c.atoms[i].whole
	}
	n := len(c.atoms)
	var next pieced
	for all := c.left; c.left > 0 && c.best.seconds > computed*worthCarving; {
		c.left -= n
		next.set(&c.now)
		i := c.below(n)
		switch c.below(12) {
		case 0: // a piece leaves
			c.all(&next, i, false)
		case 1, 2: // a piece comes to stay, preferably one that is waited for
			if j := c.below(n); next.keep[i] || c.stall[j] > c.stall[i] {
				i = j
			}
			c.all(&next, i, true)
		case 3: // an atom changes sides
			next.keep[i] = !next.keep[i]
		case 4, 5: // a piece is cut, or joined
			if !c.atoms[i].joins {
				continue
			}
			next.cut[i] = !next.cut[i]
		case 6, 7, 8, 9: // a weight is cut anew
			if !c.atoms[i].joins {
				continue
			}
			c.recut(&next, i)
		default: // a border moves
			if !c.atoms[i].joins || next.keep[i] == next.keep[i-1] {
				continue
			}
			if c.below(2) == 0 {
				next.keep[i] = next.keep[i-1]
			} else {
				next.keep[i-1] = next.keep[i]
			}
		}
		used, largest := c.pieces(&next)
		for k := 0; k < 16 && used+largest > c.room; k++ {
			if j := c.below(n); next.keep[j] && c.atoms[j].slot > 0 {
				if c.below(2) == 0 {
					next.keep[j] = false
				} else {
					c.all(&next, j, false)
				}
				used, largest = c.pieces(&next)
				c.left -= n
			}
		}
		if !c.cost(&next, c.now.use.depth, [3]int{1, endToEnd, soonest}[c.below(3)]) {
			continue
		}
		if worse := (next.seconds - c.now.seconds) / c.best.seconds; worse > 0.001*float64(c.left)/float64(all) {
			continue
		}
		c.now.set(&next)
		clear(c.stall)
		for k, at := range c.at {
			c.stall[at] = c.stages[k].stall
		}
		if c.now.seconds < c.best.seconds {
			c.best.set(&c.now)
		}
	}
}

// recut cuts the weight that an atom is of anew: so many pieces are paged and what stays lies before, behind or between
// them.
func (c *carving) recut(p *pieced, i int) {
	first, end := i, i+1
	for !c.atoms[first].first {
		first--
	}
	for !c.atoms[end-1].last {
		end++
	}
	n := end - first
	paged := c.below(n + 1)
	pieces := 1 + c.below(4)
	if c.below(2) == 0 {
		pieces = 1 + c.below(n)
	}
	pieces = min(pieces, max(paged, 1))
	gaps := pieces + 1 // runs of atoms that stay, some of them empty
	low, high := 0, gaps
	switch c.below(4) {
	case 0:
		low = gaps - 1
	case 1:
		high = 1
	case 2:
		low = 1
	}
	at := first
	stays := n - paged
	for k := range gaps {
		if k >= low && k < high {
			for range stays*(k+1-low)/(high-low) - stays*(k-low)/(high-low) {
				p.keep[at], p.cut[at] = true, false
				at++
			}
		}
		if k == pieces {
			break
		}
		for j := range paged*(k+1)/pieces - paged*k/pieces {
			p.keep[at], p.cut[at] = false, j == 0
			at++
		}
	}
}

// all lets all atoms of a piece stay or be paged.
func (c *carving) all(p *pieced, i int, keep bool) {
	was := p.keep[i]
	first, end := i, i+1
	for c.atoms[first].joins && !p.cut[first] && p.keep[first-1] == was {
		first--
	}
	for end < len(c.atoms) && c.atoms[end].joins && !p.cut[end] && p.keep[end] == was {
		end++
	}
	for k := first; k < end; k++ {
		p.keep[k] = keep
	}
}

// cuts returns where weights are cut in the best choice.
func (c *carving) cuts(d *draft) map[plan.CutWeight][]int {
	cuts := make(map[plan.CutWeight][]int)
	var rows []int
	for i := range c.atoms {
		a := &c.atoms[i]
		if a.op < 0 {
			continue
		}
		if a.first {
			rows = nil
		}
		if a.first || !a.joins || c.best.cut[i] || c.best.keep[i] != c.best.keep[i-1] {
			rows = append(rows, a.row)
		}
		if a.last {
			n, _ := rewrite.SplittableRows(d.l.Graph, &d.l.Graph.Ops[a.op])
			cuts[cutOf(d.l.Graph, &d.l.Graph.Ops[a.op])] = append(rows, n)
		}
	}
	return cuts
}

// kept returns which groups stay of f, which is e with other cuts: those of which the best choice keeps most.
func (c *carving) kept(e, f *draft) []bool {
	var held []plan.Part
	for i := range c.atoms {
		if c.best.keep[i] {
			held = append(held, e.groups[i].Parts...)
		}
	}
	held = union(held)
	keep := make([]bool, len(f.groups))
	for i := range f.groups {
		var stays, leaves int64
		for _, part := range f.groups[i].Parts {
			if covered(held, part) {
				stays += part.High - part.Low
			} else {
				leaves += part.High - part.Low
			}
		}
		keep[i] = stays > leaves
	}
	return keep
}
