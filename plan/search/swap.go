package search

import (
	"cmp"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
)

const (
	// leastSwapBytes is the smallest activation that is worth two copies, mostSwaps how many may be on their way in a
	// pass.
	leastSwapBytes = 4 << 10
	mostSwaps      = 256
)

// A wait is a time between two uses of an activation, in which it may be in host memory.
type wait struct {
	value graph.ValueID
	// from is the step after which it may leave, to the one before which it must be back.
	from, to int
	// bytes are copied, each way. size is what it takes while it is idle, and what it takes besides in the two steps,
	// where each has one instance's bytes only while that instance passes.
	bytes, size int64
	// frees are where less is alive while it waits, or, where the bytes are negative, more.
	frees []relief
	// again, where it is set, says that it does not wait anywhere but is computed anew.
	again *again
}

// A relief is a run of ops, [first, end), and how many bytes fewer are alive there.
type relief struct {
	first, end int
	bytes      int64
}

// swapped returns the draft in which idle activations wait in host memory, or in a file beside it, until the others take
// no more than targetBytes, or no more than they can. It returns nil where none can wait: the host's memory is the
// device's and there is no file, or nothing is idle where it counts.
func (d *draft) swapped(targetBytes int64) *draft {
	if d.o.Target.Direct && d.o.SwapBytes == 0 {
		return nil
	}
	if targetBytes > 0 {
		return d.makeSwapped(targetBytes)
	}
	if !d.hasWaiting {
		d.waiting, d.hasWaiting = d.makeSwapped(0), true
	}
	return d.waiting
}

// mostSwapTries bounds how often other activations are sent away: since those that stay have gaps between them, or since
// there is no room for those that go.
const mostSwapTries = 8

// makeSwapped cuts no group where that makes the arena no smaller.
func (d *draft) makeSwapped(targetBytes int64) *draft {
	e := d.swappedBetween(d.steps(false), targetBytes)
	if e != nil && e.base.ActivationBytes <= targetBytes {
		return e
	}
	if steps := d.steps(true); len(steps) > len(d.groups) {
		return smaller(e, d.swappedBetween(steps, targetBytes))
	}
	return e
}

// swappedBetween is makeSwapped where activations leave and come back between the given steps.
func (d *draft) swappedBetween(steps []step, targetBytes int64) *draft {
	waits, live := d.waits(steps), d.live()
	if len(live) == 0 || len(waits) == 0 {
		return nil
	}
	if targetBytes <= 0 {
		return d.leastSwapped(live, waits, steps)
	}
	var best *draft
	level := targetBytes
	for range mostSwapTries {
		e, _ := d.withWaits(chooseWaits(live, waits, level), steps)
		if e == nil {
			break
		}
		best = smaller(best, e)
		over := e.base.ActivationBytes - targetBytes
		if level -= over; over <= 0 || level <= 0 {
			break
		}
	}
	return best
}

// leastSwapped returns the draft that takes the least for activations.
func (d *draft) leastSwapped(live []int64, waits []wait, steps []step) *draft {
	best, fits := d.withWaits(chooseWaits(live, waits, 0), steps)
	if fits {
		// Whatever else is idle where most is alive leaves, too, if the arena is smaller so.
		most, _ := d.withWaits(chooser{live, waits, 0}.largest(), steps)
		return smaller(best, most)
	}
	low, high := int64(0), slices.Max(live)
	for range mostSwapTries {
		level := low + (high-low)/2
		e, fits := d.withWaits(chooseWaits(live, waits, level), steps)
		if !fits {
			low = level
			continue
		}
		best, high = smaller(best, e), level
	}
	return best
}

// smaller returns the draft with the smaller arena for activations, the first where both are as large. Either may be nil.
func smaller(a, b *draft) *draft {
	if a == nil || b != nil && b.base.ActivationBytes < a.base.ActivationBytes {
		return b
	}
	return a
}

// withWaits returns the draft in which what is chosen waits, nil where nothing is gained, and whether there is room for
// what waits.
func (d *draft) withWaits(chosen []wait, steps []step) (e *draft, fits bool) {
	if len(chosen) == 0 {
		return nil, true
	}
	most := d.o.HostBytes
	if d.o.Target.Direct {
		most = d.o.SwapBytes
	} else if most > 0 {
		most = max(most-d.base.WaitingBytes(), 1)
	}
	s := d.rename(chosen, steps, false)
	if most > 0 && s.hostBytes > most {
		// What waits twice is copied twice, and its room is not kept in between.
		if s = d.rename(chosen, steps, true); s.hostBytes > most {
			return nil, false
		}
	}
	l, seconds := &graph.Lowered{Graph: s.g, Steps: d.l.Steps}, d.seconds
	if len(s.from) > len(seconds) {
		l.Steps, seconds = make([]graph.Step, len(s.from)), make([]float64, len(s.from))
		for i, k := range s.from {
			l.Steps[i], seconds[i] = d.l.Steps[k], d.seconds[k]
		}
	}
	e = newDraft(l, s.groups, d.o, seconds)
	e.whole, e.origin = true, s.origin
	e.stay(d.always)
	e.base.SplitBytes, e.base.Cuts, e.base.SwapBytes = d.base.SplitBytes, d.base.Cuts, s.hostBytes
	if e.base.ActivationBytes >= d.base.ActivationBytes {
		return nil, true
	}
	return e, true
}

// live returns the bytes of activations that are alive at each op.
func (d *draft) live() []int64 {
	live := make([]int64, len(d.l.Graph.Ops)+2)
	root := d.base.Roots()
	last := make([]int, len(root))
	for id := range d.base.Places {
		last[root[id]] = max(last[root[id]], d.base.Places[id].Last)
	}
	for id := range d.base.Places {
		place := &d.base.Places[id]
		if place.First < 0 || place.Bytes == 0 || place.Over {
			continue
		}
		n := plan.AlignUp(place.Bytes, d.o.Target.AlignBytes)
		if place.Stride > 0 {
			n = place.Stride * int64(d.o.Instances)
		}
		live[place.First] += n
		live[last[id]+1] -= n
	}
	for i := 1; i < len(live); i++ {
		live[i] += live[i-1]
	}
	return live[:len(d.l.Graph.Ops)]
}

// A step is a run of ops, [first, end), of one group between which and others activations may leave and come back.
type step struct{ first, end, group int }

// steps returns them, in order: the groups, or fine ones. Where one instance passes at a time a group can be cut between any
// two ops that do not read the same weight: what its last ops need is then not on the device while the first run. What
// several instances leave between groups is held for each of them, so that their groups stay whole.
func (d *draft) steps(fine bool) []step {
	var list []step
	for k := range d.groups {
		group := &d.groups[k]
		if !fine || d.o.Instances > 1 || group.Joined != nil || group.EndRow > 0 || group.Rows {
			list = append(list, step{group.First, group.End, k})
			continue
		}
		last := make(map[graph.ValueID]int) // which op reads a weight last
		for i := group.First; i < group.End; i++ {
			for _, part := range plan.OpParts(d.l.Graph, &d.l.Graph.Ops[i]) {
				last[part.Value] = i
			}
		}
		first, needed := group.First, group.First
		for i := group.First; i < group.End; i++ {
			for _, part := range plan.OpParts(d.l.Graph, &d.l.Graph.Ops[i]) {
				needed = max(needed, last[part.Value])
			}
			if needed <= i {
				list = append(list, step{first, i + 1, k})
				first = i + 1
			}
		}
		if group.First == group.End {
			list = append(list, step{group.First, group.End, k})
		}
	}
	return list
}

// waits lists the times in which activations are not used.
func (d *draft) waits(steps []step) []wait {
	g := d.l.Graph
	used := make([][]int, len(g.Values)) // steps, in order
	never := make([]bool, len(g.Values))
	use := func(id graph.ValueID, step int) {
		if place := &d.base.Places[id]; place.First < 0 || place.Bytes < leastSwapBytes {
			return
		}
		if n := len(used[id]); n == 0 || used[id][n-1] != step {
			used[id] = append(used[id], step)
		}
	}
	for k, step := range steps {
		for i := step.first; i < step.end; i++ {
			op := &g.Ops[i]
			for _, o := range op.In {
				if o.Value != graph.NoValue {
					use(o.Value, k)
				}
			}
			for _, c := range op.Guard {
				never[c.Predicate.Value] = true
			}
			for _, id := range op.Out {
				use(id, k)
				never[id] = never[id] || len(op.Guard) > 0 // whether it was made is known under its number
			}
		}
	}
	for _, u := range g.Updates {
		never[u.Operand.Value] = true
	}
	var list []wait
	r := d.recomputing(steps)
	for id := range g.Values {
		place := &d.base.Places[id]
		if never[id] || len(used[id]) < 2 {
			continue
		}
		bytes := plan.AlignUp(place.Bytes, d.o.Target.AlignBytes)
		for k, to := range used[id][1:] {
			from := used[id][k]
			w := wait{value: graph.ValueID(id), from: from, to: to, bytes: bytes * int64(d.o.Instances)}
			w.size = w.bytes
			w.free(steps[from].end, steps[to].first, w.bytes)
			if d.o.Instances > 1 && len(used[id]) == 2 {
				freed := bytes * int64(d.o.Instances-1)
				w.size += freed
				w.free(steps[from].first, steps[from].end, freed)
				w.free(steps[to].first, steps[to].end, freed)
			}
			if again := r.insteadOf(graph.ValueID(id), steps[from], steps[to], len(used[id]) == 2); again != nil {
				w.again, w.frees = again, again.frees
			}
			if len(w.frees) > 0 {
				list = append(list, w)
			}
		}
	}
	return list
}

// free notes that less is alive at the ops [first, end).
func (w *wait) free(first, end int, bytes int64) {
	if first < end {
		w.frees = append(w.frees, relief{first, end, bytes})
	}
}

// A swapper makes the graph in which what comes back is a value of its own.
type swapper struct {
	g      *graph.Graph
	groups []plan.Group
	// origin is which group of the graph before it was split each group is of, groupOf which group each step is of.
	origin, groupOf []int
	hostBytes       int64
	// from has the op of the graph before that each op is, or is computed as anew.
	from []int
	// names are the numbers that a value has one after the other.
	names map[graph.ValueID][]naming
}

// A naming is the number that a value has for those ops that read it from an op on.
type naming struct {
	from int
	id   graph.ValueID
}

// cut cuts the groups of a draft where something leaves or comes back.
func (s *swapper) cut(d *draft, chosen []wait, steps []step) {
	border := make(map[int]bool) // by op
	for _, w := range chosen {
		if w.again != nil {
			continue
		}
		border[steps[w.from].end], border[steps[w.to].first] = true, true
	}
	for _, step := range steps {
		old := &d.groups[step.group]
		if step.first == old.First || border[step.first] {
			s.groups, s.origin = append(s.groups, sameModule(old, step.first, step.end)), append(s.origin, step.group)
		}
		s.groups[len(s.groups)-1].End = step.end
		s.groupOf = append(s.groupOf, len(s.groups)-1)
	}
	for n := range s.groups {
		group, old := &s.groups[n], &d.groups[s.origin[n]]
		if group.First == old.First && group.End == old.End {
			*group = d.again(s.origin[n])
		} else {
			for i := group.First; i < group.End; i++ {
				group.Parts = append(group.Parts, plan.OpParts(d.l.Graph, &d.l.Graph.Ops[i])...)
			}
			count(d.l.Graph, s.groups[n:n+1])
		}
		s.origin[n] = d.originOf(s.origin[n])
	}
}

// rename makes it for what is chosen. Again says that what waits a second time is copied a second time, instead of its
// room being kept in between.
func (d *draft) rename(chosen []wait, steps []step, again bool) *swapper {
	s := &swapper{}
	s.cut(d, chosen, steps)
	g := *d.l.Graph
	g.Values = append(make([]graph.Value, 0, len(g.Values)+len(chosen)), g.Values...)
	g.Ops = slices.Clone(g.Ops)
	s.g = &g
	slices.SortFunc(chosen, func(a, b wait) int { return cmp.Or(cmp.Compare(a.value, b.value), cmp.Compare(a.from, b.from)) })
	s.names = make(map[graph.ValueID][]naming)
	readers := readersOf(&g, chosen)
	fresh := make([]bool, len(g.Ops)) // whose operands are copies
	var hosted []item
	lastOf := make(map[graph.ValueID]int) // what of hosted is a value's
	type place struct{ hosted, group, index int }
	var ins, outs []place // in the lists of the groups
	for _, w := range chosen {
		before := s.name(w.value, len(g.Ops))
		v := g.Values[w.value]
		after := graph.ValueID(len(g.Values))
		g.Values = append(g.Values, graph.Value{Name: v.Name, DType: v.DType, Shape: v.Shape})
		from, to := s.groupOf[w.from], s.groupOf[w.to]
		out, in := &s.groups[from], &s.groups[to]
		first := in.First
		if w.again != nil {
			first = w.again.before
		} else {
			stride := plan.AlignUp(v.Bytes(), d.o.Target.AlignBytes)
			if id, left := lastOf[w.value]; left && !again {
				hosted[id].last = to
			} else {
				lastOf[w.value] = len(hosted)
				outs = append(outs, place{len(hosted), from, len(out.SwapOut)})
				hosted = append(hosted, item{id: len(hosted), first: from, last: to, bytes: stride * int64(d.o.Instances)})
				out.SwapOut = append(out.SwapOut, plan.Swap{Value: before, Bytes: v.Bytes(), Stride: stride})
			}
			ins = append(ins, place{lastOf[w.value], to, len(in.SwapIn)})
			in.SwapIn = append(in.SwapIn, plan.Swap{Value: after, Bytes: v.Bytes(), Stride: stride})
		}
		s.names[w.value] = append(s.names[w.value], naming{first, after})
		for _, i := range readers[w.value] {
			if i >= first {
				fresh[i] = rewire(&g.Ops[i], before, after, fresh[i])
			}
		}
	}
	s.hostBytes = pack(hosted, len(s.groups))
	offsets := make([]int64, len(hosted))
	for _, it := range hosted {
		offsets[it.id] = it.offset
	}
	for _, at := range outs {
		s.groups[at.group].SwapOut[at.index].Offset = offsets[at.hosted]
	}
	for _, at := range ins {
		s.groups[at.group].SwapIn[at.index].Offset = offsets[at.hosted]
	}
	s.from = s.insert(chosen)
	return s
}

// readersOf lists the ops that read each of the values that wait, in order.
func readersOf(g *graph.Graph, chosen []wait) map[graph.ValueID][]int {
	readers := make(map[graph.ValueID][]int)
	for _, w := range chosen {
		readers[w.value] = nil
	}
	for i := range g.Ops {
		for _, o := range g.Ops[i].In {
			if list, waits := readers[o.Value]; waits && (len(list) == 0 || list[len(list)-1] != i) {
				readers[o.Value] = append(list, i)
			}
		}
	}
	return readers
}

// rewire has an op read a value under another number. Fresh says that its operands are a copy already, and so does the
// result.
func rewire(op *graph.Op, before, after graph.ValueID, fresh bool) bool {
	for o := range op.In {
		if op.In[o].Value != before {
			continue
		}
		if !fresh {
			op.In, fresh = slices.Clone(op.In), true
		}
		op.In[o].Value = after
	}
	return fresh
}

// name returns the number that a value has for an op.
func (s *swapper) name(id graph.ValueID, op int) graph.ValueID {
	now := id
	for _, n := range s.names[id] {
		if n.from <= op {
			now = n.id
		}
	}
	return now
}
