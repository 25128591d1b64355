package storage

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"
)

// randomFile writes n seeded bytes to a new file and returns them.
func randomFile(t testing.TB, dir string, n int) (string, []byte) {
	t.Helper()
	data := make([]byte, n)
	var seed [32]byte
	_, _ = rand.NewChaCha8(seed).Read(data)
	path := filepath.Join(dir, "data.bin")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, data
}

func mustOpenFile(t testing.TB, path string) *File {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// aligned returns n bytes at a 4096-aligned address.
func aligned(n int) []byte {
	b := make([]byte, n+AlignBytes)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (AlignBytes - 1)
	return b[skip : skip+n]
}

func TestFileReadAt(t *testing.T) {
	path, data := randomFile(t, t.TempDir(), 2*pieceBytes+12345)
	s := mustOpenFile(t, path)
	if s.Size() != int64(len(data)) {
		t.Fatalf("size %d, want %d", s.Size(), len(data))
	}
	var group sync.WaitGroup
	for _, r := range []struct{ off, n int }{
		{0, 0}, {0, 1}, {len(data) - 1, 1}, {len(data), 0}, {17, pieceBytes}, {5, 2*pieceBytes + 99}, {0, len(data)},
	} {
		group.Go(func() {
			p := make([]byte, r.n)
			if err := s.ReadAt(t.Context(), p, int64(r.off)); err != nil {
				t.Errorf("read %d at %d: %v", r.n, r.off, err)
			}
			if !bytes.Equal(p, data[r.off:r.off+r.n]) {
				t.Errorf("read %d at %d: wrong bytes", r.n, r.off)
			}
		})
	}
	group.Wait()
}

func TestFileReadAtFails(t *testing.T) {
	path, data := randomFile(t, t.TempDir(), 10_000)
	s := mustOpenFile(t, path)
	for _, off := range []int64{int64(len(data)) - 99, int64(len(data)), 1 << 40} {
		err := s.ReadAt(t.Context(), make([]byte, 100), off)
		if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), path) {
			t.Errorf("read at %d: %v", off, err)
		}
	}
	if err := s.ReadAt(t.Context(), make([]byte, 1), -1); err == nil {
		t.Error("read at -1 succeeded")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.ReadAt(ctx, make([]byte, 1), 0); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled read: %v", err)
	}
	if err := s.ReadBulk(ctx, aligned(4096), 0); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled bulk read: %v", err)
	}
}

func TestFileShrinks(t *testing.T) {
	path, _ := randomFile(t, t.TempDir(), 100_000)
	s := mustOpenFile(t, path)
	if err := s.Unchanged(); err != nil {
		t.Fatalf("%v at once", err)
	}
	if err := os.Truncate(path, 5000); err != nil {
		t.Fatal(err)
	}
	errAt := s.ReadAt(t.Context(), make([]byte, 100), 50_000)
	errBulk := s.ReadBulk(t.Context(), aligned(8192), 40960)
	for _, err := range []error{errAt, errBulk} {
		if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), "shrunk from 100000 to 5000 bytes") {
			t.Errorf("read of a file that shrank: %v", err)
		}
	}
	if err := s.Unchanged(); !errors.Is(err, ErrChanged) {
		t.Errorf("%v after truncation", err)
	}
}

func TestFileClose(t *testing.T) {
	path, _ := randomFile(t, t.TempDir(), 100_000)
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := s.ReadAt(t.Context(), make([]byte, 1), 0); !errors.Is(err, os.ErrClosed) {
			t.Errorf("read after Close: %v", err)
		}
		if err := s.ReadBulk(t.Context(), aligned(4096), 0); !errors.Is(err, os.ErrClosed) {
			t.Errorf("bulk read after Close: %v", err)
		}
	}
}

func TestFileReadBulk(t *testing.T) {
	const size = pieceBytes + 3*AlignBytes + 777
	dirs := map[string]string{"disk": t.TempDir()}
	if dir, err := os.MkdirTemp("/dev/shm", "loader"); err == nil { // O_DIRECT may be refused here
		t.Cleanup(func() { os.RemoveAll(dir) })
		dirs["memory"] = dir
	}
	for name, dir := range dirs {
		t.Run(name, func(t *testing.T) {
			path, data := randomFile(t, dir, size)
			end := (size + AlignBytes - 1) &^ (AlignBytes - 1)
			for _, cache := range []string{"warm", "cold", "half", "probed", "renamed"} {
				s := mustOpenFile(t, path)
				probeByReading(s, cache == "probed")
				if cache == "renamed" {
					dropCache(t, s, 0, size)
					path += "2"
					if err := os.Rename(s.path, path); err != nil {
						t.Fatal(err)
					}
				}
				for _, r := range []struct{ off, n int }{
					{0, AlignBytes}, {AlignBytes, pieceBytes}, {0, end}, {end - AlignBytes, AlignBytes},
					{pieceBytes, end - pieceBytes}, {0, end + AlignBytes}, {2 * AlignBytes, 0},
				} {
					switch cache {
					case "cold", "probed":
						dropCache(t, s, 0, size)
					case "half":
						dropCache(t, s, 64<<10, size-64<<10)
					}
					p := aligned(r.n)
					if err := s.ReadBulk(t.Context(), p, int64(r.off)); err != nil {
						t.Fatalf("%s: read %d at %d: %v", cache, r.n, r.off, err)
					}
					want := data[r.off:min(r.off+r.n, size)]
					if !bytes.Equal(p[:len(want)], want) {
						t.Errorf("%s: read %d at %d: wrong bytes", cache, r.n, r.off)
					}
				}
			}
			s := mustOpenFile(t, path)
			if err := s.ReadBulk(t.Context(), aligned(AlignBytes), int64(end)+AlignBytes); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("read past the end: %v", err)
			}
			if s.ReadBulk(t.Context(), aligned(8192)[1:4097], 0) == nil ||
				s.ReadBulk(t.Context(), aligned(4096), 512) == nil || s.ReadBulk(t.Context(), aligned(512), 0) == nil {
				t.Error("an unaligned bulk read succeeded")
			}
		})
	}
}

func TestOpenFileRefusesOthers(t *testing.T) {
	dir := t.TempDir()
	paths := []string{dir}
	if _, err := os.Stat("/dev/zero"); err == nil {
		paths = append(paths, "/dev/zero")
	}
	if fifo := filepath.Join(dir, "fifo"); makeFIFO(fifo) {
		paths = append(paths, fifo)
	}
	for _, path := range paths {
		_, err := Open(path)
		var other *NotRegularError
		if !errors.As(err, &other) || other.Path != path || !strings.HasSuffix(err.Error(), "not a regular file") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := Open(filepath.Join(dir, "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent file: %v", err)
	}
}

// A file that was written over is another one, though its size is the same; one of another size is, too, though its time
// is the same.
func TestFileWrittenOverIsChanged(t *testing.T) {
	for _, change := range []struct {
		bytes int
		later time.Duration
		same  bool
	}{{0, 0, true}, {0, time.Second, false}, {0, -time.Hour, false}, {1, 0, false}, {-1, 0, false}} {
		path, content := randomFile(t, t.TempDir(), 5000)
		then := time.Now().Add(-time.Minute)
		if err := os.Chtimes(path, then, then); err != nil {
			t.Fatal(err)
		}
		s := mustOpenFile(t, path)
		err := errors.Join(os.Truncate(path, int64(len(content)+change.bytes)),
			os.Chtimes(path, then, then.Add(change.later)))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Unchanged(); (err == nil) != change.same || err != nil && !errors.Is(err, ErrChanged) {
			t.Errorf("%d bytes more, %v later: %v", change.bytes, change.later, err)
		}
	}
}
