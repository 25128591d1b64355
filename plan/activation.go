package plan

import (
	"cmp"
	"slices"

	"github.com/optimem/optimem/layers"
)

func alignUp(n, align int64) int64 { return (n + align - 1) / align * align }

// activations places the inputs and results of a graph in an arena, in which values that are not alive together share
// bytes, and returns its size. With several instances in flight, a value that is needed in more groups than one has a
// copy for each instance and is alive from the start of the first of them to the end of the last; a value within a group
// has one, since an instance is done with the group before the next begins.
func (p *Plan) activations() int64 {
	g := p.Lowered.Graph
	p.Places = make([]Place, len(g.Values))
	p.lifetimes()
	groupOf := make([]int, len(g.Ops)+1)
	for k := range p.Groups {
		for i := p.Groups[k].First; i < p.Groups[k].End; i++ {
			groupOf[i] = k
		}
	}
	var live []int
	for id, v := range g.Values {
		place := &p.Places[id]
		if v.Role != layers.Computed && v.Role != layers.Input || place.First < 0 {
			place.First, place.Last = -1, -1
			continue
		}
		place.Bytes = v.Bytes()
		if place.Bytes == 0 {
			continue
		}
		first, last := groupOf[place.First], groupOf[max(min(place.Last, len(g.Ops)-1), 0)]
		if p.Instances > 1 && first != last {
			place.Stride = alignUp(place.Bytes, p.Target.AlignBytes)
			place.First, place.Last = p.Groups[first].First, p.Groups[last].End-1
		}
		live = append(live, id)
	}
	return p.pack(live)
}

// lifetimes finds the first and the last op that need each value, −1 for one that none needs. Inputs are copied in before
// the group of the first op that reads them, outputs copied out after the group of the last op that has to do with them.
func (p *Plan) lifetimes() {
	g := p.Lowered.Graph
	for i := range p.Places {
		p.Places[i].First, p.Places[i].Last = -1, -1
	}
	read := func(id layers.ValueID, op int) {
		if place := &p.Places[id]; place.First < 0 {
			place.First, place.Last = op, op
		} else {
			place.Last = max(place.Last, op)
		}
	}
	for i, op := range g.Ops {
		for _, o := range op.In {
			if o.Value != layers.NoValue {
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
	for i := range p.Groups {
		group := &p.Groups[i]
		for _, id := range g.Inputs {
			place := &p.Places[id]
			if place.First >= group.First && place.First < group.End {
				place.First = group.First
				group.Inputs = append(group.Inputs, id)
			}
		}
	}
	for k, o := range g.Outputs {
		place := &p.Places[o.Operand.Value]
		if g.Values[o.Operand.Value].Role == layers.Input && place.First < 0 { // it goes out as it came
			place.First, place.Last = 0, 0
			p.Groups[0].Inputs = append(p.Groups[0].Inputs, o.Operand.Value)
		}
		if place.First < 0 { // a weight: it is fixed
			p.Groups[0].Outputs = append(p.Groups[0].Outputs, k)
			continue
		}
		i, _ := slices.BinarySearchFunc(p.Groups, place.Last, func(group Group, op int) int {
			return cmp.Compare(group.End-1, op)
		})
		i = min(i, len(p.Groups)-1) // a graph without ops has a group without ops
		place.Last = max(p.Groups[i].End-1, 0)
		p.Groups[i].Outputs = append(p.Groups[i].Outputs, k)
	}
	for _, u := range g.Updates {
		if place := &p.Places[u.Operand.Value]; place.First >= 0 {
			place.Last = last
		}
	}
}

// pack gives the values offsets such that no two that are alive together overlap, the largest first, each in the
// smallest gap where it fits: within a few percent of the largest sum alive at once for real networks. It returns the
// size of the arena.
func (p *Plan) pack(ids []int) int64 {
	places := p.Places
	size := func(id int) int64 {
		v := &places[id]
		if v.Stride > 0 {
			return v.Stride * int64(p.Instances)
		}
		return alignUp(v.Bytes, p.Target.AlignBytes)
	}
	slices.SortStableFunc(ids, func(a, b int) int { return cmp.Compare(size(b), size(a)) })
	var total int64
	placed := make([]int, 0, len(ids)) // by offset
	for _, id := range ids {
		v := &places[id]
		need := size(id)
		var at int64
		best := int64(-1)
		var bestGap int64
		for _, other := range placed {
			o := &places[other]
			if o.Last < v.First || v.Last < o.First {
				continue
			}
			if gap := o.Offset - at; gap >= need && (best < 0 || gap < bestGap) {
				best, bestGap = at, gap
			}
			at = max(at, o.Offset+size(other))
		}
		if best < 0 {
			best = at
		}
		v.Offset = best
		total = max(total, best+need)
		i, _ := slices.BinarySearchFunc(placed, best, func(other int, off int64) int {
			return cmp.Compare(places[other].Offset, off)
		})
		placed = slices.Insert(placed, i, id)
	}
	return total
}
