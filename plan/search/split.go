package search

import (
	"slices"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/plan"
)

const (
	// leastSplitBytes is the smallest part that weights are split into, and mostParts how many groups more splitting may
	// make.
	leastSplitBytes = 64 << 10
	mostParts       = 256
)

// variants returns the draft, and drafts in which large weights are split and groups merged where that may help.
func (d *draft) variants() []*draft {
	list := d.splits()
	n := len(list)
	list = append(list, d.mergers()...)
	if n > 1 {
		list = append(list, list[n-1].mergers()...)
	}
	return list
}

// splits returns the draft, and where it may help to split large weights, drafts in which they are.
func (d *draft) splits() []*draft {
	list := []*draft{d}
	finest, largest := d.finestSplit()
	if finest == 0 {
		return list
	}
	total := d.slotBytes()
	if largest < total/16 && 2*largest <= d.room() && !d.gainsNear(largest) {
		return list
	}
	// Parts cost something, too: a linear layer reads its input for each of them.
	sizes := []int64{largest / 3, largest / 8, finest}
	for k, n := range sizes {
		if k < len(sizes)-1 && n < 2*finest {
			continue
		}
		if e := d.split(n); e != nil {
			list = append(list, e)
		}
	}
	return list
}

// gainsNear reports whether a ring that processors' caches hold would take parts of weights and make a pass faster:
// what is computed takes less than reading.
func (d *draft) gainsNear(largest int64) bool {
	if !d.o.Target.Direct || 2*largest <= cost.NearBytes {
		return false
	}
	var load, compute float64
	for i := range d.groups {
		load += d.groups[i].LoadSeconds
		compute += d.groups[i].Seconds * float64(d.o.Instances)
	}
	return load*(1+cost.FarShare) > compute
}

// originOf returns the group of the draft before it was split that a group is of.
func (d *draft) originOf(group int) int {
	if d.origin == nil {
		return group
	}
	return d.origin[group]
}

// finestSplit returns the size of weights above which splitting them still makes the largest slot smaller, within
// reason, and the size of the largest weight that can be split; 0 where nothing can be or nothing is gained.
func (d *draft) finestSplit() (bytes, largest int64) {
	if d.whole || d.o.Lower == nil {
		return 0, 0
	}
	floor := int64(leastSplitBytes)
	var sizes []int64
	for i := range d.groups {
		group := &d.groups[i]
		if len(group.Parts) == 0 {
			continue
		}
		var rest, restMost int64 // what the ops of the group that cannot be split read between those that can
		for k := group.First; k < group.End; k++ {
			op := &d.l.Graph.Ops[k]
			rows, rowBytes := rewrite.SplittableRows(d.l.Graph, op)
			if rows > 1 {
				sizes = append(sizes, int64(rows)*rowBytes)
				floor = max(floor, rowBytes)
				rest = 0
				continue
			}
			for _, part := range plan.OpParts(d.l.Graph, op) {
				rest += part.High - part.Low
			}
			restMost = max(restMost, rest)
		}
		floor = max(floor, restMost)
	}
	for _, n := range sizes {
		largest = max(largest, n)
	}
	for n := largest / 2; n >= floor/2; n /= 2 {
		n = max(n, floor)
		more := int64(0)
		for _, size := range sizes {
			more += (size - 1) / n
		}
		if more > mostParts {
			break
		}
		bytes = n
		if n == floor {
			break
		}
	}
	if bytes >= largest {
		bytes = 0
	}
	return bytes, largest
}

// split returns the draft in which weights of more than the given bytes are computed by rows; nil where that cannot be.
func (d *draft) split(mostBytes int64) *draft {
	e, made := d.parts[mostBytes]
	if !made {
		e = d.makeSplit(mostBytes, nil)
		if d.parts == nil {
			d.parts = make(map[int64]*draft)
		}
		d.parts[mostBytes] = e
	}
	return e
}

// splitAs returns the draft with weights cut as they are for a plan, which may be one for other shapes.
func (d *draft) splitAs(p *plan.Plan) *draft {
	if p.Cuts == nil {
		return d.split(p.SplitBytes)
	}
	return d.makeSplit(p.SplitBytes, p.Cuts)
}

// cutOf returns the cut that an op's weight has.
func cutOf(g *graph.Graph, op *graph.Op) plan.CutWeight {
	k := 1
	if op.Kind == "embedding" {
		k = 0
	}
	w := op.In[k].Layout
	extent := g.Values[op.In[k].Value].Weight.Extent
	return plan.CutWeight{Extent: extent, Kind: op.Kind, First: w.Offset, Rows: w.Shape[rewrite.SplitDim(op.Kind)]}
}

// makeSplit cuts weights of more than the given bytes into parts of about equal size, but those in cuts at the rows
// given there.
func (d *draft) makeSplit(mostBytes int64, cuts map[plan.CutWeight][]int) *draft {
	if d.o.Lower == nil || d.whole {
		return nil
	}
	g, from := rewrite.SplitRowsAt(d.l.Graph, func(i int) []int {
		op := &d.l.Graph.Ops[i]
		parts := rewrite.RowParts(d.l.Graph, op, mostBytes)
		if len(parts) > 0 {
			if rows, ok := cuts[cutOf(d.l.Graph, op)]; ok {
				return rows
			}
		}
		return parts
	})
	if g == d.l.Graph {
		return nil
	}
	lowered, err := lowerWith(d.o.Lower, g, d.o.tables)
	if err != nil { // the device does not take the parts
		return nil
	}
	groups, origin := cutParts(d.groups, g, from, mostBytes)
	e := newDraft(lowered, groups, d.o, nil)
	e.whole, e.origin = true, origin
	e.base.SplitBytes, e.base.Cuts = mostBytes, cuts
	return e
}

// lean returns the draft that takes the least memory: everything split that can be, and all activations in host memory
// that can wait there.
func (d *draft) lean() *draft {
	if d.leanest != nil {
		return d.leanest
	}
	d.leanest = d
	finest, _ := d.finestSplit()
	list := []*draft{d}
	if finest > 0 {
		if e := d.split(finest); e != nil {
			list = append(list, e)
		}
	}
	var joined *draft
	for _, e := range list {
		for _, f := range e.mergers() {
			if joined == nil {
				joined = f
			}
			joined = leaner(joined, f)
		}
	}
	if joined != nil {
		list = append(list, joined)
	}
	for _, e := range slices.Clone(list) {
		if f := e.swapped(0); f != nil {
			list = append(list, f)
		}
	}
	if d.fine != nil {
		list = append(list, d.fine.lean())
	}
	for _, e := range list {
		d.leanest = leaner(d.leanest, e)
	}
	return d.leanest
}
