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
