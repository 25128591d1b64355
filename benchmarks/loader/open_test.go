package main

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/optimem/optimem/loader"
)

// BenchmarkOpenZip opens a file of 10,000 tensors, and of others to see that the time grows with their number only.
func BenchmarkOpenZip(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "tensors.pth")
			if err := makeCheckpoint(b.Context(), path, n); err != nil {
				b.Fatal(err)
			}
			benchmarkOpen(b, path, n)
		})
	}
}

// BenchmarkOpenExported opens the archive of 5,000 nodes that run_loader.sh lets PyTorch make.
func BenchmarkOpenExported(b *testing.B) {
	path := filepath.Join("..", "data", "nodes5000.pt2")
	if _, err := os.Stat(path); err != nil {
		b.Skip("benchmarks/run_loader.sh makes it: ", err)
	}
	benchmarkOpen(b, path, 6_000)
}

func benchmarkOpen(b *testing.B, path string, weights int) {
	b.ReportAllocs()
	for b.Loop() {
		ckpt, err := loader.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		if len(ckpt.Weights) != weights {
			b.Fatalf("%d weights, want %d", len(ckpt.Weights), weights)
		}
		if err := ckpt.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
