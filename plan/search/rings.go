package search

import (
	"cmp"
	"math"
	"slices"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/plan"
)

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
	best, computed, doubt := math.Inf(1), 0.0, 0.0
	if d.o.Target.Direct {
		doubt = cost.DiskDoubt
	}
	var total int64
	var loads lanes
	for i := range d.stages {
		computed += d.stages[i].compute
		if d.stages[i].paged {
			loads.add(d.stages[i].load, d.stages[i].disks)
			total += d.groups[i].SlotBytes
		}
	}
	bound := max(loads.most()*(1+doubt), computed)
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
				disks: group.DiskSeconds, slot: group.SlotBytes, copied: cachedSeconds(d.o.Rates, d.o.Target, group),
			}
			if d.pauses != nil {
				d.shares[i].compute += d.pauses[i]
			}
			if len(group.Parts) > 0 && !d.o.Target.Direct {
				disk, _ := reading(d.o.Rates, d.o.disks, group.Spans)
				d.shares[i].disk = max(group.LoadSeconds, disk)
				d.shares[i].staged = plan.SpanBytes(group.Spans)
			}
		}
	}
	d.stages, d.paged = d.stages[:0], d.paged[:0]
	var total int64
	for i := range d.shares {
		s := &d.shares[i]
		paged := s.slot > 0 && (keep == nil || !keep[i])
		d.stages = append(d.stages, stage{compute: s.compute, paged: paged, load: s.load, disks: s.disks})
		if paged {
			d.stages[i].copy(s.copied)
			d.paged = append(d.paged, i)
			total += s.staged
		}
	}
	room := d.o.HostBytes - d.base.SwapBytes - d.base.GatherBytes - d.base.WaitingBytes() - stagingBytes
	if d.o.Target.Direct || d.o.HostBytes == 0 || total <= room {
		return
	}
	fromDisk := 1 - max(float64(room), 0)/float64(total) // the part of the groups of which host memory has no copy
	for _, i := range d.paged {
		d.stages[i].disks = nil
		d.stages[i].load += fromDisk * (d.shares[i].disk - d.shares[i].load)
	}
}

// A share is what a simulation knows of a group: what its ops take, its load with and without a copy in host memory,
// what of it is copied out of the page cache, its slot and its bytes in host memory.
type share struct {
	compute, load, disk, copied float64
	// disks are the parts of the load by disk, where there are several.
	disks        []float64
	slot, staged int64
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
