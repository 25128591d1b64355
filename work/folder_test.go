package work

import (
	"bytes"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/internal/npy"
)

// sharedFolder has pictures as files, some in a folder within.
func sharedFolder(t *testing.T, n int) (root *os.Root, paths []string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "more"), 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		name := strings.Repeat("x", i+1) + ".npy"
		if i%2 == 1 {
			name = "more/" + name
		}
		var b bytes.Buffer
		if err := npy.Write(&b, picture(i)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, name)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root, paths
}

func sharedItems(paths []string) iter.Seq[Item] {
	return func(yield func(Item) bool) {
		for _, path := range paths {
			if !yield(Item{Name: path, Files: map[string]File{input: {Path: path}}}) {
				return
			}
		}
	}
}

// TestShared: workers read inputs where they lie, nothing of them is in the store, and outputs are found by the keys
// that they have anywhere.
func TestShared(t *testing.T) {
	const n = 12
	server := embedded(t)
	root, paths := sharedFolder(t, n)
	hire(t, server, WorkerOptions{Shared: root}, nil)
	q := connect(t, server)
	want := plain(t, n)
	keys := make([]string, n)
	if err := q.Submit(t.Context(), "digits", sharedItems(paths), SubmitOptions{Shared: root}, func(r Result) error {
		check(t, q, r, want[r.Index])
		keys[r.Index] = r.Key
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	info, err := q.in.stream.Info(t.Context())
	if err != nil || info.State.Msgs != 0 {
		t.Errorf("%d messages of inputs are stored: %v", info.State.Msgs, err)
	}
	if err := q.Submit(t.Context(), "digits", pictures(0, n), SubmitOptions{}, func(r Result) error {
		if r.Key != keys[r.Index] {
			t.Errorf("%s has another key where it is stored", r.Name)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestSharedRefused: what is no file of the folder is not read, and neither is a file that is not what it was.
func TestSharedRefused(t *testing.T) {
	root, paths := sharedFolder(t, 2)
	outside := filepath.Join(t.TempDir(), "secret.npy")
	if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"", ".", "..", "../secret.npy", "/etc/passwd", "more/../x.npy", "./x.npy", "more//xx.npy", `more\xx.npy`, "c:x.npy", "x.npy\x00",
		strings.Repeat("a", 2000), "more",
	} {
		if _, err := sharedInput(t.Context(), root, "x", name); err == nil {
			t.Errorf("%q is read", name)
		}
	}
	linked := 0
	for from, to := range map[string]string{"out.npy": outside, "in.npy": "x.npy", "folder": "more"} {
		if err := os.Symlink(to, filepath.Join(root.Name(), from)); err == nil {
			linked++
		}
	}
	for _, name := range []string{"out.npy", "in.npy", "folder/xx.npy"} {
		if _, err := sharedInput(t.Context(), root, "x", name); linked == 3 && (err == nil || errors.Is(err, fs.ErrNotExist)) {
			t.Errorf("%q, a link, is read: %v", name, err)
		}
	}
	in, err := sharedInput(t.Context(), root, "x", paths[1])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readShared(t.Context(), nil, in); !errors.Is(err, errNotShared) {
		t.Errorf("without a folder: %v", err)
	}
	data, err := readShared(t.Context(), root, in)
	if err != nil || int64(len(data)) != in.Bytes {
		t.Fatal(len(data), err)
	}
	var item *poisonError
	data[len(data)-1] ^= 1
	for _, changed := range [][]byte{data, append(slices.Clone(data), 0), data[:10]} {
		if err := os.WriteFile(filepath.Join(root.Name(), filepath.FromSlash(paths[1])), changed, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readShared(t.Context(), root, in); !errors.As(err, &item) {
			t.Errorf("a file that changed: %v", err)
		}
	}
	in.Path = "gone.npy"
	if _, err := readShared(t.Context(), root, in); err == nil || errors.As(err, &item) {
		t.Errorf("a file that is gone may be there for others: %v", err)
	}
	for path, good := range map[string]bool{"a/b.npy": true, "../b.npy": false, "/b.npy": false} {
		text := `{"inputs": [{"name": "x", "sha256": "` + strings.Repeat("0", 64) + `", "bytes": 1, "path": "` + path + `"}]}`
		if _, err := parseNote([]byte(text)); (err == nil) != good {
			t.Errorf("a note of %s: %v", path, err)
		}
	}
}
