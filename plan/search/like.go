package search

import (
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

// likeOther is like; experts that are lent there are lent here, through the same slots.
func (d *draft) likeOther() *plan.Plan {
	if other := d.o.Like; other != nil && len(other.Experts) > 0 {
		if d = d.lentAs(other); d == nil {
			return nil
		}
	}
	return d.like()
}

// like returns a plan whose weights lie as in the plan for other shapes, nil where there is none or the budget does not
// admit it.
func (d *draft) like() *plan.Plan {
	other := d.o.Like
	if other == nil || other.Sides != nil { // the sides' pagers see for themselves whether weights can stay
		return nil
	}
	e := d
	if len(other.Gathers) > 0 {
		e = d.gathered(other.Gathers)
	}
	if other.SplitBytes > 0 {
		if e = e.splitAs(other); e == nil {
			return nil
		}
	}
	held := heldBy(other)
	packed := make(map[packedRun]string)
	for i := range other.Fixed.Packed {
		c := &other.Fixed.Packed[i]
		packed[runOf(other, c)] = c.Pack.Form
	}
	var parts []plan.Part
	for id := range e.l.Graph.Values {
		v := &e.l.Graph.Values[id]
		if v.Role != graph.Weight && v.Role != graph.State {
			continue
		}
		for _, part := range held[v.Weight.Extent] {
			parts = append(parts, plan.Part{Value: graph.ValueID(id), Low: part.Low, High: part.High})
		}
	}
	e = e.with(parts)
	if len(other.Fixed.Stored) > 0 {
		e.storedAs(other)
	}
	room := e.room()
	if d.o.MemoryBytes > 0 {
		room -= max(other.Fixed.Bytes-e.fixedBytes(), 0)
	}
	p := e.bestRing(min(other.RingBytes, room))
	if p == nil {
		return nil
	}
	packFixed(p, d.o.MemoryBytes, func(c *plan.Packed) bool { return packed[runOf(p, c)] == c.Pack.Form })
	if d.o.MemoryBytes > 0 && p.PeakBytes() > d.o.MemoryBytes || !plan.SameFixed(p, other) {
		return nil
	}
	p.MinBytes = d.minBytes()
	return p
}

// heldBy returns what stays of weights in a plan, by their storage.
func heldBy(other *plan.Plan) map[storage.Extent][]plan.Part {
	held := make(map[storage.Extent][]plan.Part)
	for _, part := range other.Fixed.Parts {
		extent := other.Lowered.Graph.Values[part.Value].Weight.Extent
		held[extent] = append(held[extent], plan.Part{Low: part.Low, High: part.High})
	}
	for i := range other.Fixed.Packed {
		if c := &other.Fixed.Packed[i]; !c.Copy {
			run := runOf(other, c)
			held[run.extent] = append(held[run.extent], plan.Part{Low: c.Low, High: c.High})
		}
	}
	return held
}

// A packedRun is the bytes of an operand that is packed.
type packedRun struct {
	extent    storage.Extent
	low, high int64
}

func runOf(p *plan.Plan, c *plan.Packed) packedRun {
	return packedRun{p.Lowered.Graph.Values[c.Operand.Value].Weight.Extent, c.Low, c.High}
}

// fixedBytes is what the parts that always stay take.
func (d *draft) fixedBytes() int64 {
	p := plan.Plan{Target: d.o.Target}
	p.Fixed.Slots = d.base.Fixed.Slots
	fix(&p, d.l.Graph, slices.Clone(d.always))
	return p.Fixed.Bytes
}
