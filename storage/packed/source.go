package packed

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/optimem/optimem/storage"
)

var (
	_ storage.BulkSource    = (*Source)(nil)
	_ storage.KeepingSource = (*Source)(nil)
	_ storage.CachedSource  = (*Source)(nil)
	_ storage.Guarded       = (*Source)(nil)
	_ storage.PlacedSource  = (*Source)(nil)
)

// readBytes are read from the file at once, or one block where that takes more.
const readBytes = 256 << 10

// A buffer is what one read takes.
type buffer struct {
	// stored has room for what is read, aligned, with what an aligned read takes before and behind.
	stored []byte
	// block has room for a block of which not all is asked for, halves for the upper halves of float32.
	block  []byte
	halves []byte
	// list has the blocks that are read at once.
	list []block
}

// buffers has those that are not in use, nil for those that were not made yet: there are never more, whoever reads.
var buffers = func() chan *buffer {
	c := make(chan *buffer, storage.DefaultInFlight)
	for range cap(c) {
		c <- nil
	}
	return c
}()

// storedRoom and bufferRoom are what a buffer takes for blocks of so many bytes.
func storedRoom(block int64) int64 { return max(readBytes, block+1) + 2*storage.AlignBytes }
func bufferRoom(block int64) int64 { return storedRoom(block) + storage.AlignBytes + block + block/2 }

// BufferBytes implements [storage.PackedSource]: all sources of a process have the same buffers.
func (s *Source) BufferBytes() int64 { return storage.DefaultInFlight * bufferRoom(s.blockBytes()) }

// take waits for a buffer.
func (s *Source) take(ctx context.Context) (*buffer, error) {
	select {
	case b := <-buffers:
		if n := s.blockBytes(); b == nil || int64(len(b.block)) < n {
			b = &buffer{stored: storage.AlignedBytes(storedRoom(n)), block: make([]byte, n), halves: make([]byte, n/2)}
		}
		return b, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Disk implements [storage.PlacedSource]: the packed file's.
func (s *Source) Disk() storage.Disk { return storage.DiskOf(s.raw) }

// ReadAt implements [storage.Source].
func (s *Source) ReadAt(ctx context.Context, p []byte, off int64) error {
	return s.read(ctx, p, off, false)
}

// ReadBulk implements [storage.BulkSource]: blocks are read past the page cache where the file can.
func (s *Source) ReadBulk(ctx context.Context, p []byte, off int64) error {
	if over := off + int64(len(p)) - s.size; over > 0 {
		p = p[:max(int64(len(p))-over, 0)]
	}
	return s.read(ctx, p, off, true)
}

func (s *Source) read(ctx context.Context, p []byte, off int64, bulk bool) error {
	n := int64(len(p))
	if off < 0 || off > s.size || n > s.size-off {
		return fmt.Errorf("read %d bytes at %d of %d packed ones: %w", n, off, s.size, io.ErrUnexpectedEOF)
	}
	if err := ctx.Err(); err != nil || n == 0 {
		return err
	}
	return s.each(ctx, off, n, bulk, func(at block, stored []byte, b *buffer) error {
		k, err := at.part(p, off, stored, b)
		p, off = p[k:], off+int64(k)
		return err
	})
}

// each calls a function with blocks as they are in the file, one after the other.
func (s *Source) each(ctx context.Context, off, n int64, bulk bool,
	do func(at block, stored []byte, b *buffer) error) error {
	b, err := s.take(ctx)
	if err != nil {
		return err
	}
	defer func() { buffers <- b }()
	room := int64(len(b.stored)) - 2*storage.AlignBytes
	b.list = b.list[:0]
	var bytes int64
	for at := range s.blocks(off, n) { // as many at once as lie one behind the other and there is room for
		if k := len(b.list); k > 0 && (at.at() != b.list[0].at()+bytes || bytes+at.stored() > room) {
			if err := s.some(ctx, b, bytes, bulk, do); err != nil {
				return err
			}
			b.list, bytes = b.list[:0], 0
		}
		b.list, bytes = append(b.list, at), bytes+at.stored()
	}
	return s.some(ctx, b, bytes, bulk, do)
}

// some does so with those in a buffer's list.
func (s *Source) some(
	ctx context.Context, b *buffer, bytes int64, bulk bool, do func(at block, stored []byte, b *buffer) error,
) error {
	if len(b.list) == 0 {
		return nil
	}
	stored, err := s.fetch(ctx, b, b.list[0].at(), bytes, bulk)
	if err != nil {
		return err
	}
	for _, at := range b.list {
		if err := s.check(at.i, stored[:at.stored()]); err != nil {
			return at.explain(err)
		}
		if err := do(at, stored[:at.stored()], b); err != nil {
			return at.explain(err)
		}
		stored = stored[at.stored():]
	}
	return ctx.Err()
}

// check compares a block with its checksum. Those that stay in memory were checked when they came there.
func (s *Source) check(i int, stored []byte) error {
	if s.kept != nil {
		return nil
	}
	if sum := crc32.Checksum(stored, castagnoli); sum != s.sums[i] {
		return corrupt("its checksum is %08x, not %08x", sum, s.sums[i])
	}
	return nil
}

// fetch reads bytes of the file, which are in the buffer until the next call, or finds them in memory.
func (s *Source) fetch(ctx context.Context, b *buffer, off, n int64, bulk bool) ([]byte, error) {
	if s.kept != nil {
		for _, r := range s.keptRuns {
			if at := off - r.at; at >= 0 && n <= r.bytes-at {
				return s.kept[r.place+at:][:n], nil
			}
		}
		return nil, fmt.Errorf("%d bytes at %d of a packed file do not stay: %w", n, off, io.ErrUnexpectedEOF)
	}
	if source, ok := s.raw.(storage.BulkSource); ok && bulk {
		around, skip := storage.Extent{Source: s.raw, Offset: off, Bytes: n}.Aligned()
		into := b.stored[:around.Bytes]
		return into[skip:][:n], source.ReadBulk(ctx, into, around.Offset)
	}
	into := b.stored[:n]
	return into, s.raw.ReadAt(ctx, into, off)
}

// part writes what a block has of the bytes from off on to p, and returns how many these are.
func (b block) part(p []byte, off int64, stored []byte, room *buffer) (int, error) {
	size, skip := int(b.end()-b.off()), int(off-b.off())
	if skip == 0 && len(p) >= size {
		return size, decode(p[:size], stored, room.halves)
	}
	if err := decode(room.block[:size], stored, room.halves); err != nil {
		return 0, err
	}
	return copy(p, room.block[skip:size]), nil
}

// explain says where what is wrong lies.
func (b block) explain(err error) error {
	var bad *CorruptError
	if !errors.As(err, &bad) {
		return err
	}
	placed := &CorruptError{Offset: b.off(), Bytes: b.end() - b.off(), Reason: bad.Reason}
	if b.s.Explain != nil {
		return b.s.Explain(placed)
	}
	return placed
}

// Verify reads and decodes everything, once.
func (s *Source) Verify(ctx context.Context) error {
	p := storage.AlignedBytes(s.blockBytes())
	for off := int64(0); off < s.size; off += int64(len(p)) {
		if err := s.ReadBulk(ctx, p, off); err != nil {
			return err
		}
	}
	return nil
}
