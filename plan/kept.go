package plan

import (
	"cmp"
	"slices"

	"github.com/optimem/optimem/storage"
)

// A Move is bytes of the arena of what stays that two plans have both, each at a place of its own.
type Move struct{ From, To, Bytes int64 }

// A Keeping is what a plan finds in the arena of another plan of what it wants to stay there.
type Keeping struct {
	// Moves are in the order of both arenas: what lies in another order in one of them is left out. See [Keeping.Each].
	Moves []Move
	// Bytes is their sum.
	Bytes int64
	// Slots says that the slots of experts are among them, with what lies there.
	Slots bool
	// Stored are numbers of [Fixed.Stored], of blocks that are not there.
	Stored []int
	// Missing reads what is not there, and Packings, numbers of [Fixed.Packings], make it. MissingBytes is what is read
	// in all, WeightBytes what is missing of weights as the checkpoint has them.
	Missing                   []Span
	Packings                  []int
	MissingBytes, WeightBytes int64
}

// A stay is something that stays at a place.
type stay struct {
	of        storage.Extent
	low, high int64
	// form is that of the device's own, "" for bytes as the checkpoint has them, bytes what that takes.
	form  string
	bytes int64
}

// settled lists what lies where, in no order.
func (p *Plan) settled() map[stay]int64 {
	at := make(map[stay]int64, len(p.Fixed.Parts)+len(p.Fixed.Packed))
	for _, part := range p.Fixed.Parts {
		at[stay{p.Lowered.Graph.Values[part.Value].Weight.Extent, part.Low, part.High, "", part.High - part.Low}] = part.Offset
	}
	for i := range p.Fixed.Packed {
		c := &p.Fixed.Packed[i]
		at[stay{p.Lowered.Graph.Values[c.Operand.Value].Weight.Extent, c.Low, c.High, "packed " + c.Pack.Form, c.Pack.Bytes}] = c.Offset
	}
	for i := range p.Fixed.Stored {
		s := &p.Fixed.Stored[i]
		at[s.stay()] = s.Offset
	}
	return at
}

func (s *Stored) stay() stay { return stay{s.Extent, 0, s.Extent.Bytes, "stored", s.Bytes} }

// Keeps returns what a plan keeps of what lies in the arena as another one has it, and what it has to bring.
func (p *Plan) Keeps(from *Plan) Keeping {
	var k Keeping
	before, now := from.settled(), p.settled()
	type kept struct {
		what stay
		Move
	}
	var list []kept
	for what, to := range now {
		if at, ok := before[what]; ok {
			list = append(list, kept{what, Move{at, to, what.bytes}})
		}
	}
	if k.Slots = len(p.Fixed.Slots) > 0 && equalSlots(from, p); k.Slots {
		for i, s := range p.Fixed.Slots {
			list = append(list, kept{stay{form: "slots", low: int64(i)}, Move{from.Fixed.Slots[i].Offset, s.Offset, s.Bytes()}})
		}
	}
	slices.SortFunc(list, func(a, b kept) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	there := make(map[stay]bool, len(list))
	var fromEnd, toEnd int64
	for _, x := range list {
		if x.From < fromEnd || x.To < toEnd {
			continue
		}
		fromEnd, toEnd = x.From+x.Bytes, x.To+x.Bytes
		k.Moves, k.Bytes, there[x.what] = append(k.Moves, x.Move), k.Bytes+x.Bytes, true
	}
	for i := range p.Fixed.Slots {
		k.Slots = k.Slots && there[stay{form: "slots", low: int64(i)}]
	}
	k.miss(p, there)
	return k
}

// miss notes what a plan has to bring that is not there.
func (k *Keeping) miss(p *Plan, there map[stay]bool) {
	g := p.Lowered.Graph
	absent := make(map[int]bool)
	for i := range p.Fixed.Packed {
		c := &p.Fixed.Packed[i]
		absent[i] = !there[stay{g.Values[c.Operand.Value].Weight.Extent, c.Low, c.High, "packed " + c.Pack.Form, c.Pack.Bytes}]
		if absent[i] && !c.Copy {
			k.WeightBytes += c.High - c.Low
		}
	}
	for i := range p.Fixed.Packings {
		x := &p.Fixed.Packings[i]
		if slices.ContainsFunc(x.Pieces, func(piece Piece) bool { return absent[piece.Of] }) {
			k.Packings, k.MissingBytes = append(k.Packings, i), k.MissingBytes+SpanBytes(x.Spans)
		}
	}
	for i := range p.Fixed.Stored {
		if s := &p.Fixed.Stored[i]; !there[s.stay()] {
			k.Stored, k.MissingBytes = append(k.Stored, i), k.MissingBytes+s.Bytes
		}
	}
	// The parts that are not there, in the order of the arena, as runs of the reads that bring all.
	var runs []Move
	for _, part := range p.Fixed.Parts {
		if !there[stay{g.Values[part.Value].Weight.Extent, part.Low, part.High, "", part.High - part.Low}] {
			runs = append(runs, Move{To: part.Offset, Bytes: part.High - part.Low})
			k.WeightBytes += part.High - part.Low
		}
	}
	slices.SortFunc(runs, func(a, b Move) int { return cmp.Compare(a.To, b.To) })
	for _, s := range p.Fixed.Spans {
		var low, high int64 = -1, -1 // within the read
		flush := func() {
			if low >= 0 {
				e := s.Extent
				e.Offset, e.Bytes = e.Offset+low, high-low
				k.Missing = append(k.Missing, Span{Extent: e, Offset: s.Offset + low})
				k.MissingBytes += high - low
			}
		}
		for _, r := range runs {
			if r.To < s.Offset || r.To+r.Bytes > s.Offset+s.Extent.Bytes {
				continue
			}
			// To whole blocks of the disk: what is read besides is what lies there.
			from := r.To - s.Offset
			from = max(from-(s.Extent.Offset+from)%storage.AlignBytes, 0)
			end := r.To + r.Bytes - s.Offset
			end = min(end+(storage.AlignBytes-(s.Extent.Offset+end)%storage.AlignBytes)%storage.AlignBytes, s.Extent.Bytes)
			if low >= 0 && from <= high {
				high = max(high, end)
				continue
			}
			flush()
			low, high = from, end
		}
		flush()
	}
}

// Each calls f for the moves in an order in which none overwrites what another one still needs.
func (k *Keeping) Each(f func(Move)) {
	for _, m := range k.Moves {
		if m.To < m.From {
			f(m)
		}
	}
	for _, m := range slices.Backward(k.Moves) {
		if m.To > m.From {
			f(m)
		}
	}
}
