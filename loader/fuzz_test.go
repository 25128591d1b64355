package loader

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/optimem/optimem/internal/fixtures"
	"github.com/optimem/optimem/tensor"
)

// addFromDir adds the files below a folder, with one of the endings, as seeds.
func addFromDir(f *testing.F, dir string, endings ...string) {
	f.Helper()
	const maxBytes = 16 << 10 // the mutator makes little of larger ones
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !slices.Contains(endings, filepath.Ext(path)) {
			return err
		}
		data, err := os.ReadFile(path)
		if err == nil && len(data) <= maxBytes {
			f.Add(data)
		}
		return err
	})
	if err != nil {
		f.Fatal(err)
	}
}

// addFound adds what was found before.
func addFound(f *testing.F, target string) {
	f.Helper()
	for _, seed := range fixtures.Seeds("testdata/fuzz.tar.bz2", target) {
		f.Add([]byte(seed))
	}
}

// fuzzLimits let a bomb go off early.
var fuzzLimits = Limits{MemoryBytes: 4 << 20}

// FuzzOpen writes a file, and checks that opening and scanning it agree, that every error has a class, and that what
// opens can be read.
func FuzzOpen(f *testing.F) {
	addFromDir(f, validFolder(), ".pt", ".pt2", ".safetensors", ".bin", ".json", ".gguf")
	addFromDir(f, hostileFolder(), ".pt", ".pt2", ".pkl", ".tar", ".safetensors", ".bin", ".json", ".gguf", ".h5", ".npy", ".onnx")
	addFound(f, "FuzzOpen")
	path := filepath.Join(f.TempDir(), "file.pt")
	f.Fuzz(func(t *testing.T, file []byte) {
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		opts := Options{Limits: fuzzLimits}
		ckpt, err := OpenWith(t.Context(), path, opts)
		report, scanErr := Scan(t.Context(), path, opts)
		switch {
		case err == nil:
			defer ckpt.Close()
			if scanErr != nil || report.Verdict.Refused() {
				t.Fatalf("it opens; scan says %v, %v", report, scanErr)
			}
			checkOpened(t, ckpt)
		case Class(err) == nil:
			// A shard index may name a file that is not there.
			if !errors.Is(err, fs.ErrNotExist) || scanErr == nil {
				t.Fatalf("error without a class: %v, and from scan: %v", err, scanErr)
			}
		case scanErr != nil || !report.Verdict.Refused():
			t.Fatalf("open says %v; scan says %q, %v", err, report.Verdict, scanErr)
		}
	})
}

// FuzzLegacy is FuzzOpen for legacy files, without the file.
func FuzzLegacy(f *testing.F) {
	for _, dir := range []string{validFolder(), hostileFolder()} {
		paths, err := filepath.Glob(filepath.Join(dir, "*legacy_*"))
		if err != nil {
			f.Fatal(err)
		}
		for _, path := range paths {
			if data, err := os.ReadFile(path); err == nil && filepath.Ext(path) != ".json" {
				f.Add(data)
			}
		}
	}
	addFound(f, "FuzzLegacy")
	f.Fuzz(func(t *testing.T, file []byte) {
		open := func(keepGoing bool) (*Checkpoint, *opener, error) {
			o := newOpener(t.Context(), "file", Options{Limits: fuzzLimits})
			o.findings.keepGoing = keepGoing
			ckpt := &Checkpoint{}
			return ckpt, o, o.openLegacy(ckpt, bytesSource(file))
		}
		ckpt, _, err := open(false)
		_, o, scanErr := open(true)
		if clean := scanErr == nil && len(o.findings.problems) == 0; clean != (err == nil) {
			t.Fatalf("open says %v; scan says %v, %v", err, scanErr, o.findings.problems)
		}
		if err == nil {
			checkOpened(t, ckpt)
		} else if Class(err) == nil {
			t.Fatalf("error without a class: %v", err)
		}
	})
}

// checkOpened checks that weights lie in their sources, and reads some.
func checkOpened(t *testing.T, ckpt *Checkpoint) {
	t.Helper()
	names := make(map[string]bool)
	for i, w := range ckpt.Weights {
		if names[w.Name] {
			t.Fatalf("two weights are named %q", w.Name)
		}
		names[w.Name] = true
		e := w.Extent
		if e.Offset < 0 || e.Bytes < 0 || e.Bytes > e.Source.Size()-e.Offset {
			t.Fatalf("%s lies at %d, %d bytes, in %d", w.Name, e.Offset, e.Bytes, e.Source.Size())
		}
		if i < 4 {
			readSome(t, w)
		}
	}
	for _, e := range ckpt.Unreadable {
		if !errors.Is(e, ErrUnsupported) {
			t.Fatalf("unreadable: %v", e)
		}
	}
	for _, d := range ckpt.StateDicts() {
		if len(d.Weights) == 0 || len(d.Weights) > len(ckpt.Weights) {
			t.Fatalf("state dict %q of %d weights", d.Path, len(d.Weights))
		}
	}
}

// readSome reads a weight, unless it is a view that strides of 0 make large.
func readSome(t *testing.T, w tensor.Weight) {
	t.Helper()
	if w.Bytes() > 1<<20 {
		return
	}
	contents, err := w.Contents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if int64(len(contents.Data)) != w.Bytes() {
		t.Fatalf("%s: %d bytes for shape %v of %v", w.Name, len(contents.Data), w.Layout.Shape, w.DType)
	}
}
