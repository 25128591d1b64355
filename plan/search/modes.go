package search

import (
	"cmp"
	"math"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
)

// noLimit is a budget that everything is within.
const noLimit = math.MaxInt64 / 4

// room returns the bytes that the budget leaves for the ring and for weights that may stay.
func (d *draft) room() int64 {
	if d.o.MemoryBytes <= 0 {
		return noLimit
	}
	return d.o.MemoryBytes - d.restBytes()
}

// restBytes is what a plan takes beside the ring and the weights that may stay.
func (d *draft) restBytes() int64 { return d.base.ActivationBytes + d.base.WorkBytes + d.heldBytes() }

// heldBytes is what does not depend on how a pass is cut: caches, constants, the weights that always stay, what blocks of
// packed files go through, and slots of experts.
func (d *draft) heldBytes() int64 {
	return d.base.CacheBytes + d.alwaysBytes + d.landBytes + d.o.lending.slotBytes()
}

// keepAll returns plans that keep everything: first the plain one, then those that take less for activations, since
// micro-batches go through one after the other, or activations wait in host memory. The second result is what the one
// that takes the least takes.
func (d *draft) keepAll() ([]*plan.Plan, int64) {
	if d.kept != nil {
		return d.kept, d.keptBytes
	}
	drafts := []*draft{d}
	if e := d.merged(noLimit); e != nil {
		drafts = append(drafts, e)
	}
	for _, e := range slices.Clone(drafts) {
		if f := e.swapped(0); f != nil {
			drafts = append(drafts, f)
		}
	}
	var plans []*plan.Plan
	least := int64(noLimit)
	for _, e := range drafts {
		p := e.plan(slices.Repeat([]bool{true}, len(e.groups)), layout{})
		plans = append(plans, p)
		least = min(least, p.PeakBytes())
	}
	d.kept, d.keptBytes = plans, least
	return plans, least
}

// resident keeps everything.
func (d *draft) resident() (*plan.Plan, error) {
	plans, least := d.keepAll()
	for _, p := range plans {
		if d.o.MemoryBytes <= 0 || p.PeakBytes() <= d.o.MemoryBytes {
			p.MinBytes = least
			return p, nil
		}
	}
	return nil, &plan.CapacityError{NeedBytes: least, HaveBytes: d.o.MemoryBytes, MinBytes: least}
}

// page streams every group, through the smallest ring that is as fast as any. Tied weights stay where there is room.
func (d *draft) page() (*plan.Plan, error) {
	return d.thrifty().choose(func(e *draft) *plan.Plan {
		var plans []*plan.Plan
		for _, f := range e.tiedVariants() {
			if p := f.bestRing(f.room()); p != nil {
				plans = append(plans, p)
			}
		}
		return d.o.cheapest(plans)
	})
}

// choose returns the plan that is expected to be the fastest among what make gives for each variant of the draft.
func (d *draft) choose(make func(*draft) *plan.Plan) (*plan.Plan, error) {
	return d.chooseOf(d.variants, make)
}

func (d *draft) chooseOf(variants func() []*draft, make func(*draft) *plan.Plan) (*plan.Plan, error) {
	min, path, groupBytes := d.least()
	if d.o.MemoryBytes > 0 && d.o.MemoryBytes < min {
		have := d.lean().room()
		if have < 0 {
			path, groupBytes, have = "", min, d.o.MemoryBytes
		}
		return nil, &plan.CapacityError{Path: path, NeedBytes: groupBytes, HaveBytes: have, MinBytes: min}
	}
	var plans []*plan.Plan
	list := variants()
	for _, e := range list {
		e.effort = 1 / float64(len(list))
	}
	for _, e := range list {
		if p := make(e); p != nil {
			plans = append(plans, p)
		}
	}
	for _, e := range list { // activations leave where they have to
		if len(plans) > 0 {
			break
		}
		_, slot := e.largest()
		if e = e.swapped(d.o.MemoryBytes - e.base.WorkBytes - e.heldBytes() - 2*slot); e != nil {
			if p := make(e); p != nil {
				plans = append(plans, p)
			}
		}
	}
	if len(plans) == 0 {
		plans = append(plans, make(d.lean()))
	}
	p := d.o.cheapest(plans)
	p.MinBytes = min
	return p, nil
}

// least returns the smallest budget under which groups can be paged, and the group that decides it.
func (d *draft) least() (bytes int64, path string, groupBytes int64) {
	lean := d.lean()
	path, groupBytes = lean.largest()
	return lean.restBytes() + groupBytes, path, groupBytes
}

// slotBytes is what all slots take together.
func (d *draft) slotBytes() int64 {
	var total int64
	for i := range d.groups {
		total += d.groups[i].SlotBytes
	}
	return total
}

// largest returns the group with the largest slot.
func (d *draft) largest() (path string, slotBytes int64) {
	for i := range d.groups {
		if n := d.groups[i].SlotBytes; n > slotBytes {
			slotBytes, path = n, d.groups[i].Name()
		}
	}
	return path, slotBytes
}

// tolerance is how much slower a plan may be that takes less memory.
const tolerance = 1.01

// overHost reports whether a plan takes more host memory than the options allow.
func (o *Options) overHost(p *plan.Plan) bool { return o.HostBytes > 0 && p.HostBytes() > o.HostBytes }

// cheapest returns the plan that takes the least memory among those that are about as fast as the fastest; the first of
// several that take the same. It returns nil where there is none.
func (o *Options) cheapest(plans []*plan.Plan) *plan.Plan {
	if len(plans) == 0 {
		return nil
	}
	if within := slices.DeleteFunc(slices.Clone(plans), o.overHost); len(within) > 0 {
		plans = within
	}
	best, bound := math.Inf(1), math.Inf(1)
	for _, p := range plans {
		best, bound = min(best, p.Forecast.Seconds), min(bound, p.Forecast.LeastSeconds)
	}
	var chosen *plan.Plan
	for _, p := range plans {
		if p.Forecast.Seconds <= max(best*tolerance, bound*nearEnough) &&
			(chosen == nil || p.PeakBytes() < chosen.PeakBytes()) {
			chosen = p
		}
	}
	return chosen
}

// nearEnough is how much longer than what loads and ops take by themselves a pass may take before a larger ring is
// worth its memory.
const nearEnough = 1.02

// tiedVariants returns the draft, and the draft with as many tied weights as fit kept: those first that save most for
// each byte.
func (d *draft) tiedVariants() []*draft {
	variants := []*draft{d}
	if len(d.tied) == 0 {
		return variants
	}
	order := slices.Clone(d.tied)
	slices.SortStableFunc(order, func(a, b plan.Tied) int { return cmp.Compare(b.Readers, a.Readers) })
	for _, slots := range []int64{2, 1} {
		e := d
		for _, t := range order[:min(len(order), mostTied)] {
			f := e.with(d.partsOf(t.Value))
			if _, largest := f.largest(); f.room() >= slots*largest {
				e = f
			}
		}
		if e != d {
			variants = append(variants, e)
		}
		if e == d || len(e.always) >= len(d.always)+len(order) {
			break
		}
	}
	return variants
}

// mostTied bounds how many tied weights are looked at one by one.
const mostTied = 64

// partsOf returns what the groups read of a value.
func (d *draft) partsOf(id graph.ValueID) []plan.Part {
	var parts []plan.Part
	for i := range d.groups {
		for _, part := range d.groups[i].Parts {
			if part.Value == id {
				parts = append(parts, part)
			}
		}
	}
	return union(parts)
}

// chunk fixes the largest prefix that the capacity admits; what follows the host's processor computes, or it is paged.
func (d *draft) chunk() (*plan.Plan, error) {
	n := d.prefix(d.o.Capacity)
	if n < len(d.groups) && d.o.HostLower != nil {
		return d.divided(plan.Resident, nil, func(group int) bool { return group >= n })
	}
	base := d.pinned(n)
	if d.o.Capacity.Unit == plan.Unset { // with less memory the prefix is shorter
		base = d
	}
	return base.chooseOf(func() []*draft {
		var list []*draft
		for _, e := range d.variants() {
			list = append(list, e.prefixed(n))
		}
		return list
	}, func(e *draft) *plan.Plan { return e.bestRing(e.room()) })
}

// prefixed returns the draft with the first n groups of the graph kept, as it was before it was split.
func (d *draft) prefixed(n int) *draft {
	var kept []plan.Part
	for i := range d.groups {
		if d.originOf(i) < n {
			kept = append(kept, d.groups[i].Parts...)
		}
	}
	return d.with(kept)
}

// pinned is prefixed, and knows which draft takes the least memory.
func (d *draft) pinned(n int) *draft {
	e := d.prefixed(n)
	e.leanest = leaner(e, d.lean().prefixed(n))
	return e
}

// minBytes returns the smallest budget for which there is a plan in the mode asked for.
func (d *draft) minBytes() int64 {
	least, _, _ := d.thrifty().least()
	switch d.o.Mode {
	case plan.Page:
		return least
	case plan.Chunk:
		least, _, _ = d.least()
		if d.o.Capacity.Unit != plan.Unset {
			least, _, _ = d.pinned(d.prefix(d.o.Capacity)).least()
		}
		return least
	}
	_, all := d.keepAll()
	if d.o.Mode == plan.Resident {
		return all
	}
	return min(least, all)
}

// leaner returns the one of two drafts that takes less memory where groups are paged one by one.
func leaner(a, b *draft) *draft {
	_, m := a.largest()
	_, n := b.largest()
	if b.restBytes()+n < a.restBytes()+m {
		return b
	}
	return a
}

// prefix returns how many groups from the first on the capacity holds. A weight that several groups read counts once.
func (d *draft) prefix(capacity plan.Limit) int {
	if capacity.Unit == plan.Unset {
		return d.fittingPrefix()
	}
	var used int64
	held := make(map[graph.ValueID]bool)
	for i := range d.groups {
		for _, part := range d.groups[i].Parts {
			if held[part.Value] {
				continue
			}
			held[part.Value] = true
			n := part.High - part.Low
			if capacity.Unit == plan.Params {
				n = d.l.Graph.Values[part.Value].Params(n)
			}
			used += n
		}
		if used > capacity.N {
			return i
		}
	}
	return len(d.groups)
}

// fittingPrefix returns how many groups from the first on the budget holds, beside a ring of two slots for the others
// where these are not the host's.
func (d *draft) fittingPrefix() int {
	room := d.room()
	sum := make([]int64, len(d.groups)+1)
	for i := range d.groups {
		sum[i+1] = sum[i] + d.groups[i].SlotBytes
	}
	var pair, next int64 // the most that two neighbours take of the groups that follow, and the slot of the next paged one
	best := 0
	for n := len(d.groups); n >= 0; n-- {
		ring := pair
		if d.o.HostLower != nil {
			ring = 0
		}
		if sum[n]+ring <= room {
			best = n
			break
		}
		if n > 0 {
			if b := d.groups[n-1].SlotBytes; b > 0 {
				pair = max(pair, b+next)
				next = b
			}
		}
	}
	return best
}
