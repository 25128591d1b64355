package main

import (
	"fmt"
	"math"
	"math/bits"
	"path/filepath"

	"github.com/optimem/optimem/internal/ascii"
)

// checkDisk fails where the disk of path cannot hold a file of the given size. It is a courtesy before a long write:
// the space may still run out later.
func checkDisk(path string, needBytes int64) error {
	dir := filepath.Dir(path)
	free, known := diskFree(dir)
	if !known || needBytes <= free {
		return nil
	}
	hint := fmt.Sprintf("the file takes %s and %s are free in %s",
		ascii.FormatSize(needBytes), ascii.FormatSize(free), dir)
	return &failure{
		err:   fmt.Errorf("%s: not enough space on the disk", path),
		code:  exitFailed,
		hints: []string{hint},
	}
}

func saturatingProduct(a, b uint64) int64 {
	hi, lo := bits.Mul64(a, b)
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
}
