package plan

import (
	"cmp"
	"math"
	"slices"
)

// auto keeps everything where there is room. Else it keeps what helps most, which a search by simulation finds, and pages
// the rest; the host's processor computes what it does in less time than bringing it takes.
func (d *draft) auto() (*Plan, error) {
	if p, err := d.resident(); err == nil {
		least, _, _ := d.least()
		p.MinBytes = min(p.MinBytes, least)
		p.Mode = Auto
		return p, nil
	}
	p, err := d.choose((*draft).mixed)
	if err != nil || d.o.HostLower == nil || d.o.Target.Direct {
		return p, err
	}
	return d.helped(p), nil
}

// mixed returns the best plan in which some groups stay and the others are paged, nil where none fits.
func (d *draft) mixed() *Plan {
	var plans []*Plan
	for _, e := range d.tiedVariants() {
		if s := e.search(); s.found() {
			plans = append(plans, e.plan(s.best.keep, s.best.use))
		}
	}
	return cheapest(plans)
}

// A search looks for the groups to keep.
type search struct {
	d    *draft
	room int64
	// order holds the groups that are not empty, slot what each takes, bytes the sum.
	order []int
	slot  []int64
	// load and compute are what bringing each group and computing it takes.
	load, compute []float64
	best          choice
	// left is how many groups may still be simulated: what bounds the time of planning.
	left int
}

// A choice is which groups stay and how the others share the ring.
type choice struct {
	keep    []bool
	use     layout
	seconds float64
	// used is what the groups that stay take.
	used int64
}

// searchWork bounds a search: groups simulated.
const searchWork = 400_000

// search finds which groups to keep: several ways to choose are costed, and the best is improved step by step.
func (d *draft) search() *search {
	s := &search{d: d, room: d.room(), left: searchWork, best: choice{seconds: math.Inf(1)}}
	n := len(d.groups)
	s.slot, s.load, s.compute = make([]int64, n), make([]float64, n), make([]float64, n)
	d.prepare(nil)
	for i := range d.groups {
		s.slot[i], s.load[i], s.compute[i] = d.groups[i].SlotBytes, d.stages[i].load, d.stages[i].compute
		if s.slot[i] > 0 {
			s.order = append(s.order, i)
		}
	}
	s.consider(make([]bool, n))
	for _, order := range [][]int{s.spread(), s.bySize(), s.byNeed(), s.order} {
		for depth := range 4 {
			s.consider(s.fill(order, depth))
		}
	}
	for _, share := range []func(int) float64{
		func(i int) float64 { return s.compute[i] }, func(i int) float64 { return float64(s.slot[i]) },
	} {
		for depth := range 4 {
			s.consider(s.diffuse(share, depth))
		}
	}
	s.improve()
	return s
}

func (s *search) found() bool { return !math.IsInf(s.best.seconds, 1) }

// usedBy returns what the groups that stay take.
func (s *search) usedBy(keep []bool) int64 {
	var used int64
	for _, i := range s.order {
		if keep[i] {
			used += s.slot[i]
		}
	}
	return used
}

// consider costs a choice of groups with what room it leaves for the ring, and remembers it if it is the best so far. It
// reports whether it is.
func (s *search) consider(keep []bool) bool {
	used := s.usedBy(keep)
	if used > s.room {
		return false
	}
	s.d.prepare(keep)
	better := false
	slots := s.d.o.Slots
	uses := []layout{{s.room - used, 1}, {s.room - used, endToEnd}, {s.room - used, 2}, {s.room - used, 0}}
	if slots > 0 {
		uses = uses[:0]
		for depth := range min(slots, 4) {
			uses = append(uses, layout{s.room - used, depth})
		}
	}
	for _, use := range uses {
		if s.left -= len(s.d.groups); s.left < 0 && s.found() {
			break
		}
		if seconds, _, ok := s.d.try(use); ok && seconds < s.best.seconds {
			s.best.keep = append(s.best.keep[:0], keep...)
			s.best.use, s.best.seconds, s.best.used, better = use, seconds, used, true
		}
	}
	return better
}

// ringFor returns what a ring takes in which no slot overlaps those of depth paged groups before it.
func (s *search) ringFor(keep []bool, depth int) int64 {
	var most int64
	var last [4]int64
	k := 0
	for pass := range 2 { // around the end
		for _, i := range s.order {
			if keep[i] {
				continue
			}
			last[k%4] = s.slot[i]
			k++
			var sum int64
			for back := range min(depth+1, k) {
				sum += last[(k-1-back)%4]
			}
			most = max(most, sum)
		}
		if pass == 0 && k <= depth {
			break
		}
	}
	return most
}

// fill keeps groups in the given order as long as they and a ring of the given depth for the others fit. The ring that
// the others need shrinks as large groups leave it, so what that sets free is given out again.
func (s *search) fill(order []int, depth int) []bool {
	keep := make([]bool, len(s.slot))
	var used int64
	for range 3 {
		ring := s.ringFor(keep, depth)
		for _, i := range order {
			if !keep[i] && used+s.slot[i]+ring <= s.room {
				keep[i] = true
				used += s.slot[i]
			}
		}
	}
	return keep
}

// diffuse pages groups such that what was loaded keeps step with a share of each group, and keeps as many as fit.
func (s *search) diffuse(share func(int) float64, depth int) []bool {
	var total float64
	for _, i := range s.order {
		total += share(i)
	}
	keep := make([]bool, len(s.slot))
	try := func(part float64) bool {
		rate, due := 0.0, 0.0
		for _, i := range s.order {
			rate += s.load[i]
		}
		if total > 0 {
			rate *= part / total
		}
		for _, i := range s.order {
			due += share(i) * rate
			if keep[i] = due < s.load[i]/2; !keep[i] {
				due -= s.load[i]
			}
		}
		return s.usedBy(keep)+s.ringFor(keep, depth) <= s.room
	}
	low, high := 0.0, 1.0
	for range 12 {
		if middle := (low + high) / 2; try(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	if !try(high) {
		clear(keep)
	}
	return keep
}

// spread orders the groups so that every beginning of the order is spread evenly over the pass: bit reversal.
func (s *search) spread() []int {
	n := len(s.order)
	var order []int
	size := 1
	for size < n {
		size *= 2
	}
	for i := range size {
		r := 0
		for bit := 1; bit < size; bit *= 2 {
			r *= 2
			if i&bit != 0 {
				r++
			}
		}
		if r < n {
			order = append(order, s.order[r])
		}
	}
	return order
}

func (s *search) bySize() []int {
	order := slices.Clone(s.order)
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(s.slot[b], s.slot[a]) })
	return order
}

// byNeed orders the groups by how much longer their loads take than what they compute, for each byte.
func (s *search) byNeed() []int {
	order := slices.Clone(s.order)
	need := func(i int) float64 { return (s.load[i] - s.compute[i]) / float64(s.slot[i]) }
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(need(b), need(a)) })
	return order
}

// improve changes the best choice step by step while that helps: a group that is waited for stays instead of groups that
// could come while nothing else does.
func (s *search) improve() {
	if !s.found() || len(s.order) == 0 {
		return
	}
	var sum float64
	for _, c := range s.compute {
		sum += c
	}
	keep := make([]bool, len(s.slot))
	random := uint64(1)
	for failed := 0; s.left > 0 && failed < 400 && s.best.seconds > sum*1.001; failed++ {
		copy(keep, s.best.keep)
		stalled, idle := s.ranks(keep)
		if len(stalled) == 0 {
			return
		}
		random = random*6364136223846793005 + 1442695040888963407
		in := stalled[(failed/4)%len(stalled)]
		if failed >= 8 {
			in = stalled[int(random>>33)%len(stalled)]
		}
		keep[in] = true
		for k := 0; len(idle) > 0 && s.usedBy(keep)+s.ringFor(keep, 0) > s.room && k < 8; k++ {
			at := min(k+failed%4, len(idle)-1)
			if failed >= 8 {
				at = int(random>>(20+k)) % len(idle)
			}
			if keep[idle[at]] = false; idle[at] == in {
				break
			}
		}
		for _, i := range stalled { // what is left over
			if !keep[i] && s.usedBy(keep)+s.slot[i]+s.ringFor(keep, 1) <= s.room {
				keep[i] = true
			}
		}
		if s.consider(keep) {
			failed = 0
		}
	}
}

// ranks returns the paged groups, those waited for longest first, and the groups that stay, those first around which
// loads wait longest for their slots.
func (s *search) ranks(keep []bool) (stalled, idle []int) {
	s.d.prepare(keep)
	if _, _, ok := s.d.try(s.best.use); !ok {
		return nil, nil
	}
	s.left -= len(s.slot)
	free := make([]float64, len(s.slot)) // how long the load after each group waits
	var next float64
	for range 2 {
		for i := len(s.slot) - 1; i >= 0; i-- {
			if s.d.stages[i].paged {
				next = s.d.stages[i].idle
			}
			free[i] = next
		}
	}
	for _, i := range s.order {
		if keep[i] {
			idle = append(idle, i)
		} else {
			stalled = append(stalled, i)
		}
	}
	slices.SortStableFunc(stalled, func(a, b int) int { return cmp.Compare(s.d.stages[b].stall, s.d.stages[a].stall) })
	slices.SortStableFunc(idle, func(a, b int) int { return cmp.Compare(free[b], free[a]) })
	return stalled, idle
}
