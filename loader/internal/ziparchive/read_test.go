package ziparchive

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/loader/internal/limit"
	"github.com/optimem/optimem/storage"
)

// A piece is a run of bytes in a file that is zero elsewhere.
type piece struct {
	off   int64
	bytes []byte
}

// A sparse is a source and a file of any size that remembers what was read of it.
type sparse struct {
	pieces []piece
	size   int64

	mu    sync.Mutex
	reads [][2]int64
}

func bytesSource(b []byte) *sparse {
	return &sparse{pieces: []piece{{0, b}}, size: int64(len(b))}
}

func (s *sparse) Size() int64 { return s.size }

func (s *sparse) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if off < 0 || int64(len(p)) > s.size-off {
		return errors.New("read outside the source")
	}
	s.mu.Lock()
	s.reads = append(s.reads, [2]int64{off, off + int64(len(p))})
	s.mu.Unlock()
	clear(p)
	for _, c := range s.pieces {
		from, to := max(off, c.off), min(off+int64(len(p)), c.off+int64(len(c.bytes)))
		if from < to {
			copy(p[from-off:to-off], c.bytes[from-c.off:])
		}
	}
	return nil
}

// readerAt shows the source to archive/zip.
type readerAt struct{ s *sparse }

func (r readerAt) ReadAt(p []byte, off int64) (int, error) {
	n := min(int64(len(p)), max(0, r.s.size-off))
	if err := r.s.ReadAt(context.Background(), p[:n], off); err != nil {
		return 0, err
	}
	if n < int64(len(p)) {
		return int(n), io.EOF
	}
	return int(n), nil
}

var zeros = make([]byte, 1<<20)

// Write appends, leaving holes where much is zero.
func (s *sparse) Write(p []byte) (int, error) {
	if len(p) < 1<<16 || !bytes.Equal(p, zeros[:min(len(p), len(zeros))]) {
		s.pieces = append(s.pieces, piece{s.size, slices.Clone(p)})
	}
	s.size += int64(len(p))
	return len(p), nil
}

func testdata(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const largeBytes = 4<<30 + 16

// large is the archive that PyTorch wrote around a record of 4 GiB of zeros.
func large(t testing.TB) *sparse {
	head, tail := testdata(t, "large.head"), testdata(t, "large.tail")
	at := int64(len(head)) + largeBytes
	return &sparse{pieces: []piece{{0, head}, {at, tail}}, size: at + int64(len(tail))}
}

func mustRead(t testing.TB, src storage.Source) *Archive {
	t.Helper()
	a, problems, err := Read(t.Context(), src, Options{Meter: limit.New(1 << 20)})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %v", p.Record, p.Err)
	}
	return a
}

// compareWithOracle demands that archive/zip sees the same records and, in those below 1 MiB, the same contents.
func compareWithOracle(t testing.TB, a *Archive, src *sparse) {
	t.Helper()
	oracle, err := zip.NewReader(readerAt{src}, src.size)
	if err != nil {
		t.Fatalf("archive/zip: %v", err)
	}
	if len(oracle.File) != len(a.Records()) {
		t.Fatalf("%d records, archive/zip sees %d", len(a.Records()), len(oracle.File))
	}
	for i, f := range oracle.File {
		r := a.Records()[i]
		off, err := f.DataOffset()
		if err != nil {
			t.Fatal(err)
		}
		if r.Name != f.Name || r.DataOffset != off || r.StoredBytes != int64(f.CompressedSize64) ||
			r.Bytes != int64(f.UncompressedSize64) || r.CRC32 != f.CRC32 || r.Compressed != (f.Method != zip.Store) {
			t.Errorf("%+v, but archive/zip sees %+v with data at %d", r, f.FileHeader, off)
		}
		if got, ok := a.Lookup(f.Name); !ok || got != r {
			t.Errorf("Lookup(%q) = %+v, %v", f.Name, got, ok)
		}
		if r.Bytes > 1<<20 {
			continue
		}
		got, err := a.ReadAll(t.Context(), r, limit.New(r.Bytes))
		if err != nil {
			t.Errorf("%s: %v", r.Name, err)
			continue
		}
		fr, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		want, err := io.ReadAll(fr)
		if errors.Is(err, zip.ErrChecksum) && a.unchecked {
			err = nil
		}
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: contents differ from archive/zip's (%v)", r.Name, err)
		}
	}
}

func TestReadRealArchives(t *testing.T) {
	for _, c := range []struct {
		file    string
		records int
		// torch files are read without touching a byte of any record.
		torch bool
	}{
		{"statedict.pt", 27, true},
		{"script.pt", 11, true},
		{"exported.pt2", 11, true},
		{"package.pt", 8, true},
		{"nochecksum.pt", 8, true},
		{"aligned256.pt", 8, true},
		{"large", 9, true},
		{"zipfile.zip", 6, true},
		{"zipfile_streamed.zip", 3, false},
	} {
		t.Run(c.file, func(t *testing.T) {
			var src *sparse
			if c.file == "large" {
				src = large(t)
			} else {
				src = bytesSource(testdata(t, c.file))
			}
			a := mustRead(t, src)
			reads := src.reads
			if n := len(a.Records()); n != c.records {
				t.Errorf("%d records, want %d", n, c.records)
			}
			if limit := c.records + 5; len(reads) > limit && c.torch {
				t.Errorf("%d reads, want at most %d", len(reads), limit)
			}
			for _, r := range a.Records() {
				for _, read := range reads {
					if c.torch && read[0] < r.DataOffset+r.StoredBytes && r.DataOffset < read[1] {
						t.Errorf("listing read bytes %v, within the data of %s at %d", read, r.Name, r.DataOffset)
					}
				}
			}
			compareWithOracle(t, a, src)
		})
	}
}

func TestLookupIsExact(t *testing.T) {
	a := mustRead(t, bytesSource(testdata(t, "zipfile.zip")))
	for _, name := range []string{"VERSION", "version/", "extra_files/folder", "", "nothing"} {
		if r, ok := a.Lookup(name); ok {
			t.Errorf("Lookup(%q) found %+v", name, r)
		}
	}
}

func TestSectionOpensTheArchiveWithin(t *testing.T) {
	src := bytesSource(testdata(t, "zipfile.zip"))
	outer := mustRead(t, src)
	rec, ok := outer.Lookup("serialized_state_dict.pt")
	if !ok {
		t.Fatal("no inner archive")
	}
	inner, err := outer.Section(rec)
	if err != nil {
		t.Fatal(err)
	}
	a := mustRead(t, inner)
	s, ok := a.Lookup("archive/data/0")
	if !ok {
		t.Fatal("no storage in the inner archive")
	}
	e, err := a.Extent(s)
	if err != nil {
		t.Fatal(err)
	}
	if e.Source != storage.Source(src) || e.Offset != rec.DataOffset+s.DataOffset || e.Bytes != 12 {
		t.Errorf("extent %d+%d, want bytes of the outermost source at %d", e.Offset, e.Bytes,
			rec.DataOffset+s.DataOffset)
	}
	got := make([]byte, 12)
	if err := e.ReadAt(t.Context(), got, 0); err != nil {
		t.Fatal(err)
	}
	if want := []byte{0, 0, 0, 0, 0, 0, 0x80, 0x3f, 0, 0, 0, 0x40}; !bytes.Equal(got, want) {
		t.Errorf("storage holds % x, want % x", got, want)
	}
	compressed, _ := outer.Lookup("extra_files/größe.txt")
	if _, err := outer.Section(compressed); !errors.Is(err, fault.ErrUnsupported) {
		t.Errorf("section of a compressed record: %v", err)
	}
}

func TestOpenStreams(t *testing.T) {
	a := mustRead(t, bytesSource(testdata(t, "zipfile.zip")))
	rec, _ := a.Lookup("extra_files/größe.txt")
	r, err := a.Open(t.Context(), rec)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err != nil || string(got) != string(bytes.Repeat([]byte("abc"), 1000)) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := a.ReadAll(t.Context(), rec, limit.New(2999)); !errors.Is(err, fault.ErrLimit) {
		t.Errorf("3000 bytes with 2999 allowed: %v", err)
	}
}

// failing is a source whose reads fail after some.
type failing struct {
	*sparse
	mu   sync.Mutex
	left int
	err  error
}

func (f *failing) ReadAt(ctx context.Context, p []byte, off int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left--; f.left < 0 {
		return f.err
	}
	return f.sparse.ReadAt(ctx, p, off)
}

func TestReadPassesOnErrorsOfTheSource(t *testing.T) {
	broken := errors.New("disk on fire")
	b := testdata(t, "statedict.pt")
	total := &failing{sparse: bytesSource(b), left: math.MaxInt}
	mustRead(t, total)
	for n := range len(total.reads) {
		_, _, err := Read(t.Context(), &failing{sparse: bytesSource(b), left: n, err: broken}, Options{})
		if !errors.Is(err, broken) {
			t.Errorf("read %d fails, but Read returns %v", n, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := Read(ctx, bytesSource(b), Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestReadKeepsToItsLimits(t *testing.T) {
	b := testdata(t, "statedict.pt")
	if _, _, err := Read(t.Context(), bytesSource(b), Options{Records: 26}); !errors.Is(err, fault.ErrLimit) {
		t.Errorf("27 records with 26 allowed: %v", err)
	}
	if _, _, err := Read(t.Context(), bytesSource(b), Options{Records: 27}); err != nil {
		t.Errorf("27 records with 27 allowed: %v", err)
	}
	for _, n := range []int64{0, 1000, directoryWindowBytes + 27*recordBytes} {
		if _, _, err := Read(t.Context(), bytesSource(b), Options{Meter: limit.New(n)}); !errors.Is(err, fault.ErrLimit) {
			t.Errorf("with %d bytes allowed: %v", n, err)
		}
	}
}

// archiveOf writes n small records.
func archiveOf(t testing.TB, n int) *sparse {
	s := &sparse{}
	w := NewWriter(s, "archive")
	for i := range n {
		if err := w.WriteRecord(fmt.Sprintf("data/%d", i), make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var b []byte
	for _, p := range s.pieces {
		b = append(b, p.bytes...)
	}
	return bytesSource(b)
}

func BenchmarkRead10000(b *testing.B) {
	path := filepath.Join(b.TempDir(), "archive.zip")
	if err := os.WriteFile(path, archiveOf(b, 10_000).pieces[0].bytes, 0o600); err != nil {
		b.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		_, problems, err := Read(b.Context(), file{f, info.Size()}, Options{Meter: limit.New(32 << 20)})
		if err != nil || len(problems) > 0 {
			b.Fatal(err, problems)
		}
	}
}

type file struct {
	f    *os.File
	size int64
}

func (s file) Size() int64 { return s.size }

func (s file) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err := s.f.ReadAt(p, off)
	return err
}

// oracleList returns what archive/zip sees, a line for each record.
func oracleList(src *sparse) ([]string, error) {
	r, err := zip.NewReader(readerAt{src}, src.size)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, f := range r.File {
		off, err := f.DataOffset()
		if err != nil {
			return nil, err
		}
		list = append(list, fmt.Sprint(f.Name, off, int64(f.CompressedSize64), int64(f.UncompressedSize64), f.CRC32))
	}
	return list, nil
}
