package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestWriteFile(t *testing.T) {
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
	if err := writeFile(path, write("half", failed)); !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
	files(t, dir, 0)
	if err := writeFile(path, write("first", nil)); err != nil {
		t.Fatal(err)
	}
	content(t, path, "first")
	if err := writeFile(path, write("half", failed)); !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
	content(t, path, "first")
	if err := writeFile(path, write("second", nil)); err != nil {
		t.Fatal(err)
	}
	content(t, path, "second")
	files(t, dir, 1)

	link := filepath.Join(t.TempDir(), "link.pt")
	if err := os.Symlink(path, link); err != nil {
		t.Skip(err)
	}
	if err := writeFile(link, write("third", nil)); err != nil {
		t.Fatal(err)
	}
	content(t, path, "third")
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v, %v", info, err)
	}

	if err := writeFile(filepath.Join(dir, "no", "such", "folder.pt"), write("x", nil)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if err := writeFile(dir, write("x", nil)); err == nil {
		t.Error("a folder was overwritten")
	}
}

func TestCheckDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.pt")
	if _, known := diskFree(filepath.Dir(path)); !known {
		t.Skip("free space is unknown here")
	}
	if err := checkDisk(path, 1); err != nil {
		t.Error(err)
	}
	var f *failure
	if err := checkDisk(path, 1<<62); !errors.As(err, &f) || f.code != exitFailed || len(f.hints) != 1 {
		t.Errorf("got %#v", err)
	}
}
