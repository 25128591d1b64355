package storage

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func makeFIFO(path string) bool { return unix.Mkfifo(path, 0o600) == nil }

// dropCache writes the range of the file out and takes it from the page cache, where the file system lets it.
func dropCache(t testing.TB, s *File, off, n int64) {
	t.Helper()
	if err := s.file.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := s.control(func(fd int) error { return unix.Fadvise(fd, off, n, unix.FADV_DONTNEED) }); err != nil {
		t.Fatal(err)
	}
}

// probeByReading makes s look for cached pages as it does where cachestat is not answered.
func probeByReading(s *File, on bool) {
	s.once.Do(s.openUncached)
	s.probes.Store(on)
}

// residencyOf asks for the residency of a range of a file.
func residencyOf(s *File, off int64, n int) (r residency) {
	_ = s.control(func(fd int) error {
		if !s.probes.Load() {
			r = s.ask(fd, off, off+int64(n))
		}
		if s.probes.Load() {
			r = probe(fd, off, n)
		}
		return nil
	})
	return r
}

func TestFileReadBulkLeavesNoCopy(t *testing.T) {
	const size = pieceBytes + 5*AlignBytes
	path, _ := randomFile(t, t.TempDir(), size)
	for _, mode := range []string{"direct", "probed", "dropped"} {
		s := mustOpenFile(t, path)
		probeByReading(s, mode == "probed")
		if mode == "dropped" {
			s.second.Close()
			s.second, s.direct = openRandom(path), false
		}
		look := mustOpenFile(t, path)
		left, tries := wholly, 1
		if mode == "probed" { // what a probe has the kernel read may come after it was dropped, where the disk is busy
			tries = 3
		}
		for ; left != not && tries > 0; tries-- {
			dropCache(t, s, 0, size)
			if residencyOf(look, 0, size) != not || look.probes.Load() {
				t.Skip("this file system keeps everything in memory, or the kernel does not tell")
			}
			if err := s.ReadBulk(t.Context(), aligned(size), 0); err != nil {
				t.Fatal(err)
			}
			left = residencyOf(look, 0, size)
		}
		if left != not {
			t.Errorf("%s: residency is %d after a bulk read of a cold file", mode, left)
		}
		got := not
		for tries := 3; got != wholly && tries > 0; tries-- { // a busy kernel may still drop what it was told to before
			if err := s.ReadAt(t.Context(), make([]byte, size/2), 0); err != nil {
				t.Fatal(err)
			}
			got = residencyOf(look, 0, size/2)
		}
		if got != wholly {
			t.Errorf("%s: residency is %d after a plain read", mode, got)
		}
	}
}

func TestFileCachedBytes(t *testing.T) {
	const size = 64 * AlignBytes
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

// The kernel is asked once for what it holds of a piece, and of a part of one, in whatever order they are read, and at once for
// what is not known.
func TestFileKnows(t *testing.T) {
	const size = 4*knownBytes - AlignBytes
	path, _ := randomFile(t, t.TempDir(), size)
	s := mustOpenFile(t, path)
	dropCache(t, s, 0, size)
	if residencyOf(s, 0, size) != not || s.probes.Load() {
		t.Skip("this file system keeps everything in memory, or the kernel does not tell")
	}
	check := func(what string, from, to int64, want residency) {
		t.Helper()
		_ = s.control(func(fd int) error {
			if got := s.holds(fd, from, to); got != want {
				t.Errorf("%s: bytes %d to %d are held %d, want %d", what, from, to, got, want)
			}
			return nil
		})
	}
	forget := func(after time.Duration) {
		for r, f := range s.known.found {
			f.when = f.when.Add(-after)
			s.known.found[r] = f
		}
	}
	read := func(from, to int64) {
		t.Helper()
		if err := s.ReadAt(t.Context(), make([]byte, to-from), from); err != nil {
			t.Fatal(err)
		}
		if residencyOf(s, from, int(to-from)) != wholly {
			t.Skip("this file system does not keep what was read")
		}
	}
	drop := func(from, to int64) {
		t.Helper()
		dropCache(t, s, from, to-from)
		if residencyOf(s, from, int(to-from)) != not {
			t.Skip("this file system does not let go of what was read")
		}
	}
	check("cold", knownBytes+AlignBytes, 2*knownBytes, not)
	read(0, size)
	check("known to be cold", knownBytes, 2*knownBytes, not)
	s.LookAgain()
	check("looked at again", knownBytes, 2*knownBytes, wholly)
	s.known.found[fileRange{knownBytes, 2 * knownBytes}] = finding{not, time.Now()}
	check("not known", 3*knownBytes, size, wholly)
	check("both", knownBytes, 3*knownBytes, partly)
	check("empty", size, size, wholly)
	forget(2 * knownTime)
	check("known long ago", knownBytes, 3*knownBytes, wholly)
	drop(0, size)
	check("known to be held", knownBytes, 2*knownBytes, wholly)
	check("dropped", 0, knownBytes, not)
	forget(2 * knownTime)
	read(2*knownBytes, 2*knownBytes+AlignBytes)
	drop(2*knownBytes+AlignBytes, size)
	check("a part of a piece", 2*knownBytes, 3*knownBytes, partly)
	check("the part that is held", 2*knownBytes, 2*knownBytes+AlignBytes, wholly)
	check("another part", 2*knownBytes+AlignBytes, 3*knownBytes, not)
	check("a piece and a part", knownBytes, 2*knownBytes+AlignBytes, partly)
	read(2*knownBytes+AlignBytes, 3*knownBytes)
	check("another part, known not to be held", 2*knownBytes+AlignBytes, 3*knownBytes, not)
	forget(2 * knownTime)
	check("another part, known long ago", 2*knownBytes+AlignBytes, 3*knownBytes, wholly)
	for i := range mostFindings + 10 { // what is known has an end
		s.known.found[fileRange{int64(i), int64(i)}] = finding{}
	}
	forget(2 * knownTime)
	check("one more", 2*knownBytes, 3*knownBytes, wholly)
	if n := len(s.known.found); n > mostFindings {
		t.Errorf("%d findings are kept", n)
	}
}

// TestDiskOfFile: files of one folder lie on one disk, which is known; a part of a disk is the whole one.
func TestDiskOfFile(t *testing.T) {
	dir := t.TempDir()
	var on [2]Disk
	for i, name := range []string{"a", "b"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("x"), 0o666); err != nil {
			t.Fatal(err)
		}
		f, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		on[i] = DiskOf(f)
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if on[0] == 0 || on[0] != on[1] {
		t.Errorf("two files of a folder lie on %v and %v", on[0], on[1])
	}
	tree := filepath.Join(dir, "dev", "block")
	device := filepath.Join(dir, "devices", "sda")
	for path, text := range map[string]string{
		filepath.Join(device, "dev"): "8:0\n", filepath.Join(device, "sda3", "dev"): "8:3\n",
		filepath.Join(device, "sda3", "partition"): "3\n", filepath.Join(tree, "x"): "",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for name, at := range map[string]string{"8:0": device, "8:3": filepath.Join(device, "sda3")} {
		if err := os.Symlink(at, filepath.Join(tree, name)); err != nil {
			t.Fatal(err)
		}
	}
	if d, ok := wholeDisk(tree, DiskOfNumbers(8, 3)); !ok || d != DiskOfNumbers(8, 0) {
		t.Errorf("8:3 is a part of %v, %v", d, ok)
	}
	for _, d := range []Disk{DiskOfNumbers(8, 0), DiskOfNumbers(9, 9)} {
		if whole, ok := wholeDisk(tree, d); ok {
			t.Errorf("%v is a part of %v", d, whole)
		}
	}
}
