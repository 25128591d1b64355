package pack_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/optimem/optimem/pack"
)

// TestResume: what was interrupted, at whatever byte, goes on from there and gives the same folder; what is left is
// believed as far as it comes back as the original is, and of files that are gone nothing stays.
func TestResume(t *testing.T) {
	from, dir := t.TempDir(), t.TempDir()
	numbers := make([]byte, 3<<20+1234)
	for i := range numbers {
		numbers[i] = byte(uint32(i)*2654435761>>24) | byte(i&1)*0x3C
		if i&1 == 1 {
			numbers[i] = 0x3C + byte(i>>9&1)
		}
	}
	for name, data := range map[string][]byte{
		"a.bin": numbers, "sub/b.bin": numbers[:1<<20], "config.json": []byte("{}"), "c.bin": []byte("nothing is gained here"),
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(from, name)), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(from, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	straight := filepath.Join(dir, "straight")
	if _, err := pack.Write(t.Context(), from, straight, pack.Options{Threads: 2}); err != nil {
		t.Fatal(err)
	}
	want := filesOf(t, straight)
	total, err := pack.Bytes(from)
	if err != nil {
		t.Fatal(err)
	}
	partial := filepath.Join(dir, ".again.partial")
	for _, damage := range []func(){
		func() {},
		func() { // some bytes of a block, and of the table
			for _, at := range []int64{40, 700_000} {
				file, err := os.OpenFile(filepath.Join(partial, "a.bin"), os.O_RDWR, 0)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := file.WriteAt([]byte("damage"), at); err != nil {
					t.Fatal(err)
				}
				if err := file.Close(); err != nil {
					t.Fatal(err)
				}
			}
		},
		func() { // what was of another folder
			if err := os.WriteFile(filepath.Join(partial, "old.bin"), numbers[:5000], 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(partial, "config.json"), numbers[:5000], 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		done := int64(0)
		for _, share := range []int64{30, 60, 90} { // of all, and then it is interrupted
			ctx, cancel := context.WithCancel(t.Context())
			done = 0
			_, err := pack.Write(ctx, from, filepath.Join(dir, "again"), pack.Options{Threads: 2, Resume: true, Progress: func(n int64) {
				if done += n; done > total*share/100 {
					cancel()
				}
			}})
			cancel()
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("interrupted at %d of %d: %v", done, total, err)
			}
			damage()
		}
		done = 0
		report, err := pack.Write(t.Context(), from, filepath.Join(dir, "again"), pack.Options{
			Threads: 2, Resume: true, Progress: func(n int64) { done += n },
		})
		if err != nil || done != total || report.Bytes != total {
			t.Fatalf("%v, %d of %d bytes", err, done, total)
		}
		if !same(want, filesOf(t, filepath.Join(dir, "again"))) {
			t.Error("another folder than without an interruption")
		}
		if _, err := os.Stat(partial); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("what was begun is still there: %v", err)
		}
		if err := os.RemoveAll(filepath.Join(dir, "again")); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(straight, partial); err != nil {
		t.Skip(err)
	}
	if _, err := pack.Write(t.Context(), filepath.Join(from, "a.bin"), filepath.Join(dir, "again"), pack.Options{Resume: true}); err == nil {
		t.Error("what is no file is written to")
	}
}
