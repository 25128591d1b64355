package search

import (
	"cmp"
	"github.com/optimem/optimem/plan"
	"slices"
	"strings"
)

// merged returns the draft in which neighbouring groups are one as long as their slot takes no more than mostBytes,
// those first between which most is alive: what micro-batches leave there is held for each of them, and within a group
// for one at a time. It returns nil where nothing is to be merged, or groups are cut as the user said.
func (d *draft) merged(mostBytes int64) *draft {
	e, made := d.merges[mostBytes]
	if !made {
		e = d.makeMerged(mostBytes)
		if d.merges == nil {
			d.merges = make(map[int64]*draft)
		}
		d.merges[mostBytes] = e
	}
	return e
}

func (d *draft) makeMerged(mostBytes int64) *draft {
	if d.o.asGiven || d.o.Instances < 2 || d.o.Mode == plan.Chunk || d.o.MaxGroup.Unit != plan.Unset ||
		len(d.groups) < 2 {
		return nil
	}
	alive := d.aliveBetween()
	order := make([]int, 0, len(alive))
	for k, bytes := range alive {
		if bytes > 0 {
			order = append(order, k)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(alive[b], alive[a]) })
	// first and last are those of the run of groups that each one, if it begins or ends a run, is of.
	n := len(d.groups)
	first, last, bytes := make([]int, n), make([]int, n), make([]int64, n)
	for i := range n {
		first[i], last[i], bytes[i] = i, i, d.groups[i].SlotBytes
	}
	joined := false
	for _, k := range order {
		a, b := first[k], last[k+1]
		if sum := bytes[a] + bytes[k+1]; sum <= mostBytes {
			first[b], last[a], bytes[a] = a, b, sum
			joined = true
		}
	}
	if !joined {
		return nil
	}
	e := d.inRuns(last)
	e.whole, e.joined, e.base.SplitBytes, e.base.Cuts = true, true, d.base.SplitBytes, d.base.Cuts
	return e
}

// inRuns returns the draft in which runs of groups are one group each. Of the first of each run, last says where it
// ends.
func (d *draft) inRuns(last []int) *draft {
	var groups []plan.Group
	for i := 0; i < len(d.groups); i = last[i] + 1 {
		if last[i] == i {
			groups = append(groups, d.again(i))
		} else {
			groups = append(groups, d.union(i, last[i]))
		}
	}
	e := newDraft(d.l, groups, d.o, d.seconds)
	e.stay(d.always)
	return e
}

// A read from a disk has a fixed cost, worth about smallBytes of copying. Groups are loaded together up to that size,
// if it is at most 1/smallShare of the model and no larger than the largest slot may be.
const (
	smallBytes = 256 << 10
	smallShare = 64
)

// coarse returns the draft in which small groups that follow each other are brought at once, where they come from a
// disk and nobody said how groups are to be cut.
func (d *draft) coarse() *draft {
	if d.o.asGiven || !d.o.Target.Direct || d.o.Mode == plan.Chunk || d.o.MaxGroup.Unit != plan.Unset {
		return d
	}
	total := d.slotBytes()
	_, largest := d.largest()
	if finest, _ := d.finestSplit(); finest > 0 {
		largest = min(largest, finest)
	}
	most := min(smallBytes, total/smallShare, largest)
	n := len(d.groups)
	last := make([]int, n)
	joined := false
	for first, i, sum := 0, 0, int64(0); i < n; i++ {
		bytes := d.groups[i].SlotBytes
		if sum += bytes; i > first && sum > most {
			first, sum = i, bytes
		}
		last[first] = i
		joined = joined || i > first
	}
	if !joined {
		return d
	}
	e := d.inRuns(last)
	e.fine = d
	return e
}

// aliveBetween returns what an instance leaves for later groups behind each group but the last.
func (d *draft) aliveBetween() []int64 {
	of := groupsOfOps(d.groups, len(d.l.Graph.Ops))
	change := make([]int64, len(d.groups)+1)
	for _, place := range d.base.Places {
		if place.First >= 0 && place.Stride > 0 {
			change[of[place.First]] += place.Stride
			change[of[place.Last]] -= place.Stride
		}
	}
	alive := make([]int64, len(d.groups)-1)
	var sum int64
	for k := range alive {
		sum += change[k]
		alive[k] = sum
	}
	return alive
}

// commonPath returns the innermost module that both paths are in.
func commonPath(a, b string) string {
	for a != b && a != "" {
		if strings.HasPrefix(b, a+".") {
			return a
		}
		a = a[:max(strings.LastIndexByte(a, '.'), 0)]
	}
	return a
}

// mergers returns the draft with neighbouring groups merged, in several ways that are worth trying.
func (d *draft) mergers() []*draft {
	var list []*draft
	_, largest := d.largest()
	total := d.slotBytes()
	for _, most := range []int64{largest, total / 16, total / 4} {
		if most >= largest && (most == largest || most > 5*largest/4) {
			if e := d.merged(most); e != nil {
				list = append(list, e)
			}
		}
	}
	return list
}
