package newfile

import (
	"math"
	"math/bits"
	"path/filepath"
)

// A FullError is that a disk has no room for a file.
type FullError struct {
	Path                 string
	NeedBytes, FreeBytes int64
}

func (e *FullError) Error() string { return e.Path + ": not enough space on the disk" }

// CheckRoom fails, with a [FullError], where the disk of path cannot hold a file of the given size. It is a courtesy
// before a long write: the space may still run out later.
func CheckRoom(path string, needBytes int64) error {
	free, known := diskFree(filepath.Dir(path))
	if !known || needBytes <= free {
		return nil
	}
	return &FullError{path, needBytes, free}
}

func saturatingProduct(a, b uint64) int64 {
	hi, lo := bits.Mul64(a, b)
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
}
