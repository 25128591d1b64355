package slots

import "slices"

// A Count is what a trace takes: how many experts passes needed, and how many of those had to be read.
type Count struct{ Needs, Reads int64 }

// Hits is the share of needs that were met without a read.
func (c Count) Hits() float64 {
	if c.Needs == 0 {
		return 0
	}
	return 1 - float64(c.Reads)/float64(c.Needs)
}

// A Place says where the experts of a layer may lie: in the slots of set Set, under ids from First on.
type Place struct{ Set, First int }

// A Room is sets of slots: how many each has, and for how many experts.
type Room struct{ Slots, Experts []int }

// sets returns the room, empty.
func (r Room) sets() []*Set {
	list := make([]*Set, len(r.Slots))
	for i := range list {
		list[i] = NewSet(r.Experts[i], r.Slots[i])
	}
	return list
}

// Replay counts what a trace takes by layer, where the places say where the experts of each layer lie. The ids of the
// trace must be within the room; a layer without a set, −1, is left out.
func Replay(t *Trace, r Room, places []Place) []Count {
	sets := r.sets()
	counts := make([]Count, len(t.Layers))
	var ids []int32
	for i := range t.Visits {
		v := &t.Visits[i]
		p := places[v.Layer]
		if p.Set < 0 {
			continue
		}
		ids = ids[:0]
		for _, e := range v.Experts {
			ids = append(ids, e+int32(p.First))
		}
		for _, step := range sets[p.Set].Pass(p.First, ids) {
			counts[v.Layer].Needs++
			if step.Read {
				counts[v.Layer].Reads++
			}
		}
	}
	return counts
}

// Least counts what the trace takes at least whatever the policy, by layer: who is needed again the latest leaves, as
// by Belady (IBM Systems Journal 5, 1966), and who is needed later than all in the slots takes none of them.
func Least(t *Trace, r Room, places []Place) []Count {
	counts := make([]Count, len(t.Layers))
	for set := range r.Slots {
		least(t, set, r.Slots[set], r.Experts[set], places, counts)
	}
	return counts
}

// least counts the visits of one set.
func least(t *Trace, set, slots, experts int, places []Place, counts []Count) {
	const never = int64(1) << 62
	var visits []int // of the set
	for i := range t.Visits {
		if places[t.Visits[i].Layer].Set == set {
			visits = append(visits, i)
		}
	}
	// next has, for each need of the set's visits from the last to the first, when the same is needed again.
	upcoming := make([]int64, experts)
	for i := range upcoming {
		upcoming[i] = never
	}
	next := make([][]int64, len(visits))
	for k := len(visits) - 1; k >= 0; k-- {
		v := &t.Visits[visits[k]]
		next[k] = make([]int64, len(v.Experts))
		for j, e := range v.Experts {
			id := int(e) + places[v.Layer].First
			next[k][j] = upcoming[id]
			upcoming[id] = int64(k)
		}
	}
	type held struct {
		id   int
		next int64
	}
	there := make([]bool, experts)
	var in []held
	for k, at := range visits {
		v := &t.Visits[at]
		first := places[v.Layer].First
		again := make(map[int]int64, len(v.Experts))
		for j, e := range v.Experts {
			again[int(e)+first] = next[k][j]
		}
		kept := in[:0]
		for _, h := range in { // what is needed now comes in again below
			if _, now := again[h.id]; !now {
				kept = append(kept, h)
			}
		}
		in = kept
		for j, e := range v.Experts {
			id := int(e) + first
			counts[v.Layer].Needs++
			if !there[id] {
				counts[v.Layer].Reads++
			}
			there[id] = true
			in = append(in, held{id, next[k][j]})
		}
		if len(in) > slots {
			slices.SortStableFunc(in, func(a, b held) int { return int(min(max(a.next-b.next, -1), 1)) })
			for _, h := range in[slots:] {
				there[h.id] = false
			}
			in = in[:slots]
		}
	}
}

// Sum adds counts up.
func Sum(list []Count) (all Count) {
	for _, c := range list {
		all.Needs, all.Reads = all.Needs+c.Needs, all.Reads+c.Reads
	}
	return all
}
