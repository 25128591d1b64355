package search

import (
	"cmp"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
)

// placeActivations places the inputs and results of a graph in an arena, in which values that are not alive together
// share bytes, and returns its size. With several instances in flight, a value that is needed in more groups than one
// has a copy for each instance and is alive from the start of the first of them to the end of the last; a value within
// a group has one, since an instance is done with the group before the next begins. A result takes the place of an
// operand that dies where it is made if the op may write over it, unless more memory is needed so.
func placeActivations(p *plan.Plan) int64 {
	p.Places = make([]plan.Place, len(p.Lowered.Graph.Values))
	findLifetimes(p)
	before := slices.Clone(p.Places)
	if !writeOver(p) {
		total, _ := layOut(p)
		return total
	}
	total, alive := layOut(p)
	if total > alive { // there are gaps between them: perhaps fewer without
		over := p.Places
		p.Places = before
		if apart, _ := layOut(p); apart < total {
			return apart
		}
		p.Places = over
	}
	return total
}

// layOut gives values their places in the arena. It returns the arena's size, and the most that is alive at once.
func layOut(p *plan.Plan) (total, alive int64) {
	g := p.Lowered.Graph
	groupOf := groupsOfOps(p.Groups, len(g.Ops))
	lastOp := max(len(g.Ops)-1, 0)
	root := p.Roots()
	live := make([]item, 0, len(g.Ops)+len(g.Inputs))
	at := make([]int32, len(g.Values)) // in live, from 1
	for id := range g.Values {
		v, place := &g.Values[id], &p.Places[id]
		if v.Role != graph.Computed && v.Role != graph.Input || place.First < 0 {
			place.First, place.Last = -1, -1
			continue
		}
		if place.Bytes = v.Bytes(); place.Bytes == 0 {
			continue
		}
		r := root[id]
		if at[r] == 0 {
			size := plan.AlignUp(place.Bytes, p.Target.AlignBytes)
			live = append(live, item{id: int(r), first: place.First, last: place.Last, bytes: size})
			at[r] = int32(len(live))
		}
		it := &live[at[r]-1]
		it.first, it.last = min(it.first, place.First), max(it.last, place.Last)
		it.several = it.several || p.Instances > 1 && groupOf[place.First] != groupOf[min(place.Last, lastOp)]
	}
	for id := range p.Places {
		place := &p.Places[id]
		if place.First < 0 || place.Bytes == 0 || !live[at[root[id]]-1].several {
			continue
		}
		place.Stride = live[at[root[id]]-1].bytes
		place.First = p.Groups[groupOf[place.First]].First
		place.Last = p.Groups[groupOf[min(place.Last, lastOp)]].End - 1
	}
	change := make([]int64, len(g.Ops)+2)
	for k := range live {
		it := &live[k]
		if it.several {
			it.first, it.last = p.Groups[groupOf[it.first]].First, p.Groups[groupOf[min(it.last, lastOp)]].End-1
			it.bytes *= int64(p.Instances)
		}
		change[it.first] += it.bytes
		change[it.last+1] -= it.bytes
	}
	var now int64
	for _, c := range change {
		now += c
		alive = max(alive, now)
	}
	total = pack(live, len(g.Ops))
	for _, it := range live {
		p.Places[it.id].Offset = it.offset
	}
	for id := range p.Places {
		if p.Places[id].Over {
			p.Places[id].Offset = p.Places[root[id]].Offset
		}
	}
	return total, alive
}

// groupsOfOps returns the group of each op.
func groupsOfOps(groups []plan.Group, ops int) []int {
	of := make([]int, ops+1)
	for k := range groups {
		for i := groups[k].First; i < groups[k].End; i++ {
			of[i] = k
		}
	}
	return of
}

// findLifetimes finds the first and the last op that need each value, −1 for one that none needs. Inputs are copied in
// before the group of the first op that reads them, outputs copied out after the group that makes them: the other side
// of a plan may wait for them.
func findLifetimes(p *plan.Plan) {
	g := p.Lowered.Graph
	for i := range p.Places {
		p.Places[i].First, p.Places[i].Last = -1, -1
	}
	read := func(id graph.ValueID, op int) {
		if place := &p.Places[id]; place.First < 0 {
			place.First, place.Last = op, op
		} else {
			place.Last = max(place.Last, op)
		}
	}
	for i := range g.Ops {
		op := &g.Ops[i]
		for _, o := range op.In {
			if o.Value != graph.NoValue {
				read(o.Value, i)
			}
		}
		for _, c := range op.Guard {
			read(c.Predicate.Value, i)
		}
		for _, id := range op.Out {
			read(id, i)
		}
	}
	last := len(g.Ops) - 1
	groupAt := func(op int) int {
		i, _ := slices.BinarySearchFunc(p.Groups, op, func(group plan.Group, op int) int {
			return cmp.Compare(group.End-1, op)
		})
		return min(i, len(p.Groups)-1) // a graph without ops has a group without ops
	}
	for _, id := range g.Inputs {
		place := &p.Places[id]
		if place.First < 0 {
			continue
		}
		group := &p.Groups[groupAt(place.First)]
		place.First = group.First
		group.Inputs = append(group.Inputs, id)
	}
	for k, o := range g.Outputs {
		place := &p.Places[o.Operand.Value]
		if g.Values[o.Operand.Value].Role == graph.Input && place.First < 0 { // it goes out as it came
			place.First, place.Last = 0, 0
			p.Groups[0].Inputs = append(p.Groups[0].Inputs, o.Operand.Value)
		}
		if place.First < 0 { // a weight: it is fixed
			p.Groups[0].Outputs = append(p.Groups[0].Outputs, k)
			continue
		}
		group := &p.Groups[groupAt(place.First)]
		place.Last = max(place.Last, group.End-1, 0)
		group.Outputs = append(group.Outputs, k)
	}
	for _, u := range g.Updates {
		if place := &p.Places[u.Operand.Value]; place.First >= 0 {
			place.Last = last
		}
	}
	for i := range p.Groups {
		group := &p.Groups[i]
		for _, s := range group.SwapIn {
			p.Places[s.Value].First = group.First
		}
		for _, s := range group.SwapOut {
			p.Places[s.Value].Last = max(p.Places[s.Value].Last, group.End-1)
		}
	}
}

// An item is a run of bytes that is needed from one op to another.
type item struct {
	id          int
	first, last int
	bytes       int64
	offset      int64
	// several says that each instance has one.
	several bool
}

// pack gives items offsets such that no two that are alive together overlap, the largest first, each in the smallest
// gap where it fits: within a few percent of the largest sum alive at once for real networks. It returns the size of
// the arena. The items are in another order then.
func pack(items []item, ops int) int64 {
	slices.SortStableFunc(items, func(a, b item) int { return cmp.Compare(b.bytes, a.bytes) })
	// alive holds, for each op, a list of the items placed so far that are alive there; few at a time. An entry is an item
	// and where the list goes on, from 1.
	alive := make([]int32, max(ops, 1)+1)
	spans := 0
	for k := range items {
		spans += items[k].last - items[k].first + 1
	}
	entries := make([][2]int32, 0, spans)
	seen := make([]int32, len(items))
	var near []int32
	var total int64
	for k := range items {
		it := &items[k]
		near = near[:0]
		for op := it.first; op <= it.last; op++ {
			for at := alive[op]; at > 0; at = entries[at-1][1] {
				if other := entries[at-1][0]; seen[other] != int32(k)+1 {
					seen[other] = int32(k) + 1
					near = append(near, other)
				}
			}
		}
		slices.SortFunc(near, func(a, b int32) int {
			return cmp.Or(cmp.Compare(items[a].offset, items[b].offset), cmp.Compare(a, b))
		})
		best, bestGap, at := int64(-1), int64(0), int64(0)
		for _, other := range near {
			o := &items[other]
			if gap := o.offset - at; gap >= it.bytes && (best < 0 || gap < bestGap) {
				best, bestGap = at, gap
			}
			at = max(at, o.offset+o.bytes)
		}
		if best < 0 {
			best = at
		}
		it.offset = best
		total = max(total, best+it.bytes)
		for op := it.first; op <= it.last; op++ {
			entries = append(entries, [2]int32{int32(k), alive[op]})
			alive[op] = int32(len(entries))
		}
	}
	return total
}
