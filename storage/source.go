// Package storage reads bytes: sources with positional reads, extents of sources, and files.
//
// It knows the page cache and the disk. It does not know dtypes, formats or what the bytes are for.
//
//	file, err := storage.Open("model.safetensors") // defer file.Close()
//	head := make([]byte, 8)
//	err = file.ReadAt(ctx, head, 0)
package storage

import (
	"context"
	"errors"
	"iter"
)

// A Source answers positional reads. ReadAt fills p from offset off or fails: it never returns fewer bytes without an
// error. Implementations are safe for parallel use and return promptly with ctx's error once ctx is done.
type Source interface {
	ReadAt(ctx context.Context, p []byte, off int64) error
	// Size is the number of bytes that can be read.
	Size() int64
}

// A BulkSource can also fill large aligned buffers without leaving a second copy of the bytes in the page cache.
//
// off, len(p) and the address of p are multiples of 4096, except that the last read may reach past the end of the
// source: the bytes of p after Size are then undefined, and no error is returned. Bytes that the operating system
// already holds are copied from there.
type BulkSource interface {
	Source
	ReadBulk(ctx context.Context, p []byte, off int64) error
}

// A QueuedSource is a BulkSource whose reads can also go on without anybody who waits for them.
type QueuedSource interface {
	BulkSource
	// Queue returns room for n reads that are under way, or an error where the host or the file does not have such reads.
	Queue(n int) (ReadQueue, error)
}

// A PastSource is a QueuedSource that can read what the host holds in memory from the disk all the same, which takes no
// processor's time.
type PastSource interface {
	QueuedSource
	// QueuePast is Queue for such reads: Begin does not look at what the host holds.
	QueuePast(n int) (ReadQueue, error)
	// ReadsPast reports whether there are such reads of it here.
	ReadsPast() bool
}

// A ReadQueue has reads under way that take no thread. One goroutine may use it at a time.
type ReadQueue interface {
	// Begin begins to fill p as ReadBulk does. number, less than n, names the read and is free again once Wait has returned
	// it; p must not be touched before. Begin reports false where it did not begin: ReadBulk is what to use then, because
	// it finds the bytes in memory, or says what is wrong. The disk may not know of the read until Flush or Wait is called.
	Begin(number int, p []byte, off int64) bool
	// Flush tells the disk of the reads that were begun, all at once, which takes less time than one by one.
	Flush()
	// Wait returns the number of a read that has ended, and whether p is filled; where it is not, ReadBulk says why. There
	// must be one under way. The error is that of ctx, which was looked at only where none had ended yet, or says that there
	// is no use in waiting.
	Wait(ctx context.Context) (number int, filled bool, err error)
	// Close waits for all reads to end and gives the room back. A second Close returns nil.
	Close() error
}

// A MemorySource lies in memory: weights that an embedder has there already, or a file that it has mapped. Devices that
// can copy from there do, and neither read it nor keep a copy.
type MemorySource interface {
	Source
	// Memory returns all bytes. They stay where they are, and nobody changes them, as long as anything of the source is in
	// use.
	Memory() []byte
}

// A CachedSource knows how many of its bytes the host holds in memory, from where they are read faster.
type CachedSource interface {
	Source
	// CachedBytes returns how many of n bytes from an offset on it holds, false where that cannot be found out.
	CachedBytes(off, n int64) (int64, bool)
}

// A Guarded source knows whether its bytes may have changed since it was opened.
type Guarded interface {
	Source
	// Unchanged returns nil, or an error that names the source and wraps [ErrChanged].
	Unchanged() error
}

// ErrChanged says that a source is not what it was when it was opened.
var ErrChanged = errors.New("has changed since it was opened")

// A StoredSource makes its bytes of fewer: it reads blocks of a file and hands out what they stand for.
type StoredSource interface {
	Source
	// StoredBytes returns how many bytes of the file a read of n bytes from an offset on takes.
	StoredBytes(off, n int64) int64
}

// A PackedSource is a StoredSource whose blocks are decoded by who reads, on the host's processors.
type PackedSource interface {
	StoredSource
	// BlockBytes is how many bytes a block stands for, or more.
	BlockBytes() int64
	// Cut returns how much of n bytes from an offset on a read of at most so many bytes is to bring, so that it ends where a
	// block does and its blocks lie one behind the other.
	Cut(off, n, most int64) int64
	// BufferBytes is the memory that reads of all such sources of a process take together, however many there are at
	// once.
	BufferBytes() int64
}

// An InPlaceSource is a PackedSource whose blocks can be read into the memory that what they stand for is to fill, and be
// decoded there: to read ahead takes no other memory then.
type InPlaceSource interface {
	PackedSource
	// InPlace returns the aligned read of the file that brings the blocks with something of some parts, and where in the
	// memory p for these it is to lie; false where it would not fit there, or there is more than one.
	InPlace(p []byte, parts []Part) (stored Extent, at int64, ok bool)
	// Decode brings the parts to their places in p, out of blocks that were read into it as InPlace says, and checks these.
	// What is between parts, and behind the end of the source, is undefined.
	Decode(ctx context.Context, p []byte, parts []Part) error
}

// A Part is bytes of a source and where in a memory they go. Parts are in the order of the memory.
type Part struct{ Offset, Bytes, At int64 }

// A KeepingSource is a PackedSource of which blocks can stay in memory as the file has them.
type KeepingSource interface {
	PackedSource
	// ReadStored fills p, StoredBytes(off, n) long, with the blocks that have something of n bytes from an offset on, and
	// checks them.
	ReadStored(ctx context.Context, p []byte, off, n int64) error
	// Kept returns a source of the same bytes that decodes those blocks out of p, which ReadStored filled and nobody
	// changes as long as the source is in use, and reads nothing of the file. It has none of the other bytes.
	Kept(p []byte, off, n int64) PackedSource
}

// A BlockSource is a PackedSource whose blocks a device may be given as the file has them, to decode them itself.
type BlockSource interface {
	PackedSource
	// File is what the blocks are read from.
	File() Source
	// Blocks goes through the blocks that have something of n bytes from an offset on, in the order of these.
	Blocks(off, n int64) iter.Seq[Block]
	// CheckBlock returns an error unless a block is the file's, and decodes. What it accepts a device may decode without
	// looking at it.
	CheckBlock(b Block, stored []byte) error
}

// A Block stands for Bytes of a source from Offset on, and has Stored bytes of the file from At on.
type Block struct {
	Number        int
	Offset, Bytes int64
	At, Stored    int64
}

// Packed returns the packed source that a source is, or reads from; false where there is none.
func Packed(s Source) (PackedSource, bool) {
	for s != nil {
		if p, ok := s.(PackedSource); ok {
			return p, true
		}
		over, ok := s.(interface{ Raw() Source })
		if !ok {
			break
		}
		s = over.Raw()
	}
	return nil, false
}
