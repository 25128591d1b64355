package search

import (
	"cmp"
	"math"
	"slices"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
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

// heldBytes is what does not depend on how a pass is cut: caches, constants, and the weights that always stay.
func (d *draft) heldBytes() int64 { return d.base.CacheBytes + d.alwaysBytes }

// like returns a plan whose weights lie as in the plan for other shapes, nil where there is none or the budget does not
// admit it.
func (d *draft) like() *plan.Plan {
	other := d.o.Like
	if other == nil || other.Sides != nil { // the sides' pagers see for themselves whether weights can stay
		return nil
	}
	e := d
	if len(other.Gathers) > 0 {
		e = d.gathered(other.Gathers)
	}
	if other.SplitBytes > 0 {
		if e = e.splitAs(other); e == nil {
			return nil
		}
	}
	held := make(map[storage.Extent][]plan.Part)
	for _, part := range other.Fixed.Parts {
		extent := other.Lowered.Graph.Values[part.Value].Weight.Extent
		held[extent] = append(held[extent], part)
	}
	packed := make(map[packedRun]string)
	for i := range other.Fixed.Packed {
		c := &other.Fixed.Packed[i]
		run := runOf(other, c)
		if !c.Copy {
			held[run.extent] = append(held[run.extent], plan.Part{Low: c.Low, High: c.High})
		}
		packed[run] = c.Pack.Form
	}
	var parts []plan.Part
	for id := range e.l.Graph.Values {
		v := &e.l.Graph.Values[id]
		if v.Role != graph.Weight && v.Role != graph.State {
			continue
		}
		for _, part := range held[v.Weight.Extent] {
			parts = append(parts, plan.Part{Value: graph.ValueID(id), Low: part.Low, High: part.High})
		}
	}
	e = e.with(parts)
	room := e.room()
	if d.o.MemoryBytes > 0 {
		room -= max(other.Fixed.Bytes-e.fixedBytes(), 0)
	}
	p := e.bestRing(min(other.RingBytes, room))
	if p == nil {
		return nil
	}
	packFixed(p, d.o.MemoryBytes, func(c *plan.Packed) bool { return packed[runOf(p, c)] == c.Pack.Form })
	if d.o.MemoryBytes > 0 && p.PeakBytes() > d.o.MemoryBytes || !plan.SameFixed(p, other) {
		return nil
	}
	p.MinBytes = d.minBytes()
	return p
}

// A packedRun is the bytes of an operand that is packed.
type packedRun struct {
	extent    storage.Extent
	low, high int64
}

func runOf(p *plan.Plan, c *plan.Packed) packedRun {
	return packedRun{p.Lowered.Graph.Values[c.Operand.Value].Weight.Extent, c.Low, c.High}
}

// fixedBytes is what the parts that always stay take.
func (d *draft) fixedBytes() int64 {
	p := plan.Plan{Target: d.o.Target}
	fix(&p, d.l.Graph, slices.Clone(d.always))
	return p.Fixed.Bytes
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
		if p.Forecast.Seconds <= max(best*tolerance, bound*nearEnough) && (chosen == nil || p.PeakBytes() < chosen.PeakBytes()) {
			chosen = p
		}
	}
	return chosen
}

// nearEnough is how much longer than what loads and ops take by themselves a pass may take before a larger ring is
// worth its memory.
const nearEnough = 1.02

// bestRing pages all groups through a ring of at most the given size: two slots where they are as good as more, and
// more than four neighbours' memory only where loads and ops would otherwise wait for each other.
func (d *draft) bestRing(mostBytes int64) *plan.Plan {
	if mostBytes < 0 {
		return nil
	}
	d.prepare(nil)
	type tried struct {
		use     layout
		seconds float64
		bytes   int64
	}
	var list []tried
	best, bound, computed, doubt := math.Inf(1), 0.0, 0.0, 0.0
	if d.o.Target.Direct {
		doubt = cost.DiskDoubt
	}
	var total int64
	for i := range d.stages {
		computed += d.stages[i].compute
		if d.stages[i].paged {
			bound += d.stages[i].load * (1 + doubt)
			total += d.groups[i].SlotBytes
		}
	}
	bound = max(bound, computed)
	try := func(uses []layout) {
		for _, use := range uses {
			use.bytes = min(use.bytes, mostBytes, total)
			if seconds, bytes, ok := d.try(use, doubt); ok {
				list = append(list, tried{use, seconds, bytes})
				best = min(best, seconds)
			}
		}
	}
	try(d.layouts())
	if d.o.Slots == 0 && best > bound*nearEnough {
		eighths := int64(8)
		if d.o.Target.Direct { // what helps against a disk's fits is not worth holding most of the model
			eighths = 4
		}
		for n := range eighths {
			try([]layout{{total * (n + 1) / 8, endToEnd}})
		}
	}
	list = slices.DeleteFunc(list, func(t tried) bool { return t.seconds > max(best*tolerance, bound*nearEnough) })
	if len(list) == 0 {
		return nil
	}
	return d.plan(nil, slices.MinFunc(list, func(a, b tried) int {
		return cmp.Or(cmp.Compare(a.bytes, b.bytes), cmp.Compare(a.seconds, b.seconds))
	}).use)
}

// defaultSlots is how many neighbours' memory a ring has at most where no number of slots was asked for.
const defaultSlots = 4

// layouts returns the ways to use a ring that are worth trying for the groups that are paged.
func (d *draft) layouts() []layout {
	slots := d.o.Slots
	if slots == 0 {
		slots = defaultSlots
	}
	var list []layout
	for depth, bytes := range d.ringSizes(slots) {
		// What lies end to end leaves gaps where it begins again, and what is put into gaps does not always fit.
		for _, n := range []int64{bytes, bytes + bytes/int64(2*(depth+1))} {
			list = append(list, layout{n, depth})
			if d.o.Slots == 0 && depth > 0 {
				list = append(list, layout{n, endToEnd})
			}
		}
	}
	return list
}

// ringSizes returns, for each depth below a number of slots, the size of the ring in which no slot overlaps those of
// the depth groups before it, if groups lay end to end.
func (d *draft) ringSizes(slots int) []int64 {
	n := len(d.paged)
	out := make([]int64, min(slots, max(n, 1)))
	for k := range d.paged {
		var sum int64
		for depth := range out {
			sum += d.groups[d.paged[(k+depth)%n]].SlotBytes
			out[depth] = max(out[depth], sum)
		}
	}
	return out
}

// prepare begins to try layouts for the groups for which keep is not true.
func (d *draft) prepare(keep []bool) {
	if d.shares == nil {
		d.shares = make([]share, len(d.groups))
		for i := range d.groups {
			group := &d.groups[i]
			d.shares[i] = share{
				compute: group.Seconds * float64(d.o.Instances), load: group.LoadSeconds, disk: group.LoadSeconds,
				slot: group.SlotBytes, copied: cachedSeconds(d.o.Rates, d.o.Target, group),
			}
			if d.pauses != nil {
				d.shares[i].compute += d.pauses[i]
			}
			if len(group.Parts) > 0 && !d.o.Target.Direct {
				d.shares[i].disk = max(group.LoadSeconds, diskSeconds(d.o.Rates, group))
				d.shares[i].staged = plan.SpanBytes(group.Spans)
			}
		}
	}
	d.stages, d.paged = d.stages[:0], d.paged[:0]
	var total int64
	for i := range d.shares {
		s := &d.shares[i]
		paged := s.slot > 0 && (keep == nil || !keep[i])
		d.stages = append(d.stages, stage{compute: s.compute, paged: paged, load: s.load})
		if paged {
			d.stages[i].copy(s.copied)
			d.paged = append(d.paged, i)
			total += s.staged
		}
	}
	room := d.o.HostBytes - d.base.SwapBytes - d.base.GatherBytes - stagingBytes
	if d.o.Target.Direct || d.o.HostBytes == 0 || total <= room {
		return
	}
	fromDisk := 1 - max(float64(room), 0)/float64(total) // the part of the groups of which host memory has no copy
	for _, i := range d.paged {
		d.stages[i].load += fromDisk * (d.shares[i].disk - d.shares[i].load)
	}
}

// A share is what a simulation knows of a group: what its ops take, its load with and without a copy in host memory,
// what of it is copied out of the page cache, its slot and its bytes in host memory.
type share struct {
	compute, load, disk, copied float64
	slot, staged                int64
}

// try returns what a pass takes with a layout where loads take longer by the share of doubt, and how large the ring is.
func (d *draft) try(use layout, doubt float64) (seconds float64, ringBytes int64, ok bool) {
	d.o.ask()
	d.visits = d.visits[:0]
	for _, i := range d.paged {
		d.visits = append(d.visits, visit{bytes: d.shares[i].slot})
	}
	if !use.place(d.visits) {
		return 0, 0, false
	}
	for k, i := range d.paged {
		d.stages[i].after = d.visits[k].after
		ringBytes = max(ringBytes, d.visits[k].offset+d.visits[k].bytes)
	}
	d.sim.fitful, d.sim.slower = d.o.Target.Direct, doubt+farShare(d.o.Target, ringBytes)
	seconds, _ = d.sim.run(d.stages)
	return seconds, ringBytes, true
}

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
				n /= int64(d.l.Graph.Values[part.Value].DType.Size())
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
