package plan

import (
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/storage"
)

// Fixed is what is brought once and stays.
type Fixed struct {
	Parts []Part
	Spans []Span
	// Bytes is the size of the arena.
	Bytes int64
	// WeightBytes counts the weights among it, Params their parameters, as the checkpoint has them.
	WeightBytes, Params int64
	// Packed are operands that lie in the arena as the device computes with them, and Packings how they are made, one
	// after another, before the memory for anything else is taken. PackingBytes is the memory for the raw bytes meanwhile.
	Packed       []Packed
	Packings     []Packing
	PackingBytes int64
	// Slots are those of experts, which lie in the arena, too: what they hold changes, and outlives passes and plans as
	// weights do.
	Slots []SlotSet
	// Stored are blocks of packed files that stay as the file has them: paged groups are decoded from there. See
	// [Group.Decoded].
	Stored []Stored
}

// A Stored is the blocks of a packed file that have something of an extent, and where they lie in the arena of what
// stays.
type Stored struct {
	Extent        storage.Extent
	Offset, Bytes int64
}

// StoredOf returns the blocks that stay from which an extent is decoded; false where some of them do not.
func (f *Fixed) StoredOf(e storage.Extent) (Stored, bool) {
	i := slices.IndexFunc(f.Stored, func(s Stored) bool {
		return s.Extent.Source == e.Source && s.Extent.Offset <= e.Offset && e.Offset+e.Bytes <= s.Extent.Offset+s.Extent.Bytes
	})
	if i < 0 {
		return Stored{}, false
	}
	return f.Stored[i], true
}

// StoredBytes returns what blocks of packed files that stay take, and how many bytes they are there for.
func (f *Fixed) StoredBytes() (bytes, decoded int64) {
	for _, s := range f.Stored {
		bytes, decoded = bytes+s.Bytes, decoded+s.Extent.Bytes
	}
	return bytes, decoded
}

// A Packed is an operand that stays in a form of the device's own, instead of the weight's bytes, or besides them.
type Packed struct {
	Operand graph.Operand
	// Low and High delimit the operand's bytes within the value.
	Low, High int64
	// Op is the first op that reads it, Pack what its step says of it.
	Op   int
	Pack graph.Pack
	// Offset is where it lies in the arena of what stays.
	Offset int64
	// Copy says that the weight's bytes stay too, for ops that do not take the form.
	Copy bool
}

// TakenBy reports whether an op with the given step reads it as operand in.
func (c *Packed) TakenBy(s *graph.Step, in int) bool {
	pack, ok := s.PackOf(in)
	return ok && pack.Form == c.Pack.Form
}

// A Packing is a part of the work of packing: Spans bring raw bytes, of which Pieces are made.
type Packing struct {
	Spans  []Span
	Pieces []Piece
}

// A Piece is some of an operand that is packed in one go.
type Piece struct {
	// Of is the index of what is packed, Operand which of its indices.
	Of      int
	Operand graph.Operand
	// Part is the raw bytes: Offset is that in the memory for packing.
	Part Part
	// The packed bytes are [Offset, Offset+Bytes) of the arena of what stays.
	Offset, Bytes int64
}

// SameFixed reports whether two plans hold the same weights in the same places and forms.
func SameFixed(a, b *Plan) bool {
	return a.Fixed.Bytes == b.Fixed.Bytes && sameSlots(a, b) && slices.Equal(a.Fixed.Stored, b.Fixed.Stored) &&
		slices.EqualFunc(a.Fixed.Parts, b.Fixed.Parts, func(x, y Part) bool {
			v, w := &a.Lowered.Graph.Values[x.Value], &b.Lowered.Graph.Values[y.Value]
			return v.Weight.Extent == w.Weight.Extent && v.Role == w.Role && x.Low == y.Low && x.High == y.High && x.Offset == y.Offset
		}) && slices.EqualFunc(a.Fixed.Packed, b.Fixed.Packed, func(x, y Packed) bool {
		v, w := &a.Lowered.Graph.Values[x.Operand.Value], &b.Lowered.Graph.Values[y.Operand.Value]
		return v.Weight.Extent == w.Weight.Extent && x.Low == y.Low && x.High == y.High && x.Offset == y.Offset &&
			x.Pack.Form == y.Pack.Form && x.Pack.Bytes == y.Pack.Bytes && x.Copy == y.Copy
	})
}
