package search

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/plan"
)

// auto keeps everything where there is room and passes gain by it. Else it keeps what helps most, which a search by
// simulation finds, and pages the rest; the host's processor computes what it does in less time than bringing it takes.
func (d *draft) auto() (*plan.Plan, error) {
	if d.o.HostOps != nil && d.o.HostLower != nil {
		return d.forced()
	}
	least := d.minBytes()
	if p, err := d.sparing().resident(); err == nil {
		p = d.forOnce(p)
		p.MinBytes, p.Mode = least, plan.Auto
		return p, nil
	}
	if d.o.Once && d.o.Target.Direct {
		// What would stay is read once like everything else, and takes memory that nobody has touched.
		p, err := d.page()
		return asAuto(p, err, least)
	}
	d = d.thrifty()
	p, err := d.choose((*draft).mixed)
	if d.o.Within == nil { // these may have others stay
		if q := d.carved(p); q != nil {
			p = q
		}
		if q := d.stored(p); q != nil {
			p = q
		}
	}
	p, err = asAuto(p, err, least)
	if err != nil || d.o.HostLower == nil || d.o.Target.Direct {
		return p, err
	}
	return d.helped(p), nil
}

// asAuto returns a plan or the error that there is none as those of the auto mode, whose least budget is that of all
// ways to plan.
func asAuto(p *plan.Plan, err error, least int64) (*plan.Plan, error) {
	var capacity *plan.CapacityError
	if errors.As(err, &capacity) {
		capacity.MinBytes = least
	}
	if p != nil {
		p.MinBytes, p.Mode = least, plan.Auto
	}
	return p, err
}

// forOnce returns the plan for a single pass instead of one that keeps everything. Every weight is brought once
// whatever stays, so that to keep them gains nothing, and each byte for them is memory that nobody has touched. Where
// that takes next to nothing everything stays, and a pass that comes all the same brings nothing.
func (d *draft) forOnce(kept *plan.Plan) *plan.Plan {
	gains := func(bytes int64) bool { return float64(bytes)/cost.TouchedBytes >= cost.QueueCloseSeconds }
	if !d.o.Once || !d.o.Target.Direct || !gains(kept.PeakBytes()) {
		return kept
	}
	paged, err := d.page()
	if err != nil || !gains(kept.PeakBytes()-paged.PeakBytes()) {
		return kept
	}
	return paged
}

// forced has the host's processor compute the groups with ops that the device cannot, and plans the others by
// themselves.
func (d *draft) forced() (*plan.Plan, error) {
	return d.divided(plan.Auto, nil, func(group int) bool {
		return slices.Contains(d.o.HostOps[d.groups[group].First:d.groups[group].End], true)
	})
}

// mixed returns the best plan in which some groups stay and the others are paged, nil where none fits.
func (d *draft) mixed() *plan.Plan {
	var plans []*plan.Plan
	variants := d.tiedVariants()
	for _, e := range variants {
		effort := cmp.Or(d.effort, 1) / float64(len(variants))
		if s := e.search(int(searchWork * effort)); s.found() {
			plans = append(plans, e.plan(s.best.keep, s.best.use))
		}
	}
	return d.o.cheapest(plans)
}

// A search looks for the groups to keep.
type search struct {
	d    *draft
	room int64
	// may says which groups may stay, nil for all.
	may []bool
	// order holds the groups that are not empty, slot what each takes, bytes the sum.
	order []int
	slot  []int64
	// load and compute are what bringing each group and computing it takes.
	load, compute []float64
	best          choice
	// depths are those of layouts that are tried for any choice.
	depths []int
	// left is how many groups may still be simulated: what bounds the time of planning.
	left int
}

// A choice is which groups stay and how the others share the ring.
type choice struct {
	keep    []bool
	use     layout
	seconds float64
}

// searchWork bounds all searches for a plan: groups simulated.
const searchWork = 800_000

// search finds which groups to keep: several ways to choose are costed, and the best is improved step by step.
func (d *draft) search(work int) *search {
	s := d.newSearch(work)
	s.consider(make([]bool, len(d.groups)))
	for _, order := range [][]int{s.spread(), s.bySize(), s.byNeed(), s.order} {
		for depth := range 4 {
			s.consider(s.fill(order, depth))
		}
	}
	for _, share := range s.shares() {
		for depth := range 4 {
			s.consider(s.diffuse(share, depth))
		}
	}
	s.improve()
	return s
}

// newSearch returns a search that has not looked at any choice.
func (d *draft) newSearch(work int) *search {
	s := &search{d: d, room: d.room(), left: work, best: choice{seconds: math.Inf(1)}, depths: []int{1, endToEnd}}
	n := len(d.groups)
	s.slot, s.load, s.compute = make([]int64, n), make([]float64, n), make([]float64, n)
	d.prepare(nil)
	for i := range d.groups {
		s.slot[i], s.load[i], s.compute[i] = d.groups[i].SlotBytes, d.stages[i].load, d.stages[i].compute
		if s.slot[i] > 0 {
			s.order = append(s.order, i)
		}
	}
	s.may = d.within()
	return s
}

// allows reports whether a group may stay.
func (s *search) allows(i int) bool { return s.may == nil || s.may[i] }

// within says which groups have nothing that does not stay in the plan within which this one is to be; nil is all.
func (d *draft) within() []bool {
	if d.o.Within == nil {
		return nil
	}
	held, may := heldBy(d.o.Within), make([]bool, len(d.groups))
	for extent, parts := range held {
		held[extent] = union(slices.Clone(parts))
	}
	for i := range d.groups {
		may[i] = !slices.ContainsFunc(d.groups[i].Parts, func(p plan.Part) bool {
			return !slices.ContainsFunc(held[d.l.Graph.Values[p.Value].Weight.Extent], func(q plan.Part) bool { return q.Low <= p.Low && p.High <= q.High })
		})
	}
	return may
}

// shares are what loads may keep step with: with what is computed, or with the groups' bytes.
func (s *search) shares() []func(int) float64 {
	return []func(int) float64{
		func(i int) float64 { return s.compute[i] }, func(i int) float64 { return float64(s.slot[i]) },
	}
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

// consider costs a choice of groups with what room it leaves for the ring, and remembers it if it is the best so far.
func (s *search) consider(keep []bool) {
	for i := range keep {
		keep[i] = keep[i] && s.allows(i)
	}
	used := s.usedBy(keep)
	if used > s.room {
		return
	}
	depths := slices.Concat(s.depths, []int{2, 0})
	if n := s.d.o.Slots; n > 0 {
		depths = []int{n - 1, min(n-1, 1), 0}
	}
	var uses []layout
	for _, depth := range depths {
		uses = append(uses, layout{s.room - used, depth})
	}
	if c := s.cost(keep, uses); c.seconds < s.best.seconds {
		s.best.set(c)
	}
}

// cost returns a choice of groups with the best of some layouts.
func (s *search) cost(keep []bool, uses []layout) choice {
	best := choice{keep: keep, seconds: math.Inf(1)}
	s.d.prepare(keep)
	for k, use := range uses {
		if s.d.o.Slots > 0 && use.depth < 0 || slices.Contains(uses[:k], use) {
			continue
		}
		const passes = 4 // about what a simulation takes
		s.left -= passes * len(s.slot)
		if seconds, _, ok := s.d.try(use, 0); ok && seconds < best.seconds {
			best.seconds, best.use = seconds, use
		}
	}
	return best
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

// improve changes the best choice step by step: a group comes to stay, preferably one that is waited for, or one
// leaves, or both. Steps that make it a little worse are taken, too, the less the longer it goes on: what looks best at
// first is often a dead end. The steps are the same each time.
func (s *search) improve() {
	var computed float64
	for _, c := range s.compute {
		computed += c
	}
	const enough = 1.002
	if !s.found() || s.best.seconds <= computed*enough || len(s.order) < 2 {
		return
	}
	seed := uint64(1)
	random := func(n int) int {
		seed = seed*6364136223846793005 + 1442695040888963407
		return int((seed >> 33) % uint64(n))
	}
	now, keep := s.best.clone(), make([]bool, len(s.slot))
	stall := make([]float64, len(s.slot))
	for all := s.left; s.left > 0 && s.best.seconds > computed*enough; {
		s.left -= len(s.slot) / 4
		copy(keep, now.keep)
		step := random(4)
		if step != 0 {
			a, b := s.order[random(len(s.order))], s.order[random(len(s.order))]
			if stall[b] > stall[a] || keep[a] {
				a = b
			}
			keep[a] = s.allows(a)
		}
		used, ring := s.usedBy(keep), s.ringFor(keep, 0)
		for k := 0; k < 16 && (step < 2 && k == 0 || used+ring > s.room); k++ {
			if i := s.order[random(len(s.order))]; keep[i] {
				keep[i] = false
				used -= s.slot[i]
				ring = max(ring, s.slot[i])
			}
		}
		if used+ring > s.room {
			continue
		}
		next := s.cost(keep, []layout{{s.room - used, now.use.depth}, {s.room - used, s.depths[random(len(s.depths))]}})
		worse := (next.seconds - now.seconds) / s.best.seconds
		if worse > 0.01*float64(s.left)/float64(all) {
			continue
		}
		now.set(next)
		for i := range stall {
			stall[i] = s.d.stages[i].stall
		}
		if next.seconds < s.best.seconds {
			s.best.set(next)
		}
	}
}

func (c *choice) clone() choice {
	d := *c
	d.keep = slices.Clone(c.keep)
	return d
}

// set copies a choice.
func (c *choice) set(d choice) {
	keep := append(c.keep[:0], d.keep...)
	*c = d
	c.keep = keep
}
