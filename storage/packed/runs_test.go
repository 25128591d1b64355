package packed

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/optimem/optimem/storage"
)

// packRuns is packIt with runs.
func packRuns(t testing.TB, data []byte, runs []Run) []byte {
	t.Helper()
	var file memory
	if _, err := Write(context.Background(), &memory{data}, &file, Options{Threads: 2, Runs: runs}); err != nil {
		t.Fatal(err)
	}
	return file.data
}

// drawRuns cuts so many bytes into runs, in any order.
func drawRuns(rng *rand.Rand, size int64) (runs []Run) {
	for at := int64(0); at < size; {
		n := min(1+rng.Int64N(3*DefaultBlockBytes), size-at)
		runs, at = append(runs, Run{at, n}), at+n
	}
	rng.Shuffle(len(runs), func(i, j int) { runs[i], runs[j] = runs[j], runs[i] })
	return runs
}

// A counted file counts its reads.
type counted struct {
	memory
	reads int
}

func (c *counted) ReadAt(ctx context.Context, p []byte, off int64) error {
	c.reads++
	return c.memory.ReadAt(ctx, p, off)
}

// TestRuns: whatever the order of the parts of a file, its bytes come back, in place too; blocks that stay are those of
// the range, and a part is the blocks that have it, one behind the other.
func TestRuns(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	data := normal(11, 14*DefaultBlockBytes+1234, asBFloat16)
	size := int64(len(data))
	for range 20 {
		runs := drawRuns(rng, size)
		file := packRuns(t, data, runs)
		s := openIt(t, file)
		stored := int64(0)
		for _, r := range runs {
			stored += s.StoredBytes(r.Offset, r.Bytes)
			raw := &counted{memory: memory{file}}
			s.raw = raw
			p, parts := storage.AlignedBytes(r.Bytes+storage.AlignBytes*3), []storage.Part{{Offset: r.Offset, Bytes: r.Bytes}}
			from, at, ok := s.InPlace(p, parts)
			if !ok && r.Bytes > 8<<10 {
				t.Errorf("a run of %d bytes does not fit in place", r.Bytes)
			}
			if ok {
				if err := storage.Read(t.Context(), 1, storage.Request{Extent: from, Into: p[at:][:from.Bytes]}); err != nil {
					t.Fatal(err)
				}
				if err := s.Decode(t.Context(), p, parts); err != nil || !bytes.Equal(p[:r.Bytes], data[r.Offset:][:r.Bytes]) {
					t.Fatalf("%v: %v, or other bytes", r, err)
				}
				if raw.reads != 1 {
					t.Errorf("%d reads of a run", raw.reads)
				}
			}
		}
		if table := int64(headBytes + len(runs)*runBytes + len(s.sums)*entryBytes); stored != int64(len(file))-table {
			t.Errorf("runs take %d bytes of %d, of which the table has %d", stored, len(file), table)
		}
		if err := s.Verify(t.Context()); err != nil {
			t.Error(err)
		}
		for range 20 {
			off := rng.Int64N(size)
			n := 1 + rng.Int64N(min(size-off, 4*DefaultBlockBytes))
			p := make([]byte, n)
			if err := s.ReadAt(t.Context(), p, off); err != nil || !bytes.Equal(p, data[off:][:n]) {
				t.Fatalf("%d bytes at %d: %v, or other bytes", n, off, err)
			}
			kept := make([]byte, s.StoredBytes(off, n))
			if err := s.ReadStored(t.Context(), kept, off, n); err != nil {
				t.Fatal(err)
			}
			clear(p)
			if err := s.Kept(kept, off, n).ReadAt(t.Context(), p, off); err != nil || !bytes.Equal(p, data[off:][:n]) {
				t.Fatalf("%d bytes at %d that stay: %v, or other bytes", n, off, err)
			}
			for at := int64(0); at < n; {
				k := s.Cut(off+at, n-at, 2*DefaultBlockBytes)
				if k <= 0 || k > min(n-at, 2*DefaultBlockBytes) {
					t.Fatalf("cut to %d of %d", k, n-at)
				}
				together := 0
				for range s.inFile(off+at, k) {
					together++
				}
				if together != 1 {
					t.Errorf("a cut reads %d times", together)
				}
				at += k
			}
		}
	}
}

// TestPartsInPlace: parts that lie apart in the original and together in the file come with one read.
func TestPartsInPlace(t *testing.T) {
	const n, page = 3*DefaultBlockBytes + 500, storage.AlignBytes
	data := normal(12, 6*n, asBFloat16)
	file := packRuns(t, data, []Run{{5 * n, n}, {n, n}, {3 * n, n}, {0, n}, {2 * n, n}, {4 * n, n}})
	s := openIt(t, file)
	const slot = (n + page - 1) / page * page
	for _, c := range []struct {
		a, b int64
		ok   bool
	}{{n, 3 * n, true}, {2 * n, 4 * n, true}, {3 * n, 0, true}, {n, 2 * n, false}, {3 * n, n, false}} {
		p := storage.AlignedBytes(2 * slot)
		parts := []storage.Part{{Offset: c.a, Bytes: n}, {Offset: c.b, Bytes: n, At: slot}}
		from, at, ok := s.InPlace(p, parts)
		if ok != c.ok {
			t.Errorf("%v: %v", c, ok)
		}
		if !ok {
			continue
		}
		copy(p[at:], file[from.Offset:min(from.Offset+from.Bytes, int64(len(file)))])
		if err := s.Decode(t.Context(), p, parts); err != nil || !bytes.Equal(p[:n], data[c.a:][:n]) ||
			!bytes.Equal(p[slot:][:n], data[c.b:][:n]) {
			t.Errorf("%v: %v, or other bytes", c, err)
		}
	}
}

// TestBadRuns: runs that are not all of the original, or have something twice, are refused, written and read.
func TestBadRuns(t *testing.T) {
	data := normal(13, 9000, asBFloat16)
	file := packRuns(t, data, []Run{{4000, 5000}, {0, 4000}})
	for _, runs := range [][]Run{
		{{0, 8999}}, {{1, 8999}}, {{0, 5000}, {4000, 5000}}, {{0, 9001}}, {{0, 9000}, {3, 0}}, {{-1, 9001}}, {{0, 4000}, {4001, 4999}},
	} {
		var to memory
		if _, err := Write(t.Context(), &memory{data}, &to, Options{Runs: runs}); err == nil {
			t.Errorf("%v is written", runs)
		}
		if len(runs) != 2 {
			continue
		}
		bad := bytes.Clone(file)
		for i, r := range runs {
			binary.LittleEndian.PutUint64(bad[headBytes+i*runBytes:], uint64(r.Offset))
			binary.LittleEndian.PutUint64(bad[headBytes+i*runBytes+8:], uint64(r.Bytes))
		}
		seal(bad)
		var corrupt *CorruptError
		if _, err := Open(t.Context(), &memory{bad}, nil); !errors.As(err, &corrupt) {
			t.Errorf("%v is read: %v", runs, err)
		}
	}
	binary.LittleEndian.PutUint32(file[28:], 1<<31)
	var corrupt *CorruptError
	if _, err := Open(t.Context(), &memory{file}, nil); !errors.As(err, &corrupt) {
		t.Errorf("more runs than a file has room for: %v", err)
	}
}
