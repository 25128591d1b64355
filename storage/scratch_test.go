package storage

import (
	"bytes"
	"errors"
	"os"
	"testing"
)

// TestScratch: what was written is read back, nothing beyond its end is, and while it is open, and after, the folder is
// empty.
func TestScratch(t *testing.T) {
	folder := t.TempDir()
	s, err := NewScratch(folder, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(folder); err != nil || s.name == "" && len(left) > 0 {
		t.Errorf("in the folder: %v, %v", left, err)
	}
	if s.Bytes() != 1<<20 {
		t.Errorf("%d bytes", s.Bytes())
	}
	first, last := bytes.Repeat([]byte{3}, 5000), bytes.Repeat([]byte{7}, 100)
	if err := errors.Join(s.Write(first, 4000), s.Write(last, 1<<20-100)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5000)
	if err := s.Read(got, 4000); err != nil || !bytes.Equal(got, first) {
		t.Errorf("other bytes come back: %v", err)
	}
	if err := s.Read(got[:100], 1<<20-100); err != nil || !bytes.Equal(got[:100], last) {
		t.Errorf("other bytes come back from the end: %v", err)
	}
	for _, off := range []int64{-1, 1<<20 - 4999, 1 << 40} {
		if s.Write(first, off) == nil || s.Read(got, off) == nil {
			t.Errorf("5000 bytes at %d are there", off)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("left in the folder: %v, %v", left, err)
	}
}

// TestNoScratch: an error says where there is no room, and nothing stays of the file.
func TestNoScratch(t *testing.T) {
	folder := t.TempDir()
	for _, c := range []struct {
		folder string
		bytes  int64
	}{{"", 1}, {folder + "/none", 1}, {folder, 1 << 62}} {
		s, err := NewScratch(c.folder, c.bytes)
		var failed *ScratchError
		if s != nil || !errors.As(err, &failed) || failed.Folder != c.folder || failed.Bytes != c.bytes {
			t.Errorf("%d bytes in %q: %v", c.bytes, c.folder, err)
		}
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("left in the folder: %v, %v", left, err)
	}
}
