package main

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"
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
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// numbered is the tokenizer of n words, w0 and so on, with spaces between them.
func numbered(t *testing.T, n int) string {
	t.Helper()
	words := make(map[string]int)
	for id := range n {
		words["w"+strconv.Itoa(id)] = id
	}
	text, err := json.Marshal(map[string]any{
		"version": "1.0", "pre_tokenizer": map[string]any{"type": "WhitespaceSplit"},
		"model": map[string]any{"type": "WordLevel", "vocab": words, "unk_token": "w3"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
