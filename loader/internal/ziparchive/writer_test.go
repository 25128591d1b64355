package ziparchive

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/optimem/optimem/internal/fixtures"
	"github.com/optimem/optimem/loader/internal/limit"
)

// copyRecords writes the records of a, read through src, as the Writer does.
func copyRecords(t *testing.T, a *Archive, src *sparse, top string, w *Writer) {
	t.Helper()
	buf := make([]byte, 1<<20)
	for _, r := range a.Records() {
		if err := w.Create(strings.TrimPrefix(r.Name, top+"/"), r.Bytes); err != nil {
			t.Fatal(err)
		}
		for off := int64(0); off < r.Bytes; off += int64(len(buf)) {
			p := buf[:min(int64(len(buf)), r.Bytes-off)]
			if r.Bytes == largeBytes {
				p = zeros[:len(p)]
			} else if err := src.ReadAt(t.Context(), p, r.DataOffset+off); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(p); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestWriterWritesWhatPyTorchWrites(t *testing.T) {
	for _, c := range []struct{ file, top string }{
		{"statedict.pt", "statedict"}, {"exported.pt2", "exported"}, {"package.pt", "package"},
	} {
		t.Run(c.file, func(t *testing.T) {
			want := testdata(t, c.file)
			src := bytesSource(want)
			var got bytes.Buffer
			copyRecords(t, mustRead(t, src), src, c.top, NewWriter(&got, c.top))
			if !bytes.Equal(got.Bytes(), want) {
				t.Errorf("%d bytes differ from PyTorch's %d from byte %d on", got.Len(), len(want),
					firstDifference(got.Bytes(), want))
			}
		})
	}
}

func firstDifference(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

func TestWriterBeyond4GiB(t *testing.T) {
	if testing.Short() {
		t.Skip("passes 4 GiB through the checksum")
	}
	src := large(t)
	got := &sparse{}
	copyRecords(t, mustRead(t, src), src, "archive", NewWriter(got, "archive"))
	if got.size != src.size {
		t.Fatalf("%d bytes, PyTorch writes %d", got.size, src.size)
	}
	for _, want := range src.pieces {
		have := make([]byte, len(want.bytes))
		if err := got.ReadAt(t.Context(), have, want.off); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(have, want.bytes) {
			t.Errorf("differs from PyTorch's from byte %d on", want.off+int64(firstDifference(have, want.bytes)))
		}
	}
}

func TestWriterMoreThan65535Records(t *testing.T) {
	src := archiveOf(t, 1<<16+1)
	a, problems, err := Read(t.Context(), src, Options{Meter: limit.New(32 << 20)})
	if err != nil || len(problems) > 0 || len(a.Records()) != 1<<16+1 {
		t.Fatal(err, problems)
	}
	if r := a.Records()[1<<16]; r.Name != "archive/data/65536" || r.Bytes != 100 {
		t.Errorf("last record %+v", r)
	}
}

func TestWriterRefuses(t *testing.T) {
	for what, write := range map[string]func(w *Writer) error{
		"too much": func(w *Writer) error {
			_ = w.Create("a", 3)
			_, err := w.Write([]byte("1234"))
			return err
		},
		"too little, next record": func(w *Writer) error {
			_ = w.Create("a", 3)
			return w.Create("b", 3)
		},
		"too little, end": func(w *Writer) error {
			_ = w.Create("a", 3)
			return w.Close()
		},
		"no record": func(w *Writer) error {
			_, err := w.Write([]byte("1"))
			return err
		},
		"duplicate": func(w *Writer) error {
			_ = w.WriteRecord("a", nil)
			return w.WriteRecord("A", nil)
		},
		"name":     func(w *Writer) error { return w.WriteRecord("../a", nil) },
		"negative": func(w *Writer) error { return w.Create("a", -1) },
		"after the end": func(w *Writer) error {
			_ = w.Close()
			return w.Create("a", 1)
		},
		"full disk": func(w *Writer) error {
			w.w.Reset(fullDisk{})
			_ = w.WriteRecord("a", nil)
			return w.Close()
		},
	} {
		if err := write(NewWriter(&bytes.Buffer{}, "m")); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestWriteThenRead(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-zé_0-9]{1,20}(/[a-z.0-9]{0,9}x){0,3}`), 0, 30, fold).
			Draw(rt, "names")
		contents := make([][]byte, len(names))
		var out bytes.Buffer
		w := NewWriter(&out, "top")
		for i, name := range names {
			contents[i] = rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(rt, "contents")
			if err := w.Create(name, int64(len(contents[i]))); err != nil {
				rt.Fatal(err)
			}
			for p := contents[i]; len(p) > 0; {
				n := rapid.IntRange(1, len(p)).Draw(rt, "piece")
				if _, err := w.Write(p[:n]); err != nil {
					rt.Fatal(err)
				}
				p = p[n:]
			}
		}
		if err := w.Close(); err != nil {
			rt.Fatal(err)
		}
		src := bytesSource(out.Bytes())
		a := mustRead(t, src)
		if len(a.Records()) != len(names) {
			rt.Fatalf("%d records, want %d", len(a.Records()), len(names))
		}
		for i, name := range names {
			r, ok := a.Lookup("top/" + name)
			if !ok || r.DataOffset%Alignment != 0 {
				rt.Fatalf("%s: %+v, %v", name, r, ok)
			}
			if got, err := a.ReadAll(t.Context(), r, limit.New(1000)); err != nil || !bytes.Equal(got, contents[i]) {
				rt.Fatalf("%s: %q, %v", name, got, err)
			}
		}
		compareWithOracle(t, a, src)
	})
}

// Whatever is accepted lies within the file, without overlaps, and looks the same to archive/zip.
func FuzzRead(f *testing.F) {
	for _, name := range []string{
		"statedict.pt", "script.pt", "package.pt", "zipfile.zip", "zipfile_streamed.zip", "nochecksum.pt", "large.tail",
	} {
		f.Add(testdata(f, name))
	}
	f.Add(assemble(plain("one", "first"), plain("two", "second")))
	f.Add(assemble(entry{name: "one", data: []byte{1, 0, 0, 0xff, 0xff}, method: methodDeflate}))
	for _, seed := range fixtures.Seeds("testdata/fuzz.tar.bz2", "FuzzRead") {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		src := bytesSource(b)
		a, problems, err := Read(t.Context(), src, Options{Meter: limit.New(1 << 20), Records: 1000})
		if err != nil || len(problems) > 0 {
			return
		}
		records := slices.Clone(a.Records())
		slices.SortFunc(records, func(p, q Record) int { return compareInt64(p.HeaderOffset, q.HeaderOffset) })
		end := int64(0)
		for _, r := range records {
			if r.HeaderOffset < end || r.DataOffset < r.HeaderOffset+localHeaderBytes+int64(len(r.Name)) ||
				r.StoredBytes < 0 || r.Bytes < 0 || r.StoredBytes > src.size-r.DataOffset {
				t.Fatalf("%+v overlaps or lies outside the %d bytes", r, src.size)
			}
			end = r.DataOffset + r.StoredBytes
		}
		oracle, err := oracleList(src)
		if err != nil {
			t.Fatalf("accepted, but archive/zip says: %v", err)
		}
		var ours []string
		for _, r := range a.Records() {
			ours = append(ours, fmt.Sprint(r.Name, r.DataOffset, r.StoredBytes, r.Bytes, r.CRC32))
			if got, err := a.ReadAll(t.Context(), r, limit.New(1<<20)); err == nil && int64(len(got)) != r.Bytes {
				t.Fatalf("%s: read %d bytes of %d", r.Name, len(got), r.Bytes)
			}
		}
		if !slices.Equal(ours, oracle) {
			t.Fatalf("got %q, archive/zip sees %q", ours, oracle)
		}
	})
}
