package pack_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/optimem/optimem/pack"
)

// TestHiddenStays: hidden files are not copied, a file that is there stays, and progress of what is restored comes to
// what the packed file has.
func TestHiddenStays(t *testing.T) {
	from, dir := t.TempDir(), t.TempDir()
	weights := make([]byte, 300_000)
	for i := range weights {
		weights[i] = byte(i*i>>9) & 0x7F
		if i%2 == 1 {
			weights[i] = 0x3C
		}
	}
	for _, name := range []string{"model.safetensors", ".hidden.safetensors"} {
		if err := os.WriteFile(filepath.Join(from, name), weights, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	packed := filepath.Join(dir, "packed")
	report, err := pack.Write(t.Context(), from, packed, pack.Options{})
	if err != nil || len(report.Files) != 1 || report.Copied != 0 || !report.Files[0].Packed {
		t.Fatalf("%+v, %v", report, err)
	}
	total, told := int64(0), int64(0)
	if total, err = pack.Bytes(packed); err != nil {
		t.Fatal(err)
	}
	if _, err := pack.Restore(t.Context(), packed, filepath.Join(dir, "back"), pack.Options{Progress: func(n int64) { told += n }}); err != nil {
		t.Fatal(err)
	}
	if told < total*9/10 || told > total {
		t.Errorf("told of %d bytes of %d", told, total)
	}
	there := filepath.Join(dir, "there.safetensors")
	if err := os.WriteFile(there, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := pack.Write(t.Context(), filepath.Join(from, "model.safetensors"), there, pack.Options{}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a file that is there: %v", err)
	}
	if data, err := os.ReadFile(there); err != nil || string(data) != "mine" {
		t.Errorf("a file that is there is written over: %v", err)
	}
}
