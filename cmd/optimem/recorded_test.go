//go:build !files

package main

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"testing"

	"github.com/optimem/optimem/internal/fixtures"
)

// recordedIn reads what was recorded, in a file of gzipped JSON.
func recordedIn(t *testing.T, path string, to any) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(z).Decode(to); err != nil {
		t.Fatal(err)
	}
}

// folderOf makes a folder with these files.
func folderOf(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	if err := fixtures.Files(dir, files); err != nil {
		t.Fatal(err)
	}
	return dir
}
