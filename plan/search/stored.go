package search

import (
	"slices"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

// stored returns a plan in which blocks of packed files stay as the file has them, and groups are decoded from there
// instead of read, if that is expected to be faster than p: such blocks take less than the weights, so more of the
// model stays, and processors that wait for a disk have time to decode. It returns nil where it is not.
func (d *draft) stored(p *plan.Plan) *plan.Plan {
	if p == nil || p.MovedBytes == 0 || p.SwapBytes > 0 || len(p.Experts) > 0 || d.o.Once || !d.o.Target.Direct {
		return nil
	}
	var best *plan.Plan
	most := p.Forecast.Seconds * worthStoring
	for _, e := range d.variants() {
		s := e.newStoring()
		if s == nil {
			continue
		}
		s.consider()
		if s.best.seconds > most {
			continue
		}
		if q := e.planStored(s.best.keep, s.store, s.best.use); q != nil && q.Forecast.Seconds <= most &&
			(d.o.MemoryBytes <= 0 || q.PeakBytes() <= d.o.MemoryBytes) {
			best, most = q, q.Forecast.Seconds
		}
	}
	return best
}

// worthStoring is what part of a pass's time decoding from memory must leave at most to be worth it.
const worthStoring = 0.98

// A storing is a search for the groups that stay and for those of which blocks do.
type storing struct {
	*search
	// bytes is what the blocks of each group take, 0 where they cannot stay, decode what a processor takes to decode them.
	bytes  []int64
	decode []float64
	// store is which groups' blocks stay in the best choice, trial in the one that is looked at.
	store, trial []bool
}

// newStoring returns a search, nil where no group has blocks that can stay.
func (d *draft) newStoring() *storing {
	s := &storing{search: d.newSearch(searchWork)}
	n := len(d.groups)
	s.bytes, s.decode, s.store, s.trial = make([]int64, n), make([]float64, n), make([]bool, n), make([]bool, n)
	found := false
	for i := range d.groups {
		group := &d.groups[i]
		for _, x := range storedOf(group) {
			s.bytes[i] += plan.AlignUp(x.Bytes, d.o.Target.AlignBytes)
		}
		if s.bytes[i] >= s.slot[i] { // neighbours of a small group are in its blocks
			s.bytes[i] = 0
		}
		s.decode[i] = d.o.Rates.Decoding(plan.SpanBytes(group.Spans))
		found = found || s.bytes[i] > 0
	}
	if !found {
		return nil
	}
	return s
}

// storeSteps is in how many steps the room that groups take which stay, and not only their blocks, is varied.
const storeSteps = 12

// consider costs choices: groups stay up to a share of the room, blocks of others in what is left of it.
func (s *storing) consider() {
	orders := [][]int{s.spread(), s.bySize()}
	others := slices.Clone(orders[0])
	slices.Reverse(others)
	for _, order := range orders {
		for depth := range 3 {
			for step := range storeSteps {
				keep := make([]bool, len(s.slot))
				most := s.room / storeSteps * int64(step)
				used := s.stay(keep, order, most, depth)
				used = s.storeMore(keep, others, used, depth)
				used = s.stayMore(keep, order, used, depth)
				s.try(keep, used)
			}
		}
	}
}

// stay keeps groups up to so many bytes, and returns what they take.
func (s *storing) stay(keep []bool, order []int, most int64, depth int) (used int64) {
	ring := s.ringFor(keep, depth)
	for _, i := range order {
		if n := s.slot[i]; used+n <= most && used+n+ring <= s.room {
			keep[i], used = true, used+n
		}
	}
	return used
}

// storeMore has the blocks of further groups stay where there is room, and returns what all takes.
func (s *storing) storeMore(keep []bool, order []int, used int64, depth int) int64 {
	clear(s.trial)
	ring := s.ringFor(keep, depth)
	for _, i := range order {
		if n := s.bytes[i]; !keep[i] && n > 0 && used+n+ring <= s.room {
			s.trial[i], used = true, used+n
		}
	}
	return used
}

// stayMore keeps groups whose blocks stay as a whole, where there is room for that, and others that have no blocks.
func (s *storing) stayMore(keep []bool, order []int, used int64, depth int) int64 {
	for range 2 { // the ring shrinks as large groups leave it
		ring := s.ringFor(keep, depth)
		for _, i := range order {
			more := s.slot[i]
			if s.trial[i] {
				more -= s.bytes[i]
			}
			if !keep[i] && used+more+ring <= s.room {
				keep[i], s.trial[i], used = true, false, used+more
			}
		}
	}
	return used
}

// try costs a choice.
func (s *storing) try(keep []bool, used int64) {
	if used > s.room {
		return
	}
	depths := slices.Concat(s.depths, []int{2, 0})
	if n := s.d.o.Slots; n > 0 {
		depths = []int{n - 1, min(n-1, 1), 0}
	}
	s.d.prepare(keep)
	for i, store := range s.trial {
		if store {
			s.d.stages[i].compute, s.d.stages[i].load = s.d.shares[i].compute, s.decode[i]
			s.d.stages[i].disks = nil
			s.d.stages[i].copy(cost.CopiedShare * s.decode[i])
		}
	}
	for _, depth := range depths {
		use := layout{s.room - used, depth}
		if seconds, _, ok := s.d.try(use, 0); ok && seconds < s.best.seconds {
			s.best.set(choice{keep, use, seconds})
			copy(s.store, s.trial)
		}
	}
}

// storedOf returns the blocks that have a group's weights, without a place; nil where they cannot stay.
func storedOf(group *plan.Group) (list []plan.Stored) {
	for _, s := range group.Spans {
		source, ok := s.Extent.Source.(storage.KeepingSource)
		if !ok {
			return nil
		}
		list = append(list, plan.Stored{Extent: s.Extent, Bytes: source.StoredBytes(s.Extent.Offset, s.Extent.Bytes)})
	}
	return list
}

// decodeOf says what the load of a group takes whose slot is filled from blocks that stay, where it has one.
func decodeOf(group *plan.Group, r cost.Rates) {
	if group.Decoded = group.Decoded && group.Paged(); group.Decoded {
		group.LoadSeconds, group.DiskSeconds = r.Decoding(plan.SpanBytes(group.Spans)), nil
	}
}

// layStored places blocks of packed files behind what stays.
func layStored(p *plan.Plan) {
	if len(p.Fixed.Stored) == 0 {
		return
	}
	p.Fixed.Stored = slices.Clone(p.Fixed.Stored)
	for i := range p.Fixed.Stored {
		s := &p.Fixed.Stored[i]
		s.Offset = plan.AlignUp(p.Fixed.Bytes, p.Target.AlignBytes)
		p.Fixed.Bytes = s.Offset + s.Bytes
	}
}

// storedAs has the blocks stay that stay in another plan, in the same places, and groups of which all are there decoded
// from them.
func (d *draft) storedAs(other *plan.Plan) {
	d.base.Fixed.Stored = other.Fixed.Stored
	for i := range d.groups {
		group := &d.groups[i]
		group.Decoded = !slices.ContainsFunc(group.Spans, func(s plan.Span) bool {
			_, ok := other.Fixed.StoredOf(s.Extent)
			return !ok
		})
		decodeOf(group, d.o.Rates)
	}
}
