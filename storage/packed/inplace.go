package packed

import (
	"context"
	"errors"

	"github.com/optimem/optimem/storage"
)

var _ storage.InPlaceSource = (*Source)(nil)

// A laid is where blocks lie in the memory that what they stand for is to fill: at its end, one behind the other. They
// are decoded from the first on, so that what is written comes up behind those that were not decoded yet.
type laid struct {
	list []laidBlock
	// stored is the aligned read that has the blocks, at where it lies in the memory.
	stored storage.Extent
	at     int64
	// aside says that the last block has to be put aside first, since others are written over it.
	aside bool
}

// A laidBlock is one with where it lies in memory, and the bytes there, from low on and before high, that it is for.
type laidBlock struct {
	block
	place, low, high int64
}

// mostInPlace is how many blocks are decoded in one memory.
const mostInPlace = 1 << 16

// lay lays the blocks that have something of parts in memory p; false where they do not fit, or do not lie one behind the
// other in the file.
func (s *Source) lay(p []byte, parts []storage.Part) (l laid, ok bool) {
	room := int64(len(p))
	for _, part := range parts {
		if part.Offset < 0 || part.At < 0 || part.Bytes > room-part.At {
			return l, false
		}
		for b := range s.blocks(part.Offset, part.Bytes) {
			n := len(l.list)
			if n > 0 && b.i != l.list[n-1].i+1 || n == mostInPlace {
				return l, false
			}
			low := part.At + max(b.off()-part.Offset, 0)
			high := part.At + min(b.end()-part.Offset, part.Bytes)
			if n > 0 && low < l.list[n-1].high {
				return l, false
			}
			l.list = append(l.list, laidBlock{block: b, low: low, high: high})
		}
	}
	last := len(l.list) - 1
	if last < 0 {
		return l, false
	}
	begin := l.list[0].at()
	around, skip := storage.Extent{Source: s.raw, Offset: begin,
		Bytes: l.list[last].at() + l.list[last].stored() - begin}.Aligned()
	l.stored, l.at = around, storage.AlignedBefore(p, room-around.Bytes)
	if l.at < 0 {
		return l, false
	}
	for i := range l.list {
		l.list[i].place = l.at + skip + l.list[i].at() - begin
	}
	for i := range last {
		if l.list[i].high <= l.list[i+1].place {
			continue
		}
		// Of the last block there may be less to write than it takes.
		if l.aside = i+1 == last && 2*s.mostStored() <= storedRoom(s.blockBytes()); !l.aside {
			return l, false
		}
	}
	return l, true
}

// mostStored is what a block takes at most.
func (s *Source) mostStored() int64 { return s.blockBytes() + 1 }

// of returns the block in the memory.
func (b *laidBlock) of(p []byte) []byte { return p[b.place:][:b.stored()] }

// InPlace implements [storage.InPlaceSource].
func (s *Source) InPlace(p []byte, parts []storage.Part) (stored storage.Extent, at int64, ok bool) {
	if s.kept != nil {
		return storage.Extent{}, 0, false
	}
	l, ok := s.lay(p, parts)
	return l.stored, l.at, ok
}

// Decode implements [storage.InPlaceSource]. A block that what it stands for is written over is copied to a buffer
// first; there are few of these, and as many goroutines decode at once.
func (s *Source) Decode(ctx context.Context, p []byte, parts []storage.Part) error {
	l, ok := s.lay(p, parts)
	if !ok {
		return errors.New("BUG: blocks are to be decoded where they do not fit")
	}
	b, err := s.take(ctx)
	if err != nil {
		return err
	}
	defer func() { buffers <- b }()
	var aside []byte
	last := len(l.list) - 1
	if l.aside {
		aside = b.stored[s.mostStored():]
		aside = aside[:copy(aside, l.list[last].of(p))]
	}
	for i := range l.list {
		at := &l.list[i]
		stored := at.of(p)
		switch {
		case l.aside && i == last:
			stored = aside
		case at.high > at.place:
			stored = b.stored[:copy(b.stored, stored)]
		}
		if err := s.check(at.i, stored); err != nil {
			return at.explain(err)
		}
		if _, err := at.part(p[at.low:at.high], max(at.off(), at.offsetAt(parts)), stored, b); err != nil {
			return at.explain(err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// offsetAt is where the original has what goes to the first byte that the block is for.
func (b *laidBlock) offsetAt(parts []storage.Part) int64 {
	for _, part := range parts {
		if b.low >= part.At && b.low < part.At+part.Bytes {
			return part.Offset + b.low - part.At
		}
	}
	return b.off()
}
