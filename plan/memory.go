package plan

import (
	"cmp"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/storage"
)

// A Holding is the memory in use while an op runs, in bytes by purpose, on the device that computes the op. What a plan
// takes for a purpose is the most that any op finds in use, but for activations, between which there may be gaps.
type Holding struct {
	// FixedBytes are the weights that stay and constants, RingBytes the slots of groups that are brought: all of the ring,
	// since readers fill it ahead.
	FixedBytes, RingBytes int64
	// CacheBytes are the caches, whichever of them the op looks at.
	CacheBytes int64
	// ActivationBytes are the inputs and results that are alive, WorkBytes the scratch memory of the op.
	ActivationBytes, WorkBytes int64
	// Device is the number of the device, where there are several; OnHost says that it is the host's processor beside one.
	Device int
	OnHost bool
}

// Total returns the sum.
func (h Holding) Total() int64 {
	return h.FixedBytes + h.RingBytes + h.CacheBytes + h.ActivationBytes + h.WorkBytes
}

// A Holder is an activation that is alive while an op runs.
type Holder struct {
	// Value is its number in the graph of the side that computes the op, Name what the program calls it, "" where it has
	// no name.
	Value graph.ValueID
	Name  string
	// Path and Kind are the module and the kind of the op that made it, both "" for an input.
	Path string
	Kind graph.Kind
	// Bytes is what it takes in the arena for all instances, as rounded up to what the device aligns to.
	Bytes int64
}

// Holdings returns what is in use while each op of the graph runs, in order.
func (p *Plan) Holdings() []Holding {
	if p.Sides != nil {
		return p.sideHoldings()
	}
	all := make([]Holding, len(p.Lowered.Graph.Ops))
	if len(all) == 0 {
		return all
	}
	change := make([]int64, len(all)+1)
	for _, t := range p.tenants() {
		if t.first < len(all) {
			change[t.first] += t.bytes
			change[min(t.last, len(all)-1)+1] -= t.bytes
		}
	}
	var alive int64
	for i := range all {
		alive += change[i]
		all[i] = Holding{
			FixedBytes: p.Fixed.Bytes + p.ConstBytes, RingBytes: p.RingBytes, CacheBytes: p.CacheBytes,
			ActivationBytes: alive, WorkBytes: p.Lowered.Steps[i].WorkBytes,
		}
	}
	return all
}

// sideHoldings puts together what both sides hold, each for its own ops.
func (p *Plan) sideHoldings() []Holding {
	all := make([]Holding, len(p.Lowered.Graph.Ops))
	for side, q := range []*Plan{p.Sides.Device, p.Sides.Host} {
		for i, h := range q.Holdings() {
			switch {
			case side == 1 && p.Sides.Peer == "":
				h.OnHost = true
			case side == 1:
				h.Device++
			}
			all[p.Sides.Whole[side].Ops[i]] = h
		}
	}
	return all
}

// Holders returns the activations that are alive while an op runs, on the device that computes it, the largest first.
// Of a result that was written over an operand the result alone is among them. The sum of their bytes is the
// ActivationBytes of the op's [Holding].
func (p *Plan) Holders(op int) []Holder {
	p, op = p.sideOf(op)
	if p == nil {
		return nil
	}
	g := p.Lowered.Graph
	made := make([]*graph.Op, len(g.Values))
	for i := range g.Ops {
		for _, id := range g.Ops[i].Out {
			made[id] = &g.Ops[i]
		}
	}
	var list []Holder
	for _, t := range p.tenants() {
		if op < t.first || op > t.last {
			continue
		}
		// The one whose bytes they are now.
		id := t.values[0]
		for _, next := range t.values[1:] {
			if p.Places[next].First <= op {
				id = next
			}
		}
		h := Holder{Value: id, Name: g.Values[id].Name, Bytes: t.bytes}
		if maker := made[id]; maker != nil {
			h.Path, h.Kind = maker.Path, maker.Kind
		}
		list = append(list, h)
	}
	slices.SortStableFunc(list, func(a, b Holder) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return list
}

// sideOf returns the side that computes an op and the op's number there, nil where neither does; the plan itself where
// it has no sides.
func (p *Plan) sideOf(op int) (*Plan, int) {
	if p.Sides == nil {
		return p, op
	}
	for side, q := range []*Plan{p.Sides.Device, p.Sides.Host} {
		if i, ok := slices.BinarySearch(p.Sides.Whole[side].Ops, op); ok {
			return q, i
		}
	}
	return nil, 0
}

// A HeldWeight is a weight that stays, and the bytes that it takes: as it lies in the checkpoint, as the device
// computes with it, or both.
type HeldWeight struct {
	Name  string
	Bytes int64
}

// HeldWeights returns the weights that stay on the device that computes an op, the largest first. The sum of their
// bytes is at most the FixedBytes of the op's [Holding], which has constants and what aligning leaves empty.
func (p *Plan) HeldWeights(op int) []HeldWeight {
	p, _ = p.sideOf(op)
	if p == nil {
		return nil
	}
	at := make(map[string]int)
	var list []HeldWeight
	add := func(id graph.ValueID, bytes int64) {
		name := p.Lowered.Graph.Values[id].Weight.Name
		k, known := at[name]
		if !known {
			k = len(list)
			at[name], list = k, append(list, HeldWeight{Name: name})
		}
		list[k].Bytes += bytes
	}
	for _, part := range p.Fixed.Parts {
		add(part.Value, part.High-part.Low)
	}
	for i := range p.Fixed.Packed {
		add(p.Fixed.Packed[i].Operand.Value, p.Fixed.Packed[i].Pack.Bytes)
	}
	slices.SortStableFunc(list, func(a, b HeldWeight) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return list
}

// A tenant is bytes of the arena of activations, and the values that have them one after the other, each written over
// the one before.
type tenant struct {
	values      []graph.ValueID
	first, last int
	bytes       int64
}

// A Tenant is bytes of the arena of activations that are taken from the op First to the op Last.
type Tenant struct {
	// Values have them one after the other, each written over the one before.
	Values        []graph.ValueID
	First, Last   int
	Offset, Bytes int64
}

// Tenants lists who has bytes in the arena of activations.
func (p *Plan) Tenants() []Tenant {
	var list []Tenant
	for _, t := range p.tenants() {
		list = append(list, Tenant{t.values, t.first, t.last, p.Places[t.values[0]].Offset, t.bytes})
	}
	return list
}

// tenants lists who has bytes in the arena, from one op to another. It is what the arena was laid out for.
func (p *Plan) tenants() []tenant {
	root := p.Roots()
	at := make(map[graph.ValueID]int)
	var list []tenant
	for id := range p.Places {
		place := &p.Places[id]
		if place.First < 0 || place.Bytes == 0 {
			continue
		}
		n := AlignUp(place.Bytes, p.Target.AlignBytes)
		if place.Stride > 0 {
			n = place.Stride * int64(max(p.Instances, 1))
		}
		k, known := at[root[id]]
		if !known {
			k = len(list)
			at[root[id]] = k
			list = append(list, tenant{first: place.First, last: place.Last, bytes: n})
		}
		t := &list[k]
		t.values = append(t.values, graph.ValueID(id))
		t.first, t.last, t.bytes = min(t.first, place.First), max(t.last, place.Last), max(t.bytes, n)
	}
	for i := range list {
		slices.SortStableFunc(list[i].values, func(a, b graph.ValueID) int {
			return cmp.Compare(p.Places[a].First, p.Places[b].First)
		})
	}
	return list
}

// Reads returns where the weights lie that each op of the graph reads, in order. Of an embedding of which rows are
// brought it is the whole table.
func (p *Plan) Reads() [][]storage.Extent {
	all := make([][]storage.Extent, len(p.Lowered.Graph.Ops))
	if p.Sides != nil {
		for side, q := range []*Plan{p.Sides.Device, p.Sides.Host} {
			for i, list := range q.Reads() {
				all[p.Sides.Whole[side].Ops[i]] = list
			}
		}
		return all
	}
	g := p.Lowered.Graph
	for i := range g.Ops {
		for _, part := range OpParts(g, &g.Ops[i]) {
			e := g.Values[part.Value].Weight.Extent
			e.Offset, e.Bytes = e.Offset+part.Low, part.High-part.Low
			all[i] = append(all[i], e)
		}
	}
	for i := range p.Gathers {
		x := &p.Gathers[i]
		all[x.Op] = append(all[x.Op], x.Weight.Extent)
	}
	return all
}

// DistinctBytes returns how many bytes extents cover, those that several of them share counted once. It sorts the list.
func DistinctBytes(list []storage.Extent) int64 {
	var sources []storage.Source
	index := func(s storage.Source) int {
		k := slices.Index(sources, s)
		if k < 0 {
			k = len(sources)
			sources = append(sources, s)
		}
		return k
	}
	for i := range list {
		index(list[i].Source)
	}
	slices.SortFunc(list, func(a, b storage.Extent) int {
		return cmp.Or(cmp.Compare(index(a.Source), index(b.Source)), cmp.Compare(a.Offset, b.Offset))
	})
	var n, end int64
	for i, e := range list {
		if i == 0 || e.Source != list[i-1].Source {
			end = 0
		}
		n += max(e.Offset+e.Bytes-max(e.Offset, end), 0)
		end = max(end, e.Offset+e.Bytes)
	}
	return n
}

// Roots returns for each value the one whose place it has: itself, or where results were written over operands, one
// after the other, the first of these.
func (p *Plan) Roots() []graph.ValueID {
	g := p.Lowered.Graph
	root := make([]graph.ValueID, len(g.Values))
	for id := range root {
		root[id] = graph.ValueID(id)
	}
	for i := range g.Ops {
		for _, id := range g.Ops[i].Out {
			if place := &p.Places[id]; place.Over {
				root[id] = root[place.Operand]
			}
		}
	}
	return root
}
