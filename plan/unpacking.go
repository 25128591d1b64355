package plan

import (
	"cmp"
	"iter"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/storage"
)

// An Unpacking is a block of a packed file of which a part of a group has something, where the device decodes it.
type Unpacking struct {
	Source storage.BlockSource
	Block  storage.Block
	// Staged is where the block lies within the group's bytes in host memory. Of what it stands for the bytes from Low on and
	// before High go to Offset of the slot.
	Staged, Low, High, Offset int64
}

// Unpackings goes through the blocks that fill the slot of a group whose LandBytes are not 0, in the order of its parts
// in host memory. A block of which several parts have something comes several times.
func (g *Group) Unpackings(of *graph.Graph) iter.Seq[Unpacking] {
	return func(yield func(Unpacking) bool) {
		parts := slices.Clone(g.Parts)
		slices.SortStableFunc(parts, func(a, b Part) int { return cmp.Compare(a.Staged, b.Staged) })
		for _, p := range parts {
			e := of.Values[p.Value].Weight.Extent
			source := e.Source.(storage.BlockSource)
			low, high := e.Offset+p.Low, e.Offset+p.High
			for b := range source.Blocks(low, high-low) {
				from := max(low, b.Offset)
				x := Unpacking{
					Source: source, Block: b, Staged: g.staged(source.File(), b.At),
					Low: from - b.Offset, High: min(high-b.Offset, b.Bytes), Offset: p.Offset + from - low,
				}
				if !yield(x) {
					return
				}
			}
		}
	}
}

// staged is where a byte of a source lies within the group's bytes in host memory.
func (g *Group) staged(source storage.Source, at int64) int64 {
	for i := range g.Spans {
		s := &g.Spans[i]
		if n := at - s.Extent.Offset; n >= 0 && n < s.Extent.Bytes && s.Extent.Source == source {
			return s.Offset + n
		}
	}
	panic("BUG: a block of a group is not among its reads")
}
