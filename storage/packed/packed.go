// Package packed has files of fewer bytes from which every bit of another file comes back: any file whose bytes are
// mostly numbers of float32, bfloat16 or float16, whatever its format. Sign and fraction of such a number are as good
// as random; its exponent is one of a few. So a number's exponent becomes a code of a few bits that stands for one of
// the commonest exponents of its block, or says that the exponent itself is written elsewhere: two lengths of codes,
// which processors decode many at a time. Blocks are decoded by themselves, in any order and by any number of
// goroutines, and have a checksum each.
//
// It knows bytes, and how the bits of floating-point numbers lie. It does not know formats, tensors or who reads.
//
//	stats, err := packed.Write(ctx, source, file, packed.Options{})
//	…
//	original, err := packed.Open(ctx, source, nil) // a storage.Source of the bytes as they were
//
// # The file
//
// All integers are little-endian.
//
//	 0  "OPTIPACK"
//	 8  uint32   version: 2
//	12  uint32   how many bytes of the original a block stands for at most: a power of two from 16 KiB to 1 MiB
//	16  uint64   how many bytes the original has
//	24  uint32   CRC-32C of the 24 bytes before, then of all from 28 up to the blocks
//	28  uint32   how many runs there are
//	32  runs     for each: uint64 where it begins in the original, uint64 how many bytes it has
//	    table    for each block: uint32 how many bytes it takes, uint32 their CRC-32C
//	    blocks   one after the other, in order, up to the end of the file
//
// Runs are parts of the original, none empty, which together are all of it and have nothing twice. They are in the order
// in which whoever reads is expected to want them. Blocks begin anew with each run, of which the last may stand for less.
//
// Files of version 1 have no runs, and 0 at 28, which is not in the checksum: all of the original is one.
//
// A block begins with a byte that says how it is written (see block.go). One that gains nothing is written as it is.
package packed

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/bits"

	"github.com/optimem/optimem/storage"
)

// Magic is what packed files begin with.
const Magic = "OPTIPACK"

const (
	version    = 2
	headBytes  = 32
	runBytes   = 16
	entryBytes = 8
	// DefaultBlockBytes is what blocks stand for in files that are written here: little enough to be decoded for a row
	// of an embedding, and for what is decoded to stay in a processor's cache.
	DefaultBlockBytes = 128 << 10
	leastBlockBytes   = 16 << 10
	mostBlockBytes    = 1 << 20
	// mostGain is how many bytes one can stand for: no block has less than a byte for each number.
	mostGain = 4
)

// ErrVersion says that a file is packed in a way that is not known here.
var ErrVersion = errors.New("packed in another way")

// A CorruptError says that a file is not as [Write] writes it.
type CorruptError struct {
	// Offset and Bytes are of the original's bytes that do not come back; Bytes is 0 where it is all of them.
	Offset, Bytes int64
	Reason        string
}

// Error says what is wrong, and where.
func (e *CorruptError) Error() string {
	if e.Bytes == 0 {
		return e.Reason
	}
	return fmt.Sprintf("the block for the bytes %d to %d: %s", e.Offset, e.Offset+e.Bytes-1, e.Reason)
}

func corrupt(format string, args ...any) error {
	return &CorruptError{Reason: fmt.Sprintf(format, args...)}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A Source has the bytes of the original. It may be used from several goroutines.
type Source struct {
	raw        storage.Source
	size       int64
	blockShift uint
	// runs are those of the original, in its order.
	runs []run
	// at has where each block begins in the file, and the end of the last; sums their checksums.
	at   []int64
	sums []uint32
	// kept has blocks in memory that are not read from the file, keptRuns which; nil for none.
	kept     []byte
	keptRuns []keptRun
	// Explain, where it is not nil, says what is wrong in other words, such as the name of what lies there. It is set
	// before anything is read.
	Explain func(*CorruptError) error
}

// IsPacked reports whether a file that begins so is packed.
func IsPacked(head []byte) bool { return len(head) >= len(Magic) && string(head[:len(Magic)]) == Magic }

// tableCost and runCost are what Open charges for each block and run, with what tables in memory may leave unused.
const (
	tableCost = 16
	runCost   = 64
)

// Open reads the head and the table of a packed file. charge, which may be nil, is told of memory before it is taken,
// and refuses with an error. The file is not closed with the source: there is nothing to close.
func Open(ctx context.Context, raw storage.Source, charge func(nBytes int64) error) (*Source, error) {
	var head [headBytes]byte
	if raw.Size() < headBytes {
		return nil, corrupt("%d bytes are too few for a packed file", raw.Size())
	}
	if err := raw.ReadAt(ctx, head[:], 0); err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	block, size, runs := int64(le.Uint32(head[12:])), le.Uint64(head[16:]), int64(le.Uint32(head[28:]))
	v := le.Uint32(head[8:])
	switch {
	case !IsPacked(head[:]):
		return nil, corrupt("it does not begin with %s", Magic)
	case v < 1 || v > version:
		return nil, fmt.Errorf("%w: version %d, and %d is known", ErrVersion, v, version)
	case block < leastBlockBytes || block > mostBlockBytes || block&(block-1) != 0:
		return nil, corrupt("blocks of %d bytes", block)
	case v == 1 && runs != 0:
		return nil, corrupt("a head that has more than is known")
	case runs > (raw.Size()-headBytes)/runBytes:
		return nil, corrupt("%d runs in %d bytes", runs, raw.Size())
	}
	// What a file stands for is bounded before memory is taken for its table.
	if most := uint64(raw.Size()-headBytes) * mostGain; size > most {
		return nil, corrupt("%d bytes cannot come from %d", size, raw.Size())
	}
	s := &Source{raw: raw, size: int64(size), blockShift: uint(bits.TrailingZeros64(uint64(block)))}
	if charge == nil {
		charge = func(int64) error { return nil }
	}
	if err := charge(runs * runCost); err != nil {
		return nil, err
	}
	sum := crc32.Checksum(head[:24], castagnoli)
	order, err := []run{{end: s.size}}, error(nil)
	if v > 1 {
		sum = crc32.Update(sum, castagnoli, head[28:])
		if order, sum, err = s.readRuns(ctx, int(runs), sum); err != nil {
			return nil, err
		}
	}
	blocks := s.number(order)
	if blocks > (raw.Size()-headBytes-runs*runBytes)/entryBytes {
		return nil, corrupt("a table of %d blocks in %d bytes", blocks, raw.Size())
	}
	if err := charge(blocks * tableCost); err != nil {
		return nil, err
	}
	if err := s.readTable(ctx, order, runs, int(blocks), sum, le.Uint32(head[24:])); err != nil {
		return nil, err
	}
	return s, s.sortRuns(order)
}

// readTable reads where blocks lie, and checks that they are all of the file.
func (s *Source) readTable(ctx context.Context, order []run, runs int64, blocks int, sum, want uint32) error {
	begin := headBytes + runs*runBytes
	s.at, s.sums = make([]int64, blocks+1), make([]uint32, blocks)
	s.at[0] = begin + int64(blocks)*entryBytes
	const most = 8192 // entries at a time
	buf := make([]byte, min(blocks, most)*entryBytes)
	k := 0 // the run of a block
	for first := 0; first < blocks; first += most {
		part := buf[:min(blocks-first, most)*entryBytes]
		if err := s.raw.ReadAt(ctx, part, begin+int64(first)*entryBytes); err != nil {
			return err
		}
		sum = crc32.Update(sum, castagnoli, part)
		for i := first; len(part) > 0; i++ {
			for k+1 < len(order) && i >= order[k+1].first {
				k++
			}
			n, of := int64(binary.LittleEndian.Uint32(part)), s.blockLen(&order[k], i)
			if n < 2 || n > of+1 || n < of/mostGain {
				return corrupt("block %d takes %d bytes for %d", i, n, of)
			}
			s.at[i+1], s.sums[i] = s.at[i]+n, binary.LittleEndian.Uint32(part[4:])
			part = part[entryBytes:]
		}
	}
	switch {
	case sum != want:
		return corrupt("the checksum of the table is %08x, not %08x", sum, want)
	case s.at[blocks] != s.raw.Size():
		return corrupt("the blocks end at %d, the file at %d", s.at[blocks], s.raw.Size())
	}
	return nil
}

// blockBytes is how many bytes a block stands for, but for the last one.
func (s *Source) blockBytes() int64 { return 1 << s.blockShift }

// Size implements [storage.Source].
func (s *Source) Size() int64 { return s.size }

// PackedBytes is how many bytes the file has.
func (s *Source) PackedBytes() int64 { return s.raw.Size() }

// StoredBytes implements [storage.StoredSource].
func (s *Source) StoredBytes(off, n int64) (stored int64) {
	for c := range s.blocks(off, n) {
		stored += c.stored()
	}
	return stored
}

// BlockBytes implements [storage.PackedSource].
func (s *Source) BlockBytes() int64 { return s.blockBytes() }

// CachedBytes implements [storage.CachedSource]: the share of the blocks that the host holds, of the bytes asked for.
func (s *Source) CachedBytes(off, n int64) (int64, bool) {
	cached, ok := s.raw.(storage.CachedSource)
	if !ok {
		return 0, false
	}
	var stored, held int64
	for at, bytes := range s.inFile(off, n) {
		have, ok := cached.CachedBytes(at, bytes)
		if !ok {
			return 0, false
		}
		stored, held = stored+bytes, held+have
	}
	if stored == 0 {
		return 0, false
	}
	return int64(float64(n) * float64(held) / float64(stored)), true
}

// Unchanged implements [storage.Guarded].
func (s *Source) Unchanged() error {
	if g, ok := s.raw.(storage.Guarded); ok {
		return g.Unchanged()
	}
	return nil
}
