package plan

import (
	"cmp"
	"slices"

	"github.com/optimem/optimem/graph"
)

// SwappedBytes returns what a pass copies of activations that wait until they are needed again: those that leave the
// device, and those that come back.
func (p *Plan) SwappedBytes() (out, in int64) {
	if p.Sides != nil {
		for _, q := range []*Plan{p.Sides.Device, p.Sides.Host} {
			o, i := q.SwappedBytes()
			out, in = out+o, in+i
		}
		return out, in
	}
	for k := range p.Groups {
		o, i := p.SwapsOf(&p.Groups[k])
		out, in = out+o, in+i
	}
	return out, in
}

// SwapsOf returns what one of the plan's groups copies of them, for all instances.
func (p *Plan) SwapsOf(g *Group) (out, in int64) {
	instances := int64(max(p.Instances, 1))
	for _, s := range g.SwapOut {
		out += s.Bytes * instances
	}
	for _, s := range g.SwapIn {
		in += s.Bytes * instances
	}
	return out, in
}

// AgainBytes returns the bytes of activations that a pass computes anew instead of keeping them or having them wait.
func (p *Plan) AgainBytes() (n int64) {
	if p.Sides != nil {
		return p.Sides.Device.AgainBytes() + p.Sides.Host.AgainBytes()
	}
	for k := range p.Groups {
		n += p.AgainOf(&p.Groups[k])
	}
	return n
}

// AgainOf returns the bytes of what one of the plan's groups computes anew, for all instances.
func (p *Plan) AgainOf(g *Group) (n int64) {
	for _, a := range g.Again {
		n += a.Bytes
	}
	return n * int64(max(p.Instances, 1))
}

// An Origin says whose the bytes of the arena were that an activation has.
type Origin uint8

// The origins. What is Swapped came back from where it waited, and what is Recomputed was made again, to bytes of any
// kind.
const (
	// New has bytes that nothing had before in the pass.
	New Origin = iota
	// Reused has bytes of activations that are not needed any more.
	Reused
	// Overlaid is written over an operand.
	Overlaid
	// Swapped comes back from where it waited.
	Swapped
	// Recomputed is computed anew, since it was not kept.
	Recomputed
)

// String names it.
func (o Origin) String() string {
	return [...]string{"new", "reused", "overlaid", "swapped", "recomputed"}[o]
}

// Origins returns where each activation of the plan's graph gets its bytes from, by value. A plan with sides has none of
// its own: the sides' plans have.
func (p *Plan) Origins() map[graph.ValueID]Origin {
	all := make(map[graph.ValueID]Origin)
	if p.Sides != nil {
		return all
	}
	for k := range p.Groups {
		for _, s := range p.Groups[k].SwapIn {
			all[s.Value] = Swapped
		}
		for _, a := range p.Groups[k].Again {
			all[p.Lowered.Graph.Ops[a.Op].Out[0]] = Recomputed
		}
	}
	var order []graph.ValueID
	for id := range p.Places {
		if place := &p.Places[id]; place.First >= 0 && place.Bytes > 0 {
			order = append(order, graph.ValueID(id))
		}
	}
	slices.SortStableFunc(order, func(a, b graph.ValueID) int { return cmp.Compare(p.Places[a].First, p.Places[b].First) })
	var used []run
	for _, id := range order {
		place := &p.Places[id]
		if place.Over {
			all[id] = Overlaid
			continue
		}
		at := run{place.Offset, place.Offset + place.Bytes + place.Stride*int64(max(p.Instances, 1)-1)}
		if _, known := all[id]; !known {
			all[id] = New
			if slices.ContainsFunc(used, func(u run) bool { return u.low <= at.low && at.high <= u.high }) {
				all[id] = Reused
			}
		}
		used = withRun(used, at)
	}
	return all
}

// A run is the bytes [low, high) of an arena.
type run struct{ low, high int64 }

// withRun adds a run to others, which are apart from each other.
func withRun(list []run, r run) []run {
	list = slices.DeleteFunc(list, func(u run) bool {
		touches := u.low <= r.high && r.low <= u.high
		if touches {
			r = run{min(r.low, u.low), max(r.high, u.high)}
		}
		return touches
	})
	return append(list, r)
}
