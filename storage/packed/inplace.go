package packed

import (
	"context"
	"fmt"

	"github.com/optimem/optimem/storage"
)

var _ storage.InPlaceSource = (*Source)(nil)

// A laid is where blocks lie in the memory that what they stand for is to fill: at its end, one behind the other. They
// are decoded from the first on, so that what is written comes up behind those that were not decoded yet.
type laid struct {
	s          *Source
	first, end int
	// off is where the bytes begin that the memory is for, at where in the memory the aligned read begins that has the
	// blocks, and begin where the first of them does.
	off, at, begin int64
	// aside says that the last block has to be put aside first, since others are written over it.
	aside bool
}

// lay lays the blocks with something of n bytes from an offset on; false where they do not fit.
func (s *Source) lay(off, n int64) (l laid, ok bool) {
	l = laid{s: s, off: off}
	if l.first, l.end = s.blocksOf(off, n); off < 0 || l.first == l.end {
		return l, false
	}
	around, skip := s.stored(l.first, l.end).Aligned()
	if around.Bytes > n {
		return l, false
	}
	l.at = (n - around.Bytes) &^ (storage.AlignBytes - 1)
	l.begin = l.at + skip
	for i := l.first; i+1 < l.end; i++ {
		if l.written(i) <= l.place(i+1) {
			continue
		}
		// Of the last block there may be less to write than it takes.
		if l.aside = i+1 == l.end-1 && 2*s.mostStored() <= storedRoom(s.blockBytes()); !l.aside {
			return l, false
		}
	}
	return l, true
}

// stored is what the file has of blocks.
func (s *Source) stored(first, end int) storage.Extent {
	return storage.Extent{Source: s.raw, Offset: s.at[first], Bytes: s.at[end] - s.at[first]}
}

// mostStored is what a block takes at most.
func (s *Source) mostStored() int64 { return s.blockBytes() + 1 }

// place is where a block begins in the memory.
func (l *laid) place(i int) int64 { return l.begin + l.s.at[i] - l.s.at[l.first] }

// written is how much of the memory is filled once a block and those before it are decoded.
func (l *laid) written(i int) int64 { return min(int64(i+1)<<l.s.blockShift, l.s.size) - l.off }

// of returns a block, in the memory.
func (l *laid) of(p []byte, i int) []byte { return p[l.place(i):][:l.s.at[i+1]-l.s.at[i]] }

// InPlace implements [storage.InPlaceSource].
func (s *Source) InPlace(off, n int64) (stored storage.Extent, at int64, ok bool) {
	if s.kept != nil {
		return storage.Extent{}, 0, false
	}
	l, ok := s.lay(off, n)
	if !ok {
		return storage.Extent{}, 0, false
	}
	around, _ := s.stored(l.first, l.end).Aligned()
	return around, l.at, true
}

// Decode implements [storage.InPlaceSource]. A block that what it stands for is written over is copied to a buffer
// first, as all buffers are one of few: as many goroutines decode at once.
func (s *Source) Decode(ctx context.Context, p []byte, off int64) error {
	l, ok := s.lay(off, int64(len(p)))
	if !ok {
		return fmt.Errorf("BUG: %d bytes at %d are not decoded in place", len(p), off)
	}
	b, err := s.take(ctx)
	if err != nil {
		return err
	}
	defer func() { buffers <- b }()
	var last []byte
	if l.aside {
		last = b.stored[s.mostStored():]
		last = last[:copy(last, l.of(p, l.end-1))]
	}
	into := p[:min(int64(len(p)), s.size-off)]
	for i := l.first; i < l.end; i++ {
		stored := l.of(p, i)
		switch {
		case l.aside && i == l.end-1:
			stored = last
		case l.written(i) > l.place(i):
			stored = b.stored[:copy(b.stored, stored)]
		}
		if err := s.check(i, stored); err != nil {
			return s.explain(i, err)
		}
		k, err := s.block(into, off, i, stored, b)
		if err != nil {
			return s.explain(i, err)
		}
		into, off = into[k:], off+int64(k)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}
