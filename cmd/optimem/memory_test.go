//go:build !files

package main

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/loader"
)

// heapLimit sets the limit of the heap for a test, and says that the user has set none.
func heapLimit(t *testing.T, bytes int64) {
	t.Helper()
	before, percent := debug.SetMemoryLimit(bytes), debug.SetGCPercent(100)
	t.Cleanup(func() {
		debug.SetMemoryLimit(before)
		debug.SetGCPercent(percent)
	})
	t.Setenv("GOMEMLIMIT", "")
}

func sized(t *testing.T, bytes int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(bytes); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// The heap is bounded by what opening the largest of the files may take, unless the user bounds it.
func TestHeapBound(t *testing.T) {
	small, large := sized(t, 1), sized(t, 10<<20)
	const beside = 16 << 20
	for _, tt := range []struct {
		limits loader.Limits
		paths  []string
		want   int64
	}{
		{loader.Limits{}, []string{small}, loader.DefaultMemoryBytes + beside},
		{loader.Limits{}, []string{large}, 120<<20 + beside},
		{loader.Limits{}, []string{large, small}, 120<<20 + beside},
		{loader.Limits{}, []string{small, t.TempDir()}, loader.Limits{}.MemoryFor(math.MaxInt64) + beside},
		{loader.Limits{MemoryBytes: 1 << 30}, []string{small}, 1<<30 + beside},
	} {
		heapLimit(t, math.MaxInt64)
		command.BoundHeap(tt.limits, tt.paths...)
		if got := debug.SetMemoryLimit(-1); got != tt.want {
			t.Errorf("%+v of %d files: the heap may have %d bytes, want %d", tt.limits, len(tt.paths), got, tt.want)
		}
	}
	heapLimit(t, 1<<40)
	t.Setenv("GOMEMLIMIT", "1TiB")
	command.BoundHeap(loader.Limits{}, small)
	if got := debug.SetMemoryLimit(-1); got != 1<<40 {
		t.Errorf("the user's limit is %d bytes now", got)
	}
}

// Opening a model is bounded, running it is not.
func TestHeapOfRun(t *testing.T) {
	heapLimit(t, 1<<40)
	done(t, "run", fixturesFolder()+"pt2_mlp.pt2", "--input", "random", "--quiet")
	percent := debug.SetGCPercent(100)
	if got := debug.SetMemoryLimit(-1); got != 1<<40 || percent != 100 {
		t.Errorf("after a run the heap may have %d bytes, and %d %% of garbage", got, percent)
	}
}
