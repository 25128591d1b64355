package plan

import (
	"math"
	"slices"

	"github.com/optimem/optimem/tensor"
)

// room returns the bytes that a budget leaves for weights, activations and scratch memory taken off.
func (d *draft) room() int64 {
	if d.o.MemoryBytes <= 0 {
		return math.MaxInt64 / 4
	}
	return d.o.MemoryBytes - d.base.ActivationBytes - d.base.WorkBytes
}

// fits returns a plan that is within the budget, or says what is missing of it.
func (d *draft) fits(p *Plan, min int64) (*Plan, error) {
	p.MinBytes = min
	if d.o.MemoryBytes > 0 && p.PeakBytes() > d.o.MemoryBytes {
		return nil, &CapacityError{NeedBytes: p.PeakBytes(), HaveBytes: d.o.MemoryBytes, MinBytes: min}
	}
	return p, nil
}

// like returns a plan whose weights lie as in the plan for other shapes, nil where there is none or the budget does not
// admit it.
func (d *draft) like() *Plan {
	other := d.o.Like
	if other == nil || other.Sides != nil { // the sides' pagers see for themselves whether weights can stay
		return nil
	}
	held := make(map[tensor.Extent]bool)
	for _, part := range other.Fixed.Parts {
		held[other.Lowered.Graph.Values[part.Value].Weight.Extent] = true
	}
	fixed := func(i int) bool {
		for _, part := range d.groups[i].Parts {
			if !held[d.l.Graph.Values[part.Value].Weight.Extent] {
				return false
			}
		}
		return true
	}
	for depth := d.o.Slots - 1; depth >= 0; depth-- {
		p := d.plan(fixed, other.RingBytes, depth)
		if p == nil || d.o.MemoryBytes > 0 && p.PeakBytes() > d.o.MemoryBytes || !SameFixed(p, other) {
			return nil
		}
		p.MinBytes, _, _ = d.least()
		if p.RingBytes <= other.RingBytes {
			return p
		}
	}
	return nil
}

// SameFixed reports whether two plans hold the same weights in the same places.
func SameFixed(a, b *Plan) bool {
	return a.Fixed.Bytes == b.Fixed.Bytes && slices.EqualFunc(a.Fixed.Parts, b.Fixed.Parts, func(x, y Part) bool {
		v, w := &a.Lowered.Graph.Values[x.Value], &b.Lowered.Graph.Values[y.Value]
		return v.Weight.Extent == w.Weight.Extent && v.Role == w.Role && x.Low == y.Low && x.High == y.High && x.Offset == y.Offset
	})
}

func (d *draft) resident() (*Plan, error) {
	p := d.plan(func(int) bool { return true }, 0, 0)
	return d.fits(p, p.PeakBytes())
}

// page streams every group, through the smallest ring that is as fast as any.
func (d *draft) page() (*Plan, error) {
	none := func(int) bool { return false }
	p := d.fastest([]*draft{d}, func(d *draft) *Plan {
		return d.bestRing(none, d.room()-d.alwaysBytes)
	})
	return d.paged(p)
}

// paged returns a plan made of paged groups, or the error that says which group has no room.
func (d *draft) paged(p *Plan) (*Plan, error) {
	min, path, needBytes := d.least()
	if p == nil {
		have := d.room() - d.alwaysBytes
		if have < 0 {
			path, needBytes, have = "", min, d.o.MemoryBytes
		}
		return nil, &CapacityError{Path: path, NeedBytes: needBytes, HaveBytes: have, MinBytes: min}
	}
	p.MinBytes = min
	return p, nil
}

// least returns the smallest budget under which groups can be paged, and the group that decides it.
func (d *draft) least() (bytes int64, path string, groupBytes int64) {
	for i, n := range d.slots {
		if n > groupBytes {
			groupBytes, path = n, d.groups[i].Path
		}
	}
	return d.alwaysBytes + d.base.ActivationBytes + d.base.WorkBytes + groupBytes, path, groupBytes
}

// fastest returns the plan that is expected to be the fastest of what make gives for each draft; among plans within a
// hundredth of it, the one that takes the least memory.
func (d *draft) fastest(drafts []*draft, make func(*draft) *Plan) *Plan {
	var plans []*Plan
	for _, e := range drafts {
		if p := make(e); p != nil {
			plans = append(plans, p)
		}
	}
	return cheapest(plans)
}

// tolerance is how much slower a plan may be that takes less memory.
const tolerance = 1.01

func cheapest(plans []*Plan) *Plan {
	if len(plans) == 0 {
		return nil
	}
	best := math.Inf(1)
	for _, p := range plans {
		best = min(best, p.Forecast.Seconds)
	}
	var chosen *Plan
	for _, p := range plans {
		if p.Forecast.Seconds <= best*tolerance && (chosen == nil || p.PeakBytes() < chosen.PeakBytes()) {
			chosen = p
		}
	}
	return chosen
}

// bestRing pages all groups that are not fixed through a ring of at most the given size: two slots where they are as good
// as more.
func (d *draft) bestRing(fixed func(int) bool, mostBytes int64) *Plan {
	var plans []*Plan
	for depth, bytes := range d.ringSizes(fixed) {
		for _, n := range []int64{bytes, bytes + bytes/int64(2*(depth+1))} {
			if p := d.plan(fixed, min(n, mostBytes), depth); p != nil && p.RingBytes <= mostBytes {
				plans = append(plans, p)
			}
		}
	}
	return cheapest(plans)
}

// ringSizes returns, for each depth, the size of the ring in which no slot overlaps those of the depth groups before it,
// if groups lay end to end.
func (d *draft) ringSizes(fixed func(int) bool) []int64 {
	var sizes []int64
	for i, n := range d.slots {
		if n > 0 && !fixed(i) {
			sizes = append(sizes, n)
		}
	}
	out := make([]int64, min(d.o.Slots, max(len(sizes), 1)))
	for depth := range out {
		for k := range sizes {
			var sum int64
			for j := range depth + 1 {
				sum += sizes[(k+j)%len(sizes)]
			}
			out[depth] = max(out[depth], sum)
		}
	}
	return out
}

// chunk fixes the largest prefix that the capacity admits; what follows is paged.
func (d *draft) chunk() (*Plan, error) {
	n := d.prefix(d.o.Capacity)
	if n < len(d.groups) && d.o.HostLower != nil {
		return d.divided(Resident, func(group int) bool { return group >= n })
	}
	fixed := func(i int) bool { return i < n }
	p := d.plan(fixed, 0, 0)
	if p == nil {
		p = d.bestRing(fixed, math.MaxInt64/4)
		if d.o.MemoryBytes > 0 && (p == nil || p.PeakBytes() > d.o.MemoryBytes) {
			p = d.bestRing(fixed, max(d.room()-d.fixedBytes(fixed), 0))
		}
		if p == nil {
			_, path, need := d.least()
			least := d.bestRing(fixed, math.MaxInt64/4)
			leastBytes := least.PeakBytes() - least.RingBytes + need
			return nil, &CapacityError{
				Path: path, NeedBytes: need, HaveBytes: d.room() - d.fixedBytes(fixed), MinBytes: leastBytes,
			}
		}
	}
	return d.fits(p, p.PeakBytes())
}

// prefix returns how many groups from the first on the capacity holds. A weight that several groups read counts once.
func (d *draft) prefix(capacity Limit) int {
	if capacity.Unit == Unset {
		return len(d.groups)
	}
	var used int64
	held := make(map[int32]bool)
	for i := range d.groups {
		for _, part := range d.groups[i].Parts {
			if held[int32(part.Value)] {
				continue
			}
			held[int32(part.Value)] = true
			n := part.High - part.Low
			if capacity.Unit == Params {
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

// fixedBytes returns what fixing groups takes.
func (d *draft) fixedBytes(fixed func(int) bool) int64 {
	var p Plan
	p.Target = d.o.Target
	p.fix(d.l.Graph, d.held(d.groups, fixed))
	return p.Fixed.Bytes + p.ConstBytes
}

// auto keeps everything where there is room. Else it keeps what helps most: several ways to choose are costed by
// simulation, from spread evenly over the pass to the groups whose loads take longest for what they compute, and the
// fastest plan is improved step by step.
func (d *draft) auto() (*Plan, error) {
	if p, err := d.resident(); err == nil {
		p.MinBytes, _, _ = d.least()
		p.Mode = Auto
		return p, nil
	}
	room := d.room() - d.alwaysBytes
	var plans []*Plan
	for depth := range min(d.o.Slots, max(len(d.groups), 1)) {
		for _, order := range [][]int{d.spread(), d.byNeed(), d.inOrder()} {
			if p := d.fill(order, room, depth); p != nil {
				plans = append(plans, p)
			}
		}
	}
	none := func(int) bool { return false }
	if p := d.bestRing(none, room); p != nil {
		plans = append(plans, p)
	}
	return d.paged(cheapest(plans))
}

// spread orders the groups so that every beginning of the order is spread evenly over the pass, by bytes: bit reversal.
func (d *draft) spread() []int {
	n := len(d.groups)
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
			order = append(order, r)
		}
	}
	return order
}

// byNeed orders the groups by how much longer their loads take than what they compute, for each byte.
func (d *draft) byNeed() []int {
	order := d.inOrder()
	need := make([]float64, len(d.groups))
	for i := range d.groups {
		if d.slots[i] == 0 {
			continue
		}
		load := float64(d.slots[i]) / d.rate()
		need[i] = (load - d.groups[i].Seconds*float64(d.o.Instances)) / float64(d.slots[i])
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case need[a] > need[b]:
			return -1
		case need[a] < need[b]:
			return 1
		}
		return 0
	})
	return order
}

// rate is what the slower of the ways to the ring brings in a second.
func (d *draft) rate() float64 {
	if d.o.Target.Direct {
		return d.o.Rates.DiskBytes
	}
	return d.o.Rates.CopyBytes
}

func (d *draft) inOrder() []int {
	order := make([]int, len(d.groups))
	for i := range order {
		order[i] = i
	}
	return order
}

// fill fixes groups in the given order as long as they and a ring of the given depth for the others fit. The ring that
// the others need shrinks as large groups leave it, so what that sets free is given out again.
func (d *draft) fill(order []int, room int64, depth int) *Plan {
	keep := make([]bool, len(d.groups))
	fixed := func(i int) bool { return keep[i] }
	var used int64
	for range 3 {
		sizes := d.ringSizes(fixed)
		ringBytes := sizes[min(depth, len(sizes)-1)]
		for _, i := range order {
			if n := d.slots[i]; n > 0 && !keep[i] && used+n+ringBytes <= room {
				keep[i] = true
				used += n
			}
		}
	}
	p := d.plan(fixed, room-used, depth)
	if p == nil || p.Fixed.Bytes+p.ConstBytes+p.RingBytes > room+d.alwaysBytes {
		return nil
	}
	return p
}
