package packed

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	goruntime "runtime"
	"sync"

	"github.com/optimem/optimem/storage"
)

// Options say how a file is packed. The zero value is right.
type Options struct {
	// Threads is how many goroutines encode; 0 is one for each processor. The file is the same for any number.
	Threads int
	// Progress, where it is not nil, is told of the bytes of the original as they are done.
	Progress func(nBytes int64)
	// Begun, where it is not nil, has what a Write that did not end left in the place that is written to. Blocks of it
	// that come back as the original's bytes are not written again, up to the first that does not. What lies behind the
	// end of the packed file then is the caller's to cut off.
	Begun io.ReaderAt
	// Runs are the parts of the original in the order in which their blocks are to lie, each byte in one of them, and none
	// empty; nil for all of it as it lies. Blocks begin anew with each: what is read by itself is best a run, or several
	// one behind the other.
	Runs []Run
}

// Stats say what became of a file.
type Stats struct {
	// Bytes are the original's, PackedBytes the packed file's.
	Bytes, PackedBytes int64
	// BFloat16Bytes, Float16Bytes and Float32Bytes are the original's that were written as numbers of that kind,
	// AsIsBytes those that were written as they are.
	BFloat16Bytes, Float16Bytes, Float32Bytes, AsIsBytes int64
}

// Add adds what became of another file.
func (s *Stats) Add(other Stats) {
	s.Bytes, s.PackedBytes = s.Bytes+other.Bytes, s.PackedBytes+other.PackedBytes
	s.BFloat16Bytes, s.Float16Bytes = s.BFloat16Bytes+other.BFloat16Bytes, s.Float16Bytes+other.Float16Bytes
	s.Float32Bytes, s.AsIsBytes = s.Float32Bytes+other.Float32Bytes, s.AsIsBytes+other.AsIsBytes
}

// Gains reports whether packing gains anything worth having: less would only cost the time to decode it.
func (s *Stats) Gains() bool { return float64(s.PackedBytes) <= float64(s.Bytes)*(1-least) }

// A job is a block on its way.
type job struct {
	p, stored, again, halves []byte
	method                   int
	err                      error
}

// Write writes a packed file. Every block is decoded again and compared before it counts as written. It holds some
// blocks for each thread, whatever the size of the file, and the table.
func Write(ctx context.Context, from storage.Source, to io.WriterAt, o Options) (stats Stats, err error) {
	w, err := newWriting(from, o.Runs)
	if err != nil {
		return stats, err
	}
	blocks, head, le := int64(len(w.blocks)), w.head, binary.LittleEndian
	table := int64(len(head))
	at := table + blocks*entryBytes
	threads := o.Threads
	if threads <= 0 {
		threads = goruntime.GOMAXPROCS(0)
	}
	const each = 4 // blocks for each thread at a time
	jobs := make([]job, min(int64(threads*each), max(blocks, 1)))
	begun := int64(0)
	if o.Begun != nil {
		list, err := w.takeOver(ctx, o, &stats)
		if err != nil {
			return stats, err
		}
		begun, head = int64(len(list))/entryBytes, append(head, list...)
		at += stats.PackedBytes
	}
	for first := begun; first < blocks; first += int64(len(jobs)) {
		batch := jobs[:min(int64(len(jobs)), blocks-first)]
		for i := range batch {
			of := w.blocks[first+int64(i)]
			batch[i].room(of.Bytes)
			if err := from.ReadAt(ctx, batch[i].p, of.Offset); err != nil {
				return stats, err
			}
		}
		encodeAll(batch, threads)
		for i := range batch {
			j := &batch[i]
			if j.err != nil {
				return stats, fmt.Errorf("block %d: %w", first+int64(i), j.err)
			}
			if _, err := to.WriteAt(j.stored, at); err != nil {
				return stats, err
			}
			head = le.AppendUint32(head, uint32(len(j.stored)))
			head = le.AppendUint32(head, crc32.Checksum(j.stored, castagnoli))
			at += int64(len(j.stored))
			stats.count(j)
			if o.Progress != nil {
				o.Progress(int64(len(j.p)))
			}
		}
		// Who goes on after this process ends finds the blocks by the table; the head comes last.
		if _, err := to.WriteAt(head[table+first*entryBytes:], table+first*entryBytes); err != nil {
			return stats, err
		}
		if err := ctx.Err(); err != nil {
			return stats, err
		}
	}
	le.PutUint32(head[24:], crc32.Update(crc32.Checksum(head[:24], castagnoli), castagnoli, head[28:]))
	stats.PackedBytes = at
	_, err = to.WriteAt(head, 0)
	return stats, err
}

// A writing is a file that is written: its head with the runs, and the parts of the original that blocks stand for.
type writing struct {
	from   storage.Source
	head   []byte
	blocks []Run
}

// newWriting returns the beginning of a file. A packed file has what its runs say, so that they are checked here.
func newWriting(from storage.Source, runs []Run) (*writing, error) {
	size := from.Size()
	if len(runs) == 0 && size > 0 {
		runs = []Run{{0, size}}
	}
	w := &writing{from: from, head: make([]byte, headBytes)}
	copy(w.head, Magic)
	le := binary.LittleEndian
	le.PutUint32(w.head[8:], version)
	le.PutUint32(w.head[12:], DefaultBlockBytes)
	le.PutUint64(w.head[16:], uint64(size))
	le.PutUint32(w.head[28:], uint32(len(runs)))
	s := &Source{size: size}
	var order []run
	for _, r := range runs {
		if r.Offset < 0 || r.Bytes <= 0 || r.Bytes > size-r.Offset {
			return nil, fmt.Errorf("a run of %d bytes at %d of %d", r.Bytes, r.Offset, size)
		}
		order = append(order, run{off: r.Offset, end: r.Offset + r.Bytes})
		w.head = le.AppendUint64(le.AppendUint64(w.head, uint64(r.Offset)), uint64(r.Bytes))
		for at := int64(0); at < r.Bytes; at += DefaultBlockBytes {
			w.blocks = append(w.blocks, Run{r.Offset + at, min(DefaultBlockBytes, r.Bytes-at)})
		}
	}
	return w, s.sortRuns(order)
}

// takeOver returns the entries of the blocks that an earlier Write left and that come back as they should, and counts
// them.
func (w *writing) takeOver(ctx context.Context, o Options, stats *Stats) (entries []byte, err error) {
	var j job
	table := int64(len(w.head))
	at := table + int64(len(w.blocks))*entryBytes
	entry := make([]byte, entryBytes)
	for i, of := range w.blocks {
		j.room(of.Bytes)
		if _, err := o.Begun.ReadAt(entry, table+int64(i)*entryBytes); err != nil {
			break
		}
		n := int64(binary.LittleEndian.Uint32(entry))
		if n < 2 || n > int64(len(j.p))+1 {
			break
		}
		j.stored = j.stored[:n]
		_, err := o.Begun.ReadAt(j.stored, at)
		again := j.again[:len(j.p)]
		if err != nil || crc32.Checksum(j.stored, castagnoli) != binary.LittleEndian.Uint32(entry[4:]) ||
			decode(again, j.stored, j.halves) != nil {
			break
		}
		if err := w.from.ReadAt(ctx, j.p, of.Offset); err != nil {
			return nil, err
		}
		if !bytes.Equal(again, j.p) {
			break
		}
		j.method = int(j.stored[0])
		stats.count(&j)
		entries, at = append(entries, entry...), at+n
		stats.PackedBytes += n
		if o.Progress != nil {
			o.Progress(of.Bytes)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// room makes room for a block.
func (j *job) room(n int64) {
	if j.p == nil {
		j.p, j.again, j.halves = make([]byte, DefaultBlockBytes), make([]byte, DefaultBlockBytes),
			make([]byte, DefaultBlockBytes/2)
		j.stored = make([]byte, 0, DefaultBlockBytes+blockHead)
	}
	j.p = j.p[:n]
}

// encodeAll encodes blocks, and looks whether they come back.
func encodeAll(batch []job, threads int) {
	var group sync.WaitGroup
	for t := range min(threads, len(batch)) {
		group.Go(func() {
			for i := t; i < len(batch); i += threads {
				batch[i].encode()
			}
		})
	}
	group.Wait()
}

func (j *job) encode() {
	j.stored, j.method = encode(j.stored[:0], j.p)
	again := j.again[:len(j.p)]
	if j.err = decode(again, j.stored, j.halves); j.err == nil && !bytes.Equal(again, j.p) {
		j.err = fmt.Errorf("BUG: written as %d it does not come back", j.method)
	}
}

func (s *Stats) count(j *job) {
	n := int64(len(j.p))
	s.Bytes += n
	switch j.method {
	case kindBF16:
		s.BFloat16Bytes += n
	case kindF16:
		s.Float16Bytes += n
	case kindF32:
		s.Float32Bytes += n
	default:
		s.AsIsBytes += n
	}
}
