package loader

import (
	"testing"

	"golang.org/x/sys/unix"
)

func makeFIFO(path string) bool { return unix.Mkfifo(path, 0o600) == nil }

// dropCache writes the range of the file out and takes it from the page cache, where the file system lets it.
func dropCache(t testing.TB, s *fileSource, off, n int64) {
	t.Helper()
	if err := s.file.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := s.control(func(fd int) error { return unix.Fadvise(fd, off, n, unix.FADV_DONTNEED) }); err != nil {
		t.Fatal(err)
	}
}

// probeByReading makes s look for cached pages as it does where cachestat is not answered.
func probeByReading(s *fileSource, on bool) {
	s.once.Do(s.openUncached)
	s.probes.Store(on)
}

// residencyOf asks for the residency of a range of a file.
func residencyOf(s *fileSource, off int64, n int) (r residency) {
	_ = s.control(func(fd int) error { r = s.residency(fd, off, n); return nil })
	return r
}

func TestFileReadBulkLeavesNoCopy(t *testing.T) {
	const size = pieceBytes + 5*alignBytes
	path, _ := randomFile(t, t.TempDir(), size)
	for _, mode := range []string{"direct", "probed", "dropped"} {
		s := mustOpenFile(t, path)
		probeByReading(s, mode == "probed")
		if mode == "dropped" {
			s.second.Close()
			s.second, s.direct = openRandom(path), false
		}
		dropCache(t, s, 0, size)
		look := mustOpenFile(t, path)
		if residencyOf(look, 0, size) != not || look.probes.Load() {
			t.Skip("this file system keeps everything in memory, or the kernel does not tell")
		}
		if err := s.ReadBulk(t.Context(), aligned(size), 0); err != nil {
			t.Fatal(err)
		}
		if got := residencyOf(look, 0, size); got != not {
			t.Errorf("%s: residency is %d after a bulk read of a cold file", mode, got)
		}
		if err := s.ReadAt(t.Context(), make([]byte, size/2), 0); err != nil {
			t.Fatal(err)
		}
		if got := residencyOf(look, 0, size/2); got != wholly {
			t.Errorf("%s: residency is %d after a plain read", mode, got)
		}
	}
}

func TestFileCachedBytes(t *testing.T) {
	const size = 64 * alignBytes
	path, _ := randomFile(t, t.TempDir(), size)
	s := mustOpenFile(t, path)
	dropCache(t, s, 0, size)
	n, ok := s.CachedBytes(0, size)
	if !ok || n != 0 {
		t.Skip("this file system keeps everything in memory, or the kernel does not tell")
	}
	if err := s.ReadAt(t.Context(), make([]byte, size), 0); err != nil {
		t.Fatal(err)
	}
	if n, ok := s.CachedBytes(0, size); !ok || n != size {
		t.Errorf("%d bytes are cached, %v, want %d", n, ok, size)
	}
	if n, ok := s.CachedBytes(100, 50); !ok || n != 50 {
		t.Errorf("of 50 bytes, %d are cached, %v", n, ok)
	}
	if _, ok := s.CachedBytes(0, 0); ok {
		t.Error("it is known of nothing")
	}
}

// The kernel is asked once for what it holds of a piece, in whatever order pieces are read, and at once for what is not
// known.
func TestFileHoldsAhead(t *testing.T) {
	const size = 4*knownBytes - alignBytes
	path, _ := randomFile(t, t.TempDir(), size)
	s := mustOpenFile(t, path)
	dropCache(t, s, 0, size)
	if residencyOf(s, 0, size) != not || s.probes.Load() {
		t.Skip("this file system keeps everything in memory, or the kernel does not tell")
	}
	holds := func(from, to int64) (held bool) {
		_ = s.control(func(fd int) error { held = s.holds(fd, from, to); return nil })
		return held
	}
	if holds(knownBytes, 2*knownBytes) {
		t.Error("a cold file is held")
	}
	if err := s.ReadAt(t.Context(), make([]byte, size), 0); err != nil {
		t.Fatal(err)
	}
	if !holds(3*knownBytes, size) || !holds(knownBytes+alignBytes, 2*knownBytes-alignBytes) {
		t.Error("what was read is not held")
	}
	if s.known.covers(0, 1) || !s.known.covers(knownBytes, 2*knownBytes) || s.known.covers(knownBytes, 3*knownBytes) ||
		!s.known.covers(size-1, size) {
		t.Error("other pieces are known than were asked for")
	}
	dropCache(t, s, 0, size)
	if residencyOf(s, 0, size) != not {
		t.Skip("this file system does not let go of what was read")
	}
	if !holds(knownBytes, 2*knownBytes) || !holds(3*knownBytes, size) {
		t.Error("what was known was asked again")
	}
	if holds(0, knownBytes) || holds(knownBytes, 2*knownBytes+alignBytes) {
		t.Error("what was dropped is held")
	}
	if err := s.ReadAt(t.Context(), make([]byte, alignBytes), 2*knownBytes); err != nil {
		t.Fatal(err)
	}
	if residencyOf(s, 2*knownBytes, alignBytes) == wholly && !holds(knownBytes, 2*knownBytes+alignBytes) {
		t.Error("the part of a piece that was read is not held")
	}
	for i := range s.known.held {
		s.known.held[i].when = s.known.held[i].when.Add(-2 * knownTime)
	}
	if s.known.covers(knownBytes, 2*knownBytes) || holds(3*knownBytes, size) {
		t.Error("what was known long ago is still believed")
	}
}
