package grammar

import (
	"slices"
	"unicode/utf8"
)

// A run is what most characters do in a state: those of a set all lead to one other, or back to it. What the vocabulary's tree has
// below a node is taken whole where it has no other characters.
type run struct {
	set  charSet
	then *state // nil: no characters have been found that lead to one state
	// room is for how many characters of the set there is room, as far as it was looked for: up to far. endless where a state comes
	// back to itself.
	room int
	far  *state
	// closed says that characters of the set lead to some few states between which all of the set leads.
	closed bool
	ends   bool // one of those states, but for the first, may end

	widened bool
	// inside are the bits of the vocabulary's sets that are within this one, once they were asked for often.
	inside []uint64
	asked  int
}

// often is for how many nodes one looks at the sets of a run by themselves.
const often = 5_000

// has reports whether one of the vocabulary's sets is within that of a run.
func (r *run) has(v *Vocabulary, set uint32) bool {
	if r.inside != nil {
		return r.inside[set/64]>>(set%64)&1 != 0
	}
	if r.asked++; r.asked == often {
		r.inside = v.cutOf(&r.set).setsInside(v)
	}
	return v.sets[set].within(&r.set)
}

const endless = 1 << 30

// runOf finds the run of a state, once.
func (e *Engine) runOf(s *state) (*run, error) {
	if s.run != nil {
		return s.run, nil
	}
	r := &run{}
	most := e.mostLead(s, &r.set)
	if r.set.weight() < 2 {
		// One character only: its way is as short as that of the set.
		r.set = charSet{}
		s.run = r
		return r, nil
	}
	then, err := e.closure(most)
	if err != nil {
		return nil, err
	}
	s.run = r
	r.then, r.room, r.far = then, 1, then
	for c, chars := range e.g.chars {
		if chars.within(&r.set) {
			s.next[c] = then
		}
	}
	if then == s {
		r.room = endless
	}
	return r, nil
}

// mostLead returns the places to which the most characters lead, and those characters.
func (e *Engine) mostLead(s *state, best *charSet) []item {
	e.findLeads(s)
	other := len(e.g.chars)
	var most []item
	e.grouped = append(e.grouped[:0], make([]bool, len(e.leads))...)
	for c, to := range e.leads {
		if len(to) == 0 || e.grouped[c] {
			continue
		}
		var set charSet
		for d := c; d <= other; d++ {
			if e.grouped[d] || !slices.Equal(e.leads[d], to) {
				continue
			}
			e.grouped[d] = true
			if d == other {
				set.other = otherChars
			} else {
				set.add(e.g.chars[d])
			}
		}
		if set.weight() > best.weight() {
			*best, most = set, to
		}
	}
	return most
}

// findLeads finds to what each class of bytes of one character leads, and after them all longer characters, if all lead to the same.
func (e *Engine) findLeads(s *state) {
	g := e.g
	other := len(g.chars)
	if e.leads == nil {
		e.leads = make([][]item, other+1)
	}
	leads := e.leads
	for c := range leads {
		leads[c] = leads[c][:0]
	}
	partial := false
	for _, it := range s.items {
		n := &g.nodes[it.node]
		for _, b := range n.bytes {
			if b.lo >= utf8.RuneSelf {
				continue
			}
			to := item{b.to, it.frame}
			for c := int(g.classOf[b.lo]); c <= min(int(g.classOf[b.hi]), other-1); c++ {
				leads[c] = append(leads[c], to)
			}
		}
		partial = partial || n.partial
		for _, to := range n.wide {
			leads[other] = append(leads[other], item{to, it.frame})
		}
	}
	if partial {
		leads[other] = leads[other][:0]
	}
}

// widest finds the run of a state with as many characters as lead on and on.
func (e *Engine) widest(s *state) (*run, error) {
	r, err := e.runOf(s)
	if err != nil || r.then == nil || r.widened {
		return r, err
	}
	r.widened = true
	if r.then != s {
		there, err := e.runOf(r.then)
		if err != nil {
			return nil, err
		}
		// Where it has more characters but is no wider, one does better with both.
		if there.room != endless || !r.set.within(&there.set) || !there.closed && there.set != r.set {
			return r, nil
		}
	}
	return r, e.close(s, r)
}

// close adds to the set of a run the characters after which the set still may follow, and so on, if few states come of that.
func (e *Engine) close(s *state, r *run) error {
	const few = 40
	all := r.set
	live := e.live(s)
	for c, chars := range e.g.chars {
		if chars.within(&all) || !chars.within(&live) || e.bulky > 0 && !e.v.frequent(&chars) {
			continue
		}
		next, err := e.step(s, uint8(c))
		if err != nil {
			return err
		}
		if there := e.live(next); r.set.within(&there) {
			all.add(chars)
		}
	}
	if all == r.set {
		return nil
	}
	reached := append(e.reached[:0], s)
	e.reached = nil
	ends := false
	for i := 0; i < len(reached); i++ {
		at := reached[i]
		if there := e.live(at); !all.within(&there) {
			e.reached = reached[:0]
			return nil
		}
		// It has most of the states that follow.
		if _, err := e.runOf(at); err != nil {
			return err
		}
		ends = ends || i > 0 && at.end
		add := func(next *state) bool {
			if !slices.Contains(reached, next) {
				reached = append(reached, next)
			}
			return len(reached) <= few
		}
		for c, chars := range e.g.chars {
			if !chars.within(&all) {
				continue
			}
			if next, err := e.step(at, uint8(c)); err != nil || !add(next) {
				return err
			}
		}
		if all.other != 0 {
			var wide []item
			for _, it := range at.items {
				for _, to := range e.g.nodes[it.node].wide {
					wide = append(wide, item{to, it.frame})
				}
			}
			if next, err := e.closure(wide); err != nil || !add(next) {
				return err
			}
		}
	}
	e.reached = reached[:0]
	for _, at := range reached[1:] {
		if at.run.set.within(&all) {
			at.run = &run{set: all, then: at, far: at, room: endless, closed: true, widened: true, ends: ends || s.end}
		}
	}
	r.set, r.then, r.far, r.room, r.closed, r.ends = all, s, s, endless, true, ends
	return nil
}

// live returns the characters that a state allows next, without those outside of ASCII if it does not allow all of them.
func (e *Engine) live(s *state) (set charSet) {
	g := e.g
	for _, it := range s.items {
		n := &g.nodes[it.node]
		for _, b := range n.bytes {
			if b.lo >= utf8.RuneSelf {
				continue
			}
			for c := int(g.classOf[b.lo]); c <= min(int(g.classOf[b.hi]), len(g.chars)-1); c++ {
				set.add(g.chars[c])
			}
		}
		if len(n.wide) > 0 {
			set.other = otherChars
		}
	}
	for _, it := range s.items {
		if g.nodes[it.node].partial {
			set.other = 0
		}
	}
	return set
}

// takes reports whether a state with a run takes all that the vocabulary has from a node on; all but its own character if that is
// done with.
func (e *Engine) takes(r *run, n *treeNode, done int) (bool, error) {
	if !r.has(e.v, n.set) {
		return false, nil
	}
	tall := int(n.tall) - done
	if n.tall == tallest {
		tall = maxTokenBytes
	}
	if r.room >= tall {
		return true, nil
	}
	return e.hasRoom(r, tall)
}

// hasRoom reports whether a state takes every text of so many characters of its run's set.
func (e *Engine) hasRoom(r *run, wanted int) (bool, error) {
	for r.room < wanted && r.far != nil {
		next, err := e.runOf(r.far)
		switch {
		case err != nil:
			return false, err
		case next.then == nil || !r.set.within(&next.set):
			r.far = nil
		case next.closed || next.then == r.far:
			r.room = endless
		default:
			r.room++
			r.far = next.then
		}
	}
	return r.room >= wanted, nil
}
