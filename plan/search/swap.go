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
	// from is the group after which it may leave, to the one before which it must be back.
	from, to int
	// held is what it takes meanwhile, freed what it takes in the two groups besides, where each has one instance's bytes
	// only while that instance passes.
	held, freed int64
	chosen      bool
}

// swapped returns the draft in which idle activations wait in host memory until the others take no more than
// targetBytes, or no more than they can. It returns nil where none can wait: the host's memory is the device's, or
// nothing is idle where it counts.
func (d *draft) swapped(targetBytes int64) *draft {
	if d.o.Target.Direct {
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

func (d *draft) makeSwapped(targetBytes int64) *draft {
	chosen := d.chooseWaits(targetBytes)
	if len(chosen) == 0 {
		return nil
	}
	s := &swapper{d: d, groups: make([]plan.Group, len(d.groups))}
	for i := range d.groups {
		s.groups[i] = d.again(i)
	}
	s.rename(chosen)
	e := newDraft(&graph.Lowered{Graph: s.g, Steps: d.l.Steps}, s.groups, d.o, d.seconds)
	e.whole, e.origin = true, d.origin
	e.stay(d.always)
	e.base.SplitBytes, e.base.Cuts, e.base.SwapBytes = d.base.SplitBytes, d.base.Cuts, s.hostBytes
	if d.o.HostBytes > 0 && s.hostBytes > d.o.HostBytes || e.base.ActivationBytes >= d.base.ActivationBytes {
		return nil
	}
	return e
}

// chooseWaits chooses what waits: again and again the largest of what is idle while most is alive.
func (d *draft) chooseWaits(targetBytes int64) []wait {
	waits := d.waits() // the largest first
	slices.SortStableFunc(waits, func(a, b wait) int { return cmp.Compare(b.size(), a.size()) })
	live := d.live()
	var chosen []wait
	for len(chosen) < mostSwaps {
		at := 0
		for i := range live {
			if live[i] > live[at] {
				at = i
			}
		}
		if len(live) == 0 || live[at] <= targetBytes {
			break
		}
		best := slices.IndexFunc(waits, func(w wait) bool {
			if w.chosen {
				return false
			}
			idle := at > d.groups[w.from].End-1 && at < d.groups[w.to].First
			return idle || w.freed > 0 && at >= d.groups[w.from].First && at <= d.groups[w.to].End-1
		})
		if best < 0 {
			break
		}
		waits[best].chosen = true
		w := waits[best]
		for i := d.groups[w.from].End; i < d.groups[w.to].First; i++ {
			live[i] -= w.held
		}
		for _, k := range []int{w.from, w.to} {
			for i := d.groups[k].First; i < d.groups[k].End; i++ {
				live[i] -= w.freed
			}
		}
		chosen = append(chosen, w)
	}
	return chosen
}

func (w *wait) size() int64 { return w.held + w.freed }

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

// waits lists the times in which activations are not used.
func (d *draft) waits() []wait {
	g := d.l.Graph
	used := make([][]int, len(g.Values)) // groups, in order
	never := make([]bool, len(g.Values))
	use := func(id graph.ValueID, group int) {
		if place := &d.base.Places[id]; place.First < 0 || place.Bytes < leastSwapBytes {
			return
		}
		if n := len(used[id]); n == 0 || used[id][n-1] != group {
			used[id] = append(used[id], group)
		}
	}
	for k := range d.groups {
		for _, id := range d.groups[k].Inputs {
			use(id, k)
		}
		for i := d.groups[k].First; i < d.groups[k].End; i++ {
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
	for id := range g.Values {
		place := &d.base.Places[id]
		if never[id] || len(used[id]) < 2 {
			continue
		}
		bytes := plan.AlignUp(place.Bytes, d.o.Target.AlignBytes)
		for k, to := range used[id][1:] {
			from := used[id][k]
			w := wait{value: graph.ValueID(id), from: from, to: to, held: bytes * int64(d.o.Instances)}
			if d.o.Instances > 1 && len(used[id]) == 2 {
				w.freed = bytes * int64(d.o.Instances-1)
			}
			if to-from > 1 || w.freed > 0 {
				list = append(list, w)
			}
		}
	}
	return list
}

// A swapper makes the graph in which what comes back is a value of its own.
type swapper struct {
	d         *draft
	g         *graph.Graph
	groups    []plan.Group
	hostBytes int64
}

func (s *swapper) rename(chosen []wait) {
	d := s.d
	g := *d.l.Graph
	g.Values = append(make([]graph.Value, 0, len(g.Values)+len(chosen)), g.Values...)
	g.Ops = slices.Clone(g.Ops)
	s.g = &g
	slices.SortFunc(chosen, func(a, b wait) int { return cmp.Or(cmp.Compare(a.value, b.value), cmp.Compare(a.from, b.from)) })
	now := make(map[graph.ValueID]graph.ValueID)
	fresh := make([]bool, len(g.Ops)) // whose operands are copies
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
	var hosted []item
	var places [][2]int // in the lists of the groups
	for k, w := range chosen {
		before, ok := now[w.value]
		if !ok {
			before = w.value
		}
		v := g.Values[w.value]
		after := graph.ValueID(len(g.Values))
		g.Values = append(g.Values, graph.Value{Name: v.Name, DType: v.DType, Shape: v.Shape})
		now[w.value] = after
		stride := plan.AlignUp(v.Bytes(), d.o.Target.AlignBytes)
		out, in := &s.groups[w.from], &s.groups[w.to]
		hosted = append(hosted, item{id: k, first: w.from, last: w.to, bytes: stride * int64(d.o.Instances)})
		out.SwapOut = append(out.SwapOut, plan.Swap{Value: before, Stride: stride})
		in.SwapIn = append(in.SwapIn, plan.Swap{Value: after, Stride: stride})
		places = append(places, [2]int{len(out.SwapOut) - 1, len(in.SwapIn) - 1})
		for _, i := range readers[w.value] {
			if i < in.First {
				continue
			}
			for o := range g.Ops[i].In {
				if g.Ops[i].In[o].Value != before {
					continue
				}
				if !fresh[i] {
					g.Ops[i].In, fresh[i] = slices.Clone(g.Ops[i].In), true
				}
				g.Ops[i].In[o].Value = after
			}
		}
	}
	s.hostBytes = pack(hosted, len(s.groups))
	for _, it := range hosted {
		w, at := chosen[it.id], places[it.id]
		s.groups[w.from].SwapOut[at[0]].Offset, s.groups[w.to].SwapIn[at[1]].Offset = it.offset, it.offset
	}
}
