package encoded

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"sort"
	"sync"

	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// A Run is a weight as it lies in a file: rows of numbers in one encoding.
type Run struct {
	Encoding *Encoding
	// Offset is where it lies in the file.
	Offset int64
	// Rows are of RowElements numbers each, whole blocks.
	Rows, RowElements int64
	// Heads, where it is not 0, is of how many heads the rows are whose halves are interleaved in the file: row 2i of a head
	// is row i of the model's, and row 2i + 1 is row i of its second half.
	Heads int64
	// Plus is added to every number; where it is not 0 they are float32.
	Plus float32
}

// DType is that of the numbers as the source has them.
func (r *Run) DType() tensor.DType {
	if r.Plus != 0 {
		return tensor.Float32
	}
	return r.Encoding.Decodes()
}

// alignBytes is what the runs of a source begin at multiples of. A read of [storage.AlignBytes] then never cuts a block, so
// that no block is read twice.
const alignBytes = mostElements * 4

// A Source has the numbers of the runs of another source, one run after the other. It reads blocks and decodes them; what it is
// asked for is never kept. It may be used from several goroutines.
type Source struct {
	raw  storage.Source
	runs []placed
	size int64
	// rows has the blocks of those runs whose rows lie in another order in the file, as they are but in the model's order;
	// rowsAt is where in it a run begins.
	rows   *Source
	rowsAt map[int]int64
}

// A placed run has its place in the source.
type placed struct {
	Run
	at, bytes int64
	// rowBytes are of a row in this source, rowStored of one in the file, width of a number.
	rowBytes, rowStored, width int64
}

var (
	_ storage.BulkSource   = (*Source)(nil)
	_ storage.StoredSource = (*Source)(nil)
	_ storage.CachedSource = (*Source)(nil)
	_ storage.Guarded      = (*Source)(nil)
)

// New returns the source of runs, and at which offset of it each begins. The runs are those of a file whose loader has checked
// that they lie in it, and that their sizes do not overflow.
func New(raw storage.Source, runs []Run) (*Source, []int64) {
	s := &Source{raw: raw}
	offsets := make([]int64, len(runs))
	for i, r := range runs {
		width := int64(r.DType().Size())
		p := placed{Run: r, at: s.size, width: width, rowBytes: r.RowElements * width}
		p.rowStored = r.RowElements / r.Encoding.Elements * r.Encoding.Bytes
		p.bytes = p.rowBytes * r.Rows
		offsets[i] = s.size
		s.runs = append(s.runs, p)
		s.size += (p.bytes + alignBytes - 1) / alignBytes * alignBytes
	}
	s.keepRows()
	return s, offsets
}

// blockBytes are blocks to a source that has them as they are.
var blockBytes = Encoding{Name: "U8", Elements: 1, Bytes: 1, DType: tensor.UInt8}

// keepRows makes the source of blocks whose rows lie in another order in the file.
func (s *Source) keepRows() {
	var runs []Run
	var of []int
	for i := range s.runs {
		r := &s.runs[i]
		if r.Heads == 0 || r.Encoding.DType != tensor.Invalid || r.Plus != 0 {
			continue
		}
		of = append(of, i)
		runs = append(
			runs, Run{Encoding: &blockBytes, Offset: r.Offset, Rows: r.Rows, RowElements: r.rowStored, Heads: r.Heads},
		)
	}
	if len(runs) == 0 {
		return
	}
	rows, offsets := New(s.raw, runs)
	s.rows, s.rowsAt = rows, make(map[int]int64, len(of))
	for k, i := range of {
		s.rowsAt[i] = offsets[k]
	}
}

// Blocks returns the blocks that the numbers from an offset of the source on are made of, row by row in the order of the
// numbers: all of a run, whose numbers are those of the blocks as they are. Nothing is decoded where they are read.
func (s *Source) Blocks(off int64) (Run, storage.Extent, bool) {
	i := s.find(off)
	if i == len(s.runs) || s.runs[i].at != off {
		return Run{}, storage.Extent{}, false
	}
	r := &s.runs[i]
	if r.Encoding.DType != tensor.Invalid || r.Plus != 0 {
		return Run{}, storage.Extent{}, false
	}
	e := storage.Extent{Source: s.raw, Offset: r.Offset, Bytes: r.Rows * r.rowStored}
	if r.Heads != 0 {
		e.Source, e.Offset = s.rows, s.rowsAt[i]
	}
	return r.Run, e, true
}

// At returns how the weight lies in the file that begins at an offset of the source.
func (s *Source) At(off int64) (Run, storage.Extent, bool) {
	i := s.find(off)
	if i == len(s.runs) || s.runs[i].at != off {
		return Run{}, storage.Extent{}, false
	}
	r := &s.runs[i]
	return r.Run, storage.Extent{Source: s.raw, Offset: r.Offset, Bytes: r.Rows * r.rowStored}, true
}

// Raw is the source that the blocks are read from.
func (s *Source) Raw() storage.Source { return s.raw }

// Size implements [storage.Source].
func (s *Source) Size() int64 { return s.size }

// find returns the first run that ends behind an offset.
func (s *Source) find(off int64) int {
	return sort.Search(len(s.runs), func(i int) bool { return s.runs[i].at+s.runs[i].bytes > off })
}

// StoredBytes implements [storage.StoredSource].
func (s *Source) StoredBytes(off, n int64) int64 {
	total := int64(0)
	s.each(off, n, func(r *placed, from, to int64) error {
		low, high := r.blocks(from, to)
		total += storage.Extent{Source: s.raw, Offset: low, Bytes: high - low}.StoredBytes()
		return nil
	})
	return total
}

// each calls do with the runs of which there is something in a range, and with that part of them.
func (s *Source) each(off, n int64, do func(r *placed, from, to int64) error) error {
	for i := s.find(off); i < len(s.runs) && s.runs[i].at < off+n; i++ {
		r := &s.runs[i]
		from, to := max(off-r.at, 0), min(off+n-r.at, r.bytes)
		if from >= to {
			continue
		}
		if err := do(r, from, to); err != nil {
			return err
		}
	}
	return nil
}

// CachedBytes implements [storage.CachedSource]: the share of the blocks that is held, of the bytes asked for.
func (s *Source) CachedBytes(off, n int64) (int64, bool) {
	cached, ok := s.raw.(storage.CachedSource)
	if !ok {
		return 0, false
	}
	held, stored := int64(0), int64(0)
	err := s.each(off, n, func(r *placed, from, to int64) error {
		low, high := r.blocks(from, to)
		h, known := cached.CachedBytes(low, high-low)
		if !known {
			return io.ErrUnexpectedEOF
		}
		held, stored = held+h, stored+high-low
		return nil
	})
	if err != nil || stored == 0 {
		return 0, false
	}
	return int64(float64(n) * float64(held) / float64(stored)), true
}

// blocks returns where in the file the blocks lie that hold bytes of the run, as if its rows were in order.
func (r *placed) blocks(from, to int64) (low, high int64) {
	block := r.Encoding.Elements * r.width
	return r.Offset + from/block*r.Encoding.Bytes, r.Offset + (to+block-1)/block*r.Encoding.Bytes
}

// Unchanged implements [storage.Guarded].
func (s *Source) Unchanged() error {
	if g, ok := s.raw.(storage.Guarded); ok {
		return g.Unchanged()
	}
	return nil
}

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
		return fmt.Errorf("read %d bytes at %d of %d decoded ones: %w", n, off, s.size, io.ErrUnexpectedEOF)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	x := buffers.Get().(*buffer)
	defer buffers.Put(x)
	end := off // up to where p is filled
	err := s.each(off, n, func(r *placed, from, to int64) error {
		clear(p[end-off : r.at+from-off]) // between two runs
		end = r.at + to
		return x.run(ctx, s.raw, r, p[r.at+from-off:end-off], from, bulk)
	})
	clear(p[end-off:])
	return err
}

// bufferBytes are read from the file at once.
const bufferBytes = 256 << 10

// A buffer has room for blocks on their way.
type buffer struct {
	memory  []byte // aligned, with room for what an aligned read takes before and behind
	numbers [mostElements]float32
	one     [mostElements * 8]byte
}

var buffers = sync.Pool{New: func() any {
	return &buffer{memory: storage.AlignedBytes(bufferBytes + 2*storage.AlignBytes)}
}}

// run fills p with the bytes of a run from an offset on.
func (x *buffer) run(ctx context.Context, raw storage.Source, r *placed, p []byte, from int64, bulk bool) error {
	if r.Heads == 0 {
		return x.blocks(ctx, raw, r, p, from, 0, bulk)
	}
	head := r.Rows / r.Heads * r.rowBytes
	for len(p) > 0 {
		row := from / r.rowBytes
		if n := bufferHeads(r); n > 0 && from%head == 0 && int64(len(p)) >= head {
			n = min(n, int64(len(p))/head)
			if err := x.wholeHeads(ctx, raw, r, p[:n*head], from/head, bulk); err != nil {
				return err
			}
			p, from = p[n*head:], from+n*head
			continue
		}
		n := min(int64(len(p)), (row+1)*r.rowBytes-from)
		moved := (r.stored(row) - row) * r.rowStored
		// Through the page cache, which has the rows in between for the other half of the head.
		if err := x.blocks(ctx, raw, r, p[:n], from, moved, false); err != nil {
			return err
		}
		p, from = p[n:], from+n
	}
	return nil
}

// stored is the number that a row of interleaved heads has in the file.
func (r *placed) stored(row int64) int64 {
	size := r.Rows / r.Heads
	head, k := row/size, row%size
	return head*size + k%(size/2)*2 + k/(size/2)
}

// bufferHeads is how many heads of a run the buffer has room for.
func bufferHeads(r *placed) int64 { return bufferBytes / max(r.Rows/r.Heads*r.rowStored, 1) }

// wholeHeads fills p with whole heads, which are read at once.
func (x *buffer) wholeHeads(
	ctx context.Context, raw storage.Source, r *placed, p []byte, first int64, bulk bool,
) error {
	rows := r.Rows / r.Heads
	count := int64(len(p)) / r.rowBytes
	blocks, err := x.fetch(ctx, raw, r.Offset+first*rows*r.rowStored, count*r.rowStored, bulk)
	if err != nil {
		return err
	}
	for i := range count {
		from := (r.stored(first*rows+i) - first*rows) * r.rowStored
		r.decode(x, p[i*r.rowBytes:][:r.rowBytes], blocks[from:][:r.rowStored])
	}
	return nil
}

// blocks fills p with bytes from an offset of a run on, whose blocks lie moved bytes behind where those of rows in order do.
func (x *buffer) blocks(
	ctx context.Context, raw storage.Source, r *placed, p []byte, from, moved int64, bulk bool,
) error {
	e := r.Encoding
	block := e.Elements * r.width
	for len(p) > 0 {
		skip := from % block
		n := min(bufferBytes/e.Bytes, (skip+int64(len(p))+block-1)/block)
		stored, err := x.fetch(ctx, raw, r.Offset+from/block*e.Bytes+moved, n*e.Bytes, bulk)
		if err != nil {
			return err
		}
		for len(stored) > 0 {
			if skip == 0 && int64(len(p)) >= block {
				whole := min(int64(len(p))/block, int64(len(stored))/e.Bytes)
				r.decode(x, p[:whole*block], stored[:whole*e.Bytes])
				p, from, stored = p[whole*block:], from+whole*block, stored[whole*e.Bytes:]
				continue
			}
			r.decode(x, x.one[:block], stored[:e.Bytes])
			k := int64(copy(p, x.one[skip:block]))
			p, from, stored, skip = p[k:], from+k, stored[e.Bytes:], 0
		}
	}
	return nil
}

// fetch reads bytes of the file, which are there until the next call.
func (x *buffer) fetch(ctx context.Context, raw storage.Source, off, n int64, bulk bool) ([]byte, error) {
	if source, ok := raw.(storage.BulkSource); ok && bulk {
		around, skip := storage.Extent{Source: raw, Offset: off, Bytes: n}.Aligned()
		into := x.memory[:around.Bytes]
		return into[skip:][:n], source.ReadBulk(ctx, into, around.Offset)
	}
	into := x.memory[:n]
	return into, raw.ReadAt(ctx, into, off)
}

// decode writes the numbers of whole blocks.
func (r *placed) decode(x *buffer, to, blocks []byte) {
	e := r.Encoding
	if e.DType != tensor.Invalid && r.Plus == 0 {
		copy(to, blocks)
		return
	}
	numbers := x.numbers[:e.Elements]
	for len(blocks) > 0 {
		e.decode(numbers, blocks[:e.Bytes])
		blocks = blocks[e.Bytes:]
		for i, f := range numbers {
			if r.Plus != 0 {
				f += r.Plus
			}
			binary.NativeEndian.PutUint32(to[4*i:], math.Float32bits(f))
		}
		to = to[4*e.Elements:]
	}
}
