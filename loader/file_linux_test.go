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

// Of what lies ahead of reads the kernel is asked once, however many reads there are, and a range that is not held is
// found at once.
func TestFileHoldsAhead(t *testing.T) {
	const size = 96 * alignBytes
	path, _ := randomFile(t, t.TempDir(), size)
	s := mustOpenFile(t, path)
	dropCache(t, s, 0, size)
	if residencyOf(s, 0, size) != not || s.probes.Load() {
		t.Skip("this file system keeps everything in memory, or the kernel does not tell")
	}
	holds := func(from, to int64) (held bool) {
		_ = s.control(func(fd int) error { held = s.holds(fd, from*alignBytes, to*alignBytes); return nil })
		return held
	}
	if holds(32, 64) {
		t.Error("a cold file is held")
	}
	if err := s.ReadAt(t.Context(), make([]byte, size), 0); err != nil {
		t.Fatal(err)
	}
	for _, r := range [][2]int64{{32, 48}, {40, 64}, {16, 40}, {16, 64}} {
		if !holds(r[0], r[1]) {
			t.Errorf("%v is not held", r)
		}
	}
	if from, to := s.known.from, s.known.to; from != 16*alignBytes || to != 64*alignBytes {
		t.Errorf("known are %d to %d", from, to)
	}
	dropCache(t, s, 0, size)
	if residencyOf(s, 0, size) != not {
		t.Skip("this file system does not let go of what was read")
	}
	if !holds(20, 60) {
		t.Error("what was known was asked again")
	}
	if holds(60, 70) || holds(10, 20) || holds(80, 96) {
		t.Error("what was dropped is held")
	}
	s.known.since = s.known.since.Add(-2 * knownTime)
	if holds(20, 60) {
		t.Error("what was known long ago is still believed")
	}
}
