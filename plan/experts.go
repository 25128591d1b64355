package plan

import (
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan/slots"
)

// Experts are those of an op to which they are lent while it runs: optional groups, of which a pass brings those that
// rows are sent to and that are not there. Nobody knows before which these are, so that what a pass reads is an
// interval, and what it takes of memory is not: a number of slots.
//
// # Who decides, who reads, who owns
//
// The plan decides how many slots there are and where they lie. Which expert takes which slot is decided in the pass,
// by [slots.Set], a function of what passes needed so far: it can be played again. The pager owns the memory and what
// lies in it and reads, an expert at a time; the op computes with what it is lent, in the order in which that is there,
// and adds up in the router's order.
type Experts struct {
	// Op is the op's index, Path its module.
	Op   int
	Path string
	// The experts lie in the slots of set Set, under ids from First on.
	Set, First int
	// Each has the experts.
	Each []Expert
	// Rows and Named are how many rows go through the op and how many experts each names.
	Rows, Named int
}

// An Expert is what is lent of one: the operands' parts and the reads that bring them, with offsets in a slot.
type Expert struct {
	Parts [graph.LentOperands]Part
	Spans []Span
}

// A SlotSet is equal slots that some layers' experts share; Experts are all that may lie there.
type SlotSet struct {
	Experts, Slots int
	// Offset is where the first slot begins in the arena of what stays, SlotBytes how far it is from one to the next.
	Offset, SlotBytes int64
}

// Bytes is what the slots take.
func (s *SlotSet) Bytes() int64 { return int64(s.Slots) * s.SlotBytes }

// ReadBytes is what reading an expert takes of a pass.
func (e *Expert) ReadBytes() int64 { return SpanBytes(e.Spans) }

// ExpertSlotBytes returns what the slots of all experts take.
func (p *Plan) ExpertSlotBytes() int64 {
	var n int64
	for i := range p.Fixed.Slots {
		n += p.Fixed.Slots[i].Bytes()
	}
	return n
}

// Room returns the slots for a replay, and where the experts of each layer of a trace lie; −1 for a layer that the plan
// does not have, or of which the trace names more experts.
func (p *Plan) Room(t *slots.Trace) (slots.Room, []slots.Place) {
	var r slots.Room
	for _, s := range p.Fixed.Slots {
		r.Slots, r.Experts = append(r.Slots, s.Slots), append(r.Experts, s.Experts)
	}
	most := t.Experts()
	places := make([]slots.Place, len(t.Layers))
	for l, name := range t.Layers {
		places[l].Set = -1
		i := slices.IndexFunc(p.Experts, func(e Experts) bool { return e.Path == name })
		if i >= 0 && most[l] <= len(p.Experts[i].Each) {
			places[l] = slots.Place{Set: p.Experts[i].Set, First: p.Experts[i].First}
		}
	}
	return r, places
}

// Routed is what a pass reads of experts: nothing where all that it needs are there, most where none are, and what is
// expected.
type Routed struct {
	ExpectedBytes, MostBytes int64
	// Needs is how many experts are expected to be needed, Hits which share of them is expected to be there.
	Needs, Hits float64
	// ReadSeconds and MostReadSeconds are what reading so much takes.
	ReadSeconds, MostReadSeconds float64
	// BestSeconds and WorstSeconds are what a pass takes then; the forecast's Seconds are what is expected. Known says
	// that Hits comes from what passes of the model have shown, not from the numbers of slots and experts alone.
	BestSeconds, WorstSeconds float64
	Known                     bool
}

// sameSlots reports whether two plans have the same experts in the same slots.
func sameSlots(a, b *Plan) bool {
	return slices.Equal(a.Fixed.Slots, b.Fixed.Slots) && equalSlots(a, b)
}

// equalSlots is sameSlots wherever the slots lie.
func equalSlots(a, b *Plan) bool {
	return slices.EqualFunc(a.Fixed.Slots, b.Fixed.Slots, func(x, y SlotSet) bool {
		return x.Experts == y.Experts && x.Slots == y.Slots && x.SlotBytes == y.SlotBytes
	}) && slices.EqualFunc(a.Experts, b.Experts, func(x, y Experts) bool {
		return x.Path == y.Path && x.Set == y.Set && x.First == y.First && slices.EqualFunc(x.Each, y.Each, func(e, f Expert) bool {
			return slices.Equal(e.Spans, f.Spans)
		})
	})
}
