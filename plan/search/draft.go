package search

import (
	"cmp"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
)

// A draft is a plan being made: everything but which groups stay and how the ring is used.
type draft struct {
	o Options
	l *graph.Lowered
	// groups have their parts laid out as in a slot. Parts of what always stays are not among them.
	groups []plan.Group
	// origin is the group of the graph before it was split that each group is of.
	origin []int
	// always are the parts that stay in every mode: states, weights that go out as they are, tied weights once that is
	// decided.
	always []plan.Part
	// alwaysBytes is what they and the constants take.
	alwaysBytes int64
	// landBytes is what blocks of packed files that the device decodes go through.
	landBytes int64
	// tied are the weights that several groups read.
	tied []plan.Tied
	// base is a plan with nothing decided about weights: its activations and scratch memory do not depend on that.
	base plan.Plan
	// whole is set on drafts that are not to be split: they are, or they are one side of a plan with two.
	whole bool
	// joined is set where neighbouring groups were merged.
	joined bool
	// kept are the plans that keep everything, keptBytes what the smallest takes, once they were made.
	kept      []*plan.Plan
	keptBytes int64
	// merges, parts and waiting are the drafts made of this one: with neighbouring groups merged and with weights split,
	// by the most bytes of each, and with as many activations in host memory as can be; nil where that cannot be.
	merges, parts map[int64]*draft
	waiting       *draft
	hasWaiting    bool
	// seconds is what each op takes.
	seconds []float64
	// fine is the draft before small groups were joined, nil where none were.
	fine *draft
	// leanest is the draft that takes the least memory, once it was looked for.
	leanest *draft
	// saving is the draft in which only rows of embeddings are brought, once it was looked for.
	saving *draft
	// pauses is how long the device's ops wait after each group for the host's processor, nil for never.
	pauses []float64
	// effort is which part of the work of a search this draft's may take; 0 is all.
	effort float64
	// The rest is what simulations need, kept from one to the next.
	sim    simulation
	shares []share
	stages []stage
	visits []visit
	paged  []int
}

// newDraft places what does not depend on where weights are. Seconds is what each op takes, nil if that is not known
// yet.
func newDraft(l *graph.Lowered, groups []plan.Group, o Options, seconds []float64) *draft {
	d := &draft{o: o, l: l, groups: groups, seconds: seconds}
	g := d.l.Graph
	d.base = plan.Plan{
		Mode: o.Mode, Target: o.Target, Lowered: l, Instances: o.Instances, Once: o.Once, Groups: groups,
		Disks: o.disks,
	}
	d.base.ActivationBytes = placeActivations(&d.base)
	placeCaches(&d.base, &o)
	for i := range l.Steps {
		d.base.WorkBytes = max(d.base.WorkBytes, plan.AlignUp(l.Steps[i].WorkBytes, o.Target.AlignBytes))
	}
	if d.seconds == nil {
		d.seconds = o.Rates.GraphSeconds(l, o.Ops)
	}
	for i := range groups { // those of the draft that these were made of stay as they are
		groups[i].Joined = slices.Clone(groups[i].Joined)
	}
	d.gather(d.seconds)
	d.lend()
	for i := range groups {
		for _, s := range d.seconds[groups[i].First:groups[i].End] {
			groups[i].Seconds += s
		}
		for _, a := range groups[i].Again {
			groups[i].AgainSeconds += d.seconds[a.Op]
		}
		groups[i].SwapSeconds = d.swapSeconds(&groups[i])
		groups[i].Seconds += d.copies(&groups[i]) + groups[i].SwapSeconds
		at := groups[i].First
		for k := range groups[i].Joined {
			layer := &groups[i].Joined[k]
			layer.Seconds = 0
			for range layer.Ops {
				layer.Seconds += d.seconds[at]
				at++
			}
		}
	}
	if !o.Target.Direct {
		for _, u := range g.Updates { // read and written at the end
			groups[len(groups)-1].Seconds += 2 * d.copy(g.Values[u.State].Bytes())
		}
	}
	wanted := make(map[graph.ValueID]bool)
	for _, o := range g.Outputs {
		wanted[o.Operand.Value] = true
	}
	for _, u := range g.Updates {
		wanted[u.Operand.Value] = true
	}
	var always []plan.Part
	for id := range g.Values {
		v := &g.Values[id]
		if v.Role == graph.State || v.Role == graph.Weight && wanted[graph.ValueID(id)] {
			if n := v.Bytes(); n > 0 {
				always = append(always, plan.Part{Value: graph.ValueID(id), High: n})
			}
		}
	}
	d.tied = tied(groups)
	d.stay(always)
	return d
}

// tied lists the weights of which several groups read the same bytes. The parts of a weight that is split are read once
// each.
func tied(groups []plan.Group) []plan.Tied {
	var all []plan.Part
	for i := range groups {
		all = append(all, groups[i].Parts...)
	}
	slices.SortFunc(all, inOrder)
	var list []plan.Tied
	for first := 0; first < len(all); {
		end, shared, high := first, false, int64(0)
		for ; end < len(all) && all[end].Value == all[first].Value; end++ {
			shared = shared || all[end].Low < high
			high = max(high, all[end].High)
		}
		if shared {
			list = append(list, plan.Tied{Value: all[first].Value, Readers: end - first})
		}
		first = end
	}
	return list
}

// copy returns what a copy of n bytes to or from a device takes.
func (d *draft) copy(n int64) float64 {
	return float64(n)/d.o.Rates.CopyBytes + d.o.Rates.CopySeconds
}

// copies returns what a group's inputs and outputs take, on a device that is not Direct.
func (d *draft) copies(group *plan.Group) float64 {
	if d.o.Target.Direct {
		return 0
	}
	g := d.l.Graph
	var seconds float64
	for _, id := range group.Inputs {
		seconds += d.copy(g.Values[id].Bytes())
	}
	for _, k := range group.Outputs {
		if part, ok := plan.OperandPart(g, g.Outputs[k].Operand); ok {
			seconds += d.copy(part.High - part.Low)
		}
	}
	return seconds
}

// swapSeconds returns what a group's swaps take: copies, or reads and writes of a file.
func (d *draft) swapSeconds(group *plan.Group) (seconds float64) {
	for _, s := range slices.Concat(group.SwapIn, group.SwapOut) {
		seconds += d.swapCopySeconds(s.Bytes)
	}
	return seconds
}

// again returns one of the groups for a draft in which it has the same ops. What was found out about its slot stays
// known.
func (d *draft) again(k int) plan.Group {
	group := d.groups[k]
	if !isWhole(&group) {
		return d.union(k, k)
	}
	group.Inputs, group.Outputs, group.SwapIn, group.SwapOut, group.Again = nil, nil, nil, nil, nil
	group.Seconds, group.AgainSeconds = 0, 0
	return group
}

// isWhole reports whether the group's parts are all that its ops read of weights: none stays, or is brought by rows.
func isWhole(g *plan.Group) bool {
	bytes := g.WeightBytes
	for _, p := range g.Parts {
		bytes -= p.High - p.Low
	}
	return bytes == 0 && !g.Rows
}

// union returns neighbouring groups as one.
func (d *draft) union(first, last int) plan.Group {
	group := sameModule(&d.groups[first], d.groups[first].First, d.groups[last].End)
	if last == first {
		group.FirstRow, group.EndRow = d.groups[first].FirstRow, d.groups[first].EndRow
	}
	for k := first + 1; k <= last; k++ {
		group.Path = commonPath(group.Path, d.groups[k].Path)
	}
	for k := first; k <= last; k++ {
		if last > first || d.groups[k].Joined != nil {
			group.Joined = append(group.Joined, d.groups[k].Layers()...)
		}
		if isWhole(&d.groups[k]) {
			for _, p := range d.groups[k].Parts {
				group.Parts = append(group.Parts, plan.Part{Value: p.Value, Low: p.Low, High: p.High})
			}
			continue
		}
		for op := d.groups[k].First; op < d.groups[k].End; op++ {
			group.Parts = append(group.Parts, plan.OpParts(d.l.Graph, &d.l.Graph.Ops[op])...)
		}
	}
	one := []plan.Group{group}
	count(d.l.Graph, one)
	return one[0]
}

// stay adds parts to what always stays, and takes them out of the groups.
func (d *draft) stay(parts []plan.Part) {
	d.always = union(slices.Concat(d.always, parts))
	var p plan.Plan
	p.Target = d.o.Target
	fix(&p, d.l.Graph, slices.Clone(d.always))
	d.alwaysBytes = p.Fixed.Bytes + p.ConstBytes
	held := make(map[graph.ValueID]bool)
	for _, part := range d.always {
		held[part.Value] = true
	}
	for i := range d.groups {
		group := &d.groups[i]
		reads := func(part plan.Part) bool { return held[part.Value] && covered(d.always, part) }
		if slices.ContainsFunc(group.Parts, reads) {
			group.Parts = slices.DeleteFunc(slices.Clone(group.Parts), reads)
			group.Spans = nil
		}
		if group.Spans == nil {
			d.lay(group)
		}
	}
	d.landBytes = landBytes(d.groups)
}

// with returns the draft with further parts that always stay.
func (d *draft) with(parts []plan.Part) *draft {
	e := *d
	e.fine, e.kept, e.saving, e.merges, e.parts, e.waiting, e.hasWaiting = nil, nil, nil, nil, nil, nil, false
	e.groups = slices.Clone(d.groups)
	e.stages, e.visits, e.paged, e.shares, e.sim = nil, nil, nil, nil, simulation{}
	e.stay(parts)
	return &e
}

// lay lays out a group in its slot.
func (d *draft) lay(group *plan.Group) {
	g, r := d.l.Graph, d.o.Rates
	group.SlotBytes, group.LoadSeconds, group.DiskSeconds, group.Spans, group.LandBytes = 0, 0, nil, nil, 0
	if len(group.Parts) == 0 {
		return
	}
	if d.o.Target.Direct {
		var wanted int64
		for _, part := range group.Parts {
			wanted += part.High - part.Low
		}
		// What is read between parts takes room in the slot, so a small group has small gaps.
		group.Spans, group.SlotBytes = spans(g, group.Parts, min(maxGapBytes, wanted/8))
		group.LoadSeconds, group.DiskSeconds = reading(r, d.o.disks, group.Spans)
		return
	}
	if d.o.Target.Unpacks && d.layPacked(group) {
		return
	}
	group.Spans, group.SlotBytes = staged(g, group.Parts, d.o.Target.AlignBytes)
	group.LoadSeconds = copySeconds(r, group.Parts, d.o.Target.AlignBytes)
}

// plan completes a plan in which the groups for which keep is true stay, and the others go through a ring. It returns
// nil where a slot is larger than the ring.
func (d *draft) plan(keep []bool, use layout) *plan.Plan { return d.planStored(keep, nil, use) }

// planStored is plan; of the groups for which store is true the blocks of packed files stay, and the slots are filled
// from there.
func (d *draft) planStored(keep, store []bool, use layout) *plan.Plan {
	d.o.ask()
	g := d.l.Graph
	p := d.base
	p.Groups = slices.Clone(d.groups)
	held := slices.Clone(d.always)
	for i := range p.Groups {
		if group := &p.Groups[i]; keep != nil && keep[i] {
			held = append(held, group.Parts...)
			group.Parts = nil
			d.lay(group)
		}
	}
	held = union(held)
	p.Fixed.Stored = slices.Clip(p.Fixed.Stored)
	for i := range p.Groups {
		group := &p.Groups[i]
		d.drop(group, held)
		if store != nil && store[i] && group.Paged() {
			p.Fixed.Stored, group.Decoded = append(p.Fixed.Stored, storedOf(group)...), true
		}
		decodeOf(group, d.o.Rates)
	}
	fix(&p, g, held)
	var visits []visit
	for i := range p.Groups {
		if p.Groups[i].Paged() {
			visits = append(visits, visit{bytes: p.Groups[i].SlotBytes})
		}
	}
	if len(visits) > 0 && !use.place(visits) {
		return nil
	}
	for i := range p.Groups {
		if group := &p.Groups[i]; group.Paged() {
			group.SlotOffset, group.After = visits[0].offset, visits[0].after
			p.RingBytes = max(p.RingBytes, group.SlotOffset+group.SlotBytes)
			p.MovedBytes += group.SlotBytes
			visits = visits[1:]
		}
	}
	if p.LandBytes = landBytes(p.Groups); p.LandBytes > 0 {
		p.RingBytes = plan.AlignUp(p.RingBytes, p.Target.AlignBytes) + p.LandBytes
	}
	p.Tied = slices.Clone(d.tied)
	for k := range p.Tied {
		for i := range p.Groups {
			if slices.ContainsFunc(
				p.Groups[i].Parts, func(part plan.Part) bool { return part.Value == p.Tied[k].Value },
			) {
				p.Tied[k].Moves++
			}
		}
	}
	if !p.Target.Direct {
		keepCopies(&p, d.o)
	}
	forecast(&p, d.o.Rates)
	return &p
}

// drop takes tied weights that stay out of a group that does not.
func (d *draft) drop(group *plan.Group, held []plan.Part) {
	stays := func(part plan.Part) bool {
		return slices.ContainsFunc(d.tied, func(t plan.Tied) bool { return t.Value == part.Value }) &&
			covered(held, part)
	}
	if slices.ContainsFunc(group.Parts, stays) {
		group.Parts = slices.DeleteFunc(slices.Clone(group.Parts), stays)
		d.lay(group)
	}
}

// inOrder compares parts by their values, then by where they begin.
func inOrder(a, b plan.Part) int {
	return cmp.Or(cmp.Compare(a.Value, b.Value), cmp.Compare(a.Low, b.Low))
}

// union returns parts without what is in several: in the order of values, and each as long as it can be.
func union(parts []plan.Part) []plan.Part {
	slices.SortFunc(parts, inOrder)
	out := parts[:0]
	for _, p := range parts {
		p = plan.Part{Value: p.Value, Low: p.Low, High: p.High}
		if n := len(out); n > 0 && out[n-1].Value == p.Value && p.Low <= out[n-1].High {
			out[n-1].High = max(out[n-1].High, p.High)
			continue
		}
		out = append(out, p)
	}
	return out
}

// covered reports whether a part is within one of a union.
func covered(held []plan.Part, part plan.Part) bool {
	_, ok := plan.Covering(held, part)
	return ok
}

// fix lays out the weights that stay, and the constants.
func fix(p *plan.Plan, g *graph.Graph, parts []plan.Part) {
	p.Consts, p.ConstBytes = nil, 0
	for id := range g.Values {
		if v := &g.Values[id]; v.Role == graph.Const && len(v.Const) > 0 {
			n := int64(len(v.Const))
			p.Consts = append(p.Consts, plan.Part{Value: graph.ValueID(id), High: n, Offset: p.ConstBytes})
			p.ConstBytes += plan.AlignUp(n, p.Target.AlignBytes)
		}
	}
	p.Fixed = plan.Fixed{Parts: parts, Slots: p.Fixed.Slots, Stored: p.Fixed.Stored}
	for _, part := range parts {
		p.Fixed.WeightBytes += part.High - part.Low
		p.Fixed.Params += g.Values[part.Value].Params(part.High - part.Low)
	}
	if p.Target.Direct {
		p.Fixed.Spans, p.Fixed.Bytes = spans(g, parts, 0) // what is between them would stay, too
		laySlots(p)
		layStored(p)
		return
	}
	p.Fixed.Spans, p.Fixed.Bytes = staged(g, parts, p.Target.AlignBytes)
}
