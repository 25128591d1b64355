package kernels

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/optimem/optimem/internal/replace"
)

// mostKeptBytes bounds the assembled kernels that a folder keeps: those of some drivers and GPUs.
const mostKeptBytes = 256 << 20

// ReadAssembled reads a file with an assembled image.
func ReadAssembled(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	file, err := io.ReadAll(io.LimitReader(f, MaxAssembledBytes+1<<10))
	if err != nil {
		return nil, err
	}
	return UnpackAssembled(file)
}

// keeping is held while a process changes a folder of assembled kernels.
var keeping sync.Mutex

// KeepAssembled writes an assembled image into a folder, whole or not at all, and removes the oldest that drivers assembled where
// there are too many.
func KeepAssembled(dir, name string, cubin []byte) error {
	keeping.Lock()
	defer keeping.Unlock()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := replace.File(filepath.Join(dir, name), PackAssembled(cubin)); err != nil {
		return err
	}
	return DropOldest(dir, mostKeptBytes)
}

// DropOldest removes the oldest files that drivers' assemblers made, until at most so many bytes are left of all.
func DropOldest(dir string, most int64) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var total int64
	var own []fs.FileInfo
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !strings.HasSuffix(e.Name(), ".cubin") {
			continue // another process removed it, or it is not ours
		}
		total += info.Size()
		if strings.Count(e.Name(), ".") == 4 { // the driver's release is in the name
			own = append(own, info)
		}
	}
	slices.SortFunc(own, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, info := range own {
		if total <= most {
			break
		}
		if err := os.Remove(filepath.Join(dir, info.Name())); err != nil && !os.IsNotExist(err) {
			return err
		}
		total -= info.Size()
	}
	return nil
}
