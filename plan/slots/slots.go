// Package slots decides which experts of a layer lie in memory: there are slots for some of them, and a pass says which
// it needs. It also says what other decisions would have cost: [Replay] counts a trace again with other numbers of
// slots, and [Least] what nobody could have done without, knowing what comes.
//
// It knows numbers: ids and slots. It does not know weights, files, memory, devices or clocks: the same passes in the
// same order give the same steps, so that what a process read can be counted beforehand and afterwards.
//
//	set := slots.NewSet(128, 40)
//	for _, step := range set.Pass(0, []int32{3, 17, 90}) { // by id
//		// where step.Read, read expert step.Expert into step.Slot once the step step.After is computed; then compute it
//	}
package slots

import "slices"

// A Set is some slots for a larger number of experts, of one layer or of several, and what is known of each expert's use.
// Its memory is linear in both. One goroutine at a time uses it.
//
// Who is to leave is a matter of how likely the next pass through its layer needs it, which a [history] of the layer's
// passes tells. Who this pass needs stays where others can leave. Of equal ones the one goes whose layer comes last again,
// and of one layer the one that was used longer ago. What is known of experts that are in no slot is kept, so that one
// which is often needed comes back to stay.
type Set struct {
	// slot is where each expert is, or none; expert who is in each slot, or none.
	slot, expert []int32
	// layers are those whose experts share the slots, by their first expert; layer is that of each expert, nil before it
	// was needed.
	layers  map[int]*history
	layer   []*history
	experts []expertHistory
	pass    int64
	// last is the last pass that needed each expert; step is that of this pass which computes it.
	last  []int64
	step  []int32
	steps []Step
	// missing are those of this pass that are not there.
	missing []int32
}

const (
	none = -1
	// ahead is how many reads may be under way while what is in the slots is computed, where there are more experts
	// than slots: so many of the slots that were filled last are not filled again.
	ahead = 3
)

// A Step is an expert's turn in a pass.
type Step struct {
	Expert, Slot int32
	// Read says that it has to be read into the slot, which is free once the step After is computed; −1 is at once.
	Read  bool
	After int32
}

// NewSet returns empty slots for so many experts; at least one.
func NewSet(experts, slots int) *Set {
	slots = max(1, min(slots, experts))
	s := &Set{
		slot: make([]int32, experts), expert: make([]int32, slots), layers: make(map[int]*history),
		layer: make([]*history, experts), experts: make([]expertHistory, experts),
		last: make([]int64, experts), step: make([]int32, experts),
	}
	s.Empty()
	return s
}

// Slots returns how many there are, Experts for how many experts.
func (s *Set) Slots() int   { return len(s.expert) }
func (s *Set) Experts() int { return len(s.slot) }

// Empty forgets what lies in the slots, and nothing else.
func (s *Set) Empty() {
	for i := range s.slot {
		s.slot[i] = none
	}
	for i := range s.expert {
		s.expert[i] = none
	}
}

// Pass returns what a pass through a layer does that needs the given experts, each once and in the order of their ids:
// first those that are there, then those that are read, in order. After it the slots hold what the steps have put there.
// The steps are valid until the next pass. First is the lowest id of the layer's experts: it tells apart layers that share
// the slots.
func (s *Set) Pass(first int, wanted []int32) []Step {
	s.pass++
	s.steps, s.missing = s.steps[:0], s.missing[:0]
	for _, e := range wanted {
		s.last[e] = s.pass
		if at := s.slot[e]; at != none {
			s.step[e] = int32(len(s.steps))
			s.steps = append(s.steps, Step{Expert: e, Slot: at, After: none})
		} else {
			s.missing = append(s.missing, e)
		}
	}
	s.know(first, wanted)
	hits := len(s.steps)
	for _, e := range s.missing {
		at, after := s.free(hits)
		if old := s.expert[at]; old != none {
			s.slot[old] = none
		}
		s.expert[at] = e
		s.step[e] = int32(len(s.steps))
		s.steps = append(s.steps, Step{Expert: e, Slot: at, Read: true, After: after})
	}
	for _, step := range s.steps[hits:] { // where it is from now on, but for who had to leave again
		if s.expert[step.Slot] == step.Expert {
			s.slot[step.Expert] = step.Slot
		}
	}
	return s.steps
}

// free returns the slot for the next expert that is read, and after which step it is free: an empty one, or that of who
// is worth the least. The steps from first on are those that read.
func (s *Set) free(first int) (slot, after int32) {
	best := int32(none)
	held := s.steps[max(first, len(s.steps)-min(ahead, len(s.expert)-1)):]
	for at := range int32(len(s.expert)) {
		e := s.expert[at]
		if e == none {
			return at, none
		}
		if slices.ContainsFunc(held, func(x Step) bool { return x.Slot == at }) {
			continue
		}
		if best == none || s.less(e, s.expert[best]) {
			best = at
		}
	}
	if e := s.expert[best]; s.last[e] == s.pass {
		return best, s.step[e]
	}
	return best, none
}

// know adds a pass to what is known of a layer.
func (s *Set) know(first int, wanted []int32) {
	h := s.layers[first]
	if h == nil {
		h = &history{weights: assumed}
		s.layers[first] = h
	}
	h.last = s.pass
	for _, e := range wanted {
		s.layer[e] = h
		h.see(s.experts, e)
	}
	h.pass(s.experts, func(e int32) bool { return s.last[e] == s.pass })
}

// less reports whether an expert is to leave before another.
func (s *Set) less(a, b int32) bool {
	if now, then := s.last[a] == s.pass, s.last[b] == s.pass; now != then {
		return then
	}
	if x, y := s.experts[a].chance, s.experts[b].chance; x != y {
		return x < y
	}
	if x, y := s.layer[a], s.layer[b]; x != y {
		return x.last > y.last
	}
	return s.last[a] < s.last[b]
}

// Distinct is how many of so many experts rows name together, on average, where each names some and any is as likely as
// the others.
func Distinct(experts, named, rows int) float64 {
	if experts <= 0 {
		return 0
	}
	left := 1.0
	for range rows {
		if left *= 1 - float64(min(named, experts))/float64(experts); left < 1e-9 {
			break
		}
	}
	return float64(experts) * (1 - left)
}
