package encoded_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
)

// memory is a source of bytes that counts what is read of it.
type memory struct {
	data    []byte
	read    atomic.Int64
	changed error
}

func (m *memory) Size() int64 { return int64(len(m.data)) }

func (m *memory) ReadAt(ctx context.Context, p []byte, off int64) error {
	if off < 0 || off+int64(len(p)) > m.Size() {
		return io.ErrUnexpectedEOF
	}
	m.read.Add(int64(copy(p, m.data[off:])))
	return ctx.Err()
}

func (m *memory) Unchanged() error { return m.changed }

func (m *memory) CachedBytes(off, n int64) (int64, bool) { return n / 2, off >= 0 }

// bulk is memory that reads past the page cache, where everything is aligned.
type bulk struct{ memory }

func (m *bulk) ReadBulk(ctx context.Context, p []byte, off int64) error {
	if off%storage.AlignBytes != 0 || len(p)%storage.AlignBytes != 0 {
		return errors.New("not aligned")
	}
	copy(p, m.data[off:])
	return ctx.Err()
}

// runsOf are runs of several encodings, as a file with gaps between them has them, and their bytes.
func runsOf(t *testing.T) ([]encoded.Run, []byte) {
	t.Helper()
	var runs []encoded.Run
	var file []byte
	add := func(id uint32, rows, row, heads int64, plus float32) {
		e, ok := encoded.ByID(id)
		if !ok {
			t.Fatal(id)
		}
		n := rows * row / e.Elements
		file = append(file, make([]byte, 7)...)
		runs = append(runs, encoded.Run{
			Encoding: e, Offset: int64(len(file)), Rows: rows, RowElements: row, Heads: heads, Plus: plus,
		})
		scales := []int64{0}
		if id == 0 {
			scales = []int64{2}
		}
		file = append(file, pseudoRandom(id+uint32(rows), n, e.Bytes, scales)...)
	}
	add(2, 5, 96, 0, 0)      // Q4_0
	add(0, 1, 37, 0, 0)      // F32, as it is
	add(8, 48, 64, 4, 0)     // Q8_0, interleaved
	add(0, 40, 1, 2, 0)      // F32, an interleaved bias
	add(0, 1, 33, 0, -1)     // F32 less one
	add(12, 3, 512, 0, 0)    // Q4_K
	add(30, 8, 10, 1, 0)     // BF16, interleaved
	add(2, 2048, 1024, 2, 0) // heads of more bytes than are read at once
	add(39, 1, 32, 0, 0)     // MXFP4
	add(2, 4, 64, 0, -1)     // Q4_0 less one: no blocks
	add(1, 3, 9, 0, -1)      // F16 less one: float32
	return runs, file
}

// wanted are the bytes of a run, row by row.
func wanted(r encoded.Run, file []byte) []byte {
	e := r.Encoding
	stored := r.RowElements / max(e.Elements, 1) * e.Bytes
	var out []byte
	for row := range r.Rows {
		from := row
		if r.Heads > 0 {
			size := r.Rows / r.Heads
			head, k := row/size, row%size
			if from = head*size + 2*k; k >= size/2 {
				from = head*size + 2*(k-size/2) + 1
			}
		}
		data := file[r.Offset+from*stored:][:stored]
		if r.Plus == 0 && r.Encoding.DType != tensor.Invalid && r.Encoding.DType != tensor.Float32 {
			out = append(out, data...)
			continue
		}
		numbers := make([]float32, r.RowElements)
		e.Decode(numbers, data)
		for _, x := range numbers {
			if r.Plus != 0 {
				x += r.Plus
			}
			out = binary.NativeEndian.AppendUint32(out, math.Float32bits(x))
		}
	}
	return out
}

// TestSourceHasTheNumbersOfEveryRun: reads of any length from any offset on give the numbers in the model's order, with zeros
// between runs.
func TestSourceHasTheNumbersOfEveryRun(t *testing.T) {
	runs, file := runsOf(t)
	raw := &bulk{memory{data: file}}
	source, offsets := encoded.New(raw, runs)
	image := make([]byte, source.Size())
	for i, r := range runs {
		copy(image[offsets[i]:], wanted(r, file))
		at, extent, ok := source.At(offsets[i])
		if !ok || at != r || extent.Offset != r.Offset || extent.Source != storage.Source(raw) {
			t.Errorf("run %d: %+v, %v, %v", i, at, extent, ok)
		}
		if want := r.Rows * r.RowElements / r.Encoding.Elements * r.Encoding.Bytes; extent.Bytes != want {
			t.Errorf("run %d has %d bytes in the file, want %d", i, extent.Bytes, want)
		}
	}
	if _, _, ok := source.At(offsets[1] + 4); ok {
		t.Error("a run begins where none does")
	}
	whole := make([]byte, source.Size())
	for i := range whole {
		whole[i] = 0xAA // what was in the buffer before
	}
	if err := source.ReadAt(t.Context(), whole, 0); err != nil || !bytes.Equal(whole, image) {
		t.Fatalf("the whole differs at %d: %v", firstDifference(whole, image), err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 400 {
		n := min(1+rng.Int64N(9000), source.Size())
		off := rng.Int64N(source.Size() - n + 1)
		if rng.IntN(2) == 0 { // near the beginning, where the small runs are
			off = rng.Int64N(min(32<<10, source.Size()-n))
		}
		p := bytes.Repeat([]byte{0xAA}, int(n))
		if err := source.ReadAt(t.Context(), p, off); err != nil || !bytes.Equal(p, image[off:off+n]) {
			t.Fatalf("%d bytes at %d differ at %d: %v", n, off, firstDifference(p, image[off:off+n]), err)
		}
	}
	for off := int64(0); off < source.Size(); off += 5 * storage.AlignBytes {
		p := storage.AlignedBytes(5 * storage.AlignBytes)
		raw.data = file
		if err := source.ReadBulk(t.Context(), p, off); err != nil {
			t.Fatal(err)
		}
		want := image[off:min(off+int64(len(p)), source.Size())]
		if !bytes.Equal(p[:len(want)], want) {
			t.Fatalf("bulk at %d differs at %d", off, firstDifference(p[:len(want)], want))
		}
	}
}

// TestBlocksAreThoseOfTheFile: the blocks of a run, row by row in the model's order, decode to its numbers; nothing but blocks of
// codes whose numbers are the run's has any.
func TestBlocksAreThoseOfTheFile(t *testing.T) {
	runs, file := runsOf(t)
	raw := &memory{data: file}
	source, offsets := encoded.New(raw, runs)
	some := 0
	for i, r := range runs {
		run, extent, ok := source.Blocks(offsets[i])
		if want := r.Plus == 0 && r.Encoding.DType == tensor.Invalid; ok != want {
			t.Errorf("run %d has blocks: %v, want %v", i, ok, want)
		}
		if !ok {
			continue
		}
		some++
		stored := r.Rows * r.RowElements / r.Encoding.Elements * r.Encoding.Bytes
		if run != r || extent.Bytes != stored || extent.StoredBytes() != stored {
			t.Errorf("run %d: %+v in %d bytes, want %d", i, run, extent.Bytes, stored)
		}
		if direct := extent.Source == storage.Source(raw); direct != (r.Heads == 0) {
			t.Errorf("run %d is read directly: %v", i, direct)
		}
		blocks := make([]byte, extent.Bytes)
		if err := extent.ReadAt(t.Context(), blocks, 0); err != nil {
			t.Fatal(err)
		}
		numbers := make([]float32, r.Rows*r.RowElements)
		r.Encoding.Decode(numbers, blocks)
		var got []byte
		for _, x := range numbers {
			got = binary.NativeEndian.AppendUint32(got, math.Float32bits(x))
		}
		if !bytes.Equal(got, wanted(r, file)) {
			t.Errorf("run %d: its blocks are other numbers", i)
		}
	}
	if _, _, ok := source.Blocks(offsets[0] + 4); ok || some < 4 {
		t.Errorf("%d runs have blocks, and one that begins nowhere: %v", some, ok)
	}
}

func firstDifference(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return len(a)
}

// TestStoredBytesAreWhatIsRead: the bytes of the file that a read is said to take are those that it takes, and reads of aligned
// pieces take no block twice.
func TestStoredBytesAreWhatIsRead(t *testing.T) {
	runs, file := runsOf(t)
	raw := &memory{data: file}
	source, _ := encoded.New(raw, runs)
	rng := rand.New(rand.NewPCG(3, 4))
	read := func(off, n int64) int64 {
		before := raw.read.Load()
		if err := source.ReadAt(t.Context(), make([]byte, n), off); err != nil {
			t.Fatal(err)
		}
		return raw.read.Load() - before
	}
	for range 300 {
		n := 1 + rng.Int64N(200<<10)
		off := rng.Int64N(source.Size() - n)
		if got, want := read(off, n), source.StoredBytes(off, n); got != want {
			t.Fatalf("%d bytes at %d take %d of the file, and %d were said", n, off, got, want)
		}
	}
	var all, pieces, stored int64
	for _, r := range runs {
		stored += r.Rows * r.RowElements / r.Encoding.Elements * r.Encoding.Bytes
	}
	all = source.StoredBytes(0, source.Size()+1000)
	for off := int64(0); off < source.Size(); off += 3 * storage.AlignBytes {
		pieces += read(off, min(3*storage.AlignBytes, source.Size()-off))
	}
	if all != stored || pieces != stored {
		t.Errorf("%d bytes in one read, %d in pieces; the runs have %d", all, pieces, stored)
	}
	e := storage.Extent{Source: source, Offset: 0, Bytes: source.Size()}
	if e.StoredBytes() != stored {
		t.Errorf("the extent has %d in the file", e.StoredBytes())
	}
	if e = (storage.Extent{Source: raw, Offset: 3, Bytes: 9}); e.StoredBytes() != 9 {
		t.Errorf("an extent of a plain source has %d", e.StoredBytes())
	}
}

// TestSourceSaysWhatItsFileSays: changes of the file, what is held of it, and reads that reach beyond.
func TestSourceSaysWhatItsFileSays(t *testing.T) {
	runs, file := runsOf(t)
	raw := &memory{data: file}
	source, offsets := encoded.New(raw, runs)
	if err := source.Unchanged(); err != nil {
		t.Error(err)
	}
	raw.changed = storage.ErrChanged
	if err := source.Unchanged(); !errors.Is(err, storage.ErrChanged) {
		t.Errorf("the file has changed, and the source says %v", err)
	}
	if held, ok := source.CachedBytes(0, 1920); !ok || held != 960 {
		t.Errorf("%d of 1920 bytes are held, %v; want half", held, ok)
	}
	if _, ok := source.CachedBytes(offsets[0]+1920, 100); ok {
		t.Error("what is between two runs is held")
	}
	for _, c := range [][2]int64{{-1, 4}, {source.Size() - 3, 4}, {source.Size() + 1, 0}} {
		if err := source.ReadAt(t.Context(), make([]byte, c[1]), c[0]); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d bytes at %d: %v", c[1], c[0], err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := source.ReadAt(ctx, make([]byte, 4), 0); !errors.Is(err, context.Canceled) {
		t.Errorf("a read that was given up: %v", err)
	}
	raw.data = file[:len(file)-1] // it was cut short since
	if err := source.ReadAt(t.Context(), make([]byte, 128), offsets[len(offsets)-1]); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a file that was cut short: %v", err)
	}
}
