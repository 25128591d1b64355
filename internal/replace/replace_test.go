package replace

import (
	"io"
	"os"
	"path/filepath"
	goruntime "runtime"
	"testing"
)

// TestFile: a file is replaced, nothing is left beside it, and where it cannot be, the error says so and what was there stays.
func TestFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	for _, text := range []string{"one", "two, longer", ""} {
		if err := File(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%q, %v", got, err)
		}
	}
	if goruntime.GOOS != "windows" { // which lets no file be replaced that somebody reads
		open, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer open.Close()
		if err := File(path, []byte("three")); err != nil {
			t.Fatal(err)
		}
		if old, err := io.ReadAll(open); err != nil || len(old) > 0 {
			t.Errorf("who reads the file before finds %q: %v", old, err)
		}
	}
	folder := filepath.Join(dir, "folder")
	if err := os.MkdirAll(filepath.Join(folder, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if File(folder, nil) == nil || File(filepath.Join(dir, "none", "a"), nil) == nil {
		t.Error("a folder is replaced, or one that is not there has a file")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("%v, %v", left, err)
	}
}
