package pack_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/pack"
)

// TestRestoreThreads: an original of several parts comes back byte for byte on any number of threads, with all of its
// bytes told; a block that is damaged is an error on any number, and leaves nothing.
func TestRestoreThreads(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	weights := make([]byte, 5<<20+12)
	for i := 0; i < len(weights); i += 2 {
		binary.LittleEndian.PutUint16(weights[i:], 0x3C00|uint16(rng.Uint32())&0x80FF)
	}
	dir := t.TempDir()
	original, copied := filepath.Join(dir, "model.bin"), filepath.Join(dir, "packed.bin")
	if err := os.WriteFile(original, weights, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := pack.Write(t.Context(), original, copied, pack.Options{Threads: 3}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(copied)
	if err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(dir, "damaged.bin")
	bad := bytes.Clone(data)
	bad[len(bad)/2] ^= 1
	if err := os.WriteFile(damaged, bad, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, threads := range []int{1, 2, 7, 100} {
		to, told := filepath.Join(t.TempDir(), "again.bin"), int64(0)
		report, err := pack.Restore(t.Context(), copied, to, pack.Options{Threads: threads, Progress: func(n int64) { told += n }})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(to); err != nil || !bytes.Equal(got, weights) {
			t.Errorf("%d threads: other bytes: %v", threads, err)
		}
		if all, err := pack.Bytes(copied); err != nil || told > all || told < all/2 || !report.Files[0].Packed {
			t.Errorf("%d threads: %d of %d bytes were told: %v", threads, told, all, err)
		}
		_, err = pack.Restore(t.Context(), damaged, filepath.Join(dir, "none"), pack.Options{Threads: threads})
		if !errors.Is(err, loader.ErrFormat) {
			t.Errorf("%d threads, a damaged block: %v", threads, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%d threads: a damaged original is there: %v", threads, err)
		}
	}
}
