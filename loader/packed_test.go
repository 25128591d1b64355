package loader

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/storage/packed"
	"github.com/optimem/optimem/tensor"
)

// packTo writes a packed copy of a file.
func packTo(t *testing.T, from, to string) {
	t.Helper()
	source, err := storage.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	file, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	_, err = packed.Write(t.Context(), source, file, packed.Options{})
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
}

func bytesOf(t *testing.T, w tensor.Weight) []byte {
	t.Helper()
	b := make([]byte, w.Extent.Bytes)
	if err := w.Extent.ReadAt(context.Background(), b, 0); err != nil {
		t.Fatalf("%s: %v", w.Name, err)
	}
	return b
}

// TestPacked: a packed file of any format opens as what it was made of.
func TestPacked(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(validFolder(), "*"))
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	formats := make(map[Format]bool)
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil || info.IsDir() {
			continue
		}
		ckpt, err := Open(path)
		if err != nil || ckpt.Format == FormatSharded {
			if err == nil {
				ckpt.Close()
			}
			continue
		}
		copied := filepath.Join(t.TempDir(), filepath.Base(path))
		packTo(t, path, copied)
		again, err := Open(copied)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			ckpt.Close()
			continue
		}
		formats[ckpt.Format] = true
		if again.Format != ckpt.Format || len(again.Weights) != len(ckpt.Weights) || len(again.Unreadable) != len(ckpt.Unreadable) ||
			!slices.Equal(again.Values, ckpt.Values) {
			t.Errorf("%s: %s with %d tensors, packed %s with %d", path, ckpt.Format, len(ckpt.Weights), again.Format, len(again.Weights))
		}
		for i := range min(len(ckpt.Weights), len(again.Weights)) {
			a, b := ckpt.Weights[i], again.Weights[i]
			if a.Name != b.Name || a.DType != b.DType || !slices.Equal(a.Layout.Shape, b.Layout.Shape) || !bytes.Equal(bytesOf(t, a), bytesOf(t, b)) {
				t.Errorf("%s: %s is another one", path, a.Name)
			}
		}
		if err := errors.Join(ckpt.Close(), again.Close()); err != nil {
			t.Error(err)
		}
	}
	for _, f := range []Format{FormatTorchZip, FormatTorchLegacy, FormatTorchScript, FormatExported, FormatSafetensors, FormatGGUF} {
		if !formats[f] {
			t.Errorf("no file of the format %s", f)
		}
	}
}

// TestPackedScan: what is wrong within a packed file is found as it is in the file itself.
func TestPackedScan(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(hostileFolder(), "*.pt"))
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	for _, path := range paths[:min(len(paths), 30)] {
		copied := filepath.Join(t.TempDir(), "packed.pt")
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			continue
		}
		packTo(t, path, copied)
		plain, err := Scan(t.Context(), path, Options{})
		if err != nil {
			continue
		}
		again, err := Scan(t.Context(), copied, Options{})
		if err != nil || again.Verdict != plain.Verdict || len(again.Problems) != len(plain.Problems) {
			t.Errorf("%s: %s, packed %v, %v", path, plain.Verdict, again, err)
		}
	}
}

// corruptible writes a packed safetensors file of two tensors, in one block each but for the border, and returns its
// bytes.
func corruptible(t *testing.T) []byte {
	t.Helper()
	const n = packed.DefaultBlockBytes
	read := func(_ context.Context, p []byte, off int64) error {
		for i := range p {
			if at := int(off) + i; at%2 == 0 {
				p[i] = byte(at * 37 >> 1)
			} else {
				p[i] = 0x3D
			}
		}
		return nil
	}
	var file bytes.Buffer
	tensors := []TensorData{
		{Name: "first", DType: tensor.BFloat16, Shape: tensor.Shape{n}, ReadAt: read},
		{Name: "second", DType: tensor.BFloat16, Shape: tensor.Shape{n}, ReadAt: read},
	}
	if err := WriteSafetensors(t.Context(), &file, tensors, nil); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "plain")
	if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	packTo(t, path, filepath.Join(dir, "packed"))
	data, err := os.ReadFile(filepath.Join(dir, "packed"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestPackedCorrupt: what is wrong with a packed file has a class, and a block that does not come back names its
// tensors.
func TestPackedCorrupt(t *testing.T) {
	good := corruptible(t)
	path := filepath.Join(t.TempDir(), "model.safetensors")
	write := func(b []byte) {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		change func(b []byte) []byte
		class  error
	}{
		"cut":       {func(b []byte) []byte { return b[:len(b)-1] }, ErrFormat},
		"few bytes": {func(b []byte) []byte { return b[:20] }, ErrFormat},
		"table":     {func(b []byte) []byte { b[33] ^= 1; return b }, ErrFormat},
		"size":      {func(b []byte) []byte { b[20] ^= 1; return b }, ErrFormat},
		"version":   {func(b []byte) []byte { b[8] = 3; return b }, ErrUnsupported},
	} {
		write(c.change(bytes.Clone(good)))
		if _, err := Open(path); Class(err) != c.class {
			t.Errorf("%s: %v", name, err)
		}
	}
	bad := bytes.Clone(good)
	bad[len(bad)-1] ^= 1
	write(bad)
	ckpt, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer ckpt.Close()
	first, _ := ckpt.Weight("first")
	second, _ := ckpt.Weight("second")
	p := make([]byte, 10)
	if err := first.Extent.ReadAt(t.Context(), p, 0); err != nil {
		t.Errorf("a tensor in another block: %v", err)
	}
	err = second.Extent.ReadAt(t.Context(), p, second.Extent.Bytes-10)
	var placed *Error
	if Class(err) != ErrFormat || !errors.As(err, &placed) || placed.Record != "second" || placed.Path != path {
		t.Errorf("a block that does not come back: %v", err)
	}
	if _, err := OpenWith(t.Context(), path, Options{Verify: true}); Class(err) != ErrFormat {
		t.Errorf("verified: %v", err)
	}
	again := path + ".again"
	packTo(t, path, again)
	if _, err := Open(again); Class(err) != ErrUnsupported || !strings.Contains(err.Error(), "within a packed file") {
		t.Errorf("packed twice: %v", err)
	}
	write(good)
	sound, err := OpenWith(t.Context(), path, Options{Verify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer sound.Close()
	if list := sound.Packed(); len(list) != 1 || list[0].PackedBytes != int64(len(good)) || list[0].Bytes <= list[0].PackedBytes {
		t.Errorf("packed files: %v", list)
	}
}
