package search

import (
	"cmp"
	"slices"
)

// chooseWaits chooses which idle activations wait outside the device, such that no more than targetBytes are alive at any
// op, or no more than can be. Of the choices that it looks at it takes that which copies the fewest bytes, and if several
// do, the first. It is a function of sizes and times alone: live is what is alive at each op while nothing waits.
//
// To find the fewest bytes is as hard as packing a knapsack for every op. What is looked at is three ways to go about
// it: from the ops at which most is alive, the largest first (few copies); the same with those first that free most for
// each byte that is copied; and from the first op to the last, what has been idle the longest first, which is how IBM's
// Large Model Support reclaims memory when an allocation fails. What turns out not to be needed does not wait. Where there
// is little to choose from, all choices are looked at then that may copy less.
func chooseWaits(live []int64, waits []wait, targetBytes int64) []wait {
	c := chooser{live, waits, targetBytes}
	// Nothing is better than what is alive if all wait that can. What is computed anew may keep others for longer.
	least, plain := slices.Clone(live), slices.Clone(live)
	for i := range waits {
		waits[i].leave(least, -1)
		if !slices.ContainsFunc(waits[i].frees, func(r relief) bool { return r.bytes < 0 }) {
			waits[i].leave(plain, -1)
		}
	}
	c.target = max(targetBytes, min(slices.Max(least), slices.Max(plain)))
	var best []wait
	for _, list := range [][]wait{c.largest(), c.cheapest(), c.longest()} {
		list = c.needed(list)
		if best == nil || c.within(list) && (!c.within(best) || swapCopies(list) < swapCopies(best)) {
			best = list
		}
	}
	if !c.within(best) {
		return best
	}
	return c.fewest(best)
}

// fewestWork bounds the ops that are looked at in search of fewer bytes.
const fewestWork = 1 << 20

// fewest returns the list that copies the fewest bytes, or, where there are too many to look at, the best so far. At the
// first op at which too much is alive one of what is idle has to wait: each is tried, and from then on is done without.
func (c chooser) fewest(best []wait) []wait {
	live := slices.Clone(c.live)
	bestBytes, work := swapCopies(best), fewestWork
	const (
		open = iota
		taken
		out
	)
	state := make([]uint8, len(c.waits))
	var list []wait
	var try func(bytes int64)
	try = func(bytes int64) {
		if work -= len(live); work < 0 || bytes >= bestBytes || len(list) > mostSwaps {
			return
		}
		op := slices.IndexFunc(live, func(n int64) bool { return n > c.target })
		if op < 0 {
			best, bestBytes = slices.Clone(list), bytes
			return
		}
		var idle []int
		var could int64
		for k := range c.waits {
			if n := c.waits[k].freed(op); n > 0 && state[k] == open {
				idle, could = append(idle, k), could+n
			}
		}
		work -= len(c.waits)
		for _, k := range idle {
			w := &c.waits[k]
			if could < live[op]-c.target {
				break
			}
			copies := w.copies(list)
			state[k], list = taken, append(list, *w)
			w.leave(live, -1)
			try(bytes + copies)
			w.leave(live, 1)
			state[k], list = out, list[:len(list)-1]
			could -= w.freed(op)
		}
		for _, k := range idle {
			state[k] = open
		}
	}
	try(0)
	return best
}

// swapCopies is how many bytes waits copy: what waits more than once leaves once, and comes back every time. What is
// computed anew counts for what could be copied meanwhile.
func swapCopies(list []wait) int64 {
	var n int64
	for i := range list {
		n += list[i].copies(list[:i])
	}
	return n
}

// copies is how many bytes a wait copies beside others.
func (w *wait) copies(others []wait) int64 {
	if w.again != nil {
		return 2 * w.again.cost
	}
	if slices.ContainsFunc(others, func(o wait) bool { return o.value == w.value && o.again == nil }) {
		return w.bytes
	}
	return 2 * w.bytes
}

// cost is how many bytes it copies each way, or could meanwhile.
func (w *wait) cost() int64 {
	if w.again != nil {
		return w.again.cost
	}
	return w.bytes
}

// A chooser has what a choice depends on.
type chooser struct {
	live   []int64
	waits  []wait
	target int64
}

// leave adds what a wait frees, times sign, to what is alive.
func (w *wait) leave(live []int64, sign int64) {
	for _, s := range w.frees {
		for i := s.first; i < s.end; i++ {
			live[i] += sign * s.bytes
		}
	}
}

// freed returns how much less is alive at an op while it waits.
func (w *wait) freed(op int) int64 {
	var n int64
	for _, s := range w.frees {
		if s.first <= op && op < s.end {
			n += s.bytes
		}
	}
	return n
}

// useful returns how many of the bytes over the target a wait frees, over all ops.
func (w *wait) useful(live []int64, target int64) float64 {
	var n float64
	for _, s := range w.frees {
		for i := s.first; i < s.end; i++ {
			n += float64(min(max(live[i]-target, 0), s.bytes))
		}
	}
	return n
}

// largest chooses, again and again, the largest of what is idle while most is alive.
func (c chooser) largest() []wait {
	order := slices.Clone(c.waits)
	slices.SortStableFunc(order, func(a, b wait) int { return cmp.Compare(b.size, a.size) })
	return c.fromTheTop(order, func(list []int, _ []int64) int { return list[0] })
}

// cheapest chooses, again and again, what frees most for each byte of what is idle while most is alive.
func (c chooser) cheapest() []wait {
	return c.fromTheTop(slices.Clone(c.waits), func(list []int, live []int64) int {
		best, most := list[0], -1.0
		for _, k := range list {
			if share := c.waits[k].useful(live, c.target) / float64(c.waits[k].cost()); share > most {
				best, most = k, share
			}
		}
		return best
	})
}

// fromTheTop chooses at the op where most is alive until no more than the target is, or nothing more is idle there. Pick
// says which of a list of waits, never empty.
func (c chooser) fromTheTop(order []wait, pick func(list []int, live []int64) int) []wait {
	live := slices.Clone(c.live)
	chosen := make([]bool, len(order))
	var list []wait
	var idle []int
	for len(list) < mostSwaps {
		at := 0
		for i := range live {
			if live[i] > live[at] {
				at = i
			}
		}
		if len(live) == 0 || live[at] <= c.target {
			break
		}
		idle = idle[:0]
		for k := range order {
			if !chosen[k] && order[k].freed(at) > 0 {
				idle = append(idle, k)
			}
		}
		if len(idle) == 0 {
			break
		}
		k := pick(idle, live)
		chosen[k] = true
		order[k].leave(live, -1)
		list = append(list, order[k])
	}
	return list
}

// longest goes from the first op to the last and has wait, where too much is alive, what has been idle the longest of
// those that free enough alone, or else of all.
func (c chooser) longest() []wait {
	order := slices.Clone(c.waits)
	slices.SortStableFunc(order, func(a, b wait) int { return cmp.Compare(a.from, b.from) })
	live := slices.Clone(c.live)
	chosen := make([]bool, len(order))
	var list []wait
	for op := range live {
		for live[op] > c.target && len(list) < mostSwaps {
			over := live[op] - c.target
			idle := func(bytes int64) int {
				for k := range order {
					if !chosen[k] && order[k].freed(op) >= bytes {
						return k
					}
				}
				return -1
			}
			k := idle(over)
			if k < 0 {
				k = idle(1)
			}
			if k < 0 {
				break
			}
			chosen[k] = true
			order[k].leave(live, -1)
			list = append(list, order[k])
		}
	}
	return list
}

// within reports whether what is alive while a list waits is no more than the target.
func (c chooser) within(list []wait) bool {
	live := slices.Clone(c.live)
	for i := range list {
		list[i].leave(live, -1)
	}
	return slices.Max(live) <= c.target
}

// needed takes out of a list what need not wait, the largest first.
func (c chooser) needed(list []wait) []wait {
	live := slices.Clone(c.live)
	for i := range list {
		list[i].leave(live, -1)
	}
	bound := max(c.target, slices.Max(live))
	slices.SortStableFunc(list, func(a, b wait) int { return cmp.Compare(b.cost(), a.cost()) })
	return slices.DeleteFunc(list, func(w wait) bool {
		w.leave(live, 1)
		for _, s := range w.frees {
			if slices.Max(live[s.first:s.end]) > bound {
				w.leave(live, -1)
				return false
			}
		}
		return true
	})
}
