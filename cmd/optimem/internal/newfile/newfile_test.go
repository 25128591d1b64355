package newfile

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWrite(t *testing.T) {
	failed := errors.New("failed on purpose")
	write := func(text string, err error) func(*os.File) error {
		return func(f *os.File) error {
			if _, err := f.WriteString(text); err != nil {
				return err
			}
			return err
		}
	}
	content := func(t *testing.T, path, want string) {
		t.Helper()
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v; want %q", path, got, err, want)
		}
	}
	files := func(t *testing.T, dir string, want int) {
		t.Helper()
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != want {
			t.Errorf("%v, %v: want %d files", entries, err, want)
		}
	}

	dir := t.TempDir()
	path := filepath.Join(dir, "out.pt")
	if err := Write(path, write("half", failed)); !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
	files(t, dir, 0)
	if err := Write(path, write("first", nil)); err != nil {
		t.Fatal(err)
	}
	content(t, path, "first")
	if err := Write(path, write("half", failed)); !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
	content(t, path, "first")
	if err := Write(path, write("second", nil)); err != nil {
		t.Fatal(err)
	}
	content(t, path, "second")
	files(t, dir, 1)

	link := filepath.Join(t.TempDir(), "link.pt")
	if err := os.Symlink(path, link); err != nil {
		t.Skip(err)
	}
	if err := Write(link, write("third", nil)); err != nil {
		t.Fatal(err)
	}
	content(t, path, "third")
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v, %v", info, err)
	}

	if err := Write(filepath.Join(dir, "no", "such", "folder.pt"), write("x", nil)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if err := Write(dir, write("x", nil)); err == nil {
		t.Error("a folder was overwritten")
	}
}

// A name may be as long as files' names may be, in bytes.
func TestWriteOfLongName(t *testing.T) {
	for _, name := range []string{strings.Repeat("x", 250) + ".pt", strings.Repeat("界", 83) + ".pt"} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, nil, 0o666); err != nil {
			t.Skip(err)
		}
		if err := Write(path, func(*os.File) error { return nil }); err != nil {
			t.Error(err)
		}
	}
}

// Who may read a file is what the process's mask says, as for a file that is written in the ordinary way.
func TestWriteMode(t *testing.T) {
	dir := t.TempDir()
	ordinary, path := filepath.Join(dir, "ordinary"), filepath.Join(dir, "out.pt")
	if err := os.WriteFile(ordinary, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, func(*os.File) error { return nil }); err != nil {
		t.Fatal(err)
	}
	want, err := os.Stat(ordinary)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.Stat(path); err != nil || got.Mode() != want.Mode() {
		t.Errorf("the mode is %v, %v; want %v", got.Mode(), err, want.Mode())
	}
}

// A file whose name is taken by a folder in the meantime is not left under another one.
func TestWriteOfTakenName(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out.pt")
	n, err := New(path, func(*os.File) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := n.Place(); err == nil {
		t.Error("a folder was overwritten")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v are left, %v", entries, err)
	}
}

func TestCheckRoom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.pt")
	if _, known := diskFree(filepath.Dir(path)); !known {
		t.Skip("free space is unknown here")
	}
	if err := CheckRoom(path, 1); err != nil {
		t.Error(err)
	}
	var full *FullError
	if err := CheckRoom(path, 1<<62); !errors.As(err, &full) || full.NeedBytes != 1<<62 {
		t.Errorf("got %#v", err)
	}
}

// A disk whose size is more than can be counted has as much as can be.
func TestLargeDisk(t *testing.T) {
	for _, tt := range []struct {
		blocks, size uint64
		want         int64
	}{{3, 4096, 12288}, {1 << 40, 1 << 30, math.MaxInt64}, {1 << 51, 1 << 12, math.MaxInt64}, {1 << 50, 1 << 12, 1 << 62}} {
		if got := saturatingProduct(tt.blocks, tt.size); got != tt.want {
			t.Errorf("%d blocks of %d bytes are %d", tt.blocks, tt.size, got)
		}
	}
}
