package packed

import (
	"cmp"
	"context"
	"encoding/binary"
	"hash/crc32"
	"iter"
	"slices"
	"sort"
)

// A Run is a part of the original whose blocks lie one after the other.
type Run struct{ Offset, Bytes int64 }

// A run is one of a file: bytes of the original, and the number of its first block.
type run struct {
	off, end int64
	first    int
}

// readRuns reads the runs of a file, in the order in which their blocks lie there.
func (s *Source) readRuns(ctx context.Context, n int, sum uint32) (order []run, _ uint32, err error) {
	const most = 4096 // runs at a time
	order = make([]run, 0, n)
	buf := make([]byte, min(n, most)*runBytes)
	for len(order) < n {
		part := buf[:min(n-len(order), most)*runBytes]
		if err := s.raw.ReadAt(ctx, part, headBytes+int64(len(order))*runBytes); err != nil {
			return nil, 0, err
		}
		sum = crc32.Update(sum, castagnoli, part)
		for ; len(part) > 0; part = part[runBytes:] {
			off, bytes := binary.LittleEndian.Uint64(part), binary.LittleEndian.Uint64(part[8:])
			if size := uint64(s.size); bytes == 0 || off > size || bytes > size-off {
				return nil, 0, corrupt("a run of %d bytes at %d of %d", bytes, off, size)
			}
			order = append(order, run{off: int64(off), end: int64(off + bytes)})
		}
	}
	return order, sum, nil
}

// number gives runs the numbers of their blocks, and returns how many blocks there are, or too many.
func (s *Source) number(order []run) (blocks int64) {
	for i := range order {
		order[i].first = int(blocks)
		if blocks > s.raw.Size() { // more than there can be
			break
		}
		blocks += (order[i].end - order[i].off + s.blockBytes() - 1) >> s.blockShift
	}
	return blocks
}

// sortRuns takes the runs over, and checks that they are all of the original, and nothing twice.
func (s *Source) sortRuns(order []run) error {
	slices.SortFunc(order, func(a, b run) int { return cmp.Compare(a.off, b.off) })
	at := int64(0)
	for _, r := range order {
		if r.off != at {
			return corrupt("a run begins at %d, the one before it ends at %d", r.off, at)
		}
		at = r.end
	}
	if at != s.size {
		return corrupt("the runs end at %d of %d", at, s.size)
	}
	s.runs = order
	return nil
}

// blockLen is how many bytes a block of a run stands for.
func (s *Source) blockLen(r *run, i int) int64 {
	return min(s.blockBytes(), r.end-r.off-int64(i-r.first)<<s.blockShift)
}

// A block is one that has something of a range of bytes.
type block struct {
	s *Source
	r *run
	i int
}

// off and end are the bytes of the original that the block stands for, at where it lies in the file, and stored how many
// bytes it has there.
func (b block) off() int64    { return b.r.off + int64(b.i-b.r.first)<<b.s.blockShift }
func (b block) end() int64    { return b.off() + b.s.blockLen(b.r, b.i) }
func (b block) at() int64     { return b.s.at[b.i] }
func (b block) stored() int64 { return b.s.at[b.i+1] - b.s.at[b.i] }

// blocks goes through the blocks that have something of a range, in the order of the original.
func (s *Source) blocks(off, n int64) iter.Seq[block] {
	return func(yield func(block) bool) {
		off = max(off, 0)
		end := off + min(max(n, 0), s.size-off)
		if off >= end {
			return
		}
		k := sort.Search(len(s.runs), func(i int) bool { return s.runs[i].end > off })
		for ; off < end; k++ {
			r := &s.runs[k]
			for b := (block{s, r, r.first + int((off-r.off)>>s.blockShift)}); off < min(end, r.end); b.i++ {
				if !yield(b) {
					return
				}
				off = b.end()
			}
		}
	}
}

// inFile goes through where in the file the blocks lie that have something of a range: those together that lie one behind
// the other.
func (s *Source) inFile(off, n int64) iter.Seq2[int64, int64] {
	return func(yield func(at, bytes int64) bool) {
		var at, bytes int64
		for b := range s.blocks(off, n) {
			if bytes > 0 && b.at() == at+bytes {
				bytes += b.stored()
				continue
			}
			if bytes > 0 && !yield(at, bytes) {
				return
			}
			at, bytes = b.at(), b.stored()
		}
		if bytes > 0 {
			yield(at, bytes)
		}
	}
}

// Cut implements [storage.PackedSource].
func (s *Source) Cut(off, n, most int64) int64 {
	whole, next := int64(0), int64(-1)
	for b := range s.blocks(off, n) {
		if whole > 0 && b.at() != next {
			return whole
		}
		size := b.end() - off
		if size > most {
			if n <= most { // the last of them
				return n
			}
			break
		}
		whole, next = size, b.at()+b.stored()
	}
	if n <= most {
		return n
	}
	if whole == 0 {
		return most
	}
	return whole
}
